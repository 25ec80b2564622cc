"""Hints broken off at every stage, in every way, thousands of times: nothing stays reserved or unresolved."""

from collections.abc import Callable
from random import Random

import pytest

from orbitkv.events import commands, facts
from orbitkv.events.config import SECOND_NS
from orbitkv.events.outcomes import ReadOutcome, SyncOutcome
from tests.faults.hint_rounds import KEYS, PAIR_KEYS, RANKS, Rig

STAGES = ("queued", "submitted", "half", "prepared", "joined", "leased", "restoring", "finished")
ENDS = ("cancel", "kill", "revise", "expire", "drop", "overtake", "demand", "fail", "go back", "leave")


class Round:
    """One request: hinted, brought to a stage, broken off."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.random = rig.random
        self.instance = self.random.choice(list(RANKS))
        self.keys = (PAIR_KEYS if self.instance == "pair" else KEYS)[: self.random.randint(1, 5)]
        self.rank = self.random.randrange(RANKS[self.instance])
        rig.made += 1
        self.request = f"request {rig.made}"
        self.session = rig.sessions[self.instance, self.rank]
        self.hints: list[tuple[int, int]] = []
        """(session, ticket)"""
        self.asked: list[tuple[int, int | None]] = []
        """(session, operation)"""

    # --- to a stage -----------------------------------------------------------------------------------

    def reach(self, stage: str) -> None:
        if stage == "queued":
            self._warm("other", "before " + self.request)
        self._warm(self.instance, self.request)
        if stage in ("half", "joined") and self.random.random() < 0.7:
            self._some_reads()
        if stage in ("prepared", "leased", "restoring", "finished"):
            self.rig.settle()
        if stage == "joined":
            who = self.random.choice(("engine", "other", self.instance))
            self._ask(who, self.random.choice((self.request, "beside " + self.request)))
        if stage in ("leased", "restoring", "finished"):
            self._ask(self.instance, self.request)
            self.rig.settle()
        if stage in ("restoring", "finished"):
            self._begin()
        if stage == "finished":
            self._sync(SyncOutcome.SUCCEEDED)

    def _warm(self, instance: str, request: str) -> None:
        session = self.rig.sessions[instance, 0 if instance != self.instance else self.rank]
        keys = self.keys if instance == self.instance else KEYS[:3]
        self.hints.append((session, self.rig.hint(session, request, keys)))

    def _ask(self, instance: str, request: str) -> None:
        session = self.rig.sessions[instance, self.random.randrange(RANKS[instance])]
        keys = (PAIR_KEYS if instance == "pair" else KEYS)[: self.random.randint(1, 6)]
        self.asked.append((session, self.rig.ask(session, request, keys)))

    def _some_reads(self, outcome: ReadOutcome = ReadOutcome.WHOLE) -> None:
        reads = self.rig.in_flight()
        self.random.shuffle(reads)
        ended = reads[: (len(reads) + 1) // 2]
        if ended:
            self.rig.end_reads(ended, [outcome] * len(ended))

    def _leases(self) -> list[int]:
        return [lease for lease, row in self.rig.state.leases.items() if row.instance in self._instances()]

    def _instances(self) -> set[int]:
        return {self.rig.state.sessions[session].instance for session in self._sessions()}

    def _sessions(self) -> list[int]:
        return [self.rig.sessions[self.instance, rank] for rank in range(RANKS[self.instance])]

    def _begin(self) -> None:
        for lease in self._leases():
            for session in self._sessions():
                self.rig.send(commands.BeginRestore(session, lease))

    def _sync(self, outcome: SyncOutcome) -> None:
        for lease in self._leases():
            pages = len(self.rig.state.leases[lease].buffers)
            named = ((0, self.random.randint(1, pages)),) if outcome is SyncOutcome.SUCCEEDED else ()
            for session in self._sessions():
                report = commands.ReportSync(session, lease, outcome, named, 2, 4096, 10)
                self.rig.send(report)
                self.rig.send(report)  # lost on the way, and sent again

    # --- breaking off ---------------------------------------------------------------------------------

    def end(self, how: str) -> None:
        ways: dict[str, Callable[[], None]] = {
            "cancel": lambda: None,
            "kill": lambda: self.rig.kill(self.instance, self.rank),
            "revise": self._revise,
            "expire": lambda: self._wait(self.random.choice((6, 61, 601))),
            "drop": lambda: self._send(commands.DropDram()),
            "overtake": self._overtake,
            "demand": lambda: self._ask(self.instance, self.request),
            "fail": lambda: self._some_reads(self.random.choice(list(ReadOutcome)[1:])),
            "go back": lambda: self._send(commands.Tick(), -3600 * SECOND_NS),
            "leave": lambda: self.rig.kill("engine", 0),
        }
        ways[how]()
        if self.random.random() < 0.5:
            self._some_reads()
        self._cancel_all()
        self._cancel_all()

    def _send(self, command: commands.Command, after_ns: int = 1) -> None:
        self.rig.send(command, after_ns)

    def _wait(self, seconds: int) -> None:
        self.rig.send(commands.Tick(), seconds * SECOND_NS)

    def _revise(self) -> None:
        other = KEYS[6:8] if self.instance != "pair" else PAIR_KEYS[3:]
        keys = self.random.choice((other, self.keys[:1], [*self.keys[:2], b"nowhere"]))
        self.hints.append((self.session, self.rig.hint(self.session, self.request, keys, revision=1)))

    def _overtake(self) -> None:
        """The pages are saved while they are read."""
        for session in self._sessions():
            self.rig.save(session, self.keys)
        if self.random.random() < 0.5:
            self.rig.end_saves()
            self.rig.end_saves()

    def _cancel_all(self) -> None:
        alive = set(self.rig.sessions.values())
        for session, ticket in self.hints:
            if session in alive:
                self.rig.send(commands.CancelHint(session, ticket))
        for session, operation in self.asked:
            if session in alive and operation is not None:
                self.rig.send(commands.CancelQuery(session, operation))

    def drain(self) -> None:
        self.rig.settle()
        restoring = [
            consumer.process
            for lease in self.rig.state.leases.values()
            for consumer in lease.shares.values()
            if consumer.holds
        ]
        for place, session in list(self.rig.sessions.items()):
            if session in restoring:
                self.rig.kill(*place)
        self.rig.send(commands.Tick(), 601 * SECOND_NS)
        self.rig.settle()
        self.rig.assert_nothing_is_left()


def _a_hint_is_admitted(rig: Rig) -> None:
    rig.connect()
    rig.refill()
    rig.made += 1
    keys = KEYS[: rig.random.randint(1, 5)]
    ticket = rig.ticket(rig.sessions["engine", 0])
    session = rig.sessions["engine", 0]
    part = rig.part(session, keys)
    told = rig.send(commands.WarmPrefix(session, f"again {rig.made}", 0, ticket, 0, (part,), 0))
    assert any(isinstance(event, facts.HintAdmitted) for event in told), told
    rig.settle()
    rig.assert_nothing_is_left()
    rig.send(commands.DropDram())


def _play(seed: int, charge: str, rounds: int) -> Rig:
    rig = Rig(Random(seed), charge)
    for number in range(rounds):
        turn = Round(rig)
        turn.reach(STAGES[number % len(STAGES)])
        turn.end(ENDS[number // len(STAGES) % len(ENDS)])
        turn.drain()
        _a_hint_is_admitted(rig)
    rig.check_twin()
    return rig


@pytest.mark.parametrize("charge", ["owner", "shared"])
def test_hints_are_broken_off_at_every_stage(charge: str) -> None:
    rig = _play(1, charge, len(STAGES) * len(ENDS))
    totals = rig.state.totals
    assert totals.restored_bytes and len(totals.unused_bytes) >= 3 and len(totals.hint_ends) >= 5, totals
    assert len(totals.lease_ends) >= 3


def _crowd(seed: int, charge: str, rounds: int) -> Rig:
    """Several requests at once, each at its own stage, broken off in no order."""
    rig = Rig(Random(seed), charge)
    for _ in range(rounds):
        turns: list[Round] = []
        for _ in range(rig.random.randint(2, 6)):
            rig.connect()
            turns.append(Round(rig))
            turns[-1].reach(rig.random.choice(STAGES))
            if rig.random.random() < 0.4:
                rig.random.choice(turns).end(rig.random.choice(ENDS))
        rig.connect()
        for turn in turns:
            turn.end("cancel")
        turns[0].drain()
        _a_hint_is_admitted(rig)
    rig.check_twin()
    return rig


@pytest.mark.parametrize("charge", ["owner", "shared"])
def test_hints_of_a_crowd_are_broken_off_in_no_order(charge: str) -> None:
    totals = _crowd(1, charge, 25).state.totals
    assert len(totals.hint_skips) >= 2 and totals.coalesced_reads, totals


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["owner", "shared"])
def test_hints_of_many_crowds_are_broken_off(charge: str) -> None:
    for seed in range(20):
        _crowd(200 + seed, charge, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("charge", ["owner", "shared"])
def test_five_thousand_hints_are_broken_off(charge: str, seed: int) -> None:
    _play(100 + seed, charge, 500)
