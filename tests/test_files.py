"""Files: what a reference may reach, which files are recipes, and that a write is whole or not at all."""

import os
from pathlib import Path

import pytest
from agym.dsl.compose.library import Found, Refusal, Trouble
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.text.decode import MAX_BYTES
from agym.files import SHIPPED, DiskLibrary, find_recipes, is_base, project_root, shipped_names, write_atomically


def put(folder: Path, name: str, text: str = "agym: 1\n") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def source(file: Path) -> Source:
    return Source(file.name, file.read_text(encoding="utf-8"), key=str(file))


def trouble(answer: Found | Refusal) -> Trouble | None:
    return answer.trouble if isinstance(answer, Refusal) else None


@pytest.fixture
def project(tmp_path: Path) -> Path:
    put(tmp_path, "project/pyproject.toml", "")
    return tmp_path / "project"


# --- references ----------------------------------------------------------------------------------------------------


def test_a_reference_counts_from_the_folder_of_the_file_that_makes_it(project: Path) -> None:
    child, base = put(project, "a/child.yaml"), put(project, "a/parts/base.yaml", "agym: 1 # mine\n")
    found = DiskLibrary(project).read("parts/base", source(child))
    assert isinstance(found, Found)
    assert found.data == base.read_bytes()
    assert found.name == os.path.join("a", "parts", "base.yaml")


def test_a_file_wins_over_the_shipped_recipe_of_its_name(project: Path) -> None:
    child = put(project, "child.yaml")
    put(project, "quickstart.yaml", "agym: 1 # mine\n")
    found = DiskLibrary(project).read("quickstart", source(child))
    assert isinstance(found, Found)
    assert b"mine" in found.data


def test_a_shipped_recipe_is_found_by_name_from_anywhere(project: Path) -> None:
    found = DiskLibrary(project).read("base/grpo-7b", source(put(project, "child.yaml")))
    assert isinstance(found, Found)
    assert found.key == str(SHIPPED / "base" / "grpo-7b.yaml")


def test_shipped_recipes_refer_to_each_other(project: Path) -> None:
    library = DiskLibrary(project)
    first = library.read("base/agentgym-rl", source(put(project, "child.yaml")))
    assert isinstance(first, Found)
    assert isinstance(library.read("base/grpo-7b", Source(first.name, "", key=first.key)), Found)


def test_a_reference_does_not_leave_the_project(project: Path) -> None:
    put(project.parent, "outside.yaml")
    library = DiskLibrary(project)
    assert trouble(library.read("../outside.yaml", source(put(project, "child.yaml")))) is Trouble.OUTSIDE
    assert isinstance(library.read("../child.yaml", source(put(project, "deep/er.yaml"))), Found)


def test_a_link_out_of_the_project_is_refused(project: Path) -> None:
    outside = put(project.parent, "outside.yaml")
    (project / "link.yaml").symlink_to(outside)
    answer = DiskLibrary(project).read("link.yaml", source(put(project, "child.yaml")))
    assert trouble(answer) is Trouble.OUTSIDE


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("https://example.org/a.yaml", Trouble.URL),
        ("/etc/passwd", Trouble.ABSOLUTE),
        ("~/a.yaml", Trouble.ABSOLUTE),
        ("folder", Trouble.FOLDER),
        ("nothing", Trouble.MISSING),
        ("a\x00b", Trouble.BAD_NAME),
        ("", Trouble.BAD_NAME),
    ],
)
def test_every_other_reference_is_refused_for_its_reason(project: Path, reference: str, expected: Trouble) -> None:
    (project / "folder").mkdir()
    assert trouble(DiskLibrary(project).read(reference, source(put(project, "child.yaml")))) is expected


def test_what_is_missing_knows_what_lies_next_to_it(project: Path) -> None:
    put(project, "sibling.yaml")
    answer = DiskLibrary(project).read("siblnig", source(put(project, "child.yaml")))
    assert isinstance(answer, Refusal)
    assert {"sibling.yaml", "quickstart"} <= set(answer.known)


def test_the_project_is_marked_by_git_or_pyproject_and_else_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "marked" / ".git").mkdir(parents=True)
    (tmp_path / "marked" / "deep").mkdir()
    assert project_root(tmp_path / "marked" / "deep") == tmp_path / "marked"
    (tmp_path / "bare").mkdir()
    assert project_root(tmp_path / "bare") == tmp_path / "bare"
    assert project_root(SHIPPED / "base") == SHIPPED


def test_a_file_is_read_once(project: Path) -> None:
    library, base = DiskLibrary(project), put(project, "base.yaml")
    child = source(put(project, "child.yaml"))
    first = library.read("base", child)
    base.unlink()
    assert library.read("base", child) == first


# --- opening -------------------------------------------------------------------------------------------------------


def opened(folder: Path, reference: str) -> Source | Diagnostic:
    return DiskLibrary(folder).open(reference)


def test_the_command_line_may_open_anything_that_is_a_file(project: Path) -> None:
    outside = put(project.parent, "outside.yaml")
    answer = opened(project, str(outside))
    assert isinstance(answer, Source)
    assert (answer.name, answer.identity) == (str(outside), str(outside))


def test_the_command_line_may_name_a_shipped_recipe(tmp_path: Path) -> None:
    assert isinstance(opened(tmp_path, "quickstart"), Source)


def test_a_folder_a_missing_file_and_a_binary_one_each_have_their_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    answers = [opened(tmp_path, name) for name in ("folder", "no-such-thing.yaml", "binary.yaml")]
    told = [answer for answer in answers if isinstance(answer, Diagnostic)]
    assert [answer.code for answer in told] == ["file-refused", "file-not-found", "not-utf8"]
    assert told[1].help == "'agym recipes' lists those that are shipped"


def test_a_file_without_end_is_refused_by_size(tmp_path: Path) -> None:
    answer = opened(tmp_path, "/dev/zero")
    assert isinstance(answer, Diagnostic)
    assert answer.code == "too-large"


def test_a_file_over_the_limit_is_refused_by_size(tmp_path: Path) -> None:
    put(tmp_path, "large.yaml", "# " + "x" * MAX_BYTES)
    answer = opened(tmp_path, "large.yaml")
    assert isinstance(answer, Diagnostic)
    assert answer.code == "too-large"


def test_a_pipe_that_a_recipe_names_is_refused_at_once(project: Path) -> None:
    os.mkfifo(project / "base.yaml")
    answer = DiskLibrary(project).read("./base.yaml", source(put(project, "child.yaml")))
    assert isinstance(answer, Refusal)
    assert (answer.trouble, answer.detail) == (Trouble.UNREADABLE, "it is a pipe")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"agym: 1\n")
    os.close(write)
    answer = opened(tmp_path, f"/dev/fd/{read}")
    os.close(read)
    assert isinstance(answer, Source)
    assert answer.text == "agym: 1\n"


# --- finding -------------------------------------------------------------------------------------------------------


def paths(folder: Path, *arguments: str) -> list[str]:
    return list(find_recipes(arguments, folder).paths)


def test_a_folder_gives_its_recipes_sorted_and_counts_the_others(tmp_path: Path) -> None:
    put(tmp_path, "r/b.yaml")
    put(tmp_path, "r/a/z.yml", "# c\n'agym' : 1\n")
    put(tmp_path, "r/compose.yaml", "services:\n  agym: 1\n")
    put(tmp_path, "r/notes.txt")
    found = find_recipes(["r"], tmp_path)
    assert list(found.paths) == ["r/b.yaml", "r/a/z.yml"]
    assert found.left_out == 1


def test_a_file_with_the_modeline_is_a_recipe_though_its_key_is_misspelt(tmp_path: Path) -> None:
    put(tmp_path, "r/a.yaml", "# yaml-language-server: $schema=../recipe.v1.json\nagmy: 1\n")
    assert paths(tmp_path, "r") == ["r/a.yaml"]


@pytest.mark.parametrize("folder", [".git", ".venv", "node_modules"])
def test_folders_of_other_programs_are_not_searched(tmp_path: Path, folder: str) -> None:
    put(tmp_path, f"r/{folder}/a.yaml")
    put(tmp_path, "r/env/pyvenv.cfg", "")
    put(tmp_path, "r/env/b.yaml")
    put(tmp_path, "r/c.yaml")
    assert paths(tmp_path, "r") == ["r/c.yaml"]


def test_a_link_to_a_folder_above_does_not_go_round(tmp_path: Path) -> None:
    put(tmp_path, "r/a.yaml")
    (tmp_path / "r" / "again").symlink_to(tmp_path / "r")
    assert paths(tmp_path, "r") == ["r/a.yaml"]


def test_a_file_in_a_folder_named_base_is_a_base(tmp_path: Path) -> None:
    put(tmp_path, "r/base/a.yaml")
    put(tmp_path, "r/baseline.yaml")
    put(tmp_path, "base.yaml")
    assert {path: is_base(path) for path in paths(tmp_path, "r", "base.yaml")} == {
        "r/baseline.yaml": False,
        "r/base/a.yaml": True,
        "base.yaml": False,
    }


def test_patterns_are_resolved_and_a_file_named_twice_is_one(tmp_path: Path) -> None:
    put(tmp_path, "r/a.yaml")
    put(tmp_path, "r/deep/b.yaml")
    assert paths(tmp_path, "r/**/*.yaml", "r/a.yaml", "./r/a.yaml") == ["r/a.yaml", "r/deep/b.yaml"]


def test_a_named_file_is_taken_whatever_it_holds(tmp_path: Path) -> None:
    put(tmp_path, "list.txt", "- 1\n")
    assert paths(tmp_path, "list.txt", "-", "quickstart") == ["list.txt", "-", "quickstart"]


@pytest.mark.parametrize(
    ("argument", "code", "help_part"),
    [
        ("a.yml", "file-not-found", "did you mean 'a.yaml'?"),
        ("quickstrat", "file-not-found", "did you mean 'quickstart'?"),
        ("nothing-like-it-anywhere", "file-not-found", "agym recipes"),
        ("x/*.yaml", "no-recipes", "name files"),
        ("empty", "no-recipes", "top-level key 'agym'"),
    ],
)
def test_an_argument_without_a_recipe_is_a_problem(tmp_path: Path, argument: str, code: str, help_part: str) -> None:
    put(tmp_path, "a.yaml")
    (tmp_path / "empty").mkdir()
    (problem,) = find_recipes([argument], tmp_path).problems
    assert problem.code == code
    assert help_part in (problem.help or "")


def test_shipped_names_are_what_extends_takes() -> None:
    assert {"quickstart", "base/grpo-7b"} <= set(shipped_names())


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_write_leaves_the_text_and_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.yaml", "ü\n")
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("a.yaml", "ü\n")]


def test_a_write_replaces_only_when_told(tmp_path: Path) -> None:
    file = put(tmp_path, "a.yaml", "old")
    with pytest.raises(FileExistsError):
        write_atomically(file, "new")
    assert file.read_text(encoding="utf-8") == "old"
    write_atomically(file, "new", replace=True)
    assert file.read_text(encoding="utf-8") == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = put(tmp_path, "a.yaml", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\ud800", replace=True)
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("a.yaml", "old")]


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.yaml", "x")
    put(tmp_path, "b.yaml")
    assert (tmp_path / "a.yaml").stat().st_mode == (tmp_path / "b.yaml").stat().st_mode
