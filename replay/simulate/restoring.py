"""What simulated ranks do with a lease: copy all or a part of it, report it, twice, late, or let it go."""

from orbitkv.events import commands
from orbitkv.manager.kernel import Refused
from orbitkv.manager.kernel.views import page_name, pool_offsets
from replay.simulate.host import Host
from replay.simulate.workload import Engine, Request


class Restoring:
    """Every call makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random

    def begin_restore(self, engine: Engine) -> None:
        request = engine.pick("leased")
        if request is None:
            return
        waiting = [rank for rank, copy in request.ranks.items() if copy.stage == "waiting"]
        if not waiting:
            return
        rank = self.random.choice(waiting)
        session = engine.sessions[rank]
        if isinstance(self.host.send(commands.BeginRestore(session, request.lease)), Refused):
            request.ranks[rank].stage = "done"
            self._finish(engine, request)
            return
        request.ranks[rank].stage = "copying"
        self._check_content(request)

    def _check_content(self, request: Request) -> None:
        """What the engine would copy is what it asked for."""
        lease = self.host.state.leases[request.lease]
        offsets = pool_offsets(self.host.state, lease.buffers)
        pages = self.host.state.buffers.page[lease.buffers].tolist()
        names = [page_name(self.host.state, page).key for page in pages]
        if not set(names) <= set(request.keys):
            raise AssertionError(f"lease {request.lease} holds pages that {request.name} did not ask for")
        self.host.world.check_pages(names, offsets)

    def sync(self, engine: Engine) -> None:
        request = engine.pick("leased")
        if request is None:
            return
        copying = [rank for rank, copy in request.ranks.items() if copy.stage == "copying"]
        if not copying or self.random.random() < 0.1:
            return
        rank = self.random.choice(copying)
        self._check_content(request)
        self.host.send(engine.sync_report(request, engine.sessions[rank]))
        request.ranks[rank].stage = "done"
        self._finish(engine, request)

    def sync_again(self, engine: Engine) -> bool:
        """A report that was lost on the way back is sent again."""
        request = engine.pick("leased")
        ranks = request.ranks.items() if request is not None else ()
        done = [rank for rank, copy in ranks if copy.stage == "done" and rank in engine.sessions]
        if request is None or not done:
            return False
        self.host.send(engine.sync_report(request, engine.sessions[done[0]]))
        return True

    def _finish(self, engine: Engine, request: Request) -> None:
        if all(copy.stage == "done" for copy in request.ranks.values()):
            engine.computed(request)

    def release(self, engine: Engine) -> None:
        request = engine.pick("leased")
        if request is None:
            return
        session = engine.asker()
        self.host.send(commands.ReleaseLease(session, request.lease))
        scheduler = session == engine.scheduler
        for rank, copy in request.ranks.items():
            if copy.stage == "waiting" and (scheduler or engine.sessions.get(rank) == session):
                copy.stage = "done"
        self._finish(engine, request)
