"""The dense directory: which page stands in which SSD slot, 128 bytes a slot, read as a whole at start.

The file is a header, then one region per segment: a header block with the segment's slot size and epoch,
then its entries. The file is sparse: a region has room for the smallest slots, and holds what is used.

- An entry counts only if its checksum is right, it names its own place, and it carries its segment's
  epoch. Formatting a segment raises the epoch, so all earlier entries are void without being touched.
- Nothing here is trusted with data: a page is believed only when its own trailer says so (`image`). A
  stale entry costs one failed read. So entries need no order against the data but "void before it is
  overwritten, set after it is written".
- Another geometry or format makes the whole directory void: it describes a cache, not a document.

Written through the page cache, a few microseconds an entry; `sync` makes it durable.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c
import numpy as np

from orbitkv.events.ids import ALIGNMENT_BYTES, KEY_BYTES_MAX
from orbitkv.io.store_geometry import ENTRY_BYTES, HEADER_BYTES, StoreGeometry
from orbitkv.manager.ports import PageIdentity, RecoveredSegment

FORMAT = 1
FILE_MAGIC = b"ORBITDIR"
SEGMENT_MAGIC = b"ORBITSEG"

VOID, WRITTEN, QUARANTINED = 0, 1, 2

_CHECKSUM = struct.Struct("<I")
_FILE_HEADER = struct.Struct("<8sIIQ")  # magic, format, slots per segment, segment bytes
_SEGMENT_HEADER = struct.Struct("<8sIIQQ")  # magic, format, segment, epoch, slot bytes
_ENTRY = struct.Struct("<BBxxQQQIIII16s32s32x")
_ENTRY_COLUMNS = np.dtype(
    [
        ("checksum", "<u4"),
        ("state", "u1"),
        ("key_bytes", "u1"),
        ("reserved", "V2"),
        ("epoch", "<u8"),
        ("incarnation", "<u8"),
        ("generation", "<u8"),
        ("group", "<u4"),
        ("footprint", "<u4"),
        ("segment", "<u4"),
        ("index", "<u4"),
        ("namespace", "V16"),
        ("key", "V32"),
        ("spare", "V32"),
    ]
)
assert _ENTRY_COLUMNS.itemsize == ENTRY_BYTES == _CHECKSUM.size + _ENTRY.size

_VOID_ENTRY = bytes(ENTRY_BYTES)
_NOBODY = PageIdentity(namespace_digest=b"", group=0, key=b"", incarnation=0, generation=0)


class Directory:
    """Owns the directory file. Every method that writes raises OSError."""

    def __init__(self, path: Path, geometry: StoreGeometry) -> None:
        """Opens or creates the file (0600) and drops what lies beyond the capacity. Raises OSError."""
        self.reset_reason = ""
        """Why nothing of an earlier incarnation was taken over, in words; empty if it was."""
        self._geometry = geometry
        self._segments: dict[int, tuple[int, int]] = {}
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open_header()
            for segment in range(geometry.segments):
                if (header := self._read_segment_header(segment)) is not None:
                    self._segments[segment] = header
        except BaseException:
            os.close(self._descriptor)
            raise

    def format_segment(self, segment: int, slot_bytes: int) -> None:
        """Raise the segment's epoch, which voids its earlier entries, and give its new ones their space."""
        epoch = self._last_epoch(segment) + 1
        region_offset = self._geometry.region_offset(segment)
        used_bytes = HEADER_BYTES + self._geometry.slots_in_segment(slot_bytes) * ENTRY_BYTES
        os.posix_fallocate(self._descriptor, region_offset, used_bytes)
        header = _SEGMENT_HEADER.pack(SEGMENT_MAGIC, FORMAT, segment, epoch, slot_bytes)
        self._write(_checksummed(header), region_offset)
        self._segments[segment] = (epoch, slot_bytes)

    def is_formatted(self, segment: int) -> bool:
        return segment in self._segments

    def set_written(self, segment: int, index: int, identity: PageIdentity, footprint_bytes: int) -> None:
        self._write_entry(segment, index, WRITTEN, identity, footprint_bytes)

    def clear(self, segment: int, indices: Sequence[int]) -> None:
        for index in indices:
            self._write(_VOID_ENTRY, self._entry_offset(segment, index))

    def quarantine(self, segment: int, indices: Sequence[int]) -> None:
        for index in indices:
            self._write_entry(segment, index, QUARANTINED, _NOBODY, 0)

    def recovered(self, page_file_bytes: int) -> list[RecoveredSegment]:
        """Every formatted segment that lies within the page file and holds anything."""
        segments = []
        for segment in sorted(self._segments):
            if (segment + 1) * self._geometry.segment_bytes <= page_file_bytes:
                found = self._recover_segment(segment)
                if found.slots or found.quarantined:
                    segments.append(found)
        return segments

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    # --- headers ----------------------------------------------------------------------------------

    def _open_header(self) -> None:
        geometry = self._geometry
        expected = _checksummed(
            _FILE_HEADER.pack(FILE_MAGIC, FORMAT, geometry.slots_per_segment_max, geometry.segment_bytes)
        )
        found = os.pread(self._descriptor, len(expected), 0)
        if found == expected:
            end = geometry.region_offset(geometry.segments)
            os.ftruncate(self._descriptor, min(end, os.fstat(self._descriptor).st_size))
            return
        self.reset_reason = _difference(found, expected)
        os.ftruncate(self._descriptor, 0)
        self._write(expected, 0)

    def _read_segment_header(self, segment: int) -> tuple[int, int] | None:
        """(epoch, slot bytes), or None for a segment that was never formatted."""
        size = _SEGMENT_HEADER.size + _CHECKSUM.size
        block = os.pread(self._descriptor, size, self._geometry.region_offset(segment))
        if len(block) < size or not _is_sound(block):
            return None
        magic, version, number, epoch, slot_bytes = _SEGMENT_HEADER.unpack_from(block, _CHECKSUM.size)
        if (magic, version, number) != (SEGMENT_MAGIC, FORMAT, segment):
            return None
        return (epoch, slot_bytes) if 0 < slot_bytes <= self._geometry.segment_bytes else None

    def _last_epoch(self, segment: int) -> int:
        """The highest epoch that an entry of this segment can carry, also when its header is unreadable."""
        if segment in self._segments:
            return self._segments[segment][0]
        entries = self._read_entries(segment, self._geometry.slots_per_segment_max)
        return int(entries["epoch"].max(initial=0))

    # --- entries ----------------------------------------------------------------------------------

    def _entry_offset(self, segment: int, index: int) -> int:
        return self._geometry.region_offset(segment) + HEADER_BYTES + index * ENTRY_BYTES

    def _write_entry(
        self, segment: int, index: int, state: int, identity: PageIdentity, footprint_bytes: int
    ) -> None:
        entry = _ENTRY.pack(
            state,
            len(identity.key),
            self._segments[segment][0],
            identity.incarnation,
            identity.generation,
            identity.group,
            footprint_bytes // ALIGNMENT_BYTES,
            segment,
            index,
            identity.namespace_digest,
            identity.key,
        )
        self._write(_checksummed(entry), self._entry_offset(segment, index))

    def _write(self, data: bytes, offset: int) -> None:
        os.pwrite(self._descriptor, data, offset)

    def _read_entries(self, segment: int, count: int) -> np.ndarray:
        data = os.pread(self._descriptor, count * ENTRY_BYTES, self._entry_offset(segment, 0))
        return np.frombuffer(data, dtype=_ENTRY_COLUMNS, count=len(data) // ENTRY_BYTES)

    def _recover_segment(self, segment: int) -> RecoveredSegment:
        epoch, slot_bytes = self._segments[segment]
        entries = self._read_entries(segment, self._geometry.slots_in_segment(slot_bytes))
        own_place = (entries["segment"] == segment) & (entries["index"] == np.arange(len(entries)))
        candidates = np.flatnonzero(own_place & (entries["epoch"] == epoch) & (entries["state"] != VOID))
        raw = entries.tobytes()
        sound = [
            at for at in candidates.tolist() if _is_sound(raw[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES])
        ]
        entries = entries[np.asarray(sound, dtype=np.intp)]
        image_bytes_max = (entries["footprint"].astype(np.int64) + 1) * ALIGNMENT_BYTES
        key_bytes = entries["key_bytes"]
        usable = (image_bytes_max <= slot_bytes) & (key_bytes > 0) & (key_bytes <= KEY_BYTES_MAX)
        return self._in_columns(
            segment,
            slot_bytes,
            written=entries[(entries["state"] == WRITTEN) & usable],
            quarantined=entries[entries["state"] == QUARANTINED],
        )

    def _in_columns(
        self, segment: int, slot_bytes: int, *, written: np.ndarray, quarantined: np.ndarray
    ) -> RecoveredSegment:
        scopes: dict[tuple[bytes, int], int] = {}
        named = zip(written["namespace"].tolist(), written["group"].tolist(), strict=True)
        spaces = [scopes.setdefault(scope, len(scopes)) for scope in named]
        keys = zip(written["key"].tolist(), written["key_bytes"].tolist(), strict=True)
        return RecoveredSegment(
            segment=segment,
            slot_bytes=slot_bytes,
            slots=self._slot_numbers(segment, written),
            spaces=np.asarray(spaces, dtype="<u4").tobytes(),
            scopes=tuple(scopes),
            keys=tuple(key[:length] for key, length in keys),
            generations=written["generation"].tobytes(),
            incarnations=written["incarnation"].astype("<u4").tobytes(),
            footprints=written["footprint"].tobytes(),
            quarantined=self._slot_numbers(segment, quarantined),
        )

    def _slot_numbers(self, segment: int, entries: np.ndarray) -> bytes:
        first = segment * self._geometry.slots_per_segment_max
        return (entries["index"] + np.uint32(first)).astype("<u4").tobytes()


def _checksummed(body: bytes) -> bytes:
    return _CHECKSUM.pack(crc32c.crc32c(body)) + body


def _is_sound(block: bytes) -> bool:
    return bool(_CHECKSUM.unpack_from(block)[0] == crc32c.crc32c(block[_CHECKSUM.size :]))


def _difference(found: bytes, expected: bytes) -> str:
    if not found:
        return "the directory is new"
    if len(found) < len(expected) or not _is_sound(found):
        return "the directory's header was unreadable, so its pages were dropped"
    return "the directory was written with another format or segment geometry, so its pages were dropped"
