"""The pages' own files: text enters as text alone, styles and scripts come from files, modules can be inlined."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from agym.viewer.server import FETCHED, STATIC, read_static

VIEWER = STATIC.parent
MODULES = sorted(STATIC.rglob("*.js"))
FORBIDDEN = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment", "srcdoc",
    "eval(", "Function(", "setHTML", "XMLHttpRequest", "http:", "https:",
)  # fmt: skip
SVG_SPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_no_module_makes_markup_of_text_or_asks_elsewhere(path: Path) -> None:
    source = path.read_text(encoding="utf-8").replace(SVG_SPACE, "")
    assert [each for each in FORBIDDEN if each in source] == []


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page) == []


def test_modules_import_and_export_so_that_they_may_stand_in_one_script() -> None:
    names = Counter[str]()
    for path in MODULES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("import"):
                assert re.fullmatch(r'import \{ [\w, ]+ \} from "\.{1,2}/[\w./-]+\.js";', line), line
            if line.startswith("export"):
                assert re.match(r"export (?:async function|function|class|const) \w+", line), line
            found = re.match(r"(?:export )?(?:async )?(?:function|class|const|let) (\w+|\{[^}]*\})", line)
            if found:
                names[found[1]] += 1
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 50


def test_what_is_fetched_has_hashes_and_no_addresses() -> None:
    lock = json.loads((VIEWER / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert {name: package.get("dev", False) for name, package in packages.items()} == {
        "node_modules/axe-core": True, "node_modules/uplot": False,
    }  # fmt: skip
    assert all(
        package["integrity"].startswith("sha512-") and "resolved" not in package for package in packages.values()
    )
    wanted = json.loads((VIEWER / "package.json").read_text(encoding="utf-8"))
    named = wanted["dependencies"] | wanted["devDependencies"]
    assert {f"node_modules/{name}": version for name, version in named.items()} == {
        name: package["version"] for name, package in packages.items()
    }


def test_the_page_and_all_that_it_loads_are_small() -> None:
    files = read_static()
    assert set(FETCHED) <= set(files)
    assert sum(len(content) for content, _ in files.values()) < 200_000
