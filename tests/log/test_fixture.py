"""`replay fixture`: pieces of logs, scripts of commands, and scripts made smaller."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import HintSkip
from orbitkv.events.record import Record
from orbitkv.manager.kernel import new_state, step
from replay.__main__ import main
from replay.auditor import audit_log
from replay.fixture.conditions import ConditionError, condition
from replay.fixture.cut import Chain, ends_of
from replay.fixture.names import Names, key_name, key_of
from replay.fixture.numbered import command_of
from replay.fixture.piece import chains, pieces, write_pieces
from replay.fixture.shrink import shrink
from replay.fixture.story import Script, story, tell
from replay.fixture.wishes import ScriptError, Wish, wish_from, wish_line, wish_of
from replay.fold import fold_log
from replay.simulate.faults import Faults
from replay.simulate.simulation import Simulation
from replay.verify import verify_log

HISTORIES = Path(__file__).parent.parent / "histories"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["fixture", *map(str, arguments)])


def simulated(seed: int, steps: int = 600) -> list[Record]:
    records: list[Record] = []
    Simulation(seed, faults=Faults(), crashes=False, on_record=records.append).run(steps)
    return records


# --- names and text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_command_comes_back_from_its_names_and_its_text(seed: int) -> None:
    """With all commands told, every name has the number that it had: stale plans, doubled reports and all."""
    records = simulated(seed)
    given, taken, state = Names(), Names(), new_state()
    start_ns, before_ns = records[0].at_ns, 0
    for record in records:
        wish = wish_of(record, given, start_ns)
        assert wish_from(wish_line(wish, before_ns), before_ns) == wish
        command = command_of(wish, state, taken)
        assert command == record.cause
        assert step(state, wish.at_ns + start_ns, command) == record
        given.learn(record)
        taken.learn(record)
        before_ns = wish.at_ns


@pytest.mark.parametrize("key", [b"page-1", b"\x00\xff", b"0xab", b"with space", b"a@b", b"#", b""])
def test_a_key_comes_back_from_its_name(key: bytes) -> None:
    name = key_name(key)
    assert key_of(name) == key
    assert not set(name) & set(" @#\"'")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Tick", "no wish: 'Tick'"),
        ("+1s Tock", "no wish"),
        ("+1s OpenSession session", "no field begins at ' session'"),
        ("+1s OpenSession session=x", "is no JSON"),
    ],
)
def test_a_line_that_is_no_wish_is_refused_with_what_it_should_be(line: str, words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        wish_from(line, 0)


def test_a_wish_with_a_wrong_field_is_refused() -> None:
    with pytest.raises(ScriptError, match="OpenSession cannot be made"):
        tell([Wish(0, "OpenSession", {"session": 1, "color": "red"})])


# --- pieces of logs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["plain", "trouble", "compressed", "real"])
def test_a_piece_folds_to_the_states_of_the_log_that_it_was_cut_from(tmp_path: Path, history: str) -> None:
    header, records, _ = list(chains(HISTORIES / history))[-1]
    middle = records[len(records) // 2].seq
    write_pieces(
        tmp_path / "end", pieces(HISTORIES / history, [(header.incarnation, middle, records[-1].seq)])
    )
    whole, piece = fold_log(HISTORIES / history), verify_log(tmp_path / "end")
    assert piece.ok, piece.difference or piece.log.troubles
    assert piece.incarnations[-1].digest == whole.incarnations[-1].digest
    assert piece.incarnations[-1].first_seq == middle
    assert next(iter(chains(tmp_path / "end")))[1] == records[len(records) // 2 :]


def test_the_command_cuts_by_seq_time_request_and_session(tmp_path: Path) -> None:
    log = HISTORIES / "real"
    cuts = {
        "seq": ("--seq", "10-40", "--incarnation", "1"),
        "time": ("--time", "0.9-1.9", "--incarnation", "2"),
        "request": ("--request", "gamma-0"),
        "session": ("--session", "5", "--incarnation", "2"),
        "all": (),
    }
    for name, arguments in cuts.items():
        done = run(log, *arguments, "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
        report = verify_log(tmp_path / name)
        assert report.ok, report.difference or report.log.troubles
    assert audit_log(tmp_path / "request").ok
    assert [found.incarnation for found in verify_log(tmp_path / "all").incarnations] == [1, 2]
    (found,) = verify_log(tmp_path / "seq").incarnations
    assert (found.first_seq, found.next_seq) == (10, 41)
    (found,) = verify_log(tmp_path / "request").incarnations
    assert found.incarnation == 2
    assert 1 < found.first_seq < found.next_seq < 45


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    log = HISTORIES / "real"
    for arguments in (("--request", "nobody"), ("--seq", "5000-6000"), ("--session", "99")):
        done = run(log, *arguments, "--out", tmp_path / "cut")
        assert done.exit_code == 2
        assert f"{log} has no record of {arguments[0][2:]} {arguments[1]}" in done.output
    for no_range in ("a-b", "nan", "1-inf"):
        done = run(log, "--seq", no_range, "--out", tmp_path / "cut")
        assert done.exit_code == 2
        assert "is no range" in done.output
    assert run("--out", tmp_path / "cut").exit_code == 2
    occupied = run(log, "--seq", "1-5", "--out", HISTORIES / "plain")
    assert occupied.exit_code == 2
    assert "nothing is overwritten" in occupied.output


def test_a_log_that_begins_in_the_middle_gives_pieces_but_no_script(tmp_path: Path) -> None:
    log = HISTORIES / "compressed"
    assert run(log, "--seq", "150-200", "--out", tmp_path / "cut").exit_code == 0
    done = run(log, "--script", "--out", tmp_path / "cut.txt")
    assert done.exit_code == 2
    assert "cut a piece of the log instead" in done.output


# --- scripts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [31, 40, 44])
def test_in_a_cut_every_request_ends_as_it_did_in_the_log(seed: int) -> None:
    records = simulated(seed)
    chain = Chain(records)
    requests = {record.cause.request for record in records if isinstance(record.cause, commands.SubmitQuery)}
    widths = set()
    for request in sorted(requests)[:12]:
        operations = chain.operations(lambda cause, request=request: cause.request == request)  # type: ignore[misc]
        cut = chain.cut(operations)
        widths.add(cut.width)
        telling = tell(cut.wishes)
        assert not telling.broken
        assert ends_of(telling.records, operations) == ends_of(records, operations)
        assert len(cut.wishes) <= cut.of
    assert widths - {"all"}, "some requests need less than everything before them"


def test_the_text_of_a_script_is_all_that_there_is_to_it(tmp_path: Path) -> None:
    out = tmp_path / "cut.txt"
    assert run(HISTORIES / "real", "--request", "delta-0", "--script", "--out", out).exit_code == 0
    text = out.read_text()
    script = Script.read(text)
    assert story(script.prose, script.wishes) == text
    assert text.startswith("# Cut by `replay fixture` out of real, incarnation 2: request delta-0.")
    again = run(HISTORIES / "real", "--request", "delta-0", "--script", "--out", out)
    assert again.exit_code == 2
    assert "is there already" in again.output


def test_a_seed_is_cut_and_made_smaller_alike_every_time(tmp_path: Path) -> None:
    outs = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for out in outs:
        done = run("--seed", "29", "--keep", "HintSkipped reason=foreground", "--out", out)
        assert done.exit_code == 0, done.output
    assert outs[0].read_bytes() == outs[1].read_bytes()
    telling = tell(Script.read(outs[0].read_text()).wishes)
    assert len(telling.records) < 25
    skipped = [event for event in telling.records[-1].events if isinstance(event, facts.HintSkipped)]
    assert [event.reason for event in skipped] == [HintSkip.FOREGROUND]


def test_a_request_is_made_smaller_while_it_ends_as_it_did(tmp_path: Path) -> None:
    log = HISTORIES / "real"
    for name, more in (("cut", ()), ("small", ("--shrink",))):
        arguments = ("--request", "beta-1", "--script", *more, "--out", tmp_path / f"{name}.txt")
        assert run(log, *arguments).exit_code == 0
    cut, small = (Script.read((tmp_path / f"{name}.txt").read_text()) for name in ("cut", "small"))
    assert len(small.wishes) < len(cut.wishes)
    records = next(iter(chains(log)))[1]
    operations = Chain(records).operations(lambda cause: cause.request == "beta-1")
    assert ends_of(tell(small.wishes).records, operations) == ends_of(records, operations) != []


# --- smaller and smaller ------------------------------------------------------------------------------------


def wishes_of(seed: int) -> list[Wish]:
    return [row.wish for row in Chain(simulated(seed, 300)).rows]


def test_nothing_can_be_left_out_of_a_script_that_was_made_smaller() -> None:
    holds = condition("PagesSealed")
    small = shrink(wishes_of(44), holds)
    assert holds(tell(small))
    for place in range(len(small)):
        shorter = [*small[:place], *small[place + 1 :]]
        try:
            assert not holds(tell(shorter))
        except ScriptError:
            pass


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    shrink(wishes_of(44), condition("QueryEnded"), lambda left, tries: seen.append((left, tries)))
    assert [tries for _, tries in seen] == list(range(1, len(seen) + 1))


def test_a_condition_of_somebodys_own_is_called() -> None:
    small = shrink(wishes_of(44), condition("call:tests.log.test_fixture:opens_three"))
    assert [wish.kind for wish in small] == ["Start", *["OpenSession"] * 3]


def opens_three(records: list[Record]) -> bool:
    return sum(isinstance(record.cause, commands.OpenSession) for record in records) >= 3


def test_a_broken_kernel_is_cut_down_to_the_commands_that_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that breaks when a page is allocating: the smallest script is a save and nothing else."""
    from orbitkv.manager.kernel import turn

    def breaks(state: object, event: object) -> None:
        raise AssertionError("a planted mistake")

    wishes = wishes_of(44)
    monkeypatch.setitem(turn.APPLIERS, facts.PagesSealed, breaks)
    small = shrink(wishes, condition("broken"))
    assert "# broken: AssertionError: a planted mistake" in story((), small)
    kinds = [wish.kind for wish in small]
    assert kinds[-1] == "CompleteSeals"
    assert "SubmitQuery" not in kinds


def test_the_audit_is_a_condition() -> None:
    """A lie that it cannot miss: buffers that are allocated twice."""
    telling = tell(wishes_of(40))
    assert not condition("audit")(telling)
    allocating = next(
        record
        for record in telling.records
        for event in record.events
        if isinstance(event, facts.BuffersAllocated)
    )
    doubled = msgspec.structs.replace(allocating, events=(*allocating.events, *allocating.events))
    telling.records[telling.records.index(allocating)] = doubled
    assert condition("audit")(telling)
    assert not condition("audit:decision_ledger")(telling)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hintskipped", "is no condition"),
        ("HintSkipped foreground", "is no condition"),
        ("call:no.such.module:name", "cannot be called"),
        ("call:json", "cannot be called"),
        ("call::dumps", "cannot be called"),
        ("", "is no condition"),
    ],
)
def test_a_condition_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConditionError, match=words):
        condition(text)


def test_a_condition_that_never_held_is_said() -> None:
    with pytest.raises(ConditionError, match="nothing to keep"):
        shrink(wishes_of(44), condition("IncarnationClosed lost_tail=True"))
