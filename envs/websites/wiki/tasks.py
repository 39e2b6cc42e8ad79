"""What there is to be done in the wiki."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..checks import NOT_POSSIBLE, Databases, Outcome, Row
from ..outcomes import Added, Edited, Gone, just
from ..tasks import Click, Deed, Fill, Template, Values
from .markup import categories, fact
from .seed import USER

__all__ = ["TASKS"]

_HOME = "http://wiki.test/"


# --- what is true ---


def _text(databases: Databases, title: object) -> str:
    return str(databases["wiki"].execute("SELECT text FROM current WHERE title = ?", (title,)).fetchone()[0])


def _page_id(databases: Databases, title: object) -> int:
    return int(databases["wiki"].execute("SELECT id FROM pages WHERE title = ?", (title,)).fetchone()[0])


def _fact(databases: Databases, values: Values) -> str | int:
    found = fact(_text(databases, values["title"]), str(values["fact"]))
    return int(found.replace(",", "")) if found.replace(",", "").isdecimal() else found


def _members(databases: Databases, category: object) -> dict[str, str]:
    """Texts by title."""
    found = databases["wiki"].execute("SELECT title, text FROM current ORDER BY title")
    return {title: text for title, text in found if category in categories(text)}


def _figure(text: str, name: object) -> int:
    return int(fact(text, str(name)).split()[0].replace(",", ""))


def _most(databases: Databases, values: Values) -> str:
    pages = _members(databases, values["category"])
    return max(pages, key=lambda title: _figure(pages[title], values["fact"]))


def _above(databases: Databases, values: Values) -> frozenset[str]:
    pages = _members(databases, values["category"])
    return frozenset(title for title, text in pages.items() if _figure(text, values["fact"]) > int(values["limit"]))


def _founded(databases: Databases, values: Values) -> int:
    town = fact(_text(databases, values["person"]), "Born").partition(" in ")[2]
    return int(fact(_text(databases, town), "Founded"))


def _revisions(databases: Databases, title: object) -> list[tuple[int, str, str]]:
    """Numbers, authors and texts, the latest first."""
    found = databases["wiki"].execute(
        "SELECT id, author, text FROM revisions WHERE page = ? ORDER BY id DESC", (_page_id(databases, title),)
    )
    return [tuple(row) for row in found]


def _num_comments(databases: Databases, title: object) -> int:
    page = _page_id(databases, title)
    return int(databases["wiki"].execute("SELECT count(*) FROM comments WHERE page = ?", (page,)).fetchone()[0])


def _rewritten(databases: Databases, values: Values) -> str:
    """A page with another figure."""
    text, name = _text(databases, values["title"]), str(values["fact"])
    return text.replace(f"@ {name}: {fact(text, name)}\n", f"@ {name}: {values['right']}\n")


# --- what was changed ---


def _reads(text: Callable[[Databases, Values], str]) -> Callable[[Outcome, Values], bool]:
    """Whether all that is different is that the page has this text now, blanks apart."""

    def holds(outcome: Outcome, values: Values) -> bool:
        now = Added({"page": _page_id(outcome.before, values["title"])})
        if not just(outcome, {"wiki.revisions": (now,)}):
            return False
        written = outcome.changes["wiki.revisions"].new[0]["text"]
        return str(written).split() == text(outcome.before, values).split()

    return holds


def _extended(databases: Databases, values: Values) -> str:
    return f"{_text(databases, values['title'])}\n\n== {values['heading']} ==\n{values['text']}"


def _commented(outcome: Outcome, values: Values) -> bool:
    page = _page_id(outcome.before, values["title"])
    return just(outcome, {"wiki.comments": (Added({"page": page, "text": values["text"]}),)})


def _watched(outcome: Outcome, values: Values) -> bool:
    return just(outcome, {"wiki.watches": (Added(_watch(outcome, values)),)})


def _unwatched(outcome: Outcome, values: Values) -> bool:
    return just(outcome, {"wiki.watches": (Gone(_watch(outcome, values)),)})


def _watch(outcome: Outcome, values: Values) -> Row:
    return {"user": USER, "page": _page_id(outcome.before, values["title"])}


def _written(outcome: Outcome, values: Values) -> bool:
    page, text = Added({"title": values["title"]}), Added({"text": values["text"]})
    return just(outcome, {"wiki.pages": (page,), "wiki.revisions": (text,)})


def _renamed(outcome: Outcome, values: Values) -> bool:
    page = Edited({"title": values["title"]}, {"title": values["new"]})
    return just(outcome, {"wiki.pages": (page,), "wiki.old_titles": (Added({"title": values["title"]}),)})


# --- how it is done ---

_Path = Callable[[Databases, Values], Sequence[Deed]]


def _at(title: object, *deeds: Deed) -> list[Deed]:
    """On a page, found by its title."""
    return [Fill("searchbox", "Search the wiki", str(title), enter=True), Click("link", str(title)), *deeds]


def _clicking(*names: str) -> _Path:
    """On the page that it is about, some links."""
    return lambda databases, values: _at(values["title"], *(Click("link", name) for name in names))


def _pressing(name: str) -> _Path:
    return lambda databases, values: _at(values["title"], Click("button", name))


def _listed(databases: Databases, values: Values) -> list[Deed]:
    return _at(f"List of {str(values['category']).lower()}")


def _in_categories(databases: Databases, values: Values) -> list[Deed]:
    return [Click("link", "Categories"), Click("link", str(values["category"]))]


def _to_birthplace(databases: Databases, values: Values) -> list[Deed]:
    town = fact(_text(databases, values["person"]), "Born").partition(" in ")[2]
    return _at(values["person"], Click("link", town))


def _commenting(databases: Databases, values: Values) -> list[Deed]:
    return _at(
        values["title"],
        Click("link", f"Talk ({_num_comments(databases, values['title'])})"),
        Fill("textbox", "Your comment", str(values["text"])),
        Click("button", "Add comment"),
    )


def _writing(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", "New page"),
        Fill("textbox", "Title", str(values["title"])),
        Click("button", "Begin"),
        Fill("textbox", "Text", str(values["text"])),
        Click("button", "Save page"),
    ]


def _extending(databases: Databases, values: Values) -> list[Deed]:
    return _at(
        values["title"],
        Click("link", "Add section"),
        Fill("textbox", "Heading", str(values["heading"])),
        Fill("textbox", "Text", str(values["text"])),
        Click("button", "Save section"),
    )


def _correcting(databases: Databases, values: Values) -> list[Deed]:
    beginning = _rewritten(databases, values).partition("\n==")[0].strip()
    return _at(
        values["title"],
        Click("link", "Edit beginning"),
        Fill("textbox", "Text", beginning),
        Fill("textbox", "Summary", f"Corrected: {values['fact']}"),
        Click("button", "Save page"),
    )


def _renaming(databases: Databases, values: Values) -> list[Deed]:
    return _at(
        values["title"],
        Click("link", "Rename"),
        Fill("textbox", "New title", str(values["new"])),
        Click("button", "Rename page"),
    )


def _restoring(databases: Databases, values: Values) -> list[Deed]:
    number = _revisions(databases, values["title"])[1][0]
    return _at(
        values["title"],
        Click("link", "History"),
        Click("link", str(number)),
        Click("button", "Restore this revision"),
    )


TASKS: tuple[Template, ...] = (
    Template(
        id="fact",
        site="wiki",
        intent="{question} Answer as the wiki has it.",
        variants=(
            {"question": "How many people live in Oxmere?", "title": "Oxmere", "fact": "Population"},
            {"question": "In which year was Harrow Light built?", "title": "Harrow Light", "fact": "Built"},
            {"question": "Who runs the ferry called Hask Packet?", "title": "Hask Packet", "fact": "Operator"},
            {"question": "On which day of the week is the market in Fenlow?", "title": "Fenlow", "fact": "Market day"},
        ),
        start=_HOME,
        answer=_fact,
        path=_clicking(),
    ),
    Template(
        id="most",
        site="wiki",
        intent="Which {what}?",
        variants=(
            {"what": "lighthouse of the Tolven Isles is the tallest", "category": "Lighthouses", "fact": "Height"},
            {"what": "hill of the Tolven Isles is the highest", "category": "Hills", "fact": "Height"},
            {"what": "ferry takes the longest for a crossing", "category": "Ferries", "fact": "Crossing"},
        ),
        start=_HOME,
        answer=_most,
        path=_listed,
    ),
    Template(
        id="above",
        site="wiki",
        intent="Which {what}? List their names.",
        variants=(
            {"what": "hills are higher than 400 metres", "category": "Hills", "fact": "Height", "limit": 400},
            {"what": "museums were opened after 1970", "category": "Museums", "fact": "Opened", "limit": 1970},
            {"what": "towns have more than 4000 people", "category": "Towns", "fact": "Population", "limit": 4000},
        ),
        start=_HOME,
        answer=_above,
        path=_listed,
    ),
    Template(
        id="category-size",
        site="wiki",
        intent="How many pages are there in the category {category}?",
        variants=({"category": "People"}, {"category": "Sarn places"}),
        start=_HOME,
        answer=lambda databases, values: len(_members(databases, values["category"])),
        path=_in_categories,
    ),
    Template(
        id="revisions",
        site="wiki",
        intent="How many revisions does the page on {title} have?",
        variants=({"title": "Cold Point Light"}, {"title": "Kester Lowe"}, {"title": "Brandle Sands"}),
        start=_HOME,
        answer=lambda databases, values: len(_revisions(databases, values["title"])),
        path=_clicking("History"),
    ),
    Template(
        id="first-author",
        site="wiki",
        intent="Who wrote the very first revision of the page on {title}?",
        variants=({"title": "Dunsea"}, {"title": "Museum of Lights"}),
        start=_HOME,
        answer=lambda databases, values: _revisions(databases, values["title"])[-1][1],
        path=_clicking("History"),
    ),
    Template(
        id="birthplace",
        site="wiki",
        intent="In which year was the town founded in which {person} was born?",
        variants=({"person": "Lettice Marr"}, {"person": "Ivo Pascoe"}, {"person": "Dorrit Vane"}),
        start=_HOME,
        answer=_founded,
        path=_to_birthplace,
    ),
    Template(
        id="open-history",
        site="wiki",
        intent="Show me the history of the page on {title}.",
        variants=({"title": "Skerrow"}, {"title": "Corran Top"}),
        start=_HOME,
        url=lambda databases, values: f"http://wiki.test/history/{str(values['title']).replace(' ', '_')}",
        path=_clicking("History"),
    ),
    Template(
        id="open-user",
        site="wiki",
        intent="Show me what {user} has contributed to the wiki.",
        variants=({"user": "lanternjack"}, {"user": "tidewatch"}),
        start="http://wiki.test/wiki/House_rules",
        url="http://wiki.test/user/{user}",
        path=lambda databases, values: [Click("link", "Recent changes"), Click("link", str(values["user"]))],
    ),
    Template(
        id="open-category",
        site="wiki",
        intent="Open the list of all pages that are in the category {category}.",
        variants=({"category": "Festivals"}, {"category": "Hask places"}),
        start=_HOME,
        url=lambda databases, values: f"http://wiki.test/category/{str(values['category']).replace(' ', '_')}",
        path=_in_categories,
    ),
    Template(
        id="watch",
        site="wiki",
        intent="Put the page on {title} on my watchlist.",
        variants=({"title": "Kite Sunday"}, {"title": "Haskport"}),
        start=_HOME,
        state=_watched,
        path=_pressing("Watch"),
    ),
    Template(
        id="unwatch",
        site="wiki",
        intent="I no longer want to watch the page on {title}. Take it off my watchlist.",
        variants=({"title": "Oxmere"}, {"title": "Herring Fair"}),
        start="http://wiki.test/watchlist",
        state=_unwatched,
        path=lambda databases, values: [Click("link", str(values["title"])), Click("button", "Stop watching")],
    ),
    Template(
        id="comment",
        site="wiki",
        intent='Add a comment to the talk page of {title} that says "{text}"',
        variants=(
            {"title": "Barley Night", "text": "Was it called off in 2020 as well?"},
            {"title": "Sarn Water", "text": "I counted three otters last week."},
        ),
        start=_HOME,
        state=_commented,
        path=_commenting,
    ),
    Template(
        id="new-page",
        site="wiki",
        intent='Write a new page with the title "{title}" and the text "{text}"',
        variants=(
            {"title": "Quill Brothers", "text": "Quill Brothers run two ferries."},
            {"title": "Seal Day", "text": "Seal Day is held in Ellerby each April."},
        ),
        start=_HOME,
        state=_written,
        path=_writing,
    ),
    Template(
        id="section",
        site="wiki",
        intent='Add a section with the heading "{heading}" to the page on {title}. Its text is "{text}"',
        variants=(
            {"title": "Lark Down", "heading": "Weather", "text": "Fog is common until noon."},
            {"title": "Regatta of the Isles", "heading": "Prizes", "text": "The winning crew keeps a silver oar."},
        ),
        start=_HOME,
        state=_reads(_extended),
        path=_extending,
    ),
    Template(
        id="correct",
        site="wiki",
        intent="The wiki has the wrong {what} for {title} in its box of facts. Change it to {right}, and nothing else.",
        variants=(
            {"what": "post code", "title": "Wick Hollow", "fact": "Post code", "right": "TI 08"},
            {"what": "number of sailings", "title": "Merrow Line", "fact": "Sailings", "right": "12 a day"},
        ),
        start=_HOME,
        state=_reads(_rewritten),
        path=_correcting,
    ),
    Template(
        id="rename",
        site="wiki",
        intent='Rename the page "{title}" to "{new}".',
        variants=(
            {"title": "Sands Ferry", "new": "Brandle Sands Ferry"},
            {"title": "Old Pellworth Light", "new": "Pellworth Light"},
        ),
        start=_HOME,
        state=_renamed,
        path=_renaming,
    ),
    Template(
        id="restore",
        site="wiki",
        intent="The last change to the page on {title} was a mistake. Restore the revision before it.",
        variants=({"title": "Fenella Garrick"}, {"title": "Aldwater"}),
        start=_HOME,
        state=_reads(lambda databases, values: _revisions(databases, values["title"])[1][2]),
        path=_restoring,
    ),
    Template(
        id="not-told",
        site="wiki",
        intent="{question} Answer N/A if the wiki does not say.",
        variants=(
            {"question": "What is the telephone number of the Hask Mining Museum?", "title": "Hask Mining Museum"},
            {"question": "In which year did the town of Cawdle Bridge get a railway?", "title": "Cawdle Bridge"},
        ),
        start=_HOME,
        answer=NOT_POSSIBLE,
        path=_clicking(),
    ),
    Template(
        id="protected",
        site="wiki",
        intent='Add a section "{heading}" to the page "{title}". Answer N/A if you are not allowed to.',
        variants=({"title": "House rules", "heading": "Pictures"},),
        start=_HOME,
        answer=NOT_POSSIBLE,
        path=_clicking("Add section"),
    ),
    Template(
        id="comments",
        site="wiki",
        intent="How many comments are there on the talk page of {title}?",
        variants=({"title": "List of towns"}, {"title": "Gannet Rock Light"}),
        start=_HOME,
        answer=lambda databases, values: _num_comments(databases, values["title"]),
        path=_clicking(),
    ),
)
