"""Orders at the admin side: found, invoiced, shipped, canceled, commented on."""

from __future__ import annotations

from sqlite3 import Connection

from ..framework.records import DataRow
from ..framework.site import (
    NOW,
    TODAY,
    Forbidden,
    PageError,
    PageRequest,
    PageRoute,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    format_moment,
    on_get,
    on_post,
    read_whole,
)
from .account import STATUSES, call_off, gather_order
from .forms import FormField, read_form, take_amount, take_day
from .listing import ListFilter, Sorts, list_rows
from .rows import fetch_row, save
from .visitor import notify, require_clerk

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
    ListFilter(FormField("number", "Order number"), "id LIKE ?"),
    ListFilter(FormField("customer", "Customer"), "customer || ' ' || email LIKE ?"),
    ListFilter(FormField("status", "Status", "select", options=STATUSES), "status = ?"),
    ListFilter(FormField("from", "Placed from", "date", take_day), "substr(placed, 1, 10) >= ?"),
    ListFilter(FormField("to", "Placed to", "date", take_day), "substr(placed, 1, 10) <= ?"),
    ListFilter(FormField("least", "Total from", take=take_amount), "total >= ?"),
)
_SHIPMENT = (
    FormField("carrier", "Carrier", "select", options=tuple((each, each) for each in CARRIERS)),
    FormField("tracking", "Tracking number"),
)
_REMARK = (FormField("body", "Comment", "area"), FormField("told", "Tell the customer", "check"))


def _orders(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    listing = list_rows(db, request, "bill", filters=_FILTERS, sorts=_SORTS, size=_PER_PAGE)
    return SitePage(template="admin_orders.html", values={"listing": listing})


def _fetch_order(db: Connection, parts: PathParts) -> DataRow:
    return fetch_row(db, "SELECT * FROM bill WHERE id = ?", read_whole(parts["id"]))


def _order(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    values = {**gather_order(db, _fetch_order(db, parts)), "shipping_fields": _SHIPMENT, "remark_fields": _REMARK}
    return SitePage(template="admin_order.html", values=values)


def _go_back(db: Connection, request: PageRequest, found: DataRow, text: str) -> SiteAnswer:
    notify(db, request, text)
    return Redirect(to=f"/orders/{found['id']}")


def _expect(found: DataRow, *statuses: str) -> None:
    if found["status"] not in statuses:
        raise Forbidden(f"This cannot be done with an order that is {found['status']}.")


def _cancel(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_order(db, parts)
    _expect(found, "pending", "processing")
    call_off(db, found)
    return _go_back(db, request, found, "The order has been canceled.")


def _invoice(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_order(db, parts)
    _expect(found, "pending")
    save(db, "invoice", {"purchase_id": found["id"], "made": str(TODAY)})
    save(db, "purchase", {"status": "processing"}, found["id"])
    return _go_back(db, request, found, "The invoice has been made.")


def _ship(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_order(db, parts)
    _expect(found, "processing")
    filled = read_form(_SHIPMENT, request.form)
    if filled.faults:
        raise PageError(" ".join(filled.faults))
    save(db, "shipment", {"purchase_id": found["id"], "sent": str(TODAY), **filled.values})
    save(db, "purchase", {"status": "complete"}, found["id"])
    return _go_back(db, request, found, "The order has been shipped.")


def _remark(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_order(db, parts)
    filled = read_form(_REMARK, request.form)
    if filled.faults:
        raise PageError(" ".join(filled.faults))
    save(db, "remark", {"purchase_id": found["id"], "made": format_moment(NOW), **filled.values})
    return _go_back(db, request, found, "The comment has been added.")


ROUTES: tuple[PageRoute, ...] = (
    *require_clerk(
        on_get("/orders", _orders),
        on_get("/orders/<id>", _order),
        on_post("/orders/<id>/cancel", _cancel),
        on_post("/orders/<id>/invoice", _invoice),
        on_post("/orders/<id>/ship", _ship),
        on_post("/orders/<id>/comment", _remark),
    ),
)
