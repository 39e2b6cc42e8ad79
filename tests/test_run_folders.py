"""A run folder from anywhere: damage is named, and code in it never runs, in `run`, `eval`, `export` and `doctor`."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers  # noqa: F401 - a model is made
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.hf_models import make_model, make_tokenizer
from agym.runtime.progress import Progress
from agym.runtime.storage.checkpoint_files import seal_files
from agym.runtime.storage.run_folder import RunFolder

from .conftest import Agym

RUN = "runs/quickstart"
COMMANDS = (
    ("run", "quickstart", "--resume"),
    ("run", RUN, "--resume"),
    ("eval", RUN),
    ("export", RUN, "out"),
    ("doctor", RUN),
)
GARBAGE = (b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": "x", "choices": 3}', b"9" * 5000)


class Gadget:
    """A pickle that leaves a mark where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._mark),)


@pytest.fixture(autouse=True)
def no_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before an engine starts, for which the process would start again."""
    monkeypatch.setenv("AGYM_STARTED_AGAIN", str(os.getpid()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    words = make_tokenizer(TokenizerInit(vocab=300), ["craft 1 plank"])
    make_model(Init(layers=1, hidden=32, heads=1), words, 0, folder)
    return folder


@pytest.fixture
def run(agym: Agym, tmp_path: Path, made: Path) -> Path:
    """The folder of a run that was saved at step 4."""
    plan = agym("plan", "quickstart", "--format", "json").out
    root = tmp_path / RUN
    root.parent.mkdir()
    space = RunFolder.start(root, plan, agym("show", "quickstart").out, {"recipe_folder": str(tmp_path)})
    (root / "metrics.jsonl").write_text('{"total_step": 4, "stage": "exploit"}\n')
    with space.checkpoint(4) as folder:
        (folder / "progress.json").write_text(Progress(total_step=4, stage=1, step=4).to_json())
        shutil.copytree(made, folder / "model")
        (folder / "learner").mkdir()
        (folder / "learner/state.json").write_text("{}")
    space.close()
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reseal(run: Path) -> None:
    """As a stranger would, who can compute a checksum."""
    model = run / "checkpoints/step-4/model"
    seal_files(model, {"step": 4})
    seal_files(model.parent, {"step": 4})


# --- damage --------------------------------------------------------------------------------------------------------


def test_doctor_lists_the_parts_of_a_sound_folder_and_changes_nothing(agym: Agym, run: Path) -> None:
    before = contents(run)
    called = agym("doctor", RUN)
    assert called.code == 0, called.out
    assert called.out.splitlines()[-1] == "nothing is damaged"
    assert "checkpoints/step-4  sound" in called.out
    assert contents(run) == before


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("name", ["manifest.json", "recipe.yaml"])
def test_a_description_that_is_garbage_is_named_by_every_command(
    agym: Agym, run: Path, name: str, content: bytes
) -> None:
    (run / name).write_bytes(content)
    for words in COMMANDS:
        called = agym(*words)
        assert called.code == 3, (words, called.err)
        assert name in called.err + called.out


@pytest.mark.parametrize("content", [*GARBAGE, None])
@pytest.mark.parametrize("name", ["progress.json", "checkpoint.json", "model/config.json", "model/model.safetensors"])
def test_a_damaged_checkpoint_is_named_by_what_reads_it(
    agym: Agym, run: Path, name: str, content: bytes | None
) -> None:
    file = run / "checkpoints/step-4" / name
    file.unlink() if content is None else file.write_bytes(content)
    for words in COMMANDS[2:]:
        called = agym(*words)
        assert called.code == 3, (words, called.err)
        assert name.rpartition("/")[2] in called.err + called.out
    assert not (run.parents[1] / "out").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", b'{"total_step": 1}\nno\n{"total_step": 2}\n'),
        ("metrics.jsonl", b"\x00\xff\n"),
        ("plan.json", b"{"),
        ("episodes/step-000004.jsonl", b"{\n"),
        ("judge.jsonl", b"\xff\n"),
    ],
)
def test_doctor_names_other_files_that_are_damaged(agym: Agym, run: Path, name: str, content: bytes) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(
        json.dumps(manifest | {"plan_sha256": "0" * 64 if name == "plan.json" else None})
    )
    (run / name).write_bytes(content)
    called = agym("doctor", RUN)
    assert (called.code, called.out.splitlines()[-1]) == (3, f"damaged: {name}")


def test_doctor_says_of_another_folder_that_it_holds_no_run(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert "holds no run" in agym("doctor", "photos").err


def test_a_folder_of_a_newer_version_is_refused(agym: Agym, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"format": 3}))
    for words in COMMANDS:
        called = agym(*words)
        assert (called.code, "use a newer agym" in called.err + called.out) == (3, True)


# --- code in a folder ----------------------------------------------------------------------------------------------


def plant_pickle(name: str) -> Callable[[Path, Path], None]:
    def plant(run: Path, mark: Path) -> None:
        file = run / "checkpoints/step-4" / name
        file.unlink(missing_ok=True)
        file.write_bytes(pickle.dumps(Gadget(mark)))

    return plant


def plant_auto_map(run: Path, mark: Path) -> None:
    model = run / "checkpoints/step-4/model"
    config = json.loads((model / "config.json").read_text())
    names = {"AutoConfig": "modeling_x.X", "AutoModelForCausalLM": "modeling_x.X"}
    (model / "config.json").write_text(json.dumps(config | {"auto_map": names, "model_type": "x"}))
    (model / "modeling_x.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")


def plant_code_alone(run: Path, mark: Path) -> None:
    (run / "checkpoints/step-4/model/modeling_x.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")


def plant_link(run: Path, mark: Path) -> None:
    (run.parent / "secret").write_text("secret")
    (run / "checkpoints/step-4/model/notes.txt").symlink_to(run.parent / "secret")


def plant_path(name: str) -> Callable[[Path, Path], None]:
    def plant(run: Path, mark: Path) -> None:
        folder = run / "checkpoints/step-4"
        (run.parent / "secret").write_text("secret")
        path = name.replace("ABSOLUTE", str(run.parent))
        seal_files(folder, {"step": 4}, {path: {"bytes": 6, "sha256": "0" * 64}})

    return plant


def plant_header(header: bytes, length: int) -> Callable[[Path, Path], None]:
    def plant(run: Path, mark: Path) -> None:
        (run / "checkpoints/step-4/model/model.safetensors").write_bytes(length.to_bytes(8, "little") + header)

    return plant


HUGE = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
REFUSED: dict[str, Callable[[Path, Path], None]] = {
    "pickle instead of the weights": plant_pickle("model/model.safetensors"),
    "pickle next to the weights": plant_pickle("model/pytorch_model.bin"),
    "pickle of the tokenizer": plant_pickle("model/vocab.pkl"),
    "pickle as JSON": plant_pickle("model/tokenizer.json"),
    "auto_map": plant_auto_map,
    "code alone": plant_code_alone,
    "link out of the folder": plant_link,
    "path with dots": plant_path("../../../secret"),
    "absolute path": plant_path("ABSOLUTE/secret"),
    "header of 8 exabytes": plant_header(b"{}", 2**63 - 1),
    "tensor of 4 terabytes": plant_header(HUGE, len(HUGE)),
    "header that is no map": plant_header(b"[[]]", 4),
}


@pytest.mark.parametrize("plant", [pytest.param(plant, id=name) for name, plant in REFUSED.items()])
def test_code_and_lies_in_a_folder_are_refused_by_name_and_nothing_of_them_runs(
    agym: Agym, run: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    mark = tmp_path / "mark"
    plant(run, mark)
    if "secret" not in (run / "checkpoints/step-4/checkpoint.json").read_text():
        reseal(run)
    for words in (("eval", RUN), ("export", RUN, "out")):
        called = agym(*words)
        assert called.code == 3, called.err
        assert "step-4" in called.err
    assert not mark.exists()
    assert not (tmp_path / "out").exists()


def test_a_pickle_as_progress_is_read_by_eval_as_what_it_is_and_by_export_not_at_all(
    agym: Agym, run: Path, tmp_path: Path
) -> None:
    plant_pickle("progress.json")(run, tmp_path / "mark")
    reseal(run)
    called = agym("eval", RUN)
    assert (called.code, "progress.json' is damaged" in called.err) == (3, True)
    assert agym("export", RUN, "out").code == 0
    assert not (tmp_path / "mark").exists()


STORED = """
agym: 1
name: quickstart
model: {path: Qwen/Qwen2.5-0.5B-Instruct}
environments: {textcraft: {use: textcraft}}
agent: {tokens_per_turn: 8, context_tokens: 512}
schedule: [{stage: one, turns: 2, until: step >= 2}]
"""


def write_environment(folder: Path, code: str) -> None:
    folder.mkdir()
    (folder / "env.py").write_text(code)
    data = {"version": 1, "name": "stranger", "summary": "runs code", "splits": {"train": 1, "test": 1}, "options": {}}
    (folder / "env.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-Instruct}", "-Instruct, trust_remote_code: true}"),
        ("use: textcraft}", "use: mcp, options: {command: [touch, mark]}}"),
        ("use: textcraft}", "use: gymnasium, options: {id: 'stranger:Env-v0'}}"),
        ("use: textcraft}", "use: ./stranger}"),
        ("use: textcraft}", "use: PLACE/stranger}"),
        ("agent: {", "agent: {harness: {command: [touch, mark]}, "),
    ],
)
def test_what_runs_code_in_a_stored_recipe_counts_only_where_it_is_repeated(
    agym: Agym, run: Path, tmp_path: Path, before: str, after: str
) -> None:
    write_environment(tmp_path / "stranger", f"open({str(tmp_path / 'mark')!r}, 'x')")
    recipe = STORED.replace(before, after).replace("PLACE", str(tmp_path))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "recipe.yaml").write_text(recipe)
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest | {"stored_recipe_sha256": digest}))
    for words in (("eval", RUN), ("run", RUN, "--resume")):
        called = agym(*words)
        assert called.code == 3, called.err
        assert "runs code, and counts only where the command line repeats it: add --set " in called.err
    assert not (tmp_path / "mark").exists()
