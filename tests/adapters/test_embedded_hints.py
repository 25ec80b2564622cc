"""What the engine tells the manager about its queue: what is hinted, and when a hint is taken back."""

import attrs
import pytest

from orbitkv.adapters.embedded.block_hash import block_keys
from orbitkv.adapters.embedded.messages import Step
from orbitkv.adapters.embedded.prefix_cache import PrefixCache
from orbitkv.adapters.embedded.scheduler import POLL_NS
from orbitkv.io.wire import QueryStatus
from tests.adapters.engine_harness import Engine, config
from tests.adapters.fake_manager import FakeManager


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager(ranks=2)


def hinting(manager: FakeManager, **changes: object) -> Engine:
    return Engine(manager, config(queue_warmup=True, **changes))


def everything(cache: PrefixCache) -> tuple[object, ...]:
    """All that a prefix cache keeps: holds, keys, idle pages in order of recency, free ones."""
    return (
        list(cache._holds),
        list(cache._key_of),
        dict(cache._page_of),
        list(cache._idle),
        list(cache._free),
    )


def queried(manager: FakeManager, request: str) -> tuple[bytes, ...]:
    """The keys that the request's first query named."""
    return tuple(manager.asked[f"{request}/0".encode()])


# --- what is hinted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "extra_tokens", "missing"),
    [
        ((1, 2, 3, 4, 5), 1, 3),  # behind two pages that GPU memory has
        ((1, 2, 3, 4, 5), 0, 3),  # the prompt ends with a page: that one is named too
        ((7, 8), 100, 2),  # nothing in GPU memory
        ((1, 9, 10), 511, 2),  # a branch
    ],
)
def test_a_hint_names_exactly_what_the_query_will_name(
    manager: FakeManager, blocks: tuple[int, ...], extra_tokens: int, missing: int
) -> None:
    engine = hinting(manager)
    engine.arrive("warm", 1, 2)
    engine.run()
    engine.arrive("r", *blocks, extra_tokens=extra_tokens)
    (_, attempt, keys) = manager.hints[-1]
    assert (attempt, len(keys)) == (0, missing)
    assert keys == block_keys(blocks)[-missing:], "up to and including the final full page"
    engine.run()
    assert queried(manager, "r") == keys
    assert manager.hints_out == {}


def test_the_oracle_holds_for_every_request_of_a_crowd(manager: FakeManager) -> None:
    """Queued behind a pass that is held back, so that GPU memory is the same for hint and query."""
    engine = hinting(manager, hbm_pages=24)
    engine.arrive("warm", 1, 2, 3)
    engine.run()
    engine.held_back = Step
    for number in range(12):
        engine.arrive(f"r{number}", *range(1, 2 + number % 4), 100 + number)
    engine.run(5)
    hinted = {request: keys for request, _, keys in manager.hints}
    asked = [request for request in hinted if f"{request}/0".encode() in manager.asked]
    assert len(asked) > 3
    assert {request: queried(manager, request) for request in asked} == {one: hinted[one] for one in asked}
    engine.release()
    engine.run()
    assert engine.scheduler.report.completed == 13
    assert manager.hints_out == {}


def test_looking_for_a_hint_touches_nothing_in_gpu_memory(manager: FakeManager) -> None:
    engine = hinting(manager)
    for number in range(3):
        engine.arrive(f"warm {number}", number, 10 + number)
        engine.run()
    before = everything(engine.scheduler._hbm)
    engine.arrive("hinted", 0, 10, 99)
    assert manager.hints[-1][0] == "hinted"
    assert everything(engine.scheduler._hbm) == before, "no hold, no page, no recency"


def test_nothing_is_hinted_that_gpu_memory_has(manager: FakeManager) -> None:
    engine = hinting(manager)
    engine.arrive("warm", 1, 2, 3)
    engine.run()
    manager.hints.clear()
    engine.arrive("again", 1, 2, 3)
    engine.arrive("shorter", 1, 2, 3, extra_tokens=0)
    engine.arrive("tiny", extra_tokens=5)
    assert manager.hints == []
    assert engine.scheduler.report.hints_spared == 3
    engine.run()
    assert engine.scheduler.report.completed == 4


def test_an_engine_that_is_not_told_to_hints_nothing_and_does_not_even_look(manager: FakeManager) -> None:
    engine = Engine(manager, config(queue_warmup=False))
    looks: list[object] = []
    hbm = engine.scheduler._hbm
    hbm.match = looks.append  # type: ignore[method-assign,assignment]  # a spy
    engine.arrive("r", 1, 2)
    assert looks == []
    assert manager.hints == []
    assert engine.scheduler.report.hints_spared == 0


# --- when it is taken back ----------------------------------------------------------------------------


def test_a_hint_is_withdrawn_when_others_brought_the_prefix_and_no_query_is_sent(
    manager: FakeManager,
) -> None:
    engine = hinting(manager, running_max=1)
    engine.arrive("first", 1, 2, 3)
    engine.arrive("same", 1, 2, 3)
    assert [request for request, _, _ in manager.hints] == ["first", "same"]
    engine.run()
    assert engine.scheduler.report.completed == 2
    assert [call[1] for call in manager.calls] == ["first"], "same was never asked for"
    assert manager.withdrawn == ["same"]
    assert engine.scheduler.report.hints_withdrawn == 1
    assert manager.hints_out == {}


def test_a_hint_of_a_request_that_is_aborted_in_the_queue_is_withdrawn(manager: FakeManager) -> None:
    engine = hinting(manager, running_max=1)
    engine.held_back = Step
    engine.arrive("running", 1)
    engine.arrive("unwanted", 2, 3)
    engine.run(5)
    engine.scheduler.abort("unwanted")
    engine.scheduler.abort("unwanted")
    engine.run(5)
    assert manager.withdrawn == ["unwanted"]
    engine.release()
    engine.run()
    report = engine.scheduler.report
    assert (report.completed, report.aborted, report.hints_withdrawn) == (1, 1, 1)
    assert engine.scheduler.idle


def test_a_refused_hint_costs_nothing(manager: FakeManager) -> None:
    manager.hints_refused = True
    engine = hinting(manager)
    engine.arrive("r", 1, 2)
    engine.run()
    report = engine.scheduler.report
    assert (report.hints_sent, report.hints_unsent, report.completed) == (0, 1, 1)


# --- aborts, wherever the request is ------------------------------------------------------------------


@attrs.frozen
class Left:
    """What must be as before once everybody has gone."""

    held_pages: int
    gate: str | None
    hints_out: int


def left(engine: Engine) -> Left:
    scheduler = engine.scheduler
    return Left(scheduler._hbm.held_pages, scheduler._gate.holder, len(engine.manager.hints_out))


NOTHING = Left(0, None, 0)


def test_an_abort_while_the_query_waits_cancels_it(manager: FakeManager) -> None:
    manager.loading = True
    engine = hinting(manager)
    engine.arrive("r", 1, 2)
    engine.run(3)
    engine.scheduler.abort("r")
    engine.run(3)
    assert manager.calls[-1] == ("cancel", b"r/0")
    assert left(engine) == NOTHING


def test_an_abort_while_the_lease_waits_for_memory_lets_go_of_it(manager: FakeManager) -> None:
    manager.saved(block_keys((5, 6, 7)))
    engine = hinting(manager, hbm_pages=4)
    engine.held_back = Step
    engine.arrive("running", 1, 2)
    engine.run(3)
    engine.arrive("r", 5, 6, 7, extra_tokens=0)
    engine.run(3)
    assert manager.leases, "answered, and no page for it"
    engine.scheduler.abort("r")
    engine.run(3)
    assert manager.calls[-1] == ("cancel", b"r/0")
    engine.release()
    engine.run()
    assert left(engine) == NOTHING


def test_an_abort_in_a_restore_a_pass_or_decoding_frees_its_pages_and_the_gate(manager: FakeManager) -> None:
    first = hinting(manager)
    first.arrive("warm", 1, 2, 3)
    first.run()
    for stage in ("restore", "pass", "decoding"):
        engine = hinting(manager)
        engine.arrive("r", 1, 2, 3, output=1000)
        if stage == "restore":
            engine.scheduler.turn(0)
            assert engine.scheduler._gate.holder == "r"
        else:
            while not engine.scheduler._steps.requests:
                engine.run(1)
        if stage == "decoding":
            while not len(engine.scheduler._decoding):
                engine.run(1)
            engine.now_ns -= 1  # before its last token
        engine.scheduler.abort("r")
        engine.run()
        assert engine.scheduler.report.aborted == 1, stage
        assert left(engine) == NOTHING, stage
        assert engine.scheduler.idle, stage


def test_an_abort_of_a_request_that_has_ended_or_never_was_is_harmless(manager: FakeManager) -> None:
    engine = hinting(manager)
    engine.arrive("r", 1)
    engine.run()
    engine.scheduler.abort("r")
    engine.scheduler.abort("nobody")
    engine.run()
    assert (engine.scheduler.report.completed, engine.scheduler.report.aborted) == (1, 0)


# --- the order of the queue, and waits ----------------------------------------------------------------


def test_lower_priorities_go_first_and_equal_ones_in_order(manager: FakeManager) -> None:
    engine = Engine(manager, config(running_max=1), held_back=Step)
    engine.arrive("running", 1)
    engine.run(3)
    for name, block, priority in (("c", 2, 5), ("a", 3, 1), ("d", 4, 5), ("b", 5, 1)):
        engine.arrive(name, block, priority=priority)
    engine.release()
    engine.run()
    assert [request for request, stage in manager.stages if stage == "first_use"] == [
        "running",
        "a",
        "b",
        "c",
        "d",
    ]


def test_the_exposed_wait_is_from_when_there_is_room_until_the_kv_is_there(manager: FakeManager) -> None:
    first = hinting(manager)
    first.arrive("warm", 1, 2, 3)
    first.run()
    engine = hinting(manager)
    manager.next_status = [QueryStatus.LOADING] * 5
    engine.arrive("r", 1, 2, 3)
    engine.run()
    assert engine.scheduler.exposed_waits_us == [5 * POLL_NS // 1000], "five looks at a loading query"


def test_time_without_room_is_no_exposed_wait(manager: FakeManager) -> None:
    first = hinting(manager)
    first.arrive("warm", 1, 2, 3)
    first.run()
    engine = hinting(manager, hbm_pages=6)
    engine.held_back = Step
    engine.arrive("running", 11, 12, 13)
    engine.run(3)
    manager.next_status = [QueryStatus.LOADING] * 5
    engine.arrive("r", 1, 2, 3)
    for _ in range(10):
        engine.run(1)
    engine.now_ns += 10**9
    engine.release()
    engine.run()
    assert engine.scheduler.report.restored_pages == 3
    assert engine.scheduler.exposed_waits_us == [0], "answered while GPU memory was full"


def test_a_restore_that_failed_is_no_exposed_wait(manager: FakeManager) -> None:
    first = hinting(manager)
    first.arrive("warm", 1, 2, 3)
    first.run()
    manager.pages[0][block_keys((1, 2, 3))[1]][5] ^= 1
    engine = hinting(manager)
    engine.arrive("r", 1, 2, 3)
    engine.run()
    assert engine.scheduler.exposed_waits_us == []
