"""Where the paths in a recipe count from: the folder of the file that they were written in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from agym.dsl.catalog import Catalog, EnvironmentInfo
from agym.dsl.check.paths import anchor_paths
from agym.dsl.compile import CompiledVariant, compile_recipe
from agym.dsl.compose.library import Found, Refusal, Trouble
from agym.dsl.publish.plan_json import dump_json
from agym.dsl.source import Source
from agym.files import DiskLibrary
from agym.reporters.resolved import resolved_yaml

from ..conftest import Agym
from ..memory_library import MemoryLibrary

HEAD = "agym: 1\nname: mine\n"
BODY = "environments: {web: web}\nschedule: [{stage: go, turns: 10, until: step >= 10}]\n"

Right = Callable[..., CompiledVariant]


@pytest.fixture
def right(catalog: Catalog) -> Right:
    def compiled(text: str, files: Mapping[str, str | bytes] | None = None) -> CompiledVariant:
        library = MemoryLibrary(files or {})
        made = compile_recipe(Source("recipes/a.yaml", text), library, (), {}, catalog)
        assert made.variants, [each.message for each in made.diagnostics]
        return made.variants[0]

    return compiled


@pytest.mark.parametrize(
    ("base", "written", "counted"),
    [
        ("recipes/b.yaml", "p.txt", "p.txt"),
        ("recipes/base/b.yaml", "p.txt", "base/p.txt"),
        ("recipes/base/b.yaml", "../p.txt", "p.txt"),
        ("b.yaml", "texts/p.txt", "../texts/p.txt"),
        ("b.yaml", "/texts/p.txt", "/texts/p.txt"),
        ("b.yaml", "~/p.txt", "~/p.txt"),
    ],
)
def test_a_file_named_in_a_base_counts_from_the_base(right: Right, base: str, written: str, counted: str) -> None:
    way = {"recipes/b.yaml": "b", "recipes/base/b.yaml": "base/b", "b.yaml": "../b"}[base]
    files = {base: f"agym: 1\nagent: {{prompt: {written}}}\nmodel: Qwen/Qwen3-0.6B\n"}
    made = right(f"{HEAD}extends: {way}\n{BODY}", files)
    assert made.plan.stages[0].settings.agent.prompt == counted
    assert made.plan.model.path == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize("model", ["{path: ./tiny}", "./tiny"])
def test_a_model_folder_stays_a_folder(right: Right, model: str) -> None:
    files = {"recipes/base/b.yaml": f"agym: 1\nmodel: {model}\n"}
    made = right(f"{HEAD}extends: base/b\n{BODY}", files)
    assert made.plan.model.path == "./base/tiny"


def test_the_size_of_a_model_is_read_where_its_path_leads(right: Right) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    files = {
        "recipes/base/b.yaml": "agym: 1\nmodel: ./tiny\n",
        "recipes/base/tiny/config.json": json.dumps(config | {"intermediate_size": 128, "vocab_size": 100}),
    }
    made = right(f"{HEAD}extends: base/b\n{BODY}", files)
    assert made.plan.shape is not None
    assert made.plan.shape.layers == 2


def test_every_reference_of_a_base_is_counted_anew(right: Right) -> None:
    base = """\
agym: 1
model: {init: {tokenizer: {corpus: c.txt}}, chat_template: t.jinja}
environments: {web: {use: web, tasks: {train: {file: train.txt}}}}
schedule:
  - {stage: go, until: step >= 10, agent: {prompt: p.txt},
     algorithm: {use: sft, data: {source: file, path: d.jsonl}}}
"""
    made = right(f"{HEAD}extends: base/b\n", {"recipes/base/b.yaml": base})
    (stage,) = made.plan.stages
    found = (
        made.plan.model.init.tokenizer.corpus,
        made.plan.model.chat_template,
        stage.settings.environments["web"].tasks.train.file,
        stage.settings.agent.prompt,
        stage.settings.algorithm.data.path,
    )
    assert found == ("base/c.txt", "base/t.jinja", "base/train.txt", "base/p.txt", "base/d.jsonl")
    rooted = anchor_paths(made.plan, "/root-of-all")
    assert rooted.model.chat_template == "/root-of-all/base/t.jinja"
    assert rooted.stages[0].settings.environments["web"].tasks.train.file == "/root-of-all/base/train.txt"
    assert rooted.stages[0].settings.algorithm.data.path == "/root-of-all/base/d.jsonl"


def test_a_path_that_is_blank_is_still_no_path(catalog: Catalog) -> None:
    files = {"recipes/base/b.yaml": "agym: 1\nmodel: Qwen/Qwen3-0.6B\nagent: {prompt: ''}\n"}
    source = Source("recipes/a.yaml", f"{HEAD}extends: base/b\n{BODY}")
    made = compile_recipe(source, MemoryLibrary(files), (), {}, catalog)
    assert made.failed


def test_what_is_shown_reads_back_to_the_same_plan(right: Right) -> None:
    files = {"recipes/base/b.yaml": "agym: 1\nmodel: ./tiny\nagent: {prompt: p.txt}\n"}
    made = right(f"{HEAD}extends: base/b\n{BODY}", files)
    again = right(resolved_yaml(made.tree))
    assert dump_json(again.plan) == dump_json(made.plan)


def test_a_plan_says_the_same_wherever_the_recipe_lies(tmp_path: Path, catalog: Catalog) -> None:
    plans = []
    for home in ("here", "there/far"):
        folder = tmp_path / home
        (folder / "base").mkdir(parents=True)
        (folder / "base/b.yaml").write_text("agym: 1\nmodel: ./tiny\nagent: {prompt: p.txt}\n")
        (folder / "base/p.txt").write_text("Act.")
        (folder / "base/tiny").mkdir()
        (folder / "a.yaml").write_text(f"{HEAD}extends: base/b\n{BODY}")
        library = DiskLibrary(tmp_path)
        source = library.open(f"{home}/a.yaml")
        assert isinstance(source, Source)
        (made,) = compile_recipe(source, library, (), {}, catalog).variants
        assert Path(made.folder) == folder
        assert anchor_paths(made.plan, made.folder).model.path == str(folder / "base/tiny")
        plans.append(dump_json(made.plan))
    assert plans[0] == plans[1]


def test_a_setting_counts_from_where_agym_was_called(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "p.txt").write_text("Act.")
    (tmp_path / "recipes/a.yaml").write_text(f"{HEAD}extends: quickstart\n")
    called = agym("plan", "recipes/a.yaml", "--set", "agent.prompt=p.txt", "--format", "json")
    assert json.loads(called.out)["stages"][0]["settings"]["agent"]["prompt"] == "../p.txt"


# --- paths in the options of environments --------------------------------------------------------------------------


@pytest.fixture
def files_catalog(catalog: Catalog) -> Catalog:
    def wrong(text: str) -> Iterator[tuple[int, str]]:
        yield from ((at, f"no {line}") for at, line in enumerate(text.splitlines(), start=1) if line != "good")

    schema = {"type": "string", "description": "A file.", "format": "path"}
    options = {"rows": schema, "folder": schema, "word": {"description": "Any."}, "command": {"description": "Any."}}
    info = EnvironmentInfo(
        name="filed", summary="", splits={"train": None, "test": None}, options=options, rows={"rows": wrong}
    )
    return Catalog(environments={**catalog.environments, "filed": info})


RUN = "model: Qwen/Qwen3-0.6B\neval: null\nschedule: [{stage: go, turns: 10, until: step >= 10}]\n"
THERE = {"recipes/base/rows.jsonl": "good\ngood\n", "recipes/base/data/x": "", "recipes/rows.jsonl": "good"}


def test_paths_in_options_count_from_the_file_that_they_are_written_in(files_catalog: Catalog) -> None:
    base = """\
agym: 1
environments:
  f:
    use: filed
    options: {rows: rows.jsonl, folder: ./data, word: rows.jsonl, command: [run, ./rows.jsonl, rows.jsonl]}
"""
    text = f"{HEAD}extends: base/b\n{RUN}"
    made = compile_recipe(
        Source("recipes/a.yaml", text), DiskLike({**THERE, "recipes/base/b.yaml": base}), (), {}, files_catalog
    )
    assert made.variants, [each.message for each in made.diagnostics]
    (stage,) = made.variants[0].plan.stages
    assert stage.settings.environments["f"].options == {
        "rows": "./base/rows.jsonl",
        "folder": "./base/data",
        "word": "rows.jsonl",
        "command": ("run", "./base/rows.jsonl", "rows.jsonl"),
    }
    rooted = anchor_paths(made.variants[0].plan, "/root-of-all").stages[0].settings.environments["f"].options
    assert (rooted["rows"], rooted["word"]) == ("/root-of-all/base/rows.jsonl", "rows.jsonl")
    assert rooted["command"] == ("run", "/root-of-all/base/rows.jsonl", "rows.jsonl")
    again = compile_recipe(
        Source("recipes/a.yaml", resolved_yaml(made.variants[0].tree)), DiskLike(THERE), (), {}, files_catalog
    )
    assert dump_json(again.variants[0].plan) == dump_json(made.variants[0].plan)


@pytest.mark.parametrize(
    "worlds",
    [
        "environments: {f: {use: filed, options: {rows: ROWS}}}\n",
        "environments: {f: filed}\nSTAGE: {f: {options: {rows: ROWS}}}\n",
    ],
)
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("rows.jsonl", None),
        ("/abs.jsonl", None),
        ("rowz.jsonl", "file-not-found: there is no file or folder 'rowz.jsonl'"),
        ("/nowhere", "file-not-found: there is no file or folder '/nowhere'"),
        ("wrong.jsonl", "bad-option: 'wrong.jsonl', line 2: no bad; 1 more of its lines are wrong"),
        ("odd.jsonl", "bad-option: 'odd.jsonl', line 2: it is not UTF-8"),
    ],
)
def test_files_of_options_are_there_and_their_rows_right(
    files_catalog: Catalog, worlds: str, rows: str, told: str | None
) -> None:
    head, _, stage = worlds.replace("ROWS", rows).partition("STAGE: ")
    run = RUN.replace("turns: 10", f"environments: {stage.strip()}, turns: 10") if stage else RUN
    files = {"recipes/wrong.jsonl": "good\nbad\nworse", "recipes/odd.jsonl": b"good\n\xff", "/abs.jsonl": "good"}
    text = f"{HEAD}{head}{run}"
    made = compile_recipe(Source("recipes/a.yaml", text), DiskLike({**THERE, **files}), (), {}, files_catalog)
    assert [f"{each.code}: {each.message}" for each in made.diagnostics] == ([told] if told else [])
    assert all(each.span.text == rows for each in made.diagnostics)


def test_a_folder_of_options_that_is_not_there_is_told_and_one_that_is_is_not_read(files_catalog: Catalog) -> None:
    def told(option: str, value: str) -> list[str]:
        text = f"{HEAD}environments: {{f: {{use: filed, options: {{{option}: {value}}}}}}}\n{RUN}"
        made = compile_recipe(Source("recipes/a.yaml", text), DiskLike(THERE), (), {}, files_catalog)
        return [each.message for each in made.diagnostics]

    assert told("folder", "base/data") == []
    assert told("folder", "base/dada") == ["there is no file or folder 'base/dada'"]
    assert told("rows", "base/data") == ["'base/data' is a folder, expected a file"]


class DiskLike(MemoryLibrary):
    """Tells folders from files that are not there, whoever asks."""

    def read(self, reference: str, base: Source | None) -> Found | Refusal:
        found = super().read(reference, base)
        folder = isinstance(found, Refusal) and any(name.startswith(f"{reference}/") for name in self.files)
        return Refusal(trouble=Trouble.FOLDER) if folder else found
