"""`agym eval`: what it refuses, what it prints, and with real engines that its numbers are those of the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for
from agym.reporters.diagnostics.text import Style
from agym.reporters.evaluation import evaluation_table
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.storage.checkpoint_files import SEAL, read_seal, seal_files
from agym.runtime.storage.run_folder import RunFolder

from .conftest import Agym
from .engine_server import EngineServer
from .runtime.conftest import episodes_of


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("quickstart",), 2, "makes its model from scratch: name the folder of a run of it, or --model FOLDER"),
        (("smollm2/babyai", "--set", "model.lora.path=."), 2, "begins with adapters: merge them"),
        (("base/grpo-7b", "--checkpoint", "3"), 1, "missing"),
        (("a.yaml", "--checkpoint", "3"), 2, "is a recipe: --checkpoint needs the folder of a run"),
        (("a.yaml", "--turns", "4-8"), 2, "expected numbers with commas between them, as in 4,8,12, got '4-8'"),
        (("a.yaml", "--checkpoint", "best", "--model", "m"), 2, "not allowed with"),
        (("a.yaml", "-k", "3", "--temperature", "0"), 1, "at temperature 0 all samples of a task are the same"),
        (("a.yaml", "-k", "0"), 1, "must be at least 1, got 0"),
        (("a.yaml", "--temperature", "-1"), 1, "must be at least 0, got -1"),
        (("a.yaml", "--output", "a.yaml"), 2, "is there already: name a new file"),
        (("a.yaml", "--output", "far/away.json"), 2, "is not there"),
        (("a.yaml", "--output", "x", "--episodes", "./x"), 2, "--output and --episodes name the same place"),
        (("nowhere",), 1, "no file or shipped recipe 'nowhere'"),
    ],
)
def test_what_cannot_be_measured_is_told_before_anything_starts(
    agym: Agym, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "a.yaml").write_text("agym: 1\nname: mine\nextends: quickstart\n", encoding="utf-8")
    called = agym("eval", *words)
    assert (called.code, called.out) == (code, "")
    assert said in called.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml"]


def test_a_model_as_target_is_told_with_what_to_write(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text("{}")
    called = agym("eval", "mine")
    assert (called.code, called.out) == (2, "")
    assert "'mine' is a model: name a recipe, and --model mine" in called.err


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("notes.txt", "there is no config.json in it"),
        ("adapter_config.json", "these are adapters alone, to be merged into their base model"),
        ("model/config.json", "its model is the folder 'model' in it"),
    ],
)
def test_a_folder_without_a_model_is_told_with_what_it_holds(
    agym: Agym, tmp_path: Path, inside: str, said: str
) -> None:
    (tmp_path / "mine" / inside).parent.mkdir(parents=True)
    (tmp_path / "mine" / inside).write_text("{}")
    called = agym("eval", "quickstart", "--model", "mine")
    assert (called.code, called.out) == (2, "")
    assert "'mine' holds no model" in called.err
    assert said in called.err


def test_the_table_has_a_line_for_each_horizon_and_way_of_drawing() -> None:
    each = {"success": 0.5, "ci_low": 0.25, "ci_high": 0.75, "turns": 3.1, "tasks": 20.0, "faults": 1.0}
    row: dict[str, float | int | str] = {
        f"eval/web{at}/{key}": value for at in ("@4", "") for key, value in each.items()
    }
    row |= {f"eval/web/greedy_{key}": value for key, value in each.items()}
    row |= {"eval/web/env/rhyme": 0.125, "eval/web/greedy_env/rhyme": 0.5}
    row |= {"eval/web/avg@8": 0.5, "eval/web/pass@8": 0.9, "eval/web/success/deep": 0.1, "eval/success": 0.5}
    lines = evaluation_table(row, {"web": 12}, Style(width=120, colour=False)).splitlines()
    assert [line.split()[:3] for line in lines[1:-2]] == [
        ["web", "4", "20"],
        ["web", "12", "20"],
        ["deep", "0.100"],
        ["web", "greedy", "12"],
    ]
    assert lines[-2:] == ["web in 12 turns measured rhyme 0.125", "web greedy in 12 turns measured rhyme 0.500"]
    assert lines[0].split()[:6] == ["environment", "turns", "tasks", "success", "interval", "avg@8"]
    assert "0.250 to 0.750  0.500   0.900" in lines[2]


# --- with real engines ---------------------------------------------------------------------------------------------

BASE = "agym: 1\nagent: {format: plain, tokens_per_turn: 8, context_tokens: 192, prompt: prompt.txt}\n"
RECIPE = """\
agym: 1
name: small
extends: base/agent
model:
  init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, intermediate: 64, tie_embeddings: true,
         tokenizer: {kind: word, vocab: 256}}
environments:
  textcraft:
    use: textcraft
    options: {world: small, terse: true, shuffle: false, max_distractors: 1, extras: 0, max_amount: 1}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, lr: 1e-4}
schedule:
  - stage: imitate
    until: step >= 60
    algorithm: {use: sft, batch_size: 16, lr: 1e-2, optimizer: {betas: [0.9, 0.98]}, data: {limit: 960, loss_on: all}}
  - {stage: exploit, turns: 3, until: step >= 1}
eval: {every: 100, at_start: false, limit: 20, turns: [2, 4], samples: 2, greedy: true}
checkpoint: {every: 100}
"""


def called(engines: EngineServer, folder: Path, *words: str) -> str:
    done = engines.run("-m", "agym", *words, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def finished(engines: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was started elsewhere than where its recipe, and what that refers to, lies."""
    home = tmp_path_factory.mktemp("eval")
    (home / "study/base").mkdir(parents=True)
    (home / "study/base/agent.yaml").write_text(BASE)
    (home / "study/base/prompt.txt").write_text("craft it")
    (home / "study/recipe.yaml").write_text(RECIPE)
    (home / "work").mkdir()
    called(engines, home / "work", "run", "../study/recipe.yaml")
    return home / "work/runs/small"


def last_eval(root: Path) -> dict[str, Any]:
    row = json.loads((root / "metrics.jsonl").read_text().splitlines()[-1])
    return {key: value for key, value in row.items() if key.startswith("eval/")}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WITHOUT_A_LEARNER = """\
import sys
from agym.cli import main
code = main(sys.argv[1:])
assert "deepspeed" not in sys.modules
sys.exit(code)
"""


@pytest.mark.heavy
def test_the_numbers_are_those_of_the_runs_own_last_measurement(finished: Path, tmp_path: Path) -> None:
    space, before = RunFolder.resume(finished), contents(finished)
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    files = ("--output", "out.json", "--episodes", "played")
    command = [sys.executable, "-c", WITHOUT_A_LEARNER, "eval", str(finished), *files]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False)
    space.close()
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert contents(finished) == before
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["results"] == last_eval(finished)
    assert told["results"]["eval/textcraft/score"] > 0
    assert (told["step"], told["turns"]) == (61, {"textcraft": 4})
    assert (told["partial"], json.loads((tmp_path / "played/eval.json").read_text())) == (False, told)
    # the terminal shows each play's progress, and the saved episodes are those that the run saved
    assert "agym eval: textcraft, 4 turns, greedy: 20 of 20 episodes" in done.stderr
    own, saved = (episodes_of(folder) for folder in (finished, tmp_path / "played"))
    assert saved == {"step-000061-eval.jsonl": own["step-000061-eval.jsonl"]}
    (greedy,) = [each for each in told["outcomes"] if each["mode"] == "greedy"]
    assert sum(greedy["endings"].values()) == 20
    assert greedy["success"]["value"] == told["results"]["eval/textcraft/greedy_success"]


@pytest.mark.heavy
def test_a_learners_state_alone_is_exported_and_vllm_plays_the_same_with_it(
    engines: EngineServer, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    checkpoint = run / "checkpoints/step-61"
    shutil.rmtree(checkpoint / "model")
    # as a run with 'export: false' leaves it
    facts = {key: value for key, value in read_seal(checkpoint).items() if key not in ("files", "format")}
    (checkpoint / SEAL).unlink()
    seal_files(checkpoint, facts)
    refused = engines.run("-m", "agym", "eval", "run", cwd=tmp_path)
    assert refused.returncode == 3
    assert "step 61 holds only the learner's state: write its model with 'agym export run" in refused.stderr
    assert called(engines, tmp_path, "export", "run", "model") == "wrote step 61 to model\n"
    called(engines, tmp_path, "eval", "run", "--model", "model", "--output", "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["results"], told["step"]) == (last_eval(finished), None)


@pytest.mark.heavy
def test_the_first_signal_ends_it_and_what_was_played_is_called_partial(finished: Path, tmp_path: Path) -> None:
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    words = ("eval", str(finished), "--samples", "400", "--output", "out.json", "--episodes", "played")
    process = subprocess.Popen(
        [sys.executable, "-m", "agym", *words],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any("of 8000 episodes" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert "unfinished, what follows is partial" in err
    assert "Traceback" not in err
    told = json.loads((tmp_path / "out.json").read_text())
    (play,) = told["outcomes"]
    assert (told["partial"], told["results"]) == (True, {})
    assert len(episodes_of(tmp_path / "played")["step-000061-eval.jsonl"]) == sum(play["endings"].values()) > 0
    assert "textcraft" in out


@pytest.mark.heavy
def test_flags_say_how_much_is_played(engines: EngineServer, finished: Path, tmp_path: Path) -> None:
    flags = ("--turns", "1,3", "--limit", "2", "--temperature", "0")
    table = called(engines, tmp_path, "eval", str(finished), *flags, "--output", "out.json")
    numbers, outcomes = table.split("\n\n")
    for part in (numbers, outcomes):
        lines = [line.replace("textcraft greedy", "textcraft") for line in part.splitlines()]
        assert [line.split()[:3] for line in lines if "textcraft" in line] == [
            ["textcraft", "1", "2"],
            ["textcraft", "3", "2"],
        ]
    assert "invalid" in outcomes
    assert "truncated" in outcomes
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["eval"]["samples"], told["eval"]["greedy"], told["turns"]) == (1, False, {"textcraft": 3})
