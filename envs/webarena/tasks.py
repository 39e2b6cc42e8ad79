"""WebArena's own files of tasks.

Reads a JSON list of configurations into `WebArenaTask`s, in the file's order, with addresses in place of names such as
`__SHOPPING__`. Left out, and counted: tasks on sites without an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadOption

__all__ = ["CATEGORIES", "PageTarget", "SuccessCheck", "WebArenaTask", "WebArenaTasks", "load_tasks"]

CATEGORIES: Mapping[str, str] = {
    "shopping": "shopping",
    "forum": "reddit",
    "gitlab": "gitlab",
    "map": "map",
    "cms": "shopping_admin",
}
"""Splits by the one site that a task is about."""

_BESIDE = frozenset(("wikipedia", "homepage"))
"""Sites to look things up on, which make no category."""
_KINDS = frozenset(("string_match", "url_match", "program_html"))
_EVERY = 5
"""One task template in so many is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTarget:
    """Something that must be on a page in the end."""

    url: str
    """Where; `last` is where the agent was, and `func:` says how to find it."""
    locator: str
    """What of the page: an expression of JavaScript, a helper by `func:`, or nothing for all of it."""
    before: tuple[str, ...] = ()
    """Expressions to be run first."""
    exact: str | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessCheck:
    """Conditions of success, all of which must hold."""

    kinds: frozenset[str]
    exact: str | None = None
    include: tuple[str, ...] = ()
    unachievable: bool = False
    """The answer must be N/A, or, by a judge, say why it cannot be done."""
    alike: tuple[str, ...] = ()
    """What the answer must say in its own words, by a judge."""
    reason: str = ""
    """Why the task cannot be done."""
    url: str = ""
    targets: tuple[PageTarget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebArenaTask:
    id: str
    sites: tuple[str, ...]
    start: tuple[str, ...]
    """A tab for each."""
    intent: str
    state: Path | None
    """Cookies of whoever is logged in."""
    check: SuccessCheck
    held_out: bool

    @property
    def category(self) -> str | None:
        about = set(self.sites) - _BESIDE
        return next((name for name, site in CATEGORIES.items() if about == {site}), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebArenaTasks:
    by_id: Mapping[str, WebArenaTask]
    left_out: int


class _Left(Exception):
    """A task that cannot be played here."""


def load_tasks(file: Path, hosts: Mapping[str, str]) -> WebArenaTasks:
    try:
        listed = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise BadOption(f"{file} is not JSON: {error}") from error
    if not isinstance(listed, list):
        listed = [listed]
    tasks: dict[str, WebArenaTask] = {}
    left_out = 0
    for number, config in enumerate(listed):
        try:
            task = _task(config, hosts, file.parent)
        except _Left:
            left_out += 1
            continue
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadOption(f"{file}: task number {number} is not of WebArena's form: {error!r}") from error
        if task.id in tasks:
            raise BadOption(f"{file}: there are two tasks '{task.id}'")
        tasks[task.id] = task
    return WebArenaTasks(by_id=tasks, left_out=left_out)


def _task(config: Mapping[str, Any], hosts: Mapping[str, str], folder: Path) -> WebArenaTask:
    sites = tuple(map(str, config["sites"]))
    if not set(sites) <= set(hosts):
        raise _Left
    state = config.get("storage_state")
    template = config.get("intent_template_id", config["task_id"])
    return WebArenaTask(
        id=str(config["task_id"]),
        sites=sites,
        start=tuple(_put_addresses(str(config["start_url"]), hosts).split(" |AND| ")),
        intent=str(config["intent"]),
        state=folder / state if state else None,
        check=_check(config["eval"], hosts),
        held_out=int(template) % _EVERY == 0,
    )


def _put_addresses(text: str, hosts: Mapping[str, str]) -> str:
    """Replace names of sites by their addresses."""

    def address(match: re.Match[str]) -> str:
        site = match[1].lower()
        if site not in hosts:
            raise _Left
        return hosts[site]

    return re.sub(r"__(SHOPPING_ADMIN|SHOPPING|REDDIT|GITLAB|MAP|WIKIPEDIA|HOMEPAGE)__", address, text)


def _check(config: Mapping[str, Any], hosts: Mapping[str, str]) -> SuccessCheck:
    kinds = frozenset(map(str, config["eval_types"]))
    if not kinds or not kinds <= _KINDS:
        raise ValueError(f"eval_types {sorted(kinds)}")
    answers = (config.get("reference_answers") or {}) if "string_match" in kinds else {}
    unknown = set(answers) - {"exact_match", "must_include", "fuzzy_match"}
    if unknown or ("string_match" in kinds and not answers):
        raise ValueError(f"reference_answers {sorted(unknown)}")
    fuzzy = answers.get("fuzzy_match")
    unachievable = fuzzy == "N/A"
    if "url_match" in kinds and config.get("url_note", "GOLD in PRED") != "GOLD in PRED":
        raise ValueError(f"url_note {config['url_note']}")
    return SuccessCheck(
        kinds=kinds,
        exact=_text(answers.get("exact_match")),
        include=_texts(answers.get("must_include", ())),
        unachievable=unachievable,
        alike=() if unachievable or fuzzy is None else _texts(fuzzy),
        reason=str(config.get("string_note") or "").strip() if unachievable else "",
        url=_put_addresses(str(config.get("reference_url") or ""), hosts),
        targets=tuple(_target(each, hosts) for each in config.get("program_html") or ()),
    )


def _target(config: Mapping[str, Any], hosts: Mapping[str, str]) -> PageTarget:
    required = config["required_contents"]
    if not set(required) <= {"exact_match", "must_include"} or len(required) != 1:
        raise ValueError(f"required_contents {required}")
    return PageTarget(
        url=_put_addresses(str(config["url"]), hosts),
        locator=str(config.get("locator") or "").strip(),
        before=_texts(config.get("prep_actions", ())),
        exact=_text(required.get("exact_match")),
        include=_texts(required.get("must_include", ())),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _texts(value: Sequence[object]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError("expected a list of texts")
    return tuple(map(str, value))
