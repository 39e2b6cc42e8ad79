"""All sites, and all tasks on them by id, in an order that never changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from . import forum, shop, tracker, wiki
from .checks import format_truth
from .framework.records import read_records
from .framework.site import WebSite
from .hosting import open_copy
from .task_files import read_templates
from .tasks import SiteTask, TaskTemplate

__all__ = [
    "HOSTS",
    "SITES",
    "describe_tasks",
    "list_drawn",
    "list_tasks",
    "list_templates",
    "list_words",
]

SITES: tuple[WebSite, ...] = (shop.SITE, forum.SITE, wiki.SITE, tracker.SITE)
HOSTS: tuple[str, ...] = tuple(host for site in SITES for host in site.hosts)
_FILES = ("shop/tasks", "shop/admin_tasks", "forum/tasks", "wiki/tasks", "tracker/tasks", "cross_site_tasks")
_PARTS_OF: Mapping[str, Set[str]] = {"shop": {"shopping", "shopping_admin"}}
"""Where a site is more than the part of its name."""
_EVERY = 5
"""One template in so many of a site is held out."""
_DRAWN_EVERY = 4
"""One variant in so many that a template draws is held out."""


@cache  # the same for every instance
def list_templates() -> tuple[TaskTemplate, ...]:
    folder = Path(__file__).parent
    return tuple(template for name in _FILES for template in read_templates(folder / f"{name}.yaml"))


@cache
def list_tasks() -> Mapping[str, SiteTask]:
    return {task.id: task for task in _number_tasks()}


def _number_tasks() -> Iterator[SiteTask]:
    places: Counter[str] = Counter()
    for template in list_templates():
        held_out = places[template.site] % _EVERY == _EVERY // 2
        places[template.site] += 1
        for number, values in enumerate(template.variants):
            name = f"{template.site}/{template.id}/{number}"
            yield SiteTask(id=name, template=template, values=values, held_out=held_out)


@cache
def list_drawn() -> Mapping[str, SiteTask]:
    """Tasks with variants from the data, numbered after those that are written down; one in four is held out."""
    return {task.id: task for task in _draw_tasks()}


def _draw_tasks() -> Iterator[SiteTask]:
    before = {site.name: open_copy(site) for site in SITES}
    for template in list_templates():
        if template.drawn is None:
            continue
        rows = read_records(before[template.drawn.site].execute(template.drawn.sql))
        names = {tuple(row) for row in rows}
        if names != {tuple(template.variants[0])}:
            raise ValueError(f"{template.id}: drawn variants must have the values {', '.join(template.variants[0])}")
        for number, values in enumerate(row for row in rows if row not in template.variants):
            name = f"{template.site}/{template.id}/{len(template.variants) + number}"
            held_out = number % _DRAWN_EVERY == _DRAWN_EVERY // 2
            yield SiteTask(id=name, template=template, values=values, held_out=held_out)


def describe_tasks() -> Iterator[str]:
    """A line for each task: its split and the right answer."""
    before = {site.name: open_copy(site) for site in SITES}
    for name, task in list_tasks().items():
        truth = task.truth(before)
        yield f"{name} {'test' if task.held_out else 'train'}{'' if truth is None else f' {format_truth(truth)}'}"


def list_words(parts: Set[str]) -> Iterator[str]:
    """Everything that the tasks about some parts say, expect and do, and all pages and data of their sites."""
    before = {site.name: open_copy(site) for site in SITES}
    tasks = (*list_tasks().values(), *list_drawn().values())
    for task in (task for task in tasks if set(task.template.needs) <= parts):
        truth = task.truth(before)
        yield f"{task.intent} {'' if truth is None else format_truth(truth)}"
        # labels that come from code are in no template
        yield from (text for action in task.path(before) for text in action.texts())
    for site in (site for site in SITES if parts & _PARTS_OF.get(site.name, {site.name})):
        yield from (_read_template(file.read_text("utf-8")) for file in sorted(site.templates.glob("*.html")))
        db = before[site.name]
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            yield from (" ".join(map(str, row)) for row in db.execute(f'SELECT * FROM "{table}"'))


def _read_template(text: str) -> str:
    """What pages of a template may say: its text, the labels in its tags, the strings in its expressions."""
    labels = re.findall(r'(?:aria-label|placeholder)="([^"]*)"', text)
    strings = (string for part in re.findall(r"{[^}]*}", text) for string in re.findall(r"'[^']*'|\"[^\"]*\"", part))
    return " ".join((re.sub(r"<[^>]*>|{[^}]*}", " ", text), *labels, *strings))
