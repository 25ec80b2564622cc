"""What must hold after every record of a simulated run, at a glance: totals and limits, in microseconds.

The kernel's own `check` recomputes every total from the tables; that is done now and then. This reads the
totals alone, so that a record that breaks one is caught at once. Raises AssertionError.
"""

from orbitkv.events.outcomes import Phase
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State

_WARMING = Phase.WARMING


class Glance:
    """Looks at one incarnation's state after each of its records."""

    def __init__(self) -> None:
        self._seq = 0
        self._at_ns = 0
        self._decisions = 0
        self._ended = 0

    def look(self, state: State, record: Record) -> None:
        """Raises AssertionError."""
        assert record.seq == self._seq + 1 == state.seq, f"record {record.seq} follows {self._seq}"
        assert record.at_ns >= self._at_ns, "time does not fall"
        assert record.events, "a record holds a fact"
        self._seq, self._at_ns = record.seq, record.at_ns
        self._budgets(state)
        self._ledgers(state)

    def _budgets(self, state: State) -> None:
        config, reserved_bytes = state.config, state.reserved_bytes
        by_phase = state.reserved_by_phase
        assert reserved_bytes == sum(by_phase), "reserved bytes add up over the phases"
        assert 0 <= reserved_bytes <= config.query_budget_bytes, "the query budget holds"
        hints_bytes = by_phase[_WARMING]
        assert hints_bytes * config.speculative_divisor <= config.query_budget_bytes, "the hints' share holds"
        assert len(state.operations) <= config.operations_max, "operations are bounded"
        assert len(state.hints) <= config.hints_max, "hints are bounded"
        assert len(state.sessions) <= config.sessions_max, "sessions are bounded"
        assert len(state.write_queue) <= config.ssd_write_queue_pages_max, "the write queue is bounded"
        assert 0 <= state.superblocks.used_bytes <= config.pool_bytes, "the pool is not overdrawn"
        assert state.foreground_bytes_in_flight >= 0 <= state.background_bytes_in_flight, "bytes in flight"

    def _ledgers(self, state: State) -> None:
        totals = state.totals
        resolved = totals.restored_bytes + sum(totals.unused_bytes.values())
        cohort_bytes = resolved + state.pending_bytes
        assert totals.prepared_bytes == cohort_bytes, "prepared = restored + unused + pending"
        told = totals.dram_pages + totals.ssd_pages + totals.miss_pages
        assert told == totals.asked_pages, "dram + ssd + miss = asked (there are no peers yet)"
        assert totals.decisions >= self._decisions and totals.reads_ended >= self._ended, "no counter falls"
        assert totals.reads_ended <= totals.reads_submitted, "a read that ended was submitted"
        self._decisions, self._ended = totals.decisions, totals.reads_ended
