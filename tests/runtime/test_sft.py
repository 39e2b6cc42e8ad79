"""Demonstrations: by experts, from files, from recorded episodes; what of them is trained on and what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import LossOn
from agym.dsl.model.recipe import Agent, Format, Rollout
from agym.envs.clients.client import InlineEnv
from agym.envs.errors import EnvFault
from agym.envs.protocol import Observation, Reached, Seat, SeatModel
from agym.runtime.agents.chat import Chat
from agym.runtime.agents.formats import format_for
from agym.runtime.agents.messages import Message
from agym.runtime.data.dataset import Conversation, ConversationReply, read_conversations, read_episodes
from agym.runtime.data.demonstrations import Demonstrator, NoExpert, NoHindsight, NoSolution, keep_solved
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError, StepRefused
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.episode import Ending, Episode, Task
from agym.runtime.rollout.player import EpisodeLimits
from agym.runtime.steps import sft
from agym.runtime.storage.episode_reader import TRAIN_LOG
from agym.viewer.tags.messages import export_lines

from .conftest import NotingReporter, echoing, episodes_of

LIMITS = EpisodeLimits(horizon=6, tokens_per_turn=2, context_tokens=64)


@pytest.fixture
def demonstrator(words: Any) -> Demonstrator:
    return Demonstrator(
        chat=Chat(words),
        encode=words.encode_known,
        format=format_for(Agent(format=Format.PLAIN)),
        prompt=None,
        shows_actions=False,
        timeouts=Rollout(retries=0),
        concurrency=ConcurrencyLimits.of(Rollout()),
        noise=0.0,
        loss_on=LossOn.EXPERT,
        clock=lambda: 0.0,
    )


def shown(demonstrator: Demonstrator, env: Callable[[], Any], limits: EpisodeLimits = LIMITS, seed: int = 0) -> Episode:
    async def go() -> Episode:
        client = InlineEnv(env)
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec())
        return await demonstrator.attempt(world, Task(environment="echo", id="train-0", seed=3), limits, seed)

    return asyncio.run(go())


def learnt(episode: Episode) -> list[list[int]]:
    """Runs of trained tokens."""
    (segment,) = episode.segments
    edges = np.flatnonzero(np.diff(segment.sampled, prepend=False, append=False))
    return [segment.ids[a:b].tolist() for a, b in zip(edges[::2], edges[1::2], strict=True)]


def test_an_expert_solves_its_task_and_its_replies_alone_are_learnt(
    demonstrator: Demonstrator, echo: Any, words: Any
) -> None:
    episode = shown(demonstrator, echo)
    assert (episode.ending, episode.success) == (Ending.DONE, True)
    assert learnt(episode) == [[*words.encode(turn.reply), 0] for turn in episode.turns]


def test_a_random_action_is_shown_and_not_learnt(demonstrator: Demonstrator, echo: Any) -> None:
    noisy = replace(demonstrator, noise=0.5)
    some = [shown(noisy, echo, seed=seed) for seed in range(9)]
    assert any(len(learnt(episode)) < len(episode.turns) for episode in some)
    assert all(len(learnt(shown(replace(noisy, loss_on=LossOn.ACTIONS), echo, seed=s))) >= 2 for s in range(3))


def test_under_all_prompts_and_observations_are_learnt_too(demonstrator: Demonstrator, echo: Any) -> None:
    (segment,) = shown(replace(demonstrator, loss_on=LossOn.ALL), echo).segments
    assert not segment.sampled[0]
    assert segment.sampled[1:].all()


def test_a_demonstration_ends_with_a_reply_and_within_the_context(demonstrator: Demonstrator, echo: Any) -> None:
    episode = shown(replace(demonstrator, noise=1.0), echo, replace(LIMITS, context_tokens=17))
    assert episode.ending is Ending.BUDGET
    assert len(episode.segments[0].ids) == episode.turns[-1].end <= 17


def test_a_solution_known_from_the_start_serves_where_there_is_no_advice(demonstrator: Demonstrator, echo: Any) -> None:
    class Scripted(echo):  # type: ignore[misc]
        def advice(self) -> str | None:
            return None

        def expert(self, task: str, seed: int) -> tuple[str, ...]:
            self.reset(task, seed)
            actions = [str(self._wanted)]
            self.step(actions[0])
            return (*actions, str(self._wanted))

    steps: list[tuple[str, str]] = []

    def plan(action: str, then: str) -> str:
        steps.append((action, then))
        return action

    episode = shown(replace(demonstrator, format=replace(demonstrator.format, plan=plan)), Scripted)
    assert (episode.ending, episode.success, len(episode.turns)) == (Ending.DONE, True, 2)
    assert steps == [(steps[0][0], steps[1][0]), (steps[1][0], "")]
    with pytest.raises(NoExpert, match=r"has solutions only from the start .* set 'data\.noise: 0'"):
        shown(replace(demonstrator, noise=0.1), Scripted)


def test_without_any_expert_the_way_out_is_told(demonstrator: Demonstrator, echo: Any) -> None:
    class Silent(echo):  # type: ignore[misc]
        def advice(self) -> str | None:
            return None

    with pytest.raises(NoExpert, match="environment 'echo' has no solution of task 'train-0'"):
        shown(demonstrator, Silent)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_task_in_which_another_seat_is_to_move_has_no_demonstration(
    demonstrator: Demonstrator, echo: Any, steps: int
) -> None:
    class Seated(echo):  # type: ignore[misc]
        def reset(self, task: str, seed: int) -> Observation:
            self._left = steps
            return super().reset(task, seed)

        def _show(self) -> Observation:
            self._left -= 1
            seat = Seat(name="other", model=SeatModel.POLICY) if self._left < 0 else None
            return replace(super()._show(), seat=seat)

    with pytest.raises(NoSolution, match="'train-0'"):
        shown(demonstrator, Seated)


def test_tasks_without_a_solution_are_left_out_where_others_have_one(demonstrator: Demonstrator, echo: Any) -> None:
    episode, notes = shown(demonstrator, echo), list[str]()
    tasks = [replace(episode.task, id=name) for name in ("train-0", "train-1", "train-2")]
    assert keep_solved("echo", tasks, [None, episode, None], notes.append) == [episode]
    assert notes == ["the expert of 'echo' has no solution of 2 of 3 tasks: left out"]
    with pytest.raises(NoSolution, match="environment 'echo' has no solution of task 'train-0'"):
        keep_solved("echo", tasks, [None, None, None], notes.append)
    assert keep_solved("echo", [], [], notes.append) == []


def test_a_word_that_the_model_does_not_know_is_read_but_never_taught(demonstrator: Demonstrator, echo: Any) -> None:
    class Foreign(echo):  # type: ignore[misc]
        spec = replace(echo.spec, prompt="Répétez")

    assert shown(demonstrator, Foreign).success

    class Speaking(echo):  # type: ignore[misc]
        def advice(self) -> str:
            return "zwei"

    with pytest.raises(RunError, match=r"task 'train-0' of environment 'echo': 'zwei' has a word that is not in"):
        shown(demonstrator, Speaking)


@pytest.mark.parametrize("trained", [True, False])
def test_a_demonstrated_reply_cannot_end_before_its_end(demonstrator: Demonstrator, echo: Any, trained: bool) -> None:
    class Ending(echo):  # type: ignore[misc]
        def advice(self) -> str:
            return "2<|end|><|user|>say 2"

    with pytest.raises(RunError, match=r"'train-0' of .*: the reply must not contain '<\|end\|>', which is added"):
        shown(demonstrator, Ending)

    given = Conversation(
        origin="data.jsonl:7",
        task=Task(environment="echo", id="train-0", seed=3),
        opening=(Message("user", "say 2"),),
        replies=(ConversationReply(text="2 <|end|>", trained=trained),),
    )
    with pytest.raises(RunError, match=r"data\.jsonl:7, reply 1: the reply must not contain '<\|end\|>'"):
        demonstrator.render(given, 64)


def test_demonstrations_that_an_environment_spoilt_are_left_out(new_run: Any, echo: Any) -> None:
    class Failing(echo):  # type: ignore[misc]
        def reset(self, task: str, seed: int) -> Any:
            if task == "train-0":
                raise EnvFault("gone")
            return super().reset(task, seed)

    run = new_run("schedule.0.until=step >= 5", clients={"echo": InlineEnv(Failing)}, text=IMITATION)
    assert run.go().kind is OutcomeKind.FINISHED
    assert run.steps()[-1]["data/passes"] == 4  # of 4 in place of 5


# --- files -----------------------------------------------------------------------------------------------------------

IMITATION = echoing("""
algorithm: {use: sft, batch_size: 4, lr: 1, data: {source: expert}}
schedule: [{stage: imitate, until: step >= 4}]
eval: null
""")
CALL = {"type": "function", "function": {"name": "pay", "arguments": '{"to": "bob"}'}}
TALK = [
    {"role": "system", "content": "say"},
    {"role": "user", "content": "say 1"},
    {"role": "assistant", "content": "1"},
    {"role": "user", "content": "say 2"},
    {"role": "assistant", "content": "3", "learn": False},
    {"role": "user", "content": "wrong"},
    {"role": "assistant", "content": "2"},
]


def lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in objects))
    return path


def test_a_conversation_is_rendered_as_episodes_are_and_learnt_where_it_says(
    demonstrator: Demonstrator, words: Any, tmp_path: Path
) -> None:
    (conversation,) = read_conversations(lines(tmp_path / "data.jsonl", {"messages": TALK}))
    episode = demonstrator.render(conversation, 64)
    whole = words.render([{**each} for each in TALK], reply=False)
    assert episode.segments[0].ids.tolist() == words.encode(whole)
    assert learnt(episode) == [[*words.encode("1"), 0], [*words.encode("2"), 0]]
    assert (episode.success, episode.score, len(episode.turns)) == (True, 1.0, 3)


def test_a_long_conversation_is_learnt_up_to_the_last_reply_that_fits(
    demonstrator: Demonstrator, tmp_path: Path
) -> None:
    (conversation,) = read_conversations(lines(tmp_path / "data.jsonl", {"messages": TALK}))
    episode = demonstrator.render(conversation, 20)
    assert len(episode.segments[0].ids) <= 20
    assert (episode.ending, len(episode.turns)) == (Ending.BUDGET, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "data.jsonl:2: invalid JSON"),
        ([1], "data.jsonl:2: expected an object"),
        ({"text": "x"}, "data.jsonl:2: 'messages' is missing"),
        ({"messages": TALK[:2]}, "expected an 'assistant' message after at least one other"),
        ({"messages": [*TALK[:3], TALK[2], TALK[2]]}, "expected another role between two 'assistant' messages"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "expected a role of system, user, tool, assistant"),
        ({"messages": [*TALK[:2], {**TALK[2], "learn": "false"}]}, "messages[2].learn is 'false', expected bool"),
        ({"messages": TALK, "success": "false"}, "success is 'false', expected bool"),
        ({"messages": TALK, "score": True}, "score is 'True', expected float"),
        ('{"messages": [], "score": 1' + "0" * 400 + "}", "expected an 'assistant' message"),
        (f'{{"messages": {json.dumps(TALK)}, "score": 1{"0" * 400}}}', "score is '1000"),
        (f'{{"messages": {json.dumps(TALK)}, "score": NaN}}', "score is 'nan', expected float"),
        ("[" * 100_000, "invalid JSON: maximum recursion depth"),
        ({"turns": "none", "opening": [], "task": {}, "score": 0, "success": True}, "turns is 'none', expected list"),
        ({"turns": ["a"], "opening": [], "task": {}, "score": 0, "success": True}, "turns[0] is 'a', expected dict"),
        ({"messages": "none"}, "messages is 'none', expected list"),
        ({"messages": ["a"]}, "messages[0] is 'a', expected dict"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content is \"['a']\", expected str"),
        ({"messages": TALK, "functions": [{"name": "pay"}]}, "'functions' is not read: write it into 'messages' or"),
        ({"messages": [{**TALK[0], "name": "me"}]}, "messages[0]: 'name' is not read with the role 'system': remove"),
        ({"messages": [*TALK[:2], {**TALK[2], "reasoning_content": "x"}]}, "write thoughts into 'content'"),
        ({"messages": [*TALK[:2], {**TALK[2], "weight": 0.5}]}, "messages[2].weight is 0.5, expected 1, or 0 for a"),
        ({"messages": [*TALK[:2], {"role": "assistant", "content": None}]}, "a text, or 'tool_calls' of an assistant"),
        ({"messages": [*TALK[:2], {"role": "assistant", "tool_calls": [CALL]}]}, "'tool_calls' without 'tools'"),
        ({"messages": [*TALK[:2], {"role": "assistant", "tool_calls": ["pay"]}]}, "The tool call has another form."),
        ({"messages": TALK, "tools": "pay"}, "expected 'tools' to be a list"),
    ],
    ids=lambda value: "" if len(str(value)) > 99 else None,
)
def test_a_wrong_line_is_told_with_its_place(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(RunError) as raised:
        read_conversations(lines(tmp_path / "data.jsonl", {"messages": TALK}, line))
    assert f"{tmp_path}/data.jsonl:2: " in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"messages": "\xff"}', r"data\.jsonl:2: not UTF-8: .*; save the file"),
        (b" " * (1 << 26) + b"{}", "2: a line of"),
    ],
    ids=["not UTF-8", "too long"],
)
def test_a_line_that_is_not_read_at_all_is_told_with_its_place(tmp_path: Path, line: bytes, message: str) -> None:
    path = lines(tmp_path / "data.jsonl", {"messages": TALK})
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(RunError, match=message):
        read_conversations(path)


def test_null_is_as_nothing_and_a_reply_of_no_weight_is_not_learnt(tmp_path: Path) -> None:
    talk = [{**each, "tool_calls": None, "name": None, "learn": None} for each in TALK]
    talk[4]["weight"] = 0
    nothing = dict.fromkeys(("score", "success", "task", "tools"))
    (found,) = read_conversations(lines(tmp_path / "data.jsonl", {"messages": talk, **nothing, "source": "mine"}))
    assert [reply.trained for reply in found.replies] == [True, False, True]
    assert (found.score, found.success, found.task.id, found.tools) == (1.0, True, "", ())


def test_a_conversation_that_the_template_refuses_or_leaves_out_is_told_with_its_place(
    demonstrator: Demonstrator, words: Any, tmp_path: Path
) -> None:
    class Strict(type(words)):  # type: ignore[misc]
        """Refuses a late system message, and skips results of tools."""

        def render(self, messages: Any, *, reply: bool, **_: object) -> str:
            if any(each["role"] == "system" for each in messages[1:]):
                raise ValueError("system must be first")
            return str(super().render([each for each in messages if each["role"] != "tool"], reply=reply))

    strict = replace(demonstrator, chat=Chat(Strict()))
    for role, said in (("system", "system must be first"), ("tool", "it leaves out a message of the role 'tool'")):
        odd = {"role": role, "content": "1"}
        for talk in ([*TALK[:2], odd, TALK[2]], [*TALK[:3], odd, TALK[2]]):
            good, bad = read_conversations(lines(tmp_path / "data.jsonl", {"messages": TALK}, {"messages": talk}))
            assert strict.render(good, 64).turns
            with pytest.raises(RunError, match=rf"data\.jsonl:2: the chat template cannot show .*: {said}; begin with"):
                strict.render(bad, 64)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"data: cannot read"):
        read_conversations(tmp_path / "none.jsonl")


def test_imitating_a_file_learns_and_keeps_what_the_recipe_says(new_run: Any, tmp_path: Path) -> None:
    good = {"messages": TALK[:3], "success": True}
    bad = {"messages": [*TALK[:2], {"role": "assistant", "content": "4"}], "success": False, "score": 0}
    path = lines(tmp_path / "data.jsonl", good, bad, good)
    data = f"algorithm.data={{source: file, path: {path}, keep: success}}"
    run = new_run(data, text=IMITATION)
    assert run.go().kind is OutcomeKind.FINISHED
    losses = [row["train/loss"] for row in run.steps()]
    assert losses[-1] < losses[0] / 2
    assert run.steps()[-1]["data/passes"] == 6  # two lines, batches of four
    with pytest.raises(RunError, match="none of 3 demonstrations is left to learn from"):
        new_run(data.replace("keep: success", "keep: score > 5"), text=IMITATION).go()


def test_a_long_show_says_how_far_it_is(new_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sft, "_QUIET_S", 1)  # the clock of these runs ticks when it is read
    show = "algorithm.data={source: expert, noise: 0.2, limit: 20}"
    slow, at_once = (new_run(show, f"rollout.slots={slots}", text=IMITATION) for slots in (1, 16))
    slow.reporter = NotingReporter()
    slow.go()
    at_once.go()
    assert [note for note in slow.reporter.notes if "the expert" in note] == [
        "the expert of 'echo' shows 20 tasks",
        "the expert of 'echo' has shown 8 of 20 tasks",
        "the expert of 'echo' has shown 16 of 20 tasks",
    ]
    assert slow.exact() == at_once.exact()


def test_episodes_that_the_viewer_exported_are_imitated(new_run: Any, tmp_path: Path) -> None:
    teacher = new_run()
    teacher.go()
    records = [each for each in episodes_of(teacher.root)[TRAIN_LOG] if each["success"]]
    text, written, others = export_lines(records)
    assert (written, others) == (len(records), 0)
    (tmp_path / "sft.jsonl").write_text(text)
    data = f"algorithm.data={{source: file, path: {tmp_path / 'sft.jsonl'}}}"
    run = new_run(data, text=IMITATION)
    assert run.go().kind is OutcomeKind.FINISHED
    assert run.steps()[-1]["train/loss"] < run.steps()[0]["train/loss"]


def test_conversations_that_exceed_the_context_are_counted(new_run: Any, tmp_path: Path) -> None:
    short, cut = {"messages": TALK[:3]}, {"messages": TALK}
    gone = {"messages": [{"role": "user", "content": "say 1 " * 40}, TALK[2]]}
    path = lines(tmp_path / "data.jsonl", short, cut, gone, gone)
    run = new_run(f"algorithm.data={{source: file, path: {path}}}", "agent.context_tokens=20", text=IMITATION)
    run.reporter = NotingReporter()
    run.go()
    (note,) = (note for note in run.reporter.notes if "context_tokens" in note)
    assert note.startswith("3 of 4 demonstrations exceed 'context_tokens' (20): 2 left out, 1 cut after the last")


@pytest.mark.parametrize(("tokens", "told"), [(1, True), (2, False)])
def test_replies_that_are_too_long_to_be_said_are_told(new_run: Any, tokens: int, told: bool) -> None:
    run = new_run(f"agent.tokens_per_turn={tokens}", text=IMITATION)
    run.reporter = NotingReporter()
    run.go()
    long = [note for note in run.reporter.notes if "tokens_per_turn" in note]
    assert bool(long) == told
    assert all("exceed 'tokens_per_turn' (1), the longest by 1 tokens" in note for note in long)


def test_recorded_episodes_of_training_tasks_are_demonstrations_in_turn(new_run: Any, tmp_path: Path) -> None:
    teacher = new_run()
    teacher.go()
    talks = read_episodes(teacher.root)
    assert {talk.task.id.split("-")[0] for talk in talks} == {"train"}
    assert len(talks) == 7 * 16
    run = new_run(f"algorithm.data={{source: episodes, path: {teacher.root}, keep: success}}", text=IMITATION)
    assert run.go().kind is OutcomeKind.FINISHED
    assert run.steps()[-1]["train/loss"] < run.steps()[0]["train/loss"]


def test_a_run_that_recorded_only_what_it_measured_teaches_nothing(new_run: Any, tmp_path: Path) -> None:
    teacher = new_run("checkpoint.episodes=eval")
    teacher.go()
    with pytest.raises(RunError, match="has no episodes of training tasks: run it with"):
        read_episodes(teacher.root)
    with pytest.raises(RunError, match="is not a run folder"):
        read_episodes(tmp_path)


# --- fresh rollouts --------------------------------------------------------------------------------------------------

FRESH = IMITATION.replace(
    "algorithm: {use: sft, batch_size: 4, lr: 1, data: {source: expert}}",
    "algorithm: {use: sft, batch_size: 4, lr: 4, groups_per_step: 12, epochs: 2, data: {source: rollout}}",
).replace("stage: imitate, until", "stage: imitate, turns: 4, until")


def taught(run: Any) -> list[Any]:
    """All sequences that the run gives its learner."""
    given: list[Any] = []
    run.learner.faulty = lambda number, sequences: given.extend(sequences)
    run.go()
    return given


def test_what_the_policy_did_well_is_imitated_and_it_does_better(new_run: Any) -> None:
    run = new_run("schedule.0.until=step >= 12", text=FRESH)
    assert run.go().kind is OutcomeKind.FINISHED
    rows = run.steps()
    assert {row["rollout/episodes"] for row in rows} == {12}
    assert [row["data/kept"] for row in rows] == [round(12 * row["rollout/success"]) for row in rows]
    assert all(row["train/updates"] == 2 * -(-row["data/kept"] // 4) for row in rows)
    first, last = (np.mean([row["rollout/success"] for row in part]) for part in (rows[:4], rows[-4:]))
    assert last > first + 0.2


def test_a_step_in_which_nothing_went_well_changes_nothing(new_run: Any) -> None:
    run = new_run("algorithm.data.keep=turns > 4", text=FRESH)
    assert run.go().kind is OutcomeKind.FINISHED
    assert [(row["data/kept"], row["train/updates"]) for row in run.steps()] == [(0, 0)] * 4
    assert not run.learner.updates


def test_what_an_environment_did_not_understand_is_not_imitated(new_run: Any, words: Any) -> None:
    def replies(*settings: str) -> set[str]:
        given = taught(new_run("algorithm.data.keep=turns > 0", *settings, text=FRESH))
        runs = [words.decode(each.ids[each.loss_mask].tolist()) for each in given]
        return {word for run in runs for word in run.replace("<|end|>", " ").split()}

    assert replies() <= {"0", "1", "2", "3", "4"}
    assert "say" in replies("algorithm.data.loss_on=all")


def test_an_agent_that_masks_truncated_or_void_episodes_does_not_imitate_them(new_run: Any) -> None:
    everything = new_run("algorithm.data.keep=turns > 0", text=FRESH)
    whole = new_run("algorithm.data.keep=turns > 0", "agent.on_truncated=mask", text=FRESH)
    for run in (everything, whole):
        run.go()
    assert everything.steps()[0]["data/kept"] == 12
    row = whole.steps()[0]
    assert row["data/kept"] == round(12 * (1 - row["rollout/truncated_rate"])) < 12


def test_killed_at_any_call_and_resumed_the_same_is_imitated(new_run: Any) -> None:
    whole = new_run("checkpoint.every=2", text=FRESH)
    calls = whole.watched()
    for at, again in new_run("checkpoint.every=2", text=FRESH).killed_in(range(1, len(calls), 3)):
        again.go()
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"


# --- hindsight -------------------------------------------------------------------------------------------------------


@pytest.fixture
def knowing(echo: Any) -> Any:
    """An environment in which the first action always does what task 1 is about, and the second what others are."""

    class Knowing(echo):  # type: ignore[misc]
        def hindsight(self, task: str, seed: int, actions: Any) -> tuple[Reached, ...]:
            told = {"train-1": 1, "test-0": 1, "train-2": 2}
            return tuple(
                Reached(task=name, actions=at, first=Observation(text=f"say {at} . {at}"))
                for name, at in told.items()
                if name != task and at <= len(actions)
            )

    return Knowing


def relabelled(demonstrator: Demonstrator, env: Any, episode: Episode, limits: EpisodeLimits = LIMITS) -> list[Episode]:
    async def go() -> list[Episode]:
        client = InlineEnv(env)
        world = ConnectedEnv(name="echo", client=client, spec=await client.spec())
        return await demonstrator.hindsight(world, episode, limits)

    return asyncio.run(go())


def test_in_hindsight_an_episode_shows_another_goal_up_to_where_it_was_reached(
    demonstrator: Demonstrator, knowing: Any, words: Any
) -> None:
    played = shown(demonstrator, knowing)
    other = relabelled(demonstrator, knowing, played)[2]
    opening = [{"role": message.role, "content": message.content} for message in other.opening]
    assert opening[-1] == {"role": "user", "content": "say 2 . 2"}
    before = words.encode(words.render(opening, reply=True))
    assert other.segments[0].ids.tolist() == [
        *before,
        *played.segments[0].ids[played.turns[0].start : played.turns[1].end].tolist(),
    ]
    assert learnt(other) == [[*words.encode(turn.reply), 0] for turn in played.turns[:2]]
    assert [turn.end for turn in other.turns] == [
        at + len(before) - played.turns[0].start for at in (played.turns[0].end, played.turns[1].end)
    ]
    assert (other.task.id, other.task.seed) == ("train-2", played.task.seed)
    assert (other.success, other.score, other.ending) == (True, 1.0, Ending.DONE)


def test_the_action_that_reached_a_goal_is_learnt_even_if_it_was_noise(
    demonstrator: Demonstrator, knowing: Any
) -> None:
    noisy = shown(replace(demonstrator, noise=1.0), knowing)
    assert not learnt(noisy)
    assert [len(learnt(other)) for other in relabelled(demonstrator, knowing, noisy)] == [1, 1, 1]


def test_a_goal_whose_opening_leaves_no_room_is_left_out(demonstrator: Demonstrator, knowing: Any) -> None:
    played = shown(demonstrator, knowing)
    sizes = [len(other.segments[0].ids) for other in relabelled(demonstrator, knowing, played)]
    tight = relabelled(demonstrator, knowing, played, replace(LIMITS, context_tokens=max(sizes) - 1))
    assert [len(other.segments[0].ids) for other in tight] == [size for size in sizes if size < max(sizes)]


def test_an_environment_without_hindsight_is_named(demonstrator: Demonstrator, echo: Any) -> None:
    played = shown(demonstrator, echo)
    with pytest.raises(NoHindsight, match="environment 'echo' cannot tell which other goals an episode reached"):
        relabelled(demonstrator, echo, played)

    class Dreaming(echo):  # type: ignore[misc]
        def hindsight(self, task: str, seed: int, actions: Any) -> tuple[Reached, ...]:
            return (Reached(task="train-1", actions=len(actions) + 1, first=Observation(text="say 1")),)

    with pytest.raises(StepRefused, match="echo returned actions of task 'train-0' that were never taken"):
        relabelled(demonstrator, Dreaming, played)

    class Broken(echo):  # type: ignore[misc]
        def hindsight(self, task: str, seed: int, actions: Any) -> tuple[Reached, ...]:
            raise OSError("gone")

    with pytest.raises(StepRefused, match=r"hindsight: .*gone.*; fix the environment and resume"):
        relabelled(demonstrator, Broken, played)


RELAY = IMITATION.replace("use: sft", "use: relay").replace(", data: {source: expert}", "")


def test_relay_learns_all_goals_that_were_reached_and_none_that_the_recipe_does_not_train(
    new_run: Any, knowing: Any
) -> None:
    run = new_run(text=RELAY, clients={"echo": InlineEnv(knowing)})
    assert run.go().kind is OutcomeKind.FINISHED
    # five of its own; all but task 1 did task 1 too, all but task 2 did task 2; what is held out is not reported
    assert run.steps()[0]["data/demonstrations"] == 5 + 4 + 4
    chosen = new_run(
        "environments.echo.tasks.train={ids: [train-0, train-1]}", text=RELAY, clients={"echo": InlineEnv(knowing)}
    )
    chosen.go()
    assert chosen.steps()[0]["data/demonstrations"] == 2 + 1


def test_a_fresh_episode_that_failed_shows_what_it_did_reach(new_run: Any, knowing: Any) -> None:
    run = new_run("algorithm.data.relabel=hindsight", text=FRESH, clients={"echo": InlineEnv(knowing)})
    run.go()
    for row in run.steps():
        assert row["data/kept"] == round(12 * row["rollout/success"]) + row["data/relabelled"]
        assert row["data/relabelled"] > 12
