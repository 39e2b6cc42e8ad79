"""Secrets: found by their shape in every text of a recipe; what comes from the environment is never written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agym.dsl.catalog import Catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model import reflect
from agym.dsl.model.recipe import Recipe
from agym.dsl.model.reflect import Record, Type, record
from agym.dsl.publish.plan_json import dump_json
from agym.dsl.source import Source

from ..conftest import Agym
from ..memory_library import MemoryLibrary

LETTERS = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
SHAPES = {
    "openai": f"sk-{LETTERS}",
    "anthropic": f"sk-ant-api03-{LETTERS}",
    "hugging face": f"hf_{LETTERS[:34]}",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": f"ghp_{LETTERS[:36]}",
    "github, fine-grained": f"github_pat_{LETTERS}",
    "google": f"AIza{LETTERS[:35]}",
    "slack": f"xoxb-{LETTERS[:24]}",
    "web token": f"eyJ{LETTERS[:20]}.{LETTERS}.{LETTERS}",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "address": "https://user:pass@host.example/v1",
    "bearer": f"Authorization: Bearer {LETTERS}",
    "wandb": "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
}
BASE = """\
agym: 1
name: mine
model: {init: {family: qwen3}}
environments: {web: {use: web}}
schedule: [{stage: a, turns: 10, until: step >= 10}]
logging: [{use: wandb}]
"""


def text_keys(type_: Type, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key that takes text, expressions among it."""
    match type_:
        case Record():
            for name, field in type_.fields.items():
                yield from text_keys(field.type, (*path, name))
        case reflect.Table():
            yield from text_keys(type_.item, (*path, "web"))
        case reflect.Series() | reflect.Row():
            item = type_.item if isinstance(type_, reflect.Series) else type_.items[0]
            yield from text_keys(item, (*path, 0))
        case reflect.Free():
            yield (*path, "any")
        case reflect.Word() | reflect.Formula() | reflect.Choice() | reflect.Number(scope=str()):
            yield path


KEYS = list(text_keys(record(Recipe)))
NAMES = (("name",), ("schedule", 0, "stage"))
"""Of the run and its folder, and of stages: they are known by them."""


def put(path: tuple[str | int, ...], value: str) -> str:
    """The small recipe with a value at a key."""
    data: Any = yaml.safe_load(BASE)
    node = data
    for step, after in itertools.pairwise(path):
        fresh: Any = [] if isinstance(after, int) else {}
        if isinstance(node, list):
            node += [] if node else [fresh]
            node = node[0]
        else:
            node[step] = node.get(step) or fresh
            node = node[step]
    if isinstance(node, list):
        node[:] = [value]
    else:
        node[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_is_found_by_its_shape_in_every_text(shape: str, catalog: Catalog) -> None:
    assert len(KEYS) > 150
    for path in KEYS:
        text = put(path, SHAPES[shape])
        found = compile_recipe(Source("a.yaml", text), MemoryLibrary({}), (), {}, catalog).diagnostics
        said = [each for each in found if each.code == "literal-secret"]
        assert len(said) == 1, (path, found)
        assert SHAPES[shape] not in said[0].message + (said[0].help or "")


@pytest.mark.parametrize("key", ["api_key", "password", "secret", "accessKey", "auth.token"])
def test_so_it_is_by_the_name_of_its_key(key: str, catalog: Catalog) -> None:
    text = put(("logging", 0, "options", key), "0123456789abcdef0123456789abcdef01234567")
    found = compile_recipe(Source("a.yaml", text), MemoryLibrary({}), (), {}, catalog).diagnostics
    assert "literal-secret" in {each.code for each in found}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (("logging", 0, "api_key"), "unknown-key"),
        (("algorithm", "foo"), "unknown-key"),
        (("algorithm", "foo", "deep", 0), "unknown-key"),
        (("environments", "web", "options", "token"), "literal-secret"),
    ],
)
def test_one_under_a_key_that_does_not_exist_is_one_error(
    path: tuple[str | int, ...], code: str, catalog: Catalog
) -> None:
    text = put(path, "hf_abcdefghijklmnopqrstuvwxyz0123456789")
    found = compile_recipe(Source("a.yaml", text), MemoryLibrary({}), (), {}, catalog).diagnostics
    assert [each.code for each in found] == [code]


@pytest.mark.parametrize(
    "innocent",
    [
        "0123456789abcdef0123456789abcdef01234567",
        "task-oriented-agents-with-many-words-1",
        "https://host.example:8080/@me",
        "git@host.example:me/mine.git",
        "https://user:${env:PASSWORD}@host.example",
        "the bearer of bad news",
        "max new tokens: 512",
        "key: value",
    ],
)
def test_what_only_looks_a_little_like_one_is_not(innocent: str, catalog: Catalog) -> None:
    text = put(("description",), innocent)
    environ = {"PASSWORD": "hunter2hunter2"}
    assert compile_recipe(Source("a.yaml", text), MemoryLibrary({}), (), environ, catalog).diagnostics == ()


@pytest.mark.parametrize("value", ["hunter2hunter2", "https://me:hunter2hunter2@host.example"])
def test_what_comes_from_the_environment_reaches_no_plan_and_no_error(value: str, catalog: Catalog) -> None:
    for path in (each for each in KEYS if each not in NAMES):
        for written in ("${env:HIDDEN}", "https://me:${env:HIDDEN}@host.example"):
            text = put(path, written)
            made = compile_recipe(Source("a.yaml", text), MemoryLibrary({}), (), {"HIDDEN": value}, catalog)
            shown = "".join(f"{each.message} {each.help}" for each in made.diagnostics)
            assert "hunter2" not in shown + "".join(dump_json(each.plan) for each in made.variants), path


@pytest.mark.parametrize("form", ["tree", "json", "mermaid", "dot"])
def test_nor_what_a_person_is_shown(form: str, agym: Agym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "hunter2hunter2")
    judge = "reward: {source: judge, judge: {url: 'http://me:${env:HIDDEN}@host', model: '${env:HIDDEN}'}}\n"
    more = f"name: mine\ndescription: '${{env:HIDDEN}}'\ntags: ['${{env:HIDDEN}}']\n{judge}"
    (tmp_path / "a.yaml").write_text(f"agym: 1\nextends: quickstart\n{more}", encoding="utf-8")
    called = agym("plan", "a.yaml", "--format", form)
    assert called.code == 0, called.err
    assert "hunter2" not in called.out + called.err
    if form == "json":
        assert "http://me:${env:HIDDEN}@host" in called.out
