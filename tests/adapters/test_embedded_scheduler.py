"""Stories of one engine against a manager in a dict: what is asked, restored, computed, saved."""

import pytest

from orbitkv.adapters.embedded.block_hash import block_keys
from orbitkv.adapters.embedded.messages import Restore, Save, Step
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io.wire import QueryStatus
from tests.adapters.engine_harness import PAGE_TOKENS, SLICE_BYTES, Engine, config
from tests.adapters.fake_manager import FakeManager


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager(ranks=2)


@pytest.fixture
def engine(manager: FakeManager) -> Engine:
    return Engine(manager, config())


def another(manager: FakeManager, **changes: object) -> Engine:
    """A second engine with empty GPU memory on the same manager."""
    return Engine(manager, config(**changes))


def test_a_cold_prompt_is_computed_and_saved_whole_page_by_whole_page(
    engine: Engine, manager: FakeManager
) -> None:
    engine.arrive("a", 1, 2, 3, extra_tokens=100)
    engine.run()
    report = engine.scheduler.report
    assert (report.completed, report.computed_pages, report.restored_pages) == (1, 3, 0)
    assert list(manager.pages[0]) == list(manager.pages[1]) == list(block_keys((1, 2, 3)))
    assert manager.stages == [("a", "queued"), ("a", "first_use")]
    assert engine.scheduler.idle


def test_a_second_engine_restores_what_the_first_saved_and_computes_the_rest(
    engine: Engine, manager: FakeManager
) -> None:
    engine.arrive("a", 1, 2, 3)
    engine.run()
    second = another(manager)
    second.arrive("b", 1, 2, 3, 4)
    second.run()
    report = second.scheduler.report
    assert (report.restored_pages, report.computed_pages, report.byte_mismatches) == (3, 1, 0)
    assert report.restored_bytes == 3 * 2 * SLICE_BYTES
    assert manager.syncs == [(rank, SyncOutcome.SUCCEEDED, 0, 3, 3 * SLICE_BYTES) for rank in (0, 1)]


def test_what_gpu_memory_holds_is_never_asked_for(engine: Engine, manager: FakeManager) -> None:
    engine.arrive("a", 1, 2, 3)
    engine.run()
    manager.calls.clear()
    engine.arrive("b", 1, 2, 3)
    engine.run()
    assert manager.calls == []
    engine.arrive("c", 1, 2, 7)
    engine.run()
    assert manager.calls == [("query", "c", 0, 0, 1)], "only the page behind the local prefix"
    assert engine.scheduler.report.hbm_hit_pages == 5


def test_the_last_token_of_a_prompt_is_computed_even_if_its_page_is_found(
    engine: Engine, manager: FakeManager
) -> None:
    engine.arrive("a", 1, 2)
    engine.run()
    second = another(manager)
    second.arrive("b", 1, 2, extra_tokens=0)
    second.run()
    assert manager.calls[-1] == ("query", "b", 0, 0, 2), "the final full page is named too"
    assert second.scheduler.report.restored_pages == 1
    assert second.scheduler.report.computed_pages == 1


def test_a_loading_query_is_asked_again_and_lets_others_pass(engine: Engine, manager: FakeManager) -> None:
    manager.loading = True
    engine.arrive("a", 1, 2)
    assert engine.scheduler.turn(0) is not None, "nobody announces the end of a wait: it is looked at again"
    manager.next_status = [QueryStatus.LOADING, QueryStatus.MISSED]
    engine.arrive("b", 3, 4)
    engine.run(20)
    assert engine.scheduler.report.completed == 1, "b passed"
    manager.loading = False
    engine.run()
    assert engine.scheduler.report.completed == 2
    assert [call[0] for call in manager.calls[:3]] == ["query", "poll", "query"]


@pytest.mark.parametrize("status", [QueryStatus.MISSED, QueryStatus.BYPASSED])
def test_an_answer_without_hits_means_compute(
    engine: Engine, manager: FakeManager, status: QueryStatus
) -> None:
    manager.next_status = [status]
    engine.arrive("a", 1, 2)
    engine.run()
    assert engine.scheduler.report.computed_pages == 2
    assert len(manager.calls) == 1


def test_busy_is_asked_again_and_a_retired_query_anew(engine: Engine, manager: FakeManager) -> None:
    manager.next_status = [QueryStatus.BUSY, QueryStatus.LOADING, QueryStatus.RETIRED]
    engine.arrive("a", 1, 2)
    engine.run()
    assert [call[:4] for call in manager.calls if call[0] == "query"] == [
        ("query", "a", 0, 0),
        ("query", "a", 0, 0),
        ("query", "a", 1, 0),
    ]
    assert engine.scheduler.report.completed == 1


def test_a_query_that_retires_for_ever_ends_as_a_miss(engine: Engine, manager: FakeManager) -> None:
    manager.next_status = [QueryStatus.RETIRED] * 50
    engine.arrive("a", 1, 2)
    engine.run()
    assert engine.scheduler.report.completed == 1
    assert len(manager.calls) == 3


def test_a_manager_that_is_gone_costs_hits_and_nothing_else(engine: Engine, manager: FakeManager) -> None:
    manager.gone = True
    engine.arrive("a", 1, 2)
    engine.arrive("b", 3)
    engine.run()
    assert engine.scheduler.report.completed == 2
    assert engine.lookups.counts.failures > 0
    assert engine.scheduler.idle


def test_a_lease_that_cannot_be_used_is_a_miss(engine: Engine, manager: FakeManager) -> None:
    engine.arrive("a", 1, 2, 3)
    engine.run()
    second = another(manager)
    second.held_back = Restore
    second.arrive("b", 1, 2, 3)
    second.run(10)
    manager.leases.clear()
    second.release()
    second.run()
    report = second.scheduler.report
    assert (report.failed_restores, report.restored_pages, report.computed_pages) == (1, 0, 3)
    assert report.completed == 1


def test_a_wrong_byte_in_gpu_memory_is_counted_and_computed_over(
    engine: Engine, manager: FakeManager
) -> None:
    """The control: if this did not fire, no other run would mean anything."""
    engine.arrive("a", 1, 2, 3)
    engine.run()
    manager.pages[1][block_keys((1, 2, 3))[1]][77] ^= 0x10
    second = another(manager)
    second.arrive("b", 1, 2, 3)
    second.run()
    report = second.scheduler.report
    assert (report.byte_mismatches, report.mismatched_pages) == (1, 1)
    assert report.computed_pages == 3
    manager.syncs.clear()
    second.arrive("c", 1, 2, 3)
    second.run()
    assert manager.syncs == [], "c found the computed pages in GPU memory"


# --- one load at a time -------------------------------------------------------------------------------


def test_a_second_load_waits_until_the_first_has_computed(engine: Engine, manager: FakeManager) -> None:
    engine.arrive("warm", 1, 2, 3)
    engine.arrive("warm too", 11, 12, 13)
    engine.run()
    second = another(manager)
    second.held_back = Step
    second.arrive("cold", 50)
    second.run(5)
    second.arrive("a", 1, 2, 3)
    second.arrive("b", 11, 12, 13)
    second.run(20)
    assert _restores(second) == 1, "a has its pages but no forward pass yet: the one of cold still runs"
    second.release()
    second.run()
    assert _restores(second) == 2
    assert second.scheduler.report.completed == 3


def test_the_queue_moves_when_a_finished_restore_stands_behind_a_head_that_needs_its_pages(
    engine: Engine, manager: FakeManager
) -> None:
    """The head needs 8 of 15 pages, the restore behind it has 8: whoever has pages must run."""
    engine.arrive("warm", *range(10, 17))
    engine.run()
    tight = another(manager, hbm_pages=15)
    manager.next_status = [QueryStatus.LOADING]
    tight.arrive("head", *range(7))
    tight.arrive("behind", *range(10, 17))
    tight.run()
    assert tight.scheduler.report.completed == 2


def test_nobody_passes_a_request_that_waits_for_memory(manager: FakeManager) -> None:
    engine = Engine(manager, config(hbm_pages=8), held_back=Step)
    engine.arrive("first", 1, 2, 3, 4)
    engine.arrive("long", *range(10, 16))
    engine.arrive("short", 30)
    engine.run(20)
    first_step = next(order for order in engine.orders if isinstance(order, Step))
    assert len(first_step.pages) == 4, "short fits, but would starve long"
    engine.release()
    engine.run()
    assert engine.scheduler.report.completed == 3


# --- prefixes that come and go while a query waits ----------------------------------------------------


def test_a_query_is_cancelled_when_gpu_memory_has_the_prefix_by_then(
    engine: Engine, manager: FakeManager
) -> None:
    """Identical prompts arrive together: one computes, the others must not wait for the manager."""
    manager.loading = True
    engine.arrive("slow", 1, 2)
    engine.run(3)
    manager.next_status = [QueryStatus.LOADING, QueryStatus.MISSED]
    engine.arrive("same", 1, 2)
    engine.run(50)
    assert engine.scheduler.report.completed == 2
    assert ("cancel", b"slow/0") in manager.calls
    assert engine.scheduler.report.computed_pages == 2


def test_a_result_that_gpu_memory_already_has_is_given_back(engine: Engine, manager: FakeManager) -> None:
    engine.arrive("warm", 1, 2)
    engine.run()
    second = another(manager)
    manager.loading = True
    second.arrive("slow", 1, 2, 3)
    second.run(3)
    manager.next_status = [QueryStatus.LOADING, QueryStatus.MISSED]
    second.arrive("quick", 1, 2)
    second.run(50)
    manager.loading = False
    second.run()
    assert ("release", b"lease of slow/0") in manager.calls
    assert second.scheduler.report.completed == 2
    assert second.scheduler.report.restored_pages == 0


def test_a_query_is_revised_when_the_prefix_before_it_was_evicted(manager: FakeManager) -> None:
    engine = Engine(manager, config(hbm_pages=8))
    engine.arrive("warm", 1, 2)
    engine.run()
    manager.loading = True
    engine.arrive("slow", 1, 2, 3, 4)
    engine.run(3)
    manager.next_status = [QueryStatus.LOADING, QueryStatus.MISSED]
    engine.arrive("evictor", *range(20, 27))
    engine.run(50)
    manager.loading = False
    engine.run()
    queries = [call for call in manager.calls if call[:2] == ("query", "slow")]
    assert queries[-1] == ("query", "slow", 0, 1, 4), "the same attempt, revised to begin further in front"
    assert engine.scheduler.report.completed == 3


def test_a_miss_is_remembered_while_the_request_waits_for_memory(manager: FakeManager) -> None:
    engine = Engine(manager, config(hbm_pages=8), held_back=Step)
    engine.arrive("first", 1, 2, 3, 4)
    engine.arrive("next", *range(10, 16))
    for _ in range(20):
        engine.run(5)
    assert [call[1] for call in manager.calls] == ["first", "next"]


# --- saves --------------------------------------------------------------------------------------------


def test_a_forward_pass_never_waits_for_a_save(manager: FakeManager) -> None:
    engine = Engine(manager, config(saving_pages_max=3), held_back=Save)
    engine.arrive("a", 1, 2)
    engine.arrive("b", 11, 12)
    engine.run(50)
    report = engine.scheduler.report
    assert report.completed == 2
    assert (report.offered_pages, report.unsaved_pages) == (3, 1)
    assert not engine.scheduler.idle, "the pages being saved are still held"
    engine.release()
    engine.run()
    assert engine.scheduler.idle


def test_pages_that_are_being_saved_are_not_reused(manager: FakeManager) -> None:
    engine = Engine(manager, config(hbm_pages=4), held_back=Save)
    engine.arrive("a", 1, 2)
    engine.run(50)
    engine.arrive("b", 11, 12, 13)
    engine.run(50)
    assert engine.scheduler.report.completed == 1, "b needs pages whose save is not staged yet"
    engine.release()
    engine.run()
    assert engine.scheduler.report.completed == 2


# --- time ---------------------------------------------------------------------------------------------


def test_time_to_first_token_is_the_models(engine: Engine) -> None:
    """One prompt of 1,025 tokens at scale 1,000: nothing but the formula passes time here."""
    engine.arrive("a", 1, 2)
    engine.run()
    linear, attention = 2 * 6.95e9 * 1025, 4 * 36 * 4096 * 1025 * 512.5
    expected_us = ((linear + attention) / (0.6 * 148e12) + 0.002) / 1000 * 1e6
    assert engine.scheduler.first_tokens_us == [pytest.approx(expected_us, abs=2)]


def test_long_prompts_are_computed_in_chunks_that_others_can_join(manager: FakeManager) -> None:
    engine = Engine(manager, config(step_tokens_max=2 * PAGE_TOKENS))
    engine.arrive("a", 1, 2, 3)
    engine.arrive("b", 4)
    engine.run()
    steps = [len(order.pages) for order in engine.orders if isinstance(order, Step)]
    assert steps == [2, 1, 1]
    assert engine.scheduler.report.completed == 2


def test_a_request_that_memory_can_never_hold_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="needs 101 pages, GPU memory has 64"):
        engine.arrive("huge", *range(100))


def _restores(engine: Engine) -> int:
    return sum(isinstance(order, Restore) for order in engine.orders)
