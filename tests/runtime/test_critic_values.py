"""What a critic says about an episode's tokens, what it should have said, and the loss between the two."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise
from agym.dsl.model.recipe import OnInvalidTurn
from agym.runtime.errors import StepRefused
from agym.runtime.learning.advantage import compute_advantages, compute_value_targets
from agym.runtime.learning.filters import LossMask
from agym.runtime.learning.kl_penalty import sampled_sequences
from agym.runtime.learning.loss import compute_value_loss
from agym.runtime.learning.metrics import critic_metrics
from agym.runtime.learning.packing import compute_normaliser, pack, unpack
from agym.runtime.learning.reward import Scored, assign_turn_rewards
from agym.runtime.learning.training_batch import attach_values, build_training_batch, to_train_sequences
from agym.runtime.protocols import TrainSequence, UpdateFault, ValueMetrics, ValueSettings
from agym.runtime.rollout.episode import Ending, Episode

from .conftest import RECIPE, beginner, critic_of, plan_of
from .factories import make_episode, make_scored, make_segment, make_turn
from .fake_critic import FakeCritic

CPU = torch.device("cpu")
CLOCK = {"step": 0.0, "total_step": 0.0, "stage": "exploit", "stage_index": 1.0}


def episode(*lengths: tuple[int, ...], ending: Ending = Ending.DONE, invalid: int = -1) -> Episode:
    """A segment for each tuple: two tokens of the environment's before each turn of that many tokens."""
    segments, turns = [], []
    for at, of_segment in enumerate(lengths):
        sampled = [mark for length in of_segment for mark in [False, False, *[True] * length]]
        segments.append(make_segment(sampled, np.arange(len(sampled)) + 10 * at))
        ends = np.cumsum([length + 2 for length in of_segment]).tolist()
        turns += [(at, end - length, end) for end, length in zip(ends, of_segment, strict=True)]
    return make_episode(
        segments,
        [
            make_turn(start, end, segment=at, action=None if number == invalid else "go")
            for number, (at, start, end) in enumerate(turns)
        ],
        ending=ending,
        score=1.0,
        success=True,
    )


def scored_of(each: Episode, outcome: float = 1.0) -> Scored:
    return make_scored(each, outcome)


def ids_as_values(book: list[list[Scored]]) -> list[np.ndarray]:
    return [sequence.ids.astype(np.float32) for sequence in sampled_sequences(book)]


# --- where values stand ----------------------------------------------------------------------------------------------


def test_before_a_token_stands_the_value_of_the_one_before_it() -> None:
    book = [[scored_of(episode((2, 1), (1,), ending=Ending.HORIZON)), scored_of(episode((3,)))]]
    ((first, second),) = attach_values(book, ids_as_values(book))
    # tokens 2, 3 and 6 of the first segment, 12 of the second
    assert first.values.tolist() == [1.0, 2.0, 5.0, 11.0]
    assert second.values.tolist() == [1.0, 2.0, 3.0]


def test_an_episode_that_was_cut_off_is_worth_nothing_more_after_its_end() -> None:
    settings = Advantage(estimator=Estimator.GAE, baseline=Baseline.CRITIC, normalise=Normalise.NONE, lam=0.0)
    for ending in (Ending.DONE, Ending.BUDGET):
        book = [[scored_of(episode((2,), ending=ending))]]
        ((each,),) = attach_values(book, ids_as_values(book))
        assert compute_value_targets([[assign_turn_rewards(each)]], settings)[0][0].tolist() == [2.0, 1.0]


def test_a_turn_without_tokens_has_no_value() -> None:
    silent = episode((2, 0, 1))
    book = [[scored_of(silent)]]
    ((each,),) = attach_values(book, ids_as_values(book))
    assert each.values.tolist() == [1.0, 2.0, 7.0]
    assert assign_turn_rewards(each).values is each.values


def test_sequences_carry_what_the_critic_said_and_should_have_said() -> None:
    stage = plan_of(RECIPE, "algorithm={use: ppo, kl: {coef: 0}}", "reward={}").stages[1].settings
    stage = replace(stage, agent=replace(stage.agent, on_invalid_turn=OnInvalidTurn.MASK_TURN))
    book = [[scored_of(episode((2, 1, 1), invalid=1))]]
    groups = attach_values(book, ids_as_values(book))
    (sequence,) = build_training_batch(groups, stage, CLOCK).sequences
    credit = assign_turn_rewards(groups[0][0], loss_mask=[True, False, True])
    settings = stage.algorithm.advantage
    sampled = groups[0][0].episode.segments[0].sampled
    assert sequence.loss_mask.tolist() == (sampled & (np.arange(len(sampled)) != 6)).tolist()
    for name, expected in (
        ("values", groups[0][0].values),
        ("value_targets", compute_value_targets([[credit]], settings)[0][0]),
        ("advantages", compute_advantages([[credit]], settings)[0][0]),
    ):
        assert getattr(sequence, name)[sampled].tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_number_too_many_or_too_few_is_found_out() -> None:
    each = episode((2, 1))
    for count in (2, 4):
        with pytest.raises(ValueError, match=r"expected 3 numbers|broadcast"):
            to_train_sequences(each, LossMask(turns=(True, True)), {"advantages": np.zeros(count)})


# --- the loss --------------------------------------------------------------------------------------------------------


def batch(seed: int) -> list[TrainSequence]:
    """Several turns, turns of one token, masked tokens; values near what is said now and far from it."""
    draws = np.random.default_rng(seed)

    def sequence(loss_mask: list[int]) -> TrainSequence:
        ids = draws.integers(0, 20, len(loss_mask)).astype(np.int32)
        old, targets = (draws.normal(0, 0.5, len(loss_mask)).astype(np.float32) for _ in range(2))
        zeros = np.zeros(len(loss_mask), np.float32)
        return TrainSequence(
            ids=ids, loss_mask=np.array(loss_mask, bool), advantages=zeros, values=old, value_targets=targets
        )

    return [
        sequence([0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1]),
        sequence([0, 1]),
        sequence([0, 0, 1, 0, 1, 0, 0]),
        sequence([0, 0, 0]),
        sequence([0, *[1] * 12]),
    ]


def table(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(20, generator=generator).mul(0.5).requires_grad_()


def packed_loss(
    sequences: list[TrainSequence], values: torch.Tensor, clip: float | None, capacity: int
) -> tuple[float, float, torch.Tensor]:
    """Of a critic that knows one value of each token it sees."""
    values.grad, loss, clipped = None, 0.0, 0.0
    for row in pack(sequences, capacity, CPU):
        said = values[row.ids_T].index_select(0, row.predict_N)
        terms = compute_value_loss(said, row.values_N, row.value_targets_N, clip, compute_normaliser(sequences).tokens)
        terms.loss.backward()
        loss, clipped = loss + terms.loss.item(), clipped + terms.clipped.item()
    assert values.grad is not None
    return loss, clipped, values.grad


def slow_loss(
    sequences: list[TrainSequence], values: list[float], clip: float | None
) -> tuple[float, int, list[float]]:
    total, clipped, count, gradient = 0.0, 0, 0, [0.0] * len(values)
    for each in sequences:
        for at in range(len(each.ids)):
            if not each.loss_mask[at]:
                continue
            count += 1
            seen = int(each.ids[at - 1])
            value, old, target = values[seen], float(each.values[at]), float(each.value_targets[at])
            held = value if clip is None else min(max(value, old - clip), old + clip)
            free, bound = (value - target) ** 2, (held - target) ** 2
            total += 0.5 * max(free, bound)
            if bound > free:
                clipped += 1
            else:
                gradient[seen] += value - target
    return total / count, clipped, [each / count for each in gradient]


@pytest.mark.parametrize("clip", [None, 0.2, 0.01, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_that_of_a_slow_loop(clip: float | None, seed: int) -> None:
    values, sequences = table(seed), batch(seed)
    loss, clipped, gradient = packed_loss(sequences, values, clip, 1000)
    expected, cut, slopes = slow_loss(sequences, values.double().tolist(), clip)
    assert loss == pytest.approx(expected, abs=1e-6)
    assert clipped == cut
    assert (cut > 0) == (clip in (0.2, 0.01))
    assert gradient.tolist() == pytest.approx(slopes, abs=1e-6)


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("capacity", [1, 14, 20])
def test_micro_batches_and_the_order_of_sequences_change_nothing_but_rounding(
    clip: float | None, capacity: int
) -> None:
    values, sequences = table(1), batch(1)
    whole = packed_loss(sequences, values, clip, 1000)
    mixed = random.Random(capacity).sample(sequences, len(sequences))
    cut = packed_loss(mixed, values, clip, capacity)
    assert len(pack(mixed, capacity, CPU)) > 1
    assert cut[:2] == pytest.approx(whole[:2], abs=1e-6)
    torch.testing.assert_close(cut[2], whole[2], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "moves"),
    [(0.5, 0.0, 1.0, False), (0.1, 0.0, 1.0, True), (-0.5, 0.0, 1.0, True), (0.5, 0.0, 0.3, True)],
    ids=["far enough towards it", "not far yet", "gone the wrong way", "gone past it"],
)
def test_a_value_is_let_go_only_when_it_has_moved_far_towards_its_target(
    value: float, old: float, target: float, moves: bool
) -> None:
    said = torch.tensor([value], requires_grad=True)
    terms = compute_value_loss(said, torch.tensor([old]), torch.tensor([target]), 0.2, 1)
    terms.loss.backward()
    assert said.grad.item() == pytest.approx((value - target) if moves else 0.0)
    assert terms.clipped.item() == (not moves)


def test_values_of_rows_come_back_to_all_tokens_up_to_the_last_learnt() -> None:
    sequences = batch(0)
    rows = pack(sequences, 14, CPU)
    found = unpack(rows, [row.ids_T.float() for row in rows], sequences)
    for each, back in zip(sequences, found, strict=True):
        used = np.flatnonzero(each.loss_mask)[-1] + 1 if each.loss_mask.any() else 0
        assert back.tolist() == [*each.ids[:used].tolist(), *[0] * (len(each.ids) - used)]


# --- what it was worth -----------------------------------------------------------------------------------------------


def told(values: list[float], targets: list[float]) -> TrainSequence:
    loss_mask = np.array([False, *[True] * len(values), False])
    numbers = [np.array([99.0, *given, 99.0], np.float32) for given in (values, targets)]
    return TrainSequence(
        ids=np.zeros(len(loss_mask), np.int32),
        loss_mask=loss_mask,
        advantages=numbers[0],
        values=numbers[0],
        value_targets=numbers[1],
    )


UPDATE = ValueMetrics(fault=None, loss=0.5, clipped=0.25, grad_norm=2.0, lr=1e-5)


@pytest.mark.parametrize(
    ("values", "explained"),
    [([0.0, 1.0, 2.0], 1.0), ([5.0, 6.0, 7.0], 1.0), ([1.0, 1.0, 1.0], 0.0), ([2.0, 1.0, 0.0], -3.0)],
)
def test_values_explain_what_is_left_of_the_spread_of_their_targets(values: list[float], explained: float) -> None:
    other = replace(UPDATE, loss=1.5, lr=2e-5)
    row = critic_metrics([UPDATE, other], [told(values[:1], [0.0]), told(values[1:], [1.0, 2.0])])
    assert row["critic/explained_variance"] == pytest.approx(explained)
    assert row["critic/value_mean"] == pytest.approx(np.mean(values))
    assert (row["critic/loss"], row["critic/clipped"], row["critic/lr"]) == (1.0, 0.25, 2e-5)


def test_of_equal_targets_nothing_is_explained() -> None:
    assert np.isnan(critic_metrics([UPDATE], [told([1.0, 2.0], [1.0, 1.0])])["critic/explained_variance"])
    assert critic_metrics([], []) == {}


# --- in a run --------------------------------------------------------------------------------------------------------

PPO = "algorithm={{use: {}, groups_per_step: 8, groups_per_update: 4, lr: 4, critic: {{lr: 2, epochs: 2{}}}}}"


def of(run: Any) -> list[dict[str, Any]]:
    return [row for row in run.steps() if row["stage"] != "imitate"]


@pytest.mark.parametrize("preset", ["ppo", "bilevel_ppo"])
def test_a_run_with_a_critic_learns_to_expect_what_comes(new_run: Any, preset: str) -> None:
    stage = ("schedule.1.until=step >= 40", "schedule.1.turns=12", "schedule.2.turns=12")
    # an end comes sooner or later, and if not it is expected to: everything is worth the same
    run = new_run(PPO.format(preset, ""), "algorithm.advantage.lam=1", "reward=3 if done else 0", *stage)
    run.go()
    rows = of(run)
    assert rows[0]["critic/value_mean"] < 1 < 2 < rows[-1]["critic/value_mean"] < 3.2
    assert rows[-1]["critic/loss"] < rows[0]["critic/loss"] / 10
    assert rows[-1]["critic/lr"] == 2
    assert rows[-1]["train/updates"] == 2
    assert all("critic/loss" not in row for row in run.steps() if row["stage"] == "imitate")


def test_at_first_only_the_critic_learns(new_run: Any) -> None:
    run = new_run(PPO.format("ppo", ", warmup_steps: 2"))
    run.go()
    rows = [(row["stage"], row["step"], row["train/updates"]) for row in of(run)]
    assert rows[:4] == [("exploit", 1, 0), ("exploit", 2, 0), ("exploit", 3, 2), ("explore", 1, 0)]
    assert all("critic/loss" in row for row in of(run))


def test_the_critic_begins_as_the_policy_stands_when_its_first_stage_begins(new_run: Any) -> None:
    run, made = new_run(PPO.format("ppo", "")), []

    def beginning(learner: Any) -> Any:
        made.append((learner.table.copy(), len(learner.updates)))
        return critic_of(learner)

    run.critic_of = beginning
    run.go()
    ((table, updates),) = made
    assert updates == 2
    assert not np.array_equal(table, beginner())


MOVING = (
    "reward={normalise: environment}",
    "algorithm.groups_per_step=6",
    "algorithm.groups_per_update=2",
    "algorithm.advantage.lam=0.9",
    "schedule.2.algorithm.critic.warmup_steps=1",
    "algorithm.critic.lr=1 / (1 + total_step)",
)


class Faulty(FakeCritic):
    """Now and then an update of it is not a number, depending on what is trained on, as with a real one."""

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        if sum(int(each.ids.sum()) for each in sequences) % 5 == 0:
            return replace(UPDATE, fault=UpdateFault.NAN, loss=float("nan"))
        return FakeCritic.update(self, sequences, settings)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ppo", "bilevel_ppo"])
@pytest.mark.parametrize("faulty", [False, True], ids=["sound", "with roll-backs"])
def test_killed_at_any_call_and_resumed_the_rows_are_the_same(new_run: Any, preset: str, faulty: bool) -> None:
    def started() -> Any:
        run = new_run(PPO.format(preset, ""), *MOVING, "guards.max_roll_backs=50")
        if faulty:
            run.critic_of = lambda learner: Faulty(expected=critic_of(learner).expected)
        return run

    whole = started()
    calls = whole.watched()
    assert {"values", "update_critic", "update", "save"} <= set(calls)
    assert any(row.get("guard/action") == "roll_back" for row in whole.steps()) == faulty
    for at, again in started().killed_in(range(2, len(calls), 7)):
        again.go()
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"


def test_a_checkpoint_from_before_the_critic_takes_it_away(new_run: Any, tmp_path: Any) -> None:
    run = new_run(PPO.format("ppo", ""))
    worker = run.workers()._learner
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    worker.save(before)
    first = worker.critic
    first.expected[0] = 7.0
    worker.save(after)
    worker.load(before)
    assert worker.critic is not first
    assert worker.critic.expected[0] != 7.0
    worker.load(after)
    assert worker.critic.expected[0] == 7.0


def test_values_that_are_no_numbers_end_the_run_before_they_are_trained_on(new_run: Any) -> None:
    run = new_run(PPO.format("ppo", ""))
    run.critic_of = lambda learner: FakeCritic(expected=dict.fromkeys(range(99), float("nan")))
    with pytest.raises(StepRefused, match=r"^values: the critic returned NaN or infinity; resume with a smaller"):
        run.go()
    assert [row["stage"] for row in run.steps()] == ["imitate", "imitate"]


class Counting(FakeCritic):
    """Says how many sequences each update has."""

    sizes: ClassVar[list[int]] = []

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        self.sizes.append(len(sequences))
        return FakeCritic.update(self, sequences, settings)


def test_the_critic_makes_passes_of_its_own_in_parts_as_large_as_the_policys(new_run: Any) -> None:
    run = new_run(PPO.format("ppo", ""))
    run.critic_of = lambda learner: Counting(expected=critic_of(learner).expected)
    run.go()
    # two passes of two updates in each of seven steps
    assert Counting.sizes == [4] * 28
