"""A customer's own pages."""

from __future__ import annotations

from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first
from ..framework.site import (
    Forbidden,
    PageNotFound,
    PageRequest,
    PageRoute,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    on_get,
    on_post,
    read_whole,
)
from .buying import put
from .forms import FilledForm, FormField, read_form, show_values
from .listing import ListFilter, Sorts, list_rows
from .rows import fetch_row, save
from .visitor import ask, get_my_id, notify, require_customer

__all__ = ["ROUTES", "STATUSES", "call_off", "gather_order"]

STATUSES = tuple((status, status.capitalize()) for status in ("pending", "processing", "complete", "canceled"))
_ORDERS_PER_PAGE = 8

_SORTS: Sorts = {
    "new": ("Newest first", "placed DESC"),
    "old": ("Oldest first", "placed"),
    "total": ("Highest total first", "total DESC"),
}
_FILTERS = (
    ListFilter(FormField("status", "Status", "select", options=STATUSES), "status = ?"),
    ListFilter(FormField("number", "Order number"), "id LIKE ?"),
)


# --- in and out ---

_LOGIN = (FormField("email", "E-mail", "email"), FormField("password", "Password", "password"))


def _login(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    filled = read_form(_LOGIN, request.form)
    if request.method == "GET":
        return ask("Log in", _LOGIN, FilledForm(values={}, shown={}), button="Log in")
    found = fetch_first(db, "SELECT * FROM customer WHERE email = lower(?)", filled.values.get("email", ""))
    if found is None or found["password"] != filled.values.get("password"):
        wrong = FilledForm(values={}, shown={}, faults=("E-mail or password is wrong.",))
        return ask("Log in", _LOGIN, wrong, button="Log in")
    # what was put in the cart before is not lost
    db.execute("UPDATE basket SET customer_id = ? WHERE customer_id IS NULL", (found["id"],))
    notify(db, request, f"Welcome, {found['first']}.")
    return Redirect(to="/account", user=found["email"])


def _logout(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    notify(db, request, "You are logged out.")
    return Redirect(to="/", user=None)


def _overview(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    mine = get_my_id(db, request)
    values = {
        "orders": fetch_all(db, "SELECT * FROM bill WHERE customer_id = ? ORDER BY id DESC LIMIT 3", mine),
        "address": fetch_row(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC", mine),
    }
    return SitePage(template="account.html", values=values)


# --- orders ---


def _orders(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    where = [("customer_id = ?", get_my_id(db, request))]
    listing = list_rows(db, request, "bill", filters=_FILTERS, sorts=_SORTS, size=_ORDERS_PER_PAGE, where=where)
    return SitePage(template="orders.html", values={"listing": listing})


def _fetch_my_order(db: Connection, request: PageRequest, parts: PathParts) -> DataRow:
    return fetch_row(
        db, "SELECT * FROM bill WHERE id = ? AND customer_id = ?", read_whole(parts["id"]), get_my_id(db, request)
    )


def gather_order(db: Connection, found: DataRow) -> dict[str, object]:
    """Everything that customer and clerk see of an order."""
    lines = fetch_all(
        db, "SELECT *, price * quantity AS total FROM line WHERE purchase_id = ? ORDER BY id", found["id"]
    )
    return {
        "order": found,
        "lines": lines,
        "remarks": fetch_all(db, "SELECT * FROM remark WHERE purchase_id = ? ORDER BY id", found["id"]),
        "shipment": fetch_first(db, "SELECT * FROM shipment WHERE purchase_id = ?", found["id"]),
        "invoice": fetch_first(db, "SELECT * FROM invoice WHERE purchase_id = ?", found["id"]),
    }


def _order(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return SitePage(template="order.html", values=gather_order(db, _fetch_my_order(db, request, parts)))


def _cancel(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_my_order(db, request, parts)
    if found["status"] != "pending":
        raise Forbidden("Only orders that are still pending can be canceled. Please write to us.")
    call_off(db, found)
    notify(db, request, f"Order {found['id']} has been canceled.")
    return Redirect(to=f"/account/orders/{found['id']}")


def call_off(db: Connection, found: DataRow) -> None:
    """Cancel an order and put its goods back in stock."""
    db.execute("UPDATE purchase SET status = 'canceled' WHERE id = ?", (found["id"],))
    for sku, quantity in db.execute("SELECT sku, quantity FROM line WHERE purchase_id = ?", (found["id"],)).fetchall():
        db.execute("UPDATE product SET stock = stock + ? WHERE sku = ?", (quantity, sku))


def _reorder(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_my_order(db, request, parts)
    missing = []
    for line in fetch_all(db, "SELECT * FROM line WHERE purchase_id = ? ORDER BY id", found["id"]):
        there = fetch_first(
            db, "SELECT * FROM goods WHERE sku = ? AND enabled AND stock >= ?", line["sku"], line["quantity"]
        )
        if there:
            put(db, request, there, line["option"], line["quantity"])
        else:
            missing.append(line["name"])
    gone = f" No longer to be had: {', '.join(missing)}." if missing else ""
    notify(db, request, f"What you ordered with {found['id']} is in your cart.{gone}")
    return Redirect(to="/cart")


# --- addresses and details ---

_ADDRESS = (
    FormField("name", "Name"),
    FormField("street", "Street"),
    FormField("city", "City"),
    FormField("region", "Region"),
    FormField("postcode", "Postcode"),
    FormField("phone", "Phone"),
)
_DETAILS = (FormField("first", "First name"), FormField("last", "Last name"), FormField("phone", "Phone"))
_NEWSLETTER = (FormField("newsletter", "Send me the newsletter", "check"),)


def _addresses(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_all(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC, id", get_my_id(db, request))
    return SitePage(template="addresses.html", values={"addresses": found})


def _fetch_my_address(db: Connection, request: PageRequest, parts: PathParts) -> DataRow | None:
    if "id" not in parts:
        return None
    sql = "SELECT * FROM address WHERE id = ? AND customer_id = ?"
    return fetch_row(db, sql, read_whole(parts["id"]), get_my_id(db, request))


def _address(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    """Add an address, or edit one."""
    found = _fetch_my_address(db, request, parts)
    filled = read_form(_ADDRESS, request.form)
    if request.method == "GET" or filled.faults:
        empty = FilledForm(values={}, shown=show_values(_ADDRESS, found) if found else {})
        title = "Edit address" if found else "New address"
        return ask(title, _ADDRESS, empty if request.method == "GET" else filled, button="Save address")
    mine = {} if found else {"customer_id": get_my_id(db, request)}
    save(db, "address", {**filled.values, **mine}, found["id"] if found else None)
    notify(db, request, "The address has been saved.")
    return Redirect(to="/account/addresses")


def _main_address(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_my_address(db, request, parts)
    if found is None:
        raise PageNotFound
    db.execute("UPDATE address SET main = (id = ?) WHERE customer_id = ?", (found["id"], found["customer_id"]))
    notify(db, request, "This is your main address now.")
    return Redirect(to="/account/addresses")


def _delete_address(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_my_address(db, request, parts)
    if found is None or found["main"]:
        raise Forbidden("Your main address cannot be deleted. Make another one the main address first.")
    db.execute("DELETE FROM address WHERE id = ?", (found["id"],))
    notify(db, request, "The address has been deleted.")
    return Redirect(to="/account/addresses")


def _details(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _edit_customer(db, request, "Your details", _DETAILS)


def _newsletter(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _edit_customer(db, request, "Newsletter", _NEWSLETTER)


def _edit_customer(db: Connection, request: PageRequest, title: str, fields: tuple[FormField, ...]) -> SiteAnswer:
    """Let customers change something about themselves."""
    found = fetch_row(db, "SELECT * FROM customer WHERE id = ?", get_my_id(db, request))
    filled = read_form(fields, request.form)
    if request.method == "GET" or filled.faults:
        shown = FilledForm(values={}, shown=show_values(fields, found)) if request.method == "GET" else filled
        return ask(title, fields, shown)
    save(db, "customer", filled.values, found["id"])
    notify(db, request, "Your changes have been saved.")
    return Redirect(to="/account")


# --- wish list ---


def _wishes(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_all(
        db,
        "SELECT goods.* FROM wish JOIN goods ON goods.id = product_id"
        " WHERE customer_id = ? AND enabled ORDER BY wish.id",
        get_my_id(db, request),
    )
    return SitePage(template="wishes.html", values={"products": found})


def _unwish(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM product WHERE sku = ?", parts["sku"])
    db.execute("DELETE FROM wish WHERE customer_id = ? AND product_id = ?", (get_my_id(db, request), found["id"]))
    notify(db, request, f"{found['name']} is no longer on your wish list.")
    return Redirect(to="/account/wishes")


ROUTES: tuple[PageRoute, ...] = (
    on_get("/login", _login),
    on_post("/login", _login),
    on_post("/logout", _logout),
    *require_customer(
        on_get("/account", _overview),
        on_get("/account/orders", _orders),
        on_get("/account/orders/<id>", _order),
        on_post("/account/orders/<id>/cancel", _cancel),
        on_post("/account/orders/<id>/reorder", _reorder),
        on_get("/account/addresses", _addresses),
        on_get("/account/addresses/new", _address),
        on_post("/account/addresses/new", _address),
        on_get("/account/addresses/<id>", _address),
        on_post("/account/addresses/<id>", _address),
        on_post("/account/addresses/<id>/main", _main_address),
        on_post("/account/addresses/<id>/delete", _delete_address),
        on_get("/account/details", _details),
        on_post("/account/details", _details),
        on_get("/account/newsletter", _newsletter),
        on_post("/account/newsletter", _newsletter),
        on_get("/account/wishes", _wishes),
        on_post("/account/wishes/<sku>/remove", _unwish),
    ),
)
