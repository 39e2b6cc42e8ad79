"""What members of the forum do: submit, reply, vote, edit, subscribe, block, write to each other.

What enters: a request with a form, or for the form. What leaves: the form, with what is wrong with it, or where to go
after it was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from sqlite3 import Connection

from ..framework.records import Record, first, one, rows
from ..framework.site import Answer, NotFound, Page, Redirect, Refused, Request, Route, Wrong, get, post, whole
from .pages import Parts, board_of, me, member_of, post_of
from .seed import NOW, clock

__all__ = ["ROUTES"]

_BOARD_NAME = re.compile(r"[A-Za-z0-9_]{3,30}")
_LINK = re.compile(r"https?://[^\s/]+\S*")
_NOW = clock(NOW)
_LONG = ("body", "description", "sidebar", "biography")


def _form(template: str, error: str = "", **values: object) -> Page:
    return Page(template=template, values={"error": error, **values}, status=400 if error else 200)


def _text(request: Request, name: str) -> str:
    given = request.form.get(name, "").strip()
    return given if name in _LONG else " ".join(given.split())[:300]


def _back(request: Request, otherwise: str) -> str:
    """To where it was done from, which must be a page of the forum."""
    back = request.form.get("back", "")
    return back if re.fullmatch(r"/(?![/\\]).*", back) else otherwise


def _place(post: Mapping[str, object]) -> str:
    return f"/b/{post['board']}/{post['id']}"


# --- logging in and out ---


def _log_in_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("login.html", name="")


def _log_in(db: Connection, request: Request, parts: Parts) -> Answer:
    name = _text(request, "name")
    known = one(db, "SELECT name FROM member WHERE name = ? AND password = ?", name, request.form.get("password", ""))
    if known is None:
        return _form("login.html", "This name and password do not belong together.", name=name)
    return Redirect(to="/", user=str(known))


def _log_out(db: Connection, request: Request, parts: Parts) -> Answer:
    return Redirect(to="/", user=None)


# --- boards ---


_BOARD_FIELDS = ("name", "title", "description", "sidebar")


def _board_form(db: Connection, request: Request, parts: Parts) -> Answer:
    me(request)
    return _form("board_form.html", values=dict.fromkeys(_BOARD_FIELDS, ""), editing=None)


def _create_board(db: Connection, request: Request, parts: Parts) -> Answer:
    mine = me(request)
    values = {name: _text(request, name) for name in _BOARD_FIELDS}
    taken = one(db, "SELECT 1 FROM board WHERE name = ? COLLATE NOCASE", values["name"])
    wrong = "There is a board of this name already." if taken else _board_wrong(values)
    if wrong:
        return _form("board_form.html", wrong, values=values, editing=None)
    db.execute("INSERT INTO board VALUES (?, ?, ?, ?, ?, ?)", (*values.values(), mine, NOW.date().isoformat()))
    db.execute("INSERT INTO subscription VALUES (?, ?)", (mine, values["name"]))
    return Redirect(to=f"/b/{values['name']}")


def _board_wrong(values: Mapping[str, str]) -> str:
    if not _BOARD_NAME.fullmatch(values["name"]):
        return "A name is 3 to 30 letters, digits or underscores."
    return "" if values["title"] else "A board needs a title."


def _own_board(db: Connection, request: Request, parts: Parts) -> Record:
    board = board_of(db, request, parts["board"])
    if board["founder"] != me(request):
        raise Refused("Only its founder may edit a board.")
    return board


def _edit_board_form(db: Connection, request: Request, parts: Parts) -> Answer:
    board = _own_board(db, request, parts)
    return _form("board_form.html", values=board, editing=board["name"])


def _edit_board(db: Connection, request: Request, parts: Parts) -> Answer:
    name = _own_board(db, request, parts)["name"]
    values = {"name": name, **{field: _text(request, field) for field in _BOARD_FIELDS[1:]}}
    if wrong := _board_wrong(values):
        return _form("board_form.html", wrong, values=values, editing=name)
    _, *about = values.values()
    db.execute("UPDATE board SET title = ?, description = ?, sidebar = ? WHERE name = ?", (*about, name))
    return Redirect(to=f"/b/{name}")


def _subscribe(db: Connection, request: Request, parts: Parts) -> Answer:
    name = board_of(db, request, parts["board"])["name"]
    db.execute("INSERT OR IGNORE INTO subscription VALUES (?, ?)", (me(request), name))
    return Redirect(to=_back(request, f"/b/{name}"))


def _unsubscribe(db: Connection, request: Request, parts: Parts) -> Answer:
    name = board_of(db, request, parts["board"])["name"]
    db.execute("DELETE FROM subscription WHERE member = ? AND board = ?", (me(request), name))
    return Redirect(to=_back(request, f"/b/{name}"))


# --- posts ---


_POST_FIELDS = ("board", "title", "url", "body")


def _submit_page(db: Connection, error: str, values: Mapping[str, str]) -> Page:
    return _form("submit.html", error, values=values, boards=rows(db, "SELECT name FROM board ORDER BY 1"))


def _submit_form(db: Connection, request: Request, parts: Parts) -> Answer:
    me(request)
    return _submit_page(db, "", {**dict.fromkeys(_POST_FIELDS, ""), "board": request.query.get("board", "")})


def _submit(db: Connection, request: Request, parts: Parts) -> Answer:
    author = me(request)
    values = {name: _text(request, name) for name in _POST_FIELDS}
    if wrong := _post_wrong(db, values):
        return _submit_page(db, wrong, values)
    added = db.execute(
        "INSERT INTO post (board, author, title, url, body, created, edited) VALUES (?, ?, ?, ?, ?, ?, '')",
        (values["board"], author, values["title"], values["url"], values["body"], _NOW),
    )
    _upvote_own(db, author, "post", added.lastrowid)
    return Redirect(to=f"/b/{values['board']}/{added.lastrowid}")


def _post_wrong(db: Connection, values: Mapping[str, str]) -> str:
    if not one(db, "SELECT 1 FROM board WHERE name = ?", values["board"]):
        return "Choose a board."
    if not values["title"]:
        return "A post needs a title."
    return "" if not values["url"] or _LINK.fullmatch(values["url"]) else "A link begins with http:// or https://."


def _upvote_own(db: Connection, author: str, kind: str, thing: object) -> None:
    db.execute("INSERT INTO vote VALUES (?, ?, ?, 1)", (author, kind, thing))


def _own_post(db: Connection, request: Request, parts: Parts) -> Record:
    found = post_of(db, parts["post"])
    if found["author"] != me(request):
        raise Refused("This is not your post.")
    return found


def _edit_post_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("edit_post.html", post=_own_post(db, request, parts))


def _edit_post(db: Connection, request: Request, parts: Parts) -> Answer:
    found = _own_post(db, request, parts)
    title, body = _text(request, "title"), _text(request, "body")
    if not title:
        return _form("edit_post.html", "A post needs a title.", post={**found, "body": body})
    db.execute("UPDATE post SET title = ?, body = ?, edited = ? WHERE id = ?", (title, body, _NOW, found["id"]))
    return Redirect(to=_place(found))


def _delete_post_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("delete.html", what="post", thing=_own_post(db, request, parts))


def _delete_post(db: Connection, request: Request, parts: Parts) -> Answer:
    found = _own_post(db, request, parts)
    of_comments = "kind = 'comment' AND thing IN (SELECT id FROM comment WHERE post = ?)"
    db.execute(f"DELETE FROM vote WHERE {of_comments}", (found["id"],))
    db.execute("DELETE FROM vote WHERE kind = 'post' AND thing = ?", (found["id"],))
    db.execute("DELETE FROM comment WHERE post = ?", (found["id"],))
    db.execute("DELETE FROM post WHERE id = ?", (found["id"],))
    return Redirect(to=f"/b/{found['board']}")


# --- comments ---


def _comment_of(db: Connection, number: str) -> Record:
    select = "SELECT comment.*, board FROM comment JOIN post ON post.id = post WHERE comment.id = ? AND NOT deleted"
    found = first(db, select, whole(number))
    if found is None:
        raise NotFound("There is no such comment.")
    return found


def _own_comment(db: Connection, request: Request, parts: Parts) -> Record:
    found = _comment_of(db, parts["comment"])
    if found["author"] != me(request):
        raise Refused("This is not your comment.")
    return found


def _below(comment: Mapping[str, object], number: object) -> Redirect:
    return Redirect(to=f"/b/{comment['board']}/{comment['post']}#comment-{number}")


def _write(db: Connection, request: Request, post: object, parent: object, board: object) -> Answer:
    author, body = me(request), _text(request, "body")
    if not body:
        raise Wrong("A comment needs words.")
    added = db.execute(
        "INSERT INTO comment (post, parent, author, body, created, edited, deleted) VALUES (?, ?, ?, ?, ?, '', 0)",
        (post, parent, author, body, _NOW),
    )
    _upvote_own(db, author, "comment", added.lastrowid)
    return _below({"board": board, "post": post}, added.lastrowid)


def _comment(db: Connection, request: Request, parts: Parts) -> Answer:
    found = post_of(db, parts["post"])
    return _write(db, request, found["id"], None, found["board"])


def _reply_form(db: Connection, request: Request, parts: Parts) -> Answer:
    me(request)
    return _form("reply.html", comment=_comment_of(db, parts["comment"]))


def _reply(db: Connection, request: Request, parts: Parts) -> Answer:
    found = _comment_of(db, parts["comment"])
    return _write(db, request, found["post"], found["id"], found["board"])


def _edit_comment_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("edit_comment.html", comment=_own_comment(db, request, parts))


def _edit_comment(db: Connection, request: Request, parts: Parts) -> Answer:
    found, body = _own_comment(db, request, parts), _text(request, "body")
    if not body:
        return _form("edit_comment.html", "A comment needs words.", comment=found)
    db.execute("UPDATE comment SET body = ?, edited = ? WHERE id = ?", (body, _NOW, found["id"]))
    return _below(found, found["id"])


def _delete_comment_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("delete.html", what="comment", thing=_own_comment(db, request, parts))


def _delete_comment(db: Connection, request: Request, parts: Parts) -> Answer:
    found = _own_comment(db, request, parts)
    answered = one(db, "SELECT 1 FROM comment WHERE parent = ?", found["id"])
    how = "UPDATE comment SET deleted = 1, body = '' WHERE id = ?" if answered else "DELETE FROM comment WHERE id = ?"
    db.execute(how, (found["id"],))
    db.execute("DELETE FROM vote WHERE kind = 'comment' AND thing = ?", (found["id"],))
    return Redirect(to=_place({"board": found["board"], "id": found["post"]}))


# --- votes ---


_VOTES = {"up": 1, "down": -1}


def _vote_on(kind: str, find: Callable[[Connection, str], Record]) -> Callable[[Connection, Request, Parts], Answer]:
    def vote(db: Connection, request: Request, parts: Parts) -> Answer:
        """The same again takes it back."""
        found, voter = find(db, parts[kind]), me(request)
        value = _VOTES.get(request.form.get("vote", ""))
        if value is None:
            raise Wrong("A vote goes up or down.")
        key = (kind, found["id"], voter)
        before = one(db, "SELECT value FROM vote WHERE kind = ? AND thing = ? AND member = ?", *key)
        db.execute("DELETE FROM vote WHERE kind = ? AND thing = ? AND member = ?", key)
        if value != before:
            db.execute("INSERT INTO vote (kind, thing, member, value) VALUES (?, ?, ?, ?)", (*key, value))
        post = found["post"] if kind == "comment" else found["id"]
        return Redirect(to=_back(request, _place({"board": found["board"], "id": post})))

    return vote


# --- members ---


def _biography_form(db: Connection, request: Request, parts: Parts) -> Answer:
    return _form("biography.html", member=member_of(db, me(request)))


def _biography(db: Connection, request: Request, parts: Parts) -> Answer:
    db.execute("UPDATE member SET biography = ? WHERE name = ?", (_text(request, "biography"), me(request)))
    return Redirect(to=f"/user/{me(request)}")


def _block(db: Connection, request: Request, parts: Parts) -> Answer:
    name = member_of(db, parts["name"])["name"]
    if name == me(request):
        raise Wrong("You cannot block yourself.")
    db.execute("INSERT OR IGNORE INTO block VALUES (?, ?)", (me(request), name))
    return Redirect(to=f"/user/{name}")


def _unblock(db: Connection, request: Request, parts: Parts) -> Answer:
    name = member_of(db, parts["name"])["name"]
    db.execute("DELETE FROM block WHERE member = ? AND blocked = ?", (me(request), name))
    return Redirect(to=_back(request, f"/user/{name}"))


def _send(db: Connection, request: Request, parts: Parts) -> Answer:
    sender, other, body = me(request), member_of(db, parts["name"])["name"], _text(request, "body")
    if not body or other == sender:
        raise Wrong("A message needs words, and someone else to go to.")
    write = "INSERT INTO message (sender, recipient, body, created) VALUES (?, ?, ?, ?)"
    db.execute(write, (sender, other, body, _NOW))
    return Redirect(to=f"/inbox/{other}")


ROUTES: tuple[Route, ...] = (
    get("/login", _log_in_form),
    post("/login", _log_in),
    post("/logout", _log_out),
    get("/boards/new", _board_form),
    post("/boards/new", _create_board),
    get("/b/<board>/edit", _edit_board_form),
    post("/b/<board>/edit", _edit_board),
    post("/b/<board>/subscribe", _subscribe),
    post("/b/<board>/unsubscribe", _unsubscribe),
    get("/submit", _submit_form),
    post("/submit", _submit),
    get("/post/<post>/edit", _edit_post_form),
    post("/post/<post>/edit", _edit_post),
    get("/post/<post>/delete", _delete_post_form),
    post("/post/<post>/delete", _delete_post),
    post("/post/<post>/vote", _vote_on("post", post_of)),
    post("/post/<post>/comment", _comment),
    get("/comment/<comment>/reply", _reply_form),
    post("/comment/<comment>/reply", _reply),
    get("/comment/<comment>/edit", _edit_comment_form),
    post("/comment/<comment>/edit", _edit_comment),
    get("/comment/<comment>/delete", _delete_comment_form),
    post("/comment/<comment>/delete", _delete_comment),
    post("/comment/<comment>/vote", _vote_on("comment", _comment_of)),
    get("/biography", _biography_form),
    post("/biography", _biography),
    post("/user/<name>/block", _block),
    post("/user/<name>/unblock", _unblock),
    post("/inbox/<name>", _send),
)
