"""A cluster of just this machine: clients that log how they are called, and steps that run here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.source import Source
from agym.files import DiskLibrary
from agym.launch.job import Job, make_job

ROOT = Path(__file__).resolve().parents[2]
TWO_NODES = (
    "agym: 1\nname: two\nextends: agentgym-rl/textcraft-fixed\nhardware: {nodes: 2}\n"
    "environments: {textcraft: {transport: http, replicas: 3}}\n"
)


def plan_of(text: str, folder: Path) -> Plan:
    compiled = compile_recipe(Source("r.yaml", text), DiskLibrary(folder), (), {}, catalog())
    assert not compiled.failed, [each.message for each in compiled.diagnostics]
    return compiled.variants[0].plan


def job_of(text: str, folder: Path, **changes: object) -> Job:
    plan = plan_of(text, folder)
    run_folder = folder / "runs" / plan.name
    job = make_job(
        plan,
        folder=str(folder),
        run_folder=str(run_folder),
        first=("run", "r.yaml"),
        again=("run", str(run_folder), "--resume"),
        variables=(),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def linter(name: str) -> str:
    """A linter of the development tools, which `make setup` installs."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed: make setup")
    return found


@dataclass(frozen=True)
class Clients:
    """Programs of a scheduler, first on the path, each of which logs its arguments."""

    folder: Path
    log: Path

    def add(self, name: str, *lines: str) -> Path:
        file = self.folder / name
        body = "\n".join(lines)
        # a call is a line, written at once
        logged = f"""words="{name} $*"\nprintf '%s\\n' "${{words//$'\\n'/⏎}}" >>"{self.log}"\n"""
        file.write_text(f"#!/usr/bin/env bash\n{logged}{body}\n")
        file.chmod(0o755)
        return file

    @property
    def environ(self) -> Mapping[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def calls(self, name: str) -> Sequence[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    folder = tmp_path / "clients"
    folder.mkdir()
    return Clients(folder=folder, log=tmp_path / "calls")
