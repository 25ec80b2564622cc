"""The log that all parts of `benches.replay` work on: simulated, long, one sealed segment."""

from pathlib import Path

import attrs

from orbitkv.events.codec import encode_records
from orbitkv.events.record import Record
from replay.fixture.piece import write_records
from replay.simulate.faults import Faults
from replay.simulate.simulation import Simulation

SEED = 703
FRAME_RECORDS = 16


@attrs.frozen
class BenchLog:
    """One incarnation's records, in memory and on disk."""

    path: Path
    records: list[Record]

    @property
    def data(self) -> bytes:
        """The segment's bytes."""
        (file,) = self.path.iterdir()
        return file.read_bytes()

    @property
    def frames(self) -> list[list[Record]]:
        starts = range(0, len(self.records), FRAME_RECORDS)
        return [self.records[start : start + FRAME_RECORDS] for start in starts]

    @property
    def conditions(self) -> dict[str, object]:
        facts = sum(len(record.events) for record in self.records)
        size = sum(len(encode_records(frame)) for frame in self.frames)
        count = len(self.records)
        return {
            "records": f"{count:,} of a simulated run, seed {SEED}, all faults but crashes",
            "a record": f"{facts / count:.2f} facts, {size / count:.0f} bytes",
        }


def bench_log(path: Path, count: int) -> BenchLog:
    """A log of at least so many records."""
    records: list[Record] = []
    simulation = Simulation(SEED, faults=Faults(), crashes=False, on_record=records.append)
    while len(records) < count:
        simulation.one_step()
    write_records(path, records)
    return BenchLog(path, records)
