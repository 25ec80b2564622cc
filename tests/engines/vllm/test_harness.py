"""The tests' own means: would they see a wrong page?"""

from pathlib import Path

from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import prompt


def test_outputs_depend_on_every_page_that_is_reused(tiny_model: Path, make_engine: EngineMaker) -> None:
    engine = make_engine(tiny_model)
    prompts = [prompt(number, 200) for number in range(4)]
    cold = engine.complete(prompts)
    warm = engine.complete(prompts)
    assert [one.cached_tokens for one in warm] == [192] * 4
    assert [one.tokens for one in warm] == [one.tokens for one in cold]
    assert max(one.distance(other) for one, other in zip(warm, cold, strict=True)) < 1e-4
    right = [tensor.clone() for tensor in engine.kv_tensors]
    key_of = {block.block_id: block.block_hash for block in engine.block_pool.blocks}
    reused = [number for number, key in key_of.items() if key is not None]
    assert len(reused) == 4 * 6
    for block in reused:
        for tensor, kept in zip(engine.kv_tensors, right, strict=True):
            tensor.copy_(kept)
            tensor[block].normal_()
        spoilt = engine.complete(prompts)
        assert any(one.distance(other) > 1e-2 for one, other in zip(spoilt, cold, strict=True)), block


def test_a_page_is_its_prefix_and_nothing_else(tiny_model: Path, make_engine: EngineMaker) -> None:
    """The same bytes from another engine, whatever stood in its memory and beside the request."""
    first = make_engine(tiny_model)
    first.complete([prompt(1, 200)])
    pages = first.pages()
    first.close()
    second = make_engine(tiny_model)
    second.scribble()
    second.complete([prompt(1, 200)])
    assert len(pages) == 6
    assert second.pages() == pages
    second.forget()
    assert second.pages() == {}
