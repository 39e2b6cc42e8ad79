"""The image file: linted, pinned, and made of packages that exist."""

from __future__ import annotations

import re
import subprocess
import tomllib

from .conftest import ROOT, linter

FILE = ROOT / "docker" / "Dockerfile"


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([linter("hadolint"), "--no-color", str(FILE)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_its_base_is_pinned_and_its_extras_are_there() -> None:
    text = FILE.read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-devel-ubuntu\d+\.\d+", base)
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= known.keys()
    assert {"cuda", "ray", "envs"} <= set(extras.split(","))


def test_what_it_copies_is_all_that_is_installed() -> None:
    left_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    tops = {package.split(".")[1] for package in packages if "." in package}
    assert not tops & set(left_out)
