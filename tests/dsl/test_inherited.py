"""Inherited keys: without effect they are left out, null takes them away, and mistakes are reported where they were
made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.check.spans import join_path
from agym.dsl.compile import Compiled, CompiledVariant, compile_recipe
from agym.dsl.source import Source

from ..memory_library import MemoryLibrary

BASE = """\
agym: 1
model: {init: {family: qwen3}}
environments: {web: web}
algorithm: {group_size: 4, groups_per_step: 8, groups_per_update: 4, kl: {coef: 1e-3, estimator: k1}, lr: 3e-6}
hardware: {gpus_per_node: 1, gpu: h100}
schedule: [{stage: a, turns: 10, until: step >= 10}]
"""
PART = "agym: 1\nmodel: {init: {family: qwen3}}\nenvironments: {web: web}\nalgorithm: {data: {limit: 3}}\n"
OWN = "agym: 1\nname: mine\nextends: ./base.yaml\n"
FILES = {"base.yaml": BASE, "part.yaml": PART}


def made(text: str, catalog: Catalog, settings: Sequence[str] = ()) -> Compiled:
    return compile_recipe(Source("mine.yaml", OWN + text), MemoryLibrary(FILES), settings, {}, catalog)


def run(text: str, catalog: Catalog, *settings: str) -> CompiledVariant:
    compiled = made(text, catalog, settings)
    assert not compiled.failed, compiled.diagnostics
    return compiled.variants[0]


def left_out(variant: CompiledVariant) -> list[str]:
    return [f"{join_path(each.path)} of {each.span.source.name}" for each in variant.left_out]


@pytest.mark.parametrize("setting", ["algorithm.kl.coef=0", "vars.coef=0"])
def test_a_key_that_a_setting_leaves_without_effect_is_left_out(setting: str, catalog: Catalog) -> None:
    text = "vars: {coef: 1e-3}\nalgorithm: {kl: {coef: '${vars.coef}'}}\n"
    found = run(text, catalog, setting)
    assert left_out(found) == ["algorithm.kl.estimator of base.yaml"]
    assert found.recipe.algorithm.kl.estimator == "k3"


def test_so_is_one_that_the_recipe_itself_leaves_without_effect(catalog: Catalog) -> None:
    assert left_out(run("hardware: {gpus_per_node: 0}\n", catalog)) == ["hardware.gpu of base.yaml"]
    assert "algorithm.kl of base.yaml" in left_out(run("algorithm: {use: sft}\n", catalog))


def test_so_is_one_that_a_matrix_leaves_without_effect_in_the_runs_where_it_does(catalog: Catalog) -> None:
    compiled = made("matrix: {algorithm.kl.coef: [0, 1e-2]}\nalgorithm: {kl: {target: 0.1}}\n", catalog)
    assert [len(each.left_out) for each in compiled.variants] == [2, 0]


def test_so_is_the_weight_of_an_environment_that_a_setting_takes_out_of_the_only_stage_that_samples(
    catalog: Catalog,
) -> None:
    text = """\
environments: {web: web, more: {use: web, weight: 0.5}}
schedule:
  - {stage: imitate, until: step >= 5, algorithm: {use: sft, data: {source: expert}}}
  - {stage: explore, turns: 10, until: step >= 10}
"""
    found = run(text, catalog, "schedule.1.environments.more=null")
    assert "environments.more.weight of mine.yaml" in left_out(found)


def test_a_base_without_stages_may_have_keys_for_stages_of_any_kind(catalog: Catalog) -> None:
    text = "agym: 1\nname: mine\nextends: ./part.yaml\nschedule: [{stage: a, turns: 10, until: step >= 10}]\n"
    compiled = compile_recipe(Source("mine.yaml", text), MemoryLibrary(FILES), (), {}, catalog)
    assert left_out(compiled.variants[0]) == ["algorithm.data of part.yaml"]


@pytest.mark.parametrize(
    ("text", "settings", "place"),
    [
        ("algorithm: {kl: {coef: 0, target: 0.1}}\n", (), "mine.yaml:4:27"),
        ("algorithm: {kl: {coef: 0}}\n", ("algorithm.kl.target=0.1",), "--set #1:1:14"),
        ("", ("algorithm.kl.coef=0", "algorithm.kl.target=0.1"), "--set #2:1:14"),
        ("matrix: {algorithm.kl.coef: [0], algorithm.kl.target: [0.1]}\n", (), "mine.yaml:4:47"),
    ],
)
def test_what_one_layer_writes_in_vain_is_a_mistake(
    text: str, settings: Sequence[str], place: str, catalog: Catalog
) -> None:
    compiled = made(text, catalog, settings)
    assert [(each.code, str(each.span)) for each in compiled.diagnostics] == [("no-effect", place)]


@pytest.mark.parametrize(
    ("text", "settings", "place"),
    [
        ("algorithm: {groups_per_step: 9}\n", (), "mine.yaml:4:30"),
        ("seed: 3\n", ("seed=1", "algorithm.groups_per_step=9"), "--set #2:1:27"),
        ("matrix: {algorithm.groups_per_step: [8, 9]}\n", (), "mine.yaml:4:41"),
        ("algorithm: {groups_per_step: 9, groups_per_update: 2}\n", (), "mine.yaml:4:52"),
    ],
)
def test_a_mistake_in_what_is_inherited_stands_where_its_cause_was_written(
    text: str, settings: Sequence[str], place: str, catalog: Catalog
) -> None:
    (found,) = (each for each in made(text, catalog, settings).diagnostics)
    assert str(found.span) == place
    assert all(note.span.source.name in ("base.yaml", "mine.yaml") for note in found.notes)


def test_null_takes_any_key_away_and_its_default_returns(catalog: Catalog) -> None:
    assert run("algorithm: {group_size: null}\n", catalog).recipe.algorithm.group_size == 8
    assert run("algorithm: null\n", catalog).recipe.algorithm.lr == 1e-6
    assert run("", catalog, "algorithm.use=null").recipe.algorithm.use == "grpo"
    assert run("algorithm: {use: dapo, loss: {clip: null}}\n", catalog).recipe.algorithm.loss.clip.high == 0.28
    assert run("seed: null\n", catalog).recipe.seed == 0


def test_null_in_a_stage_takes_away_what_the_recipe_has(catalog: Catalog) -> None:
    stage = "schedule: [{stage: a, turns: 10, until: step >= 10, algorithm: {lr: null}, agent: null}]\nagent: plain\n"
    (found,) = run(stage, catalog).recipe.schedule
    assert (found.algorithm.lr, found.algorithm.group_size, found.agent.format) == (1e-6, 4, "plain")


def test_nothing_is_no_null(catalog: Catalog) -> None:
    (found,) = made("seed:\n", catalog).diagnostics
    assert (found.code, found.message) == ("wrong-type", "expected a whole number, got nothing")


def test_what_a_recipe_cannot_lack_cannot_be_taken_away(catalog: Catalog) -> None:
    (found,) = made("", catalog, ["model=null"]).diagnostics
    assert str(found.span) == "--set #1:1:7"
