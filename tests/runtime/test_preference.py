"""Stages that learn from pairs: of fresh groups, of a file, of recorded episodes; stopped, killed, without any pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.runtime.agents.messages import Message
from agym.runtime.data.dataset import read_preferences
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError
from agym.runtime.protocols import UpdateFault

from .conftest import NotingReporter, echoing

PREFERENCE = echoing("""
algorithm: {use: dpo, group_size: 4, groups_per_step: 6, batch_size: 6, lr: 20, optimizer: {betas: [0.5, 0.9]},
            preference: {beta: 0.3}}
schedule:
  - {stage: prefer, turns: 4, until: step >= 12}
eval: {every: 6, turns: 4, samples: 2}
checkpoint: {every: 2, episodes: all}
""")
GIVEN = PREFERENCE.replace("group_size: 4, groups_per_step: 6, ", "").replace(", turns: 4, until", ", until")


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def told(run: Any, name: str) -> list[float]:
    """Of the steps that had anything to report."""
    return [row[name] for row in run.steps() if name in row]


def first(run: Any, name: str) -> float:
    return float(np.mean(told(run, name)[:3]))


def last(run: Any, name: str) -> float:
    return float(np.mean(told(run, name)[-3:]))


# --- fresh pairs


@pytest.mark.parametrize("level", ["episode", "turn"])
def test_the_policy_learns_from_pairs_of_what_it_played(new_run: Any, level: str) -> None:
    run = new_run(f"algorithm.preference.level={level}", text=PREFERENCE)
    assert run.go().kind is OutcomeKind.FINISHED
    assert last(run, "rollout/score") > first(run, "rollout/score") + 0.15
    rows = run.steps()
    assert last(run, "preference/margin") > first(run, "preference/margin") + 0.1
    assert all(row["preference/pairs"] <= 24 for row in rows)
    assert all(row["train/updates"] == -(-row["preference/pairs"] // 6) for row in rows)
    assert {row["rollout/episodes"] for row in rows} == {24}
    for row in (row for row in rows if row["preference/pairs"]):
        apart = row["preference/chosen_reward"] - row["preference/rejected_reward"]
        assert row["preference/margin"] == pytest.approx(apart)


def test_the_loss_that_is_told_is_that_of_the_pairs(new_run: Any) -> None:
    run = new_run("algorithm.batch_size=99", "schedule.0.until=step >= 1", text=PREFERENCE)
    run.go()
    (row,) = run.steps()
    # one update, at the reference
    assert row["train/loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert row["preference/margin"] == pytest.approx(0, abs=1e-6)


def test_a_step_without_a_pair_counts_and_says_so(new_run: Any) -> None:
    run = new_run("algorithm.preference.margin=99", "schedule.0.until=step >= 2", text=PREFERENCE)
    assert run.go().kind is OutcomeKind.FINISHED
    assert [(row["preference/pairs"], row["train/updates"]) for row in run.steps()] == [(0, 0), (0, 0)]
    assert not run.learner.updates


def test_episodes_that_the_recipe_leaves_out_are_in_no_pair(new_run: Any) -> None:
    run = new_run("algorithm.data.keep=success", "schedule.0.until=step >= 1", text=PREFERENCE)
    run.go()
    assert run.steps()[0]["preference/pairs"] == 0  # all that is left earned the same


def test_several_passes_are_over_the_pairs_of_the_step(new_run: Any) -> None:
    one, two = (new_run(f"algorithm.epochs={n}", "schedule.0.until=step >= 1", text=PREFERENCE) for n in (1, 2))
    one.go(), two.go()
    assert two.steps()[0]["preference/pairs"] == one.steps()[0]["preference/pairs"]
    assert two.steps()[0]["train/updates"] == 2 * one.steps()[0]["train/updates"]


def test_an_update_that_fails_is_a_fault_with_the_pairs_too(new_run: Any) -> None:
    run = new_run("guards.on_nan=stop", text=PREFERENCE)
    run.learner.faulty = lambda number, sequences: UpdateFault.NAN if number == 2 else None
    assert run.go().kind is OutcomeKind.GUARDED


def test_the_reference_is_the_policy_that_the_stage_began_with(new_run: Any) -> None:
    stages = "schedule=[{stage: imitate, until: step >= 3, algorithm: {use: sft, batch_size: 4, lr: 4}}, %s, %s]"
    prefer = "{stage: %s, turns: 4, until: step >= 1, algorithm: {batch_size: 99, lr: 4%s}}"
    for kl, moved in (("", False), (", kl: {reference: start}", True)):
        run = new_run(stages % (prefer % ("before", ""), prefer % ("prefer", kl)), text=PREFERENCE)
        run.go()
        assert run.steps()[-2]["preference/chosen_reward"] == pytest.approx(0, abs=1e-6)
        assert (abs(run.steps()[-1]["preference/chosen_reward"]) > 1e-3) == moved


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("given", [False, True], ids=["fresh", "given"])
def test_killed_at_any_call_and_resumed_the_rows_are_the_same(
    new_run: Any, tmp_path: Path, given: bool, stride: int
) -> None:
    path = lines(tmp_path / "pairs.jsonl", *PAIRS)
    settings = (f"algorithm.data={{source: file, path: {path}}}", "algorithm.batch_size=2") if given else ()
    text = GIVEN if given else PREFERENCE
    make = lambda: new_run("schedule.0.until=step >= 5", "eval.every=3", *settings, text=text)  # noqa: E731
    whole = make()
    calls = whole.watched()
    assert {"logprobs", "update", "render" if given else "play"} <= set(calls)
    for at, again in make().killed_in(range(3, len(calls), stride)):
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"


# --- given pairs

PAIRS = [
    {"prompt": "say 1", "chosen": "1", "rejected": "4"},
    {"prompt": [{"role": "user", "content": "say 2"}], "chosen": "2", "rejected": "4"},
    {
        "prompt": [
            {"role": "system", "content": "say"},
            {"role": "user", "content": "say 3"},
            {"role": "assistant", "content": "0"},
            {"role": "user", "content": "say 3"},
        ],
        "chosen": [{"role": "assistant", "content": "3"}],
        "rejected": [
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "wrong"},
            {"role": "assistant", "content": "0"},
        ],
    },
]


def test_a_line_holds_what_was_said_and_two_ways_to_go_on(tmp_path: Path) -> None:
    one, two, three = read_preferences(lines(tmp_path / "pairs.jsonl", *PAIRS))
    for (better, worse), number in ((one, "1"), (two, "2")):
        assert better.opening == worse.opening == (Message("user", f"say {number}"),)
        assert [side.replies[0].text for side in (better, worse)] == [number, "4"]
    assert [(reply.text, reply.trained) for reply in three[0].replies] == [("0", False), ("3", True)]
    assert [(reply.text, reply.trained) for reply in three[1].replies] == [("0", False), ("4", True), ("0", True)]


def test_without_a_prompt_both_sides_are_whole_conversations(tmp_path: Path) -> None:
    sides = {
        side: [{"role": "user", "content": "say 1"}, {"role": "assistant", "content": text}]
        for side, text in (("chosen", "1"), ("rejected", "2"))
    }
    ((better, worse),) = read_preferences(lines(tmp_path / "pairs.jsonl", sides))
    assert better.opening == worse.opening
    assert (better.replies[0].text, worse.replies[0].text) == ("1", "2")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "say 1", "chosen": "1"}, "'rejected' is missing"),
        ({"prompt": "say 1", "chosen": "1", "rejected": "1"}, "'chosen' and 'rejected' are the same"),
        ({"chosen": "1", "rejected": "2"}, "expected an 'assistant' message after at least one other"),
        ({"prompt": "say 1", "chosen": "1", "rejected": 2}, "expected 'prompt', 'chosen' and 'rejected'"),
        ({"prompt": 1, "chosen": "1", "rejected": "2"}, "expected 'prompt', 'chosen' and 'rejected'"),
        ({"prompt": [{"role": "robot", "content": "a"}], "chosen": "1", "rejected": "2"}, "expected a role of"),
        ({"prompt": [{"role": "user"}], "chosen": "1", "rejected": "2"}, "'content' is missing"),
        (
            {"prompt": PAIRS[2]["prompt"][:3], "chosen": "1", "rejected": "2"},
            "expected another role between two 'assistant' messages",
        ),
        (
            {"prompt": PAIRS[2]["prompt"], "chosen": [], "rejected": "2"},
            "expected a message to train on in both 'chosen' and 'rejected'",
        ),
    ],
)
def test_a_line_that_is_no_pair_is_told_by_its_number(tmp_path: Path, record: Any, message: str) -> None:
    path = lines(tmp_path / "pairs.jsonl", PAIRS[0], record)
    with pytest.raises(RunError, match=r"pairs\.jsonl:2: ") as raised:
        read_preferences(path)
    assert message in str(raised.value)


def test_the_policy_learns_from_a_file_of_pairs(new_run: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "pairs.jsonl", *PAIRS)
    run = new_run(f"algorithm.data={{source: file, path: {path}}}", "algorithm.batch_size=3", text=GIVEN)
    assert run.go().kind is OutcomeKind.FINISHED
    rows = run.steps()
    assert rows[0]["train/loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert rows[-1]["train/loss"] < 0.5 * rows[0]["train/loss"]
    assert rows[-1]["preference/accuracy"] == 1
    assert rows[-1]["data/passes"] == len(rows) - 1
    assert "rollout/episodes" not in rows[0]


def test_the_reference_is_asked_but_once_of_each_pair(new_run: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "pairs.jsonl", *PAIRS)
    run = new_run(f"algorithm.data={{source: file, path: {path}}}", "algorithm.batch_size=3", text=GIVEN)
    assert run.watched().count("logprobs") == 1 + 12


def test_pairs_that_exceed_the_context_are_counted(new_run: Any, tmp_path: Path) -> None:
    long = {"prompt": "say 1 " * 90, "chosen": "1", "rejected": "4"}
    path = lines(tmp_path / "pairs.jsonl", *PAIRS, long)
    run = new_run(f"algorithm.data={{source: file, path: {path}}}", text=GIVEN)
    run.reporter = NotingReporter()
    run.go()
    (note,) = (note for note in run.reporter.notes if "context_tokens" in note)
    assert note.startswith("1 of 4 pairs exceed 'context_tokens' (")


def test_pairs_that_fit_no_context_are_told(new_run: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "pairs.jsonl", {"prompt": "say 1 " * 90, "chosen": "1", "rejected": "4"})
    with pytest.raises(RunError, match=r"stage 'prefer': of 1 pairs none fits .* expected at least one pair"):
        new_run(f"algorithm.data={{source: file, path: {path}}}", text=GIVEN).go()


@pytest.mark.parametrize("level", ["episode", "turn"])
def test_the_policy_learns_from_the_episodes_of_another_run(new_run: Any, level: str) -> None:
    teacher = new_run("schedule.0.until=step >= 3", text=PREFERENCE)
    teacher.go()
    data = f"algorithm.data={{source: episodes, path: {teacher.root}, limit: 60}}"
    run = new_run(data, f"algorithm.preference.level={level}", text=GIVEN)
    assert run.go().kind is OutcomeKind.FINISHED
    assert last(run, "train/loss") < first(run, "train/loss") - 0.02
    assert last(run, "preference/accuracy") > 0.6
    with pytest.raises(RunError, match=r"no pair among .* episodes of .* tasks; expected at least one pair"):
        new_run(data, "algorithm.preference.margin=9", text=GIVEN).go()


def test_a_reply_that_was_not_understood_may_be_the_worse(new_run: Any, tmp_path: Path) -> None:
    talk = {
        "version": 1,
        "purpose": "train",
        "task": {"environment": "echo", "id": "train-0", "seed": 1, "difficulty": ""},
        "score": 0.0,
        "success": False,
        "opening": [{"role": "user", "content": "say 1"}],
        "segments": [{}],
        "turns": [{"reply": "write", "action": None, "observation": "wrong"}],
    }
    better = replace_turn(talk, reply="1", action="1") | {"score": 1.0}
    (tmp_path / "old" / "episodes").mkdir(parents=True)
    lines(tmp_path / "old" / "episodes" / "step-1.jsonl", talk, better)
    run = new_run(
        f"algorithm.data={{source: episodes, path: {tmp_path / 'old'}}}", "schedule.0.until=step >= 4", text=GIVEN
    )
    run.go()
    assert run.steps()[-1]["preference/rejected_reward"] < -0.01


def replace_turn(talk: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return talk | {"turns": [talk["turns"][0] | changes]}
