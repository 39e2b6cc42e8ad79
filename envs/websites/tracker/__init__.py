"""The project tracker: issues, merge requests, files and commits, for `tracker.test`."""

from pathlib import Path

from ..framework.site import Host, WebSite
from . import items, pages, projects
from .seed import USER, fill_tracker, make_slug

__all__ = ["SITE"]

_FOLDER = Path(__file__).parent

SITE = WebSite(
    name="tracker",
    hosts={
        "tracker.test": Host(
            title="Trackwright",
            user=USER,
            # projects last, as their addresses may begin with anything
            routes=(*pages.ROUTES, *projects.ROUTES, *items.ROUTES),
        )
    },
    schema=(_FOLDER / "schema.sql").read_text("utf-8"),
    fill=fill_tracker,
    templates=_FOLDER / "templates",
    shared=pages.share_tracker,
    functions={"slug": make_slug},
)
