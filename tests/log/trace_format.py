"""Reads a trace-event file as strictly as the format allows, and gives what a viewer would draw.

Written from the format's rules, and shares nothing with the writer that it judges. What a viewer would
quietly repair or drop is an AssertionError here.
"""

import json
import math
from pathlib import Path
from typing import Any

import attrs

_FIELDS = {
    "M": {"ph", "pid", "tid", "ts", "name", "args"},
    "B": {"ph", "pid", "tid", "ts", "name", "cat", "args"},
    "E": {"ph", "pid", "tid", "ts"},
    "i": {"ph", "pid", "tid", "ts", "name", "cat", "s", "args"},
    "C": {"ph", "pid", "ts", "name", "args"},
    "s": {"ph", "pid", "tid", "ts", "name", "cat", "id"},
    "f": {"ph", "pid", "tid", "ts", "name", "cat", "id", "bp"},
}
_OPTIONAL = {"E": {"args"}}


@attrs.define(eq=False)
class Slice:
    track: str
    group: str
    name: str
    begin_us: float
    args: dict[str, Any]
    depth: int
    end_us: float = math.nan


@attrs.define
class Seen:
    groups: list[str] = attrs.field(factory=list)
    """In their order in the UI."""
    tracks: list[tuple[str, str]] = attrs.field(factory=list)
    """(group, name), in their order in the UI."""
    slices: list[Slice] = attrs.field(factory=list)
    instants: list[tuple[str, str, dict[str, Any]]] = attrs.field(factory=list)
    """(track, name, args)"""
    counters: dict[tuple[str, str], list[tuple[float, int]]] = attrs.field(factory=dict)
    """(group, name) -> (time in us, value) in order."""
    flows: list[tuple[str, Slice, Slice]] = attrs.field(factory=list)
    about: dict[str, Any] = attrs.field(factory=dict)


def read_trace(path: Path) -> Seen:
    document = json.loads(path.read_bytes(), parse_constant=_no_constant)
    assert set(document) == {"displayTimeUnit", "traceEvents", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    for event in events:
        _check_shape(event)
    return _Viewer(events, document["otherData"]).seen


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def _check_shape(event: dict[str, Any]) -> None:
    kind = event["ph"]
    assert _FIELDS[kind] <= set(event) <= _FIELDS[kind] | _OPTIONAL.get(kind, set()), event
    assert type(event["pid"]) is int and event["pid"] > 0
    assert type(event.get("tid", 1)) is int and event.get("tid", 1) > 0
    assert isinstance(event["ts"], int | float) and math.isfinite(event["ts"]) and event["ts"] >= 0, event
    assert isinstance(event.get("args", {}), dict)
    assert isinstance(event.get("name", ""), str)


class _Viewer:
    def __init__(self, events: list[dict[str, Any]], about: dict[str, Any]) -> None:
        self.seen = Seen(about=about)
        self._groups: dict[int, str] = {}
        self._tracks: dict[tuple[int, int], str] = {}
        self._orders: dict[int, int] = {}
        self._track_orders: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[int, int], list[Slice]] = {}
        self._arrows: dict[int, dict[str, Any]] = {}
        declared = [event for event in events if event["ph"] == "M"]
        for event in declared:
            self._declare(event)
        order = [self._orders[pid] for pid in self._groups]
        assert len(set(order)) == len(order), "two groups claim the same place"
        self.seen.groups = [self._groups[pid] for pid in sorted(self._groups, key=self._orders.__getitem__)]
        tracks = sorted(self._tracks, key=lambda key: (self._orders[key[0]], self._track_orders[key]))
        self.seen.tracks = [(self._groups[pid], self._tracks[pid, tid]) for pid, tid in tracks]
        # A viewer sorts by time, and keeps the file's order where times are equal.
        for event in sorted((event for event in events if event["ph"] != "M"), key=lambda each: each["ts"]):
            self._take(event)
        assert not any(self._stacks.values()), "a slice is still open at the end"
        for number, arrow in self._arrows.items():
            assert set(arrow) == {"name", "s", "f"}, f"flow {number} is not whole"
            self.seen.flows.append((arrow["name"], arrow["s"], arrow["f"]))
        self._check_file_order(events)

    def _declare(self, event: dict[str, Any]) -> None:
        pid, key = event["pid"], (event["pid"], event["tid"])
        match event["name"]:
            case "process_name":
                assert pid not in self._groups
                self._groups[pid] = event["args"]["name"]
            case "process_sort_index":
                self._orders[pid] = event["args"]["sort_index"]
            case "thread_name":
                assert pid in self._groups and key not in self._tracks
                assert event["tid"] not in self._groups, "it would be its group's main thread"
                self._tracks[key] = event["args"]["name"]
            case "thread_sort_index":
                self._track_orders[key] = event["args"]["sort_index"]
            case other:
                raise AssertionError(f"unknown metadata {other}")

    def _take(self, event: dict[str, Any]) -> None:
        group = self._groups[event["pid"]]
        if event["ph"] == "C":
            (value,) = event["args"].values()
            assert type(value) is int
            self.seen.counters.setdefault((group, event["name"]), []).append((event["ts"], value))
            return
        key = (event["pid"], event["tid"])
        track, stack = self._tracks[key], self._stacks.setdefault(key, [])
        match event["ph"]:
            case "B":
                assert not stack or stack[-1].begin_us <= event["ts"]
                begun = Slice(track, group, event["name"], event["ts"], dict(event["args"]), len(stack))
                stack.append(begun)
                self.seen.slices.append(begun)
            case "E":
                ended = stack.pop()
                ended.end_us = event["ts"]
                assert ended.end_us >= ended.begin_us
                ended.args |= event.get("args", {})
            case "i":
                assert event["s"] == "t"
                self.seen.instants.append((track, event["name"], event["args"]))
            case "s" | "f" as end:
                arrow = self._arrows.setdefault(event["id"], {"name": event["name"]})
                assert arrow["name"] == event["name"] and end not in arrow
                assert end == "s" or "s" in arrow, "an arrow ends before it begins"
                assert stack, "an arrow that binds to no slice"
                arrow[end] = stack[-1]

    def _check_file_order(self, events: list[dict[str, Any]]) -> None:
        """Names come before what they name, and each track's slices in the order of time."""
        named: set[tuple[int, int]] = set()
        last: dict[tuple[int, int], float] = {}
        for event in events:
            key = (event["pid"], event.get("tid", 0))
            if event["ph"] == "M" and event["name"] == "thread_name":
                named.add(key)
            elif event["ph"] in "BEisf":
                assert key in named
                if event["ph"] in "BE":
                    assert last.get(key, 0) <= event["ts"]
                    last[key] = event["ts"]
