"""Which superblock of another page size is emptied: the kernel's short way and the rule in full agree.

The rule looks at every live buffer; the kernel asks at every allocation and mostly in vain, so it looks
at the holders first and then only at the queues that may be drawn on.
"""

from collections import Counter

import numpy as np
import pytest

from orbitkv.events.outcomes import PageClass
from orbitkv.manager.kernel import reclaim
from orbitkv.manager.kernel.columns import Ints
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.superblocks import coldest_superblock
from replay.simulate.simulation import Simulation


def by_the_rule(state: State, up_to: PageClass, slot_bytes: int, spared: Ints | None) -> int | None:
    table = state.buffers
    live = table.live()
    above = np.array([page_class > up_to for page_class, _ in table.queue_numbers] + [True], np.bool_)
    stays = (table.holds[live] > 0) | (table.busy[live] != 0) | above[table.queue[live]]
    if spared is not None:
        stays |= np.isin(live, spared)
    return coldest_superblock(state.superblocks, slot_bytes, table.offset[live], table.last[live], stays)


def test_the_short_way_finds_what_the_rule_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    short_way = reclaim._coldest_block
    found: Counter[bool] = Counter()

    def both(state: State, up_to: PageClass, slot_bytes: int, spared: Ints | None) -> int | None:
        block = short_way(state, up_to, slot_bytes, spared)
        assert block == by_the_rule(state, up_to, slot_bytes, spared)
        found[block is not None] += 1
        return block

    monkeypatch.setattr(reclaim, "_coldest_block", both)
    for seed in (15, 21, 42, 55):
        Simulation(seed).run(1000)
    assert found[True] > 5 and found[False] > 50, "the seeds ask often enough to tell the two apart"
