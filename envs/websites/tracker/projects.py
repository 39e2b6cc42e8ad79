"""A project's pages but its issues and merge requests: files, commits, members, labels, milestones, settings.

What enters: a request within a project. What leaves: a page, or where to go after something was done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import Record, first, one, rows
from ..framework.site import Answer, NotFound, Page, Paging, Redirect, Request, Route, Wrong, get, post, whole
from .access import ROLES, Parts, Place, inside, me
from .pages import SLUG, form, text
from .seed import NOW, clock, slug

__all__ = ["DAY", "ROUTES"]

_PAGE = 20
_VISIBILITIES = ("public", "internal", "private")
DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def _shown(template: str, place: Place, **values: object) -> Page:
    return Page(template=template, values={"place": place, "project": place.project, "error": "", **values})


# --- looking around ---


def _overview(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    counts = {
        "stars": "SELECT count(*) FROM star WHERE project = ?",
        "forks": "SELECT count(*) FROM project WHERE forked_from = ?",
        "commits": "SELECT count(*) FROM revision WHERE project = ?",
        "branches": "SELECT count(*) FROM branch WHERE project = ?",
    }
    return _shown(
        "project.html",
        place,
        counts={name: one(db, select, place.id) for name, select in counts.items()},
        starred=one(db, "SELECT 1 FROM star WHERE project = ? AND username = ?", place.id, request.user),
        files=rows(db, "SELECT path FROM file WHERE project = ? ORDER BY path LIKE '%/%' DESC, path", place.id),
        readme=one(db, "SELECT content FROM file WHERE project = ? AND path = 'README.md'", place.id) or "",
        origin=first(db, "SELECT space, path FROM project WHERE id = ?", place.project["forked_from"]),
    )


def _file(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    found = first(db, "SELECT * FROM file WHERE project = ? AND path = ?", place.id, parts["path"])
    if found is None:
        raise NotFound("There is no such file.")
    return _shown("file.html", place, file=found)


def _commits(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    author, words = request.query.get("author", ""), request.query.get("q", "")
    where = "project = ? AND (? = '' OR author = ?) AND instr(lower(title), ?)"
    given = (place.id, author, author, words.casefold())
    paging = Paging.of(request, size=_PAGE, total=one(db, f"SELECT count(*) FROM revision WHERE {where}", *given))
    select = f"SELECT * FROM revision WHERE {where} ORDER BY created DESC, sha LIMIT ? OFFSET ?"
    return _shown(
        "commits.html",
        place,
        commits=rows(db, select, *given, _PAGE, paging.offset),
        paging=paging,
        author=author,
        q=words,
        authors=[each["author"] for each in _authors(db, place)],
    )


def _authors(db: Connection, place: Place) -> list[Record]:
    select = """SELECT author, name, count(*) AS commits, max(created) AS last FROM revision
        JOIN person ON username = author WHERE project = ? GROUP BY author ORDER BY commits DESC, author"""
    return rows(db, select, place.id)


def _contributors(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    return _shown("contributors.html", place, authors=_authors(db, place))


def _commit(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    found = first(db, "SELECT * FROM revision WHERE project = ? AND sha = ?", place.id, parts["sha"])
    if found is None:
        raise NotFound("There is no such commit.")
    return _shown("commit.html", place, commit=found)


# --- stars and forks ---


def _star(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    """Once more takes it back."""
    key = (place.id, me(request))
    if not db.execute("DELETE FROM star WHERE project = ? AND username = ?", key).rowcount:
        db.execute("INSERT INTO star VALUES (?, ?)", key)
    return Redirect(to=place.url)


def _fork_form(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    return _shown("fork.html", place, spaces=_spaces(db, me(request)))


def _spaces(db: Connection, username: str) -> list[str]:
    """Where someone may make projects."""
    teams = rows(db, "SELECT team FROM team_member WHERE username = ? AND role IN ('maintainer', 'owner')", username)
    return [username, *sorted(each["team"] for each in teams)]


_COPIED = {"file": "path, content", "revision": "sha, author, title, path, created", "branch": "name"}


def _fork(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    given = {
        "space": text(request, "space"),
        "name": place.project["name"],
        "path": place.project["path"],
        "description": place.project["description"],
        "visibility": place.project["visibility"],
    }
    if wrong := _project_wrong(db, given, me(request)):
        raise Wrong(wrong)
    made = _create(db, given, me(request), place.id)
    for table, columns in _COPIED.items():
        copy = f"INSERT INTO {table} (project, {columns}) SELECT ?, {columns} FROM {table} WHERE project = ?"
        db.execute(copy, (made, place.id))
    return Redirect(to=f"/{given['space']}/{given['path']}")


# --- making and changing ---


_NEW = {"space": "", "name": "", "path": "", "description": "", "visibility": "private", "readme": ""}


def _new_form(db: Connection, request: Request, parts: Parts) -> Answer:
    spaces = _spaces(db, me(request))
    space = request.query.get("group", "")
    return form("new_project.html", given={**_NEW, "space": space}, spaces=spaces, visibilities=_VISIBILITIES)


def _new(db: Connection, request: Request, parts: Parts) -> Answer:
    given = {name: text(request, name) for name in _NEW}
    given["path"] = given["path"] or slug(given["name"])
    if wrong := _project_wrong(db, given, me(request)):
        spaces = _spaces(db, me(request))
        return form("new_project.html", wrong, given=given, spaces=spaces, visibilities=_VISIBILITIES)
    made = _create(db, given, me(request), None)
    db.execute("INSERT INTO branch VALUES (?, 'main')", (made,))
    if given["readme"]:
        content = f"# {given['name']}\n\n{given['description']}\n"
        db.execute("INSERT INTO file VALUES (?, 'README.md', ?)", (made, content))
    return Redirect(to=f"/{given['space']}/{given['path']}")


def _project_wrong(db: Connection, given: Mapping[str, str], username: str) -> str:
    if given["space"] not in _spaces(db, username):
        return "Choose a group in which you may make projects, or yourself."
    if not given["name"] or not SLUG.fullmatch(given["path"]):
        return "A name is needed, and an address of 3 to 40 small letters, digits, dots, underscores or hyphens."
    if given["visibility"] not in _VISIBILITIES:
        return "Choose who may see it."
    taken = one(db, "SELECT 1 FROM project WHERE space = ? AND path = ?", given["space"], given["path"])
    return "There is such a project already." if taken else ""


def _create(db: Connection, given: Mapping[str, str], username: str, forked_from: int | None) -> int:
    fields = (given["space"], given["path"], given["name"], given["description"], given["visibility"])
    columns = "space, path, name, description, visibility, created, forked_from"
    insert = f"INSERT INTO project ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    made = int(db.execute(insert, (*fields, clock(NOW), forked_from)).lastrowid or 0)
    db.execute("INSERT INTO project_member VALUES (?, ?, 'owner')", (made, username))
    return made


def _settings_form(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    return _shown("settings.html", place, given=place.project, visibilities=_VISIBILITIES)


def _settings(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    given = {name: text(request, name) for name in ("name", "description", "visibility")}
    if not given["name"] or given["visibility"] not in _VISIBILITIES:
        raise Wrong("A name is needed, and who may see it.")
    db.execute("UPDATE project SET name = ?, description = ?, visibility = ? WHERE id = ?", (*given.values(), place.id))
    return Redirect(to=place.url)


# --- members ---


def _members(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    select = "SELECT username, name, role FROM project_member NATURAL JOIN person WHERE project = ? ORDER BY name"
    from_team = "SELECT username, name, role FROM team_member NATURAL JOIN person WHERE team = ? ORDER BY name"
    return _shown(
        "members.html",
        place,
        members=rows(db, select, place.id),
        inherited=rows(db, from_team, place.project["space"]),
        people=rows(db, "SELECT username, name FROM person ORDER BY name"),
    )


def _invite(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    username, role = text(request, "username"), _role(request)
    if not one(db, "SELECT 1 FROM person WHERE username = ?", username):
        raise Wrong("There is nobody of this name.")
    if one(db, "SELECT 1 FROM project_member WHERE project = ? AND username = ?", place.id, username):
        raise Wrong("This person is a member already.")
    db.execute("INSERT INTO project_member VALUES (?, ?, ?)", (place.id, username, role))
    return Redirect(to=f"{place.url}/members")


def _role(request: Request) -> str:
    role = text(request, "role")
    if role not in ROLES:
        raise Wrong("There is no such role.")
    return role


def _change_role(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    update = "UPDATE project_member SET role = ? WHERE project = ? AND username = ?"
    return _changed(db, place, update, (_role(request), place.id, parts["username"]))


def _remove_member(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    delete = "DELETE FROM project_member WHERE project = ? AND username = ?"
    return _changed(db, place, delete, (place.id, parts["username"]))


def _changed(db: Connection, place: Place, change: str, given: tuple[object, ...]) -> Answer:
    if not db.execute(change, given).rowcount:
        raise NotFound("There is no such member.")
    return Redirect(to=f"{place.url}/members")


# --- labels and milestones ---


def _labels(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    select = """SELECT label.*, (SELECT count(*) FROM item_label JOIN item ON item.id = item WHERE label = label.id
        AND kind = 'issue' AND state = 'open') AS open_issues FROM label WHERE project = ? ORDER BY name"""
    return _shown("labels.html", place, labels=rows(db, select, place.id))


def _new_label(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    name, description = text(request, "name"), text(request, "description")
    if not name or one(db, "SELECT 1 FROM label WHERE project = ? AND name = ?", place.id, name):
        raise Wrong("A label needs a name of its own.")
    db.execute("INSERT INTO label (project, name, description) VALUES (?, ?, ?)", (place.id, name, description))
    return Redirect(to=f"{place.url}/labels")


_COUNTED = """
SELECT milestone.*, (SELECT count(*) FROM item WHERE milestone = milestone.id AND kind = 'issue') AS issues,
  (SELECT count(*) FROM item WHERE milestone = milestone.id AND kind = 'issue' AND state = 'closed') AS closed
FROM milestone
"""
_DATES = ("title", "description", "start", "due")


def _milestones(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    listed = rows(db, f"{_COUNTED} WHERE project = ? ORDER BY state DESC, due", place.id)
    return _shown("milestones.html", place, milestones=listed)


def _milestone_of(db: Connection, place: Place, parts: Parts) -> Record:
    found = first(db, f"{_COUNTED} WHERE project = ? AND id = ?", place.id, whole(parts["milestone"]))
    if found is None:
        raise NotFound("There is no such milestone.")
    return found


def _milestone(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    found = _milestone_of(db, place, parts)
    select = "SELECT * FROM item WHERE milestone = ? AND kind = 'issue' ORDER BY state DESC, number"
    return _shown("milestone.html", place, milestone=found, issues=rows(db, select, found["id"]))


def _milestone_form(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    given = _milestone_of(db, place, parts) if "milestone" in parts else dict.fromkeys(_DATES, "")
    return _milestone_page(place, given, editing="milestone" in parts)


def _milestone_page(place: Place, given: Record, *, editing: bool, error: str = "") -> Page:
    return form("milestone_form.html", error, place=place, project=place.project, given=given, editing=editing)


def _save_milestone(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    number = _milestone_of(db, place, parts)["id"] if "milestone" in parts else 0
    given = {name: text(request, name) for name in _DATES}
    if wrong := _milestone_wrong(db, place, given, number):
        return _milestone_page(place, given, editing=bool(number), error=wrong)
    if number:
        update = "UPDATE milestone SET title = ?, description = ?, start = ?, due = ? WHERE id = ?"
        db.execute(update, (*given.values(), number))
    else:
        insert = "INSERT INTO milestone (project, title, description, start, due, state) VALUES (?, ?, ?, ?, ?, 'open')"
        number = db.execute(insert, (place.id, *given.values())).lastrowid
    return Redirect(to=f"{place.url}/milestones/{number}")


def _milestone_wrong(db: Connection, place: Place, given: Mapping[str, str], number: int) -> str:
    taken = "SELECT 1 FROM milestone WHERE project = ? AND title = ? AND id <> ?"
    if not given["title"] or one(db, taken, place.id, given["title"], number):
        return "A milestone needs a title of its own."
    days = [day for day in (given["start"], given["due"]) if day]
    return "" if all(map(DAY.fullmatch, days)) else "A day is written like 2026-03-02."


def _milestone_state(db: Connection, request: Request, place: Place, parts: Parts) -> Answer:
    found = _milestone_of(db, place, parts)
    state = {"open": "closed", "closed": "open"}[found["state"]]
    db.execute("UPDATE milestone SET state = ? WHERE id = ?", (state, found["id"]))
    return Redirect(to=f"{place.url}/milestones/{found['id']}")


_HERE = "/<space>/<project>"

ROUTES: tuple[Route, ...] = (
    get("/projects/new", _new_form),
    post("/projects/new", _new),
    get(_HERE, inside(_overview)),
    get(f"{_HERE}/file/<path...>", inside(_file)),
    get(f"{_HERE}/commits", inside(_commits)),
    get(f"{_HERE}/commits/<sha>", inside(_commit)),
    get(f"{_HERE}/contributors", inside(_contributors)),
    post(f"{_HERE}/star", inside(_star, signed_in=True)),
    get(f"{_HERE}/fork", inside(_fork_form, signed_in=True)),
    post(f"{_HERE}/fork", inside(_fork, signed_in=True)),
    get(f"{_HERE}/settings", inside(_settings_form, "maintainer")),
    post(f"{_HERE}/settings", inside(_settings, "maintainer")),
    get(f"{_HERE}/members", inside(_members)),
    post(f"{_HERE}/members", inside(_invite, "maintainer")),
    post(f"{_HERE}/members/<username>", inside(_change_role, "maintainer")),
    post(f"{_HERE}/members/<username>/remove", inside(_remove_member, "maintainer")),
    get(f"{_HERE}/labels", inside(_labels)),
    post(f"{_HERE}/labels", inside(_new_label, "reporter")),
    get(f"{_HERE}/milestones", inside(_milestones)),
    get(f"{_HERE}/milestones/new", inside(_milestone_form, "reporter")),
    post(f"{_HERE}/milestones/new", inside(_save_milestone, "reporter")),
    get(f"{_HERE}/milestones/<milestone>", inside(_milestone)),
    get(f"{_HERE}/milestones/<milestone>/edit", inside(_milestone_form, "reporter")),
    post(f"{_HERE}/milestones/<milestone>/edit", inside(_save_milestone, "reporter")),
    post(f"{_HERE}/milestones/<milestone>/state", inside(_milestone_state, "reporter")),
)
