"""A shop, and its admin side: two hosts over the same data."""

from __future__ import annotations

from pathlib import Path

from ..framework.site import Host, WebSite
from . import account, admin_goods, admin_office, admin_orders, browse, buying
from .forms import format_money
from .seed import fill_shop
from .visitor import CLERK, SHOP, share_shop

__all__ = ["SITE"]

_HERE = Path(__file__).parent

SITE = WebSite(
    name="shop",
    hosts={
        SHOP: Host(
            title="Larkstall",
            user="maren.hollowell@mail.test",
            routes=(*browse.ROUTES, *buying.ROUTES, *account.ROUTES),
        ),
        "admin.shop.test": Host(
            title="Larkstall admin",
            user=CLERK[0],
            routes=(*admin_office.ROUTES, *admin_orders.ROUTES, *admin_goods.ROUTES),
        ),
    },
    schema=(_HERE / "schema.sql").read_text("utf-8"),
    fill=fill_shop,
    templates=_HERE / "templates",
    filters={"money": format_money},
    shared=share_shop,
    passing=frozenset(("notice",)),
)
