"""Rewrites the records of a log: every key and name by its pseudonym, everything else as it is.

Which fields that are is said here by name, for commands and facts alike. A field of text or bytes that
is in neither of the two lists is an error, so that a new one is not exported by default.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from orbitkv.events.facts import SpaceOpened
from orbitkv.events.record import Record
from replay.export.names import Pseudonyms
from replay.export.spaces import Spaces

Rewrite: TypeAlias = Callable[[Any], Any]

STAGES = frozenset(
    (
        *("queued", "read_start", "host_ready", "restore_submit", "gpu_ready", "first_use"),
        *("query_cancel", "read_stopped", "read_deadline"),
    )
)
"""Of a request's life. An engine may report others, in words of its own."""

PLAIN_FIELDS = frozenset(
    (
        # Packed columns of numbers.
        *("pages", "buffers", "generations", "slots", "spaces", "reads", "read_bytes", "elapsed_us"),
        *("offsets", "staging_offsets", "positions", "incarnations", "footprints", "quarantined", "outcomes"),
        # Words of the manager's own.
        *("io_engine", "charge", "kind"),
        # "layers 0-17 heads 0-3": the shape of a model, which numbers beside it tell as well.
        "slice",
    )
)


class RecordRewriter:
    """Under one set of pseudonyms. `spaces` knows the digests that follow from others."""

    def __init__(self, pseudonyms: Pseudonyms, spaces: Spaces) -> None:
        name = pseudonyms.name
        self._fields: dict[str, Rewrite] = {
            "keys": pseudonyms.key,
            "unknown": pseudonyms.key,
            "request": lambda text: name("request", text),
            "instance": lambda text: name("instance", text),
            "name": lambda text: name("instance", text),
            "host": lambda text: name("host", text),
            "reason": lambda text: name("text", text),
            "io_reason": lambda text: name("text", text),
            "stage": lambda text: text if text in STAGES else name("stage", text),
            "namespace_digest": pseudonyms.namespace,
            "namespace_document": pseudonyms.document,
            "scopes": spaces.pseudonym,
        }
        self._numbers: dict[str, Rewrite] = {
            # A user's number; and a hash of keys, which whoever has the keys could compute.
            "uid": lambda number: pseudonyms.number("uid", number, 32),
            "body": lambda number: pseudonyms.number("body", number, 64),
        }
        self._special: dict[type, dict[str, Rewrite]] = {
            SpaceOpened: {"namespace_digest": spaces.pseudonym}
        }
        self._plans: dict[type, tuple[tuple[str, Rewrite], ...]] = {}

    def records(self, records: Sequence[Record]) -> list[Record]:
        struct = self.struct
        return [
            Record(record.seq, record.at_ns, struct(record.cause), tuple(map(struct, record.events)))
            for record in records
        ]

    def struct(self, value: Any) -> Any:
        """A command, a fact or a part of one."""
        plan = self._plans.get(type(value))
        if plan is None:
            plan = self.fields(type(value))
        if not plan:
            return value
        changes = {field: rewrite(getattr(value, field)) for field, rewrite in plan}
        return msgspec.structs.replace(value, **changes)

    def fields(self, kind: type) -> tuple[tuple[str, Rewrite], ...]:
        """The fields of a kind that change, and how. Raises TypeError for one that nobody has judged."""
        found = []
        for field, hint in get_type_hints(kind).items():
            rewrite = self._special.get(kind, {}).get(field) or self._rewrite(kind, field, hint)
            if rewrite is not None:
                found.append((field, rewrite))
        self._plans[kind] = tuple(found)
        return self._plans[kind]

    def _rewrite(self, kind: type, field: str, hint: Any) -> Rewrite | None:
        """For a value of type `hint` in this field; None: it stays."""
        if get_origin(hint) is tuple:
            return self._rewrite_tuple(kind, field, get_args(hint))
        if hint in (str, bytes):
            if field in PLAIN_FIELDS:
                return None
            if field not in self._fields:
                raise TypeError(f"nobody has said whether {kind.__name__}.{field} may be exported")
            return self._fields[field]
        if hint is int:
            return self._numbers.get(field)
        if issubclass(hint, msgspec.Struct):
            return self.struct if self.fields(hint) else None
        return None

    def _rewrite_tuple(self, kind: type, field: str, hints: tuple[Any, ...]) -> Rewrite | None:
        if hints[-1] is Ellipsis:
            each = self._rewrite(kind, field, hints[0])
            return None if each is None else lambda values: tuple(map(each, values))
        places = [self._rewrite(kind, field, hint) for hint in hints]
        if not any(places):
            return None
        return lambda values: tuple(
            value if rewrite is None else rewrite(value)
            for rewrite, value in zip(places, values, strict=True)
        )
