"""A process that writes pages into a store until it is killed, and says which writes were reported done.

    python -m tests.io.killed_writer PATH IO_ENGINE GENERATION

Slot n gets page n in the given generation, four writes in flight; a line on stdout per reported write.
"""

import sys
from pathlib import Path

import trio

from orbitkv.events.outcomes import WriteOutcome
from orbitkv.io.store import SsdStore
from tests.io.ssd_support import (
    IMAGE,
    SEGMENT,
    fill_page,
    identity_of,
    make_pool,
    place,
    small_store,
    write_of,
)

SEGMENTS = 4
SLOTS = SEGMENTS * (SEGMENT // IMAGE)
IN_FLIGHT = 4


async def write_for_ever(store: SsdStore, pool: memoryview, generation: int) -> None:
    at = 0
    while True:
        while at < SLOTS and store.in_flight < IN_FLIGHT:
            identity = identity_of(at, generation=generation)
            fill_page(place(pool, at), identity)
            store.submit_writes([write_of(at, at, identity, out_of=at)])
            at += 1
        for done in await store.completions():
            assert done.outcome is WriteOutcome.WRITTEN
            print(done.token, flush=True)


async def main(path: Path, io_engine: str, generation: int) -> None:
    pool = make_pool()
    store = small_store(path, pool, io_engine=io_engine, segments=SEGMENTS)
    if generation == 1:
        for segment in range(SEGMENTS):
            store.format_segment(segment, IMAGE)
    await write_for_ever(store, pool, generation)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
