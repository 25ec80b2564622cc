"""Bytes and messages: everything that can be said survives the trip, nothing else gets through."""

import random
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io import wire
from orbitkv.io.framing import (
    FramingError,
    OtherAbi,
    decode_hello,
    decode_reply,
    decode_request,
    decode_welcome,
    encode_greeting,
    encode_message,
)

HANDLE = bytes(range(wire.HANDLE_BYTES))
KEYS = [bytes([index]) * 32 for index in range(3)]
GROUP = GroupGeometry(0, 64, (SliceGeometry("layers 0-35", 147456),))

REQUESTS: list[wire.Request] = [
    wire.RegisterRank(1, "engine", 0, 2, "host", b"d" * 16, "{}", False, (GROUP,), 1 << 20),
    wire.RegisterRank(1, "engine", -1, 2, "host", b"d" * 16, "{}", False, ()),
    wire.ReadRegistration(2),
    wire.SubmitQuery(3, "request", 0, 1, 0, [wire.QueryPart(0, 64, 0, KEYS)]),
    wire.ExtendQuery(4, 0, KEYS),
    wire.PollQuery(5, HANDLE),
    wire.CancelQuery(6, HANDLE),
    wire.BeginRestore(7, HANDLE),
    wire.ReportSync(8, HANDLE, SyncOutcome.SUCCEEDED, ((0, 2), (5, 6)), 36, 1 << 40, 1234),
    wire.ReleaseLease(9, HANDLE),
    wire.BeginSave(10, 0, KEYS, 2, 5),
    wire.CommitSave(11, b"\0" * 8, b"\0" * 16, b"\0" * 16),
    wire.AbortSave(12, b"\0" * 8, b"\0" * 16),
    wire.ReportStage(13, "request", 0, "queued", 1, 2),
    wire.CloseSession(14),
    wire.DropDram(15),
    wire.ReleaseProcess(16, 3),
    wire.ReadStatus(17),
    wire.WarmPrefix(18, "request", 0, 1, 0, [wire.QueryPart(0, 64, 0, KEYS)]),
    wire.CancelHint(19, 1),
]
REPLIES: list[wire.Reply] = [
    wire.ErrorReply(1, 15, "BUSY", "Full. Too many. Wait.", True),
    wire.Done(2, 3),
    wire.Registered(
        3, 1, True, (wire.GroupLayout(0, 8192, (wire.SlicePlace("layers 0-35", 4096, 147456),)),)
    ),
    wire.QueryAnswered(4, wire.QueryStatus.LOADING, HANDLE, 3, 1 << 63),
    wire.QueryAnswered(
        4, wire.QueryStatus.READY, HANDLE, boundary_tokens=64, hits=(1,), lease=HANDLE, offsets=b"\0" * 8
    ),
    wire.RestoreBegun(5, ((0, 2),), b"\0" * 16, "request", 1),
    wire.SyncTaken(6, True, False),
    wire.SaveBegun(7, b"\0" * 4, b"\0" * 4, b"\0" * 8, ((0, 2),)),
    wire.SaveCommitted(8, b"\0" * 4),
    wire.StatusReport(9, "{}"),
    wire.SlicesCopied(b"\0" * 4, b"\0"),
    wire.PagesSealed(b"\0" * 4),
]


def _raw(*fields: object) -> bytes:
    """A message that the shapes would not let anyone write."""
    return msgspec.msgpack.encode(fields)


def test_every_request_survives_the_trip() -> None:
    assert {type(request) for request in REQUESTS} == set(wire.Request.__args__)
    for request in REQUESTS:
        assert decode_request(encode_message(request)) == request


def test_every_reply_survives_the_trip() -> None:
    assert {type(reply) for reply in REPLIES} == set(wire.Reply.__args__)
    for reply in REPLIES:
        assert decode_reply(encode_message(reply)) == reply


def test_longest_messages_fit() -> None:
    keys = [random.Random(index).randbytes(32) for index in range(wire.KEYS_PER_MESSAGE_MAX)]
    part = wire.QueryPart(0, 16, 0, keys)
    encode_message(wire.SubmitQuery(1, "r" * wire.NAME_CHARS_MAX, 0, 1, 0, [part]))
    encode_message(wire.WarmPrefix(1, "r" * wire.NAME_CHARS_MAX, 0, 1, 0, [part]))
    pages = (wire.QUERY_PIECES_MAX + 1) * wire.KEYS_PER_MESSAGE_MAX
    encode_message(wire.QueryAnswered(1, 1, HANDLE, hits=(pages,), lease=HANDLE, offsets=bytes(8 * pages)))


def test_a_longer_message_is_not_sent() -> None:
    with pytest.raises(ValueError, match="StatusReport of"):
        encode_message(wire.StatusReport(1, "x" * wire.MESSAGE_BYTES_MAX))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x00" * 64,
        _raw(1, 2, 3),
        _raw(99, 1),
        _raw(17, -1),
        _raw(17, 1 << 63),
        _raw(17, 1, "one field too many"),
        _raw(17, "1"),
        _raw(5, 1, HANDLE[:-1]),
        _raw(3, 1, "", 0, 1, 0, [[0, 64, 0, KEYS]]),
        _raw(3, 1, "r" * (wire.NAME_CHARS_MAX + 1), 0, 1, 0, [[0, 64, 0, KEYS]]),
        _raw(3, 1, "r", 0, 0, 0, [[0, 64, 0, KEYS]]),
        _raw(3, 1, "r", 0, 1, 0, []),
        _raw(3, 1, "r", 0, 1, 0, [[0, 64, 0, [b""]]]),
        _raw(3, 1, "r", 0, 1, 0, [[0, 64, 0, [b"k" * 33]]]),
        _raw(3, 1, "r", 0, 1, 0, [[0, 0, 0, KEYS]]),
        _raw(3, 1, "r", 0, 1, 0, [[0, 64, 0, [b"k"] * (wire.KEYS_PER_MESSAGE_MAX + 1)]]),
        _raw(3, 1, "r", 0, 1, 0, [[0, 64, 0, [b"k"] * 3000], [1, 64, 0, [b"k"] * 3000]]),
        _raw(3, 1, "r", 0, 1, 0, [[0, 64, 0, KEYS]] * (wire.PARTS_MAX + 1)),
        _raw(18, 1, "", 0, 1, 0, [[0, 64, 0, KEYS]]),
        _raw(18, 1, "r", 0, 0, 0, [[0, 64, 0, KEYS]]),
        _raw(18, 1, "r", 0, 1, 0, []),
        _raw(18, 1, "r", 0, 1, 0, [[0, 64, 0, KEYS]], 1),
        _raw(18, 1, "r", 0, 1, 0, [[0, 64, 0, [b"k"] * (wire.KEYS_PER_MESSAGE_MAX + 1)]]),
        _raw(18, 1, "r", 0, 1, 0, [[0, 64, 0, [b"k"] * 3000], [1, 64, 0, [b"k"] * 3000]]),
        _raw(19, 1, 0),
        _raw(19, 1, 1 << 32),
        _raw(11, 1, b"\0" * 6, b"\0" * 12),
        _raw(11, 1, b"\0" * 8, b"\0" * 8),
        _raw(11, 1, b"\0" * (4 * wire.KEYS_PER_MESSAGE_MAX + 4), b"\0" * (8 * wire.KEYS_PER_MESSAGE_MAX + 8)),
        _raw(8, 1, HANDLE, 0, [[2, 1]], 1, 1, 1),
        _raw(8, 1, HANDLE, 0, [[0, 2], [1, 3]], 1, 1, 1),
        _raw(8, 1, HANDLE, 3, [], 1, 1, 1),
        _raw(1, 1, "engine", -2, 2, "host", b"d" * 16, "{}", False, []),
        _raw(1, 1, "engine", 0, 2, "host", b"d" * 15, "{}", False, []),
        _raw(1, 1, "engine", 0, 2, "host", b"d" * 16, "{}", False, [[0, 64, [["s", -1, False]]]]),
        _raw(1, 1, "engine", 0, 2, "host", b"d" * 16, "{}", False, [[0, 0, [["s", 1, False]]]]),
        _raw(1, 1, "engine", 0, 2, "host", b"d" * 16, "{}", False, [[0, 64, [["", 1, False]]]]),
        _raw(1, 1, "engine", 0, 2, "host", b"d" * 16, "{}", False, [[0, 64, [["s", 1, False]] * 257]]),
        _raw(17, 1) + b"trailing",
        b"\x91" * 100_000,
        b"\x92\x03\x01\xdd\xff\xff\xff\xff",
        b"\x92\x11\x01" + b"x" * wire.MESSAGE_BYTES_MAX,
        _raw(13, 1, "r", 0, "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace") * 65, 1, 2),
        b"\x95\x0d\x01\xa2\xff\xff\x00\xa1q",
    ],
)
def test_what_is_no_request_is_a_framing_error(data: bytes) -> None:
    with pytest.raises(FramingError):
        decode_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        _raw(99),
        _raw(4, 1, 1, HANDLE, 0, 0, 64, [2], HANDLE, b"\0" * 8),
        _raw(5, 1, [[0, 2]], b"\0" * 8),
        _raw(7, 1, b"\0" * 4, b"\0" * 8),
        _raw(7, 1, b"\0" * 3, b"\0" * 3),
        _raw(8, 1, b"\0" * 3),
        _raw(20, b"\0" * 8, b"\0"),
        _raw(21, b"\0" * 7),
    ],
)
def test_a_malformed_reply_is_a_framing_error(data: bytes) -> None:
    with pytest.raises(FramingError):
        decode_reply(data)


def test_greetings_survive_the_trip() -> None:
    hello = wire.Hello(1, "host", 99)
    assert decode_hello(encode_greeting(hello)) == hello
    for answer in (wire.Welcome("1.0", 3, 4, 1 << 20, 8), wire.NotWelcome(101, "OTHER_ABI", "No.", False)):
        assert decode_welcome(encode_greeting(answer)) == answer


@pytest.mark.parametrize("abi", [0, 4, 6, 1 << 31])
def test_another_abi_is_named(abi: int) -> None:
    data = struct.pack("<8sI", wire.MAGIC, abi) + b"whatever that version says"
    with pytest.raises(OtherAbi, match=f"ABI {abi}, this is ABI 5") as caught:
        decode_hello(data)
    assert caught.value.theirs == abi


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", wire.MAGIC, wire.MAGIC + b"\x05\0\0\0"])
def test_something_else_is_no_greeting(data: bytes) -> None:
    with pytest.raises(FramingError):
        decode_hello(data)
    with pytest.raises(FramingError):
        decode_welcome(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_never_do_more_than_fail_to_decode(data: bytes) -> None:
    for decode in (decode_request, decode_reply, decode_hello, decode_welcome):
        try:
            decode(data)
        except FramingError:
            pass


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(REQUESTS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.integers(0, 400),
)
def test_mutated_requests_decode_within_their_limits_or_not_at_all(
    request: wire.Request, changes: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(encode_message(request))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        decoded = decode_request(bytes(data[:length]))
    except FramingError:
        return
    assert decoded.call >= 0
    if isinstance(decoded, wire.SubmitQuery):
        assert all(1 <= len(key) <= 32 for part in decoded.parts for key in part.keys)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(1 << 63), (1 << 64) - 1)
        | st.binary(max_size=40)
        | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=20,
    )
)
def test_well_formed_nonsense_never_does_more_than_fail_to_decode(value: object) -> None:
    data = msgspec.msgpack.encode(value)
    for decode in (decode_request, decode_reply):
        try:
            decode(data)
        except FramingError:
            pass
