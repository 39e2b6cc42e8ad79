from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

import pytest
from agym.envs.websites.catalog import list_tasks, list_templates
from agym.envs.websites.checks import NOT_POSSIBLE, format_truth
from agym.envs.websites.framework.records import fetch_all, fetch_value
from agym.envs.websites.framework.site import TODAY
from agym.envs.websites.hosting import SiteReply, SiteWorld
from agym.envs.websites.paths import PathAction, parse_path_action
from agym.envs.websites.shop import SITE
from agym.envs.websites.tasks import SiteTask

SHOP, DESK = SITE.hosts
PLAYED = [task for task in list_tasks().values() if task.template.site.startswith("shopping")]

# --- a browser without a browser -----------------------------------------------------------------------------------


@dataclass
class Thing:
    """Something on a page to click or to fill."""

    role: str
    name: str = ""
    to: str = ""
    key: str = ""
    value: str = ""
    on: bool = True
    form: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """What is sent, by what is shown."""


_ROLES = {"search": "searchbox", "checkbox": "checkbox", "radio": "radio", "date": "date", "hidden": "hidden"}


class Sheet(HTMLParser):
    """A page's links, buttons and fields, by the names that its text gives them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.things: list[Thing] = []
        self.forms: dict[str, tuple[str, str]] = {}
        self._form = ""
        self._named: list[tuple[str, str | Thing]] = []
        """Tags whose text is being read, and what it is the name of: a thing, or the id of one."""
        self._labels: dict[str, str] = {}
        self._ids: dict[str, Thing] = {}
        self._option: dict[str, str] | None = None
        """The tag of the option whose text comes next."""
        self.feed(html)
        for key, name in self._labels.items():
            self._ids[key].name = name.strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = given.get("id") or f"form {len(self.forms)}"
            self.forms[self._form] = (given.get("method", "get"), given["action"])
        elif tag == "label":
            self._named.append((tag, given.get("for", "")))
        elif tag == "a":
            self._named.append((tag, self._add(Thing("link", to=given["href"]), given)))
        elif tag == "button":
            self._named.append((tag, self._add(Thing("button"), given)))
        elif tag == "input":
            role = _ROLES.get(given.get("type", ""), "textbox")
            on = "checked" in given if role in ("checkbox", "radio") else True
            self._add(Thing(role, value=given.get("value", ""), on=on), given)
        elif tag in ("select", "textarea"):
            thing = self._add(Thing("combobox" if tag == "select" else "textbox"), given)
            if tag == "textarea":
                self._named.append((tag, thing))
        elif tag == "option":
            self._option = given

    def _add(self, thing: Thing, given: dict[str, str]) -> Thing:
        thing.key, thing.form = given.get("name", ""), given.get("form", self._form)
        thing.name = given.get("aria-label", "")
        if self._named and self._named[-1] == ("label", ""):
            thing.name = self._labels.pop("", "").strip()
        self._ids[given.get("id", "")] = thing
        self.things.append(thing)
        return thing

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = ""
        if self._named and self._named[-1][0] == tag:
            self._named.pop()
            self._labels.pop("", None)

    def handle_data(self, data: str) -> None:
        if self._option is not None:
            select, value = self.things[-1], self._option.get("value", data)
            select.options[data] = value
            if "selected" in self._option or len(select.options) == 1:
                select.value = value
            self._option = None
        elif self._named:
            tag, what = self._named[-1]
            if isinstance(what, str):
                self._labels[what] = self._labels.get(what, "") + data
            elif tag == "textarea":
                what.value += data
            else:
                what.name += data


class Visitor:
    """Somebody who clicks and types."""

    def __init__(self, host: str = SHOP) -> None:
        self.world = SiteWorld((SITE,))
        self.host = host
        self.url = f"http://{host}/"

    def get(self, path: str, **query: object) -> SiteReply:
        return self._go("GET", f"{path}?{urlencode(query)}" if query else path, "")

    def post(self, path: str, **form: object) -> SiteReply:
        return self._go("POST", path, urlencode(form))

    def _go(self, method: str, path: str, body: str) -> SiteReply:
        parts = urlsplit(path)
        self.url = f"http://{self.host}{path}"
        reply = self.world.answer(method, self.host, parts.path, parts.query, body)
        self.sheet = Sheet(reply.html)
        return self.get(reply.to) if reply.to else reply

    def do(self, action: PathAction) -> None:
        element = action.element
        assert element is not None
        things = self.sheet.things
        thing = next(each for each in things if (each.role, each.name.strip()) == (element.role, element.name))
        if action.verb == "select":
            thing.value = thing.options[action.arguments[0]]
        elif action.verb == "type":
            thing.value, enter = action.arguments
            if enter == "1":
                self._submit(thing.form)
        elif thing.role == "link":
            self.get(thing.to)
        elif thing.role == "button":
            self._submit(thing.form)
        else:
            self._tick(thing)

    def _tick(self, thing: Thing) -> None:
        if thing.role == "radio":
            for each in self.sheet.things:
                each.on = each.on and each.key != thing.key
        thing.on = not thing.on

    def _submit(self, form: str) -> None:
        method, action = self.sheet.forms[form]
        sent = {each.key: each.value for each in self.sheet.things if each.form == form and each.key and each.on}
        if method == "post":
            self.post(action, **sent)
        else:
            self.get(action, **sent)

    def changed(self) -> set[str]:
        return set(self.world.outcome().changes)

    def one(self, sql: str, *given: object) -> object:
        return fetch_value(self.world.outcome().after["shop"], sql, *given)


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


@pytest.fixture
def clerk() -> Visitor:
    return Visitor(DESK)


def on_host(visitor: Visitor, host: str) -> Visitor:
    """Another host of the same world."""
    other = Visitor(host)
    other.world = visitor.world
    return other


# --- the data ------------------------------------------------------------------------------------------------------


def test_the_shop_is_large_enough_to_search_in(visitor: Visitor) -> None:
    wanted = {"category": 8, "product": 80, "customer": 30, "purchase": 200, "review": 250}
    assert {table: visitor.one(f"SELECT count(*) FROM {table}") for table in wanted} == wanted


def test_no_day_lies_after_today(visitor: Visitor) -> None:
    for table, column in (
        ("purchase", "placed"),
        ("review", "written"),
        ("shipment", "delivered"),
        ("product", "created"),
    ):
        assert str(visitor.one(f"SELECT max({column}) FROM {table}")) < str(TODAY)


def test_what_was_sent_was_invoiced_and_nothing_else_was_sent(visitor: Visitor) -> None:
    sent, invoiced = (f"id IN (SELECT purchase_id FROM {table})" for table in ("shipment", "invoice"))
    assert visitor.one(f"SELECT count(*) FROM purchase WHERE (status = 'complete') != ({sent})") == 0
    assert (
        visitor.one(f"SELECT count(*) FROM purchase WHERE (status IN ('complete', 'processing')) != ({invoiced})") == 0
    )


def test_nothing_was_bought_or_reviewed_before_it_was_there(visitor: Visitor) -> None:
    joined = "FROM line JOIN product USING (sku) JOIN purchase ON purchase.id = purchase_id WHERE placed < created"
    assert visitor.one(f"SELECT count(*) {joined}") == 0
    joined = "FROM review JOIN product ON product.id = product_id WHERE written < created"
    assert visitor.one(f"SELECT count(*) {joined}") == 0


# --- looking around ------------------------------------------------------------------------------------------------


def test_the_pages_of_a_list_hold_each_product_once(visitor: Visitor) -> None:
    names = []
    for page in (1, 2):
        visitor.get("/category/toys", page=page)
        names += [each.name for each in visitor.sheet.things if each.to.startswith("/product/")]
    assert len(names) == len(set(names)) == 10


def test_a_list_can_be_filtered_and_sorted(visitor: Visitor) -> None:
    visitor.get("/category/bags", maker="Farwend", to="30", stock="1", sort="price-low")
    names = [each.name for each in visitor.sheet.things if each.to.startswith("/product/")]
    assert names == ["Roll-Top Dry Bag", "Travel Neck Pillow", "Toiletry Hanging Bag"]


def test_senseless_filters_are_as_if_they_were_not_there(visitor: Visitor) -> None:
    assert (
        "10 products" in visitor.get("/category/bags", maker="Nobody", to="cheap", stars="9", sort="x", page="-3").html
    )


def test_search_wants_all_words_and_has_no_wildcards(visitor: Visitor) -> None:
    assert "1 product<" in visitor.get("/search", q="LINEN shirt").html
    assert "0 products" in visitor.get("/search", q="%").html


def test_a_product_that_is_not_enabled_is_not_there(visitor: Visitor) -> None:
    assert visitor.get("/product/HO-106").status == 404


def test_a_review_is_shown_once_it_is_approved(visitor: Visitor) -> None:
    visitor.post("/product/HO-102/review", stars=4, nickname="Ida", title="Soft light", body="Like a small moon.")
    assert "Soft light" not in visitor.get("/product/HO-102").html
    number = visitor.one("SELECT max(id) FROM review")
    desk = on_host(visitor, DESK)
    desk.post(f"/reviews/{number}", status="approved", nickname="Ida", title="Soft light", body="Like a small moon.")
    assert "Soft light" in visitor.get("/product/HO-102").html


def test_a_review_without_stars_comes_back_as_it_was_written(visitor: Visitor) -> None:
    reply = visitor.post("/product/HO-102/review", nickname="Ida", title="Soft", body="Like a small moon.")
    assert reply.status == 400
    assert "Stars is missing." in reply.html
    assert "Like a small moon." in reply.html
    assert not visitor.changed()


def test_what_somebody_writes_is_no_markup(visitor: Visitor) -> None:
    assert "<b>bold</b>" not in visitor.get("/search", q="<b>bold</b>").html
    visitor.post("/account/details", first="<i>M</i>", last="H", phone="1")
    assert "&lt;i&gt;M&lt;/i&gt;" in visitor.get("/").html


def test_an_order_is_tracked_only_with_its_address(visitor: Visitor) -> None:
    visitor.post("/logout")
    known = visitor.get("/track", order=1159, email="Maren.Hollowell@mail.test").html
    assert "tracking number" in known
    assert "tracking number" not in visitor.get("/track", order=1159, email="tobias.wrenfield@mail.test").html


# --- buying --------------------------------------------------------------------------------------------------------


def buy(visitor: Visitor) -> SiteReply:
    return visitor.post("/checkout", address=1, shipping=2, payment="Card")


def test_buying_writes_an_order_takes_from_the_stock_and_empties_the_cart(visitor: Visitor) -> None:
    visitor.post("/product/KI-107/cart", quantity=2)
    reply = buy(visitor)
    assert "$82.40" in reply.html
    assert visitor.changed() == {"shop.purchase", "shop.line", "shop.product"}
    assert visitor.one("SELECT stock FROM product WHERE sku = 'KI-107'") == 12


def test_an_order_that_is_canceled_is_back_on_the_shelf(visitor: Visitor) -> None:
    visitor.post("/product/KI-107/cart", quantity=2)
    buy(visitor)
    number = visitor.one("SELECT max(id) FROM purchase")
    visitor.post(f"/account/orders/{number}/cancel")
    assert visitor.one("SELECT stock FROM product WHERE sku = 'KI-107'") == 14
    assert visitor.post(f"/account/orders/{number}/cancel").status == 403


def test_more_than_there_is_cannot_be_bought(visitor: Visitor) -> None:
    assert "only 3 left" in visitor.post("/product/KI-109/cart", option="Clay", quantity=4).html
    visitor.post("/product/KI-109/cart", option="Clay", quantity=3)
    visitor.post("/product/KI-109/cart", option="White", quantity=1)
    assert "only 3 left" in buy(visitor).html
    assert visitor.changed() == {"shop.basket"}


def test_a_thing_with_options_needs_one(visitor: Visitor) -> None:
    assert visitor.post("/product/CL-101/cart", quantity=1, option="XXL").status == 400
    assert not visitor.changed()


def test_a_code_counts_while_it_holds_and_the_order_is_large_enough(visitor: Visitor) -> None:
    visitor.post("/product/BA-104/cart", option="Teal", quantity=2)
    assert visitor.post("/cart/code", code="LANTERN15").status == 400
    assert "-$55.60" in visitor.post("/cart/code", code="newhome").html
    thing = visitor.one("SELECT id FROM basket")
    assert "NEWHOME" not in visitor.post("/cart", **{f"quantity-{thing}": 1}).html


def test_what_a_guest_put_in_the_cart_is_there_after_logging_in(visitor: Visitor) -> None:
    visitor.post("/logout")
    visitor.post("/product/KI-107/cart", quantity=1)
    assert "Log in" in visitor.get("/checkout").html
    visitor.post("/login", email="tobias.wrenfield@mail.test", password="tobias-wrenfield")
    assert "Salt and Pepper" in visitor.get("/cart").html


def test_nobody_is_let_in_with_a_wrong_password(visitor: Visitor) -> None:
    visitor.post("/logout")
    assert "is wrong" in visitor.post("/login", email="tobias.wrenfield@mail.test", password="x").html
    assert "Latest orders" not in visitor.get("/account").html


def test_orders_and_addresses_of_others_are_not_there(visitor: Visitor) -> None:
    order = visitor.one("SELECT min(id) FROM purchase WHERE customer_id != 1")
    address = visitor.one("SELECT min(id) FROM address WHERE customer_id != 1")
    assert visitor.get(f"/account/orders/{order}").status == 404
    assert visitor.post(f"/account/orders/{order}/cancel").status == 404
    assert visitor.post(f"/account/addresses/{address}/delete").status == 404
    assert not visitor.changed()


def test_the_main_address_stays(visitor: Visitor) -> None:
    assert visitor.post("/account/addresses/1/delete").status == 403
    visitor.post("/account/addresses/2/main")
    visitor.post("/account/addresses/1/delete")
    assert visitor.one("SELECT count(*) FROM address WHERE customer_id = 1 AND main") == 1


# --- the admin side ------------------------------------------------------------------------------------------------


def test_the_admin_side_is_closed_to_whoever_is_not_logged_in(clerk: Visitor) -> None:
    clerk.post("/logout")
    for path in ("/", "/orders", "/products/1"):
        clerk.get(path)
        assert clerk.url == f"http://{DESK}/login"
    clerk.post("/login", name="clerk", password="larkstall")
    assert "Bestsellers" in clerk.get("/").html


def test_an_order_is_invoiced_before_it_is_shipped(clerk: Visitor) -> None:
    parcel = {"carrier": "Harbour Parcel", "tracking": "HP1"}
    assert clerk.post("/orders/1200/ship", **parcel).status == 403
    clerk.post("/orders/1200/invoice")
    clerk.post("/orders/1200/ship", **parcel)
    assert clerk.one("SELECT status FROM purchase WHERE id = 1200") == "complete"
    assert clerk.post("/orders/1200/cancel").status == 403


def test_what_the_clerk_sets_is_seen_in_the_shop(clerk: Visitor) -> None:
    shop = on_host(clerk, SHOP)
    clerk.get("/")
    for line in (
        "click [link 'Products']",
        "click [link 'Stoneware Mixing Bowl']",
        "type [textbox 'Price'] [31.25] [0]",
        "click [button 'Save product']",
    ):
        action = parse_path_action(line)
        assert action is not None
        clerk.do(action)
    assert clerk.changed() == {"shop.product"}
    assert "$31.25" in shop.get("/product/KI-102").html


def test_orders_outlast_their_products(clerk: Visitor) -> None:
    clerk.post("/products/69/delete")
    assert "Beginner&#39;s Telescope" in clerk.get("/orders/1126").html


@pytest.mark.parametrize(
    "wrong",
    [{"ends": "2026-01-01"}, {"amount": "12.50"}, {"amount": "0"}, {"code": "WELCOME10"}, {"starts": "soon"}],
)
def test_a_price_rule_makes_sense(clerk: Visitor, wrong: dict[str, str]) -> None:
    rule = {"name": "Rule", "code": "RULE", "kind": "percent", "amount": "12", "minimum": "0"}
    span = {"starts": "2026-03-01", "ends": "2026-03-31", "active": "1"}
    assert clerk.post("/rules/new", **{**rule, **span, **wrong}).status == 400
    assert clerk.post("/rules/new", **rule, **span).status == 200


def test_no_two_products_share_a_number_and_no_two_customers_an_address(clerk: Visitor) -> None:
    product = {"name": "Twin", "sku": "KI-101", "category_id": "1", "price": "1", "stock": "1", "enabled": "1"}
    words = {"maker": "m", "material": "m", "description": "d"}
    assert "another product" in clerk.post("/products/new", **product, **words).html
    person = {"first": "a", "last": "b", "email": "maren.hollowell@mail.test", "phone": "1", "tier": "VIP"}
    assert "another customer" in clerk.post("/customers/2", **person).html


def test_reports_add_up(clerk: Visitor) -> None:
    html = clerk.get("/reports/sales", **{"from": "2026-01-01", "to": "2026-01-31"}).html
    assert html.count("<tr>") == 2
    total = clerk.one("SELECT sum(total) FROM bill WHERE placed LIKE '2026-01-%' AND status != 'canceled'")
    assert f"${int(str(total)) / 100:,.2f}" in html


# --- whatever is sent ----------------------------------------------------------------------------------------------

JUNK = (
    "",
    "0",
    "-1",
    "99999999999999999999",
    "1 OR 1=1",
    "'; DROP TABLE product;--",
    "%",
    "\U0001f98a" * 50,
    "2026-13-45",
)
ROUTES = [(host, route) for host in SITE.hosts for route in SITE.hosts[host].routes]


@pytest.mark.parametrize(("host", "route"), ROUTES, ids=lambda each: each if isinstance(each, str) else each.pattern)
def test_junk_is_answered_and_breaks_nothing(host: str, route: object) -> None:
    visitor = Visitor(host)
    names = (
        "q",
        "page",
        "sort",
        "from",
        "to",
        "order",
        "quantity",
        "option",
        "stars",
        "price",
        "stock",
        "email",
        "code",
    )
    pattern = str(getattr(route, "pattern"))  # noqa: B009
    for junk in JUNK:
        sent = dict.fromkeys((*names, "address", "shipping", "category", "name", "tier", "enabled", "least"), junk)
        for part in ("KI-101", "1", "1198", "sales", "kitchen", junk.replace("/", "") or "x"):
            path = pattern
            for name in ("<sku>", "<id>", "<slug>", "<name>"):
                path = path.replace(name, part)
            assert visitor.world.answer("GET", host, path, urlencode(sent), "").status < 500
            assert visitor.world.answer("POST", host, path, "", urlencode(sent)).status < 500


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_there_is_enough_to_do() -> None:
    for site, templates, variants in (("shopping", 12, 35), ("shopping_admin", 9, 25)):
        mine = [each for each in list_templates() if each.site == site]
        assert len(mine) >= templates
        assert sum(len(each.variants) for each in mine) >= variants
        assert any(each.answer == NOT_POSSIBLE for each in mine)
        assert any(each.url for each in mine)
        assert any(each.changes for each in mine)


def arrived(task: SiteTask, visitor: Visitor) -> bool:
    """Whether all is as the task wants it but the answer."""
    outcome = visitor.world.outcome()
    truth = task.truth(outcome.before)
    return task.done("" if truth is None else format_truth(truth), visitor.url, outcome)


@pytest.mark.parametrize("task", PLAYED, ids=lambda task: task.id)
def test_a_path_leads_where_its_task_wants(task: SiteTask) -> None:
    visitor = Visitor(urlsplit(task.start).netloc)
    visitor.get("/")
    before = visitor.world.outcome().before
    assert task.truth(before) is not None or not arrived(task, visitor)
    for action in task.path(before):
        visitor.do(action)
    assert arrived(task, visitor)


@pytest.mark.parametrize("task", PLAYED, ids=lambda task: task.id)
def test_a_task_is_not_done_where_more_was_changed(task: SiteTask) -> None:
    visitor = Visitor(urlsplit(task.start).netloc)
    visitor.get("/")
    for action in task.path(visitor.world.outcome().before):
        visitor.do(action)
    on_host(visitor, DESK).post("/orders/1001/comment", body="by the way")
    assert not arrived(task, visitor)


def test_what_is_to_be_found_out_is_never_in_doubt() -> None:
    """Nothing shares the first place."""
    db = SiteWorld((SITE,)).outcome().before["shop"]
    for task in PLAYED:
        if task.template.id == "admin-bestseller":
            since, until = task.values["since"], task.values["until"]
            sql = (
                "SELECT sum(quantity) AS sold FROM line JOIN purchase ON purchase.id = purchase_id WHERE"
                " status != 'canceled' AND substr(placed, 1, 10) BETWEEN ? AND ? GROUP BY sku ORDER BY sold DESC"
            )
            first, second, *_ = fetch_all(db, sql, since, until)
        elif task.template.id == "admin-busiest":
            sql = (
                "SELECT count(*) AS sold FROM bill JOIN customer USING (email) WHERE tier = ?"
                " GROUP BY email ORDER BY sold DESC"
            )
            first, second, *_ = fetch_all(db, sql, task.values["tier"])
        elif task.template.id == "shop-cheapest":
            sql = "SELECT -price AS sold FROM goods WHERE category = ? AND material = ? AND enabled ORDER BY price"
            first, second, *_ = fetch_all(db, sql, task.values["category"], task.values["material"])
        else:
            continue
        assert first["sold"] > second["sold"], task.id
