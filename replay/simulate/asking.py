"""How simulated engines announce requests and ask for them: hints while queued, then queries.

A hint may be right, repeated, revised, late, contradicted, taken back or never followed by its query; the
query that follows may come from another rank, or ask for other pages than the hint named.
"""

from orbitkv.events import commands
from orbitkv.manager.kernel import Refused, resolve_keys
from orbitkv.manager.kernel.views import QueryStatus, find_operation, group_layout, query_view
from replay.simulate.host import Host
from replay.simulate.workload import Engine, Request

REQUESTS_AT_ONCE = 6
QUEUED_AT_ONCE = 8


class Asking:
    """Every call makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random

    # --- hints ----------------------------------------------------------------------------------------

    def hint(self, engine: Engine) -> None:
        """A request enters the queue. Now and then the longest queued one is forgotten there."""
        request = engine.new_queued()
        self._warm(engine, request, engine.asker())
        if len(engine.queued) > QUEUED_AT_ONCE:
            engine.queued.pop(0)

    def _warm(self, engine: Engine, request: Request, session: int) -> None:
        parts = self._parts(engine, session, request.keys)
        if parts:
            ticket = engine.next_ticket(session)
            request.hints.append((session, ticket))
            self.host.send(
                commands.WarmPrefix(
                    session, request.name, request.attempt, ticket, request.revision, parts, body(request)
                )
            )

    def hint_again(self, engine: Engine) -> None:
        """For other pages in a new revision; word for word; with other pages by mistake; or too old."""
        if not engine.queued:
            return
        request = self.random.choice(engine.queued)
        roll = self.random.random()
        if roll < 0.5:
            engine.revise(request)
        elif roll < 0.6:
            request.keys = request.keys[:-1] or request.keys
        elif roll < 0.7:
            request.revision = max(0, request.revision - 1)
        self._warm(engine, request, engine.asker())

    def hint_late(self, engine: Engine) -> None:
        """For a request that asks already, or has its answer."""
        request = engine.pick("loading", "leased")
        if request is not None:
            self._warm(engine, request, engine.asker())

    def cancel_hint(self, engine: Engine) -> bool:
        """The queue drops a request: its last hint is taken back, half of the time twice."""
        if not engine.queued:
            return False
        request = self.random.choice(engine.queued)
        if self.random.random() < 0.5:
            engine.queued.remove(request)
        self._take_back(request, self.random.randint(1, 2))
        return True

    def _take_back(self, request: Request, times: int) -> None:
        for session, ticket in request.hints[-1:] * times:
            self.host.send(commands.CancelHint(session, ticket))

    def follow(self, engine: Engine) -> None:
        """A queued request is scheduled: it asks, most often for what its hint named."""
        if not engine.queued or len(engine.requests) >= REQUESTS_AT_ONCE:
            return
        request = engine.queued.pop(self.random.randrange(len(engine.queued)))
        if self.random.random() < 0.4:
            self._take_back(request, 1)
        if self.random.random() < 0.1:
            request.keys = engine.prompts.next_prompt()
        request.revision, request.stage = 0, "new"
        engine.requests.append(request)
        self._submit(engine, request, engine.asker())

    # --- queries --------------------------------------------------------------------------------------

    def ask(self, engine: Engine) -> None:
        if len(engine.requests) < REQUESTS_AT_ONCE:
            self._submit(engine, engine.new_request(), engine.asker())

    def _parts(self, engine: Engine, session: int, keys: list[bytes]) -> tuple[commands.QueryPart, ...]:
        parts = []
        for shape in engine.groups:
            layout = group_layout(self.host.state, session, shape.group)
            count = len(keys) * engine.groups[0].page_tokens // shape.page_tokens
            if layout is None:
                return ()
            if count:
                pages, unknown = resolve_keys(self.host.state, layout.space, keys[:count])
                parts.append(
                    commands.QueryPart(shape.group, shape.page_tokens, shape.trailing, pages, unknown)
                )
        return tuple(parts)

    def _submit(self, engine: Engine, request: Request, session: int) -> None:
        parts = self._parts(engine, session, request.keys)
        if not parts:
            request.stage = "over"
            return
        command = commands.SubmitQuery(
            session=session,
            request=request.name,
            attempt=request.attempt,
            ticket=engine.next_ticket(session),
            revision=request.revision,
            parts=parts,
            body=body(request),
        )
        if isinstance(self.host.send(command), Refused):
            request.stage = "over"
            return
        operation = find_operation(self.host.state, session, request.name, request.attempt)
        if operation is None:
            raise AssertionError(f"query {request.name} was accepted and left no decision")
        request.operation, request.stage, request.lease = operation, "loading", -1
        self._look(engine, request)

    def _look(self, engine: Engine, request: Request) -> None:
        view = query_view(self.host.state, request.operation)
        if view.status == QueryStatus.READY:
            if request.lease not in (-1, view.lease):
                raise AssertionError(f"operation {request.operation} changed its lease")
            if request.lease == -1:
                assert view.buffers is not None
                engine.leased(request, view.lease, len(view.buffers))
        elif view.status != QueryStatus.LOADING:
            engine.computed(request)

    def poll(self, engine: Engine) -> None:
        request = engine.pick("loading", "leased")
        if request is not None:
            self.host.send(commands.PollQuery(engine.asker(), request.operation))
            if request.stage == "loading":
                self._look(engine, request)

    def cancel(self, engine: Engine) -> bool:
        """An abort; half of the time it is sent twice."""
        request = engine.pick("loading", "leased")
        if request is None:
            return False
        for _ in range(self.random.randint(1, 2)):
            self.host.send(commands.CancelQuery(engine.asker(), request.operation))
        if all(copy.stage != "copying" for copy in request.ranks.values()):
            request.stage = "over"
        return True

    def revise(self, engine: Engine) -> bool:
        """The same request asks for other pages; or the same again; or an older revision by mistake."""
        request = engine.pick("loading")
        if request is None:
            return False
        roll = self.random.random()
        if roll < 0.7:
            engine.revise(request)
            self._submit(engine, request, engine.asker())
        elif roll < 0.85:
            self._submit(engine, request, engine.asker())
        elif request.revision:
            request.revision -= 1
            self._submit(engine, request, engine.asker())
        return True


def body(request: Request) -> int:
    """Tells one list of keys from another, as the hash of a message's parts would."""
    return sum(int(key[-6:]) * (index + 1) for index, key in enumerate(request.keys))
