"""Seats that models of the run play: what they are shown, what becomes of what they say, and how it is recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
from agym.dsl.model.recipe import Agent, Environment, Format, Harness, Rollout
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Env, EnvClient, EnvSpec, Observation, Runs, Score, Seat, SeatModel, Status, Step
from agym.runtime.agents.chat import Chat
from agym.runtime.agents.formats import chat_and_format
from agym.runtime.errors import RunError, StepRefused
from agym.runtime.evaluate_checkpoint import leave_out_earlier
from agym.runtime.learning.filters import is_countable
from agym.runtime.learning.metrics import eval_outcomes, rollout_metrics
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.env_connections import OpenEnvs
from agym.runtime.rollout.episode import Ending, Episode, Task
from agym.runtime.rollout.groups import GroupRequest, play_episode
from agym.runtime.rollout.player import EpisodeLimits, Player
from agym.runtime.storage.episode_log import EpisodeEntry, EpisodePurpose, episode_lines
from agym.runtime.workers.rollout_worker import PlaySettings, RolloutWorker
from agym.viewer.play.replay import replay_episode

OTHER = Seat(name="player 0", model=SeatModel.POLICY)


class Duel(Env):
    """Player 0 says a number first, then the agent, three times: the sum of the agent's is its score."""

    spec = EnvSpec(
        name="duel",
        version="1",
        summary="say more",
        splits=("train",),
        prompt="Say a number.",
        score=Score.SUM,
        score_range=(0.0, 100.0),
        runs=Runs.INLINE,
        models=(SeatModel.POLICY,),
    )

    def __init__(self, seat: Seat = OTHER, rounds: int = 3) -> None:
        self._seat, self._rounds = seat, rounds
        self.taken: list[tuple[str, str]] = []

    def tasks(self, split: str) -> tuple[str, ...]:
        return ("train-0",)

    def reset(self, task: str, seed: int) -> Observation:
        self.taken.clear()
        return Observation(text="you begin", seat=self._seat)

    def step(self, action: str) -> Step:
        if len(self.taken) % 2 == 0:
            self.taken.append(("other", action))
            ended = len(self.taken) > 2 * self._rounds
            # what the agent gave up by its move is told at the other's
            return Step(observation=Observation(text=f"heard {action}"), reward=0.5, terminated=ended)
        if not action.isdigit():
            return Step(observation=Observation(text="wrong"), status=Status.INVALID)
        self.taken.append(("agent", action))
        return Step(observation=Observation(text=f"they said {action}", seat=self._seat), reward=float(action))


class Voice:
    """Says what a rule makes of the prompt's text; keeps what it was asked."""

    def __init__(self, tokenizer: Any, rule: Callable[[str], str]) -> None:
        self._tokenizer, self._rule = tokenizer, rule
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> Sampled:
        self.requests.append(request)
        whole = [
            *self._tokenizer.encode(self._rule(self._tokenizer.decode(request.prompt))),
            *request.sampling.stop_ids,
        ]
        ids = whole[: request.max_tokens]
        finish = FinishReason.STOP if len(ids) == len(whole) else FinishReason.LENGTH
        return Sampled(ids=tuple(ids), logprobs=(-1.0,) * len(ids), versions=(7,) * len(ids), finish=finish)

    async def forget(self) -> None: ...

    def expecting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def prompts(self, word: str) -> list[str]:
        """Prompts whose opening has this word."""
        texts = [self._tokenizer.decode(request.prompt) for request in self.requests]
        return [text for text in texts if word in text]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from agym.dsl.model.recipe import TokenizerInit
    from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer

    return ModelTokenizer(
        make_tokenizer(TokenizerInit(vocab=320), ["you begin heard they said wrong 0 1 2 3 a number"])
    )


def player_of(voice: Voice, tokenizer: Any) -> Player:
    chat, form = chat_and_format(Agent(format=Format.PLAIN), Chat(tokenizer))
    return Player(
        sampler=voice,  # type: ignore[arg-type]
        chat=chat,
        format=form,
        prompt=None,
        sampling=SamplingSettings(stop_ids=(chat.end_of_reply,)),
        timeouts=Rollout(retries=0),
        concurrency=ConcurrencyLimits.of(Rollout()),
        clock=lambda: 0.0,
    )


def played(player: Player, env: Callable[[], Env], *, index: int = 0, seed: int = 5, **limits: Any) -> Episode:
    async def go() -> Episode:
        client = InlineEnv(env)
        world = ConnectedEnv(name="duel", client=client, spec=await client.spec())
        bounds = EpisodeLimits(**{"horizon": 8, "tokens_per_turn": 20, "context_tokens": 2000, **limits})
        task = Task(environment="duel", id="train-0", seed=3)
        return await play_episode(player, world, task, index, bounds, seed)

    return asyncio.run(go())


def plays(text: str) -> str:
    return "1" if "you begin" in text else "2"


def test_the_policy_plays_the_other_seat_in_a_conversation_of_its_own(tokenizer: Any) -> None:
    voice = Voice(tokenizer, plays)
    episode = played(player_of(voice, tokenizer), Duel)
    assert [(turn.action, turn.observation) for turn in episode.turns] == [("2", "heard 1")] * 3
    theirs = voice.prompts("you begin")
    assert len(theirs) == 4
    assert all("Say a number." in text for text in theirs)
    assert theirs[-1].startswith(theirs[0])
    assert theirs[-1].count("they said 2") == 3
    assert all("they said" not in text for text in voice.prompts("heard"))


def test_nothing_that_another_seat_says_is_trained_on(tokenizer: Any) -> None:
    voice = Voice(tokenizer, plays)
    episode = played(player_of(voice, tokenizer), Duel)
    (segment,) = episode.segments
    assert "they said" not in tokenizer.decode(segment.ids.tolist())
    assert episode.sampled_tokens == sum(turn.end - turn.start for turn in episode.turns)
    (report,) = episode.seats
    assert (report.name, report.model, report.version) == ("player 0", "policy", 7)
    assert report.actions == ("1",) * 4
    assert report.tokens == 4 * len([*tokenizer.encode("1"), 0])
    assert rollout_metrics([episode])["rollout/against_policy/success"] == 1.0


def test_rewards_of_others_moves_are_the_agents_turns(tokenizer: Any) -> None:
    episode = played(player_of(Voice(tokenizer, plays), tokenizer), Duel)
    # the first has also what the move before it earned
    assert [turn.reward for turn in episode.turns] == [3.0, 2.5, 2.5]
    assert (episode.score, episode.ending) == (8.0, Ending.DONE)


def test_where_the_agent_takes_no_step_the_others_moves_are_its_score(tokenizer: Any) -> None:
    voice = Voice(tokenizer, lambda text: "1" if "you begin" in text else " ")
    episode = played(player_of(voice, tokenizer), Duel, horizon=2)
    assert (episode.invalid_turns, episode.score) == (2, 0.5)


def test_a_replay_gives_the_same_rewards(tokenizer: Any) -> None:
    entry = EpisodeEntry(episode=played(player_of(Voice(tokenizer, plays), tokenizer), Duel), group=0)
    record = json.loads(episode_lines([entry], purpose=EpisodePurpose.TRAIN, total_step=1, stage="train"))
    replayed = asyncio.run(replay_episode(InlineEnv(Duel), record))
    assert (replayed.turns, replayed.difference) == (3, None)


def test_the_agents_own_mistake_stays_its_own(tokenizer: Any) -> None:
    voice = Voice(tokenizer, lambda text: "1" if "you begin" in text else "2" if "wrong" in text else "well")
    episode = played(player_of(voice, tokenizer), Duel)
    assert [turn.action for turn in episode.turns[:2]] == [None, "2"]


def test_a_reply_without_an_action_is_a_wrong_move_that_the_environment_answers(tokenizer: Any) -> None:
    voice = Voice(tokenizer, lambda text: " " if "you begin" in text else "2")
    episode = played(player_of(voice, tokenizer), Duel)
    assert episode.seats[0].actions == ("",) * 4
    assert episode.turns[0].observation == "heard "


def test_a_reply_that_is_cut_off_is_none_either(tokenizer: Any) -> None:
    voice = Voice(tokenizer, lambda text: "1 " * 40 if "you begin" in text else "2")
    assert set(played(player_of(voice, tokenizer), Duel).seats[0].actions) == {""}


def test_where_no_room_is_left_its_conversation_begins_anew_with_what_is_shown_now(tokenizer: Any) -> None:
    voice = Voice(tokenizer, lambda text: "1")
    episode = played(
        player_of(voice, tokenizer), lambda: Duel(rounds=12), horizon=30, context_tokens=200, tokens_per_turn=80
    )
    assert any("you begin" not in text and text.count("they said") == 1 for text in voice.prompts("they said"))
    assert all(len(request.prompt) < 200 for request in voice.requests)
    assert set(episode.seats[0].actions) == {"1"}


def test_all_episodes_of_a_group_meet_the_same_chance(tokenizer: Any) -> None:
    voice = Voice(tokenizer, plays)
    player = player_of(voice, tokenizer)

    def seeds(word: str, **which: int) -> list[int]:
        voice.requests.clear()
        played(player, Duel, **which)
        return [each.seed for each in voice.requests if word in tokenizer.decode(each.prompt)]

    assert seeds("you begin", index=0, seed=5) == seeds("you begin", index=1, seed=6)
    assert len(set(seeds("you begin"))) == 4
    assert seeds("heard", index=0, seed=5) != seeds("heard", index=1, seed=6)


def test_an_earlier_checkpoint_is_another_sampler(tokenizer: Any) -> None:
    now, earlier = Voice(tokenizer, lambda text: "2"), Voice(tokenizer, lambda text: "3")
    player = replace(player_of(now, tokenizer), earlier=lambda seed: earlier)  # type: ignore[arg-type,return-value]
    episode = played(player, lambda: Duel(Seat(name="player 0", model=SeatModel.EARLIER)))
    assert {turn.observation for turn in episode.turns} == {"heard 3"}
    assert episode.seats[0].model == "earlier"
    assert len(now.requests) == 3


def test_who_plays_in_an_earlier_checkpoints_place_is_recorded_as_the_policy(tokenizer: Any) -> None:
    player = replace(player_of(Voice(tokenizer, plays), tokenizer), earlier=lambda seed: None)
    episode = played(player, lambda: Duel(Seat(name="player 0", model=SeatModel.EARLIER)))
    assert episode.seats[0].model == "policy"
    assert "rollout/against_earlier/success" not in rollout_metrics([episode])


def test_without_an_earlier_checkpoint_the_way_out_is_told(tokenizer: Any) -> None:
    player = player_of(Voice(tokenizer, plays), tokenizer)
    with pytest.raises(StepRefused, match=r"an earlier checkpoint plays only .* 'agym serve'"):
        played(player, lambda: Duel(Seat(name="player 0", model=SeatModel.EARLIER)))


@pytest.mark.parametrize(
    ("model", "agent", "reason"),
    [
        (SeatModel.POLICY, Agent(harness=Harness(command=("agent",))), "'agent.harness' replaces"),
        (SeatModel.EARLIER, Agent(), "an earlier checkpoint plays only"),
    ],
)
def test_seats_that_nobody_here_can_play_are_refused_before_anything_is_played(
    tokenizer: Any, model: SeatModel, agent: Agent, reason: str
) -> None:
    class Needing(Duel):
        spec = replace(Duel.spec, models=(model,))

    async def opened(name: str, settings: Environment) -> EnvClient:
        return InlineEnv(Needing)

    async def go() -> None:
        sampler: Any = Voice(tokenizer, plays)
        worker = RolloutWorker(sampler, Chat(tokenizer), tokenizer.encode, OpenEnvs(opened), lambda: 0.0)
        style = PlaySettings(
            agent=agent,
            environments={"duel": Environment(use="duel")},
            sampling=SamplingSettings(),
            timeouts=Rollout(),
            slots=1,
        )
        limits = EpisodeLimits(horizon=8, tokens_per_turn=20, context_tokens=2000)
        order = GroupRequest(task=Task(environment="duel", id="train-0", seed=3), size=1, limits=limits, seed=0)
        with pytest.raises(StepRefused, match=f"environment 'duel'.*{reason}.*agym serve"):
            await worker.play([order], style, lambda episode: None)
        # it is in nobody's way where another one is played
        assert await worker.play([], replace(style, agent=Agent()), lambda episode: None) == []

    asyncio.run(go())


def test_where_no_earlier_checkpoint_can_play_an_evaluation_leaves_its_environments_out() -> None:
    class Needing(Duel):
        spec = replace(Duel.spec, models=(SeatModel.EARLIER,))

    async def opened(name: str, settings: Environment) -> EnvClient:
        return InlineEnv(Needing if name == "duel" else Duel)

    said: list[str] = []
    both = {"duel": Environment(use="duel"), "chance": Environment(use="chance")}

    async def left(*names: str) -> list[str]:
        return [*await leave_out_earlier({name: both[name] for name in names}, OpenEnvs(opened, said.append))]

    assert asyncio.run(left("duel", "chance")) == ["chance"]
    (text,) = said
    assert text.startswith("environment 'duel' is left out: earlier checkpoints play in it")
    with pytest.raises(RunError, match="in every environment"):
        asyncio.run(left("duel"))


def test_an_episode_that_others_end_before_the_agents_turn_counts_and_has_nothing_to_train_on(tokenizer: Any) -> None:
    voice = Voice(tokenizer, plays)
    episode = played(player_of(voice, tokenizer), lambda: Duel(rounds=0))
    assert (episode.ending, episode.fault, episode.retries) == (Ending.UNCONTESTED, "", 0)
    assert (episode.score, episode.turns, len(voice.requests)) == (0.5, (), 1)
    assert not is_countable(episode)
    metrics = rollout_metrics([episode])
    assert {name: metrics[f"rollout/{name}"] for name in ("episodes", "uncontested", "faults", "score")} == {
        "episodes": 1, "uncontested": 1, "faults": 0, "score": 0.5
    }  # fmt: skip
    assert eval_outcomes([[episode]], 0.95, 0).episodes == 1
