"""The layout of the package: small folders, and imports between siblings that go one way."""

import ast
from collections.abc import Mapping

import pytest
from names import ROOT, Module, arrows, circles, crowded, modules

from .conftest import LONGEST


@pytest.fixture(scope="module")
def package() -> Mapping[Module, ast.Module]:
    return modules(ROOT)


def graph(**imports: str) -> Mapping[Module, ast.Module]:
    """`a__b="from .. import c"`: a made-up package, with `__` between the parts of a module's name."""
    return {tuple(name.split("__")): ast.parse(text) for name, text in imports.items()}


def test_no_folder_holds_more_than_thirteen_modules(package: Mapping[Module, ast.Module]) -> None:
    assert crowded(package) == {}


def test_no_two_siblings_import_each_other(package: Mapping[Module, ast.Module]) -> None:
    assert circles(arrows(package)) == []


def test_all_packages_are_looked_at(package: Mapping[Module, ast.Module]) -> None:
    tops = {importer[:1] for importer, _ in arrows(package)}
    assert tops >= {
        (package_name,) for package_name in ("cli", "commands", "dsl", "envs", "files", "reporters", "runtime")
    }


def test_the_files_of_tests_that_are_begun_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


def test_a_folder_of_fourteen_modules_is_too_full_and_its_init_is_not_counted() -> None:
    thirteen = [("a", "b", f"m{number}") for number in range(13)]
    assert crowded([*thirteen, ("a", "b", "__init__")]) == {}
    assert crowded([*thirteen, ("a", "b", "more")]) == {"a/b": 14}


def test_a_circle_of_folders_is_found_with_all_that_belong_to_it() -> None:
    one_way = graph(a__b__x="from ..c.y import f", a__c__y="from ..d import z", a__d__z="", a__top="from .b import x")
    assert circles(arrows(one_way)) == []
    closed = {**one_way, ("a", "d", "z"): ast.parse("def late():\n    from ..b.x import g")}
    assert circles(arrows(closed)) == [["a.b", "a.c", "a.d"]]


def test_a_module_next_to_folders_is_a_layer_of_its_own() -> None:
    assert circles(arrows(graph(a__top="from .b.x import f", a__b__x="from ..bottom import g", a__bottom=""))) == []
    assert circles(arrows(graph(a__top="from .b import x", a__b__x="from .. import top"))) == [["a.b", "a.top"]]


def test_what_is_imported_for_its_types_alone_is_no_import() -> None:
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .. import top"
    assert circles(arrows(graph(a__top="from .b import x", a__b__x=for_types))) == []
