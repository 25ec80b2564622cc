"""The connector's scheduler side against stand-ins for vLLM and the manager: who is let in, with what."""

from typing import Any

import pytest

from orbitkv.adapters.client_errors import CallTimedOut, ManagerUnavailable
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.hinting import Hinting
from orbitkv.adapters.vllm.lookups import OPEN_MAX, Lookups
from orbitkv.adapters.vllm.orders import RankReport
from orbitkv.adapters.vllm.saving import Saving
from orbitkv.adapters.vllm.scheduler import Roles, SchedulerSide
from orbitkv.io.wire import QueryStatus
from tests.adapters.vllm_standins import BLOCK, GROUP, Link, Manager, Pool, hashes, request, step


class World:
    """A scheduler side, and vLLM's part played by the test."""

    def __init__(
        self, *, ranks: int = 1, hints: bool = False, held: float = 0.5, roles: Roles | None = None
    ) -> None:
        self.manager, self.link, self.pool, self.counts = Manager(), Link(), Pool(), Counts()
        groups = (GROUP,)
        self.side = SchedulerSide(
            groups=groups,
            hash_tokens=BLOCK,
            pool=self.pool,
            roles=roles or Roles(restores=True, saves=True),
            lookups=Lookups(self.manager, self.link, self.counts),
            hinting=Hinting(self.manager, groups, BLOCK, self.counts, hints),
            saving=Saving(groups, BLOCK, ranks, held, self.counts),
            stages=self.manager.report_stage,
            counts=self.counts,
        )

    def save(self, tokens: int, prompt: str = "p") -> None:
        self.manager.saved.update(hashes(prompt, tokens))

    def queue(self, name: str, tokens: int, prompt: str = "p", **more: Any) -> Any:
        made = request(name, tokens, prompt, **more)
        self.side.queued(made)
        return made

    def let_in(self, made: Any, blocks: list[int], local: int = 0) -> int:
        """As vLLM does at one step: ask, allocate. Returns the tokens to be restored."""
        tokens = self.side.matched_tokens(made, local)
        assert tokens is not None
        self.side.allocated(made, (blocks,), tokens)
        return tokens


def test_a_prompt_that_the_manager_has_is_restored_behind_the_local_prefix():
    world = World()
    world.save(16)
    made = world.queue("a", 18)
    assert world.let_in(made, [1, 2, 3, 4, 5], local=4) == 12
    (order,) = world.side.step(step()).loads
    assert [(page.position, page.blocks) for page in order.pages] == [(0, (2,)), (1, (3,)), (2, (4,))]
    assert order.lease == b"lease a/0/0"
    assert world.side.step(step()).loads == ()


def test_asking_again_changes_nothing():
    world = World()
    world.save(16)
    made = world.queue("a", 18)
    answers = [world.side.matched_tokens(made, 0) for _ in range(50)]
    assert answers == [16] * 50
    assert len(world.manager.calls) == 1


def test_a_loading_query_is_asked_about_again():
    world = World()
    world.save(8)
    world.manager.loading = True
    made = world.queue("a", 9)
    assert world.side.matched_tokens(made, 0) is None
    assert world.side.matched_tokens(made, 0) is None
    world.manager.loading = False
    assert world.side.matched_tokens(made, 0) == 8
    assert [call[0] for call in world.manager.calls] == ["query", "poll", "poll"]


def test_the_whole_prompt_may_be_claimed_as_loads_are_asynchronous():
    world = World()
    world.save(16)
    assert world.let_in(world.queue("a", 16), [1, 2, 3, 4]) == 16


def test_a_prefix_that_shrank_is_a_revision():
    world = World()
    world.save(16)
    made = world.queue("a", 17)
    assert world.side.matched_tokens(made, 8) == 8
    assert world.side.matched_tokens(made, 4) == 12
    assert world.manager.made("query") == [("a", 0, 0, 2), ("a", 0, 1, 3)]


def test_a_prefix_that_grew_past_what_was_found_cancels_the_query():
    world = World()
    world.save(8)
    made = world.queue("a", 17)
    assert world.side.matched_tokens(made, 0) == 8
    assert world.side.matched_tokens(made, 4) == 4
    assert world.side.matched_tokens(made, 12) == 0
    assert world.manager.made("cancel") == [("a/0/0",)]
    assert world.side.matched_tokens(made, 12) == 0
    assert len(world.manager.made("query")) == 1


class TestGate:
    def test_no_other_result_is_let_in_until_the_first_compute_step(self):
        world = World()
        world.save(8)
        world.save(8, "q")
        a, b = world.queue("a", 9), world.queue("b", 9, "q")
        assert world.let_in(a, [1, 2, 3]) == 8
        assert world.side.matched_tokens(b, 0) is None
        world.side.step(step())
        world.side.allocated(a, ([1, 2, 3],), 0)  # its copies have ended
        assert world.side.matched_tokens(b, 0) is None
        world.side.step(step(new=[("a", [1, 2, 3], 8)], scheduled={"a": 1}))
        assert world.side.matched_tokens(b, 0) == 8

    def test_a_miss_passes_the_gate(self):
        world = World()
        world.save(8)
        assert world.let_in(world.queue("a", 9), [1, 2, 3]) == 8
        assert world.let_in(world.queue("b", 9, "unknown"), [4, 5, 6]) == 0

    def test_the_end_of_the_request_lifts_it(self):
        world = World()
        world.save(8)
        a, b = world.queue("a", 9), world.queue("b", 9)
        world.let_in(a, [1, 2, 3])
        world.side.finished(a)
        assert world.side.matched_tokens(b, 0) == 8

    def test_a_failed_load_lifts_it_when_the_request_waits_again(self):
        world = World()
        world.save(8)
        a, b = world.queue("a", 9), world.queue("b", 9, "q")
        world.let_in(a, [1, 2, 3])
        world.side.step(step())
        world.side.reported(RankReport(failed_loads={"a"}))
        assert world.side.matched_tokens(a, 0) == 0
        world.save(8, "q")
        assert world.side.matched_tokens(b, 0) == 8


class TestTrouble:
    def test_an_absent_manager_is_a_miss_and_is_asked_once(self):
        world = World()
        world.manager.trouble = ManagerUnavailable("nobody")
        requests = [world.queue(f"{n}", 17) for n in range(5)]
        assert [world.side.matched_tokens(made, 0) for made in requests] == [0] * 5
        assert len(world.manager.calls) == 1

    def test_what_was_found_over_a_lost_connection_is_asked_anew_once_there_is_another(self):
        world = World()
        world.save(8)
        a, b = world.queue("a", 9), world.queue("b", 9)
        assert world.side.matched_tokens(a, 0) == 8
        world.manager.trouble = CallTimedOut("no answer")
        assert world.side.matched_tokens(b, 0) == 0
        assert world.side.matched_tokens(a, 0) == 0
        world.manager.trouble, world.link.up = None, True
        assert world.side.matched_tokens(a, 0) == 8
        assert world.manager.made("query")[-1] == ("a", 1, 0, 2)

    def test_a_failed_load_is_not_looked_up_again_and_its_lease_is_let_go(self):
        world = World()
        world.save(16)
        a = world.queue("a", 17)
        world.let_in(a, [1, 2, 3, 4, 5])
        world.side.step(step())
        world.side.reported(RankReport(failed_loads={"a"}))
        world.side.reported(RankReport(failed_loads={"a"}))  # of another rank
        assert world.manager.made("release") == [("lease a/0/0",)]
        assert world.side.matched_tokens(a, 0) == 0
        assert len(world.manager.made("query")) == 1

    def test_a_page_whose_load_failed_is_not_asked_for_until_it_was_computed_anew(self):
        world = World()
        world.save(16)
        a = world.queue("a", 17)
        world.let_in(a, [1, 2, 3, 4, 5], local=8)
        world.side.step(step())
        world.side.reported(RankReport(failed_loads={"a"}))
        world.side.finished(a)
        b = world.queue("b", 17)
        assert world.let_in(b, [6, 7, 8, 9, 10]) == 8  # the two pages before the failed ones
        world.side.step(step())
        world.side.step(step(new=[("b", [6, 7, 8, 9, 10], 8)], scheduled={"b": 9}))
        assert world.side.matched_tokens(world.queue("c", 17), 0) == 16

    @pytest.mark.parametrize(
        "status", [QueryStatus.MISSED, QueryStatus.BYPASSED, QueryStatus.RETIRED, QueryStatus.BUSY]
    )
    def test_what_is_no_hit_is_computed_and_not_asked_again(self, status):
        world = World()
        world.save(8)
        world.manager.statuses = [status]
        a = world.queue("a", 9)
        assert [world.side.matched_tokens(a, 0) for _ in range(3)] == [0, 0, 0]
        assert len(world.manager.calls) == 1

    def test_a_busy_manager_is_asked_again_while_earlier_queries_are_open(self):
        world = World()
        world.save(8)
        world.manager.loading = True
        a, b = world.queue("a", 9), world.queue("b", 9)
        assert world.side.matched_tokens(a, 0) is None
        world.manager.statuses = [QueryStatus.BUSY]
        assert world.side.matched_tokens(b, 0) is None
        world.manager.loading = False
        assert world.side.matched_tokens(b, 0) == 8

    def test_open_lookups_are_bounded(self):
        world = World()
        world.save(8)
        world.manager.loading = True
        requests = [world.queue(f"{n}", 9) for n in range(OPEN_MAX + 5)]
        assert {world.side.matched_tokens(made, 0) for made in requests} == {None}
        assert len(world.manager.made("query")) == OPEN_MAX
        world.side.finished(requests[0])
        assert world.side.matched_tokens(requests[-1], 0) is None
        assert len(world.manager.made("query")) == OPEN_MAX + 1


class TestEnds:
    def test_the_end_of_a_waiting_request_cancels_its_query(self):
        world = World()
        world.manager.loading = True
        a = world.queue("a", 9)
        world.side.matched_tokens(a, 0)
        world.side.finished(a)
        world.side.finished(a)
        assert world.manager.made("cancel") == [("a/0/0",)]

    def test_a_preempted_request_asks_a_question_of_its_own(self):
        world = World()
        world.save(8)
        a = world.queue("a", 9)
        world.let_in(a, [1, 2, 3])
        world.side.step(step())
        world.side.step(step(new=[("a", [1, 2, 3], 8)], scheduled={"a": 1}))
        assert world.side.matched_tokens(a, 0) == 8
        assert world.manager.made("query") == [("a", 0, 0, 2), ("a", 1, 0, 2)]
        world.side.allocated(a, ([7, 8, 9],), 8)
        (order,) = world.side.step(step()).loads
        assert order.blocks == {7, 8}

    def test_nothing_is_looked_up_for_a_request_that_must_be_computed(self):
        world = World()
        world.save(8)
        a = request("a", 9)
        a.skip_reading_prefix_cache = True
        world.side.queued(a)
        assert world.side.matched_tokens(a, 0) == 0
        assert world.manager.calls == []

    def test_an_adapter_known_by_its_name_alone_is_not_cached(self):
        world = World()
        world.save(8)
        a = request("a", 9)
        a.lora_request = object()
        world.side.queued(a)
        assert world.let_in(a, [1, 2, 3]) == 0
        orders = world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 9}))
        assert world.manager.calls == [] and not orders

    def test_after_a_reset_nothing_from_before_is_found_or_saved(self):
        world = World()
        world.save(8)
        running, waiting = world.queue("a", 9, "x"), world.queue("b", 9)
        world.let_in(running, [1, 2, 3])
        world.side.reset()
        assert world.side.matched_tokens(waiting, 0) == 0
        orders = world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 9}))
        assert orders.saves == ()
        world.side.allocated(waiting, ([4, 5, 6],), 0)
        (order,) = world.side.step(step(new=[("b", [4, 5, 6], 0)], scheduled={"b": 9})).saves
        assert not set(order.keys) & set(hashes("p", 8))
        world.manager.saved.update(order.keys)
        assert world.side.matched_tokens(world.queue("c", 9), 0) == 8


class TestSaving:
    def test_pages_are_offered_when_their_last_block_is_complete(self):
        world = World()
        a = world.queue("a", 10)
        world.let_in(a, [1, 2, 3])
        first = world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 6}))
        then = world.side.step(step(cached=[("a", None, 6)], scheduled={"a": 4}))
        assert [order.blocks for order in first.saves + then.saves] == [((1,),), ((2,),)]
        assert [order.keys for order in first.saves + then.saves] == [(b"p/0",), (b"p/1",)]

    def test_generated_tokens_are_saved_once_they_are_hashed(self):
        world = World()
        a = world.queue("a", 7)
        world.let_in(a, [1, 2])
        world.side.step(step(new=[("a", [1, 2], 0)], scheduled={"a": 7}))
        assert not world.side.step(step(cached=[("a", None, 7)], scheduled={"a": 1})).saves
        a.block_hashes = hashes("p", 8)
        (order,) = world.side.step(step(cached=[("a", [3], 8)], scheduled={"a": 1})).saves
        assert order.blocks == ((2,),)

    def test_restored_pages_are_not_offered(self):
        world = World()
        world.save(8)
        a = world.queue("a", 13)
        world.let_in(a, [1, 2, 3, 4])
        world.side.step(step())
        (order,) = world.side.step(step(new=[("a", [1, 2, 3, 4], 8)], scheduled={"a": 5})).saves
        assert order.keys == (b"p/2",)

    def test_blocks_are_held_until_every_rank_has_let_go(self):
        world = World(ranks=2)
        a = world.queue("a", 9)
        world.let_in(a, [1, 2, 3])
        (order,) = world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 9})).saves
        world.side.finished(a)
        assert world.pool.held == [1, 2] and world.side.saves_under_way
        world.side.reported(RankReport(saves={order.number: 1}))
        assert world.pool.held == [1, 2]
        world.side.reported(RankReport(saves={order.number: 1}))
        assert world.pool.held == [] and not world.side.saves_under_way

    def test_no_more_than_a_share_of_the_pool_is_held(self):
        world = World(held=3 / 64)
        a = world.queue("a", 21)
        world.let_in(a, [1, 2, 3, 4, 5, 6])
        (order,) = world.side.step(step(new=[("a", [1, 2, 3, 4, 5, 6], 0)], scheduled={"a": 21})).saves
        assert order.blocks == ((1,), (2,), (3,))
        assert world.counts.take()["unsaved_pages"] == 2

    def test_a_resumed_request_has_another_table(self):
        world = World()
        a = world.queue("a", 9)
        world.let_in(a, [1, 2, 3])
        world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 5}))
        world.side.matched_tokens(a, 0)
        world.side.allocated(a, ([7, 8, 9],), 0)
        output = step(cached=[("a", [7, 8, 9], 0)], scheduled={"a": 9}, resumed=["a"])
        (order,) = world.side.step(output).saves
        assert order.blocks == ((7,), (8,))

    def test_an_engine_that_only_restores_saves_nothing(self):
        world = World(roles=Roles(restores=True, saves=False))
        a = world.queue("a", 9)
        world.let_in(a, [1, 2, 3])
        assert not world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 9}))

    def test_an_engine_that_only_saves_looks_nothing_up(self):
        world = World(roles=Roles(restores=False, saves=True))
        world.save(8)
        assert world.let_in(world.queue("a", 9), [1, 2, 3]) == 0
        assert world.manager.calls == []


class TestHints:
    def test_exactly_the_missing_hashes_are_hinted_the_final_full_page_included(self):
        world = World(hints=True)
        world.pool.cached[b"p/0", 0] = object()
        world.pool.cached[b"p/2", 0] = object()  # behind a gap: does not count
        world.queue("a", 16)
        assert world.manager.hints == [("a", 0, [b"p/1", b"p/2", b"p/3"])]
        assert world.pool.held == []

    def test_the_query_that_follows_names_the_same_pages(self):
        world = World(hints=True)
        a = world.queue("a", 16)
        world.side.matched_tokens(a, 0)
        (parts,) = world.manager.asked.values()
        assert parts[0].keys == world.manager.hints[0][2]

    def test_without_the_switch_not_even_a_look_is_taken(self):
        world = World()
        world.queue("a", 16)
        assert world.manager.hints == [] and world.pool.looks == 0

    @pytest.mark.parametrize("end", ["finished", "let in without a query"])
    def test_a_hint_ends_with_its_request(self, end):
        world = World(hints=True)
        a = world.queue("a", 16)
        assert world.manager.hints_out == {("a", 0)}
        if end == "finished":
            world.side.finished(a)
        else:
            world.link.up = False
            world.let_in(a, [1, 2, 3, 4])
        assert world.manager.hints_out == set()

    def test_nothing_missing_is_no_hint(self):
        world = World(hints=True)
        for key in hashes("p", 16):
            world.pool.cached[key, 0] = object()
        world.queue("a", 16)
        assert world.manager.hints == []


def test_the_stages_of_a_request_are_told_once():
    world = World()
    a = world.queue("a", 9)
    world.let_in(a, [1, 2, 3])
    world.side.step(step(new=[("a", [1, 2, 3], 0)], scheduled={"a": 5}))
    world.side.step(step(cached=[("a", None, 5)], scheduled={"a": 4}))
    assert world.manager.stages == [("a", 0, "queued"), ("a", 0, "first_use")]
