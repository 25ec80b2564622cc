"""What a report is made of: sentences about a query, the flow of prepared bytes, numbers and their units."""

from pathlib import Path

import pytest

from orbitkv.events.outcomes import Unused
from replay.auditor import Cohort
from replay.report.flow import CAUSES, flow_of
from replay.report.quantities import byte_unit, duration, moment, rate_unit, share, time_unit
from replay.report.stories import story

ROW = {
    "request": "it's",
    "attempt": 0,
    "incarnation": 3,
    "seq": 10,
    "took_ms": 100.0,
    "opened_ms": 1000.0,
    "wait_ms": 1000.0,
    "wait_end_ms": 1080.0,
    "wait_seq": 10,
    "reserved_bytes": 7 << 20,
    "limit_bytes": 8 << 20,
    "by_instance": True,
    "charge_bytes": 2 << 20,
    "grant_ms": 1080.0,
    "grant_seq": 20,
    "answer_ms": 1095.0,
    "answer_seq": 30,
    "reads": 3,
    "joined_reads": 1,
    "failed_reads": 0,
    "slowest_read_us": 9000,
    "longest_queue_ms": 2.5,
    "restore_ms": 1095.5,
    "restore_seq": 31,
    "sync_ms": 1100.0,
    "sync_seq": 40,
    "ranks": 2,
    "copied_bytes": 1 << 20,
    "slowest_copy_us": 4400,
    "slowest_rank": 1,
    "asked_pages": 9,
    "dram": 4,
    "peer": 0,
    "ssd": 3,
    "miss": 2,
    "boundary_tokens": 448,
    "cut_seq": None,
    "failed_copies": 0,
    "ending": "consumed",
    "end_seq": 40,
    "hint_fate": "skipped (foreground)",
    "hint_ms": 990.0,
    "hint_seq": 8,
}


def test_a_story_as_it_reads() -> None:
    told = story(ROW, Path("/var/log/a b"))
    assert told.command == "orbitkv replay timeline '/var/log/a b' --request 'it'\"'\"'s'"
    assert [(said.text, said.seq) for said in told.said] == [
        (
            "For 80 ms (80.0 %) it waited for budget: 7.0 MiB of the 8.0 MiB of its engine's budget were "
            "reserved, it needed 2.0 MiB.",
            10,
        ),
        (
            "For 15 ms (15.0 %) it waited for 3 pages from the SSD, 1 of them shared with others; the "
            "slowest read took 9 ms at the device and the longest wait in the queue was 2.5 ms.",
            20,
        ),
        ("Of 9 pages asked, 4 from DRAM, 3 from the SSD, 2 missed; usable up to token 448.", 30),
        ("Its hint came 10 ms before the query and was skipped (foreground).", 8),
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cut_seq": 25, "failed_reads": 2}, "Its prefix was cut: 2 of its reads failed."),
        ({"cut_seq": 25}, "Its prefix was cut: there was no room for a page."),
        ({"ending": "lease_expired"}, "It ended as lease expired."),
        ({"failed_copies": 1}, "1 copy to the GPU failed."),
        ({"hint_fate": None}, "No hint came for it."),
        ({"took_ms": 10_000.0}, "It was answered in the record that opened it."),
    ],
)
def test_what_went_wrong_is_in_the_story(changes: dict[str, object], says: str) -> None:
    assert says in [said.text for said in story(ROW | changes, Path("log")).said]


# --- the flow of prepared bytes --------------------------------------------------------------------------


def test_the_flow_is_in_proportion() -> None:
    flow = flow_of(
        Cohort(
            prepared_bytes=1000,
            restored_bytes=600,
            unused_bytes=300,
            unused_bytes_by_cause={"evicted": 200, "restart": 100},
            pending_bytes=100,
        )
    )
    assert flow is not None
    prepared, restored, unused, pending, evicted, restart = flow.bars
    assert [bar.label.split(":")[0] for bar in flow.bars[:4]] == ["prepared", "restored", "unused", "pending"]
    assert restored.height / prepared.height == pytest.approx(0.6)
    assert restored.height + unused.height + pending.height == pytest.approx(prepared.height)
    assert evicted.height + restart.height == pytest.approx(unused.height)
    assert "200 B (20.0 %)" in evicted.label
    assert len(flow.bands) == 5
    assert all(bar.y + bar.height <= flow.height for bar in flow.bars)


def test_every_cause_has_words() -> None:
    assert set(CAUSES) == {cause.name.lower() for cause in Unused}


def test_nothing_prepared_is_no_flow() -> None:
    assert flow_of(Cohort()) is None


# --- numbers ---------------------------------------------------------------------------------------------


def test_times_have_three_figures() -> None:
    given = (0, 0.0004, 0.83, 4.304, 83.72, 101.14, 999.7, 1514, 62_000, 7.3e6, 1.9e8, None)
    assert [duration(ms) for ms in given] == [
        "0 ms", "0.4 us", "830 us", "4.3 ms", "83.7 ms", "101 ms", "1000 ms", "1.51 s", "1.03 min", "2.03 h",
        "2.2 d", "-",
    ]  # fmt: skip


def test_units_suit_the_highest_value() -> None:
    assert [byte_unit(size)[0] for size in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "B",
        "B",
        "KiB",
        "MiB",
        "TiB",
    ]
    assert [time_unit(ms)[0] for ms in (0, 2999, 3000, 200_000, 1e9)] == ["ms", "ms", "s", "min", "d"]
    assert [rate_unit(rate) for rate in (5.0, 0.5, 0.001, 0)] == [
        ("s", 1),
        ("min", 60),
        ("h", 3600),
        ("d", 86400),
    ]
    assert share(1, 0) == "-"
    assert moment(1_700_000_000_123.4) == "2023-11-14 22:13:20.123"
