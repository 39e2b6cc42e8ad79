"""Presets: one for each name, each a right and effective part of an algorithm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from agym.dsl.check import presets
from agym.dsl.check.bind import bind
from agym.dsl.check.json_schema import check_schema
from agym.dsl.check.key_suggestions import SchemaKeys
from agym.dsl.check.no_effect import explain_no_effect
from agym.dsl.check.presets import PresetInfo, find_preset, load_preset, load_presets
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import (
    Aggregation,
    Algorithm,
    Baseline,
    Estimator,
    Kind,
    Level,
    LossKind,
    Normalise,
    Preset,
    Reference,
    Relabel,
)
from agym.dsl.model.stage_kinds import has_critic, has_reference, kind_of
from agym.dsl.source import Source
from agym.dsl.text.node import MapNode, Node
from agym.dsl.text.tree import parse_tree
from agym.schemas import recipe_v1

ALL = list(load_presets().values())
each_preset = pytest.mark.parametrize("info", ALL, ids=[info.name for info in ALL])


def algorithm(name: str) -> Algorithm:
    text = f"""
agym: 1
name: a
model: some/model
environments: {{a: textcraft}}
algorithm: {name}
schedule: [{{stage: only}}]
"""
    root = parse_tree(Source("recipe.yaml", text)).root
    assert isinstance(root, MapNode)
    recipe = bind(root).recipe
    assert recipe is not None
    assert recipe.schedule[0].algorithm == recipe.algorithm
    return recipe.algorithm


def leaves(node: Node, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(node, MapNode):
        return [path]
    return [leaf for entry in node.entries for leaf in leaves(entry.value, (*path, entry.name))]


def test_every_name_has_an_entry_and_every_entry_a_name() -> None:
    written = Path(presets.__file__).with_name("presets.yaml").read_text(encoding="utf-8")
    assert set(yaml.safe_load(written)) == {str(name) for name in Preset}
    assert list(load_presets()) == list(Preset)


@each_preset
def test_it_says_what_it_is_in_two_sentences(info: PresetInfo) -> None:
    sentences = re.findall(r"[^.]+(?:\.\w[^.]*)*\.(?: |$)", info.summary)
    assert len(sentences) == 2, sentences
    assert info.source
    assert set(info.needs) <= {"critic", "reference", "judge", "demonstrations"}


@each_preset
def test_what_it_sets_is_valid(info: PresetInfo) -> None:
    schema = recipe_v1()
    part = {**schema["definitions"]["Algorithm"], "definitions": schema["definitions"]}
    assert check_schema(info.tree, part) == ()


@each_preset
def test_it_is_of_the_kind_that_its_stages_are(info: PresetInfo) -> None:
    assert info.kind is kind_of(Algorithm(use=info.name))


@each_preset
def test_nothing_that_it_sets_is_without_effect(info: PresetInfo) -> None:
    made = algorithm(info.name)
    assert {path: explain_no_effect(path, made) for path in leaves(info.tree)} == dict.fromkeys(leaves(info.tree))


@each_preset
def test_it_names_what_it_needs(info: PresetInfo) -> None:
    made = algorithm(info.name)
    assert ("critic" in info.needs) == has_critic(made)
    assert ("reference" in info.needs) == has_reference(made)


@each_preset
def test_groups_of_one_are_not_filtered_away(info: PresetInfo) -> None:
    made = algorithm(info.name)
    if info.kind is Kind.RL:
        assert (made.group_size == 1) == (made.filter.groups == Expr("true"))


@each_preset
def test_its_values_say_that_they_come_from_it(info: PresetInfo) -> None:
    assert find_preset(info.tree.span.source) == info.name


def test_a_file_that_has_the_name_of_a_preset_is_none() -> None:
    assert find_preset(Source("preset grpo", "algorithm: grpo")) is None
    assert find_preset(Source("recipe.yaml", "")) is None
    assert load_preset(Preset.GRPO) is load_preset(Preset.GRPO)


def test_dapo_is_as_published() -> None:
    made = algorithm("dapo")
    assert (made.loss.clip.low, made.loss.clip.high) == (0.2, 0.28)
    assert made.loss.aggregation is Aggregation.TOKEN_MEAN
    assert made.filter.resample
    assert made.kl.coef == 0


def test_grpo_pulls_towards_the_start_and_dr_grpo_does_not() -> None:
    assert algorithm("grpo").kl.coef == 1e-3
    dr_grpo = algorithm("dr_grpo")
    assert dr_grpo.kl.coef == 0
    assert dr_grpo.advantage.normalise is Normalise.NONE
    assert dr_grpo.loss.aggregation is Aggregation.FIXED_LENGTH


def test_gspo_has_one_narrow_ratio_per_episode() -> None:
    loss = algorithm("gspo").loss
    assert (loss.kind, loss.ratio) == (LossKind.GSPO, Level.EPISODE)
    assert (loss.clip.low, loss.clip.high) == (3e-4, 4e-4)


def test_ppo_estimates_over_tokens_and_bilevel_ppo_over_turns_as_well() -> None:
    assert algorithm("ppo").advantage.estimator is Estimator.GAE
    assert algorithm("ppo").group_size == 1
    bilevel = algorithm("bilevel_ppo").advantage
    assert (bilevel.estimator, bilevel.turn_gamma, bilevel.baseline) == (Estimator.BILEVEL_GAE, 0.95, Baseline.CRITIC)


def test_loop_and_rloo_leave_one_out_without_a_standard_deviation() -> None:
    for name in ("loop", "rloo"):
        advantage = algorithm(name).advantage
        assert (advantage.baseline, advantage.normalise) == (Baseline.LEAVE_ONE_OUT, Normalise.NONE)
    loop = algorithm("loop")
    assert (loop.epochs, loop.kl.coef) == (2, 0)
    assert loop.kl_stop is not None


def test_mtpo_has_two_divergences_and_moves_away_from_both() -> None:
    made = algorithm("mtpo")
    assert made.kl.coef
    assert made.kl.previous_coef
    assert made.epochs > 1


def test_pairs_are_learnt_relative_to_the_policy_that_the_stage_began_with() -> None:
    assert {algorithm(name).kl.reference for name in ("dpo", "turn_dpo")} == {Reference.STAGE}


def test_relay_relabels_and_turn_dpo_has_a_critic_that_knows_more() -> None:
    assert algorithm("relay").data.relabel is Relabel.HINDSIGHT
    assert algorithm("turn_dpo").critic.privileged


def test_only_keys_of_an_algorithm_are_set() -> None:
    known = SchemaKeys(recipe_v1()).known
    for info in ALL:
        for path in leaves(info.tree):
            assert not path or ("algorithm", *path) in known
