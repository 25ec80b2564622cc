"""`replay export` at the command line: what it says, its exit codes, and its secret."""

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replay.__main__ import main
from replay.export.secret import SECRET_FILE_BYTES_MAX, secret_of
from replay.fold import fold_log
from replay.log import Log
from tests.log.exporting import SAMPLE, write_planted


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_planted(tmp_path / "log", SAMPLE, records_max=200)
    return tmp_path / "log"


def content_of(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.iterdir())]


def test_it_says_what_it_wrote_and_where(log: Path, tmp_path: Path) -> None:
    result = run(log, tmp_path / "out", "--pseudonymise")
    assert result.exit_code == 0
    records = fold_log(tmp_path / "out").records
    assert f"export: {records} records with pseudonyms in {len(content_of(log))} segments" in result.stdout
    assert str(tmp_path / "out") in result.stdout
    assert "incarnation 1: seq 1 to " in result.stdout
    assert result.stderr == "note: speaks from incarnation 1 seq 1\n"


def test_a_plain_copy_says_that_the_names_are_in_it(log: Path, tmp_path: Path) -> None:
    result = run(log, tmp_path / "out")
    assert result.exit_code == 0
    assert "records as they are" in result.stdout
    assert "--pseudonymise replaces them" in result.stderr
    assert fold_log(tmp_path / "out").incarnations == fold_log(log).incarnations


def test_json_says_the_same(log: Path, tmp_path: Path) -> None:
    result = run(log, tmp_path / "out", "--pseudonymise", "--json")
    told = json.loads(result.stdout)
    assert (told["ok"], told["pseudonymised"], told["troubles"]) == (True, True, [])
    assert told["records"] == fold_log(tmp_path / "out").records
    assert told["bytes"] == sum(map(len, content_of(tmp_path / "out")))
    assert told["incarnations"][0]["first_seq"] == 1


def test_damage_is_told_and_the_exit_code_is_1(log: Path, tmp_path: Path) -> None:
    second = sorted(log.iterdir())[1]
    data = bytearray(second.read_bytes())
    data[-90] ^= 1
    second.write_bytes(data)
    result = run(log, tmp_path / "out", "--pseudonymise")
    assert result.exit_code == 1
    assert f"damage: {second} byte" in result.stderr
    assert "up to the damage" in result.stdout
    assert fold_log(tmp_path / "out").ok


def test_two_exports_without_a_file_differ_and_with_one_they_do_not(log: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run(log, tmp_path / name, "--pseudonymise").exit_code == 0
    assert content_of(tmp_path / "a") != content_of(tmp_path / "b")
    secret = tmp_path / "secret"
    first = run(log, tmp_path / "c", "--pseudonymise", "--secret-file", secret)
    assert f"a new secret stands in {secret}" in first.stderr
    again = run(log, tmp_path / "d", "--pseudonymise", "--secret-file", secret)
    assert "new secret" not in again.stderr
    assert content_of(tmp_path / "c") == content_of(tmp_path / "d")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    text = secret.read_bytes().strip()
    assert text not in b"".join(content_of(tmp_path / "c"))
    assert text.decode() not in first.output


def test_a_secret_of_ones_own_is_taken(log: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"correct horse battery staple")
    secret.chmod(0o600)
    assert run(log, tmp_path / "a", "--pseudonymise", "--secret-file", secret).exit_code == 0
    secret.write_bytes(b"correct horse battery staple\n")
    assert run(log, tmp_path / "b", "--pseudonymise", "--secret-file", secret).exit_code == 0
    assert content_of(tmp_path / "a") == content_of(tmp_path / "b")
    assert secret.read_bytes() == b"correct horse battery staple\n"


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        (b"", 0o600, "has 0 bytes, at least 16 are needed"),
        (b"too short\n", 0o600, "has 9 bytes"),
        (b"x" * 32, 0o640, "chmod 600"),
        (b"x" * (SECRET_FILE_BYTES_MAX + 1), 0o600, "that is no secret"),
    ],
)
def test_a_secret_that_keeps_none_is_refused(
    log: Path, tmp_path: Path, content: bytes, mode: int, complaint: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    secret.chmod(mode)
    result = run(log, tmp_path / "out", "--pseudonymise", "--secret-file", secret)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not (tmp_path / "out").exists()
    assert secret.read_bytes() == content


def test_a_folder_or_a_pipe_is_no_secret(log: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for place in (pipe, tmp_path):
        result = run(log, tmp_path / "out", "--pseudonymise", "--secret-file", place)
        assert result.exit_code == 2
        assert "no file" in result.stderr or "would be" in result.stderr
    result = run(log, tmp_path / "out", "--pseudonymise", "--secret-file", tmp_path / "none" / "secret")
    assert "cannot be written" in result.stderr


def test_a_secret_is_never_given_away_with_the_log(log: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "out" / "secret", log / "secret"):
        result = run(log, tmp_path / "out", "--pseudonymise", "--secret-file", place)
        assert result.exit_code == 2
        assert "name a file elsewhere" in result.stderr
    assert not (log / "secret").exists()
    assert not (tmp_path / "out").exists()
    assert run(log, tmp_path / "out", "--secret-file", tmp_path / "secret").exit_code == 2


def test_new_secrets_differ(tmp_path: Path) -> None:
    first, made = secret_of(tmp_path / "one")
    second, _ = secret_of(tmp_path / "other")
    assert made
    assert len(first) == 64
    assert first != second
    assert secret_of(tmp_path / "one") == (first, False)


@pytest.mark.parametrize("content", [b"", b"no log at all", b"ORBITLOG"])
def test_what_is_no_log_is_not_exported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file", tmp_path / "folder", tmp_path / "nowhere"):
        result = run(path, tmp_path / "out", "--pseudonymise")
        assert result.exit_code == 2
        assert "Error: " in result.stderr
        assert not (tmp_path / "out").exists()


def test_a_newer_format_is_named(log: Path, tmp_path: Path) -> None:
    from crc32c import crc32c

    segment = min(log.iterdir())
    data = bytearray(segment.read_bytes())
    header_bytes = int.from_bytes(data[12:16], "little")
    data[8:12] = (99).to_bytes(4, "little")
    data[header_bytes - 4 : header_bytes] = crc32c(bytes(data[: header_bytes - 4])).to_bytes(4, "little")
    segment.write_bytes(data)
    result = run(log, tmp_path / "out", "--pseudonymise")
    assert result.exit_code == 2
    assert "it has log format 99" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_torn_last_frame_is_a_note(log: Path, tmp_path: Path) -> None:
    last = max(log.iterdir())
    last.write_bytes(last.read_bytes()[:-70])
    result = run(log, tmp_path / "out", "--pseudonymise")
    assert result.exit_code == 0
    assert "the last frame is not whole" in result.stderr
    exported = Log.open(tmp_path / "out")
    assert sum(1 for _ in exported.segments()) == len(content_of(log))


def test_ctrl_c_is_a_word_and_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    result = run(log, tmp_path / "out", "--pseudonymise")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]
