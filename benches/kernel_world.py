"""A kernel with a filled state, driven by hand: no shell, no disk, completions by return of post."""

import random

import attrs

from orbitkv.events.commands import (
    BeginSave,
    CommitSave,
    CompleteCopies,
    CompleteSeals,
    CompleteWrites,
    DropDram,
    OpenSession,
    QueryPart,
    RegisterRank,
    Start,
    SubmitQuery,
)
from orbitkv.events.config import MIB, KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry, image_bytes
from orbitkv.events.record import Record
from orbitkv.manager.kernel import KERNEL_REVISION, Answer, Refused, State, new_state, step, views
from orbitkv.manager.kernel.columns import pack, unpack

FOOTPRINT_BYTES = 4096
"""Small, so that 10^6 pages need no real pool; the kernel never touches the bytes."""
_PAGES_AT_ONCE = 200
SESSION = 1


@attrs.define
class KernelWorld:
    state: State
    keys: list[bytes]
    ticket: int = 0

    def step(self, command: object) -> Record | Answer:
        outcome = step(self.state, self.state.at_ns + 1000, command)  # type: ignore[arg-type]  # any command
        assert not isinstance(outcome, Refused), outcome
        return outcome

    def fresh_keys(self, random_source: random.Random, count: int) -> list[bytes]:
        """Random known keys as new objects, so that neither their hash nor their place is cached."""
        return [bytes(bytearray(key)) for key in random_source.sample(self.keys, count)]

    def query(self, keys: list[bytes]) -> SubmitQuery:
        """The command for these keys, resolved as the shell resolves them."""
        self.ticket += 1
        pages, unknown = views.resolve_keys(self.state, 0, keys)
        return SubmitQuery(SESSION, "request", 0, self.ticket, 0, (QueryPart(0, 64, 0, pages, unknown),))

    @property
    def operation(self) -> int:
        """The operation of the last query."""
        return SESSION << 32 | self.ticket


def filled(pages: int, *, on_ssd_only: bool = False, seed: int = 1) -> KernelWorld:
    """A manager with one registered engine and `pages` pages saved (in DRAM and on the SSD)."""
    slot_bytes = image_bytes(FOOTPRINT_BYTES)
    pool_bytes = (pages * slot_bytes // (2 * MIB) + 64) * 2 * MIB
    config = KernelConfig(
        pool_bytes=pool_bytes,
        superblock_bytes=2 * MIB,
        query_budget_bytes=pool_bytes,
        instance_query_budget_bytes=pool_bytes,
        ssd_bytes=1 << 40,
        ssd_segment_bytes=64 * MIB,
        ssd_inflight_bytes_max=64 * MIB,
    )
    random_source = random.Random(seed)
    world = KernelWorld(new_state(), [random_source.randbytes(32) for _ in range(pages)])
    world.step(Start(1, KERNEL_REVISION, config))
    world.step(OpenSession(SESSION, 1, 1, 0, True))
    groups = (GroupGeometry(0, 64, (SliceGeometry("all", FOOTPRINT_BYTES),)),)
    world.step(RegisterRank(SESSION, "engine", 0, 1, "", bytes(16), "{}", False, groups, 1 << 40))
    for first in range(0, pages, _PAGES_AT_ONCE):
        _save(world, world.keys[first : first + _PAGES_AT_ONCE])
    if on_ssd_only:
        world.step(DropDram())
    return world


def _save(world: KernelWorld, keys: list[bytes]) -> None:
    pages, unknown = views.resolve_keys(world.state, 0, keys)
    begin = BeginSave(SESSION, 0, pages, unknown)
    world.step(begin)
    buffers = pack(views.save_plan(world.state, begin))
    generations = views.generations(world.state, unpack(buffers).tolist())
    world.step(CommitSave(SESSION, buffers, bytes(8 * len(keys)), generations))
    world.step(CompleteCopies(SESSION, 0, buffers, bytes(len(keys)), 1))
    world.step(CompleteSeals(buffers))
    while world.state.writing:
        slots = list(world.state.writing)
        world.step(CompleteWrites(pack(slots), bytes(len(slots)), bytes(4 * len(slots))))
