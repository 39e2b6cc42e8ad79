"""Where references may lead, and the errors for those that may not."""

from __future__ import annotations

import pytest
from agym.dsl.codes import CODES
from agym.dsl.compose.library import Found, Refusal, Trouble, explain_refusal, list_candidates
from agym.dsl.source import Source

from ..memory_library import MemoryLibrary


@pytest.mark.parametrize(
    ("reference", "folder", "paths"),
    [
        ("b.yaml", "", ("b.yaml",)),
        ("b.yml", "x", ("x/b.yml",)),
        ("b", "x", ("x/b", "x/b.yaml", "x/b.yml")),
        ("../b.yaml", "x/y", ("x/b.yaml",)),
        ("./base/grpo-7b.2", "", ("base/grpo-7b.2", "base/grpo-7b.2.yaml", "base/grpo-7b.2.yml")),
    ],
)
def test_a_reference_counts_from_the_folder_of_its_file(reference: str, folder: str, paths: tuple[str, ...]) -> None:
    assert list_candidates(reference, folder, ".") == paths


@pytest.mark.parametrize(
    ("reference", "trouble"),
    [
        ("https://x.org/base.yaml", Trouble.URL),
        ("file:///etc/passwd", Trouble.URL),
        ("s3://bucket/x", Trouble.URL),
        ("/etc/passwd", Trouble.ABSOLUTE),
        ("~/x.yaml", Trouble.ABSOLUTE),
        ("C:\\x.yaml", Trouble.ABSOLUTE),
        ("\\\\host\\x", Trouble.ABSOLUTE),
        ("../x.yaml", Trouble.OUTSIDE),
        ("a/../../x.yaml", Trouble.OUTSIDE),
        ("..", Trouble.OUTSIDE),
        ("", Trouble.BAD_NAME),
        ("  ", Trouble.BAD_NAME),
        ("a\0b", Trouble.BAD_NAME),
        ("x" * 2000, Trouble.BAD_NAME),
    ],
)
def test_a_reference_that_is_no_path_within_the_project(reference: str, trouble: Trouble) -> None:
    assert list_candidates(reference, "", ".") is trouble


def test_the_project_may_be_an_absolute_folder() -> None:
    assert list_candidates("../b.yaml", "/p/recipes", "/p") == ("/p/b.yaml",)
    assert list_candidates("../b.yaml", "/p", "/p") is Trouble.OUTSIDE
    assert list_candidates("../pq/b.yaml", "/p", "/p") is Trouble.OUTSIDE
    assert list_candidates("../b.yaml", "/a", "/") == ("/b.yaml",)


LIBRARY = MemoryLibrary(
    {"r.yaml": "a: 1", "x/b.yaml": b"b: 1", "x/grpo.yaml": "mine: 1", "t.txt": "text"},
    shipped={"base/grpo-7b": "c: 1", "grpo": "theirs: 1"},
)


def read(reference: str, base: str = "r.yaml") -> Found | Refusal:
    return LIBRARY.read(reference, Source(base, ""))


def test_a_file_is_found_next_to_its_recipe_with_and_without_suffix() -> None:
    assert read("x/b.yaml") == read("x/b") == Found(name="x/b.yaml", key="x/b.yaml", data=b"b: 1")


def test_any_file_can_be_read() -> None:
    assert read("t.txt") == Found(name="t.txt", key="t.txt", data=b"text")


def test_a_shipped_recipe_is_found_by_its_name() -> None:
    assert read("base/grpo-7b") == Found(name="base/grpo-7b", key="base/grpo-7b", data=b"c: 1")


def test_a_file_next_to_the_recipe_hides_a_shipped_one() -> None:
    found = read("grpo", "x/b.yaml")
    assert isinstance(found, Found)
    assert found.data == b"mine: 1"


def test_the_command_line_names_files_as_they_are() -> None:
    assert isinstance(LIBRARY.read("r.yaml", None), Found)
    assert LIBRARY.read("q.yaml", None) == read("q.yaml")


def test_the_key_of_a_source_is_where_its_references_count_from() -> None:
    base = Source("shown as this", "", None, "x/b.yaml")
    assert isinstance(LIBRARY.read("grpo.yaml", base), Found)


def test_a_folder_is_no_file() -> None:
    assert read("x") == Refusal(trouble=Trouble.FOLDER)


def test_a_missing_file_gets_the_near_name() -> None:
    refusal = read("base/grpo-7B")
    assert isinstance(refusal, Refusal)
    diagnostic = explain_refusal(refusal, "base/grpo-7B", Source("r.yaml", "x").span(0, 1))
    assert (diagnostic.code, diagnostic.help) == ("file-not-found", "did you mean 'base/grpo-7b'?")


@pytest.mark.parametrize("trouble", Trouble)
def test_every_trouble_has_a_sentence(trouble: Trouble) -> None:
    span = Source("r.yaml", "{x}").span(0, 3)
    diagnostic = explain_refusal(Refusal(trouble=trouble, detail="permission denied"), "{x}", span)
    assert diagnostic.code in CODES
    assert "'{x}'" in diagnostic.message
    assert diagnostic.message.endswith("permission denied")
    assert diagnostic.help
