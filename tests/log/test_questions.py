"""The worked questions: each has an answer, and the answers are those that plain Python comes to.

Two recorded logs: a simulated one in which everything happens, and one of a real manager.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pytest
from click.testing import CliRunner

from replay.__main__ import main
from replay.query.asking import Answer, ask, lock
from replay.query.questions import questions
from replay.query.table import write_table
from replay.warehouse import load_log
from tests.log.question_facts import Life, Page, lives_of

SAMPLE = Path(__file__).parent / "sample"
REAL = Path(__file__).parents[1] / "histories" / "real"
PAGE = Path(__file__).parents[2] / "replay" / "QUESTIONS.md"
ROWS_SHOWN = 5
NAMES = list(questions())
REQUEST = {SAMPLE: "plain-4", REAL: "alpha-1"}
NOTHING_IN_REAL = {
    *("wasted-hints", "refused-hints", "budget-holders", "blocked-reclaim", "read-twice", "overdue-leases"),
    *("failed-reads", "budget-waits"),
}
"""A small, healthy manager with room for everything: there is no trouble to ask about."""

Rows: TypeAlias = list[dict[str, Any]]


class Asked:
    """A loaded log, and what it answers."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self.lives = lives_of(path)
        self._connection = connection
        self._answers: dict[str, Rows] = {}

    def answer(self, name: str) -> Answer:
        return ask(self._connection, questions()[name].sql.replace("plain-4", REQUEST[self.path]))

    def rows(self, name: str) -> Rows:
        if name not in self._answers:
            answer = self.answer(name)
            columns = [column.name for column in answer.columns]
            self._answers[name] = [dict(zip(columns, row, strict=True)) for row in answer.rows]
        return self._answers[name]

    def life(self, incarnation: int) -> Life:
        return next(life for life in self.lives if life.incarnation == incarnation)


@pytest.fixture(scope="module", params=[SAMPLE, REAL], ids=["sample", "real"])
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    with load_log(request.param) as warehouse:
        lock(warehouse.connection)
        yield Asked(request.param, warehouse.connection)


def total(lives: list[Life], of: Callable[[Life], Counter[Any]]) -> Counter[Any]:
    return sum(map(of, lives), Counter())


def ms(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 3)


# --- the page -----------------------------------------------------------------------------------------


def test_there_are_at_least_twenty() -> None:
    assert len(NAMES) >= 20
    assert len(set(NAMES)) == len(NAMES) == len(re.findall(r"^## ", PAGE.read_text(), re.M))


@pytest.mark.parametrize("name", NAMES)
def test_every_question_has_an_answer(asked: Asked, name: str) -> None:
    if asked.path == SAMPLE or name not in NOTHING_IN_REAL:
        assert asked.rows(name)
    else:
        assert asked.rows(name) == []


def test_the_page_shows_what_the_sample_answers(asked: Asked, request: pytest.FixtureRequest) -> None:
    """`--golden-rewrite` writes the answers of now into the page."""
    if asked.path != SAMPLE:
        return
    text = before = PAGE.read_text()
    for name in NAMES:
        out = io.StringIO()
        write_table(asked.answer(name), out, width=None, rows_max=ROWS_SHOWN)
        lines = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        block = f"```text\n{lines}\n```\n"
        pattern = re.compile(rf"(^## {name}\n.*?```sql\n.*?```\n)(\n```text\n.*?```\n)?", re.M | re.S)
        text = pattern.sub(lambda found, block=block: f"{found[1]}\n{block}", text, count=1)
    if request.config.getoption("--golden-rewrite"):
        PAGE.write_text(text)
    else:
        assert text == before


def test_questions_are_asked_by_name() -> None:
    listed = CliRunner().invoke(main, ["sql", "--questions", "--format", "csv"])
    assert [row["question"] for row in csv.DictReader(io.StringIO(listed.stdout))] == NAMES
    answered = CliRunner().invoke(main, ["sql", str(SAMPLE), "--question", "hit-rates"])
    assert answered.exit_code == 0
    assert answered.stdout.startswith("incarnation,engine,demands,asked,")
    shown = CliRunner().invoke(main, ["sql", str(SAMPLE), "--question", "hit-rates", "--format", "table"])
    assert shown.stdout.startswith("How much of what each engine asked for was there, and where?\n")
    wrong = CliRunner().invoke(main, ["sql", str(SAMPLE), "--question", "hitrates"])
    assert (wrong.exit_code, "did you mean hit-rates" in wrong.stderr) == (2, True)


# --- the answers, counted again --------------------------------------------------------------------------


def test_wasted_hints(asked: Asked) -> None:
    found: Counter[Any] = Counter()
    for row in asked.rows("wasted-hints"):
        found[row["request"], row["unused_because"]] += row["pages"]
    assert found == total(asked.lives, lambda life: life.unused)


def test_refused_hints(asked: Asked) -> None:
    expected: Counter[Any] = Counter()
    most: dict[Any, int] = defaultdict(int)
    for life in asked.lives:
        for _, skip, _ in life.skips:
            place = life.engines[skip.instance], skip.reason.name.lower()
            expected[place] += 1
            most[place] = max(most[place], skip.reserved)
    rows = asked.rows("refused-hints")
    assert {(row["instance"], row["reason"]): row["hints"] for row in rows} == expected
    assert {(row["instance"], row["reason"]): row["most_in_the_way"] for row in rows} == most


def test_budget_holders(asked: Asked) -> None:
    expected = {}
    for stretch, life in enumerate(asked.lives, 1):
        for seq, skip, held in life.skips:
            if skip.reason.name in ("FOREGROUND", "BYTES"):
                for operation, held_bytes in held.items():
                    name = f"{operation >> 32}.{operation & 0xFFFFFFFF}"
                    expected[stretch, seq, skip.request, life.requests[operation], name] = held_bytes
    rows = asked.rows("budget-holders")
    assert {
        (row["stretch"], row["seq"], row["skipped"], row["holder"], row["operation"]): row["holds_bytes"]
        for row in rows
    } == expected
    assert len(rows) == len(expected)


def test_foreground_waits(asked: Asked) -> None:
    expected = sorted(
        (life.requests[operation], budget_us, answered_us)
        for life in asked.lives
        for operation, (budget_us, answered_us) in life.answers.items()
    )
    rows = asked.rows("foreground-waits")
    assert sorted((row["request"], row["budget_us"], row["answered_us"]) for row in rows) == expected
    assert all(row["waited_for"] == "nothing" for row in rows if not row["answered_us"])


def test_read_twice(asked: Asked) -> None:
    expected = sorted(
        (key.hex(), space, count)
        for life in asked.lives
        for (space, key), count in life.key_reads().items()
        if count > 1
    )
    rows = asked.rows("read-twice")
    assert sorted((row["key"], row["space"], row["reads"]) for row in rows) == expected
    for row in rows:
        assert 0 < row["bytes_again"] < row["bytes"]


def test_paid_for_others(asked: Asked) -> None:
    expected: Counter[Any] = Counter()
    for life in asked.lives:
        for read in life.reads.values():
            if read.landed and read.joined_by:
                starter = life.requests[read.operation]
                expected[life.incarnation, starter, "reads"] += 1
                expected[life.incarnation, starter, "bytes"] += read.read_bytes * len(read.joined_by)
    rows = asked.rows("paid-for-others")
    assert sum(row["shared_reads"] for row in rows) == sum(
        count for (*_, what), count in expected.items() if what == "reads"
    )
    assert sum(row["bytes_saved"] for row in rows) == sum(
        count for (*_, what), count in expected.items() if what == "bytes"
    )
    assert {row["paid_by"] for row in rows} == {starter for _, starter, _ in expected}


def test_landing_to_use(asked: Asked) -> None:
    expected = {
        (life.incarnation, outcome): (len(times), ms(max(times)))
        for life in asked.lives
        for outcome, times in life.outcomes.items()
    }
    assert {
        (row["incarnation"], row["outcome"]): (row["pages"], row["most_ms"])
        for row in asked.rows("landing-to-use")
    } == expected


def test_evicted_and_read_again(asked: Asked) -> None:
    """Every eviction that a later read of the same page follows."""
    expected = []
    for life in asked.lives:
        allocations = [page for page in life.pages if page.read and life.reads[page.read].landed]
        for seq, gone in life.evicted:
            again = [page for page in allocations if page.key == gone.key and _is_later(life, page, gone)]
            if again:
                expected.append((gone.key[1].hex() if gone.key else "", seq))
    rows = asked.rows("evicted-and-read-again")
    assert sorted((row["key"], row["evicted_seq"]) for row in rows) == sorted(expected)
    assert [row["away_ms"] for row in rows] == sorted(row["away_ms"] for row in rows)


def _is_later(life: Life, page: Page, gone: Page) -> bool:
    """A page is read for its key only while no other of that key is in DRAM."""
    return life.pages.index(page) > life.pages.index(gone)


def test_evictions(asked: Asked) -> None:
    found = {
        (row["incarnation"], row["made_by"], row["reason"], row["page_class"]): row["pages"]
        for row in asked.rows("evictions")
    }
    assert found == {
        (life.incarnation, *place): count for life in asked.lives for place, count in life.evictions.items()
    }


def test_dropped_saves(asked: Asked) -> None:
    found = {
        (row["incarnation"], row["reason"], row["told_by"]): row["pages"]
        for row in asked.rows("dropped-saves")
    }
    assert found == {
        (life.incarnation, *place): count for life in asked.lives for place, count in life.drops.items()
    }


def test_write_amplification(asked: Asked) -> None:
    rows = asked.rows("write-amplification")
    for row in rows:
        written = asked.life(row["incarnation"]).written
        assert row["pages_written"] == len(written)
        assert row["different_pages"] == len({page.key for _, page in written})
        assert row["page_bytes"] == sum(page.size_bytes for _, page in written)
        assert row["bytes_written"] == sum(page.size_bytes + 4096 for _, page in written)
        expected = row["bytes_written"] / row["page_bytes"] * row["pages_written"] / row["different_pages"]
        assert row["amplification"] == pytest.approx(expected, abs=0.001)
    assert [row["incarnation"] for row in rows] == [life.incarnation for life in asked.lives if life.written]


def test_overdue_leases(asked: Asked) -> None:
    expected = sorted((lease, ms(late)) for life in asked.lives for lease, late in life.overdue.items())
    rows = asked.rows("overdue-leases")
    assert sorted((row["lease"], row["overdue_ms"]) for row in rows) == expected


def test_restart_to_warm(asked: Asked) -> None:
    rows = {row["incarnation"]: row for row in asked.rows("restart-to-warm")}
    for life in asked.lives:
        row = rows[life.incarnation]
        assert row["pages_on_ssd"] == life.recovered
        assert row["half_full_s"] == round(life.half_full_ns / 1e9, 3)
        assert row["most_bytes"] == life.most_bytes
        assert row["half_full_s"] <= row["full_s"]


def test_pool_hogs(asked: Asked) -> None:
    for life in asked.lives:
        rows = [row for row in asked.rows("pool-hogs") if row["incarnation"] == life.incarnation]
        assert sum(row["pages_taken"] for row in rows) == len(life.pages)
        left = sum(page.size_bytes for page in life.pages if page.freed_ns is None)
        assert sum(row["bytes_at_the_end"] or 0 for row in rows) == left
        last_ns = life.records[-1].at_ns
        weights: Counter[int] = Counter()
        for page in life.pages:
            assert page.key is not None
            until_ns = last_ns if page.freed_ns is None else page.freed_ns
            weights[page.key[0]] += page.size_bytes * (until_ns - page.taken_ns)
        for row in rows:
            assert row["share"] == pytest.approx(weights[row["space"]] / weights.total(), abs=0.001)


def test_request_life(asked: Asked) -> None:
    """As many steps of each kind as there are facts."""
    kinds: Counter[str] = Counter()
    for life in asked.lives:
        kinds.update(life.kinds_of[REQUEST[asked.path]])
    said = [row["what"] for row in asked.rows("request-life")]
    for kind, beginning in (
        *(("HintAdmitted", "hint admitted"), ("HintSkipped", "hint skipped"), ("QueryOpened", "asks for")),
        *(("QueryGranted", "is granted"), ("ReadsQueued", "has "), ("DecisionSettled", "answered: ")),
        *(("RestoreBegun", "rank "), ("LeaseReleased", "lease released"), ("QueryEnded", "demand ended")),
    ):
        found = sum(what.startswith(beginning) for what in said)
        if kind == "RestoreBegun":
            assert found == kinds["RestoreBegun"] + kinds["GpuSynced"] + kinds["SyncFailed"]
        else:
            assert found == kinds[kind], kind


def test_failed_reads(asked: Asked) -> None:
    found: Counter[Any] = Counter()
    for row in asked.rows("failed-reads"):
        found[row["incarnation"], row["ended"]] += row["reads"]
    assert found == {
        (life.incarnation, ended): count for life in asked.lives for ended, count in life.failures.items()
    }


def test_budget_waits(asked: Asked) -> None:
    expected = sorted(
        (life.requests[operation], -1.0 if waited_ns is None else ms(waited_ns))
        for life in asked.lives
        for operation, waited_ns in life.waits.items()
    )
    rows = asked.rows("budget-waits")
    found = [(row["request"], -1.0 if row["waited_ms"] is None else row["waited_ms"]) for row in rows]
    assert sorted(found) == expected


def test_hit_rates(asked: Asked) -> None:
    rows = asked.rows("hit-rates")
    for what in ("asked", "miss"):
        found = {(row["incarnation"], row["engine"]): row[what] for row in rows}
        assert found == {
            (life.incarnation, engine): getattr(life, "asked" if what == "asked" else "missed")[engine]
            for life in asked.lives
            for engine in life.asked
        }
    assert all(row["dram"] + row["ssd"] + row["miss"] == row["asked"] for row in rows)


def test_slow_ranks(asked: Asked) -> None:
    begun, synced = (
        total(asked.lives, lambda life, n=name: getattr(life, n)) for name in ("begun", "synced")
    )
    by_rank: dict[str, Counter[int]] = {"restores": Counter(), "synced": Counter()}
    for row in asked.rows("slow-ranks"):
        for name, counts in by_rank.items():
            counts[row["rank"]] += row[name]
    assert by_rank == {"restores": begun, "synced": synced}


def test_early_enough(asked: Asked) -> None:
    rows = asked.rows("early-enough")
    for row in rows:
        landed = row["landed_before"] + row["landed_after"] + row["never_landed"]
        assert landed == row["pages_hinted"] > 0
        assert row["lead_ms"] >= 0
    hinted = {skip for life in asked.lives for skip in life.requests.values()}
    assert {row["request"] for row in rows} <= hinted


def test_blocked_reclaim(asked: Asked) -> None:
    """Pages that a read was filling when an allocation failed; and no failure is without a row."""
    rows = asked.rows("blocked-reclaim")
    reading = failures = 0
    for life in asked.lives:
        under_way: set[int] = set()
        for record in life.records:
            for event in record.events:
                match type(event).__name__:
                    case "ReadsSubmitted":
                        under_way.update(memoryview(event.reads).cast("I"))
                    case "ReadsLanded" | "ReadsFailed":
                        under_way.difference_update(memoryview(event.reads).cast("I"))
                    case "AllocationFailed":
                        failures += 1
                        reading += len(under_way)
    assert sum(row["page_holds"] for row in rows if row["holder"] == "read") == reading
    assert (failures > 0) == bool(rows)


def test_ssd_prefixes(asked: Asked) -> None:
    """No more than was read and landed for demands; each first page is one that the log names."""
    rows = asked.rows("ssd-prefixes")
    keys = {page.key[1].hex() for life in asked.lives for page in life.pages if page.key}
    assert {row["first_page"] for row in rows} <= keys
    for life in asked.lives:
        mine = [row for row in rows if row["incarnation"] == life.incarnation]
        landed = sum(
            len({operation for operation in (read.operation, *read.joined_by) if operation in life.opened_ns})
            for read in life.reads.values()
            if read.landed
        )
        counted = sum(row["ssd_pages"] for row in mine if row["ssd_bytes"])
        assert counted <= landed + sum(life.failures.values())
        assert all(row["demands"] > 0 for row in mine)
