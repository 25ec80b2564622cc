"""The three that judge a log: what the reader, `verify` and the audit's SQL find in stories with lies.

All stories lie in one directory, so that one audit judges them all; `verify`, which stops at the first
difference, is given each story's segment by itself.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import attrs

from orbitkv.events.frame import LOG_ID_BYTES
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.auditor import audit_log
from replay.verify import verify_log
from tests.log import samples
from tests.log.lies.story import of_incarnation

FRAME_RECORDS = 32
FIRST_INCARNATION = 10_001
"""No story has a number of its own that is as large."""
ANOTHER_LOG = "belongs to another log"
"""What the reader says of such a directory, and what is no lie here."""


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


def judged(directory: Path, stories: Sequence[Sequence[Record]], *, one_log: bool = False) -> list[Judged]:
    """Write each as a log of one incarnation, with frames and chain as they should be, and audit them all.

    They share a directory and are numbered through, so that a number tells the story. `one_log`: they follow
    each other in one log, so all of them have an end.
    """
    snapshot = kernel.snapshot(kernel.new_state())
    previous, files = 0, []
    for incarnation, story in enumerate(stories, FIRST_INCARNATION):
        records = of_incarnation(story, incarnation)
        frames = [records[at : at + FRAME_RECORDS] for at in range(0, len(records), FRAME_RECORDS)]
        header = attrs.evolve(
            samples.header(incarnation, previous=previous if one_log else 0),
            kernel_revision=KERNEL_REVISION,
            log_id=(0 if one_log else incarnation).to_bytes(LOG_ID_BYTES, "little"),
        )
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
        if ANOTHER_LOG not in trouble.what:
            troubles[trouble.incarnation].append(trouble.seq)
    return [
        Judged(
            tuple(troubles[incarnation]),
            tuple(sorted(violations[incarnation], key=lambda each: (each.seq, each.invariant))),
            file,
        )
        for incarnation, file in enumerate(files, FIRST_INCARNATION)
    ]
