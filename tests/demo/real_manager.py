"""A real manager process for tests of the engine, and engines to run against it."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs
import trio

from orbitkv.adapters.embedded.child import Child, Family
from orbitkv.adapters.embedded.engine import running_engine
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig, EngineReport, Finished
from orbitkv.adapters.operator import OperatorClient

PAGE_TOKENS = 512
SLICE_BYTES = 32 * 1024
RANKS = 2


@attrs.frozen
class RealManager:
    folder: Path
    child: Child
    scale: float = 1000.0
    """Of the engines' modelled time. Part of their namespace: pages of another scale are not theirs."""

    @property
    def socket_path(self) -> Path:
        return self.folder / "manager.sock"

    @property
    def page_file(self) -> Path:
        return max((self.folder / "ssd").iterdir(), key=lambda file: file.stat().st_size)

    def engine_config(self, instance: str, *, queue_warmup: bool | None = False) -> EngineConfig:
        return EngineConfig(
            socket_path=str(self.socket_path),
            instance=instance,
            ranks=RANKS,
            page_tokens=PAGE_TOKENS,
            slice_bytes=SLICE_BYTES,
            hbm_pages=64,
            staging_bytes=32 * SLICE_BYTES,
            scale=self.scale,
            queue_warmup=queue_warmup,
        )

    async def serve(
        self, instance: str, *prompts: tuple[int, ...], queue_warmup: bool | None = False
    ) -> EngineReport:
        """A fresh engine, with empty GPU memory, serves these prompts of whole blocks; then it ends."""
        config = self.engine_config(instance, queue_warmup=queue_warmup)
        with (self.folder / "engines.out").open("ab") as output:
            async with running_engine(config, output) as engine:
                await engine.ready()
                for number, blocks in enumerate(prompts):
                    tokens = PAGE_TOKENS * len(blocks) + 1
                    await engine.submit(Arrive(f"{instance}-{number}", tokens, 4, (*blocks, 999)))
                await engine.drain()
                while not isinstance(message := await engine.receive(), Finished):
                    pass
                return message.report

    def status(self) -> dict[str, Any]:
        with closing(OperatorClient(self.socket_path)) as client:
            document: dict[str, Any] = json.loads(client.status())
            return document

    async def written(self, pages: int) -> None:
        """Waits until so many pages can be found on the SSD."""
        with trio.fail_after(30):
            while self.status()["ssd"]["pages"] < pages:  # noqa: ASYNC110 - another process announces nothing
                await trio.sleep(0.01)

    async def only_on_ssd(self, pages: int) -> None:
        """Waits until so many pages are written, then drops what is in DRAM."""
        await self.written(pages)
        with closing(OperatorClient(self.socket_path)) as client:
            assert client.drop_dram() == pages


def listens(path: Path) -> bool:
    """Whether a living manager is behind this socket; a killed one leaves the file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(str(path)) == 0


@asynccontextmanager
async def real_manager(folder: Path, scale: float = 1000.0) -> AsyncIterator[RealManager]:
    settings = {
        "socket-path": folder / "manager.sock",
        "log-path": folder / "log",
        "ssd-path": folder / "ssd",
        "http-listen": "",
        "pool-bytes": "32MiB",
        "ssd-bytes": "64MiB",
        "ssd-segment-bytes": "32MiB",
    }
    arguments = ["-m", "orbitkv", "serve", *(f"--{name}={value}" for name, value in settings.items())]
    with (folder / "manager.out").open("wb") as output:
        async with Family(30) as family:
            child = family.add(Child("manager", arguments, output=output, leashed=True))
            manager = RealManager(folder, child, scale)
            with trio.fail_after(30):
                while not listens(manager.socket_path):
                    assert child.status is None, (folder / "manager.out").read_text()
                    await trio.sleep(0.01)
            yield manager
