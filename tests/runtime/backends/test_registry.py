"""The table of backends, without an engine."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from agym.runtime.backends.registry import (
    DEFAULT_LEARNER,
    DEFAULT_SAMPLER,
    ENGINE_PACKAGES,
    LEARNERS,
    SAMPLERS,
    Backend,
)

ROWS = [*SAMPLERS.values(), *LEARNERS.values()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_part_of_a_row_is_a_class_of_its_module(row: Backend, root: Path) -> None:
    for part in row.parts.values():
        module, _, name = part.partition(":")
        file = root.joinpath("runtime", "backends", *module.split(".")).with_suffix(".py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert name in [each.name for each in tree.body if isinstance(each, ast.ClassDef)]


def test_packages_of_the_table_are_those_of_the_extras(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {re.split("[>=]", line)[0] for extra in ("cuda", "cpu", "ray") for line in extras[extra]}
    # gguf reads a model that was downloaded, once
    assert named == {*ENGINE_PACKAGES, "gguf"}


def test_the_default_backends_stand_in_the_table() -> None:
    assert SAMPLERS[DEFAULT_SAMPLER.name] is DEFAULT_SAMPLER
    assert LEARNERS[DEFAULT_LEARNER.name] is DEFAULT_LEARNER
