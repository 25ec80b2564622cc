"""How far a prefix reaches, given which pages are available.

A part with trailing 0 needs every page up to the boundary; trailing n needs only the last n before
it. The boundary is one number of tokens at which the requirements of all parts hold; else there is
no hit. Pure arithmetic, no state.
"""

from collections.abc import Sequence
from math import lcm
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Available: TypeAlias = npt.NDArray[np.bool_]


def leading(available: Available) -> int:
    """How many pages from the start are available without a gap."""
    if not len(available):
        return 0
    first_gap = int(available.argmin())
    return len(available) if available[first_gap] else first_gap


def reach(parts: Sequence[tuple[int, int, Available]]) -> tuple[int, ...]:
    """Pages per part up to the furthest boundary; all 0 where there is none.

    `parts`: (page tokens, trailing, available by page) each.
    """
    if len(parts) == 1:
        _, trailing, available = parts[0]
        return (leading(available) if not trailing else _furthest_window(trailing, available),)
    step = lcm(*(page_tokens for page_tokens, _, _ in parts))
    limit = min(page_tokens * _last(trailing, available) for page_tokens, trailing, available in parts)
    for boundary in range(limit // step * step, 0, -step):
        if all(_holds(boundary // tokens, trailing, available) for tokens, trailing, available in parts):
            return tuple(boundary // page_tokens for page_tokens, _, _ in parts)
    return (0,) * len(parts)


def _last(trailing: int, available: Available) -> int:
    return len(available) if trailing else leading(available)


def _holds(pages: int, trailing: int, available: Available) -> bool:
    first = max(0, pages - trailing) if trailing else 0
    return bool(available[first:pages].all())


def _furthest_window(trailing: int, available: Available) -> int:
    for pages in range(len(available), 0, -1):
        if _holds(pages, trailing, available):
            return pages
    return 0
