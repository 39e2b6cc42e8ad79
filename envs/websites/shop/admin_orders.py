"""The clerk's orders: found, invoiced, shipped, called off, remarked upon."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import Record
from ..framework.site import TODAY, Answer, Page, Redirect, Refused, Request, Route, Wrong, get, post, whole
from .account import STATUSES, call_off, order_values
from .forms import Field, amount, day, read
from .listing import Filter, Sorts, listed
from .rows import existing, save
from .visitor import NOW, require_clerk, say

__all__ = ["CARRIERS", "ROUTES"]

CARRIERS = ("Swiftlane Post", "Harbour Parcel", "Greyheron Freight")
_PER_PAGE = 15

_SORTS: Sorts = {
    "new": ("Newest first", "placed DESC"),
    "old": ("Oldest first", "placed"),
    "total-high": ("Highest total first", "total DESC"),
    "total-low": ("Lowest total first", "total"),
}
_FILTERS = (
    Filter(Field("number", "Order number"), "id LIKE ?"),
    Filter(Field("customer", "Customer"), "customer || ' ' || email LIKE ?"),
    Filter(Field("status", "Status", "select", options=STATUSES), "status = ?"),
    Filter(Field("from", "Placed from", "date", day), "substr(placed, 1, 10) >= ?"),
    Filter(Field("to", "Placed to", "date", day), "substr(placed, 1, 10) <= ?"),
    Filter(Field("least", "Total from", take=amount), "total >= ?"),
)
_SHIPMENT = (
    Field("carrier", "Carrier", "select", options=tuple((each, each) for each in CARRIERS)),
    Field("tracking", "Tracking number"),
)
_REMARK = (Field("body", "Comment", "area"), Field("told", "Tell the customer", "check"))


def _orders(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    listing = listed(db, request, "bill", filters=_FILTERS, sorts=_SORTS, size=_PER_PAGE)
    return Page(template="admin_orders.html", values={"listing": listing})


def _found(db: Connection, parts: Mapping[str, str]) -> Record:
    return existing(db, "SELECT * FROM bill WHERE id = ?", whole(parts["id"]))


def _order(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    values = {**order_values(db, _found(db, parts)), "shipping_fields": _SHIPMENT, "remark_fields": _REMARK}
    return Page(template="admin_order.html", values=values)


def _done(db: Connection, request: Request, found: Record, text: str) -> Answer:
    say(db, request, text)
    return Redirect(to=f"/orders/{found['id']}")


def _expect(found: Record, *statuses: str) -> None:
    if found["status"] not in statuses:
        raise Refused(f"This cannot be done with an order that is {found['status']}.")


def _cancel(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _found(db, parts)
    _expect(found, "pending", "processing")
    call_off(db, found)
    return _done(db, request, found, "The order has been canceled.")


def _invoice(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _found(db, parts)
    _expect(found, "pending")
    save(db, "invoice", {"purchase_id": found["id"], "made": str(TODAY)})
    save(db, "purchase", {"status": "processing"}, found["id"])
    return _done(db, request, found, "The invoice has been made.")


def _ship(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _found(db, parts)
    _expect(found, "processing")
    filled = read(_SHIPMENT, request.form)
    if filled.faults:
        raise Wrong(" ".join(filled.faults))
    save(db, "shipment", {"purchase_id": found["id"], "sent": str(TODAY), **filled.values})
    save(db, "purchase", {"status": "complete"}, found["id"])
    return _done(db, request, found, "The order has been shipped.")


def _remark(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _found(db, parts)
    filled = read(_REMARK, request.form)
    if filled.faults:
        raise Wrong(" ".join(filled.faults))
    save(db, "remark", {"purchase_id": found["id"], "made": NOW, **filled.values})
    return _done(db, request, found, "The comment has been added.")


ROUTES: tuple[Route, ...] = (
    *require_clerk(
        get("/orders", _orders),
        get("/orders/<id>", _order),
        post("/orders/<id>/cancel", _cancel),
        post("/orders/<id>/invoice", _invoice),
        post("/orders/<id>/ship", _ship),
        post("/orders/<id>/comment", _remark),
    ),
)
