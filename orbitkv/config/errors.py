"""How a mistake in the configuration is told: what happened, why, and what mends it."""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Problem:
    """One mistake. The three sentences are shown one below the other."""

    what: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}\n  Why: {self.why}\n  Remedy: {self.remedy}"


class ConfigError(Exception):
    """The configuration cannot be used; holds every mistake that was found, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class Unfit(ValueError):
    """A value that a setting cannot take. The loader adds which setting it was and where it came from."""

    def __init__(self, why: str, remedy: str, setting: str = "") -> None:
        super().__init__(f"{setting}: {why}; {remedy}" if setting else f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy
        self.setting = setting
        """Set where more than one setting is concerned: the one to name first."""


class Contradiction(ValueError):
    """Settings that are fine one by one and cannot be used together."""

    def __init__(self, found: Sequence[tuple[Unfit, object]]) -> None:
        super().__init__("; ".join(str(unfit) for unfit, _ in found))
        self.found = tuple(found)
        """Each with the value of the setting it names."""
