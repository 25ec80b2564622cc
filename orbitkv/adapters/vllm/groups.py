"""vLLM's KV groups as the manager sees them: how many tokens a page has, which pages a prefix needs.

Read from vLLM's own description of its KV memory, by the names of its classes: this file does not import
vllm. A kind of attention that is not named here is refused by its name, because a wrong guess about which
pages a prefix needs serves wrong bytes.
"""

from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any, Final

import attrs

from orbitkv.adapters.errors import AdapterError

ALL: Final = 0
"""Every page up to the boundary is needed."""
_FULL: Final = frozenset({"FullAttentionSpec", "MLAAttentionSpec"})
_SLIDING: Final = frozenset({"SlidingWindowSpec"})
_WITHOUT = "run this model without the connector"


@attrs.frozen(kw_only=True)
class KvGroup:
    """One group of layers that share a block table."""

    number: int
    """vLLM's, and the manager's."""
    block_tokens: int
    page_blocks: int
    trailing_pages: int
    """ALL, or how many pages before the boundary are needed (sliding window)."""
    layers: tuple[str, ...]
    """Of this rank, in the order of the page's image."""
    spec: str
    """What the bytes of one block are, in words: part of the namespace."""
    same_on_every_rank: bool = False
    """Tensor-parallel ranks hold the same bytes (MLA's latent)."""

    @property
    def page_tokens(self) -> int:
        return self.block_tokens * self.page_blocks


def read_groups(kv_cache_config: Any, page_blocks: int) -> tuple[KvGroup, ...]:
    """Raises AdapterError for what the connector does not support."""
    groups = [
        _read_group(number, group, page_blocks)
        for number, group in enumerate(kv_cache_config.kv_cache_groups)
        if getattr(group, "enable_kv_transfer", True)
    ]
    if not groups:
        raise AdapterError("There is nothing to cache.", "The model has no KV cache.", _WITHOUT)
    return tuple(groups)


def boundary_tokens(groups: Sequence[KvGroup]) -> int:
    """A prefix may end at multiples of this only: there, pages of all groups end."""
    return lcm(*(group.page_tokens for group in groups))


def _read_group(number: int, group: Any, page_blocks: int) -> KvGroup:
    specs = list(_layer_specs(group.kv_cache_spec))
    kinds = {type(spec).__name__ for spec in specs}
    if not kinds or not kinds <= _FULL | _SLIDING or (kinds & _FULL and kinds & _SLIDING):
        raise AdapterError(
            f"The attention of KV group {number} is not supported: {', '.join(sorted(kinds)) or 'none'}.",
            f"The connector knows which pages a prefix needs for {', '.join(sorted(_FULL | _SLIDING))} only.",
            _WITHOUT,
        )
    block_tokens = int(group.kv_cache_spec.block_size)
    return KvGroup(
        number=number,
        block_tokens=block_tokens,
        page_blocks=page_blocks,
        trailing_pages=max(
            _trailing_pages(spec, block_tokens * page_blocks, getattr(group, "is_eagle_group", False))
            for spec in specs
        ),
        layers=tuple(group.layer_names),
        spec=" ".join(sorted({_in_words(spec) for spec in specs})),
        same_on_every_rank=kinds == {"MLAAttentionSpec"},
    )


def _layer_specs(spec: Any) -> Iterator[Any]:
    """One for all layers, or one for each where they differ in size."""
    if type(spec).__name__ == "UniformTypeKVCacheSpecs":
        yield from spec.kv_cache_specs.values()
    else:
        yield spec


def _trailing_pages(spec: Any, page_tokens: int, drafts: bool) -> int:
    """A draft model's group looks one page further back, as vLLM's own search does."""
    if type(spec).__name__ not in _SLIDING:
        return ALL
    window: int = spec.sliding_window - 1 + getattr(spec, "extra_retained_tokens", 0)
    return max(1, -(-window // page_tokens)) + int(drafts)


_BYTES: Final = (
    "num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "page_size_padded",
    "num_head_slots", "state_content_bytes", "tokens_per_state", "sliding_window", "cache_dtype_str",
)  # fmt: skip
"""Fields of a spec that say what stands in a block. Absent ones are left out, so that a release that adds
a field does not change the namespace of older ones by its default alone."""


def _in_words(spec: Any) -> str:
    fields = (f"{name}={value}" for name in _BYTES if (value := getattr(spec, name, None)) is not None)
    return f"{type(spec).__name__}({', '.join(fields)})"
