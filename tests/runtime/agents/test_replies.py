"""How replies are read: a table of them, leniently and strictly, and AgentGym's own forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from agym.dsl.model.recipe import Agent, Format, Parsing
from agym.envs.clients.agentgym import KINDS
from agym.envs.protocol import ToolSchema
from agym.runtime.agents.calls import DIALECTS, ToolCall
from agym.runtime.agents.formats import AgentFormat, format_for
from agym.runtime.agents.lenient import normalise, settle
from hypothesis import given
from hypothesis import strategies as st

ROWS = yaml.safe_load(Path(__file__).with_name("replies.yaml").read_text(encoding="utf-8"))
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TOOLS = (
    ToolSchema(
        name="pay",
        description="Pays.",
        parameters={"type": "object", "properties": {"to": TEXT, "amount": WHOLE}, "required": ["to", "amount"]},
    ),
    ToolSchema(name="balance", description="Tells.", parameters={"type": "object", "properties": {"account": TEXT}}),
    ToolSchema(
        name="answer",
        description="Ends.",
        parameters={"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
    ),
)


def form_of(row: dict[str, Any], parsing: str) -> AgentFormat:
    agent = Agent(
        format=Format(row["format"]),
        parsing=Parsing(parsing),
        thinking=row.get("thinking", True),
        parallel_calls=row.get("calls", 1),
    )
    dialect = BY_NAME[row["native"]] if "native" in row else None
    return format_for(agent, dialect=dialect, tools=TOOLS if row.get("tools") else ())


def test_the_table_has_two_hundred_replies_of_every_format() -> None:
    assert len({str(row) for row in ROWS}) == len(ROWS) >= 200
    assert {row["format"] for row in ROWS} == set(Format)


@pytest.mark.parametrize("parsing", list(Parsing))
@pytest.mark.parametrize("at", range(len(ROWS)))
def test_a_reply_is_read_as_the_table_says(at: int, parsing: str) -> None:
    row = ROWS[at]
    found = form_of(row, parsing).read(row["reply"], row.get("listed", ()))
    expected = row[parsing]
    if isinstance(expected, dict):
        assert (found.actions, found.problem) == ((), expected["refused"])
    else:
        assert found.actions == (tuple(expected) if isinstance(expected, list) else (expected,))


PIECES = ["Action:", "Thought:", "Answer:", "Observation:", "**", "`", "```", "\n", " ", "go", "north", "<tool_call>"]
PIECES += [
    "</tool_call>",
    '{"name": "act", "arguments": {"action": "go"}}',
    "<answer>",
    "</answer>",
    "[TOOL_CALLS]",
    "{",
]
PIECES += ["<think>", "</think>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<arg_key>", "<parameter=x>", "\ud800"]


@given(st.sampled_from(list(Format)), st.booleans(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_nothing_is_raised_and_no_two_actions_are_taken(name: Format, thinking: bool, reply: str) -> None:
    for tools in ((), TOOLS):
        found = format_for(Agent(format=name, thinking=thinking), tools=tools).read(reply, ("go", "stay"))
        assert bool(found.actions) != bool(found.problem)
        assert len(found.actions) <= 1
        assert all(action.strip() for action in found.actions)


WORDS = st.lists(st.sampled_from(["go", "north", "the", "door", "2", "red"]), min_size=1, max_size=4).map(" ".join)


@given(st.sampled_from(list(Format)), st.booleans(), WORDS)
def test_what_an_expert_writes_is_read_as_what_it_meant(name: Format, thinking: bool, action: str) -> None:
    form = format_for(Agent(format=name, thinking=thinking))
    assert form.read(form.write(action)).actions == (action,)


def test_a_listed_action_is_never_taken_for_another() -> None:
    listed = ("open the box", "Open the box", "open a box.")
    assert {normalise(each) for each in listed} == {"open box"}
    assert all(settle(each, listed).actions == (each,) for each in listed)
    assert "may be 'open the box' or 'Open the box'" in settle("open box", listed).problem


def test_marks_said_over_and_over_are_read_in_no_time() -> None:
    form = format_for(Agent(format=Format.TOOLS))
    for mark in (
        "<tool_call>",
        "```",
        "Action:\n",
        "<answer>",
        "<｜tool▁call▁begin｜>",
        "**",
        "[TOOL_CALLS][",
        "<arg_key>",
    ):
        form.read(mark * 5_000, ("go",))


# --- the forms that AgentGym's prompts ask for (WooooDyy/AgentGym@3ef9235, agentenv/controller and agentenv/envs), with
# --- thoughts and actions of our own


def react(action: str) -> str:
    return f"Thought:\nThis brings me nearer to the goal.\n\nAction:\n{action}"


def on_one_line(action: str) -> str:
    return f"Thought: this brings me nearer to the goal.\nAction: {action}"


def fenced(action: str) -> str:
    return f"The page shows what is wanted. In summary, the next action I will perform is ```{action}```"


def sql(action: str) -> str:
    return f"The table has a column for it.\n\n```sql\n{action}\n```"


def code(action: str) -> str:
    return f"```python\n# this brings me nearer to the goal\n{action}\n```"


def tagged(action: str) -> str:
    name, _, text = action.partition(" ")
    return f"<think>I do not know it yet.</think>\n<{name}>{text}</{name}>"


AGENTGYM: dict[str, tuple[Callable[[str], str], ...]] = {
    "babyai": (react, on_one_line),
    "textcraft": (react, on_one_line),
    "sciworld": (react, on_one_line),
    "alfworld": (react, on_one_line),
    "webshop": (react, on_one_line),
    "maze": (react, on_one_line),
    "webarena": (fenced,),
    "sqlgym": (sql,),
    "searchqa": (tagged,),
    "weather, movie, todo, sheet, academia": (on_one_line,),
}
ACTIONS: dict[str, tuple[str, ...]] = {
    "babyai": ("turn left", "go to red ball 1", "toggle and go through green closed door 1", "pickup yellow key 2"),
    "textcraft": ("get 2 oak log", "craft 4 oak planks using 1 oak log", "inventory"),
    "sciworld": ("open door to kitchen", "pour cup containing water into pot", "focus on animal", "wait1", "0"),
    "alfworld": ("go to cabinet 1", "take mug 2 from shelf 1", "heat egg 1 with microwave 1"),
    "webshop": ("search[blue mug, 0.5 litre]", "click[Buy Now]", "click[< Prev]"),
    "maze": ("move up", "move left"),
    "webarena": ("click [1234]", "type [12] [blue mug] [1]", "press [ctrl+v]", "stop [4.50]", "goto [http://a.b/c]"),
    "sqlgym": ("SELECT name FROM people WHERE age > 30", "UPDATE a SET b = 'c'\nWHERE d = 1"),
    "searchqa": ("search capital of Peru", "search who wrote it, and when?"),
    "weather, movie, todo, sheet, academia": (
        "get_user_current_date with Action Input: {}",
        'get_temperature with Action Input: {"latitude": "1.5", "longitude": "2"}',
        'finish with Action Input: {"answer": "yes"}',
    ),
}


@pytest.mark.parametrize("env", AGENTGYM)
@pytest.mark.parametrize("name", [Format.REACT, Format.PLAIN])
def test_every_reply_in_a_form_of_agentgym_is_read(env: str, name: Format) -> None:
    form = format_for(Agent(format=name))
    for write in AGENTGYM[env]:
        for action in ACTIONS[env]:
            assert form.read(write(action)).actions == (action,), write(action)


def test_searches_and_answers_reach_its_server_between_tags() -> None:
    kind = KINDS["searchqa"]
    form = format_for(Agent(format=Format.REACT), tools=kind.tools)
    for said in ("<search>capital of Peru</search>", "<answer>Lima</answer>"):
        (action,) = form.read(f"<think>I look.</think>\n{said}").actions
        assert kind.action(action) == said
    assert kind.action("search capital of Peru") == "<search>capital of Peru</search>"


def test_calls_and_code_as_agentgym_asks_for_them_are_read() -> None:
    call = '```json\n{"thought": "he is owed it", "function_name": "pay", "arguments": {"to": "bob", "amount": 3}}\n```'
    (action,) = format_for(Agent(format=Format.TOOLS), tools=TOOLS).read(call).actions
    assert yaml.safe_load(action) == {"name": "pay", "arguments": {"to": "bob", "amount": 3}}
    lines = "# this brings me nearer to the goal\ngo('north')"
    assert format_for(Agent(format=Format.CODE)).read(code("go('north')")).actions == (lines,)


# --- an environment's own tools


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_what_a_model_calls_is_what_the_server_gets(dialect: Any) -> None:
    form = format_for(Agent(format=Format.TOOLS), dialect=dialect, tools=TOOLS)
    written = dialect.write(ToolCall("pay", {"to": "bob", "amount": 3}))
    (action,) = form.read(written).actions
    assert yaml.safe_load(action) == {"name": "pay", "arguments": {"to": "bob", "amount": 3}}
    assert form.write(action) == written


WRONG = {
    ("pay", '{"to": "bob"}'): "'amount' of 'pay' is missing",
    ("pay", '{"to": 3, "amount": 3}'): "Write a text as 'to' of 'pay'",
    ("pay", '{"to": "bob", "amount": true}'): "Write a whole number as 'amount' of 'pay'",
    ("pay", '{"to": "bob", "amount": 3, "when": "now"}'): "'pay' takes no argument 'when', only to, amount",
    ("steal", "{}"): "There is no tool 'steal'. The tools are pay, balance, answer",
}


@pytest.mark.parametrize("parsing", list(Parsing))
@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_a_call_that_breaks_the_schema_is_told_and_not_sent(name: str, arguments: str, parsing: Parsing) -> None:
    form = format_for(Agent(format=Format.TOOLS, parsing=parsing), dialect=DIALECTS[0], tools=TOOLS)
    found = form.read(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')
    assert not found.actions
    assert WRONG[name, arguments] in found.problem


def test_a_command_of_an_expert_is_written_as_a_call() -> None:
    form = format_for(Agent(format=Format.TOOLS), dialect=DIALECTS[0], tools=TOOLS)
    assert form.write("answer the blue one") == form.write('{"name": "answer", "arguments": {"text": "the blue one"}}')


# --- where every text is a turn


@pytest.mark.parametrize(
    "reply",
    [
        "<reasoning>2 + 3</reasoning>\n<answer>5</answer>",
        "This prints it:\n```python\nprint(5)\n```",
        "The poem:\nObservation: rain\nAnswer: sun",
    ],
)
def test_where_every_text_is_a_turn_a_plain_reply_stays_as_it_is(reply: str) -> None:
    form = format_for(Agent(format=Format.PLAIN), free_text=True)
    assert form.read(reply).actions == (reply,)
    assert form.read(f"<think>hm</think>\n{reply}").actions == (reply,)
    assert form.read(" ").problem
    assert format_for(Agent(format=Format.PLAIN)).read(reply).actions != (reply,)


# --- schemas and corrections


SCHEMA = {"type": "object", "properties": {"n": WHOLE, "to": TEXT}, "required": ["n"]}
CHECKED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, '{"n": 3.0}', '{"n": 3.0}'),
    ({}, '{"n": 3.5}', "a whole number"),
    ({}, '{"n": 1, "to": null}', '{"n": 1}'),
    ({}, '{"n": null}', "a whole number"),
    ({}, '{"n": 1, "x": 2}', "takes no argument 'x'"),
    ({"additionalProperties": False}, '{"n": 1, "x": 2}', "takes no argument 'x'"),
    ({"additionalProperties": True}, '{"n": 1, "x": 2}', '{"n": 1, "x": 2}'),
    ({"additionalProperties": TEXT}, '{"n": 1, "x": 2}', "Write a text as 'x'"),
    ({"additionalProperties": False, "patternProperties": {"^x": WHOLE}}, '{"n": 1, "x": 2}', '{"n": 1, "x": 2}'),
)


@pytest.mark.parametrize(("more", "arguments", "expected"), CHECKED)
def test_arguments_are_checked_as_json_schema_says(more: dict[str, Any], arguments: str, expected: str) -> None:
    tool = ToolSchema(name="f", description="", parameters={**SCHEMA, **more})
    form = format_for(Agent(format=Format.TOOLS), dialect=DIALECTS[0], tools=(tool,))
    found = form.read(f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>')
    if expected.startswith("{"):
        assert found.actions == (f'{{"name": "f", "arguments": {expected}}}',)
    else:
        assert expected in found.problem


@pytest.mark.parametrize("dialect", DIALECTS[1:], ids=lambda each: each.name)
@pytest.mark.parametrize("parsing", list(Parsing))
def test_a_correction_shows_a_call_as_the_model_writes_it(dialect: Any, parsing: Parsing) -> None:
    form = format_for(Agent(format=Format.TOOLS, parsing=parsing), dialect=dialect)
    problem = form.read("I look around.\nThen I go.").problem
    assert problem.endswith(f"like this:\n{dialect.write(ToolCall('act', {'action': 'go north'}))}")
