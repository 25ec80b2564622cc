"""Records to bytes and back: msgpack arrays with integer tags.

One log frame carries a list of records; encoding a list at once costs about half of encoding each.
Raises `msgspec.DecodeError` / `msgspec.ValidationError` on bytes that are no records.
"""

from collections.abc import Sequence

import msgspec

from orbitkv.events.record import Record

FORMAT_VERSION = 1
"""Version of the shapes below. Shapes only grow once a release has frozen them."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    return _encoder.encode(records)


def decode_records(data: bytes | memoryview) -> list[Record]:
    return _decoder.decode(data)
