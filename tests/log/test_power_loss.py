"""Power loss: any part of what was not synced may be missing. What was synced is found, and the rest said."""

import re
from pathlib import Path
from random import Random

import pytest

from orbitkv.events import codec
from orbitkv.io.segment_writer import PendingFrame, SegmentWriter
from orbitkv.io.segments import LogDirectory
from replay.log import Log
from tests.log import samples
from tests.log.sick import SickCalls

SECTOR_BYTES = 512


def write_until_power_fails(path: Path, choose: Random) -> int:
    """Write and sync at random, then lose a random part of the unsynced bytes; gives the last synced seq."""
    calls = SickCalls()
    writer = SegmentWriter.create(path, samples.header(), samples.EMPTY_STATE, calls)
    seq = 1
    for _ in range(choose.randint(1, 12)):
        group = []
        for _ in range(choose.randint(1, 4)):
            last_seq = seq + choose.randint(0, 3)
            payload = codec.encode_records(samples.records(seq, last_seq, pages=choose.randint(1, 200)))
            group.append(PendingFrame(seq, last_seq, payload))
            seq = last_seq + 1
        writer.write(group)
        if choose.random() < 0.3:
            writer.sync()
    writer.close()
    lose_part(writer.path, calls.unsynced.get(writer.path.stat().st_ino, []), choose)
    return writer.synced_seq


def lose_part(path: Path, unsynced: list[tuple[int, int]], choose: Random) -> None:
    data = bytearray(path.read_bytes())
    if not unsynced:
        return
    first = unsynced[0][0]
    kind = choose.choice(("sectors", "writes", "end", "all"))
    if kind == "end":
        del data[choose.randint(first, len(data)) :]
    elif kind == "all":
        data[first:] = bytes(len(data) - first)
    elif kind == "writes":
        for offset, length in unsynced:
            if choose.random() < 0.5:
                data[offset : offset + length] = bytes(length)
    else:
        for start in range(first - first % SECTOR_BYTES, len(data), SECTOR_BYTES):
            if choose.random() < 0.3:
                end = min(start + SECTOR_BYTES, len(data))
                begin = max(start, first)
                data[begin:end] = bytes(end - begin)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("seed", range(40))
def test_what_was_synced_is_found_and_the_log_goes_on(tmp_path: Path, seed: int) -> None:
    synced_seq = write_until_power_fails(tmp_path, Random(seed))
    directory = LogDirectory.open(tmp_path)
    recovery = directory.recover()
    found = recovery.predecessor
    if found is None:
        assert synced_seq == 0
        directory.close()
        return
    assert found.next_seq > synced_seq
    for cut in recovery.cuts:
        assert not re.search(r"and seq \d+ had been durable", cut.reason), "a power loss is not called rot"
    directory.close_chain(found, codec.encode_records([samples.record(found.next_seq)]))
    directory.close()
    log = Log.open(tmp_path)
    seqs = [r.seq for segment in log.segments() for frame in segment.frames() for r in frame.records]
    assert seqs == list(range(1, found.next_seq + 1))
    assert log.troubles == []
