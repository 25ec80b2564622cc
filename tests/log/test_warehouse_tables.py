"""Every fact of a log stands in a table of its kind, with all that it says, value for value."""

import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from orbitkv.events import facts
from orbitkv.events.config import KernelConfig
from orbitkv.events.facts import Event
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.events.record import Record
from replay.warehouse import load_log
from replay.warehouse.tables import TABLES
from tests.log import samples

KINDS: tuple[type[msgspec.Struct], ...] = get_args(Event)

SAMPLE: dict[object, Any] = {
    int: 5,
    bool: True,
    str: "text",
    KernelConfig: samples.CONFIG,
    tuple[bytes, ...]: (b"key one", b"", b"key three"),
    tuple[int, ...]: (3, 9),
    tuple[tuple[int, int], ...]: ((0, 2), (5, 9)),
    tuple[tuple[int, int, int, int], ...]: ((1, 64, 0, 7), (2, 16, 3, 4)),
    tuple[tuple[bytes, ...], ...]: ((b"unknown",), ()),
    tuple[GroupGeometry, ...]: (
        GroupGeometry(1, 64, (SliceGeometry("all", 4096), SliceGeometry("b", 1, True))),
    ),
}
WIDE = {"offsets", "staging_offsets", "generations"}
SCALAR_BYTES = {"namespace_digest"}


def value_of(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> Any:
    """One that is not its default; lists have three pages."""
    if field.type is bytes:
        if field.name == "outcomes":
            return bytes([1, 2, 3])
        if field.name in SCALAR_BYTES:
            return b"\0digest\xff"
        wide = field.name in WIDE
        return b"".join(number.to_bytes(8 if wide else 4, "little") for number in (7, 8, 1 << 31))
    if isinstance(field.type, type) and issubclass(field.type, IntEnum):
        return list(field.type)[-1]
    if kind in (facts.QueryWaiting, facts.HintAdmitted) and field.name == "pages":
        return (samples.column([7, 0xFFFF_FFFF]), b"", samples.column([1]))
    return SAMPLE[field.type]


def fact_of(kind: type[msgspec.Struct]) -> Event:
    return kind(*(value_of(kind, field) for field in msgspec.structs.fields(kind)))  # type: ignore[return-value]


def raw(thing: object) -> Any:
    """As it stands in a log."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(thing))


def snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower().lstrip("_")


def test_every_kind_has_its_table_and_its_columns_cover_all_of_it() -> None:
    by_name = {table.name: table for table in TABLES}
    assert len(by_name) == len(TABLES)
    for kind in KINDS:
        own = by_name[snake(kind.__name__)]
        assert own.kind is kind
        columns = {column.name for table in TABLES if table.kind is kind for column in table.columns}
        names = {field.name for field in msgspec.structs.fields(kind)}
        told = {name for name in names if columns & spellings(name)}
        lists = {field for field in names - told if by_name.get(f"{own.name}_{field}") or field == "config"}
        assert told | lists == names, f"{kind.__name__} lacks {names - told - lists}"


def spellings(field: str) -> set[str]:
    return {field, field.removesuffix("s"), f"{field.removesuffix('s')}_bytes", f"{field}_id"} | {
        f"{field.removesuffix('s')}_blocks"
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """A log of one fact of each kind, all with values that are no defaults; its tables."""
    path = tmp_path_factory.mktemp("kinds")
    records = [
        Record(seq, 10 * seq, samples.record(2).cause, (fact_of(kind),)) for seq, kind in enumerate(KINDS, 1)
    ]
    data, _ = samples.segment([records])
    samples.write_segment(path, data)
    with load_log(path) as warehouse:
        assert warehouse.log.troubles == []
        found = {}
        for table in TABLES:
            cursor = warehouse.connection.execute(f"SELECT * FROM {table.name} ORDER BY fact, rowid")
            names = [column[0] for column in cursor.description]
            found[table.name] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        yield found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_fact_is_found_again_value_for_value(
    rows: dict[str, list[dict[str, Any]]], kind: type[msgspec.Struct]
) -> None:
    found = rows[snake(kind.__name__)]
    number = KINDS.index(kind) + 1
    assert {(row["stretch"], row["seq"], row["fact"]) for row in found} == {(1, number, number)}
    for field in msgspec.structs.fields(kind):
        name = next((name for name in found[0] if name in spellings(field.name)), None)
        if name is not None:
            assert [row[name] for row in found] == told(kind, field, len(found)), field.name


def told(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, count: int) -> list[Any]:
    value = value_of(kind, field)
    if field.type is bytes and field.name == "outcomes":
        words = ReadOutcome if kind is facts.ReadsFailed else WriteOutcome
        return [words(number).name.lower() for number in value]
    if field.type is bytes and field.name not in SCALAR_BYTES:
        return [7, 8, 1 << 31]
    if field.type == tuple[bytes, ...]:
        return list(value)
    if isinstance(value, IntEnum):
        return [value.name.lower()] * count
    if (kind, field.name) in ((facts.BuffersAllocated, "generation"), (facts.ReadsQueued, "read")):
        return [value, value + 1, value + 2]
    return [value] * count


def test_lists_stand_in_tables_of_their_own(rows: dict[str, list[dict[str, Any]]]) -> None:
    def values(table: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values())[3:] for row in rows[table]]

    assert values("query_opened_parts") == [(5, 0, 1, 64, 0, 7), (5, 1, 2, 16, 3, 4)]
    assert values("hint_admitted_parts") == values("query_opened_parts")
    assert values("query_waiting_pages") == [(5, 0, 0, 7), (5, 0, 1, None), (5, 2, 0, 1)]
    assert values("query_waiting_unknown") == [(5, 0, 0, b"unknown")]
    assert values("query_granted_reach") == values("query_cut_reach") == [(5, 0, 3), (5, 1, 9)]
    assert values("query_granted_hits") == [(5, 7, 7), (5, 8, 8), (5, 1 << 31, 1 << 31)]
    assert values("gpu_synced_ranges") == [(5, 5, 0, 2), (5, 5, 5, 9)]
    assert values("saves_dropped_buffers") == [("degraded", 7), ("degraded", 8), ("degraded", 1 << 31)]
    assert values("hint_admitted_pages") == [(5, 0, 0, 7), (5, 0, 1, 0xFFFF_FFFF), (5, 2, 0, 1)]
    assert values("instance_sealed_groups") == [(5, 1, 64, 0, 7), (5, 2, 16, 3, 4)]
    assert values("rank_registered_groups") == [(5, 5, 5, 1, 64)]
    assert values("rank_registered_slices") == [(5, 5, 5, 1, "all", 4096, False), (5, 5, 5, 1, "b", 1, True)]
    config = rows["config"][0]
    assert config["incarnation"] == 5
    assert {name: config[name] for name in msgspec.structs.asdict(samples.CONFIG)} == msgspec.structs.asdict(
        samples.CONFIG
    )


def test_hits_without_positions_are_all_pages_from_the_first(tmp_path: Path) -> None:
    granted = facts.QueryGranted(9, 0, (2,), b"", samples.column([40, 41]))
    data, _ = samples.segment([[Record(1, 0, samples.record(2).cause, (granted,))]])
    samples.write_segment(tmp_path, data)
    with load_log(tmp_path) as warehouse:
        found = warehouse.connection.execute("SELECT position, buffer FROM query_granted_hits").fetchall()
    assert found == [(0, 40), (1, 41)]


def test_a_number_of_64_bits_is_a_hash_or_damage(tmp_path: Path) -> None:
    """Hashes use all of their bits; other numbers that have so many are no facts of a kernel."""
    opened = msgspec.structs.replace(fact_of(facts.QueryOpened), body=(1 << 64) - 1)
    settled = facts.DecisionSettled(1 << 63, 0, 0, 0, 0, 0)
    records = [Record(seq, 0, samples.record(2).cause, (each,)) for seq, each in ((1, opened), (2, settled))]
    data, _ = samples.segment([records])
    samples.write_segment(tmp_path, data)
    with load_log(tmp_path) as warehouse:
        assert warehouse.connection.execute("SELECT body FROM query_opened").fetchall() == [((1 << 64) - 1,)]
        assert [trouble.seq for trouble in warehouse.log.troubles] == [2]
        assert warehouse.connection.execute("SELECT count(*) FROM decision_settled").fetchone() == (0,)


def test_facts_of_an_older_orbitkv_get_the_defaults(tmp_path: Path) -> None:
    """Fields are only ever added at the end, with defaults."""
    whole = raw(Record(1, 0, samples.record(2).cause, ()))
    old = [[36, samples.column([3]), False], [35, *[samples.column([3])] * 3, 1], [2, 8, 1, True], [62, 0, 4]]
    data, _ = samples.segment([msgspec.msgpack.encode([[*whole[:3], old]])])
    samples.write_segment(tmp_path, data)
    with load_log(tmp_path) as warehouse:
        assert warehouse.log.troubles == []
        ask = warehouse.connection.execute
        assert ask("SELECT read, origin, foreground FROM reads_submitted").fetchall() == [(3, "warm", True)]
        assert ask("SELECT session, pid FROM session_opened").fetchall() == [(8, 0)]
        assert ask("SELECT reason, count FROM saves_dropped").fetchall() == [("resident", 4)]
        assert ask("SELECT count(*) FROM saves_dropped_buffers").fetchone() == (0,)


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        ([250, 1], "a fact of kind 250 is none that this OrbitKV knows"),
        ([], "none that this OrbitKV knows"),
        (["text"], "none that this OrbitKV knows"),
        ([43, 1, 77], "end of QueryEnded is no word that this OrbitKV knows"),
        ([43, 1, -1], "end of QueryEnded is no word that this OrbitKV knows"),
        ([43, "1", 0], "QueryEnded has other fields"),
        ([43, 1.5, 0], "QueryEnded has other fields"),
        ([43, 1], "QueryEnded has other fields"),
        ([37, b"\0\0\0", b"\0\0\0", b"\0\0\0"], "read of ReadsLanded ends within a value"),
        ([8, 1, b"bytes", 0, "queued"], "StageReported has other fields"),
        ([11, 1, b"\0\0\0\0", ["text"]], "PagesBound has other fields"),
        ([11, 1, b"\0\0\0\0", []], "the columns of PagesBound do not fit each other"),
        ([47, 1, 0, [[1, 2, 3]], 1, 1, 1, False], "GpuSynced has other fields"),
        ([1, 1, 1, {"pool_bytes": "much"}, "host"], "IncarnationStarted has other fields"),
    ],
)
def test_a_fact_that_no_kernel_writes_is_left_out_and_told(tmp_path: Path, fact: Any, why: str) -> None:
    """Its neighbours, also those of its kind, are loaded."""
    good = [raw(fact_of(facts.QueryEnded)), raw(fact_of(facts.PagesBound))]
    whole = raw(Record(1, 0, samples.record(2).cause, ()))
    data, offsets = samples.segment([msgspec.msgpack.encode([[*whole[:3], [*good, fact, *good]]])])
    path = samples.write_segment(tmp_path, data)
    with load_log(tmp_path) as warehouse:
        (trouble,) = warehouse.log.troubles
        assert why in trouble.what
        assert (trouble.path, trouble.offset, trouble.seq) == (path, offsets[1], 1)
        ask = warehouse.connection.execute
        assert ask("SELECT fact FROM query_ended ORDER BY ALL").fetchall() == [(1,), (4,)]
        assert ask("SELECT DISTINCT fact FROM pages_bound ORDER BY ALL").fetchall() == [(2,), (5,)]
