"""Every preset that runs, from two episodes and their rewards to the gradient of a policy of two words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.check.presets import load_presets
from agym.dsl.model.algorithm import Baseline, Kind
from agym.runtime.engine import OutcomeKind
from agym.runtime.learning.kl_penalty import sampled_sequences
from agym.runtime.learning.loss import LossInputs, compute_loss, compute_token_scale
from agym.runtime.learning.packing import compute_normaliser, pack
from agym.runtime.learning.training_batch import attach_values, build_training_batch, score_groups
from agym.runtime.progress import Progress
from agym.runtime.rollout.episode import Ending, Episode, Group
from agym.runtime.steps.stage_context import StageContext, update_settings

from .conftest import RECIPE, plan_of
from .factories import make_episode, make_segment, make_turn

RUNNING = sorted(
    name
    for name, preset in load_presets().items()
    # a student learns from its teacher, whatever it earned
    if preset.kind is Kind.RL and name != "distill"
)
CLOCK = {"step": 0.0, "total_step": 0.0, "stage": "exploit", "stage_index": 1.0}
PROMPT = 3
REWARDS = {"mtpo": "{source: pairwise, judge: {url: 'http://127.0.0.1:1/v1', model: judge}}"}
"""What a preset learns from, where that is not the environment's word."""


def episode(words: tuple[int, ...], score: float) -> Episode:
    """After a prompt, turns of one word each, with a token of the environment's between them."""
    length = PROMPT + 2 * len(words)
    ids, sampled = np.zeros(length, np.int32), np.zeros(length, np.bool_)
    places = [PROMPT + 2 * at for at in range(len(words))]
    ids[places], sampled[places] = words, True
    logprobs = np.where(sampled, np.log(0.5), 0).astype(np.float32)
    turns = [make_turn(at, at + 1, state=str(at)) for at in places]
    return make_episode([make_segment(sampled, ids, logprobs)], turns, score=score, success=score >= 1)


def gradient(preset: str, first: float, second: float, turns: int = 1) -> list[float]:
    """Of a descent step: how much likelier the first episode's word becomes, and the second's."""
    plan = plan_of(RECIPE, f"algorithm={{use: {preset}, kl: {{coef: 0}}}}", f"reward={REWARDS.get(preset, '{}')}")
    stage = plan.stages[1].settings
    episodes = [episode((0,) * turns, first), episode((1,) * turns, second)]
    greedy = episode((0,) * turns, 0.5) if stage.algorithm.advantage.baseline is Baseline.GREEDY else None
    tried = [tuple(episodes)] if stage.algorithm.group_size > 1 else [(each,) for each in episodes]
    groups = [Group(task=episodes[0].task, episodes=each, greedy=greedy) for each in tried]
    book = score_groups(groups, stage, 0.0, CLOCK, {})[0]
    if stage.algorithm.advantage.baseline is Baseline.CRITIC:
        book = attach_values(book, [np.zeros(len(sequence.ids), np.float32) for sequence in sampled_sequences(book)])
    taught = build_training_batch(book, stage, CLOCK)
    if not taught.sequences:
        return [0.0, 0.0]
    parts: dict[str, Any] = dict.fromkeys(("workers", "reporter", "clock", "pools", "prefetcher"))
    settings = update_settings(StageContext(plan=plan, stage=stage, progress=Progress(), **parts)).loss
    logits = torch.zeros(2, requires_grad=True)
    for row in pack(taught.sequences, 1000, torch.device("cpu")):
        logprobs = logits.log_softmax(0)
        scale = compute_token_scale(
            row.lengths_S, row.sequence_N, settings.aggregation, settings.length, compute_normaliser(taught.sequences)
        )
        terms = compute_loss(
            LossInputs(
                logprobs_N=logprobs[row.targets_N],
                entropy_N=torch.zeros(len(row.targets_N)),
                advantages_N=row.advantages_N,
                scale_N=scale,
                unit_N=row.units(settings.ratio),
                old_N=row.old_N,
            ),
            settings,
        )
        terms.loss.backward()
    assert logits.grad is not None
    return (-logits.grad).tolist()


@pytest.mark.parametrize("preset", RUNNING)
@pytest.mark.parametrize("turns", [1, 3])
def test_the_better_episode_becomes_likelier_and_the_worse_one_less(preset: str, turns: int) -> None:
    first, second = gradient(preset, 1.0, 0.0, turns)
    assert first > 1e-4
    assert second == pytest.approx(-first)
    assert gradient(preset, 0.0, 1.0, turns) == pytest.approx([second, first])


@pytest.mark.parametrize("preset", RUNNING)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_episodes_that_earned_the_same_move_nothing(preset: str, reward: float) -> None:
    assert gradient(preset, reward, reward) == pytest.approx([0.0, 0.0], abs=1e-7)


def test_mtpo_is_held_back_by_two_policies() -> None:
    plan = plan_of(RECIPE, "algorithm={use: mtpo}", f"reward={REWARDS['mtpo']}")
    parts: dict[str, Any] = dict.fromkeys(("workers", "reporter", "clock", "pools", "prefetcher"))
    loss = update_settings(StageContext(plan=plan, stage=plan.stages[1].settings, progress=Progress(), **parts)).loss
    assert (loss.kl_coef, loss.previous_coef) == (1e-2, 1e-2)


def test_most_presets_run() -> None:
    assert {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce", "reinforce_pp", "remax", "loop"} | {
        "ppo",
        "bilevel_ppo",
    } <= {*RUNNING}


def test_a_run_compares_with_an_episode_that_it_does_not_learn_from(new_run: Any) -> None:
    run = new_run("schedule.1.algorithm={use: remax, group_size: 1, groups_per_step: 6, kl: {coef: 0}}")
    assert run.go().kind is OutcomeKind.FINISHED
    assert {row["rollout/episodes"] for row in run.steps() if row["stage"] == "exploit"} == {6}
    assert {request.sampling.temperature for request in run.sampler.requests} >= {0.0, 1.0}


def test_an_episode_whose_greedy_one_was_lost_is_left_out() -> None:
    plan = plan_of(RECIPE, "schedule.1.algorithm={use: remax, kl: {coef: 0}}", "reward={}")
    lost = replace(episode((0,), 0.0), ending=Ending.ENV_FAULT)
    group = Group(task=lost.task, episodes=(episode((1,), 1.0),), greedy=lost)
    assert score_groups([group], plan.stages[1].settings, 0.0, CLOCK, {})[0] == [[]]
