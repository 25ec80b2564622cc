"""What a rank does with a lease: begin, report its sync, or let it go."""

import attrs

from orbitkv.events.commands import BeginRestore, Command, ReleaseLease, ReportSync
from orbitkv.events.facts import GpuSynced
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.views import pool_offsets
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked


@attrs.define(slots=True)
class AskedRestore(Asked[wire.BeginRestore]):
    _lease: int = attrs.field(default=0, init=False)

    def ask(self, state: State) -> Command:
        self._lease = self.desk.lease_of(self.message.lease)
        return BeginRestore(self.session, self._lease)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        lease = state.leases[self._lease]
        operation = state.operations.get(lease.operation)
        return wire.RestoreBegun(
            self.message.call,
            tuple((group, pages) for group, _, pages in lease.parts),
            pool_offsets(state, lease.buffers),
            operation.request if operation is not None else "",
            operation.attempt if operation is not None else 0,
        )


@attrs.define(slots=True)
class AskedSync(Asked[wire.ReportSync]):
    def ask(self, state: State) -> Command:
        message = self.message
        return ReportSync(
            session=self.session,
            lease=self.desk.lease_of(message.lease),
            outcome=message.outcome,
            ranges=message.ranges,
            layers=message.layers,
            copied_bytes=message.copied_bytes,
            elapsed_us=message.elapsed_us,
        )

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        if not isinstance(result, Record):
            return wire.SyncTaken(self.message.call, repeated=True)
        late = any(isinstance(event, GpuSynced) and event.late for event in result.events)
        return wire.SyncTaken(self.message.call, late=late)


@attrs.define(slots=True)
class AskedRelease(Asked[wire.ReleaseLease]):
    def ask(self, state: State) -> Command:
        return ReleaseLease(self.session, self.desk.lease_of(self.message.lease))

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call, int(isinstance(result, Record)))
