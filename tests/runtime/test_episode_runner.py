"""Episodes in several views and attempts: what is seen, sampled and trained on, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import LossOn
from agym.dsl.model.recipe import Agent, Format, Memory, MemoryKind, OnInvalid, Planning, Reflection, Rollout
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import JudgeRequest, Observation, Score, Status, Step, YesNoQuestion
from agym.envs.wire import judge_to
from agym.runtime.agents.chat import Chat
from agym.runtime.agents.formats import chat_and_format
from agym.runtime.agents.prompts import (
    CUT,
    FORGOTTEN,
    LEARN,
    LESSONS,
    NEXT_TASK,
    PLAN,
    PLANNED,
    REMEMBER,
    REMEMBERED,
    REVISE,
    add_actions,
    prompt_texts,
)
from agym.runtime.data.dataset import read_episodes
from agym.runtime.data.demonstrations import Demonstrator
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.episode import Ending, Episode, Purpose, Task
from agym.runtime.rollout.groups import play_episode
from agym.runtime.rollout.player import EpisodeLimits, Player
from agym.runtime.storage.episode_log import EpisodeEntry, EpisodePurpose, episode_lines
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, compress_member

from .conftest import episodes_of

ACT, PLANS, LESSON, SUMMARY = Purpose


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from agym.dsl.model.recipe import TokenizerInit
    from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer

    return ModelTokenizer(make_tokenizer(TokenizerInit(vocab=320), ["say 0 say 1 say 2 say 3 wrong"]))


@dataclass
class Speaker:
    """Says what it was given to say, whoever asks; keeps what it was asked."""

    tokenizer: Any
    lines: Callable[[int, str], str]
    """By the number of the reply and the prompt's text."""
    open_ended: bool = False
    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sampled:
        text = self.lines(len(self.requests), self.tokenizer.decode(request.prompt))
        self.requests.append(request)
        ids = [*self.tokenizer.encode(text), *([] if self.open_ended else request.sampling.stop_ids)][
            : request.max_tokens
        ]
        number = float(len(self.requests))
        finish = FinishReason.STOP if ids and ids[-1] in request.sampling.stop_ids else FinishReason.LENGTH
        return Sampled(ids=tuple(ids), logprobs=(-number,) * len(ids), versions=(0,) * len(ids), finish=finish)

    def prompt(self, at: int) -> str:
        return str(self.tokenizer.decode(self.requests[at].prompt))


def played(speaker: Speaker, env: Any, agent: Agent | None = None, *, check: bool = True, **limits: Any) -> Episode:
    agent = agent or Agent(format=Format.PLAIN)
    chat, form = chat_and_format(agent, Chat(speaker.tokenizer))
    player = Player(
        sampler=speaker,  # type: ignore[arg-type]
        chat=chat,
        format=form,
        prompt=None,
        sampling=SamplingSettings(stop_ids=(chat.end_of_reply,)),
        timeouts=Rollout(),
        concurrency=ConcurrencyLimits.of(Rollout()),
        clock=lambda: 0.0,
        memory=agent.memory,
        planning=agent.planning,
        reflection=agent.reflection,
        guided=agent.guided,
        shows_actions=bool(agent.show_actions),
    )

    async def go() -> Episode:
        client = InlineEnv(env)
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec(), success_at=1.0)
        bounds = EpisodeLimits(**{"horizon": 8, "tokens_per_turn": 40, "context_tokens": 4000, **limits})
        return await play_episode(player, world, Task(environment="echo", id="train-0", seed=3), 0, bounds, 5)

    episode = asyncio.run(go())
    if check:
        exact(episode, speaker.requests)
    return episode


def exact(episode: Episode, requests: Sequence[SampleRequest]) -> None:
    """Every reply is where it was sampled, after just what it was sampled after, and is trained on once."""
    spoken = [turn for turn in episode.turns if turn.end > turn.start]
    assert len(spoken) == len(requests)
    marked = [np.zeros(len(segment.ids), np.bool_) for segment in episode.segments]
    for number, (turn, request) in enumerate(zip(spoken, requests, strict=True), 1):
        segment = episode.segments[turn.segment]
        assert segment.ids[: turn.start].tolist() == list(request.prompt)
        assert set(segment.logprobs[turn.start : turn.end].tolist()) == {-float(number)}
        assert not marked[turn.segment][turn.start : turn.end].any()
        marked[turn.segment][turn.start : turn.end] = True
    for segment, mask in zip(episode.segments, marked, strict=True):
        assert np.array_equal(segment.sampled, mask)
        assert not segment.logprobs[~mask].any()
    assert len({request.seed for request in requests}) == len(requests)


def never_right(number: int, prompt: str) -> str:
    """Some number, but not the one that was asked for."""
    return str((int(prompt.rpartition("say ")[2][0]) + 1) % 4)


def agent(**settings: Any) -> Agent:
    return Agent(**{"format": Format.PLAIN, **settings})


def purposes(episode: Episode) -> list[Purpose]:
    return [turn.purpose for turn in episode.turns]


# --- memory ----------------------------------------------------------------------------------------------------------


def bits(episode: Episode) -> Any:
    segments = [[getattr(each, name).tobytes() for name in each.__slots__] for each in episode.segments]
    return segments, episode.turns, episode.score, episode.ending, episode.opening


@pytest.mark.parametrize("kind", [MemoryKind.WINDOW])
@pytest.mark.parametrize("room", [4000, 120])
def test_a_window_that_is_large_enough_changes_no_bit(tokenizer: Any, echo: Any, kind: MemoryKind, room: int) -> None:
    whole = played(Speaker(tokenizer, never_right), echo, context_tokens=room)
    wide = played(Speaker(tokenizer, never_right), echo, agent(memory=Memory(kind=kind, turns=8)), context_tokens=room)
    assert bits(wide) == bits(whole)
    assert len(whole.segments) == 1


@pytest.mark.parametrize(("turns", "views"), [(1, 7), (2, 3), (3, 2)])
def test_a_window_shows_the_last_turns_in_the_tokens_in_which_they_were_said(
    tokenizer: Any, echo: Any, turns: int, views: int
) -> None:
    speaker = Speaker(tokenizer, never_right)
    episode = played(speaker, echo, agent(memory=Memory(kind=MemoryKind.WINDOW, turns=turns)))
    assert (len(episode.segments), episode.num_turns, episode.ending) == (views, 8, Ending.HORIZON)
    shown = [episode.opening[-1].content, *(turn.observation for turn in episode.turns)]
    for at in range(1, 8):
        prompt = speaker.prompt(at)
        seen = prompt.count("<|assistant|>") - 1
        assert seen == at if at < 2 * turns else turns <= seen < 2 * turns
        cut = seen < at
        assert prompt.count(FORGOTTEN) == int(cut)
        first = shown[0] + (f"\n\n{FORGOTTEN}\n\n{shown[at - seen]}" if cut else "")
        said = "".join(
            f"<|assistant|>{episode.turns[k].reply}<|end|><|user|>{shown[k + 1]}<|end|>" for k in range(at - seen, at)
        )
        assert prompt == f"<|user|>{first}<|end|>{said}<|assistant|>"


def test_a_window_is_cut_sooner_where_there_is_no_room(tokenizer: Any, echo: Any) -> None:
    window, saved = agent(memory=Memory(kind=MemoryKind.WINDOW, turns=3)), 0
    for room in range(20, 200, 3):
        whole = played(Speaker(tokenizer, never_right), echo, context_tokens=room, horizon=14)
        episode = played(Speaker(tokenizer, never_right), echo, window, context_tokens=room, horizon=14)
        assert all(len(segment.ids) <= room for segment in episode.segments)
        saved += whole.ending is Ending.BUDGET and episode.ending is Ending.HORIZON and len(episode.segments) > 4
    assert saved


def test_a_reply_that_was_cut_is_closed_in_every_view_alike(tokenizer: Any, echo: Any) -> None:
    speaker = Speaker(tokenizer, never_right, open_ended=True)
    episode = played(speaker, echo, agent(memory=Memory(kind=MemoryKind.WINDOW, turns=1)))
    assert len(episode.segments) == 7
    assert all("<|end|><|user|>" in speaker.prompt(at) for at in range(1, 8))


# --- replies that were cut off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [Format.PLAIN, Format.REACT, Format.TOOLS, Format.CODE])
def test_an_action_that_was_cut_off_is_not_done_and_the_agent_is_told(tokenizer: Any, echo: Any, form: Format) -> None:
    style = agent(format=form)
    write = chat_and_format(style, Chat(tokenizer))[1].write

    def right(number: int, prompt: str) -> str:
        return write(prompt.rpartition("say ")[2][0])

    class Cut(Speaker):
        async def sample(self, request: SampleRequest) -> Sampled:
            drawn = await super().sample(request)
            if len(self.requests) != 2:
                return drawn
            return replace(
                drawn,
                ids=drawn.ids[:-1],
                logprobs=drawn.logprobs[:-1],
                versions=drawn.versions[:-1],
                finish=FinishReason.LENGTH,
            )

    given = list[str]()

    class Noting(echo):  # type: ignore[misc]
        def step(self, action: str) -> Step:
            given.append(action)
            return super().step(action)  # type: ignore[no-any-return]

    speaker = Cut(tokenizer, right)
    episode = played(speaker, Noting, style, tokens_per_turn=100)
    assert (episode.success, len(given), episode.num_turns, episode.invalid_turns) == (True, 2, 3, 1)
    assert [turn.observation == CUT for turn in episode.turns] == [False, True, False]
    assert [turn.action is None for turn in episode.turns] == [False, True, False]
    assert CUT in prompt_texts(style)
    # what was drawn is trained on, the end that was not drawn is given
    assert episode.segments[0].ids[episode.turns[1].end] == speaker.requests[0].sampling.stop_ids[0]
    assert not episode.segments[0].sampled[episode.turns[1].end]


@pytest.mark.parametrize(
    ("tokens", "room", "ending"), [(3, 4000, Ending.INVALID), (40, 0, Ending.BUDGET)], ids=["too long", "no room"]
)
def test_who_ends_with_invalid_actions_does_not_for_want_of_room(
    tokenizer: Any, echo: Any, tokens: int, room: int, ending: Ending
) -> None:
    speaker = Speaker(tokenizer, lambda number, prompt: "0123 0123 0123")
    opening = len(played(speaker, echo, horizon=1).segments[0].ids)
    room = room or opening - 2  # its first reply and the end of it had room, with nothing left
    limits = {"on_invalid": OnInvalid.END, "tokens_per_turn": tokens, "context_tokens": room}
    episode = played(Speaker(tokenizer, speaker.lines), echo, **limits)
    assert (episode.ending, episode.num_turns, episode.turns[0].observation) == (ending, 1, CUT)


def test_of_an_action_without_room_nothing_is_done(tokenizer: Any, echo: Any) -> None:
    class Listing(echo):  # type: ignore[misc]
        def _show(self) -> Observation:
            return replace(super()._show(), valid_actions=("0", "0 1"))

    class Longest(Speaker):
        async def sample(self, request: SampleRequest) -> Sampled:
            token = max(request.sampling.allowed)
            return Sampled(ids=(token,), logprobs=(-1.0,), versions=(0,), finish=FinishReason.LENGTH)

    room = len(tokenizer.encode("0 1"))  # and none for its end
    speaker = Longest(tokenizer, never_right)
    episode = played(speaker, Listing, agent(guided=True), horizon=2, tokens_per_turn=room, check=False)
    assert [turn.observation for turn in episode.turns] == [CUT, CUT]
    assert not any(turn.action for turn in episode.turns)


def remembers(number: int, prompt: str) -> str:
    return f"note {number}" if REMEMBER in prompt.rpartition("<|user|>")[2] else never_right(number, prompt)


def test_a_summary_is_sampled_where_it_is_asked_for_and_stands_in_the_next_view(tokenizer: Any, echo: Any) -> None:
    speaker = Speaker(tokenizer, remembers)
    episode = played(speaker, echo, agent(memory=Memory(kind=MemoryKind.SUMMARY, turns=2, tokens=20)))
    assert purposes(episode) == [ACT] * 4 + [SUMMARY] + [ACT] * 2 + [SUMMARY] + [ACT] * 2
    assert (episode.num_turns, episode.invalid_turns, len(episode.segments)) == (8, 0, 3)
    assert speaker.prompt(4).endswith(f"<|user|>{REMEMBER}<|end|><|assistant|>")
    assert f"{REMEMBERED}\n\nnote 4\n\nsay" in speaker.prompt(5)
    assert f"{REMEMBERED}\n\nnote 7\n\nsay" in speaker.prompt(8)
    assert "note 4" not in speaker.prompt(8)
    assert all(FORGOTTEN not in speaker.prompt(at) for at in range(len(speaker.requests)))
    assert all(request.max_tokens == 20 for request in (speaker.requests[4], speaker.requests[7]))
    states = [turn.state for turn in episode.turns if turn.purpose is SUMMARY]
    assert not set(states) & {turn.state for turn in episode.turns if turn.purpose is ACT}


@pytest.mark.parametrize("room", range(120, 300, 6))
def test_a_summary_always_finds_the_room_that_was_left_for_it(tokenizer: Any, echo: Any, room: int) -> None:
    summary = agent(memory=Memory(kind=MemoryKind.SUMMARY, turns=2, tokens=20))
    speaker = Speaker(tokenizer, remembers)
    episode = played(speaker, echo, summary, context_tokens=room)
    assert all(len(segment.ids) <= room for segment in episode.segments)
    for turn, request in zip(episode.turns, speaker.requests, strict=True):
        assert turn.purpose is ACT or request.max_tokens == 20


def test_all_that_is_told_where_a_summary_is_empty_is_among_the_texts(tokenizer: Any, echo: Any) -> None:
    def says_nothing(number: int, prompt: str) -> str:
        return remembers(number, prompt).partition("note")[0]

    summary, speaker = agent(memory=Memory(kind=MemoryKind.SUMMARY, turns=2)), Speaker(tokenizer, says_nothing)
    played(speaker, echo, summary)
    assert FORGOTTEN in speaker.prompt(5)
    assert FORGOTTEN in prompt_texts(summary)


# --- plans -----------------------------------------------------------------------------------------------------------


def plans(number: int, prompt: str) -> str:
    last = prompt.rpartition("<|user|>")[2]
    return f"plan {number}" if PLAN in last or REVISE in last else never_right(number, prompt)


def test_a_plan_comes_first_and_is_made_anew_every_few_turns(tokenizer: Any, echo: Any) -> None:
    speaker = Speaker(tokenizer, plans)
    episode = played(speaker, echo, agent(planning=Planning(every=3, tokens=15)))
    assert purposes(episode) == [PLANS, ACT, ACT, ACT] * 2 + [PLANS, ACT, ACT]
    assert (episode.num_turns, episode.invalid_turns, len(episode.segments)) == (8, 0, 1)
    assert speaker.prompt(0).endswith(f"{PLAN}<|end|><|assistant|>")
    assert speaker.prompt(1).endswith("<|assistant|>plan 0<|end|><|user|>Now act.<|end|><|assistant|>")
    assert speaker.prompt(4).endswith(f"\n\n{REVISE}<|end|><|assistant|>")
    assert episode.turns[3].observation.endswith(REVISE)
    assert {speaker.requests[at].max_tokens for at in (0, 4, 8)} == {15}


@pytest.mark.parametrize("on_failure", [True, False])
def test_a_plan_is_made_anew_after_an_action_that_was_refused(tokenizer: Any, echo: Any, on_failure: bool) -> None:
    def once_wrong(number: int, prompt: str) -> str:
        return "nonsense" if number == 2 else plans(number, prompt)

    episode = played(Speaker(tokenizer, once_wrong), echo, agent(planning=Planning(on_failure=on_failure)), horizon=4)
    again = [PLANS] if on_failure else []
    assert purposes(episode) == [PLANS, ACT, ACT, *again, ACT, ACT]
    assert [turn.invalid for turn in episode.turns].index(True) == 2


def test_each_of_several_actions_in_a_reply_brings_the_next_plan_nearer(tokenizer: Any, echo: Any) -> None:
    def several(number: int, prompt: str) -> str:
        last = prompt.rpartition("<|user|>")[2]
        return "plan" if PLAN in last or REVISE in last else calling("no", "no")

    tools = agent(format=Format.TOOLS, parallel_calls=2, planning=Planning(every=4, on_failure=False))
    episode = played(Speaker(tokenizer, several), echo, tools, tokens_per_turn=400)
    assert purposes(episode) == [PLANS, *[ACT] * 4] * 2


def test_a_plan_that_is_out_of_sight_is_told_again(tokenizer: Any, echo: Any) -> None:
    memory = Memory(kind=MemoryKind.WINDOW, turns=2)
    speaker = Speaker(tokenizer, plans)
    played(speaker, echo, agent(planning=Planning(), memory=memory), horizon=6)
    assert f"{FORGOTTEN}\n\n{PLANNED}\n\nplan 0\n\nsay" in speaker.prompt(5)
    with_its_turn = Speaker(tokenizer, plans)
    played(with_its_turn, echo, agent(planning=Planning(every=3), memory=memory), horizon=6)
    cut = next(at for at in range(9) if FORGOTTEN in with_its_turn.prompt(at))
    prompt = with_its_turn.prompt(cut)
    assert PLANNED in prompt or "<|assistant|>plan" in prompt


# --- second attempts -------------------------------------------------------------------------------------------------


def learns(number: int, prompt: str) -> str:
    """Right once it has been told what it learned."""
    if LEARN in prompt.rpartition("<|user|>")[2]:
        return f"lesson {number}"
    return prompt.rpartition("say ")[2][0] if LESSONS in prompt else never_right(number, prompt)


def test_after_a_failure_comes_another_attempt_with_the_lesson(tokenizer: Any, echo: Any) -> None:
    speaker = Speaker(tokenizer, learns)
    episode = played(speaker, echo, agent(reflection=Reflection(attempts=3, tokens=25)), horizon=2)
    assert purposes(episode) == [ACT, ACT, LESSON, ACT, ACT]
    assert (len(episode.segments), episode.success, episode.score, episode.ending) == (2, True, 1.0, Ending.DONE)
    assert (episode.num_turns, episode.horizon) == (4, 2)
    first = episode.opening[-1].content
    assert speaker.prompt(3) == f"<|user|>{first}\n\n{LESSONS}\n\nlesson 2<|end|><|assistant|>"
    assert speaker.prompt(2).endswith(f"{episode.turns[1].observation}\n\n{LEARN}<|end|><|assistant|>")
    assert episode.turns[2].observation == f"{first}\n\n{LESSONS}\n\nlesson 2"
    assert speaker.requests[2].max_tokens == 25


def test_attempts_end_with_their_number_and_the_last_one_counts(tokenizer: Any, echo: Any) -> None:
    def half_right_at_first(number: int, prompt: str) -> str:
        if LEARN in prompt.rpartition("<|user|>")[2]:
            return "lesson"
        return prompt.rpartition("say ")[2][0] if number == 0 else never_right(number, prompt)

    episode = played(Speaker(tokenizer, half_right_at_first), echo, agent(reflection=Reflection(attempts=3)), horizon=2)
    assert purposes(episode) == [ACT, ACT, LESSON] * 2 + [ACT, ACT]
    assert sum(turn.reward for turn in episode.turns) == 0.5
    assert (episode.score, episode.success, episode.ending) == (0.0, False, Ending.HORIZON)


def test_a_success_needs_no_second_attempt(tokenizer: Any, echo: Any) -> None:
    speaker = Speaker(tokenizer, lambda number, prompt: prompt.rpartition("say ")[2][0])
    reflecting = played(speaker, echo, agent(reflection=Reflection()))
    assert bits(reflecting) == bits(played(Speaker(tokenizer, speaker.lines), echo))


@pytest.mark.parametrize("room", range(80, 260, 9))
def test_a_lesson_always_finds_the_room_that_was_left_for_it(tokenizer: Any, echo: Any, room: int) -> None:
    speaker = Speaker(tokenizer, learns)
    reflecting = agent(reflection=Reflection(attempts=3, tokens=20), planning=Planning(every=2, tokens=9))
    episode = played(speaker, echo, reflecting, context_tokens=room)
    assert all(len(segment.ids) <= room for segment in episode.segments)
    spoken = zip(episode.turns, speaker.requests, strict=True)
    assert all(request.max_tokens == 20 for turn, request in spoken if turn.purpose is LESSON)
    assert all(turn.purpose is not LESSON for turn in episode.turns[-1:])


def test_a_lesson_that_is_longer_when_it_is_told_opens_no_attempt_without_room(tokenizer: Any, echo: Any) -> None:
    class Broken(Speaker):
        """Its lessons are halves of letters, each of which is read back as several tokens."""

        async def sample(self, request: SampleRequest) -> Sampled:
            said = await super().sample(request)
            if LEARN not in self.prompt(-1).rpartition("<|user|>")[2]:
                return said
            return replace(
                said, ids=(tokenizer.encode("\N{SNOWMAN}")[0],) * 20, logprobs=(-1.0,) * 20, versions=(0,) * 20
            )

    ends = []
    for room in range(100, 260, 3):
        speaker = Broken(tokenizer, never_right)
        episode = played(
            speaker, echo, agent(reflection=Reflection(tokens=20)), context_tokens=room, horizon=2, check=False
        )
        assert all(len(segment.ids) <= room for segment in episode.segments)
        ends += purposes(episode)[-1:]
    assert LESSON in ends
    assert ends[-1] is ACT


# --- several actions in one reply ------------------------------------------------------------------------------------


def calling(*actions: str) -> str:
    return "".join(f"<tool_call>{action}</tool_call>" for action in actions)


def test_of_several_actions_in_a_reply_each_is_a_turn_and_the_first_holds_the_tokens(tokenizer: Any, echo: Any) -> None:
    tools = agent(format=Format.TOOLS, parallel_calls=3, thinking=False)
    speaker = Speaker(tokenizer, lambda number, prompt: calling("0", "no", "1"))
    episode = played(speaker, echo, tools, horizon=7, tokens_per_turn=400)
    assert [turn.action for turn in episode.turns[:3]] == ["0", None, "1"]
    assert [turn.end > turn.start for turn in episode.turns] == [True, False, False] * 2 + [True]
    assert [turn.reply for turn in episode.turns[:2]] == [calling("0", "no", "1"), ""]
    assert (episode.num_turns, episode.ending, len(speaker.requests)) == (7, Ending.HORIZON, 3)
    shown = [turn.observation for turn in episode.turns[:3]]
    assert speaker.prompt(1).count("<|user|>") == 4
    assert all(text in speaker.prompt(1) for text in shown)


def test_what_was_asked_for_after_the_end_is_not_done(tokenizer: Any, echo: Any) -> None:
    tools = agent(format=Format.TOOLS, parallel_calls=9)
    speaker = Speaker(tokenizer, lambda number, prompt: calling(*"012301230"))
    episode = played(speaker, echo, tools, horizon=20, tokens_per_turn=400)
    assert episode.ending is Ending.DONE
    assert episode.score == 1.0
    assert len(speaker.requests) < 3
    assert episode.turns[-1].reward == 0.5


# --- what environments may answer ------------------------------------------------------------------------------------


def test_halves_of_letters_are_shown_as_something_that_can_be_read(tokenizer: Any, echo: Any) -> None:
    class Halved(echo):  # type: ignore[misc]
        def _show(self) -> Observation:
            return Observation(text=f"{super()._show().text} \ud83d")

        def step(self, action: str) -> Step:
            return replace(super().step(action), info={"state": f"at \ud83d {action}"})

    speaker = Speaker(tokenizer, lambda number, prompt: str(number % 4))
    episode = played(speaker, Halved, horizon=2, observation_tokens=30)
    assert episode.opening[-1].content.endswith(" ?")
    assert episode.turns[-1].state == "at ? 0"
    assert episode_lines(
        [EpisodeEntry(episode=episode, group=0)], purpose=EpisodePurpose.TRAIN, total_step=1, stage="s"
    )


@pytest.mark.parametrize(("score", "expected"), [(Score.SUM, -0.5), (Score.LAST, -0.25), (Score.MAX, -0.25)])
def test_what_an_environment_takes_for_actions_it_does_not_understand_is_in_the_score(
    tokenizer: Any, echo: Any, score: Score, expected: float
) -> None:
    class Strict(echo):  # type: ignore[misc]
        spec = replace(echo.spec, score=score, score_range=(-1.0, 1.0))

        def step(self, action: str) -> Step:
            return replace(super().step(action), reward=-0.25, status=Status.INVALID)

    said = ("Action: no", "Action: no", "no")
    episode = played(Speaker(tokenizer, lambda number, prompt: said[number]), Strict, Agent(), horizon=3)
    assert [turn.reward for turn in episode.turns] == [-0.25, -0.25, 0.0]
    assert episode.score == expected


def test_a_question_is_of_the_turn_that_ended_the_episode_even_if_its_action_was_not_understood(
    tokenizer: Any, echo: Any
) -> None:
    asked = judge_to(JudgeRequest(questions=(YesNoQuestion(text="Done?", evidence={"said": "2"}),), reward=1.0))

    class Asking(echo):  # type: ignore[misc]
        def step(self, action: str) -> Step:
            over = replace(super().step("0"), status=Status.INVALID, terminated=True, info={"judge": asked})
            return over if action == "2" else replace(over, status=Status.OK, terminated=False, info={})

    episode = played(Speaker(tokenizer, lambda number, prompt: str(number)), Asking)
    assert [turn.action for turn in episode.turns] == ["0", "1", None]
    assert episode.pending is not None
    assert episode.pending.turn == 2


# --- guided ----------------------------------------------------------------------------------------------------------


def test_a_guided_agent_says_what_the_environment_lists_and_nothing_else(tokenizer: Any, echo: Any) -> None:
    class Listing(echo):  # type: ignore[misc]
        def _show(self) -> Observation:
            return replace(super()._show(), valid_actions=("0", "1", "no"))

    class First(Speaker):
        async def sample(self, request: SampleRequest) -> Sampled:
            self.asked = [*getattr(self, "asked", ()), request.sampling.allowed]
            token = request.sampling.allowed[0]
            return Sampled(ids=(token,), logprobs=(-1.0,), versions=(0,), finish=FinishReason.LENGTH)

    speaker = First(tokenizer, never_right)
    guided = agent(guided=True, format=Format.TOOLS, thinking=False)
    episode = played(speaker, Listing, guided, horizon=3, check=False)
    assert {turn.action for turn in episode.turns} <= {"0", "1"}
    assert {turn.reply for turn in episode.turns} <= {calling("0"), calling("1")}
    assert all(len(allowed) > 1 for allowed in speaker.asked)
    plain = Speaker(tokenizer, never_right)
    played(plain, echo, replace(guided, format=Format.PLAIN), horizon=3)
    assert all(request.sampling.allowed == () for request in plain.requests)


# --- actions that are shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [True, False, None])
def test_an_agent_that_is_shown_actions_sees_those_that_the_environment_lists(
    tokenizer: Any, echo: Any, shown: bool | None
) -> None:
    class Listing(echo):  # type: ignore[misc]
        def _show(self) -> Observation:
            return replace(super()._show(), valid_actions=("0", "1"))

    listing = Agent(format=Format.PLAIN, show_actions=shown)
    episode = played(Speaker(tokenizer, never_right), Listing, listing, horizon=3)
    texts = [episode.opening[-1].content, *(turn.observation for turn in episode.turns)]
    assert all(text.endswith("\nAvailable actions: 0; 1") == bool(shown) for text in texts)
    silent = played(Speaker(tokenizer, never_right), echo, listing, horizon=3)
    assert not any("Available" in turn.observation for turn in silent.turns)


def test_a_long_list_of_actions_is_cut_and_says_how_many_there_are_more() -> None:
    assert add_actions("Here.", [str(number) for number in range(62)]).endswith("; 58; 59; 2 more")
    assert add_actions("Here.", ()) == add_actions("Here.", None) == "Here."


# --- recorded --------------------------------------------------------------------------------------------------------


def kept(episode: Episode, folder: Path) -> Path:
    (folder / "episodes").mkdir()
    entry = EpisodeEntry(episode=episode, group=0)
    written = episode_lines([entry], purpose=EpisodePurpose.TRAIN, total_step=1, stage="s")
    (folder / EPISODES / TRAIN_LOG).write_bytes(compress_member(1, written))
    return folder


@pytest.mark.parametrize("name", ["calls", "plans"])
def test_a_recorded_episode_is_the_same_conversation_again(
    tokenizer: Any, echo: Any, tmp_path: Path, name: str
) -> None:
    settings, said = {
        "calls": (agent(format=Format.TOOLS, parallel_calls=2), lambda number, prompt: calling("0", "no")),
        "plans": (agent(planning=Planning(every=2)), plans),
    }[name]
    episode = played(Speaker(tokenizer, said), echo, settings, horizon=5, tokens_per_turn=200)
    (talk,) = read_episodes(kept(episode, tmp_path))
    chat, form = chat_and_format(settings, Chat(tokenizer))
    demonstrator = Demonstrator(
        chat=chat,
        encode=tokenizer.encode,
        format=form,
        prompt=None,
        shows_actions=False,
        timeouts=Rollout(),
        concurrency=ConcurrencyLimits.of(Rollout()),
        noise=0.0,
        loss_on=LossOn.EXPERT,
        clock=lambda: 0.0,
    )
    shown = demonstrator.render(talk, 4000)
    assert shown.segments[0].ids.tolist() == episode.segments[0].ids.tolist()
    assert shown.segments[0].sampled.tolist() == episode.segments[0].sampled.tolist()


def test_an_episode_of_several_views_is_not_one_conversation(tokenizer: Any, echo: Any, tmp_path: Path) -> None:
    window = agent(memory=Memory(kind=MemoryKind.WINDOW, turns=1))
    folder = kept(played(Speaker(tokenizer, never_right), echo, window), tmp_path)
    with pytest.raises(RunError, match="of several segments"):
        read_episodes(folder)


# --- in a run --------------------------------------------------------------------------------------------------------

STRICT = (
    "guards.mismatch_max=1e-6",
    "checkpoint.best=null",
    "eval={every: 3, turns: 4}",
    "algorithm.groups_per_update=4",
    "algorithm.filter={groups: size > 0}",
    "agent.context_tokens=160",
)
AGENTS = {
    "window": "agent.memory={kind: window, turns: 1}",
    "summary": "agent.memory={kind: summary, turns: 1, tokens: 6}",
    "planning": "agent.planning={every: 2, tokens: 5}",
    "reflection": "agent.reflection={attempts: 3, tokens: 5}",
    "without thoughts": "agent.thinking=false",
    "stripped thoughts": "agent.thoughts=strip",
    "stripped thoughts and a summary": (
        "agent={format: plain, tokens_per_turn: 2, context_tokens: 160, thoughts: strip, "
        "planning: {every: 2, tokens: 5}, reflection: {attempts: 2, tokens: 5}, "
        "memory: {kind: summary, turns: 1, tokens: 6}}"
    ),
    "demonstrations": "agent={format: plain, tokens_per_turn: 2, demonstrations: 1, context_tokens: 400}",
}


@pytest.mark.parametrize("name", AGENTS)
def test_what_the_sampler_drew_is_what_the_learner_learns_killed_or_not(new_run: Any, name: str) -> None:
    settings = (*STRICT, AGENTS[name])
    whole = new_run(*settings)
    calls = whole.watched()
    errors = [row["mismatch/ratio_error"] for row in whole.rows() if "mismatch/ratio_error" in row]
    assert errors
    assert max(errors) < 1e-5
    for at, again in new_run(*settings).killed_in(range(7, len(calls), 29)):
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"


def test_examples_are_of_other_training_tasks_and_the_same_in_every_step(new_run: Any) -> None:
    run = new_run(*STRICT, AGENTS["demonstrations"])
    assert run.go().kind is OutcomeKind.FINISHED
    played = [each for file in episodes_of(run.root).values() for each in file if each["purpose"] != "demonstration"]
    chats = [[(each["role"], each["content"]) for each in episode["opening"]] for episode in played]
    assert {tuple(role for role, _ in chat) for chat in chats} <= {
        ("user", "assistant") * n + ("user",) for n in (1, 2, 3)
    }
    assert all(chat[0][1].startswith("say ") for chat in chats)
    assert all(f"\n\n{NEXT_TASK}\n\nsay " in chat[-1][1] for chat in chats)
    assert 1 <= len({tuple(chat[:-1]) for chat in chats}) <= 2
