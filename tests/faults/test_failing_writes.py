"""Writes that fail, end early or never come to an end, and two writers of one key."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from orbitkv.adapters.client import QueryStatus
from orbitkv.adapters.client_errors import OrbitError
from orbitkv.events.facts import SlotsWritten, WritesFailed
from orbitkv.events.outcomes import SyncOutcome, WriteOutcome
from tests.channel.children import Child
from tests.faults.support import (
    altered_manager,
    everything_is_written,
    facts_of,
    forget_dram,
    is_idle,
)
from tests.restart.managers import (
    PAGE_BYTES,
    PATIENCE_S,
    Place,
    ask,
    content,
    key,
    restore,
    save,
    until,
)

PAGES = 6

REFUSING_WRITES = """
    import errno
    from orbitkv.io.threads import ThreadEngine
    from orbitkv.manager.ports import PageWrite
    honest = ThreadEngine._carry_out
    results = dict(zip([bytes.fromhex(key) for key in {keys}], {results}, strict=True))
    def refusing(self, transfer):
        is_write = isinstance(transfer, PageWrite)
        result = results.pop(transfer.identity.key, None) if is_write else None
        return honest(self, transfer) if result is None else result
    ThreadEngine._carry_out = refusing
"""


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ("[-errno.EIO] * 3", WriteOutcome.FAILED),
        ("[4096, 0, 8192]", WriteOutcome.SHORT),
    ],
)
def test_a_failed_write_is_a_miss_at_once_and_after_a_restart(
    tmp_path: Path, results: str, outcome: WriteOutcome
) -> None:
    place = Place(tmp_path)
    alteration = REFUSING_WRITES.format(results=results, keys=[key(number).hex() for number in range(3)])
    with altered_manager(place, alteration, **{"io-engine": "threads"}) as manager, place.client() as client:
        save(client, range(PAGES))
        until(lambda: everything_is_written(place))
        assert place.pages_on_ssd() == PAGES - 3
        assert restore(client, range(PAGES), "from DRAM") == PAGES
        forget_dram(place)
        assert restore(client, range(PAGES), "gone") == 0, "the first pages were those that failed"
        assert restore(client, range(3, PAGES), "the others") == PAGES - 3
        until(lambda: len(_failed_writes(place)) == 3)  # the log's last moments die with the process
        manager.kill()
    with place.manager() as manager, place.client() as client:
        assert manager.recovered_pages == PAGES - 3
        assert restore(client, range(PAGES), "still gone") == 0
        save(client, range(PAGES))
        until(lambda: everything_is_written(place))
        assert place.pages_on_ssd() == PAGES
        manager.stop()
    assert Counter(_failed_writes(place)) == {outcome: 3}
    assert "verify: ok" in place.verify()


def _failed_writes(place: Place) -> list[int]:
    """The outcomes of the writes that failed, as far as the log was written."""
    return [outcome for failed in facts_of(place, WritesFailed) for outcome in failed.outcomes]


DYING_BEFORE_THE_INDEX = """
    import os, signal
    from orbitkv.io.directory import Directory
    honest = Directory.set_written
    def dying(self, segment, slot, identity, footprint_bytes):
        if identity.key == bytes.fromhex({key!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(self, segment, slot, identity, footprint_bytes)
    Directory.set_written = dying
"""


def test_killed_between_the_data_and_its_directory_entry(tmp_path: Path) -> None:
    place = Place(tmp_path)
    last = range(PAGES - 1, PAGES)
    with altered_manager(place, DYING_BEFORE_THE_INDEX.format(key=key(last[0]).hex())) as manager:
        with place.client() as client, suppress(OrbitError):
            save(client, range(PAGES - 1))
            until(lambda: place.pages_on_ssd() == PAGES - 1)
            save(client, last)
        manager.process.wait(PATIENCE_S)
    assert content(key(PAGES - 1)) in (place.ssd / "pages").read_bytes(), "its data is there"
    with place.manager() as manager, place.client() as client:
        assert manager.recovered_pages == PAGES - 1
        assert restore(client, range(PAGES), "after") == PAGES - 1
        assert ask(client, last, "the last").status is QueryStatus.MISSED
        manager.stop()
    assert "verify: ok" in place.verify()


def test_two_writers_of_one_key_end_in_one_whole_page(tmp_path: Path) -> None:
    """Both save the same keys with other bytes; each page must be of one of them, from DRAM and from SSD."""
    place = Place(tmp_path)
    numbers = range(30)

    def write(fill: int) -> Callable[[], int]:
        def run() -> int:
            with place.client(f"writer {fill}") as client:
                plan = client.begin_save(0, [key(number) for number in numbers])
                for _, slot in plan.wanted:
                    slot[:PAGE_BYTES] = bytes([fill]) * PAGE_BYTES
                client.commit_save(plan)
                client.wait_saved(plan, PATIENCE_S)
                return len(plan.wanted)

        return run

    with place.manager() as manager, place.client() as client:
        writers = [Child(write(fill)) for fill in (1, 2)]
        taken = [writer.answer() for writer in writers]
        for writer in writers:
            writer.join()
        assert max(taken) > 0  # type: ignore[type-var]  # both are numbers
        until(lambda: place.pages_on_ssd() == len(numbers))
        for tier in ("dram", "ssd"):
            view = client.begin_restore(ask(client, numbers, tier).lease)
            whole = [bytes(view.page(page)) for page in range(len(view))]
            assert len(whole) == len(numbers)
            assert all(page == page[:1] * PAGE_BYTES and page[:1] in b"\1\2" for page in whole)
            client.report_sync(view.lease, SyncOutcome.SUCCEEDED, [(0, len(view))], 2, PAGE_BYTES, 1)
            until(lambda: is_idle(place))
            assert forget_dram(place) == len(numbers)
        manager.stop()
    written = sum(len(fact.slots) // 4 for fact in facts_of(place, SlotsWritten))
    assert written == len(numbers), "each page once"
    assert "verify: ok" in place.verify()
