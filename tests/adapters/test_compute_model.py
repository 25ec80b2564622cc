"""The compute model: figures that can be checked by hand, and one factor for all of it."""

import pytest

from orbitkv.adapters.embedded.compute_model import ComputeModel, scale_of


def test_prefill_is_arithmetic_over_arithmetic_speed() -> None:
    """1,000 tokens: 2 * 6.95e9 * 1000 FLOP linear, 4 * 36 * 4096 * 1000 * 500 attention, at 88.8 TFLOP/s."""
    assert ComputeModel(1).prefill_seconds(0, 1000) == pytest.approx((13.9e12 + 0.294912e12) / 88.8e12)


def test_chunks_cost_together_what_the_whole_costs() -> None:
    model = ComputeModel(1)
    chunked = sum(model.prefill_seconds(start, 512) for start in range(0, 4096, 512))
    assert chunked == pytest.approx(model.prefill_seconds(0, 4096))


def test_a_restored_prefix_saves_its_share() -> None:
    model = ComputeModel(1)
    assert model.prefill_seconds(7680, 512) < 0.08 * model.prefill_seconds(0, 8192)


def test_one_factor_scales_time_and_bytes() -> None:
    scale = scale_of(512, 128 * 1024)
    assert scale == 576
    assert ComputeModel(scale).prefill_seconds(100, 2000) == pytest.approx(
        ComputeModel(1).prefill_seconds(100, 2000) / 576
    )
    assert ComputeModel(scale).decode_seconds(300) == pytest.approx(ComputeModel(1).decode_seconds(300) / 576)
