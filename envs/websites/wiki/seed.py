"""Fill the wiki with what an episode begins with: pages and their histories, talk, and who watches what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from random import Random
from sqlite3 import Connection

from ..framework.site import TODAY
from .articles import Article, write_articles

__all__ = ["USER", "fill_wiki"]

USER = "fernhollow"
"""Who is logged in when an episode begins."""

_USERS: Sequence[tuple[str, str]] = (
    (USER, "I mostly look after the pages on places."),
    ("tidewatch", "Steward. Ask me about ferries."),
    ("ledgerkeeper", "Steward. Figures, dates, and where they come from."),
    ("quayside", "Born in Skerrow, living in Dunsea."),
    ("saltbox", "Recipes and festivals."),
    ("lanternjack", "I have climbed every tower on the isles."),
    ("copperkettle", "Hask, mining, and nothing after 1900."),
    ("oxbeck_otter", "Rivers and what lives in them."),
    ("mothwing", "New here. Please tell me when I get it wrong."),
    ("drystone", "Walls, hills, weather."),
)
_SUMMARIES = (
    "Spelling",
    "Better wording",
    "Checked the figures against the yearbook",
    "Added a source",
    "New paragraph",
    "Corrected a date",
    "Links",
    "Shorter",
)
_TALK: Sequence[tuple[str, str]] = (
    ("Where does the year come from? The yearbook has another one.", "It is from the parish register, which is older."),
    ("Should we have a picture here?", "I can go there next week if the weather holds."),
    ("The lead is rather long.", "I have shortened it a little."),
    ("My grandmother always told it differently.", "Then we should say that there are two accounts."),
    ("Is the name spelled like this on the signs?", "Yes, since the new signs went up."),
    ("This needs something on how to get there.", "Agreed, but let us not copy the timetable."),
    ("I have counted again and come to another number.", "Did you count the boathouse?"),
    ("Could somebody check the second paragraph?", "Done, it was fine."),
)
_TALKED_ABOUT = 24
_WATCHED = ("Skerrow", "Oxmere", "Cold Point Light", "Herring Fair", "Corran Top", "Merrow Line", "Museum of Lights")
_FIRST = date(2021, 4, 12)


def fill_wiki(db: Connection, rng: Random) -> None:
    for number, (name, about) in enumerate(_USERS):
        joined = _FIRST + timedelta(days=60 * number + rng.randrange(60))
        db.execute("INSERT INTO users VALUES (?, ?, ?, ?)", (name, f"{name}-pass", joined.isoformat(), about))
    made = write_articles(rng)
    for article in made:
        db.execute("INSERT INTO pages(title, protected) VALUES (?, ?)", (article.title, article.protected))
    pages = {title: number for number, title in db.execute("SELECT id, title FROM pages")}
    for day, title, author, summary, text in _order_edits(made, rng):
        db.execute(
            "INSERT INTO revisions(page, author, day, summary, text) VALUES (?, ?, ?, ?, ?)",
            (pages[title], author, day.isoformat(), summary, text),
        )
    _fill_talk(db, list(pages.values()), rng)
    db.executemany("INSERT INTO watches VALUES (?, ?)", [(USER, pages[title]) for title in _WATCHED])


_Edit = tuple[date, str, str, str, str]


def _order_edits(made: Sequence[Article], rng: Random) -> list[_Edit]:
    """All edits of all pages, by day."""
    return sorted((edit for article in made for edit in _write_history(article, rng)), key=lambda edit: edit[:2])


def _write_history(article: Article, rng: Random) -> Iterator[_Edit]:
    """The revisions of an article, from a first sketch to today, on different days."""
    growing = [_sketch(article), *(_leave_out(article, number) for number in range(len(article.sections)))]
    texts = [*growing[: rng.randrange(1, 5)], article.text]
    texts = [text for number, text in enumerate(texts) if text not in texts[number + 1 :]]
    span = (TODAY - _FIRST).days
    days = sorted(rng.sample(range(700, span), len(texts)))  # when all were there
    for number, (text, days_after) in enumerate(zip(texts, days, strict=True)):
        author = "tidewatch" if article.protected else rng.choice(_USERS)[0]
        summary = rng.choice(_SUMMARIES) if number else "New page"
        yield _FIRST + timedelta(days=days_after), article.title, author, summary, text


def _sketch(article: Article) -> str:
    """The article with nothing but its lead."""
    return Article(title=article.title, lead=article.lead, categories=article.categories).text


def _leave_out(article: Article, number: int) -> str:
    """The article without one of its sections."""
    kept = [each for place, each in enumerate(article.sections) if place != number]
    return Article(
        title=article.title, facts=article.facts, lead=article.lead, sections=kept, categories=article.categories
    ).text


def _fill_talk(db: Connection, pages: Sequence[int], rng: Random) -> None:
    for page in sorted(rng.sample(pages, _TALKED_ABOUT)):
        day = TODAY - timedelta(days=rng.randrange(40, 700))
        for question, reply in rng.sample(_TALK, rng.randrange(1, 3)):
            first, second = rng.sample([name for name, _ in _USERS], 2)
            for author, text in ((first, question), (second, reply)):
                db.execute(
                    "INSERT INTO comments(page, author, day, text) VALUES (?, ?, ?, ?)",
                    (page, author, day.isoformat(), text),
                )
                day += timedelta(days=rng.randrange(1, 9))
