"""Whether a task was a success.

What enters: a task's check, the answer, and the visit as the agent left it. What leaves: yes or no. Texts are compared
as WebArena compares them: without regard to case and to a pair of quotes around them.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import APIResponse, Error
from playwright.async_api import Page as Leaf

from ..web.visit import Visit
from .tasks import Check, Target

__all__ = ["answers", "contains", "leads_to", "succeeded"]

_OR = " |OR| "


async def succeeded(check: Check, answer: str, visit: Visit, hosts: Mapping[str, str]) -> bool:
    leaf = visit.tab.leaf
    if "string_match" in check.kinds and not answers(check, answer):
        return False
    if "url_match" in check.kinds and not leads_to(check.url, leaf.url):
        return False
    if "program_html" not in check.kinds:
        return True
    return all([await _Look(visit, hosts).holds(target) for target in check.targets])


# --- answers and addresses ---


def answers(check: Check, answer: str) -> bool:
    if check.exact is not None and _plain(answer) != _plain(check.exact):
        return False
    if check.unachievable and _plain(answer) != "n/a":
        return False
    return all(_said(wanted, answer, alone=len(check.include) == 1) for wanted in check.include)


def _said(wanted: str, answer: str, *, alone: bool) -> bool:
    plain = _plain(wanted)
    if alone and len(plain) == 1:  # or a 0 would be in every 10
        return plain in re.findall(r"\w+|[^\w\s]", _plain(answer))
    return plain in _plain(answer)


def _plain(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return (text[1:-1] if quoted else text).lower()


def leads_to(reference: str, url: str) -> bool:
    """Whether an address is one of the references, as far as those go."""
    references = [_parted(each) for each in reference.split(_OR)]
    base, query = _parted(url)
    wanted: dict[str, set[str]] = {}
    for _, each in references:
        for name, values in each.items():
            wanted.setdefault(name, set()).update(values)
    return any(other in base for other, _ in references) and all(
        values & set(query.get(name, ())) for name, values in wanted.items()
    )


def _parted(url: str) -> tuple[str, Mapping[str, Sequence[str]]]:
    parts = urlsplit(url.rstrip("/"))
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)


# --- pages ---


def contains(target: Target, text: str) -> bool:
    if target.exact is not None:
        return _plain(text) == _plain(target.exact)
    return all(any(_plain(one) in _plain(text) for one in each.split(_OR)) for each in target.include)


class _Look:
    """At pages, in a tab of its own where they are not the agent's."""

    def __init__(self, visit: Visit, hosts: Mapping[str, str]) -> None:
        self._visit = visit
        self._last = visit.tab.leaf
        self._helpers = Helpers(visit, hosts)

    async def holds(self, target: Target) -> bool:
        url = await self._helpers.address(target.url, self._last.url)
        if url == "last":
            return contains(target, html.unescape(await self._text(target, self._last)))
        leaf = await self._visit.context.new_page()
        try:
            await leaf.goto(url, wait_until="networkidle")
            return contains(target, html.unescape(await self._text(target, leaf)))
        except Error:  # there is no such page
            return False
        finally:
            await leaf.close()

    async def _text(self, target: Target, leaf: Leaf) -> str:
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
        name, given = _called(url.replace("__last_url__", last))
        return await _ADDRESSES[name](self, *given)

    async def text(self, locator: str, leaf: Leaf) -> str:
        name, given = _called(re.sub(r"__page__\s*,?", "", locator))
        return await _TEXTS[name](self, leaf, *given)

    async def latest_order(self) -> str:
        query = "searchCriteria[sortOrders][0][field]=created_at&searchCriteria[sortOrders][0][direction]=DESC"
        response = await self._shop(f"orders?{query}&searchCriteria[pageSize]=1")
        (order,) = (await response.json())["items"]
        return f"{self._hosts['shopping']}/sales/order/view/order_id/{int(order['increment_id'])}/"

    async def post(self, url: str) -> str:
        """A forum's post, whatever of it was looked at."""
        parts = urlsplit(url)
        path = parts.path.split("/")
        if len(path) < 4 or path[1] != "f":
            return url
        return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"

    async def review_author(self, leaf: Leaf, sku: str) -> str:
        reviews = await (await self._shop(f"products/{sku}/reviews")).json()
        return str(reviews[-1]["nickname"]) if reviews else ""

    async def review_rating(self, leaf: Leaf, sku: str) -> str:
        reviews = await (await self._shop(f"products/{sku}/reviews")).json()
        return str(reviews[-1]["ratings"][0]["percent"]) if reviews else ""

    async def role(self, leaf: Leaf, account: str) -> str:
        return str(await leaf.evaluate(_ROLE, account))

    async def _shop(self, path: str) -> APIResponse:
        shop = self._hosts["shopping"]
        token = await self._ask.post(f"{shop}/rest/default/V1/integration/admin/token", data=_ADMIN)
        headers = {"Authorization": f"Bearer {await token.json()}"}
        return await self._ask.get(f"{shop}/rest/V1/{path}", headers=headers)


def _called(text: str) -> tuple[str, tuple[str, ...]]:
    """The helper's name and what it is given; nothing of it is run."""
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
