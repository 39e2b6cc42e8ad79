"""The clerk's other business: the dashboard, customers, price rules, reports, pages, and coming in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from ..framework.records import rows
from ..framework.site import Answer, NotFound, Page, Paging, Redirect, Request, Route, get, post, whole
from .browse import ORDERED
from .forms import Field, Filled, amount, count, day, email, money, read, show
from .listing import Filter, Sorts, listed
from .rows import existing, number, save
from .visitor import CLERK, asking, require_clerk, say

__all__ = ["ROUTES"]

_PER_PAGE = 15

_LOGIN = (Field("name", "User name"), Field("password", "Password", "password"))


def _login(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    filled = read(_LOGIN, request.form)
    if (filled.values.get("name"), filled.values.get("password")) == CLERK:
        return Redirect(to="/", user=CLERK[0])
    faults = () if request.method == "GET" else ("User name or password is wrong.",)
    return asking("Log in", _LOGIN, Filled(values={}, shown={}, faults=faults), button="Log in")


def _logout(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return Redirect(to="/login", user=None)


def _dashboard(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    values = {
        "revenue": number(db, "SELECT sum(total) FROM bill WHERE status != 'canceled'"),
        "counts": {table: number(db, f"SELECT count(*) FROM {table}") for table in ("purchase", "customer", "product")},
        "waiting": number(db, "SELECT count(*) FROM review WHERE status = 'pending'"),
        "orders": rows(db, "SELECT * FROM bill ORDER BY id DESC LIMIT 5"),
        "sold": rows(
            db,
            f"SELECT product.*, sold FROM product JOIN ({ORDERED} GROUP BY sku) USING (sku)"
            " ORDER BY sold DESC, product.name LIMIT 5",
        ),
        "terms": rows(db, "SELECT * FROM term ORDER BY uses DESC LIMIT 5"),
    }
    return Page(template="dashboard.html", values=values)


# --- customers ---

_TIERS = tuple((tier, tier) for tier in ("General", "Wholesale", "VIP"))
_CUSTOMER = (
    Field("first", "First name"),
    Field("last", "Last name"),
    Field("email", "E-mail", "email", email),
    Field("phone", "Phone"),
    Field("tier", "Group", "select", options=_TIERS),
    Field("newsletter", "Newsletter", "check"),
)
_CUSTOMERS = (
    "(SELECT customer.*, first || ' ' || last AS name, city, region,"
    " (SELECT count(*) FROM purchase WHERE customer_id = customer.id) AS orders,"
    " (SELECT sum(total) FROM bill WHERE customer_id = customer.id AND status != 'canceled') AS spent"
    " FROM customer JOIN address ON address.customer_id = customer.id AND main)"
)
_CUSTOMER_FILTERS = (
    Filter(Field("name", "Name or e-mail"), "name || ' ' || email LIKE ?"),
    Filter(Field("phone", "Phone"), "phone LIKE ?"),
    Filter(Field("tier", "Group", "select", options=_TIERS), "tier = ?"),
    Filter(Field("city", "City"), "city LIKE ?"),
)
_CUSTOMER_SORTS: Sorts = {
    "name": ("Name", "last, first"),
    "since": ("Newest first", "since DESC"),
    "orders": ("Most orders first", "orders DESC"),
    "spent": ("Highest spending first", "spent DESC"),
}


def _customers(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    listing = listed(db, request, _CUSTOMERS, filters=_CUSTOMER_FILTERS, sorts=_CUSTOMER_SORTS, size=_PER_PAGE)
    return Page(template="admin_customers.html", values={"listing": listing})


def _customer(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM customer WHERE id = ?", whole(parts["id"]))
    title = f"Customer {found['first']} {found['last']}"
    if request.method == "GET":
        return asking(title, _CUSTOMER, Filled(values={}, shown=show(_CUSTOMER, found)), button="Save customer")
    filled = read(_CUSTOMER, request.form)
    same = "SELECT count(*) FROM customer WHERE email = ? AND id != ?"
    if number(db, same, filled.values.get("email", ""), found["id"]):
        filled = Filled(values={}, shown=filled.shown, faults=("E-mail belongs to another customer.",))
    if filled.faults:
        return asking(title, _CUSTOMER, filled, button="Save customer")
    save(db, "customer", filled.values, found["id"])
    say(db, request, "The customer has been saved.")
    return Redirect(to="/customers")


def _messages(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = rows(db, "SELECT * FROM message ORDER BY id DESC LIMIT 50")
    return Page(template="admin_messages.html", values={"messages": found})


# --- price rules ---

_RULE = (
    Field("name", "Rule name"),
    Field("code", "Coupon code", take=str.upper),
    Field("kind", "Discount type", "select", options=(("percent", "Percent"), ("fixed", "Fixed amount"))),
    Field("amount", "Discount", take=amount),
    Field("minimum", "Smallest order", take=amount),
    Field("starts", "From", "date", day),
    Field("ends", "To", "date", day),
    Field("active", "Active", "check"),
)


def _rules(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = rows(
        db,
        "SELECT rule.*, (SELECT count(*) FROM purchase WHERE purchase.code = rule.code) AS uses FROM rule ORDER BY id",
    )
    return Page(template="admin_rules.html", values={"rules": found})


def _rule(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    """A new one, or one that is there."""
    found = existing(db, "SELECT * FROM rule WHERE id = ?", whole(parts["id"])) if "id" in parts else None
    title = f"Price rule {found['name']}" if found else "New price rule"
    if request.method == "GET":
        shown = dict(found) | {"amount": found["amount"] * (100 if found["kind"] == "percent" else 1)} if found else {}
        empty = Filled(values={}, shown=show(_RULE, shown) if found else {"active": 1, "minimum": "0.00"})
        return asking(title, _RULE, empty, button="Save rule")
    filled = _check_rule(db, read(_RULE, request.form), found["id"] if found else 0)
    if filled.faults:
        return asking(title, _RULE, filled, button="Save rule")
    save(db, "rule", filled.values, found["id"] if found else None)
    say(db, request, "The price rule has been saved.")
    return Redirect(to="/rules")


def _check_rule(db: Connection, filled: Filled, own: int) -> Filled:
    """The same, with the faults that only the whole of it shows; percent are whole numbers."""
    if filled.faults:
        return filled
    values = dict(filled.values)
    faults = []
    if number(db, "SELECT count(*) FROM rule WHERE code = ? AND id != ?", values["code"], own):
        faults.append("Coupon code belongs to another rule.")
    if str(values["ends"]) < str(values["starts"]):
        faults.append("To must not lie before From.")
    if values["kind"] == "percent":
        percent, rest = divmod(int(str(values["amount"])), 100)
        values["amount"] = percent
        if rest or not 0 < percent <= 100:
            faults.append("Discount must be a whole number of percent, 1 to 100.")
    return Filled(values=values, shown=filled.shown, faults=tuple(faults))


# --- reports ---

_SPAN = (Field("from", "From", "date", day, required=False), Field("to", "To", "date", day, required=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    title: str
    columns: Sequence[str]
    sql: str
    """With `:since` and `:until`; its columns in the same order, those in cents with names that end in `cents`."""


_REPORTS = {
    "sales": _Report(
        title="Sales by month",
        columns=("Month", "Orders", "Items", "Goods", "Postage", "Discounts", "Total"),
        sql="SELECT substr(placed, 1, 7) AS month, count(*), sum(items), sum(goods) AS goods_cents,"
        " sum(postage) AS postage_cents, sum(discount) AS discount_cents, sum(total) AS total_cents FROM bill"
        " WHERE status != 'canceled' AND substr(placed, 1, 10) BETWEEN :since AND :until GROUP BY month ORDER BY month",
    ),
    "bestsellers": _Report(
        title="Bestsellers",
        columns=("SKU", "Product", "Sold", "Revenue"),
        sql="SELECT sku, line.name, sum(quantity) AS sold, sum(price * quantity) AS revenue_cents FROM line"
        " JOIN purchase ON purchase.id = purchase_id WHERE status != 'canceled'"
        " AND substr(placed, 1, 10) BETWEEN :since AND :until GROUP BY sku ORDER BY sold DESC, line.name",
    ),
    "canceled": _Report(
        title="Canceled orders by month",
        columns=("Month", "Orders", "Total"),
        sql="SELECT substr(placed, 1, 7) AS month, count(*), sum(total) AS total_cents FROM bill"
        " WHERE status = 'canceled' AND substr(placed, 1, 10) BETWEEN :since AND :until GROUP BY month ORDER BY month",
    ),
    "shipping": _Report(
        title="Shipments by carrier",
        columns=("Carrier", "Shipments", "Delivered"),
        sql="SELECT carrier, count(*), count(delivered) FROM shipment WHERE sent BETWEEN :since AND :until"
        " GROUP BY carrier ORDER BY carrier",
    ),
    "reviews": _Report(
        title="Reviews by product",
        columns=("Product", "Reviews", "Average stars"),
        sql="SELECT name, count(*) AS reviews, round(avg(stars), 2) FROM review JOIN product ON product.id = product_id"
        " WHERE status = 'approved' AND written BETWEEN :since AND :until GROUP BY product_id"
        " ORDER BY reviews DESC, name",
    ),
    "terms": _Report(
        title="Search terms",
        columns=("Words", "Results", "Uses"),
        sql="SELECT words, results, uses FROM term WHERE :since < :until ORDER BY uses DESC",
    ),
}
"""By the name in the address."""


def _reports(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    titles = {name: report.title for name, report in _REPORTS.items()}
    return Page(template="admin_reports.html", values={"reports": titles})


def _report(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    asked = _REPORTS.get(parts["name"])
    if asked is None:
        raise NotFound
    span = read(_SPAN, request.query).values
    cursor = db.execute(asked.sql, {"since": span.get("from") or "2000-01-01", "until": span.get("to") or "2100-01-01"})
    names = [column[0] for column in cursor.description]
    found = [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in cursor]
    paging = Paging.of(request, size=_PER_PAGE, total=len(found))
    values = {"report": asked, "rows": found[paging.offset :][: paging.size], "paging": paging, "fields": _SPAN}
    return Page(template="admin_report.html", values=values)


def _cell(name: str, value: object) -> object:
    return money(int(str(value))) if name.endswith("_cents") else value


# --- pages ---

_PAGE = (
    Field("title", "Title"),
    Field("body", "Text", "area"),
    Field("enabled", "Status", "select", count, (("1", "Enabled"), ("0", "Disabled"))),
)


def _pages(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return Page(template="admin_pages.html", values={"pages": rows(db, "SELECT * FROM page ORDER BY title")})


def _page(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM page WHERE id = ?", whole(parts["id"]))
    filled = read(_PAGE, request.form)
    if request.method == "GET" or filled.faults:
        shown = Filled(values={}, shown=show(_PAGE, found)) if request.method == "GET" else filled
        return asking(f"Page {found['title']}", _PAGE, shown, button="Save page")
    save(db, "page", filled.values, found["id"])
    say(db, request, "The page has been saved.")
    return Redirect(to="/pages")


ROUTES: tuple[Route, ...] = (
    get("/login", _login),
    post("/login", _login),
    post("/logout", _logout),
    *require_clerk(
        get("/", _dashboard),
        get("/customers", _customers),
        get("/customers/<id>", _customer),
        post("/customers/<id>", _customer),
        get("/messages", _messages),
        get("/rules", _rules),
        get("/rules/new", _rule),
        post("/rules/new", _rule),
        get("/rules/<id>", _rule),
        post("/rules/<id>", _rule),
        get("/reports", _reports),
        get("/reports/<name>", _report),
        get("/pages", _pages),
        get("/pages/<id>", _page),
        post("/pages/<id>", _page),
    ),
)
