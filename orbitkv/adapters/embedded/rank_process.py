"""The process of one rank: `python -m orbitkv.adapters.embedded.rank_process FD`.

FD is its link to the scheduler, over which its configuration comes first. Three streams: forward
passes here, restores and saves in threads of their own. It ends when the link is closed.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

from orbitkv.adapters.embedded.link import Link
from orbitkv.adapters.embedded.messages import (
    ConfigureRank,
    FinishRank,
    RankFinished,
    RankOrder,
    RankReady,
    Restore,
    Save,
    Staged,
    Step,
    StepDone,
)
from orbitkv.adapters.embedded.page_content import PageContent
from orbitkv.adapters.embedded.process import run_process, tell_failure
from orbitkv.adapters.embedded.rank import Rank
from orbitkv.adapters.embedded.sessions import RankSession
from orbitkv.adapters.embedded.streams import Stream


class RankProcess:
    def __init__(self, link: Link[RankOrder], begin: ConfigureRank) -> None:
        config = begin.config
        self._link = link
        self._session = RankSession(config, begin.rank)
        content = PageContent(self._session.namespace_digest, begin.rank, config.slice_bytes)
        self._rank = Rank(self._session, content, config.hbm_pages, config.slice_bytes)
        self._copies = Stream("restores", partial(tell_failure, link)).start()
        self._saves = Stream("saves", partial(tell_failure, link)).start()

    def serve(self) -> None:
        """Until FinishRank. Raises LinkClosed."""
        self._link.send(RankReady())
        while True:
            match self._link.receive():
                case Step() as step:
                    self._rank.step(step)
                    self._link.send(StepDone(step.number))
                case Restore() as restore:
                    self._copies.put(self._then_tell(restore))
                case Save() as save:
                    self._saves.put(self._then_release(save))
                case FinishRank():
                    return self._finish()
                case unexpected:
                    raise AssertionError(f"a configured rank is not told {unexpected!r}")

    def _then_tell(self, restore: Restore) -> Callable[[], None]:
        return lambda: self._link.send(self._rank.restore(restore))

    def _then_release(self, save: Save) -> Callable[[], None]:
        def work() -> None:
            self._rank.save(save)
            self._link.send(Staged(save.number))

        return work

    def _finish(self) -> None:
        self._copies.finish()
        self._saves.finish()
        self._session.close()
        cpu_us = time.process_time_ns() // 1000
        self._link.send(RankFinished(self._rank.counts.manager_failures, cpu_us))


def serve(link: Link[RankOrder]) -> None:
    begin = link.receive()
    assert isinstance(begin, ConfigureRank)
    RankProcess(link, begin).serve()


if __name__ == "__main__":
    sys.exit(run_process(RankOrder, serve))
