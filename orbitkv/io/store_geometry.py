"""How the page file and its directory are cut into segments and slots. Arithmetic only."""

import attrs

from orbitkv.events.ids import ALIGNMENT_BYTES
from orbitkv.io.errors import StoreError

ENTRY_BYTES = 128
HEADER_BYTES = ALIGNMENT_BYTES


@attrs.frozen(slots=True)
class StoreGeometry:
    capacity_bytes: int
    """What the operator allows; the page file takes the whole segments that fit."""
    segment_bytes: int
    slots_per_segment_max: int

    def __attrs_post_init__(self) -> None:
        if self.segment_bytes <= 0 or self.segment_bytes % ALIGNMENT_BYTES:
            raise StoreError(
                f"ssd_segment_bytes = {self.segment_bytes} cannot be used: segments are multiples of "
                f"{ALIGNMENT_BYTES} bytes; set ssd_segment_bytes to one"
            )
        if self.segments < 1:
            raise StoreError(
                f"ssd_bytes = {self.capacity_bytes} holds no segment of {self.segment_bytes} bytes: "
                f"raise ssd_bytes, lower ssd_segment_bytes, or set ssd_bytes = 0 to do without an SSD"
            )

    @property
    def segments(self) -> int:
        return self.capacity_bytes // self.segment_bytes

    @property
    def page_file_bytes(self) -> int:
        """The page file never grows beyond this."""
        return self.segments * self.segment_bytes

    @property
    def region_bytes(self) -> int:
        """Directory bytes of one segment: a header block and an entry per possible slot."""
        entries_bytes = self.slots_per_segment_max * ENTRY_BYTES
        return HEADER_BYTES + -(-entries_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def region_offset(self, segment: int) -> int:
        """Where a segment's region begins in the directory file; the file's own header comes first."""
        return HEADER_BYTES + segment * self.region_bytes

    def slots_in_segment(self, slot_bytes: int) -> int:
        return min(self.segment_bytes // slot_bytes, self.slots_per_segment_max)
