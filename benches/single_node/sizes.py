"""Sizes as an operator gives them: plainly, or as a fraction of the pool.

The defaults are the proportions of the reference window (Qwen3-8B, pool 4 GiB, 8,192 GPU tokens): GPU 0.28
of the pool, query budget 0.75, SSD 4, working set 1.69. They make its experiment at any scale.
"""

import json
import math
from pathlib import Path
from typing import Any, Final

import attrs
import click

GIB: Final = 1 << 30
DTYPE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_POOL: Final = "pool"


@attrs.frozen
class Amount:
    number: float
    of_pool: bool

    def bytes(self, pool_bytes: int, unit_bytes: int) -> int:
        """`unit_bytes`: what one stands for when it is no fraction."""
        return int(self.number * (pool_bytes if self.of_pool else unit_bytes))

    def units(self, pool_bytes: int, unit_bytes: int) -> int:
        """So many units, a broken one counted as whole."""
        return math.ceil(self.number * pool_bytes / unit_bytes) if self.of_pool else int(self.number)


class AmountType(click.ParamType):  # type: ignore[type-arg]
    """`8192`, or `0.28pool`."""

    name = "N|Xpool"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Amount:
        if isinstance(value, Amount):
            return value
        text = str(value).strip()
        of_pool = text.endswith(_POOL)
        try:
            number = float(text.removesuffix(_POOL))
        except ValueError:
            number = math.nan
        if not (0 < number < math.inf):
            self.fail(f"{text!r} is neither a positive number nor, as in 0.28pool, a fraction of the pool")
        return Amount(number, of_pool)


def kv_bytes_per_token(model: Path, dtype: str) -> int:
    """Keys and values of one token over all layers, read from the model's `config.json`."""
    config = json.loads((model / "config.json").read_text())
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    numbers: int = config["num_hidden_layers"] * heads * head_size * 2
    return numbers * DTYPE_BYTES[dtype]


def positions_of(model: Path) -> int:
    """The longest context that the model has positions for."""
    positions: int = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    return positions


def vocabulary_of(model: Path) -> int:
    words: int = json.loads((model / "config.json").read_text())["vocab_size"]
    return words
