"""A shop, and its admin side: two hosts over the same data."""

from __future__ import annotations

from pathlib import Path

from ..framework.site import Host, Site
from . import account, admin_goods, admin_office, admin_orders, browse, buying
from .forms import money
from .seed import fill
from .visitor import CLERK, SHOP, shared

__all__ = ["SITE"]

_HERE = Path(__file__).parent

SITE = Site(
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
    fill=fill,
    templates=_HERE / "templates",
    filters={"money": money},
    shared=shared,
    passing=frozenset(("notice",)),
)
