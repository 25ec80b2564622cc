"""What no scrape of a running manager is sure to meet: a hint whose reads stand still, one without room."""

import msgspec
from prometheus_client import CollectorRegistry
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.config import MIB
from orbitkv.events.outcomes import HintEnd
from orbitkv.manager.shell.metrics import ManagerMetrics
from tests.shell.test_hints import FOOTPRINT, hint, on_ssd
from tests.shell.world import CONFIG, World, play


def sample(world: World, name: str, **labels: str) -> float:
    registry = CollectorRegistry()
    registry.register(ManagerMetrics(world.loop.state, world.journal, world.admission, world.store.info))
    value = registry.get_sample_value(f"orbitkv_{name}", labels)
    assert value is not None, f"there is no {name} with {labels}"
    return value


def test_the_speculative_share_is_reserved_until_landing_and_a_query_is_not_in_it() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2, 3])
        world.store.stall()
        await hint(engine, [1, 2], request="hinted")
        await engine.query([3], request="asked")
        assert sample(world, "query_speculative_reserved_bytes") == 2 * FOOTPRINT
        assert sample(world, "query_reserved_bytes") == 3 * FOOTPRINT
        assert sample(world, "query_reserved_bytes_by_phase", phase="warming") == 2 * FOOTPRINT
        assert sample(world, "query_reserved_bytes_by_phase", phase="preparing") == FOOTPRINT
        assert (sample(world, "operations", kind="hint"), sample(world, "operations", kind="demand")) == (
            1,
            1,
        )
        assert sample(world, "ssd_inflight_bytes", lane="background") > 2 * FOOTPRINT
        world.store.release()
        await wait_all_tasks_blocked()
        assert sample(world, "query_speculative_reserved_bytes") == 0
        assert sample(world, "warmup_pending_bytes") == 2 * FOOTPRINT

    play(story)


def test_a_hint_finds_no_room_because_it_pushes_out_nothing_that_somebody_saved() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        for first in range(100, 180, 8):
            await engine.save(range(first, first + 8))
        resident = sample(world, "cache_resident_pages", **{"class": "retained"})
        await hint(engine, [1, 2])
        assert [event.no_room for event in world.events(facts.ReadsDropped)] == [True]
        assert [event.end for event in world.events(facts.HintEnded)] == [HintEnd.PREPARED]
        assert sample(world, "warmup_prepared_bytes_total") == 0
        assert sample(world, "query_speculative_reserved_bytes") == 0
        assert sample(world, "pool_alloc_failures_total") == 1
        assert sample(world, "cache_resident_pages", **{"class": "retained"}) == resident

    play(story, msgspec.structs.replace(CONFIG, pool_bytes=2 * MIB))
