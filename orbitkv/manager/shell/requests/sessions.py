"""Register a rank, ask whether its instance is sealed, report a stage, say goodbye."""

import os
from collections.abc import Callable

import attrs

from orbitkv.events.commands import CloseSession, Command, RegisterRank, ReportStage
from orbitkv.events.outcomes import Refusal, SessionEnd
from orbitkv.io import wire
from orbitkv.manager.kernel.state import Instance, State
from orbitkv.manager.kernel.turn import Refused
from orbitkv.manager.kernel.views import instance_of
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked, Denied


def registration(state: State, session: int, call: int) -> wire.Reply:
    """What the session's rank must know of its instance. The session has registered."""
    entry = state.sessions[session]
    instance = state.instances[entry.instance]
    groups = tuple(
        wire.GroupLayout(number, layout.footprint_bytes, _places(instance, entry.rank, number))
        for number, layout in instance.groups.items()
    )
    return wire.Registered(call, entry.instance, instance.sealed, groups)


def _places(instance: Instance, rank: int, group: int) -> tuple[wire.SlicePlace, ...]:
    slices = [
        piece
        for described in instance.ranks[rank].groups
        if described.group == group
        for piece in described.slices
    ]
    places = instance.groups[group].reads.get(rank, ())
    return tuple(
        wire.SlicePlace(piece.slice, offset, payload_bytes)
        for piece, (offset, payload_bytes) in zip(slices, places, strict=True)
    )


@attrs.define(slots=True)
class AskedRegistration(Asked[wire.RegisterRank]):
    _attached: bool = attrs.field(default=False, init=False)

    def ask(self, state: State) -> Command:
        message = self.message
        session = state.sessions.get(self.session)
        if session is not None and session.instance < 0:
            self._attach_staging()
        elif self.descriptor >= 0:
            os.close(self.descriptor)
        return RegisterRank(
            session=self.session,
            instance=message.instance,
            rank=message.rank,
            world_size=message.world_size,
            host=message.host,
            namespace_digest=message.namespace_digest,
            namespace_document=message.namespace_document,
            hash_process_dependent=message.hash_process_dependent,
            groups=message.groups,
            staging_bytes=message.staging_bytes,
        )

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return registration(state, self.session, self.message.call)

    def refused(self, refused: Refused) -> wire.Reply | None:
        if self._attached:
            self.desk.carrier.detach_staging(self.session)
        return super().refused(refused)

    def _attach_staging(self) -> None:
        """Before the command: a rank is not registered with a window that cannot be read."""
        staging_bytes = self.message.staging_bytes
        if (self.descriptor >= 0) != (staging_bytes > 0):
            if self.descriptor >= 0:
                os.close(self.descriptor)
            sent = "one" if self.descriptor >= 0 else "none"
            raise Denied(
                Refusal.MALFORMED,
                f"a staging window of {staging_bytes} bytes was announced and {sent} was sent; "
                "send its descriptor with the registration",
            )
        if self.descriptor < 0:
            return
        try:
            self.desk.carrier.attach_staging(self.session, self.descriptor, staging_bytes)
        except (OSError, ValueError) as error:
            raise Denied(
                Refusal.MALFORMED, f"the staging window of {staging_bytes} bytes cannot be used: {error}"
            ) from error
        self._attached = True


@attrs.define(slots=True)
class AskedSealing(Asked[wire.ReadRegistration]):
    def ask(self, state: State) -> None:
        if instance_of(state, self.session) is None:
            raise Denied(Refusal.NOT_REGISTERED, "this session has not registered; register its rank first")

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return registration(state, self.session, self.message.call)


@attrs.define(slots=True)
class ReportedStage(Asked[wire.ReportStage]):
    """One-way, and worth nothing when the log cannot keep it."""

    def ask(self, state: State) -> Command | None:
        if self.desk.admission.stopped:
            return None
        message = self.message
        return ReportStage(
            session=self.session,
            request=message.request,
            attempt=message.attempt,
            stage=message.stage,
            at_unix_ns=message.at_unix_ns,
            monotonic_ns=message.monotonic_ns,
        )

    def reply(self, state: State, result: StepResult | None) -> None:
        return None

    def refused(self, refused: Refused) -> None:
        return None


@attrs.define(slots=True)
class AskedGoodbye(Asked[wire.CloseSession]):
    def ask(self, state: State) -> Command:
        return CloseSession(self.session, SessionEnd.CLOSED)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call)

    def answer(self, state: State, result: StepResult | None) -> Callable[[], None]:
        tell = super().answer(state, result)

        def tell_and_close() -> None:
            if tell is not None:
                tell()
            self.desk.channel.close_session(self.session)

        return tell_and_close
