"""The forum: boards of links and discussions, for `forum.test`."""

from pathlib import Path

from ..framework.site import Host, WebSite
from . import actions, pages
from .seed import USER, fill_forum

__all__ = ["SITE"]

_FOLDER = Path(__file__).parent

SITE = WebSite(
    name="forum",
    hosts={
        "forum.test": Host(
            title="Lanternfield Forum",
            user=USER,
            # actions first: numbers of posts would take the place of their words
            routes=(*actions.ROUTES, *pages.ROUTES),
        )
    },
    schema=(_FOLDER / "schema.sql").read_text("utf-8"),
    fill=fill_forum,
    templates=_FOLDER / "templates",
    shared=pages.share_forum,
)
