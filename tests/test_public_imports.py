"""What plugins may import: the frozen list, and the examples of docs/plugins.md as an installed package."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.recipe import Sink
from agym.dsl.source import Source
from agym.envs.protocol import EnvSpec, Observation, Reached, Step
from agym.runtime.sinks.protocol import Opening
from agym.runtime.sinks.registry import factory_of

from .conftest import ROOT, Agym
from .memory_library import MemoryLibrary

PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
PUBLIC: Mapping[str, tuple[str, ...]] = {
    "agym.envs.protocol": (
        "Env",
        "EnvSpec",
        "JudgeRequest",
        "Json",
        "Observation",
        "Reached",
        "Runs",
        "Score",
        "Seat",
        "SeatModel",
        "Status",
        "Step",
        "ToolSchema",
        "YesNoQuestion",
    ),
    "agym.envs.errors": ("BadOption", "EpisodeOver", "UnknownSplit", "UnknownTask"),
    "agym.envs.options": ("read_options",),
    "agym.envs.wire": ("judge_to",),
    "agym.envs.clients.client": ("InlineEnv",),
    "agym.envs.conformance": ("CheckResult", "Subject", "run_checks"),
    "agym.runtime.sinks.protocol": ("MetricsSink", "Opening", "remember"),
    "agym.runtime.reporting": ("MetricsRow",),
    "agym.runtime.errors": ("RunError",),
}
"""A promise to authors of plugins: a name may be added here, and is never taken away without a new major version."""
FIELDS: Mapping[type, tuple[str, ...]] = {
    EnvSpec: (
        "name",
        "version",
        "summary",
        "splits",
        "score",
        "score_range",
        "prompt",
        "max_turns",
        "runs",
        "tools",
        "tool_prompt",
        "free_text",
        "models",
    ),
    Observation: ("text", "valid_actions", "picture", "seat"),
    Step: ("observation", "reward", "terminated", "truncated", "status", "info"),
    Reached: ("task", "actions", "first"),
    Opening: ("settings", "plan", "folder", "environ", "wall_clock", "recipe"),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there_and_listed_by_its_module(module: str) -> None:
    assert set(PUBLIC[module]) <= set(import_module(module).__all__)


def test_the_page_lists_the_public_names_and_no_other() -> None:
    rows = re.findall(r"^\| `(agym[\w.]+)` \| (.*?) \|", PAGE, re.MULTILINE)
    assert {module: tuple(re.findall(r"`(\w+)`", names)) for module, names in rows} == PUBLIC


@pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)
def test_fields_of_public_data_stay_what_they_are(cls: type) -> None:
    assert tuple(field.name for field in fields(cls)) == FIELDS[cls]


def test_the_examples_import_public_names_only() -> None:
    imported = re.findall(r"^from (agym[\w.]+) import (.+)$", PAGE, re.MULTILINE)
    assert len(imported) >= 4
    for module, names in imported:
        assert set(names.split(", ")) <= set(PUBLIC[module])


# --- the examples --------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The examples of the page, as files of an installed package."""
    site = tmp_path / "site"
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(code)
    (data,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (site / "guessing" / "env.json").write_text(data)
    (site / "guessing" / "__init__.py").touch()
    metadata = site / "guessing-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: guessing\nVersion: 1.0\nSummary: examples\n")
    points = re.findall(r'```toml\n\[project\.entry-points\."(\S+)"\]\n(\w+) = "(\S+)"', PAGE)
    (metadata / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {at}\n" for group, name, at in points))
    monkeypatch.syspath_prepend(site)
    # for the server that one of the checks starts
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, (site, ROOT.parent, *sys.path))))
    yield site
    for name in ("guessing", "guessing.env", "paper"):
        sys.modules.pop(name, None)


def test_the_environment_of_the_page_passes_every_check(installed: Path, agym: Agym) -> None:
    called = agym("envs", "check", "guessing")
    assert called.code == 0, called.out
    assert "none failed" in called.out


def test_the_test_of_the_page_passes(installed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(installed / "test_guessing.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=installed, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_recipe_may_name_what_the_page_makes(installed: Path, tmp_path: Path) -> None:
    text = "agym: 1\nname: x\nmodel: {init: {tokenizer: {kind: word}}}\nenvironments: {guessing: guessing}\n"
    text += "schedule: [{stage: go, turns: 7, until: step >= 1}]\nlogging: [paper]\n"
    compiled = compile_recipe(Source("r.yaml", text), MemoryLibrary({}), (), {}, catalog())
    assert not compiled.failed, [each.message for each in compiled.diagnostics]
    plan = compiled.variants[0].plan
    sink = factory_of("paper")(
        Opening(settings=Sink(use="paper"), plan=plan, folder=tmp_path, environ={}, wall_clock=lambda: 0.0)
    )
    sink.write({"total_step": 11, "rollout/success": 0.5})
    sink.note("a guard spoke")
    sink.close(failed=False)
    assert (tmp_path / "logs" / "paper.txt").read_text() == "11 0.5\na guard spoke\n"
