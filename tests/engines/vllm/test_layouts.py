"""Every way in which a page of KV can be stored here: its bytes come back where they belong.

A processor has one order of layers, heads and tokens; blocks, pages of several blocks, number formats and
groups differ.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm.cache import running_cache
from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import prompt, transfer_config

TOKENS = 5 * 128 + 40


@pytest.mark.parametrize("tier", [pytest.param("dram", marks=pytest.mark.slow), "ssd"])
@pytest.mark.parametrize(
    ("settings", "extra", "page_tokens"),
    [
        ({"block_size": 32}, {"page_blocks": 2}, 64),
        ({"block_size": 32}, {"page_blocks": 5}, 160),
        ({"block_size": 64}, {}, 64),
        ({"block_size": 128, "dtype": "bfloat16"}, {}, 128),
        ({"block_size": 32, "dtype": "float16"}, {"page_blocks": 4}, 128),
    ],
    ids=["2 blocks", "5 blocks", "blocks of 64", "bfloat16", "float16 in 4 blocks"],
)
def test_bytes_come_back(
    tmp_path: Path,
    tiny_model: Path,
    make_engine: EngineMaker,
    settings: dict[str, Any],
    extra: dict[str, Any],
    page_tokens: int,
    tier: str,
) -> None:
    with running_cache(tmp_path) as cache:
        engine = make_engine(tiny_model, transfer_config(cache.socket, **extra), **settings)
        prompts = [prompt(number, TOKENS) for number in range(2)]
        engine.complete(prompts, max_tokens=1)
        pages = engine.pages()
        cache.settle()
        engine.forget()
        if tier == "ssd":
            cache.forget_dram()
        with cache.counting() as tiers:
            restored = engine.complete(prompts, max_tokens=1)
        whole = TOKENS // page_tokens
        assert tiers == {"dram": 0, "ssd": 0, "miss": 0} | {tier: 2 * whole}
        assert [one.cached_tokens for one in restored] == [whole * page_tokens] * 2
        found = engine.pages()
        # What lies behind the last whole page was computed, from restored pages, in another batch.
        came_back = {key: page for key, page in found.items() if pages[key] == page}
        assert len(came_back) >= 2 * whole * page_tokens // settings["block_size"]
        cache.settle()
        engine.close()
