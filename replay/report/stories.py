"""The slowest queries in sentences: how long, where the time went, and which records say so."""

import shlex
from pathlib import Path

import attrs

from replay.report.data import Row
from replay.report.quantities import count, duration, share, size

_TOLD_FROM = 0.05
"""Parts of less than this share of the time are left out."""


@attrs.frozen
class Said:
    """A sentence, and the record that it is taken from."""

    text: str
    seq: int | None = None


@attrs.frozen
class Story:
    request: str
    attempt: int
    incarnation: int
    took: str
    said: list[Said]
    command: str
    """That tells the request's whole life."""


def story(row: Row, log: Path) -> Story:
    return Story(
        request=row["request"],
        attempt=row["attempt"],
        incarnation=row["incarnation"],
        took=duration(row["took_ms"]),
        said=[*_parts(row), _answer(row), *_trouble(row), *_hint(row)],
        command=f"orbitkv replay timeline {shlex.quote(str(log))} --request {shlex.quote(row['request'])}",
    )


def _parts(row: Row) -> list[Said]:
    """The longest part first."""
    took = row["took_ms"]
    parts = sorted(
        ((ms, text, seq) for ms, text, seq in _spans(row) if ms > took * _TOLD_FROM),
        key=lambda part: -part[0],
    )
    if not parts:
        return [Said("It was answered in the record that opened it.", row["seq"])]
    return [Said(f"For {duration(ms)} ({share(ms, took)}) {text}.", seq) for ms, text, seq in parts]


def _spans(row: Row) -> list[tuple[float, str, int | None]]:
    spans: list[tuple[float, str, int | None]] = []
    if row["wait_ms"] is not None and row["wait_end_ms"] is not None:
        spans.append((row["wait_end_ms"] - row["wait_ms"], _waited(row), row["wait_seq"]))
    if row["grant_ms"] is not None and row["answer_ms"] is not None:
        spans.append((row["answer_ms"] - row["grant_ms"], _read(row), row["grant_seq"]))
    if row["restore_ms"] is not None and row["answer_ms"] is not None:
        text = "its pages were ready and its engine had not begun to copy them"
        spans.append((row["restore_ms"] - row["answer_ms"], text, row["answer_seq"]))
    if row["sync_ms"] is not None and row["restore_ms"] is not None:
        copied = size(row["copied_bytes"])
        text = f"{_ranks(row)} copied {copied} to the GPU, from the first begin to the last sync"
        if row["slowest_copy_us"] is not None:
            slowest = duration(row["slowest_copy_us"] / 1000)
            text += f"; the slowest copy, of rank {row['slowest_rank']}, took {slowest}"
        spans.append((row["sync_ms"] - row["restore_ms"], text, row["restore_seq"]))
    return spans


def _waited(row: Row) -> str:
    whose = "its engine's budget" if row["by_instance"] else "the budget of all engines"
    return (
        f"it waited for budget: {size(row['reserved_bytes'])} of the {size(row['limit_bytes'])} of {whose} "
        f"were reserved, it needed {size(row['charge_bytes'])}"
    )


def _read(row: Row) -> str:
    if not row["reads"]:
        return "it waited for its answer, though it read nothing"
    joined = f", {count(row['joined_reads'])} of them shared with others" if row["joined_reads"] else ""
    pages = "1 page" if row["reads"] == 1 else f"{count(row['reads'])} pages"
    text = f"it waited for {pages} from the SSD{joined}"
    slowest = []
    if row["slowest_read_us"] is not None:
        slowest.append(f"the slowest read took {duration(row['slowest_read_us'] / 1000)} at the device")
    if row["longest_queue_ms"]:
        slowest.append(f"the longest wait in the queue was {duration(row['longest_queue_ms'])}")
    return f"{text}; {' and '.join(slowest)}" if slowest else text


def _ranks(row: Row) -> str:
    return f"{row['ranks']} ranks" if row["ranks"] and row["ranks"] > 1 else "its rank"


def _answer(row: Row) -> Said:
    tiers = f"{row['dram']} from DRAM, {row['ssd']} from the SSD, {row['miss']} missed"
    if row["peer"]:
        tiers += f", {row['peer']} from a peer"
    reached = f"; usable up to token {count(row['boundary_tokens'])}" if row["boundary_tokens"] else ""
    return Said(f"Of {count(row['asked_pages'])} pages asked, {tiers}{reached}.", row["answer_seq"])


def _trouble(row: Row) -> list[Said]:
    said = []
    if row["cut_seq"] is not None:
        failed = (
            f"{row['failed_reads']} of its reads failed"
            if row["failed_reads"]
            else "there was no room for a page"
        )
        said.append(Said(f"Its prefix was cut: {failed}.", row["cut_seq"]))
    if row["failed_copies"]:
        copies = "1 copy" if row["failed_copies"] == 1 else f"{row['failed_copies']} copies"
        said.append(Said(f"{copies} to the GPU failed.", row["sync_seq"]))
    if row["ending"] not in (None, "consumed", "missed"):
        said.append(Said(f"It ended as {row['ending'].replace('_', ' ')}.", row["end_seq"]))
    return said


def _hint(row: Row) -> list[Said]:
    if row["hint_fate"] is None:
        return [Said("No hint came for it.")]
    before = duration(row["opened_ms"] - row["hint_ms"])
    return [Said(f"Its hint came {before} before the query and was {row['hint_fate']}.", row["hint_seq"])]
