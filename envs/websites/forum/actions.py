"""What members of the forum do: submit, reply, vote, edit, subscribe, block, write to each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
from .pages import find_board, find_member, find_post, get_member

__all__ = ["ROUTES"]

_BOARD_NAME = re.compile(r"[A-Za-z0-9_]{3,30}")
_LINK = re.compile(r"https?://[^\s/]+\S*")
_NOW = format_moment(NOW)
_LONG = ("body", "description", "sidebar", "biography")


def _get_text(request: PageRequest, name: str) -> str:
    given = request.form.get(name, "").strip()
    return given if name in _LONG else " ".join(given.split())[:300]


def _go_back(request: PageRequest, otherwise: str) -> str:
    """The page of the forum from which something was done."""
    back = request.form.get("back", "")
    return back if re.fullmatch(r"/(?![/\\]).*", back) else otherwise


def _build_post_url(post: Mapping[str, object]) -> str:
    return f"/b/{post['board']}/{post['id']}"


# --- logging in and out ---


def _log_in_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("login.html", name="")


def _log_in(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = _get_text(request, "name")
    known = fetch_value(
        db, "SELECT name FROM member WHERE name = ? AND password = ?", name, request.form.get("password", "")
    )
    if known is None:
        return show_form("login.html", "This name and password do not belong together.", name=name)
    return Redirect(to="/", user=str(known))


def _log_out(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return Redirect(to="/", user=None)


# --- boards ---


_BOARD_FIELDS = ("name", "title", "description", "sidebar")


def _board_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    get_member(request)
    return show_form("board_form.html", values=dict.fromkeys(_BOARD_FIELDS, ""), editing=None)


def _create_board(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    mine = get_member(request)
    values = {name: _get_text(request, name) for name in _BOARD_FIELDS}
    taken = fetch_value(db, "SELECT 1 FROM board WHERE name = ? COLLATE NOCASE", values["name"])
    wrong = "There is a board of this name already." if taken else _board_wrong(values)
    if wrong:
        return show_form("board_form.html", wrong, values=values, editing=None)
    db.execute("INSERT INTO board VALUES (?, ?, ?, ?, ?, ?)", (*values.values(), mine, NOW.date().isoformat()))
    db.execute("INSERT INTO subscription VALUES (?, ?)", (mine, values["name"]))
    return Redirect(to=f"/b/{values['name']}")


def _board_wrong(values: Mapping[str, str]) -> str:
    if not _BOARD_NAME.fullmatch(values["name"]):
        return "A name is 3 to 30 letters, digits or underscores."
    return "" if values["title"] else "A board needs a title."


def _own_board(db: Connection, request: PageRequest, parts: PathParts) -> DataRow:
    board = find_board(db, request, parts["board"])
    if board["founder"] != get_member(request):
        raise Forbidden("Only its founder may edit a board.")
    return board


def _edit_board_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    board = _own_board(db, request, parts)
    return show_form("board_form.html", values=board, editing=board["name"])


def _edit_board(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = _own_board(db, request, parts)["name"]
    values = {"name": name, **{field: _get_text(request, field) for field in _BOARD_FIELDS[1:]}}
    if wrong := _board_wrong(values):
        return show_form("board_form.html", wrong, values=values, editing=name)
    _, *about = values.values()
    db.execute("UPDATE board SET title = ?, description = ?, sidebar = ? WHERE name = ?", (*about, name))
    return Redirect(to=f"/b/{name}")


def _subscribe(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = find_board(db, request, parts["board"])["name"]
    db.execute("INSERT OR IGNORE INTO subscription VALUES (?, ?)", (get_member(request), name))
    return Redirect(to=_go_back(request, f"/b/{name}"))


def _unsubscribe(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = find_board(db, request, parts["board"])["name"]
    db.execute("DELETE FROM subscription WHERE member = ? AND board = ?", (get_member(request), name))
    return Redirect(to=_go_back(request, f"/b/{name}"))


# --- posts ---


_POST_FIELDS = ("board", "title", "url", "body")


def _submit_page(db: Connection, error: str, values: Mapping[str, str]) -> SitePage:
    return show_form("submit.html", error, values=values, boards=fetch_all(db, "SELECT name FROM board ORDER BY 1"))


def _submit_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    get_member(request)
    return _submit_page(db, "", {**dict.fromkeys(_POST_FIELDS, ""), "board": request.query.get("board", "")})


def _submit(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    author = get_member(request)
    values = {name: _get_text(request, name) for name in _POST_FIELDS}
    if wrong := _post_wrong(db, values):
        return _submit_page(db, wrong, values)
    added = db.execute(
        "INSERT INTO post (board, author, title, url, body, created, edited) VALUES (?, ?, ?, ?, ?, ?, '')",
        (values["board"], author, values["title"], values["url"], values["body"], _NOW),
    )
    _upvote_own(db, author, "post", added.lastrowid)
    return Redirect(to=f"/b/{values['board']}/{added.lastrowid}")


def _post_wrong(db: Connection, values: Mapping[str, str]) -> str:
    if not fetch_value(db, "SELECT 1 FROM board WHERE name = ?", values["board"]):
        return "Choose a board."
    if not values["title"]:
        return "A post needs a title."
    return "" if not values["url"] or _LINK.fullmatch(values["url"]) else "A link begins with http:// or https://."


def _upvote_own(db: Connection, author: str, kind: str, thing: object) -> None:
    db.execute("INSERT INTO vote VALUES (?, ?, ?, 1)", (author, kind, thing))


def _own_post(db: Connection, request: PageRequest, parts: PathParts) -> DataRow:
    found = find_post(db, parts["post"])
    if found["author"] != get_member(request):
        raise Forbidden("This is not your post.")
    return found


def _edit_post_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("edit_post.html", post=_own_post(db, request, parts))


def _edit_post(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _own_post(db, request, parts)
    title, body = _get_text(request, "title"), _get_text(request, "body")
    if not title:
        return show_form("edit_post.html", "A post needs a title.", post={**found, "body": body})
    db.execute("UPDATE post SET title = ?, body = ?, edited = ? WHERE id = ?", (title, body, _NOW, found["id"]))
    return Redirect(to=_build_post_url(found))


def _delete_post_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("delete.html", what="post", thing=_own_post(db, request, parts))


def _delete_post(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _own_post(db, request, parts)
    of_comments = "kind = 'comment' AND thing IN (SELECT id FROM comment WHERE post = ?)"
    db.execute(f"DELETE FROM vote WHERE {of_comments}", (found["id"],))
    db.execute("DELETE FROM vote WHERE kind = 'post' AND thing = ?", (found["id"],))
    db.execute("DELETE FROM comment WHERE post = ?", (found["id"],))
    db.execute("DELETE FROM post WHERE id = ?", (found["id"],))
    return Redirect(to=f"/b/{found['board']}")


# --- comments ---


def _comment_of(db: Connection, number: str) -> DataRow:
    select = "SELECT comment.*, board FROM comment JOIN post ON post.id = post WHERE comment.id = ? AND NOT deleted"
    found = fetch_first(db, select, read_whole(number))
    if found is None:
        raise PageNotFound("There is no such comment.")
    return found


def _own_comment(db: Connection, request: PageRequest, parts: PathParts) -> DataRow:
    found = _comment_of(db, parts["comment"])
    if found["author"] != get_member(request):
        raise Forbidden("This is not your comment.")
    return found


def _below(comment: Mapping[str, object], number: object) -> Redirect:
    return Redirect(to=f"/b/{comment['board']}/{comment['post']}#comment-{number}")


def _write(db: Connection, request: PageRequest, post: object, parent: object, board: object) -> SiteAnswer:
    author, body = get_member(request), _get_text(request, "body")
    if not body:
        raise PageError("A comment needs words.")
    added = db.execute(
        "INSERT INTO comment (post, parent, author, body, created, edited, deleted) VALUES (?, ?, ?, ?, ?, '', 0)",
        (post, parent, author, body, _NOW),
    )
    _upvote_own(db, author, "comment", added.lastrowid)
    return _below({"board": board, "post": post}, added.lastrowid)


def _comment(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = find_post(db, parts["post"])
    return _write(db, request, found["id"], None, found["board"])


def _reply_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    get_member(request)
    return show_form("reply.html", comment=_comment_of(db, parts["comment"]))


def _reply(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _comment_of(db, parts["comment"])
    return _write(db, request, found["post"], found["id"], found["board"])


def _edit_comment_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("edit_comment.html", comment=_own_comment(db, request, parts))


def _edit_comment(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found, body = _own_comment(db, request, parts), _get_text(request, "body")
    if not body:
        return show_form("edit_comment.html", "A comment needs words.", comment=found)
    db.execute("UPDATE comment SET body = ?, edited = ? WHERE id = ?", (body, _NOW, found["id"]))
    return _below(found, found["id"])


def _delete_comment_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("delete.html", what="comment", thing=_own_comment(db, request, parts))


def _delete_comment(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _own_comment(db, request, parts)
    answered = fetch_value(db, "SELECT 1 FROM comment WHERE parent = ?", found["id"])
    how = "UPDATE comment SET deleted = 1, body = '' WHERE id = ?" if answered else "DELETE FROM comment WHERE id = ?"
    db.execute(how, (found["id"],))
    db.execute("DELETE FROM vote WHERE kind = 'comment' AND thing = ?", (found["id"],))
    return Redirect(to=_build_post_url({"board": found["board"], "id": found["post"]}))


# --- votes ---


_VOTES = {"up": 1, "down": -1}


def _vote_on(kind: str, find: Callable[[Connection, str], DataRow]) -> PageHandler:
    def vote(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
        """Vote, or take the same vote back."""
        found, voter = find(db, parts[kind]), get_member(request)
        value = _VOTES.get(request.form.get("vote", ""))
        if value is None:
            raise PageError("A vote goes up or down.")
        key = (kind, found["id"], voter)
        before = fetch_value(db, "SELECT value FROM vote WHERE kind = ? AND thing = ? AND member = ?", *key)
        db.execute("DELETE FROM vote WHERE kind = ? AND thing = ? AND member = ?", key)
        if value != before:
            db.execute("INSERT INTO vote (kind, thing, member, value) VALUES (?, ?, ?, ?)", (*key, value))
        post = found["post"] if kind == "comment" else found["id"]
        return Redirect(to=_go_back(request, _build_post_url({"board": found["board"], "id": post})))

    return vote


# --- members ---


def _biography_form(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return show_form("biography.html", member=find_member(db, get_member(request)))


def _biography(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    db.execute("UPDATE member SET biography = ? WHERE name = ?", (_get_text(request, "biography"), get_member(request)))
    return Redirect(to=f"/user/{get_member(request)}")


def _block(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = find_member(db, parts["name"])["name"]
    if name == get_member(request):
        raise PageError("You cannot block yourself.")
    db.execute("INSERT OR IGNORE INTO block VALUES (?, ?)", (get_member(request), name))
    return Redirect(to=f"/user/{name}")


def _unblock(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    name = find_member(db, parts["name"])["name"]
    db.execute("DELETE FROM block WHERE member = ? AND blocked = ?", (get_member(request), name))
    return Redirect(to=_go_back(request, f"/user/{name}"))


def _send(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    sender, other, body = get_member(request), find_member(db, parts["name"])["name"], _get_text(request, "body")
    if not body or other == sender:
        raise PageError("A message needs words, and someone else to go to.")
    write = "INSERT INTO message (sender, recipient, body, created) VALUES (?, ?, ?, ?)"
    db.execute(write, (sender, other, body, _NOW))
    return Redirect(to=f"/inbox/{other}")


ROUTES: tuple[PageRoute, ...] = (
    on_get("/login", _log_in_form),
    on_post("/login", _log_in),
    on_post("/logout", _log_out),
    on_get("/boards/new", _board_form),
    on_post("/boards/new", _create_board),
    on_get("/b/<board>/edit", _edit_board_form),
    on_post("/b/<board>/edit", _edit_board),
    on_post("/b/<board>/subscribe", _subscribe),
    on_post("/b/<board>/unsubscribe", _unsubscribe),
    on_get("/submit", _submit_form),
    on_post("/submit", _submit),
    on_get("/post/<post>/edit", _edit_post_form),
    on_post("/post/<post>/edit", _edit_post),
    on_get("/post/<post>/delete", _delete_post_form),
    on_post("/post/<post>/delete", _delete_post),
    on_post("/post/<post>/vote", _vote_on("post", find_post)),
    on_post("/post/<post>/comment", _comment),
    on_get("/comment/<comment>/reply", _reply_form),
    on_post("/comment/<comment>/reply", _reply),
    on_get("/comment/<comment>/edit", _edit_comment_form),
    on_post("/comment/<comment>/edit", _edit_comment),
    on_get("/comment/<comment>/delete", _delete_comment_form),
    on_post("/comment/<comment>/delete", _delete_comment),
    on_post("/comment/<comment>/vote", _vote_on("comment", _comment_of)),
    on_get("/biography", _biography_form),
    on_post("/biography", _biography),
    on_post("/user/<name>/block", _block),
    on_post("/user/<name>/unblock", _unblock),
    on_post("/inbox/<name>", _send),
)
