"""kill -9 of a process that writes: what was written is there, what was torn is cut, the chain goes on."""

import random
import signal
import subprocess
import sys
from pathlib import Path

from orbitkv.events.record import Record
from replay.log import Log


def write_and_kill(path: Path, lines: int) -> tuple[int, int]:
    """Let a process write until it has said so many lines, kill it; gives its last (incarnation, seq)."""
    command = [sys.executable, "-m", "tests.log.writing_process", str(path)]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writing:
        try:
            assert writing.stdout is not None
            for line in writing.stdout:
                said.append(line)
                if len(said) == lines:
                    break
        finally:
            writing.kill()
        said += writing.stdout
    assert writing.returncode == -signal.SIGKILL
    incarnation, seq = said[-1].split()
    return int(incarnation), int(seq)


def read(path: Path) -> tuple[dict[int, list[Record]], list[str]]:
    log = Log.open(path)
    found: dict[int, list[Record]] = {}
    for segment in log.segments():
        for frame in segment.frames():
            found.setdefault(segment.header.incarnation, []).extend(frame.records)
    return found, [str(trouble) for trouble in log.troubles]


def test_what_was_written_survives_kill_9_again_and_again(tmp_path: Path) -> None:
    seed = 20
    kills = random.Random(seed)
    written: dict[int, int] = {}
    for _ in range(4):
        incarnation, seq = write_and_kill(tmp_path, kills.randint(1, 120))
        written[incarnation] = seq
        found, troubles = read(tmp_path)
        assert troubles == []
        assert sorted(found) == sorted(written)
        for each, records in found.items():
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            assert len(records) >= written[each], f"seed {seed}: a record that was written is gone"
    assert sorted(written) == [1, 2, 3, 4]
