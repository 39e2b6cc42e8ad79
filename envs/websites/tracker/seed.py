"""Fill the tracker with what an episode begins with, always the same for the same random generator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from sqlite3 import Connection
from typing import Any, Final

from ..framework.site import NOW, TODAY, format_moment

__all__ = ["PASSWORD", "USER", "draw_sha", "fill_tracker", "make_slug"]

USER: Final = "ida.moss"
"""Whose tracker it is in an episode."""
PASSWORD: Final = "tide-and-type"

_NUM_COMMITS = 250
_NUM_MERGES = 40
_FIRST_DAY = 330
"""The oldest project was begun so many days ago."""


def make_slug(words: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in words.lower()).split())


def draw_sha(rng: Random) -> str:
    return f"{rng.getrandbits(40):010x}"


@dataclass(frozen=True, slots=True)
class _Project:
    id: int
    about: Mapping[str, Any]
    begun: datetime
    people: tuple[str, ...]
    """Who has a part in it."""
    developers: tuple[str, ...]
    """Who works on its files."""
    labels: Mapping[str, int]
    milestones: tuple[int, ...]


def fill_tracker(db: Connection, rng: Random) -> None:
    texts = json.loads((Path(__file__).parent / "data" / "texts.json").read_text("utf-8"))
    _people(db, rng, texts)
    _teams(db, texts["teams"])
    projects = [_project(db, rng, number, about, texts) for number, about in enumerate(texts["projects"], 1)]
    for project in projects:
        _files(db, rng, project, texts["constants"])
        _issues(db, rng, project, texts)
    _merges(db, rng, projects, texts)
    _commits(db, rng, projects, texts["commits"])
    _notes(db, rng, projects, texts)
    _todos(db, rng)


# --- who ---


def _people(db: Connection, rng: Random, texts: Mapping[str, Any]) -> None:
    for username, (name, bio, location) in texts["people"].items():
        password = PASSWORD if username == USER else f"{rng.getrandbits(64):016x}"
        status = "" if username == USER else rng.choice(texts["statuses"])
        joined = (TODAY - timedelta(days=rng.randint(340, 1500))).isoformat()
        row = (username, name, password, status, bio, location, joined)
        db.execute("INSERT INTO person VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _teams(db: Connection, teams: Mapping[str, Any]) -> None:
    for path, (name, description, members) in teams.items():
        created = (TODAY - timedelta(days=_FIRST_DAY + 5)).isoformat()
        db.execute("INSERT INTO team VALUES (?, ?, ?, ?)", (path, name, description, created))
        rows = [(path, username, role) for username, role in members.items()]
        db.executemany("INSERT INTO team_member VALUES (?, ?, ?)", rows)


# --- projects ---


def _project(db: Connection, rng: Random, number: int, about: Mapping[str, Any], texts: Mapping[str, Any]) -> _Project:
    begun = NOW - timedelta(days=rng.randint(200, _FIRST_DAY), minutes=rng.randint(0, 600))
    row = (
        number,
        *(about[key] for key in ("space", "path", "name", "description", "visibility")),
        format_moment(begun),
        None,
    )
    db.execute("INSERT INTO project VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.executemany("INSERT INTO project_member VALUES (?, ?, ?)", [(number, *each) for each in about["team"].items()])
    db.execute("INSERT INTO branch VALUES (?, 'main')", (number,))
    everybody = [username for username in texts["people"] if username != USER]
    stars = rng.sample(everybody, rng.randint(1, 18) if about["visibility"] != "private" else 2)
    db.executemany("INSERT INTO star VALUES (?, ?)", [(number, username) for username in sorted(stars)])
    roles = about["team"] | texts["teams"].get(about["space"], ("", "", {}))[2]
    developers = tuple(username for username, role in roles.items() if role not in ("guest", "reporter"))
    labels = _labels(db, rng, number, texts["labels"])
    return _Project(number, about, begun, tuple(roles), developers, labels, _milestones(db, rng, number))


def _labels(db: Connection, rng: Random, project: int, labels: Mapping[str, str]) -> dict[str, int]:
    kinds, others = list(labels)[:4], list(labels)[4:]
    made = {}
    for name in (*kinds, *rng.sample(others, rng.randint(2, 4))):
        row = (project, name, labels[name])
        made[name] = _added(db, "INSERT INTO label (project, name, description) VALUES (?, ?, ?)", row)
    return made


def _milestones(db: Connection, rng: Random, project: int) -> tuple[int, ...]:
    made = []
    minor = rng.randint(1, 6)
    for index, (begins, state) in enumerate(((-150, "closed"), (-60, "open"), (10, "open"))):
        start = TODAY + timedelta(days=begins + rng.randint(0, 9))
        due = start + timedelta(days=rng.randint(45, 75))
        about = (f"Version 0.{minor + index}", "What we want to have done by then.", start.isoformat(), due.isoformat())
        insert = "INSERT INTO milestone (project, title, description, start, due, state) VALUES (?, ?, ?, ?, ?, ?)"
        made.append(_added(db, insert, (project, *about, state)))
    return tuple(made)


def _files(db: Connection, rng: Random, project: _Project, constants: Sequence[str]) -> None:
    about = project.about
    parts = "\n".join(f"- the {part}" for part in about["parts"])
    run = f"python -m {about['path'].replace('-', '_')}"
    readme = f"# {about['name']}\n\n{about['description']}\n\n## What there is\n\n{parts}\n\n## Start\n\nRun `{run}`."
    port = rng.randint(3000, 9000)
    files = {
        "README.md": f"{readme}\n",
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n- See the merge requests.\n",
        "docs/setup.md": f"# Setup\n\nNeeds Python 3.11.\n\n    {run} --port {port}\n\nThen open port {port}.\n",
    }
    for part in about["parts"]:
        lines = [f"{name} = {rng.randint(2, 90)}" for name in constants]
        docstring = f'"""The {part} of {about["name"]}."""'
        files[f"src/{make_slug(part).replace('-', '_')}.py"] = "\n".join((docstring, "", *lines, ""))
    rows = [(project.id, path, content) for path, content in files.items()]
    db.executemany("INSERT INTO file VALUES (?, ?, ?)", rows)


# --- issues and merge requests ---

_ITEM = """INSERT INTO item (project, kind, number, title, description, author, assignee, reviewer, milestone, state,
    due, source, target, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def _added(db: Connection, sql: str, row: Sequence[object]) -> int:
    return int(db.execute(sql, row).lastrowid or 0)


def _between(rng: Random, since: datetime, until: datetime = NOW) -> datetime:
    return since + (until - since) * rng.uniform(0.02, 0.98)


def _issues(db: Connection, rng: Random, project: _Project, texts: Mapping[str, Any]) -> None:
    about, people = project.about, list(texts["people"])
    told = [(kind, each) for kind, listed in texts["issues"].items() for each in listed]
    drawn = [(*each, part) for each in told for part in about["parts"]]
    moments = sorted(_between(rng, project.begun) for _ in range(about["weight"]))
    for number, (created, (kind, (title, text), part)) in enumerate(
        zip(moments, rng.sample(drawn, about["weight"]), strict=True), 1
    ):
        title = title.format(part=part, Part=f"{part[0].upper()}{part[1:]}")
        insiders = project.people if about["visibility"] != "public" or rng.random() < 0.5 else people
        old = created < NOW - timedelta(days=90)
        state = "closed" if rng.random() < (0.65 if old else 0.2) else "open"
        milestone = rng.choice((None, *(project.milestones[:1] if state == "closed" else project.milestones[1:])))
        due = (TODAY + timedelta(days=rng.randint(-10, 40))).isoformat() if rng.random() < 0.15 else ""
        assignee = rng.choice((None, *project.people))
        who = (rng.choice(insiders), assignee, None, milestone, state, due)
        row = (project.id, "issue", number, title, text.format(part=part), *who, "", "", format_moment(created))
        _label(db, rng, project, kind, _added(db, _ITEM, row))


def _label(db: Connection, rng: Random, project: _Project, kind: str, item: int) -> None:
    others = [number for name, number in project.labels.items() if name not in ("bug", "feature", "documentation")]
    labels = {project.labels[kind], *rng.sample(others, rng.choice((0, 0, 1, 1, 2)))}
    db.executemany("INSERT INTO item_label VALUES (?, ?)", [(item, label) for label in sorted(labels)])


def _merges(db: Connection, rng: Random, projects: Sequence[_Project], texts: Mapping[str, Any]) -> None:
    issues = db.execute("SELECT id, project, number, title, created, state FROM item WHERE kind = 'issue'").fetchall()
    numbers: dict[int, int] = {}
    for issue, project_id, about, title, since, was in sorted(rng.sample(issues, _NUM_MERGES), key=lambda row: row[4]):
        project = projects[project_id - 1]
        (kind,) = db.execute(
            "SELECT name FROM label JOIN item_label ON label = id WHERE item = ? ORDER BY id LIMIT 1", (issue,)
        ).fetchone()
        number = numbers[project_id] = numbers.get(project_id, 0) + 1
        author, reviewer = rng.sample(project.developers, 2)
        created = _between(rng, datetime.fromisoformat(since))
        state = rng.choice(("merged", "merged", "closed")) if was == "closed" else "open"
        source = f"{about}-{make_slug(title)[:30].rstrip('-')}"
        told = rng.choice(texts["merge_texts"]).format(number=about)
        who = (author, author, rng.choice((reviewer, None)), None, state, "")
        title = texts["merges"][kind].format(title=title)
        item = _added(
            db, _ITEM, (project_id, "merge", number, title, told, *who, source, "main", format_moment(created))
        )
        _label(db, rng, project, kind, item)
        db.execute("INSERT INTO branch VALUES (?, ?)", (project_id, source))
        _edits(db, rng, project_id, item, title, merged=state == "merged")
        others = [person for person in project.developers if person not in (author, USER)]
        for username in rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2)))):
            db.execute("INSERT INTO approval VALUES (?, ?)", (item, username))


def _edits(db: Connection, rng: Random, project: int, item: int, title: str, *, merged: bool) -> None:
    """Change one number in one file and add a line to the changelog; merged changes are already in the files."""
    paths = db.execute("SELECT path, content FROM file WHERE project = ? AND path LIKE 'src/%'", (project,)).fetchall()
    path, content = rng.choice(paths)
    line = rng.choice([line for line in content.splitlines() if " = " in line])
    name, _, value = line.partition(" = ")
    other = f"{name} = {int(value) + rng.randint(1, 30)}"
    old, new = (other, line) if merged else (line, other)
    entry = f"- {title}"
    db.execute("INSERT INTO edit VALUES (?, ?, ?, ?)", (item, path, old, new))
    db.execute("INSERT INTO edit VALUES (?, 'CHANGELOG.md', '', ?)", (item, entry))
    if merged:
        append = "UPDATE file SET content = content || ? WHERE project = ? AND path = 'CHANGELOG.md'"
        db.execute(append, (f"{entry}\n", project))


# --- commits, notes, things to do ---


def _commits(db: Connection, rng: Random, projects: Sequence[_Project], texts: Sequence[str]) -> None:
    weights = [project.about["weight"] for project in projects]
    rows: list[tuple[object, ...]] = []
    for project in rng.choices(projects, weights, k=_NUM_COMMITS):
        part = rng.choice(project.about["parts"])
        author = rng.choices(project.developers, range(len(project.developers), 0, -1))[0]
        path = f"src/{make_slug(part).replace('-', '_')}.py"
        created = format_moment(_between(rng, project.begun))
        rows.append((draw_sha(rng), project.id, author, rng.choice(texts).format(part=part), path, created))
    rows.sort(key=lambda row: str(row[5]))
    db.executemany("INSERT INTO revision VALUES (?, ?, ?, ?, ?, ?)", rows)


def _notes(db: Connection, rng: Random, projects: Sequence[_Project], texts: Mapping[str, Any]) -> None:
    written: list[tuple[object, ...]] = []
    items = db.execute("SELECT id, project, kind, created FROM item ORDER BY id").fetchall()
    for item, project, kind, created in items:
        people = projects[project - 1].people
        bodies = texts["notes"] if kind == "issue" else texts["reviews"]
        for body in rng.sample(bodies, rng.choice((0, 0, 1, 1, 2, 3))):
            moment = format_moment(_between(rng, datetime.fromisoformat(created)))
            written.append((item, rng.choice(people), body, moment))
    written.sort(key=lambda row: str(row[3]))
    db.executemany("INSERT INTO note (item, author, body, created) VALUES (?, ?, ?, ?)", written)


def _todos(db: Connection, rng: Random) -> None:
    asked = """SELECT id, author, CASE WHEN reviewer = ?1 THEN 'review' ELSE 'assigned' END, created FROM item
        WHERE state = 'open' AND author <> ?1 AND ?1 IN (assignee, reviewer) ORDER BY created"""
    found: Iterable[tuple[int, str, str, str]] = db.execute(asked, (USER,)).fetchall()
    insert = "INSERT INTO todo (username, item, author, reason, created, done) VALUES (?, ?, ?, ?, ?, ?)"
    for item, author, reason, created in found:
        db.execute(insert, (USER, item, author, reason, created, int(rng.random() < 0.3)))
