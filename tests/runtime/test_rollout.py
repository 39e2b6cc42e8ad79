"""Episodes at play: what is asked in which order, faults of every kind, budgets, limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from agym.dsl.model.recipe import Limits, Rollout
from agym.envs.clients.client import InlineEnv
from agym.envs.errors import EnvFault, TooLarge, UnknownTask
from agym.envs.protocol import EnvClient, EnvSpec, Observation, Session, Step
from agym.runtime.agents.chat import LEFT_OUT, Chat
from agym.runtime.agents.prompts import CUT
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import StepRefused
from agym.runtime.protocols import FinishReason, Sampled
from agym.runtime.rollout.env_calls import ConnectedEnv
from agym.runtime.rollout.episode import Ending, Group, Task
from agym.runtime.rollout.groups import GroupRequest, play_groups
from agym.runtime.rollout.player import EpisodeLimits


def orders(count: int = 3, size: int = 4, horizon: int = 3, **limits: Any) -> list[GroupRequest]:
    limits = EpisodeLimits(**{"horizon": horizon, "tokens_per_turn": 2, "context_tokens": 64, **limits})
    tasks = [Task(environment="echo", id=f"train-{at}", seed=at) for at in range(count)]
    return [GroupRequest(task=task, size=size, limits=limits, seed=at) for at, task in enumerate(tasks)]


def play(player: Any, client: EnvClient, wanted: list[GroupRequest], slots: int = 64) -> list[Group]:
    async def go() -> list[Group]:
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec(), success_at=1.0)
        return await play_groups(player, {"echo": world}, wanted, slots)

    return asyncio.run(go())


def said(groups: list[Group]) -> list[Any]:
    return [(e.task.id, e.index, [s.ids.tolist() for s in e.segments], e.score) for g in groups for e in g.episodes]


# --- order -----------------------------------------------------------------------------------------------------------


def test_requests_come_in_the_same_order_in_every_run(player_of: Any, table_sampler: Any, echo: Any) -> None:
    first, second = table_sampler(), table_sampler()
    for sampler in (first, second):
        play(player_of(sampler), InlineEnv(echo), orders(), slots=5)
    assert first.requests == second.requests


def test_slots_change_when_things_are_asked_but_nothing_that_is_answered(
    player_of: Any, table_sampler: Any, echo: Any
) -> None:
    samplers = {slots: table_sampler() for slots in (1, 3, 12, 99)}
    groups = {slots: play(player_of(each), InlineEnv(echo), orders(), slots) for slots, each in samplers.items()}
    assert all(said(found) == said(groups[1]) for found in groups.values())
    asked = {slots: [(r.prompt, r.seed) for r in each.requests] for slots, each in samplers.items()}
    assert asked[12] == asked[99]
    assert sorted(asked[1]) == sorted(asked[3]) == sorted(asked[12])


def test_every_episode_of_a_group_starts_alike_and_draws_for_itself(
    player_of: Any, table_sampler: Any, echo: Any
) -> None:
    (group,) = play(player_of(table_sampler()), InlineEnv(echo), orders(1, 6))
    assert len({episode.opening for episode in group.episodes}) == 1
    assert len({tuple(episode.segments[0].ids.tolist()) for episode in group.episodes}) > 1
    assert [episode.index for episode in group.episodes] == list(range(6))


def test_turns_that_were_shown_the_same_were_taken_from_the_same_state(
    player_of: Any, table_sampler: Any, echo: Any
) -> None:
    (group,) = play(player_of(table_sampler()), InlineEnv(echo), orders(1, 6))
    shown: dict[str, set[str]] = {}
    for episode in group.episodes:
        before = [episode.opening[-1].content, *(turn.observation for turn in episode.turns)]
        for text, turn in zip(before, episode.turns, strict=False):
            if turn.action is not None and text != CUT:  # told by us, in whatever state it was
                shown.setdefault(text, set()).add(turn.state)
    assert len(shown) > 1
    assert all(len(states) == 1 for states in shown.values())
    assert len(set.union(*shown.values())) == len(shown)


# --- budgets ---------------------------------------------------------------------------------------------------------


@dataclass
class Parrot:
    """Says the same again and again."""

    ids: tuple[int, ...]
    prompts: list[list[int]] = field(default_factory=list)

    async def sample(self, request: Any) -> Sampled:
        self.prompts.append(list(request.prompt))
        ids = self.ids[: request.max_tokens]
        finish = FinishReason.STOP if ids[-1] == 0 else FinishReason.LENGTH
        return Sampled(ids=ids, logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), finish=finish)


def only(groups: list[Group]) -> Any:
    return groups[0].episodes[0]


def test_budget_is_looked_at_before_each_turn_and_never_passed(player_of: Any, table_sampler: Any, echo: Any) -> None:
    player = replace(player_of(table_sampler()), sampler=Parrot((5, 5, 0)))
    episode = only(play(player, InlineEnv(echo), orders(1, 1, 9, tokens_per_turn=3, context_tokens=20)))
    assert episode.ending is Ending.BUDGET
    assert len(episode.segments[0].ids) <= 20
    assert episode.turns[-1].end == len(episode.segments[0].ids)


def test_a_reply_that_was_cut_is_closed_by_a_token_that_is_not_learnt(
    player_of: Any, table_sampler: Any, echo: Any
) -> None:
    player = replace(player_of(table_sampler()), sampler=Parrot((5, 5, 5)))
    episode = only(play(player, InlineEnv(echo), orders(1, 1, 2)))
    first, segment = episode.turns[0], episode.segments[0]
    assert segment.ids[first.end] == 0
    assert not segment.sampled[first.end]
    assert segment.sampled.sum() == sum(turn.end - turn.start for turn in episode.turns)


def test_tokens_that_were_sampled_are_those_of_every_later_prompt(
    player_of: Any, table_sampler: Any, echo: Any
) -> None:
    sampler = table_sampler()
    episode = only(play(player_of(sampler), InlineEnv(echo), orders(1, 1, 4)))
    whole = episode.segments[0].ids.tolist()
    for request, turn in zip(sampler.requests, episode.turns, strict=True):
        assert list(request.prompt) == whole[: turn.start]


def test_long_observations_are_cut_in_the_middle_and_say_so(words: Any) -> None:
    chat = Chat(words)
    text = " ".join(["0", "1"] * 10 + ["2", "3"] * 10)
    cut = chat.truncate(text, 12)
    assert LEFT_OUT in cut
    assert cut.startswith("0 1")
    assert cut.endswith("2 3")
    assert len(words.encode(cut)) <= 12
    assert chat.truncate(text, None) == chat.truncate(text, 40) == text


def test_invalid_replies_end_an_episode_where_the_recipe_says_so(player_of: Any, table_sampler: Any, echo: Any) -> None:
    player = replace(player_of(table_sampler()), sampler=Parrot((5, 0)))
    episode = only(play(player, InlineEnv(echo), orders(1, 1, 9, invalid_limit=3)))
    assert (episode.ending, len(episode.turns), episode.invalid_turns) == (Ending.INVALID, 3, 3)


# --- faults ----------------------------------------------------------------------------------------------------------


@dataclass
class Trouble:
    """An environment behind which something goes wrong, at the given openings (counted from 1) or at all."""

    inner: EnvClient
    opening: Callable[[], Any] | None = None
    stepping: Callable[[], Any] | None = None
    closing: Callable[[], Any] | None = None
    first: Any = None
    bad: frozenset[int] | None = None
    opened: int = 0
    open_now: int = 0
    most_opening: int = 0
    most_stepping: int = 0

    async def spec(self) -> EnvSpec:
        return await self.inner.spec()

    async def tasks(self, split: str) -> Any:
        return await self.inner.tasks(split)

    async def expert(self, task: str, seed: int) -> Any:
        return await self.inner.expert(task, seed)

    async def corpus(self) -> Any:
        return ()

    async def close(self) -> None:
        await self.inner.close()

    async def open(self, task: str, seed: int) -> Session:
        self.opened += 1
        bad = self.bad is None or self.opened in self.bad
        if bad and self.opening is not None:
            await _done(self.opening)
        self.open_now += 1
        return _Troubled(self, await self.inner.open(task, seed), bad)


class _Troubled:
    def __init__(self, client: Trouble, inner: Session, bad: bool) -> None:
        self._client, self._inner, self._bad = client, inner, bad
        self.first = client.first if bad and client.first is not None else inner.first

    async def step(self, action: str) -> Step:
        if self._bad and self._client.stepping is not None:
            found = await _done(self._client.stepping)
            if found is not None:
                return found
        return await self._inner.step(action)

    async def advice(self) -> str | None:
        return await self._inner.advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._inner.noise_action(seed)

    async def close(self) -> None:
        self._client.open_now -= 1
        if self._client.closing is not None:
            await _done(self._client.closing)
        await self._inner.close()


async def _done(what: Callable[[], Any]) -> Any:
    found = what()
    return await found if asyncio.iscoroutine(found) else found


def raises(error: Exception) -> Callable[[], Any]:
    def what() -> Any:
        raise error

    return what


def hangs() -> Any:
    return asyncio.sleep(60)


GARBAGE = Step(observation=Observation(text="say 1"), reward=math.nan)
TROUBLES = {
    "hangs at the start": ({"opening": hangs}, "waited 0.02 s for echo to start task 'train-0'"),
    "raises at the start": ({"opening": raises(ValueError("no"))}, "ValueError while waiting for echo to start"),
    "dies at the start": ({"opening": raises(ConnectionResetError("gone"))}, "ConnectionResetError"),
    "hangs at a step": ({"stepping": hangs}, "waited 0.02 s for echo to answer"),
    "raises at a step": ({"stepping": raises(EnvFault("crashed"))}, "crashed"),
    "refuses a step": ({"stepping": raises(TooLarge("4 MB"))}, "TooLarge"),
    "answers no number": ({"stepping": lambda: GARBAGE}, "returned an invalid answer"),
    "answers no step": ({"stepping": lambda: "say 1"}, "returned an invalid answer"),
    "shows nothing": ({"first": Observation(text=None)}, "returned no text at the start"),  # type: ignore[arg-type]
}
QUICK = Rollout(reset_timeout_s=0.02, step_timeout_s=0.02, retries=1)


@pytest.mark.parametrize(("trouble", "message"), TROUBLES.values(), ids=TROUBLES)
def test_fault_that_stays_is_told_and_never_a_failure(
    player_of: Any, table_sampler: Any, echo: Any, trouble: dict[str, Any], message: str
) -> None:
    client = Trouble(InlineEnv(echo), **trouble)
    player = replace(player_of(table_sampler(), QUICK), sampler=Parrot((7, 0)))
    episode = only(play(player, client, orders(1, 1)))
    assert episode.ending is Ending.ENV_FAULT
    assert not episode.ending.trainable
    assert message in episode.fault
    assert (episode.retries, client.opened, client.open_now) == (1, 2, 0)


@pytest.mark.parametrize(("trouble", "message"), TROUBLES.values(), ids=TROUBLES)
def test_fault_that_passes_costs_a_retry_and_changes_nothing(
    player_of: Any, table_sampler: Any, echo: Any, trouble: dict[str, Any], message: str
) -> None:
    client = Trouble(InlineEnv(echo), bad=frozenset({1}), **trouble)
    found = play(player_of(table_sampler(), QUICK), client, orders(1, 1))
    sound = play(player_of(table_sampler(), QUICK), InlineEnv(echo), orders(1, 1))
    assert said(found) == said(sound)
    # a first reply without an action never reaches the environment, and so not its trouble
    assert only(found).retries == int(client.opened > 1)


def test_a_session_that_cannot_be_closed_spoils_nothing(player_of: Any, table_sampler: Any, echo: Any) -> None:
    for trouble in (hangs, raises(RuntimeError("no"))):
        client = Trouble(InlineEnv(echo), closing=trouble)
        episode = only(play(player_of(table_sampler(), QUICK), client, orders(1, 1)))
        assert (episode.ending.trainable, episode.retries) == (True, 0)


def test_a_task_that_is_not_there_ends_the_run_with_its_name(player_of: Any, table_sampler: Any, echo: Any) -> None:
    client = Trouble(InlineEnv(echo), opening=raises(UnknownTask("no such task")))
    with pytest.raises(StepRefused, match="environment 'echo', task 'train-0': no such task"):
        play(player_of(table_sampler(), QUICK), client, orders(1, 1))
    assert client.opened == 1


def test_an_episode_that_takes_too_long_is_given_up(player_of: Any, table_sampler: Any, echo: Any) -> None:
    player = player_of(table_sampler(), replace(QUICK, step_timeout_s=9.0, episode_timeout_s=0.03, retries=0))
    client = Trouble(InlineEnv(echo), stepping=hangs)
    episode = only(play(replace(player, sampler=Parrot((7, 0))), client, orders(1, 1)))
    assert episode.fault == "deadline: waited 0.03 s for the episode of task 'train-0' in echo to end"
    assert client.open_now == 0


def test_limits_hold_in_each_phase_and_all_get_through(player_of: Any, table_sampler: Any, echo: Any) -> None:
    now, most = {"open": 0, "step": 0}, {"open": 0, "step": 0}

    def counting(phase: str) -> Callable[[], Any]:
        async def what() -> None:
            now[phase] += 1
            most[phase] = max(most[phase], now[phase])
            await asyncio.sleep(0.001)
            now[phase] -= 1

        return what

    client = Trouble(InlineEnv(echo), opening=counting("open"), stepping=counting("step"))
    player = player_of(table_sampler(), Rollout(limits=Limits(reset=3, step=2)))
    groups = play(player, client, orders())
    assert most == {"open": 3, "step": 2}
    assert said(groups) == said(play(player_of(table_sampler()), InlineEnv(echo), orders()))


def test_a_sampler_knows_how_many_episodes_are_in_their_environment(new_run: Any, echo: Any) -> None:
    expected = list[int]()

    async def note() -> None:
        await asyncio.sleep(0)
        expected.append(run.sampler.expected)

    client = Trouble(InlineEnv(echo), opening=note, stepping=note)
    run = new_run("rollout.slots=3", clients={"echo": client})
    assert run.go().kind is OutcomeKind.FINISHED
    assert max(expected) == 3
    assert run.sampler.expected == 0


# --- faults in a run -------------------------------------------------------------------------------------------------


def test_faults_are_counted_and_never_trained(new_run: Any, echo: Any) -> None:
    # after five demonstrations; three attempts at each of two episodes
    bad = frozenset(range(5 + 4, 5 + 10))
    client = Trouble(InlineEnv(echo), opening=raises(EnvFault("gone")), bad=bad)
    run = new_run("rollout.slots=1", "eval.at_start=false", "algorithm.filter=size > 0", clients={"echo": client})
    assert run.go().kind is OutcomeKind.FINISHED
    lost = [row["rollout/faults"] for row in run.steps() if row.get("rollout/faults")]
    assert sum(lost) == 2
    (row,) = [row for row in run.steps() if row.get("rollout/faults")]
    assert row["rollout/episodes"] == 16 - sum(lost)
    assert row["rollout/retries"] == 2 * sum(lost)


def test_too_many_faults_end_the_run_with_one_message_and_it_resumes_where_it_was(new_run: Any, echo: Any) -> None:
    whole = new_run()
    whole.go()
    client = Trouble(InlineEnv(echo), bad=frozenset())
    run = new_run(clients={"echo": client})

    def look(row: Any) -> None:
        if row["total_step"] == 5:
            client.bad, client.opening = None, raises(EnvFault("connection refused"))

    run.reporter.row = look
    with pytest.raises(StepRefused) as trouble:
        run.go()
    assert str(trouble.value) == (
        "rollout: 16 of 16 episodes were lost to failing environments, the last one by crashed: connection refused; "
        "fix the environment and resume"
    )
    assert run.steps()[-1]["total_step"] == 5
    assert "step-5" in run.checkpoints()
    client.bad = frozenset()
    again = run.again()
    again.go()
    assert again.exact() == whole.exact()


def test_a_measurement_that_lost_too_much_is_made_again_after_the_resume(new_run: Any, echo: Any) -> None:
    whole = new_run()
    whole.go()
    client = Trouble(InlineEnv(echo), bad=frozenset())
    run = new_run(clients={"echo": client})

    def look(row: Any) -> None:
        if row["total_step"] == 3 and "step" in row:
            client.bad, client.stepping = None, raises(EnvFault("gone"))

    run.reporter.row = look
    with pytest.raises(StepRefused, match="eval: "):
        run.go()
    client.bad = frozenset()
    again = run.again()
    again.go()
    assert again.exact() == whole.exact()
