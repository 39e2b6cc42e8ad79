"""A tree to a Recipe: what holds where, what is refused, where each value came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from agym.dsl.catalog import Catalog
from agym.dsl.check.bind import Bound, bind
from agym.dsl.check.json_schema import check_schema
from agym.dsl.codes import CODES
from agym.dsl.compile import compile_recipe
from agym.dsl.compose.compose import compose
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Aggregation, Baseline, DataSource, Preset
from agym.dsl.model.recipe import Format, MemoryKind, Recipe
from agym.dsl.model.reflect import record
from agym.dsl.publish.resolved import resolve_recipe, to_plain
from agym.dsl.source import Source
from agym.dsl.text.node import MapNode
from agym.dsl.text.tree import parse_tree
from agym.runtime.sinks.registry import SINKS
from agym.schemas import recipe_v1
from hypothesis import given, settings
from hypothesis import strategies as st

from ..memory_library import MemoryLibrary

CATALOG = Catalog(sinks=SINKS)
TOP = """agym: 1
name: craft
model: some/model
environments: {craft: textcraft}
"""
ONE = "schedule: [{stage: only, turns: 3, until: step >= 9}]\n"


def bound(text: str) -> Bound:
    root = parse_tree(Source("recipe.yaml", text)).root
    assert isinstance(root, MapNode)
    return bind(root)


def recipe(extra: str = "", schedule: str = ONE, top: str = TOP) -> Recipe:
    made = bound(top + schedule + extra)
    assert made.recipe is not None, (made.diagnostics, made.rejected)
    return made.recipe


def only(extra: str, schedule: str = ONE, top: str = TOP) -> Diagnostic:
    made = bound(top + schedule + extra)
    assert made.recipe is None
    assert len(made.diagnostics) == 1, made.diagnostics
    assert made.diagnostics[0].code in CODES
    return made.diagnostics[0]


# --- values --------------------------------------------------------------------------------------------------------


def test_what_is_not_written_is_the_default_of_the_class() -> None:
    made = recipe()
    assert made.agent.format is Format.REACT
    assert made.seed == 0
    assert made.eval is not None
    assert made.model.path == "some/model"


@pytest.mark.parametrize(
    ("extra", "path", "value"),
    [
        ("seed: 7", "seed", 7),
        ("seed: 7.0", "seed", 7),
        ("seed: '2 * 4'", "seed", 8),
        ("tags: a", "tags", ("a",)),
        ("tags: [a, b]", "tags", ("a", "b")),
        ("eval: null", "eval", None),
        ("eval: {turns: 5}", "eval.turns", (5,)),
        ("checkpoint: 10", "checkpoint.every", 10),
        ("agent: {memory: window}", "agent.memory.kind", MemoryKind.WINDOW),
        ("agent: {planning: {}}", "agent.planning.tokens", 256),
        ("algorithm: {lr: 1}", "algorithm.lr", 1.0),
        ("algorithm: {lr: '1e-6 / 2'}", "algorithm.lr", 5e-7),
        ("algorithm: {lr: 'cosine(1e-6, 1e-7, 300)'}", "algorithm.lr", Expr("cosine(1e-6, 1e-7, 300)")),
        ("algorithm: {optimizer: {betas: [0, 0.9]}}", "algorithm.optimizer.betas", (0.0, 0.9)),
        ("algorithm: {critic: {clip: null}, use: ppo}", "algorithm.critic.clip", None),
        ("algorithm: {filter: true}", "algorithm.filter.groups", Expr("true")),
        ("reward: 1", "reward.episode", Expr("1")),
        ("reward: score - 0.1 * turns", "reward.episode", Expr("score - 0.1 * turns")),
        ("logging: wandb", "logging.0.use", "wandb"),
        ("logging: [{use: wandb, options: {a: [1, {b: 2}]}}]", "logging.0.options", {"a": (1, {"b": 2})}),
    ],
)
def test_a_value_is_read_by_the_type_of_its_key(extra: str, path: str, value: object) -> None:
    found: Any = recipe(extra)
    for step in path.split("."):
        found = found[int(step)] if step.isdecimal() else getattr(found, step)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("extra", "code", "token"),
    [
        ("seed: nine", "expr-name", "nine"),
        ("seed: step", "not-constant", "step"),
        ("seed: '5 / 2'", "expr-type", "5 / 2"),
        ("seed: '1 - 2'", "out-of-range", "'1 - 2'"),
        ("algorithm: {lr: 'cosine(1e-6, 1e-7, stepp)'}", "expr-name", "stepp"),
        ("algorithm: {lr: '0 * step'}", "out-of-range", "'0 * step'"),
        ("algorithm: {lr: 'step >= 3'}", "expr-type", "step >= 3"),
        ("reward: {turn: turn_rewrd}", "expr-name", "turn_rewrd"),
        ("algorithm: {filter: {groups: std}}", "expr-type", "std"),
    ],
)
def test_an_expression_is_reported_at_its_own_characters(extra: str, code: str, token: str) -> None:
    report = only(extra)
    assert (report.code, report.span.text) == (code, token)


def test_an_until_must_be_a_condition() -> None:
    report = only("", "schedule: [{stage: only, turns: 3, until: 100}]\n")
    assert (report.code, report.span.text) == ("expr-type", "100")


def test_a_warning_does_not_cost_the_recipe() -> None:
    made = bound(TOP + "schedule: [{stage: only, turns: 3, until: step >= 9 or success > 2}]\n")
    assert made.recipe is not None
    assert [each.severity for each in made.diagnostics] == ["warning"]


def test_a_mistake_that_all_stages_inherit_is_reported_once() -> None:
    two = "schedule: [{stage: a, turns: 3}, {stage: b, turns: 3}]\n"
    assert only("agent: {tokens_per_turn: nothing}", two).span.text == "nothing"


def test_what_the_schema_sees_too_is_kept_apart() -> None:
    made = bound(TOP + ONE + "agent: 3\nalgorithm: {use: gppo, lr: 0}\neval: {every: []}\nnonsense: 1\n")
    assert made.recipe is None
    assert made.diagnostics == ()
    assert {each.code for each in made.rejected} == {"wrong-type", "bad-value", "out-of-range", "unknown-key"}


def test_a_text_that_was_escaped_is_told_that_it_is_no_boolean() -> None:
    source = Source("recipe.yaml", TOP + ONE + "checkpoint: {export: '$${x}'}")
    composed = compose(source, MemoryLibrary({}))
    tree = composed.variants[0].tree
    assert (composed.diagnostics, check_schema(tree, recipe_v1())) == ((), ())
    assert [each.message for each in bind(tree).diagnostics] == ["expected true or false, got '${x}'"]


# --- layers --------------------------------------------------------------------------------------------------------


def test_a_recipe_wins_over_its_preset_and_a_preset_over_the_defaults() -> None:
    made = recipe("algorithm: {use: dapo, loss: {clip: {low: 0.1}}}").algorithm
    assert (made.loss.clip.low, made.loss.clip.high) == (0.1, 0.28)
    assert made.use is Preset.DAPO
    assert made.epochs == 1


def test_without_an_algorithm_it_is_grpo() -> None:
    assert recipe().algorithm.kl.coef == 1e-3
    assert recipe().schedule[0].algorithm == recipe().algorithm


def test_a_stage_inherits_all_and_overrides_key_by_key() -> None:
    made = recipe(
        "agent: {format: plain, memory: {kind: window, turns: 4}}\nsampling: {temperature: 0.7}\n",
        "schedule: [{stage: a, turns: 3}, {stage: b, turns: 3, agent: {memory: {turns: 9}}, algorithm: {lr: 1e-5}}]\n",
    )
    first, second = made.schedule
    assert first.agent == made.agent
    assert (second.agent.format, second.agent.memory.kind, second.agent.memory.turns) == (Format.PLAIN, "window", 9)
    assert second.sampling == made.sampling
    assert (first.algorithm.lr, second.algorithm.lr) == (1e-6, 1e-5)
    assert second.algorithm.kl == made.algorithm.kl


def test_a_stage_with_another_name_begins_with_its_own_preset() -> None:
    made = recipe(
        "algorithm: {use: grpo, lr: 3e-6, group_size: 4, critic: {epochs: 2}}\n",
        "schedule: [{stage: a, algorithm: sft}, {stage: b, algorithm: dapo}, {stage: c, algorithm: ppo}, {stage: d}]\n",
    )
    warm_up, dapo, ppo, grpo = (stage.algorithm for stage in made.schedule)
    assert (warm_up.use, warm_up.data.source, warm_up.lr) == (Preset.SFT, DataSource.EXPERT, 3e-6)
    assert warm_up.group_size == 8, "has no effect in an imitation, so it is not inherited"
    assert (dapo.group_size, dapo.loss.clip.high, dapo.kl.coef) == (4, 0.28, 0.0), "grpo's own pull stays with grpo"
    assert (ppo.advantage.baseline, ppo.critic.epochs, ppo.group_size) == (Baseline.CRITIC, 2, 4)
    assert (grpo.use, grpo.group_size, grpo.kl.coef) == (Preset.GRPO, 4, 1e-3)


def test_a_stage_that_repeats_the_name_keeps_what_the_recipe_said() -> None:
    made = recipe("algorithm: {use: dapo, lr: 3e-6}", "schedule: [{stage: a, algorithm: dapo}]\n")
    assert made.schedule[0].algorithm == made.algorithm


def test_a_stage_may_name_its_own_when_the_recipe_says_nothing() -> None:
    made = recipe("", "schedule: [{stage: a, algorithm: {use: dr_grpo, epochs: 2}}]\n").schedule[0].algorithm
    assert (made.loss.aggregation, made.epochs) == (Aggregation.FIXED_LENGTH, 2)


def test_environments_are_merged_by_name_left_out_by_null_and_added() -> None:
    made = recipe(
        "",
        "schedule: [{stage: a, environments: {craft: {weight: 2}, web: null, more: babyai}}, {stage: b}]\n",
        TOP.replace("{craft: textcraft}", "{craft: {use: textcraft, turns: 4}, web: webarena}"),
    )
    first, second = made.schedule
    assert list(first.environments) == ["craft", "more"]
    assert (first.environments["craft"].weight, first.environments["craft"].turns) == (2.0, 4)
    assert second.environments == made.environments
    assert list(made.environments) == ["craft", "web"]


def test_an_environment_with_nothing_after_its_name_is_asked_for() -> None:
    report = only("", top=TOP.replace("{craft: textcraft}", "{craft: textcraft, web: }"))
    assert (report.code, report.help) == ("wrong-type", "write web: {use: ...}, or web: null to remove it")


def test_what_a_stage_still_lacks_with_all_that_it_inherits_is_reported() -> None:
    report = only("", "schedule: [{stage: a, reward: {source: judge, judge: {url: 'http://h'}}}]\n")
    assert (report.code, report.message) == ("missing-key", "missing key 'model' in 'judge'")
    made = recipe(
        "reward: {judge: {url: 'http://h', model: m}}", "schedule: [{stage: a, reward: {judge: {samples: 3}}}]\n"
    )
    judge = made.schedule[0].reward.judge
    assert judge is not None
    assert (judge.model, judge.samples) == ("m", 3)


# --- secrets -------------------------------------------------------------------------------------------------------


def from_environment(text: str) -> Bound:
    composed = compose(Source("recipe.yaml", text), MemoryLibrary({}), environ={"SECRET": "hunter2"})
    assert composed.diagnostics == ()
    return bind(composed.variants[0].tree)


SERVED = TOP.replace("textcraft", "{url: 'http://h', token: TOKEN}") + ONE


def test_of_a_secret_the_recipe_knows_only_the_reference() -> None:
    made = from_environment(SERVED.replace("TOKEN", '"${env:SECRET}"')).recipe
    assert made is not None
    assert made.environments["craft"].token == "${env:SECRET}"
    assert "hunter2" not in repr(made)


def test_an_option_from_the_environment_stays_a_reference_too() -> None:
    options = '{use: textcraft, options: {key: "${env:SECRET}", depth: 3}}'
    made = from_environment(TOP.replace("textcraft", options) + ONE).recipe
    assert made is not None
    assert made.environments["craft"].options == {"key": "${env:SECRET}", "depth": 3}


def test_a_wrong_expression_from_the_environment_is_not_shown() -> None:
    made = from_environment(TOP + ONE + "seed: ${env:SECRET}\n")
    assert [each.message for each in made.diagnostics] == ["the value of '${env:SECRET}' is not a whole number"]
    assert "hunter2" not in repr([(each.message, each.help) for each in made.diagnostics])


def test_a_literal_secret_makes_no_recipe() -> None:
    made = bound(SERVED)
    assert made.recipe is None
    assert [each.code for each in made.rejected] == ["literal-secret"]


# --- places --------------------------------------------------------------------------------------------------------

PLACED = """agym: 1
name: craft
model: some/model
environments: {craft: textcraft}
algorithm: {use: dapo, lr: 1e-5}
agent: {memory: window}
schedule:
  - {stage: a, turns: 3}
  - {stage: b, turns: 3, algorithm: {epochs: 2}, agent: {format: plain}}
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("seed",), "", ""),
        (("name",), "name", "craft"),
        (("model", "path"), "some/model", "some/model"),
        (("environments", "craft", "use"), "textcraft", "textcraft"),
        (("environments", "craft", "weight"), "craft", "textcraft"),
        (("algorithm", "lr"), "lr", "1e-5"),
        (("algorithm", "loss", "clip", "high"), "use", "dapo"),
        (("algorithm", "loss"), "use", "dapo"),
        (("algorithm", "critic", "lr"), "algorithm", "algorithm"),
        (("schedule", 0), "{stage: a, turns: 3}", "{stage: a, turns: 3}"),
        (("schedule", 0, "algorithm", "lr"), "lr", "1e-5"),
        (("schedule", 1, "algorithm", "epochs"), "epochs", "2"),
        (("schedule", 1, "algorithm", "loss", "kind"), "use", "dapo"),
        (("schedule", 1, "agent", "memory", "kind"), "window", "window"),
        (("schedule", 1, "agent", "thinking"), "agent", "agent"),
        (("schedule", 0, "reward", "judge"), "{stage: a, turns: 3}", "{stage: a, turns: 3}"),
        (("nowhere", 3, "x"), "", ""),
    ],
)
def test_every_value_knows_where_it_stands(path: tuple[str | int, ...], key: str, value: str) -> None:
    places = bound(PLACED).places
    assert (places.key(*path).text, places.value(*path).text) == (key, value)


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ((), ["agym", "name", "model", "environments", "algorithm", "agent", "schedule"]),
        (("algorithm",), ["use", "lr"]),
        (("algorithm", "loss"), []),
        (("environments", "craft"), ["use"]),
        (("schedule", 0), ["stage", "turns"]),
        (("schedule", 1), ["stage", "turns", "algorithm", "agent"]),
        (("schedule", 1, "algorithm"), ["epochs"]),
        (("schedule", 1, "agent", "memory"), []),
        (("nowhere", 3), []),
        (("name",), []),
    ],
)
def test_a_section_knows_which_keys_a_person_wrote_there(section: tuple[str | int, ...], keys: list[str]) -> None:
    assert sorted(bound(PLACED).places.written(*section)) == sorted(keys)


def test_a_stage_has_written_what_it_says_again() -> None:
    places = bound(TOP + "algorithm: {lr: 1e-5}\nschedule: [{stage: a, turns: 3, algorithm: {lr: 1e-5}}]\n").places
    assert list(places.written("schedule", 0, "algorithm")) == ["lr"]


def test_nothing_is_written_in_a_preset_as_far_as_a_person_is_told() -> None:
    places = bound(TOP + ONE).places
    assert places.value("algorithm", "kl", "coef").source.name == "recipe.yaml"
    assert list(places.written("algorithm", "kl")) == []


# --- there and back ------------------------------------------------------------------------------------------------

RECIPES = [
    TOP + ONE,
    PLACED,
    SERVED.replace("TOKEN", "'${env:TOKEN}'"),
    TOP
    + """
description: "costs $5 or ${x}"
eval: null
algorithm: {use: gigpo, lr: "linear(1e-6, 0, 50)", filter: {groups: "std > 0.1", episodes: invalid_turns < 3}}
reward: {episode: score - 0.1 * turns, clip: [-1, 1], overlong: {buffer: 64}}
logging: [tensorboard, {use: wandb, options: {a: [1, null, {b: x}]}}]
schedule:
  - {stage: warm, algorithm: {use: sft, data: {noise: 0.2}}, until: step >= 3}
  - {stage: rl, turns: "min(5 + step, 9)", sampling: {temperature: 0.9}}
  - {stage: ppo, turns: 9, algorithm: {use: ppo, critic: {clip: null}}}
  - {stage: other, turns: 9, environments: {craft: null, web: {url: "http://h", weight: 2}}}
  - {stage: last, algorithm: eval}
""",
]


@pytest.mark.parametrize("text", RECIPES)
def test_a_resolved_recipe_is_the_same_when_it_is_read_again(text: str) -> None:
    composed = bound(text.replace("${x}", "x"))
    assert composed.recipe is not None, (composed.diagnostics, composed.rejected)
    written = yaml.safe_dump(resolve_recipe(composed.recipe, CATALOG), sort_keys=False)
    root = parse_tree(Source("resolved.yaml", written)).root
    assert isinstance(root, MapNode)
    assert check_schema(root, recipe_v1()) == ()
    again = bind(root)
    assert again.recipe == composed.recipe, (again.diagnostics, again.rejected)


def test_a_resolved_recipe_passes_all_rules_and_text_with_braces_stays_text(catalog: Catalog) -> None:
    text = TOP + ONE + 'description: "costs $${x}"\nhardware: {gpus_per_node: 0}\n'
    first = compile_recipe(Source("a.yaml", text), MemoryLibrary({}), catalog=catalog)
    assert first.variants, first.diagnostics
    written = yaml.safe_dump(resolve_recipe(first.variants[0].recipe, CATALOG), sort_keys=False)
    second = compile_recipe(Source("b.yaml", written), MemoryLibrary({}), catalog=catalog)
    assert second.variants, second.diagnostics
    assert second.variants[0].recipe == first.variants[0].recipe
    assert second.variants[0].recipe.description == "costs ${x}"


def test_a_resolved_recipe_leaves_out_what_has_no_effect_and_says_a_stage_in_short() -> None:
    given = recipe("algorithm: {use: grpo}", "schedule: [{stage: a, turns: 3, agent: {format: plain}}]\n")
    data = resolve_recipe(given, CATALOG)
    assert "critic" not in data["algorithm"]
    assert data["algorithm"]["lr"] == 1e-6
    assert data["schedule"] == [
        {"stage": "a", "turns": 3, "until": None, "eval_every": None, "agent": {"format": "plain"}}
    ]


# --- never a traceback ---------------------------------------------------------------------------------------------

sections = st.sampled_from(
    ["environments", "schedule", "algorithm", "kl", "agent", "reward", "judge", "eval", "logging"]
)
keys = st.sampled_from(
    ["agym", "name", "model", "use", "lr", "coef", "stage", "turns", "tasks", "betas", "token", "url"]
)
names = sections | keys
scalars = st.sampled_from([None, True, 0, 1, -1, 2.5, "", "x", "grpo", "sft", "step", "1 +", "${vars.a}", "a" * 50])
odd = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=30
)


@given(st.dictionaries(names, odd, max_size=8))
@settings(max_examples=120, deadline=None)
def test_any_tree_is_bound_or_refused_with_a_reason(data: dict[str, object]) -> None:
    root = parse_tree(Source("odd.yaml", json.dumps(data))).root
    assert isinstance(root, MapNode)
    shape = check_schema(root, recipe_v1())
    made = bind(root)
    assert made.recipe is not None or made.diagnostics or made.rejected
    assert made.recipe is None or not made.rejected
    assert made.rejected or not shape, "what the schema forbids is rejected here too"
    assert shape or made.diagnostics or "${" in str(data) or not made.rejected, "and the other way round"
    for path in (("algorithm", "lr"), ("schedule", 0, "algorithm"), ("environments", "x", "use"), ()):
        made.places.key(*path)
        list(made.places.written(*path))


@given(st.dictionaries(names, odd, max_size=4))
@settings(max_examples=120, deadline=None)
def test_what_passes_the_schema_is_a_recipe_or_has_diagnostics(extra: dict[str, object]) -> None:
    base = yaml.safe_load(TOP + ONE)
    root = parse_tree(Source("odd.yaml", json.dumps(base | extra))).root
    assert isinstance(root, MapNode)
    made = bind(root)
    shape = check_schema(root, recipe_v1())
    assert bool(shape) == bool(made.rejected) or "${" in str(extra)
    assert shape or made.recipe is not None or made.diagnostics or "${" in str(extra)


FULL = (
    TOP.replace("some/model", "{path: a, lora: {}}")
    + """
agent: {planning: 3, reflection: 2}
reward: {judge: {url: "http://x", model: m}, overlong: {}, clip: [0, 1]}
algorithm: {use: dapo}
schedule:
  - {stage: a, turns: 3, algorithm: ppo}
  - {stage: b, turns: "min(3, step + 1)", algorithm: {lr: 1}, environments: {craft: null, web: {url: "http://h"}}}
logging: [wandb, {use: mlflow}]
"""
)


def whole() -> Any:
    """Every key of a recipe and of two stages, as plain data."""
    made = bound(FULL).recipe
    assert made is not None
    return to_plain(made, record(Recipe))


def places_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path] * bool(path) + [each for step, inner in children for each in places_in(inner, (*path, step))]


PLACES = places_in(whole())
changes = st.sampled_from(
    [None, True, 0, 1, -1, 2.5, 1e9, "", "x", "grpo", "true", "step", [], [1], ["a", "b"], {}, {"a": 1}]
)


@pytest.mark.slow
@given(st.sampled_from(PLACES), changes)
@settings(max_examples=120, deadline=None)
def test_the_schema_and_the_types_agree_on_every_value_at_every_key(path: tuple[Any, ...], value: object) -> None:
    data = node = whole()
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    root = parse_tree(Source("changed.yaml", json.dumps(data))).root
    assert isinstance(root, MapNode)
    made, shape = bind(root), check_schema(root, recipe_v1())
    assert bool(shape) == bool(made.rejected), (shape, made.rejected)
    assert (made.recipe is None) == bool(shape or any(each.severity == "error" for each in made.diagnostics))
