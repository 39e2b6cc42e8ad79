"""What there is to be done at the shop's admin side, by the clerk, who is logged in."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import NOT_POSSIBLE, Databases, Outcome
from ..framework.records import Record, one, rows
from ..outcomes import Added, Edited, Gone, just
from ..tasks import Choose, Click, Deed, Fill, Template, Values

__all__ = ["ADMIN_TASKS"]

_DESK = "http://admin.shop.test/"

# --- what is true ---


def _bestseller(databases: Databases, values: Values) -> str:
    sql = (
        "SELECT line.name FROM line JOIN purchase ON purchase.id = purchase_id WHERE status != 'canceled'"
        " AND substr(placed, 1, 10) BETWEEN ? AND ? GROUP BY sku ORDER BY sum(quantity) DESC"
    )
    return str(one(databases["shop"], sql, values["since"], values["until"]))


def _month_total(databases: Databases, values: Values) -> float:
    sql = "SELECT sum(total) FROM bill WHERE status != 'canceled' AND placed LIKE ?"
    return float(one(databases["shop"], sql, f"{values['month']}-%")) / 100


def _canceled_in(databases: Databases, values: Values) -> int:
    sql = "SELECT count(*) FROM purchase WHERE status = 'canceled' AND placed LIKE ?"
    return int(one(databases["shop"], sql, f"{values['month']}-%"))


def _customer(databases: Databases, clause: str, *given: object) -> Record:
    sql = f"SELECT customer.*, first || ' ' || last AS name FROM customer WHERE {clause}"
    return rows(databases["shop"], sql, *given)[0]


def _order_of(databases: Databases, values: Values, status: str) -> int:
    return int(
        one(databases["shop"], "SELECT id FROM bill WHERE customer = ? AND status = ?", values["customer"], status)
    )


def _short(databases: Databases, values: Values) -> frozenset[str]:
    found = rows(databases["shop"], "SELECT name FROM product WHERE stock <= ?", values["most"])
    return frozenset(each["name"] for each in found)


def _reviews_with(databases: Databases, values: Values) -> int:
    sql = "SELECT count(*) FROM review WHERE title || ' ' || body LIKE ?"
    return int(one(databases["shop"], sql, f"%{values['word']}%"))


def _busiest(databases: Databases, values: Values) -> Record:
    most = "tier = ? ORDER BY (SELECT count(*) FROM purchase WHERE customer_id = customer.id) DESC"
    return _customer(databases, most, values["tier"])


def _product(databases: Databases, values: Values) -> Record:
    return rows(databases["shop"], "SELECT * FROM product WHERE name = ?", values["product"])[0]


def _cut(databases: Databases, values: Values) -> int:
    return int(_product(databases, values)["price"]) * (100 - int(values["percent"])) // 100


def _waiting(databases: Databases, values: Values) -> int:
    """The number of the product's review that waits."""
    sql = "SELECT review.id FROM review JOIN product ON product.id = product_id WHERE name = ? AND status = 'pending'"
    return int(one(databases["shop"], sql, values["product"]))


def _written_by(databases: Databases, nickname: object) -> list[Record]:
    return rows(databases["shop"], "SELECT * FROM review WHERE nickname = ? ORDER BY id", nickname)


# --- what was changed ---


def _was_canceled(outcome: Outcome, values: Values) -> bool:
    order = _order_of(outcome.before, values, "pending")
    sql = "SELECT product.id, stock + quantity AS stock FROM line JOIN product USING (sku) WHERE purchase_id = ?"
    back = [Edited({"id": each["id"]}, {"stock": each["stock"]}) for each in rows(outcome.before["shop"], sql, order)]
    return just(outcome, {"shop.purchase": (Edited({"id": order}, {"status": "canceled"}),), "shop.product": back})


def _was_shipped(outcome: Outcome, values: Values) -> bool:
    order = _order_of(outcome.before, values, "processing")
    parcel = {"purchase_id": order, "carrier": values["carrier"], "tracking": values["tracking"]}
    status = Edited({"id": order}, {"status": "complete"})
    return just(outcome, {"shop.purchase": (status,), "shop.shipment": (Added(parcel),)})


def _was_invoiced(outcome: Outcome, values: Values) -> bool:
    order = _order_of(outcome.before, values, "pending")
    status = Edited({"id": order}, {"status": "processing"})
    return just(outcome, {"shop.purchase": (status,), "shop.invoice": (Added({"purchase_id": order}),)})


def _was_remarked(outcome: Outcome, values: Values) -> bool:
    remark = {"purchase_id": values["order"], "body": values["text"], "told": 1}
    return just(outcome, {"shop.remark": (Added(remark),)})


def _edited(outcome: Outcome, table: str, which: Record, values: Record) -> bool:
    return just(outcome, {f"shop.{table}": (Edited(which, values),)})


def _was_created(outcome: Outcome, values: Values) -> bool:
    category = one(outcome.before["shop"], "SELECT id FROM category WHERE name = ?", values["category"])
    plain = {name: values[name] for name in ("name", "sku", "stock", "maker", "material", "description")}
    price = round(float(values["price"]) * 100)
    return just(outcome, {"shop.product": (Added({**plain, "category_id": category, "price": price, "enabled": 1}),)})


def _was_deleted(outcome: Outcome, values: Values) -> bool:
    product = _product(outcome.before, values)
    below = {
        f"shop.{table}": [
            Gone(each)
            for each in rows(outcome.before["shop"], f"SELECT * FROM {table} WHERE product_id = ?", product["id"])
        ]
        for table in ("choice", "review", "wish")
    }
    gone = {table: wanted for table, wanted in below.items() if wanted}
    return just(outcome, {"shop.product": (Gone({"id": product["id"]}),), **gone})


def _were_deleted(outcome: Outcome, values: Values) -> bool:
    return just(outcome, {"shop.review": [Gone(each) for each in _written_by(outcome.before, values["nickname"])]})


def _was_ruled(outcome: Outcome, values: Values) -> bool:
    names = ("name", "code", "kind", "starts", "ends")
    rule = {name: values[name] for name in names} | {"amount": values["cents_or_percent"], "active": 1}
    return just(outcome, {"shop.rule": (Added({**rule, "minimum": int(values["minimum"]) * 100}),)})


# --- how it is done ---


def _found(section: str, link: str, *filters: Deed, then: Sequence[Deed] = ()) -> list[Deed]:
    """Something in a list that has been filtered."""
    return [Click("link", section), *filters, Click("button", "Apply"), Click("link", link), *then]


def _at_product(values: Values, *deeds: Deed) -> list[Deed]:
    name = str(values["product"])
    return _found("Products", name, Fill("textbox", "Name or SKU", name), then=deeds)


def _setting(values: Values, *fields: Deed) -> list[Deed]:
    return _at_product(values, *fields, Click("button", "Save product"))


def _at_order_of(databases: Databases, values: Values, status: str, *deeds: Deed) -> list[Deed]:
    return _found(
        "Orders",
        f"Order {_order_of(databases, values, status)}",
        Fill("textbox", "Customer", str(values["customer"])),
        Choose("combobox", "Status", status.capitalize()),
        then=deeds,
    )


def _reporting(title: str, *fields: Deed) -> list[Deed]:
    shown = [*fields, Click("button", "Show report")] if fields else []
    return [Click("link", "Reports"), Click("link", title), *shown]


def _remarking(databases: Databases, values: Values) -> list[Deed]:
    return _found(
        "Orders",
        f"Order {values['order']}",
        Fill("textbox", "Order number", str(values["order"])),
        then=(
            Fill("textbox", "Comment", str(values["text"])),
            Click("checkbox", "Tell the customer"),
            Click("button", "Add comment"),
        ),
    )


def _creating(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", "Products"),
        Click("link", "New product"),
        Fill("textbox", "Name", str(values["name"])),
        Fill("textbox", "SKU", str(values["sku"])),
        Choose("combobox", "Category", str(values["category"])),
        Fill("textbox", "Price", str(values["price"])),
        Fill("textbox", "Stock", str(values["stock"])),
        Fill("textbox", "Maker", str(values["maker"])),
        Fill("textbox", "Material", str(values["material"])),
        Fill("textbox", "Description", str(values["description"])),
        Click("button", "Save product"),
    ]


def _deleting_all(databases: Databases, values: Values) -> list[Deed]:
    return [
        deed
        for each in _written_by(databases, values["nickname"])
        for deed in _found(
            "Reviews",
            f"Review {each['id']}",
            Fill("textbox", "Nickname", str(values["nickname"])),
            then=(Click("button", "Delete review"),),
        )
    ]


def _approving(databases: Databases, values: Values) -> list[Deed]:
    return _found(
        "Reviews",
        f"Review {_waiting(databases, values)}",
        Choose("combobox", "Status", "Pending"),
        then=(Choose("combobox", "Status", "Approved"), Click("button", "Save review")),
    )


def _ruling(databases: Databases, values: Values) -> list[Deed]:
    return [
        Click("link", "Price rules"),
        Click("link", "New price rule"),
        Fill("textbox", "Rule name", str(values["name"])),
        Fill("textbox", "Coupon code", str(values["code"])),
        Choose("combobox", "Discount type", "Percent" if values["kind"] == "percent" else "Fixed amount"),
        Fill("textbox", "Discount", str(values["amount"])),
        Fill("textbox", "Smallest order", str(values["minimum"])),
        Fill("date", "From", str(values["starts"])),
        Fill("date", "To", str(values["ends"])),
        Click("button", "Save rule"),
    ]


ADMIN_TASKS = (
    Template(
        id="admin-bestseller",
        site="shopping_admin",
        intent="Which product sold most often in {period}, counted in pieces? Answer with its name.",
        variants=(
            {"period": "the first quarter of 2026 so far", "since": "2026-01-01", "until": "2026-03-31"},
            {"period": "2025", "since": "2025-01-01", "until": "2025-12-31"},
            {"period": "August 2025", "since": "2025-08-01", "until": "2025-08-31"},
        ),
        start=_DESK,
        answer=_bestseller,
        path=lambda databases, values: _reporting(
            "Bestsellers", Fill("date", "From", str(values["since"])), Fill("date", "To", str(values["until"]))
        ),
    ),
    Template(
        id="admin-month-total",
        site="shopping_admin",
        intent="What is the total of the sales of {name} in the report of sales by month? Answer with the amount.",
        variants=({"name": "October 2025", "month": "2025-10"}, {"name": "January 2026", "month": "2026-01"}),
        start=_DESK,
        answer=_month_total,
        path=lambda databases, values: _reporting("Sales by month"),
    ),
    Template(
        id="admin-canceled-in",
        site="shopping_admin",
        intent="How many of the orders placed in {name} were canceled? Answer with the number.",
        variants=({"name": "September 2025", "month": "2025-09"}, {"name": "November 2025", "month": "2025-11"}),
        start=_DESK,
        answer=_canceled_in,
        path=lambda databases, values: _reporting("Canceled orders by month"),
    ),
    Template(
        id="admin-count-orders",
        site="shopping_admin",
        intent="How many orders of {customer} are {status}? Answer with the number.",
        variants=(
            {"customer": "Ravi Sundermere", "status": "complete"},
            {"customer": "Anselm Birkby", "status": "pending"},
            {"customer": "Soraya Nimblett", "status": "complete"},
        ),
        start=_DESK,
        answer=lambda databases, values: int(
            one(
                databases["shop"],
                "SELECT count(*) FROM bill WHERE customer = ? AND status = ?",
                values["customer"],
                values["status"],
            )
        ),
        path=lambda databases, values: [
            Click("link", "Orders"),
            Fill("textbox", "Customer", str(values["customer"])),
            Choose("combobox", "Status", str(values["status"]).capitalize()),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-phone",
        site="shopping_admin",
        intent="Which customer has the phone number {phone}? Answer with first and last name.",
        variants=({"phone": "555-454-6283"}, {"phone": "555-704-3108"}),
        start=_DESK,
        answer=lambda databases, values: str(_customer(databases, "phone = ?", values["phone"])["name"]),
        path=lambda databases, values: [
            Click("link", "Customers"),
            Fill("textbox", "Phone", str(values["phone"])),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-missed-term",
        site="shopping_admin",
        intent="Of the search terms for which the shop finds nothing, which is used most? Answer with its words.",
        start=_DESK,
        answer=lambda databases, values: str(
            one(databases["shop"], "SELECT words FROM term WHERE results = 0 ORDER BY uses DESC")
        ),
        path=lambda databases, values: _reporting("Search terms"),
    ),
    Template(
        id="admin-low-stock",
        site="shopping_admin",
        intent="Of which products are {most} pieces or fewer in stock? Answer with their names, separated by commas.",
        variants=({"most": 0}, {"most": 2}),
        start=_DESK,
        answer=_short,
        path=lambda databases, values: [
            Click("link", "Products"),
            Fill("textbox", "Stock at most", str(values["most"])),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-reviews-with",
        site="shopping_admin",
        intent="How many reviews, of whatever status, have '{word}' in their title or text? Answer with the number.",
        variants=({"word": "drawer"}, {"word": "tripod"}),
        start=_DESK,
        answer=_reviews_with,
        path=lambda databases, values: [
            Click("link", "Reviews"),
            Fill("textbox", "Text", str(values["word"])),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-show-orders",
        site="shopping_admin",
        intent="Show the list of all orders that were placed from {since} to {until} and are {status}.",
        variants=(
            {"status": "canceled", "since": "2025-09-01", "until": "2025-09-30"},
            {"status": "complete", "since": "2026-01-01", "until": "2026-01-31"},
        ),
        start=_DESK,
        url="http://admin.shop.test/orders?status={status}&from={since}&to={until}",
        free=frozenset(("sort",)),
        path=lambda databases, values: [
            Click("link", "Orders"),
            Choose("combobox", "Status", str(values["status"]).capitalize()),
            Fill("date", "Placed from", str(values["since"])),
            Fill("date", "Placed to", str(values["until"])),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-busiest",
        site="shopping_admin",
        intent="Open the page of the customer of the group {tier} who has placed most orders.",
        variants=({"tier": "VIP"}, {"tier": "Wholesale"}),
        start=_DESK,
        url=lambda databases, values: f"http://admin.shop.test/customers/{_busiest(databases, values)['id']}",
        path=lambda databases, values: _found(
            "Customers",
            str(_busiest(databases, values)["name"]),
            Choose("combobox", "Group", str(values["tier"])),
            Choose("combobox", "Sort by", "Most orders first"),
        ),
    ),
    Template(
        id="admin-nobody",
        site="shopping_admin",
        intent="What is the e-mail address of the customer {name}? Answer N/A if there is no such customer.",
        variants=({"name": "Casper Thornquist"}, {"name": "Greta Oldroyd"}),
        start=_DESK,
        answer=NOT_POSSIBLE,
        path=lambda databases, values: [
            Click("link", "Customers"),
            Fill("textbox", "Name or e-mail", str(values["name"])),
            Click("button", "Apply"),
        ],
    ),
    Template(
        id="admin-cancel",
        site="shopping_admin",
        intent="Cancel the pending order of {customer}.",
        variants=({"customer": "Bettina Sandquist"}, {"customer": "Rufus Applegarth"}),
        start=_DESK,
        state=_was_canceled,
        path=lambda databases, values: _at_order_of(databases, values, "pending", Click("button", "Cancel order")),
    ),
    Template(
        id="admin-ship",
        site="shopping_admin",
        intent="Ship the order of {customer} that is processing, with {carrier}, tracking number {tracking}.",
        variants=(
            {"customer": "Yuki Haverstock", "carrier": "Harbour Parcel", "tracking": "HP40021786"},
            {"customer": "Odette Larkspur", "carrier": "Swiftlane Post", "tracking": "SL77310942"},
            {"customer": "Freya Underhay", "carrier": "Greyheron Freight", "tracking": "GF10593388"},
        ),
        start=_DESK,
        state=_was_shipped,
        path=lambda databases, values: _at_order_of(
            databases,
            values,
            "processing",
            Choose("combobox", "Carrier", str(values["carrier"])),
            Fill("textbox", "Tracking number", str(values["tracking"])),
            Click("button", "Ship order"),
        ),
    ),
    Template(
        id="admin-invoice",
        site="shopping_admin",
        intent="Make the invoice for the pending order of {customer}.",
        variants=({"customer": "Emil Rothbury"}, {"customer": "Paloma Wexcombe"}),
        start=_DESK,
        state=_was_invoiced,
        path=lambda databases, values: _at_order_of(databases, values, "pending", Click("button", "Make invoice")),
    ),
    Template(
        id="admin-comment",
        site="shopping_admin",
        intent="Add the comment '{text}' to order {order}, and have the customer told.",
        variants=(
            {"order": 1183, "text": "Your parcel leaves on Wednesday."},
            {"order": 1200, "text": "We have put a second box aside for you."},
        ),
        start=_DESK,
        state=_was_remarked,
        path=_remarking,
    ),
    Template(
        id="admin-price",
        site="shopping_admin",
        intent="Set the price of the {product} to ${price}.",
        variants=({"product": "Aroma Diffuser", "price": "44.50"}, {"product": "Cork Card Wallet", "price": "21.00"}),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome,
            "product",
            {"name": values["product"]},
            {"price": round(float(values["price"]) * 100)},
        ),
        path=lambda databases, values: _setting(values, Fill("textbox", "Price", str(values["price"]))),
    ),
    Template(
        id="admin-price-cut",
        site="shopping_admin",
        intent="Make the {product} {percent} % cheaper than it is now.",
        variants=({"product": "Bookshelf Speaker Pair", "percent": 10}, {"product": "Raised Bed Kit", "percent": 20}),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome, "product", {"name": values["product"]}, {"price": _cut(outcome.before, values)}
        ),
        path=lambda databases, values: _setting(
            values, Fill("textbox", "Price", f"{_cut(databases, values) / 100:.2f}")
        ),
    ),
    Template(
        id="admin-stock",
        site="shopping_admin",
        intent="{number} more pieces of the {product} have arrived. Add them to the stock.",
        variants=({"product": "Espresso Cup Set", "number": 24}, {"product": "Compact Webcam", "number": 30}),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome,
            "product",
            {"name": values["product"]},
            {"stock": _product(outcome.before, values)["stock"] + values["number"]},
        ),
        path=lambda databases, values: _setting(
            values, Fill("textbox", "Stock", str(_product(databases, values)["stock"] + values["number"]))
        ),
    ),
    Template(
        id="admin-disable",
        site="shopping_admin",
        intent="Set the status of the {product} to {status}.",
        variants=(
            {"product": "Terracotta Planter", "status": "Disabled"},
            {"product": "Quiet Wall Clock", "status": "Enabled"},
        ),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome, "product", {"name": values["product"]}, {"enabled": int(values["status"] == "Enabled")}
        ),
        path=lambda databases, values: _setting(values, Choose("combobox", "Status", str(values["status"]))),
    ),
    Template(
        id="admin-new-product",
        site="shopping_admin",
        intent="Create the product '{name}' with the SKU {sku} in {category}, price ${price}, stock {stock}, enabled,"
        " maker {maker}, material {material}, description '{description}'.",
        variants=(
            {
                "name": "Slate Cheese Board",
                "sku": "KI-120",
                "category": "Kitchen & Table",
                "price": "34.50",
                "stock": 40,
                "maker": "Oskell",
                "material": "Slate",
                "description": "Write the names of the cheeses on it with chalk.",
            },
            {
                "name": "Storm Umbrella",
                "sku": "BA-120",
                "category": "Bags & Travel",
                "price": "47.00",
                "stock": 60,
                "maker": "Farwend",
                "material": "Nylon",
                "description": "Turns inside out and back again without harm.",
            },
        ),
        start=_DESK,
        state=_was_created,
        path=_creating,
    ),
    Template(
        id="admin-delete-product",
        site="shopping_admin",
        intent="Delete the product {product}.",
        variants=({"product": "Weekly Desk Planner"}, {"product": "Wooden Train Set"}),
        start=_DESK,
        state=_was_deleted,
        path=lambda databases, values: _at_product(values, Click("button", "Delete product")),
    ),
    Template(
        id="admin-approve",
        site="shopping_admin",
        intent="Approve the pending review of the {product}.",
        variants=({"product": "Wool Throw Blanket"}, {"product": "Pocket Radio"}),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome, "review", {"id": _waiting(outcome.before, values)}, {"status": "approved"}
        ),
        path=_approving,
    ),
    Template(
        id="admin-spam",
        site="shopping_admin",
        intent="Delete all reviews by '{nickname}'.",
        variants=({"nickname": "cheapdeals77"},),
        start=_DESK,
        state=_were_deleted,
        path=_deleting_all,
    ),
    Template(
        id="admin-rule",
        site="shopping_admin",
        intent="Create an active price rule '{name}' with the coupon code {code}: {offer}, for orders from"
        " ${minimum}.00 on, from {starts} to {ends}.",
        variants=(
            {
                "name": "Seedling weeks",
                "code": "SEED12",
                "offer": "12 percent off",
                "kind": "percent",
                "amount": "12",
                "cents_or_percent": 12,
                "minimum": 30,
                "starts": "2026-03-09",
                "ends": "2026-03-29",
            },
            {
                "name": "Harbour days",
                "code": "HARBOUR6",
                "offer": "a fixed $6.00 off",
                "kind": "fixed",
                "amount": "6.00",
                "cents_or_percent": 600,
                "minimum": 45,
                "starts": "2026-05-01",
                "ends": "2026-05-10",
            },
        ),
        start=_DESK,
        state=_was_ruled,
        path=_ruling,
    ),
    Template(
        id="admin-page-title",
        site="shopping_admin",
        intent="Change the title of the page '{page}' to '{title}'.",
        variants=(
            {"page": "Privacy", "title": "What we know of you"},
            {"page": "Shipping", "title": "How your parcel travels"},
        ),
        start=_DESK,
        state=lambda outcome, values: _edited(outcome, "page", {"title": values["page"]}, {"title": values["title"]}),
        path=lambda databases, values: [
            Click("link", "Pages"),
            Click("link", str(values["page"])),
            Fill("textbox", "Title", str(values["title"])),
            Click("button", "Save page"),
        ],
    ),
    Template(
        id="admin-group",
        site="shopping_admin",
        intent="Move the customer {customer} to the group {tier}.",
        variants=(
            {"customer": "Freya Underhay", "tier": "VIP"},
            {"customer": "Tobias Wrenfield", "tier": "Wholesale"},
        ),
        start=_DESK,
        state=lambda outcome, values: _edited(
            outcome,
            "customer",
            {"id": _customer(outcome.before, "name = ?", values["customer"])["id"]},
            {"tier": values["tier"]},
        ),
        path=lambda databases, values: _found(
            "Customers",
            str(values["customer"]),
            Fill("textbox", "Name or e-mail", str(values["customer"])),
            then=(Choose("combobox", "Group", str(values["tier"])), Click("button", "Save customer")),
        ),
    ),
)
