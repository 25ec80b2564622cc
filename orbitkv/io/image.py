"""The trailer of a page image: who the page is, how long it is, and a checksum that only this page can have.

An image is the page's padded slices followed by one trailer block, in the pool and on the SSD alike, so
that one transfer moves both. The trailer is what makes a stale directory entry, a torn write or a swapped
slot harmless: an image is believed only when its own last block says it is the page that was asked for.

The payload's checksum is xxh3_64 seeded with a digest of the identity and the lengths, so the right bytes
under the wrong name do not verify either. The trailer block has its own crc32c over all of it.

This module knows bytes only: no files, no pool, no threads. Both functions release the GIL while they hash.
"""

import struct

import crc32c
import xxhash

from orbitkv.events.ids import KEY_BYTES_MAX, NAMESPACE_DIGEST_BYTES, TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome
from orbitkv.manager.ports import PageIdentity

MAGIC = b"ORBITPG\x01"
FORMAT = 1

_FORMAT = "<8sI"  # magic, format
_IDENTITY = "IQQI16s32s"  # group, incarnation, generation, key length, namespace digest, key
_LENGTHS = "QQ"  # footprint, image bytes
_HEAD = struct.Struct(_FORMAT + _IDENTITY + _LENGTHS)
_HASH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")

_IDENTITY_AT = struct.calcsize(_FORMAT)
_LENGTHS_AT = struct.calcsize(_FORMAT + _IDENTITY)
_HASH_AT = _HEAD.size
_CHECKSUM_AT = TRAILER_BYTES - _CHECKSUM.size
_PADDING = bytes(_CHECKSUM_AT - _HASH_AT - _HASH.size)


def seal(view: memoryview, identity: PageIdentity) -> None:
    """Write the trailer of the image that `view` spans: the payload stands, its last 4 KiB are overwritten.

    Raises ValueError for a view that cannot be an image and for a key or digest of impossible length.
    """
    footprint_bytes = _footprint_bytes(view)
    head = _head(identity, footprint_bytes)
    payload_hash = _payload_hash(view[:footprint_bytes], head)
    block = b"".join((head, _HASH.pack(payload_hash), _PADDING))
    view[footprint_bytes:] = block + _CHECKSUM.pack(crc32c.crc32c(block))


def verify(view: memoryview, identity: PageIdentity) -> ReadOutcome:
    """Whether `view` is the whole image of this page.

    WHOLE: it is. OTHER_PAGE: a sound trailer of another page or generation, so the slot was reused.
    CORRUPT: anything else. Raises ValueError for a view that cannot be an image.
    """
    footprint_bytes = _footprint_bytes(view)
    block = bytes(view[footprint_bytes:])
    head = _head(identity, footprint_bytes)
    if _CHECKSUM.unpack_from(block, _CHECKSUM_AT)[0] != crc32c.crc32c(block[:_CHECKSUM_AT]):
        return ReadOutcome.CORRUPT
    if block[:_HASH_AT] != head:
        return _difference(block, head)
    if _HASH.unpack_from(block, _HASH_AT)[0] != _payload_hash(view[:footprint_bytes], head):
        return ReadOutcome.CORRUPT
    return ReadOutcome.WHOLE


def _footprint_bytes(view: memoryview) -> int:
    if view.nbytes <= TRAILER_BYTES or view.itemsize != 1:
        raise ValueError(
            f"a page image is bytes, and more than its trailer of {TRAILER_BYTES}; got {view.nbytes}"
        )
    return view.nbytes - TRAILER_BYTES


def _head(identity: PageIdentity, footprint_bytes: int) -> bytes:
    key, digest = identity.key, identity.namespace_digest
    if not 0 < len(key) <= KEY_BYTES_MAX or len(digest) != NAMESPACE_DIGEST_BYTES:
        raise ValueError(
            f"a page key has 1 to {KEY_BYTES_MAX} bytes and a namespace digest {NAMESPACE_DIGEST_BYTES}; "
            f"got {len(key)} and {len(digest)}"
        )
    who = (identity.group, identity.incarnation, identity.generation, len(key), digest, key)
    return _HEAD.pack(MAGIC, FORMAT, *who, footprint_bytes, footprint_bytes + TRAILER_BYTES)


def _payload_hash(payload: memoryview, head: bytes) -> int:
    return xxhash.xxh3_64_intdigest(payload, seed=xxhash.xxh3_64_intdigest(head))


def _difference(block: bytes, head: bytes) -> ReadOutcome:
    """What a sound trailer means that is not the expected one."""
    same_format = block[:_IDENTITY_AT] == head[:_IDENTITY_AT]
    same_page = block[_IDENTITY_AT:_LENGTHS_AT] == head[_IDENTITY_AT:_LENGTHS_AT]
    return ReadOutcome.OTHER_PAGE if same_format and not same_page else ReadOutcome.CORRUPT
