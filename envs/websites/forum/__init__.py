"""The forum: boards of links and discussions, for `forum.test`."""

from pathlib import Path

from ..framework.site import Host, Site, get
from . import actions as deeds
from . import pages
from .seed import USER, fill

__all__ = ["SITE"]

_FOLDER = Path(__file__).parent

SITE = Site(
    name="forum",
    hosts={
        "forum.test": Host(
            title="Lanternfield Forum",
            user=USER,
            routes=(
                get("/", pages.front),
                get("/all", pages.all_posts),
                get("/boards", pages.boards),
                get("/search", pages.search),
                get("/inbox", pages.inbox),
                get("/inbox/<name>", pages.conversation),
                get("/replies", pages.replies),
                get("/blocked", pages.blocked),
                get("/user/<name>", pages.member),
                get("/user/<name>/posts", pages.member_posts),
                get("/user/<name>/comments", pages.member_comments),
                # before posts, whose numbers would take the words' place
                *deeds.ROUTES,
                get("/b/<board>", pages.one_board),
                get("/b/<board>/<post>", pages.one_post),
            ),
        )
    },
    schema=(_FOLDER / "schema.sql").read_text("utf-8"),
    fill=fill,
    templates=_FOLDER / "templates",
    shared=pages.shared,
)
