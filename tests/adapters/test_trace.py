"""Reading traces: what is accepted, and that a broken line is named by its number."""

from itertools import islice
from pathlib import Path

import pytest

from orbitkv.adapters.trace import TraceError, TraceRequest, read_trace, write_trace

GOOD = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}'


def _file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_line_becomes_a_request(tmp_path: Path) -> None:
    assert list(read_trace(_file(tmp_path, GOOD, "", GOOD), 1)) == [TraceRequest(0, 600, 5, (0, 1))]


def test_fields_of_other_versions_of_the_format_are_passed_over(tmp_path: Path) -> None:
    line = GOOD.replace('"timestamp"', '"session": "a", "timestamp"')
    assert next(read_trace(_file(tmp_path, line))).hash_ids == (0, 1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Input data was truncated"),
        ("no json", "malformed"),
        ('{"timestamp": 0}', "missing required field `input_length`"),
        (GOOD.replace("600", '"600"'), "Expected `int`, got `str`"),
        (GOOD.replace("600", "0"), "at least one"),
        (GOOD.replace("600", "1600"), "1600 prompt tokens are 4 blocks of 512, but hash_ids has 2"),
        (GOOD.replace('"output_length": 5', '"output_length": -5'), "Lengths count tokens"),
    ],
)
def test_a_broken_line_is_named_by_number_reason_and_remedy(tmp_path: Path, line: str, why: str) -> None:
    path = _file(tmp_path, GOOD, GOOD, line, GOOD)
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    assert caught.value.line == 3
    assert f"Line 3 of the trace {path}" in caught.value.what
    assert why in caught.value.why
    assert "--trace" in caught.value.remedy


def test_bytes_that_are_no_text_are_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(GOOD.encode() + b"\n\xff\xfe\n")
    with pytest.raises(TraceError, match="Line 2 of"):
        list(read_trace(path))


def test_time_that_runs_backwards_is_a_broken_line(tmp_path: Path) -> None:
    later = GOOD.replace('"timestamp": 0', '"timestamp": 3000')
    with pytest.raises(TraceError, match=r"Line 2 of .*\n.*runs back from 3000 to 0"):
        list(read_trace(_file(tmp_path, later, GOOD)))


def test_lines_beyond_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    assert len(list(read_trace(_file(tmp_path, GOOD, GOOD, "broken"), 2))) == 2


def test_a_file_that_cannot_be_read_is_told_without_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be read"):
        next(read_trace(tmp_path / "nowhere.jsonl"))
    with pytest.raises(TraceError, match=r"cannot be read"):
        next(read_trace(tmp_path))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    requests = [TraceRequest(0, 600, 5, (0, 1)), TraceRequest(3000, 512, 0, (0,))]
    assert write_trace(tmp_path / "copy.jsonl", iter(requests)) == 2
    assert list(read_trace(tmp_path / "copy.jsonl")) == requests


def test_the_published_trace_is_read_as_a_stream(mooncake_trace: Path) -> None:
    first = list(islice(read_trace(mooncake_trace), 2))
    assert first[0].input_length == 6758
    assert len(first[1].hash_ids) == 15
    assert sum(1 for _ in read_trace(mooncake_trace)) == 12_031
