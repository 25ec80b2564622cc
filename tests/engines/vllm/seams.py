"""Where tests reach into the connector: its client's calls are watched, its copies are held up or broken.

Everything else stays real. A held-up copy is the real copy, later.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from orbitkv.adapters.client import CacheManagerClient
from tests.engines.waiting import PATIENCE_S


@attrs.define
class Calls:
    """What was asked of the client: (method, arguments without itself)."""

    made: list[tuple[str, tuple[Any, ...]]] = attrs.Factory(list)

    def of(self, method: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.made if name == method]


@contextmanager
def watched_client(*methods: str) -> Iterator[Calls]:
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        for method in methods:
            patch.setattr(CacheManagerClient, method, _watching(calls, method))
        yield calls


def _watching(calls: Calls, method: str) -> Callable[..., Any]:
    honest = getattr(CacheManagerClient, method)

    def watched(self: CacheManagerClient, *arguments: Any, **named: Any) -> Any:
        calls.made.append((method, (*arguments, *named.values())))
        return honest(self, *arguments, **named)

    return watched


@attrs.define(eq=False)
class HeldUp:
    """Restores that have begun and do not copy yet."""

    begun: int = 0
    _may_go_on: threading.Event = attrs.Factory(threading.Event)

    def go_on(self) -> None:
        self._may_go_on.set()

    def wait(self) -> None:
        self.begun += 1
        assert self._may_go_on.wait(PATIENCE_S)


@contextmanager
def copies_held_up() -> Iterator[HeldUp]:
    from orbitkv.adapters.vllm.restorer import Restorer

    held = HeldUp()
    honest = Restorer._copy

    def patient(self: Restorer, *arguments: Any) -> int:
        held.wait()
        return honest(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Restorer, "_copy", patient)
        try:
            yield held
        finally:
            held.go_on()


@contextmanager
def before_restores(act: Callable[[], None]) -> Iterator[None]:
    """Something happens after the answer with its lease, and before the restore begins."""
    honest = CacheManagerClient.begin_restore

    def begin(self: CacheManagerClient, lease: bytes) -> Any:
        act()
        return honest(self, lease)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CacheManagerClient, "begin_restore", begin)
        yield


@contextmanager
def copies_that_break(after_blocks: int) -> Iterator[None]:
    """A device that fails in the middle of a restore, with some blocks already written."""
    from orbitkv.adapters.device import HostCopier

    honest = HostCopier.load

    def broken(self: HostCopier, blocks: Any) -> Any:
        honest(self, list(blocks)[:after_blocks])
        raise OSError("the device has failed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostCopier, "load", broken)
        yield
