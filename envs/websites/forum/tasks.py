"""What there is to be done on the forum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sqlite3 import Connection

from ..checks import NOT_POSSIBLE, Databases, Outcome, Truth
from ..framework.records import Record, first, one, rows
from ..outcomes import Added, Edited, Gone, Wanted, just
from ..tasks import Choose, Click, Deed, Fill, Template, Values
from .seed import USER

__all__ = ["TASKS"]

_HOME = "http://forum.test/"
_Path = Callable[[Databases, Values], Sequence[Deed]]


# --- what is true ---


def _db(databases: Databases) -> Connection:
    return databases["forum"]


def _row(databases: Databases, sql: str, *given: object) -> Record:
    found = first(_db(databases), sql, *given)
    assert found is not None, (sql, given)
    return found


def _post(databases: Databases, values: Values) -> Record:
    return _row(databases, "SELECT * FROM scored_post WHERE title = ?", values["title"])


def _best(databases: Databases, values: Values) -> Record:
    return _row(databases, "SELECT * FROM scored_post WHERE board = ? ORDER BY score DESC, id DESC", values["board"])


def _newest(databases: Databases, values: Values) -> Record:
    return _row(databases, "SELECT * FROM post WHERE board = ? ORDER BY created DESC", values["board"])


def _own(databases: Databases, values: Values) -> Record:
    order = {"newest": "DESC", "oldest": "ASC"}[str(values["which"])]
    return _row(databases, f"SELECT * FROM post WHERE author = ? ORDER BY created {order}", USER)


def _oldest_comment(databases: Databases, values: Values) -> Record:
    return _row(databases, "SELECT * FROM comment WHERE post = ? ORDER BY id", _post(databases, values)["id"])


def _disliked(databases: Databases, values: Values) -> int:
    count = "SELECT count(*) FROM scored_comment WHERE author = ? AND score < 0"
    return int(one(_db(databases), count, _newest(databases, values)["author"]))


def _best_comment(databases: Databases, values: Values) -> str:
    select = "SELECT author FROM scored_comment WHERE post = ? ORDER BY score DESC"
    return str(one(_db(databases), select, _post(databases, values)["id"]))


def _commenters(databases: Databases, values: Values) -> frozenset[str]:
    found = rows(_db(databases), "SELECT author FROM comment WHERE post = ?", _post(databases, values)["id"])
    return frozenset(each["author"] for each in found)


def _popular(databases: Databases, values: Values) -> frozenset[str]:
    select = "SELECT board FROM subscription GROUP BY board HAVING count(*) > ?"
    return frozenset(each["board"] for each in rows(_db(databases), select, values["number"]))


def _num_posts(databases: Databases, values: Values) -> int:
    return int(one(_db(databases), "SELECT count(*) FROM post WHERE author = ?", values["member"]))


def _latest_sender(databases: Databases) -> str:
    return str(one(_db(databases), "SELECT sender FROM message WHERE recipient = ? ORDER BY id DESC", USER))


# --- what was changed ---


def _made(wanted: Callable[[Databases, Values], Wanted]) -> Callable[[Outcome, Values], bool]:
    return lambda outcome, values: just(outcome, wanted(outcome.before, values))


def _submitted(databases: Databases, values: Values) -> Wanted:
    fields = {"url": "", "body": "", "author": USER, **{name: values[name] for name in values}}
    return {"forum.post": (Added(fields),), "forum.vote": (_own_vote("post"),)}


def _own_vote(kind: str) -> Added:
    return Added({"member": USER, "kind": kind, "value": 1})


def _replied(databases: Databases, values: Values) -> Wanted:
    parent = _oldest_comment(databases, values)
    written = {"author": USER, "post": parent["post"], "parent": parent["id"], "body": values["text"]}
    return {"forum.comment": (Added(written),), "forum.vote": (_own_vote("comment"),)}


def _commented(databases: Databases, values: Values) -> Wanted:
    post = _post(databases, values)["id"]
    written = {"author": USER, "post": post, "parent": None, "body": values["text"]}
    return {"forum.comment": (Added(written),), "forum.vote": (_own_vote("comment"),)}


def _voted(databases: Databases, values: Values) -> Wanted:
    thing = _newest(databases, values)["id"]
    value = {"Upvote": 1, "Downvote": -1}[str(values["vote"])]
    return {"forum.vote": (Added({"member": USER, "kind": "post", "thing": thing, "value": value}),)}


def _subscription(databases: Databases, values: Values) -> Wanted:
    row = {"member": USER, "board": values["board"]}
    return {"forum.subscription": (Added(row) if values["how"] == "Subscribe" else Gone(row),)}


def _founded(databases: Databases, values: Values) -> Wanted:
    board = {"founder": USER, **{name: values[name] for name in ("name", "title", "description")}}
    return {
        "forum.board": (Added(board),),
        "forum.subscription": (Added({"member": USER, "board": values["name"]}),),
    }


def _deleted(databases: Databases, values: Values) -> Wanted:
    post = _own(databases, values)["id"]
    comments = rows(_db(databases), "SELECT id FROM comment WHERE post = ?", post)
    votes = """SELECT kind, thing, member FROM vote WHERE (kind = 'post' AND thing = ?)
        OR (kind = 'comment' AND thing IN (SELECT id FROM comment WHERE post = ?))"""
    gone = {
        "forum.post": [Gone({"id": post})],
        "forum.comment": [Gone(each) for each in comments],
        "forum.vote": [Gone(each) for each in rows(_db(databases), votes, post, post)],
    }
    return {table: each for table, each in gone.items() if each}


# --- how it is done ---


def _on_board(*deeds: Deed) -> _Path:
    return lambda databases, values: (Click("link", "Boards"), Click("link", str(values["board"])), *deeds)


def _found(title: object) -> tuple[Deed, ...]:
    return Fill("searchbox", "Search", str(title), enter=True), Click("link", str(title))


def _on_newest(databases: Databases, values: Values) -> Sequence[Deed]:
    newest = _newest(databases, values)
    look = (
        Click("link", newest["title"]),
        Click("link", newest["author"]),
        _listed(databases, newest["author"], "comments"),
    )
    return *_on_board(Click("link", "New"))(databases, values), *look


def _listed(databases: Databases, member: object, what: str) -> Click:
    """The way to what a member wrote."""
    table, where = {"posts": ("post", "true"), "comments": ("comment", "NOT deleted")}[what]
    count = one(_db(databases), f"SELECT count(*) FROM {table} WHERE author = ? AND {where}", member)
    return Click("link", f"{count} {what}")


def _on_member(databases: Databases, member: object) -> tuple[Deed, ...]:
    search = Fill("searchbox", "Search", str(member), enter=True)
    return search, Click("link", "Members"), Click("link", str(member))


def _ranged(databases: Databases, values: Values) -> Sequence[Deed]:
    return _on_board(Click("link", "Top"), Click("link", f"Past {values['time']}"))(databases, values)


def _to_comments(databases: Databases, values: Values) -> Sequence[Deed]:
    member = values["member"]
    return *_on_member(databases, member), _listed(databases, member, "comments"), Click("link", "Top")


def _submit(databases: Databases, values: Values) -> Sequence[Deed]:
    fields = (("title", "Title"), ("url", "Link"), ("body", "Text"))
    fill = [Fill("textbox", name, str(values[key])) for key, name in fields if key in values]
    choose = Choose("combobox", "Board", str(values["board"]))
    return Click("link", "Submit"), choose, *fill, Click("button", "Submit post")


def _vote(databases: Databases, values: Values) -> Sequence[Deed]:
    press = Click("button", str(values["vote"]), after=_newest(databases, values)["title"])
    return *_on_board(Click("link", "New"))(databases, values), press


def _comment(databases: Databases, values: Values) -> Sequence[Deed]:
    say = Fill("textbox", "Comment", str(values["text"])), Click("button", "Post comment")
    return *_found(values["title"]), *say


def _reply(databases: Databases, values: Values) -> Sequence[Deed]:
    answer = Click("link", "Reply"), Fill("textbox", "Comment", str(values["text"])), Click("button", "Post reply")
    return *_found(values["title"]), Click("link", "Oldest first"), *answer


def _biography(databases: Databases, values: Values) -> Sequence[Deed]:
    edit = Click("link", "Edit biography"), Fill("textbox", "Biography", str(values["text"])), Click("button", "Save")
    return Click("link", USER), *edit


def _found_board(databases: Databases, values: Values) -> Sequence[Deed]:
    fields = (("name", "Name"), ("title", "Title"), ("description", "Description"))
    fill = [Fill("textbox", name, str(values[key])) for key, name in fields]
    return Click("link", "Boards"), Click("link", "Create board"), *fill, Click("button", "Create")


def _write(databases: Databases, values: Values) -> Sequence[Deed]:
    send = Click("link", "Send message"), Fill("textbox", "Message", str(values["text"])), Click("button", "Send")
    return *_on_member(databases, values["member"]), *send


def _write_back(databases: Databases, values: Values) -> Sequence[Deed]:
    send = Fill("textbox", "Message", str(values["text"])), Click("button", "Send")
    return Click("link", "Inbox"), Click("link", _latest_sender(databases)), *send


def _on_own(*deeds: Callable[[Values], Deed]) -> _Path:
    def path(databases: Databases, values: Values) -> Sequence[Deed]:
        look = Click("link", USER), _listed(databases, USER, "posts"), Click("link", _own(databases, values)["title"])
        return *look, *(deed(values) for deed in deeds)

    return path


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
        site="forum",
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
        "best-post-comments",
        "How many comments does the post with the highest score of all time on the board {board} have? Answer with the "
        "number.",
        {"board": "RepairBench"},
        {"board": "BirdLog"},
        {"board": "RadioShed"},
        path=_on_board(Click("link", "Top")),
        answer=lambda databases, values: int(_best(databases, values)["comments"]),
    ),
    _template(
        "subscribe",
        "{how} me {to} the board {board}.",
        {"how": "Subscribe", "to": "to", "board": "NightSky"},
        {"how": "Subscribe", "to": "to", "board": "SlowCycling"},
        {"how": "Unsubscribe", "to": "from", "board": "Marrowby"},
        path=lambda databases, values: _on_board(Click("button", str(values["how"])))(databases, values),
        made=_subscription,
    ),
    _template(
        "best-of-time",
        "Show me the posts of the board {board}, those with the highest score first, but only from the past {time}.",
        {"board": "Bakehouse", "time": "month"},
        {"board": "Tabletop", "time": "week"},
        {"board": "PaperAndThread", "time": "year"},
        path=_ranged,
        url="http://forum.test/b/{board}?sort=top&time={time}",
    ),
    _template(
        "submit-text",
        "Submit a post to the board {board} with the title '{title}' and the text '{body}'.",
        {"board": "Allotment", "title": "Which pea needs no sticks?", "body": "The wind took mine twice."},
        {"board": "Tabletop", "title": "Looking for a fourth player", "body": "Fridays at seven, near the bridge."},
        {"board": "RadioShed", "title": "Old headphones to give away", "body": "Two pairs. Both hum a little."},
        path=_submit,
        made=_submitted,
    ),
    _template(
        "disliked-comments",
        "Find the member who wrote the newest post on the board {board}. How many of this member's comments, on all "
        "boards, have a score below zero? Answer with the number.",
        {"board": "Railways"},
        {"board": "Bakehouse"},
        path=_on_newest,
        answer=_disliked,
    ),
    _template(
        "reply-oldest",
        "Reply to the oldest comment on the post '{title}' with '{text}'.",
        {"title": "First swallow: place your bets", "text": "My money is on the first of April."},
        {"title": "In praise of footbridges", "text": "Ours was painted green last week."},
        path=_reply,
        made=_replied,
    ),
    _template(
        "commenters",
        "Which members have commented on the post '{title}'? Answer with their names, separated by commas.",
        {"title": "Learning Morse at sixty-three"},
        {"title": "Cardamom buns for forty people"},
        path=lambda databases, values: _found(values["title"]),
        answer=_commenters,
    ),
    _template(
        "vote-newest",
        "{vote} the newest post on the board {board}.",
        {"vote": "Upvote", "board": "NightSky"},
        {"vote": "Downvote", "board": "BookCorner"},
        {"vote": "Upvote", "board": "RepairBench"},
        path=_vote,
        made=_voted,
    ),
    _template(
        "find-post",
        "Open the post in which {what}.",
        {"what": "somebody's washing machine moves across the kitchen", "title": "The washing machine that walks"},
        {"what": "a grey cat is missing", "title": "Lost: grey cat with one white paw, Mill Street"},
        {"what": "somebody heard an island with little power", "title": "Heard an island on twelve watts"},
        path=lambda databases, values: _found(values["title"]),
        url=lambda databases, values: "http://forum.test/b/{board}/{id}".format(**_post(databases, values)),
        free=frozenset(("comments",)),
    ),
    _template(
        "biography",
        "Change my biography on the forum to '{text}'.",
        {"text": "Back from the coast, with shells."},
        {"text": "Away until May. Please water my beans."},
        path=_biography,
        made=lambda databases, values: {"forum.member": (Edited({"name": USER}, {"biography": values["text"]}),)},
    ),
    _template(
        "submit-link",
        "Share the link {url} on the board {board}, with the title '{title}'.",
        {
            "board": "Marrowby",
            "url": "https://marrowby-gazette.example/new-benches",
            "title": "Benches for the river path",
        },
        {"board": "BirdLog", "url": "https://boxcam.example/swift-tower", "title": "A tower for swifts"},
        path=_submit,
        made=_submitted,
    ),
    _template(
        "popular-boards",
        "Which boards have more than {number} subscribers? Answer with their names, separated by commas.",
        {"number": 17},
        {"number": 15},
        path=lambda databases, values: (Click("link", "Boards"), Click("link", "By subscribers")),
        answer=_popular,
    ),
    _template(
        "message",
        "Send the member {member} the message '{text}'.",
        {"member": "quietgasket", "text": "Do you still mend lamps?"},
        {"member": "ottoline_k", "text": "Half of the cardamom is fine, thank you."},
        path=_write,
        made=lambda databases, values: {
            "forum.message": (Added({"sender": USER, "recipient": values["member"], "body": values["text"]}),)
        },
    ),
    _template(
        "block",
        "I do not want to read {member} any more: block this member.",
        {"member": "dice_tin"},
        {"member": "gable_end"},
        path=lambda databases, values: (*_on_member(databases, values["member"]), Click("button", "Block")),
        made=lambda databases, values: {"forum.block": (Added({"member": USER, "blocked": values["member"]}),)},
    ),
    _template(
        "best-comment",
        "Who wrote the comment with the highest score on the post '{title}'? Answer with the name.",
        {"title": "Painted all 84 figures"},
        {"title": "The washing machine that walks"},
        path=lambda databases, values: _found(values["title"]),
        answer=_best_comment,
    ),
    _template(
        "create-board",
        "Create a board named {name} with the title '{title}' and the description '{description}'.",
        {"name": "Beekeeping", "title": "Hives and honey", "description": "For those who are stung now and then."},
        {"name": "KiteField", "title": "Kites", "description": "Strings, sails and steady wind."},
        path=_found_board,
        made=_founded,
    ),
    _template(
        "comments-of",
        "Show me all comments of the member {member}, those with the highest score first.",
        {"member": "mossgatherer"},
        {"member": "tess_dunnock"},
        path=_to_comments,
        url="http://forum.test/user/{member}/comments?sort=top",
    ),
    _template(
        "edit-own",
        "Replace the text of my {which} post by '{text}'; leave its title as it is.",
        {"which": "newest", "text": "Solved: they have moved to the reservoir."},
        {"which": "oldest", "text": "With a soft pencil, I have learned since."},
        path=_on_own(
            lambda values: Click("link", "Edit post"),
            lambda values: Fill("textbox", "Text", str(values["text"])),
            lambda values: Click("button", "Save"),
        ),
        made=lambda databases, values: {
            "forum.post": (
                Edited({"id": _own(databases, values)["id"]}, {"body": values["text"], "edited": "2026-03-02 12:00"}),
            )
        },
    ),
    _template(
        "no-such-board",
        "How many posts are there on the board {board}? Answer with the number, or with N/A if there is no such board.",
        {"board": "Beekeeping"},
        {"board": "Woodcarving"},
        path=lambda databases, values: (Click("link", "Boards"),),
        answer=NOT_POSSIBLE,
    ),
    _template(
        "posts-of",
        "How many posts has the member {member} written in all? Answer with the number.",
        {"member": "late_harvest"},
        {"member": "old_meridian"},
        path=lambda databases, values: _on_member(databases, values["member"]),
        answer=_num_posts,
    ),
    _template(
        "write-back",
        "Somebody has written me a message lately. Answer the newest one with '{text}'.",
        {"text": "Gladly, they may stand on my windowsill."},
        {"text": "Not this year, I am sorry."},
        path=_write_back,
        made=lambda databases, values: {
            "forum.message": (Added({"sender": USER, "recipient": _latest_sender(databases), "body": values["text"]}),)
        },
    ),
    _template(
        "comment",
        "Comment on the post '{title}' with '{text}'.",
        {"title": "The bridge will be shut until June", "text": "The ferry runs twice a day."},
        {"title": "Dew, dew, dew", "text": "A hood of black felt is enough."},
        path=_comment,
        made=_commented,
    ),
    _template(
        "delete-own",
        "Delete my {which} post.",
        {"which": "oldest"},
        {"which": "newest"},
        path=_on_own(lambda values: Click("link", "Delete post"), lambda values: Click("button", "Delete")),
        made=_deleted,
    ),
)
