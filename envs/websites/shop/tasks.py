"""What there is to be done in the shop, by Maren, who is logged in; with what the clerk has to do."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import NOT_POSSIBLE, Databases, Outcome
from ..framework.records import Record, one, rows
from ..outcomes import Added, Edited, Gone, Wanted, just
from ..tasks import Choose, Click, Deed, Fill, Template, Values
from .admin_tasks import ADMIN_TASKS
from .seed import MAREN

__all__ = ["TASKS"]

_SHOP = "http://shop.test/"

# --- what is true ---


def _product(databases: Databases, name: object) -> Record:
    return rows(databases["shop"], "SELECT * FROM goods WHERE name = ?", name)[0]


def _cheapest(databases: Databases, values: Values) -> str:
    sql = "SELECT name FROM goods WHERE category = ? AND material = ? AND enabled ORDER BY price"
    return str(one(databases["shop"], sql, values["category"], values["material"]))


def _few_stars(databases: Databases, values: Values) -> int:
    sql = (
        "SELECT count(*) FROM review JOIN product ON product.id = product_id"
        " WHERE name = ? AND stars <= ? AND status = 'approved'"
    )
    return int(one(databases["shop"], sql, values["product"], values["stars"]))


def _complaining(databases: Databases, values: Values) -> frozenset[str]:
    sql = (
        "SELECT nickname FROM review JOIN product ON product.id = product_id"
        " WHERE name = ? AND body LIKE ? AND status = 'approved'"
    )
    return frozenset(each["nickname"] for each in rows(databases["shop"], sql, values["product"], values["said"]))


def _orders(databases: Databases, clause: str, *given: object) -> list[Record]:
    """Maren's, the latest first."""
    sql = f"SELECT * FROM bill WHERE customer_id = ? AND {clause} ORDER BY placed DESC"
    return rows(databases["shop"], sql, MAREN, *given)


def _order_total(databases: Databases, values: Values) -> float:
    return int(_orders(databases, "id = ?", values["order"])[0]["total"]) / 100


def _month_spent(databases: Databases, values: Values) -> float:
    found = _orders(databases, "placed LIKE ? AND status != 'canceled'", f"{values['month']}-%")
    return sum(int(each["total"]) for each in found) / 100


def _delivered(databases: Databases, values: Values) -> str:
    return str(one(databases["shop"], "SELECT delivered FROM shipment WHERE purchase_id = ?", values["order"]))


def _with(databases: Databases, values: Values) -> Record:
    """Maren's latest order of a product that was not canceled."""
    clause = "status != 'canceled' AND id IN (SELECT purchase_id FROM line WHERE line.name = ?)"
    return _orders(databases, clause, values["product"])[0]


def _latest(databases: Databases, values: Values) -> int:
    return int(_orders(databases, "status = ?", values["status"])[0]["id"])


def _lines(databases: Databases, order: object) -> list[Record]:
    return rows(databases["shop"], "SELECT * FROM line WHERE purchase_id = ?", order)


def _address(databases: Databases, city: object) -> Record:
    return rows(databases["shop"], "SELECT * FROM address WHERE customer_id = ? AND city = ?", MAREN, city)[0]


# --- what was changed ---


def _option(databases: Databases, values: Values) -> str:
    """As it is written down: `Size: Small`."""
    name = one(
        databases["shop"],
        "SELECT choice.name FROM choice JOIN goods ON goods.id = product_id WHERE goods.name = ?",
        values["product"],
    )
    return f"{name}: {values['option']}" if name else ""


def _in_cart(databases: Databases, values: Values) -> Added:
    option, product = _option(databases, values), _product(databases, values["product"])["id"]
    row = {"customer_id": MAREN, "product_id": product, "option": option, "quantity": values["quantity"]}
    return Added(row)


def _was_put(outcome: Outcome, values: Values) -> bool:
    return just(outcome, {"shop.basket": (_in_cart(outcome.before, values),)})


def _was_put_with_code(outcome: Outcome, values: Values) -> bool:
    code = Added({"customer_id": MAREN, "code": values["code"]})
    return just(outcome, {"shop.basket": (_in_cart(outcome.before, values),), "shop.basket_code": (code,)})


def _wish(outcome: Outcome, values: Values) -> Record:
    return {"customer_id": MAREN, "product_id": _product(outcome.before, values["product"])["id"]}


def _was_reviewed(outcome: Outcome, values: Values) -> bool:
    said = {name: values[name] for name in ("stars", "nickname", "title", "body")}
    product = _product(outcome.before, values["product"])["id"]
    return just(outcome, {"shop.review": (Added({"product_id": product, **said}),)})


def _bought(databases: Databases, values: Values, lines: Sequence[Record]) -> Wanted:
    """An order of these lines, and less in stock of all of them."""
    to = _address(databases, values["city"])
    where = {name: to[name] for name in ("name", "street", "city", "region", "postcode", "phone")}
    how = {"method": values["method"], "payment": values["payment"], "code": "", "status": "pending"}
    stock = [_product(databases, line["name"]) for line in lines]
    return {
        "shop.purchase": (Added({"customer_id": MAREN, **where, **how}),),
        "shop.line": [Added({name: line[name] for name in ("name", "option", "quantity")}) for line in lines],
        "shop.product": [
            Edited({"id": product["id"]}, {"stock": product["stock"] - line["quantity"]})
            for product, line in zip(stock, lines, strict=True)
        ],
    }


def _was_bought(outcome: Outcome, values: Values) -> bool:
    option = _option(outcome.before, values)
    line = {"name": values["product"], "option": option, "quantity": values["quantity"]}
    return just(outcome, _bought(outcome.before, values, [line]))


def _was_bought_again(outcome: Outcome, values: Values) -> bool:
    return just(outcome, _bought(outcome.before, values, _lines(outcome.before, values["order"])))


def _was_canceled(outcome: Outcome, values: Values) -> bool:
    order = _latest(outcome.before, {"status": "pending"})
    back = [(_product(outcome.before, line["name"]), line["quantity"]) for line in _lines(outcome.before, order)]
    stock = [Edited({"id": product["id"]}, {"stock": product["stock"] + quantity}) for product, quantity in back]
    return just(outcome, {"shop.purchase": (Edited({"id": order}, {"status": "canceled"}),), "shop.product": stock})


def _was_addressed(outcome: Outcome, values: Values) -> bool:
    return just(outcome, {"shop.address": (Added({"customer_id": MAREN, "main": 0, **values}),)})


def _is_main(outcome: Outcome, values: Values) -> bool:
    there = rows(outcome.before["shop"], "SELECT * FROM address WHERE customer_id = ?", MAREN)
    moved = [Edited({"id": each["id"]}, {"main": int(each["city"] == values["city"])}) for each in there]
    return just(outcome, {"shop.address": moved})


def _about_me(outcome: Outcome, **values: object) -> bool:
    return just(outcome, {"shop.customer": (Edited({"id": MAREN}, values),)})


def _was_written(outcome: Outcome, values: Values) -> bool:
    letter = {"name": "Maren Hollowell", "email": "maren.hollowell@mail.test", **values}
    return just(outcome, {"shop.message": (Added(letter),)})


# --- how it is done ---


def _at(product: object, *deeds: Deed) -> list[Deed]:
    """On a product's page, found by its name."""
    return [Fill("searchbox", "Search the shop", str(product), enter=True), Click("link", str(product)), *deeds]


def _at_order(order: object, *deeds: Deed) -> list[Deed]:
    return [
        Click("link", "My orders"),
        Fill("textbox", "Order number", str(order)),
        Click("button", "Apply"),
        Click("link", f"Order {order}"),
        *deeds,
    ]


def _putting(databases: Databases, values: Values) -> list[Deed]:
    option = _option(databases, values)
    chosen = [Choose("combobox", option.partition(":")[0], str(values["option"]))] if option else []
    quantity = Fill("textbox", "Quantity", str(values["quantity"]))
    return _at(values["product"], *chosen, quantity, Click("button", "Add to cart"))


def _putting_with_code(databases: Databases, values: Values) -> list[Deed]:
    code = Fill("textbox", "Coupon code", str(values["code"]))
    return [*_putting(databases, values), code, Click("button", "Use code")]


def _checking_out(databases: Databases, values: Values) -> list[Deed]:
    to = _address(databases, values["city"])
    address = f"{to['name']}, {to['street']}, {to['city']}, {to['region']} {to['postcode']}"
    by = rows(databases["shop"], "SELECT * FROM shipping WHERE name = ?", values["method"])[0]
    return [
        Click("link", "Go to checkout"),
        Click("radio", address),
        Click("radio", f"{by['name']}, {by['days']} days, ${by['price'] / 100:.2f}"),
        Click("radio", str(values["payment"])),
        Click("button", "Place order"),
    ]


def _reviewing(databases: Databases, values: Values) -> list[Deed]:
    stars = f"{values['stars']} {'star' if values['stars'] == 1 else 'stars'}"
    return _at(
        values["product"],
        Click("link", "Write a review"),
        Choose("combobox", "Stars", stars),
        Fill("textbox", "Nickname", str(values["nickname"])),
        Fill("textbox", "Title", str(values["title"])),
        Fill("textbox", "Review", str(values["body"])),
        Click("button", "Send review"),
    )


def _listing(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", str(values["category"])),
        Choose("combobox", "Maker", str(values["maker"])),
        Choose("combobox", "Sort by", "Price: highest first"),
        Click("button", "Apply"),
    ]


def _choosing_material(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", str(values["category"])),
        Choose("combobox", "Material", str(values["material"])),
        Choose("combobox", "Sort by", "Price: lowest first"),
        Click("button", "Apply"),
    ]


def _searching(databases: Databases, values: Values) -> list[Deed]:
    return [
        Fill("searchbox", "Search the shop", str(values["words"]), enter=True),
        Click("checkbox", "In stock only"),
        Choose("combobox", "Sort by", "Price: lowest first"),
        Click("button", "Apply"),
    ]


def _addressing(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", "My account"),
        Click("link", "Addresses"),
        Click("link", "New address"),
        *(Fill("textbox", name.capitalize(), str(value)) for name, value in values.items()),
        Click("button", "Save address"),
    ]


def _writing(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", "Contact us"),
        Fill("textbox", "Subject", str(values["subject"])),
        Fill("textbox", "Message", str(values["body"])),
        Click("button", "Send message"),
    ]


def _own(link: str, field: Deed) -> list[Deed]:
    return [Click("link", "My account"), Click("link", link), field, Click("button", "Save")]


_SHOPPING = (
    Template(
        id="shop-cheapest",
        site="shopping",
        intent="Which is the cheapest product in {category} that is made of {material}? Answer with its name.",
        variants=(
            {"category": "Bags & Travel", "material": "Nylon"},
            {"category": "Garden", "material": "Steel"},
            {"category": "Electronics", "material": "Plastic"},
        ),
        start=_SHOP,
        answer=_cheapest,
        path=_choosing_material,
    ),
    Template(
        id="shop-few-stars",
        site="shopping",
        intent="How many reviews of the {product} give it {stars} stars or fewer? Answer with the number.",
        variants=(
            {"product": "Waterproof Rain Jacket", "stars": 3},
            {"product": "Noise-Cancelling Headphones", "stars": 2},
            {"product": "Linen Summer Shirt", "stars": 3},
        ),
        start=_SHOP,
        answer=_few_stars,
        path=lambda databases, values: _at(values["product"], Click("link", "Lowest first")),
    ),
    Template(
        id="shop-complaints",
        site="shopping",
        intent="Whose reviews of the {product} complain of {matter}? Answer with their nicknames, separated by commas.",
        variants=(
            {"product": "Noise-Cancelling Headphones", "matter": "ear cups that are too small", "said": "%small%"},
            {"product": "Beginner's Telescope", "matter": "an unsteady tripod", "said": "%tripod%"},
            {"product": "Waterproof Rain Jacket", "matter": "its zip", "said": "%zip%"},
        ),
        start=_SHOP,
        answer=_complaining,
        path=lambda databases, values: _at(values["product"], Click("link", "Lowest first")),
    ),
    Template(
        id="shop-order-total",
        site="shopping",
        intent="What was the total of my order {order}, shipping included? Answer with the amount.",
        variants=({"order": 1082}, {"order": 1137}),
        start=_SHOP,
        answer=_order_total,
        path=lambda databases, values: _at_order(values["order"]),
    ),
    Template(
        id="shop-month-spent",
        site="shopping",
        intent="How much did I spend on orders placed in {name}, shipping included? Leave out canceled orders."
        " Answer with the amount.",
        variants=(
            {"name": "December 2025", "month": "2025-12"},
            {"name": "November 2025", "month": "2025-11"},
            {"name": "February 2026", "month": "2026-02"},
        ),
        start=_SHOP,
        answer=_month_spent,
        path=lambda databases, values: [Click("link", "My orders"), Click("link", "Next")],
    ),
    Template(
        id="shop-delivered",
        site="shopping",
        intent="On which day was my order {order} delivered? Answer like 2026-03-02.",
        variants=({"order": 1159}, {"order": 1115}),
        start=_SHOP,
        answer=_delivered,
        path=lambda databases, values: _at_order(values["order"]),
    ),
    Template(
        id="shop-last-bought",
        site="shopping",
        intent="When did I last order the {product}? Leave out canceled orders. Answer with the day, like 2026-03-02.",
        variants=(
            {"product": "Beginner's Telescope"},
            {"product": "Wall Calendar of Tides"},
            {"product": "Cable Knit Beanie"},
        ),
        start=_SHOP,
        answer=lambda databases, values: str(_with(databases, values)["placed"])[:10],
        path=lambda databases, values: _at_order(_with(databases, values)["id"]),
    ),
    Template(
        id="shop-maker-list",
        site="shopping",
        intent="Show me what {maker} makes in {category}, the most expensive first.",
        variants=(
            {"maker": "Farwend", "category": "Bags & Travel", "slug": "bags"},
            {"maker": "Luneth", "category": "Home & Light", "slug": "home"},
            {"maker": "Lanternfish", "category": "Toys & Games", "slug": "toys"},
        ),
        start=_SHOP,
        url="http://shop.test/category/{slug}?maker={maker}&sort=price-high",
        path=_listing,
    ),
    Template(
        id="shop-search-stock",
        site="shopping",
        intent="Search the shop for '{words}', and show only what is in stock, the cheapest first.",
        variants=({"words": "set"}, {"words": "linen"}),
        start=_SHOP,
        url="http://shop.test/search?q={words}&stock=1&sort=price-low",
        path=_searching,
    ),
    Template(
        id="shop-latest-order",
        site="shopping",
        intent="Open the page of my latest order that is {status}.",
        variants=({"status": "complete"}, {"status": "canceled"}, {"status": "processing"}),
        start=_SHOP,
        url=lambda databases, values: f"http://shop.test/account/orders/{_latest(databases, values)}",
        path=lambda databases, values: [
            Click("link", "My orders"),
            Choose("combobox", "Status", str(values["status"]).capitalize()),
            Click("button", "Apply"),
            Click("link", f"Order {_latest(databases, values)}"),
        ],
    ),
    Template(
        id="shop-information",
        site="shopping",
        intent="Open the page on which the shop says {matter}.",
        variants=(
            {"matter": "how long I may take to send something back", "slug": "returns", "title": "Returns"},
            {"matter": "for which sums it sells gift cards", "slug": "gift-cards", "title": "Gift cards"},
        ),
        start=_SHOP,
        url="http://shop.test/info/{slug}",
        path=lambda databases, values: [Click("link", str(values["title"]))],
    ),
    Template(
        id="shop-not-carried",
        site="shopping",
        intent="What does the {thing} cost in this shop? Answer with the amount, or N/A if the shop does not sell one.",
        variants=({"thing": "Glass Teapot"}, {"thing": "Storm Umbrella"}),
        start=_SHOP,
        answer=NOT_POSSIBLE,
        path=lambda databases, values: [Fill("searchbox", "Search the shop", str(values["thing"]), enter=True)],
    ),
    Template(
        id="shop-add-to-cart",
        site="shopping",
        intent="Put {quantity} of the {product} into my cart, option '{option}'. Do not order yet.",
        variants=(
            {"product": "Merino Crew Sweater", "option": "M", "quantity": 1},
            {"product": "Braided USB-C Cable", "option": "2 m", "quantity": 3},
            {"product": "Bottled Ink", "option": "Oxblood", "quantity": 2},
        ),
        start=_SHOP,
        state=_was_put,
        path=_putting,
    ),
    Template(
        id="shop-wish",
        site="shopping",
        intent="Put the {product} on my wish list.",
        variants=({"product": "Paper Floor Lamp"}, {"product": "Wooden Marble Run"}),
        start=_SHOP,
        state=lambda outcome, values: just(outcome, {"shop.wish": (Added(_wish(outcome, values)),)}),
        path=lambda databases, values: _at(values["product"], Click("button", "Add to wish list")),
    ),
    Template(
        id="shop-unwish",
        site="shopping",
        intent="Take the {product} off my wish list.",
        variants=({"product": "Alpaca Winter Scarf"}, {"product": "Tabletop Croquet"}),
        start=_SHOP,
        state=lambda outcome, values: just(outcome, {"shop.wish": (Gone(_wish(outcome, values)),)}),
        path=lambda databases, values: [Click("link", "Wish list"), Click("button", f"Remove {values['product']}")],
    ),
    Template(
        id="shop-review",
        site="shopping",
        intent="Write a review of the {product} as '{nickname}', with {stars} of 5 stars, the title '{title}'"
        " and the text '{body}'.",
        variants=(
            {
                "product": "Luggage Scale",
                "nickname": "Maren H.",
                "stars": 5,
                "title": "No more surprises",
                "body": "Right to the gram at every counter so far.",
            },
            {
                "product": "Digital Kitchen Scale",
                "nickname": "Maren",
                "stars": 1,
                "title": "Gave up after a month",
                "body": "It switches itself off while I am still pouring.",
            },
        ),
        start=_SHOP,
        state=_was_reviewed,
        path=_reviewing,
    ),
    Template(
        id="shop-buy",
        site="shopping",
        intent="Buy {quantity} of the {product}, option '{option}', sent to my address in {city} by {method} shipping."
        " Payment: {payment}.",
        variants=(
            {
                "product": "Felt Laptop Sleeve",
                "option": "13 inch",
                "quantity": 1,
                "city": "Fennimore",
                "method": "Express",
                "payment": "Card",
            },
            {
                "product": "Wool Throw Blanket",
                "option": "Ochre",
                "quantity": 2,
                "city": "Winterbourne Cross",
                "method": "Standard",
                "payment": "Bank transfer",
            },
            {
                "product": "Washi Tape Bundle",
                "option": "none",
                "quantity": 5,
                "city": "Winterbourne Cross",
                "method": "Economy",
                "payment": "Invoice",
            },
        ),
        start=_SHOP,
        state=_was_bought,
        path=lambda databases, values: [*_putting(databases, values), *_checking_out(databases, values)],
    ),
    Template(
        id="shop-order-again",
        site="shopping",
        intent="Order all that was in my order {order} once more, sent to my address in {city} by {method} shipping."
        " Payment: {payment}.",
        variants=(
            {"order": 1126, "city": "Fennimore", "method": "Standard", "payment": "Card"},
            {"order": 1115, "city": "Winterbourne Cross", "method": "Express", "payment": "Invoice"},
        ),
        start=_SHOP,
        state=_was_bought_again,
        path=lambda databases, values: [
            *_at_order(values["order"], Click("button", "Order again")),
            *_checking_out(databases, values),
        ],
    ),
    Template(
        id="shop-cancel",
        site="shopping",
        intent="Cancel my order that is still pending.",
        start=_SHOP,
        state=_was_canceled,
        path=lambda databases, values: _at_order(
            _latest(databases, {"status": "pending"}), Click("button", "Cancel order")
        ),
    ),
    Template(
        id="shop-cancel-late",
        site="shopping",
        intent="Cancel my order {order} on its page. If the shop does not let me do that any more, change nothing and"
        " answer N/A.",
        variants=({"order": 1192}, {"order": 1170}),
        start=_SHOP,
        answer=NOT_POSSIBLE,
        state=lambda outcome, values: just(outcome, {}),
        path=lambda databases, values: _at_order(values["order"]),
    ),
    Template(
        id="shop-new-address",
        site="shopping",
        intent="Add an address to my account: {name}, {street}, {city}, region {region}, postcode {postcode},"
        " phone {phone}. My main address stays as it is.",
        variants=(
            {
                "name": "Maren Hollowell",
                "street": "7 Old Quay",
                "city": "Tarnmouth",
                "region": "Estmark",
                "postcode": "61334",
                "phone": "555-204-7781",
            },
            {
                "name": "Ida Hollowell",
                "street": "31 Chapel Walk",
                "city": "Stonebeck",
                "region": "Dunvale",
                "postcode": "30518",
                "phone": "555-661-0937",
            },
        ),
        start=_SHOP,
        state=_was_addressed,
        path=_addressing,
    ),
    Template(
        id="shop-phone",
        site="shopping",
        intent="Change the phone number in my details to {phone}.",
        variants=({"phone": "555-318-4420"}, {"phone": "555-700-1265"}),
        start=_SHOP,
        state=lambda outcome, values: _about_me(outcome, phone=values["phone"]),
        path=lambda databases, values: _own("Your details", Fill("textbox", "Phone", str(values["phone"]))),
    ),
    Template(
        id="shop-coupon",
        site="shopping",
        intent="Put {quantity} of the {product}, option '{option}', into my cart and use the coupon code {code} for it."
        " Do not order yet.",
        variants=(
            {"product": "Corduroy Work Trousers", "option": "32", "quantity": 1, "code": "WELCOME10"},
            {"product": "Cabin Suitcase", "option": "Teal", "quantity": 2, "code": "NEWHOME"},
        ),
        start=_SHOP,
        state=_was_put_with_code,
        path=_putting_with_code,
    ),
    Template(
        id="shop-newsletter",
        site="shopping",
        intent="Subscribe me to the shop's newsletter.",
        start=_SHOP,
        state=lambda outcome, values: _about_me(outcome, newsletter=1),
        path=lambda databases, values: _own("Newsletter settings", Click("checkbox", "Send me the newsletter")),
    ),
    Template(
        id="shop-contact",
        site="shopping",
        intent="Send the shop a message with the subject '{subject}' and the text '{body}'."
        " Leave my name and e-mail as the form has them.",
        variants=(
            {"subject": "Refund for order 1159", "body": "The chess set came without its white queen."},
            {"subject": "Gift card by post", "body": "Can a gift card of $120 reach Larkhaven by Friday?"},
        ),
        start=_SHOP,
        state=_was_written,
        path=_writing,
    ),
    Template(
        id="shop-main-address",
        site="shopping",
        intent="Make my address in {city} my main address.",
        variants=({"city": "Winterbourne Cross"},),
        start=_SHOP,
        state=_is_main,
        path=lambda databases, values: [
            Click("link", "My account"),
            Click("link", "Addresses"),
            Click("button", "Make main address"),
        ],
    ),
)

TASKS: tuple[Template, ...] = (*_SHOPPING, *ADMIN_TASKS)
