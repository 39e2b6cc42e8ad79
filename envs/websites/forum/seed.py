"""Fill the forum with what an episode begins with, always the same for the same random generator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from sqlite3 import Connection
from typing import Any, Final

from ..framework.site import NOW, TODAY, format_moment

__all__ = ["PASSWORD", "USER", "fill_forum"]

USER: Final = "pine_lantern"
"""Whose forum it is in an episode."""
PASSWORD: Final = "seedlings-and-rails"

_NUM_POSTS = 150
_NUM_COMMENTS = 500
_OLDEST_MINUTES = 350 * 24 * 60


@dataclass(frozen=True, slots=True)
class _Post:
    board: str
    author: str
    title: str
    body: str
    thing: str
    created: datetime


def fill_forum(db: Connection, rng: Random) -> None:
    texts = json.loads((Path(__file__).parent / "data" / "texts.json").read_text("utf-8"))
    members = list(texts["members"])
    _people(db, rng, texts["members"])
    _boards(db, rng, texts["boards"], members)
    posts = sorted(_posts(rng, texts["boards"], members), key=lambda post: post.created)
    db.executemany(
        "INSERT INTO post VALUES (?, ?, ?, ?, ?, ?, ?, '')",
        [
            (number, each.board, each.author, each.title, *_link_or_text(each.body), format_moment(each.created))
            for number, each in enumerate(posts, 1)
        ],
    )
    _comments(db, rng, posts, texts, members)
    for kind in ("post", "comment"):
        _votes(db, rng, kind, members)
    _messages(db, rng, texts["messages"])


def _people(db: Connection, rng: Random, members: Mapping[str, str]) -> None:
    for name, biography in members.items():
        password = PASSWORD if name == USER else f"{rng.getrandbits(64):016x}"
        joined = TODAY - timedelta(days=rng.randint(420, 2400))
        db.execute("INSERT INTO member VALUES (?, ?, ?, ?)", (name, password, biography, joined.isoformat()))


def _boards(db: Connection, rng: Random, boards: Mapping[str, Any], members: Sequence[str]) -> None:
    for name, board in boards.items():
        founded = TODAY - timedelta(days=rng.randint(360, 415))
        about = (board["title"], board["description"], board["sidebar"], board["founder"], founded.isoformat())
        db.execute("INSERT INTO board VALUES (?, ?, ?, ?, ?, ?)", (name, *about))
        others = [member for member in members if member not in (USER, board["founder"])]
        there = {board["founder"], *rng.sample(others, rng.randint(4, 19))}
        if name in ("Allotment", "Railways", "Marrowby"):
            there.add(USER)
        db.executemany("INSERT INTO subscription VALUES (?, ?)", [(member, name) for member in sorted(there)])


def _posts(rng: Random, boards: Mapping[str, Any], members: Sequence[str]) -> Iterator[_Post]:
    each, more = divmod(_NUM_POSTS, len(boards))
    for index, (name, board) in enumerate(boards.items()):
        written = [tuple(post) for post in board["posts"]]
        pairs = [(thing, asked) for thing in board["things"] for asked in board["asked"]]
        for thing, (title, body) in rng.sample(pairs, each + (index < more) - len(written)):
            filled = title.format(thing=thing)
            written.append((filled[0].upper() + filled[1:], body.format(thing=thing), thing))
        for title, body, thing in written:
            # more of late than long ago
            ago = timedelta(minutes=180 + int(rng.random() ** 2 * _OLDEST_MINUTES))
            yield _Post(name, rng.choice(members), title, body, thing, NOW - ago)


def _link_or_text(body: str) -> tuple[str, str]:
    return (body, "") if body.startswith("https://") else ("", body)


def _comments(
    db: Connection, rng: Random, posts: Sequence[_Post], texts: Mapping[str, Any], members: Sequence[str]
) -> None:
    weights = [rng.paretovariate(1.3) for _ in posts]
    written: list[tuple[datetime, int, int | None, str, str]] = []
    by_post: dict[int, list[int]] = {}
    for number in rng.choices(range(len(posts)), [min(weight, 8) for weight in weights], k=_NUM_COMMENTS):
        before = by_post.setdefault(number, [])
        parent = rng.choice(before) if before and rng.random() < 0.45 else None
        since = posts[number].created if parent is None else written[parent][0]
        after = since + min(timedelta(minutes=3 + int(rng.expovariate(1 / 700))), (NOW - since) * 0.9)
        previous = None if parent is None else written[parent][3]
        author = rng.choice([member for member in members if member != previous])
        body = _said(rng, texts, posts[number], reply=parent is not None, taken={written[i][4] for i in before})
        before.append(len(written))
        written.append((after, number, parent, author, body))
    # numbered by time, as if each had been written when it says
    order = sorted(range(len(written)), key=lambda index: (written[index][0], index))
    numbers = {index: number for number, index in enumerate(order, 1)}
    for index in order:
        created, post, parent, author, body = written[index]
        row = (
            numbers[index],
            post + 1,
            None if parent is None else numbers[parent],
            author,
            body,
            format_moment(created),
        )
        db.execute("INSERT INTO comment VALUES (?, ?, ?, ?, ?, ?, '', 0)", row)


def _said(rng: Random, texts: Mapping[str, Any], post: _Post, *, reply: bool, taken: set[str]) -> str:
    """Something not yet said below this post, as long as there is any."""
    own = texts["boards"][post.board]["remarks"]
    likely = [*texts["replies"], *own] if reply else [*own, *own, *texts["remarks"]]
    said = [each.format(thing=post.thing) for each in likely]
    new = [each for each in said if each not in taken]
    first = rng.choice(new or said)
    return first if rng.random() < 0.7 else f"{first} {rng.choice(texts['remarks']).format(thing=post.thing)}"


def _votes(db: Connection, rng: Random, kind: str, members: Sequence[str]) -> None:
    eager = {"post": 0.9, "comment": 0.3}[kind]
    for thing, author in db.execute(f"SELECT id, author FROM {kind} ORDER BY id").fetchall():
        liked = rng.betavariate(4, 1.2) if kind == "post" else rng.betavariate(1.4, 0.7)
        for member in members:
            if member == author:
                value = 1
            elif member == USER or rng.random() > eager * rng.uniform(0.3, 1):
                continue
            else:
                value = 1 if rng.random() < liked else -1
            db.execute("INSERT INTO vote VALUES (?, ?, ?, ?)", (member, kind, thing, value))


def _messages(db: Connection, rng: Random, messages: Sequence[tuple[str, str]]) -> None:
    for number, (sender, body) in enumerate(messages):
        ago = timedelta(days=3 * (len(messages) - number), minutes=rng.randint(0, 900))
        row = (number + 1, sender, USER, body, format_moment(NOW - ago))
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
