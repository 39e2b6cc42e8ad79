"""The pages of the forum on which boards, posts and members are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first, fetch_value
from ..framework.site import (
    NOW,
    Forbidden,
    PageNotFound,
    PageRequest,
    PageRoute,
    Paging,
    PathParts,
    SiteAnswer,
    SitePage,
    format_moment,
    on_get,
    read_whole,
)

__all__ = ["ROUTES", "find_board", "find_member", "find_post", "get_member", "share_forum"]

_PAGE = 15
_ORDERS = {
    "hot": f"score * 10.0 / (10 + julianday('{format_moment(NOW)}') - julianday(created)) DESC, id DESC",
    "new": "created DESC, id DESC",
    "top": "score DESC, id DESC",
    "discussed": "comments DESC, id DESC",
}
_COMMENT_ORDERS = {"top": "score DESC, id", "new": "id DESC", "old": "id"}
_RANGED = ("top", "discussed")
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365, "all": 0}
_RANGES = {"day": "Past day", "week": "Past week", "month": "Past month", "year": "Past year", "all": "All time"}
_NOT_BLOCKED = "author NOT IN (SELECT blocked FROM block WHERE member = ?)"
_BOARDS = {"name": "name COLLATE NOCASE", "subscribers": "subscribers DESC, name", "posts": "posts DESC, name"}
_COUNTED = """
SELECT board.*, (SELECT count(*) FROM subscription WHERE board = name) AS subscribers,
  (SELECT count(*) FROM post WHERE post.board = name) AS posts,
  EXISTS (SELECT 1 FROM subscription WHERE board = name AND member = ?) AS mine
FROM board
"""


def share_forum(db: Connection, request: PageRequest) -> Mapping[str, object]:
    return {"ranges": _RANGES}


# --- finding ---


def get_member(request: PageRequest) -> str:
    if request.user is None:
        raise Forbidden("Log in first.")
    return request.user


def find_board(db: Connection, request: PageRequest, name: str) -> DataRow:
    found = fetch_first(db, f"{_COUNTED} WHERE name = ? COLLATE NOCASE", request.user, name)
    if found is None:
        raise PageNotFound(f"There is no board {name}.")
    return found


def find_post(db: Connection, number: str) -> DataRow:
    found = fetch_first(db, "SELECT * FROM scored_post WHERE id = ?", read_whole(number))
    if found is None:
        raise PageNotFound("There is no such post.")
    return found


def find_member(db: Connection, name: str) -> DataRow:
    found = fetch_first(db, "SELECT name, biography, joined FROM member WHERE name = ? COLLATE NOCASE", name)
    if found is None:
        raise PageNotFound(f"There is no member {name}.")
    return found


def _my_votes(db: Connection, request: PageRequest, kind: str) -> Mapping[int, int]:
    return dict(db.execute("SELECT thing, value FROM vote WHERE kind = ? AND member = ?", (kind, request.user)))


# --- posts ---


def _front(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    if request.user is None:
        return _all_posts(db, request, parts)
    where = "board IN (SELECT board FROM subscription WHERE member = ?)"
    return _show_list(db, request, where, request.user, heading="Posts of your boards")


def _all_posts(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _show_list(db, request, "true", heading="Posts of all boards")


def _one_board(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    board = find_board(db, request, parts["board"])
    return _show_list(db, request, "board = ?", board["name"], heading=board["name"], board=board)


def _show_list(
    db: Connection, request: PageRequest, where: str, *given: object, heading: str, **more: object
) -> SitePage:
    sort = request.query.get("sort", "hot")
    sort = sort if sort in _ORDERS else "hot"
    days = _DAYS.get(request.query.get("time", "all"), 0) if sort in _RANGED else 0
    since = format_moment(NOW - timedelta(days=days)) if days else ""
    where = f"{where} AND {_NOT_BLOCKED} AND created >= ?"
    values = _posts(db, request, where, (*given, request.user or "", since), _ORDERS[sort])
    span = request.query.get("time", "all") if days else "all"
    order = {"sort": sort, "span": span, "ranged": sort in _RANGED}
    return SitePage(template="posts.html", values={**values, **order, "heading": heading, "board": None, **more})


def _posts(
    db: Connection, request: PageRequest, where: str, given: tuple[object, ...], order: str
) -> Mapping[str, object]:
    total = fetch_value(db, f"SELECT count(*) FROM post WHERE {where}", *given)
    paging = Paging.of(request, size=_PAGE, total=total)
    select = f"SELECT * FROM scored_post WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
    posts = fetch_all(db, select, *given, _PAGE, paging.offset)
    return {"posts": posts, "paging": paging, "votes": _my_votes(db, request, "post")}


def _one_post(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    post = find_post(db, parts["post"])
    board = find_board(db, request, post["board"])
    if board["name"].casefold() != parts["board"].casefold():
        raise PageNotFound("There is no such post.")
    order = request.query.get("comments", "top")
    order = order if order in _COMMENT_ORDERS else "top"
    comments = fetch_all(
        db, f"SELECT * FROM scored_comment WHERE post = ? ORDER BY {_COMMENT_ORDERS[order]}", post["id"]
    )
    values = {
        "post": post,
        "board": board,
        "tree": _nest_comments(comments),
        "order": order,
        "votes": _my_votes(db, request, "post"),
        "comment_votes": _my_votes(db, request, "comment"),
        "hidden": {name for (name,) in db.execute("SELECT blocked FROM block WHERE member = ?", (request.user,))},
    }
    return SitePage(template="post.html", values=values)


def _nest_comments(comments: list[DataRow]) -> list[DataRow]:
    """Nest replies below their comments, keeping the order."""
    by_id = {comment["id"]: {**comment, "replies": []} for comment in comments}
    top: list[DataRow] = []
    for comment in by_id.values():
        (by_id[comment["parent"]]["replies"] if comment["parent"] else top).append(comment)
    return top


# --- boards ---


def _boards(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    sort = request.query.get("sort", "name")
    sort = sort if sort in _BOARDS else "name"
    listed = fetch_all(db, f"{_COUNTED} ORDER BY {_BOARDS[sort]}", request.user)
    return SitePage(template="boards.html", values={"boards": listed, "sort": sort, "sorts": tuple(_BOARDS)})


# --- members ---


def _member(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = find_member(db, parts["name"])
    name = found["name"]
    counts = {
        "posts": fetch_value(db, "SELECT count(*) FROM post WHERE author = ?", name),
        "comments": fetch_value(db, "SELECT count(*) FROM comment WHERE author = ? AND NOT deleted", name),
    }
    boards = fetch_all(db, "SELECT name FROM board WHERE founder = ? ORDER BY name", name)
    blocks = fetch_value(db, "SELECT 1 FROM block WHERE member = ? AND blocked = ?", request.user, name)
    values = {"member": found, "counts": counts, "boards": boards, "blocks": blocks}
    return SitePage(template="member.html", values=values)


def _member_posts(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = find_member(db, parts["name"])
    sort = _member_sort(request)
    values = _posts(db, request, "author = ?", (found["name"],), _ORDERS[sort])
    return SitePage(template="member_posts.html", values={**values, "member": found, "sort": sort})


def _member_comments(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = find_member(db, parts["name"])
    sort = _member_sort(request)
    where = "scored_comment.author = ? AND NOT deleted"
    return _comments(db, request, "member_comments.html", where, found["name"], order=sort, member=found)


def _member_sort(request: PageRequest) -> str:
    return "top" if request.query.get("sort") == "top" else "new"


def _comments(
    db: Connection, request: PageRequest, template: str, where: str, *given: object, order: str, **more: object
) -> SitePage:
    source = f"scored_comment JOIN post ON post.id = scored_comment.post WHERE {where}"
    paging = Paging.of(request, size=_PAGE, total=fetch_value(db, f"SELECT count(*) FROM {source}", *given))
    select = f"SELECT scored_comment.*, post.title, post.board FROM {source}"
    by = {"new": "scored_comment.id DESC", "top": "score DESC, scored_comment.id"}[order]
    found = fetch_all(db, f"{select} ORDER BY {by} LIMIT ? OFFSET ?", *given, _PAGE, paging.offset)
    return SitePage(template=template, values={"comments": found, "paging": paging, "sort": order, **more})


def _blocked(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    names = fetch_all(db, "SELECT blocked AS name FROM block WHERE member = ? ORDER BY 1", get_member(request))
    return SitePage(template="blocked.html", values={"names": names})


# --- what is for oneself ---


def _replies(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    answered = "SELECT author FROM comment WHERE comment.id = scored_comment.parent"
    where = f"NOT deleted AND scored_comment.author <> ? AND coalesce(({answered}), post.author) = ?"
    return _comments(db, request, "replies.html", where, get_member(request), get_member(request), order="new")


def _inbox(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    other = "CASE sender WHEN ? THEN recipient ELSE sender END"
    last = f"SELECT max(id) FROM message WHERE ? IN (sender, recipient) GROUP BY {other}"
    talks = f"SELECT *, {other} AS other FROM message WHERE id IN ({last}) ORDER BY id DESC"
    mine = get_member(request)
    return SitePage(template="inbox.html", values={"talks": fetch_all(db, talks, mine, mine, mine)})


def _conversation(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    other = find_member(db, parts["name"])
    between = "SELECT * FROM message WHERE (sender, recipient) IN (VALUES (?, ?), (?, ?)) ORDER BY id"
    mine = get_member(request)
    messages = fetch_all(db, between, mine, other["name"], other["name"], mine)
    return SitePage(template="conversation.html", values={"other": other, "messages": messages})


# --- search ---


_SEARCHED = {
    "posts": ("post", "title || ' ' || body || ' ' || url"),
    "comments": ("scored_comment", "scored_comment.body"),
    "boards": ("board", "name || ' ' || title || ' ' || description"),
    "members": ("member", "name || ' ' || biography"),
}


def _search(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    """Find what has all of the words, anywhere."""
    words = request.query.get("q", "").split()[:10]
    scope = request.query.get("in", "posts")
    scope = scope if scope in _SEARCHED else "posts"
    text = _SEARCHED[scope][1]
    where = " AND ".join([f"{text} LIKE ? ESCAPE '!'"] * len(words)) or "false"
    given = tuple(f"%{_escape_word(word)}%" for word in words)
    values: Mapping[str, object] = {}
    if scope == "posts":
        values = _posts(db, request, where, given, _ORDERS["new"])
    elif scope == "comments":
        values = _comments(db, request, "search.html", f"NOT deleted AND {where}", *given, order="new").values
    else:
        values = {"found": fetch_all(db, f"SELECT * FROM {_SEARCHED[scope][0]} WHERE {where} ORDER BY name", *given)}
    more = {"q": " ".join(words), "scope": scope, "scopes": tuple(_SEARCHED)}
    return SitePage(template="search.html", values={**values, **more})


def _escape_word(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")


ROUTES: tuple[PageRoute, ...] = (
    on_get("/", _front),
    on_get("/all", _all_posts),
    on_get("/boards", _boards),
    on_get("/search", _search),
    on_get("/inbox", _inbox),
    on_get("/inbox/<name>", _conversation),
    on_get("/replies", _replies),
    on_get("/blocked", _blocked),
    on_get("/user/<name>", _member),
    on_get("/user/<name>/posts", _member_posts),
    on_get("/user/<name>/comments", _member_comments),
    on_get("/b/<board>", _one_board),
    on_get("/b/<board>/<post>", _one_post),
)
