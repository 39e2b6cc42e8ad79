"""Replies to actions without guessing: what is refused and why, what comes back as it was meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from agym.dsl.model.recipe import Agent, Format, Parsing
from agym.runtime.agents.calls import DIALECTS
from agym.runtime.agents.formats import AgentFormat, format_for
from agym.runtime.agents.thoughts import without_thoughts
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """What forms a reply besides the format."""

    thinking: bool = True
    calls: int = 1
    native: bool = False


PLAIN_RULES = ReplyRules()
HERMES = DIALECTS[0]


def agent_format(name: Format, manner: ReplyRules = PLAIN_RULES) -> AgentFormat:
    agent = Agent(format=name, thinking=manner.thinking, parallel_calls=manner.calls, parsing=Parsing.STRICT)
    return format_for(agent, dialect=HERMES if manner.native else None)


MANNERS = [
    ReplyRules(thinking=thinking, calls=most, native=native)
    for thinking in (True, False)
    for most in (1, 3)
    for native in (True, False)
]
FORMS = [(name, manner) for name in Format for manner in MANNERS]
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
JSON = '{"name": "act", "arguments": {"action": "go"}}'
PIECES = [
    *TAGS,
    "```",
    "````",
    "\n",
    "Action:",
    "Thought:",
    "go",
    " ",
    JSON,
    '"',
    "{",
    "[",
    "\\",
    "\r",
    "\x85",
    "\ud800",
]


@given(st.sampled_from(FORMS), st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_a_reply_is_read_or_refused_with_a_reason_and_nothing_is_raised(form: Any, reply: str) -> None:
    name, manner = form
    found = agent_format(name, manner).read(reply)
    assert bool(found.actions) != bool(found.problem)
    assert len(found.actions) <= (manner.calls if name is Format.TOOLS else 1)
    assert all(action.strip() for action in found.actions)


def meant(name: Format, manner: ReplyRules) -> st.SearchStrategy[str]:
    """Actions that the format can write: any text in a code block or in JSON, else a line without its marks."""
    letters = st.characters(exclude_categories=["Cs"])
    text = st.one_of(st.text(letters), st.lists(st.sampled_from(PIECES[:-1])).map("".join))
    if name is Format.CODE or (name is Format.TOOLS and manner.native):
        return text.filter(lambda action: action.strip() and "think>" not in action)
    plain = text.map(lambda each: " ".join(each.split())).filter(bool)
    return plain.filter(lambda action: not any(tag in action for tag in TAGS))


@given(st.data(), st.sampled_from(FORMS))
def test_what_an_expert_writes_is_read_as_what_it_meant(data: Any, form: Any) -> None:
    name, manner = form
    action = data.draw(meant(name, manner))
    assert agent_format(name, manner).read(agent_format(name, manner).write(action)).actions == (action,)


def test_an_experts_thought_says_what_it_does_now_and_next() -> None:
    react, long = agent_format(Format.REACT), "craft " + 20 * "1 oak plank, "
    assert (
        react.write_step("go north", "take apple") == "Thought: I will go north, and then take apple\nAction: go north"
    )
    assert react.write_step("go north") == react.write("go north") == "Thought: I will go north\nAction: go north"
    assert react.write_step(long).startswith("Thought: I will take the next step of my plan\nAction: craft 1 oak")
    assert agent_format(Format.PLAIN).write_step("go north", "take apple") == "go north"


@given(st.data(), st.sampled_from([manner for manner in MANNERS if manner.calls == 3]))
def test_several_calls_are_read_in_their_order(data: Any, manner: ReplyRules) -> None:
    form = agent_format(Format.TOOLS, manner)
    actions = tuple(data.draw(st.lists(meant(Format.TOOLS, manner), min_size=1, max_size=3)))
    assert form.read("\n".join(form.write(action) for action in actions)).actions == actions


# --- why a reply is refused ------------------------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "act", "arguments": {"action": "go"}}\n</tool_call>'


def call(text: str) -> str:
    return f"<tool_call>{text}</tool_call>"


TEMPLATED = {
    CALL: ("go",),
    f"I will go. {CALL}": ("go",),
    f"<think>\n<tool_call>no</tool_call>\n</think>\n\n{CALL}": ("go",),
    f"{CALL}\n{CALL}": ("go", "go"),
    f"{CALL}{CALL}{CALL}": "has 3 tool calls. Write no more than 2",
    "go": "has no tool call",
    f"<think>{CALL}": "Your thoughts do not end",
    f"{CALL} Done.": "Text follows a tool call",
    f"{CALL} and {CALL}": "Text follows a tool call",
    "<tool_call>": "is not whole",
    f"{CALL}</tool_call>": "is not whole",
    f"<tool_call>{CALL}": "is not whole",
    call("go"): "is not JSON",
    call("[" * 100_000): "is not JSON",
    call('{"name": "act"}'): "has another form",
    call("[]"): "has another form",
    call('{"name": "look", "arguments": {}}'): "There is no such tool. Call 'act'",
    call('{"name": "act", "arguments": {"action": ""}}'): "is a text and not empty",
    call('{"name": "act", "arguments": {"action": "\\ud800"}}'): "half of a letter",
    call('{"name": "act", "arguments": {"action": "go", "speed": 2}}'): "takes one argument, 'action'",
    call('{"name": "act", "arguments": "go"}'): "are no object",
    call('{"name": "act", "arguments": {"action": "go", "action": "stay"}}'): "gives one name twice",
    call('{"name": "look", "name": "act", "arguments": {"action": "go"}}'): "gives one name twice",
    f"{CALL}\n{call('{}')}": "has another form",
}
TAGGED = {call(" go "): ("go",), call(" "): "The tool call is empty", "go": "has no tool call"}
CODE = {
    "I look.\n```python\nlook()\ngo()\n```\n": ("look()\ngo()",),
    "````\n```\na\n```\n````": ("```\na\n```",),
    "```\na": "no whole code block",
    "`a`": "no whole code block",
    "````\n```\na\n```": "no whole code block",
    "```\n \n```": "The code block is empty",
    "```\na\n```\n```\nb\n```": "Text follows the code block",
}
TERSE = {"Action: go": ("go",), "Thought: x\nAction: go": "does not start with 'Action:'", "Action:": "is empty"}


def told(form: AgentFormat, replies: dict[str, Any]) -> None:
    for reply, expected in replies.items():
        found = form.read(reply)
        if isinstance(expected, tuple):
            assert (found.actions, found.problem) == (expected, ""), reply[:80]
        else:
            assert not found.actions
            assert expected in found.problem, reply[:80]


def test_tool_calls_as_the_template_writes_them() -> None:
    told(agent_format(Format.TOOLS, ReplyRules(calls=2, native=True)), TEMPLATED)


def test_tool_calls_of_the_bare_action() -> None:
    told(agent_format(Format.TOOLS), TAGGED)


def test_code_blocks() -> None:
    told(agent_format(Format.CODE), CODE)


def test_react_without_thoughts() -> None:
    told(agent_format(Format.REACT, ReplyRules(thinking=False)), TERSE)


@pytest.mark.parametrize("name", [Format.TOOLS, Format.CODE])
def test_without_thoughts_nothing_stands_before_the_action(name: Format) -> None:
    for thinking in (True, False):
        form = agent_format(name, ReplyRules(thinking=thinking))
        assert bool(form.read(f"I go.\n{form.write('go')}").actions) == thinking
        assert bool(form.read(f"<think>x</think>\n{form.write('go')}").actions) == thinking
        assert form.read(form.write("go")).actions == ("go",)


@pytest.mark.parametrize(("name", "manner"), [form for form in FORMS if not form[1].native])
def test_every_reason_is_among_the_replies_that_are_listed_as_unreadable(name: Format, manner: ReplyRules) -> None:
    form = agent_format(name, manner)
    problems = [form.read(reply).problem for reply in form.unreadable]
    assert all(problems)
    assert len(set(problems)) == len(problems)


SAID = {
    "<think>a</think>\n b ": "b",
    "b": "b",
    "a</think>b": "b",
    "<think>a</think>\n<think>b</think>c": "c",
    "<think>a</think>say '</think>'": "say '</think>'",
}


@pytest.mark.parametrize(("reply", "said"), SAID.items())
def test_thoughts_are_not_told_again(reply: str, said: str) -> None:
    assert without_thoughts(reply) == said
    assert agent_format(Format.PLAIN).read(reply).actions == (said,)


def test_an_action_within_further_thoughts_is_none() -> None:
    for name in Format:
        form = agent_format(name)
        thoughts = f"<think>a</think>\n<think>\n{form.write('go')}"
        assert "Your thoughts do not end" in form.read(thoughts).problem
        assert form.read(f"{thoughts}\n</think>\n{form.write('stay')}").actions == ("stay",)


def test_tags_said_over_and_over_are_refused() -> None:
    # looked for to the end from each of them, they would take minutes
    replies = ("<tool_call>" * 20_000, "</tool_call>" * 20_000 + "<tool_call>" * 20_000, "</think><think>" * 20_000)
    assert not any(agent_format(Format.TOOLS).read(reply).actions for reply in replies)
