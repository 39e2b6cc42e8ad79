"""Looking around in the shop: lists of products, one product, its reviews; pages to read, and letters to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection

from ..framework.records import Record, first, rows
from ..framework.site import TODAY, Answer, Page, Redirect, Request, Route, get, post
from .forms import Field, Filled, amount, count, email, read
from .listing import Filter, Listing, Sorts, listed
from .rows import contains, existing, save
from .visitor import NOW, asking, me, my_id, require_customer, say

__all__ = ["ORDERED", "ROUTES", "wording"]

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


def _filters(db: Connection, where: str, *values: object) -> list[Filter]:
    """What the products of a list may be chosen by: only makers and materials that are there."""
    chosen = []
    for column, label in (("maker", "Maker"), ("material", "Material")):
        found = db.execute(f"SELECT DISTINCT {column} FROM goods WHERE enabled AND {where} ORDER BY 1", values)
        options = tuple((each, each) for (each,) in found)
        chosen.append(Filter(Field(column, label, "select", options=options), f"{column} = ?"))
    return [
        *chosen,
        Filter(Field("from", "Price from", take=amount), "price >= ?"),
        Filter(Field("to", "Price to", take=amount), "price <= ?"),
        Filter(Field("stars", "Rating", "select", count, _AT_LEAST), "rating >= ?"),
        Filter(Field("stock", "In stock only", "check", lambda _: 0), "stock > ?"),
    ]


def _home(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    newest = rows(db, "SELECT * FROM goods WHERE enabled ORDER BY created DESC, id LIMIT 4")
    wanted = rows(
        db,
        f"SELECT goods.*, sold FROM goods JOIN ({ORDERED} GROUP BY sku) USING (sku)"
        " WHERE enabled ORDER BY sold DESC, name LIMIT 4",
    )
    return Page(template="home.html", values={"newest": newest, "wanted": wanted})


def _category(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM category WHERE slug = ?", parts["slug"])
    filters = _filters(db, "category_id = ?", found["id"])
    return _goods(db, request, found["name"], filters, [("category_id = ?", found["id"])])


def _search(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    text = request.query.get("q", "").strip()
    categories = tuple((each["slug"], each["name"]) for each in rows(db, "SELECT * FROM category ORDER BY id"))
    filters = [Filter(Field("category", "Category", "select", options=categories), "category_slug = ?")]
    return _goods(db, request, f"Search results for '{text}'", [*filters, *_filters(db, "1")], wording(text))


def wording(text: str) -> list[tuple[str, object]]:
    """Each of the words is in what is said of the product."""
    said = "sku || ' ' || name || ' ' || maker || ' ' || material || ' ' || description LIKE ? ESCAPE '!'"
    return [(said, contains(word)) for word in text.split()[:8]]


def _goods(
    db: Connection, request: Request, title: str, filters: Sequence[Filter], where: Sequence[tuple[str, object]]
) -> Answer:
    listing = listed(
        db, request, "goods", filters=filters, sorts=_SORTS, size=_PER_PAGE, where=[("enabled = ?", 1), *where]
    )
    return Page(template="goods.html", values={"title": title, "listing": listing, "keep": "q"})


# --- one product ---


def _product(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return _product_page(db, request, shown(db, parts["sku"]))


def shown(db: Connection, sku: str) -> Record:
    """A product that the shop shows."""
    return existing(db, "SELECT * FROM goods WHERE sku = ? AND enabled", sku)


def _product_page(db: Connection, request: Request, found: Record) -> Page:
    counts = db.execute(
        "SELECT stars, count(*) FROM review WHERE product_id = ? AND status = 'approved' GROUP BY stars", (found["id"],)
    )
    values = {
        "product": found,
        "choices": rows(db, "SELECT * FROM choice WHERE product_id = ? ORDER BY position", found["id"]),
        "reviews": _reviews(db, request, found),
        "counts": dict(counts),
    }
    return Page(template="product.html", values=values)


def _reviews(db: Connection, request: Request, product: Record) -> Listing:
    return listed(
        db,
        request,
        "review",
        sorts=_REVIEW_SORTS,
        size=_REVIEWS_PER_PAGE,
        where=[("product_id = ?", product["id"]), ("status = ?", "approved")],
    )


def _wish(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = shown(db, parts["sku"])
    db.execute("INSERT OR IGNORE INTO wish (customer_id, product_id) VALUES (?, ?)", (my_id(db, request), found["id"]))
    say(db, request, f"{found['name']} is on your wish list.")
    return Redirect(to="/account/wishes")


_STARS = (("5", "5 stars"), ("4", "4 stars"), ("3", "3 stars"), ("2", "2 stars"), ("1", "1 star"))
_REVIEW = (
    Field("stars", "Stars", "select", count, _STARS),
    Field("nickname", "Nickname"),
    Field("title", "Title"),
    Field("body", "Review", "area"),
)


def _review(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = shown(db, parts["sku"])
    filled = read(_REVIEW, request.form)
    if request.method == "GET" or filled.faults:
        customer = me(db, request)
        empty = Filled(values={}, shown={"nickname": customer["first"] if customer else ""})
        title = f"Your review of {found['name']}"
        return asking(title, _REVIEW, empty if request.method == "GET" else filled, button="Send review")
    save(db, "review", {"product_id": found["id"], "written": str(TODAY), "status": "pending", **filled.values})
    say(db, request, "Thank you. Your review is shown as soon as somebody of ours has read it.")
    return Redirect(to=f"/product/{found['sku']}")


# --- pages to read, letters, parcels ---


def _info(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = existing(db, "SELECT * FROM page WHERE slug = ? AND enabled", parts["slug"])
    return Page(template="info.html", values={"page": found})


_LETTER = (
    Field("name", "Name"),
    Field("email", "E-mail", "email", email),
    Field("subject", "Subject"),
    Field("body", "Message", "area"),
)


def _contact(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    filled = read(_LETTER, request.form)
    if request.method == "GET" or filled.faults:
        customer = me(db, request)
        mine = {"name": f"{customer['first']} {customer['last']}", "email": customer["email"]} if customer else {}
        empty = Filled(values={}, shown=mine)
        return asking("Contact us", _LETTER, empty if request.method == "GET" else filled, button="Send message")
    save(db, "message", {**filled.values, "sent": NOW})
    say(db, request, "Thank you for your message. We answer within two days.")
    return Redirect(to="/contact")


def _track(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    order, address = (request.query.get(name, "").strip() for name in ("order", "email"))
    found = first(
        db,
        "SELECT bill.*, carrier, tracking, sent, delivered, made FROM bill"
        " LEFT JOIN shipment ON shipment.purchase_id = bill.id"
        " LEFT JOIN invoice ON invoice.purchase_id = bill.id WHERE bill.id = ? AND email = lower(?)",
        order,
        address,
    )
    values = {"asked": bool(order or address), "order": found}
    return Page(template="track.html", values=values)


ROUTES: tuple[Route, ...] = (
    get("/", _home),
    get("/category/<slug>", _category),
    get("/search", _search),
    get("/product/<sku>", _product),
    get("/product/<sku>/review", _review),
    post("/product/<sku>/review", _review),
    get("/info/<slug>", _info),
    get("/contact", _contact),
    post("/contact", _contact),
    get("/track", _track),
    *require_customer(
        post("/product/<sku>/wish", _wish),
    ),
)
