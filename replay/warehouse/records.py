"""Reads the records of a frame as far as the warehouse wants them: facts as arrays, of causes the tag.

Exists because decoding into the vocabulary's own types costs more than all the rest of loading. What a
fact's array holds is checked where it becomes columns.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec

from orbitkv.events.frame import Frame

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""What a column of SQL can hold."""


class _Cause(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of a command only its tag; the rest is skipped."""

    tag: _Number


class _BareRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    seq: _Number
    at_ns: _Number
    cause: _Cause
    events: list[list[Any]]
    """Each begins with its tag."""


@attrs.frozen(slots=True)
class BareRecords:
    """Of each record of a frame, in order."""

    times: Sequence[int]
    causes: Sequence[int]
    facts: Sequence[list[list[Any]]]


_decoder = msgspec.msgpack.Decoder(list[_BareRecord])
_seq, _at_ns, _tag, _events = map(attrgetter, ("seq", "at_ns", "cause.tag", "events"))


def bare_records(frame: Frame, last_at_ns: int) -> BareRecords | str:
    """The records of a frame that stand behind one of `last_at_ns`, or why they cannot be what it says."""
    try:
        records = _decoder.decode(frame.payload)
    except msgspec.MsgspecError as error:
        return f"the frame is whole, its records are not: {error}"
    count = frame.last_seq - frame.first_seq + 1
    if len(records) != count:
        return f"the frame claims seqs {frame.first_seq} to {frame.last_seq} and holds {len(records)} records"
    seqs = list(range(frame.first_seq, frame.last_seq + 1))
    if list(map(_seq, records)) != seqs:
        found, expected = next(
            (record.seq, seq) for record, seq in zip(records, seqs, strict=True) if record.seq != seq
        )
        return f"record {found} stands where seq {expected} must be"
    times = list(map(_at_ns, records))
    if times[0] < last_at_ns or times != sorted(times):
        before = [last_at_ns, *times]
        fell = next(index for index, at_ns in enumerate(times) if at_ns < before[index])
        return f"time falls at seq {seqs[fell]}"
    return BareRecords(times, list(map(_tag, records)), list(map(_events, records)))
