"""Rates of GPUs: formulas against numbers worked out by hand."""

from __future__ import annotations

import pytest
from agym.dsl.model.recipe import Gpu, ModelShape
from agym.dsl.planning.speeds import SPEEDS, Speed, iteration_seconds, link_seconds, pass_seconds

TOY = ModelShape(layers=2, hidden=8, heads=4, kv_heads=2, intermediate=16, vocab=100)
"""2,792 parameters, and 32 bytes of cache for a token in half precision."""
GPU = Speed(flops=1e6, memory=1e6, link=1e6)


def test_every_known_gpu_has_a_speed() -> None:
    assert set(SPEEDS) == set(Gpu)


def test_a_pass_costs_two_operations_per_parameter_and_attention() -> None:
    # 2 · 2792 and 4 · 2 · 8 · 50 for each of ten tokens; three passes at half the rate
    assert pass_seconds(TOY, GPU, 10, 50, 3, 0.5) == pytest.approx(3 * 10 * (5584 + 3200) / 500_000)


def test_sampling_reads_weights_and_caches() -> None:
    # one token of one episode: 5584 of weights and 1000 · 32 of cache at 60 % of the memory's rate
    slow = Speed(flops=1e12, memory=1e6, link=1e6)
    assert iteration_seconds(TOY, slow, 2, 1, 1, 1000) == pytest.approx(0.005 + (5584 + 32_000) / 600_000)
    assert iteration_seconds(TOY, slow, 2, 2, 1, 1000) == pytest.approx(0.005 + (5584 + 32_000) / 2 / 600_000)


def test_many_episodes_at_once_are_bound_by_operations() -> None:
    fast = Speed(flops=1e6, memory=1e12, link=1e6)
    assert iteration_seconds(TOY, fast, 2, 1, 100, 50) == pytest.approx(0.005 + 100 * (5584 + 3200) / 450_000)


def test_a_link_gives_most_of_its_rate() -> None:
    assert link_seconds(GPU, 800_000) == pytest.approx(1)
