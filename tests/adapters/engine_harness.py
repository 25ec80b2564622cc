"""One engine without processes: scheduler and ranks in this thread, time as the test says."""

import attrs
import msgspec

from orbitkv.adapters.embedded.lookups import Lookups
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig, Restore, Save, Step
from orbitkv.adapters.embedded.page_content import PageContent
from orbitkv.adapters.embedded.rank import Rank
from orbitkv.adapters.embedded.scheduler import Scheduler
from tests.adapters.fake_manager import FakeAsker, FakeCache, FakeManager

PAGE_TOKENS = 512
SLICE_BYTES = 1024
DIGEST = bytes(16)


def config(**changes: object) -> EngineConfig:
    plain = EngineConfig(
        socket_path="unused",
        instance="engine",
        ranks=2,
        page_tokens=PAGE_TOKENS,
        slice_bytes=SLICE_BYTES,
        hbm_pages=64,
        staging_bytes=1 << 20,
        scale=1000.0,
    )
    return msgspec.structs.replace(plain, **changes)


@attrs.define
class Engine:
    """`held_back` keeps orders of that kind from the ranks until `release` is called.

    Hints are sent if the configuration says so, whatever the environment says.
    """

    manager: FakeManager
    config: EngineConfig
    held_back: type[msgspec.Struct] | None = None
    orders: list[msgspec.Struct] = attrs.Factory(list)
    now_ns: int = 0
    scheduler: Scheduler = attrs.field(init=False)
    lookups: Lookups = attrs.field(init=False)
    ranks: list[Rank] = attrs.field(init=False)
    _pending: list[msgspec.Struct] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        asker = FakeAsker(self.manager)
        self.lookups = Lookups(asker)
        hinter = asker if self.config.queue_warmup else None
        self.scheduler = Scheduler(self.config, self.lookups, self._tell, hinter)
        self.ranks = [
            Rank(
                FakeCache(self.manager, rank, SLICE_BYTES),
                PageContent(DIGEST, rank, SLICE_BYTES),
                self.config.hbm_pages,
                SLICE_BYTES,
            )
            for rank in range(self.config.ranks)
        ]

    def arrive(
        self, name: str, *blocks: int, extra_tokens: int = 1, output: int = 1, priority: int = 0
    ) -> None:
        """A prompt of these blocks and `extra_tokens` of a further one."""
        tokens = len(blocks) * PAGE_TOKENS + extra_tokens
        self.scheduler.arrive(Arrive(name, tokens, output, (*blocks, 10**6), priority), self.now_ns)

    def run(self, turns: int = 400) -> None:
        """Turn, work, and let time pass, until nothing more happens."""
        for _ in range(turns):
            wake_ns = self.scheduler.turn(self.now_ns)
            if self._work():
                continue
            if wake_ns is None:
                return
            self.now_ns = max(self.now_ns, wake_ns)

    def release(self) -> None:
        self.held_back = None

    def _tell(self, order: msgspec.Struct) -> None:
        self.orders.append(order)
        self._pending.append(order)

    def _work(self) -> bool:
        """Give the ranks what was told them; True if something was."""
        ready = [order for order in self._pending if not self._is_held_back(order)]
        self._pending = [order for order in self._pending if self._is_held_back(order)]
        for order in ready:
            self._do(order)
        return bool(ready)

    def _is_held_back(self, order: msgspec.Struct) -> bool:
        return self.held_back is not None and isinstance(order, self.held_back)

    def _do(self, order: msgspec.Struct) -> None:
        for rank in self.ranks:
            match order:
                case Step():
                    rank.step(order)
                    self.scheduler.step_done(order.number)
                case Restore():
                    # Comparing takes real time; here, time is as the test says.
                    done = msgspec.structs.replace(rank.restore(order), compared_us=0)
                    self.scheduler.restore_done(done, self.now_ns)
                case Save():
                    rank.save(order)
                    self.scheduler.staged(order.number)
