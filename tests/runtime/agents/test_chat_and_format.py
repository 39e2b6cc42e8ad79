"""What a model's own template decides: how tools are presented and called, and how the model is kept from thinking."""

from __future__ import annotations

from typing import Any

import pytest
from agym.dsl.model.recipe import Agent, Format
from agym.envs.protocol import EnvSpec
from agym.runtime.agents.chat import NO_THOUGHTS, Chat
from agym.runtime.agents.formats import chat_and_format
from agym.runtime.agents.messages import Message

END = "<|end|>"
PLAIN = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
HERMES = """
{%- if tools %}{{ '<|system|>' }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '<|end|>' }}
{%- elif messages[0].role == 'system' %}{{ '<|system|>' + messages[0].content + '<|end|>' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|user|>' }}{% endif %}
{{- '<answer>' + m.content + '</answer>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|end|>' }}{% endif %}
{%- elif m.role != 'system' %}{{ '<|' + m.role + '|>' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}{{ '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
CLOSING = PLAIN.replace(
    "{{ '<|assistant|>' }}",
    "{{ '<|assistant|>' }}{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>none</think>' }}{% endif %}",
)
"""Says before a reply that there are no thoughts, and drops it once the reply is past."""
MARKED = "{{ 'quick' if enable_thinking is defined and not enable_thinking else 'slow' }}" + CLOSING
"""And mentions it at the top."""


@pytest.fixture(scope="module")
def chat() -> Any:
    from agym.dsl.model.recipe import TokenizerInit
    from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer

    tokenizer = make_tokenizer(TokenizerInit(vocab=320), ["say 0 say 1 go north"])
    return lambda template: Chat(ModelTokenizer(tokenizer, template))


OPENING = (Message("system", "be"), Message("user", "hi"))


def text(chat: Chat, ids: Any) -> str:
    return chat._tokenizer.decode(ids)


def test_a_template_that_knows_tools_tells_of_them_and_reads_what_came_of_calls(chat: Any) -> None:
    worn, form = chat_and_format(Agent(format=Format.TOOLS, parallel_calls=2), chat(HERMES))
    assert '"name": "act"' in text(worn, worn.begin(OPENING))
    assert form.rules == "Make up to 2 calls in a reply, and write nothing after that."
    told = (*form.observation("a"), *form.observation("b"))
    assert [message.role for message in told] == ["tool", "tool"]
    assert text(worn, worn.follow(told)) == "<|user|><answer>a</answer><answer>b</answer><|end|><|assistant|>"
    assert text(worn, worn.follow(form.correction("no"))) == "<|user|>no<|end|><|assistant|>"
    assert form.read(form.write("go")).actions == ("go",)
    assert '"arguments"' in form.write("go")


@pytest.mark.parametrize("template", [PLAIN, CLOSING, HERMES.replace("<tool_call>", "<call>"), "{{ x.y.z }}" + PLAIN])
def test_without_such_a_template_calls_are_described_in_words(chat: Any, template: str) -> None:
    if template.startswith("{{ x"):
        with pytest.raises(Exception, match="undefined"):
            chat(template)
        return
    worn, form = chat_and_format(Agent(format=Format.TOOLS), chat(template))
    assert form.rules.startswith("Act by tool calls, each of one action:\n<tool_call>the action</tool_call>")
    assert form.write("go") == "<tool_call>go</tool_call>"
    assert form.observation("a") == (Message("user", "a"),)
    assert "act" not in text(worn, worn.begin(OPENING))


CLOSED = {PLAIN: NO_THOUGHTS, CLOSING: "<think>none</think>", MARKED: "<think>none</think>"}


@pytest.mark.parametrize("template", CLOSED)
def test_a_reply_without_thoughts_begins_where_they_are_said_to_be_over(chat: Any, template: str) -> None:
    thinking, said = chat(template), CLOSED[template]
    quiet, _ = chat_and_format(Agent(thinking=False), thinking)
    start = text(thinking, thinking.begin(OPENING)).replace("slow", "quick")
    assert text(quiet, quiet.begin(OPENING)) == start + said
    follow = (Message("user", "no"),)
    assert text(quiet, quiet.follow(follow)) == text(thinking, thinking.follow(follow)) + said
    assert said not in text(thinking, thinking.begin(OPENING))


def test_each_dress_is_made_once_and_proven(chat: Any) -> None:
    plain = chat(PLAIN)
    assert chat_and_format(Agent(), plain)[0] is plain
    assert (
        chat_and_format(Agent(thinking=False), plain)[0]
        is chat_and_format(Agent(thinking=False, format=Format.CODE), plain)[0]
    )
    forgets_answers = HERMES.replace("m.content + '</answer>'", "(m.content if loop.last else '') + '</answer>'")
    numbers_tools = HERMES.replace("'<answer>'", "'<answer>' + (loop.index | string)")
    assert chat_and_format(Agent(format=Format.TOOLS), chat(forgets_answers))
    _, form = chat_and_format(Agent(format=Format.TOOLS), chat(numbers_tools))
    assert form.observation("a") == (Message("user", "a"),), "a role that is rendered by its place cannot be continued"


@pytest.mark.parametrize("free_text", [False, True])
def test_an_environment_of_free_text_gets_plain_replies_as_they_are(chat: Any, free_text: bool) -> None:
    spec = EnvSpec(name="talk", version="1", summary="", splits=(), free_text=free_text)
    _, form = chat_and_format(Agent(format=Format.PLAIN), chat(PLAIN), spec)
    assert form.read("Answer: 5").actions == ("Answer: 5" if free_text else "5",)
