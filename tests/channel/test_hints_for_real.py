"""A hint to a real manager in a process of its own, with a real SSD folder: asked for, never polled."""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from orbitkv.adapters.client import CacheManagerClient, HintRefusal, QueryPart, QueryStatus
from orbitkv.adapters.operator import OperatorClient
from orbitkv.events.geometry import image_bytes
from orbitkv.events.outcomes import SyncOutcome
from tests.channel.children import Child
from tests.restart.managers import PAGE_BYTES, PAGE_TOKENS, Place, content, key, save, until

PAGES = range(8)
FOOTPRINT = 102_400
"""Of one page of `PAGE_BYTES`, padded."""


class Metrics:
    def __init__(self, said: list[str]) -> None:
        found = re.search(r"http://[^\s,]+/metrics", " ".join(said))
        assert found, said
        self._url = found.group()

    def __getitem__(self, name: str) -> int:
        """The value of a metric, summed over its labels."""
        with urllib.request.urlopen(self._url, timeout=10) as response:
            text = response.read().decode()
        families = text_string_to_metric_families(text)
        samples = [
            one.value for family in families for one in family.samples if one.name == f"orbitkv_{name}"
        ]
        assert samples, name
        return int(sum(samples))


@contextmanager
def cold_pages(path: Path) -> Iterator[tuple[Place, Metrics, CacheManagerClient]]:
    """A manager that has `PAGES` on its SSD and not in DRAM, and an engine that is registered."""
    place = Place(path)
    with place.manager(**{"http-listen": "127.0.0.1:0"}) as manager, place.client() as client:
        assert save(client, PAGES) == len(PAGES)
        until(lambda: place.pages_on_ssd() == len(PAGES))
        operator = OperatorClient(place.socket)
        assert operator.drop_dram() == len(PAGES)
        operator.close()
        yield place, Metrics(manager.lines), client


def _prefix() -> list[QueryPart]:
    return [QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in PAGES])]


def test_a_hint_that_is_never_polled_is_a_dram_hit_later(tmp_path: Path) -> None:
    with cold_pages(tmp_path) as (place, metrics, client):
        assert client.warm_prefix("request", 0, _prefix()) == 1
        until(lambda: metrics["warmup_prepared_bytes_total"] == len(PAGES) * FOOTPRINT)
        assert metrics["query_reserved_bytes"] == 0
        assert metrics["query_speculative_reserved_bytes"] == 0
        read_bytes = metrics["ssd_read_bytes_total"]
        assert read_bytes == len(PAGES) * image_bytes(FOOTPRINT)
        answer = client.query("request", 0, _prefix())
        assert (answer.status, answer.hits) == (QueryStatus.READY, (len(PAGES),)), "at once, without a poll"
        view = client.begin_restore(answer.lease)
        for position, number in enumerate(PAGES):
            assert bytes(view.page(position)) == content(key(number))
        copied_bytes = len(PAGES) * PAGE_BYTES
        client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, len(PAGES))], 2, copied_bytes, 1)
        assert metrics["ssd_read_bytes_total"] == read_bytes
        assert metrics["warmup_restored_bytes_total"] == len(PAGES) * FOOTPRINT
        assert metrics["warmup_pending_bytes"] == 0
    place.verify()


def test_an_engine_killed_right_after_its_hint_leaves_nothing_reserved(tmp_path: Path) -> None:
    with cold_pages(tmp_path) as (place, metrics, client):
        kept = []

        def hint_in_a_process_of_its_own() -> bool:
            kept.append(place.client("another engine"))  # nobody says goodbye
            return isinstance(kept[0].__enter__().warm_prefix("request", 0, _prefix()), int)

        child = Child(hint_in_a_process_of_its_own, linger=True)
        assert child.answer() is True
        child.kill()
        until(lambda: metrics["sessions"] == 1)
        until(lambda: metrics["query_reserved_bytes"] == 0)
        assert metrics["operations"] == 0
        answer = client.query("request", 0, _prefix())
        while answer.status is QueryStatus.LOADING:
            answer = client.poll(answer.operation)
        assert answer.hits == (len(PAGES),)
        assert metrics["ssd_read_bytes_total"] == len(PAGES) * image_bytes(FOOTPRINT), "none read twice"
    place.verify()


def test_a_manager_that_is_killed_costs_the_queue_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        client.warm_prefix("request", 0, _prefix())
        manager.kill()
        assert client.warm_prefix("request", 1, _prefix()) is HintRefusal.CONNECTION_LOST
        assert not client.cancel_hint("request", 0)
