"""The shop's data.

What enters: an empty database with the shop's tables, a random generator, and the tables of words in `data/`. What
leaves: the database filled, the same for the same generator: every sum adds up and nothing lies after the frozen day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from sqlite3 import Connection

from .browse import match_words
from .rows import fetch_number

__all__ = ["MAREN", "NUM_ORDERS", "NUM_REVIEWS", "fill_shop"]

MAREN = 1
"""The customer who is logged in."""
NUM_ORDERS = 200
NUM_REVIEWS = 250

_DATA = Path(__file__).parent / "data"
_FIRST_ORDER = 1001
_OPENING = datetime(2025, 3, 3, 8, tzinfo=UTC)
_PENDING = 8
_OPEN = 18
"""Orders that are not sent yet, the pending ones among them."""
_SPARSE = frozenset((6, 27, 41, 72))
"""Products nobody has reviewed."""
_SOLD_OUT = frozenset((13, 33, 58, 66))
_SHORT = {9: 3, 24: 2, 47: 4, 70: 1}
"""Products of which few are left."""
_DISABLED = frozenset((19, 50, 76))
_NEW = {8: "2026-01-12", 35: "2026-02-02", 59: "2026-01-26", 80: "2026-02-16"}
"""Products that came lately."""
_SHIPPING = (("Economy", "6 to 9", 250), ("Standard", "3 to 5", 490), ("Express", "1 to 2", 1250))
_CARRIERS = (("Swiftlane Post", "SL"), ("Harbour Parcel", "HP"), ("Greyheron Freight", "GF"))
_PAYMENTS = ("Card", "Card", "Card", "Bank transfer", "Invoice")
_RULES = (
    ("Welcome", "WELCOME10", "percent", 10, 0, "2025-01-01", "2026-12-31", 1),
    ("Spring picnic", "PICNIC5", "fixed", 500, 4000, "2025-04-01", "2025-05-31", 0),
    ("Long nights", "LANTERN15", "percent", 15, 6000, "2025-11-15", "2026-01-06", 0),
    ("Thank you", "THANKS8", "fixed", 800, 5000, "2025-06-01", "2026-06-30", 1),
    ("Moving house", "NEWHOME", "percent", 20, 15000, "2026-01-15", "2026-04-15", 1),
)
_TERMS = (
    ("blanket", 64),
    ("kettle", 58),
    ("headphones", 51),
    ("rain jacket", 43),
    ("puzzle", 39),
    ("fountain pen", 31),
    ("teapot", 27),
    ("lamp", 22),
    ("umbrella", 17),
    ("usb", 12),
)
_WISHES = (30, 55, 68)
_REMARKS = (
    ("Please leave the parcel with the neighbour at number 12.", 0),
    ("The customer asked for gift wrapping.", 0),
    ("Your parcel left a day late because of the storm. We are sorry.", 1),
    ("Address confirmed by telephone.", 0),
)


def fill_shop(db: Connection, rng: Random) -> None:
    for part in _PARTS:
        part(db, rng)


def _sections(file: str) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """A table of words: its parts by name, each with its rows."""
    found: dict[str, list[tuple[str, ...]]] = {}
    rows = found[""] = []
    for text in (_DATA / file).read_text("utf-8").splitlines():
        if text.startswith("= "):
            rows = found[text.removeprefix("= ")] = []
        elif text and not text.startswith("#"):
            rows.append(tuple(part.strip() for part in text.split(" | ")))
    return found


# --- goods ---


def _products(db: Connection, rng: Random) -> None:
    number = 0
    for category, (title, rows) in enumerate(_sections("products.txt").items()):
        if not rows:
            continue
        slug, name = title.split(" | ")
        db.execute("INSERT INTO category VALUES (?, ?, ?)", (category, slug, name))
        for place, row in enumerate(rows, 1):
            number += 1
            sku = f"{slug[:2].upper()}-{100 + place}"
            _product(db, number, sku, category, row, rng)


def _product(db: Connection, number: int, sku: str, category: int, row: Sequence[str], rng: Random) -> None:
    name, maker, material, price, options, description = row
    created = _NEW.get(number, _later("2023-02-01", rng.randrange(700)))
    stock = 0 if number in _SOLD_OUT else _SHORT.get(number, rng.randint(8, 140))
    values = (number, sku, category, name, maker, material, description, _cents(price), stock, number not in _DISABLED)
    db.execute("INSERT INTO product VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, created))
    if options != "-":
        what, _, choices = options.partition(": ")
        rows = [(number, what, position, value) for position, value in enumerate(choices.split(", "), 1)]
        db.executemany("INSERT INTO choice VALUES (?, ?, ?, ?)", rows)


def _cents(price: str) -> int:
    return int(price.replace(".", ""))


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


# --- people ---


def _people(db: Connection, rng: Random) -> None:
    words = _sections("people.txt")
    for customer, (name,) in enumerate(words["customers"], 1):
        first, last = name.split()
        tier = "General" if customer == MAREN else rng.choices(("General", "Wholesale", "VIP"), (7, 2, 1))[0]
        values = (customer, f"{first}.{last}@mail.test".lower(), f"{first.lower()}-{last.lower()}", first, last)
        since = _later("2021-05-01", rng.randrange(1300))
        newsletter = int(customer != MAREN and rng.random() < 0.4)
        db.execute(
            "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, _phone(rng), tier, newsletter, since)
        )
        for main in (1, 0) if customer == MAREN or rng.random() < 0.25 else (1,):
            _address(db, customer, name, main, words, rng)


def _phone(rng: Random) -> str:
    return f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"


def _address(
    db: Connection, customer: int, name: str, main: int, words: Mapping[str, Sequence[tuple[str, ...]]], rng: Random
) -> None:
    (street,) = rng.choice(words["streets"])
    city, region, code = rng.choice(words["cities"])
    house, postcode = rng.randint(1, 98), f"{code}{rng.randint(10, 99)}"
    db.execute(
        "INSERT INTO address (customer_id, name, street, city, region, postcode, phone, main)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (customer, name, f"{house} {street}", city, region, postcode, _phone(rng), main),
    )


# --- reviews ---


def _reviews(db: Connection, rng: Random) -> None:
    words = _sections("reviews.txt")
    products = {name: number for number, name in db.execute("SELECT id, name FROM product")}
    for part, status in (("written", "approved"), ("new", "pending")):
        for product, stars, nickname, day, title, body in words[part]:
            _review(db, products[product], nickname, int(stars), title, body, day, status)
    left = NUM_REVIEWS - len(words["written"]) - len(words["new"])
    sorts = db.execute(
        "SELECT product.id, slug, created FROM product JOIN category ON category.id = category_id"
        " WHERE created < '2026' ORDER BY product.id"
    ).fetchall()
    sorts = [each for each in sorts if each[0] not in _SPARSE]
    people = [f"{first} {last[0]}." for first, last in db.execute("SELECT first, last FROM customer ORDER BY id")]
    for _ in range(left):
        number, slug, created = rng.choice(sorts)
        given = rng.choices((5, 4, 3, 2, 1), (40, 28, 14, 11, 7))[0]
        title, general = rng.choice(words[str(given)])
        kind = "+" if given > 3 or (given == 3 and rng.random() < 0.5) else "-"
        special = rng.choice([text for (text,) in words[slug] if text.startswith(kind)])
        day = _between(max(created, "2025-03-01"), "2026-02-22", rng)
        _review(db, number, rng.choice(people), given, title, f"{general} {special[2:]}", day, "approved")


def _review(
    db: Connection, product: int, nickname: str, stars: int, title: str, body: str, day: str, status: str
) -> None:
    db.execute(
        "INSERT INTO review (product_id, nickname, stars, title, body, written, status) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (product, nickname, stars, title, body, day, status),
    )


def _between(first: str, last: str, rng: Random) -> str:
    return _later(first, rng.randint(0, (date.fromisoformat(last) - date.fromisoformat(first)).days))


# --- orders ---


def _orders(db: Connection, rng: Random) -> None:
    db.executemany("INSERT INTO shipping (name, days, price) VALUES (?, ?, ?)", _SHIPPING)
    for place, moment in enumerate(_moments(rng)):
        ours = place % 11 == 4 or place in (188, 197)
        customer = MAREN if ours else rng.randint(2, 30)
        _order(db, _FIRST_ORDER + place, customer, moment, _status(place, rng), rng)
    for place, (text, told) in enumerate(_REMARKS):
        order = _FIRST_ORDER + 150 + 11 * place
        db.execute(
            "INSERT INTO remark (purchase_id, body, made, told) SELECT id, ?, placed, ? FROM purchase WHERE id = ?",
            (text, told, order),
        )


def _moments(rng: Random) -> list[datetime]:
    """When orders were placed; those not yet sent in the last days."""
    settled, lately = 352 * 24 * 60, 10 * 24 * 60
    minutes = [rng.randrange(settled) for _ in range(NUM_ORDERS - _OPEN)]
    minutes += [settled + rng.randrange(lately) for _ in range(_OPEN)]
    return [_OPENING + timedelta(minutes=each) for each in sorted(minutes)]


def _status(place: int, rng: Random) -> str:
    if place >= NUM_ORDERS - _PENDING:
        return "pending"
    if place >= NUM_ORDERS - _OPEN:
        return "processing"
    return "canceled" if rng.random() < 0.09 else "complete"


def _order(db: Connection, number: int, customer: int, moment: datetime, status: str, rng: Random) -> None:
    placed = f"{moment:%Y-%m-%d %H:%M}"
    to = db.execute(
        "SELECT name, street, city, region, postcode, phone FROM address WHERE customer_id = ? AND main", (customer,)
    ).fetchone()
    method, _, postage = rng.choice(_SHIPPING)
    lines = _lines(db, placed, rng)
    code = "WELCOME10" if rng.random() < 0.12 else ""
    discount = sum(price * quantity for _, _, _, price, quantity in lines) // 10 if code else 0
    values = (number, customer, placed, status, *to, method, postage, rng.choice(_PAYMENTS), code, discount)
    db.execute(f"INSERT INTO purchase VALUES ({', '.join('?' * len(values))})", values)
    db.executemany(
        "INSERT INTO line (purchase_id, sku, name, option, price, quantity) VALUES (?, ?, ?, ?, ?, ?)",
        [(number, *line) for line in lines],
    )
    if status in ("processing", "complete"):
        db.execute("INSERT INTO invoice (purchase_id, made) VALUES (?, ?)", (number, placed[:10]))
    if status == "complete":
        _shipment(db, number, moment.date().isoformat(), rng)


def _lines(db: Connection, placed: str, rng: Random) -> list[tuple[str, str, str, int, int]]:
    goods = db.execute(
        "SELECT id, sku, name, price FROM product WHERE created < ? AND enabled ORDER BY id", (placed,)
    ).fetchall()
    # some things are wanted more than others
    weights = [1 + 40 // (1 + product * 7 % 23) for product, *_ in goods]
    chosen = dict.fromkeys(rng.choices(goods, weights, k=rng.choice((1, 1, 2, 2, 3, 4))))
    return [
        (sku, name, _option(db, product, rng), price, rng.choice((1, 1, 1, 2, 3)))
        for product, sku, name, price in chosen
    ]


def _option(db: Connection, product: int, rng: Random) -> str:
    choices = db.execute("SELECT name, value FROM choice WHERE product_id = ? ORDER BY position", (product,)).fetchall()
    return ": ".join(rng.choice(choices)) if choices else ""


def _shipment(db: Connection, order: int, placed: str, rng: Random) -> None:
    carrier, letters = rng.choice(_CARRIERS)
    sent = _later(placed, rng.randint(0, 2))
    delivered = _later(sent, rng.randint(1, 6))
    tracking = f"{letters}{rng.randrange(10**8):08}"
    db.execute(
        "INSERT INTO shipment (purchase_id, carrier, tracking, sent, delivered) VALUES (?, ?, ?, ?, ?)",
        (order, carrier, tracking, sent, delivered),
    )


# --- the rest ---


def _rest(db: Connection, rng: Random) -> None:
    db.executemany(
        "INSERT INTO rule (name, code, kind, amount, minimum, starts, ends, active) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        _RULES,
    )
    db.executemany("INSERT INTO wish (customer_id, product_id) VALUES (?, ?)", [(MAREN, each) for each in _WISHES])
    db.executemany("INSERT INTO page (slug, title, body, enabled) VALUES (?, ?, ?, 1)", _sections("pages.txt")[""])
    for words, uses in _TERMS:
        results = _results(db, words)
        db.execute("INSERT INTO term (words, results, uses) VALUES (?, ?, ?)", (words, results, uses))


def _results(db: Connection, words: str) -> int:
    conditions = match_words(words)
    clause = " AND ".join(sql for sql, _ in conditions)
    return fetch_number(
        db, f"SELECT count(*) FROM product WHERE enabled AND {clause}", *(value for _, value in conditions)
    )


_PARTS: Sequence[Callable[[Connection, Random], None]] = (_products, _people, _reviews, _orders, _rest)
