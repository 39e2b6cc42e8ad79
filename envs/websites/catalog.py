"""All sites, and all tasks on them by id.

What enters: what the sites' folders say. What leaves: `Task`s, in an order that stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import cache

from . import cross_site_tasks as several
from . import forum, shop, tracker, wiki
from .checks import told
from .framework.site import Site
from .hosting import opened
from .tasks import Task, Template

__all__ = ["HOSTS", "SITES", "TEMPLATES", "frozen", "tasks", "words"]

SITES: tuple[Site, ...] = (shop.SITE, forum.SITE, wiki.SITE, tracker.SITE)
HOSTS: tuple[str, ...] = tuple(host for site in SITES for host in site.hosts)
TEMPLATES: tuple[Template, ...] = (*shop.TASKS, *forum.TASKS, *wiki.TASKS, *tracker.TASKS, *several.TASKS)
_PARTS_OF: Mapping[str, Set[str]] = {"shop": {"shopping", "shopping_admin"}}
"""Where a site is more than the part of its name."""
_EVERY = 5
"""One template of so many of a site is held out."""


@cache  # the same for every instance
def tasks() -> Mapping[str, Task]:
    return {task.id: task for task in _all()}


def _all() -> Iterator[Task]:
    places: Counter[str] = Counter()
    for template in TEMPLATES:
        held_out = places[template.site] % _EVERY == _EVERY // 2
        places[template.site] += 1
        for number, values in enumerate(template.variants):
            name = f"{template.site}/{template.id}/{number}"
            yield Task(id=name, template=template, values=values, held_out=held_out)


def frozen() -> Iterator[str]:
    """A line for each task: its split, and the answer that is right."""
    before = {site.name: opened(site) for site in SITES}
    for name, task in tasks().items():
        truth = task.truth(before)
        yield f"{name} {'test' if task.held_out else 'train'}{'' if truth is None else f' {told(truth)}'}"


def words(parts: Set[str]) -> Iterator[str]:
    """All that the tasks about some parts say and that is answered to them, and the pages and data of their sites."""
    before = {site.name: opened(site) for site in SITES}
    for task in (task for task in tasks().values() if set(task.sites) <= parts):
        truth = task.truth(before)
        yield f"{task.intent} {'' if truth is None else told(truth)}"
    for site in (site for site in SITES if parts & _PARTS_OF.get(site.name, {site.name})):
        yield from (re.sub(r"<[^>]*>|{[^}]*}", " ", file.read_text("utf-8")) for file in site.templates.glob("*.html"))
        db = before[site.name]
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            yield from (" ".join(map(str, row)) for row in db.execute(f'SELECT * FROM "{table}"'))
