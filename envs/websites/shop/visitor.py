"""Who is there, what they are told, and what is on every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Connection

from ..framework.records import Record, first, rows
from ..framework.site import TODAY, Handler, Page, Redirect, Request, Route
from .forms import Field, Filled
from .rows import number

__all__ = ["CLERK", "NOW", "SHOP", "asking", "me", "my_id", "require_clerk", "require_customer", "say", "shared"]

SHOP = "shop.test"
CLERK = ("clerk", "larkstall")
"""Who may in at the admin side, and with which words."""
NOW = f"{TODAY} 12:00"


def me(db: Connection, request: Request) -> Record | None:
    return first(db, "SELECT * FROM customer WHERE email = ?", request.user) if request.host == SHOP else None


def my_id(db: Connection, request: Request) -> int | None:
    found = me(db, request)
    return None if found is None else int(found["id"])


def require_customer(*routes: Route) -> tuple[Route, ...]:
    """Send those who have not logged in to the login page instead."""
    return _require(lambda db, request: me(db, request) is not None, routes)


def require_clerk(*routes: Route) -> tuple[Route, ...]:
    return _require(lambda db, request: request.user == CLERK[0], routes)


def _require(may: Callable[[Connection, Request], bool], routes: Sequence[Route]) -> tuple[Route, ...]:
    def guard(handler: Handler) -> Handler:
        return lambda db, request, parts: handler(db, request, parts) if may(db, request) else Redirect(to="/login")

    return tuple(Route(each.method, each.pattern, guard(each.handler)) for each in routes)


def say(db: Connection, request: Request, text: str) -> None:
    """Once, on the next page of this host."""
    db.execute("INSERT OR REPLACE INTO notice VALUES (?, ?)", (request.host, text))


def shared(db: Connection, request: Request) -> Mapping[str, object]:
    said = first(db, "DELETE FROM notice WHERE host = ? RETURNING text", request.host)
    values: dict[str, object] = {"notice": said["text"] if said else ""}
    if request.host != SHOP:
        return values | {"base": "admin.html"}
    customer = me(db, request)
    mine = customer["id"] if customer else None
    return values | {
        "base": "shop.html",
        "me": customer,
        "menu": rows(db, "SELECT * FROM category ORDER BY id"),
        "in_basket": number(db, "SELECT sum(quantity) FROM basket WHERE customer_id IS ?", mine),
        "infos": rows(db, "SELECT * FROM page WHERE enabled ORDER BY title"),
    }


def asking(
    title: str, fields: Sequence[Field], filled: Filled, *, button: str = "Save", ways: Mapping[str, str] | None = None
) -> Page:
    """A page with a form that is sent to its own address; `ways` are other buttons, and where they lead."""
    values = {"title": title, "fields": fields, "filled": filled, "button": button, "ways": ways or {}}
    return Page(template="form.html", values=values, status=400 if filled.faults else 200)
