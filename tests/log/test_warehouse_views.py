"""The views for people: what they call unfinished the kernel still has, and their sums are its own."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from orbitkv.events.outcomes import EvictionReason, HintEnd, HintSkip, QueryEnd, ReadOutcome
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State, fold, new_state
from replay.warehouse import load_log, sql_text
from replay.warehouse.derived import TABLES, VIEWS
from tests.log.hinting import hinted_records
from tests.log.simulated import simulated_records, write_log


@attrs.frozen
class Asked:
    """A log in a warehouse, and what the kernel makes of it."""

    connection: Any
    incarnations: list[list[Record]]
    states: dict[int, State]
    """By stretch: of each incarnation, at its end."""

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(sql, list(values)).fetchall()
        return found

    def values(self, sql: str, *values: object) -> set[Any]:
        return {row[0] for row in self.rows(sql, *values)}


def cut(incarnations: list[list[Record]]) -> list[list[Record]]:
    """Each incarnation ends in the middle of everything."""
    return [records[: max(1, len(records) * 3 // 4)] for records in incarnations]


@pytest.fixture(scope="module", params=["hinting", "cut hinting", "simulated", "cut simulated"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    told = hinted_records(4, 1200)[0] if request.param.endswith("hinting") else simulated_records(2, 1500)
    incarnations = cut(told) if request.param.startswith("cut") else told
    path = tmp_path_factory.mktemp("views")
    write_log(path, incarnations)
    states = {}
    for stretch, records in enumerate(incarnations, 1):
        states[stretch] = new_state()
        for record in records:
            fold(states[stretch], record)
    with load_log(path) as warehouse:
        assert warehouse.log.troubles == []
        yield Asked(warehouse.connection, incarnations, states)


def test_what_is_unfinished_is_what_the_kernel_still_has(asked: Asked) -> None:
    for stretch, state in asked.states.items():
        demands = {number for number, each in state.operations.items() if not each.hint}
        slots = {
            number * state.slots.slots_max + index
            for number, segment in state.slots.segments.items()
            for index in range(segment.slots)
            if segment.page[index] >= 0
        }
        buffers = state.buffers
        taken = {buffer for buffer in range(len(buffers.page)) if buffers.generation[buffer] > 0}
        for sql, there in (
            ("SELECT operation FROM queries WHERE ended_seq IS NULL", demands),
            ("SELECT operation FROM hints WHERE answer = 'admitted' AND ended IS NULL", set(state.hints)),
            ("SELECT lease FROM leases WHERE released_seq IS NULL", set(state.leases)),
            ("SELECT read FROM reads WHERE ended IS NULL", set(state.reads)),
            ("SELECT operation FROM reservations WHERE ended_seq IS NULL", set(state.reservations)),
            ("SELECT session FROM sessions WHERE closed_seq IS NULL", set(state.sessions)),
            ("SELECT slot FROM ssd_slots WHERE ended_seq IS NULL", slots),
            (
                "SELECT generation FROM pages WHERE freed_seq IS NULL",
                {int(buffers.generation[buffer]) for buffer in taken},
            ),
            (
                "SELECT buffer FROM pages WHERE inserted_seq IS NOT NULL AND evicted_seq IS NULL",
                {int(buffer) for buffer in state.pages.buffer if buffer >= 0},
            ),
        ):
            assert (
                asked.values(f"SELECT * FROM ({sql.replace(' WHERE ', ' WHERE stretch = ? AND ')})", stretch)
                == there
            ), sql


def test_the_budgets_are_those_of_the_kernel_at_every_record(asked: Asked) -> None:
    seen = 0
    for stretch, records in enumerate(asked.incarnations, 1):
        told = asked.rows(
            "SELECT seq, arg_max(reserved_bytes, fact), arg_max(speculative_bytes, fact),"
            " any_value(limit_bytes),"
            " any_value(speculative_limit_bytes) FROM budget_timeline WHERE stretch = ?"
            " GROUP BY seq ORDER BY seq",
            stretch,
        )
        by_instance = asked.rows(
            "SELECT seq, instance, arg_max(instance_bytes, fact), arg_max(instance_speculative_bytes, fact)"
            " FROM budget_timeline WHERE stretch = ? GROUP BY ALL ORDER BY seq",
            stretch,
        )
        changed = {seq: rest for seq, *rest in told}
        state = new_state()
        for record in records:
            fold(state, record)
            warming = sum(instance.warming_bytes for instance in state.instances.values())
            if record.seq in changed:
                config = state.config
                seen += 1
                assert changed[record.seq] == [
                    *(state.reserved_bytes, warming, config.query_budget_bytes),
                    config.query_budget_bytes // config.speculative_divisor,
                ]
            for _, instance, reserved, speculative in [row for row in by_instance if row[0] == record.seq]:
                there = state.instances.get(instance)
                if there is not None:
                    assert (reserved, speculative) == (there.reserved_bytes, there.warming_bytes)
    assert seen > 10


def test_the_sums_are_those_that_the_kernel_counts(asked: Asked) -> None:
    for stretch, state in asked.states.items():
        totals = state.totals

        def counted(column: str, view: str, where: str = "true", at: int = stretch) -> dict[str, int]:
            return dict(
                asked.rows(
                    f"SELECT {column}::VARCHAR, count(*) FROM {view}"
                    f" WHERE stretch = ? AND {where} GROUP BY 1",
                    at,
                )
            )

        assert counted("ended", "queries", "ended IS NOT NULL") == words(QueryEnd, totals.query_ends)
        assert counted("ended", "hints", "ended IS NOT NULL") == words(HintEnd, totals.hint_ends)
        assert counted("reason", "hints", "reason IS NOT NULL") == words(HintSkip, totals.hint_skips)
        reasons: Counter[int] = Counter()
        for (_, reason), count in totals.evictions.items():
            reasons[reason] += count
        assert counted("reason", "evictions") == words(EvictionReason, reasons)
        failed = "ended NOT IN ('whole', 'no_room', 'unwanted')"
        assert counted("ended", "reads", failed) == words(ReadOutcome, totals.read_failures)
        figures = asked.rows(
            "SELECT (SELECT count(*) FROM reads WHERE stretch = ? AND submitted_seq IS NOT NULL),"
            " (SELECT coalesce(sum(read_bytes), 0) FROM reads WHERE stretch = ?),"
            " (SELECT coalesce(sum(elapsed_us), 0) FROM reads WHERE stretch = ?),"
            " (SELECT count(*) FROM read_pages WHERE stretch = ? AND joined),"
            " (SELECT coalesce(sum(promotions), 0) FROM pages WHERE stretch = ?),"
            " (SELECT coalesce(sum(residence_us), 0) FROM evictions WHERE stretch = ?),"
            " (SELECT coalesce(sum(prepared_bytes), 0) FROM hints WHERE stretch = ?),"
            " (SELECT coalesce(sum(restored_bytes), 0) FROM hints WHERE stretch = ?)",
            *[stretch] * 8,
        )
        assert figures == [
            (
                totals.reads_submitted,
                *(totals.read_bytes, figures[0][2], totals.coalesced_reads, totals.promotions),
                *(sum(totals.residence_us.values()), totals.prepared_bytes, totals.restored_bytes),
            )
        ]


def words(kind: type, counts: dict[int, int]) -> dict[str, int]:
    return {kind(number).name.lower(): count for number, count in counts.items() if count}


def test_decisions_and_requests_add_up_to_the_same(asked: Asked) -> None:
    for stretch, state in asked.states.items():
        totals = state.totals
        assert asked.rows(
            "SELECT count(*), coalesce(sum(asked), 0), coalesce(sum(dram), 0), coalesce(sum(ssd), 0),"
            " coalesce(sum(miss), 0) FROM decisions WHERE stretch = ? AND kind = 'demand'",
            stretch,
        ) == [(totals.decisions, totals.asked_pages, totals.dram_pages, totals.ssd_pages, totals.miss_pages)]
    assert asked.values("SELECT DISTINCT answer FROM decisions") >= {"ready", "missed", "admitted"}
    for view, key in (
        ("requests", "stretch, instance, request, attempt"),
        ("queries", "stretch, operation"),
        ("hints", "stretch, seq, session, ticket"),
        ("pages", "stretch, generation"),
        ("reads", "stretch, read"),
        ("read_pages", "stretch, operation, position"),
        ("leases", "stretch, lease"),
        ("restores", "stretch, lease, rank"),
        ("gpu_syncs", "stretch, fact"),
        ("evictions", "stretch, fact, buffer"),
        ("decisions", "stretch, fact"),
        ("reservations", "stretch, operation"),
        ("budget_timeline", "stretch, fact"),
        ("sessions", "stretch, session"),
        ("ssd_slots", "stretch, slot, since_fact"),
        ("cohorts", "stretch, generation"),
    ):
        assert asked.rows(f"SELECT {key} FROM {view} GROUP BY ALL HAVING count(*) > 1") == [], view
    sums = "sum(demands), sum(hints), sum(leases), sum(syncs), sum(copied_bytes)"
    assert asked.rows(f"SELECT {sums} FROM requests") == asked.rows(
        "SELECT (SELECT count(*) FROM query_opened), (SELECT count(*) FROM warm_probed),"
        " (SELECT count(*) FROM lease_granted), (SELECT count(*) FROM gpu_synced),"
        " (SELECT sum(copied_bytes) FROM gpu_synced)"
    )


def test_a_page_tells_its_whole_life(asked: Asked) -> None:
    """In the order in which it can only have happened."""
    (broken,) = asked.rows(
        "SELECT count(*) FROM pages WHERE key IS NULL OR complete_seq < allocated_seq"
        " OR inserted_seq < complete_seq OR evicted_seq < inserted_seq OR freed_seq < evicted_seq"
        " OR restored_seq < prepared_seq OR unused_seq < prepared_seq OR promoted_seq < inserted_seq"
        " OR (source = 'read') <> (read IS NOT NULL) OR (evicted_seq IS NULL) <> (evicted_for IS NULL)"
    )
    assert broken == (0,)
    assert asked.values("SELECT DISTINCT source FROM pages") == {"read", "save"}
    assert asked.rows("SELECT count(*) FROM pages") == asked.rows("SELECT count(*) FROM buffers_allocated")
    ends = asked.rows(
        "SELECT count(*) FILTER (restored_seq IS NOT NULL),"
        " count(*) FILTER (unused_seq IS NOT NULL) FROM pages"
    )
    assert ends == asked.rows(
        "SELECT (SELECT count(*) FROM pages_restored), (SELECT count(*) FROM pages_unused)"
    )


@pytest.mark.parametrize(
    "name", [*(f"derived/{name}" for name in TABLES), *(f"views/{name}" for name in VIEWS)]
)
def test_every_file_begins_with_what_a_row_is(name: str) -> None:
    first = sql_text(name).splitlines()[0]
    own = name.partition("/")[2]
    assert first.startswith(f"-- {own}: "), first


@pytest.mark.parametrize("view", VIEWS)
def test_the_columns_of_a_view_are_all_told(asked: Asked, view: str) -> None:
    comment = "\n".join(line for line in sql_text(f"views/{view}").splitlines() if line.startswith("--"))
    columns = [row[0] for row in asked.connection.execute(f"SELECT * FROM {view} LIMIT 0").description]
    words_told = set(comment.replace(",", " ").replace("`", " ").split())
    assert [column for column in columns if column not in words_told] == []
