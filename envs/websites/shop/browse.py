"""Browsing the shop: lists of products, one product and its reviews, information pages, letters to the shop."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first
from ..framework.site import (
    NOW,
    TODAY,
    PageRequest,
    PageRoute,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    format_moment,
    on_get,
    on_post,
)
from .forms import FilledForm, FormField, read_form, take_amount, take_count, take_email
from .listing import ListFilter, Listing, Sorts, list_rows
from .rows import fetch_row, make_pattern, save
from .visitor import ask, get_customer, get_my_id, notify, require_customer

__all__ = ["ORDERED", "ROUTES", "match_words"]

_PER_PAGE = 6
_REVIEWS_PER_PAGE = 5

ORDERED = (
    "SELECT sku, sum(quantity) AS sold FROM line JOIN purchase ON purchase.id = purchase_id AND status != 'canceled'"
)
"""How much of each product was bought; to be grouped."""

_SORTS: Sorts = {
    "name": ("Name", "name"),
    "price-low": ("Price: lowest first", "price"),
    "price-high": ("Price: highest first", "price DESC"),
    "rating": ("Best rated", "rating DESC NULLS LAST, reviews DESC"),
    "newest": ("Newest first", "created DESC"),
}
_REVIEW_SORTS: Sorts = {
    "new": ("Newest first", "written DESC"),
    "low": ("Lowest first", "stars"),
    "high": ("Best first", "stars DESC"),
}
_AT_LEAST = tuple((str(stars), f"{stars} stars and more") for stars in (4, 3, 2))


def _build_filters(db: Connection, where: str, *values: object) -> list[ListFilter]:
    """What a list of products can be filtered by; only makers and materials that occur."""
    chosen = []
    for column, label in (("maker", "Maker"), ("material", "Material")):
        found = db.execute(f"SELECT DISTINCT {column} FROM goods WHERE enabled AND {where} ORDER BY 1", values)
        options = tuple((each, each) for (each,) in found)
        chosen.append(ListFilter(FormField(column, label, "select", options=options), f"{column} = ?"))
    return [
        *chosen,
        ListFilter(FormField("from", "Price from", take=take_amount), "price >= ?"),
        ListFilter(FormField("to", "Price to", take=take_amount), "price <= ?"),
        ListFilter(FormField("stars", "Rating", "select", take_count, _AT_LEAST), "rating >= ?"),
        ListFilter(FormField("stock", "In stock only", "check", lambda _: 0), "stock > ?"),
    ]


def _home(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    newest = fetch_all(db, "SELECT * FROM goods WHERE enabled ORDER BY created DESC, id LIMIT 4")
    wanted = fetch_all(
        db,
        f"SELECT goods.*, sold FROM goods JOIN ({ORDERED} GROUP BY sku) USING (sku)"
        " WHERE enabled ORDER BY sold DESC, name LIMIT 4",
    )
    return SitePage(template="home.html", values={"newest": newest, "wanted": wanted})


def _category(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM category WHERE slug = ?", parts["slug"])
    filters = _build_filters(db, "category_id = ?", found["id"])
    return _list_goods(db, request, found["name"], filters, [("category_id = ?", found["id"])])


def _search(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    text = request.query.get("q", "").strip()
    categories = tuple((each["slug"], each["name"]) for each in fetch_all(db, "SELECT * FROM category ORDER BY id"))
    filters = [ListFilter(FormField("category", "Category", "select", options=categories), "category_slug = ?")]
    return _list_goods(
        db, request, f"Search results for '{text}'", [*filters, *_build_filters(db, "1")], match_words(text)
    )


def match_words(text: str) -> list[tuple[str, object]]:
    """Conditions that each word occurs in what is said about a product."""
    said = "sku || ' ' || name || ' ' || maker || ' ' || material || ' ' || description LIKE ? ESCAPE '!'"
    return [(said, make_pattern(word)) for word in text.split()[:8]]


def _list_goods(
    db: Connection, request: PageRequest, title: str, filters: Sequence[ListFilter], where: Sequence[tuple[str, object]]
) -> SiteAnswer:
    listing = list_rows(
        db, request, "goods", filters=filters, sorts=_SORTS, size=_PER_PAGE, where=[("enabled = ?", 1), *where]
    )
    return SitePage(template="goods.html", values={"title": title, "listing": listing, "keep": "q"})


# --- one product ---


def _product(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return _show_product(db, request, fetch_shown(db, parts["sku"]))


def fetch_shown(db: Connection, sku: str) -> DataRow:
    """A product that is on sale."""
    return fetch_row(db, "SELECT * FROM goods WHERE sku = ? AND enabled", sku)


def _show_product(db: Connection, request: PageRequest, found: DataRow) -> SitePage:
    counts = db.execute(
        "SELECT stars, count(*) FROM review WHERE product_id = ? AND status = 'approved' GROUP BY stars", (found["id"],)
    )
    values = {
        "product": found,
        "choices": fetch_all(db, "SELECT * FROM choice WHERE product_id = ? ORDER BY position", found["id"]),
        "reviews": _list_reviews(db, request, found),
        "counts": dict(counts),
    }
    return SitePage(template="product.html", values=values)


def _list_reviews(db: Connection, request: PageRequest, product: DataRow) -> Listing:
    return list_rows(
        db,
        request,
        "review",
        sorts=_REVIEW_SORTS,
        size=_REVIEWS_PER_PAGE,
        where=[("product_id = ?", product["id"]), ("status = ?", "approved")],
    )


def _wish(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_shown(db, parts["sku"])
    db.execute(
        "INSERT OR IGNORE INTO wish (customer_id, product_id) VALUES (?, ?)", (get_my_id(db, request), found["id"])
    )
    notify(db, request, f"{found['name']} is on your wish list.")
    return Redirect(to="/account/wishes")


_STARS = (("5", "5 stars"), ("4", "4 stars"), ("3", "3 stars"), ("2", "2 stars"), ("1", "1 star"))
_REVIEW = (
    FormField("stars", "Stars", "select", take_count, _STARS),
    FormField("nickname", "Nickname"),
    FormField("title", "Title"),
    FormField("body", "Review", "area"),
)


def _review(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_shown(db, parts["sku"])
    filled = read_form(_REVIEW, request.form)
    if request.method == "GET" or filled.faults:
        customer = get_customer(db, request)
        empty = FilledForm(values={}, shown={"nickname": customer["first"] if customer else ""})
        title = f"Your review of {found['name']}"
        return ask(title, _REVIEW, empty if request.method == "GET" else filled, button="Send review")
    save(db, "review", {"product_id": found["id"], "written": str(TODAY), "status": "pending", **filled.values})
    notify(db, request, "Thank you. Your review is shown as soon as somebody of ours has read it.")
    return Redirect(to=f"/product/{found['sku']}")


# --- pages to read, letters, parcels ---


def _info(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_row(db, "SELECT * FROM page WHERE slug = ? AND enabled", parts["slug"])
    return SitePage(template="info.html", values={"page": found})


_LETTER = (
    FormField("name", "Name"),
    FormField("email", "E-mail", "email", take_email),
    FormField("subject", "Subject"),
    FormField("body", "Message", "area"),
)


def _contact(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    filled = read_form(_LETTER, request.form)
    if request.method == "GET" or filled.faults:
        customer = get_customer(db, request)
        mine = {"name": f"{customer['first']} {customer['last']}", "email": customer["email"]} if customer else {}
        empty = FilledForm(values={}, shown=mine)
        return ask("Contact us", _LETTER, empty if request.method == "GET" else filled, button="Send message")
    save(db, "message", {**filled.values, "sent": format_moment(NOW)})
    notify(db, request, "Thank you for your message. We answer within two days.")
    return Redirect(to="/contact")


def _track(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    order, address = (request.query.get(name, "").strip() for name in ("order", "email"))
    found = fetch_first(
        db,
        "SELECT bill.*, carrier, tracking, sent, delivered, made FROM bill"
        " LEFT JOIN shipment ON shipment.purchase_id = bill.id"
        " LEFT JOIN invoice ON invoice.purchase_id = bill.id WHERE bill.id = ? AND email = lower(?)",
        order,
        address,
    )
    values = {"asked": bool(order or address), "order": found}
    return SitePage(template="track.html", values=values)


ROUTES: tuple[PageRoute, ...] = (
    on_get("/", _home),
    on_get("/category/<slug>", _category),
    on_get("/search", _search),
    on_get("/product/<sku>", _product),
    on_get("/product/<sku>/review", _review),
    on_post("/product/<sku>/review", _review),
    on_get("/info/<slug>", _info),
    on_get("/contact", _contact),
    on_post("/contact", _contact),
    on_get("/track", _track),
    *require_customer(
        on_post("/product/<sku>/wish", _wish),
    ),
)
