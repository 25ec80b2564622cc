"""Where the pages of a prefix are: in DRAM, on their way from the SSD, on the SSD, or nowhere.

A peek: nothing becomes recent, nothing is held. `prefixes` says how far what is there reaches.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from orbitkv.manager.kernel.columns import NONE, ZERO, Ints
from orbitkv.manager.kernel.pages import PageTable
from orbitkv.manager.kernel.prefixes import Available, reach
from orbitkv.manager.kernel.state import Part, State


class Reached(msgspec.Struct, frozen=True, gc=False):
    """The pages that are needed at the boundary, in part order."""

    bounds: tuple[int, ...]
    """Per part: pages from its start to the boundary."""
    pages: Ints
    buffers: Ints
    """By page; -1: not in DRAM."""
    reading: Ints
    """By page: the read that brings it; -1: none."""


def reached(state: State, parts: Sequence[Part]) -> Reached:
    """How far the parts reach now. Sets each part's `reach`."""
    seen = [_look_up(state.pages, part.pages, bool(part.unknown)) for part in parts]
    bounds = reach([(part.page_tokens, part.trailing, s[2]) for part, s in zip(parts, seen, strict=True)])
    for part, bound in zip(parts, bounds, strict=True):
        part.reach = bound
    spans = [slice(part.first, part.reach) for part in parts]
    if len(parts) == 1:
        buffers, reading, _ = seen[0]
        return Reached(bounds, parts[0].pages[spans[0]], buffers[spans[0]], reading[spans[0]])
    return Reached(
        bounds,
        np.concatenate([part.pages[span] for part, span in zip(parts, spans, strict=True)]),
        np.concatenate([buffers[span] for (buffers, _, _), span in zip(seen, spans, strict=True)]),
        np.concatenate([reading[span] for (_, reading, _), span in zip(seen, spans, strict=True)]),
    )


def _look_up(table: PageTable, pages: Ints, unknown: bool) -> tuple[Ints, Ints, Available]:
    """Buffer, read, and whether there is anything, by page."""
    if unknown:
        missing = pages == NONE
        known = np.where(missing, 0, pages)
        buffers, reading, slots = (
            np.where(missing, -1, column[known]) for column in (table.buffer, table.read, table.slot)
        )
    else:
        buffers, reading, slots = table.buffer[pages], table.read[pages], table.slot[pages]
    return buffers, reading, (buffers & reading & slots) >= ZERO  # negative only where all three are -1
