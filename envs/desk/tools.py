"""What the tools do to the database. They check that a change is possible, not that the policy allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .database import Database, Row, format_cents, parse_cents

__all__ = ["CHANGES", "LOOKUPS", "RefusedCall", "find_customer", "order_total"]


class RefusedCall(Exception):
    """The reason why a call is not possible, shown to the agent."""


def _find(db: Database, table: str, key: str, what: str) -> Row:
    row = db.find(table, key)
    if row is None:
        raise RefusedCall(f"There is no {what}.")
    return row


def _find_order(db: Database, key: str) -> Row:
    return _find(db, "orders", key, "order with that number")


def order_total(db: Database, order: str) -> int:
    return sum(parse_cents(item["price"]) for _, item in db.select("items", order=order))


# --- looking things up ---


def find_customer(db: Database, email: str, postcode: str) -> str | None:
    """Id of the account that both belong to."""
    for key, row in db.select("customers"):
        if (row["email"], row["postcode"]) == (email.casefold(), postcode.upper()):
            return key
    return None


def show_customer(db: Database, email: str, postcode: str) -> str:
    key = find_customer(db, email, postcode)
    if key is None:
        raise RefusedCall("No account has this email address and this postcode.")
    orders = [f"{order} ({row['status']})" for order, row in db.select("orders", customer=key)]
    payments = [f"{payment} ({row['kind']})" for payment, row in db.select("payments", customer=key)]
    name = db.get("customers", key)["name"]
    return f"Customer {key}: {name}. Orders: {', '.join(orders)}. Payment methods: {', '.join(payments)}."


def show_order(db: Database, order_id: str) -> str:
    row = _find_order(db, order_id)
    customer = db.get("customers", row["customer"])["name"]
    arrival = "delivered" if row["status"] == "delivered" else "expected"
    who = f"Order {order_id} of customer {row['customer']}, {customer}"
    where = f"{row['street']}, {row['city']}, {row['postcode']}"
    total = format_cents(order_total(db, order_id))
    lines = [
        f"{who}: {row['status']}, {arrival} on {row['arrival']}, exchanged before: {row['exchanged']}.",
        f"Address: {where}. Paid with {row['payment']}, total {total}.",
    ]
    for key, item in db.select("items", order=order_id):
        sku = db.get("skus", item["sku"])
        final = ", final sale" if item["final_sale"] == "yes" else ""
        state = f"{item['price']}{final}, {item['state']}"
        lines.append(f"Item {key}: {sku['product']}, {sku['variant']}, {item['sku']}, {state}.")
    return "\n".join(lines)


def show_product(db: Database, product: str) -> str:
    rows = [*db.select("skus", product=product.casefold())]
    if not rows:
        names = dict.fromkeys(row["product"] for _, row in db.select("skus"))
        raise RefusedCall(f"There is no such product. The products are {', '.join(names)}.")
    listed = [f"{key}: {row['variant']}, {row['price']}, {row['stock']} in stock" for key, row in rows]
    return f"{product.casefold()}: " + "; ".join(listed) + "."


# --- changing things ---


def cancel_order(db: Database, order_id: str, reason: str) -> str:
    row = _find_order(db, order_id)
    if row["status"] in ("cancelled", "delivered"):
        raise RefusedCall(f"The order is {row['status']}: it cannot be cancelled.")
    amount = format_cents(order_total(db, order_id))
    db.put("orders", order_id, status="cancelled", reason=reason)
    db.put("refunds", order_id, amount=amount, to=row["payment"])
    return f"Order {order_id} is cancelled; {amount} goes back to {row['payment']}."


def change_address(db: Database, order_id: str, street: str, city: str, postcode: str) -> str:
    row = _find_order(db, order_id)
    if row["status"] in ("cancelled", "delivered"):
        raise RefusedCall(f"The order is {row['status']}: its address cannot be changed.")
    db.put("orders", order_id, street=street, city=city, postcode=postcode)
    return f"Order {order_id} goes to {street}, {city}, {postcode}."


def _find_kept(db: Database, order_id: str, item_id: str) -> Row:
    order, item = _find_order(db, order_id), _find(db, "items", item_id, "item with that id")
    if item["order"] != order_id:
        raise RefusedCall("That item is of another order.")
    if order["status"] != "delivered":
        raise RefusedCall(f"The order is {order['status']}, not delivered.")
    if item["state"] == "returned":
        raise RefusedCall("That item was returned already.")
    return item


def return_item(db: Database, order_id: str, item_id: str, refund_to: str) -> str:
    item = _find_kept(db, order_id, item_id)
    payment = _find(db, "payments", refund_to, "payment method with that id")
    if payment["customer"] != db.get("orders", order_id)["customer"]:
        raise RefusedCall("That payment method is of another account.")
    db.put("items", item_id, state="returned")
    db.put("refunds", item_id, amount=item["price"], to=refund_to)
    return f"Item {item_id} is returned; {item['price']} goes to {refund_to}."


def exchange_item(db: Database, order_id: str, item_id: str, new_sku: str) -> str:
    item = _find_kept(db, order_id, item_id)
    sku = _find(db, "skus", new_sku, "variant with that stock number")
    if new_sku == item["sku"]:
        raise RefusedCall("That is the variant that the customer has.")
    if sku["stock"] == "0":
        raise RefusedCall("That variant is out of stock.")
    difference = parse_cents(sku["price"]) - parse_cents(item["price"])
    amount = ("-" if difference < 0 else "") + format_cents(abs(difference))
    returned = db.get("skus", item["sku"])
    db.put("skus", item["sku"], stock=str(int(returned["stock"]) + 1))
    db.put("skus", new_sku, stock=str(int(sku["stock"]) - 1))
    db.put("items", item_id, sku=new_sku, price=sku["price"], state="exchanged")
    db.put("orders", order_id, exchanged="yes")
    db.put("charges", item_id, amount=amount, to=db.get("orders", order_id)["payment"])
    return f"Item {item_id} is exchanged for {new_sku}; {amount} is charged."


LOOKUPS: Mapping[str, Callable[..., str]] = {
    "find_customer": show_customer,
    "get_order": show_order,
    "get_product": show_product,
}
CHANGES: Mapping[str, Callable[..., str]] = {
    "cancel_order": cancel_order,
    "change_address": change_address,
    "return_item": return_item,
    "exchange_item": exchange_item,
}
