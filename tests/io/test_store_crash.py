"""kill -9 while writing: what was reported written is found again, and what is found is whole."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trio

from orbitkv.events.outcomes import ReadOutcome
from orbitkv.manager.ports import RecoveredSegment
from tests.io.killed_writer import IN_FLIGHT, SEGMENTS, SLOTS
from tests.io.ssd_support import (
    IMAGE,
    SEGMENT,
    SLOTS_MAX,
    disk_bytes,
    identity_of,
    make_pool,
    read_of,
    small_store,
)

ROOT = Path(__file__).parents[2]
FILE_MAP_BYTES = 4096


def write_until_killed(path: Path, io_engine: str, generation: int, *, after: int) -> set[int]:
    """The slots whose writes had been reported when the process was killed, `after` of them or more."""
    command = [sys.executable, "-m", "tests.io.killed_writer", str(path), io_engine, str(generation)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reported = {int(writer.stdout.readline()) for _ in range(after)}
        writer.kill()
        reported |= {int(line) for line in writer.stdout if line.endswith("\n")}
        return reported


def generations(recovered: list[RecoveredSegment]) -> dict[int, int]:
    """Slot as the writer numbers it -> generation."""
    found: dict[int, int] = {}
    for segment in recovered:
        slots = np.frombuffer(segment.slots, dtype="<u4") - segment.segment * SLOTS_MAX
        slots = slots + segment.segment * (SEGMENT // IMAGE)
        found.update(
            zip(slots.tolist(), np.frombuffer(segment.generations, dtype="<u8").tolist(), strict=True)
        )
    return found


@pytest.mark.parametrize("io_engine", ["io_uring", "threads"])
def test_three_kills_while_writing(tmp_path: Path, io_engine: str) -> None:
    pool = make_pool()
    expected: dict[int, int] = {}
    for generation, after in ((1, 50), (2, 20), (3, 35)):
        reported = write_until_killed(tmp_path, io_engine, generation, after=after)
        expected.update(dict.fromkeys(reported, generation))
        assert disk_bytes(tmp_path / "pages") <= SEGMENTS * SEGMENT + FILE_MAP_BYTES

        async def verify(generation: int = generation, reported: set[int] = reported) -> None:
            store = small_store(tmp_path, pool, segments=SEGMENTS)
            found = generations(list(store.recovered()))
            in_doubt = [slot for slot in range(SLOTS) if found.get(slot) != expected.get(slot)]
            # A write in flight at the kill has voided its slot, or is complete and was not yet reported.
            assert len(in_doubt) <= IN_FLIGHT
            assert not set(in_doubt) & reported
            assert all(found.get(slot) in (None, generation) for slot in in_doubt)
            store.submit_reads(
                [
                    read_of(slot, slot, identity_of(slot, generation=each), into=slot)
                    for slot, each in found.items()
                ]
            )
            while store.in_flight:
                assert {done.outcome for done in await store.completions()} == {ReadOutcome.WHOLE}
            await store.aclose()
            expected.clear()
            expected.update(found)

        trio.run(verify)
