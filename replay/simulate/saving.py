"""What simulated ranks save: pages offered, committed in one piece or two, aborted, or forgotten."""

from orbitkv.events import commands
from orbitkv.events.ids import NONE_U32
from orbitkv.events.record import Record
from orbitkv.manager.kernel import resolve_keys
from orbitkv.manager.kernel.views import group_layout, save_plan
from replay.simulate.host import Host
from replay.simulate.workload import Engine, SavePlan, staging_offsets
from replay.simulate.world_ssd import u32, u64


class Saving:
    """Every call makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random

    def begin_save(self, engine: Engine) -> None:
        if not engine.to_save:
            return
        rank, group, keys = engine.to_save.pop(0)
        session = engine.sessions[rank]
        shape = next(shape for shape in engine.groups if shape.group == group)
        count = len(keys) * engine.groups[0].page_tokens // shape.page_tokens
        layout = group_layout(self.host.state, session, group)
        if layout is None or not count:
            return
        pages, unknown = resolve_keys(self.host.state, layout.space, keys[:count])
        command = commands.BeginSave(
            session, group, pages, unknown, uncredited_pages=int(self.random.random() < 0.1)
        )
        if isinstance(self.host.send(command), Record):
            given = [buffer for buffer in save_plan(self.host.state, command) if buffer != NONE_U32]
            buffers = [(buffer, int(self.host.state.buffers.generation[buffer])) for buffer in given]
            if buffers:
                engine.plans.append(SavePlan(rank, group, session, buffers))

    def commit_save(self, engine: Engine) -> None:
        """All of it, or a part; now and then a plan is forgotten and left to its deadline."""
        if not engine.plans:
            return
        plan = engine.plans.pop(self.random.randrange(len(engine.plans)))
        if self.random.random() < 0.05:
            return
        count = len(plan.buffers) if self.random.random() < 0.8 else self.random.randint(1, len(plan.buffers))
        shape = next(shape for shape in engine.groups if shape.group == plan.group)
        offsets = staging_offsets(count, shape.payload_bytes)
        buffers, generations = zip(*plan.buffers[:count], strict=True)
        self.host.send(commands.CommitSave(plan.session, u32(buffers), u64(offsets), u64(generations)))
        if count < len(plan.buffers):
            engine.plans.append(SavePlan(plan.rank, plan.group, plan.session, plan.buffers[count:]))

    def abort_save(self, engine: Engine) -> None:
        if engine.plans:
            plan = engine.plans.pop(self.random.randrange(len(engine.plans)))
            buffers, generations = zip(*plan.buffers, strict=True)
            self.host.send(commands.AbortSave(plan.session, u32(buffers), u64(generations)))
