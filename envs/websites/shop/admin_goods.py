"""The clerk's products, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection

from ..framework.records import Record, rows
from ..framework.site import TODAY, Answer, Page, Redirect, Request, Route, get, post, whole
from .forms import Field, Filled, amount, count, read, show
from .listing import Filter, Sorts, listed
from .rows import existing, number, save
from .visitor import asking, require_clerk, say

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
    Filter(Field("product", "Product"), "product || ' ' || sku LIKE ?"),
    Filter(Field("nickname", "Nickname"), "nickname LIKE ?"),
    Filter(Field("text", "Text"), "title || ' ' || body LIKE ?"),
    Filter(Field("stars", "Stars", "select", count, _STARS), "stars = ?"),
    Filter(Field("status", "Status", "select", options=_REVIEW_STATUSES), "status = ?"),
)


def _categories(db: Connection) -> tuple[tuple[str, str], ...]:
    return tuple((str(each["id"]), each["name"]) for each in rows(db, "SELECT * FROM category ORDER BY id"))


# --- products ---


def _products(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    filters = (
        Filter(Field("name", "Name or SKU"), "sku || ' ' || name LIKE ?"),
        Filter(Field("category", "Category", "select", count, _categories(db)), "category_id = ?"),
        Filter(Field("enabled", "Status", "select", count, _SHOWN), "enabled = ?"),
        Filter(Field("stock", "Stock at most", take=count), "stock <= ?"),
    )
    listing = listed(db, request, "goods", filters=filters, sorts=_PRODUCT_SORTS, size=_PER_PAGE)
    return Page(template="admin_products.html", values={"listing": listing})


def _product_fields(db: Connection) -> Sequence[Field]:
    return (
        Field("name", "Name"),
        Field("sku", "SKU"),
        Field("category_id", "Category", "select", count, _categories(db)),
        Field("price", "Price", take=amount),
        Field("stock", "Stock", take=count),
        Field("enabled", "Status", "select", count, _SHOWN),
        Field("maker", "Maker"),
        Field("material", "Material"),
        Field("description", "Description", "area"),
    )


def _taken(db: Connection, filled: Filled, product: int) -> Filled:
    """The same, with a fault where another product has the SKU."""
    other = number(db, "SELECT count(*) FROM product WHERE sku = ? AND id != ?", filled.values.get("sku", ""), product)
    faults = (*filled.faults, "SKU belongs to another product.") if other else filled.faults
    return Filled(values=filled.values, shown=filled.shown, faults=faults)


def _new_product(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    fields = _product_fields(db)
    if request.method == "GET":
        return asking("New product", fields, Filled(values={}, shown={"enabled": 1, "stock": 0}), button="Save product")
    filled = _taken(db, read(fields, request.form), 0)
    if filled.faults:
        return asking("New product", fields, filled, button="Save product")
    save(db, "product", {**filled.values, "created": str(TODAY)})
    say(db, request, "The product has been created.")
    return Redirect(to="/products")


def _product(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found, fields = _one_product(db, parts), _product_fields(db)
    title, ways = f"Product {found['name']}", {"Delete product": f"/products/{found['id']}/delete"}
    if request.method == "GET":
        shown = Filled(values={}, shown=show(fields, found))
        return asking(title, fields, shown, button="Save product", ways=ways)
    filled = _taken(db, read(fields, request.form), found["id"])
    if filled.faults:
        return asking(title, fields, filled, button="Save product", ways=ways)
    save(db, "product", filled.values, found["id"])
    say(db, request, "The product has been saved.")
    return Redirect(to=f"/products/{found['id']}")


def _one_product(db: Connection, parts: Mapping[str, str]) -> Record:
    return existing(db, "SELECT * FROM product WHERE id = ?", whole(parts["id"]))


def _delete_product(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = _one_product(db, parts)
    for table in ("choice", "review", "basket", "wish"):
        db.execute(f"DELETE FROM {table} WHERE product_id = ?", (found["id"],))
    db.execute("DELETE FROM product WHERE id = ?", (found["id"],))
    say(db, request, f"{found['name']} has been deleted.")
    return Redirect(to="/products")


# --- reviews ---


def _reviews(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    listing = listed(db, request, _REVIEWS, filters=_REVIEW_FILTERS, sorts=_REVIEW_SORTS, size=_PER_PAGE)
    return Page(template="admin_reviews.html", values={"listing": listing})


_REVIEW = (
    Field("status", "Status", "select", options=_REVIEW_STATUSES),
    Field("nickname", "Nickname"),
    Field("title", "Title"),
    Field("body", "Review", "area"),
)


def _review(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, f"SELECT * FROM {_REVIEWS} WHERE id = ?", whole(parts["id"]))
    title = f"Review of {found['product']}, {found['stars']} of 5 stars"
    ways = {"Delete review": f"/reviews/{found['id']}/delete"}
    filled = read(_REVIEW, request.form)
    if request.method == "GET" or filled.faults:
        shown = Filled(values={}, shown=show(_REVIEW, found)) if request.method == "GET" else filled
        return asking(title, _REVIEW, shown, button="Save review", ways=ways)
    save(db, "review", filled.values, found["id"])
    say(db, request, "The review has been saved.")
    return Redirect(to="/reviews")


def _delete_review(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM review WHERE id = ?", whole(parts["id"]))
    db.execute("DELETE FROM review WHERE id = ?", (found["id"],))
    say(db, request, "The review has been deleted.")
    return Redirect(to="/reviews")


ROUTES: tuple[Route, ...] = (
    *require_clerk(
        get("/products", _products),
        get("/products/new", _new_product),
        post("/products/new", _new_product),
        get("/products/<id>", _product),
        post("/products/<id>", _product),
        post("/products/<id>/delete", _delete_product),
        get("/reviews", _reviews),
        get("/reviews/<id>", _review),
        post("/reviews/<id>", _review),
        post("/reviews/<id>/delete", _delete_review),
    ),
)
