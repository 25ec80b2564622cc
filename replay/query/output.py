"""Answers as CSV and JSON, and where an answer goes: a new file, or standard output, which may close or fill.

CSV for spreadsheets and scripts: a header, empty for NULL. JSON: one list, a row an object on its own line.
Bytes are hexadecimal in both, numbers keep all their digits.
"""

import csv
import datetime
import io
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from uuid import UUID

from orbitkv.events.frame import LogError
from replay.command_line import forget_stdout
from replay.output_file import output_file
from replay.query.asking import Answer, Column


@contextmanager
def answer_file(path: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """The file at `path`, or standard output. Who reads that may have had enough: that is no error."""
    if path is not None:
        with output_file(path, force=force) as file:
            yield file
        return
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        forget_stdout()
    except OSError as error:
        forget_stdout()
        raise LogError(
            f"the answer cannot be written to standard output: {error.strerror}; free room, or write it to a"
            " file with -o"
        ) from error


@contextmanager
def text_of(file: BinaryIO) -> Iterator[TextIO]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    try:
        yield text
        text.flush()
    finally:
        try:
            text.detach()
        except OSError:
            pass


def write_csv(answer: Answer, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in answer.columns])
    for row in answer.rows:
        writer.writerow([plain_text(value) for value in row])


def write_json(answer: Answer, out: TextIO) -> None:
    names = distinct_names(answer.columns)
    before = "[\n"
    for row in answer.rows:
        values = dict(zip(names, map(json_value, row), strict=True))
        out.write(before + json.dumps(values, ensure_ascii=False, allow_nan=False))
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Two columns may have one name; in an object they cannot."""
    names: list[str] = []
    for column in columns:
        name, number = column.name, 1
        while name in names:
            number += 1
            name = f"{column.name}_{number}"
        names.append(name)
    return names


def json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {str(key): json_value(each) for key, each in value.items()}
        case list() | tuple() | set():
            return [json_value(each) for each in value]
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case UUID():
            return str(value)
    return str(value)


def plain_text(value: Any) -> str:
    """A value as one cell."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float():
            return repr(value)
        case Decimal():
            return f"{value:f}"
        case dict() | list() | tuple():
            return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value))
