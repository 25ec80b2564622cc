"""Names for the numbers that identify things, and the packed columns they travel in.

Every id is a plain int at run time. The NewTypes keep a lease from being passed where an
operation is meant. Lists of ids travel as little-endian u32 columns in `bytes` (4 bytes each),
because a 256-page list then costs one memcpy to encode and becomes a numpy column or SQL rows
without a Python loop.
"""

from typing import NewType

SessionId = NewType("SessionId", int)
"""One connection of one process to the manager; strictly increasing within an incarnation."""
ProcessId = NewType("ProcessId", int)
"""One operating-system process that the manager has met; not the pid, which the system reuses."""
InstanceId = NewType("InstanceId", int)
"""One registered engine (all its ranks); a re-registration is a new instance."""
SpaceNo = NewType("SpaceNo", int)
"""One (namespace, group): the scope in which a page key is unique."""
OperationId = NewType("OperationId", int)
"""(opener session << 32) | ticket: strictly increasing per opener, so a retired one never revives."""
LeaseId = NewType("LeaseId", int)
PageNo = NewType("PageNo", int)
"""Small stand-in for (space, key); reused after the page is in no tier and nobody refers to it."""
BufferNo = NewType("BufferNo", int)
"""One DRAM allocation (row of the buffer table); reused after it is freed. Its `generation` is not."""
ReadId = NewType("ReadId", int)
SlotNo = NewType("SlotNo", int)
"""One SSD slot: segment * slots_per_segment_max + index in the segment."""
SegmentNo = NewType("SegmentNo", int)
SuperblockNo = NewType("SuperblockNo", int)
Seq = NewType("Seq", int)
"""Position in the log: 1 for the first record of an incarnation, then without gaps."""

NONE_U32 = 0xFFFF_FFFF
"""In a packed u32 column: no such thing (an unknown page, a page without a buffer)."""

Column = bytes
"""Packed little-endian u32 values, 4 bytes each."""
WideColumn = bytes
"""Packed little-endian u64 values, 8 bytes each."""

SCHEDULER_RANK = -1
"""The rank of a session that asks and cancels but holds no KV slice (an engine's scheduler process)."""

KEY_BYTES_MAX = 32
"""Longest page key. vLLM block hashes have 16 or 32 bytes, SGLang's 32 (sent as 64 hex digits there)."""
NAMESPACE_DIGEST_BYTES = 16
"""First half of SHA-256 over the canonical namespace document."""

ALIGNMENT_BYTES = 4096
"""Slices, images and files are aligned to this: the strictest alignment O_DIRECT asks for in practice."""
TRAILER_BYTES = 4096
"""The last block of a page image: identity, lengths, checksum."""
