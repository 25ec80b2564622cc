"""Decides every record of a log again and compares: did this kernel really do what the log says?

`python -m replay verify LOG`. The state is folded to seq - 1, the cause of seq is stepped, and the
record that comes of it must be the logged one, byte for byte. Logs of another kernel revision are
folded only: their facts stand, but this kernel may decide otherwise.
Reads no clock and draws no random number; that is half of what it proves.
"""

from pathlib import Path

from orbitkv.events.codec import encode_records
from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import KERNEL_REVISION, Refused, State
from replay.findings import Report
from replay.fold import Disagreement, Folder, facts_text, walk, words
from replay.log import Log, LogFrame, Progress
from replay.wording.lines import struct_text


class Verifier(Folder):
    """Believes nothing but the causes, as far as the log is of this kernel's revision."""

    def __init__(self) -> None:
        self._deciding = False

    def decides(self, header: SegmentHeader) -> bool:
        self._deciding = header.kernel_revision == KERNEL_REVISION
        return self._deciding

    def advance(self, state: State, frame: LogFrame) -> None:
        if not self._deciding:
            super().advance(state, frame)
            return
        decided = [_decided_again(state, record) for record in frame.records]
        if encode_records(decided) != frame.payload:
            raise Disagreement(
                "the records are equal, their bytes are not",
                bytes(frame.payload).hex(),
                encode_records(decided).hex(),
                frame.records[0],
            )


def verify_log(path: Path, progress: Progress | None = None) -> Report:
    """Raises LogError."""
    report = walk(Log.open(path), Verifier(), progress)
    for found in report.incarnations:
        if not found.decided:
            report.log.notes.append(
                f"incarnation {found.incarnation} is of kernel revision {found.kernel_revision}, this is"
                f" {KERNEL_REVISION}: folded, not verified (the OrbitKV that wrote it can)"
            )
    return report


def _decided_again(state: State, record: Record) -> Record:
    """Step the record's cause on the state before it; the state is then the one after it."""
    try:
        result = kernel.step(state, record.at_ns, record.cause)
    except Exception as error:
        raise Disagreement(
            "deciding its cause again fails", facts_text(record), words(error), record
        ) from error
    if not isinstance(result, Record):
        got = f"refused: {result.reason.name} {result.detail}" if isinstance(result, Refused) else "no record"
        raise Disagreement("its cause leads to no record", facts_text(record), got, record)
    if result != record:
        raise Disagreement(*_first_difference(record, result), record)
    return result


def _first_difference(record: Record, result: Record) -> tuple[str, str, str]:
    """In words: what differs, as it is in the log, as it was decided again."""
    if (record.seq, record.at_ns) != (result.seq, result.at_ns):
        expected, got = (f"seq {each.seq} at {each.at_ns} ns" for each in (record, result))
        return "it is given another place in the log", expected, got
    count = max(len(record.events), len(result.events))
    for position in range(count):
        facts = [each.events[position : position + 1] for each in (record, result)]
        if facts[0] != facts[1]:
            expected, got = (struct_text(fact[0]) if fact else "no further fact" for fact in facts)
            return f"fact {position + 1} of {count} differs", expected, got
    return "the records differ", repr(record), repr(result)
