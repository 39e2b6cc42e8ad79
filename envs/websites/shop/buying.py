"""The cart, and buying what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import Record, first, rows
from ..framework.site import TODAY, Answer, Page, Redirect, Request, Route, Wrong, get, post, whole
from .browse import shown
from .rows import existing, save
from .visitor import NOW, my_id, require_customer, say

__all__ = ["PAYMENTS", "ROUTES", "put"]

PAYMENTS = ("Card", "Bank transfer", "Invoice")
_MOST = 99
"""Of one thing in a cart."""


# --- the cart ---


def _add(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    found = shown(db, parts["sku"])
    option = _option(db, found, request.form.get("option", ""))
    put(db, request, found, option, whole(request.form.get("quantity", ""), 1))
    return Redirect(to="/cart")


def _option(db: Connection, product: Record, value: str) -> str:
    choices = rows(db, "SELECT * FROM choice WHERE product_id = ?", product["id"])
    if not choices:
        return ""
    name = choices[0]["name"]
    if value not in [each["value"] for each in choices]:
        raise Wrong(f"Please choose a {name.lower()} of {product['name']}.")
    return f"{name}: {value}"


def put(db: Connection, request: Request, product: Record, option: str, quantity: int) -> None:
    mine = my_id(db, request)
    same = (mine, product["id"], option)
    there = first(db, "SELECT * FROM basket WHERE customer_id IS ? AND product_id = ? AND option = ?", *same)
    wanted = quantity + (there["quantity"] if there else 0)
    _check_stock(product, wanted)
    values = {"customer_id": mine, "product_id": product["id"], "option": option, "quantity": wanted}
    save(db, "basket", values, there["id"] if there else None)
    say(db, request, f"{product['name']} is in your cart.")


def _check_stock(product: Record, wanted: int) -> None:
    if not 1 <= wanted <= _MOST:
        raise Wrong(f"You can order 1 to {_MOST} of a thing.")
    if wanted > product["stock"]:
        left = f"only {product['stock']} left" if product["stock"] else "none left"
        raise Wrong(f"There is {left} of {product['name']}.")


def _basket(db: Connection, request: Request) -> list[Record]:
    return rows(
        db,
        "SELECT basket.id, product_id, option, quantity, sku, name, price, stock, price * quantity AS total,"
        " sum(quantity) OVER (PARTITION BY product_id) AS wanted"
        " FROM basket JOIN product ON product.id = product_id WHERE customer_id IS ? ORDER BY basket.id",
        my_id(db, request),
    )


def _sums(db: Connection, request: Request) -> Mapping[str, object]:
    things = _basket(db, request)
    goods = sum(each["total"] for each in things)
    code = first(db, "SELECT code FROM basket_code WHERE customer_id = ?", my_id(db, request) or 0)
    rule = _rule(db, code["code"], goods) if code else None
    cut = _discount(rule, goods) if rule else 0
    return {"things": things, "goods": goods, "rule": rule, "discount": cut, "due": goods - cut}


def _rule(db: Connection, code: str, goods: int) -> Record | None:
    return first(
        db,
        "SELECT * FROM rule WHERE code = upper(?) AND active AND ? BETWEEN starts AND ends AND minimum <= ?",
        code,
        str(TODAY),
        goods,
    )


def _discount(rule: Record, goods: int) -> int:
    amount = int(rule["amount"])
    return min(goods, goods * amount // 100 if rule["kind"] == "percent" else amount)


def _see(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    return Page(template="cart.html", values=_sums(db, request))


def _change(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    for thing in _basket(db, request):
        wanted = whole(request.form.get(f"quantity-{thing['id']}", ""), -1)
        if wanted == 0:
            db.execute("DELETE FROM basket WHERE id = ?", (thing["id"],))
        elif wanted > 0:
            _check_stock(thing, wanted)
            save(db, "basket", {"quantity": wanted}, thing["id"])
    say(db, request, "Your cart has been updated.")
    return Redirect(to="/cart")


def _remove(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    db.execute("DELETE FROM basket WHERE id = ? AND customer_id IS ?", (whole(parts["id"]), my_id(db, request)))
    return Redirect(to="/cart")


def _use_code(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    code = request.form.get("code", "").strip().upper()
    goods = sum(each["total"] for each in _basket(db, request))
    if _rule(db, code, goods) is None:
        raise Wrong("This code does not exist, is not valid today, or is for larger orders.")
    db.execute("INSERT OR REPLACE INTO basket_code VALUES (?, ?)", (my_id(db, request) or 0, code))
    say(db, request, f"The code {code} is used.")
    return Redirect(to="/cart")


def _drop_code(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    db.execute("DELETE FROM basket_code WHERE customer_id = ?", (my_id(db, request) or 0,))
    return Redirect(to="/cart")


# --- buying ---


def _checkout(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    mine = my_id(db, request)
    sums = _sums(db, request)
    if not sums["things"]:
        raise Wrong("Your cart is empty.")
    if request.method == "POST":
        order = _buy(db, request, sums)
        return Redirect(to=f"/checkout/done/{order}")
    addresses = rows(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC, id", mine)
    shippings = rows(db, "SELECT * FROM shipping ORDER BY price")
    values = {**sums, "addresses": addresses, "shippings": shippings, "payments": PAYMENTS}
    return Page(template="checkout.html", values=values)


def _buy(db: Connection, request: Request, sums: Mapping[str, object]) -> int:
    mine, form = my_id(db, request), request.form
    to = first(db, "SELECT * FROM address WHERE id = ? AND customer_id = ?", whole(form.get("address", "")), mine)
    by = first(db, "SELECT * FROM shipping WHERE id = ?", whole(form.get("shipping", "")))
    payment = form.get("payment", "")
    if to is None or by is None or payment not in PAYMENTS:
        raise Wrong("Please choose an address, a way of shipping and a way of paying.")
    things = _basket(db, request)
    for thing in things:
        _check_stock(thing, thing["wanted"])
    rule = sums["rule"]
    where = {name: to[name] for name in ("name", "street", "city", "region", "postcode", "phone")}
    paid = {"payment": payment, "code": rule["code"] if isinstance(rule, dict) else "", "discount": sums["discount"]}
    how = {"method": by["name"], "postage": by["price"]}
    order = save(db, "purchase", {"customer_id": mine, "placed": NOW, "status": "pending", **where, **how, **paid})
    for thing in things:
        bought = {name: thing[name] for name in ("sku", "name", "option", "price", "quantity")}
        save(db, "line", {"purchase_id": order, **bought})
        db.execute("UPDATE product SET stock = stock - ? WHERE id = ?", (thing["quantity"], thing["product_id"]))
    db.execute("DELETE FROM basket WHERE customer_id IS ?", (mine,))
    db.execute("DELETE FROM basket_code WHERE customer_id IS ?", (mine,))
    return order


def _bought(db: Connection, request: Request, parts: Mapping[str, str]) -> Answer:
    order = existing(db, "SELECT * FROM bill WHERE id = ? AND customer_id = ?", whole(parts["id"]), my_id(db, request))
    return Page(template="done.html", values={"order": order})


ROUTES: tuple[Route, ...] = (
    post("/product/<sku>/cart", _add),
    get("/cart", _see),
    post("/cart", _change),
    post("/cart/<id>/remove", _remove),
    post("/cart/code", _use_code),
    post("/cart/code/remove", _drop_code),
    *require_customer(
        get("/checkout", _checkout),
        post("/checkout", _checkout),
        get("/checkout/done/<id>", _bought),
    ),
)
