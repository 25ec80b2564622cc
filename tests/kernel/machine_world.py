"""The machine's world: sessions that come and go, saves, the device's reports, the clock, crashes, the drain.

`test_machine` adds what engines ask for. Everything here may happen at any time, whoever is there.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from orbitkv.events import commands
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, SessionEnd, WriteOutcome
from orbitkv.manager.kernel import digest, outstanding, restore, snapshot
from orbitkv.manager.kernel.views import save_plan
from tests.kernel.storyteller import IMAGE_BYTES, PAYLOAD_BYTES, Storyteller
from tests.models.columns import column, wide_column
from tests.models.rows import Read

KEYS = "abcdefghij"
PLACES = {"e0": ("engine", "0/2"), "e1": ("engine", "1/2"), "f0": ("other", "0/1"), "s0": ("other", "-1/1")}
RANKS = {"e0": 0, "e1": 1, "f0": 0}

anyone = st.sampled_from(sorted(PLACES))
rank_names = st.sampled_from(sorted(RANKS))
choice = st.integers(0, 30)
"""Which of the things at hand: taken modulo their number."""
prefixes = st.integers(1, len(KEYS)).map(lambda length: list(KEYS[:length]))
branches = st.builds(
    lambda shared, start: list(KEYS[:shared]) + [f"{letter}{start}" for letter in KEYS[:2]],
    st.integers(0, 3),
    st.integers(1, 2),
)
prompts = prefixes | branches


class WorldMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Storyteller()
        self.processes = 0
        self.dead: list[int] = []
        self.asked: list[str] = []
        self.plans: list[tuple[int, list[tuple[int, int]]]] = []
        """(session, buffers with their generations) as the ranks were given them."""
        self.last_reads: commands.CompleteReads | None = None

    @initialize(
        pool=st.sampled_from((8, 12, 16)),
        ssd=st.sampled_from((0, 2, 2)),
        share=st.integers(4, 12),
        cut=st.booleans(),
        queue=st.sampled_from((1, 64)),
        in_flight=st.sampled_from((2, 16)),
        charge=st.sampled_from(("owner", "shared")),
        hints=st.sampled_from((1, 2, 16)),
        published=st.integers(0, 4),
    )
    def start(
        self,
        pool: int,
        ssd: int,
        share: int,
        cut: bool,
        queue: int,
        in_flight: int,
        charge: str,
        hints: int,
        published: int,
    ) -> None:
        self.story.wish_start(
            f"pool={pool}",
            f"ssd={ssd}",
            f"share={share}",
            "superblock=4",
            f"demand_prefix_cut={int(cut)}",
            f"ssd_write_queue_pages_max={queue}",
            f"ssd_inflight_bytes_max={in_flight * IMAGE_BYTES}",
            f"ssd_foreground_reserved_bytes={IMAGE_BYTES}",
            "operations_per_session_max=4",
            "decisions_remembered_max=3",
            f"charge={charge}",
            f"hints_per_session_max={hints}",
            "speculative_divisor=2",
        )
        for name in PLACES:
            self.connect(name)
        if published:
            self.publish(published)

    def connect(self, name: str) -> None:
        self.processes += 1
        self.story.wish_join(name, *PLACES[name], f"process={self.processes}")

    # --- engines --------------------------------------------------------------------------------------

    def living(self, name: str) -> int | None:
        session = self.story.sessions.get(name)
        row = self.story.observer.books.sessions.get(session) if session is not None else None
        return session if row is not None and row.closed is None and row.instance is not None else None

    @rule(name=anyone, again=st.booleans())
    def join(self, name: str, again: bool) -> None:
        session = self.living(name)
        if session is None:
            self.connect(name)
        elif again:
            process = self.story.observer.books.sessions[session].process
            self.story.wish_join(name, *PLACES[name], f"process={process}")

    @rule(name=anyone, cause=st.sampled_from((SessionEnd.CLOSED, SessionEnd.BROKEN)), dies=st.booleans())
    def leave(self, name: str, cause: SessionEnd, dies: bool) -> None:
        session = self.living(name)
        if session is None:
            self.connect(name)
        else:
            self.story.wish_close(name, cause.name)
            if dies:
                self.dead.append(self.story.observer.books.sessions[session].process)

    @precondition(lambda self: self.dead)
    @rule(operator=st.booleans())
    def bury(self, operator: bool) -> None:
        self.story.wish_gone(str(self.dead.pop(0)), "operator" if operator else "")

    # --- saves ----------------------------------------------------------------------------------------

    @rule(name=rank_names, keys=prompts, credit=st.sampled_from((1, NONE_U32)))
    def offer(self, name: str, keys: list[str], credit: int) -> None:
        session = self.living(name)
        if session is None:
            return
        pages, unknown = self.story._resolved(session, [key.encode() for key in keys])
        command = commands.BeginSave(session, 0, pages, unknown, 0, credit)
        self.story.send(command)
        if (
            self.story.observer.books.instances[
                self.story.observer.books.sessions[session].instance or 0
            ].sealed
            and not self.story.state.shutting_down
        ):
            given = [buffer for buffer in save_plan(self.story.state, command) if buffer != NONE_U32]
            if given:
                named = [(buffer, self.story.generations[buffer]) for buffer in given]
                self.plans.append((session, named))

    @precondition(lambda self: self.plans)
    @rule(which=choice, keep=st.booleans(), abort=st.booleans())
    def commit(self, which: int, keep: bool, abort: bool) -> None:
        """A plan may be used twice, late, or after its save is over: generations tell."""
        session, given = self.plans[which % len(self.plans)]
        if not keep:
            self.plans.remove((session, given))
        buffers = column(buffer for buffer, _ in given)
        generations = wide_column(generation for _, generation in given)
        if abort:
            self.story.send(commands.AbortSave(session, buffers, generations))
        else:
            offsets = wide_column(index * PAYLOAD_BYTES for index in range(len(given)))
            self.story.send(commands.CommitSave(session, buffers, offsets, generations))

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        """The single rank saves the first few pages and everything goes well, up to the SSD."""
        books = self.story.observer.books
        self.offer("f0", list(KEYS[:count]), NONE_U32)
        if self.plans:
            self.commit(-1, False, False)
        while books.copies_in_flight:
            self.copies_end(0, CopyOutcome.COPIED)
        while books.seals_in_flight:
            self.seals_end(4)
        while books.writes_in_flight:
            self.write_ends(0, WriteOutcome.WRITTEN)

    # --- the world ------------------------------------------------------------------------------------

    def reads(self) -> list[Read]:
        return list(self.story.observer.books.reads_in_flight())

    @precondition(lambda self: self.reads())
    @rule(which=choice, outcomes=st.lists(st.sampled_from(ReadOutcome), min_size=1, max_size=4))
    def reads_end(self, which: int, outcomes: list[ReadOutcome]) -> None:
        reads = self.reads()
        ended = [
            reads[(which + index) % len(reads)].number for index in range(min(len(outcomes), len(reads)))
        ]
        sizes = [IMAGE_BYTES] * len(ended)
        self.last_reads = commands.CompleteReads(
            column(ended), bytes(outcomes[: len(ended)]), column(sizes), column(sizes)
        )
        self.story.send(self.last_reads)

    @precondition(lambda self: self.last_reads is not None)
    @rule()
    def reads_end_again(self) -> None:
        assert self.last_reads is not None
        self.story.send(self.last_reads)

    @precondition(lambda self: self.story.observer.books.writes_in_flight)
    @rule(which=choice, outcome=st.sampled_from(WriteOutcome))
    def write_ends(self, which: int, outcome: WriteOutcome) -> None:
        slots = sorted(self.story.observer.books.writes_in_flight)
        slot = slots[which % len(slots)]
        self.story.send(commands.CompleteWrites(column([slot]), bytes([outcome]), column([5])))

    @precondition(lambda self: self.story.observer.books.copies_in_flight)
    @rule(
        which=choice,
        outcome=st.sampled_from((CopyOutcome.COPIED, CopyOutcome.COPIED, CopyOutcome.SOURCE_GONE)),
    )
    def copies_end(self, which: int, outcome: CopyOutcome) -> None:
        copies = sorted(self.story.observer.books.copies_in_flight)
        session = copies[which % len(copies)][0]
        buffers = [buffer for by, buffer in copies if by == session]
        rank = self.story.observer.books.sessions[session].rank
        assert rank is not None
        outcomes = bytes([outcome]) * len(buffers)
        self.story.send(commands.CompleteCopies(session, rank, column(buffers), outcomes, 5))

    @precondition(lambda self: self.story.observer.books.seals_in_flight)
    @rule(count=st.integers(1, 4))
    def seals_end(self, count: int) -> None:
        buffers = sorted(self.story.observer.books.seals_in_flight)[:count]
        self.story.send(commands.CompleteSeals(column(buffers)))

    @rule(seconds=st.sampled_from((0.001, 1.0, 61.0, 301.0, 601.0)))
    def time_passes(self, seconds: float) -> None:
        self.story.wish_wait(str(seconds))

    @rule()
    def drop_dram(self) -> None:
        self.story.wish_drop_dram()

    @rule(writable=st.booleans())
    def store_changes(self, writable: bool) -> None:
        self.story.wish_store("writable" if writable else "full")

    @rule()
    def restored_from_snapshot(self) -> None:
        """Everything goes on from the snapshot's state as if nothing had been."""
        again = restore(snapshot(self.story.state))
        assert digest(again) == digest(self.story.state)
        self.story.state = again

    @rule(missing=st.sampled_from((None, None, *PLACES)))
    def crash(self, missing: str | None) -> None:
        """The observer of the next incarnation starts with empty books, as the kernel does.

        Everybody connects again, or nearly.
        """
        self.story.wish_crash()
        self.plans.clear()
        self.asked.clear()
        self.dead.clear()
        self.last_reads = None
        self.processes = 0
        for name in PLACES:
            if name != missing:
                self.connect(name)

    def teardown(self) -> None:
        if not self.story.state.started or self.story.broken:
            return
        self.story.wish_shutdown()
        for session in sorted(self.story.state.sessions):
            self.story.send(commands.CloseSession(session, SessionEnd.SHUTDOWN))
        for process in sorted(self.story.state.processes):
            self.story.send(commands.ReleaseProcess(process))
        books = self.story.observer.books
        for _ in range(1000):
            if not outstanding(self.story.state).device_work:
                break
            if books.copies_in_flight:
                self.copies_end(0, CopyOutcome.COPIED)
            elif books.seals_in_flight:
                self.seals_end(4)
            elif books.writes_in_flight:
                self.write_ends(0, WriteOutcome.WRITTEN)
            else:
                self.reads_end(0, [ReadOutcome.WHOLE] * 4)
        assert not outstanding(self.story.state).device_work, "the drain ends"
        self.story.observer.check_drained()
        assert self.story.state.reserved_bytes == 0
