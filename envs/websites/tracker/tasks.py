"""What there is to be done on the tracker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sqlite3 import Connection

from ..checks import NOT_POSSIBLE, Databases, Outcome, Truth
from ..framework.records import Record, first, one, rows
from ..outcomes import Added, Edited, Gone, Wanted, just
from ..tasks import Choose, Click, Deed, Fill, Template, Values
from .seed import USER, slug

__all__ = ["TASKS"]

_HOME = "http://tracker.test/"
_Path = Callable[[Databases, Values], Sequence[Deed]]


# --- what is true ---


def _db(databases: Databases) -> Connection:
    return databases["tracker"]


def _row(databases: Databases, sql: str, *given: object) -> Record:
    found = first(_db(databases), sql, *given)
    assert found is not None, (sql, given)
    return found


def _project(databases: Databases, values: Values) -> Record:
    return _row(databases, "SELECT * FROM project WHERE space || '/' || path = ?", values["project"])


def _item(databases: Databases, values: Values, kind: str) -> Record:
    return _row(databases, "SELECT * FROM item WHERE title = ? AND kind = ?", values["title"], kind)


def _issue(databases: Databases, values: Values) -> int:
    return int(_item(databases, values, "issue")["id"])


def _merge(databases: Databases, values: Values) -> int:
    return int(_item(databases, values, "merge")["id"])


def _username(databases: Databases, values: Values) -> str:
    return str(_row(databases, "SELECT username FROM person WHERE name = ?", values["name"])["username"])


def _label(databases: Databases, values: Values, project: object) -> int:
    select = "SELECT id FROM label WHERE project = ? AND name = ?"
    return int(_row(databases, select, project, values["label"])["id"])


def _milestone(databases: Databases, values: Values) -> Record:
    project = _project(databases, values)["id"]
    return _row(databases, "SELECT * FROM milestone WHERE project = ? AND title = ?", project, values["milestone"])


def _num_commits(databases: Databases, values: Values) -> int:
    count = "SELECT count(*) FROM revision WHERE project = ? AND author = ?"
    return int(one(_db(databases), count, _project(databases, values)["id"], _username(databases, values)))


def _num_labelled(databases: Databases, values: Values) -> int:
    project = _project(databases, values)["id"]
    count = (
        "SELECT count(*) FROM item JOIN item_label ON item = id WHERE label = ? AND kind = 'issue' AND state = 'open'"
    )
    return int(one(_db(databases), count, _label(databases, values, project)))


def _busiest(databases: Databases, values: Values) -> str:
    select = (
        "SELECT name FROM revision JOIN person ON username = author WHERE project = ? GROUP BY 1 ORDER BY count(*) DESC"
    )
    return str(one(_db(databases), select, _project(databases, values)["id"]))


def _port(databases: Databases, values: Values) -> int:
    select = "SELECT content FROM file WHERE project = ? AND path = 'docs/setup.md'"
    content = str(one(_db(databases), select, _project(databases, values)["id"]))
    return int(content.split("--port ")[1].split()[0])


def _unassigned(databases: Databases, values: Values) -> frozenset[str]:
    select = "SELECT title FROM item WHERE project = ? AND kind = 'issue' AND state = 'open' AND assignee IS NULL"
    return frozenset(each["title"] for each in rows(_db(databases), select, _project(databases, values)["id"]))


def _oldest_open(databases: Databases, values: Values) -> Record:
    select = "SELECT * FROM item WHERE project = ? AND kind = 'issue' AND state = 'open' ORDER BY created"
    return _row(databases, select, _project(databases, values)["id"])


def _changes_url(databases: Databases, values: Values) -> str:
    item = _item(databases, values, "merge")
    project = _row(databases, "SELECT * FROM project WHERE id = ?", item["project"])
    return f"{_HOME}{project['space']}/{project['path']}/merge_requests/{item['number']}/changes"


# --- what was changed ---


def _made(wanted: Callable[[Databases, Values], Wanted]) -> Callable[[Outcome, Values], bool]:
    return lambda outcome, values: just(outcome, wanted(outcome.before, values))


def _nothing(databases: Databases, values: Values) -> Wanted:
    return {}


def _opened(databases: Databases, values: Values) -> Wanted:
    project = _project(databases, values)["id"]
    written = {"project": project, "kind": "issue", "author": USER, "assignee": None, "state": "open"}
    issue = {**written, "title": values["title"], "description": values["text"]}
    issue["id"] = one(_db(databases), "SELECT max(id) + 1 FROM item")
    return {
        "tracker.item": (Added(issue),),
        "tracker.item_label": (Added({"item": issue["id"], "label": _label(databases, values, project)}),),
    }


def _assigned(databases: Databases, values: Values) -> Wanted:
    which = {"id": _issue(databases, values)}
    return {"tracker.item": (Edited(which, {"assignee": _username(databases, values)}),)}


def _labelled(databases: Databases, values: Values) -> Wanted:
    item = _item(databases, values, "issue")
    label = _label(databases, values, item["project"])
    return {"tracker.item_label": (Added({"item": item["id"], "label": label}),)}


def _commented(databases: Databases, values: Values) -> Wanted:
    return {"tracker.note": (Added({"item": _issue(databases, values), "author": USER, "body": values["text"]}),)}


def _merged(databases: Databases, values: Values) -> Wanted:
    item = _item(databases, values, "merge")
    files = []
    for edit in rows(_db(databases), "SELECT * FROM edit WHERE item = ?", item["id"]):
        which = {"project": item["project"], "path": edit["path"]}
        select = "SELECT content FROM file WHERE project = ? AND path = ?"
        content = str(one(_db(databases), select, *which.values()))
        new = content.replace(edit["old"], edit["new"]) if edit["old"] else f"{content}{edit['new']}\n"
        files.append(Edited(which, {"content": new}))
    return {
        "tracker.item": (Edited({"id": item["id"]}, {"state": "merged"}),),
        "tracker.file": files,
        "tracker.revision": (Added({"project": item["project"], "author": USER}),),
    }


def _membership(databases: Databases, values: Values) -> Record:
    return {"project": _project(databases, values)["id"], "username": _username(databases, values)}


def _project_made(databases: Databases, values: Values) -> Wanted:
    project = {name: values[name] for name in ("space", "name", "description", "visibility")}
    return {
        "tracker.project": (Added({**project, "path": slug(str(values["name"]))}),),
        "tracker.project_member": (Added({"username": USER, "role": "owner"}),),
        "tracker.branch": (Added({"name": "main"}),),
    }


def _group_made(databases: Databases, values: Values) -> Wanted:
    return {
        "tracker.team": (Added({"name": values["name"], "path": values["path"]}),),
        "tracker.team_member": (Added({"team": values["path"], "username": USER, "role": "owner"}),),
    }


def _forked(databases: Databases, values: Values) -> Wanted:
    origin = _project(databases, values)
    copied = {
        f"tracker.{table}": [Added(each) for each in rows(_db(databases), f"{select} WHERE project = ?", origin["id"])]
        for table, select in (
            ("file", "SELECT path, content FROM file"),
            ("revision", "SELECT sha, title FROM revision"),
            ("branch", "SELECT name FROM branch"),
        )
    }
    return {
        "tracker.project": (Added({"space": USER, "path": origin["path"], "forked_from": origin["id"]}),),
        "tracker.project_member": (Added({"username": USER, "role": "owner"}),),
        **copied,
    }


def _todo_done(databases: Databases, values: Values) -> Wanted:
    select = "SELECT todo.id FROM todo JOIN item ON item.id = item WHERE username = ? AND title = ? AND NOT done"
    return {"tracker.todo": (Edited({"id": one(_db(databases), select, USER, values["title"])}, {"done": 1}),)}


# --- how it is done ---


def _in(*deeds: Deed) -> _Path:
    """In a project, found among all of them."""
    return lambda databases, values: (*_inside(values), *deeds)


def _inside(values: Values) -> tuple[Deed, ...]:
    return Click("link", "Explore"), Click("link", str(values["project"]))


def _found(values: Values, what: str) -> tuple[Deed, ...]:
    title = str(values["title"])
    return Fill("searchbox", "Search", title, enter=True), Click("link", f"{what} found"), Click("link", title)


def _on_issue(*deeds: Callable[[Values], Deed]) -> _Path:
    return lambda databases, values: (*_found(values, "Issues"), *(deed(values) for deed in deeds))


def _on_merge(*deeds: Callable[[Values], Deed]) -> _Path:
    return lambda databases, values: (*_found(values, "Merge requests"), *(deed(values) for deed in deeds))


_EDIT = Click("link", "Edit")
_SAVE = Click("button", "Save changes")
_FILTER = Click("button", "Filter")


def _fill(values: Values, fields: dict[str, str]) -> list[Deed]:
    return [Fill("textbox", name, str(values[key])) for key, name in fields.items()]


def _open_issue(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = _fill(values, {"title": "Title", "text": "Description"})
    label = Click("checkbox", str(values["label"]))
    go = Click("link", "Issues"), Click("link", "New issue")
    return *_inside(values), *go, *fill, label, Click("button", "Create issue")


def _new_milestone(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = _fill(values, {"title": "Title", "start": "Start day", "due": "Due day"})
    go = Click("link", "Milestones"), Click("link", "New milestone")
    return *_inside(values), *go, *fill, Click("button", "Create milestone")


def _move_milestone(databases: Databases, values: Values) -> Sequence[Deed]:
    go = Click("link", "Milestones"), Click("link", str(values["milestone"])), Click("link", "Edit milestone")
    return *_inside(values), *go, Fill("textbox", "Due day", str(values["due"])), Click("button", "Save milestone")


def _invite(databases: Databases, values: Values) -> Sequence[Deed]:
    choose = (
        Choose("combobox", "Person", str(values["name"])),
        Choose("combobox", "Role", str(values["role"]), after="Invite"),
    )
    return *_inside(values), Click("link", "Members"), *choose, Click("button", "Invite")


def _change_role(databases: Databases, values: Values) -> Sequence[Deed]:
    name = str(values["name"])
    choose = Choose("combobox", "Role", str(values["role"]), after=name)
    return *_inside(values), Click("link", "Members"), choose, Click("button", "Change role", after=name)


def _new_project(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = _fill(values, {"name": "Project name", "description": "Description"})
    where = Choose("combobox", "Where", str(values["space"]))
    who = Choose("combobox", "Visibility", str(values["visibility"]).capitalize())
    return Click("link", "New project"), *fill, where, who, Click("button", "Create project")


def _new_group(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = _fill(values, {"name": "Group name", "path": "Group address"})
    return Click("link", "Groups"), Click("link", "New group"), *fill, Click("button", "Create group")


def _status(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = Fill("textbox", "Status", str(values["status"]))
    return Click("link", USER), Click("link", "Edit profile"), fill, Click("button", "Save profile")


def _mark_done(databases: Databases, values: Values) -> Sequence[Deed]:
    waiting = one(_db(databases), "SELECT count(*) FROM todo WHERE username = ? AND NOT done", USER)
    return Click("link", f"To do ({waiting})"), Click("button", "Mark as done", after=str(values["title"]))


def _with_visibility(databases: Databases, values: Values) -> Sequence[Deed]:
    choose = Choose("combobox", "Visibility", str(values["visibility"]).capitalize())
    return *_inside(values), Click("link", "Settings"), choose, _SAVE


def _new_label(databases: Databases, values: Values) -> Sequence[Deed]:
    fill = _fill(values, {"label": "Label name", "text": "Description"})
    return *_inside(values), Click("link", "Labels"), *fill, Click("button", "Create label")


def _template(
    key: str,
    intent: str,
    *variants: Values,
    path: _Path,
    answer: Callable[[Databases, Values], Truth] | Truth | None = None,
    url: Callable[[Databases, Values], str] | str | None = None,
    free: frozenset[str] = frozenset(),
    made: Callable[[Databases, Values], Wanted] | None = None,
) -> Template:
    state = None if made is None else _made(made)
    return Template(
        id=key,
        site="tracker",
        intent=intent,
        variants=variants,
        start=_HOME,
        path=path,
        answer=answer,
        url=url,
        free=free,
        state=state,
    )


TASKS: tuple[Template, ...] = (
    _template(
        "commits-by",
        "How many commits has {name} made to the project {project}? Answer with the number.",
        {"name": "Theo Lund", "project": "lantern-works/ferry-board"},
        {"name": "Rosa Tarn", "project": "fieldnotes/rain-gauge"},
        path=_in(Click("link", "Contributors")),
        answer=_num_commits,
    ),
    _template(
        "assign",
        "Assign the issue '{title}' to {name}.",
        {"title": "Specimen form forgets its setting after a restart", "name": "Mara Quill"},
        {"title": "Undo for the offline cache", "name": "Priya Voss"},
        {"title": "Route map does not take names with an accent", "name": "Ida Moss"},
        path=_on_issue(
            lambda values: _EDIT,
            lambda values: Choose("combobox", "Assignee", str(values["name"])),
            lambda values: _SAVE,
        ),
        made=_assigned,
    ),
    _template(
        "labelled",
        "How many open issues of the project {project} have the label '{label}'? Answer with the number.",
        {"project": "lantern-works/tide-table", "label": "design"},
        {"project": "fieldnotes/herbarium", "label": "urgent"},
        path=_in(Click("link", "Labels")),
        answer=_num_labelled,
    ),
    _template(
        "filter-label",
        "Show me the open issues of the project {project} that have the label '{label}'.",
        {"project": "fieldnotes/rain-gauge", "label": "help wanted"},
        {"project": "lantern-works/ferry-board", "label": "documentation"},
        path=lambda databases, values: (
            *_inside(values),
            Click("link", "Issues"),
            Choose("combobox", "Label", str(values["label"])),
            _FILTER,
        ),
        url=lambda databases, values: (
            f"{_HOME}{values['project']}/issues?state=open&label=" + str(values["label"]).replace(" ", "+")
        ),
        free=frozenset(("sort",)),
    ),
    _template(
        "open-issue",
        "Open an issue in the project {project}: title '{title}', description '{text}', label '{label}'.",
        {
            "project": "fieldnotes/herbarium",
            "title": "Ferns are listed as mosses",
            "text": "Three of them at least.",
            "label": "bug",
        },
        {
            "project": "lantern-works/tide-table",
            "title": "Add the harbour of Saltness",
            "text": "It has a pier since autumn.",
            "label": "feature",
        },
        path=_open_issue,
        made=_opened,
    ),
    _template(
        "star",
        "Star the project {project}.",
        {"project": "oskar.pell/night-bus"},
        {"project": "jun.arrowby/chess-clock"},
        path=_in(Click("button", "Star")),
        made=lambda databases, values: {
            "tracker.star": (Added({"project": _project(databases, values)["id"], "username": USER}),)
        },
    ),
    _template(
        "busiest",
        "Who has made the most commits to the project {project}? Answer with the full name.",
        {"project": "jun.arrowby/chess-clock"},
        {"project": "print-room/letterpress"},
        path=_in(Click("link", "Contributors")),
        answer=_busiest,
    ),
    _template(
        "close-issue",
        "Close the issue '{title}'.",
        {"title": "Larger letters for the clock face"},
        {"title": "Say what the name search does not do"},
        path=_on_issue(lambda values: Click("button", "Close issue")),
        made=lambda databases, values: {
            "tracker.item": (Edited({"id": _issue(databases, values)}, {"state": "closed"}),)
        },
    ),
    _template(
        "milestone",
        "Create a milestone '{title}' in the project {project}, from {start} to {due}.",
        {"project": "ida.moss/recipe-scaler", "title": "Summer picnic", "start": "2026-05-01", "due": "2026-06-20"},
        {"project": "fieldnotes/rain-gauge", "title": "Wet season", "start": "2026-09-01", "due": "2026-11-30"},
        path=_new_milestone,
        made=lambda databases, values: {
            "tracker.milestone": (
                Added(
                    {
                        "project": _project(databases, values)["id"],
                        "state": "open",
                        **{name: values[name] for name in ("title", "start", "due")},
                    }
                ),
            )
        },
    ),
    _template(
        "approve",
        "Approve the merge request '{title}', but do not merge it.",
        {"title": "Docs: Say what the lamp timer does not do"},
        {"title": "Fix: Import of old books is wrong on the last day of a month"},
        path=_on_merge(lambda values: Click("button", "Approve")),
        made=lambda databases, values: {
            "tracker.approval": (Added({"item": _merge(databases, values), "username": USER}),)
        },
    ),
    _template(
        "merge",
        "Merge the merge request '{title}'.",
        {"title": "Fix: Station list counts the first entry twice"},
        {"title": "Undo for the weather strip"},
        path=_on_merge(lambda values: Click("button", "Merge")),
        made=_merged,
    ),
    _template(
        "invite",
        "Invite {name} to the project {project} as a {role}.",
        {"name": "Noor Ashby", "project": "fieldnotes/herbarium", "role": "Developer"},
        {"name": "Jonas Tull", "project": "ida.moss/recipe-scaler", "role": "Reporter"},
        path=_invite,
        made=lambda databases, values: {
            "tracker.project_member": (Added({**_membership(databases, values), "role": str(values["role"]).lower()}),)
        },
    ),
    _template(
        "port",
        "On which port does {project} answer, by the words of its docs/setup.md? Answer with the number.",
        {"project": "lantern-works/signal-lamp"},
        {"project": "oskar.pell/night-bus"},
        path=_in(Click("link", "docs/setup.md")),
        answer=_port,
    ),
    _template(
        "role",
        "Make {name} a {role} of the project {project}.",
        {"name": "Jonas Tull", "role": "Reporter", "project": "fieldnotes/herbarium"},
        {"name": "Bea Thornley", "role": "Developer", "project": "lantern-works/tide-table"},
        path=_change_role,
        made=lambda databases, values: {
            "tracker.project_member": (Edited(_membership(databases, values), {"role": str(values["role"]).lower()}),)
        },
    ),
    _template(
        "comment",
        "Comment on the issue '{title}' with '{text}'.",
        {"title": "Tests of the ticker line fail now and then", "text": "Seen again this morning."},
        {"title": "Unit switch forgets its setting after a restart", "text": "Only where the folder is read-only."},
        path=_on_issue(
            lambda values: Fill("textbox", "Comment", str(values["text"])),
            lambda values: Click("button", "Add comment"),
        ),
        made=_commented,
    ),
    _template(
        "new-project",
        "Create a {visibility} project '{name}' in {space} with the description '{description}'.",
        {
            "visibility": "public",
            "name": "Bread Timer",
            "space": "ida.moss",
            "description": "Rings when the loaf is done.",
        },
        {
            "visibility": "internal",
            "name": "Paper Stock",
            "space": "print-room",
            "description": "How many sheets are left.",
        },
        path=_new_project,
        made=_project_made,
    ),
    _template(
        "unassigned",
        "Which open issues of the project {project} are assigned to nobody? Answer with their titles, separated by "
        "semicolons.",
        {"project": "fieldnotes/herbarium"},
        {"project": "lantern-works/tide-table"},
        path=lambda databases, values: (
            *_inside(values),
            Click("link", "Issues"),
            Choose("combobox", "Assignee", "nobody"),
            _FILTER,
        ),
        answer=_unassigned,
    ),
    _template(
        "oldest-issue",
        "Open the page of the oldest issue of the project {project} that is still open.",
        {"project": "fieldnotes/herbarium"},
        {"project": "oskar.pell/night-bus"},
        path=lambda databases, values: (
            *_inside(values),
            Click("link", "Issues"),
            Choose("combobox", "Sort by", "oldest"),
            _FILTER,
            Click("link", _oldest_open(databases, values)["title"]),
        ),
        url=lambda databases, values: f"{_HOME}{values['project']}/issues/{_oldest_open(databases, values)['number']}",
    ),
    _template(
        "status",
        "Set my status on the tracker to '{status}'.",
        {"status": "Reading proofs"},
        {"status": "At the coast until Friday"},
        path=_status,
        made=lambda databases, values: {"tracker.person": (Edited({"username": USER}, {"status": values["status"]}),)},
    ),
    _template(
        "not-allowed",
        "{what} If that is not possible for me, leave everything as it is and answer N/A.",
        {
            "what": "Change the description of the project oskar.pell/night-bus to 'Buses'.",
            "project": "oskar.pell/night-bus",
        },
        {"what": "Invite Rosa Tarn to the project lantern-works/ferry-board.", "project": "lantern-works/ferry-board"},
        path=_in(Click("link", "Members")),
        answer=NOT_POSSIBLE,
        made=_nothing,
    ),
    _template(
        "todo",
        "Mark the entry about '{title}' in my list of things to do as done.",
        {"title": "Undo for the season summary"},
        {"title": "Export the unit guesser as plain text"},
        path=_mark_done,
        made=_todo_done,
    ),
    _template(
        "changes",
        "Show me which lines the merge request '{title}' changes.",
        {"title": "Split the last bus warning into two modules"},
        {"title": "Docs: The example for the delay banner is out of date"},
        path=_on_merge(lambda values: Click("link", "Changes")),
        url=_changes_url,
    ),
    _template(
        "fork",
        "Fork the project {project} into my own space, {space}.",
        {"project": "jun.arrowby/chess-clock", "space": USER},
        {"project": "lantern-works/signal-lamp", "space": USER},
        path=lambda databases, values: (
            *_inside(values),
            Click("link", "Fork"),
            Choose("combobox", "Into", USER),
            Click("button", "Fork project"),
        ),
        made=_forked,
    ),
    _template(
        "reviewer",
        "Make {name} the reviewer of the merge request '{title}'.",
        {"name": "Kit Marlowe-Bay", "title": "Fix: Route map does not take names with an accent"},
        {"name": "Jonas Tull", "title": "Remove the old code of the name search"},
        path=_on_merge(
            lambda values: _EDIT,
            lambda values: Choose("combobox", "Reviewer", str(values["name"])),
            lambda values: _SAVE,
        ),
        made=lambda databases, values: {
            "tracker.item": (Edited({"id": _merge(databases, values)}, {"reviewer": _username(databases, values)}),)
        },
    ),
    _template(
        "label-issue",
        "Give the issue '{title}' the label '{label}' too; keep the others.",
        {"title": "Export the printed table as plain text", "label": "help wanted"},
        {"title": "Larger letters for the photo upload", "label": "design"},
        path=_on_issue(
            lambda values: _EDIT, lambda values: Click("checkbox", str(values["label"])), lambda values: _SAVE
        ),
        made=_labelled,
    ),
    _template(
        "visibility",
        "Make the project {project} {visibility}.",
        {"project": "ida.moss/recipe-scaler", "visibility": "internal"},
        {"project": "fieldnotes/moth-trap", "visibility": "public"},
        path=_with_visibility,
        made=lambda databases, values: {
            "tracker.project": (
                Edited({"id": _project(databases, values)["id"]}, {"visibility": values["visibility"]}),
            )
        },
    ),
    _template(
        "move-milestone",
        "The milestone '{milestone}' of the project {project} takes longer: move its due day to {due}.",
        {"milestone": "Version 0.3", "project": "fieldnotes/herbarium", "due": "2026-06-15"},
        {"milestone": "Version 0.6", "project": "lantern-works/ferry-board", "due": "2026-04-01"},
        path=_move_milestone,
        made=lambda databases, values: {
            "tracker.milestone": (Edited({"id": _milestone(databases, values)["id"]}, {"due": values["due"]}),)
        },
    ),
    _template(
        "new-group",
        "Create a group named '{name}' with the address {path}.",
        {"name": "Kite Makers", "path": "kite-makers"},
        {"name": "Old Maps", "path": "old-maps"},
        path=_new_group,
        made=_group_made,
    ),
    _template(
        "new-label",
        "Create the label '{label}' with the description '{text}' in the project {project}.",
        {"label": "question", "text": "Somebody wants to know something", "project": "ida.moss/recipe-scaler"},
        {"label": "blocked", "text": "Waits for something else", "project": "lantern-works/tide-table"},
        path=_new_label,
        made=lambda databases, values: {
            "tracker.label": (
                Added(
                    {
                        "project": _project(databases, values)["id"],
                        "name": values["label"],
                        "description": values["text"],
                    }
                ),
            )
        },
    ),
    _template(
        "leave-member",
        "{name} has left: remove this member from the project {project}.",
        {"name": "Caro Finch", "project": "ida.moss/recipe-scaler"},
        {"name": "Hugo Wray", "project": "fieldnotes/moth-trap"},
        path=lambda databases, values: (
            *_inside(values),
            Click("link", "Members"),
            Click("button", "Remove", after=str(values["name"])),
        ),
        made=lambda databases, values: {"tracker.project_member": (Gone(_membership(databases, values)),)},
    ),
)
