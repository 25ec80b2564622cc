"""A small log that a real manager wrote: saves, hits in DRAM and on the SSD, a hint, a kill and a restart."""

from pathlib import Path

from orbitkv.adapters.client import CacheManagerClient, QueryPart
from orbitkv.adapters.operator import OperatorClient
from tests.restart.managers import PAGE_TOKENS, Place, ask, key, restore, save, until


def _empty_dram(place: Place) -> None:
    until(lambda: place.status()["outstanding"]["writes"] == 0)
    operator = OperatorClient(place.socket)
    try:
        operator.drop_dram()
    finally:
        operator.close()


def _hinted(place: Place, client: CacheManagerClient, numbers: range, request: str) -> None:
    """A hint, its pages in DRAM, then the query that it was for."""
    part = QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
    client.warm_prefix(request, 0, [part])
    until(lambda: place.status()["outstanding"]["reads"] == 0)
    assert restore(client, numbers, request) == len(numbers)


def real_log(directory: Path) -> Path:
    """Two incarnations, the first of them killed."""
    place = Place(directory)
    with place.manager() as manager, place.client() as client:
        save(client, range(20))
        save(client, range(10, 30))
        assert restore(client, range(12), "in DRAM") == 12
        _empty_dram(place)
        assert restore(client, range(8), "on the SSD") == 8
        _hinted(place, client, range(20, 28), "hinted")
        ask(client, range(15, 25), "never restored")
        ask(client, range(500, 505), "missed")
        manager.kill()
    with place.manager() as manager, place.client() as client:
        _hinted(place, client, range(10), "hinted again")
        save(client, range(40, 50))
        assert restore(client, range(30), "all of it") == 30
        manager.stop()
    return place.log
