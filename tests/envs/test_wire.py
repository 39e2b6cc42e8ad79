from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from agym.envs.protocol import (
    EnvSpec,
    JudgeRequest,
    Observation,
    Reached,
    Runs,
    Score,
    Seat,
    SeatModel,
    Status,
    Step,
    TaskInfo,
    ToolSchema,
    YesNoQuestion,
)
from agym.envs.wire import (
    Fields,
    WireError,
    dump,
    judge_from,
    judge_to,
    load_object,
    observation_from,
    observation_to,
    reached_from,
    reached_to,
    spec_from,
    spec_to,
    step_read,
    step_to,
    tasks_from,
    tasks_to,
)
from hypothesis import given
from hypothesis import strategies as st

texts = st.text(st.characters())  # lone surrogates included: an environment may say anything
observations = st.builds(
    Observation,
    text=texts,
    valid_actions=st.none() | st.lists(texts).map(tuple),
    seat=st.none() | st.builds(Seat, name=texts, model=st.sampled_from(SeatModel)),
)
steps = st.builds(
    Step,
    observation=observations,
    reward=st.floats(allow_nan=False, allow_infinity=False),
    terminated=st.booleans(),
    truncated=st.booleans(),
    status=st.sampled_from(Status),
    info=st.dictionaries(texts, st.none() | st.integers(-(2**60), 2**60) | texts | st.booleans()),
)

SPEC = EnvSpec(
    name="n", version="2", summary="s", splits=("a", "b"), score=Score.MAX, score_range=(-1.0, 2.0), runs=Runs.THREAD
)


def sent(data: object) -> Any:
    return json.loads(dump(data))


@given(steps)
def test_every_step_comes_back_as_it_was(step: Step) -> None:
    fields = Fields(sent(step_to(step)), "step")
    assert step_read(fields) == step
    fields.done()


@given(observations)
def test_every_observation_comes_back_as_it_was(observation: Observation) -> None:
    assert observation_from(sent(observation_to(observation))) == observation


@given(st.lists(st.builds(Reached, task=texts, actions=st.integers(0, 2**60), first=observations)).map(tuple))
def test_what_was_reached_comes_back_as_it_was(reached: tuple[Reached, ...]) -> None:
    assert reached_from(sent(reached_to(reached))) == reached


def test_a_spec_comes_back_as_it_was() -> None:
    assert spec_from(sent(spec_to(SPEC))) == SPEC


TOOL = {"name": "pay", "description": "Pays.", "parameters": {"type": "object", "properties": {}}}


def test_a_spec_with_tools_comes_back_as_it_was_and_one_without_says_nothing_of_them() -> None:
    spec = replace(SPEC, tools=(ToolSchema(name="pay", description="Pays.", parameters={"type": "object"}),))
    spec = replace(spec, tool_prompt="Call them.", free_text=True)
    assert spec_from(json.loads(dump(spec_to(spec)))) == spec
    assert {"tools", "tool_prompt", "free_text"}.isdisjoint(spec_to(SPEC)), "an older client knows none of them"


def test_a_spec_with_models_for_other_seats_comes_back_as_it_was() -> None:
    spec = replace(SPEC, models=(SeatModel.POLICY, SeatModel.EARLIER))
    assert spec_from(sent(spec_to(spec))) == spec
    assert "models" not in spec_to(SPEC), "an older client does not know it"
    with pytest.raises(WireError, match="'model' must be one of policy, earlier"):
        spec_from({**sent(spec_to(SPEC)), "models": ["oracle"]})


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ([{**TOOL, "name": "<|im_end|>"}], "'name' must be 1 to 64 letters"),
        ([TOOL, TOOL], "two 'tools' have one name"),
        ([{**TOOL, "parameters": "none"}], "'parameters' must be an object"),
        ([{**TOOL, "strict": True}], "unknown field 'strict'"),
        ("pay", "'tools' must be a list"),
    ],
)
def test_tools_that_are_not_exactly_right_are_refused(tools: object, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        spec_from({**json.loads(dump(spec_to(SPEC))), "tools": tools})


def test_what_a_judge_is_asked_comes_back_as_it_was() -> None:
    question = YesNoQuestion(text="are they alike?", evidence={"answer": "yes\nno", "expected": "no"})
    request = JudgeRequest(questions=(question,), reward=1.0, required=False)
    assert judge_from(sent(judge_to(request))) == request


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"questions": []}, "must hold one at least"),
        ({"questions": ["why?"]}, "expected an object"),
        ({"questions": [{"text": "why?", "evidence": {"answer": 1}}]}, "nothing but text"),
        ({"reward": "1"}, "'reward' must be a number"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_a_question_that_is_not_exactly_right_is_refused(change: dict[str, object], complaint: str) -> None:
    whole = {"questions": [{"text": "why?", "evidence": {}}], "reward": 1.0, "required": True}
    with pytest.raises(WireError, match=complaint):
        judge_from(whole | change)


def test_tasks_come_back_as_they_were() -> None:
    tasks = (TaskInfo(id="a", difficulty="easy"), TaskInfo(id="b"), TaskInfo(id="c", trivial=True, judged=True))
    assert tasks_from(sent(tasks_to(tasks))) == tasks


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"reward": "1"}, "'reward' must be a number, not str"),
        ({"reward": True}, "'reward' must be a number, not bool"),
        ({"reward": None}, "'reward' must be a number, not null"),
        ({"reward": 10**400}, "'reward' must be a finite number"),
        ({"reward": float("inf")}, "'reward' must be a finite number"),
        ({"terminated": 0}, "'terminated' must be true or false, not int"),
        ({"status": "splendid"}, "'status' must be one of ok, refused, invalid"),
        ({"info": []}, "'info' must be an object, not list"),
        ({"observation": {"text": 3}}, "'text' must be text, not int"),
        ({"observation": {"text": "", "valid_actions": [1]}}, "'valid_actions' must hold nothing but text"),
        ({"bonus": 1}, "unknown field 'bonus'"),
    ],
)
def test_a_step_that_is_not_exactly_right_is_refused(change: dict[str, object], complaint: str) -> None:
    fields = Fields(sent(step_to(Step(observation=Observation(text="")))) | change, "step")
    with pytest.raises(WireError, match=complaint):
        _read_all(fields)


def _read_all(fields: Fields) -> None:
    step_read(fields)
    fields.done()


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(WireError, match="'text' is missing"):
        observation_from({})


def test_a_whole_number_may_stand_for_a_reward() -> None:
    assert Fields({"reward": 1}, "step").number("reward") == 1.0


@pytest.mark.parametrize("ends", [[0.0], [0.0, "1"], [0.0, 1.0, 2.0]])
def test_a_score_range_is_two_numbers(ends: list[object]) -> None:
    with pytest.raises(WireError, match=r"score_range|'high'"):
        spec_from(sent(spec_to(SPEC)) | {"score_range": ends})


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"null", b'{"a": NaN}', b'{"a": -Infinity}', b"\xff{}", b"[" * 100_000, b"9" * 10_000]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        load_object(body)
