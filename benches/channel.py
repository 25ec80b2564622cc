"""A query answered from DRAM, through the channel and through pyzmq ROUTER, with the same kernel and log.

    python -m benches.channel [--quick] [--rounds N] [--seconds S] [--pages N] [--json FILE]

One and eight client processes ask queries of 256 and of 1,024 page hashes (a run of pages from a random
place, as a prompt's prefix is), each with its lease, which is released outside the measured time. Both
managers and all clients live for the whole run; within a round the arms take turns, and only one arm's
clients ask at a time. `zmq again` is a second zmq manager: the null run. Beside them, from the same run:
the floor under any round trip of the same sizes (two C processes, compiled on the spot: `apt-get install
gcc`), the bare dictionary lookups, and a poll of a waiting operation by the board and by asking.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import attrs
import click
import msgspec

from benches.channel_server import page_keys
from benches.common import Arm, Goal, Report, Sample, give_up, interleave, table
from orbitkv.io import wire
from orbitkv.io.framing import encode_message

KEYS = (256, 1024)
NOTHING = 0
"""In place of a number of hashes: the status is asked for, which is the transport and little else."""
CLIENTS = (1, 8)
ARMS = {"channel": "channel", "zmq": "zmq", "zmq again": "zmq"}
P50_RATIO_MAX = 0.7
SHARE_RATIO_MAX = 1.5
POLLS = 2000
FLOOR_ROUND_TRIPS = 20_000
SERVER_ENDS_S = 60.0


@attrs.frozen(slots=True)
class Worker:
    """A process that takes an order and gives an answer: a client, say."""

    process: subprocess.Popen[bytes]

    def order(self, order: object) -> None:
        _pipe(self.process.stdin).write(msgspec.json.encode(order) + b"\n")
        _pipe(self.process.stdin).flush()

    def answer(self) -> bytes:
        line = _pipe(self.process.stdout).readline()
        if not line:
            raise RuntimeError("a process of the bench ended; its own output says why")
        return line


@attrs.frozen(slots=True)
class Field:
    """One manager and its clients."""

    server: subprocess.Popen[bytes]
    workers: Sequence[Worker]

    def run(self, clients: int, keys: int, seconds: float) -> Sample:
        cpu_s = _cpu_seconds(self.server.pid)
        for worker in self.workers[:clients]:
            worker.order({"keys": keys, "seconds": seconds})
        taken = [msgspec.json.decode(worker.answer(), type=list[int]) for worker in self.workers[:clients]]
        cpu_s = _cpu_seconds(self.server.pid) - cpu_s
        every = sorted(nanoseconds for one in taken for nanoseconds in one)
        counts = [len(one) for one in taken]
        return {
            "p50_us": every[len(every) // 2] / 1e3,
            "p99_us": every[len(every) * 99 // 100] / 1e3,
            "queries_per_s": sum(counts) / seconds,
            "share_ratio": max(counts) / min(counts),
            "server_cpu_us": cpu_s / sum(counts) * 1e6,
        }

    def end_server(self) -> None:
        """Close its standard input, and wait until it has ended by itself."""
        _pipe(self.server.stdin).close()
        if self.server.wait(timeout=SERVER_ENDS_S) != 0:
            raise RuntimeError("a server of the bench failed at its end; its own output says why")


@contextmanager
def running(transport: str, folder: Path, pages: int) -> Iterator[Field]:
    """A manager and eight clients that have registered; both are gone afterwards."""
    folder.mkdir()
    path = str(folder / "s")
    server = ("benches.channel_server", transport, path, str(folder / "log"), str(pages))
    with field_of(server, transport, path, pages) as field:
        yield field


@contextmanager
def field_of(server_command: Sequence[str], transport: str, path: str, pages: int) -> Iterator[Field]:
    """The same with a server of another module, which listens at `path`."""
    with ExitStack() as stack:
        server = stack.enter_context(_process(*server_command))
        clients = [
            stack.enter_context(_process("benches.channel_client", transport, path, str(number), str(pages)))
            for number in range(max(CLIENTS))
        ]
        yield Field(server, [Worker(client) for client in clients])


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        if _pipe(process.stdout).readline() != b"ready\n":
            raise RuntimeError(f"{arguments[0]} did not start; its own output says why")
        yield process
    finally:
        process.kill()
        process.wait()
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- beside the comparison ----------------------------------------------------------------------------


def floor_us(folder: Path, keys: int) -> float:
    """Median round trip of two C processes with messages of the same sizes."""
    program = folder / "channel_floor"
    if not program.exists():
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            give_up(
                "The floor cannot be measured",
                "it is a C program compiled on the spot, and there is no compiler",
                "Install one, for example with `apt-get install gcc`",
            )
        source = Path(__file__).with_name("channel_floor.c")
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    part = wire.QueryPart(0, 64, 0, page_keys(keys))
    request = encode_message(wire.SubmitQuery(1, "request", 1, 1, 0, [part]))
    handle = bytes(wire.HANDLE_BYTES)
    reply = encode_message(
        wire.QueryAnswered(1, 1, handle, hits=(keys,), lease=handle, offsets=bytes(8 * keys))
    )
    arguments = [str(len(request)), str(len(reply)), str(FLOOR_ROUND_TRIPS)]
    done = subprocess.run([str(program), *arguments], check=True, capture_output=True)
    return int(done.stdout) / 1e3


def lookups_us(pages: int, keys: int) -> float:
    """Median of bare dictionary lookups of fresh key objects, among as many as the manager holds."""
    known = page_keys(pages)
    index = {key: number for number, key in enumerate(known)}
    taken = []
    for number in range(200):
        first = number * 7919 % (pages - keys)
        asked = [bytes(bytearray(key)) for key in known[first : first + keys]]
        start = time.perf_counter_ns()
        list(map(index.get, asked))
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1e3


def poll_figures(field: Field) -> dict[str, float]:
    field.workers[0].order({"polls": POLLS})
    return msgspec.json.decode(field.workers[0].answer(), type=dict[str, float])


# --- the report ---------------------------------------------------------------------------------------


def compare(
    report: Report, fields: dict[str, Field], clients: int, keys: int, rounds: int, seconds: float
) -> None:
    arms: dict[str, Arm] = {
        name: lambda _, field=field: field.run(clients, keys, seconds)  # type: ignore[misc]  # bound early
        for name, field in fields.items()
    }
    found = interleave(arms, rounds=rounds)
    name = f"{f'{keys} hashes' if keys else 'status'}, {clients} client{'s' * (clients > 1)}"
    made = table(name, "arm", "p50 us", "p99 us", "p50 / zmq", "queries/s", "server CPU us", "max/min share")
    for arm in arms:
        made.add_row(
            arm,
            found.spread(arm, "p50_us").text(0),
            found.spread(arm, "p99_us").text(0),
            found.ratio(arm, "zmq", "p50_us").text(),
            f"{found.spread(arm, 'queries_per_s').median:,.0f}",
            f"{found.spread(arm, 'server_cpu_us').median:.0f}",
            f"{found.spread(arm, 'share_ratio').median:.2f}",
        )
    figures = {
        f"{name}, {arm}": {
            figure: found.spread(arm, figure).median
            for figure in ("p50_us", "p99_us", "queries_per_s", "server_cpu_us", "share_ratio")
        }
        for arm in arms
    }
    report.add(made, figures)
    if not keys:
        return
    ratio = found.ratio("channel", "zmq", "p50_us").median
    report.goal(Goal(f"p50 / zmq, {name}", ratio, P50_RATIO_MAX, at_least=False))
    if clients > 1:
        share = found.spread("channel", "share_ratio").median
        report.goal(Goal(f"max/min share, {name}", share, SHARE_RATIO_MAX, at_least=False))


def beside(report: Report, field: Field, folder: Path, pages: int) -> None:
    polls = poll_figures(field)
    made = table("Beside it, microseconds", "what", *(f"{keys} hashes" for keys in KEYS))
    floors = {keys: floor_us(folder, keys) for keys in KEYS}
    lookups = {keys: lookups_us(pages, keys) for keys in KEYS}
    made.add_row("C ping-pong of the same sizes", *(f"{floors[keys]:.1f}" for keys in KEYS))
    made.add_row("bare dictionary lookups", *(f"{lookups[keys]:.1f}" for keys in KEYS))
    made.add_row("poll of a waiting operation: board", f"{polls['board_ns'] / 1e3:.2f}")
    made.add_row("poll of a waiting operation: asking", f"{polls['ask_ns'] / 1e3:.1f}")
    report.add(
        made,
        {
            "floor_us": {str(keys): value for keys, value in floors.items()},
            "lookups_us": {str(keys): value for keys, value in lookups.items()},
            "poll_board_us": polls["board_ns"] / 1e3,
            "poll_asking_us": polls["ask_ns"] / 1e3,
        },
    )


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here too.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.05))
@click.option("--pages", default=65_536, show_default=True, type=click.IntRange(2048), help="Pages in DRAM.")
@click.option("--quick", is_flag=True, help="A look, not a measurement: 2 rounds of 0.3 s, 8,192 pages.")
def main(json_path: Path | None, rounds: int, seconds: float, pages: int, quick: bool) -> None:
    """Measure queries through the channel."""
    if quick:
        rounds, seconds, pages = 2, 0.3, 8192
    report = Report(
        "channel: queries answered from DRAM, against pyzmq ROUTER with the same kernel and log",
        {"rounds": rounds, "seconds a run": seconds, "pages in DRAM": pages},
    )
    with tempfile.TemporaryDirectory(prefix="orbitkv-") as name, ExitStack() as stack:
        folder = Path(name)
        fields = {
            arm: stack.enter_context(running(transport, folder / str(number), pages))
            for number, (arm, transport) in enumerate(ARMS.items())
        }
        for keys in (NOTHING, *KEYS):
            for clients in CLIENTS:
                compare(report, fields, clients, keys, rounds, seconds)
        beside(report, fields["channel"], folder, pages)
    report.finish(json_path)


if __name__ == "__main__":
    main()
