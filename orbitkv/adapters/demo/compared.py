"""The shape of a comparison, as `compare.json` has it."""

import msgspec

from orbitkv.adapters.demo.summary import Summary


class Spread(msgspec.Struct):
    median: float
    low: float
    high: float
    """The least and the greatest: pairs are few."""


class ComparedFigure(msgspec.Struct):
    off: Spread
    on: Spread
    ratio: Spread | None
    """On / off, pair by pair; None where there is nothing to divide by."""


class Comparison(msgspec.Struct, kw_only=True):
    pairs: int
    order: list[tuple[str, str]]
    """Which arm ran first, by pair."""
    requests: int
    """Of one run."""
    medium: str
    """File system and device of the page file."""
    io_engine: str
    io_direct: bool
    figures: dict[str, ComparedFigure]
    skips: dict[str, dict[str, float]]
    """Arm -> reason -> hints that the manager did not admit in one run (median)."""
    runs: dict[str, list[Summary]]
    trouble: list[str] = []
    """What was not as it should be in any run; empty after a good comparison."""

    @property
    def good(self) -> bool:
        return not self.trouble
