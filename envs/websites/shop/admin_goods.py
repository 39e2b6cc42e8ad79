"""Products and their reviews at the admin side."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all
from ..framework.site import (
    TODAY,
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
from .forms import FilledForm, FormField, read_form, show_values, take_amount, take_count
from .listing import ListFilter, Sorts, list_rows
from .rows import fetch_number, fetch_row, save
from .visitor import ask, notify, require_clerk

__all__ = ["ROUTES"]

_PER_PAGE = 15
_SHOWN = (("1", "Enabled"), ("0", "Disabled"))
_REVIEW_STATUSES = tuple((status, status.capitalize()) for status in ("pending", "approved", "rejected"))
_STARS = tuple((str(stars), str(stars)) for stars in range(1, 6))

_PRODUCT_SORTS: Sorts = {
    "id": ("Number", "id"),
    "name": ("Name", "name"),
    "price-high": ("Highest price first", "price DESC"),
    "stock": ("Lowest stock first", "stock"),
    "newest": ("Newest first", "created DESC"),
}
_REVIEW_SORTS: Sorts = {
    "new": ("Newest first", "written DESC"),
    "old": ("Oldest first", "written"),
    "low": ("Fewest stars first", "stars"),
}
_REVIEWS = "(SELECT review.*, sku, name AS product FROM review JOIN product ON product.id = product_id)"
_REVIEW_FILTERS = (
    ListFilter(FormField("product", "Product"), "product || ' ' || sku LIKE ?"),
    ListFilter(FormField("nickname", "Nickname"), "nickname LIKE ?"),
    ListFilter(FormField("text", "Text"), "title || ' ' || body LIKE ?"),
    ListFilter(FormField("stars", "Stars", "select", take_count, _STARS), "stars = ?"),
    ListFilter(FormField("status", "Status", "select", options=_REVIEW_STATUSES), "status = ?"),
)


def _categories(db: Connection) -> tuple[tuple[str, str], ...]:
    return tuple((str(each["id"]), each["name"]) for each in fetch_all(db, "SELECT * FROM category ORDER BY id"))


# --- products ---


def _products(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    filters = (
        ListFilter(FormField("name", "Name or SKU"), "sku || ' ' || name LIKE ?"),
        ListFilter(FormField("category", "Category", "select", take_count, _categories(db)), "category_id = ?"),
        ListFilter(FormField("enabled", "Status", "select", take_count, _SHOWN), "enabled = ?"),
        ListFilter(FormField("stock", "Stock at most", take=take_count), "stock <= ?"),
    )
    listing = list_rows(db, request, "goods", filters=filters, sorts=_PRODUCT_SORTS, size=_PER_PAGE)
    return SitePage(template="admin_products.html", values={"listing": listing})


def _product_fields(db: Connection) -> Sequence[FormField]:
    return (
        FormField("name", "Name"),
        FormField("sku", "SKU"),
        FormField("category_id", "Category", "select", take_count, _categories(db)),
        FormField("price", "Price", take=take_amount),
        FormField("stock", "Stock", take=take_count),
        FormField("enabled", "Status", "select", take_count, _SHOWN),
        FormField("maker", "Maker"),
        FormField("material", "Material"),
        FormField("description", "Description", "area"),
    )


def _check_sku(db: Connection, filled: FilledForm, product: int) -> FilledForm:
    """Add a fault where another product has the SKU."""
    other = fetch_number(
        db, "SELECT count(*) FROM product WHERE sku = ? AND id != ?", filled.values.get("sku", ""), product
    )
    faults = (*filled.faults, "SKU belongs to another product.") if other else filled.faults
    return FilledForm(values=filled.values, shown=filled.shown, faults=faults)


def _new_product(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    fields = _product_fields(db)
    if request.method == "GET":
        return ask(
            "New product", fields, FilledForm(values={}, shown={"enabled": 1, "stock": 0}), button="Save product"
        )
    filled = _check_sku(db, read_form(fields, request.form), 0)
    if filled.faults:
        return ask("New product", fields, filled, button="Save product")
    save(db, "product", {**filled.values, "created": str(TODAY)})
    notify(db, request, "The product has been created.")
    return Redirect(to="/products")


def _product(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found, fields = _fetch_product(db, parts), _product_fields(db)
    title, ways = f"Product {found['name']}", {"Delete product": f"/products/{found['id']}/delete"}
    if request.method == "GET":
        shown = FilledForm(values={}, shown=show_values(fields, found))
        return ask(title, fields, shown, button="Save product", ways=ways)
    filled = _check_sku(db, read_form(fields, request.form), found["id"])
    if filled.faults:
        return ask(title, fields, filled, button="Save product", ways=ways)
    save(db, "product", filled.values, found["id"])
    notify(db, request, "The product has been saved.")
    return Redirect(to=f"/products/{found['id']}")


def _fetch_product(db: Connection, parts: PathParts) -> DataRow:
    return fetch_row(db, "SELECT * FROM product WHERE id = ?", read_whole(parts["id"]))


def _delete_product(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = _fetch_product(db, parts)
    for table in ("choice", "review", "basket", "wish"):
        db.execute(f"DELETE FROM {table} WHERE product_id = ?", (found["id"],))
    db.execute("DELETE FROM product WHERE id = ?", (found["id"],))
    notify(db, request, f"{found['name']} has been deleted.")
    return Redirect(to="/products")


# --- reviews ---


def _reviews(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    listing = list_rows(db, request, _REVIEWS, filters=_REVIEW_FILTERS, sorts=_REVIEW_SORTS, size=_PER_PAGE)
    return SitePage(template="admin_reviews.html", values={"listing": listing})


_REVIEW = (
    FormField("status", "Status", "select", options=_REVIEW_STATUSES),
    FormField("nickname", "Nickname"),
    FormField("title", "Title"),
    FormField("body", "Review", "area"),
)


def _review(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, f"SELECT * FROM {_REVIEWS} WHERE id = ?", read_whole(parts["id"]))
    title = f"Review of {found['product']}, {found['stars']} of 5 stars"
    ways = {"Delete review": f"/reviews/{found['id']}/delete"}
    filled = read_form(_REVIEW, request.form)
    if request.method == "GET" or filled.faults:
        shown = FilledForm(values={}, shown=show_values(_REVIEW, found)) if request.method == "GET" else filled
        return ask(title, _REVIEW, shown, button="Save review", ways=ways)
    save(db, "review", filled.values, found["id"])
    notify(db, request, "The review has been saved.")
    return Redirect(to="/reviews")


def _delete_review(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM review WHERE id = ?", read_whole(parts["id"]))
    db.execute("DELETE FROM review WHERE id = ?", (found["id"],))
    notify(db, request, "The review has been deleted.")
    return Redirect(to="/reviews")


ROUTES: tuple[PageRoute, ...] = (
    *require_clerk(
        on_get("/products", _products),
        on_get("/products/new", _new_product),
        on_post("/products/new", _new_product),
        on_get("/products/<id>", _product),
        on_post("/products/<id>", _product),
        on_post("/products/<id>/delete", _delete_product),
        on_get("/reviews", _reviews),
        on_get("/reviews/<id>", _review),
        on_post("/reviews/<id>", _review),
        on_post("/reviews/<id>/delete", _delete_review),
    ),
)
