"""The kernel against the observer, driven by Hypothesis: any order of wishes, reports, deaths and clocks.

What Hypothesis finds, it tells as a list of rule calls, and the observer adds the records that led there.
At the end of every run everything is drained, and nothing may be left.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from orbitkv.events import commands
from orbitkv.events.outcomes import SyncOutcome
from tests.kernel.machine_world import PLACES, WorldMachine, anyone, choice, prompts, rank_names
from tests.kernel.storyteller import PAYLOAD_BYTES
from tests.models.rows import Lease


class KernelMachine(WorldMachine):
    """What engines wish for: hints, queries, restores, saves."""

    # --- hints ----------------------------------------------------------------------------------------

    @rule(name=anyone, keys=prompts, number=st.integers(0, 5), revision=st.integers(0, 2))
    def warm(self, name: str, keys: list[str], number: int, revision: int) -> None:
        if name in self.story.sessions:
            request = f"{PLACES[name][0]}-{number}"
            self.story.wish_warm(name, request, *keys, f"revision={revision}")

    @precondition(lambda self: self.story.hints)
    @rule(which=choice)
    def unwarm(self, which: int) -> None:
        name, request = sorted(self.story.hints)[which % len(self.story.hints)]
        if name in self.story.sessions:
            self.story.wish_unwarm(name, request)

    @rule(keys=prompts, letters=st.integers(1, 4))
    def a_quiet_engine_hints(self, keys: list[str], letters: int) -> None:
        """Hints come in when nobody else wants anything: what is open is cancelled, DRAM emptied."""
        session = self.living("f0")
        if session is None:
            return
        for operation in list(self.story.observer.books.live_demands()):
            asker = next((n for n in PLACES if self.living(n) == operation.session), None)
            if asker is not None:
                self.story.send(commands.CancelQuery(operation.session, operation.number))
        self.story.wish_drop_dram()
        self.story.wish_warm("f0", f"quiet-{letters}", *keys[:letters])

    # --- queries and leases ----------------------------------------------------------------------------

    @rule(name=anyone, keys=prompts, number=st.integers(0, 5), revision=st.integers(0, 2))
    def ask(self, name: str, keys: list[str], number: int, revision: int) -> None:
        if name in self.story.sessions:
            request = f"{PLACES[name][0]}-{number}"
            self.story.wish_ask(name, request, *keys, f"revision={revision}")
            if request in self.story.operations and request not in self.asked:
                self.asked.append(request)

    @precondition(lambda self: self.asked)
    @rule(name=anyone, which=choice)
    def cancel(self, name: str, which: int) -> None:
        if name in self.story.sessions:
            self.story.wish_cancel(name, self.asked[which % len(self.asked)])

    def leases(self) -> list[Lease]:
        return [lease for lease in self.story.observer.books.leases.values() if not lease.released]

    @precondition(lambda self: self.leases())
    @rule(name=rank_names, which=choice)
    def begin(self, name: str, which: int) -> None:
        leases = self.leases()
        if name in self.story.sessions:
            lease = leases[which % len(leases)]
            self.story.send(commands.BeginRestore(self.story.sessions[name], lease.number))

    @precondition(lambda self: self.leases())
    @rule(name=rank_names, which=choice, outcome=st.sampled_from(SyncOutcome), half=st.booleans())
    def sync(self, name: str, which: int, outcome: SyncOutcome, half: bool) -> None:
        leases = self.leases()
        if name not in self.story.sessions:
            return
        lease = leases[which % len(leases)]
        copied = len(lease.pages) // 2 if half else len(lease.pages)
        ranges = ((0, copied),) if copied and outcome == SyncOutcome.SUCCEEDED else ()
        session = self.story.sessions[name]
        self.story.send(
            commands.ReportSync(session, lease.number, outcome, ranges, 4, copied * PAYLOAD_BYTES, 10)
        )

    @precondition(lambda self: self.leases())
    @rule(name=anyone, which=choice)
    def release(self, name: str, which: int) -> None:
        leases = self.leases()
        if name in self.story.sessions:
            lease = leases[which % len(leases)]
            self.story.send(commands.ReleaseLease(self.story.sessions[name], lease.number))


TestKernelMachine = KernelMachine.TestCase
TestKernelMachine.settings = settings(
    max_examples=40,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
