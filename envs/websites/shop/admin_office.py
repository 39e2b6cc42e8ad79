"""Everything else at the admin side: dashboard, customers, price rules, reports, pages, logging in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from ..framework.records import fetch_all
from ..framework.site import (
    PageNotFound,
    PageRequest,
    PageRoute,
    Paging,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    on_get,
    on_post,
    read_whole,
)
from .browse import ORDERED
from .forms import (
    FilledForm,
    FormField,
    format_money,
    read_form,
    show_values,
    take_amount,
    take_count,
    take_day,
    take_email,
)
from .listing import ListFilter, Sorts, list_rows
from .rows import fetch_number, fetch_row, save
from .visitor import CLERK, ask, notify, require_clerk

__all__ = ["ROUTES"]

_PER_PAGE = 15

_LOGIN = (FormField("name", "User name"), FormField("password", "Password", "password"))


def _login(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    filled = read_form(_LOGIN, request.form)
    if (filled.values.get("name"), filled.values.get("password")) == CLERK:
        return Redirect(to="/", user=CLERK[0])
    faults = () if request.method == "GET" else ("User name or password is wrong.",)
    return ask("Log in", _LOGIN, FilledForm(values={}, shown={}, faults=faults), button="Log in")


def _logout(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return Redirect(to="/login", user=None)


def _dashboard(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    values = {
        "revenue": fetch_number(db, "SELECT sum(total) FROM bill WHERE status != 'canceled'"),
        "counts": {
            table: fetch_number(db, f"SELECT count(*) FROM {table}") for table in ("purchase", "customer", "product")
        },
        "waiting": fetch_number(db, "SELECT count(*) FROM review WHERE status = 'pending'"),
        "orders": fetch_all(db, "SELECT * FROM bill ORDER BY id DESC LIMIT 5"),
        "sold": fetch_all(
            db,
            f"SELECT product.*, sold FROM product JOIN ({ORDERED} GROUP BY sku) USING (sku)"
            " ORDER BY sold DESC, product.name LIMIT 5",
        ),
        "terms": fetch_all(db, "SELECT * FROM term ORDER BY uses DESC LIMIT 5"),
    }
    return SitePage(template="dashboard.html", values=values)


# --- customers ---

_TIERS = tuple((tier, tier) for tier in ("General", "Wholesale", "VIP"))
_CUSTOMER = (
    FormField("first", "First name"),
    FormField("last", "Last name"),
    FormField("email", "E-mail", "email", take_email),
    FormField("phone", "Phone"),
    FormField("tier", "Group", "select", options=_TIERS),
    FormField("newsletter", "Newsletter", "check"),
)
_CUSTOMERS = (
    "(SELECT customer.*, first || ' ' || last AS name, city, region,"
    " (SELECT count(*) FROM purchase WHERE customer_id = customer.id) AS orders,"
    " (SELECT sum(total) FROM bill WHERE customer_id = customer.id AND status != 'canceled') AS spent"
    " FROM customer JOIN address ON address.customer_id = customer.id AND main)"
)
_CUSTOMER_FILTERS = (
    ListFilter(FormField("name", "Name or e-mail"), "name || ' ' || email LIKE ?"),
    ListFilter(FormField("phone", "Phone"), "phone LIKE ?"),
    ListFilter(FormField("tier", "Group", "select", options=_TIERS), "tier = ?"),
    ListFilter(FormField("city", "City"), "city LIKE ?"),
)
_CUSTOMER_SORTS: Sorts = {
    "name": ("Name", "last, first"),
    "since": ("Newest first", "since DESC"),
    "orders": ("Most orders first", "orders DESC"),
    "spent": ("Highest spending first", "spent DESC"),
}


def _customers(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    listing = list_rows(db, request, _CUSTOMERS, filters=_CUSTOMER_FILTERS, sorts=_CUSTOMER_SORTS, size=_PER_PAGE)
    return SitePage(template="admin_customers.html", values={"listing": listing})


def _customer(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM customer WHERE id = ?", read_whole(parts["id"]))
    title = f"Customer {found['first']} {found['last']}"
    if request.method == "GET":
        return ask(title, _CUSTOMER, FilledForm(values={}, shown=show_values(_CUSTOMER, found)), button="Save customer")
    filled = read_form(_CUSTOMER, request.form)
    same = "SELECT count(*) FROM customer WHERE email = ? AND id != ?"
    if fetch_number(db, same, filled.values.get("email", ""), found["id"]):
        filled = FilledForm(values={}, shown=filled.shown, faults=("E-mail belongs to another customer.",))
    if filled.faults:
        return ask(title, _CUSTOMER, filled, button="Save customer")
    save(db, "customer", filled.values, found["id"])
    notify(db, request, "The customer has been saved.")
    return Redirect(to="/customers")


def _messages(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_all(db, "SELECT * FROM message ORDER BY id DESC LIMIT 50")
    return SitePage(template="admin_messages.html", values={"messages": found})


# --- price rules ---

_RULE = (
    FormField("name", "Rule name"),
    FormField("code", "Coupon code", take=str.upper),
    FormField("kind", "Discount type", "select", options=(("percent", "Percent"), ("fixed", "Fixed amount"))),
    FormField("amount", "Discount", take=take_amount),
    FormField("minimum", "Smallest order", take=take_amount),
    FormField("starts", "From", "date", take_day),
    FormField("ends", "To", "date", take_day),
    FormField("active", "Active", "check"),
)


def _rules(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_all(
        db,
        "SELECT rule.*, (SELECT count(*) FROM purchase WHERE purchase.code = rule.code) AS uses FROM rule ORDER BY id",
    )
    return SitePage(template="admin_rules.html", values={"rules": found})


def _rule(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    """Add a price rule, or edit one."""
    found = fetch_row(db, "SELECT * FROM rule WHERE id = ?", read_whole(parts["id"])) if "id" in parts else None
    title = f"Price rule {found['name']}" if found else "New price rule"
    if request.method == "GET":
        shown = dict(found) | {"amount": found["amount"] * (100 if found["kind"] == "percent" else 1)} if found else {}
        empty = FilledForm(values={}, shown=show_values(_RULE, shown) if found else {"active": 1, "minimum": "0.00"})
        return ask(title, _RULE, empty, button="Save rule")
    filled = _check_rule(db, read_form(_RULE, request.form), found["id"] if found else 0)
    if filled.faults:
        return ask(title, _RULE, filled, button="Save rule")
    save(db, "rule", filled.values, found["id"] if found else None)
    notify(db, request, "The price rule has been saved.")
    return Redirect(to="/rules")


def _check_rule(db: Connection, filled: FilledForm, own: int) -> FilledForm:
    """Add the faults that only show in the whole rule, and turn percent into whole numbers."""
    if filled.faults:
        return filled
    values = dict(filled.values)
    faults = []
    if fetch_number(db, "SELECT count(*) FROM rule WHERE code = ? AND id != ?", values["code"], own):
        faults.append("Coupon code belongs to another rule.")
    if str(values["ends"]) < str(values["starts"]):
        faults.append("To must not lie before From.")
    if values["kind"] == "percent":
        percent, rest = divmod(int(str(values["amount"])), 100)
        values["amount"] = percent
        if rest or not 0 < percent <= 100:
            faults.append("Discount must be a whole number of percent, 1 to 100.")
    return FilledForm(values=values, shown=filled.shown, faults=tuple(faults))


# --- reports ---

_SPAN = (
    FormField("from", "From", "date", take_day, required=False),
    FormField("to", "To", "date", take_day, required=False),
)


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


def _reports(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    titles = {name: report.title for name, report in _REPORTS.items()}
    return SitePage(template="admin_reports.html", values={"reports": titles})


def _report(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    asked = _REPORTS.get(parts["name"])
    if asked is None:
        raise PageNotFound
    span = read_form(_SPAN, request.query).values
    cursor = db.execute(asked.sql, {"since": span.get("from") or "2000-01-01", "until": span.get("to") or "2100-01-01"})
    names = [column[0] for column in cursor.description]
    found = [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in cursor]
    paging = Paging.of(request, size=_PER_PAGE, total=len(found))
    values = {"report": asked, "rows": found[paging.offset :][: paging.size], "paging": paging, "fields": _SPAN}
    return SitePage(template="admin_report.html", values=values)


def _cell(name: str, value: object) -> object:
    return format_money(int(str(value))) if name.endswith("_cents") else value


# --- pages ---

_PAGE = (
    FormField("title", "Title"),
    FormField("body", "Text", "area"),
    FormField("enabled", "Status", "select", take_count, (("1", "Enabled"), ("0", "Disabled"))),
)


def _pages(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return SitePage(template="admin_pages.html", values={"pages": fetch_all(db, "SELECT * FROM page ORDER BY title")})


def _page(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM page WHERE id = ?", read_whole(parts["id"]))
    filled = read_form(_PAGE, request.form)
    if request.method == "GET" or filled.faults:
        shown = FilledForm(values={}, shown=show_values(_PAGE, found)) if request.method == "GET" else filled
        return ask(f"Page {found['title']}", _PAGE, shown, button="Save page")
    save(db, "page", filled.values, found["id"])
    notify(db, request, "The page has been saved.")
    return Redirect(to="/pages")


ROUTES: tuple[PageRoute, ...] = (
    on_get("/login", _login),
    on_post("/login", _login),
    on_post("/logout", _logout),
    *require_clerk(
        on_get("/", _dashboard),
        on_get("/customers", _customers),
        on_get("/customers/<id>", _customer),
        on_post("/customers/<id>", _customer),
        on_get("/messages", _messages),
        on_get("/rules", _rules),
        on_get("/rules/new", _rule),
        on_post("/rules/new", _rule),
        on_get("/rules/<id>", _rule),
        on_post("/rules/<id>", _rule),
        on_get("/reports", _reports),
        on_get("/reports/<name>", _report),
        on_get("/pages", _pages),
        on_get("/pages/<id>", _page),
        on_post("/pages/<id>", _page),
    ),
)
