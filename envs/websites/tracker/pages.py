"""The pages of the tracker outside projects: the user's own lists, groups, people, search, signing in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first, fetch_value, read_records
from ..framework.site import (
    NOW,
    Forbidden,
    PageError,
    PageNotFound,
    PageRequest,
    PageRoute,
    Paging,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    on_get,
    on_post,
    read_whole,
    show_form,
)
from .access import ROLES, VISIBLE, find_team_role, get_user

__all__ = ["RESERVED", "ROUTES", "SLUG", "get_text", "share_tracker"]

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{1,38}[a-z0-9]")
"""What addresses may contain."""
RESERVED = frozenset(
    ("dashboard", "explore", "groups", "login", "logout", "profile", "projects", "search", "starred", "todos", "users")
)
"""No group may have one of these names."""
_LONG = ("body", "description", "bio")
_PAGE = 15
_LISTED = f"""
SELECT project.*, (SELECT count(*) FROM star WHERE star.project = project.id) AS stars,
  (SELECT count(*) FROM item WHERE item.project = project.id AND kind = 'issue' AND state = 'open') AS open_issues,
  max(created, coalesce((SELECT max(created) FROM revision WHERE revision.project = project.id), '')) AS active
FROM project WHERE {VISIBLE}
"""
_ORDERS = {"name": "name, id", "stars": "stars DESC, name", "activity": "active DESC", "created": "created DESC"}
_MINE = """(space = :who OR EXISTS (SELECT 1 FROM project_member WHERE project = project.id AND username = :who)
  OR EXISTS (SELECT 1 FROM team_member WHERE team = space AND username = :who))"""
_STARRED = "EXISTS (SELECT 1 FROM star WHERE star.project = project.id AND username = :who)"


def share_tracker(db: Connection, request: PageRequest) -> Mapping[str, object]:
    waiting = fetch_value(db, "SELECT count(*) FROM todo WHERE username = ? AND NOT done", request.user)
    return {"waiting": waiting, "roles": ROLES}


def get_text(request: PageRequest, name: str) -> str:
    given = request.form.get(name, "").strip()
    return given if name in _LONG else " ".join(given.split())[:200]


# --- projects ---


def _listing(db: Connection, request: PageRequest, heading: str, where: str, **more: object) -> SitePage:
    sort = request.query.get("sort", "name")
    sort = sort if sort in _ORDERS else "name"
    words = request.query.get("q", "")
    given = {"who": request.user, "words": words.casefold(), **more}
    where = f"{where} AND (instr(lower(name), :words) OR instr(lower(description), :words))"
    projects = read_records(db.execute(f"{_LISTED} AND {where} ORDER BY {_ORDERS[sort]}", given))
    values = {"projects": projects, "heading": heading, "sort": sort, "sorts": tuple(_ORDERS), "q": words}
    return SitePage(template="projects.html", values=values)


def _home(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _listing(db, request, "Your projects", _MINE) if request.user else _explore(db, request, parts)


def _explore(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _listing(db, request, "Explore projects", "true")


def _starred(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    get_user(request)
    return _listing(db, request, "Starred projects", _STARRED)


# --- groups ---


def _groups(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    select = """SELECT team.*, (SELECT count(*) FROM team_member WHERE team = path) AS members,
        (SELECT role FROM team_member WHERE team = path AND username = ?) AS role FROM team ORDER BY name"""
    return SitePage(template="groups.html", values={"groups": fetch_all(db, select, request.user)})


def _new_group_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    get_user(request)
    return show_form("new_group.html", given={"name": "", "path": "", "description": ""})


def _new_group(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    mine = get_user(request)
    given = {name: get_text(request, name) for name in ("path", "name", "description")}
    if wrong := _check_group(db, given):
        return show_form("new_group.html", wrong, given=given)
    db.execute("INSERT INTO team VALUES (?, ?, ?, ?)", (*given.values(), NOW.date().isoformat()))
    db.execute("INSERT INTO team_member VALUES (?, ?, 'owner')", (given["path"], mine))
    return Redirect(to=f"/groups/{given['path']}")


def _check_group(db: Connection, given: Mapping[str, str]) -> str:
    path = given["path"]
    if not given["name"]:
        return "A group needs a name."
    if not SLUG.fullmatch(path) or path in RESERVED:
        return "An address is 3 to 40 small letters, digits, dots, underscores or hyphens."
    taken = "SELECT 1 FROM team WHERE path = ? UNION SELECT 1 FROM person WHERE username = ?"
    return "There is such an address already." if fetch_value(db, taken, path, path) else ""


def _find_group(db: Connection, path: str) -> DataRow:
    found = fetch_first(db, "SELECT * FROM team WHERE path = ?", path)
    if found is None:
        raise PageNotFound("There is no such group.")
    return found


def _group(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    group = _find_group(db, parts["group"])
    listed = _listing(db, request, group["name"], "space = :space", space=group["path"])
    select = "SELECT username, name, role FROM team_member NATURAL JOIN person WHERE team = ? ORDER BY name"
    members = fetch_all(db, select, group["path"])
    manages = find_team_role(db, group["path"], request.user) in ("maintainer", "owner")
    values = {**listed.values, "group": group, "members": members, "manages": manages}
    return SitePage(template="group.html", values=values)


def _add_to_group(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    group = _find_group(db, parts["group"])["path"]
    if find_team_role(db, group, get_user(request)) not in ("maintainer", "owner"):
        raise Forbidden("Only a maintainer of the group may do this.")
    username, role = get_text(request, "username"), get_text(request, "role")
    if role not in ROLES or not fetch_value(db, "SELECT 1 FROM person WHERE username = ?", username):
        raise PageError("There is no such person or role.")
    db.execute("INSERT OR IGNORE INTO team_member VALUES (?, ?, ?)", (group, username, role))
    return Redirect(to=f"/groups/{group}")


# --- people ---


def _person(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    person = _find_person(db, parts["username"])
    projects = _listing(db, request, "", _MINE.replace(":who", ":them"), them=person["username"]).values["projects"]
    counts = {
        kind: fetch_value(db, "SELECT count(*) FROM item WHERE kind = ? AND author = ?", kind, person["username"])
        for kind in ("issue", "merge")
    }
    return SitePage(template="person.html", values={"person": person, "projects": projects, "counts": counts})


def _find_person(db: Connection, username: str) -> DataRow:
    found = fetch_first(
        db, "SELECT username, name, status, bio, location, joined FROM person WHERE username = ?", username
    )
    if found is None:
        raise PageNotFound("There is nobody of this name.")
    return found


def _profile_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("profile.html", given=_find_person(db, get_user(request)))


def _profile(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    given = {name: get_text(request, name) for name in ("name", "status", "bio", "location")}
    if not given["name"]:
        return show_form("profile.html", "A name is needed.", given=given)
    update = "UPDATE person SET name = ?, status = ?, bio = ?, location = ? WHERE username = ?"
    db.execute(update, (*given.values(), get_user(request)))
    return Redirect(to=f"/users/{get_user(request)}")


# --- what waits for one ---


def _todos(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    done = request.query.get("state") == "done"
    select = """SELECT todo.*, item.kind, item.number, item.title, project.space, project.path, project.name
        FROM todo JOIN item ON item.id = todo.item JOIN project ON project.id = item.project
        WHERE todo.username = ? AND done = ? ORDER BY todo.created DESC, todo.id DESC"""
    return SitePage(
        template="todos.html", values={"todos": fetch_all(db, select, get_user(request), done), "done": done}
    )


def _todo_done(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    update = "UPDATE todo SET done = 1 - done WHERE id = ? AND username = ?"
    changed = db.execute(update, (read_whole(parts["todo"]), get_user(request))).rowcount
    if not changed:
        raise PageNotFound("There is no such thing to do.")
    return Redirect(to="/todos")


def _todos_done(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    db.execute("UPDATE todo SET done = 1 WHERE username = ?", (get_user(request),))
    return Redirect(to="/todos")


_OWN = {
    "issues": ("issue", "Issues assigned to you", "item.assignee = :who"),
    "merge_requests": ("merge", "Merge requests assigned to you", "item.assignee = :who"),
    "reviews": ("merge", "Merge requests to review", "item.reviewer = :who"),
    "created": ("issue", "Issues you opened", "item.author = :who"),
}


def _dashboard(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    if parts["what"] not in _OWN:
        raise PageNotFound
    kind, heading, where = _OWN[parts["what"]]
    state = request.query.get("state", "open")
    given = {"who": get_user(request), "kind": kind, "state": state}
    return _items(db, request, heading, f"item.kind = :kind AND {where} AND item.state = :state", given, state=state)


def _items(
    db: Connection, request: PageRequest, heading: str, where: str, given: Mapping[str, object], **more: object
) -> SitePage:
    source = f"item JOIN project ON project.id = item.project WHERE {VISIBLE} AND {where}"
    (total,) = db.execute(f"SELECT count(*) FROM {source}", given).fetchone()
    paging = Paging.of(request, size=_PAGE, total=total)
    columns = "item.*, project.space, project.path, project.name AS project_name"
    select = f"SELECT {columns} FROM {source} ORDER BY item.created DESC LIMIT :size OFFSET :offset"
    items = read_records(db.execute(select, {**given, "size": _PAGE, "offset": paging.offset}))
    values = {"heading": heading, "listed": items, "paging": paging, "state": "", "q": "", "scope": "", **more}
    return SitePage(template="items_everywhere.html", values=values)


# --- search ---


def _search(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    words, scope = request.query.get("q", ""), request.query.get("in", "projects")
    if scope in ("issues", "merge_requests"):
        kind = {"issues": "issue", "merge_requests": "merge"}[scope]
        given = {"who": request.user, "kind": kind, "words": words.casefold()}
        found = "(instr(lower(item.title), :words) OR instr(lower(item.description), :words))"
        return _items(db, request, f"Search: {words}", f"item.kind = :kind AND {found}", given, q=words, scope=scope)
    if scope == "people":
        select = """SELECT username, name, bio FROM person
            WHERE instr(lower(name), ?) OR instr(username, ?) ORDER BY name"""
        people = fetch_all(db, select, words.casefold(), words.casefold())
        return SitePage(template="people.html", values={"people": people, "q": words, "scope": scope})
    return _listing(db, request, f"Search: {words}", "true")


# --- signing in and out ---


def _log_in_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("login.html", username="")


def _log_in(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    username, password = get_text(request, "username"), request.form.get("password", "")
    if not fetch_value(db, "SELECT 1 FROM person WHERE username = ? AND password = ?", username, password):
        return show_form("login.html", "This name and password do not belong together.", username=username)
    return Redirect(to="/", user=username)


def _log_out(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return Redirect(to="/", user=None)


ROUTES: tuple[PageRoute, ...] = (
    on_get("/", _home),
    on_get("/explore", _explore),
    on_get("/starred", _starred),
    on_get("/search", _search),
    on_get("/groups", _groups),
    on_get("/groups/new", _new_group_form),
    on_post("/groups/new", _new_group),
    on_get("/groups/<group>", _group),
    on_post("/groups/<group>/members", _add_to_group),
    on_get("/users/<username>", _person),
    on_get("/profile", _profile_form),
    on_post("/profile", _profile),
    on_get("/todos", _todos),
    on_post("/todos/done", _todos_done),
    on_post("/todos/<todo>", _todo_done),
    on_get("/dashboard/<what>", _dashboard),
    on_get("/login", _log_in_form),
    on_post("/login", _log_in),
    on_post("/logout", _log_out),
)
