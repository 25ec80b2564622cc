"""Logs with meaning: a simulated run's records as segments on disk, with the snapshots between."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.simulate.simulation import Simulation
from tests.log import samples


def simulated_records(seed: int, steps: int) -> list[list[Record]]:
    """The records of each incarnation of a run."""
    incarnations: list[list[Record]] = []

    def keep(record: Record) -> None:
        if record.seq == 1:
            incarnations.append([])
        incarnations[-1].append(record)

    def lose(first_seq: int) -> None:
        """A power loss took the log's end."""
        del incarnations[-1][first_seq - 1 :]

    Simulation(seed, on_record=keep, on_lost=lose).run(steps)
    return incarnations


def write_log(
    path: Path,
    incarnations: list[list[Record]],
    *,
    segment_records: int = 150,
    frame_records: int = 7,
    kernel_revision: int = KERNEL_REVISION,
    lies: Mapping[tuple[int, int], Record] | None = None,
) -> list[Path]:
    """Lay the records out as a manager would; gives the segment files.

    `lies` stand in the log instead of the record of that (incarnation, seq). Checksums and chain fit
    them, and snapshots tell the truth.
    """
    files: list[Path] = []
    previous = 0
    for incarnation, records in enumerate(incarnations, 1):
        state = kernel.new_state()
        for number, first in enumerate(range(0, len(records), segment_records), 1):
            held = records[first : first + segment_records]
            at = attrs.evolve(
                samples.header(incarnation, number, first + 1, previous), kernel_revision=kernel_revision
            )
            written = [(lies or {}).get((incarnation, record.seq), record) for record in held]
            frames = [written[start : start + frame_records] for start in range(0, len(held), frame_records)]
            data, _ = samples.segment(
                frames, at=at, snapshot=kernel.snapshot(state), closed=True, synced=True
            )
            for record in held:
                kernel.fold(state, record)
            previous = samples.last_checksum(data)
            files.append(samples.write_segment(path, data, incarnation, number))
    return files
