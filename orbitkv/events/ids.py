"""The numbers that identify things, and the packed columns they travel in.

All of them are plain ints; a field's name says which one it holds.

    session      one connection of one process to the manager; strictly increasing within an incarnation
    process      one operating-system process that the manager has met; not the pid, which the system reuses
    instance     one registered engine (all its ranks); an engine that registers anew is a new one
    space        one (namespace and layout, group): the scope in which a page key is unique
    operation    (opener session << 32) | ticket; strictly increasing per opener, so a retired one is over
    lease        counted from 1
    page         small stand-in for (space, key); reused after the page is in no tier and nobody refers to it
    buffer       one DRAM allocation (row of the buffer table); reused after it is freed
    generation   the content of a buffer or slot; with the incarnation that made it, never reused
    read         one read of one page from the SSD, counted from 1
    slot         one SSD slot: segment * slots_per_segment_max + index in the segment
    segment, superblock   parts of the page file and of the pool, counted from 0
    seq          position in the log: 1 for the first record of an incarnation, then without gaps

Lists of ids travel as little-endian u32 columns in `bytes` (4 bytes each), because a 256-page list then
costs one memcpy to encode and becomes a numpy column or SQL rows without a Python loop.
"""

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
