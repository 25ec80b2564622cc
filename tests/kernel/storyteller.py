"""Stories: golden transcripts as text that people read and write.

A story is a file of lines. `# ...` is prose. `> ...` is a wish in a few words (the table below);
beneath it stands what came of it: the facts of the record, or the refusal, or that nothing changed, and
the kernel's state line. `> quietly ...` tells the state line alone. A test tells the story again and
compares; `pytest --golden-rewrite` writes down what is told now.

    start [pool=PAGES] [ssd=SEGMENTS] [setting=value ...]
    join NAME INSTANCE RANK/WORLD [process=N] [payload=BYTES] [slices=a,b*,...] [model=LETTER] [host=H]
         [hash=process] [end=hidden]
    ask WHO REQUEST KEY ... [revision=N] [attempt=N]        poll|cancel WHO REQUEST
    warm WHO REQUEST KEY ... [revision=N] [attempt=N] [ticket=N]        unwarm WHO REQUEST
    begin|release WHO REQUEST        sync WHO REQUEST succeeded|stopped|unknown [0-2 3-4 ...]
    offer WHO KEY ...        commit|abort|copied|lost WHO KEY ...        seal KEY ...
    read KEY=whole|short|failed|corrupt|other_page ...      written KEY[=failed|short|no_space] ...
    publish KEY ... by WHO ...      (offer, commit, copied, seal, and written when a write was submitted)
    repeat      (the last report comes once more)           wait SECONDS      tick
    close WHO CAUSE      gone PROCESS [operator]      drop-dram      store writable|full      shutdown
    killed      (what a killed manager's successor writes at the end of its chain)
    crash       (the log is folded from its bytes; a new incarnation recovers what the SSD holds)
"""

from collections.abc import Iterable

from orbitkv.events import commands
from orbitkv.events.codec import decode_records
from orbitkv.events.commands import Command
from orbitkv.events.config import SECOND_NS, KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry, padded_bytes
from orbitkv.events.ids import ALIGNMENT_BYTES, NONE_U32, SCHEDULER_RANK, TRAILER_BYTES
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, SessionEnd, SyncOutcome, WriteOutcome
from orbitkv.manager.kernel import KERNEL_REVISION, Refused, digest, fold, new_state, resolve_keys
from orbitkv.manager.kernel.views import find_operation, group_layout, query_view
from tests.kernel.teller import Teller
from tests.models.columns import column, wide_column

PAYLOAD_BYTES = 4096
IMAGE_BYTES = PAYLOAD_BYTES + TRAILER_BYTES
SUPERBLOCK_PAGES = 4
SEGMENT_PAGES = 4


class Storyteller(Teller):
    """Every wish of the table is a method named after it."""

    # --- the beginning, sessions -----------------------------------------------------------------------

    def wish_start(self, *settings: str) -> None:
        given = dict(setting.split("=") for setting in settings)
        pages = int(given.pop("pool", "16"))
        pool_bytes = pages * IMAGE_BYTES
        budget = pool_bytes * 3 // 4
        self.config = KernelConfig(
            pool_bytes=pool_bytes,
            superblock_bytes=int(given.pop("superblock", str(SUPERBLOCK_PAGES))) * IMAGE_BYTES,
            query_budget_bytes=int(given.pop("budget", str(budget // PAYLOAD_BYTES))) * PAYLOAD_BYTES,
            instance_query_budget_bytes=int(given.pop("share", str(budget // PAYLOAD_BYTES))) * PAYLOAD_BYTES,
            ssd_bytes=int(given.pop("ssd", "0")) * SEGMENT_PAGES * IMAGE_BYTES,
            ssd_segment_bytes=SEGMENT_PAGES * IMAGE_BYTES,
            ssd_slots_per_segment_max=16,
            demand_prefix_cut=given.pop("demand_prefix_cut", "0") == "1",
            charge=given.pop("charge", "owner"),
            **{name: int(value) for name, value in given.items()},
        )
        self.send(commands.Start(1, KERNEL_REVISION, self.config, host="here"))

    def wish_join(self, name: str, instance: str, place: str, *settings: str) -> None:
        given = dict(setting.split("=") for setting in settings)
        rank, world = (int(number) for number in place.split("/"))
        session = len(self.tickets) + 1
        self.tickets[session], self.ranks[session] = 0, rank
        process = int(given.get("process", session))
        opened = self.send(
            commands.OpenSession(session, process, 4000 + process, 1000, given.get("end") != "hidden")
        )
        if isinstance(opened, Refused):
            return
        self.sessions[name] = session
        payload = int(given.get("payload", PAYLOAD_BYTES))
        slices = given.get("slices", f"rank{rank}").split(",")
        pieces = tuple(SliceGeometry(piece.rstrip("*"), payload, piece.endswith("*")) for piece in slices)
        self.send(
            commands.RegisterRank(
                session=session,
                instance=instance,
                rank=rank,
                world_size=world,
                host=given.get("host", "here"),
                namespace_digest=given.get("model", "m").encode() * 16,
                namespace_document="{}",
                hash_process_dependent=given.get("hash") == "process",
                groups=() if rank == SCHEDULER_RANK else (GroupGeometry(0, 64, pieces),),
                staging_bytes=1 << 20,
            )
        )

    def wish_close(self, who: str, cause: str) -> None:
        self.send(commands.CloseSession(self.sessions[who], SessionEnd[cause.upper()]))

    def wish_gone(self, process: str, by: str = "") -> None:
        self.send(commands.ReleaseProcess(int(process), by_operator=by == "operator"))

    # --- queries and leases ----------------------------------------------------------------------------

    def wish_ask(self, who: str, request: str, *words: str) -> None:
        given = dict(word.split("=") for word in words if "=" in word)
        keys = [word.encode() for word in words if "=" not in word]
        session = self.sessions[who]
        pages, unknown = self._resolved(session, keys)
        attempt = int(given.get("attempt", "0"))
        ticket = int(given.get("ticket", self.tickets[session] + 1))
        self.tickets[session] = max(ticket, self.tickets[session])
        part = commands.QueryPart(0, 64, int(given.get("trailing", "0")), pages, unknown)
        revision = int(given.get("revision", "0"))
        command = commands.SubmitQuery(session, request, attempt, ticket, revision, (part,), _body(keys))
        if not isinstance(self.send(command), Refused):
            operation = find_operation(self.state, session, request, attempt)
            assert operation is not None
            self.operations[request] = operation
            self._view(request)

    def _resolved(self, session: int, keys: list[bytes]) -> tuple[bytes, tuple[bytes, ...]]:
        layout = group_layout(self.state, session, 0)
        if layout is None:
            return column([NONE_U32] * len(keys)), tuple(keys)
        return resolve_keys(self.state, layout.space, keys)

    def _view(self, request: str) -> None:
        view = query_view(self.state, self.operations[request])
        if view.lease:
            self.leases[request] = view.lease
        pages = 0 if view.buffers is None else len(view.buffers)
        lease = f", lease {view.lease} over {pages} pages" if view.lease else ""
        self.told.append(f"{request} is {view.status.name.lower()}{lease}")

    def wish_poll(self, who: str, request: str) -> None:
        self.send(commands.PollQuery(self.sessions[who], self.operations[request]))
        self._view(request)

    def wish_cancel(self, who: str, request: str) -> None:
        self.send(commands.CancelQuery(self.sessions[who], self.operations[request]))

    def wish_warm(self, who: str, request: str, *words: str) -> None:
        given = dict(word.split("=") for word in words if "=" in word)
        keys = [word.encode() for word in words if "=" not in word]
        session = self.sessions[who]
        ticket = int(given.get("ticket", self.tickets[session] + 1))
        self.tickets[session] = max(ticket, self.tickets[session])
        self.hints[who, request] = ticket
        part = commands.QueryPart(0, 64, int(given.get("trailing", "0")), *self._resolved(session, keys))
        attempt, revision = int(given.get("attempt", "0")), int(given.get("revision", "0"))
        body = _body(keys)
        self.send(commands.WarmPrefix(session, request, attempt, ticket, revision, (part,), body))

    def wish_unwarm(self, who: str, request: str) -> None:
        self.send(commands.CancelHint(self.sessions[who], self.hints[who, request]))

    def _lease(self, request: str) -> int:
        view = query_view(self.state, self.operations[request])
        return view.lease or self.leases.get(request, 0)

    def wish_begin(self, who: str, request: str) -> None:
        self.leases[request] = self._lease(request)
        self.send(commands.BeginRestore(self.sessions[who], self.leases[request]))

    def wish_release(self, who: str, request: str) -> None:
        self.send(commands.ReleaseLease(self.sessions[who], self._lease(request)))

    def wish_sync(self, who: str, request: str, outcome: str, *ranges: str) -> None:
        spans = tuple((int(low), int(high)) for low, high in (span.split("-") for span in ranges))
        copied = sum(high - low for low, high in spans) * PAYLOAD_BYTES
        self.send(
            commands.ReportSync(
                self.sessions[who], self._lease(request), SyncOutcome[outcome.upper()], spans, 4, copied, 100
            )
        )

    # --- saves and the SSD -----------------------------------------------------------------------------

    def wish_offer(self, who: str, *words: str) -> None:
        keys = [word.encode() for word in words if "=" not in word]
        given = dict(word.split("=") for word in words if "=" in word)
        session = self.sessions[who]
        pages, unknown = self._resolved(session, keys)
        uncredited = int(given.get("uncredited", "0"))
        self.send(commands.BeginSave(session, 0, pages, unknown, uncredited_pages=uncredited))
        for key in keys:
            if key in self.buffers:
                self.plans[who, key] = (self.buffers[key], self.generations[self.buffers[key]])

    def _planned(self, who: str, keys: tuple[str, ...]) -> tuple[bytes, bytes]:
        """Buffers and generations as the rank was given them, however long ago."""
        given = [self.plans[who, key.encode()] for key in keys]
        return column(buffer for buffer, _ in given), wide_column(generation for _, generation in given)

    def _of(self, keys: Iterable[str]) -> bytes:
        return column(self.buffers[key.encode()] for key in keys)

    def wish_commit(self, who: str, *keys: str) -> None:
        offsets = wide_column(index * PAYLOAD_BYTES for index in range(len(keys)))
        buffers, generations = self._planned(who, keys)
        self.send(commands.CommitSave(self.sessions[who], buffers, offsets, generations))

    def wish_abort(self, who: str, *keys: str) -> None:
        self.send(commands.AbortSave(self.sessions[who], *self._planned(who, keys)))

    def wish_copied(self, who: str, *keys: str) -> None:
        self._copies(who, keys, CopyOutcome.COPIED)

    def wish_lost(self, who: str, *keys: str) -> None:
        self._copies(who, keys, CopyOutcome.SOURCE_GONE)

    def _copies(self, who: str, keys: tuple[str, ...], outcome: CopyOutcome) -> None:
        session = self.sessions[who]
        rank = self.ranks[session]
        outcomes = bytes([outcome]) * len(keys)
        self._report(commands.CompleteCopies(session, rank, self._of(keys), outcomes, 50))

    def wish_seal(self, *keys: str) -> None:
        self._report(commands.CompleteSeals(self._of(keys)))

    def wish_publish(self, *words: str) -> None:
        keys, ranks = words[: words.index("by")], words[words.index("by") + 1 :]
        for who in ranks:
            self.wish_offer(who, *keys)
        for who in ranks:
            self.wish_commit(who, *keys)
            self.wish_copied(who, *keys)
        self.wish_seal(*keys)
        written = [key for key in keys if key.encode() in self.writing]
        if written:
            self.wish_written(*written)

    def wish_written(self, *words: str) -> None:
        slots, outcomes = [], []
        for word in words:
            key, _, outcome = word.partition("=")
            slots.append(self.slots[key.encode()])
            outcomes.append(WriteOutcome[(outcome or "written").upper()])
            self.writing.discard(key.encode())
        self._report(commands.CompleteWrites(column(slots), bytes(outcomes), column([70] * len(slots))))

    def wish_read(self, *words: str) -> None:
        pairs = [word.split("=") for word in words]
        keys = [key.encode() for key, _ in pairs]
        reads = [self.reads[key] for key in keys]
        outcomes = [ReadOutcome[outcome.upper()] for _, outcome in pairs]
        sizes = [
            self.footprints[key] + TRAILER_BYTES if outcome == ReadOutcome.WHOLE else 0
            for key, outcome in zip(keys, outcomes, strict=True)
        ]
        self._report(
            commands.CompleteReads(column(reads), bytes(outcomes), column(sizes), column([90] * len(reads)))
        )

    def _report(self, command: Command) -> None:
        self.last_report = command
        self.send(command)

    def wish_repeat(self) -> None:
        assert self.last_report is not None
        self.send(self.last_report)

    # --- time, the operator, the end -------------------------------------------------------------------

    def wish_wait(self, seconds: str) -> None:
        self.clock_ns += int(float(seconds) * SECOND_NS)
        self.send(commands.Tick())

    def wish_tick(self) -> None:
        self.send(commands.Tick())

    def wish_drop_dram(self) -> None:
        self.send(commands.DropDram())

    def wish_store(self, state: str) -> None:
        writable = state == "writable"
        self.send(commands.SetStore(writable, "" if writable else "no space left on the device"))

    def wish_shutdown(self) -> None:
        self.send(commands.BeginShutdown())

    def wish_killed(self) -> None:
        self.send(commands.CloseIncarnation(lost_tail=True))

    def wish_crash(self) -> None:
        """kill -9, and the next incarnation."""
        folded = new_state()
        for data in self.records:
            for record in decode_records(data):
                fold(folded, record)
        assert digest(folded) == digest(self.state), "the log alone leads to the same state"
        found, incarnation = self._directory(), self.state.incarnation + 1
        self.forget()
        self.send(commands.Start(incarnation, KERNEL_REVISION, self.config, host="here"))
        for command in found:
            self.send(command)

    def _directory(self) -> list[commands.RecoverSegment]:
        books = self.observer.books
        found = []
        for number, segment in sorted(books.segments.items()):
            slots = [
                slot
                for slot, row in sorted(books.slots.items())
                if slot // 16 == number and row.state == "written"
            ]
            rotten = [
                slot
                for slot, row in sorted(books.slots.items())
                if slot // 16 == number and row.state == "quarantined"
            ]
            spaces = [books.pages[books.slots[slot].page][0] for slot in slots]
            footprint = padded_bytes(PAYLOAD_BYTES) // ALIGNMENT_BYTES
            found.append(
                commands.RecoverSegment(
                    number,
                    segment.slot_bytes,
                    column(slots),
                    column(spaces),
                    tuple(books.spaces[space] for space in range(len(books.spaces))),
                    tuple(self.written[slot][0] for slot in slots),
                    wide_column(self.written[slot][1] for slot in slots),
                    column([self.state.incarnation] * len(slots)),
                    column([footprint] * len(slots)),
                    column(rotten),
                )
            )
        return found


def _body(keys: list[bytes]) -> int:
    """Stands for the digest of what was asked."""
    return sum(sum(key) << (8 * index) for index, key in enumerate(keys)) & (1 << 64) - 1
