"""Prompts by number: the same tokens for the same number and seed, in any process."""

import random

from benches.single_node.random_model import SPECIAL_TOKENS


def prompt_tokens(number: int, length: int, vocabulary: int, seed: int) -> list[int]:
    """Two numbers differ from the first page on; a longer prompt of a number begins with the shorter."""
    draw = random.Random(f"{seed} {number}")
    return [draw.randrange(SPECIAL_TOKENS, vocabulary) for _ in range(length)]


def prompt_blocks(number: int, length: int, page_tokens: int) -> tuple[int, ...]:
    """The same for an engine that is given block ids."""
    pages = length // page_tokens
    return tuple(range(number * 1_000_000, number * 1_000_000 + pages))
