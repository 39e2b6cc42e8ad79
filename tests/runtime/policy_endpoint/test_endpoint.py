"""The official client against the endpoint: completions, responses, tools, streams and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import openai
import pytest

from .conftest import Bench, Serve

pytestmark = pytest.mark.slow

WEATHER = {
    "name": "weather",
    "description": "Tells the weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
TOOLS: Any = [{"type": "function", "function": WEATHER}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>'
HI: Any = [{"role": "user", "content": "hi"}]


def run(serve: Serve, lines: Any, work: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def all_of_it() -> None:
        async with serve(lines, **settings) as bench:
            await work(bench)

    asyncio.run(all_of_it())


def test_a_completion_holds_what_was_sampled(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        reply = await bench.openai.chat.completions.create(model="policy", messages=HI, logprobs=True)
        (choice,) = reply.choices
        assert (choice.message.content, choice.finish_reason) == ("hello", "stop")
        (segment,) = bench.episode.conversations.segments
        assert reply.usage.completion_tokens == len(choice.logprobs.content) == segment.sampled.sum()
        assert reply.usage.prompt_tokens == int(np.flatnonzero(segment.sampled)[0])
        assert {each.logprob for each in choice.logprobs.content} == {-1.0}

    run(serve, ["hello"], work)


def test_a_conversation_with_calls_goes_on_from_its_tokens_however_the_client_writes_them(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        first = (await create(model="policy", messages=HI, tools=TOOLS)).choices[0]
        assert first.finish_reason == "tool_calls"
        (call,) = first.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"place": "Rome"})
        # without content, with other space in the arguments, and another id
        spaced = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{ "place" : "Rome" }'}}
        told = [
            {"role": "assistant", "tool_calls": [spaced]},
            {"role": "tool", "tool_call_id": "x", "content": "sunny"},
        ]
        second = await create(model="policy", messages=[*HI, *told], tools=TOOLS)
        assert second.choices[0].message.content == "It is sunny."
        (segment,) = bench.episode.conversations.segments
        assert [set(segment.versions[segment.sampled].tolist())] == [{0, 1}]
        assert bench.episode.exchanges[0].observation == "sunny"

    run(serve, [CALL, "It is sunny."], work)


def test_other_tools_begin_a_segment_of_their_own(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        await create(model="policy", messages=HI, tools=TOOLS)
        await create(model="policy", messages=HI)
        assert len(bench.episode.conversations.segments) == 2

    run(serve, ["a"], work)


def test_a_stream_gives_what_a_whole_completion_would(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = [each async for each in await create(model="policy", messages=HI, **options)]
        told = [each.choices[0] for each in chunks if each.choices]
        assert "".join(each.delta.content or "" for each in told) == "one two  three"
        assert told[-1].finish_reason == "stop"
        assert chunks[-1].usage.completion_tokens == bench.episode.usage.completion
        calls = [each async for each in await create(model="policy", messages=HI, tools=TOOLS, **options)]
        deltas = [d for each in calls if each.choices for d in each.choices[0].delta.tool_calls or []]
        assert deltas[0].function.name == "weather"
        assert json.loads("".join(d.function.arguments or "" for d in deltas)) == {"place": "Rome"}

    run(serve, ["one two  three", CALL], work)


def test_a_reply_that_is_cut_says_so_and_holds_no_call(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        reply = await create(model="policy", messages=HI, max_tokens=3, tools=TOOLS)
        assert reply.choices[0].finish_reason == "length"
        assert reply.usage.completion_tokens == 3
        assert not reply.choices[0].message.tool_calls

    run(serve, [CALL], work)


def test_a_stop_text_ends_what_is_shown_and_none_of_what_is_kept(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        reply = await create(model="policy", messages=HI, stop=["STOP"])
        assert reply.choices[0].message.content == "before "
        assert bench.speaker.requests[0].sampling.stop_texts == ("STOP",)
        # given back as it was shown, it goes on from the tokens as they were sampled
        told = [{"role": "assistant", "content": "before"}, {"role": "user", "content": "on"}]
        await create(model="policy", messages=[*HI, *told])
        assert len(bench.episode.conversations.segments) == 1

    run(serve, ["before STOP after"], work)


def test_a_tool_that_must_be_called_is_begun_for_the_policy(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        choice = {"type": "function", "function": {"name": "weather"}}
        create = bench.openai.chat.completions.create
        reply = await create(model="policy", messages=HI, tools=TOOLS, tool_choice=choice)
        assert reply.choices[0].message.tool_calls[0].function.name == "weather"
        text = bench.chat.decode(bench.speaker.requests[0].prompt)
        assert text.endswith('{"name": "weather", "arguments": {')
        (segment,) = bench.episode.conversations.segments
        assert segment.sampled.sum() == reply.usage.completion_tokens

    run(serve, ['"place": "Rome"}}\n</tool_call>'], work)


def test_the_recipe_decides_how_is_sampled_unless_clients_may(serve: Serve) -> None:
    asked = {"temperature": 0.2, "top_p": 0.5, "seed": 3}

    async def work(bench: Bench) -> None:
        await bench.openai.chat.completions.create(model="policy", messages=HI, **asked)

    for client_samples, temperature in ((False, 1.0), (True, 0.2)):

        async def check(bench: Bench, expected: float = temperature) -> None:
            await work(bench)
            assert bench.speaker.requests[0].sampling.temperature == expected

        run(serve, ["a"], check, client_samples=client_samples)


ERRORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "gpt"}, openai.NotFoundError, "model_not_found"),
    ({"n": 2}, openai.BadRequestError, "unsupported_parameter"),
    ({"messages": []}, openai.BadRequestError, "invalid_value"),
    ({"messages": [{"role": "user", "content": "word " * 500}]}, openai.BadRequestError, "context_length_exceeded"),
    ({"temperature": "hot"}, openai.BadRequestError, "invalid_value"),
    ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "unsupported_parameter"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        openai.BadRequestError,
        "unsupported_parameter",
    ),
]


def test_mistakes_come_as_the_errors_of_the_client(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        for change, error, code in ERRORS:
            with pytest.raises(error) as raised:
                await bench.openai.chat.completions.create(**{"model": "policy", "messages": HI, **change})
            assert raised.value.code == code, change  # type: ignore[attr-defined]
        assert bench.episode.conversations.segments == ()
        assert bench.episode.limit == "context"

    run(serve, ["a"], work, context_tokens=256)


def test_a_body_that_is_no_json_and_a_route_that_is_none_are_answered_in_openais_form(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        import httpx

        headers = {"authorization": f"Bearer {bench.episode.key}"}
        async with httpx.AsyncClient(base_url=bench.endpoint.url, headers=headers) as http:
            bad = await http.post("/v1/chat/completions", content=b"{")
            assert (bad.status_code, bad.json()["error"]["type"]) == (400, "invalid_request_error")
            assert (await http.post("/v1/embeddings", json={})).status_code == 404
            assert (await http.get("/session")).status_code == 404

    run(serve, ["a"], work)


def test_a_key_is_worth_something_while_its_episode_lasts(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        client = bench.openai
        with pytest.raises(openai.AuthenticationError):
            await client.copy(api_key="agym-wrong").chat.completions.create(model="policy", messages=HI)
        with bench.endpoint.open_episode(bench.policy, seed=1) as other:
            ended = client.copy(api_key=other.key)
            await ended.models.list()
        with pytest.raises(openai.PermissionDeniedError, match="has ended"):
            await ended.models.list()

    run(serve, ["a"], work)


def test_an_episode_makes_no_more_requests_than_it_may(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.chat.completions.create
        await create(model="policy", messages=HI)
        with pytest.raises(openai.PermissionDeniedError, match="its 1 requests"):
            await create(model="policy", messages=HI)
        assert bench.episode.limit == "requests"

    run(serve, ["a"], work, max_requests=1)


def test_a_client_that_goes_away_leaves_no_reply(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        never, called_off = asyncio.Event(), asyncio.Event()

        async def wait(number: int) -> None:
            try:
                await never.wait()
            except asyncio.CancelledError:
                called_off.set()
                raise

        bench.speaker.hold = wait
        with pytest.raises(openai.APITimeoutError):
            await bench.openai.with_options(timeout=0.3).chat.completions.create(model="policy", messages=HI)
        await asyncio.wait_for(called_off.wait(), 60)
        assert bench.episode.conversations.segments == ()

    run(serve, ["a"], work)


# --- responses -----------------------------------------------------------------------------------------------------


def test_responses_go_on_by_items_and_by_the_id_of_the_last(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        create = bench.openai.responses.create
        tools = [{"type": "function", **WEATHER}]
        first = await create(model="policy", instructions="Be kind.", input="hi", tools=tools)
        (call,) = first.output
        assert (call.type, json.loads(call.arguments)) == ("function_call", {"place": "Rome"})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        items = [{"role": "user", "content": "hi"}, call.model_dump(), result]
        second = await create(model="policy", instructions="Be kind.", input=items, tools=tools)
        assert second.output_text == "It is sunny."
        third = await create(
            model="policy", instructions="Be kind.", input="on", previous_response_id=second.id, tools=tools
        )
        assert third.status == "completed"
        assert len(bench.episode.conversations.segments) == 1

    run(serve, [CALL, "It is sunny.", "bye"], work)


def test_a_stream_of_a_response_ends_with_the_whole_of_it(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        events = [each async for each in await bench.openai.responses.create(model="policy", input="hi", stream=True)]
        assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
        assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == "one two"
        assert events[-1].response.output_text == "one two"
        assert [each.sequence_number for each in events] == list(range(len(events)))

    run(serve, ["one two"], work)


def test_a_response_that_is_cut_is_incomplete(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        reply = await bench.openai.responses.create(model="policy", input="hi", max_output_tokens=2)
        assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")

    run(serve, ["one two three"], work)


# --- a service -----------------------------------------------------------------------------------------------------


def test_under_a_lasting_key_each_request_is_by_itself(serve: Serve) -> None:
    async def work(bench: Bench) -> None:
        with bench.endpoint.open_service(bench.policy, key="agym-lasting"):
            client = bench.openai.copy(api_key="agym-lasting")
            replies = [await client.chat.completions.create(model="policy", messages=HI) for _ in range(3)]
            assert len({each.id for each in replies}) == 3
            assert {each.usage.prompt_tokens_details.cached_tokens for each in replies} == {0}
            first = await client.responses.create(model="policy", input="hi")
            second = await client.responses.create(model="policy", input="and", previous_response_id=first.id)
            assert second.usage.input_tokens > first.usage.input_tokens
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
        assert bench.episode.conversations.segments == ()

    run(serve, ["a"], work)
