"""The pages of the wiki: anyone may read, those logged in may write, only stewards may edit protected pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from sqlite3 import Connection, Row

from ..framework.site import (
    TODAY,
    Forbidden,
    Host,
    PageError,
    PageNotFound,
    PageRequest,
    Paging,
    Redirect,
    SiteAnswer,
    SitePage,
    WebSite,
    on_get,
    on_post,
    read_whole,
)
from .markup import (
    Section,
    build_address,
    is_in_category,
    list_categories,
    list_facts,
    read_fact,
    read_fact_value,
    read_figure,
    split_sections,
    strip_marks,
)
from .seed import USER, fill_wiki

__all__ = ["SITE"]

_STEWARDS = frozenset(("tidewatch", "ledgerkeeper"))
_NO_TITLE = re.compile(r"[\[\]|#<>{}_/\n]|^(User|Category):")
_LONGEST_TITLE = 80
_LONGEST_SUMMARY = 120
_LONGEST_COMMENT = 1000
_SIZE = 20

Named = Mapping[str, str]


# --- finding ---


def _title(named: Named) -> str:
    return named["title"].replace("_", " ").strip()


def _find_page(db: Connection, title: str) -> Row | None:
    """A page as it is now, found by its title or a former one."""
    found: Row | None = db.execute("SELECT * FROM current WHERE title = ?", (title,)).fetchone()
    if found is None:
        old = "SELECT current.* FROM current JOIN old_titles ON page = id WHERE old_titles.title = ?"
        found = db.execute(old, (title,)).fetchone()
    return found


def _page(db: Connection, named: Named) -> Row:
    found = _find_page(db, _title(named))
    if found is None:
        raise PageNotFound(f"There is no page called '{_title(named)}' yet.")
    return found


def _known(db: Connection) -> Callable[[str], bool]:
    titles = {title.casefold() for (title,) in db.execute("SELECT title FROM pages UNION SELECT title FROM old_titles")}
    return lambda title: title.casefold() in titles


def _require_writer(request: PageRequest, page: Row | None = None) -> str:
    """The user who is writing, if they may."""
    if request.user is None:
        raise Forbidden("Log in to do that.")
    if page is not None and page["protected"] and request.user not in _STEWARDS:
        raise Forbidden("This page is protected: only stewards can change it.")
    return request.user


def _section(page: Row, number: str) -> Section:
    parts, wanted = split_sections(page["text"]), read_whole(number, -1)
    if not 0 <= wanted < len(parts):
        raise PageNotFound("There is no such section.")
    return parts[wanted]


# --- reading ---


def _main(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    pages = db.execute("SELECT count(*) FROM pages").fetchone()[0]
    edits = db.execute("SELECT count(*) FROM revisions").fetchone()[0]
    recent = db.execute(f"{_EDITS} ORDER BY revisions.id DESC LIMIT 6").fetchall()
    values = {"num_pages": pages, "num_edits": edits, "recent": recent, "categories": _counted(db).most_common(8)}
    return SitePage(template="main.html", values=values)


def _article(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    title = _title(named)
    page = _find_page(db, title)
    if page is None:
        return SitePage(template="missing.html", values={"title": title[:_LONGEST_TITLE]}, status=404)
    known = _known(db)
    values = {
        **_frame(db, request, page),
        "parts": [(part, part.html(known)) for part in split_sections(page["text"])],
        "facts": list_facts(page["text"], known),
        "categories": list_categories(page["text"]),
        "moved": title if title.casefold() != page["title"].casefold() else "",
    }
    return SitePage(template="article.html", values=values)


def _frame(db: Connection, request: PageRequest, page: Row) -> dict[str, object]:
    """What surrounds a page, its history and its talk alike."""
    talk = db.execute("SELECT count(*) FROM comments WHERE page = ?", (page["id"],)).fetchone()[0]
    watched = db.execute("SELECT 1 FROM watches WHERE user = ? AND page = ?", (request.user, page["id"])).fetchone()
    return {"page": page, "num_comments": talk, "watched": watched is not None}


_EDITS = "SELECT revisions.id, title, author, day, summary FROM revisions JOIN pages ON pages.id = page"


def _history(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    total = db.execute("SELECT count(*) FROM revisions WHERE page = ?", (page["id"],)).fetchone()[0]
    paging = Paging.of(request, size=_SIZE, total=total)
    edits = db.execute(
        "SELECT id, author, day, summary, length(text) AS size FROM revisions WHERE page = ? ORDER BY id DESC"
        " LIMIT ? OFFSET ?",
        (page["id"], paging.size, paging.offset),
    ).fetchall()
    return SitePage(template="history.html", values={**_frame(db, request, page), "edits": edits, "paging": paging})


def _old(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    revision = _revision(db, named)
    page = _page(db, {"title": revision["title"]})
    known = _known(db)
    parts = [(part, part.html(known)) for part in split_sections(revision["text"])]
    values = {**_frame(db, request, page), "revision": revision, "parts": parts}
    return SitePage(template="old.html", values={**values, "facts": list_facts(revision["text"], known)})


def _revision(db: Connection, named: Named) -> Row:
    found: Row | None = db.execute(
        "SELECT revisions.*, title, (SELECT max(id) FROM revisions AS other WHERE other.page = pages.id) AS last"
        " FROM revisions JOIN pages ON pages.id = page WHERE revisions.id = ?",
        (read_whole(named["id"]),),
    ).fetchone()
    if found is None:
        raise PageNotFound("There is no such revision.")
    return found


def _talk(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    comments = db.execute("SELECT * FROM comments WHERE page = ? ORDER BY id", (page["id"],)).fetchall()
    return SitePage(template="talk.html", values={**_frame(db, request, page), "comments": comments})


def _search(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    words = request.query.get("q", "").strip()
    where = "instr(lower(title), lower(:q)) OR instr(lower(text), lower(:q))"
    total = db.execute(f"SELECT count(*) FROM current WHERE {where}", {"q": words}).fetchone()[0] if words else 0
    paging = Paging.of(request, size=10, total=total)
    found = db.execute(
        f"SELECT title, text FROM current WHERE {where}"
        " ORDER BY lower(title) != lower(:q), instr(lower(title), lower(:q)) = 0, title LIMIT :size OFFSET :offset",
        {"q": words, "size": paging.size if words else 0, "offset": paging.offset},
    )
    hits = [(row["title"], _cut_around(strip_marks(row["text"]), words)) for row in found]
    return SitePage(template="search.html", values={"words": words, "hits": hits, "paging": paging})


def _cut_around(text: str, words: str) -> str:
    """The text around what was searched for."""
    start = max(0, text.casefold().find(words.casefold()) - 40)
    return f"{'…' if start else ''}{text[start : start + 140].strip()}…"


def _counted(db: Connection) -> Counter[str]:
    return Counter(name for (text,) in db.execute("SELECT text FROM current") for name in list_categories(text))


def _categories(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    return SitePage(template="categories.html", values={"categories": sorted(_counted(db).items())})


def _category(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    name = _title(named)
    found = db.execute("SELECT title, text FROM current ORDER BY title")
    titles = [title for title, text in found if name in list_categories(text)]
    if not titles:
        raise PageNotFound("No page is in that category.")
    paging = Paging.of(request, size=_SIZE, total=len(titles))
    shown = titles[paging.offset : paging.offset + paging.size]
    return SitePage(template="category.html", values={"name": name, "titles": shown, "paging": paging})


def _recent(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    return SitePage(template="recent.html", values=_edits(db, request, "1", ()))


def _edits(db: Connection, request: PageRequest, where: str, given: tuple[object, ...]) -> dict[str, object]:
    counted = f"SELECT count(*) FROM revisions JOIN pages ON pages.id = page WHERE {where}"
    paging = Paging.of(request, size=_SIZE, total=db.execute(counted, given).fetchone()[0])
    found = db.execute(
        f"{_EDITS} WHERE {where} ORDER BY revisions.id DESC LIMIT ? OFFSET ?", (*given, paging.size, paging.offset)
    )
    return {"edits": found.fetchall(), "paging": paging}


def _user(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    user = db.execute("SELECT name, joined, about FROM users WHERE name = ?", (named["name"],)).fetchone()
    if user is None:
        raise PageNotFound("Nobody here is called that.")
    values = {"person": user, "steward": user["name"] in _STEWARDS}
    return SitePage(template="user.html", values={**values, **_edits(db, request, "author = ?", (user["name"],))})


def _watchlist(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    pages = db.execute(
        "SELECT title, day, author FROM current JOIN watches ON page = id WHERE user = ? ORDER BY title",
        (_require_writer(request),),
    ).fetchall()
    return SitePage(template="watchlist.html", values={"pages": pages})


# --- writing ---


def _edit(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    title, number = _title(named), request.query.get("section", "")
    page = _find_page(db, title)
    _require_writer(request, page)
    text = "" if page is None else _section(page, number).text if number else page["text"]
    values = {"title": _new_title(title) if page is None else page["title"], "text": text, "section": number}
    return SitePage(template="edit.html", values={**values, "there": page is not None})


def _save(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    title, number = _title(named), request.form.get("section", "")
    page = _find_page(db, title)
    writer, text = _require_writer(request, page), request.form.get("text", "").strip()
    if not text:
        raise PageError("A page cannot be empty.")
    if page is None:
        title = _new_title(title)
        where = db.execute("INSERT INTO pages(title) VALUES (?)", (title,)).lastrowid
        assert where is not None
        _revise(db, where, writer, request.form.get("summary", "") or "New page", text)
        return Redirect(to=build_address(title))
    if number:
        wanted = _section(page, number).number
        parts = [text if part.number == wanted else part.text for part in split_sections(page["text"])]
        text = "\n\n".join(parts)
    if text != page["text"]:
        _revise(db, page["id"], writer, request.form.get("summary", ""), text)
    return Redirect(to=build_address(page["title"]))


def _revise(db: Connection, page: int, writer: str, summary: str, text: str) -> None:
    db.execute(
        "INSERT INTO revisions(page, author, day, summary, text) VALUES (?, ?, ?, ?, ?)",
        (page, writer, TODAY.isoformat(), " ".join(summary.split())[:_LONGEST_SUMMARY], text),
    )


def _new_title(title: str) -> str:
    title = " ".join(title.split())
    if not title or len(title) > _LONGEST_TITLE or _NO_TITLE.search(title):
        raise PageError(f"A title is at most {_LONGEST_TITLE} characters long, without brackets, bars and other marks.")
    return title


def _new(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    _require_writer(request)
    return SitePage(template="new.html")


def _begin(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    _require_writer(request)
    return Redirect(to=build_address(_new_title(request.form.get("title", "")), "edit"))


def _add(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    _require_writer(request, page)
    return SitePage(template="add.html", values=_frame(db, request, page))


def _append(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    heading = " ".join(request.form.get("heading", "").split())[:_LONGEST_TITLE]
    words = request.form.get("text", "").strip()
    if not heading or not words:
        raise PageError("A section has a heading and a text.")
    _revise(
        db,
        page["id"],
        _require_writer(request, page),
        f"New section: {heading}",
        f"{page['text']}\n\n== {heading} ==\n{words}",
    )
    return Redirect(to=build_address(page["title"]))


def _restore(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    revision = _revision(db, named)
    page = _page(db, {"title": revision["title"]})
    writer = _require_writer(request, page)
    if revision["id"] == revision["last"]:
        raise PageError("That is how the page is now.")
    _revise(db, page["id"], writer, f"Back to how it was on {revision['day']}", revision["text"])
    return Redirect(to=build_address(page["title"]))


def _comment(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    text = request.form.get("text", "").strip()[:_LONGEST_COMMENT]
    if not text:
        raise PageError("A comment cannot be empty.")
    db.execute(
        "INSERT INTO comments(page, author, day, text) VALUES (?, ?, ?, ?)",
        (page["id"], _require_writer(request), TODAY.isoformat(), text),
    )
    return Redirect(to=build_address(page["title"], "talk"))


def _watch(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page, user = _page(db, named), _require_writer(request)
    if db.execute("DELETE FROM watches WHERE user = ? AND page = ?", (user, page["id"])).rowcount == 0:
        db.execute("INSERT INTO watches VALUES (?, ?)", (user, page["id"]))
    return Redirect(to=build_address(page["title"]))


def _rename(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    _require_writer(request, page)
    return SitePage(template="rename.html", values=_frame(db, request, page))


def _renamed(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    page = _page(db, named)
    _require_writer(request, page)
    title = _new_title(request.form.get("title", ""))
    if _find_page(db, title) is not None:
        raise PageError("There is a page of that title already.")
    db.execute("UPDATE pages SET title = ? WHERE id = ?", (title, page["id"]))
    db.execute("INSERT INTO old_titles VALUES (?, ?)", (page["title"], page["id"]))
    return Redirect(to=build_address(title))


# --- who ---


def _login(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    return SitePage(template="login.html", values={"wrong": False})


def _log_in(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    given = (request.form.get("name", ""), request.form.get("password", ""))
    user = db.execute("SELECT name FROM users WHERE name = ? AND password = ?", given).fetchone()
    if user is None:
        return SitePage(template="login.html", values={"wrong": True}, status=403)
    return Redirect(to="/", user=user["name"])


def _log_out(db: Connection, request: PageRequest, named: Named) -> SiteAnswer:
    return Redirect(to="/", user=None)


_ROUTES = (
    on_get("/", _main),
    on_get("/wiki/<title>", _article),
    on_get("/history/<title>", _history),
    on_get("/talk/<title>", _talk),
    on_post("/talk/<title>", _comment),
    on_get("/edit/<title>", _edit),
    on_post("/edit/<title>", _save),
    on_get("/add/<title>", _add),
    on_post("/add/<title>", _append),
    on_get("/rename/<title>", _rename),
    on_post("/rename/<title>", _renamed),
    on_post("/watch/<title>", _watch),
    on_get("/old/<id>", _old),
    on_post("/old/<id>", _restore),
    on_get("/new", _new),
    on_post("/new", _begin),
    on_get("/search", _search),
    on_get("/categories", _categories),
    on_get("/category/<title>", _category),
    on_get("/recent", _recent),
    on_get("/watchlist", _watchlist),
    on_get("/user/<name>", _user),
    on_get("/login", _login),
    on_post("/login", _log_in),
    on_post("/logout", _log_out),
)

_FOLDER = Path(__file__).parent
SITE = WebSite(
    name="wiki",
    hosts={"wiki.test": Host(title="Tolven Wiki", user=USER, routes=_ROUTES)},
    schema=(_FOLDER / "schema.sql").read_text("utf-8"),
    fill=fill_wiki,
    templates=_FOLDER / "templates",
    filters={"address": build_address},
    functions={"fact": read_fact, "fact_value": read_fact_value, "figure": read_figure, "in_category": is_in_category},
)
