"""A customer's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import Record, first, rows
from ..framework.site import Answer, NotFound, Page, Redirect, Refused, Request, Route, get, post, whole
from .buying import put
from .forms import Field, Filled, read, show
from .listing import Filter, Sorts, listed
from .rows import existing, save
from .visitor import asking, my_id, require_customer, say

__all__ = ["ROUTES", "STATUSES", "call_off", "order_values"]

STATUSES = tuple((status, status.capitalize()) for status in ("pending", "processing", "complete", "canceled"))
_ORDERS_PER_PAGE = 8

_SORTS: Sorts = {
    "new": ("Newest first", "placed DESC"),
    "old": ("Oldest first", "placed"),
    "total": ("Highest total first", "total DESC"),
}
_FILTERS = (
    Filter(Field("status", "Status", "select", options=STATUSES), "status = ?"),
    Filter(Field("number", "Order number"), "id LIKE ?"),
)


# --- in and out ---

_LOGIN = (Field("email", "E-mail", "email"), Field("password", "Password", "password"))


def _login(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    filled = read(_LOGIN, request.form)
    if request.method == "GET":
        return asking("Log in", _LOGIN, Filled(values={}, shown={}), button="Log in")
    found = first(db, "SELECT * FROM customer WHERE email = lower(?)", filled.values.get("email", ""))
    if found is None or found["password"] != filled.values.get("password"):
        wrong = Filled(values={}, shown={}, faults=("E-mail or password is wrong.",))
        return asking("Log in", _LOGIN, wrong, button="Log in")
    # what was put in the cart before is not lost
    db.execute("UPDATE basket SET customer_id = ? WHERE customer_id IS NULL", (found["id"],))
    say(db, request, f"Welcome, {found['first']}.")
    return Redirect(to="/account", user=found["email"])


def _logout(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    say(db, request, "You are logged out.")
    return Redirect(to="/", user=None)


def _overview(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    mine = my_id(db, request)
    values = {
        "orders": rows(db, "SELECT * FROM bill WHERE customer_id = ? ORDER BY id DESC LIMIT 3", mine),
        "address": existing(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC", mine),
    }
    return Page(template="account.html", values=values)


# --- orders ---


def _orders(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    where = [("customer_id = ?", my_id(db, request))]
    listing = listed(db, request, "bill", filters=_FILTERS, sorts=_SORTS, size=_ORDERS_PER_PAGE, where=where)
    return Page(template="orders.html", values={"listing": listing})


def _mine(db: Connection, request: Request, parts: Mapping[str, str]) -> Record:
    return existing(db, "SELECT * FROM bill WHERE id = ? AND customer_id = ?", whole(parts["id"]), my_id(db, request))


def order_values(db: Connection, found: Record) -> dict[str, object]:
    """What there is to see of an order, for the customer and for the clerk."""
    lines = rows(db, "SELECT *, price * quantity AS total FROM line WHERE purchase_id = ? ORDER BY id", found["id"])
    return {
        "order": found,
        "lines": lines,
        "remarks": rows(db, "SELECT * FROM remark WHERE purchase_id = ? ORDER BY id", found["id"]),
        "shipment": first(db, "SELECT * FROM shipment WHERE purchase_id = ?", found["id"]),
        "invoice": first(db, "SELECT * FROM invoice WHERE purchase_id = ?", found["id"]),
    }


def _order(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return Page(template="order.html", values=order_values(db, _mine(db, request, parts)))


def _cancel(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _mine(db, request, parts)
    if found["status"] != "pending":
        raise Refused("Only orders that are still pending can be canceled. Please write to us.")
    call_off(db, found)
    say(db, request, f"Order {found['id']} has been canceled.")
    return Redirect(to=f"/account/orders/{found['id']}")


def call_off(db: Connection, found: Record) -> None:
    """What was to be sent is back on the shelf."""
    db.execute("UPDATE purchase SET status = 'canceled' WHERE id = ?", (found["id"],))
    for sku, quantity in db.execute("SELECT sku, quantity FROM line WHERE purchase_id = ?", (found["id"],)).fetchall():
        db.execute("UPDATE product SET stock = stock + ? WHERE sku = ?", (quantity, sku))


def _reorder(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _mine(db, request, parts)
    missing = []
    for line in rows(db, "SELECT * FROM line WHERE purchase_id = ? ORDER BY id", found["id"]):
        there = first(db, "SELECT * FROM goods WHERE sku = ? AND enabled AND stock >= ?", line["sku"], line["quantity"])
        if there:
            put(db, request, there, line["option"], line["quantity"])
        else:
            missing.append(line["name"])
    gone = f" No longer to be had: {', '.join(missing)}." if missing else ""
    say(db, request, f"What you ordered with {found['id']} is in your cart.{gone}")
    return Redirect(to="/cart")


# --- addresses and details ---

_ADDRESS = (
    Field("name", "Name"),
    Field("street", "Street"),
    Field("city", "City"),
    Field("region", "Region"),
    Field("postcode", "Postcode"),
    Field("phone", "Phone"),
)
_DETAILS = (Field("first", "First name"), Field("last", "Last name"), Field("phone", "Phone"))
_NEWSLETTER = (Field("newsletter", "Send me the newsletter", "check"),)


def _addresses(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = rows(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC, id", my_id(db, request))
    return Page(template="addresses.html", values={"addresses": found})


def _my_address(db: Connection, request: Request, parts: Mapping[str, str]) -> Record | None:
    if "id" not in parts:
        return None
    sql = "SELECT * FROM address WHERE id = ? AND customer_id = ?"
    return existing(db, sql, whole(parts["id"]), my_id(db, request))


def _address(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    """A new one, or one that is there."""
    found = _my_address(db, request, parts)
    filled = read(_ADDRESS, request.form)
    if request.method == "GET" or filled.faults:
        empty = Filled(values={}, shown=show(_ADDRESS, found) if found else {})
        title = "Edit address" if found else "New address"
        return asking(title, _ADDRESS, empty if request.method == "GET" else filled, button="Save address")
    mine = {} if found else {"customer_id": my_id(db, request)}
    save(db, "address", {**filled.values, **mine}, found["id"] if found else None)
    say(db, request, "The address has been saved.")
    return Redirect(to="/account/addresses")


def _main_address(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _my_address(db, request, parts)
    if found is None:
        raise NotFound
    db.execute("UPDATE address SET main = (id = ?) WHERE customer_id = ?", (found["id"], found["customer_id"]))
    say(db, request, "This is your main address now.")
    return Redirect(to="/account/addresses")


def _delete_address(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _my_address(db, request, parts)
    if found is None or found["main"]:
        raise Refused("Your main address cannot be deleted. Make another one the main address first.")
    db.execute("DELETE FROM address WHERE id = ?", (found["id"],))
    say(db, request, "The address has been deleted.")
    return Redirect(to="/account/addresses")


def _details(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return _own(db, request, "Your details", _DETAILS)


def _newsletter(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return _own(db, request, "Newsletter", _NEWSLETTER)


def _own(db: Connection, request: Request, title: str, fields: tuple[Field, ...]) -> Answer:
    """Something about the customer that the customer may change."""
    found = existing(db, "SELECT * FROM customer WHERE id = ?", my_id(db, request))
    filled = read(fields, request.form)
    if request.method == "GET" or filled.faults:
        shown = Filled(values={}, shown=show(fields, found)) if request.method == "GET" else filled
        return asking(title, fields, shown)
    save(db, "customer", filled.values, found["id"])
    say(db, request, "Your changes have been saved.")
    return Redirect(to="/account")


# --- wish list ---


def _wishes(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = rows(
        db,
        "SELECT goods.* FROM wish JOIN goods ON goods.id = product_id"
        " WHERE customer_id = ? AND enabled ORDER BY wish.id",
        my_id(db, request),
    )
    return Page(template="wishes.html", values={"products": found})


def _unwish(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM product WHERE sku = ?", parts["sku"])
    db.execute("DELETE FROM wish WHERE customer_id = ? AND product_id = ?", (my_id(db, request), found["id"]))
    say(db, request, f"{found['name']} is no longer on your wish list.")
    return Redirect(to="/account/wishes")


ROUTES: tuple[Route, ...] = (
    get("/login", _login),
    post("/login", _login),
    post("/logout", _logout),
    *require_customer(
        get("/account", _overview),
        get("/account/orders", _orders),
        get("/account/orders/<id>", _order),
        post("/account/orders/<id>/cancel", _cancel),
        post("/account/orders/<id>/reorder", _reorder),
        get("/account/addresses", _addresses),
        get("/account/addresses/new", _address),
        post("/account/addresses/new", _address),
        get("/account/addresses/<id>", _address),
        post("/account/addresses/<id>", _address),
        post("/account/addresses/<id>/main", _main_address),
        post("/account/addresses/<id>/delete", _delete_address),
        get("/account/details", _details),
        post("/account/details", _details),
        get("/account/newsletter", _newsletter),
        post("/account/newsletter", _newsletter),
        get("/account/wishes", _wishes),
        post("/account/wishes/<sku>/remove", _unwish),
    ),
)
