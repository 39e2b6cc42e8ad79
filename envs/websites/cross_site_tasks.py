"""What there is to be done with more than one site: something is looked up on one and put to use on another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .checks import Databases, Outcome
from .forum.seed import USER as FORUM_USER
from .framework.records import one
from .outcomes import Added, Wanted, just
from .tasks import SEVERAL, Click, Deed, Fill, Go, Template, Values
from .tracker.seed import USER as TRACKER_USER
from .wiki.markup import fact
from .wiki.seed import USER as WIKI_USER

__all__ = ["TASKS"]

_SHOP, _FORUM, _WIKI, _TRACKER = (f"http://{name}.test/" for name in ("shop", "forum", "wiki", "tracker"))


# --- what is true ---


def _price(databases: Databases, values: Values) -> str:
    cents = one(databases["shop"], "SELECT price FROM product WHERE name = ?", values["product"])
    return f"{cents / 100:.2f}"


def _told(databases: Databases, values: Values) -> str:
    """A fact of the wiki."""
    text = one(databases["wiki"], "SELECT text FROM current WHERE title = ?", values["title"])
    return fact(text, str(values["fact"]))


def _busiest(databases: Databases, values: Values) -> str:
    """Who has made the most commits to a project."""
    sql = (
        "SELECT person.name FROM revision JOIN person ON username = author JOIN project ON project.id = project"
        " WHERE space || '/' || project.path = ? GROUP BY 1 ORDER BY count(*) DESC"
    )
    return str(one(databases["tracker"], sql, values["project"]))


def _founder(databases: Databases, values: Values) -> str:
    return str(one(databases["forum"], "SELECT founder FROM board WHERE name = ?", values["board"]))


def _open_issues(databases: Databases, values: Values) -> str:
    sql = (
        "SELECT count(*) FROM item JOIN project ON project.id = project WHERE space || '/' || path = ?"
        " AND kind = 'issue' AND state = 'open'"
    )
    return str(one(databases["tracker"], sql, values["project"]))


# --- what was changed ---


def _made(wanted: Callable[[Databases, Values], Wanted]) -> Callable[[Outcome, Values], bool]:
    return lambda outcome, values: just(outcome, wanted(outcome.before, values))


def _commented(databases: Databases, values: Values) -> Wanted:
    page = one(databases["wiki"], "SELECT id FROM pages WHERE title = ?", values["title"])
    return {"wiki.comments": (Added({"page": page, "text": _price(databases, values)}),)}


def _sent(body: Callable[[Databases, Values], str]) -> Callable[[Databases, Values], Wanted]:
    return lambda databases, values: {
        "forum.message": (
            Added({"sender": FORUM_USER, "recipient": values["member"], "body": body(databases, values)}),
        )
    }


def _opened(databases: Databases, values: Values) -> Wanted:
    project = one(databases["tracker"], "SELECT id FROM project WHERE space || '/' || path = ?", values["project"])
    issue = {"project": project, "kind": "issue", "author": TRACKER_USER, "state": "open", "assignee": None}
    written = {"title": values["headline"], "description": _told(databases, values)}
    return {"tracker.item": (Added({**issue, **written}),)}


def _written(text: Callable[[Databases, Values], str]) -> Callable[[Databases, Values], Wanted]:
    return lambda databases, values: {
        "wiki.pages": (Added({"title": values["title"]}),),
        "wiki.revisions": (Added({"author": WIKI_USER, "text": text(databases, values)}),),
    }


# --- how it is done ---


def _comment(databases: Databases, values: Values) -> Sequence[Deed]:
    page = one(databases["wiki"], "SELECT id FROM pages WHERE title = ?", values["title"])
    talk = one(databases["wiki"], "SELECT count(*) FROM comments WHERE page = ?", page)
    return (
        Fill("searchbox", "Search the shop", str(values["product"]), enter=True),
        Go(_WIKI),
        *_on_wiki(values["title"]),
        Click("link", f"Talk ({talk})"),
        Fill("textbox", "Your comment", _price(databases, values)),
        Click("button", "Add comment"),
    )


def _on_wiki(title: object) -> tuple[Deed, ...]:
    return Fill("searchbox", "Search the wiki", str(title), enter=True), Click("link", str(title))


def _in_project(values: Values, *names: str) -> tuple[Deed, ...]:
    return Click("link", "Explore"), Click("link", str(values["project"])), *(Click("link", name) for name in names)


def _send(member: object, body: str) -> tuple[Deed, ...]:
    return (
        Go(_FORUM),
        Fill("searchbox", "Search", str(member), enter=True),
        Click("link", "Members"),
        Click("link", str(member)),
        Click("link", "Send message"),
        Fill("textbox", "Message", body),
        Click("button", "Send"),
    )


def _write(title: object, text: str) -> tuple[Deed, ...]:
    return (
        Go(_WIKI),
        Click("link", "New page"),
        Fill("textbox", "Title", str(title)),
        Click("button", "Begin"),
        Fill("textbox", "Text", text),
        Click("button", "Save page"),
    )


def _open(databases: Databases, values: Values) -> Sequence[Deed]:
    return (
        *_on_wiki(values["title"]),
        Go(_TRACKER),
        *_in_project(values, "Issues", "New issue"),
        Fill("textbox", "Title", str(values["headline"])),
        Fill("textbox", "Description", _told(databases, values)),
        Click("button", "Create issue"),
    )


def _find_founder(databases: Databases, values: Values) -> Sequence[Deed]:
    look = Click("link", "Boards"), Click("link", str(values["board"]))
    return *look, *_write(values["title"], _founder(databases, values))


TASKS: tuple[Template, ...] = (
    Template(
        id="price-to-talk",
        site=SEVERAL,
        needs=("shopping", "wiki"),
        intent=(
            "How much does the {product} cost in the shop? Add a comment with just the price, written like 12.50, to"
            " the talk page of {title} in the wiki."
        ),
        variants=(
            {"product": "Copper Pour-Over Kettle", "title": "Hask Mining Museum"},
            {"product": "Waterproof Rain Jacket", "title": "Corran Top"},
        ),
        start=_SHOP,
        state=_made(_commented),
        path=_comment,
    ),
    Template(
        id="fact-to-member",
        site=SEVERAL,
        needs=("wiki", "forum"),
        intent="{question} Look it up in the wiki, and send just the year as a message to {member} on the forum.",
        variants=(
            {
                "question": "In which year was Sallow Head Light built?",
                "title": "Sallow Head Light",
                "fact": "Built",
                "member": "old_meridian",
            },
            {
                "question": "In which year was Dunsea founded?",
                "title": "Dunsea",
                "fact": "Founded",
                "member": "kettle_whistle",
            },
        ),
        start=_WIKI,
        state=_made(_sent(_told)),
        path=lambda databases, values: [
            *_on_wiki(values["title"]),
            *_send(values["member"], _told(databases, values)),
        ],
    ),
    Template(
        id="committer-page",
        site=SEVERAL,
        needs=("tracker", "wiki"),
        intent=(
            "Find out who has made the most commits to the project {project} on the tracker. Then write a new page in"
            ' the wiki with the title "{title}" whose text is just the full name of that person.'
        ),
        variants=(
            {"project": "jun.arrowby/chess-clock", "title": "Chess clock"},
            {"project": "lantern-works/tide-table", "title": "Tide table"},
        ),
        start=_TRACKER,
        state=_made(_written(_busiest)),
        path=lambda databases, values: [
            *_in_project(values, "Contributors"),
            *_write(values["title"], _busiest(databases, values)),
        ],
    ),
    Template(
        id="founder-page",
        site=SEVERAL,
        needs=("forum", "wiki"),
        intent=(
            "Which member founded the board {board} on the forum? Write a new page in the wiki with the title"
            ' "{title}" whose text is just the name of that member.'
        ),
        variants=(
            {"board": "Allotment", "title": "Friends of the allotment"},
            {"board": "PaperAndThread", "title": "Friends of bookbinding"},
        ),
        start=_FORUM,
        state=_made(_written(_founder)),
        path=_find_founder,
    ),
    Template(
        id="fact-to-issue",
        site=SEVERAL,
        needs=("wiki", "tracker"),
        intent=(
            'Open an issue in the project {project} on the tracker with the title "{headline}". Its description is just'
            " {what}, as the wiki has it in the box of facts."
        ),
        variants=(
            {
                "project": "lantern-works/ferry-board",
                "headline": "Show the length of the crossing",
                "what": "how long the crossing of the Northern Crossing takes",
                "title": "Northern Crossing",
                "fact": "Crossing",
            },
            {
                "project": "lantern-works/tide-table",
                "headline": "Where the Brenn ends",
                "what": "the mouth of the river Brenn",
                "title": "Brenn",
                "fact": "Mouth",
            },
        ),
        start=_WIKI,
        state=_made(_opened),
        path=_open,
    ),
    Template(
        id="issues-to-member",
        site=SEVERAL,
        needs=("tracker", "forum"),
        intent=(
            "How many open issues does the project {project} on the tracker have? Send just the number as a message to"
            " {member} on the forum."
        ),
        variants=(
            {"project": "fieldnotes/rain-gauge", "member": "gable_end"},
            {"project": "fieldnotes/herbarium", "member": "mossgatherer"},
        ),
        start=_TRACKER,
        state=_made(_sent(_open_issues)),
        path=lambda databases, values: [
            *_in_project(values, "Issues"),
            *_send(values["member"], _open_issues(databases, values)),
        ],
    ),
)
