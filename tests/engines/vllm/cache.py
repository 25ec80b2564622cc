"""A real manager behind an engine, and what its books and its log say."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import attrs

from orbitkv.events.record import Record
from tests.engines.waiting import until
from tests.faults.support import (
    Device,
    everything_is_written,
    facts_of,
    forget_dram,
    is_idle,
    manager_with_device,
    records_of,
)
from tests.metrics.scraper import Scrape, Scraper, family
from tests.restart.managers import ROOT, Manager, Place

Fact = TypeVar("Fact")
PATIENT = {
    "http-listen": "127.0.0.1:0",
    # A busy machine takes its time, and no test here is about the end of a lifetime.
    "greeting-timeout": "1m",
    "hint-lifetime": "5m",
    "demand-lifetime": "5m",
}
TIERS = ("dram", "ssd", "miss")
_TIER_PAGES = 'cache_tier_page_requests_total{{kind="{}",tier="{}"}}'


@attrs.define(eq=False)
class Cache:
    place: Place
    manager: Manager

    @property
    def socket(self) -> Path:
        return self.place.socket

    @property
    def scraper(self) -> Scraper:
        return Scraper(self.manager.lines[1].split("metrics at ")[1].split("/metrics")[0])

    def scrape(self) -> Scrape:
        return self.scraper.scrape()

    def settle(self) -> None:
        """Wait until nothing is asked, promised, reserved, read, copied, saved or written."""
        until(lambda: is_idle(self.place) and everything_is_written(self.place))

    def forget_dram(self) -> int:
        """Every page is on the SSD alone from here on. How many left DRAM."""
        self.settle()
        return forget_dram(self.place)

    def pages_in_dram(self) -> int:
        scrape = self.scrape()
        return int(family(scrape, "cache_resident_pages"))

    @contextmanager
    def counting(self, kind: str = "demand") -> Iterator[dict[str, int]]:
        """Pages by the tier where queries (or hints) of the block found them; filled at its end."""
        before = self.scrape()
        counted: dict[str, int] = {}
        yield counted
        until(lambda: is_idle(self.place))
        after = self.scrape()
        for tier in TIERS:
            name = _TIER_PAGES.format(kind, tier)
            counted[tier] = int(after[name] - before[name])

    def facts(self, kind: type[Fact]) -> list[Fact]:
        return facts_of(self.place, kind)

    def records(self) -> list[Record]:
        return records_of(self.place)


@contextmanager
def running_cache(path: Path, **settings: str) -> Iterator[Cache]:
    """A manager on a new pool, page file and log; at the end it drains and stops, and its log is judged.

    `settings`: of `orbitkv serve`, with underscores.
    """
    place = new_place(path, **settings)
    with place.manager() as manager:
        cache = Cache(place, manager)
        yield cache
        manager.stop()
    judge(place.log)


@contextmanager
def stalling_cache(path: Path, **settings: str) -> Iterator[tuple[Cache, Device]]:
    """The same with an SSD that stands still when it is told to."""
    place = new_place(path, **settings)
    with manager_with_device(place) as (manager, device):
        cache = Cache(place, manager)
        yield cache, device
        device.go_on()
        manager.stop()
    judge(place.log)


def new_place(path: Path, **settings: str) -> Place:
    path.mkdir(exist_ok=True)
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return Place(path, PATIENT | named)


def judge(log: Path) -> None:
    """Both judges, each in a process that sees only the files."""
    for judgement in ("verify", "audit"):
        done = subprocess.run(
            [sys.executable, "-m", "replay", judgement, str(log)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{judgement}: {done.stdout}{done.stderr}"
