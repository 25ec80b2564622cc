"""What must come of a demand, foretold for the simplest world: one instance, one group, room for all.

Given what DRAM and the SSD hold, which pages will fail to read, and the budget, there is exactly one
right decision. Written from the contract's words in the plainest way.
"""

from collections.abc import Collection, Sequence

import attrs


@attrs.frozen
class Foretold:
    status: str
    """ready, missed or bypassed."""
    dram: int
    ssd: int
    miss: int

    @property
    def hits(self) -> int:
        return self.dram + self.ssd


def foretell(
    asked: Sequence[bytes],
    *,
    resident: Collection[bytes],
    on_ssd: Collection[bytes],
    failing: Collection[bytes],
    footprint_bytes: int,
    limit_bytes: int,
    prefix_cut: bool = False,
) -> Foretold:
    """The decision for `asked`, in prefix order. `failing` pages do not verify when read from the SSD."""
    allowed = len(asked)
    if allowed * footprint_bytes > limit_bytes:
        if not prefix_cut:
            return Foretold("bypassed", 0, 0, len(asked))
        allowed = limit_bytes // footprint_bytes
    dram = ssd = 0
    for key in asked[:allowed]:
        if key in resident:
            dram += 1
        elif key in on_ssd and key not in failing:
            ssd += 1
        else:
            break
    miss = len(asked) - dram - ssd
    return Foretold("ready" if dram + ssd else "missed", dram, ssd, miss)
