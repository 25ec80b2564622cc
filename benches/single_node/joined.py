"""The engine's timeline and the manager's, joined by request.

Both write `cache_timeline` lines (`--trace-transfers`). Times of the two clocks are never subtracted from
each other: every figure here lies within one process, or is a length that one of them measured.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs


@attrs.define
class Life:
    """One request."""

    request: str
    queue_to_first_use_ms: float | None = None
    """By the engine: from its queue to the first step that computes for it."""
    read_ms: float | None = None
    """By the manager: from the first page's read to the last page's landing."""
    read_for: str = ""
    """What the last `host_ready` was for: warm (a hint), or demand."""
    copy_ms: float = 0.0
    """By the ranks, summed: copying onto the device."""
    copied_bytes: int = 0


def stages(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            at = line.find('{"event": "cache_timeline"')
            if at < 0:
                continue
            try:
                yield json.loads(line[at:])
            except ValueError:
                continue  # another process wrote into the middle of the line


def lives(lines: Iterable[dict[str, Any]], names: Iterable[str]) -> list[Life]:
    """Of the named requests, in their order. An engine may have put something of its own behind a name."""
    by_name = {name: Life(name) for name in names}
    queued: dict[str, tuple[int, int]] = {}
    for line in lines:
        for name in _names(line, by_name):
            _add(by_name[name], line, queued)
    return list(by_name.values())


def _names(line: dict[str, Any], known: dict[str, Life]) -> list[str]:
    named = [str(line.get("request_id", "")), *map(str, line.get("requests", ()))]
    found = (name if name in known else name.rpartition("-")[0] for name in named)
    return [name for name in found if name in known]


def _add(life: Life, line: dict[str, Any], queued: dict[str, tuple[int, int]]) -> None:
    match line["stage"]:
        case "queued":
            queued[life.request] = line["pid"], line["monotonic_ns"]
        case "first_use" if life.request in queued and life.queue_to_first_use_ms is None:
            process, at_ns = queued[life.request]
            if process == line["pid"]:
                life.queue_to_first_use_ms = (line["monotonic_ns"] - at_ns) / 1e6
        case "host_ready":
            life.read_ms = line.get("elapsed_us", 0) / 1000
            life.read_for = str(line.get("origin", ""))
        case "gpu_ready":
            life.copy_ms += line["elapsed_us"] / 1000
            life.copied_bytes += line["copied_bytes"]
