"""Pages of a project except its issues and merge requests: files, commits, members, labels, milestones, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first, fetch_value
from ..framework.site import (
    NOW,
    PageError,
    PageNotFound,
    PageRequest,
    PageRoute,
    Paging,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    format_moment,
    on_get,
    on_post,
    read_whole,
    show_form,
)
from .access import ROLES, ProjectPlace, get_user, within
from .pages import SLUG, get_text
from .seed import make_slug

__all__ = ["DAY", "ROUTES"]

_PAGE = 20
_VISIBILITIES = ("public", "internal", "private")
DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def _show(template: str, place: ProjectPlace, **values: object) -> SitePage:
    return SitePage(template=template, values={"place": place, "project": place.project, "error": "", **values})


# --- looking around ---


def _overview(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    counts = {
        "stars": "SELECT count(*) FROM star WHERE project = ?",
        "forks": "SELECT count(*) FROM project WHERE forked_from = ?",
        "commits": "SELECT count(*) FROM revision WHERE project = ?",
        "branches": "SELECT count(*) FROM branch WHERE project = ?",
    }
    return _show(
        "project.html",
        place,
        counts={name: fetch_value(db, select, place.id) for name, select in counts.items()},
        starred=fetch_value(db, "SELECT 1 FROM star WHERE project = ? AND username = ?", place.id, request.user),
        files=fetch_all(db, "SELECT path FROM file WHERE project = ? ORDER BY path LIKE '%/%' DESC, path", place.id),
        readme=fetch_value(db, "SELECT content FROM file WHERE project = ? AND path = 'README.md'", place.id) or "",
        origin=fetch_first(db, "SELECT space, path FROM project WHERE id = ?", place.project["forked_from"]),
    )


def _file(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    found = fetch_first(db, "SELECT * FROM file WHERE project = ? AND path = ?", place.id, parts["path"])
    if found is None:
        raise PageNotFound("There is no such file.")
    return _show("file.html", place, file=found)


def _commits(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    author, words = request.query.get("author", ""), request.query.get("q", "")
    where = "project = ? AND (? = '' OR author = ?) AND instr(lower(title), ?)"
    given = (place.id, author, author, words.casefold())
    paging = Paging.of(
        request, size=_PAGE, total=fetch_value(db, f"SELECT count(*) FROM revision WHERE {where}", *given)
    )
    select = f"SELECT * FROM revision WHERE {where} ORDER BY created DESC, sha LIMIT ? OFFSET ?"
    return _show(
        "commits.html",
        place,
        commits=fetch_all(db, select, *given, _PAGE, paging.offset),
        paging=paging,
        author=author,
        q=words,
        authors=[each["author"] for each in _fetch_authors(db, place)],
    )


def _fetch_authors(db: Connection, place: ProjectPlace) -> list[DataRow]:
    select = """SELECT author, name, count(*) AS commits, max(created) AS last FROM revision
        JOIN person ON username = author WHERE project = ? GROUP BY author ORDER BY commits DESC, author"""
    return fetch_all(db, select, place.id)


def _contributors(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    return _show("contributors.html", place, authors=_fetch_authors(db, place))


def _commit(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    found = fetch_first(db, "SELECT * FROM revision WHERE project = ? AND sha = ?", place.id, parts["sha"])
    if found is None:
        raise PageNotFound("There is no such commit.")
    return _show("commit.html", place, commit=found)


# --- stars and forks ---


def _star(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    """Star the project, or take the star back."""
    key = (place.id, get_user(request))
    if not db.execute("DELETE FROM star WHERE project = ? AND username = ?", key).rowcount:
        db.execute("INSERT INTO star VALUES (?, ?)", key)
    return Redirect(to=place.url)


def _fork_form(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    return _show("fork.html", place, spaces=_list_spaces(db, get_user(request)))


def _list_spaces(db: Connection, username: str) -> list[str]:
    """The spaces in which a person may create projects."""
    teams = fetch_all(
        db, "SELECT team FROM team_member WHERE username = ? AND role IN ('maintainer', 'owner')", username
    )
    return [username, *sorted(each["team"] for each in teams)]


_COPIED = {"file": "path, content", "revision": "sha, author, title, path, created", "branch": "name"}


def _fork(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    given = {
        "space": get_text(request, "space"),
        "name": place.project["name"],
        "path": place.project["path"],
        "description": place.project["description"],
        "visibility": place.project["visibility"],
    }
    if wrong := _check_project(db, given, get_user(request)):
        raise PageError(wrong)
    made = _create(db, given, get_user(request), place.id)
    for table, columns in _COPIED.items():
        copy = f"INSERT INTO {table} (project, {columns}) SELECT ?, {columns} FROM {table} WHERE project = ?"
        db.execute(copy, (made, place.id))
    return Redirect(to=f"/{given['space']}/{given['path']}")


# --- making and changing ---


_NEW = {"space": "", "name": "", "path": "", "description": "", "visibility": "private", "readme": ""}


def _new_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    spaces = _list_spaces(db, get_user(request))
    space = request.query.get("group", "")
    return show_form("new_project.html", given={**_NEW, "space": space}, spaces=spaces, visibilities=_VISIBILITIES)


def _new(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    given = {name: get_text(request, name) for name in _NEW}
    given["path"] = given["path"] or make_slug(given["name"])
    if wrong := _check_project(db, given, get_user(request)):
        spaces = _list_spaces(db, get_user(request))
        return show_form("new_project.html", wrong, given=given, spaces=spaces, visibilities=_VISIBILITIES)
    made = _create(db, given, get_user(request), None)
    db.execute("INSERT INTO branch VALUES (?, 'main')", (made,))
    if given["readme"]:
        content = f"# {given['name']}\n\n{given['description']}\n"
        db.execute("INSERT INTO file VALUES (?, 'README.md', ?)", (made, content))
    return Redirect(to=f"/{given['space']}/{given['path']}")


def _check_project(db: Connection, given: Mapping[str, str], username: str) -> str:
    if given["space"] not in _list_spaces(db, username):
        return "Choose a group in which you may make projects, or yourself."
    if not given["name"] or not SLUG.fullmatch(given["path"]):
        return "A name is needed, and an address of 3 to 40 small letters, digits, dots, underscores or hyphens."
    if given["visibility"] not in _VISIBILITIES:
        return "Choose who may see it."
    taken = fetch_value(db, "SELECT 1 FROM project WHERE space = ? AND path = ?", given["space"], given["path"])
    return "There is such a project already." if taken else ""


def _create(db: Connection, given: Mapping[str, str], username: str, forked_from: int | None) -> int:
    fields = (given["space"], given["path"], given["name"], given["description"], given["visibility"])
    columns = "space, path, name, description, visibility, created, forked_from"
    insert = f"INSERT INTO project ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    made = int(db.execute(insert, (*fields, format_moment(NOW), forked_from)).lastrowid or 0)
    db.execute("INSERT INTO project_member VALUES (?, ?, 'owner')", (made, username))
    return made


def _settings_form(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    return _show("settings.html", place, given=place.project, visibilities=_VISIBILITIES)


def _settings(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    given = {name: get_text(request, name) for name in ("name", "description", "visibility")}
    if not given["name"] or given["visibility"] not in _VISIBILITIES:
        raise PageError("A name is needed, and who may see it.")
    db.execute("UPDATE project SET name = ?, description = ?, visibility = ? WHERE id = ?", (*given.values(), place.id))
    return Redirect(to=place.url)


# --- members ---


def _members(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    select = "SELECT username, name, role FROM project_member NATURAL JOIN person WHERE project = ? ORDER BY name"
    from_team = "SELECT username, name, role FROM team_member NATURAL JOIN person WHERE team = ? ORDER BY name"
    return _show(
        "members.html",
        place,
        members=fetch_all(db, select, place.id),
        inherited=fetch_all(db, from_team, place.project["space"]),
        people=fetch_all(db, "SELECT username, name FROM person ORDER BY name"),
    )


def _invite(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    username, role = get_text(request, "username"), _read_role(request)
    if not fetch_value(db, "SELECT 1 FROM person WHERE username = ?", username):
        raise PageError("There is nobody of this name.")
    if fetch_value(db, "SELECT 1 FROM project_member WHERE project = ? AND username = ?", place.id, username):
        raise PageError("This person is a member already.")
    db.execute("INSERT INTO project_member VALUES (?, ?, ?)", (place.id, username, role))
    return Redirect(to=f"{place.url}/members")


def _read_role(request: PageRequest) -> str:
    role = get_text(request, "role")
    if role not in ROLES:
        raise PageError("There is no such role.")
    return role


def _change_role(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    update = "UPDATE project_member SET role = ? WHERE project = ? AND username = ?"
    return _change_members(db, place, update, (_read_role(request), place.id, parts["username"]))


def _remove_member(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    delete = "DELETE FROM project_member WHERE project = ? AND username = ?"
    return _change_members(db, place, delete, (place.id, parts["username"]))


def _change_members(db: Connection, place: ProjectPlace, change: str, given: tuple[object, ...]) -> SiteAnswer:
    if not db.execute(change, given).rowcount:
        raise PageNotFound("There is no such member.")
    return Redirect(to=f"{place.url}/members")


# --- labels and milestones ---


def _labels(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    select = """SELECT label.*, (SELECT count(*) FROM item_label JOIN item ON item.id = item WHERE label = label.id
        AND kind = 'issue' AND state = 'open') AS open_issues FROM label WHERE project = ? ORDER BY name"""
    return _show("labels.html", place, labels=fetch_all(db, select, place.id))


def _new_label(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    name, description = get_text(request, "name"), get_text(request, "description")
    if not name or fetch_value(db, "SELECT 1 FROM label WHERE project = ? AND name = ?", place.id, name):
        raise PageError("A label needs a name of its own.")
    db.execute("INSERT INTO label (project, name, description) VALUES (?, ?, ?)", (place.id, name, description))
    return Redirect(to=f"{place.url}/labels")


_COUNTED = """
SELECT milestone.*, (SELECT count(*) FROM item WHERE milestone = milestone.id AND kind = 'issue') AS issues,
  (SELECT count(*) FROM item WHERE milestone = milestone.id AND kind = 'issue' AND state = 'closed') AS closed
FROM milestone
"""
_DATES = ("title", "description", "start", "due")


def _milestones(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    listed = fetch_all(db, f"{_COUNTED} WHERE project = ? ORDER BY state DESC, due", place.id)
    return _show("milestones.html", place, milestones=listed)


def _milestone_of(db: Connection, place: ProjectPlace, parts: PathParts) -> DataRow:
    found = fetch_first(db, f"{_COUNTED} WHERE project = ? AND id = ?", place.id, read_whole(parts["milestone"]))
    if found is None:
        raise PageNotFound("There is no such milestone.")
    return found


def _milestone(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    found = _milestone_of(db, place, parts)
    select = "SELECT * FROM item WHERE milestone = ? AND kind = 'issue' ORDER BY state DESC, number"
    return _show("milestone.html", place, milestone=found, issues=fetch_all(db, select, found["id"]))


def _milestone_form(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    given = _milestone_of(db, place, parts) if "milestone" in parts else dict.fromkeys(_DATES, "")
    return _milestone_page(place, given, editing="milestone" in parts)


def _milestone_page(place: ProjectPlace, given: DataRow, *, editing: bool, error: str = "") -> SitePage:
    return show_form("milestone_form.html", error, place=place, project=place.project, given=given, editing=editing)


def _save_milestone(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    number = _milestone_of(db, place, parts)["id"] if "milestone" in parts else 0
    given = {name: get_text(request, name) for name in _DATES}
    if wrong := _check_milestone(db, place, given, number):
        return _milestone_page(place, given, editing=bool(number), error=wrong)
    if number:
        update = "UPDATE milestone SET title = ?, description = ?, start = ?, due = ? WHERE id = ?"
        db.execute(update, (*given.values(), number))
    else:
        insert = "INSERT INTO milestone (project, title, description, start, due, state) VALUES (?, ?, ?, ?, ?, 'open')"
        number = db.execute(insert, (place.id, *given.values())).lastrowid
    return Redirect(to=f"{place.url}/milestones/{number}")


def _check_milestone(db: Connection, place: ProjectPlace, given: Mapping[str, str], number: int) -> str:
    taken = "SELECT 1 FROM milestone WHERE project = ? AND title = ? AND id <> ?"
    if not given["title"] or fetch_value(db, taken, place.id, given["title"], number):
        return "A milestone needs a title of its own."
    days = [day for day in (given["start"], given["due"]) if day]
    return "" if all(map(DAY.fullmatch, days)) else "A day is written like 2026-03-02."


def _milestone_state(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
    found = _milestone_of(db, place, parts)
    state = {"open": "closed", "closed": "open"}[found["state"]]
    db.execute("UPDATE milestone SET state = ? WHERE id = ?", (state, found["id"]))
    return Redirect(to=f"{place.url}/milestones/{found['id']}")


_HERE = "/<space>/<project>"

ROUTES: tuple[PageRoute, ...] = (
    on_get("/projects/new", _new_form),
    on_post("/projects/new", _new),
    on_get(_HERE, within(_overview)),
    on_get(f"{_HERE}/file/<path...>", within(_file)),
    on_get(f"{_HERE}/commits", within(_commits)),
    on_get(f"{_HERE}/commits/<sha>", within(_commit)),
    on_get(f"{_HERE}/contributors", within(_contributors)),
    on_post(f"{_HERE}/star", within(_star, signed_in=True)),
    on_get(f"{_HERE}/fork", within(_fork_form, signed_in=True)),
    on_post(f"{_HERE}/fork", within(_fork, signed_in=True)),
    on_get(f"{_HERE}/settings", within(_settings_form, "maintainer")),
    on_post(f"{_HERE}/settings", within(_settings, "maintainer")),
    on_get(f"{_HERE}/members", within(_members)),
    on_post(f"{_HERE}/members", within(_invite, "maintainer")),
    on_post(f"{_HERE}/members/<username>", within(_change_role, "maintainer")),
    on_post(f"{_HERE}/members/<username>/remove", within(_remove_member, "maintainer")),
    on_get(f"{_HERE}/labels", within(_labels)),
    on_post(f"{_HERE}/labels", within(_new_label, "reporter")),
    on_get(f"{_HERE}/milestones", within(_milestones)),
    on_get(f"{_HERE}/milestones/new", within(_milestone_form, "reporter")),
    on_post(f"{_HERE}/milestones/new", within(_save_milestone, "reporter")),
    on_get(f"{_HERE}/milestones/<milestone>", within(_milestone)),
    on_get(f"{_HERE}/milestones/<milestone>/edit", within(_milestone_form, "reporter")),
    on_post(f"{_HERE}/milestones/<milestone>/edit", within(_save_milestone, "reporter")),
    on_post(f"{_HERE}/milestones/<milestone>/state", within(_milestone_state, "reporter")),
)
