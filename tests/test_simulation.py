"""Times of a step: plays worked out by hand with the real queue of groups, and whole plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.source import Source
from agym.runtime.rollout.episode import Task
from agym.runtime.rollout.groups import GroupRequest
from agym.runtime.rollout.player import EpisodeLimits
from agym.simulation import Lengths, StepTimes, simulate, simulate_play

from .conftest import Agym
from .memory_library import MemoryLibrary

RECIPE = """\
agym: 1
name: r
model: {path: Qwen/Qwen2.5-7B, dtype: bf16}
environments: {craft: textcraft}
agent: {tokens_per_turn: 256, context_tokens: 8192}
algorithm: {use: grpo, group_size: 8, groups_per_step: 32}
schedule: [{stage: only, turns: 10, until: step >= 10}]
"""


def requests(*sizes: int) -> list[GroupRequest]:
    limits = EpisodeLimits(horizon=1, tokens_per_turn=1, context_tokens=1)
    tasks = [Task(environment="e", id=str(at), seed=0) for at in range(len(sizes))]
    return [GroupRequest(task=task, size=size, limits=limits, seed=0) for task, size in zip(tasks, sizes, strict=True)]


def one_second(running: int) -> float:
    return 1.0


def test_an_engine_samples_a_token_of_each_running_episode_at_a_time() -> None:
    played = simulate_play(requests(2), [10, 4], engines=1, slots=2, seconds=one_second)
    assert (played.seconds, played.busy) == (10, (10,))


def test_an_iteration_takes_longer_the_more_episodes_run() -> None:
    # four tokens of both at 2 s each, then six of the longer one at 1 s
    played = simulate_play(requests(2), [10, 4], engines=1, slots=2, seconds=float)
    assert played.seconds == pytest.approx(4 * 2 + 6)


def test_a_free_slot_takes_the_next_episode() -> None:
    assert simulate_play(requests(3), [10, 4, 6], engines=1, slots=2, seconds=one_second).seconds == 10


def test_groups_are_handed_out_one_by_one_and_the_last_one_is_waited_for() -> None:
    # the first engine has the long group; the other plays the three short ones meanwhile
    played = simulate_play(requests(1, 1, 1, 1), [12, 3, 3, 3], engines=2, slots=1, seconds=one_second)
    assert (played.seconds, played.busy) == (12, (12, 9))


def test_more_engines_than_groups_are_idle() -> None:
    assert simulate_play(requests(1), [5], engines=3, slots=4, seconds=one_second).busy == (5, 0, 0)


Times = Callable[..., StepTimes]


def plan_of(text: str) -> Plan:
    compiled = compile_recipe(Source("r.yaml", text), MemoryLibrary({}), (), {}, catalog())
    assert compiled.variants, [each.message for each in compiled.diagnostics]
    plan = compiled.variants[0].plan
    assert plan is not None
    return plan


@pytest.fixture
def times() -> Times:
    def simulated(hardware: str, lengths: Lengths = Lengths.HEAVY) -> StepTimes:
        found = simulate(plan_of(f"{RECIPE}hardware: {{{hardware}}}\n"), lengths)
        assert found.unknown is None
        return dict(found.stages)["only"]

    return simulated


ONE_NODE = "nodes: 1, gpus_per_node: 8, gpu: h100, train: {zero: 3}"


def test_colocated_phases_follow_each_other(times: Times) -> None:
    found = times(ONE_NODE)
    assert found.step_s == pytest.approx(found.rollout_s + found.sync_s + found.learning_s)
    assert found.engines_idle is not None
    assert found.learners_idle is not None
    assert found.gpus_idle == pytest.approx(found.engines_idle + found.learners_idle - 1)


def test_split_phases_overlap_where_weights_may_be_stale(times: Times) -> None:
    split = ONE_NODE + ", layout: split"
    apart, overlapped = times(split), times(split + ", staleness: 1")
    assert overlapped.step_s == pytest.approx(max(apart.rollout_s, apart.learning_s) + apart.sync_s)
    assert overlapped.gpus_idle is None


def test_heavy_tails_leave_engines_idle(times: Times) -> None:
    even, heavy = times(ONE_NODE, Lengths.EVEN), times(ONE_NODE)
    assert even.gpus_idle == pytest.approx(even.sync_s / even.step_s)
    assert heavy.gpus_idle is not None
    assert heavy.gpus_idle > even.sync_s / heavy.step_s


def test_learning_takes_half_as_long_on_twice_as_many_gpus(times: Times) -> None:
    one, two = times(ONE_NODE, Lengths.EVEN), times(ONE_NODE.replace("nodes: 1", "nodes: 2"), Lengths.EVEN)
    assert two.learning_s == pytest.approx(one.learning_s / 2)
    assert two.rollout_s < one.rollout_s


def test_ranks_that_divide_rows_have_equal_parts_of_what_their_group_has(times: Times) -> None:
    divided, whole = times(ONE_NODE.replace("zero: 3", "zero: 3, sequence_parallel: 4")), times(ONE_NODE)
    assert divided.learning_s == pytest.approx(whole.learning_s, rel=0.05)
    assert divided.learners_idle == pytest.approx(whole.learners_idle or 0, abs=0.01)


def test_the_same_plan_gives_the_same_times(times: Times) -> None:
    assert times(ONE_NODE) == times(ONE_NODE)


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        ("nodes: 1", "no rates for a CPU"),
        ("gpus_per_node: 8", "hardware.gpu is not given"),
    ],
)
def test_times_that_are_not_known_are_not_invented(hardware: str, reason: str) -> None:
    found = simulate(plan_of(f"{RECIPE}hardware: {{{hardware}}}\n"), Lengths.EVEN)
    assert not found.stages
    assert reason in (found.unknown or "")


def test_the_plan_shows_times_as_estimates_with_what_they_assume(agym: Agym) -> None:
    called = agym("plan", "agentgym-rl/textcraft-scaling-inter", "--simulate")
    assert called.code == 0
    said = " ".join(called.out.replace("│", " ").split())
    for part in ("time of a step", "exploit", "GPUs idle", "estimated", "environments, evaluations and saves take no"):
        assert part in said
    assert "not known, as there are no rates for a CPU" in agym("plan", "quickstart", "--simulate", "even").out


def test_times_are_shown_in_the_tree_alone(agym: Agym) -> None:
    called = agym("plan", "quickstart", "--simulate", "--format", "json")
    assert (called.code, called.out) == (2, "")
    assert "leave out --format" in called.err
