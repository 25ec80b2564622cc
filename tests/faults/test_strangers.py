"""Clients that keep to nothing: garbage, absurd geometry, forged handles, places beyond their window.

Each costs the client its request or its session and nothing more: the manager serves the others, holds
nothing for those that left, and its log verifies.
"""

import os
import random
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator

import attrs
import msgspec
import pytest

from orbitkv.adapters.client_errors import RequestRefused
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.ids import SCHEDULER_RANK
from orbitkv.events.outcomes import Refusal, SyncOutcome
from orbitkv.io import wire
from orbitkv.io.wire import ChannelRefusal
from tests.channel.engine import make_client
from tests.faults.support import Stranger, descriptors_of, is_idle, window
from tests.restart.managers import GROUPS, Place, key, restore, save, until

KEYS = [key(number) for number in range(5)]
WINDOW_BYTES = 1 << 20


@attrs.frozen
class Victim:
    place: Place
    process: "subprocess.Popen[str]"


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One manager for all of them, with five pages that somebody honest has saved."""
    place = Place(tmp_path_factory.mktemp("victim"))
    with place.manager() as manager:
        with place.client("honest") as client:
            save(client, range(5))
        yield Victim(place, manager.process)
        assert manager.stop() == "", "nothing was worth a complaint"
    assert place.leftovers() == set()
    assert "verify: ok" in place.verify()


@pytest.fixture(autouse=True)
def unharmed(victim: Victim) -> Iterator[None]:
    """Afterwards everything is as before: descriptors, sessions, reservations, and the pages are served."""
    before = descriptors_of(victim.process)
    yield
    until(lambda: victim.place.status()["sessions"] == 1)  # the operator that asks
    until(lambda: is_idle(victim.place))
    until(lambda: descriptors_of(victim.process) <= before)
    with victim.place.client("honest") as client:
        assert restore(client, range(5), "afterwards") == 5


@pytest.fixture
def stranger(victim: Victim) -> Iterator[Stranger]:
    stranger = Stranger.at(victim.place)
    yield stranger
    stranger.close()


def error(reply: object) -> tuple[str, str]:
    """(name, sentence) of a refusal."""
    assert isinstance(reply, wire.ErrorReply), reply
    return reply.name, reply.sentence


# --- garbage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\xc0",
        b"\x80",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        bytes(wire.MESSAGE_BYTES_MAX + 1),
        msgspec.msgpack.encode([99, 1]),
        msgspec.msgpack.encode([17, "1"]),
        msgspec.msgpack.encode([17, 1, 2, 3]),
        msgspec.msgpack.encode([17, 0]),
        msgspec.msgpack.encode([17, 9]),
    ],
    ids=range(11),
)
def test_garbage_closes_the_session_and_says_so(victim: Victim, stranger: Stranger, data: bytes) -> None:
    stranger.raw.send_bytes(data)
    name, sentence = error(stranger.raw.receive())
    assert name == ChannelRefusal.POISONED.name
    assert "Reconnect required" in sentence
    assert stranger.raw.ended()


def test_noise_from_many_connections(victim: Victim) -> None:
    noise = random.Random(7)
    for _ in range(150):
        stranger = Stranger.at(victim.place)
        stranger.raw.send_bytes(noise.randbytes(noise.randrange(1, 300)))
        stranger.close()


def test_garbage_in_place_of_a_sync_is_not_taken_for_one(victim: Victim, stranger: Stranger) -> None:
    """A7: the session ends; the copy that it had begun is held, for its process still lives."""
    stranger.register()
    ready = stranger.query("r", KEYS)
    assert isinstance(ready, wire.QueryAnswered)
    stranger.ask(lambda call: wire.BeginRestore(call, ready.lease))
    stranger.raw.send_bytes(msgspec.msgpack.encode([8, stranger.call + 1, ready.lease, 77, [], 1, 1, 1]))
    assert error(stranger.raw.receive())[0] == ChannelRefusal.POISONED.name
    assert victim.place.status()["outstanding"]["restores"] == 1
    again = Stranger.at(victim.place)
    assert isinstance(again.register(), wire.Registered)
    report = wire.ReportSync(again.call + 1, ready.lease, SyncOutcome.SUCCEEDED, ((0, 5),), 2, 1, 1)
    assert isinstance(again.ask(lambda _: report), wire.SyncTaken)
    again.close()


# --- many -------------------------------------------------------------------------------------------------


def test_two_hundred_connections_and_as_many_that_say_nothing(victim: Victim) -> None:
    talking = [Stranger.at(victim.place) for _ in range(200)]
    silent = []
    for _ in range(200):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(victim.place.socket))
        silent.append(sock)
    assert isinstance(talking[-1].ask(wire.ReadStatus), wire.StatusReport)
    for stranger in talking:
        stranger.close()
    for sock in silent:
        sock.close()


# --- geometry ---------------------------------------------------------------------------------------------


def group(payload_bytes: int = 100, tokens: int = 16, number: int = 0, name: str = "all") -> GroupGeometry:
    return GroupGeometry(number, tokens, (SliceGeometry(name, payload_bytes),))


@pytest.mark.parametrize(
    "groups",
    [
        (group(0),),
        (group(-1),),
        (group(1 << 41),),
        (group(1 << 62),),
        (group(tokens=0),),
        (group(tokens=1 << 40),),
        (group(number=-1),),
        (group(number=1 << 40),),
        tuple(group(number=number) for number in range(10_000)),
        (GroupGeometry(0, 16, tuple(SliceGeometry(str(number), 100) for number in range(300))),),
        (group(name="x" * 1000),),
        (group(name=""),),
    ],
    ids=range(12),
)
def test_a_geometry_beyond_the_channels_bounds_poisons(
    victim: Victim, stranger: Stranger, groups: tuple[GroupGeometry, ...]
) -> None:
    assert error(stranger.register(groups=groups))[0] == ChannelRefusal.POISONED.name


@pytest.mark.parametrize(
    ("changed", "refusal", "words"),
    [
        ({"groups": (group(1 << 40),)}, Refusal.PAGE_TOO_LARGE, "superblock_bytes"),
        (
            {"groups": (GroupGeometry(0, 16, tuple(SliceGeometry(str(n), 1 << 40) for n in range(256))),)},
            Refusal.PAGE_TOO_LARGE,
            "pool_bytes",
        ),
        ({"groups": ()}, Refusal.MALFORMED, "no KV group"),
        ({"groups": (GroupGeometry(0, 16, ()),)}, Refusal.MALFORMED, "no rank holds a slice of group 0"),
        ({"groups": (group(), group())}, Refusal.MALFORMED, "described twice"),
        ({"rank": 5}, Refusal.MALFORMED, "not one of 1 ranks"),
        ({"rank": SCHEDULER_RANK}, Refusal.MALFORMED, "without groups"),
        ({"host": "mars"}, Refusal.FOREIGN_HOST, "every host needs its own manager"),
        ({"hash_process_dependent": True}, Refusal.PROCESS_DEPENDENT_HASH, "--prefix-caching-hash-algo"),
        ({"staging_bytes": 4096}, Refusal.MALFORMED, "send its descriptor"),
    ],
)
def test_a_registration_that_cannot_be_meant_is_refused_by_name(
    victim: Victim, stranger: Stranger, changed: dict[str, object], refusal: Refusal, words: str
) -> None:
    name, sentence = error(stranger.register(**changed))  # type: ignore[arg-type]
    assert name == refusal.name
    assert words in sentence
    assert isinstance(stranger.register(), wire.Registered), "the session goes on"


def test_a_pool_smaller_than_one_page_is_said_to_the_engine(victim: Victim) -> None:
    with pytest.raises(RequestRefused, match="superblock_bytes is 16777216 and pool_bytes 33554432"):
        make_client(victim.place.socket, groups=(group(40 << 20),), staging_bytes=0).register()


def test_ranks_that_do_not_fit_each_other(victim: Victim) -> None:
    one, other = Stranger.at(victim.place), Stranger.at(victim.place)
    one.register(world_size=2, groups=(group(name="heads 0-3"),))
    for rank, changed, refusal in (
        (1, {"groups": (group(name="heads 0-3"),)}, Refusal.SLICE_CLAIMED),
        (1, {"groups": (group(name="heads 4-7", tokens=32),)}, Refusal.MISMATCH),
        (1, {"groups": (group(name="heads 4-7"),), "world_size": 3}, Refusal.MISMATCH),
        (1, {"groups": (group(name="heads 4-7"),), "namespace_digest": b"o" * 16}, Refusal.MISMATCH),
    ):
        arguments: dict[str, object] = {"world_size": 2} | changed
        name, sentence = error(other.register(rank=rank, **arguments))  # type: ignore[arg-type]
        assert name == refusal.name
        assert "rank 1" in sentence, "a mismatch names both sides"
        assert "rank 0" in sentence or "instance 'stranger'" in sentence
    sealed = other.register(rank=1, world_size=2, groups=(group(name="heads 4-7"),))
    assert isinstance(sealed, wire.Registered)
    assert sealed.sealed
    late = Stranger.at(victim.place)
    assert error(late.register(rank=1, world_size=3))[0] == Refusal.SEALED.name
    for stranger in (one, other, late):
        stranger.close()


# --- staging windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "announced_bytes", "words"),
    [
        (lambda: os.open("/dev/zero", os.O_RDONLY), 4096, "memory file"),
        (lambda: os.open("/etc/passwd", os.O_RDONLY), 4096, "memory file"),
        (lambda: socket.socket(socket.AF_UNIX).detach(), 4096, "memory file"),
        (lambda: window(8192, sealed=False), 8192, "F_SEAL_SHRINK"),
        (lambda: window(4096), 1 << 40, "was announced with"),
        (lambda: window(1 << 62), 1 << 62, "Cannot allocate memory"),
        (lambda: window(4096), 0, "announced"),
    ],
)
def test_a_window_that_could_hurt_is_refused(
    victim: Victim, stranger: Stranger, make: Callable[[], int], announced_bytes: int, words: str
) -> None:
    descriptor = make()
    name, sentence = error(stranger.register(staging_bytes=announced_bytes, descriptors=(descriptor,)))
    os.close(descriptor)
    assert name == Refusal.MALFORMED.name
    assert words in sentence


def test_a_window_that_is_mostly_promise(victim: Victim, stranger: Stranger) -> None:
    """1 TiB of nothing: the manager maps it and touches what is committed."""
    descriptor = window(1 << 40)
    registered = stranger.register(staging_bytes=1 << 40, descriptors=(descriptor,))
    assert isinstance(registered, wire.Registered)
    begun = stranger.ask(lambda call: wire.BeginSave(call, 0, [key(700)], 1))
    assert isinstance(begun, wire.SaveBegun)
    far = ((1 << 40) - (1 << 20)).to_bytes(8, "little")
    taken = stranger.ask(lambda call: wire.CommitSave(call, begun.buffers, far, begun.generations))
    assert isinstance(taken, wire.SaveCommitted)
    assert taken.accepted == begun.buffers
    os.close(descriptor)


# --- saves out of range -----------------------------------------------------------------------------------


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def test_saves_out_of_range_touch_nothing(victim: Victim, stranger: Stranger) -> None:
    descriptor = window(WINDOW_BYTES)
    stranger.register(staging_bytes=WINDOW_BYTES, descriptors=(descriptor,))
    os.close(descriptor)
    begun = stranger.ask(lambda call: wire.BeginSave(call, 0, [key(800), key(801)], 9))
    assert isinstance(begun, wire.SaveBegun)
    buffer, generation = begun.buffers[:4], begun.generations[:8]
    for offset in (WINDOW_BYTES, WINDOW_BYTES - 4096, 1 << 40, 1 << 63, (1 << 64) - 1):
        commit = wire.CommitSave(stranger.call + 1, buffer, u64(offset), generation)
        name, sentence = error(stranger.ask(lambda _, commit=commit: commit))
        assert name == Refusal.MALFORMED.name
        assert f"a window of {WINDOW_BYTES} bytes" in sentence
    for buffers, generations in (
        (u32(0xFFFFFFFF), u64(1)),
        (u32(12_345), u64(1)),
        (buffer, u64((1 << 64) - 1)),
        (b"", b""),
    ):
        offsets = bytes(len(generations))
        commit = wire.CommitSave(stranger.call + 1, buffers, offsets, generations)
        taken = stranger.ask(lambda _, commit=commit: commit)
        assert taken == wire.SaveCommitted(stranger.call, b"")
    twice = wire.CommitSave(stranger.call + 1, buffer * 2, u64(0, 0), generation * 2)
    assert error(stranger.ask(lambda _: twice))[0] == Refusal.MALFORMED.name
    nothing = wire.AbortSave(stranger.call + 1, u32(7, 0xFFFFFFFF), u64(1, (1 << 64) - 1))
    assert stranger.ask(lambda _: nothing) == wire.Done(stranger.call)


# --- forged handles ---------------------------------------------------------------------------------------


def test_forged_and_foreign_handles_open_nothing(victim: Victim, stranger: Stranger) -> None:
    other = Stranger.at(victim.place)
    other.register(instance="other")
    theirs = other.query("theirs", KEYS)
    stranger.register()
    ours = stranger.query("ours", KEYS)
    assert isinstance(theirs, wire.QueryAnswered)
    assert isinstance(ours, wire.QueryAnswered)
    flipped = bytes([*ours.lease[:-1], ours.lease[-1] ^ 1])
    for handle in (bytes(24), os.urandom(24), flipped, ours.operation):
        for kind in (wire.BeginRestore, wire.ReleaseLease):
            reply = stranger.ask(lambda call, kind=kind, handle=handle: kind(call, handle))
            assert error(reply)[0] == ChannelRefusal.INVALID_HANDLE.name
    for kind in (wire.BeginRestore, wire.ReleaseLease):
        reply = stranger.ask(lambda call, kind=kind: kind(call, theirs.lease))
        assert error(reply)[0] == Refusal.FOREIGN.name
    for asking in (wire.PollQuery, wire.CancelQuery):
        reply = stranger.ask(lambda call, kind=asking: kind(call, theirs.operation))
        assert error(reply)[0] == Refusal.FOREIGN.name
    other.close()


def test_pages_beyond_the_lease_are_not_credited(victim: Victim, stranger: Stranger) -> None:
    stranger.register()
    ready = stranger.query("r", KEYS)
    assert isinstance(ready, wire.QueryAnswered)
    stranger.ask(lambda call: wire.BeginRestore(call, ready.lease))

    def sync(*ranges: tuple[int, int]) -> wire.Reply:
        return stranger.ask(
            lambda call: wire.ReportSync(call, ready.lease, SyncOutcome.SUCCEEDED, ranges, 2, 1, 1)
        )

    for beyond in ((0, 6), (5, 6), (0, 0xFFFFFFFF)):
        assert error(sync(beyond))[0] == Refusal.MALFORMED.name
    assert sync((0, 2), (2, 5)) == wire.SyncTaken(stranger.call)


@pytest.mark.parametrize("field", ["copied_bytes", "elapsed_us", "uncredited_pages"])
def test_quantities_that_would_overflow_a_total_poison(
    victim: Victim, stranger: Stranger, field: str
) -> None:
    """Four such reports would be more than 64 bits hold, and the next snapshot could not be written."""
    stranger.register(groups=GROUPS)
    ready = stranger.query("r", KEYS)
    assert isinstance(ready, wire.QueryAnswered)
    huge = {"copied_bytes": 1, "elapsed_us": 1, "uncredited_pages": 0} | {field: 1 << 62}
    request: wire.Request
    if field == "uncredited_pages":
        request = wire.BeginSave(stranger.call + 1, 0, KEYS, 1, huge[field])
    else:
        sizes = (huge["copied_bytes"], huge["elapsed_us"])
        request = wire.ReportSync(stranger.call + 1, ready.lease, SyncOutcome.SUCCEEDED, ((0, 1),), 2, *sizes)
    assert error(stranger.ask(lambda _: request))[0] == ChannelRefusal.POISONED.name
