"""The audit of true logs: SQL and kernel come to the same figures, whatever state the log is in."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs
import duckdb
import msgspec
import pytest
import zstandard
from click.testing import CliRunner, Result

from orbitkv.events import facts
from orbitkv.events.frame import LogError
from orbitkv.events.outcomes import Origin, Unused
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State, fold, new_state
from replay.__main__ import main
from replay.audit_command import SNAPSHOTS
from replay.audit_text import VIOLATIONS_SHOWN_MAX
from replay.auditor import Cohort, Decisions, Ledgers, audit_log, invariants
from replay.warehouse import load_log
from tests.log import samples
from tests.log.hinting import Hinting, hinted_records
from tests.log.simulated import simulated_records, write_log

STEPS = 1500


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    """Three incarnations or more, with pages that came to every end."""
    return hinted_records(4, STEPS)[0]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments], catch_exceptions=False)


def ledgers_of(state: State) -> Ledgers:
    """What the kernel has counted since the incarnation began."""
    totals = state.totals
    return Ledgers(
        cohort=Cohort(
            prepared_bytes=totals.prepared_bytes,
            restored_bytes=totals.restored_bytes,
            unused_bytes=sum(totals.unused_bytes.values()),
            unused_bytes_by_cause={
                Unused(cause).name.lower(): count for cause, count in totals.unused_bytes.items()
            },
            pending_bytes=state.pending_bytes,
            restored_wait_kib_us=totals.restored_wait_kib_us,
            unused_wait_kib_us=totals.unused_wait_kib_us,
        ),
        demand=Decisions(
            decisions=totals.decisions,
            asked=totals.asked_pages,
            dram=totals.dram_pages,
            ssd=totals.ssd_pages,
            miss=totals.miss_pages,
        ),
        warm=Decisions(
            decisions=0,
            asked=totals.probed_pages,
            dram=totals.probed_dram_pages,
            ssd=totals.probed_ssd_pages,
            miss=totals.probed_miss_pages,
        ),
    )


def without_probe_count(ledgers: Ledgers) -> Ledgers:
    """The kernel counts the pages of probes, and not the probes."""
    return attrs.evolve(ledgers, warm=attrs.evolve(ledgers.warm, decisions=0))


class Diary:
    """Keeps a run's records, and what the kernel has counted at some of them."""

    def __init__(self, state: Callable[[], State], *, every: int) -> None:
        self.incarnations: list[list[Record]] = []
        self.counted: dict[tuple[int, int], Ledgers] = {}
        """By incarnation and seq."""
        self._state = state
        self._every = every

    def keep(self, record: Record) -> None:
        if record.seq == 1:
            self.incarnations.append([])
        self.incarnations[-1].append(record)
        if record.seq > 1 and record.seq % self._every == 0:
            self.counted[len(self.incarnations), record.seq] = ledgers_of(self._state())


def but_for_the_chain() -> list[str]:
    """The invariants for incarnations that stand behind each other and have nothing to do with each other."""
    return [name for name in invariants() if name != "chain"]


# --- figures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_sql_and_kernel_count_the_same(tmp_path: Path, seed: int) -> None:
    incarnations, state = hinted_records(seed, STEPS, crashes=seed % 2 == 0)
    write_log(tmp_path, incarnations)
    audit = audit_log(tmp_path)
    assert audit.ok, [verdict.first for verdict in audit.verdicts]
    assert audit.records == sum(map(len, incarnations))
    assert list(audit.by_incarnation) == list(range(1, len(incarnations) + 1))
    last = audit.by_incarnation[len(incarnations)]
    assert without_probe_count(last) == ledgers_of(state)
    total = audit.totals.cohort
    assert total.prepared_bytes > 0
    assert total.prepared_bytes == total.restored_bytes + total.unused_bytes + total.pending_bytes
    assert (total.unjudged_pages, audit.totals.demand.unjudged) == (0, 0)


def test_they_count_the_same_at_every_so_many_records(tmp_path: Path) -> None:
    """Logs that end in the middle of everything, one incarnation for each; the SQL sees no later record."""
    diary = Diary(lambda: hinting.state, every=37)
    hinting = Hinting(1, diary.keep, crashes=False)
    hinting.run(900)
    (records,) = diary.incarnations
    previous = 0
    seqs = [seq for _, seq in sorted(diary.counted)]
    for incarnation, seq in enumerate(seqs, 1):
        at = samples.header(incarnation, 1, 1, previous)
        data, _ = samples.segment(
            [records[first : min(first + 50, seq)] for first in range(0, seq, 50)], at=at
        )
        previous = samples.last_checksum(data)
        samples.write_segment(tmp_path, data, incarnation)
    audit = audit_log(tmp_path, only=but_for_the_chain())
    assert [verdict.first for verdict in audit.verdicts] == [[] for _ in but_for_the_chain()]
    assert len(seqs) > 15
    for incarnation, seq in enumerate(seqs, 1):
        found = without_probe_count(audit.by_incarnation[incarnation])
        assert found == diary.counted[1, seq], f"at seq {seq}"
    assert any(counted.cohort.pending_bytes for counted in diary.counted.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_simulators_logs_balance(tmp_path: Path, seed: int) -> None:
    """Demands that wait, expire, are bypassed and revised; four engines."""
    incarnations = simulated_records(seed, 1200)
    write_log(tmp_path, incarnations)
    audit = audit_log(tmp_path)
    assert audit.ok, [verdict.first for verdict in audit.verdicts]
    for incarnation, records in enumerate(incarnations, 1):
        state = new_state()
        for record in records:
            fold(state, record)
        assert without_probe_count(audit.by_incarnation[incarnation]) == ledgers_of(state)


# --- the states of a log ------------------------------------------------------------------------------


def test_compressed_growing_and_torn(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path, told)
    whole = audit_log(tmp_path)
    for file in files[:3]:
        file.with_name(f"{file.name}.zst").write_bytes(zstandard.compress(file.read_bytes()))
        file.unlink()
    assert audit_log(tmp_path).totals == whole.totals
    last = files[-1].read_bytes()
    files[-1].write_bytes(last[: len(last) - len(last) // 3])
    torn = audit_log(tmp_path)
    assert torn.ok
    assert torn.records < whole.records
    assert any("the last frame is not whole" in note for note in torn.log.notes)


def test_a_log_that_lost_its_beginning_is_judged_from_where_it_speaks(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    files = write_log(tmp_path, told, segment_records=60)
    whole = audit_log(tmp_path).totals
    for file in files[: len(files) // 2]:
        file.unlink()
    audit = audit_log(tmp_path)
    assert audit.ok, [verdict.first for verdict in audit.verdicts]
    assert audit.totals.cohort.prepared_bytes < whole.cohort.prepared_bytes
    assert audit.totals.demand.asked < whole.demand.asked
    first = min(audit.by_incarnation)
    assert any(note.startswith(f"speaks from incarnation {first} seq ") for note in audit.log.notes)


def test_wherever_a_log_begins_nobody_is_blamed_for_what_was_before(tmp_path: Path) -> None:
    """Cut before every third record. What lives across the cut is neither blamed nor counted, and is told."""
    (records,), _ = hinted_records(5, 500, crashes=False)
    previous = 0
    for incarnation, first in enumerate(range(1, len(records), 3), 1):
        at = samples.header(incarnation, 2, first + 1, previous)
        data, _ = samples.segment(
            [records[start : start + 64] for start in range(first, len(records), 64)], at=at
        )
        previous = samples.last_checksum(data)
        samples.write_segment(tmp_path, data, incarnation, 2)
    audit = audit_log(tmp_path, only=but_for_the_chain())
    assert [verdict.first for verdict in audit.verdicts] == [[] for _ in but_for_the_chain()]
    for ledgers in audit.by_incarnation.values():
        cohort = ledgers.cohort
        assert cohort.prepared_bytes == cohort.restored_bytes + cohort.unused_bytes + cohort.pending_bytes
    assert audit.totals.cohort.unjudged_pages > 0
    assert audit.totals.demand.unjudged > 0
    answer = run(str(tmp_path))
    assert "began before the log does; what needs their beginning is not judged" in answer.stderr


def test_a_log_with_a_hole_is_damaged_and_otherwise_believed(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    files = write_log(tmp_path, told, segment_records=50)
    for file in files[2:-1:3]:
        file.unlink()
    audit = audit_log(tmp_path)
    assert not audit.ok
    assert "segments are missing" in audit.log.troubles[0].what
    assert [verdict.count for verdict in audit.verdicts] == [0 for _ in invariants()]


def test_misshapen_facts_are_damage_with_their_place(tmp_path: Path, told: list[list[Record]]) -> None:
    """Whole frames that hold what no kernel writes: uneven columns, numbers that no table can hold."""
    records = list(told[0])
    uneven = facts.ReadsQueued(7, 900, samples.column([1, 2]), samples.column([0]), Origin.DEMAND)
    cut = facts.PagesPrepared(b"\0\0\0")
    huge = facts.DecisionSettled(7, 1 << 63, 0, 0, 0, 0)
    for seq, event in ((20, uneven), (30, cut), (40, huge)):
        records[seq - 1] = msgspec.structs.replace(records[seq - 1], events=(event,))
    data, _ = samples.segment([records[first : first + 5] for first in range(0, len(records), 5)])
    path = samples.write_segment(tmp_path, data)
    found = {trouble.seq: trouble for trouble in audit_log(path).log.troubles}
    assert sorted(found) == [20, 30, 40]
    assert found[20].what == "the columns of ReadsQueued do not fit each other"
    assert "DecisionSettled has other fields than its kind" in found[40].what
    assert found[20].offset < found[30].offset < found[40].offset < len(data)
    assert run(str(path)).exit_code == 1


# --- the database -------------------------------------------------------------------------------------


def test_a_log_can_be_loaded_into_a_file(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path / "log", told)
    database = tmp_path / "log.duckdb"
    with load_log(tmp_path / "log", database) as warehouse:
        assert warehouse.records == sum(map(len, told))
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(
            "SELECT incarnation, count(*) FROM records JOIN stretches USING (stretch)"
            " GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert rows == [(number, len(records)) for number, records in enumerate(told, 1)]


def test_a_log_that_cannot_be_read_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no log at all")
    database = tmp_path / "log.duckdb"
    with pytest.raises(LogError), load_log(tmp_path / "log", database):
        pass
    assert not database.exists()


def test_every_page_of_a_fact_is_a_row_with_its_words(tmp_path: Path, told: list[list[Record]]) -> None:
    silent = msgspec.structs.replace(told[0][5], events=())
    records = [*told[0][:5], silent, *told[0][6:]]
    data, _ = samples.segment([records])
    samples.write_segment(tmp_path, data)
    evicted = [
        (record.seq, buffer, event.reason.name.lower())
        for record in records
        for event in record.events
        if isinstance(event, facts.PagesEvicted)
        for buffer in memoryview(event.buffers).cast("I")
    ]
    generations = [
        event.generation + index
        for record in records
        for event in record.events
        if isinstance(event, facts.BuffersAllocated)
        for index in range(len(event.buffers) // 4)
    ]
    with load_log(tmp_path) as warehouse:
        ask = warehouse.connection.execute
        assert ask("SELECT seq, buffer, reason FROM pages_evicted ORDER BY fact, rowid").fetchall() == evicted
        assert ask("SELECT generation FROM buffers_allocated ORDER BY fact, rowid").fetchall() == [
            (generation,) for generation in generations
        ]
        assert ask("SELECT seq, at_ns, cause FROM records ORDER BY ALL").fetchall() == [
            (record.seq, record.at_ns, type(record.cause).__name__) for record in records
        ]


def test_nothing_is_left_behind(
    tmp_path: Path, told: list[list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_log(tmp_path / "log", told)
    before = {file: file.read_bytes() for file in files}
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert run("log").exit_code == 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
    assert {file: file.read_bytes() for file in (tmp_path / "log").iterdir()} == before


# --- the command --------------------------------------------------------------------------------------


def test_the_command_says_ok_and_prints_both_ledgers(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told)
    answer = run(str(tmp_path))
    assert answer.exit_code == 0, answer.stdout
    audit = audit_log(tmp_path)
    lines = [line.split() for line in answer.stdout.splitlines() if line]
    names = [*invariants(), SNAPSHOTS]
    assert [line[:2] for line in lines[: len(names)]] == [[name, "ok"] for name in names]
    assert all(line[3] == "s" and float(line[2]) >= 0 for line in lines[: len(names)])
    assert ["prepared", f"{audit.totals.cohort.prepared_bytes:,}"] in lines
    for cause, count in audit.totals.cohort.unused_bytes_by_cause.items():
        assert [cause, f"{count:,}"] in lines
    demand = audit.totals.demand
    counts = (demand.decisions, demand.asked, demand.dram, demand.peer, demand.ssd, demand.miss)
    assert ["demand", *(f"{count:,}" for count in counts)] in lines
    assert answer.stdout.endswith(f"audit: ok, {audit.records} records, {len(names)} invariants\n")
    assert "speaks from incarnation 1 seq 1" in answer.stderr
    document = json.loads(run("--json", str(tmp_path)).stdout)
    verdicts = document.pop("invariants")
    told_again = audit.as_json()
    del told_again["invariants"]
    assert document == told_again
    assert (document["ok"], document["troubles"]) == (True, [])
    assert [each["invariant"] for each in verdicts] == names
    meanings = {each["invariant"]: each["meaning"] for each in verdicts}
    assert "prepared = restored + unused + pending" in meanings["cohort_ledger"]
    assert "dram + peer + ssd + miss = asked" in meanings["decision_ledger"]


def test_a_broken_log_ends_with_1_and_names_records(tmp_path: Path, told: list[list[Record]]) -> None:
    lies: dict[tuple[int, int], Record] = {}
    for record in told[0]:
        if any(isinstance(event, facts.DecisionSettled) for event in record.events):
            kept = tuple(event for event in record.events if not isinstance(event, facts.DecisionSettled))
            lies[1, record.seq] = msgspec.structs.replace(record, events=kept)
    assert len(lies) > VIOLATIONS_SHOWN_MAX
    write_log(tmp_path, told, lies=lies)
    answer = run(str(tmp_path))
    assert answer.exit_code == 1
    lines = answer.stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("decision_ledger "))
    assert "  BROKEN in " in lines[first]
    assert lines[first + 1].startswith(f"  incarnation 1 seq {min(seq for _, seq in lies)}: demand ")
    assert lines[first + 1 + VIOLATIONS_SHOWN_MAX].startswith("  and ")
    broken = sum("  BROKEN in " in line for line in lines)
    assert lines[-1].startswith(f"audit: FAILED, {broken} of {len(invariants()) + 1} invariants are broken; ")
    whole = next(line for line in lines if line.startswith("cohort_ledger "))
    assert whole.split()[1] == "ok"


def test_only_what_is_asked_for_is_looked_at(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told)
    asked = ("--invariant", "waiting", "--invariant", "chain")
    lines = run(*asked, str(tmp_path)).stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["chain", "waiting"]
    assert lines[-1].endswith(" records, 2 invariants")
    answer = run("--invariant", "waitng", str(tmp_path))
    assert answer.exit_code == 2
    assert "there is no 'waitng'; there are " in answer.stderr


def test_snapshots_are_held_against_what_the_records_lead_to(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    """A lie that no invariant sees, as the client's own story is not the log's: the state remembers it."""
    files = write_log(tmp_path, told)
    compared = f"{len(files) - len(told)} snapshots compared"
    alone = ("--invariant", SNAPSHOTS)
    assert compared in run(*alone, str(tmp_path)).stdout
    record = next(each for each in told[0] if any(isinstance(e, facts.SessionOpened) for e in each.events))
    (opened,) = record.events
    lie = msgspec.structs.replace(record, events=(msgspec.structs.replace(opened, pid=77),))
    for file in files:
        file.unlink()
    write_log(tmp_path, told, lies={(1, record.seq): lie})
    answer = run(*alone, str(tmp_path))
    assert answer.exit_code == 1
    assert "the snapshot is not the state that the records before it lead to" in answer.stdout
    assert run("--invariant", "sessions", str(tmp_path)).exit_code == 0


@pytest.mark.parametrize("arguments", [("missing",), ("--json", "missing")])
def test_what_is_no_log_ends_with_2(
    tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert "missing does not exist; name the log's directory" in answer.stderr
    (tmp_path / "missing").write_text("no log")
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert "Traceback" not in answer.stderr


WITHOUT_DUCKDB = """
import sys
sys.modules["duckdb"] = None
from replay.__main__ import main
main(sys.argv[1:], prog_name="replay")
"""


def test_without_duckdb_only_the_audit_is_missing_and_names_the_extra(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    write_log(tmp_path, told[:1])
    answers = [
        subprocess.run(
            [sys.executable, "-c", WITHOUT_DUCKDB, command, str(tmp_path)],
            env=dict(os.environ),
            capture_output=True,
            text=True,
        )
        for command in ("fold", "audit")
    ]
    assert answers[0].returncode == 0, answers[0].stderr
    assert answers[1].returncode == 2
    assert answers[1].stderr.startswith("Error: ")
    assert "pip install 'orbitkv[replay]'" in answers[1].stderr


def test_duckdbs_own_failures_are_told_in_words(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told[:1])
    with pytest.raises(LogError, match=r"DuckDB gave up: .*no_such_table"), load_log(tmp_path) as warehouse:
        warehouse.connection.execute("SELECT * FROM no_such_table")
