"""`replay report`: its figures are those of the log, and whatever the log holds, the page stays whole."""

import re
from collections import Counter
from html import unescape
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("bokeh", reason="the report's library is not installed")
pytest.importorskip("duckdb", reason="the report's library is not installed")

from orbitkv.events import facts
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import State
from replay.report import data as report_data
from replay.report.data import Data, ask
from replay.report.stories import story
from replay.report_command import report_command
from replay.totals import totals_of
from replay.warehouse import load_log
from tests.log import samples
from tests.log.simulated import simulated_records, write_log

pytestmark = pytest.mark.timeout(300)
"""A report runs every invariant of the audit, which takes its time on a busy machine."""

SIZE_BYTES_MAX = 5 << 20
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='hacked=1'>\"&amp;{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return [records for records in simulated_records(5, 4000) if records]


@pytest.fixture(scope="module")
def log(told: list[list[Record]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "log"
    write_log(path, told)
    return path


@pytest.fixture(scope="module")
def data(log: Path) -> Data:
    return asked(log)


@pytest.fixture(scope="module")
def states(told: list[list[Record]]) -> list[State]:
    """At each incarnation's end."""
    found = []
    for records in told:
        state = kernel.new_state()
        for record in records:
            kernel.fold(state, record)
        found.append(state)
    return found


@pytest.fixture(scope="module")
def page(log: Path) -> str:
    output = log.with_name("report.html")
    answer = report(log, output)
    assert answer.exit_code == 0, answer.output
    assert f"report: {output}" in answer.stdout
    return output.read_text()


def asked(log: Path) -> Data:
    with load_log(log) as warehouse:
        return ask(warehouse)


def report(log: Path, output: Path, *options: str) -> Result:
    return CliRunner().invoke(report_command, [str(log), "-o", str(output), *options], catch_exceptions=False)


def added(states: list[State], name: str) -> Counter[str]:
    """One of the totals, over all incarnations."""
    found: Counter[str] = Counter()
    for state in states:
        total = totals_of(state)[name]
        found.update(total if isinstance(total, dict) else {name: total})
    return Counter({key: count for key, count in found.items() if count})


# --- figures ---------------------------------------------------------------------------------------------


def test_amounts_are_the_kernels_totals(data: Data, states: list[State]) -> None:
    demand, warm = data.totals["demand"], data.totals["warm"]
    for tier in ("dram", "ssd", "miss"):
        assert demand.get(tier, 0) == added(states, f"{tier}_pages").total()
        assert warm.get(tier, 0) == added(states, f"probed_{tier}_pages").total()
    traffic = data.totals["traffic"]
    reads = traffic.get("read, demand", 0) + traffic.get("read, warm", 0)
    assert reads == added(states, "read_bytes").total() > 0
    assert traffic["written"] == added(states, "write_bytes").total() > 0
    assert data.totals["restored"]["to GPU"] == added(states, "load_bytes").total() > 0


def test_reasons_are_the_kernels_totals(data: Data, states: list[State]) -> None:
    hints = data.totals["hints"]
    assert hints["admitted"] == added(states, "hints_admitted").total() > 0
    assert hints["not needed"] == added(states, "hints_not_needed").total() > 0
    skipped = {name.removeprefix("skipped: "): n for name, n in hints.items() if "skipped" in name}
    assert skipped == added(states, "hint_skips")
    evicted = {name.replace(", ", " "): n for name, n in data.totals["evictions"].items()}
    assert evicted == added(states, "evictions")
    failed = {
        name.removeprefix("read, ").replace(" ", "_"): n
        for name, n in data.totals.get("failures", {}).items()
        if name.startswith("read")
    }
    assert failed == added(states, "read_failures")


def test_bars_add_up_to_the_totals(data: Data) -> None:
    for chart, series in data.totals.items():
        drawn = data.chart(chart)
        for name, total in series.items():
            assert sum(row["amount"] for row in drawn[name]) == pytest.approx(total)


def test_levels_show_every_peak_and_the_end(
    data: Data, told: list[list[Record]], states: list[State]
) -> None:
    def levels(state: State) -> dict[str, int]:
        return {
            "reserved": state.reserved_bytes,
            "in_flight_foreground": state.foreground_bytes_in_flight,
            "in_flight_background": state.background_bytes_in_flight,
            "pool_used": state.superblocks.used_bytes,
            "pending": state.pending_bytes,
            "waiting": len(state.waiting),
        }

    for stretch, records in enumerate(told, 1):
        state = kernel.new_state()
        highest: Counter[str] = Counter()
        for record in records:
            kernel.fold(state, record)
            highest |= Counter(levels(state))
        for name, last in levels(state).items():
            values = [
                row["value"] for row in data.levels if (row["series"], row["stretch"]) == (name, stretch)
            ]
            assert max(values, default=0) == highest[name], name
            assert not values or values[-1] >= last


def test_queries_are_all_there(data: Data, told: list[list[Record]]) -> None:
    def number(kind: type) -> int:
        return sum(isinstance(event, kind) for records in told for r in records for event in r.events)

    assert data.headline["queries"] == number(facts.QueryOpened) > 50
    assert data.headline["hits"] == number(facts.LeaseGranted) > 5
    synced = {
        (place, event.lease)
        for place, records in enumerate(told)
        for record in records
        for event in record.events
        if isinstance(event, facts.GpuSynced)
    }
    assert data.headline["never_restored"] == number(facts.LeaseGranted) - len(synced)
    assert data.headline["ready"] == number(facts.DecisionSettled) - data.headline["never_restored"]
    assert data.headline["unanswered"] == number(facts.QueryOpened) - number(facts.DecisionSettled)
    waits = {event.operation for records in told for r in records for event in r.events
             if isinstance(event, facts.QueryWaiting)}  # fmt: skip
    assert data.headline["waited"] >= len(waits)


# --- bounds ----------------------------------------------------------------------------------------------


def test_many_queries_are_thinned_out_and_the_page_says_so(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_data, "SCATTER_MAX", 20)
    thinned = asked(log)
    assert 5 <= len(thinned.scatter) <= 20
    slowest = sorted((row["took_ms"] for row in asked(log).scatter), reverse=True)[:5]
    assert sorted((row["took_ms"] for row in thinned.scatter), reverse=True)[:5] == slowest
    report(log, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text())
    assert f"Shown are {len(thinned.scatter)} of {thinned.headline['ready']} queries" in text


def test_lines_have_a_bounded_number_of_steps(
    log: Path, data: Data, told: list[list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    series = {row["series"] for row in data.levels}
    assert len(data.levels) <= len(series) * len(told) * (report_data.BUCKETS_PER_STRETCH_MAX + 1)
    monkeypatch.setattr(report_data, "BUCKETS_MAX", 1)
    coarse = asked(log)
    assert len(coarse.levels) <= len(series) * len(told) * (report_data.BUCKETS_PER_STRETCH_MIN + 1)
    peaks = [
        max(row["value"] for row in each.levels if row["series"] == "reserved") for each in (data, coarse)
    ]
    assert peaks[0] == peaks[1]


def test_the_file_is_small(page: str) -> None:
    assert len(page.encode()) < SIZE_BYTES_MAX


# --- the page --------------------------------------------------------------------------------------------


def words(page: str) -> str:
    """The page's text, without its scripts."""
    body = re.sub(r"<script>.*?</script>|<style>.*?</style>", " ", page, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def test_the_page_has_the_verdict_and_where_it_speaks_from(page: str, told: list[list[Record]]) -> None:
    text = words(page)
    assert "OrbitKV report audit: ok" in text
    records = sum(map(len, told))
    assert "Speaks from incarnation 1 seq 1" in text
    assert f"to incarnation {len(told)} seq {told[-1][-1].seq}: {records:,} records" in text


def test_the_page_refers_to_nothing_outside(page: str) -> None:
    assert "default-src 'none'" in page
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert set(re.findall(r"\b(?:src|href|action|poster)=[\"']?([^\"'>\s]{0,8})", markup)) <= {
        link[:8] for link in re.findall(r"href=\"(#[^\"]*)\"", markup)
    }
    assert not re.search(r"@import|url\(", re.sub(r"<script>.*?</script>", "", page, flags=re.S))


def test_each_cited_record_is_in_the_page(page: str) -> None:
    links = set(re.findall(r'href="#(i\d+-s\d+)"', page))
    records = set(re.findall(r'id="(i\d+-s\d+)"', page))
    assert links and links <= records


def test_names_from_the_log_are_text_and_nothing_else(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path / "log", renamed(told[:3]))
    answer = report(tmp_path / "log", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert answer.exit_code in (0, 1)
    assert "<script>window.hacked" not in page
    assert "<img" not in page
    assert page.count("<script>") == page.count("</script>") == 3
    assert HOSTILE in words(page), "it is there as it was given"


def renamed(told: list[list[Record]]) -> list[list[Record]]:
    """All requests and engines get the hostile name."""
    return [
        [
            msgspec.structs.replace(
                record,
                events=tuple(
                    msgspec.structs.replace(
                        event, **{name: HOSTILE for name in ("request", "name") if hasattr(event, name)}
                    )
                    if hasattr(event, "request") or isinstance(event, facts.RankRegistered)
                    else event
                    for event in record.events
                ),
            )
            for record in records
        ]
        for records in told
    ]


def test_a_log_that_does_not_add_up_says_where(tmp_path: Path, told: list[list[Record]]) -> None:
    incarnation, settled = next(
        (number, record)
        for number, records in enumerate(told, 1)
        for record in records
        if any(isinstance(event, facts.DecisionSettled) for event in record.events)
    )
    lie = msgspec.structs.replace(
        settled,
        events=tuple(
            msgspec.structs.replace(event, miss=event.miss + 1)
            if isinstance(event, facts.DecisionSettled)
            else event
            for event in settled.events
        ),
    )
    write_log(tmp_path / "log", told, lies={(incarnation, settled.seq): lie})
    answer = report(tmp_path / "log", tmp_path / "report.html")
    assert answer.exit_code == 1
    page = (tmp_path / "report.html").read_text()
    assert "audit: FAILED" in words(page)
    assert "decision_ledger" in words(page)
    assert f'href="#i{incarnation}-s{settled.seq}"' in page


def test_damage_is_told_and_the_rest_is_shown(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path / "log", told[:1], segment_records=10_000)
    data = bytearray(files[0].read_bytes())
    data[len(data) // 2] ^= 0xFF
    files[0].write_bytes(data)
    answer = report(tmp_path / "log", tmp_path / "report.html")
    assert answer.exit_code == 1
    text = words((tmp_path / "report.html").read_text())
    assert "the log is damaged" in text
    assert "The report shows what can be read." in text
    assert files[0].name in text


def test_a_log_that_begins_in_the_middle_says_so(tmp_path: Path, told: list[list[Record]]) -> None:
    records = next(records for records in told if len(records) > 60)
    files = write_log(tmp_path / "log", [records[:120]], segment_records=40)
    files[0].unlink()
    report(tmp_path / "log", tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text())
    assert "Speaks from incarnation 1 seq 41" in text
    assert "begins in the middle of an incarnation" in text


def test_a_log_without_queries_says_why_it_is_empty(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path / "log", [told[0][:1]])
    assert report(tmp_path / "log", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text()
    for name in ("durations", "phases", "budgets", "demand", "warm", "traffic", "pool", "cohort", "slowest"):
        assert re.search(rf'data-empty="{name}">\s*\S+', page), name
    assert "data-chart" not in page


def test_a_log_without_a_record_is_a_page_too(tmp_path: Path) -> None:
    data, _ = samples.segment([], at=samples.header())
    samples.write_segment(tmp_path / "log", data)
    report(tmp_path / "log", tmp_path / "report.html")
    assert "The log holds no record that can be read." in words((tmp_path / "report.html").read_text())


# --- sentences -------------------------------------------------------------------------------------------


def test_a_story_accounts_for_the_time(data: Data, log: Path) -> None:
    assert data.slowest
    for row in data.slowest:
        told = story(row, log)
        assert told.said
        parts = [float(m[1]) for said in told.said if (m := re.search(r"\((\d+\.\d) %\)", said.text))]
        assert sum(parts) <= 100.5
        assert parts == sorted(parts, reverse=True), "the longest part first"


# --- the command -----------------------------------------------------------------------------------------


def test_an_existing_file_is_not_written_over(log: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    output.write_text("precious")
    answer = report(log, output)
    assert (answer.exit_code, output.read_text()) == (2, "precious")
    assert "--force" in answer.stderr
    assert report(log, output, "--force").exit_code == 0
    assert output.read_text().startswith("<!doctype html>")


def test_errors_say_what_mends_them(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nothing = report(tmp_path / "empty", tmp_path / "report.html")
    assert nothing.exit_code == 2 and "holds no log segment" in nothing.stderr
    absent = report(tmp_path / "gone", tmp_path / "report.html")
    assert absent.exit_code == 2 and "does not exist" in absent.stderr
    folder = report(tmp_path / "empty", tmp_path / "no" / "report.html")
    assert folder.exit_code == 2 and "make it first" in folder.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]
