"""Processes of an engine: ended by pid whatever they do, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import msgspec
import psutil
import pytest
import trio

from orbitkv.adapters.embedded.child import Child, Family
from orbitkv.adapters.embedded.link import Link, LinkClosed, encode, pair
from orbitkv.adapters.embedded.messages import Arrive, FrontMessage, Step

WAIT = "print('on', flush=True)\ntime.sleep(600)"
STUBBORN = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAIT}"
ORDERLY = f"import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n{WAIT}"


@contextmanager
def said() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(what children say, where they say it)"""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as words, os.fdopen(writing, "wb", buffering=0) as output:
        yield words, output


def test_a_child_is_asked_first() -> None:
    async def main() -> None:
        with said() as (words, output):
            child = Child("orderly", ["-c", ORDERLY], output=output)
            assert words.readline() == b"on\n"
            assert await child.end(20) == 3
            child.close()

    trio.run(main)


def test_a_child_that_does_not_listen_is_made_to_end_even_when_the_caller_is_cancelled() -> None:
    async def main() -> None:
        children = []
        with trio.CancelScope() as scope, said() as (words, output):
            async with Family(0.05) as family:
                children.append(family.add(Child("stubborn", ["-c", STUBBORN], output=output)))
                assert words.readline() == b"on\n"
                scope.cancel()
                await trio.sleep_forever()
        assert children[0].status == -signal.SIGKILL

    trio.run(main)


def test_the_terminals_interrupt_does_not_reach_a_child() -> None:
    async def main() -> None:
        with said() as (_, output):
            child = Child("own session", ["-c", ORDERLY], output=output)
            assert os.getsid(child.pid) == child.pid
            await child.end(0.0)
            child.close()

    trio.run(main)


def test_a_leashed_child_ends_when_its_parent_is_killed() -> None:
    parent = f"""
import sys, trio
from orbitkv.adapters.embedded.child import Child
child = Child("leashed", ["-c", {ORDERLY!r}], output=sys.stderr.buffer, leashed=True)
print(child.pid, flush=True)
trio.run(trio.sleep_forever)
"""
    with said() as (words, output):
        command = [sys.executable, "-c", parent]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True) as process:
            assert process.stdout is not None
            try:
                child = psutil.Process(int(process.stdout.readline()))
                assert words.readline() == b"on\n"
            finally:
                process.kill()
        child.wait(20)


def test_a_link_carries_whole_messages_both_ways() -> None:
    here, there = pair()
    link: Link[FrontMessage] = Link(here, FrontMessage)
    request = Arrive("a", 1024, 5, (1, 2))
    there.send(encode(request))
    assert link.receive() == request
    assert link.receive_nowait() is None
    there.close()
    with pytest.raises(LinkClosed):
        link.receive()
    with pytest.raises(LinkClosed):
        link.send(request)
    link.close()


def test_a_message_longer_than_a_packet_is_refused_here() -> None:
    with pytest.raises(ValueError, match=r"Step has .* bytes, a packet at most"):
        encode(Step(1, tuple(range(10_000)), (b"x" * 16,) * 10_000))


@pytest.mark.parametrize("module", ["rank_process", "scheduler_process"])
def test_a_process_whose_superior_is_gone_ends_at_once(module: str) -> None:
    here, there = pair()
    command = [sys.executable, "-m", f"orbitkv.adapters.embedded.{module}", str(there.fileno())]
    with subprocess.Popen(command, pass_fds=[there.fileno()]) as process:
        there.close()
        here.close()
        started = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - started < 30


def test_the_longest_request_of_a_trace_fits_a_packet() -> None:
    assert (
        len(msgspec.msgpack.encode(Arrive("r" * 40, 126_195, 2000, tuple(range(10**6, 10**6 + 247))))) < 4096
    )
