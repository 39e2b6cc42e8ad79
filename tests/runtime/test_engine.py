"""The walk through a plan: what is done when, what is kept, how a run ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError, StepRefused
from agym.runtime.protocols import ProbeLimits, UpdateFault
from agym.runtime.reporting import SilentReporter
from agym.runtime.storage.episode_reader import episode_files, read_chunks

from .conftest import episodes_of, trained_in


def only(wanted: int) -> Callable[[int, Any], UpdateFault | None]:
    return lambda number, sequences: UpdateFault.NAN if number == wanted else None


def test_a_run_learns_and_says_so(new_run: Any) -> None:
    run = new_run("schedule.2.until=step >= 30")
    assert run.go().kind is OutcomeKind.FINISHED
    evals = [row["eval/echo/success"] for row in run.rows() if "eval/echo/success" in row]
    assert evals[0] < 0.35 < 0.9 < evals[-1]


def test_rows_are_one_per_step_and_one_per_measurement_and_hold_no_nan(new_run: Any) -> None:
    run = new_run()
    run.learner.faulty = only(4)
    run.go()
    kinds = [("eval" if "eval/success" in row else "step", row["total_step"]) for row in run.rows()]
    steps = [("step", at) for at in range(1, 10)]
    assert kinds == [("eval", 0), *steps[:3], ("eval", 3), *steps[3:6], ("eval", 6), *steps[6:], ("eval", 9)]
    text = (run.root / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    (spoilt,) = [row for row in run.steps() if "guard/action" in row]
    assert "train/loss" not in spoilt
    assert spoilt["train/skipped"] == 1


def test_a_stage_may_say_how_often_it_is_measured(new_run: Any) -> None:
    run = new_run("schedule.0.eval_every=2", "schedule.1.eval_every=100")
    run.go()
    assert [row["total_step"] for row in run.rows() if "eval/success" in row] == [0, 2, 6, 9]


def test_a_step_tells_of_horizon_stage_mismatch_and_times(new_run: Any) -> None:
    run = new_run()
    run.go()
    row = run.steps()[3]
    assert (row["stage"], row["step"], row["horizon/turns"], row["horizon/stage"]) == ("exploit", 2, 2, 1)
    assert row["mismatch/kl"] == pytest.approx(0, abs=1e-9)
    assert row["perf/tokens_per_s"] > 0
    assert {"timing_s/sync", "timing_s/rollout", "timing_s/update", "timing_s/step"} <= row.keys()


def test_horizon_grows_with_the_steps_of_its_stage(new_run: Any) -> None:
    run = new_run()
    run.go()
    assert [row.get("horizon/turns") for row in run.steps()] == [None, None, 2, 2, 2, 2, 3, 4, 4]


def test_eval_tells_of_horizons_difficulties_samples_and_greedy(new_run: Any) -> None:
    run = new_run()
    run.go()
    row = run.rows()[0]
    assert {"eval/echo@2/success", "eval/echo/success", "eval/echo/avg@2", "eval/echo/pass@2"} <= row.keys()
    assert {"eval/echo/success/odd", "eval/echo/greedy_success", "eval/echo/ci_low"} <= row.keys()
    assert row["eval/echo/tasks"] == 3
    assert "eval/echo/greedy_avg@2" not in row


def test_a_stage_that_measures_makes_one_measurement_and_changes_nothing(new_run: Any) -> None:
    quiet = ("eval.every=100", "eval.at_start=false", "eval.at_end=false")
    run = new_run(*quiet, "schedule.1={stage: look, turns: 2, algorithm: {use: eval}}")
    assert run.go().kind is OutcomeKind.FINISHED
    kinds = [(row["total_step"], row["stage"], "eval/success" in row) for row in run.rows()]
    assert kinds[1:4] == [(2, "imitate", False), (3, "look", True), (4, "explore", False)]
    assert len(run.learner.updates) == sum(row["train/updates"] for row in run.steps())


def test_optimiser_starts_anew_where_what_it_averages_changes_and_only_there(new_run: Any) -> None:
    run = new_run()
    run.go()
    assert run.learner.fresh == 1  # from imitation to reinforcement, not from one horizon to the next
    assert [round(settings.lr, 3) for settings in run.learner.updates[:3]] == [0.333, 0.667, 4.0]
    assert run.learner.optimizer.betas == (0.5, 0.9)


def test_kl_weight_follows_the_divergence(new_run: Any) -> None:
    run = new_run("algorithm.kl.target=1e-9")
    run.go()
    weights = [settings.loss.kl_coef for settings in run.learner.updates[2:6]]
    # the first update of a stage measures no divergence, from then on it is above the target
    assert weights[1] == pytest.approx(weights[0] * 2 ** (-1 / 5))
    assert weights[2] == pytest.approx(weights[1] * 2 ** (1 / 5))


@pytest.mark.parametrize(
    ("reference", "stage", "low", "high"),
    [("stage", "explore", 0.0, 1e-9), ("start", "explore", 1e-4, 9.0), ("start", "exploit", 0.0, 1e-9)],
)
def test_divergence_is_measured_from_the_end_of_imitation_or_the_start_of_the_stage(
    new_run: Any, reference: str, stage: str, low: float, high: float
) -> None:
    run = new_run(f"algorithm.kl.reference={reference}")
    run.go()
    stages = ["imitate", "exploit", "explore"]
    before = stages[: stages.index(stage)]
    first = sum(row["train/updates"] for row in run.steps() if row["stage"] in before)
    assert low <= run.learner.divergences[first] <= high


def test_without_imitation_divergence_is_measured_from_the_start_of_the_run(new_run: Any) -> None:
    stages = "{stage: a, turns: 2, until: step >= 2}, {stage: b, turns: 2, until: step >= 1}"
    run = new_run("algorithm.kl.reference=start", f"schedule=[{stages}]")
    run.go()
    later = sum(row["train/updates"] for row in run.steps() if row["stage"] == "a")
    assert run.learner.divergences[0] <= 1e-9 < 1e-4 <= run.learner.divergences[later]
    assert not (run.root / "references").exists()


def test_rewards_are_scaled_by_all_that_was_earned_so_far(new_run: Any) -> None:
    run = new_run("algorithm.filter=true == true")
    run.go()
    progress = json.loads((run.root / "checkpoints/step-9/progress.json").read_text())
    assert progress["scales"]["echo"]["count"] == 7 * 4 * 4


def test_checkpoints_that_are_kept(new_run: Any) -> None:
    run = new_run("checkpoint={every: 2, keep: 1, keep_exports: 3, best: eval/echo/success}")
    run.go()
    best = json.loads((run.root / "checkpoints/step-9/progress.json").read_text())["best_step"]
    assert run.checkpoints() == sorted({"step-9", f"step-{best}"})
    kept = {path.name for path in (run.root / "weights").iterdir()}
    assert kept == {*sorted({"step-2", "step-4", "step-6", "step-8"} - {f"step-{best}"})[-3:]}
    assert all((run.root / "weights" / name / "table.npy").is_file() for name in kept)
    exported = run.root / "checkpoints/step-9/model/table.npy"
    assert (run.root / "model/table.npy").samefile(exported)
    assert (run.root / "checkpoints/step-9/model/table.npy").is_file()


@pytest.mark.parametrize(
    ("wanted", "train", "evaluations", "demonstrations"),
    [
        ("none", 0, 0, 0),
        ("eval", 0, 4, 0),
        ("all", 7 * 16, 4, 1),
        ("{}", 7 * 4, 4, 1),
        ("{train: 3, eval: none}", 7 * 3 * 4, 0, 1),
        ("{train: 32}", 7 * 16, 4, 1),
    ],
)
def test_the_episodes_that_are_asked_for_are_recorded_as_the_schema_says(
    new_run: Any, root: Path, wanted: str, train: int, evaluations: int, demonstrations: int
) -> None:
    from jsonschema import Draft7Validator

    run = new_run(f"checkpoint.episodes={wanted}")
    run.go()
    files = episodes_of(run.root)
    counts = [len(files.get("train.jsonl.gz", [])), len([n for n in files if "-eval" in n])]
    assert [*counts, len([n for n in files if n.startswith("demonstrations-")])] == [train, evaluations, demonstrations]
    check = Draft7Validator(json.loads((root / "schemas/episode.v2.json").read_text()))
    for file in episode_files(run.root / "episodes"):
        for chunk in read_chunks(file):
            for line in chunk.data.splitlines():
                check.validate(json.loads(line))
    ids = [record["id"] for records in files.values() for record in records]
    assert len(set(ids)) == len(ids)


def test_a_recorded_episode_replays_in_its_environment(new_run: Any, echo: Any) -> None:
    run = new_run()
    run.go()
    for record in trained_in(run.root, 9):
        env = echo()
        assert record["opening"][-1]["content"] == env.reset(record["task"]["id"], record["task"]["seed"]).text
        for turn in record["turns"]:
            if turn["action"] is not None:
                step = env.step(turn["action"])
                assert (step.observation.text, step.reward) == (turn["observation"], turn["reward"])


def test_a_finished_run_is_finished_and_adds_nothing(new_run: Any) -> None:
    run = new_run("eval.every=4")
    run.go()
    before = (run.root / "metrics.jsonl").read_bytes()
    again = run.again()
    assert again.go().kind is OutcomeKind.FINISHED
    assert (run.root / "metrics.jsonl").read_bytes() == before
    assert again.sampler.requests == []


def test_tasks_that_are_trained_on_are_not_measured_on(new_run: Any) -> None:
    run = new_run("environments.echo.tasks.eval.ids=[train-1, test-0]")
    both = "training and evaluation share 1 task of 'echo', such as 'train-1'"
    with pytest.raises(RunError, match=both):
        run.go()


def test_two_environments_share_a_step_by_weight(new_run: Any) -> None:
    run = new_run("environments.other={use: other, weight: 2}")
    run.go()
    row = run.steps()[-1]
    assert {"rollout/echo/success", "rollout/other/success"} <= row.keys()
    drawn = json.loads((run.root / "checkpoints/step-9/progress.json").read_text())["mixture"]["drawn"]
    assert drawn in ({"echo": 9, "other": 19}, {"echo": 10, "other": 18})


# --- guards ----------------------------------------------------------------------------------------------------------


class Noted(SilentReporter):
    """A reporter that keeps what a user would be told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_what_engines_found_about_their_models_is_reported_once(new_run: Any) -> None:
    run = new_run(reporter=Noted(), engine_notes=["model: rows hold one sequence each"] * 2)
    assert run.go().kind is OutcomeKind.FINISHED
    assert run.reporter.notes.count("model: rows hold one sequence each") == 1


def test_skipped_update_leaves_weights_and_counts(new_run: Any) -> None:
    run = new_run("guards.on_nan=skip")
    run.learner.faulty = only(2)
    run.go()
    first, second = run.steps()[:2]
    assert (first["train/updates"], second["train/updates"], second["guard/action"]) == (1, 0, "skip")


def test_roll_back_takes_the_weights_of_the_last_regular_checkpoint_and_goes_on(new_run: Any) -> None:
    run = new_run(reporter=Noted())
    run.learner.faulty = only(7)
    assert run.go().kind is OutcomeKind.FINISHED
    assert any(row.get("guard/action") == "roll_back" for row in run.steps())
    assert any(note.startswith("rolled back to the weights of step ") for note in run.reporter.notes)
    assert [row["total_step"] for row in run.steps()] == list(range(1, 10))


def test_roll_back_before_any_checkpoint_leaves_the_update_out(new_run: Any) -> None:
    run = new_run(reporter=Noted())
    run.learner.faulty = only(1)
    assert run.go().kind is OutcomeKind.FINISHED
    assert "no checkpoint to roll back to yet: the update was left out instead" in run.reporter.notes


def test_too_many_roll_backs_end_the_run(new_run: Any) -> None:
    run = new_run("guards.max_roll_backs=1")
    run.learner.faulty = lambda number, sequences: UpdateFault.KL if number > 2 else None
    outcome = run.go()
    assert outcome.kind is OutcomeKind.GUARDED
    assert outcome.reason == (
        "the KL divergence from the sampling policy exceeded 'kl_max'; and 1 roll-backs did not help; "
        "lower 'lr' or 'epochs', or set 'hardware.staleness: 0'"
    )


def test_stop_saves_and_names_the_guard(new_run: Any) -> None:
    run = new_run("guards={entropy_min: 5, patience: 2}")
    outcome = run.go()
    assert outcome.kind is OutcomeKind.GUARDED
    assert outcome.reason.startswith("guard 'entropy_min': ")
    assert outcome.reason.endswith(
        "; the policy is nearly deterministic: lower 'lr', or raise 'entropy.coef' or 'kl.coef'"
    )
    assert outcome.steps == 4
    assert "step-4" in run.checkpoints()


def test_mismatch_between_the_engines_is_guarded(new_run: Any) -> None:
    run = new_run("guards.mismatch_max=0.01", "model.dtype=bf16")
    half = run.learner.weights

    # the sampler gets weights that are rounded, as another precision would
    run.learner.weights = lambda: [(name, table.round(0)) for name, table in half()]
    object.__setattr__(run, "workers", lambda: _tolerant(type(run).workers(run)))
    outcome = run.go()
    assert outcome.reason.startswith("guard 'mismatch_max': ")


def _tolerant(workers: Any) -> Any:
    workers._learner._limits = ProbeLimits(floor=99, ceiling=99)
    return workers


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_full_disk_ends_the_run_with_one_message_and_a_folder_to_resume(new_run: Any) -> None:
    run = new_run()

    def full(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device", str(folder))

    run.learner.export = full
    run.plan = new_run("algorithm.kl.reference=start").plan
    with pytest.raises(RunError, match=r"save: .*No space left on device; free space"):
        run.go()
    assert run.checkpoints() == []
    assert run.again().go().kind is OutcomeKind.FINISHED


def test_learner_out_of_memory_is_told_as_such(new_run: Any) -> None:
    run = new_run()

    def too_much(*args: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    run.learner.update = too_much
    with pytest.raises(RunError, match="the learner is out of memory; resume with a smaller"):
        run.go()


def test_a_sampler_that_dies_costs_no_step_that_was_made(new_run: Any) -> None:
    from agym.runtime.protocols import SamplerError

    whole = new_run()
    whole.go()
    run = new_run()
    enough = [0]

    def look(row: Any) -> None:
        enough[0] += 1
        if enough[0] == 7:
            run.sampler.broken = SamplerError("gone")

    run.reporter.row = look
    with pytest.raises(StepRefused, match="sampler: gone; resume to start it anew"):
        run.go()
    made = run.steps()[-1]["total_step"]
    assert f"step-{made}" in run.checkpoints()
    again = run.again()
    assert again.go().kind is OutcomeKind.FINISHED
    assert again.exact() == whole.exact()
