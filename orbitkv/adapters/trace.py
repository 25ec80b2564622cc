"""Request traces in the Mooncake format: one JSON object a line, read as a stream.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

`timestamp` is in milliseconds from the trace's start and never falls; `hash_ids` name the prompt's
blocks of 512 tokens in order, the last one possibly partial, and an id stands for its block *and*
all blocks before it. The format is published with https://github.com/kvcache-ai/Mooncake.
This file reads; it neither judges a workload nor keeps a trace in memory.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from orbitkv.adapters.errors import AdapterError

BLOCK_TOKENS = 512
"""Tokens of one trace block, fixed by the format."""

_REMEDY = "mend or drop that line, or give another file with --trace"


class TraceError(AdapterError):
    """The trace cannot be read; `line` is the number of the broken line, 0 for the file itself."""

    def __init__(self, what: str, why: str, remedy: str = _REMEDY, *, line: int = 0) -> None:
        super().__init__(what, why, remedy)
        self.line = line


class TraceRequest(msgspec.Struct, frozen=True):
    """One request, as the trace has it. Of its output only the length is known."""

    timestamp: int
    """Milliseconds from the start of the trace."""
    input_length: int
    """Prompt tokens."""
    output_length: int
    """Tokens generated for it."""
    hash_ids: tuple[int, ...]
    """One id per block of BLOCK_TOKENS prompt tokens, the last block possibly partial."""


_decoder = msgspec.json.Decoder(TraceRequest)


def read_trace(path: Path, limit: int | None = None) -> Iterator[TraceRequest]:
    """Yield at most `limit` requests in the file's order. Raises TraceError at the first broken line."""
    try:
        with path.open("rb") as lines:
            yield from islice(_requests(path, lines), limit)
    except OSError as error:
        raise TraceError(
            f"The trace {path} cannot be read.",
            f"{error.strerror or error}.",
            "give a readable file with --trace, or leave --trace out for a generated workload",
        ) from error


def write_trace(path: Path, requests: Iterator[TraceRequest]) -> int:
    """Write requests in the same format; returns how many. Raises OSError."""
    encoder = msgspec.json.Encoder()
    count = 0
    with path.open("wb") as file:
        for request in requests:
            file.write(encoder.encode(request) + b"\n")
            count += 1
    return count


def _requests(path: Path, lines: Iterator[bytes]) -> Iterator[TraceRequest]:
    before = 0
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        request = _decode(path, number, line)
        _check(path, number, request, before)
        before = request.timestamp
        yield request


def _decode(path: Path, number: int, line: bytes) -> TraceRequest:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _broken(path, number, f"{error}.") from error


def _check(path: Path, number: int, request: TraceRequest, before_ms: int) -> None:
    blocks = -(-request.input_length // BLOCK_TOKENS)
    if request.input_length < 1 or request.output_length < 0:
        raise _broken(path, number, "Lengths count tokens; a prompt has at least one.")
    if len(request.hash_ids) != blocks:
        raise _broken(
            path,
            number,
            f"{request.input_length} prompt tokens are {blocks} blocks of {BLOCK_TOKENS}, "
            f"but hash_ids has {len(request.hash_ids)}.",
        )
    if request.timestamp < before_ms:
        raise _broken(path, number, f"Time runs back from {before_ms} to {request.timestamp}.")


def _broken(path: Path, number: int, why: str) -> TraceError:
    return TraceError(f"Line {number} of the trace {path} is broken.", why, line=number)
