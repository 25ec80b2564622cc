"""Random models of a size that a processor can serve, made on the spot: nothing is fetched.

Their weights are drawn so that what they say depends on what they attend to. That is not a given: with
weights near zero, as `load_format="dummy"` makes them, an engine's output stays the same when every page
of its KV cache is overwritten, and a test that compares outputs would compare nothing.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Final

import attrs

GAIN: Final = 1.5
"""Times 1 / sqrt(inputs): above 1, so that what attention brings is not lost on the way to the output."""
SPECIAL_TOKENS: Final = 3
"""Padding, begin and end; ids below it are no prompt's."""


@attrs.frozen(kw_only=True)
class ModelShape:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int = 512
    positions: int = 2048
    window_tokens: int = 0
    """Of the sliding-window layers; 0: every layer attends to the whole prompt."""
    full_layer_every: int = 0
    """With a window, every so-manieth layer has none."""

    @property
    def kv_bytes_per_token(self) -> int:
        """In float32, over all layers, keys and values."""
        return self.layers * self.kv_heads * self.head_size * 2 * 4

    @property
    def layer_kinds(self) -> list[str]:
        every = self.full_layer_every
        return [
            "sliding_attention" if self.window_tokens and (layer + 1) % every else "full_attention"
            for layer in range(self.layers)
        ]


TINY: Final = ModelShape(
    name="tiny", layers=2, hidden=64, heads=2, kv_heads=2, head_size=32, intermediate=128
)
"""Served at 1 ms a token or less; two KV heads, so that two tensor-parallel ranks have one each."""
MID: Final = ModelShape(
    name="mid", layers=8, hidden=512, heads=8, kv_heads=4, head_size=64, intermediate=1536,
    vocabulary=2048, positions=8192,
)  # fmt: skip
"""For times to first token: a cold prompt of 4,096 tokens takes seconds on two cores."""
HYBRID: Final = ModelShape(
    name="hybrid", layers=6, hidden=64, heads=2, kv_heads=1, head_size=32, intermediate=128,
    window_tokens=96, full_layer_every=3,
)  # fmt: skip
"""Sliding-window layers beside full ones: several KV cache groups."""
SHAPES: Final = {shape.name: shape for shape in (TINY, MID, HYBRID)}


def make_model(shape: ModelShape, parent: Path, *, seed: int = 0) -> Path:
    """The model's folder below `parent`, made unless it is there: the same bytes for the same arguments."""
    identity = json.dumps([attrs.asdict(shape), seed, GAIN])
    folder = parent / f"{shape.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if (folder / "model.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=1))
    _write_weights(shape, folder / "model.safetensors", seed)
    return folder


def _config(shape: ModelShape) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "attention_bias": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    if shape.window_tokens:
        config |= {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": shape.head_size,
            "sliding_window": shape.window_tokens,
            "layer_types": shape.layer_kinds,
            "rope_local_base_freq": 10000.0,
        }
    return config


def _write_weights(shape: ModelShape, path: Path, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    draw = torch.Generator().manual_seed(seed)

    def matrix(outputs: int, inputs: int) -> Any:
        return torch.randn(outputs, inputs, generator=draw) * (GAIN / math.sqrt(inputs))

    # Gemma's norms add one to their weight, and its embedding and head are one matrix.
    gemma = bool(shape.window_tokens)
    norm = torch.zeros if gemma else torch.ones
    weights = {
        "model.embed_tokens.weight": torch.randn(shape.vocabulary, shape.hidden, generator=draw),
        "model.norm.weight": norm(shape.hidden),
        "lm_head.weight": matrix(shape.vocabulary, shape.hidden),
    }
    attended, kept = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        for name, outputs, inputs in (
            ("self_attn.q_proj", attended, shape.hidden),
            ("self_attn.k_proj", kept, shape.hidden),
            ("self_attn.v_proj", kept, shape.hidden),
            ("self_attn.o_proj", shape.hidden, attended),
            ("mlp.gate_proj", shape.intermediate, shape.hidden),
            ("mlp.up_proj", shape.intermediate, shape.hidden),
            ("mlp.down_proj", shape.hidden, shape.intermediate),
        ):
            weights[f"{prefix}.{name}.weight"] = matrix(outputs, inputs)
        for name in norms:
            weights[f"{prefix}.{name}.weight"] = norm(shape.hidden)
        if gemma:
            for name in ("q_norm", "k_norm"):
                weights[f"{prefix}.self_attn.{name}.weight"] = norm(shape.head_size)
    # Under another name first, so that a run cut short leaves no half of a model.
    partial = path.with_suffix(".partial")
    save_file(weights, str(partial), metadata={"format": "pt"})
    partial.rename(path)
