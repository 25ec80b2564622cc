"""`replay perfetto`: what the Perfetto UI is given says what the log says, by the rules of its format."""

import errno
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from orbitkv.events import commands, facts
from orbitkv.events.facts import Event
from orbitkv.events.outcomes import Origin, QueryEnd
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from replay.output_file import OutputError, output_file
from replay.perfetto import requests as perfetto_requests
from replay.perfetto import writing
from replay.perfetto.writing import write_trace
from replay.perfetto_command import perfetto_command
from tests.log import samples
from tests.log.simulated import simulated_records, write_log
from tests.log.trace_format import Seen, read_trace


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return simulated_records(5, 6000)


@pytest.fixture(scope="module")
def log(told: list[list[Record]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("perfetto") / "log"
    write_log(path, told)
    return path


@pytest.fixture(scope="module")
def seen(log: Path) -> Seen:
    answer = trace(log, log.with_name("trace.json"))
    assert answer.exit_code == 0, answer.stderr
    return read_trace(log.with_name("trace.json"))


def trace(log: Path, output: Path, *options: str) -> Result:
    arguments = [str(log), "-o", str(output), *options]
    return CliRunner().invoke(perfetto_command, arguments, catch_exceptions=False)


def events_of(told: list[list[Record]], kind: type[Event]) -> list[Event]:
    return [event for records in told for r in records for event in r.events if isinstance(event, kind)]


def numbered(told: list[list[Record]]) -> list[tuple[int, list[Record]]]:
    """Incarnations that have records; one may end before its first."""
    return [(number, records) for number, records in enumerate(told, 1) if records]


def test_every_query_hint_session_and_read_is_a_slice(told: list[list[Record]], seen: Seen) -> None:
    def slices(beginning: str, group: str) -> int:
        return sum(each.name.startswith(beginning) and group in each.group for each in seen.slices)

    reads = sum(len(event.reads) // 4 for event in events_of(told, facts.ReadsSubmitted))
    writes = sum(len(event.slots) // 4 for event in events_of(told, facts.WritesSubmitted))
    assert slices("query ", "requests") == len(events_of(told, facts.QueryOpened)) > 0
    assert slices("hint ", "requests") == len(events_of(told, facts.HintAdmitted)) > 0
    assert slices("copies lease", "requests") == len(events_of(told, facts.RestoreBegun)) > 0
    assert slices("leased", "requests") == len(events_of(told, facts.LeaseGranted)) > 0
    assert slices("waits for budget", "requests") == len(events_of(told, facts.QueryWaiting))
    assert slices("session", "manager") == len(events_of(told, facts.SessionOpened)) > 0
    assert slices("read ", "SSD") == reads > 0
    assert slices("write ", "SSD") == writes > 0


def test_groups_follow_the_incarnations(told: list[list[Record]], seen: Seen) -> None:
    assert seen.groups == [
        f"incarnation {number}: {group}"
        for number, _ in numbered(told)
        for group in ("budgets", "requests", "SSD", "manager")
    ]


def test_slices_tell_how_things_ended(told: list[list[Record]], seen: Seen) -> None:
    ended = Counter(each.args.get("end") for each in seen.slices if each.name.startswith("query "))
    expected = Counter(event.end.name.lower() for event in events_of(told, facts.QueryEnded))
    assert ended - Counter({"open where the log ends": ended["open where the log ends"]}) == expected
    landed = [each for each in seen.slices if each.args.get("end") == "landed"]
    assert len(landed) == sum(len(event.reads) // 4 for event in events_of(told, facts.ReadsLanded))
    assert sum(each.args["bytes"] for each in landed) == sum(
        sum(np.frombuffer(event.read_bytes, "<u4").tolist()) for event in events_of(told, facts.ReadsLanded)
    )


def test_times_are_those_of_the_log_in_microseconds(told: list[list[Record]], seen: Seen) -> None:
    first_ns = told[0][0].at_ns
    for incarnation, records in numbered(told):
        opened = {
            (record.seq, event.session): (record.at_ns - first_ns) / 1000
            for record in records
            for event in record.events
            if isinstance(event, facts.SessionOpened)
        }
        drawn = {
            (each.args["seq"], int(each.name.split()[1])): each.begin_us
            for each in seen.slices
            if each.group == f"incarnation {incarnation}: manager"
        }
        assert drawn == opened


def test_counters_end_where_the_state_does(told: list[list[Record]], seen: Seen) -> None:
    for incarnation, records in numbered(told):
        state = kernel.new_state()
        highest = 0
        for record in records:
            kernel.fold(state, record)
            highest = max(highest, state.reserved_bytes)
        values = {
            name: [value for _, value in samples_]
            for (group, name), samples_ in seen.counters.items()
            if group == f"incarnation {incarnation}: budgets"
        }
        assert max(values["reserved bytes, all"]) == highest
        assert values["reserved bytes, all"][-1] == state.reserved_bytes
        assert values["prepared bytes, pending"][-1] == state.pending_bytes
        assert values["pool bytes, used"][-1] == state.superblocks.used_bytes
        assert values["budget bytes, all"][-1] == state.config.query_budget_bytes
        resident = state.totals.insertions - sum(state.totals.evictions.values())
        ends = [values[f"resident pages, {kind}"][-1] for kind in ("reclaimable", "retained")]
        assert sum(ends) == resident


def test_arrows_lead_from_hint_to_query_and_from_lease_to_copies(
    told: list[list[Record]], seen: Seen
) -> None:
    copies = [(source, target) for name, source, target in seen.flows if name == "lease to copies"]
    assert len(copies) == sum(map(begun_under_a_query, told)) > 0
    assert all(
        source.name == f"leased ({target.name.removeprefix('copies lease ')})" for source, target in copies
    )
    hints = [(source, target) for name, source, target in seen.flows if name == "hint to query"]
    assert hints
    for source, target in hints:
        assert source.name.startswith("hint ") and target.name.startswith("query ")
        assert source.track == f"{target.track.split(' (')[0]} hint"


def begun_under_a_query(records: list[Record]) -> int:
    """Restores that began before their query ended; a rank may begin while others still hold the lease."""
    queries: dict[int, int] = {}
    open_queries: set[int] = set()
    begun = 0
    for event in (event for record in records for event in record.events):
        match event:
            case facts.LeaseGranted():
                queries[event.lease] = event.operation
                open_queries.add(event.operation)
            case facts.QueryEnded():
                open_queries.discard(event.operation)
            case facts.RestoreBegun():
                begun += queries[event.lease] in open_queries
    return begun


def test_a_request_has_its_tracks_beside_each_other(seen: Seen) -> None:
    for group in seen.groups[1::4]:
        requests = [name.split()[0] for their_group, name in seen.tracks if their_group == group]
        seen_before = [name for place, name in enumerate(requests) if name != requests[place - 1]]
        assert len(seen_before) == len(set(seen_before)), "a request's tracks are torn apart"
    assert any(name.endswith(" hint") for _, name in seen.tracks)
    assert any(name.endswith(" rank 0") for _, name in seen.tracks)


def test_stages_and_refused_hints_are_marks_on_the_request(told: list[list[Record]], seen: Seen) -> None:
    marks = Counter(name for _, name, _ in seen.instants)
    skips = Counter(
        f"hint skipped ({event.reason.name.lower()})" for event in events_of(told, facts.HintSkipped)
    )
    assert skips and {name: count for name, count in marks.items() if "skipped" in name} == skips
    stages = Counter(event.stage for event in events_of(told, facts.StageReported))
    assert {stage: marks[stage] for stage in stages} == stages


def test_a_request_that_is_open_twice_gets_a_second_track(tmp_path: Path) -> None:
    opened = [
        facts.QueryOpened(1 << 32 | ticket, 1, 1, "twin", ticket, 0, 4, 4096, 10**9, ((0, 64, 0, 4),))
        for ticket in (1, 2)
    ]
    ended = [facts.QueryEnded(event.operation, QueryEnd.CANCELLED) for event in opened]
    drawn = trace_of(tmp_path, [*opened, *ended])
    assert [each.track for each in drawn.slices] == ["twin", "twin (2)"]


HOSTILE = '</script>"\\\n\x1b[31m\x00\u2028\U0001f984' + "x" * 3000


def test_a_request_may_be_called_anything(tmp_path: Path) -> None:
    drawn = trace_of(
        tmp_path, [facts.StageReported(1, HOSTILE, 0, "queued"), facts.StageReported(1, "", 0, "queued")]
    )
    tracks = [track for track, name, _ in drawn.instants if name == "queued"]
    assert tracks == [HOSTILE, "(no name)"]


def test_old_names_are_forgotten_and_live_slices_are_not(
    log: Path, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto_requests, "REQUESTS_REMEMBERED_MAX", 2)
    trace(log, tmp_path / "short.json")
    short = read_trace(tmp_path / "short.json")
    assert len(short.tracks) > len(seen.tracks)
    assert [(each.name, each.begin_us, each.end_us) for each in short.slices] == [
        (each.name, each.begin_us, each.end_us) for each in seen.slices
    ]


def test_events_leave_while_the_log_is_read(log: Path) -> None:
    """A log of any length passes through: nothing is kept for the end but what is open then."""
    sizes = []

    class Sink(BytesIO):
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return len(data)

    traced = write_trace(log, Sink())
    assert len(sizes) >= traced.events
    assert max(sizes) < 4096


# --- logs that are not whole -----------------------------------------------------------------------------


def test_a_log_that_begins_in_the_middle(told: list[list[Record]], tmp_path: Path) -> None:
    """What began before is left out; budgets are right from the first record on."""
    long = max(told, key=len)
    files = write_log(tmp_path / "log", [long], segment_records=40)
    for file in files[:2]:
        file.unlink()
    answer = trace(tmp_path / "log", tmp_path / "trace.json")
    assert answer.exit_code == 0, answer.output
    drawn = read_trace(tmp_path / "trace.json")
    assert "speaks from incarnation 1 seq 81" in drawn.about["notes"]
    assert drawn.groups[0] == "incarnation 1 from seq 81: budgets"
    state = kernel.new_state()
    for record in long[:80]:
        kernel.fold(state, record)
    pool = drawn.counters["incarnation 1 from seq 81: budgets", "pool bytes, used"]
    assert pool[0][1] == state.superblocks.used_bytes > 0


def test_a_gap_ends_what_is_open_and_begins_anew(told: list[list[Record]], tmp_path: Path) -> None:
    files = write_log(tmp_path / "log", [max(told, key=len)], segment_records=40)
    files[1].unlink()
    answer = trace(tmp_path / "log", tmp_path / "trace.json")
    assert answer.exit_code == 1
    assert "segments are missing" in answer.stderr
    drawn = read_trace(tmp_path / "trace.json")
    assert drawn.groups[::4] == ["incarnation 1: budgets", "incarnation 1 from seq 81: budgets"]
    assert any("segments are missing" in trouble for trouble in drawn.about["troubles"])
    torn = [each for each in drawn.slices if each.args.get("end") == "open where the log ends"]
    assert torn and all(each.group.startswith("incarnation 1") for each in torn)


def test_a_damaged_segment_is_drawn_up_to_the_damage(told: list[list[Record]], tmp_path: Path) -> None:
    files = write_log(tmp_path / "log", told[:1], segment_records=10_000)
    data = bytearray(files[0].read_bytes())
    data[len(data) // 2] ^= 0xFF
    files[0].write_bytes(data)
    answer = trace(tmp_path / "log", tmp_path / "trace.json")
    assert answer.exit_code == 1
    drawn = read_trace(tmp_path / "trace.json")
    assert 0 < drawn.about["records"] < len(told[0])
    assert drawn.about["troubles"]


def test_facts_that_do_not_fold_cost_the_counters_only(told: list[list[Record]], tmp_path: Path) -> None:
    at = next(r for r in told[0] if any(isinstance(event, facts.QueryEnded) for event in r.events))
    lie = msgspec.structs.replace(at, events=(*at.events, facts.ReservationEnded(99 << 32)))
    write_log(tmp_path / "log", told[:1], lies={(1, at.seq): lie})
    answer = trace(tmp_path / "log", tmp_path / "trace.json")
    assert answer.exit_code == 0
    drawn = read_trace(tmp_path / "trace.json")
    assert f"no budgets are shown from seq {at.seq} on" in " ".join(drawn.about["notes"])
    opened = sum(isinstance(event, facts.SessionOpened) for r in told[0] for event in r.events)
    assert sum(each.name.startswith("session") for each in drawn.slices) == opened


def test_columns_that_do_not_fit_each_other(tmp_path: Path) -> None:
    odd = facts.ReadsLanded(samples.column([1, 2]), samples.column([4096]), samples.column([1]))
    queued = facts.ReadsQueued(1 << 32 | 1, 1, samples.column([7, 8]), samples.column([0, 1]), Origin.DEMAND)
    submitted = facts.ReadsSubmitted(
        samples.column([1, 2]), samples.column([0, 1]), samples.column([0, 1]), Origin.DEMAND
    )
    drawn = trace_of(tmp_path, [queued, submitted, odd])
    assert len([each for each in drawn.slices if each.name == "read demand"]) == 2
    assert any("is shown in part" in note for note in drawn.about["notes"])


def test_notes_are_bounded(tmp_path: Path) -> None:
    odd = facts.ReadsLanded(samples.column([1, 2]), samples.column([4096]), samples.column([1]))
    notes = trace_of(tmp_path, [odd] * (2 * writing.NOTES_MAX)).about["notes"]
    assert sum("is shown in part" in note for note in notes) in (writing.NOTES_MAX - 1, writing.NOTES_MAX)
    assert notes[-1] == f"and more; only the first {writing.NOTES_MAX} such notes are kept"


def trace_of(tmp_path: Path, events: list[Event]) -> Seen:
    """Of a log whose one record holds these facts; the kernel cannot follow them, so it has no counters."""
    record = Record(1, 10**9, commands.Tick(), tuple(events))
    data, _ = samples.segment([[record]], at=samples.header(), closed=True, synced=True)
    samples.write_segment(tmp_path / "log", data)
    answer = trace(tmp_path / "log", tmp_path / "trace.json")
    assert answer.exit_code == 0, answer.output
    return read_trace(tmp_path / "trace.json")


# --- the command ------------------------------------------------------------------------------------------


def test_the_same_log_gives_the_same_trace(log: Path, tmp_path: Path) -> None:
    trace(log, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == log.with_name("trace.json").read_bytes()


def test_an_existing_file_is_not_written_over(log: Path, tmp_path: Path) -> None:
    output = tmp_path / "trace.json"
    output.write_text("precious")
    answer = trace(log, output)
    assert (answer.exit_code, output.read_text()) == (2, "precious")
    assert "exists already" in answer.stderr and "--force" in answer.stderr
    assert trace(log, output, "--force").exit_code == 0
    assert read_trace(output).slices


def test_a_segment_is_never_written_over(log: Path) -> None:
    segment = min(log.iterdir())
    before = segment.read_bytes()
    answer = trace(log, segment, "--force")
    assert answer.exit_code == 2 and "never written over" in answer.stderr
    assert segment.read_bytes() == before


def test_errors_say_what_mends_them(log: Path, tmp_path: Path) -> None:
    absent = trace(log, tmp_path / "no" / "trace.json")
    assert absent.exit_code == 2 and f"there is no folder {tmp_path / 'no'}; make it" in absent.stderr
    folder = trace(log, tmp_path)
    assert folder.exit_code == 2 and "is a folder" in folder.stderr
    (tmp_path / "empty").mkdir()
    nothing = trace(tmp_path / "empty", tmp_path / "trace.json")
    assert nothing.exit_code == 2 and "holds no log segment" in nothing.stderr
    assert not (tmp_path / "trace.json").exists()


def test_a_full_disk_leaves_nothing_half_done(log: Path, tmp_path: Path) -> None:
    def run_full() -> None:
        with output_file(tmp_path / "trace.json", force=False) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match="No space left on device; free room or name another file"):
        run_full()
    assert list(tmp_path.iterdir()) == []
