"""Handles that a client can keep but not invent.

The kernel numbers operations and leases from 1; a number alone could be guessed, or be a leftover of
an earlier run that now means something else. On the wire each is sealed with a MAC whose secret lives
and dies with this object. Neither secret nor MAC ever reaches the kernel or the log.
This keeps mistakes apart, not attackers of the same user: those may read this process's memory.
"""

import hashlib
import hmac
import os
import struct
from enum import IntEnum
from typing import Final

from orbitkv.io.wire import HANDLE_BYTES, ChannelRefusal

_MAC_BYTES: Final = 8
_BODY: Final = struct.Struct("<B3xIQ")
assert _BODY.size + _MAC_BYTES == HANDLE_BYTES


class HandleKind(IntEnum):
    OPERATION = 1
    LEASE = 2


class HandleRefused(Exception):
    """The handle opens nothing. `refusal` says which of the two ways; the text is for people."""

    def __init__(self, refusal: ChannelRefusal, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = refusal


class TokenSealer:
    """Seals and opens the handles of one incarnation."""

    def __init__(self, incarnation: int, secret: bytes | None = None) -> None:
        """`secret`: 16 to 64 bytes, random by default; given only by tests."""
        self._incarnation = incarnation
        self._keyed = hashlib.blake2b(key=secret or os.urandom(32), digest_size=_MAC_BYTES)

    def seal(self, kind: HandleKind, number: int) -> bytes:
        """`number` in 1 .. 2**64-1. Same input, same handle."""
        body = _BODY.pack(kind, self._incarnation, number)
        mac = self._keyed.copy()
        mac.update(body)
        return body + mac.digest()

    def open(self, kind: HandleKind, handle: bytes) -> int:
        """The number that was sealed. Raises HandleRefused."""
        word = kind.name.lower()
        if len(handle) != HANDLE_BYTES:
            raise HandleRefused(
                ChannelRefusal.INVALID_HANDLE,
                f"This is no {word} handle: it has {len(handle)} bytes instead of {HANDLE_BYTES}. "
                "Pass on the handle exactly as the manager gave it.",
            )
        sealed_kind, incarnation, number = _BODY.unpack_from(handle)
        if incarnation != self._incarnation and sealed_kind == kind:
            raise HandleRefused(
                ChannelRefusal.OTHER_INCARNATION,
                f"This is a {word} of incarnation {incarnation}; this is incarnation {self._incarnation}. "
                "The manager was restarted and holds nothing for it any more: query again.",
            )
        mac = self._keyed.copy()
        mac.update(handle[: _BODY.size])
        if sealed_kind != kind or not hmac.compare_digest(mac.digest(), handle[_BODY.size :]):
            raise HandleRefused(
                ChannelRefusal.INVALID_HANDLE,
                f"This manager never gave out this {word} handle. "
                f"Pass on the {word} handle of an answer exactly as it came, to the manager it came from.",
            )
        return int(number)

    def __repr__(self) -> str:
        return f"TokenSealer(incarnation={self._incarnation})"
