"""A small engine's description, for clients under test."""

from pathlib import Path
from typing import Any

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.namespace import Namespace
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.io.wire import QueryPart

SLICE_BYTES = 5000
"""Not a multiple of the alignment, so that padding shows."""
GROUP = GroupGeometry(
    0, 64, (SliceGeometry("layers 0-3", SLICE_BYTES), SliceGeometry("layers 4-7", SLICE_BYTES))
)
SLOT_BYTES = 2 * 8192
NAMESPACE = Namespace(
    model="test/model",
    dtype="bfloat16",
    kv_dtype="bfloat16",
    page_tokens=64,
    layers=8,
    kv_heads=8,
    head_size=128,
    layout="NHD",
    engine="test",
    engine_version="1",
    hash_algorithm="sha256",
    key_scheme="chain",
)
KEYS = [bytes([number]) * 32 for number in range(16)]


def make_client(path: Path, **changes: Any) -> CacheManagerClient:
    settings: dict[str, Any] = {
        "instance": "engine",
        "namespace": NAMESPACE,
        "groups": (GROUP,),
        "staging_bytes": 4 * SLOT_BYTES,
        "timeout_s": 5.0,
    }
    return CacheManagerClient(path, **(settings | changes))


def part(*keys: bytes) -> QueryPart:
    return QueryPart(0, 64, 0, list(keys))
