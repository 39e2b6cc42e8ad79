"""The cart, and buying what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first
from ..framework.site import (
    NOW,
    TODAY,
    PageError,
    PageRequest,
    PageRoute,
    PathParts,
    Redirect,
    SiteAnswer,
    SitePage,
    format_moment,
    on_get,
    on_post,
    read_whole,
)
from .browse import fetch_shown
from .rows import fetch_row, save
from .visitor import get_my_id, notify, require_customer

__all__ = ["PAYMENTS", "ROUTES", "put"]

PAYMENTS = ("Card", "Bank transfer", "Invoice")
_MOST = 99
"""Of one thing in a cart."""


# --- the cart ---


def _add(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    found = fetch_shown(db, parts["sku"])
    option = _option(db, found, request.form.get("option", ""))
    put(db, request, found, option, read_whole(request.form.get("quantity", ""), 1))
    return Redirect(to="/cart")


def _option(db: Connection, product: DataRow, value: str) -> str:
    choices = fetch_all(db, "SELECT * FROM choice WHERE product_id = ?", product["id"])
    if not choices:
        return ""
    name = choices[0]["name"]
    if value not in [each["value"] for each in choices]:
        raise PageError(f"Please choose a {name.lower()} of {product['name']}.")
    return f"{name}: {value}"


def put(db: Connection, request: PageRequest, product: DataRow, option: str, quantity: int) -> None:
    mine = get_my_id(db, request)
    same = (mine, product["id"], option)
    there = fetch_first(db, "SELECT * FROM basket WHERE customer_id IS ? AND product_id = ? AND option = ?", *same)
    wanted = quantity + (there["quantity"] if there else 0)
    _check_stock(product, wanted)
    values = {"customer_id": mine, "product_id": product["id"], "option": option, "quantity": wanted}
    save(db, "basket", values, there["id"] if there else None)
    notify(db, request, f"{product['name']} is in your cart.")


def _check_stock(product: DataRow, wanted: int) -> None:
    if not 1 <= wanted <= _MOST:
        raise PageError(f"You can order 1 to {_MOST} of a thing.")
    if wanted > product["stock"]:
        left = f"only {product['stock']} left" if product["stock"] else "none left"
        raise PageError(f"There is {left} of {product['name']}.")


def _fetch_basket(db: Connection, request: PageRequest) -> list[DataRow]:
    return fetch_all(
        db,
        "SELECT basket.id, product_id, option, quantity, sku, name, price, stock, price * quantity AS total,"
        " sum(quantity) OVER (PARTITION BY product_id) AS wanted"
        " FROM basket JOIN product ON product.id = product_id WHERE customer_id IS ? ORDER BY basket.id",
        get_my_id(db, request),
    )


def _sum_up(db: Connection, request: PageRequest) -> Mapping[str, object]:
    things = _fetch_basket(db, request)
    goods = sum(each["total"] for each in things)
    code = fetch_first(db, "SELECT code FROM basket_code WHERE customer_id = ?", get_my_id(db, request) or 0)
    rule = _fetch_rule(db, code["code"], goods) if code else None
    cut = _reckon_discount(rule, goods) if rule else 0
    return {"things": things, "goods": goods, "rule": rule, "discount": cut, "due": goods - cut}


def _fetch_rule(db: Connection, code: str, goods: int) -> DataRow | None:
    return fetch_first(
        db,
        "SELECT * FROM rule WHERE code = upper(?) AND active AND ? BETWEEN starts AND ends AND minimum <= ?",
        code,
        str(TODAY),
        goods,
    )


def _reckon_discount(rule: DataRow, goods: int) -> int:
    amount = int(rule["amount"])
    return min(goods, goods * amount // 100 if rule["kind"] == "percent" else amount)


def _see(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    return SitePage(template="cart.html", values=_sum_up(db, request))


def _change(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    for thing in _fetch_basket(db, request):
        wanted = read_whole(request.form.get(f"quantity-{thing['id']}", ""), -1)
        if wanted == 0:
            db.execute("DELETE FROM basket WHERE id = ?", (thing["id"],))
        elif wanted > 0:
            _check_stock(thing, wanted)
            save(db, "basket", {"quantity": wanted}, thing["id"])
    notify(db, request, "Your cart has been updated.")
    return Redirect(to="/cart")


def _remove(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    db.execute(
        "DELETE FROM basket WHERE id = ? AND customer_id IS ?", (read_whole(parts["id"]), get_my_id(db, request))
    )
    return Redirect(to="/cart")


def _use_code(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    code = request.form.get("code", "").strip().upper()
    goods = sum(each["total"] for each in _fetch_basket(db, request))
    if _fetch_rule(db, code, goods) is None:
        raise PageError("This code does not exist, is not valid today, or is for larger orders.")
    db.execute("INSERT OR REPLACE INTO basket_code VALUES (?, ?)", (get_my_id(db, request) or 0, code))
    notify(db, request, f"The code {code} is used.")
    return Redirect(to="/cart")


def _drop_code(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    db.execute("DELETE FROM basket_code WHERE customer_id = ?", (get_my_id(db, request) or 0,))
    return Redirect(to="/cart")


# --- buying ---


def _checkout(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    mine = get_my_id(db, request)
    sums = _sum_up(db, request)
    if not sums["things"]:
        raise PageError("Your cart is empty.")
    if request.method == "POST":
        order = _buy(db, request, sums)
        return Redirect(to=f"/checkout/done/{order}")
    addresses = fetch_all(db, "SELECT * FROM address WHERE customer_id = ? ORDER BY main DESC, id", mine)
    shippings = fetch_all(db, "SELECT * FROM shipping ORDER BY price")
    values = {**sums, "addresses": addresses, "shippings": shippings, "payments": PAYMENTS}
    return SitePage(template="checkout.html", values=values)


def _buy(db: Connection, request: PageRequest, sums: Mapping[str, object]) -> int:
    mine, form = get_my_id(db, request), request.form
    to = fetch_first(
        db, "SELECT * FROM address WHERE id = ? AND customer_id = ?", read_whole(form.get("address", "")), mine
    )
    by = fetch_first(db, "SELECT * FROM shipping WHERE id = ?", read_whole(form.get("shipping", "")))
    payment = form.get("payment", "")
    if to is None or by is None or payment not in PAYMENTS:
        raise PageError("Please choose an address, a way of shipping and a way of paying.")
    things = _fetch_basket(db, request)
    for thing in things:
        _check_stock(thing, thing["wanted"])
    rule = sums["rule"]
    where = {name: to[name] for name in ("name", "street", "city", "region", "postcode", "phone")}
    paid = {"payment": payment, "code": rule["code"] if isinstance(rule, dict) else "", "discount": sums["discount"]}
    how = {"method": by["name"], "postage": by["price"]}
    order = save(
        db, "purchase", {"customer_id": mine, "placed": format_moment(NOW), "status": "pending", **where, **how, **paid}
    )
    for thing in things:
        bought = {name: thing[name] for name in ("sku", "name", "option", "price", "quantity")}
        save(db, "line", {"purchase_id": order, **bought})
        db.execute("UPDATE product SET stock = stock - ? WHERE id = ?", (thing["quantity"], thing["product_id"]))
    db.execute("DELETE FROM basket WHERE customer_id IS ?", (mine,))
    db.execute("DELETE FROM basket_code WHERE customer_id IS ?", (mine,))
    return order


def _bought(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
    order = fetch_row(
        db, "SELECT * FROM bill WHERE id = ? AND customer_id = ?", read_whole(parts["id"]), get_my_id(db, request)
    )
    return SitePage(template="done.html", values={"order": order})


ROUTES: tuple[PageRoute, ...] = (
    on_post("/product/<sku>/cart", _add),
    on_get("/cart", _see),
    on_post("/cart", _change),
    on_post("/cart/<id>/remove", _remove),
    on_post("/cart/code", _use_code),
    on_post("/cart/code/remove", _drop_code),
    *require_customer(
        on_get("/checkout", _checkout),
        on_post("/checkout", _checkout),
        on_get("/checkout/done/<id>", _bought),
    ),
)
