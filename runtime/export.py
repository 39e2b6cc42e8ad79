"""Export a checkpoint as a model folder for `transformers` and vLLM, with a model card; the run folder is only read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from ..dsl.check.paths import anchor_paths
from ..dsl.model.model_sizes import is_folder
from ..dsl.model.plan import Plan
from .backends.hf_models import ModelSource
from .errors import RunError
from .pretrained.catalog import list_pretrained
from .reporting import MetricsRow
from .storage.checkpoint_files import SEAL
from .storage.episode_reader import EPISODES, DamagedEpisode, episode_files, read_chunks
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
                # a user who may read the new folder may read all of it
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
    known = list_pretrained().get(plan.model.path or "")
    base = known.base_model if known else plan.model.path
    yield from ("---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [agym]")
    yield from (f"base_model: {base}", "base_model_relation: finetune") if base and not is_folder(base) else ()
    yield from (f"license: {known.licence}",) if known else ()
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
    if plan.model.revision:
        yield f"| revision of the base model | `{plan.model.revision}` |"
    if known:
        yield f"| weights before training | {known.title}, of `{known.package}=={known.version}` |"
    yield from _describe_agent(plan, reader)
    yield from _evaluation_table(reader.measurements(saved.step))
    yield from ("", "## Use", "", "```python", _USE, "```", "")


def _describe_agent(plan: Plan, reader: RunReader) -> Iterator[str]:
    """What the model was trained to read and to write; its prompt as an episode of the run has it, if one is kept."""
    stage = plan.stages[-1].settings
    names = ", ".join(f"`{each.use or each.url}`" for each in stage.environments.values())
    yield from (f"| environments | {names} |", f"| reply format | `{stage.agent.format}` |")
    yield f"| tokens per reply, and of context | {stage.agent.tokens_per_turn}, {stage.agent.context_tokens} |"
    prompts = _read_prompts(reader, {*stage.environments})
    for name, prompt in prompts.items():
        title = "System prompt" if len(prompts) == 1 else f"System prompt in {name}"
        yield from ("", f"## {title}", "", _FENCE, prompt.replace(_FENCE, ""), _FENCE)


_FENCE = "`````"


def _read_prompts(reader: RunReader, environments: Set[str]) -> Mapping[str, str]:
    """The system prompts of the run's newest episodes that are kept, by environment."""
    found: dict[str, str] = {}
    for line in _newest_lines(reader.root / EPISODES):
        try:
            episode = json.loads(line)
            name = str(episode["task"]["environment"])
            prompts = (str(each["content"]) for each in episode["opening"] if each["role"] == "system")
            if name in environments and name not in found and (prompt := next(prompts, "")):
                found[name] = prompt
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if len(found) == len(environments):
            break
    return dict(sorted(found.items()))


def _newest_lines(folder: Path) -> Iterator[bytes]:
    for file in reversed(episode_files(folder)):
        with suppress(DamagedEpisode):
            for chunk in read_chunks(file):
                yield from chunk.data.splitlines()


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
