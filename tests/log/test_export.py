"""Exported logs: the same records and decisions as the original's, and none of its keys and names."""

import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs
import msgspec
import pytest

from orbitkv.events import commands, facts
from orbitkv.events.commands import Command
from orbitkv.events.facts import Event
from orbitkv.events.frame import LogError, SegmentName
from orbitkv.events.record import Record
from orbitkv.events.scan import expand
from orbitkv.io.log_housekeeping import compress_finished
from orbitkv.io.segment_writer import FileCalls
from orbitkv.manager.kernel import state as kernel_state
from orbitkv.manager.kernel.pages import PageTable, Space
from replay.auditor import audit_log
from replay.export import export_log
from replay.export_names import Pseudonyms
from replay.export_records import PLAIN_FIELDS, RecordRewriter
from replay.export_spaces import Spaces
from replay.fold import fold_log
from replay.log import Log
from replay.verify import verify_log
from tests.log.hinting import hinted_records
from tests.log.simulated import simulated_records, write_log

SECRET = b"the secret of these tests, 32 by"
HOST = "workstation-of-alice.example.org"
DOCUMENT = '{"model":"our-unpublished-model","tenant":"ward 7"}'
REASON = "/home/alice/pages cannot be written"
UID = 70_123_456


def planted(incarnations: list[list[Record]]) -> list[list[Record]]:
    """With the names of a host, a user and a model in them, as a manager's log has."""

    def changed(value: Any) -> Any:
        match value:
            case commands.Start():
                return msgspec.structs.replace(value, host=HOST, io_reason=REASON)
            case facts.IncarnationStarted():
                return msgspec.structs.replace(value, host=HOST)
            case commands.RegisterRank():
                return msgspec.structs.replace(value, host=HOST, namespace_document=DOCUMENT)
            case commands.OpenSession():
                return msgspec.structs.replace(value, uid=UID)
            case commands.SetStore() | facts.StoreChanged() if value.reason:
                return msgspec.structs.replace(value, reason=REASON)
        return value

    return [
        [Record(r.seq, r.at_ns, changed(r.cause), tuple(map(changed, r.events))) for r in records]
        for records in incarnations
    ]


def write_planted(path: Path, seed: int, *, hinted: bool = False, steps: int = 2500) -> list[Path]:
    """Some incarnations, each of several segments, so that snapshots stand between."""
    told = hinted_records(seed, steps)[0] if hinted else simulated_records(seed, steps)
    return write_log(path, planted(told), segment_records=90)


def records_of(path: Path) -> list[Record]:
    return [
        record
        for segment in Log.open(path).segments()
        for frame in segment.frames()
        for record in frame.records
    ]


def fields_of(value: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a record that is neither a struct nor a tuple, with the name of its field."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from fields_of(getattr(value, name), name)
    elif isinstance(value, tuple):
        for each in value:
            yield from fields_of(each, field)
    else:
        yield field, value


def is_name(field: str, value: Any) -> bool:
    return isinstance(value, (str, bytes)) and field not in PLAIN_FIELDS


def names_of(path: Path) -> set[bytes]:
    """All keys, names and digests of a log, but for a simulated one-letter name, which is everywhere."""
    found = (value for r in records_of(path) for field, value in fields_of(r) if is_name(field, value))
    names = {value.encode() if isinstance(value, str) else value for value in found}
    return {name for name in names if len(name) > 1} - {b"queued", b"first_use"}


def content_of(path: Path) -> bytes:
    return b"".join(expand(file.read_bytes()).data for file in sorted(path.iterdir()))


def assert_anonymous(original: Path, exported: Path) -> None:
    content, names = content_of(exported), names_of(original)
    assert len(names) > 50
    assert [name for name in names if name in content] == []
    for number in (UID,):
        assert struct.pack(">I", number) not in content


def assert_same_story(original: Path, exported: Path) -> None:
    """Every number and column, the totals, the verdicts and the ledgers."""
    before, after = records_of(original), records_of(exported)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        for (field, value), (_, renamed) in zip(fields_of(one), fields_of(other), strict=True):
            if not is_name(field, value) and field not in ("uid", "body"):
                assert value == renamed, (one.seq, field)
            else:
                assert bool(value) == bool(renamed), (one.seq, field)
    for walk in (fold_log, verify_log):
        told, again = walk(original), walk(exported)
        assert again.difference is None
        assert again.ok
        unnamed = {"digest": "", "store": {}}
        assert [attrs.evolve(each, **unnamed) for each in again.incarnations] == [
            attrs.evolve(each, **unnamed) for each in told.incarnations
        ]
    first, second = audit_log(original), audit_log(exported)
    assert second.ok
    assert (second.records, second.by_incarnation) == (first.records, first.by_incarnation)


# --- what an export is ------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "hinted"), [(3, False), (11, False), (4, True)])
def test_an_export_tells_the_same_story_without_the_names(tmp_path: Path, seed: int, hinted: bool) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    files = write_planted(original, seed, hinted=hinted)
    export = export_log(original, exported, SECRET)
    assert export.ok
    assert (export.segments, export.records) == (len(files), len(records_of(original)))
    assert len(export.incarnations) > 1
    assert export.size_bytes == sum(file.stat().st_size for file in exported.iterdir())
    assert_anonymous(original, exported)
    assert_same_story(original, exported)
    snapshots = sum(each.snapshots_compared for each in fold_log(exported).incarnations)
    assert snapshots == len(files) - len(export.incarnations)


def test_compressed_segments_are_exported_compressed(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    write_planted(original, 3)
    last = max(file.name for file in original.iterdir())
    compress_finished(original, SegmentName(int(last[:8]), int(last[9:17])), FileCalls(), lambda: False)
    export_log(original, exported, SECRET)
    assert {file.name for file in exported.iterdir()} == {file.name for file in original.iterdir()}
    assert sum(file.suffix == ".zst" for file in exported.iterdir()) > 3
    assert_anonymous(original, exported)
    assert_same_story(original, exported)


@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_a_log_without_its_oldest_part_is_exported_from_where_it_speaks(tmp_path: Path, dropped: int) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    whole = tmp_path / "whole"
    for file in write_planted(original, 11)[:dropped]:
        whole.mkdir(exist_ok=True)
        file.rename(whole / file.name)
    export_log(original, exported, SECRET)
    content = content_of(exported)
    assert [name for name in names_of(whole) | names_of(original) if name in content] == []
    assert_same_story(original, exported)


def test_one_segment_is_exported_too(tmp_path: Path) -> None:
    middle = write_planted(tmp_path / "log", 3)[1]
    evidence = middle.rename(tmp_path / "evidence")
    exported = tmp_path / "out"
    export = export_log(evidence, exported, SECRET)
    assert [file.name for file in exported.iterdir()] == [middle.name]
    assert export.ok
    assert fold_log(exported).ok


def test_without_pseudonyms_the_records_are_the_very_bytes(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    write_planted(original, 3)
    assert not export_log(original, exported).pseudonymised

    def payloads(path: Path) -> list[bytes]:
        found = []
        for segment in Log.open(path).segments():
            found.append(segment.snapshot or b"")
            found += [bytes(frame.payload) for frame in segment.frames()]
        return found

    assert payloads(exported) == payloads(original)
    assert fold_log(exported).incarnations == fold_log(original).incarnations


# --- pseudonyms -------------------------------------------------------------------------------------


def renamed(original: Path, exported: Path) -> dict[tuple[str, Any], Any]:
    """What became of every name; fails if one became two things, or two became one."""
    became: dict[tuple[str, Any], Any] = {}
    for one, other in zip(records_of(original), records_of(exported), strict=True):
        for (field, value), (_, new) in zip(fields_of(one), fields_of(other), strict=True):
            if is_name(field, value) and value:
                kind = {"unknown": "keys", "name": "instance", "io_reason": "reason"}.get(field, field)
                assert became.setdefault((kind, value), new) == new
    keys = [new for (kind, _), new in became.items() if kind == "keys"]
    assert len(keys) == len(set(keys))
    return became


def test_one_name_has_one_pseudonym_and_no_two_have_the_same(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    write_planted(original, 4, hinted=True)
    export_log(original, exported, SECRET)
    became = renamed(original, exported)
    kinds = {kind for kind, _ in became}
    assert {"keys", "request", "instance", "host", "namespace_digest", "namespace_document"} <= kinds
    requests = [new for (kind, _), new in became.items() if kind == "request"]
    assert len(requests) == len(set(requests)) > 10


def test_exports_with_one_secret_can_be_joined_and_others_cannot(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "other"
    write_planted(first, 3)
    write_planted(second, 11)
    for original in (first, second):
        export_log(original, tmp_path / f"{original.name}-a", SECRET)
        export_log(original, tmp_path / f"{original.name}-b", os.urandom(32))

    def keys(name: str) -> set[bytes]:
        told = records_of(tmp_path / name)
        return {key for r in told for e in r.events if isinstance(e, facts.PagesBound) for key in e.keys}

    shared = keys("one") & keys("other")
    assert shared
    assert len(keys("one-a") & keys("other-a")) == len(shared)
    assert not keys("one-b") & keys("other-b")
    assert not keys("one-a") & keys("one-b")


def test_the_same_export_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    write_planted(tmp_path / "log", 3)
    export_log(tmp_path / "log", tmp_path / "a", SECRET)
    export_log(tmp_path / "log", tmp_path / "b", SECRET)
    assert content_of(tmp_path / "a") == content_of(tmp_path / "b")


def test_short_keys_stay_apart() -> None:
    names = Pseudonyms(SECRET)
    keys = [bytes([number]) for number in range(256)]
    assert len({names.key(key) for key in keys}) == 256
    assert {len(names.key(key)) for key in keys} == {16}
    assert len(names.key(b"k" * 32)) == 32
    assert names.key(b"") == b""


def test_kinds_do_not_show_what_they_have_in_common() -> None:
    names = Pseudonyms(SECRET)
    texts = {names.name(kind, "alice").partition("-")[2] for kind in ("request", "host", "instance", "text")}
    assert len(texts) == 4
    assert Pseudonyms(SECRET[::-1]).name("host", "alice") != names.name("host", "alice")
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Pseudonyms(b"short")


def test_an_engines_own_stages_are_renamed_and_the_known_ones_stay() -> None:
    names = Pseudonyms(SECRET)
    rewriter = RecordRewriter(names, Spaces(names))
    known, own = (rewriter.struct(facts.StageReported(1, "request", 0, s)) for s in ("queued", "alice waits"))
    assert known.stage == "queued"
    assert own.stage.startswith("stage-")


# --- nothing is exported that nobody has judged -------------------------------------------------------


def structs_of(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from structs_of(hint)
    for argument in get_args(kind):
        yield from structs_of(argument)


@pytest.mark.parametrize("kind", [*get_args(Command), *get_args(Event)], ids=lambda kind: kind.__name__)
def test_every_field_of_text_or_bytes_is_judged(kind: type[msgspec.Struct]) -> None:
    names = Pseudonyms(SECRET)
    RecordRewriter(names, Spaces(names)).fields(kind)


def test_a_field_that_nobody_has_judged_is_not_exported() -> None:
    class PatientNamed(msgspec.Struct):
        patient: str

    names = Pseudonyms(SECRET)
    with pytest.raises(TypeError, match=r"PatientNamed\.patient"):
        RecordRewriter(names, Spaces(names)).fields(PatientNamed)


def test_no_text_of_the_state_is_forgotten() -> None:
    """A new field with text or bytes in it must be rewritten in the snapshot, or be known as harmless."""
    found = set()
    kinds = [each for each in vars(kernel_state).values() if isinstance(each, type)]
    for kind in {*kinds, Space, PageTable}:
        if kind.__module__.startswith("orbitkv.manager.kernel") and hasattr(kind, "__annotations__"):
            for field, hint in kind.__annotations__.items():
                if any(word in repr(hint) for word in ("str", "bytes")):
                    found.add(f"{kind.__name__}.{field}")
    assert found == {
        *("State.host", "State.store_reason", "State.instance_names", "State.hint_requests"),
        *("State.by_request", "State.decisions", "Instance.name", "Instance.namespace_digest"),
        *("Part.unknown", "Operation.request", "Space.namespace_digest", "Space.index"),
        # Derived, and not dumped.
        *("State.space_numbers", "State.decided"),
    }


# --- damage, growth, refusals -------------------------------------------------------------------------


def test_a_damaged_log_is_exported_up_to_the_damage(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    files = write_planted(original, 3)
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    export = export_log(original, exported, SECRET)
    assert not export.ok
    assert export.segments == 2
    assert export.log.troubles[0].path == files[1]
    again = fold_log(exported)
    assert again.ok
    assert again.records == export.records == export.log.troubles[0].seq - 1
    assert verify_log(exported).ok
    assert [name for name in names_of(original) if name in content_of(exported)] == []


def broken_header(files: list[Path]) -> None:
    files[2].write_bytes(b"x" * 200)


def missing(files: list[Path]) -> None:
    files[2].unlink()


def lying_snapshot(files: list[Path]) -> None:
    from tests.log import samples

    at = attrs.evolve(
        samples.header(1, 3, 181, samples.last_checksum(files[1].read_bytes())),
        log_id=next(Log.open(files[1]).segments()).header.log_id,
    )
    files[2].write_bytes(samples.segment([], at=at, snapshot=b"no state")[0])


@pytest.mark.parametrize("hurt", [broken_header, missing, lying_snapshot])
def test_it_ends_before_a_segment_that_cannot_be_read(
    tmp_path: Path, hurt: Callable[[list[Path]], None]
) -> None:
    files = write_planted(tmp_path / "log", 3)
    assert files[2].name.startswith("00000001")
    hurt(files)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert not export.ok
    assert export.incarnations == {1: (1, 181)}
    assert fold_log(tmp_path / "out").ok


def test_two_logs_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    files = write_planted(tmp_path / "log", 3)
    other = write_log(tmp_path / "other", simulated_records(11, 400))[0]
    renumbered = bytearray(other.read_bytes())
    files[1].write_bytes(renumbered)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert export.segments == 1
    assert not export.ok


def test_a_growing_log_is_exported_as_it_was_when_the_export_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two passes its manager writes on."""
    files = write_planted(tmp_path / "log", 3)
    *_, last = files
    whole = last.read_bytes()
    offsets = [frame.offset for frame in next(Log.open(last).segments()).frames()]
    assert len(offsets) > 2
    last.write_bytes(whole[: offsets[-2] + 20])
    segments = Log.segments
    opened: list[Log] = []

    def noted(self: Log) -> Iterator[Any]:
        opened.append(self)
        yield from segments(self)
        if len(opened) == 1:
            last.write_bytes(whole)

    monkeypatch.setattr(Log, "segments", noted)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    monkeypatch.undo()
    assert export.ok
    assert len(opened) == 2
    again = verify_log(tmp_path / "out")
    assert again.ok
    assert 0 < again.records < len(records_of(tmp_path / "log"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_planted(tmp_path / "log", 3, steps=300)
    (tmp_path / "empty").mkdir()
    export_log(tmp_path / "log", tmp_path / "empty", SECRET)
    before = content_of(tmp_path / "empty")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in ("empty", "file", "link"):
        with pytest.raises(LogError, match="nothing is overwritten"):
            export_log(tmp_path / "log", tmp_path / target, SECRET)
    with pytest.raises(LogError, match="never changed"):
        export_log(tmp_path / "log", tmp_path / "log" / "out", SECRET)
    assert content_of(tmp_path / "empty") == before
    assert (tmp_path / "file").read_text() == "precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"log", "empty", "file", "link"}


def test_something_that_came_to_stand_there_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_planted(tmp_path / "log", 3, steps=300)
    rename = os.rename

    def late(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "other").write_text("precious")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(LogError, match="nothing is overwritten"):
        export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["other"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"log", "out"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_who_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write_planted(tmp_path / "log", 3, steps=300)

    def fail(fd: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((LogError, KeyboardInterrupt), match="free space there" if error.args else None):
        export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    write_planted(tmp_path / "log", 3, steps=300)
    export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == {0o600}


def test_the_original_is_as_it_was(tmp_path: Path) -> None:
    files = write_planted(tmp_path / "log", 3, steps=300)
    before = OrderedDict((file, (file.read_bytes(), file.stat().st_mtime_ns)) for file in files)
    export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files} == before
    assert sorted((tmp_path / "log").iterdir()) == sorted(files)
