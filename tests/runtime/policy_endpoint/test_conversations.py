"""Which tokens a request goes on from: any interleaving of continuations, branches and rewrites."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from agym.runtime.agents.chat import Chat
from agym.runtime.policy_endpoint.conversations import Origin
from agym.runtime.policy_endpoint.fairness import FairQueue
from agym.runtime.policy_endpoint.messages import ChatMessage, Role
from agym.runtime.policy_endpoint.policy import Policy, PolicyEpisode, PolicyRequest
from agym.runtime.protocols import SamplingSettings
from hypothesis import given
from hypothesis import strategies as st

from .conftest import Speaker

WORDS = ("say 0", "say 1 wrong", "2", "", "say say 3")


def user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


def policy_of(speaker: Speaker, tokenizer: Any, slots: int = 8) -> Policy:
    return Policy(
        speaker,  # type: ignore[arg-type]
        Chat(tokenizer),
        sampling=SamplingSettings(),
        context_tokens=4096,
        tokens_per_reply=64,
        queue=FairQueue(slots),
        clock=lambda: 0.0,
    )


class Client:
    """A client that goes on, goes back, forgets and invents, at random."""

    def __init__(self, policy: Policy, episode: PolicyEpisode, rng: Random) -> None:
        self.policy, self.episode, self.rng = policy, episode, rng
        self.known: list[tuple[ChatMessage, ...]] = []

    def next_messages(self) -> tuple[ChatMessage, ...]:
        rng = self.rng
        if not self.known or rng.random() < 0.15:
            system = [ChatMessage(Role.SYSTEM, rng.choice(WORDS[:2]))] if rng.random() < 0.5 else []
            return (*system, user(rng.choice(WORDS)))
        past = list(rng.choice(self.known))
        change = rng.random()
        if change < 0.2:
            past = past[: rng.randrange(1, len(past) + 1)]
        elif change < 0.3:
            del past[rng.randrange(len(past))]
        elif change < 0.4:
            past[rng.randrange(len(past))] = ChatMessage(rng.choice([Role.USER, Role.ASSISTANT]), rng.choice(WORDS))
        return (*past, user(rng.choice(WORDS)))

    async def ask(self) -> None:
        messages = self.next_messages()
        answer = await self.policy.answer(self.episode, PolicyRequest(messages=messages))
        self.known.append((*messages, answer.reply.message))


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 14))
def test_every_sampled_token_is_in_one_segment_after_the_tokens_it_was_sampled_after(
    tokenizer: Any, seed: int, clients: int, requests: int
) -> None:
    rng = Random(seed)
    speaker = Speaker(tokenizer, lambda number, prompt: WORDS[number % len(WORDS)])

    async def pause(number: int) -> None:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)

    speaker.hold = pause
    policy, episode = policy_of(speaker, tokenizer, slots=2), PolicyEpisode(key="a", seed=1)
    client = Client(policy, episode, rng)

    async def play() -> None:
        async def many() -> None:
            for _ in range(requests):
                await client.ask()

        await asyncio.gather(*(many() for _ in range(clients)))

    asyncio.run(play())
    segments = episode.conversations.segments
    seen: dict[int, int] = {}
    for segment in segments:
        for number in sorted(set(segment.versions.tolist()) - {-1}):
            at = np.flatnonzero(segment.versions == number)
            assert number not in seen, "a reply is in two segments"
            seen[number] = len(at)
            assert (np.diff(at) == 1).all()
            assert tuple(segment.ids[: at[0]].tolist()) == tuple(speaker.requests[number].prompt)
            assert (segment.logprobs[at] == -(number + 1.0)).all()
        assert (segment.sampled == (segment.versions >= 0)).all()
        assert (segment.logprobs[~segment.sampled] == 0).all()
    assert sorted(seen) == list(range(clients * requests))
    assert episode.usage.completion == sum(seen.values())
    assert len(episode.exchanges) == clients * requests


def talk(tokenizer: Any, lines: Sequence[str], *requests: Sequence[ChatMessage]) -> PolicyEpisode:
    policy = policy_of(Speaker(tokenizer, lambda number, prompt: lines[number]), tokenizer)
    episode = PolicyEpisode(key="a", seed=1)

    async def play() -> None:
        for messages in requests:
            await policy.answer(episode, PolicyRequest(messages=tuple(messages)))

    asyncio.run(play())
    return episode


def said(text: str) -> ChatMessage:
    return ChatMessage(Role.ASSISTANT, text)


def test_a_conversation_goes_on_in_its_segment(tokenizer: Any) -> None:
    episode = talk(tokenizer, "ab", [user("x")], [user("x"), said("a"), user("y")])
    (line,) = episode.conversations.lines
    assert line.origin is Origin.START
    assert [each.observation for each in episode.exchanges] == ["y", ""]


def test_a_second_answer_to_the_same_messages_is_a_branch(tokenizer: Any) -> None:
    episode = talk(tokenizer, "ab", [user("x")], [user("x")])
    first, second = episode.conversations.lines
    assert second.origin is Origin.BRANCH
    assert second.parent is first


def test_a_dropped_turn_is_a_rewrite(tokenizer: Any) -> None:
    turns = [user("x"), said("a"), user("y"), said("b"), user("z")]
    episode = talk(tokenizer, "abcd", turns[:1], turns[:3], [*turns[:1], *turns[3:]])
    assert [line.origin for line in episode.conversations.lines] == [Origin.START, Origin.REWRITE]


def test_a_branch_from_the_middle_holds_the_tokens_before_it_as_context(tokenizer: Any) -> None:
    turns = [user("x"), said("a"), user("y"), said("b"), user("z")]
    episode = talk(tokenizer, "abcd", turns[:1], turns[:3], turns, [*turns[:2], user("other")])
    first, second = episode.conversations.segments
    end = int(np.flatnonzero(first.sampled & (first.versions == 0))[-1]) + 1
    assert second.ids[:end].tolist() == first.ids[:end].tolist()
    assert not second.sampled[:end].any()


def test_of_two_replies_that_say_the_same_each_is_continued_once(tokenizer: Any) -> None:
    turns = [user("x"), said("a"), user("y")]
    episode = talk(tokenizer, "aabc", turns[:1], turns[:1], turns, [*turns[:2], user("z")])
    assert [len(line.replies) for line in episode.conversations.lines] == [2, 2]


def test_a_request_that_is_called_off_leaves_no_trace(tokenizer: Any) -> None:
    async def play() -> None:
        speaker = Speaker(tokenizer, lambda number, prompt: "a")
        policy, episode = policy_of(speaker, tokenizer, slots=1), PolicyEpisode(key="a", seed=1)
        request = PolicyRequest(messages=(user("x"),))
        await policy.answer(episode, request)
        never = asyncio.Event()

        async def wait(number: int) -> None:
            if number == 1:
                await never.wait()

        speaker.hold = wait
        again = PolicyRequest(messages=(user("x"), said("a"), user("y")))
        task = asyncio.ensure_future(policy.answer(episode, again))
        while len(speaker.requests) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await policy.answer(episode, again)
        (line,) = episode.conversations.lines
        assert len(line.replies) == 2

    asyncio.run(play())


def test_a_request_that_waits_as_its_episode_ends_is_not_sampled(tokenizer: Any) -> None:
    async def play() -> None:
        speaker, gate = Speaker(tokenizer, lambda number, prompt: "a"), asyncio.Event()
        policy, episode = policy_of(speaker, tokenizer, slots=1), PolicyEpisode(key="a", seed=1)

        async def wait(number: int) -> None:
            await gate.wait()

        speaker.hold = wait
        asked = [policy.answer(episode, PolicyRequest(messages=(user(text),))) for text in "xy"]
        answers = asyncio.gather(*asked, return_exceptions=True)
        while not speaker.requests:
            await asyncio.sleep(0)
        episode.ended = True
        gate.set()
        assert [str(each) for each in await answers] == ["the episode of this API key has ended"] * 2
        assert len(speaker.requests) == 1

    asyncio.run(play())


def test_an_episode_with_many_requests_waits_for_itself() -> None:
    async def play() -> list[str]:
        queue, served, gate = FairQueue(1), list[str](), asyncio.Event()

        async def ask(name: str) -> None:
            async with queue.turn(name):
                served.append(name)
                await gate.wait()

        tasks = [asyncio.ensure_future(ask(name)) for name in "aaaabc"]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        return served

    assert asyncio.run(play()) == ["a", "b", "c", "a", "a", "a"]
