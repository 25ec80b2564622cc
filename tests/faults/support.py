"""What the fault tests share: a device that stands still when told, what a manager holds, a raw client."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs

from orbitkv.adapters.operator import OperatorClient
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.io.framing import encode_greeting
from orbitkv.io.host import started_ticks, this_host
from replay.log import Log
from tests.channel.raw import RawClient
from tests.restart.managers import GROUPS, NAMESPACE, ROOT, Manager, Place, until

Fact = TypeVar("Fact")

STALLING = """
    import os, threading, time
    from orbitkv.io.threads import ThreadEngine
    from orbitkv.manager.ports import PageRead
    honest, lock, answered = ThreadEngine._carry_out, threading.Lock(), {{}}
    def may_go_on():
        try:
            with open({gate!r}) as gate:
                words = gate.read().split()
        except FileNotFoundError:
            return True
        with lock:
            if len(words) < 2 or answered.get(words[0], 0) >= int(words[1]):
                return False
            answered[words[0]] = answered.get(words[0], 0) + 1
            return True
    def patient(self, transfer):
        while isinstance(transfer, PageRead) and not may_go_on():
            time.sleep(0.002)
        return honest(self, transfer)
    ThreadEngine._carry_out = patient
"""


@attrs.define(eq=False)
class Device:
    """An SSD that takes reads and answers none of them while it stands still."""

    gate: Path
    stalls: int = 0

    def stall(self, after: int = 0) -> None:
        """Stand still, once so many more reads have been answered."""
        self.stalls += 1
        beside = self.gate.with_suffix(".new")
        beside.write_text(f"{self.stalls} {after}")
        beside.rename(self.gate)

    def go_on(self) -> None:
        self.gate.unlink(missing_ok=True)


@contextmanager
def altered_manager(place: Place, alteration: str, **changed: str) -> Iterator[Manager]:
    """A manager of which something has been replaced before it began."""
    run = f"""
        import sys
        from orbitkv.__main__ import main
        sys.argv = ["orbitkv", *{place.command(**changed)[3:]!r}]
        main()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(alteration) + textwrap.dedent(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert all(lines), f"it did not start: {process.communicate()}"
        yield Manager(place, process, lines)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def manager_with_device(place: Place, **changed: str) -> Iterator[tuple[Manager, Device]]:
    """A real manager over a real file; its reads wait in the I/O threads while the device stands still."""
    device = Device(place.path / "ssd" / "standing-still")
    alteration = STALLING.format(gate=str(device.gate))
    with altered_manager(place, alteration, **{"io-engine": "threads"} | changed) as manager:
        try:
            yield manager, device
        finally:
            device.go_on()


def held(place: Place) -> dict[str, int]:
    """What the manager holds for anybody: the state's own line, and what it waits for."""
    status = place.status()
    counts = {
        name: sum(map(int, number.split("+")))
        for name, number in re.findall(r"(\w+)=([\d+]+)", status["state"])
    }
    return counts | status["outstanding"]


NOTHING = dict.fromkeys(
    ("operations", "waiting", "leases", "reserved", "hints", "reads", "saves", "copies", "seals", "restores"),
    0,
)


def is_idle(place: Place) -> bool:
    """Nothing is asked for, promised, reserved, read, copied or half-saved any more."""
    counts = held(place)
    return {name: counts[name] for name in NOTHING} == NOTHING


def forget_dram(place: Place) -> int:
    """What an operator's cleanup evicts: every page that nobody holds."""
    operator = OperatorClient(place.socket)
    try:
        return operator.drop_dram()
    finally:
        operator.close()


def everything_is_written(place: Place) -> bool:
    """Nothing that was saved is still on its way to the SSD, for better or worse."""
    counts = held(place)
    return counts["saves"] == counts["writes"] == counts["queued_writes"] == 0


def only_on_ssd(place: Place, pages: int) -> None:
    """Wait until so many pages have been written, then take all out of DRAM."""
    until(lambda: place.pages_on_ssd() >= pages)
    until(lambda: everything_is_written(place))
    assert forget_dram(place) >= pages


def records_of(place: Place) -> list[Record]:
    segments = Log.open(place.log).segments()
    return [record for segment in segments for frame in segment.frames() for record in frame.records]


def facts_of(place: Place, kind: type[Fact]) -> list[Fact]:
    return [event for record in records_of(place) for event in record.events if isinstance(event, kind)]


def descriptors_of(process: "subprocess.Popen[str]") -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@attrs.define(eq=False)
class Stranger:
    """One connection of a client that keeps to the handshake and to nothing else."""

    raw: RawClient
    call: int = 0
    ticket: int = 0

    @classmethod
    def at(cls, place: Place) -> "Stranger":
        raw = RawClient(place.socket)
        raw.send_bytes(encode_greeting(wire.Hello(os.getpid(), this_host(), started_ticks())))
        assert isinstance(raw.welcome(), wire.Welcome)
        return cls(raw)

    def ask(self, build: Callable[[int], wire.Request], descriptors: Sequence[int] = ()) -> wire.Reply:
        self.call += 1
        self.raw.send(build(self.call), descriptors)
        while True:
            reply = self.raw.receive()
            if not isinstance(reply, wire.SlicesCopied | wire.PagesSealed):
                return reply

    def tell(self, build: Callable[[int], wire.Request]) -> None:
        """Something that is never answered."""
        self.call += 1
        self.raw.send(build(self.call))

    def register(
        self,
        instance: str = "stranger",
        rank: int = 0,
        world_size: int = 1,
        groups: tuple[GroupGeometry, ...] = GROUPS,
        staging_bytes: int = 0,
        descriptors: Sequence[int] = (),
        **changed: object,
    ) -> wire.Reply:
        fields: dict[str, Any] = {
            "instance": instance,
            "rank": rank,
            "world_size": world_size,
            "host": this_host(),
            "namespace_digest": NAMESPACE.digest,
            "namespace_document": NAMESPACE.document,
            "hash_process_dependent": False,
            "groups": groups,
            "staging_bytes": staging_bytes,
        } | changed
        return self.ask(lambda call: wire.RegisterRank(call, **fields), descriptors)

    def query(self, request: str, keys: list[bytes], **changed: int) -> wire.Reply:
        self.ticket += 1
        fields = {"attempt": 0, "ticket": self.ticket, "revision": 0} | changed
        part = wire.QueryPart(0, NAMESPACE.page_tokens, 0, keys)
        return self.ask(lambda call: wire.SubmitQuery(call, request, parts=[part], **fields))

    def close(self) -> None:
        self.raw.close()


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def window(size_bytes: int, *, sealed: bool = True) -> int:
    """A staging window's descriptor."""
    descriptor = os.memfd_create("window", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size_bytes)
    if sealed:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor
