"""A checkpoint as a folder for others: `transformers` and vLLM load it as they would any other model.

Enters: a run folder, which is only read, and what it keeps of a step. Leaves: the folder, whole or not there, with a
card that says where the weights come from and how they were measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..dsl.check.paths import anchored
from ..dsl.model.model_sizes import is_folder
from ..dsl.model.plan import Plan, Role
from .backends.hf_models import ModelSource
from .errors import RunError
from .reporting import MetricsRow
from .storage.run_folder import MODEL, FolderError, fill_folder
from .storage.run_reader import RunReader, SavedStep
from .storage.summary import eval_results
from .workers.build import find_model, learner_worker

__all__ = ["export"]


def export(archive: RunReader, plan: Plan, kept: SavedStep, folder: Path, version: str) -> None:
    """Fill a new folder; one that is there is refused."""
    if folder.exists() or folder.is_symlink():
        raise FolderError(f"'{folder}' is there already: name a new folder")
    try:
        with fill_folder(folder) as made:
            if kept.model is not None:
                # whoever may read the new folder may read all of it
                shutil.copytree(kept.model, made, copy_function=shutil.copyfile, dirs_exist_ok=True)
            else:
                _by_learner(anchored(plan, archive.folder), archive.root, kept, made)
            (made / "README.md").write_text("\n".join(_card(plan, archive, kept, version)), encoding="utf-8")
    except (OSError, shutil.Error) as error:
        raise RunError(f"'{folder}' could not be written from step {kept.step} of '{archive.root}': {error}") from error


def _by_learner(plan: Plan, root: Path, kept: SavedStep, folder: Path) -> None:
    """Of a checkpoint that holds nothing but the learner's state."""
    assert kept.checkpoint is not None, "a step that is kept has a model or a checkpoint"
    ranks = sum(worker.role is Role.LEARNER for worker in plan.placement.workers)
    if ranks > 1:
        raise RunError(
            f"step {kept.step} holds the states of {ranks} learners and no model: resume the run with "
            "'checkpoint.export: true', and export what it saves then"
        )
    model = find_model(plan.model) if plan.model.init is None else ModelSource(path=str(root / MODEL))
    learner = learner_worker(plan, model).learner
    try:
        learner.load(kept.checkpoint)
        learner.export(folder)
    finally:
        learner.close()


# --- the card ------------------------------------------------------------------------------------------------------


def _card(plan: Plan, archive: RunReader, kept: SavedStep, version: str) -> Iterator[str]:
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
        f"| sha256 of the recipe | `{archive.manifest.get('recipe_sha256', plan.recipe_sha256)}` |",
    )
    yield from (f"| {key} | `{value}` |" for key, value in plan.choices.items())
    yield from (f"| seed | {plan.seed} |", f"| steps | {kept.step} |")
    yield from _measured(archive.measurements(kept.step))
    yield from ("", "## Use", "", "```python", _USE, "```", "")


def _measured(rows: Sequence[MetricsRow]) -> Iterator[str]:
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
