"""Hints, and what became of the pages that they had read: the cohort's ledger."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from orbitkv.events.outcomes import HintEnd, HintSkip, Refusal, Unused
from orbitkv.manager.kernel.state import State
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.metrics.families import US_PER_SECOND, by_word, counter, counters, gauge

_BYTES_PER_KIB = 1024


def hints(state: State, admission: Admission) -> Iterator[Metric]:
    totals = state.totals
    yield counter("hints_admitted", "Hints whose pages were read.", totals.hints_admitted)
    yield counter("hints_not_needed", "Hints that left nothing to read; not skips.", totals.hints_not_needed)
    yield by_word("hint_skips", "Hints not admitted, by the first bound met.", HintSkip, totals.hint_skips)
    yield counter(
        "warmup_foreground_skips",
        "Those skipped because demand held or waited for bytes.",
        totals.hint_skips.get(HintSkip.FOREGROUND, 0),
    )
    yield by_word(
        "hints_refused",
        "Hints that were not to be understood, or not to be served; their senders are not told.",
        Refusal,
        admission.refused_hints,
    )
    yield by_word("hint_ends", "Admitted hints that ended, by how.", HintEnd, totals.hint_ends)


def cohort(state: State) -> Iterator[Metric]:
    totals = state.totals
    yield counter(
        "warmup_prepared_bytes",
        "Footprints of pages whose read a hint started, at their verified landing.",
        totals.prepared_bytes,
    )
    yield counter(
        "warmup_restored_bytes",
        "Of those, the ones that a successful GPU sync named, once each.",
        totals.restored_bytes,
    )
    yield by_word(
        "warmup_unused_bytes",
        "Of those, the ones whose last owner let go before any restore.",
        Unused,
        totals.unused_bytes,
        label="cause",
    )
    yield gauge(
        "warmup_pending_bytes",
        "Of those, the ones whose outcome is open; prepared = restored + unused + pending.",
        state.pending_bytes,
    )
    yield counters(
        "warmup_wait_byte_seconds",
        "Footprint x time from landing to outcome; open ones are not in it.",
        "outcome",
        {
            "restored": _byte_seconds(totals.restored_wait_kib_us),
            "unused": _byte_seconds(totals.unused_wait_kib_us),
        },
    )


def _byte_seconds(kib_us: int) -> float:
    return kib_us * _BYTES_PER_KIB / US_PER_SECOND
