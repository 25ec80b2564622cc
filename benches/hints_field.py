"""What `benches.hints` measures on: a manager in a process of its own, and clients that know the same pages.

Pages are 64 KiB and come in prefixes of 64. A prefix is cold after `cool()`: on the SSD and not in DRAM.
"""

import hashlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from benches.common import give_up
from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.operator import OperatorClient
from orbitkv.events.geometry import GroupGeometry, SliceGeometry, image_bytes

PAGE_BYTES = 64 << 10
PAGE_TOKENS = 64
PREFIX_PAGES = 64
PREFIX_BYTES = PREFIX_PAGES * image_bytes(PAGE_BYTES)
"""Read from the SSD for one prefix."""
PREFIXES = 16
PATIENCE_S = 60.0
NAMESPACE = Namespace(
    model="bench",
    dtype="bf16",
    kv_dtype="bf16",
    page_tokens=PAGE_TOKENS,
    layers=2,
    kv_heads=1,
    head_size=8,
    layout="NHD",
    engine="bench",
    engine_version="1",
    hash_algorithm="sha256",
    key_scheme="plain",
)
GROUPS = (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES),)),)


def page_keys(prefix: int) -> list[bytes]:
    return [hashlib.sha256(b"%d/%d" % (prefix, number)).digest() for number in range(PREFIX_PAGES)]


def page_content(prefix: int, number: int) -> bytes:
    return bytes([prefix + 1, number + 1]) * (PAGE_BYTES // 2)


@attrs.frozen(slots=True)
class Field:
    process: "subprocess.Popen[str]"
    socket_path: Path
    said: str
    """What the manager said when it was ready."""

    @contextmanager
    def client(
        self, name: str, hint_stale_s: float = 5.0, staging_bytes: int = 0
    ) -> Iterator[CacheManagerClient]:
        client = CacheManagerClient(
            self.socket_path,
            instance=name,
            namespace=NAMESPACE,
            groups=GROUPS,
            staging_bytes=staging_bytes,
            hint_stale_s=hint_stale_s,
            timeout_s=PATIENCE_S,
        )
        try:
            client.register()
            yield client
        finally:
            client.close()

    def metric(self, name: str) -> int:
        """Summed over its labels."""
        found = re.search(r"http://[^\s,]+/metrics", self.said)
        assert found is not None, self.said
        with urllib.request.urlopen(found.group(), timeout=PATIENCE_S) as response:
            text = response.read().decode()
        values = re.findall(rf"^orbitkv_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        assert values, f"the manager has no metric {name}"
        return int(sum(map(float, values)))

    def settle(self) -> None:
        """Until nothing is reserved or being read."""
        self._until("query_reserved_bytes", 0)

    def cool(self) -> None:
        """Every page leaves DRAM; the SSD keeps its own."""
        self.settle()
        operator = OperatorClient(self.socket_path, PATIENCE_S)
        operator.drop_dram()
        operator.close()
        if self.metric("cache_resident_bytes"):
            raise RuntimeError("pages stay in DRAM that nobody should hold")

    def fill(self) -> None:
        """Save all prefixes, and wait until the SSD has them."""
        with self.client("filler", staging_bytes=2 * PREFIX_PAGES * PAGE_BYTES) as client:
            for prefix in range(PREFIXES):
                plan = client.begin_save(0, page_keys(prefix))
                for position, slot in plan.wanted:
                    slot[:] = page_content(prefix, position)
                client.commit_save(plan)
                if not client.wait_saved(plan, PATIENCE_S):
                    raise RuntimeError("the pages could not be saved")
                self._until("ssd_write_bytes_total", (prefix + 1) * PREFIX_BYTES)

    def cpu_ns(self) -> int:
        """Processor time of the manager so far, over all its threads."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

    def _until(self, metric: str, value: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.metric(metric) != value:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{metric} does not become {value}")
            time.sleep(0.02)


@contextmanager
def running(folder: Path) -> Iterator[Field]:
    """A manager whose prefixes are on its SSD; gone afterwards."""
    settings = {
        "socket-path": folder / "manager.sock",
        "log-path": folder / "log",
        "ssd-path": folder / "ssd",
        "ssd-bytes": "256MiB",
        "ssd-segment-bytes": "64MiB",
        "pool-bytes": "256MiB",
        "superblock-bytes": "16MiB",
        "http-listen": "127.0.0.1:0",
    }
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "orbitkv", "serve", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        if "metrics at" not in said:
            give_up("The manager did not start", "its own output above says why", "Mend that and run again")
        field = Field(process, folder / "manager.sock", said)
        field.fill()
        field.cool()
        yield field
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
