"""Scrapes a running manager, again and again while something else happens."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

Scrape = dict[str, float]
"""Sample, with its labels, -> value. The prefix is left out."""

INTERVAL_S = 0.004
PATIENCE_S = 20.0
_PREFIX = "orbitkv_"


@attrs.define(eq=False)
class Scraper:
    url: str
    scrapes: list[Scrape] = attrs.Factory(list)

    def scrape(self) -> Scrape:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith(_PREFIX))
        return {name.removeprefix(_PREFIX): float(value) for name, _, value in samples}

    def clean_up(self) -> None:
        request = urllib.request.Request(f"{self.url}/cache/memory/cleanup", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            assert response.status == 200

    def until(self, sample: str, value: float) -> None:
        """Wait until a scrape shows it."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.scrape())[sample] != value:
            assert time.monotonic() < deadline, f"{sample} stayed {found[sample]}"
            time.sleep(INTERVAL_S)

    @contextmanager
    def scraping(self) -> Iterator[None]:
        """Keeps every scrape until the end of the block."""
        stopping = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while not stopping.wait(INTERVAL_S):
                    self.scrapes.append(self.scrape())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work, name="scraper")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        assert not failures, failures


def family(scrape: Scrape, name: str, containing: str = "") -> float:
    """The sum over a family's samples, or over those whose labels contain a text."""
    found = [
        value for sample, value in scrape.items() if sample.startswith(f"{name}{{") and containing in sample
    ]
    assert found, f"no sample of {name} with {containing}"
    return sum(found)
