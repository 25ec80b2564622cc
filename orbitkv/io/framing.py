"""Messages to bytes and back, for both ends of the channel. No I/O.

One SEQPACKET packet is one message. The first packet in each direction starts with magic and ABI in
a form that no version may change; all others are bare msgpack. What does not decode is a
`FramingError`, whatever it was: the caller closes the connection, nothing is guessed.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from orbitkv.io import wire

Buffer: TypeAlias = bytes | bytearray | memoryview

_PREAMBLE: Final = struct.Struct("<8sI")
_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError)
"""All that a decoder may raise for bytes that are no message."""

_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(wire.Request)
_reply_decoder = msgspec.msgpack.Decoder(wire.Reply)
_hello_decoder = msgspec.msgpack.Decoder(wire.Hello)
_welcome_decoder = msgspec.msgpack.Decoder(wire.Welcome | wire.NotWelcome)


class FramingError(Exception):
    """These bytes are no message of this channel. The text says in what way."""


class OtherAbi(FramingError):
    """The other end speaks another version of the channel."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"the other end speaks channel ABI {theirs}, this is ABI {wire.CHANNEL_ABI}")
        self.theirs = theirs


def encode_greeting(greeting: wire.Hello | wire.Welcome | wire.NotWelcome) -> bytes:
    return _PREAMBLE.pack(wire.MAGIC, wire.CHANNEL_ABI) + _encoder.encode(greeting)


def decode_hello(data: Buffer) -> wire.Hello:
    body = _after_preamble(data)
    try:
        return _hello_decoder.decode(body)
    except _BROKEN as error:
        raise FramingError(f"the greeting does not decode: {error}") from error


def decode_welcome(data: Buffer) -> wire.Welcome | wire.NotWelcome:
    body = _after_preamble(data)
    try:
        return _welcome_decoder.decode(body)
    except _BROKEN as error:
        raise FramingError(f"the welcome does not decode: {error}") from error


def _after_preamble(data: Buffer) -> memoryview:
    if len(data) > wire.MESSAGE_BYTES_MAX:
        raise FramingError(f"a greeting of more than {wire.MESSAGE_BYTES_MAX} bytes")
    if len(data) < _PREAMBLE.size:
        raise FramingError(f"a greeting of {len(data)} bytes, too short for magic and ABI")
    magic, abi = _PREAMBLE.unpack_from(data)
    if magic != wire.MAGIC:
        raise FramingError("the first bytes are not OrbitKV's: something else is talking")
    if abi != wire.CHANNEL_ABI:
        raise OtherAbi(abi)
    return memoryview(data)[_PREAMBLE.size :]


def encode_message(message: wire.Request | wire.Reply) -> bytes:
    """Raises ValueError when the message is longer than the channel carries."""
    data = _encoder.encode(message)
    if len(data) > wire.MESSAGE_BYTES_MAX:
        raise ValueError(
            f"a {type(message).__name__} of {len(data)} bytes; the channel carries {wire.MESSAGE_BYTES_MAX}"
        )
    return data


def decode_request(data: Buffer) -> wire.Request:
    if len(data) > wire.MESSAGE_BYTES_MAX:
        raise FramingError(f"a message of more than {wire.MESSAGE_BYTES_MAX} bytes")
    try:
        request = _request_decoder.decode(data)
    except _BROKEN as error:
        raise FramingError(f"a message that does not decode: {error}") from error
    check = _CHECKS.get(type(request))
    if check is not None:
        check(request)
    return request


def decode_reply(data: Buffer) -> wire.Reply:
    try:
        reply = _reply_decoder.decode(data)
    except _BROKEN as error:
        raise FramingError(f"a reply that does not decode: {error}") from error
    check = _REPLY_CHECKS.get(type(reply))
    if check is not None:
        check(reply)
    return reply


# --- what the types cannot say --------------------------------------------------------------------


def _check_query(request: wire.SubmitQuery | wire.WarmPrefix) -> None:
    keys = 0
    for part in request.parts:
        keys += len(part.keys)
    if keys > wire.KEYS_PER_MESSAGE_MAX:
        raise FramingError(f"{keys} keys in one message, more than {wire.KEYS_PER_MESSAGE_MAX}")


def _check_commit(request: wire.CommitSave) -> None:
    _check_column(request.buffers, "buffers")
    if not len(request.staging_offsets) == len(request.generations) == 2 * len(request.buffers):
        raise FramingError("unequal numbers of buffers, staging offsets and generations")


def _check_abort(request: wire.AbortSave) -> None:
    _check_column(request.buffers, "buffers")
    if len(request.generations) != 2 * len(request.buffers):
        raise FramingError("unequal numbers of buffers and generations")


def _check_column(column: bytes, what: str) -> None:
    if len(column) % 4:
        raise FramingError(f"a column of {what} with {len(column)} bytes, no multiple of 4")


def _check_sync(request: wire.ReportSync) -> None:
    reached = 0
    for start, stop in request.ranges:
        if start < reached or stop <= start:
            raise FramingError("page ranges that are empty, overlap or are out of order")
        reached = stop


def _check_registration(request: wire.RegisterRank) -> None:
    for group in request.groups:
        if not (0 <= group.group <= 0xFFFF_FFFF and 1 <= group.page_tokens <= 1 << 30):
            raise FramingError(f"group {group.group} with pages of {group.page_tokens} tokens")
        if len(group.slices) > wire.SLICES_MAX:
            raise FramingError(f"{len(group.slices)} slices in one group, more than {wire.SLICES_MAX}")
        for piece in group.slices:
            if not 1 <= len(piece.slice) <= wire.SLICE_CHARS_MAX:
                raise FramingError(f"a slice name of {len(piece.slice)} characters")
            if not 1 <= piece.payload_bytes <= 1 << 40:
                raise FramingError(f"a slice of {piece.payload_bytes} bytes")


def _check_answer(reply: wire.QueryAnswered) -> None:
    if reply.offsets and len(reply.offsets) != 8 * sum(reply.hits):
        raise FramingError("an answer with another number of offsets than hits")


def _check_restore(reply: wire.RestoreBegun) -> None:
    if len(reply.offsets) != 8 * sum(pages for _group, pages in reply.parts):
        raise FramingError("a restore with another number of offsets than pages")


def _check_wanted(reply: wire.SaveBegun) -> None:
    _check_column(reply.positions, "positions")
    if len(reply.buffers) != len(reply.positions) or len(reply.generations) != 2 * len(reply.buffers):
        raise FramingError("unequal numbers of positions, buffers and generations")


def _check_accepted(reply: wire.SaveCommitted) -> None:
    _check_column(reply.accepted, "buffers")


def _check_copied(reply: wire.SlicesCopied) -> None:
    _check_column(reply.buffers, "buffers")
    if len(reply.buffers) != 4 * len(reply.outcomes):
        raise FramingError("unequal numbers of buffers and outcomes")


def _check_sealed(reply: wire.PagesSealed) -> None:
    _check_column(reply.buffers, "buffers")


_CHECKS: Final[dict[type, Callable[[Any], None]]] = {
    wire.SubmitQuery: _check_query,
    wire.WarmPrefix: _check_query,
    wire.CommitSave: _check_commit,
    wire.AbortSave: _check_abort,
    wire.ReportSync: _check_sync,
    wire.RegisterRank: _check_registration,
}

_REPLY_CHECKS: Final[dict[type, Callable[[Any], None]]] = {
    wire.QueryAnswered: _check_answer,
    wire.RestoreBegun: _check_restore,
    wire.SaveBegun: _check_wanted,
    wire.SaveCommitted: _check_accepted,
    wire.SlicesCopied: _check_copied,
    wire.PagesSealed: _check_sealed,
}
