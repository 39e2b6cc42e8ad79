"""Checks of a task's success by the answer and by the visit as the agent left it.

Texts are compared as WebArena compares them: without regard to case and to a pair of quotes around them.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Error
from playwright.async_api import Page as Leaf
from playwright.async_api import TimeoutError as Late

from ..errors import EnvFault, FaultKind
from ..protocol import YesNoQuestion
from ..web.session import Visit
from .tasks import PageTarget, SuccessCheck

__all__ = ["check_success", "list_questions", "matches_answer", "matches_text", "matches_url"]

_OR = " |OR| "
_TOKEN = re.compile(r"(?:[^\s.,:;@#$%&*?!'\"`«»“”„‘’()\[\]{}<>]|\.(?=\w)|[,:](?=\d))+|\S")
"""A word as nltk parts a text into words: `$0.50` is two, `2-3` one."""
_IDLE_MS = 3000
_GONE = re.compile(r"net::ERR_(?:CONNECTION|NAME|ADDRESS|INTERNET|NETWORK|SOCKET|SSL|TIMED|EMPTY)_|Page crashed")
"""What the driver says where it is not the page's fault, but the host's or the browser's."""


async def check_success(check: SuccessCheck, answer: str, visit: Visit, hosts: Mapping[str, str]) -> bool:
    """Whether all holds that a program can tell; the rest is for `list_questions`."""
    leaf = visit.tab.leaf
    if "string_match" in check.kinds and not matches_answer(check, answer):
        return False
    if "url_match" in check.kinds and not matches_url(check.url, leaf.url):
        return False
    if "program_html" not in check.kinds:
        return True
    look = _Look(leaf, Helpers(visit, hosts))
    return all([await look.holds(target) for target in check.targets])


# --- answers and addresses ---

_ALIKE = (
    "An agent was given the 'task' and gave the 'answer'. Does the answer say what 'expected' says? Other words, "
    "another order, another way to write a number, a date or a unit, and further details are all right, as long as the "
    "answer has all of 'expected' and nothing that contradicts it."
)
_REASON = (
    "The 'task' cannot be done, because of what 'expected' says. An agent that was given the task gave the 'answer'. "
    "Does the answer say that the task cannot be done, and for that reason?"
)


def list_questions(check: SuccessCheck, task: str, answer: str) -> tuple[YesNoQuestion, ...]:
    """What a judge must say yes to, where texts that are compared do not decide; no answer is worth no question."""
    if not answer.strip():
        return ()
    asked = [(_ALIKE, each) for each in check.alike]
    if check.reason and check.kinds == {"string_match"} and not matches_answer(check, answer):
        asked = [(_REASON, check.reason)]
    return tuple(
        YesNoQuestion(text=text, evidence={"task": task, "expected": expected, "answer": answer})
        for text, expected in asked
    )


def matches_answer(check: SuccessCheck, answer: str) -> bool:
    """Whether an answer is right as far as texts can be compared."""
    if check.exact is not None and _plain(answer) != _plain(check.exact):
        return False
    if check.unachievable and _plain(answer) != "n/a":
        return False
    return all(_mentions(wanted, answer, alone=len(check.include) == 1) for wanted in check.include)


def _mentions(wanted: str, answer: str, *, alone: bool) -> bool:
    plain = _plain(wanted)
    if alone and len(plain) == 1:  # or a 0 would be in every 10
        return plain in _TOKEN.findall(_plain(answer))
    return plain in _plain(answer)


def _plain(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return (text[1:-1] if quoted else text).lower()


def matches_url(reference: str, url: str) -> bool:
    """Whether an address matches one of the references, which may be partial."""
    references = [_split_url(each) for each in reference.split(_OR)]
    base, query = _split_url(url)
    wanted: dict[str, set[str]] = {}
    for _, each in references:
        for name, values in each.items():
            wanted.setdefault(name, set()).update(values)
    return any(other in base for other, _ in references) and all(
        values & set(query.get(name, ())) for name, values in wanted.items()
    )


def _split_url(url: str) -> tuple[str, Mapping[str, Sequence[str]]]:
    parts = urlsplit(url.rstrip("/"))
    return parts.netloc + parts.path, parse_qs(parts.query)


# --- pages ---


def matches_text(target: PageTarget, text: str) -> bool:
    if target.exact is not None:
        return _plain(text) == _plain(target.exact)
    return all(any(_plain(one) in _plain(text) for one in each.split(_OR)) for each in target.include)


class _Look:
    """Looks at pages in the agent's tab; as in WebArena, `last` is the page of the previous target, if any."""

    def __init__(self, leaf: Leaf, helpers: Helpers) -> None:
        self._leaf = leaf
        self._helpers = helpers

    async def holds(self, target: PageTarget) -> bool:
        url = await self._helpers.address(target.url, self._leaf.url)
        if url != "last" and not await _open(self._leaf, url):
            return False
        return matches_text(target, html.unescape(await self._text(target, self._leaf)))

    async def _text(self, target: PageTarget, leaf: Leaf) -> str:
        if not target.locator:
            return await leaf.content()
        if target.locator.startswith("func:"):
            return await self._helpers.text(target.locator, leaf)
        with suppress(Error):
            for expression in target.before:
                await leaf.evaluate(f"() => {expression}")
        with suppress(Error):  # a page that has no such thing has no text of it
            found = await leaf.evaluate(f"() => {target.locator}")
            return "" if found is None else str(found)
        return ""


async def _open(leaf: Leaf, url: str) -> bool:
    """Open a page; return whether it exists. A host that does not answer is a fault, not the agent's."""
    try:
        await leaf.goto(url, wait_until="load")
    except Late as error:
        raise EnvFault(f"{url[:200]} did not load in time", kind=FaultKind.DEADLINE) from error
    except Error as error:
        if _GONE.search(str(error)):
            raise EnvFault(f"{url[:200]} cannot be reached", kind=FaultKind.UNREACHABLE) from error
        return False
    with suppress(Late):  # a page that asks again and again is never idle
        await leaf.wait_for_load_state("networkidle", timeout=_IDLE_MS)
    return True


# --- helpers that task files call by name ---

_ADMIN = {"username": "admin", "password": "admin1234"}
"""Of the shop, as WebArena's image comes."""
_CALL = re.compile(r"func:(\w+)\((.*)\)", re.DOTALL)
_ROLE = """name => {
  for (const row of document.querySelectorAll("tr")) {
    const account = row.querySelector("td[data-label='Account'] span.gl-avatar-labeled-sublabel");
    const role = row.querySelector("td.col-max-role span");
    if (account && role && account.outerText === "@" + name) return role.outerText;
  }
  return "";
}"""


class Helpers:
    def __init__(self, visit: Visit, hosts: Mapping[str, str]) -> None:
        self._ask = visit.context.request
        self._hosts = hosts

    async def address(self, url: str, last: str) -> str:
        if not url.startswith("func:"):
            return url
        name, given = _parse_call(url)
        return await _ADDRESSES[name](self, *(each.replace("__last_url__", last) for each in given))

    async def text(self, locator: str, leaf: Leaf) -> str:
        name, given = _parse_call(re.sub(r"__page__\s*,?", "", locator))
        return await _TEXTS[name](self, leaf, *given)

    async def latest_order(self) -> str:
        query = "searchCriteria[sortOrders][0][field]=created_at&searchCriteria[sortOrders][0][direction]=DESC"
        number = await self._shop(
            f"orders?{query}&searchCriteria[pageSize]=1", lambda found: int(found["items"][0]["increment_id"])
        )
        return f"{self._hosts['shopping']}/sales/order/view/order_id/{number}/"

    async def post(self, url: str) -> str:
        """Address of a forum's post, from any page of it."""
        parts = urlsplit(url)
        path = parts.path.split("/")
        if len(path) < 4 or path[1] != "f":
            return url
        return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"

    async def review_author(self, leaf: Leaf, sku: str) -> str:
        return str(await self._review(sku, lambda review: review["nickname"]))

    async def review_rating(self, leaf: Leaf, sku: str) -> str:
        return str(await self._review(sku, lambda review: review["ratings"][0]["percent"]))

    async def _review(self, sku: str, read: Callable[[Any], object]) -> object:
        """Read from the latest review; empty where there is none."""
        return await self._shop(f"products/{sku}/reviews", lambda found: read(found[-1]) if found else "")

    async def role(self, leaf: Leaf, account: str) -> str:
        return str(await leaf.evaluate(_ROLE, account))

    async def _shop(self, path: str, read: Callable[[Any], object]) -> object:
        """Read from the shop's answer; one of another form is a fault."""
        shop = self._hosts["shopping"]
        try:
            token = await self._ask.post(f"{shop}/rest/default/V1/integration/admin/token", data=_ADMIN)
            headers = {"Authorization": f"Bearer {await token.json()}"}
            response = await self._ask.get(f"{shop}/rest/V1/{path}", headers=headers)
            return read(await response.json())
        except (LookupError, TypeError, ValueError) as error:
            raise EnvFault(f"{shop} did not answer as a shop: {error!r}", kind=FaultKind.GARBAGE) from error


def _parse_call(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a helper's name and arguments without running anything."""
    match = _CALL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text[:100]}' calls no helper")
    given = match[2].strip()
    return match[1], tuple(map(str, ast.literal_eval(f"({given},)"))) if given else ()


_ADDRESSES: Mapping[str, Callable[..., Awaitable[str]]] = {
    "shopping_get_latest_order_url": Helpers.latest_order,
    "reddit_get_post_url": Helpers.post,
}
_TEXTS: Mapping[str, Callable[..., Awaitable[str]]] = {
    "shopping_get_sku_latest_review_author": Helpers.review_author,
    "shopping_get_sku_latest_review_rating": Helpers.review_rating,
    "gitlab_get_project_memeber_role": Helpers.role,
}
