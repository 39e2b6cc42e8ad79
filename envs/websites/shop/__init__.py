"""A shop, and its admin side: two hosts over the same data.

What enters: requests. What leaves: `SITE`, a table of which handler answers which address, and `TASKS`.
"""

from __future__ import annotations

from pathlib import Path

from ..framework.site import Host, Route, Site, get, post
from . import account, admin_goods, admin_office, admin_orders, browse, buying
from .forms import money
from .seed import fill
from .visitor import CLERK, SHOP, clerk, known, shared

__all__ = ["SITE"]

_HERE = Path(__file__).parent

_OPEN = (
    get("/", browse.home),
    get("/category/<slug>", browse.category),
    get("/search", browse.search),
    get("/product/<sku>", browse.product),
    post("/product/<sku>/cart", buying.add),
    get("/product/<sku>/review", browse.review),
    post("/product/<sku>/review", browse.review),
    get("/info/<slug>", browse.info),
    get("/contact", browse.contact),
    post("/contact", browse.contact),
    get("/track", browse.track),
    get("/cart", buying.see),
    post("/cart", buying.change),
    post("/cart/<id>/remove", buying.remove),
    post("/cart/code", buying.use_code),
    post("/cart/code/remove", buying.drop_code),
    get("/login", account.login),
    post("/login", account.login),
    post("/logout", account.logout),
)
_KNOWN = (
    post("/product/<sku>/wish", browse.wish),
    get("/checkout", buying.checkout),
    post("/checkout", buying.checkout),
    get("/checkout/done/<id>", buying.bought),
    get("/account", account.overview),
    get("/account/orders", account.orders),
    get("/account/orders/<id>", account.order),
    post("/account/orders/<id>/cancel", account.cancel),
    post("/account/orders/<id>/reorder", account.reorder),
    get("/account/addresses", account.addresses),
    get("/account/addresses/new", account.address),
    post("/account/addresses/new", account.address),
    get("/account/addresses/<id>", account.address),
    post("/account/addresses/<id>", account.address),
    post("/account/addresses/<id>/main", account.main_address),
    post("/account/addresses/<id>/delete", account.delete_address),
    get("/account/details", account.details),
    post("/account/details", account.details),
    get("/account/newsletter", account.newsletter),
    post("/account/newsletter", account.newsletter),
    get("/account/wishes", account.wishes),
    post("/account/wishes/<sku>/remove", account.unwish),
)
_DOOR = (
    get("/login", admin_office.login),
    post("/login", admin_office.login),
    post("/logout", admin_office.logout),
)
_ADMIN = (
    get("/", admin_office.dashboard),
    get("/orders", admin_orders.orders),
    get("/orders/<id>", admin_orders.order),
    post("/orders/<id>/cancel", admin_orders.cancel),
    post("/orders/<id>/invoice", admin_orders.invoice),
    post("/orders/<id>/ship", admin_orders.ship),
    post("/orders/<id>/comment", admin_orders.remark),
    get("/products", admin_goods.products),
    get("/products/new", admin_goods.new_product),
    post("/products/new", admin_goods.new_product),
    get("/products/<id>", admin_goods.product),
    post("/products/<id>", admin_goods.product),
    post("/products/<id>/delete", admin_goods.delete_product),
    get("/reviews", admin_goods.reviews),
    get("/reviews/<id>", admin_goods.review),
    post("/reviews/<id>", admin_goods.review),
    post("/reviews/<id>/delete", admin_goods.delete_review),
    get("/customers", admin_office.customers),
    get("/customers/<id>", admin_office.customer),
    post("/customers/<id>", admin_office.customer),
    get("/messages", admin_office.messages),
    get("/rules", admin_office.rules),
    get("/rules/new", admin_office.rule),
    post("/rules/new", admin_office.rule),
    get("/rules/<id>", admin_office.rule),
    post("/rules/<id>", admin_office.rule),
    get("/reports", admin_office.reports),
    get("/reports/<name>", admin_office.report),
    get("/pages", admin_office.pages),
    get("/pages/<id>", admin_office.page),
    post("/pages/<id>", admin_office.page),
)

SITE = Site(
    name="shop",
    hosts={
        SHOP: Host(
            title="Larkstall",
            user="maren.hollowell@mail.test",
            routes=(*_OPEN, *(Route(each.method, each.pattern, known(each.handler)) for each in _KNOWN)),
        ),
        "admin.shop.test": Host(
            title="Larkstall admin",
            user=CLERK[0],
            routes=(*_DOOR, *(Route(each.method, each.pattern, clerk(each.handler)) for each in _ADMIN)),
        ),
    },
    schema=(_HERE / "schema.sql").read_text("utf-8"),
    fill=fill,
    templates=_HERE / "templates",
    filters={"money": money},
    shared=shared,
    passing=frozenset(("notice",)),
)
