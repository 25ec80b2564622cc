"""Real managers in real processes, and what a test needs to talk to them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.operator import OperatorClient
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import SyncOutcome

ROOT = Path(__file__).parents[2]
PAGE_TOKENS = 16
PAGE_BYTES = 100_000
STAGING_BYTES = 4 << 20
PATIENCE_S = 20.0

NAMESPACE = Namespace(
    model="test",
    dtype="bf16",
    kv_dtype="bf16",
    page_tokens=PAGE_TOKENS,
    layers=2,
    kv_heads=1,
    head_size=8,
    layout="NHD",
    engine="test",
    engine_version="1",
    hash_algorithm="sha256",
    key_scheme="plain",
)
GROUPS = (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES),)),)


def key(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def content(page_key: bytes) -> bytes:
    """A page's bytes as a function of its key."""
    return (hashlib.sha512(page_key).digest() * (PAGE_BYTES // 64 + 1))[:PAGE_BYTES]


@attrs.define(eq=False)
class Place:
    """Where managers of one test live, one after the other."""

    path: Path
    settings: dict[str, str] = attrs.Factory(dict)

    @property
    def socket(self) -> Path:
        return self.path / "orbitkv.sock"

    @property
    def log(self) -> Path:
        return self.path / self.settings.get("log-path", "log")

    @property
    def ssd(self) -> Path:
        return self.path / self.settings.get("ssd-path", "ssd")

    def command(self, **changed: str) -> list[str]:
        settings = {
            "socket-path": str(self.socket),
            "log-path": str(self.log),
            "ssd-path": str(self.ssd),
            "pool-bytes": "32MiB",
            "superblock-bytes": "16MiB",
            "ssd-bytes": "64MiB",
            "ssd-segment-bytes": "8MiB",
            "http-listen": "",
        }
        merged = settings | self.settings | changed
        return [
            sys.executable,
            "-m",
            "orbitkv",
            "serve",
            *(f"--{name}={value}" for name, value in merged.items()),
        ]

    def start(self, **changed: str) -> "subprocess.Popen[str]":
        """Does not wait for it."""
        return subprocess.Popen(
            self.command(**changed), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @contextmanager
    def manager(self, **changed: str) -> Iterator["Manager"]:
        """A manager that serves. Whatever is left of it in the end is killed."""
        process = self.start(**changed)
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert all(lines), f"it did not start: {process.communicate(timeout=PATIENCE_S)}"
            yield Manager(self, process, lines)
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def client(self, name: str = "engine", **options: object) -> Iterator[CacheManagerClient]:
        client = CacheManagerClient(
            self.socket,
            instance=name,
            namespace=NAMESPACE,
            groups=GROUPS,
            staging_bytes=STAGING_BYTES,
            timeout_s=PATIENCE_S,
        )
        try:
            client.register()
            yield client
        finally:
            client.close()

    def verify(self) -> str:
        """What another process makes of the log; fails unless it is sound."""
        done = subprocess.run(
            [sys.executable, "-m", "replay", "verify", str(self.log)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """How the manager says it is."""
        operator = OperatorClient(self.socket)
        try:
            document: dict[str, Any] = json.loads(operator.status())
            return document
        finally:
            operator.close()

    def pages_on_ssd(self) -> int:
        return int(self.status()["ssd"]["pages"])

    def leftovers(self) -> set[str]:
        """What stands beside log and SSD."""
        return set(os.listdir(self.path)) - {"log", "ssd"}


@attrs.define(eq=False)
class Manager:
    place: Place
    process: "subprocess.Popen[str]"
    lines: list[str]
    """What it said when it was ready."""

    @property
    def recovered_pages(self) -> int:
        return int(self.lines[1].split(" pages on the SSD")[0].split()[-1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """End it with a signal; what it said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """However the block ends, the process is gone after it."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.002)


def save(client: CacheManagerClient, numbers: range) -> int:
    """Save pages; how many the manager took."""
    keys = [key(number) for number in numbers]
    plan = client.begin_save(0, keys)
    for position, slot in plan.wanted:
        slot[:PAGE_BYTES] = content(keys[position])
    accepted = client.commit_save(plan).accepted_pages
    assert client.wait_saved(plan, PATIENCE_S)
    return accepted


def ask(client: CacheManagerClient, numbers: range, request: str) -> QueryAnswer:
    """Query, and wait for the answer."""
    part = QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
    answers = [client.query(request, 0, [part])]

    def answered() -> bool:
        if answers[-1].status is QueryStatus.LOADING:
            answers.append(client.poll(answers[-1].operation))
        return answers[-1].status is not QueryStatus.LOADING

    until(answered)
    return answers[-1]


def restore(client: CacheManagerClient, numbers: range, request: str) -> int:
    """Restore a prefix, compare every byte of it, report the sync; how many pages hit."""
    answer = ask(client, numbers, request)
    if answer.status is not QueryStatus.READY:
        return 0
    view = client.begin_restore(answer.lease)
    for position in range(len(view)):
        assert bytes(view.page(position)) == content(key(numbers[position])), f"page {position} is another's"
    pages = len(view)
    client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, pages)], 2, pages * PAGE_BYTES, 1)
    return pages
