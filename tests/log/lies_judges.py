"""The three that judge a log: what the reader, `verify` and the audit's SQL find in stories with lies.

Every story is one incarnation of one log, so that one audit judges them all; `verify`, which stops at the
first difference, is given each incarnation's segment by itself.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import attrs

from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.auditor import audit_log
from replay.verify import verify_log
from tests.log import samples
from tests.log.lies_story import of_incarnation

FRAME_RECORDS = 32


@attrs.frozen
class Violated:
    invariant: str
    seq: int
    why: str


@attrs.frozen
class Judged:
    """Of one story."""

    troubles: tuple[int, ...]
    """Seqs that the reader names."""
    violations: tuple[Violated, ...]
    """In the order of the log."""
    segment: Path

    @property
    def verified_seq(self) -> int | None:
        """The record at which deciding again comes to something else; None: to the same in all of them."""
        difference = verify_log(self.segment).difference
        return difference.seq if difference else None


def judged(directory: Path, stories: Sequence[Sequence[Record]]) -> list[Judged]:
    """Write them as incarnations 1, 2, ... of a log, frames and chain as they should be, and audit it."""
    snapshot = kernel.snapshot(kernel.new_state())
    previous, files = 0, []
    for incarnation, story in enumerate(stories, 1):
        records = of_incarnation(story, incarnation)
        frames = [records[at : at + FRAME_RECORDS] for at in range(0, len(records), FRAME_RECORDS)]
        header = attrs.evolve(samples.header(incarnation, 1, 1, previous), kernel_revision=KERNEL_REVISION)
        data, _ = samples.segment(frames, at=header, snapshot=snapshot, closed=True)
        previous = samples.last_checksum(data)
        files.append(samples.write_segment(directory, data, incarnation))
    audit = audit_log(directory, violations_max=1_000_000)
    violations: dict[int, list[Violated]] = defaultdict(list)
    for verdict in audit.verdicts:
        for each in verdict.first:
            violations[each.incarnation].append(Violated(verdict.invariant, each.seq, each.why))
    troubles: dict[int, list[int]] = defaultdict(list)
    for trouble in audit.log.troubles:
        troubles[trouble.incarnation].append(trouble.seq)
    return [
        Judged(
            tuple(troubles[incarnation]),
            tuple(sorted(violations[incarnation], key=lambda each: (each.seq, each.invariant))),
            file,
        )
        for incarnation, file in enumerate(files, 1)
    ]
