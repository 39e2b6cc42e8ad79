from __future__ import annotations

import re
from pathlib import Path

import pytest
from agym.envs import websites
from agym.envs.websites.paths import Element, PathAction, parse_path_action
from agym.envs.websites.task_files import read_templates

FOLDER = Path(websites.__file__).parent
FILES = sorted(FOLDER.rglob("*tasks.yaml"))

GOOD = """\
site: wiki
database: wiki
start: http://wiki.test/
facts:
  page: SELECT id FROM pages WHERE title = :title
steps:
  find the page: |
    type [searchbox 'Search the wiki'] [{title}] [1]
    click [link '{title}']
tasks:
  - id: one
    intent: How many comments are there on {title}?
    variants:
      - {title: Dunsea, limit: 3}
      - {title: Skerrow, limit: 4}
    answer: SELECT count(*) FROM comments WHERE page = :page AND id > :limit
    changes:
      added wiki.watches: SELECT :page AS page
    path: |
      find the page
      click [button 'Watch' below '{title}']
"""


def test_a_line_of_a_path_is_an_action_with_an_element_in_place_of_a_number() -> None:
    assert parse_path_action("type [date 'From'] [{since}] [0]") == PathAction(
        "type", Element("date", "From"), ("{since}", "0")
    )
    assert parse_path_action("click [button 'Remove' below 'Ann']") == PathAction(
        "click", Element("button", "Remove", "Ann"), ()
    )
    assert parse_path_action("goto [http://wiki.test/]") == PathAction("goto", None, ("http://wiki.test/",))


@pytest.mark.parametrize("line", ["click [3]", "click", "type [link 'x'] [y]", "drag [link 'x'] [link 'y']", "find it"])
def test_what_is_no_action_is_none(line: str) -> None:
    assert parse_path_action(line) is None


def test_a_file_of_tasks_is_read(tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text(GOOD, "utf-8")
    (template,) = read_templates(tmp_path / "tasks.yaml")
    assert (template.id, template.needs, len(template.variants), len(template.path)) == ("one", ("wiki",), 2, 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("site: wiki", "place: wiki", "site missing"),
        ("    answer:", "    anwser:", "'anwser' is unknown"),
        ("    intent: How", "    intent: [How, how]\n    intended: How", "'intent' is not a str"),
        ("limit: 4}", "size: 4}", "the same values"),
        ("limit: 3}", "limit: 2026-03-02}", "'limit' must be a string or a whole number"),
        (
            "tasks:\n",
            "tasks:\n  - {id: two, facts: {a: SELECT 1}, variants: [{a: 1}], intent: x, path: x}\n",
            "both a value",
        ),
        ("    answer: SELECT", "    answers: SELECT 1\n    answer: SELECT", "not both"),
        ("limit: 3}", "limit: yes}", "'limit' must be a string or a whole number"),
        ("limit: 3}", "limit: 3, limit: 4}", "a key stands twice"),
        ("on {title}", "on {name}", "named name"),
        ("on {title}", "on {title.upper}", "only names"),
        ("= :page AND", "= :pages AND", "named pages"),
        ("title = :title", "title = :name", "named name"),
        ("'Watch' below '{title}'", "'{which}'", "named which"),
        ("answer: SELECT", "answer: DELETE", "not SQL over the data"),
        ("database: wiki\n", "", "not SQL over the data"),
        ("added wiki.watches", "put wiki.watches", "added, removed or edited"),
        (
            "find the page\n      click",
            "find a page\n      click",
            "nor the name of steps: find a page",
        ),
        ("start: http://wiki.test/\n", "", "there must be a start"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    (tmp_path / "tasks.yaml").write_text(GOOD.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_templates(tmp_path / "tasks.yaml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_every_fact_and_all_steps_are_used(file: Path) -> None:
    text = file.read_text("utf-8")
    head, body = text.split("\ntasks:\n")
    facts, _, steps = head.partition("\nsteps:\n")
    for name in re.findall(r"^  (\w+): ", facts.partition("\nfacts:\n")[2], re.MULTILINE):
        assert re.search(rf":{name}\b|{{{name}}}", text), name
    for name in re.findall(r"^  (\w[\w ]*):", steps, re.MULTILINE):
        assert re.search(rf"^ +(path: )?{name}$", text, re.MULTILINE), name
    assert len(read_templates(file)) == body.count("  - id: ")
