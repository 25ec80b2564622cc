"""A rank's KV tensors as planes of bytes: what a page's image is made of, and what it is called.

Every layer of a group becomes one plane, a row per block. A layout in which a block's bytes of one layer
do not stand together is refused by its name. vLLM is not imported; tensors are torch's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.io.wire import SLICE_CHARS_MAX


@attrs.frozen(kw_only=True)
class Ranks:
    """Where one rank stands among the others."""

    rank: int
    world_size: int
    tensor_parallel: int
    pipeline_parallel: int

    @property
    def tensor_rank(self) -> int:
        return self.rank % self.tensor_parallel

    @property
    def pipeline_rank(self) -> int:
        return self.rank // self.tensor_parallel % self.pipeline_parallel


@attrs.frozen(eq=False)
class GroupPlanes:
    """One group's KV memory on this rank."""

    group: KvGroup
    planes: list[Any] = attrs.field(repr=False)
    """Tensors of bytes, [blocks, bytes of one block of one layer]."""
    slice_name: str

    @property
    def block_bytes(self) -> int:
        return sum(plane.shape[1] for plane in self.planes)

    def geometry(self) -> GroupGeometry:
        """As the manager is told. A rank without a layer of the group holds no slice of its pages."""
        group = self.group
        payload_bytes = self.block_bytes * group.page_blocks
        slices = (
            (SliceGeometry(self.slice_name, payload_bytes, group.same_on_every_rank),) if self.planes else ()
        )
        return GroupGeometry(group.number, group.page_tokens, slices)


def read_layout(
    groups: Sequence[KvGroup],
    tensors: Mapping[str, Any],
    blocks: int,
    layout: str,
    ranks: Ranks,
    backend: str,
) -> list[GroupPlanes]:
    """`tensors`: by layer, as vLLM registers them. `backend`: what else decides how bytes stand in a block.

    Raises AdapterError for memory in which pages cannot be told apart.
    """
    found = []
    for group in groups:
        layers = [name for name in group.layers if name in tensors]
        planes = [_plane(name, tensors[name], blocks, layout) for name in layers]
        found.append(GroupPlanes(group, planes, _slice_name(group, layers, tensors, layout, ranks, backend)))
    return found


def _plane(name: str, tensor: Any, blocks: int, layout: str) -> Any:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise _unsupported(name, layout, f"it is a {type(tensor).__name__}, not one tensor")
    if tensor.shape[0] % blocks:
        raise _unsupported(name, layout, f"{tensor.shape[0]} rows are no multiple of {blocks} blocks")
    if tensor.shape[0] != blocks:
        tensor = tensor.unflatten(0, (blocks, -1))
    size = tensor.element_size()
    elements = _dense_elements(tensor.shape[1:], tensor.stride()[1:])
    if elements is None:
        raise _unsupported(name, layout, f"a block's bytes are scattered (strides {tensor.stride()})")
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        tensor.untyped_storage(),
        tensor.storage_offset() * size,
        (blocks, elements * size),
        (tensor.stride(0) * size, 1),
    )


def _dense_elements(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """How many elements stand together without a gap, in whatever order; None if there is a gap."""
    expected = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return None
        expected *= extent
    return expected


def _slice_name(
    group: KvGroup, layers: Sequence[str], tensors: Mapping[str, Any], layout: str, ranks: Ranks, backend: str
) -> str:
    """Readable in front; the digest at its end is over all that decides how bytes stand in a page."""
    ours = [(name, tensors[name]) for name in layers]
    shapes = [(name, tuple(t.shape[1:]), tuple(t.stride()[1:]), str(t.dtype)) for name, t in ours]
    digest = hashlib.sha256(repr((shapes, layout, backend, group.spec)).encode()).hexdigest()[:16]
    stage = f"pp{ranks.pipeline_rank}/{ranks.pipeline_parallel}"
    part = stage if group.same_on_every_rank else f"tp{ranks.tensor_rank}/{ranks.tensor_parallel} {stage}"
    return f"{part} {len(layers)} layers {layout} {backend} {digest}"[-SLICE_CHARS_MAX:]


def _unsupported(name: str, layout: str, why: str) -> AdapterError:
    return AdapterError(
        f"The KV layout {layout} of layer {name} is not supported.",
        f"The connector moves a block's bytes of one layer as one piece, and {why}.",
        "set VLLM_KV_CACHE_LAYOUT to one whose blocks are compact, for example LBNHC or LBHNC",
    )
