"""Export a checkpoint as a model folder for `transformers` and vLLM, with a model card; the run folder is only read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..dsl.check.paths import anchor_paths
from ..dsl.model.model_sizes import is_folder
from ..dsl.model.plan import Plan
from .backends.hf_models import ModelSource
from .errors import RunError
from .reporting import MetricsRow
from .storage.checkpoint_files import SEAL
from .storage.model_files import check_model, start_folder
from .storage.run_folder import FolderError, fill_folder
from .storage.run_reader import RunReader, SavedStep
from .storage.summary import eval_results
from .workers.build import find_model, learner_worker

__all__ = ["export"]


def export(reader: RunReader, plan: Plan, saved: SavedStep, folder: Path, version: str) -> None:
    """Write a new folder; an existing one is refused."""
    if folder.exists() or folder.is_symlink():
        raise FolderError(f"'{folder}' already exists: choose a new folder")
    reader.check(saved, trusted=plan.model.trust_remote_code)
    try:
        with fill_folder(folder) as made:
            if saved.model is not None:
                # whoever may read the new folder may read all of it
                shutil.copytree(
                    saved.model,
                    made,
                    copy_function=shutil.copyfile,
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(SEAL),
                )
            else:
                _export_from_learner(anchor_paths(plan, reader.folder), reader, saved, made)
            (made / "README.md").write_text("\n".join(_write_card(plan, reader, saved, version)), encoding="utf-8")
    except (OSError, shutil.Error) as error:
        raise RunError(f"cannot write '{folder}' from step {saved.step} of '{reader.root}': {error}") from error


def _export_from_learner(plan: Plan, reader: RunReader, saved: SavedStep, folder: Path) -> None:
    """Export a checkpoint that holds nothing but the learner's state."""
    assert saved.checkpoint is not None, "a step that is kept has a model or a checkpoint"
    if plan.model.init is None:
        model = find_model(plan.model)
    else:
        model = ModelSource(path=str(check_model(start_folder(reader.root), unsealed=reader.is_old)))
    learner = learner_worker(plan, model).learner
    try:
        learner.load(saved.checkpoint)
        learner.export(folder)
    finally:
        learner.close()


def _write_card(plan: Plan, reader: RunReader, saved: SavedStep, version: str) -> Iterator[str]:
    base = plan.model.path if plan.model.path is not None and not is_folder(plan.model.path) else None
    yield from ("---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [agym]")
    yield from (f"base_model: {base}",) if base else ()
    yield from ("---", f"# {plan.name}", "")
    yield from (plan.description, "") if plan.description else ()
    yield f"Trained with agym {version}."
    yield from (
        "",
        "| | |",
        "|---|---|",
        f"| recipe | `{plan.name}` |",
        f"| sha256 of the recipe | `{reader.manifest.get('recipe_sha256', plan.recipe_sha256)}` |",
    )
    yield from (f"| {key} | `{value}` |" for key, value in plan.choices.items())
    yield from (f"| seed | {plan.seed} |", f"| steps | {saved.step} |")
    yield from _evaluation_table(reader.measurements(saved.step))
    yield from ("", "## Use", "", "```python", _USE, "```", "")


def _evaluation_table(rows: Sequence[MetricsRow]) -> Iterator[str]:
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name, _ in eval_results(row)))
    yield from ("", "## Success on tasks it was not trained on", "")
    yield "".join(f"| {title} " for title in ("step", *names)) + "|"
    yield "|---:|" + "---|" * len(names)
    for row in rows:
        found = dict(eval_results(row))
        yield f"| {row['total_step']} " + "".join(f"| {found.get(name, '')} " for name in names) + "|"
    yield from ("", "In brackets, bootstrap intervals over tasks.")


_USE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(tokenizer.decode(model.generate(**ids)[0]))"""
