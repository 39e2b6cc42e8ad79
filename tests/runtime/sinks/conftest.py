"""A plan of two stages, the rows such a run writes, an episode, and sinks that do as they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Sink as Settings
from agym.dsl.source import Source
from agym.runtime.reporting import MetricsRow
from agym.runtime.rollout.episode import Ending, Episode, Segment, Task, Turn

from ...memory_library import MemoryLibrary

RECIPE = """\
agym: 1
name: craft
tags: [tiny]
model: {init: {family: qwen3, layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 256}}}
environments: {textcraft: {use: textcraft}}
agent: {format: plain, tokens_per_turn: 16, context_tokens: 512}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, lr: 1e-3, kl: {coef: 0}}
schedule:
  - {stage: imitate, until: step >= 10, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {source: expert}}}
  - {stage: exploit, turns: 8, until: step >= 40}
  - {stage: explore, turns: 12, until: step >= 100}
eval: {every: 20, limit: 100, turns: 12}
"""


@pytest.fixture(scope="session")
def plan() -> Plan:
    compiled = compile_recipe(Source(name="craft.yaml", text=RECIPE), MemoryLibrary({}), (), {}, catalog())
    assert compiled.diagnostics == (), compiled.diagnostics
    (variant,) = compiled.variants
    assert variant.plan is not None
    return variant.plan


@pytest.fixture
def logging_to(plan: Plan) -> Callable[..., Plan]:
    """The plan with other sinks."""
    return lambda *sinks, **rest: replace(plan, logging=tuple(Settings(use=name, **rest) for name in sinks))


def _step_row(total_step: int, **changes: Any) -> MetricsRow:
    """A step of `exploit`, which began after ten of `imitate`."""
    return {
        "total_step": total_step,
        "stage": "exploit",
        "step": total_step - 10,
        "horizon/turns": 8,
        "rollout/success": 0.5,
        "rollout/reward": 0.45,
        "rollout/turns": 5.25,
        "rollout/tokens": 6000,
        "train/loss": -0.0123,
        "train/kl": 0.00012,
        "train/entropy": 1.234,
        "train/tokens": 9000,
        "guard/action": "",
        "timing_s/rollout": 1.5,
        "timing_s/update": 0.4,
        "timing_s/step": 2.0,
        **changes,
    }


def _eval_row(total_step: int, success: float = 0.41, **changes: Any) -> MetricsRow:
    return {
        "total_step": total_step,
        "stage": "exploit",
        "eval/textcraft/success": success,
        "eval/textcraft/ci_low": success - 0.1,
        "eval/textcraft/ci_high": success + 0.1,
        "eval/textcraft/success/easy": 0.9,
        "eval/success": success,
        "timing_s/eval": 3.0,
        **changes,
    }


def _played(*turns: tuple[str | None, str], reply: str = "", task: str = "craft-torch", **rest: Any) -> Episode:
    """An episode of (action, observation)."""
    ids = np.zeros(1, np.int32)
    segment = Segment(ids=ids, sampled=ids.astype(np.bool_), logprobs=ids.astype(np.float32), versions=ids)
    facts: dict[str, Any] = {"ending": Ending.DONE, "horizon": 8, "score": 1.0, "success": True} | rest
    return Episode(
        task=Task(environment="textcraft", id=task, seed=0),
        index=0,
        segments=(segment,),
        turns=tuple(
            Turn(segment=0, start=0, end=1, reply=reply or str(action), action=action, observation=seen, reward=0.0)
            for action, seen in turns
        ),
        **facts,
    )


@pytest.fixture(scope="session")
def step_row() -> Callable[..., MetricsRow]:
    return _step_row


@pytest.fixture(scope="session")
def eval_row() -> Callable[..., MetricsRow]:
    return _eval_row


@pytest.fixture(scope="session")
def played() -> Callable[..., Episode]:
    return _played
