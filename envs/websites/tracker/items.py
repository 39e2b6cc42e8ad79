"""Issues and merge requests of a project; both are rows of `item`, and a `_Kind` has what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first, fetch_value
from ..framework.site import (
    NOW,
    Forbidden,
    PageError,
    PageHandler,
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
from .access import ProjectPlace, get_user, within
from .pages import get_text
from .projects import DAY
from .seed import draw_sha

__all__ = ["ROUTES"]

_PAGE = 15
_NOW = format_moment(NOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    key: str
    """As rows of `item` have it."""
    segment: str
    """Of addresses."""
    word: str
    sign: str
    states: tuple[str, ...]


_ISSUE = _Kind(key="issue", segment="issues", word="issue", sign="#", states=("open", "closed"))
_MERGE = _Kind(
    key="merge", segment="merge_requests", word="merge request", sign="!", states=("open", "merged", "closed")
)

_ORDERS = {
    "newest": "item.created DESC, item.id DESC",
    "oldest": "item.created, item.id",
    "title": "item.title COLLATE NOCASE, item.id",
    "comments": "notes DESC, item.id DESC",
    "due": "item.due = '', item.due, item.id",
}
_LISTED = """
SELECT item.*, (SELECT count(*) FROM note WHERE note.item = item.id) AS notes,
  (SELECT title FROM milestone WHERE milestone.id = item.milestone) AS milestone_title
FROM item
"""
_FILTERS = {
    "author": "item.author = ?",
    "assignee": "coalesce(item.assignee, 'nobody') = ?",
    "reviewer": "item.reviewer = ?",
    "label": "EXISTS (SELECT 1 FROM item_label JOIN label ON label.id = label WHERE item = item.id AND label.name = ?)",
    "milestone": "EXISTS (SELECT 1 FROM milestone WHERE milestone.id = item.milestone AND milestone.title = ?)",
    "q": "instr(lower(item.title || ' ' || item.description), lower(?))",
}

Work = Callable[[Connection, PageRequest, ProjectPlace, _Kind, DataRow], SiteAnswer]


def _show(template: str, place: ProjectPlace, kind: _Kind, error: str = "", **values: object) -> SitePage:
    return show_form(template, error, place=place, project=place.project, kind=kind, **values)


def _build_url(place: ProjectPlace, kind: _Kind, number: object) -> str:
    return f"{place.url}/{kind.segment}/{number}"


# --- lists ---


def _list(kind: _Kind) -> PageHandler:
    def handle(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
        state = request.query.get("state", "open")
        state = state if state in kind.states else "all"
        sort = request.query.get("sort", "newest")
        sort = sort if sort in _ORDERS else "newest"
        chosen = {name: request.query.get(name, "") for name in _FILTERS}
        used = {name: value for name, value in chosen.items() if value}
        always = "project = ? AND kind = ?"
        where = " AND ".join((always, *(_FILTERS[name] for name in used)))
        given = (place.id, kind.key, *used.values())
        in_state = f"{where} AND (? = 'all' OR state = ?)"
        total = fetch_value(db, f"SELECT count(*) FROM item WHERE {in_state}", *given, state, state)
        paging = Paging.of(request, size=_PAGE, total=total)
        select = f"{_LISTED} WHERE {in_state} ORDER BY {_ORDERS[sort]} LIMIT ? OFFSET ?"
        return _show(
            "items.html",
            place,
            kind,
            listed=[_label(db, each) for each in fetch_all(db, select, *given, state, state, _PAGE, paging.offset)],
            paging=paging,
            state=state,
            sort=sort,
            sorts=tuple(_ORDERS),
            chosen=chosen,
            choices=_list_choices(db, place, kind),
        )

    return within(handle)


def _label(db: Connection, item: DataRow) -> DataRow:
    select = "SELECT name FROM item_label JOIN label ON label.id = label WHERE item = ? ORDER BY name"
    return {**item, "labels": [each["name"] for each in fetch_all(db, select, item["id"])]}


def _list_choices(db: Connection, place: ProjectPlace, kind: _Kind) -> Mapping[str, list[str]]:
    """What a list can be filtered by."""
    people = "SELECT DISTINCT {0} FROM item WHERE project = ? AND kind = ? AND {0} IS NOT NULL ORDER BY 1"
    found = {
        name: [value for (value,) in db.execute(people.format(name), (place.id, kind.key))]
        for name in (("author", "assignee") if kind is _ISSUE else ("author", "assignee", "reviewer"))
    }
    found["assignee"].append("nobody")
    for name, column in (("label", "name"), ("milestone", "title")):
        select = f"SELECT {column} FROM {name} WHERE project = ? ORDER BY id"
        found[name] = [value for (value,) in db.execute(select, (place.id,))]
    return found


# --- one ---


def _on(kind: _Kind, work: Work, *, signed_in: bool = True) -> PageHandler:
    """A page about one issue or merge request."""

    def handle(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
        where = "WHERE project = ? AND kind = ? AND number = ?"
        found = fetch_first(db, f"{_LISTED} {where}", place.id, kind.key, read_whole(parts["number"]))
        if found is None:
            raise PageNotFound(f"There is no such {kind.word}.")
        return work(db, request, place, kind, _label(db, found))

    return within(handle, signed_in=signed_in)


def _view(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    approvals = [each["username"] for each in fetch_all(db, "SELECT username FROM approval WHERE item = ?", item["id"])]
    return _show(
        "item.html",
        place,
        kind,
        item=item,
        notes=fetch_all(db, "SELECT * FROM note WHERE item = ? ORDER BY created, id", item["id"]),
        approvals=approvals,
        may_change=_may_change(request, place, item),
        may_merge=place.may("developer"),
    )


def _changes(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    edits = fetch_all(db, "SELECT * FROM edit WHERE item = ?", item["id"])
    return _show("changes.html", place, kind, item=item, edits=edits)


def _may_change(request: PageRequest, place: ProjectPlace, item: DataRow) -> bool:
    return place.may("reporter") or item["author"] == request.user


def _must_change(request: PageRequest, place: ProjectPlace, item: DataRow) -> None:
    if not _may_change(request, place, item):
        raise Forbidden("Only its author, or a reporter of the project, may do this.")


# --- writing and changing ---


_FIELDS = ("title", "description", "assignee", "reviewer", "milestone", "due")


def _form(
    db: Connection, place: ProjectPlace, kind: _Kind, given: DataRow, labels: list[str], error: str = ""
) -> SitePage:
    people = """SELECT username, name FROM person WHERE username IN
        (SELECT username FROM project_member WHERE project = ? UNION SELECT username FROM team_member WHERE team = ?
        UNION SELECT ?) ORDER BY name"""
    return _show(
        "item_form.html",
        place,
        kind,
        error,
        given=given,
        chosen=labels,
        people=fetch_all(db, people, place.id, place.project["space"], place.project["space"]),
        milestones=fetch_all(
            db,
            "SELECT id, title FROM milestone WHERE project = ? AND (state = 'open' OR id = ?)",
            place.id,
            given["milestone"],
        ),
        labels=fetch_all(db, "SELECT id, name FROM label WHERE project = ? ORDER BY name", place.id),
        branches=[name for (name,) in db.execute("SELECT name FROM branch WHERE project = ?", (place.id,))],
        sorting=place.may("reporter"),
    )


def _new_form(kind: _Kind) -> PageHandler:
    def handle(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
        given = {"id": 0, "source": "", **dict.fromkeys(_FIELDS, "")}
        return _form(db, place, kind, given, [])

    return within(handle, "developer" if kind is _MERGE else "", signed_in=True)


def _new(kind: _Kind) -> PageHandler:
    def handle(db: Connection, request: PageRequest, place: ProjectPlace, parts: PathParts) -> SiteAnswer:
        given, labels = _read_item(db, request, place)
        source = get_text(request, "source") if kind is _MERGE else ""
        wrong = _check_item(given) or (_check_branch(db, place, source) if kind is _MERGE else "")
        if wrong:
            return _form(db, place, kind, {"id": 0, "source": source, **given}, labels, wrong)
        last = fetch_value(db, "SELECT max(number) FROM item WHERE project = ? AND kind = ?", place.id, kind.key)
        number = (last or 0) + 1
        row = {
            "project": place.id,
            "kind": kind.key,
            "number": number,
            "title": given["title"],
            "description": given["description"],
            "author": get_user(request),
            "state": "open",
            "due": "",
            "source": source,
            "target": "main" if source else "",
            "created": _NOW,
        }
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        made = db.execute(f"INSERT INTO item ({columns}) VALUES ({marks})", tuple(row.values()))
        if place.may("reporter"):
            _sort(db, place, int(made.lastrowid or 0), given, labels)
        return Redirect(to=_build_url(place, kind, number))

    return within(handle, "developer" if kind is _MERGE else "", signed_in=True)


def _read_item(db: Connection, request: PageRequest, place: ProjectPlace) -> tuple[DataRow, list[str]]:
    given: DataRow = {name: get_text(request, name) for name in _FIELDS}
    given["milestone"] = read_whole(given["milestone"]) or None
    known = fetch_all(db, "SELECT id, name FROM label WHERE project = ?", place.id)
    return given, [label["name"] for label in known if f"label-{label['id']}" in request.form]


def _check_item(given: DataRow) -> str:
    if not given["title"]:
        return "A title is needed."
    return "" if not given["due"] or DAY.fullmatch(given["due"]) else "A day is written like 2026-03-02."


def _check_branch(db: Connection, place: ProjectPlace, source: str) -> str:
    known = fetch_value(db, "SELECT 1 FROM branch WHERE project = ? AND name = ? AND name <> 'main'", place.id, source)
    return "" if known else "Choose the branch to be merged."


def _sort(db: Connection, place: ProjectPlace, item: int, given: DataRow, labels: list[str]) -> None:
    """Set who does it, by when, and under which labels."""
    for who in ("assignee", "reviewer"):
        if given[who] and not fetch_value(db, "SELECT 1 FROM person WHERE username = ?", given[who]):
            raise PageError("There is nobody of this name.")
    of_project = "SELECT id FROM milestone WHERE id = ? AND project = ?"
    milestone = fetch_value(db, of_project, given["milestone"], place.id)
    values = (given["assignee"] or None, given["reviewer"] or None, milestone, given["due"], item)
    db.execute("UPDATE item SET assignee = ?, reviewer = ?, milestone = ?, due = ? WHERE id = ?", values)
    db.execute("DELETE FROM item_label WHERE item = ?", (item,))
    add = "INSERT INTO item_label SELECT ?, id FROM label WHERE project = ? AND name = ?"
    db.executemany(add, [(item, place.id, name) for name in labels])


def _edit_form(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    _must_change(request, place, item)
    return _form(db, place, kind, item, item["labels"])


def _edit(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    _must_change(request, place, item)
    given, labels = _read_item(db, request, place)
    if wrong := _check_item(given):
        return _form(db, place, kind, {**item, **given}, labels, wrong)
    update = "UPDATE item SET title = ?, description = ? WHERE id = ?"
    db.execute(update, (given["title"], given["description"], item["id"]))
    if place.may("reporter"):
        _sort(db, place, item["id"], given, labels)
    return Redirect(to=_build_url(place, kind, item["number"]))


def _comment(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    body = get_text(request, "body")
    if not body:
        raise PageError("A comment needs words.")
    insert = "INSERT INTO note (item, author, body, created) VALUES (?, ?, ?, ?)"
    db.execute(insert, (item["id"], get_user(request), body, _NOW))
    return Redirect(to=_build_url(place, kind, item["number"]))


_TURNS = {"open": "closed", "closed": "open"}


def _turn(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    """Close it, or open it again."""
    _must_change(request, place, item)
    if item["state"] not in _TURNS:
        raise PageError("What was merged stays so.")
    db.execute("UPDATE item SET state = ? WHERE id = ?", (_TURNS[item["state"]], item["id"]))
    return Redirect(to=_build_url(place, kind, item["number"]))


# --- merging ---


def _approve(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    """Approve it, or take the approval back."""
    place.must("developer")
    key = (item["id"], get_user(request))
    if not db.execute("DELETE FROM approval WHERE item = ? AND username = ?", key).rowcount:
        db.execute("INSERT INTO approval VALUES (?, ?)", key)
    return Redirect(to=_build_url(place, kind, item["number"]))


def _merge(db: Connection, request: PageRequest, place: ProjectPlace, kind: _Kind, item: DataRow) -> SiteAnswer:
    place.must("developer")
    if item["state"] != "open":
        raise PageError("Only what is open can be merged.")
    db.execute("UPDATE item SET state = 'merged' WHERE id = ?", (item["id"],))
    for edit in fetch_all(db, "SELECT * FROM edit WHERE item = ?", item["id"]):
        _apply(db, place, edit)
    named = Random(f"{place.id} {item['number']}")
    row = (
        draw_sha(named),
        place.id,
        get_user(request),
        f"Merge branch '{item['source']}' into main",
        "CHANGELOG.md",
        _NOW,
    )
    db.execute("INSERT INTO revision VALUES (?, ?, ?, ?, ?, ?)", row)
    return Redirect(to=_build_url(place, kind, item["number"]))


def _apply(db: Connection, place: ProjectPlace, edit: DataRow) -> None:
    where = "WHERE project = ? AND path = ?"
    if edit["old"]:
        update = f"UPDATE file SET content = replace(content, ?, ?) {where}"
        db.execute(update, (edit["old"], edit["new"], place.id, edit["path"]))
    else:
        db.execute(f"UPDATE file SET content = content || ? {where}", (f"{edit['new']}\n", place.id, edit["path"]))


def _routes(kind: _Kind) -> tuple[PageRoute, ...]:
    every = f"/<space>/<project>/{kind.segment}"
    each = f"{every}/<number>"
    return (
        on_get(every, _list(kind)),
        on_get(f"{every}/new", _new_form(kind)),
        on_post(f"{every}/new", _new(kind)),
        on_get(each, _on(kind, _view, signed_in=False)),
        on_get(f"{each}/edit", _on(kind, _edit_form)),
        on_post(f"{each}/edit", _on(kind, _edit)),
        on_post(f"{each}/comment", _on(kind, _comment)),
        on_post(f"{each}/state", _on(kind, _turn)),
    )


ROUTES: tuple[PageRoute, ...] = (
    *_routes(_ISSUE),
    *_routes(_MERGE),
    on_get("/<space>/<project>/merge_requests/<number>/changes", _on(_MERGE, _changes, signed_in=False)),
    on_post("/<space>/<project>/merge_requests/<number>/approve", _on(_MERGE, _approve)),
    on_post("/<space>/<project>/merge_requests/<number>/merge", _on(_MERGE, _merge)),
)
