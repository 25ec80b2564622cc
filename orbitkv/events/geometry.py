"""What an engine's KV cache looks like, as far as the manager must know."""

import msgspec

from orbitkv.events.ids import ALIGNMENT_BYTES, TRAILER_BYTES


class SliceGeometry(msgspec.Struct, array_like=True, frozen=True):
    """The part of one page that one rank holds.

    `slice` names the part (layers and heads), e.g. "layers 0-17 heads 0-3". Two ranks may claim the
    same name only if both declare it `replicated`; it is then stored once, by whichever saves first.
    """

    slice: str
    payload_bytes: int
    replicated: bool = False


class GroupGeometry(msgspec.Struct, array_like=True, frozen=True):
    """One KV group of one rank: how many tokens a page covers and which slice of it the rank holds."""

    group: int
    page_tokens: int
    slices: tuple[SliceGeometry, ...]


def padded_bytes(payload_bytes: int) -> int:
    """`payload_bytes` rounded up to the alignment of a slice."""
    return -(-payload_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def image_bytes(footprint_bytes: int) -> int:
    """Bytes that a page takes in the pool and on the SSD: its footprint and one trailer block."""
    return footprint_bytes + TRAILER_BYTES
