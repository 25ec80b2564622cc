"""Facts as sentences for a timeline: what happened, to whom, how much, in the fewest words.

The facts of a request's life have a sentence each; the others fall back to `replay.wording.phrases`, which
tells any fact by its fields.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

import msgspec
import numpy as np

from orbitkv.events import facts
from orbitkv.events.outcomes import HintSkip, ReadOutcome
from replay.wording.lines import word_of
from replay.wording.phrases import phrase, size_text

Sentence: TypeAlias = Callable[[Any, int], str]
"""(fact, time of its record) -> words."""


def sentence(fact: facts.Event, at_ns: int) -> str:
    told = _SENTENCES.get(type(fact))
    return told(fact, at_ns) if told is not None else phrase(fact, at_ns)


def column_count(column: bytes) -> int:
    """Entries of a packed u32 column."""
    return len(column) // 4


# --- hints ----------------------------------------------------------------------------------------------


def _hint_admitted(fact: facts.HintAdmitted, at_ns: int) -> str:
    within = sum(column_count(pages) for pages in fact.pages)
    return (
        f"hint {_number(fact.operation)}{_version(fact)} admitted: {fact.asked_pages} pages asked, "
        f"{within} to be had, {size_text(fact.charge_bytes)} reserved, "
        f"for {_seconds(fact.deadline_ns - at_ns)} at most"
    )


def _hint_skipped(fact: facts.HintSkipped, at_ns: int) -> str:
    match fact.reason:
        case HintSkip.OVERSIZED:
            why = f"that is {size_text(fact.charge_bytes)} and hints have {size_text(fact.limit)}"
        case HintSkip.OPERATIONS:
            why = f"{fact.reserved} operations are open, {fact.limit} allowed"
        case HintSkip.FOREGROUND:
            why = f"queries hold or wait for budget, {size_text(fact.reserved)} reserved"
        case HintSkip.BYTES:
            why = f"{size_text(fact.reserved)} of the {size_text(fact.limit)} for hints are reserved"
    return f"hint skipped ({_words(fact.reason)}): {fact.asked_pages} pages asked, but {why}"


def _warm_probed(fact: facts.WarmProbed, at_ns: int) -> str:
    return f"hint looked up {_tiers(fact)}"


def _pages_unused(fact: facts.PagesUnused, at_ns: int) -> str:
    return f"{_counted(fact.buffers, 'prepared page')} unused ({_words(fact.cause)})"


# --- queries and their reads ------------------------------------------------------------------------------


def _query_opened(fact: facts.QueryOpened, at_ns: int) -> str:
    return (
        f"query {_number(fact.operation)}{_version(fact)} opened: {fact.asked_pages} pages asked, "
        f"needs {size_text(fact.charge_bytes)}"
    )


def _query_waiting(fact: facts.QueryWaiting, at_ns: int) -> str:
    whose = "its engine's " if fact.by_instance else ""
    reserved = f"{size_text(fact.reserved_bytes)} of {size_text(fact.limit_bytes)}"
    return f"query {_number(fact.operation)} waits for budget: {reserved} of {whose}budget reserved"


def _query_granted(fact: facts.QueryGranted, at_ns: int) -> str:
    return (
        f"query {_number(fact.operation)} granted: {size_text(fact.charge_bytes)} reserved, "
        f"{_reach(fact.reach)} to be had, {column_count(fact.buffers)} in DRAM"
    )


def _reads_queued(fact: facts.ReadsQueued, at_ns: int) -> str:
    return f"{_counted(fact.pages, 'read')} queued ({_words(fact.origin)})"


def _reads_joined(fact: facts.ReadsJoined, at_ns: int) -> str:
    return f"joins {_counted(fact.reads, 'read')} that run already"


def _reads_submitted(fact: facts.ReadsSubmitted, at_ns: int) -> str:
    return f"{_counted(fact.reads, 'read')} at the device ({_words(fact.origin)})"


def _reads_dropped(fact: facts.ReadsDropped, at_ns: int) -> str:
    why = "no room in DRAM" if fact.no_room else "not wanted any more, or no longer there"
    return f"{_counted(fact.reads, 'queued read')} dropped ({why})"


def _reads_landed(fact: facts.ReadsLanded, at_ns: int) -> str:
    elapsed = np.frombuffer(fact.elapsed_us, "<u4")
    return f"{_counted(fact.reads, 'read')} landed after {_span(int(elapsed.min()), int(elapsed.max()))}"


def _reads_failed(fact: facts.ReadsFailed, at_ns: int) -> str:
    outcomes = dict.fromkeys(word_of(ReadOutcome, outcome).replace("_", " ") for outcome in fact.outcomes)
    return f"{_counted(fact.reads, 'read')} failed ({', '.join(outcomes)})"


def _query_cut(fact: facts.QueryCut, at_ns: int) -> str:
    return f"{_number(fact.operation)} cut to {_reach(fact.reach)}"


def _query_ended(fact: facts.QueryEnded, at_ns: int) -> str:
    return f"query {_number(fact.operation)} ended: {_words(fact.end)}"


# --- leases and copies -------------------------------------------------------------------------------------


def _lease_granted(fact: facts.LeaseGranted, at_ns: int) -> str:
    return (
        f"lease {fact.lease} on {fact.boundary_tokens} tokens, {size_text(fact.charge_bytes)}, "
        f"for {_seconds(fact.deadline_ns - at_ns)}"
    )


def _gpu_synced(fact: facts.GpuSynced, at_ns: int) -> str:
    pages = sum(high - low for low, high in fact.ranges)
    late = ", after the lease had expired" if fact.late else ""
    return (
        f"rank {fact.rank} restored {_many(pages, 'page')} of lease {fact.lease}: "
        f"{size_text(fact.copied_bytes)} in {_ms(fact.elapsed_us)}{late}"
    )


def _sync_failed(fact: facts.SyncFailed, at_ns: int) -> str:
    how = "and have stopped" if fact.stopped else "and may still run: held until its process is gone"
    return f"rank {fact.rank}'s copies of lease {fact.lease} failed {how}"


# --- words and numbers --------------------------------------------------------------------------------------


def _number(operation: int) -> str:
    return f"{operation >> 32}.{operation & 0xFFFF_FFFF}"


def _version(fact: facts.QueryOpened | facts.HintAdmitted) -> str:
    told = [f" {name} {value}" for name in ("attempt", "revision") if (value := getattr(fact, name))]
    return ",".join(told)


def _tiers(fact: facts.WarmProbed | facts.DecisionSettled) -> str:
    found = [f"{count} {tier}" for tier in ("dram", "peer", "ssd", "miss") if (count := getattr(fact, tier))]
    return f"{_many(fact.asked, 'page')}: {', '.join(found)}" if found else "no page"


def _words(value: IntEnum) -> str:
    return value.name.lower().replace("_", " ")


def _counted(column: bytes, noun: str) -> str:
    return _many(column_count(column), noun)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _reach(reach: tuple[int, ...]) -> str:
    return f"{'+'.join(map(str, reach))} page{'' if reach == (1,) else 's'}"


def _seconds(span_ns: int) -> str:
    return f"{span_ns / 1e9:.6g} s"


def _ms(span_us: int) -> str:
    return f"{span_us / 1000:.1f} ms"


def _span(low_us: int, high_us: int) -> str:
    low, high = f"{low_us / 1000:.1f}", f"{high_us / 1000:.1f}"
    return f"{high} ms" if low == high else f"{low} to {high} ms"


def _printable(word: str) -> str:
    """An engine's word as it is, unless it could do something to a terminal."""
    return word if word.isprintable() else repr(word)


_SENTENCES: dict[type[msgspec.Struct], Sentence] = {
    facts.StageReported: lambda fact, at_ns: f"stage {_printable(fact.stage)} of {fact.request!r}",
    facts.HintAdmitted: _hint_admitted,
    facts.HintSkipped: _hint_skipped,
    facts.HintNotNeeded: lambda fact, at_ns: (
        f"hint not needed: nothing of {fact.asked_pages} pages to be read"
    ),
    facts.HintEnded: lambda fact, at_ns: f"hint {_number(fact.operation)} ended: {_words(fact.end)}",
    facts.WarmProbed: _warm_probed,
    facts.PagesPrepared: lambda fact, at_ns: f"{_counted(fact.buffers, 'page')} prepared",
    facts.PagesRestored: lambda fact, at_ns: f"{_counted(fact.buffers, 'prepared page')} restored",
    facts.PagesUnused: _pages_unused,
    facts.QueryOpened: _query_opened,
    facts.QueryWaiting: _query_waiting,
    facts.QueryGranted: _query_granted,
    facts.ReadsQueued: _reads_queued,
    facts.ReadsJoined: _reads_joined,
    facts.ReadsSubmitted: _reads_submitted,
    facts.ReadsDropped: _reads_dropped,
    facts.ReadsLanded: _reads_landed,
    facts.ReadsFailed: _reads_failed,
    facts.QueryCut: _query_cut,
    facts.DecisionSettled: lambda fact, at_ns: f"answered {_tiers(fact)}",
    facts.LeaseGranted: _lease_granted,
    facts.QueryEnded: _query_ended,
    facts.LeaseEnded: lambda fact, at_ns: f"lease {fact.lease} ended: {_words(fact.end)}",
    facts.RestoreBegun: lambda fact, at_ns: f"rank {fact.rank} begins to copy lease {fact.lease}",
    facts.ShareEnded: lambda fact, at_ns: (
        f"rank {fact.rank}'s share of lease {fact.lease}: {_words(fact.share)}"
    ),
    facts.GpuSynced: _gpu_synced,
    facts.SyncFailed: _sync_failed,
    facts.LeaseReleased: lambda fact, at_ns: f"nothing of lease {fact.lease} is held any more",
    facts.ReservationShrunk: lambda fact, at_ns: (
        f"{_number(fact.operation)} keeps {size_text(fact.charge_bytes)} reserved"
    ),
    facts.ReservationEnded: lambda fact, at_ns: f"{_number(fact.operation)} gives back its budget",
}
