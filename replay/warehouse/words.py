"""Closed sets as the warehouse spells them: the words in SQL for the numbers in a log."""

import re
from enum import IntEnum

import attrs


@attrs.frozen
class Words:
    """A closed set: `name` is that of its SQL type."""

    name: str
    by_number: dict[int, str]

    @classmethod
    def of(cls, kind: type[IntEnum]) -> "Words":
        return cls(snake(kind.__name__), {int(member): member.name.lower() for member in kind})

    @property
    def lowest(self) -> int:
        return min(self.by_number)

    @property
    def listed(self) -> list[str | None]:
        """The words of `lowest` and the numbers after it; None where a number has none."""
        return [self.by_number.get(number) for number in range(self.lowest, max(self.by_number) + 1)]


def snake(name: str) -> str:
    """`QueryOpened` as `query_opened`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
