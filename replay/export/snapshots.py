"""Rewrites the snapshot that a segment begins with: the same state, with pseudonyms in it.

Names every place of the state that holds a key, a name or a digest. A test goes through all of the
state's fields and fails on a text that is neither here nor known to be harmless.
"""

from collections import OrderedDict
from typing import TypeVar

from orbitkv.manager.kernel import State, snapshot
from replay.export.names import Pseudonyms
from replay.export.spaces import Spaces

_Value = TypeVar("_Value")


def rewritten_snapshot(state: State, pseudonyms: Pseudonyms, spaces: Spaces) -> bytes:
    """Changes `state`, which is of no use afterwards: what can be derived from the rest is not rewritten."""

    def request(key: tuple[int, str, int]) -> tuple[int, str, int]:
        instance, name, attempt = key
        return instance, pseudonyms.name("request", name), attempt

    def by_request(table: dict[tuple[int, str, int], _Value]) -> dict[tuple[int, str, int], _Value]:
        return {request(key): value for key, value in table.items()}

    state.host = pseudonyms.name("host", state.host)
    state.store_reason = pseudonyms.name("text", state.store_reason)
    state.instance_names = {
        pseudonyms.name("instance", name): number for name, number in state.instance_names.items()
    }
    for instance in state.instances.values():
        instance.name = pseudonyms.name("instance", instance.name)
        instance.namespace_digest = pseudonyms.namespace(instance.namespace_digest)
    for space in state.pages.spaces:
        space.namespace_digest = spaces.pseudonym(space.namespace_digest)
    state.pages.keys = [pseudonyms.key(key) for key in state.pages.keys]
    state.by_request = by_request(state.by_request)
    state.hint_requests = by_request(state.hint_requests)
    state.decisions = OrderedDict(by_request(state.decisions))
    for operation in state.operations.values():
        operation.request = pseudonyms.name("request", operation.request)
        operation.body = pseudonyms.number("body", operation.body, 64)
        for part in operation.parts:
            part.unknown = tuple(pseudonyms.key(key) for key in part.unknown)
    return snapshot(state)
