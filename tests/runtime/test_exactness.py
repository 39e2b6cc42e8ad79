"""What is trained on is what was sampled, whatever a chat template does to it; and where it is not, the run stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.recipe import Agent, Format, Rollout
from agym.envs.clients.client import InlineEnv
from agym.runtime.agents.chat import Chat, TemplateError
from agym.runtime.agents.formats import format_for
from agym.runtime.engine import OutcomeKind
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.episode import Episode, Group, Segment, Task
from agym.runtime.rollout.groups import play_episode
from agym.runtime.rollout.player import EpisodeLimits, Player

# --- templates -------------------------------------------------------------------------------------------------------

MESSAGE = "'<|' + message['role'] + '|>' + ({content}) + '<|end|>'"
LOOP = (
    "{{% for message in messages %}}{{{{ {message} }}}}{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '<|assistant|>' }}}}{{% endif %}}"
)


def template(content: str = "message['content']", before: str = "") -> str:
    return before + LOOP.format(message=MESSAGE.format(content=content))


REFUSED = {
    "the system prompt goes to the last message": template(
        "(messages[0]['content'] if loop.last else '') + message['content'] if message['role'] != 'system' else ''"
    ),
    "the length of the conversation stands on top": template(before="{{ messages | length }}"),
    "messages are numbered": template("loop.index ~ message['content']"),
    "only the last two messages are shown": template(
        "message['content'] if loop.index > messages | length - 2 else ''"
    ),
}
REWRITING = {
    "thoughts are dropped": template("message['content'].split('</think>')[-1]"),
    "white space is stripped": template("message['content'] | trim"),
    "replies are put in small letters": template(
        "message['content'] | lower if message['role'] == 'assistant' else message['content']"
    ),
}


@pytest.fixture(scope="module")
def words() -> Callable[..., Any]:
    """A real byte-level tokenizer, with a template of the test's own."""
    from agym.dsl.model.recipe import TokenizerInit
    from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer

    text = "say 0 say 1 say 2 say 3 say 4 wrong <think> the next number </think> Action: Reply"
    tokenizer = make_tokenizer(TokenizerInit(vocab=320), [text])
    return lambda chat_template=None: ModelTokenizer(tokenizer, chat_template)


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_moves_what_was_said_is_refused_before_the_first_episode(words: Any, name: str) -> None:
    with pytest.raises(TemplateError):
        Chat(words(REFUSED[name]))


@pytest.mark.parametrize("name", [*REWRITING, "none"])
def test_what_was_sampled_stays_as_it_was_under_a_template_that_rewrites_replies(
    words: Any, echo: Any, name: str
) -> None:
    tokenizer, sampler = words(REWRITING.get(name)), Babbler()
    chat = Chat(tokenizer)
    assert bool(chat.rewrites) == (name in REWRITING)
    episode = babbled(chat, sampler, echo)
    (segment,) = episode.segments
    assert len(episode.turns) == len(sampler.said) == 6
    for turn, (prompt, drawn) in zip(episode.turns, sampler.said, strict=True):
        assert tuple(segment.ids[: turn.start].tolist()) == prompt
        assert tuple(segment.ids[turn.start : turn.end].tolist()) == drawn
    assert segment.sampled.sum() == sum(len(drawn) for _, drawn in sampler.said)
    # so it matters: the conversation as text, rendered or read again, is made of other tokens
    assert tokenizer.encode(tokenizer.decode(segment.ids.tolist())) != segment.ids.tolist()
    assert rendered(tokenizer, episode) != segment.ids.tolist()


@dataclass
class Babbler:
    """Says anything at all, as a model that knows nothing; keeps what it was asked and what it said."""

    said: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sampled:
        draws = Random(request.seed)
        ids = (*(draws.randrange(6, 320) for _ in range(request.max_tokens - 1)), request.sampling.stop_ids[0])
        self.said.append((tuple(request.prompt), ids))
        return Sampled(ids=ids, logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), finish=FinishReason.STOP)


def babbled(chat: Chat, sampler: Any, env: Any) -> Episode:
    async def go() -> Episode:
        client = InlineEnv(env)
        player = Player(
            sampler=sampler,
            chat=chat,
            format=format_for(Agent(format=Format.PLAIN)),
            prompt=None,
            sampling=SamplingSettings(stop_ids=(chat.end_of_reply,)),
            timeouts=Rollout(),
            concurrency=ConcurrencyLimits.of(Rollout()),
            clock=lambda: 0.0,
        )
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec())
        limits = EpisodeLimits(horizon=6, tokens_per_turn=12, context_tokens=2000)
        return await play_episode(player, world, Task(environment="echo", id="train-0", seed=0), 0, limits, 0)

    return asyncio.run(go())


def rendered(tokenizer: Any, episode: Episode) -> list[int]:
    """The whole conversation through the template, as one would who kept the text alone."""
    messages = [{"role": each.role, "content": each.content} for each in episode.opening]
    for turn in episode.turns:
        messages += [{"role": "assistant", "content": turn.reply}, {"role": "user", "content": turn.observation}]
    return list(tokenizer.encode(tokenizer.render(messages[:-1], reply=False)))


# --- what is broken on the way to the learner ------------------------------------------------------------------------


def one_token(segment: Segment) -> Segment:
    ids = segment.ids.copy()
    ids[np.flatnonzero(segment.sampled)[0]] += 1
    return replace(segment, ids=ids)


def mask_late_by_one(episode: Episode) -> Episode:
    turns = [
        replace(turn, start=turn.start + 1, end=min(turn.end + 1, len(episode.segments[0].ids)))
        for turn in episode.turns
    ]
    (segment,) = episode.segments
    sampled = np.zeros_like(segment.sampled)
    for turn in turns:
        sampled[turn.start : turn.end] = True
    return replace(episode, turns=tuple(turns), segments=(replace(segment, sampled=sampled),))


def of_segments(change: Callable[[Segment], Segment]) -> Callable[[Episode], Episode]:
    return lambda episode: replace(episode, segments=tuple(map(change, episode.segments)))


BREAKS: dict[str, Callable[[Episode], Episode]] = {
    "one token is another": of_segments(one_token),
    "the mask is late by one": mask_late_by_one,
    "log-probs are late by one": of_segments(lambda s: replace(s, logprobs=np.append(np.float32(0), s.logprobs[:-1]))),
    "the first token is lost": of_segments(lambda s: replace(s, ids=np.append(s.ids[1:], s.ids[-1:]))),
}


class Breaking:
    """A crew that hands over the first episode it has played with something wrong in it."""

    def __init__(self, workers: Any, break_: Callable[[Episode], Episode]) -> None:
        self._workers = workers
        self._break = break_

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)

    async def play(self, orders: Sequence[Any], style: Any, seen: Any) -> list[Group]:
        first, *rest = await self._workers.play(orders, style, seen)
        return [replace(first, episodes=(self._break(first.episodes[0]), *first.episodes[1:])), *rest]


STRICT = (
    "guards.mismatch_max=1e-6",
    "eval=null",
    "checkpoint.best=null",
    "algorithm.groups_per_update=4",
    "algorithm.filter={groups: size > 0}",
)


@pytest.mark.parametrize("name", BREAKS)
def test_one_broken_episode_in_a_step_stops_the_run(new_run: Any, name: str) -> None:
    run = new_run(*STRICT)
    run.around = lambda workers: Breaking(workers, BREAKS[name])
    outcome = run.go()
    assert outcome.kind is OutcomeKind.GUARDED
    assert "mismatch_max" in outcome.reason
    assert errors(run)[0] > 0.01


def test_where_nothing_is_broken_sampler_and_learner_agree_to_the_last_bits(new_run: Any) -> None:
    run = new_run(*STRICT)
    assert run.go().kind is OutcomeKind.FINISHED
    assert max(errors(run)) < 1e-5


def errors(run: Any) -> list[float]:
    return [row["mismatch/ratio_error"] for row in run.rows() if "mismatch/ratio_error" in row]
