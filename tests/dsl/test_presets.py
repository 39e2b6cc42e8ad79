"""Presets: one for each name, each a valid and effective part of an algorithm."""

from __future__ import annotations

import hashlib
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
from agym.dsl.model.algorithm import (
    Aggregation,
    Algorithm,
    Baseline,
    Estimator,
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
def test_no_preset_leaves_out_groups_by_a_condition_of_its_own(info: PresetInfo) -> None:
    assert algorithm(info.name).filter.groups is None


@each_preset
def test_every_setting_has_a_source_and_every_source_a_setting(info: PresetInfo) -> None:
    assert {key for key, _ in info.settings()} == set(info.sources)
    for key, text in info.sources.items():
        ours = text.removeprefix("ours: ")
        found = re.search(r"arXiv \d{4}\.\d{5}|[\w-]+/[\w.-]+@[0-9a-f]{7} \S+|doi 10\.\d+/\S+", text)
        assert found if ours == text else len(ours.split()) > 5, (key, text)


VERSIONS = {
    "agent_evol": (2, "75c9f4b2"),
    "bilevel_ppo": (2, "531a2562"),
    "cispo": (2, "bb9df298"),
    "dapo": (2, "9bf305ee"),
    "distill": (1, "83fb5a50"),
    "dpo": (1, "35cf6456"),
    "dppo": (1, "ce5b34b5"),
    "dr_grpo": (1, "e4abb8a4"),
    "eval": (1, "4f53cda1"),
    "gigpo": (2, "3bec3817"),
    "grpo": (1, "1a2fa606"),
    "gspo": (2, "f8ba22c0"),
    "loop": (2, "6dc9fc86"),
    "mtpo": (1, "c42cfed4"),
    "ppo": (2, "984daaed"),
    "reinforce": (1, "57335c7d"),
    "reinforce_pp": (2, "fbac2f60"),
    "relay": (1, "c901be46"),
    "remax": (2, "e50bac53"),
    "rloo": (1, "2c7117aa"),
    "sapo": (1, "3f9a44b7"),
    "sft": (1, "1d782d86"),
    "starpo_s": (2, "96f33a10"),
    "turn_dpo": (2, "533dd2a1"),
}
"""By preset, its version and the beginning of a hash of what it sets: change both together."""


@each_preset
def test_a_preset_that_changes_has_a_new_version(info: PresetInfo) -> None:
    found = hashlib.sha256(repr(sorted(info.settings())).encode()).hexdigest()[:8]
    assert (info.version, found) == VERSIONS[info.name]


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
