"""What the client hands to an engine: plain values, valid for as long as they say."""

import attrs
import numpy as np
import numpy.typing as npt

from orbitkv.adapters.connection import Connection
from orbitkv.io.wire import NO_CELL, GroupLayout, QueryAnswered, QueryStatus


@attrs.frozen(slots=True)
class Registration:
    session: int
    incarnation: int
    instance: int
    sealed: bool
    """False: other ranks are missing. Nothing is served yet and `footprints` is empty."""
    layouts: dict[int, GroupLayout]
    """By group: where this rank's slices stand in a page image."""

    @property
    def footprints(self) -> dict[int, int]:
        """By group: padded bytes of one page over all ranks."""
        return {group: layout.footprint_bytes for group, layout in self.layouts.items()}


@attrs.frozen(slots=True)
class QueryAnswer:
    status: QueryStatus
    operation: bytes = b""
    """Handle for `poll` and `cancel`; empty when nothing was opened."""
    boundary_tokens: int = 0
    """How many leading tokens need no computing."""
    hits: tuple[int, ...] = ()
    """Pages per part."""
    lease: bytes = b""
    """Handle for `begin_restore` and `release`, good in any rank's process; empty unless READY."""
    offsets_column: bytes = attrs.field(default=b"", repr=False)
    cell: int = attrs.field(default=NO_CELL, repr=False)
    word: int = attrs.field(default=0, repr=False)

    @property
    def offsets(self) -> npt.NDArray[np.uint64]:
        """Pool offsets of the leased page images, part after part. Read only after `begin_restore`."""
        return np.frombuffer(self.offsets_column, "<u8")


def read_answer(reply: QueryAnswered) -> QueryAnswer:
    return QueryAnswer(
        QueryStatus(reply.status),
        reply.operation,
        reply.boundary_tokens,
        reply.hits,
        reply.lease,
        reply.offsets,
        reply.cell,
        reply.word,
    )


@attrs.frozen(slots=True)
class SyncReceipt:
    acknowledged: bool
    """False: the manager could not be reached; the report is kept and sent again by a later call."""
    late: bool = False
    """The lease had expired before; the report counts all the same."""
    repeated: bool = False
    """The manager had it already."""
    refused: str = ""
    """Why the manager will not take it, now or later; empty when it did."""


@attrs.define(slots=True, eq=False)
class Waiting:
    """A loading answer, and until when the board is believed about it."""

    answer: QueryAnswer
    connection: Connection
    refresh_at: float
