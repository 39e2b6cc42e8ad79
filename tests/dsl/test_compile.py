"""The whole way from a source to plans: the order of the phases, and what each may leave to the next."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from agym.catalog import catalog as registered
from agym.dsl.catalog import Catalog
from agym.dsl.check.bind import bind
from agym.dsl.check.json_schema import check_schema
from agym.dsl.check.key_suggestions import SchemaKeys
from agym.dsl.compile import Compiled, compile_recipe, find_shorthand
from agym.dsl.compose.compose import compose
from agym.dsl.model.recipe import DType
from agym.dsl.source import Source
from agym.dsl.text.node import MapNode
from agym.files import DiskLibrary
from agym.schemas import recipe_v1
from mistakes import one_of_each

from ..memory_library import MemoryLibrary

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(
    file
    for folder in ("tests/recipes_bad", "tests/recipes_good", "recipes")
    for file in (ROOT / folder).rglob("*.yaml")
)

RIGHT = """\
agym: 1
name: mine
model: {path: ./models/tiny}
environments: {web: web}
schedule: [{stage: go, turns: 10, until: step >= 10}]
"""
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def compiled(
    text: str, catalog: Catalog, files: Mapping[str, str | bytes] | None = None, *, incomplete: bool = False
) -> Compiled:
    source = Source("r.yaml", text)
    return compile_recipe(source, MemoryLibrary(files or {}), (), {}, catalog, incomplete=incomplete)


def codes(result: Compiled) -> list[str]:
    return [each.code for each in result.diagnostics if each.severity == "error"]


@pytest.mark.parametrize(
    ("model", "gpus", "computes", "dtype"),
    [
        ("{path: ./models/tiny}", 0, True, DType.BF16),
        ("{path: ./models/tiny}", 0, False, DType.FP32),
        ("{path: ./models/tiny, dtype: fp32}", 0, True, DType.FP32),
        ("{path: ./models/tiny}", 1, False, DType.AUTO),
        ("{init: {layers: 2, tokenizer: {kind: bpe}}}", 0, True, DType.AUTO),
    ],
)
def test_a_pretrained_model_takes_the_precision_that_the_cpu_is_fast_in(
    catalog: Catalog, model: str, gpus: int, computes: bool, dtype: DType
) -> None:
    known = replace(catalog, computes_bf16=lambda: computes)
    text = RIGHT.replace("{path: ./models/tiny}", model) + f"hardware: {{gpus_per_node: {gpus}}}\n"
    compiling = compiled(text, known, {"models/tiny/config.json": json.dumps(CONFIG)})
    (run,) = compiling.variants
    assert run.recipe.model.dtype is run.plan.model.dtype is dtype


def test_a_right_recipe_gives_one_run_with_tree_recipe_and_plan(catalog: Catalog) -> None:
    (run,) = compiled(RIGHT, catalog).variants
    assert run.recipe.name == run.plan.name == "mine"
    assert run.choices == ()
    assert len(run.plan.recipe_sha256) == 64


def test_the_hash_is_that_of_what_the_recipe_says_not_of_how(catalog: Catalog) -> None:
    def digest(text: str) -> str:
        return compiled(text, catalog).variants[0].plan.recipe_sha256

    assert digest(RIGHT) == digest("# a comment\n" + RIGHT.replace("{web: web}", "{web: {use: web}}"))
    assert digest(RIGHT) != digest(RIGHT + "seed: 1\n")


def test_mistakes_of_shape_expression_and_composition_are_told_together(catalog: Catalog) -> None:
    text = RIGHT.replace("step >= 10", "setp >= 10") + "seed: x\nextends: ./nothing\nalgoritm: {}\n"
    assert {"file-not-found", "unknown-key"} <= set(codes(compiled(text, catalog)))
    assert len(codes(compiled(text, catalog))) == 4


def test_a_recipe_with_a_mistake_has_no_run_but_counts_them(catalog: Catalog) -> None:
    result = compiled(RIGHT + "matrix: {seed: [0, 1, x]}\n", catalog)
    assert result.failed
    assert (len(result.variants), result.num_runs) == (2, 3)


def test_a_mistake_that_all_runs_share_is_told_once(catalog: Catalog) -> None:
    result = compiled(RIGHT.replace("turns: 10", "turns: 0") + "matrix: {seed: [0, 1, 2]}\n", catalog)
    assert codes(result) == ["out-of-range"]
    assert result.num_runs == 3


def test_runs_of_a_matrix_know_what_was_chosen(catalog: Catalog) -> None:
    result = compiled(RIGHT + "matrix: {seed: [3, 5]}\n", catalog)
    assert [run.choices for run in result.variants] == [(("seed", "3"),), (("seed", "5"),)]
    assert [run.plan.seed for run in result.variants] == [3, 5]


def test_an_incomplete_recipe_may_lack_keys_but_not_be_wrong(catalog: Catalog) -> None:
    part = "agym: 1\nalgorithm: {lr: 1e-5}\n"
    assert "missing-key" in codes(compiled(part, catalog))
    assert codes(compiled(part, catalog, incomplete=True)) == []
    assert codes(compiled(part.replace("1e-5", "-1"), catalog, incomplete=True)) == ["out-of-range"]


def test_where_a_base_cannot_be_read_its_keys_are_not_missed(catalog: Catalog) -> None:
    assert codes(compiled("agym: 1\nname: x\nextends: ./gone\n", catalog)) == ["file-not-found"]


def test_what_cannot_be_read_at_all_has_no_runs(catalog: Catalog) -> None:
    result = compiled("agym: [", catalog)
    assert (result.num_runs, result.variants, result.failed) == (0, (), True)


# --- sizes of a model in a folder ----------------------------------------------------------------------------------


def test_sizes_of_a_model_in_a_folder_are_read_from_its_configuration(catalog: Catalog) -> None:
    files = {"models/tiny/config.json": json.dumps(CONFIG)}
    (run,) = compiled(RIGHT, catalog, files).variants
    assert run.plan.shape is not None
    assert (run.plan.shape.layers, run.plan.shape.vocab) == (2, 100)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b"[" * 100_000, b'{"model_type": "odd"}'])
def test_a_configuration_that_cannot_be_used_leaves_the_sizes_unknown(catalog: Catalog, content: bytes) -> None:
    (run,) = compiled(RIGHT, catalog, {"models/tiny/config.json": content}).variants
    assert run.plan.shape is None


def test_a_model_that_is_not_there_leaves_the_sizes_unknown(catalog: Catalog) -> None:
    (run,) = compiled(RIGHT, catalog).variants
    assert run.plan.shape is None


def test_an_absolute_folder_is_read_as_the_command_line_would(catalog: Catalog) -> None:
    files = {"/models/tiny/config.json": json.dumps(CONFIG)}
    (run,) = compiled(RIGHT.replace("./models", "/models"), catalog, files).variants
    assert run.plan.shape is not None


# --- the schema and binding agree ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_schema_refuses_nothing_that_binding_lets_pass() -> None:
    library = DiskLibrary(ROOT)
    opened = (library.open(str(file)) for file in RECIPES)
    sources = [each for each in opened if isinstance(each, Source)]
    sources += [Source(each.name, each.text) for each in one_of_each(SchemaKeys(recipe_v1()), registered())]
    assert [
        each.name for each in sources for variant in variants(each, library) if refused_by_the_schema(variant)
    ] == []


def variants(source: Source, library: DiskLibrary) -> list[MapNode]:
    return [each.tree for each in compose(source, library, (), {}, find_shorthand).variants]


def refused_by_the_schema(tree: MapNode) -> bool:
    return not bind(tree).rejected and bool(check_schema(tree, recipe_v1()))


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("algorithm",), "use"),
        (("model",), "path"),
        (("environments", "any"), "use"),
        (("environments", "any", "tasks", "train"), "split"),
        (("seed",), None),
        (("nothing", "at", "all"), None),
    ],
)
def test_a_bare_value_stands_for_the_key_that_its_class_says(path: tuple[str, ...], key: str | None) -> None:
    assert find_shorthand(path) == key


# --- one mistake, told once ----------------------------------------------------------------------------------------


def test_names_are_looked_up_also_where_something_else_is_wrong(catalog: Catalog) -> None:
    text = RIGHT.replace("{web: web}", "{a: wbe, b: {use: web, tasks: {train: trian}}}")
    text += "sed: 1\neval: {tasks: tset}\nlogging: [wandbb]\n"
    assert codes(compiled(text, catalog)) == [
        *("unknown-environment", "unknown-split", "unknown-key", "unknown-split", "unknown-name")
    ]


def test_names_next_to_a_mistake_are_told_in_the_words_of_the_rules(catalog: Catalog) -> None:
    text = RIGHT.replace("{web: web}", "{a: wbe}")
    (alone,) = compiled(text, catalog).diagnostics
    together = compiled(text + "seed: x\n", catalog).diagnostics
    assert (alone.message, alone.help) in [(each.message, each.help) for each in together]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("seed: ${vars.x}\n", "unknown-var"),
        ("algorithm: {lr: '2 * ${vars.x}'}\n", "unknown-var"),
        ("${vars.x}: 1\n", "unknown-var"),
        ("seed: 010\n", "ambiguous-number"),
        ("algorithm: {lr: .inf}\n", "bad-number"),
        ("algorithm: {lr: 1e400}\n", "bad-number"),
        ("seed: “1”\n", "smart-quotes"),
        ("algorithm: {lr: max(1, true)}\n", "comma-in-flow"),
        ("tags: [*self]\n", "unknown-alias"),
        ("algorithm:\n  <<: *fast\n", "unknown-alias"),
        ("output: {{ x }}\n", "key-type"),
        ("vras: {a: 1}\nseed: ${vars.a}\n", "unknown-key"),
    ],
)
def test_what_could_not_be_read_is_not_also_of_the_wrong_kind(more: str, code: str, catalog: Catalog) -> None:
    found = codes(compiled(RIGHT + more, catalog))
    assert found == ["bad-reference" if more.startswith("$") else code]


def test_a_mistake_inside_a_map_of_the_wrong_kind_hides_it_not(catalog: Catalog) -> None:
    assert codes(compiled(RIGHT + "seed: {a: 010}\n", catalog)) == ["wrong-type", "ambiguous-number"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_required_key_that_is_misspelt_is_not_also_missing(order: int, catalog: Catalog) -> None:
    parts = [RIGHT, "reward: {source: judge, judge: {ul: http://localhost, model: big}}\n"]
    assert codes(compiled("".join(parts[::order]), catalog)) == ["unknown-key"]
    in_stage = RIGHT.replace("stage: go,", "stage: go, reward: {source: judge, judge: {ul: http://a, model: big}},")
    assert codes(compiled(in_stage, catalog)) == ["unknown-key"]
