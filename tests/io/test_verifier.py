"""Checks in the thread come back as they would from the loop, errors included."""

import select

import pytest

from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io.doorbell import Doorbell
from orbitkv.io.engine import Finished
from orbitkv.io.image import verify
from orbitkv.io.verifier import Verifier
from orbitkv.manager.ports import PageIdentity, PageRead
from tests.io.ssd_support import IMAGE, fill_page, identity_of, make_pool, place, read_of


def wait_for(doorbell: Doorbell) -> None:
    assert select.select([doorbell.fileno()], [], [], 5)[0]
    doorbell.answer()


def submit(verifier: Verifier, read: PageRead) -> None:
    verifier.submit(Finished(read, IMAGE, 0), read)


def test_verdicts_come_back_with_their_reads() -> None:
    pool, doorbell = make_pool(), Doorbell()
    verifier = Verifier(pool, verify, doorbell)
    for number in range(3):
        fill_page(place(pool, number), identity_of(number))
    place(pool, 1)[0] ^= 1
    reads = [read_of(n, n, identity_of(max(n, 1)), into=n) for n in range(3)]
    for read in reads:
        submit(verifier, read)
    assert verifier.in_flight == 3
    verdicts = []
    while verifier.in_flight:
        wait_for(doorbell)
        verdicts += verifier.collect()
    assert [(read, outcome) for _, read, outcome in verdicts] == [
        (reads[0], ReadOutcome.OTHER_PAGE),
        (reads[1], ReadOutcome.CORRUPT),
        (reads[2], ReadOutcome.WHOLE),
    ]
    verifier.close()
    doorbell.close()


def test_what_a_check_raises_is_raised_in_the_loop() -> None:
    def fail(view: memoryview, identity: PageIdentity) -> ReadOutcome:
        raise ValueError("no such page")

    doorbell = Doorbell()
    verifier = Verifier(make_pool(), fail, doorbell)
    submit(verifier, read_of(1, 1, identity_of(1), into=1))
    wait_for(doorbell)
    with pytest.raises(ValueError, match="no such page"):
        verifier.collect()
    verifier.close()
    doorbell.close()
