"""A tree against the schema: each mistake at its token, in words, once."""

from __future__ import annotations

import re

import pytest
from agym.dsl.check.foreign_names import load_aliases
from agym.dsl.check.json_schema import MOST, check_schema
from agym.dsl.check.key_suggestions import NAME, SchemaKeys
from agym.dsl.codes import CODES
from agym.dsl.compose.compose import compose
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.suggest import distance, find_closest, fold_name
from agym.dsl.text.node import Node
from agym.dsl.text.tree import parse_tree
from agym.schemas import recipe_v1

from ..memory_library import MemoryLibrary

TOP = """agym: 1
name: craft
model: some/model
environments: {craft: textcraft}
schedule: [{stage: only, turns: 3}]
"""
KEYS = SchemaKeys(recipe_v1())


def tree(text: str) -> Node:
    root = parse_tree(Source("recipe.yaml", text)).root
    assert root is not None
    return root


def reports(extra: str, top: str = TOP) -> tuple[Diagnostic, ...]:
    return check_schema(tree(top + extra), recipe_v1())


def only(extra: str, top: str = TOP) -> Diagnostic:
    found = reports(extra, top)
    assert len(found) == 1, [(each.code, each.message) for each in found]
    assert found[0].code in CODES
    return found[0]


def told(report: Diagnostic) -> tuple[str, str, str | None]:
    return report.code, report.span.text, report.help


def test_a_right_recipe_has_nothing_to_report() -> None:
    assert (
        reports("algorithm: {use: grpo, lr: 'cosine(1e-6, 0, 10)', kl: {coef: 0.01}}\nlogging: wandb\neval: null") == ()
    )


# --- unknown keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "key", "meant"),
    [
        ("algoritm: grpo", "algoritm", "'algorithm'"),
        ("Algorithm: grpo", "Algorithm", "'algorithm'"),
        ("algorithm: {group-size: 4}", "group-size", "'group_size'"),
        ("algorithm: {groupSize: 4}", "groupSize", "'group_size'"),
        ("algorithm: {rl: 1e-6}", "rl", "'lr'"),
        ("algorithm: {learning_rate: 1e-6}", "learning_rate", "'lr'"),
        ("algorithm: {kl: {ceof: 1}}", "ceof", "'coef'"),
        ("algorithm: {optimizer: {beta: [0.9, 0.99]}}", "beta", "'betas'"),
        ("hardware: {train: {zero_stage: 3}}", "zero_stage", "'zero'"),
        ("logging: [{use: wandb, projcet: x}]", "projcet", "'project'"),
        ("agent: {memory: {kind: window, turn: 3}}", "turn", "'turns'"),
        ("eval: {temp: 1}", "temp", "'temperature'"),
    ],
)
def test_a_misspelt_key_is_reported_with_the_right_one(extra: str, key: str, meant: str) -> None:
    report = only(extra)
    assert told(report) == ("unknown-key", key, f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("extra", "advice"),
    [
        ("algorithm: {kl_coef: 0.1}", "did you mean 'kl.coef'? write kl: {coef: ...}"),
        ("rollout_n: 4", "did you mean 'algorithm.group_size'? write algorithm: {group_size: ...}"),
        (
            "algorithm: {clip: 0.2}",
            (
                "'clip' belongs under 'algorithm.loss' or 'algorithm.critic', as algorithm.loss.clip; "
                "write loss: {clip: ...}"
            ),
        ),
        ("turns: 3", "'turns' belongs in an entry of 'schedule'; write schedule: [{turns: ...}]"),
        (
            "agent: {temperature: 1}",
            (
                "'temperature' belongs under 'sampling' or 'eval', as sampling.temperature; "
                "write sampling: {temperature: ...}"
            ),
        ),
        ("algorithm: {seed: 1}", "'seed' belongs at the top of the recipe; write seed: ..."),
        ("algorithm: {beta: 1}", "did you mean 'kl.coef' or 'preference.beta'? write kl: {coef: ...}"),
        ("max_turns: 4", "did you mean 'schedule.turns'? write schedule: [{turns: ...}]"),
        (
            "eval: {everything: 3}",
            (
                "did you mean 'every'? the keys of 'eval' are every, at_start, at_end, tasks, limit, turns, samples, "
                "temperature, greedy, confidence; remove it if none of them is meant"
            ),
        ),
        (
            "sampling: {zzz: 1}",
            "the keys of 'sampling' are temperature, top_p, top_k, min_p, stop; remove it if none of them is meant",
        ),
        (
            "guards: {zzz: 1}",
            (
                "the keys of 'guards' are on_nan, kl_max, on_kl, grad_norm_max, on_grad_norm, entropy_min, "
                "zero_std_max, invalid_max, mismatch_max, mismatch_ratio_max, patience, max_roll_backs; "
                "remove it if none of them is meant"
            ),
        ),
        (
            "algorithm: {ppo_lr_warmup_steps: 1}",
            "did you mean 'optimizer.warmup_steps'? write optimizer: {warmup_steps: ...}",
        ),
    ],
)
def test_a_key_of_elsewhere_is_reported_with_its_place(extra: str, advice: str | None) -> None:
    report = only(extra)
    assert report.code == "unknown-key"
    assert report.help == advice


def test_a_key_in_a_stage_is_looked_for_in_the_stage() -> None:
    report = only("", TOP.replace("turns: 3", "lr: 1e-6"))
    assert report.help == "'lr' belongs under 'schedule.algorithm'; write algorithm: {lr: ...}"
    assert only("", TOP.replace("turns: 3", "horizon: 1")).help == "did you mean 'turns'?"


def test_a_key_meant_by_an_unknown_one_is_not_also_missing() -> None:
    assert told(only("", TOP.replace("name:", "nmae:"))) == ("unknown-key", "nmae", "did you mean 'name'?")
    assert told(only("", TOP.replace("stage:", "name:"))) == ("unknown-key", "name", "did you mean 'stage'?")


def test_what_an_unknown_key_holds_is_not_looked_at() -> None:
    assert len(reports("algoritm: {use: 3, kl: [], nonsense: {}}")) == 1


def misspelt(word: str) -> set[str]:
    """A letter left out, doubled, swapped with its neighbour; another style."""
    slips = {word[:i] + word[i + 1 :] for i in range(len(word))}
    slips |= {word[: i + 1] + word[i:] for i in range(len(word))}
    slips |= {word[:i] + word[i : i + 2][::-1] + word[i + 2 :] for i in range(len(word) - 1)}
    slips |= {word.replace("_", "-"), word.upper(), re.sub("_(.)", lambda match: match[1].upper(), word)}
    return slips - {word, ""}


@pytest.mark.slow
def test_misspellings_at_every_depth_get_the_right_suggestion() -> None:
    wrong: list[tuple[str, tuple[str, ...]]] = []
    total = 0
    for path in KEYS.known:
        siblings = KEYS.children(path[:-1])
        if path[-1] == NAME or (path[0] == "schedule" and path[1:] in KEYS.known):
            continue
        for slip in sorted(misspelt(path[-1]) - set(siblings)):
            total += 1
            if f"'{path[-1]}'" not in (KEYS.suggest(slip, path[:-1]).help or ""):
                wrong.append((slip, path))
    assert total > 3000
    assert len(wrong) <= 0.01 * total, wrong


def test_every_foreign_name_leads_to_a_key_that_exists_and_is_none_itself() -> None:
    for name, places in load_aliases()["keys"].items():
        for place in places:
            assert tuple(place.split(".")) in KEYS.known, (name, place)


def test_a_key_like_no_other_at_the_top_is_answered_with_all() -> None:
    advice = only("zzzzzz: 1").help or ""
    assert advice.startswith("the keys here are agym, name, ")


def test_no_explained_name_is_a_key_of_ours_or_leads_to_one() -> None:
    ours = {fold_name(path[-1]) for path in KEYS.known}
    explained = {fold_name(name) for name in load_aliases()["explained"] if not name.endswith("*") and "." not in name}
    assert not explained & (ours | set(load_aliases()["keys"]))


@pytest.mark.parametrize(
    ("extra", "key", "says"),
    [
        ("vllm_server_host: localhost", "vllm_server_host", "always samples with vLLM"),
        ("hardware: {ray_adress: auto}", "ray_adress", "did you mean 'ray_address'?"),
        ("algorithm: {preference: {loss_type: ipo}}", "loss_type", "the DPO loss"),
        ("sampling: {repetition_penalty: 1.1}", "repetition_penalty", "what is trained on must be what was sampled"),
    ],
)
def test_a_foreign_key_without_a_counterpart_is_explained(extra: str, key: str, says: str) -> None:
    report = only(extra)
    assert report.span.text == key
    assert says in (report.help or "")


def test_every_foreign_value_leads_to_a_value_that_exists() -> None:
    values = {
        value
        for schema in KEYS.known.values()
        for branch in schema.get("anyOf", [])
        for value in branch.get("enum", [])
    }
    assert {value for meant in load_aliases()["values"].values() for value in meant.split()} <= values
    assert not set(load_aliases()["values"]) & {value for value in values if "enum" in value}


@pytest.mark.parametrize(
    ("extra", "key", "message", "advice"),
    [
        (
            "eval:\nevery: 3\ngreedy: true",
            "every",
            "'every' and 'greedy' are next to 'eval', which is empty",
            "indent them below 'eval:'",
        ),
        (
            "algorithm:\n  kl:\n  coef: 0.1",
            "coef",
            "'coef' is next to 'kl', which is empty",
            "indent it below 'kl:'",
        ),
    ],
)
def test_keys_that_lost_their_indentation_are_one_mistake(extra: str, key: str, message: str, advice: str) -> None:
    report = only(extra)
    assert (report.span.text, report.message, report.help) == (key, message, advice)


# --- kinds of values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "token", "message", "advice"),
    [
        (
            "checkpoint: {export: yes}",
            "yes",
            "expected true or false, got 'yes'",
            "write true: in YAML 1.2 'yes' is text",
        ),
        (
            "checkpoint: {export: off}",
            "off",
            "expected true or false, got 'off'",
            "write false: in YAML 1.2 'off' is text",
        ),
        (
            "checkpoint: {export: 'true'}",
            "'true'",
            "expected true or false, got 'true'",
            "write true, without quotes",
        ),
        ("checkpoint: {export: 1}", "1", "expected true or false, got 1", "write true"),
        ("tags: [2024]", "2024", "expected text, got 2024", "put it in quotes: '2024'"),
        ("reward: {clip: '-1, 1'}", "'-1, 1'", "expected a list, got '-1, 1'", "write [-1, 1]"),
        ("guards: {on_nan: 1}", "1", "expected one of skip, roll_back, stop, got 1", None),
        ("output: true", "true", "expected text, got true", "put it in quotes: 'true'"),
        ("seed: 1.5", "1.5", "expected a whole number, got 1.5", "write it without a fraction"),
        ("seed: [1]", "[1]", "expected a whole number, got a list", "write seed: 1, the item alone, without a list"),
        (
            "seed: [1, 2]",
            "[1, 2]",
            "expected a whole number, got a list",
            "only one is allowed here: write seed: 1; a run for each is made by 'matrix'",
        ),
        ("agent:", "agent", "expected a map or text, got nothing", "write a value, or remove the key"),
        ("agent: [{format: react}]", "[{format: react}]", "expected a map or text, got a list", None),
        ("algorithm: {kl: 0.001}", "0.001", "expected a map, got 0.001", "write kl: {coef: 0.001}"),
        ("algorithm: {loss: gspo}", "gspo", "expected a map, got 'gspo'", "write loss: {kind: gspo}"),
        ("model2: 3", "model2", "unknown key 'model2'", "did you mean 'model'?"),
        ("vars: 3", "3", "expected a map, got 3", None),
        ("reward: {clip: 1}", "1", "expected a list, got 1", "write a list of 2: [1, ...]"),
        ("guards: '3'", "'3'", "expected a map, got '3'", None),
    ],
)
def test_a_value_of_another_kind_is_described_and_helped(
    extra: str, token: str, message: str, advice: str | None
) -> None:
    report = only(extra)
    assert (report.span.text, report.message) == (token, message)
    if advice is not None:
        assert report.help == advice


def test_a_schedule_that_is_a_map_is_to_become_a_list() -> None:
    report = only("", TOP.replace("[{stage: only, turns: 3}]", "{stage: only}"))
    assert told(report) == ("wrong-type", "{stage: only}", "write a list of maps: put '- ' before each, or [{...}]")


def test_stages_by_name_and_one_bare_name_are_to_become_lists_of_maps() -> None:
    by_name = only("", TOP.replace("[{stage: only, turns: 3}]", "{only: {turns: 3}}"))
    assert by_name.help == "write a list of maps, each with its name inside: [{...}, {...}]"
    assert only("", TOP.replace("[{stage: only, turns: 3}]", "only")).help == "write a list of maps: [{...}]"


def test_a_list_for_a_map_of_names_is_to_become_one() -> None:
    report = only("", TOP.replace("{craft: textcraft}", "[textcraft]"))
    assert report.help == "write a map with a name for each: {one: ..., another: ...}"


@pytest.mark.parametrize("extra", ["guards: {on_nan: 1}"])
def test_no_advice_is_given_that_would_fail_again(extra: str) -> None:
    assert only(extra).help is None


def test_a_number_for_one_of_many_words_gets_the_words() -> None:
    assert (only("hardware: {gpu: 1}").help or "").startswith("'gpu' can be a10, l4, ")


@pytest.mark.parametrize("extra", ["output: ''", "output: ' '", "tags: ['']", "model: {path: ''}"])
def test_names_and_paths_are_not_empty(extra: str) -> None:
    top = TOP if "model" not in extra else "".join(line for line in TOP.splitlines(True) if "model" not in line)
    assert only(extra, top).message.startswith("expected text that is not empty, got ")


def test_text_for_people_and_stop_words_may_be_blank() -> None:
    assert reports("description: ''\nsampling: {stop: [' ', \"\\n\"]}\n") == ()


def test_a_list_of_maps_for_a_map_loses_its_dashes() -> None:
    assert only("hardware: [{nodes: 1}]").help == "write a map, without the dashes"


def test_a_version_in_quotes_is_told_to_lose_them() -> None:
    assert only("", TOP.replace("agym: 1", "agym: '1'")).help == "write 1, without quotes"


def test_a_version_of_the_future_is_told_what_this_one_reads() -> None:
    report = only("", TOP.replace("agym: 1", "agym: 2"))
    assert told(report) == ("bad-value", "2", "this version of agym reads recipes of version 1")


def test_text_for_a_number_is_left_to_the_expressions() -> None:
    assert reports("seed: nine\nalgorithm: {lr: 1_000}") == ()


def test_a_reference_that_could_not_be_replaced_is_not_reported_again() -> None:
    assert reports("checkpoint: {export: '${vars.missing}'}\nagent: '${vars.missing}'") == ()


# --- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "token", "advice"),
    [
        ("algorithm: gppo", "gppo", "did you mean 'grpo', 'gspo' or 'dppo'?"),
        ("algorithm: GRPO", "GRPO", "did you mean 'grpo'?"),
        ("algorithm: {use: reinforce++}", "reinforce++", "did you mean 'reinforce_pp'?"),
        ("algorithm: {loss: {aggregation: token-mean}}", "token-mean", "did you mean 'token_mean'?"),
        ("algorithm: {kl: {estimator: low_var_kl}}", "low_var_kl", "did you mean 'k3'?"),
        ("hardware: {layout: Split}", "Split", "did you mean 'split'?"),
        ("hardware: {layout: zzzzzzzz}", "zzzzzzzz", None),
    ],
)
def test_an_unknown_value_is_reported_with_the_near_one(extra: str, token: str, advice: str | None) -> None:
    assert told(only(extra)) == ("bad-value", token, advice)


def test_few_values_are_listed_in_the_message_and_many_in_the_help() -> None:
    assert only("hardware: {layout: x}").message == "expected one of colocated, split, got 'x'"
    many = only("algorithm: zzzzzzzzzzzz")
    assert many.message.startswith("expected one of ppo, grpo, dr_grpo")
    assert "agent_evol" not in many.message
    assert "agent_evol" in (many.help or "")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("seed: -1", "must be at least 0, got -1"),
        ("seed: 4294967296", "must be at most 4294967295, got 4294967296"),
        ("algorithm: {lr: 0}", "must be greater than 0, got 0"),
        ("hardware: {train: {zero: 4}}", "must be at most 3, got 4"),
        ("algorithm: {group_size: 0}", "must be at least 1, got 0"),
    ],
)
def test_a_number_out_of_range_is_told_its_limit(extra: str, message: str) -> None:
    report = only(extra)
    assert (report.code, report.message) == ("out-of-range", message)


def test_a_limit_that_is_not_taken_itself_is_told_so() -> None:
    report = only("", TOP.replace("some/model", "{path: a, lora: {dropout: 1}}"))
    assert report.message == "must be less than 1, got 1"


def test_a_name_of_another_form_is_shown_as_it_may_be_written() -> None:
    report = only("", TOP.replace("name: craft", "name: My Craft!"))
    assert told(report) == ("bad-format", "My Craft!", "write my-craft")
    assert report.message.startswith("expected lower-case letters")


def test_the_name_of_an_environment_is_checked_at_its_key() -> None:
    assert told(only("", TOP.replace("{craft:", "{Craft 1:"))) == ("bad-format", "Craft 1", "write craft-1")


def test_an_address_without_its_protocol_gets_one() -> None:
    report = only("", TOP.replace("textcraft", "{url: '127.0.0.1:80'}"))
    assert told(report) == ("bad-format", "'127.0.0.1:80'", "write http://127.0.0.1:80")


def test_pairs_have_two_items() -> None:
    assert only("reward: {clip: [1]}").message == "expected 2 items, got 1"
    assert told(only("reward: {clip: [1, 2, 3]}")) == ("wrong-length", "[1, 2, 3]", None)
    assert only("matrix: {seed: []}").message == "expected at least 1 item, got 0"


# --- missing keys --------------------------------------------------------------------------------------------------


def test_everything_that_is_missing_at_the_top_is_listed_at_the_start() -> None:
    found = check_schema(tree("seed: 1\n"), recipe_v1())
    assert [each.code for each in found] == ["missing-key"] * 5
    assert {each.message.split("'")[1] for each in found} == {"agym", "name", "model", "environments", "schedule"}
    assert {(each.span.start, each.span.end) for each in found} == {(0, 0)}


def test_a_missing_key_is_reported_at_the_key_of_its_map_with_an_example() -> None:
    report = only("reward: {judge: {model: m}}")
    assert told(report) == ("missing-key", "judge", "add url: http://127.0.0.1:8000/v1")
    assert report.message == "missing key 'url' in 'judge'"


def test_a_missing_key_in_a_list_is_reported_at_the_item() -> None:
    assert told(only("", TOP.replace("stage: only, ", ""))) == ("missing-key", "turns", "add stage: explore")


# --- secrets -------------------------------------------------------------------------------------------------------


def test_a_literal_secret_is_refused() -> None:
    report = only("", TOP.replace("textcraft", "{url: 'http://h', token: hunter2}"))
    assert told(report) == ("literal-secret", "hunter2", "write token: ${env:TOKEN}")
    assert "hunter2" not in report.message


def from_environment(text: str) -> tuple[Diagnostic, ...]:
    composed = compose(Source("recipe.yaml", text), MemoryLibrary({}), environ={"SECRET": "hunter2"})
    assert composed.diagnostics == ()
    return check_schema(composed.variants[0].tree, recipe_v1())


def test_a_value_from_the_environment_is_never_shown() -> None:
    report = from_environment(TOP + 'hardware: {layout: "${env:SECRET}"}')[0]
    assert report.message == "expected one of colocated, split, got '${env:SECRET}'"
    assert report.help is None


def test_a_secret_from_the_environment_is_right() -> None:
    served = TOP.replace("{craft: textcraft}", "{craft: {url: 'http://h', token: '${env:SECRET}'}}")
    assert from_environment(served) == ()


# --- all at once ---------------------------------------------------------------------------------------------------


def test_all_mistakes_are_reported_in_file_order() -> None:
    found = reports("seed: -1\nalgorithm: {use: gppo, lr: 0, kl: {ceof: 1}}\nevla: 3\n")
    assert [each.span.text for each in found] == ["-1", "gppo", "0", "ceof", "evla"]


def test_a_tree_that_is_no_map_is_told_so() -> None:
    assert check_schema(tree("[1, 2]"), recipe_v1())[0].message == "expected a map, got a list"
    assert check_schema(tree("grpo"), recipe_v1())[0].code == "wrong-type"


def test_very_many_mistakes_end_in_one_that_says_so() -> None:
    lines = "".join(f"unheard_of_{i}: {i}\n" for i in range(5000))
    found = reports(lines)
    assert len(found) == MOST + 1
    assert found[-1].code == "too-many-errors"


def test_deep_and_wide_values_are_checked_without_trouble() -> None:
    deep = "{a: " * 40 + "1" + "}" * 40
    assert reports(f"vars: {deep}\n") == ()
    assert only(f"agent: {deep}\n").span.text == "a"
    assert len(reports("tags: [" + ", ".join(["1"] * 3000) + "]\n")) == MOST + 1


def test_a_plugin_may_use_keywords_that_recipes_do_not() -> None:
    report = check_schema(tree("depth: 5"), {"properties": {"depth": {"multipleOf": 2}}})[0]
    assert told(report) == ("bad-value", "5", None)
    assert (
        check_schema(tree("name: ''"), {"properties": {"name": {"minLength": 1}}})[0].message
        == "expected text that is not empty"
    )


# --- spelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "edits"), [("lr", "rl", 1), ("kl", "kl", 0), ("turns", "turn", 1), ("abc", "xyz", 3), ("", "ab", 2)]
)
def test_distance_counts_slips(a: str, b: str, edits: int) -> None:
    assert distance(a, b) == distance(b, a) == edits


def test_closest_prefers_the_same_letters_and_ignores_style() -> None:
    assert find_closest("rl", ["kl", "lr"])[0][1] == "lr"
    assert find_closest("Group-Size", ["group_size", "groups"])[0] == (0.0, "group_size")
    assert find_closest("to_p", ["stop", "top_p"])[0][1] == "top_p"
    assert find_closest("unheard", ["lr", "kl"]) == []
    assert find_closest("x" * 100_000, ["lr"]) == []


@pytest.mark.parametrize(
    ("gpu", "meant"),
    [("rtx-5090", None), ("H100", "h100"), ("h-100", "h100"), ("a100", "a100-40gb"), ("h1000", "h100"), ("v100", None)],
)
def test_an_unknown_gpu_points_to_its_memory(gpu: str, meant: str | None) -> None:
    advice = only(f"hardware: {{gpus_per_node: 1, gpu: {gpu}}}").help or ""
    assert "gpu_memory_gb" in advice
    assert (f"'{meant}'" if meant else "did you mean") in advice or meant is None
    assert ("did you mean" in advice) is (meant is not None)


@pytest.mark.parametrize(
    ("extra", "advice"),
    [
        (
            "rollout: fast",
            (
                "write rollout: {slots: 128}; its keys are slots, limits, retries, reset_timeout_s, step_timeout_s, "
                "episode_timeout_s, max_fault_share"
            ),
        ),
        (
            "eval: true",
            (
                "write eval: {every: 25}; its keys are every, at_start, at_end, tasks, limit, turns, samples, "
                "temperature, greedy, confidence"
            ),
        ),
        ("eval: false", "write null"),
    ],
)
def test_where_a_map_is_expected_one_is_shown(extra: str, advice: str) -> None:
    assert only(extra).help == advice


@pytest.mark.parametrize(
    ("extra", "advice"),
    [
        ("environments: {craft: {name: x}}", "did you mean 'use'?"),
        ("model: {name: x}", "did you mean 'path'?"),
        ("algorithm: {name: x}", "did you mean 'use'?"),
        ("logging: [{name: x}]", "did you mean 'use'?"),
    ],
)
def test_a_suggestion_considers_where_the_key_stands(extra: str, advice: str) -> None:
    section = extra.split(":")[0]
    top = "".join(f"{line}\n" for line in TOP.splitlines() if not line.startswith(section))
    found = [each for each in reports(extra, top) if each.code == "unknown-key"]
    assert [each.help for each in found] == [advice]
