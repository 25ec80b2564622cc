"""Scripts: wishes told to a fresh kernel, and what came of each, as text that is read and committed.

A script's file is lines: `# ...` is prose, `> ...` a wish (`fixture_wishes`); beneath each wish stand the
facts of its record, or the refusal, or that nothing changed, and the state's line. Only prose and wishes
are read; the rest is told anew, so a file is right when telling it gives the same text.

The kernel is the real one and the telling has no clock: same script, same text.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import attrs

from orbitkv.events.facts import Event
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Answer, Refused, State, check, new_state, step
from replay.fixture_names import Names, operation_name
from replay.fixture_numbered import command_of
from replay.fixture_wishes import Wish, wish_from, wish_line
from replay.wording.lines import struct_text

HIDDEN = frozenset(
    {"config", "groups", "namespace_digest", "host", "kernel_revision", "body", "staging_bytes"}
)
"""Fields of facts that would bury a story: they say nothing that the wish above them does not say."""
_OPERATION = re.compile(r"\boperation=(\d+)")
_NOTHING = re.compile(r" \w+=0(?:\+0)?(?=[ >])")
"""Fields of the state's line that say that there is none of something."""


@attrs.frozen
class Script:
    """What a file of a story holds that is not told anew."""

    prose: tuple[str, ...]
    wishes: tuple[Wish, ...]

    @classmethod
    def read(cls, text: str) -> "Script":
        """Raises ScriptError."""
        prose, wishes = [], []
        before_ns = 0
        for line in text.splitlines():
            if line.startswith("#"):
                prose.append(line)
            elif line.startswith("> "):
                wishes.append(wish_from(line[2:], before_ns))
                before_ns = wishes[-1].at_ns
        return cls(tuple(prose), tuple(wishes))


@attrs.define
class Telling:
    """What came of a script."""

    state: State
    records: list[Record] = attrs.Factory(list)
    results: list[Record | str] = attrs.Factory(list)
    """By wish: its record, or in words why there is none."""
    broken: str = ""
    """A rule of the kernel that broke; the telling ends there."""


def tell(wishes: Iterable[Wish], *, on_result: Callable[[Wish, State], None] | None = None) -> Telling:
    """Step every wish on a fresh state. Raises ScriptError for a wish that cannot be made a command."""
    telling, names = Telling(new_state()), Names()
    state = telling.state
    for wish in wishes:
        command = command_of(wish, state, names)
        try:
            result = step(state, wish.at_ns, command)
        except AssertionError as error:
            telling.broken = f"AssertionError: {error}"
            telling.results.append(telling.broken)
            break
        if isinstance(result, Record):
            names.learn(result)
            telling.records.append(result)
            telling.results.append(result)
        else:
            telling.results.append(_without_record(result))
        if on_result is not None:
            on_result(wish, state)
    if not telling.broken:
        try:
            check(state)
        except AssertionError as error:
            telling.broken = f"AssertionError: {error}"
    return telling


def _without_record(result: Answer | Refused) -> str:
    if isinstance(result, Refused):
        return f"refused: {result.reason.name.lower()}: {result.detail}"
    return "nothing changed"


def story(prose: Sequence[str], wishes: Sequence[Wish]) -> str:
    """The script with everything beneath its wishes told anew."""
    states: list[str] = []
    telling = tell(wishes, on_result=lambda _, state: states.append(_NOTHING.sub("", repr(state))))
    lines = list(prose)
    before_ns = 0
    for index, result in enumerate(telling.results):
        wish = wishes[index]
        lines += ["", f"> {wish_line(wish, before_ns)}"]
        before_ns = wish.at_ns
        lines += [_fact_text(event) for event in result.events] if isinstance(result, Record) else [result]
        lines += [f"= {states[index]}"] if index < len(states) else []
    lines += ["", f"# broken: {telling.broken}"] if telling.broken else []
    return "\n".join(lines) + "\n"


def _fact_text(event: Event) -> str:
    return _OPERATION.sub(
        lambda found: f"operation={operation_name(int(found[1]))}", struct_text(event, HIDDEN)
    )
