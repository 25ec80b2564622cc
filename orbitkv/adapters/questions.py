"""A query as the messages that carry it: one as a rule, several for a very long prefix.

Checks what can be checked without looking at each key, so that an engine's mistake is its own error
and not the end of its connection.
"""

from collections.abc import Callable, Sequence

import msgspec

from orbitkv.adapters.client_errors import LimitExceeded
from orbitkv.adapters.connection import Build
from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.io import wire

_STEP = wire.KEYS_PER_MESSAGE_MAX
QUERY_KEYS_MAX = (wire.QUERY_PIECES_MAX + 1) * _STEP


def query_builds(
    request: str,
    attempt: int,
    revision: int,
    parts: Sequence[wire.QueryPart],
    next_ticket: Callable[[], int],
) -> list[Build]:
    """Raises LimitExceeded. Tickets are drawn when a request is built: in the order of sending."""
    check_name(request)
    if not 1 <= len(parts) <= wire.PARTS_MAX:
        raise LimitExceeded(
            f"A query of {len(parts)} parts was not sent: it has one for each group, 1 to {wire.PARTS_MAX}. "
            "Ask for the groups that the engine has."
        )
    keys = 0
    for part in parts:
        check_keys(part.keys)
        check_numbers(part.group, part.page_tokens, part.trailing)
        keys += len(part.keys)
    check_numbers(attempt, revision)
    if keys <= _STEP:
        whole = list(parts)
        return [lambda call: wire.SubmitQuery(call, request, attempt, next_ticket(), revision, whole)]
    pieces, tails = _cut(parts)
    if len(pieces) > wire.QUERY_PIECES_MAX:
        raise LimitExceeded(
            f"A query of {keys} keys was not sent: it takes more than {wire.QUERY_PIECES_MAX + 1} messages "
            f"({QUERY_KEYS_MAX} keys). Ask for a shorter prefix, or use longer pages."
        )
    builds: list[Build] = [_extend(part, piece) for part, piece in pieces]
    builds.append(
        lambda call: wire.SubmitQuery(call, request, attempt, next_ticket(), revision, tails, len(pieces))
    )
    return builds


def _cut(parts: Sequence[wire.QueryPart]) -> tuple[list[tuple[int, list[bytes]]], list[wire.QueryPart]]:
    """(leading pieces as (part, keys), parts with the tails that one message holds)."""
    room = _STEP
    kept: list[int] = []
    for part in reversed(parts):
        kept.append(min(room, len(part.keys)))
        room -= kept[-1]
    pieces: list[tuple[int, list[bytes]]] = []
    tails: list[wire.QueryPart] = []
    for index, (part, keep) in enumerate(zip(parts, reversed(kept), strict=True)):
        lead = len(part.keys) - keep
        pieces += [(index, part.keys[at : min(at + _STEP, lead)]) for at in range(0, lead, _STEP)]
        tails.append(msgspec.structs.replace(part, keys=part.keys[lead:]))
    return pieces, tails


def _extend(part: int, keys: list[bytes]) -> Build:
    return lambda call: wire.ExtendQuery(call, part, keys)


def check_name(request: str) -> None:
    if not 1 <= len(request) <= wire.NAME_CHARS_MAX:
        raise LimitExceeded(
            f"A request id of {len(request)} characters was not sent: ids have 1 to {wire.NAME_CHARS_MAX}. "
            "Shorten it, for example to its hash."
        )


def check_numbers(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= wire.NO_CELL:
            raise LimitExceeded(
                f"A request with the number {number} was not sent: attempt, revision, group, page tokens and "
                "trailing pages are 0 to 4,294,967,295. Correct what the caller gave."
            )


def check_keys(keys: Sequence[bytes]) -> None:
    """The first and the last key stand for all: an engine makes them all alike."""
    for key in (keys[0], keys[-1]) if keys else ():
        if not isinstance(key, bytes) or not 1 <= len(key) <= KEY_BYTES_MAX:
            raise LimitExceeded(
                f"A page key that is no bytes of length 1 to {KEY_BYTES_MAX} was not sent: {key!r:.80}. "
                "Pass the engine's block hashes as raw bytes (not hex digits)."
            )
