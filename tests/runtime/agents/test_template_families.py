"""The published chat templates of model families: episodes of several turns, token for token.

The templates are read from TRL's wheel, which ships them; nothing of TRL is imported.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import LossOn
from agym.dsl.model.recipe import Agent, Format, Memory, MemoryKind, Rollout, Thoughts, TokenizerInit
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import EnvSpec, ToolSchema
from agym.runtime.agents.calls import DIALECTS, ToolCall
from agym.runtime.agents.chat import Chat, TemplateError
from agym.runtime.agents.formats import chat_and_format, format_for
from agym.runtime.agents.prompts import FORGOTTEN
from agym.runtime.agents.thoughts import MARKS, without_thoughts
from agym.runtime.data.dataset import read_conversations
from agym.runtime.data.demonstrations import Demonstrator
from agym.runtime.errors import RunError
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.episode import Episode, Task
from agym.runtime.rollout.groups import play_episode
from agym.runtime.rollout.player import EpisodeLimits, Player


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is known of a family besides its template."""

    end: str
    """What ends a reply."""
    drops: bool = False
    """Whether the template drops the thoughts of earlier turns."""
    opens: bool = False
    """Whether the prompt opens the thoughts of a reply."""
    own_end: str = ""
    """The tokenizer's end token, where it is not the one that ends a reply."""


CHATML, DEEPSEEK = "<|im_end|>", "<｜end▁of▁sentence｜>"
FAMILIES = {
    "qwen2_5": Family(end=CHATML),
    "qwen3": Family(end=CHATML, drops=True),
    "qwen3_instruct_2507": Family(end=CHATML),
    "qwen3_5_think": Family(end=CHATML, drops=True, opens=True),
    "qwen3_8": Family(end=CHATML, opens=True),
    "llama3": Family(end="<|eot_id|>"),
    "llama3_1": Family(end="<|eot_id|>"),
    "llama3_2": Family(end="<|eot_id|>"),
    "gemma": Family(end="<end_of_turn>", own_end="<eos>"),
    "gemma3": Family(end="<end_of_turn>", own_end="<eos>"),
    "gemma4": Family(end="<turn|>", own_end="<eos>", drops=True),
    "phi3": Family(end="<|end|>", own_end="<|endoftext|>"),
    "cohere": Family(end="<|END_OF_TURN_TOKEN|>"),
    "cohere2": Family(end="<|END_RESPONSE|>", own_end="<|END_OF_TURN_TOKEN|>"),
    "glm4moe": Family(end="<|user|>", own_end="<|endoftext|>", drops=True),
    "deepseekv3": Family(end=DEEPSEEK, drops=True, opens=True),
    "deepseek_r1_distill": Family(end=DEEPSEEK, drops=True, opens=True),
    "gptoss": Family(end="<|return|>", drops=True),
    "lfm2": Family(end=CHATML),
    "lfm2_2_5": Family(end=CHATML, drops=True),
    "nemotron_3_nano": Family(end=CHATML, drops=True, opens=True),
}
REFUSED = ("idefics3", "llava_next", "smolvlm")
"""Of vision models, which take lists of parts."""
SPECIAL = re.compile(
    r"<\|[A-Za-z_/]+\|?>|<[A-Za-z_]+\|>|<｜[^｜]+｜>|<(?:start|end)_of_turn>|\[gMASK\]|<sop>|\[/?INST\]|</?s>"
)


def published(name: str) -> str:
    found = find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("the wheel of TRL is not installed: make setup")
    return (Path(found.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tokenizer_of() -> Callable[..., Any]:
    """A byte-level tokenizer that knows the control tokens of a template, and the template."""
    from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer

    def make(name: str, family: Family) -> Any:
        made, template = make_tokenizer(TokenizerInit(vocab=320), ["say 0 say 1"]), published(name)
        own_end = family.own_end or family.end
        special = sorted({*SPECIAL.findall(template), family.end, own_end, "<bos>"})
        made.add_special_tokens({"additional_special_tokens": special})
        made.add_special_tokens({"bos_token": "<bos>", "eos_token": own_end})
        made.add_tokens(["<think>", "</think>"])
        return ModelTokenizer(made, template)

    return make


@dataclass
class Thinker:
    """Thinks, in the marks of its family, and says a number that is never right; keeps what it was asked and said."""

    chat: Chat
    encode: Callable[[str], list[int]]
    thought: str
    said: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sampled:
        reply = f"{self.thought}Thought: turn {len(self.said)}\nAction: 4"
        ids = (*self.encode(reply), self.chat.end_of_reply)
        self.said.append((tuple(request.prompt), ids))
        return Sampled(ids=ids, logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), finish=FinishReason.STOP)


def thought_of(name: str, family: Family) -> str:
    if family.opens:
        return "hm\n</think>\n\n"
    marks = {"gptoss": MARKS[1], "gemma4": MARKS[2]}.get(name, MARKS[0])
    between = "<|end|><|start|>assistant" if name == "gptoss" else "\n"
    return f"{marks.opening}\nhm{between}{marks.closing}"


def play(chat: Chat, form: Any, sampler: Any, env: Any, memory: Memory) -> Episode:
    async def go() -> Episode:
        client = InlineEnv(env)
        player = Player(
            sampler=sampler,
            chat=chat,
            format=form,
            prompt=None,
            sampling=SamplingSettings(stop_ids=chat.ends),
            timeouts=Rollout(),
            concurrency=ConcurrencyLimits.of(Rollout()),
            clock=lambda: 0.0,
            memory=memory,
        )
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec())
        limits = EpisodeLimits(horizon=4, tokens_per_turn=200, context_tokens=20_000)
        return await play_episode(player, world, Task(environment="echo", id="train-0", seed=0), 0, limits, 0)

    return asyncio.run(go())


WHOLE, LAST_TURN = Memory(), Memory(kind=MemoryKind.WINDOW, turns=1)


def played(
    name: str, thoughts: Thoughts, tokenizer: Any, echo: Any, memory: Memory = WHOLE
) -> tuple[Chat, Thinker, Episode]:
    family = FAMILIES[name]
    root = Chat(tokenizer, thoughts=thoughts)
    chat, form = chat_and_format(Agent(format=Format.REACT, thoughts=thoughts), root)
    sampler = Thinker(chat, tokenizer.encode, thought_of(name, family))
    return chat, sampler, play(chat, form, sampler, echo, memory)


def assert_exact(episode: Episode, said: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """What a segment holds is what was asked and what was said, and that alone was sampled."""
    assert len(episode.turns) == len(said) == 4
    for turn, (prompt, drawn) in zip(episode.turns, said, strict=True):
        ids, sampled = episode.segments[turn.segment].ids, episode.segments[turn.segment].sampled
        assert tuple(ids[: turn.start].tolist()) == prompt
        assert tuple(ids[turn.start : turn.end].tolist()) == drawn
        assert sampled[turn.start : turn.end].all()
    assert sum(each.sampled.sum() for each in episode.segments) == sum(len(drawn) for _, drawn in said)


def conversation(tokenizer: Any, episode: Episode, turns: int) -> str:
    """What the template itself makes of these turns, their thoughts removed."""
    messages = [{"role": each.role, "content": each.content} for each in episode.opening]
    for turn in episode.turns[:turns]:
        messages.append({"role": "assistant", "content": without_thoughts(turn.reply)})
        messages.append({"role": "user", "content": turn.observation})
    try:
        return str(tokenizer.render(messages, reply=True))
    except Exception:  # a template without a system role, as Gemma's
        system, first, *rest = messages
        first = {**first, "content": f"{system['content']}\n\n{first['content']}"}
        return str(tokenizer.render([first, *rest], reply=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_thoughts_that_are_kept_stay_as_they_were_sampled(name: str, tokenizer_of: Any, echo: Any) -> None:
    tokenizer = tokenizer_of(name, FAMILIES[name])
    chat, sampler, episode = played(name, Thoughts.KEEP, tokenizer, echo)
    assert (chat.end_text, chat.opens_thoughts, chat.strips) == (FAMILIES[name].end, FAMILIES[name].opens, False)
    assert len(episode.segments) == 1
    assert_exact(episode, sampler.said)
    assert [turn.action for turn in episode.turns] == ["4"] * 4
    assert all(turn.reply.startswith(sampler.thought) for turn in episode.turns)
    opening = conversation(tokenizer, episode, 0)
    assert tokenizer.decode(sampler.said[0][0]) == opening


@pytest.mark.parametrize("name", FAMILIES)
def test_thoughts_are_stripped_as_the_template_strips_them(name: str, tokenizer_of: Any, echo: Any) -> None:
    tokenizer = tokenizer_of(name, FAMILIES[name])
    chat, sampler, episode = played(name, Thoughts.STRIP, tokenizer, echo)
    assert chat.strips
    assert_exact(episode, sampler.said)
    assert [turn.action for turn in episode.turns] == ["4"] * 4
    for at, (prompt, _) in enumerate(sampler.said):
        assert tokenizer.decode(prompt) == conversation(tokenizer, episode, at)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3_5_think", "gemma", "glm4moe", "gptoss"])
@pytest.mark.parametrize("thoughts", [Thoughts.KEEP, Thoughts.STRIP])
def test_a_window_of_the_last_turn_is_exact_as_well(
    name: str, thoughts: Thoughts, tokenizer_of: Any, echo: Any
) -> None:
    tokenizer = tokenizer_of(name, FAMILIES[name])
    _, sampler, episode = played(name, thoughts, tokenizer, echo, LAST_TURN)
    assert_exact(episode, sampler.said)
    last = tokenizer.decode(sampler.said[-1][0])
    assert FORGOTTEN in last
    assert ("turn 1" in last, "turn 2" in last) == (False, True)
    assert (sampler.thought.strip() in last) == (thoughts is Thoughts.KEEP)


@pytest.mark.parametrize("name", FAMILIES)
def test_auto_is_what_the_template_does(name: str, tokenizer_of: Any) -> None:
    assert Chat(tokenizer_of(name, FAMILIES[name]), thoughts=Thoughts.AUTO).strips == FAMILIES[name].drops


@pytest.mark.parametrize("name", FAMILIES)
def test_what_an_expert_writes_is_read_in_every_family(name: str, tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of(name, FAMILIES[name])
    for thinking in (True, False):
        chat, form = chat_and_format(Agent(format=Format.REACT, thinking=thinking), Chat(tokenizer))
        ids = chat.reply(form.write("say 1"))
        assert ids[-1] == chat.end_of_reply
        assert form.read(chat.decode(ids)).actions == ("say 1",)
        assert chat.opens_thoughts == (thinking and FAMILIES[name].opens)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.opens])
def test_an_action_within_opened_thoughts_is_none(name: str, tokenizer_of: Any) -> None:
    _, form = chat_and_format(Agent(format=Format.REACT), Chat(tokenizer_of(name, FAMILIES[name])))
    assert "Your thoughts do not end" in form.read("Action: say 1").problem
    assert form.read("hm</think>Action: say 1").actions == ("say 1",)


CALLS = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_5_think": "qwen3.5",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "glm4moe": "glm",
    "gemma3": None,
    "phi3": None,
    "cohere": None,
    "gptoss": None,
}
"""The dialect in which a family's template writes tool calls, where it is one that is read."""
PAY = ToolSchema(
    name="pay",
    description="Pays <|im_end|> somebody.",
    parameters={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
)


@pytest.mark.parametrize("name", CALLS)
def test_tools_of_an_environment_reach_the_template_and_its_calls_the_environment(name: str, tokenizer_of: Any) -> None:
    tokenizer, agent = tokenizer_of(name, FAMILIES[name]), Agent(format=Format.TOOLS)
    env = EnvSpec(
        name="bank", version="1", summary="s", splits=(), prompt="In words.", tools=(PAY,), tool_prompt="Do it."
    )
    chat, form = chat_and_format(agent, Chat(tokenizer), env)
    opening = tokenizer.decode(chat.begin(form.opening(env.prompt, "Pay bob.")))
    action = '{"name": "pay", "arguments": {"to": "bob"}}'
    written = form.write(action)
    dialect = CALLS[name]
    assert ("pay" in opening.replace("Pay", ""), "Do it." in opening) == (dialect is not None, dialect is not None)
    assert ("In words." in opening) == (dialect is None)
    if dialect is not None:
        assert written == {each.name: each for each in DIALECTS}[dialect].write(ToolCall("pay", {"to": "bob"}))
        assert "Pays < |im_end|> somebody." in opening or name not in ("qwen2_5", "qwen3")
    assert form.read(chat.decode(chat.reply(written))).actions == (action,)
    told = chat.follow(form.observation("Paid."))
    assert "Paid." in tokenizer.decode(told)


ARGUMENTS = {"to": "bob", "for": "tea, <b>\u00e9"}
PAID = {"type": "function", "function": {"name": "pay", "arguments": ARGUMENTS}}
TOOL = {"type": "function", "function": {"name": PAY.name, "description": "Pays.", "parameters": PAY.parameters}}


def write_talk(path: Path, text: str | None, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Write a line whose first reply has this text and these calls."""
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Pay bob."},
        {"role": "assistant", "content": text, "tool_calls": calls},
        {"role": "tool", "content": "Paid."},
        {"role": "assistant", "content": "", "tool_calls": [PAID], "weight": 0},
        {"role": "tool", "content": "Paid once more."},
        {"role": "user", "content": "Done?"},
        {"role": "assistant", "content": "Done."},
    ]
    path.write_text(json.dumps({"messages": talk, "tools": [TOOL]}))
    return talk


def demonstrate(tokenizer: Any, path: Path) -> tuple[Chat, str, list[str]]:
    """The chat, the text of the conversation and the texts that are trained on."""
    chat = Chat(tokenizer)
    demonstrator = Demonstrator(
        chat=chat,
        encode=tokenizer.encode_known,
        format=format_for(Agent(format=Format.PLAIN)),
        prompt=None,
        shows_actions=False,
        timeouts=Rollout(),
        concurrency=ConcurrencyLimits.of(Rollout()),
        noise=0.0,
        loss_on=LossOn.EXPERT,
        clock=lambda: 0.0,
    )
    (talk,) = read_conversations(path)
    (segment,) = demonstrator.render(talk, 20_000).segments
    edges = np.flatnonzero(np.diff(segment.sampled, prepend=False, append=False))
    learnt = [tokenizer.decode(segment.ids[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return chat, tokenizer.decode(segment.ids), learnt


@pytest.mark.parametrize("name", CALLS)
def test_tools_and_calls_of_a_file_are_shown_and_learnt_as_the_model_writes_them(
    name: str, tokenizer_of: Any, tmp_path: Path
) -> None:
    tokenizer, path, takes_one = tokenizer_of(name, FAMILIES[name]), tmp_path / "data.jsonl", CALLS[name] == "llama"
    talk = write_talk(path, None, PAID) if takes_one else write_talk(path, "I pay.", PAID, PAID)
    chat, text, learnt = demonstrate(tokenizer, path)
    call = {each.name: each for each in DIALECTS}[CALLS[name] or "hermes"].write(ToolCall("pay", ARGUMENTS))
    said = (call if takes_one else f"I pay.\n{call}\n{call}", "Done.")
    assert learnt == [f"{chat.write(each)}{FAMILIES[name].end}" for each in said]
    assert all(each in text for each in ("Pays.", "Paid.", "Paid once more.", "Be brief."))
    if name in ("qwen2_5", "qwen3_instruct_2507"):  # the others rewrite thoughts, or the last reply's end
        messages = [{key: value for key, value in each.items() if key != "weight"} for each in talk]
        assert text == tokenizer.render(messages, reply=False, tools=[TOOL]).rstrip("\n")


def test_a_call_that_could_not_be_read_is_told_with_its_place(tokenizer_of: Any, tmp_path: Path) -> None:
    unknown = {"function": {"name": "steal", "arguments": {}}}
    for name, text, call in (("llama3_1", "I pay.", PAID), ("qwen2_5", None, unknown), ("phi3", None, unknown)):
        write_talk(tmp_path / "data.jsonl", text, call)
        with pytest.raises(RunError, match=r"data\.jsonl:1, reply 1: its calls, as the model writes them, cannot be"):
            demonstrate(tokenizer_of(name, FAMILIES[name]), tmp_path / "data.jsonl")


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_cannot_be_continued_is_refused_with_the_alternative(name: str, tokenizer_of: Any) -> None:
    with pytest.raises(TemplateError, match=r"give another one as 'model\.chat_template'"):
        Chat(tokenizer_of(name, Family(end="<end_of_utterance>")))


@pytest.mark.parametrize("name", ["gptoss", "llama3_2"])
def test_a_template_that_asks_for_the_date_says_the_same_every_day(name: str, tokenizer_of: Any) -> None:
    text = tokenizer_of(name, FAMILIES[name]).render([{"role": "user", "content": "u"}], reply=True)
    assert re.search(r"2025-01-01|01 Jan 2025", text)
