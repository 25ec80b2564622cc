"""Damage to bytes and order: the reader puts the right record in doubt, and no tool says that all is well."""

from pathlib import Path
from random import Random

import pytest

from replay.auditor import audit_log
from replay.log import Log, Trouble
from replay.verify import verify_log
from tests.log.lies.damage import BYTES, Copy, Damage
from tests.log.lies.order import ORDER
from tests.log.simulated import simulated_records, write_log

FLIPS = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments of several incarnations, three or more of the first."""
    for seed in range(100):
        incarnations = simulated_records(seed, 600)
        if len(incarnations) > 1 and len(incarnations[0]) > 120:
            path = tmp_path_factory.mktemp("whole")
            write_log(path, incarnations[:3], segment_records=40)
            return path
    raise AssertionError("no run has an incarnation of 120 records; the simulator has become too quiet")


def doubts(path: Path) -> list[Trouble]:
    log = Log.open(path)
    for segment in log.segments():
        for _ in segment.frames():
            pass
    return log.troubles


def test_the_whole_log_is_believed(whole: Path) -> None:
    assert doubts(whole) == []
    assert verify_log(whole).ok
    assert len(Copy.of(whole).names) >= 4


@pytest.mark.parametrize("damage", [*BYTES, *ORDER], ids=lambda damage: damage.__name__)
def test_the_reader_puts_the_right_record_in_doubt(whole: Path, tmp_path: Path, damage: Damage) -> None:
    copy = Copy.of(whole)
    expected = damage(copy)
    found = doubts(copy.write(tmp_path / "log"))
    assert found, "nothing was noticed"
    assert (found[0].incarnation, found[0].seq) == expected, [str(trouble) for trouble in found]
    assert found[0].what
    assert not verify_log(tmp_path / "log").ok


@pytest.mark.parametrize("damage", [BYTES[3], BYTES[19], ORDER[0], ORDER[15]], ids=lambda each: each.__name__)
def test_the_audit_tells_what_the_reader_doubts(whole: Path, tmp_path: Path, damage: Damage) -> None:
    copy = Copy.of(whole)
    expected = damage(copy)
    audit = audit_log(copy.write(tmp_path / "log"))
    assert not audit.ok
    assert expected in {(trouble.incarnation, trouble.seq) for trouble in audit.log.troubles}


def test_wherever_a_bit_flips_it_is_noticed(whole: Path, tmp_path: Path) -> None:
    """The record in doubt is the first of the frame that the bit is in."""
    true, random = Copy.of(whole), Random(7)
    for flip in range(FLIPS):
        copy = Copy([*true.names], [bytearray(data) for data in true.data])
        number = random.randrange(len(copy.data) - 1)
        offset = random.randrange(len(copy.data[number]))
        copy.data[number][offset] ^= 1 << random.randrange(8)
        found = doubts(copy.write(tmp_path / str(flip)))
        frame = next((each for each in true.frames(number) if each.offset <= offset < each.end_offset), None)
        assert found, f"bit at byte {offset} of {copy.names[number]}"
        assert found[0].path.name == copy.names[number]
        assert found[0].seq == (frame.first_seq if frame else 0)
