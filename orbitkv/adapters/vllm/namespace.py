"""The namespace of a vLLM engine: everything that changes the bytes of its KV pages.

Read from vLLM's configuration, the same way by the scheduler and by every rank, which must come to the same
document. So only what both see is in it; what a rank alone knows of its memory (backend, strides) is in
the names of its slices (`layout`), and the manager tells pages apart by these as well.
"""

from collections.abc import Sequence
from typing import Any, Final

from orbitkv.adapters.namespace import UNKNOWN, Namespace
from orbitkv.adapters.vllm import weights
from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.adapters.vllm.options import Options

_RANDOM: Final = ("xxhash", "xxhash_cbor")
"""vLLM seeds the chain of these per process unless PYTHONHASHSEED is set."""


def namespace_of(
    vllm_config: Any, kv_cache_config: Any, groups: Sequence[KvGroup], options: Options, version: str
) -> Namespace:
    model, cache, parallel = (
        vllm_config.model_config,
        vllm_config.cache_config,
        vllm_config.parallel_config,
    )
    first = groups[0]
    place = _place(vllm_config)
    return Namespace(
        model=weights.model_name(place),
        revision=weights.revision(place, getattr(model, "revision", None)),
        weights_fingerprint=_weights(vllm_config, options),
        dtype=str(model.dtype),
        kv_dtype="; ".join(group.spec for group in groups),
        page_tokens=first.page_tokens,
        layers=model.get_total_num_hidden_layers(),
        kv_heads=max(1, model.get_total_num_kv_heads()),
        head_size=max(1, model.get_head_size()),
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        layout=f"{getattr(kv_cache_config, 'kv_cache_layout', None) or UNKNOWN}; "
        f"{first.page_blocks} blocks of {first.block_tokens} tokens",
        engine="vllm",
        engine_version=version,
        hash_algorithm=str(cache.prefix_caching_hash_algo),
        key_scheme=f"vllm {version} block hash, raw bytes",
        tenant=options.tenant,
        extras=_extras(vllm_config, groups),
    )


def hash_depends_on_process(vllm_config: Any, hash_seed: str | None) -> bool:
    """`hash_seed`: PYTHONHASHSEED of this process."""
    return str(vllm_config.cache_config.prefix_caching_hash_algo) in _RANDOM and not hash_seed


def _weights(vllm_config: Any, options: Options) -> str:
    if options.weights_fingerprint != "auto":
        return options.weights_fingerprint
    load_format = str(getattr(vllm_config.load_config, "load_format", "auto"))
    if "dummy" in load_format:
        return f"dummy weights of seed {vllm_config.model_config.seed}"
    return weights.fingerprint(_place(vllm_config))


def _place(vllm_config: Any) -> str:
    model, load = vllm_config.model_config, vllm_config.load_config
    return weights.local_place(
        str(model.model), getattr(model, "revision", None), getattr(load, "download_dir", None)
    )


def _extras(vllm_config: Any, groups: Sequence[KvGroup]) -> dict[str, str]:
    model = vllm_config.model_config
    extras = {
        "device": str(getattr(vllm_config.device_config, "device_type", UNKNOWN)),
        "kv_groups": "; ".join(
            f"{g.number}: {g.page_tokens} tokens, trailing {g.trailing_pages}" for g in groups
        ),
        "quantization": str(getattr(model, "quantization", None) or "none"),
        "overrides": repr(getattr(model, "hf_overrides", None) or {}),
        "rope": _rope(model),
    }
    draft = getattr(vllm_config, "speculative_config", None)
    if draft is not None:
        extras["draft"] = f"{getattr(draft, 'method', UNKNOWN)} {getattr(draft, 'model', UNKNOWN)}"
    return extras


def _rope(model: Any) -> str:
    """Some rotary embeddings depend on the longest context that the engine was started for."""
    text = getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None)
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kinds = _rope_kinds(rope) if isinstance(rope, dict) else set()
    depends = kinds & {"longrope", "dynamic", "su"}
    return f"{'+'.join(sorted(depends))} up to {model.max_model_len} tokens" if depends else "fixed"


def _rope_kinds(rope: dict[str, Any]) -> set[str]:
    """The type stands at the top, or below the kinds of layers that differ."""
    kinds = {str(rope[name]) for name in ("rope_type", "type") if name in rope}
    for value in rope.values():
        if isinstance(value, dict):
            kinds |= _rope_kinds(value)
    return kinds
