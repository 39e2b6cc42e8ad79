"""Files, folders and models that a recipe names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.source import Source
from agym.files import DiskLibrary

HEAD = "agym: 1\nname: mine\nenvironments: {web: web}\nschedule: [{stage: a, turns: 10, until: step >= 10}]\n"
MODEL = "model: {init: {family: qwen3}}\n"
Say = Callable[[str], list[tuple[str, str, str]]]


@pytest.fixture
def say(tmp_path: Path, catalog: Catalog) -> Say:
    """Code, the text that it points at, and help, of a recipe next to a model, a prompt and a folder of episodes."""
    for name in ("model/config.json", "model.safetensors", "prompt.txt", "runs/one/episodes.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")

    def said(text: str) -> list[tuple[str, str, str]]:
        source = Source("mine.yaml", HEAD + text, key=str(tmp_path / "mine.yaml"))
        environ = {"ROOT": str(tmp_path)}
        found = compile_recipe(source, DiskLibrary(tmp_path), (), environ, catalog).diagnostics
        return [(each.code, each.span.text, each.help or "") for each in found]

    return said


@pytest.mark.parametrize(
    "text",
    [
        "model: ./model\n",
        "model: ${env:ROOT}/model\n",
        "model: org/name\n",
        "model: gpt2\n",
        MODEL + "agent: {prompt: prompt.txt}\n",
        MODEL + "agent: {prompt: '${env:ROOT}/prompt.txt'}\n",
        MODEL + "algorithm: {use: sft, data: {source: episodes, path: runs/one}}\n",
    ],
)
def test_what_is_there_or_may_be_on_the_hub_is_right(say: Say, text: str) -> None:
    assert [found for found in say(text) if found[0] != "no-effect"] == []


@pytest.mark.parametrize(
    ("text", "code", "place", "advice"),
    [
        ("model: None\n", "bad-value", "None", "write a folder or an id of the hub"),
        ("model: ./gone\n", "file-not-found", "./gone", "paths count from"),
        ("model: /no/such/folder\n", "file-not-found", "/no/such/folder", "paths count from"),
        ("model: ~/no-such-folder\n", "file-not-found", "~/no-such-folder", "paths count from"),
        ("model: ./model.safetensors\n", "file-refused", "./model.safetensors", "the folder that it is in"),
        ("model: ./prompt.txt\n", "file-refused", "./prompt.txt", ""),
        ("model: runs/one/model\n", "file-not-found", "runs/one/model", "write ./ before a folder"),
        ("model: runs/one/\n", "file-not-found", "runs/one/", "write ./runs/one/"),
        ("model: hf://org/name\n", "bad-value", "hf://org/name", "download it"),
        ("model: '%HOME%\\model'\n", "bad-value", "'%HOME%\\model'", "write ${env:HOME}"),
        ("model: {path: org/name, tokenizer: ./gone}\n", "file-not-found", "./gone", "paths count from"),
        (MODEL + "agent: {prompt: gone.txt}\n", "file-not-found", "gone.txt", "paths count from"),
        (MODEL + "agent: {prompt: runs}\n", "file-refused", "runs", "name a file in it"),
        (MODEL + "agent: {prompt: Be a good agent please.}\n", "bad-value", "Be a good agent please.", "save the text"),
        (
            MODEL + "reward: {source: judge, judge: {url: 'http://x', model: m, prompt: a.txt}}\n",
            "file-not-found",
            "a.txt",
            "",
        ),
    ],
)
def test_what_cannot_be_a_path_or_leads_nowhere_is_reported_once(
    say: Say, text: str, code: str, place: str, advice: str
) -> None:
    found = say(text)
    assert [each[:2] for each in found] == [(code, place)]
    assert advice in found[0][2]
