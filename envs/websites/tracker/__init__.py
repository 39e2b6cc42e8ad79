"""The project tracker: issues, merge requests, files and commits, for `tracker.test`."""

from pathlib import Path

from ..framework.site import Host, Site
from . import items, pages, projects
from .seed import USER, fill, slug

__all__ = ["SITE"]

_FOLDER = Path(__file__).parent

SITE = Site(
    name="tracker",
    hosts={
        "tracker.test": Host(
            title="Trackwright",
            user=USER,
            # projects last, for their addresses begin with anything
            routes=(*pages.ROUTES, *projects.ROUTES, *items.ROUTES),
        )
    },
    schema=(_FOLDER / "schema.sql").read_text("utf-8"),
    fill=fill,
    templates=_FOLDER / "templates",
    shared=pages.shared,
    functions={"slug": slug},
)
