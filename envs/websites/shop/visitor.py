"""Who is visiting, what they are told, and what is on every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first
from ..framework.site import PageHandler, PageRequest, PageRoute, Redirect, SitePage
from .forms import FilledForm, FormField
from .rows import fetch_number

__all__ = [
    "CLERK",
    "SHOP",
    "ask",
    "get_customer",
    "get_my_id",
    "notify",
    "require_clerk",
    "require_customer",
    "share_shop",
]

SHOP = "shop.test"
CLERK = ("clerk", "larkstall")
"""Who may enter the admin side, and with which password."""


def get_customer(db: Connection, request: PageRequest) -> DataRow | None:
    return fetch_first(db, "SELECT * FROM customer WHERE email = ?", request.user) if request.host == SHOP else None


def get_my_id(db: Connection, request: PageRequest) -> int | None:
    found = get_customer(db, request)
    return None if found is None else int(found["id"])


def require_customer(*routes: PageRoute) -> tuple[PageRoute, ...]:
    """Send visitors who have not logged in to the login page."""
    return _require(lambda db, request: get_customer(db, request) is not None, routes)


def require_clerk(*routes: PageRoute) -> tuple[PageRoute, ...]:
    return _require(lambda db, request: request.user == CLERK[0], routes)


def _require(may: Callable[[Connection, PageRequest], bool], routes: Sequence[PageRoute]) -> tuple[PageRoute, ...]:
    def guard(handler: PageHandler) -> PageHandler:
        return lambda db, request, parts: handler(db, request, parts) if may(db, request) else Redirect(to="/login")

    return tuple(PageRoute(each.method, each.pattern, guard(each.handler)) for each in routes)


def notify(db: Connection, request: PageRequest, text: str) -> None:
    """Show a message once, on the next page of this host."""
    db.execute("INSERT OR REPLACE INTO notice VALUES (?, ?)", (request.host, text))


def share_shop(db: Connection, request: PageRequest) -> Mapping[str, object]:
    said = fetch_first(db, "DELETE FROM notice WHERE host = ? RETURNING text", request.host)
    values: dict[str, object] = {"notice": said["text"] if said else ""}
    if request.host != SHOP:
        return values | {"base": "admin.html"}
    customer = get_customer(db, request)
    mine = customer["id"] if customer else None
    return values | {
        "base": "shop.html",
        "me": customer,
        "menu": fetch_all(db, "SELECT * FROM category ORDER BY id"),
        "in_basket": fetch_number(db, "SELECT sum(quantity) FROM basket WHERE customer_id IS ?", mine),
        "infos": fetch_all(db, "SELECT * FROM page WHERE enabled ORDER BY title"),
    }


def ask(
    title: str,
    fields: Sequence[FormField],
    filled: FilledForm,
    *,
    button: str = "Save",
    ways: Mapping[str, str] | None = None,
) -> SitePage:
    """A page with a form that is sent to its own address; `ways` are further buttons and where they lead."""
    values = {"title": title, "fields": fields, "filled": filled, "button": button, "ways": ways or {}}
    return SitePage(template="form.html", values=values, status=400 if filled.faults else 200)
