"""How long a GPU would compute: a formula, not a measurement. Whatever rests on it is called *modelled*.

The reference is Qwen3-8B in BF16 on one H20: 36 layers, 6.95e9 parameters outside the embedding,
hidden size 4,096, 147,456 bytes of KV per token (model card); 148 TFLOP/s dense BF16 and 4.0 TB/s
(data sheet), of which prefill is taken to reach 60 %. Prefill is bound by arithmetic, decoding by reading
the weights once a step:

    prefill = (2 * parameters * n + 4 * layers * hidden * n * (context + n / 2)) / (0.6 * 148e12)
    decode  = 2 bytes * parameters / 4.0e12 per token, however many requests decode together

The engine shrinks pages and time by the same `scale`: one page of 512 tokens has 72 MiB / scale bytes
and the GPU is `scale` times as fast, so that copying keeps its proportion to computing.
"""

import attrs

LAYERS = 36
HIDDEN = 4096
PARAMETERS = 6.95e9
FLOPS_PER_SECOND = 0.6 * 148e12
MEMORY_BYTES_PER_SECOND = 4.0e12
KV_BYTES_PER_TOKEN = 147_456
STEP_SECONDS = 0.002
"""Launching one forward pass, whatever it computes."""


@attrs.frozen
class ComputeModel:
    scale: float
    """The factor by which time (and page bytes) are smaller than the reference's."""

    def prefill_seconds(self, context_tokens: int, new_tokens: int) -> float:
        """Computing `new_tokens` of a prompt behind `context_tokens` whose KV is there."""
        linear = 2 * PARAMETERS * new_tokens
        attention = 4 * LAYERS * HIDDEN * new_tokens * (context_tokens + new_tokens / 2)
        return (linear + attention) / FLOPS_PER_SECOND / self.scale

    def step_seconds(self) -> float:
        return STEP_SECONDS / self.scale

    def decode_seconds(self, output_tokens: int) -> float:
        """From a request's first token to its last."""
        return output_tokens * (2 * PARAMETERS / MEMORY_BYTES_PER_SECOND) / self.scale


def scale_of(page_tokens: int, page_bytes: int) -> float:
    """The factor at which `page_tokens` of the reference's KV fit `page_bytes`."""
    return page_tokens * KV_BYTES_PER_TOKEN / page_bytes
