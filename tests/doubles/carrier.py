"""A carrier that does the work at once and loses, delays or doubles the news of it."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import CopyOutcome
from orbitkv.manager.ports import CarrierDone, CopyDone, PageIdentity, PageSeal, SealDone, SliceCopy
from tests.doubles.outbox import Outbox

ELAPSED_US = 50


class CompletionFault(Enum):
    LOSE = "the work is done and nobody hears of it"
    DELAY = "the completion comes with `release()`"
    DOUBLE = "the completion comes twice"


def stub_seal(view: memoryview, identity: PageIdentity) -> None:
    """A trailer that tells pages apart and is otherwise nothing like the real one."""
    trailer = identity.key + identity.generation.to_bytes(8, "little")
    view[-TRAILER_BYTES:] = trailer.ljust(TRAILER_BYTES, b"\0")


class MemoryCarrier:
    """Implements `ports.Carrier` over a writable view of the pool.

    `script[token]` is the fault of one completion, used once; otherwise `probabilities` decide by the
    seed. `delayed` and `lost` keep what has not been reported.
    """

    def __init__(
        self,
        pool: memoryview,
        *,
        seed: int = 0,
        probabilities: Mapping[CompletionFault, float] | None = None,
        seal: Callable[[memoryview, PageIdentity], None] = stub_seal,
    ) -> None:
        self.script: dict[int, CompletionFault] = {}
        self.delayed: list[CarrierDone] = []
        self.lost: list[CarrierDone] = []
        self.sealed: list[PageSeal] = []
        self.copied: list[SliceCopy] = []
        self.closed = False
        self._pool = pool
        self._windows: dict[int, tuple[int, int]] = {}
        self._random = random.Random(seed)
        self._probabilities = dict(probabilities or {})
        self._seal = seal
        self._outbox: Outbox[CarrierDone] = Outbox()

    def attach_staging(self, session: int, fd: int, staging_bytes: int) -> None:
        assert session not in self._windows, f"session {session} has a window already"
        if os.fstat(fd).st_size < staging_bytes:
            os.close(fd)
            raise ValueError("the staging window is shorter than announced")
        self._windows[session] = (fd, staging_bytes)

    def detach_staging(self, session: int) -> None:
        fd, _ = self._windows.pop(session, (-1, 0))
        if fd >= 0:
            os.close(fd)

    def submit_copies(self, copies: Sequence[SliceCopy]) -> None:
        assert not self.closed, "the carrier is closed"
        for copy in copies:
            self._report(CopyDone(copy.token, self._copy(copy), ELAPSED_US))

    def submit_seals(self, seals: Sequence[PageSeal]) -> None:
        assert not self.closed, "the carrier is closed"
        for page in seals:
            end = page.pool_offset + page.footprint_bytes + TRAILER_BYTES
            assert 0 <= page.pool_offset < end <= len(self._pool), f"outside the pool: {page}"
            self._seal(self._pool[page.pool_offset : end], page.identity)
            self.sealed.append(page)
            self._report(SealDone(page.token, ELAPSED_US))

    async def completions(self) -> Sequence[CarrierDone]:
        return await self._outbox.take_all()

    def completions_nowait(self) -> Sequence[CarrierDone]:
        return self._outbox.take_nowait()

    def release(self) -> None:
        """Report everything that was delayed, the latest first: an order nobody may rely on."""
        while self.delayed:
            self._outbox.put(self.delayed.pop())

    async def aclose(self) -> None:
        self.closed = True
        self.release()
        for session in list(self._windows):
            self.detach_staging(session)

    def _copy(self, copy: SliceCopy) -> CopyOutcome:
        end = copy.pool_offset + copy.padded_bytes
        assert 0 <= copy.pool_offset < end <= len(self._pool), f"outside the pool: {copy}"
        fd, staging_bytes = self._windows.get(copy.session, (-1, 0))
        if copy.staging_offset < 0 or copy.staging_offset + copy.payload_bytes > staging_bytes:
            return CopyOutcome.SOURCE_GONE
        payload = os.pread(fd, copy.payload_bytes, copy.staging_offset)
        self._pool[copy.pool_offset : end] = payload.ljust(copy.padded_bytes, b"\0")
        self.copied.append(copy)
        return CopyOutcome.COPIED

    def _report(self, done: CarrierDone) -> None:
        match self._fault(done.token):
            case CompletionFault.LOSE:
                self.lost.append(done)
            case CompletionFault.DELAY:
                self.delayed.append(done)
            case CompletionFault.DOUBLE:
                self._outbox.put(done)
                self._outbox.put(done)
            case None:
                self._outbox.put(done)

    def _fault(self, token: int) -> CompletionFault | None:
        if token in self.script:
            return self.script.pop(token)
        drawn = self._random.random()
        for fault, probability in self._probabilities.items():
            drawn -= probability
            if drawn < 0:
                return fault
        return None
