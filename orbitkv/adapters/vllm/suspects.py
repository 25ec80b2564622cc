"""Pages whose restore failed: not asked for again until this engine has computed them anew.

The manager verifies what it reads, so a failed restore says little about the page; but a page that failed
here for whatever reason would be found by the next request too, and fail again. Bounded: the oldest are
forgotten first, and all of them with the connection that they failed on.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from orbitkv.adapters.vllm.orders import SaveOrder
from orbitkv.io.wire import QueryPart

SUSPECTS_MAX: Final = 4096


class Suspects:
    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[int, bytes], None] = OrderedDict()
        self._epoch = 0

    def add(self, group: int, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._keys[group, key] = None
        while len(self._keys) > SUSPECTS_MAX:
            self._keys.popitem(last=False)

    def computed_anew(self, orders: Iterable[SaveOrder]) -> None:
        if self._keys:
            for order in orders:
                for key in order.keys:
                    self._keys.pop((order.group, key), None)

    def without(self, parts: Sequence[QueryPart], epoch: int) -> list[QueryPart]:
        """The parts up to the first suspect page of any of them; empty when nothing is left of one.

        `epoch`: of the link to the manager.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._keys.clear()
        if not self._keys or not parts:
            return list(parts)
        tokens = min(part.page_tokens * self._first_suspect(part) for part in parts)
        cut = [msgspec.structs.replace(part, keys=part.keys[: tokens // part.page_tokens]) for part in parts]
        return cut if all(part.keys for part in cut) else []

    def _first_suspect(self, part: QueryPart) -> int:
        for position, key in enumerate(part.keys):
            if (part.group, key) in self._keys:
                return position
        return len(part.keys)
