"""Messages to tokens without touching the past; replies to actions without guessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agym.dsl.model.recipe import Agent, Format, Parsing
from agym.runtime.agents.chat import Chat, TemplateError
from agym.runtime.agents.formats import format_for
from agym.runtime.agents.messages import Message


class Letters:
    """One token per letter, and the template that a test gives it."""

    end_of_reply = ord("$")
    marks = ()

    def __init__(self, template: Any) -> None:
        self._template = template

    def render(self, messages: Sequence[dict[str, str]], *, reply: bool) -> str:
        return str(self._template(messages)) + (">" if reply else "")

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def plain(messages: Sequence[dict[str, str]]) -> str:
    return "".join(f"{'>' if m['role'] == 'assistant' else m['role'][0]}{m['content']}$" for m in messages)


def test_what_follows_is_what_the_template_puts_after_the_end_token() -> None:
    chat = Chat(Letters(plain))
    assert chat.decode(chat.begin([Message("system", "be"), Message("user", "hi")])) == "sbe$uhi$>"
    assert chat.decode(chat.follow([Message("user", "no")])) == "uno$>"
    assert chat.rewrites == ()


def test_a_short_observation_that_is_shown_again_is_not_rendered_again() -> None:
    seen: list[str] = []

    def heard(messages: Sequence[dict[str, str]]) -> str:
        seen.append(messages[-1]["content"])
        return plain(messages)

    chat, long = Chat(Letters(heard)), "o" * 5000
    for text in ("no", "no", long, long):
        assert chat.decode(chat.follow([Message("user", text)])) == f"u{text}$>"
    assert (seen.count("no"), seen.count(long)) == (1, 2)


def test_a_template_that_drops_thoughts_is_known_and_changes_nothing_that_was_sampled() -> None:
    def forgetful(messages: Sequence[dict[str, str]]) -> str:
        return plain([{**m, "content": m["content"].split("</think>")[-1].strip()} for m in messages])

    chat = Chat(Letters(forgetful))
    assert len(chat.rewrites) == 2
    assert chat.decode(chat.follow([Message("user", "no")])) == "uno$>"


def test_a_template_that_moves_the_past_is_refused() -> None:
    def numbered(messages: Sequence[dict[str, str]]) -> str:
        return f"{len(messages)}:" + plain(messages)

    with pytest.raises(TemplateError, match="rewrites earlier messages once another one follows"):
        Chat(Letters(numbered))


def test_a_template_that_numbers_its_turns_is_refused() -> None:
    def counted(messages: Sequence[dict[str, str]]) -> str:
        return "".join(f"{at}{plain([m])}" for at, m in enumerate(messages))

    with pytest.raises(TemplateError):
        Chat(Letters(counted))


def test_an_end_token_that_is_not_read_back_is_refused() -> None:
    class Broken(Letters):
        def encode(self, text: str) -> list[int]:
            return [1, *super().encode(text)]

    with pytest.raises(TemplateError, match="is encoded as"):
        Chat(Broken(plain))


# --- formats ---------------------------------------------------------------------------------------------------------

REACT = {
    "Thought: x\nAction: go north": ("go north", ""),
    "  Action:   go  ": ("go", ""),
    "go north": (None, "has no line that starts with 'Action:'"),
    "Action: a\nAction: b": (None, "has 2 lines that start with 'Action:'"),
    "Action:\ngo": (None, "The line 'Action:' is empty"),
    "Action: go\nThen stop": (None, "Text follows the action"),
}


@pytest.mark.parametrize(("reply", "read"), REACT.items())
def test_an_action_is_read_or_the_reason_told(reply: str, read: tuple[str | None, str]) -> None:
    found = format_for(Agent(format=Format.REACT, parsing=Parsing.STRICT)).read(reply)
    assert found.action == read[0]
    assert read[1] in found.problem


@pytest.mark.parametrize("name", [Format.REACT, Format.PLAIN])
def test_what_an_expert_writes_is_read_as_what_it_meant(name: Format) -> None:
    form = format_for(Agent(format=name))
    assert form.read(form.write("craft 2 planks")).action == "craft 2 planks"


def test_a_prompt_of_ones_own_replaces_guide_and_rules() -> None:
    form = format_for(Agent(format=Format.REACT))
    assert form.opening("guide", "see", "mine")[0] == Message("system", "mine")
    assert form.opening("guide", "see")[0].content.startswith("guide\n\nAnswer each observation")
    assert format_for(Agent(format=Format.PLAIN)).opening("", "see") == (Message("user", "see"),)
