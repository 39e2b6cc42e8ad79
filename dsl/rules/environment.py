"""Rules about environments: registration, tasks, options, and overlap of training and evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..catalog import EnvironmentInfo
from ..check.json_schema import check_schema
from ..diagnostics import Diagnostic
from ..model.algorithm import DataSource
from ..model.known_values import is_zero
from ..model.model_sizes import is_folder
from ..model.recipe import Dialect, Environment, Launcher, Recipe, TaskSelection
from ..model.stage_kinds import is_offline, is_played
from ..planning.placement import choose_launcher
from ..source import Span, Text
from ..suggest import did_you_mean, find_nearest, quote
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode
from .context import Case, Rule
from .names import no_environment, no_split

__all__ = ["ENVIRONMENT_RULES", "option_errors"]


def at_least_one(case: Case) -> Iterator[Diagnostic]:
    if not case.recipe.environments:
        message = "expected at least one environment"
        yield case.missing(message, ("environments",), hint="write 'environments: {textcraft: {use: textcraft}}'")
        return
    for base, stage in case.stages():
        if not stage.environments:
            yield case.error(
                "bad-value",
                "this stage has no environment left",
                (*base, "environments"),
                hint="remove one of the nulls, or the stage",
            )


def environment_has_one_origin(case: Case) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        if environment.use is None and environment.url is None and (near := _meant(case, str(path[-1]))):
            message = f"no environment {quote(str(path[-1]))} in this recipe"
            span = case.places.key(*path)
            yield Diagnostic(code="unknown-environment", message=message, span=span, help=f"did you mean '{near}'?")
        elif environment.use is None and environment.url is None:
            hint = "'use' names a registered environment, 'url' a server that is already running"
            yield case.missing(f"environment '{path[-1]}' needs 'use' or 'url'", path, hint=hint)
        if environment.use is not None and environment.url is not None:
            message = "'use' starts a server and 'url' names one that is already running: give only one of them"
            yield case.error(
                "conflict",
                message,
                (*path, "url"),
                hint="remove one of them",
                notes=(case.note("'use' is here", (*path, "use")),),
            )


def _meant(case: Case, name: str) -> str | None:
    """The environment of the recipe that a stage, a setting or a matrix misspells."""
    return find_nearest(
        name, (each for each, it in case.recipe.environments.items() if each != name and (it.use or it.url))
    )


def registered(case: Case) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        use = environment.use
        if use is not None and not is_folder(use) and use not in case.catalog.environments:
            yield no_environment(use, case.places.value(*path, "use"), case.catalog)


def kind_given(case: Case) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        if environment.url is not None and environment.dialect is Dialect.AGENTGYM and environment.kind is None:
            message = "'dialect: agentgym' needs 'kind': each kind replies differently"
            yield case.missing(message, path, hint="for example 'kind: babyai'")


# --- options -------------------------------------------------------------------------------------------------------


def options_are_known(case: Case) -> Iterator[Diagnostic]:
    for path, environment, info in _registered(case):
        for name in environment.options:
            if name not in info.options:
                message = f"environment '{info.name}' has no option {quote(name)}"
                span = case.places.key(*path, "options", name)
                advice = did_you_mean(name, info.options)
                yield Diagnostic(code="unknown-option", message=message, span=span, help=advice)


def required_options_are_given(case: Case) -> Iterator[Diagnostic]:
    for path, environment, info in _registered(case):
        for name in info.required:
            if name not in environment.options:
                message = f"environment '{info.name}' needs the option '{name}'"
                hint = f"{name}: {info.options[name]['description']}"
                yield case.missing(message, (*path, *(("options",) if environment.options else ())), hint=hint)


def options_are_valid(case: Case) -> Iterator[Diagnostic]:
    for path, environment, info in _registered(case):
        for name, value in environment.options.items():
            if name in info.options:
                for found in option_errors(case, (*path, "options", name), value, info.options[name]):
                    yield replace(found, help=found.help or f"'agym envs list {info.name}' shows what it takes")


def option_errors(case: Case, path: Path, value: Any, schema: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """What is wrong with the value of an option by its JSON Schema."""
    if _clearly_right(value, schema):
        return
    tree = _node(case, {path[-1]: value}, path[:-1])
    for found in check_schema(tree, {"type": "object", "properties": {path[-1]: schema}}):
        yield replace(found, code="bad-option", message=f"option '{path[-1]}': {found.message}")


def _node(case: Case, value: Any, path: Path) -> Node:
    """Rebuild the node of an option value from the bound recipe."""
    span = case.places.value(*path)
    if isinstance(value, Mapping):
        keys = [_scalar(name, case.places.key(*path, name)) for name in value]
        values = [_node(case, each, (*path, name)) for name, each in value.items()]
        return MapNode(entries=tuple(Entry(key=k, value=v) for k, v in zip(keys, values, strict=True)), span=span)
    if isinstance(value, tuple | list):
        return ListNode(items=tuple(_node(case, each, (*path, i)) for i, each in enumerate(value)), span=span)
    return _scalar(value, span)


def _scalar(value: Any, span: Span) -> ScalarNode:
    text = value if isinstance(value, str) else json.dumps(value)
    return ScalarNode(value=value, text=Text.made(text, span), span=span)


def _clearly_right(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a simple schema accepts the value, without loading jsonschema."""
    keywords = {word: schema[word] for word in schema if word not in _ANNOTATIONS}
    if keywords.keys() == {"enum"}:
        return isinstance(value, str) and value in keywords["enum"]
    kind = keywords.pop("type", None)
    if not isinstance(kind, str) or type(value) not in _KINDS.get(kind, ()):
        return False
    low, high = keywords.pop("minimum", value), keywords.pop("maximum", value)
    return not keywords and bool(low <= value <= high)


_ANNOTATIONS = ("description", "default", "examples", "format")
_KINDS: Mapping[str, tuple[type, ...]] = {"boolean": (bool,), "integer": (int,), "number": (int, float)}


# --- tasks ---------------------------------------------------------------------------------------------------------


def selections_whole(case: Case) -> Iterator[Diagnostic]:
    for path, selection, _ in _selections(case):
        ways = [key for key in ("split", "ids", "file") if getattr(selection, key) is not None]
        if not ways:
            yield case.missing(
                "expected a selection of tasks: 'split', 'ids' or 'file'",
                path,
                hint="write 'split: train', for example",
            )
        for extra in ways[1:]:
            yield case.error(
                "conflict",
                f"'{ways[0]}' and '{extra}' both select the tasks: give only one of them",
                (*path, extra),
                hint=f"remove '{ways[0]}' or '{extra}'",
            )
        if selection.ids is not None and not selection.ids:
            yield case.error(
                "bad-value", "expected at least one task", (*path, "ids"), hint="write some ids, or 'split' instead"
            )


def splits_known(case: Case) -> Iterator[Diagnostic]:
    for path, selection, info in _selections(case):
        if info is not None and info.splits and selection.split is not None and selection.split not in info.splits:
            yield no_split(selection.split, case.places.value(*path, "split"), info)


def eval_split_known(case: Case) -> Iterator[Diagnostic]:
    evaluated = case.recipe.eval.tasks if case.recipe.eval else None
    for _, _, info in _registered(case):
        if info.splits and evaluated is not None and evaluated not in info.splits:
            yield no_split(evaluated, case.places.value("eval", "tasks"), info)


def ranges_fit(case: Case) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        for part, selection in (("train", environment.tasks.train), ("eval", environment.tasks.eval)):
            if selection.range is None:
                continue
            first, end = selection.range
            at = (*path, "tasks", part, "range")
            size = _count_tasks(case, environment, selection)
            if first >= end:
                yield case.error(
                    "bad-range",
                    f"the range must start below its end ({end}), got {first}",
                    at,
                    hint=f"write [{end}, {first}]" if first > end else f"write [0, {max(end, 1)}]",
                )
            elif size is not None and end > size:
                which = f"split '{selection.split}'" if selection.split else "the list of ids"
                message = f"the range ends at {end}, but {which} has {size} tasks"
                yield case.error("bad-range", message, at, hint=f"write [{min(first, size - 1)}, {size}]")


def _count_tasks(case: Case, environment: Environment, selection: TaskSelection) -> int | None:
    if selection.split is None:
        return len(selection.ids) if selection.ids else None
    return case.catalog.count_split(environment.use, selection.split, environment.options)


def not_evaluated_on_training_tasks(case: Case) -> Iterator[Diagnostic]:
    """Refuse an overlap of splits or ids; the contents of files are checked when the run starts."""
    evaluation = case.recipe.eval
    if evaluation is None:
        return
    for path, environment in case.environments():
        train, evaluated = environment.tasks.train, environment.tasks.eval
        if evaluation.tasks is not None:
            if evaluation.tasks == train.split and train.range is None:
                yield _on_train(case, f"split '{train.split}'", (*path, "tasks", "train"), ("eval", "tasks"))
        elif overlap := _overlap(train, evaluated):
            yield _on_train(case, overlap, (*path, "tasks", "train"), (*path, "tasks", "eval"))


def _on_train(case: Case, what: str, train: Path, evaluated: Path) -> Diagnostic:
    message = f"{what} is used for both training and evaluation"
    hint = "evaluate on another split, or give each its own 'range'"
    notes = (case.note("used for training here", train),)
    return case.error("eval-on-train", message, evaluated, hint=hint, notes=notes)


def _overlap(train: TaskSelection, evaluated: TaskSelection) -> str | None:
    both = set(train.ids or ()) & set(evaluated.ids or ())
    if both:
        return f"task {quote(min(both))}"
    if train.file is not None and train.file == evaluated.file:
        return f"file {quote(train.file)}"
    if train.split is None or train.split != evaluated.split:
        return None
    if train.range is not None and evaluated.range is not None and not _ranges_overlap(train.range, evaluated.range):
        return None
    return f"split {quote(train.split)}"


def _ranges_overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


# --- the mixture ---------------------------------------------------------------------------------------------------


def some_weight(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.environments and all(is_zero(each.weight) for each in stage.environments.values()):
            at = (*base, "environments", next(iter(stage.environments)), "weight")
            yield case.error(
                "bad-value",
                "every environment has weight 0: at least one must be above 0",
                at,
                hint="write 'weight: 1.0'",
            )


def experts_exist(case: Case) -> Iterator[Diagnostic]:
    """External servers have no scripted solutions."""
    for base, stage in case.stages():
        expert = is_offline(stage.algorithm) and stage.algorithm.data.source is DataSource.EXPERT
        for name, environment in stage.environments.items():
            if environment.url is None or environment.dialect is Dialect.NATIVE:
                continue
            if expert:
                yield _no_expert(case, name, (*base, "algorithm", "data", "source"))
            if stage.agent.demonstrations:
                yield _no_expert(case, name, (*base, "agent", "demonstrations"))


def noise_can_be_followed(case: Case) -> Iterator[Diagnostic]:
    """After a random action, only an expert that can advise from anywhere goes on."""
    for base, stage in case.stages():
        algorithm = stage.algorithm
        if not (is_offline(algorithm) and algorithm.data.source is DataSource.EXPERT and algorithm.data.noise > 0):
            continue
        for name, environment in stage.environments.items():
            info = case.catalog.environments.get(environment.use or "")
            if info is not None and info.fixed_solutions:
                yield case.error(
                    "no-expert",
                    f"environment '{name}' has solutions only from the start of a task, not from where a random "
                    "action led",
                    (*base, "algorithm", "data", "noise"),
                    hint="write 'noise: 0'",
                )


def _no_expert(case: Case, name: str, path: Path) -> Diagnostic:
    return case.error(
        "no-expert",
        f"environment '{name}' is an external server without scripted solutions",
        path,
        hint="write 'source: file' with a 'path', or 'source: rollout'" if path[-1] == "source" else "write 0",
    )


def _registered(case: Case) -> Iterator[tuple[Path, Environment, EnvironmentInfo]]:
    for path, environment in case.environments():
        info = case.catalog.environments.get(environment.use or "")
        if info is not None:
            yield path, environment, info


def _selections(case: Case) -> Iterator[tuple[Path, TaskSelection, EnvironmentInfo | None]]:
    for path, environment in case.environments():
        info = case.catalog.environments.get(environment.use or "")
        yield (*path, "tasks", "train"), environment.tasks.train, info
        yield (*path, "tasks", "eval"), environment.tasks.eval, info


# --- other seats ---------------------------------------------------------------------------------------------------


def seats_can_be_played(case: Case) -> Iterator[Diagnostic]:
    """Refuse seats that no model of the run can play, before anything is trained."""
    for base, stage in case.stages():
        for name, environment in stage.environments.items():
            info = case.catalog.environments.get(environment.use or "")
            models = info.seat_models(environment.options) if info is not None else ()
            if info is None or info.seats is None or not models:
                continue
            trains = not is_zero(environment.weight)
            plays = case.recipe.eval is not None or (trains and is_played(stage.algorithm))
            shows = trains and is_offline(stage.algorithm) and stage.algorithm.data.source is DataSource.EXPERT
            wrong = None
            if stage.agent.harness is not None and (plays or shows):
                wrong = f"'{models[0]}' plays in the form of our own agent, which this stage's 'agent.harness' replaces"
            elif "earlier" in models and plays:
                wrong = _why_not_earlier(case.recipe)
            if wrong is not None:
                path = (*base, "environments", name, "options", info.seats.option)
                yield case.error("conflict", wrong, path, _SERVE.format(info.seats.option))


def _why_not_earlier(recipe: Recipe) -> str | None:
    if not recipe.checkpoint.export:
        return "'earlier' plays by the models in checkpoints, which need 'checkpoint.export: true'"
    if recipe.hardware.gpus_per_node:
        return f"'earlier' plays only on a CPU, and 'hardware.gpus_per_node' is {recipe.hardware.gpus_per_node}"
    if choose_launcher(recipe.hardware) is Launcher.RAY:
        return "'earlier' plays only in a run without Ray, under 'hardware.launcher: inline'"
    return None


_SERVE = "serve a checkpoint by 'agym serve', and write '{}: {{url: ..., model: ...}}'"


ENVIRONMENT_RULES: tuple[Rule, ...] = (
    at_least_one,
    environment_has_one_origin,
    registered,
    kind_given,
    options_are_known,
    required_options_are_given,
    options_are_valid,
    selections_whole,
    splits_known,
    eval_split_known,
    ranges_fit,
    not_evaluated_on_training_tasks,
    some_weight,
    experts_exist,
    noise_can_be_followed,
    seats_can_be_played,
)
