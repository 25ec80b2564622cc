"""Pseudonyms: one for each name, none for two, and none without somebody having judged the field."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from orbitkv.events import facts
from orbitkv.events.commands import Command
from orbitkv.events.facts import Event
from orbitkv.manager.kernel import state as kernel_state
from orbitkv.manager.kernel.pages import PageTable, Space
from replay.export.copying import export_log
from replay.export.names import Pseudonyms
from replay.export.records import RecordRewriter
from replay.export.spaces import Spaces
from tests.log.exporting import (
    SAMPLE,
    SECRET,
    SHARED,
    TROUBLE,
    content_of,
    fields_of,
    is_name,
    records_of,
    write_planted,
)


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
    write_planted(original, SAMPLE)
    export_log(original, exported, SECRET)
    became = renamed(original, exported)
    kinds = {kind for kind, _ in became}
    assert {"keys", "request", "instance", "host", "namespace_digest", "namespace_document"} <= kinds
    requests = [new for (kind, _), new in became.items() if kind == "request"]
    assert len(requests) == len(set(requests)) > 10


def test_exports_with_one_secret_can_be_joined_and_others_cannot(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "other"
    write_planted(first, TROUBLE)
    write_planted(second, SHARED)
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
    write_planted(tmp_path / "log", SAMPLE)
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
