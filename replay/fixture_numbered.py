"""A wish made a command: names become the numbers of the telling.

What a name stands for, the telling's own facts say (`fixture_names`), and for page keys the kernel's state; a
name that they do not know becomes a number that means nothing, and the kernel answers as it answers that.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

import msgspec

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, WriteOutcome
from orbitkv.manager.kernel import State, resolve_keys
from orbitkv.manager.kernel.views import group_layout
from replay.fixture_names import Names, key_of, operation_of
from replay.fixture_wishes import KINDS, Fields, ScriptError, Wish
from replay.simulate.world_ssd import u32, u64

_PARTS = tuple[commands.QueryPart, ...]


def command_of(wish: Wish, state: State, names: Names) -> Command:
    """The command as the state and the names of the telling number things. Raises ScriptError."""
    kind = KINDS[wish.kind]
    fields = dict(wish.fields)
    try:
        make = _MAKERS.get(kind)
        if make is not None:
            make(fields, state, names)
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        made = kind(**{name: _made(types[name], value) for name, value in fields.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ScriptError(f"{wish.kind} cannot be made of {wish.fields}: {error}") from error
    return made  # type: ignore[no-any-return]  # one of the union


def _made(kind: Any, value: Any) -> Any:
    if isinstance(value, bytes) or kind == _PARTS:
        return value
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return kind[value.upper()]
    return msgspec.convert(value, kind)


def _resolved(state: State, session: int, group: int, keys: Iterable[str]) -> tuple[bytes, tuple[bytes, ...]]:
    raw = [key_of(key) for key in keys]
    layout = group_layout(state, session, group)
    if layout is None:
        return u32([NONE_U32] * len(raw)), tuple(raw)
    return resolve_keys(state, layout.space, raw)


def _make_query(fields: Fields, state: State, names: Names) -> None:
    parts = []
    for told in fields["parts"]:
        pages, unknown = _resolved(state, fields["session"], told["group"], told["keys"])
        part = {name: value for name, value in told.items() if name != "keys"}
        parts.append({**part, "pages": pages, "unknown": unknown})
    fields["parts"] = tuple(commands.QueryPart(**part) for part in parts)


def _make_begin_save(fields: Fields, state: State, names: Names) -> None:
    keys = fields.pop("keys")
    fields["pages"], fields["unknown"] = _resolved(state, fields["session"], fields["group"], keys)


def _make_operation(fields: Fields, state: State, names: Names) -> None:
    fields["operation"] = operation_of(fields["operation"])


def _make_lease(fields: Fields, state: State, names: Names) -> None:
    fields["lease"] = names.lease_of(fields["lease"])


def _make_planned(fields: Fields, state: State, names: Names) -> None:
    planned = [names.buffer_of(name) for name in fields["buffers"]]
    fields["buffers"] = u32([buffer for buffer, _ in planned])
    fields["generations"] = u64([generation for _, generation in planned])
    if "staging_offsets" in fields:
        fields["staging_offsets"] = u64(fields["staging_offsets"])


def _make_buffers(fields: Fields, state: State, names: Names) -> None:
    fields["buffers"] = u32([names.buffer_of(name)[0] for name in fields["buffers"]])


def _make_copies(fields: Fields, state: State, names: Names) -> None:
    _make_buffers(fields, state, names)
    fields["outcomes"] = _numbered(CopyOutcome, fields["outcomes"])


def _make_reads(fields: Fields, state: State, names: Names) -> None:
    fields["reads"] = u32([names.reads.number(name) for name in fields["reads"]])
    fields["outcomes"] = _numbered(ReadOutcome, fields["outcomes"])
    fields["read_bytes"], fields["elapsed_us"] = u32(fields["read_bytes"]), u32(fields["elapsed_us"])


def _make_writes(fields: Fields, state: State, names: Names) -> None:
    fields["slots"] = u32([names.slots.number(name) for name in fields["slots"]])
    fields["outcomes"] = _numbered(WriteOutcome, fields["outcomes"])
    fields["elapsed_us"] = u32(fields["elapsed_us"])


def _make_registration(fields: Fields, state: State, names: Names) -> None:
    fields["namespace_digest"] = bytes.fromhex(fields["namespace_digest"])


def _make_recovered(fields: Fields, state: State, names: Names) -> None:
    for name in ("slots", "spaces", "incarnations", "footprints", "quarantined"):
        if name in fields:
            fields[name] = u32(fields[name])
    fields["generations"] = u64(fields["generations"])
    fields["keys"] = tuple(key_of(key) for key in fields["keys"])
    fields["scopes"] = tuple((bytes.fromhex(digest), group) for digest, group in fields["scopes"])


def _numbered(words: type[IntEnum], told: Iterable[str]) -> bytes:
    return bytes(words[word.upper()] for word in told)


_MAKERS: dict[type, Callable[[Fields, State, Names], None]] = {
    commands.RegisterRank: _make_registration,
    commands.SubmitQuery: _make_query,
    commands.WarmPrefix: _make_query,
    commands.PollQuery: _make_operation,
    commands.CancelQuery: _make_operation,
    commands.BeginRestore: _make_lease,
    commands.ReportSync: _make_lease,
    commands.ReleaseLease: _make_lease,
    commands.BeginSave: _make_begin_save,
    commands.CommitSave: _make_planned,
    commands.AbortSave: _make_planned,
    commands.CompleteCopies: _make_copies,
    commands.CompleteSeals: _make_buffers,
    commands.CompleteReads: _make_reads,
    commands.CompleteWrites: _make_writes,
    commands.RecoverSegment: _make_recovered,
}
"""Commands whose numbers are the telling's own."""
