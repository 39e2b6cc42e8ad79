"""Tasks from their ids: a world, a customer's script, and the calls that lead to the expected state.

Fourteen kinds of thirty tasks; every fifth is held out, with surnames and goods of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from ..errors import UnknownTask
from ..protocol import parse_numbered
from .actions import REASONS, DeskCall
from .customer import Script, Wish
from .database import Database, format_cents
from .stock import CITIES, FIRST_NAMES, PRODUCTS, STEP_CENTS, STREETS, SURNAMES
from .tools import CHANGES, order_total

__all__ = ["KINDS", "NUM_PER_KIND", "DeskTask", "expected_state", "is_held_out", "list_ids", "load_task"]

NUM_PER_KIND = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskTask:
    """A world, a customer, and what should become of them."""

    id: str
    level: str
    database: Database
    script: Script
    changes: tuple[DeskCall, ...] = ()
    """What should be carried out, in this order."""
    hand_over: str = ""
    """Why the customer should be handed over to a human; empty where not."""
    product: str = ""
    """Whose variants must be looked up."""


def is_held_out(number: int) -> bool:
    return number % 5 == 4


def list_ids(held_out: bool, levels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        f"{kind}-{number}"
        for kind, (level, _) in KINDS.items()
        if level in levels
        for number in range(NUM_PER_KIND)
        if is_held_out(number) == held_out
    )


def load_task(task: str) -> DeskTask:
    parsed = parse_numbered(task)
    if parsed is None or parsed[0] not in KINDS or not parsed[1] < NUM_PER_KIND:
        raise UnknownTask(f"desk has no task '{task[:60]}'")
    kind, number = parsed
    level, make = KINDS[kind]
    world = World(kind, number)
    return replace(make(world), id=task, level=level)


def expected_state(task: DeskTask) -> Database:
    """The database after the calls that solve a task."""
    db = task.database.copy()
    for call in task.changes:
        CHANGES[call.name](db, **call.arguments)
    if task.hand_over:
        db.put("handovers", "1", taken="yes")
    return db


# --- worlds ---


class World:
    """The shop as a task finds it, drawn from the task's id: a customer with three orders, and another customer."""

    def __init__(self, kind: str, number: int) -> None:
        self.rng = Random(f"desk {kind} {number}")
        self.held_out = is_held_out(number)
        self._serial = (list(KINDS).index(kind) * NUM_PER_KIND + number) * 4
        self.db = Database()
        self._stock()
        self.email, self.name, self.postcode = self._customer("C1")
        self._customer("C2")
        self.pay, self.other_pay = self.rng.sample(("card", "gift card", "bank account"), 2)
        self.db.put("payments", "P1", customer="C1", kind=self.pay)
        self.db.put("payments", "P2", customer="C1", kind=self.other_pay)
        self.db.put("payments", "P3", customer="C2", kind="card")
        self._num_items = 0

    def _stock(self) -> None:
        for at, (product, (price, variants)) in enumerate(PRODUCTS.items()):
            for step, variant in enumerate(variants):
                stock = str(self.rng.randrange(2, 9))
                cost = format_cents(price + step * STEP_CENTS)
                self.db.put("skus", f"S{at}{step}", product=product, variant=variant, price=cost, stock=stock)

    def _customer(self, key: str) -> tuple[str, str, str]:
        first, last = self.rng.choice(FIRST_NAMES), self.rng.choice(SURNAMES[self.held_out])
        email = f"{first}.{last}{self._serial + (key == 'C2')}@mail.example".lower()
        postcode = self._postcode()
        self.db.put("customers", key, name=f"{first} {last}", email=email, postcode=postcode)
        return email, f"{first} {last}", postcode

    def _postcode(self) -> str:
        letters = self.rng.choice("BCDFGH") + self.rng.choice("KLMNPR")
        return f"{letters}{self.rng.randrange(10, 99)} {self.rng.randrange(10, 99)}"

    def address(self) -> tuple[str, str, str]:
        return f"{self.rng.choice(STREETS)} {self.rng.randrange(1, 90)}", self.rng.choice(CITIES), self._postcode()

    def order(
        self, status: str, *, late: bool = False, exchanged: bool = False, customer: str = "C1", items: int = 2
    ) -> str:
        """Add an order and return its number."""
        key = f"W{10_000 + self._serial * 7_919 % 90_000}"
        self._serial += 1
        street, city, postcode = self.address()
        day = self.rng.randrange(10, 19)
        arrival = (
            {True: f"2031-03-{day}", False: f"2031-05-{day}"}[late] if status == "delivered" else f"2031-05-{day + 13}"
        )
        fields = {"street": street, "city": city, "postcode": postcode, "arrival": arrival, "reason": ""}
        payment = "P1" if customer == "C1" else "P3"
        self.db.put(
            "orders",
            key,
            customer=customer,
            status=status,
            payment=payment,
            exchanged="yes" if exchanged else "no",
            **fields,
        )
        for at in range(items):
            self._item(key, at)
        return key

    def _item(self, order: str, at: int) -> None:
        # the goods of held-out tasks are never bought in training
        skus = [key for key, _ in self.db.select("skus") if ((int(key[1]) + int(key[2])) % 4 == 0) == self.held_out]
        bought = {self.db.get("skus", item["sku"])["product"] for _, item in self.db.select("items", order=order)}
        sku = self.rng.choice([key for key in skus if self.db.get("skus", key)["product"] not in bought])
        self._num_items += 1
        price = self.db.get("skus", sku)["price"]
        key = f"I{self._num_items}"
        self.db.put("items", key, order=order, sku=sku, price=price, state="kept", final_sale="no")

    def first_item(self, order: str) -> tuple[str, Mapping[str, str], str]:
        """Id and row of an order's first item, and its name."""
        key, item = next(self.db.select("items", order=order))
        return key, item, self.db.get("skus", item["sku"])["product"]

    def amount(self, order: str) -> str:
        return format_cents(order_total(self.db, order))

    def finish(self, *wishes: Wish, insists: int = 0, **fields: object) -> DeskTask:
        """Add unrelated orders, and make the task."""
        self.order(self.rng.choice(("placed", "delivered")))
        self.order("placed", customer="C2", items=1)
        script = Script(name=self.name, email=self.email, postcode=self.postcode, wishes=wishes, insists=insists)
        task = DeskTask(id="", level="", database=self.db, script=script)
        return replace(task, **fields)  # type: ignore[arg-type]


# --- wishes ---


def _cancel(world: World, status: str, refused_by: str = "") -> tuple[Wish, DeskCall]:
    order, reason = world.order(status), world.rng.choice(REASONS)
    spoken = {
        "not needed": "It is not needed any more",
        "mistake": "I ordered by mistake",
        "too slow": "It is too slow",
    }
    wish = Wish(
        text="I would like to cancel an order.",
        order=order,
        tool="cancel_order",
        answers={"reason": f"{spoken[reason]}."},
        refused_by=refused_by,
        fact="" if refused_by else world.amount(order),
    )
    return wish, DeskCall("cancel_order", {"order_id": order, "reason": reason})


def _return(world: World, order: str, refused_by: str = "") -> tuple[Wish, DeskCall]:
    key, item, product = world.first_item(order)
    wish = Wish(
        text="I want to send something back.",
        order=order,
        tool="return_item",
        answers={"item": f"It is the {product}.", "refund": f"To my {world.pay}, please."},
        refused_by=refused_by,
        fact="" if refused_by else item["price"],
    )
    return wish, DeskCall("return_item", {"order_id": order, "item_id": key, "refund_to": "P1"})


def _exchange(world: World, order: str, refused_by: str = "") -> tuple[Wish, DeskCall]:
    key, item, product = world.first_item(order)
    others = [(sku, row) for sku, row in world.db.select("skus", product=product) if sku != item["sku"]]
    sku, row = world.rng.choice(others)
    wish = Wish(
        text="Something I bought is not quite what I need; I would like another one for it.",
        order=order,
        tool="exchange_item",
        answers={"item": f"It is the {product}.", "variant": f"I would like it in this variant: {row['variant']}."},
        refused_by=refused_by,
        fact="",
    )
    return wish, DeskCall("exchange_item", {"order_id": order, "item_id": key, "new_sku": sku})


# --- kinds ---


def _make_cancel(world: World) -> DeskTask:
    wish, call = _cancel(world, "placed")
    return world.finish(wish, changes=(call,))


def _make_address(world: World) -> DeskTask:
    order = world.order(world.rng.choice(("placed", "packed")))
    street, city, postcode = world.address()
    told = f"The new address is {street}, {city}, {postcode}."
    text = "I am moving, and an order is still under way to my old home."
    wish = Wish(text=text, order=order, tool="change_address", answers={"address": told})
    call = DeskCall("change_address", {"order_id": order, "street": street, "city": city, "postcode": postcode})
    return world.finish(wish, changes=(call,))


def _make_question(world: World) -> DeskTask:
    order = world.order("shipped")
    if world.rng.random() < 0.5:
        text, fact = "On which day should my order arrive?", world.db.get("orders", order)["arrival"]
    else:
        text, fact = "How much have I paid for an order in all?", world.amount(order)
    return world.finish(Wish(text=text, order=order, fact=fact))


def _make_return(world: World) -> DeskTask:
    wish, call = _return(world, world.order("delivered"))
    return world.finish(wish, changes=(call,))


def _make_exchange(world: World) -> DeskTask:
    wish, call = _exchange(world, world.order("delivered"))
    return world.finish(wish, changes=(call,), product=world.first_item(wish.order)[2])


def _make_human(world: World) -> DeskTask:
    order = world.order("delivered")
    product = world.first_item(order)[2]
    text = world.rng.choice(
        (
            f"I was hurt by the {product} that you sold me.",
            f"My account was charged for a {product}, and that was not me.",
        )
    )
    return world.finish(Wish(text=text, order=order), hand_over=text)


def _make_cancel_late(world: World) -> DeskTask:
    status = world.rng.choice(("packed", "shipped"))
    wish, _ = _cancel(world, status, f"the order is {status} already")
    return world.finish(wish, insists=world.rng.randrange(2))


def _make_return_late(world: World) -> DeskTask:
    wish, _ = _return(world, world.order("delivered", late=True), "it was delivered more than 30 days ago")
    return world.finish(wish, insists=world.rng.randrange(2))


def _make_final_sale(world: World) -> DeskTask:
    order = world.order("delivered")
    world.db.put("items", world.first_item(order)[0], final_sale="yes")
    wish, _ = _return(world, order, "the item was sold as final sale")
    return world.finish(wish, insists=world.rng.randrange(1, 3))


def _make_second_exchange(world: World) -> DeskTask:
    wish, _ = _exchange(world, world.order("delivered", exchanged=True), "the order was exchanged once before")
    return world.finish(wish, insists=world.rng.randrange(1, 3))


def _make_other_method(world: World) -> DeskTask:
    """A refund to another method is asked for; when that is refused, the one that was paid with will do."""
    allowed, call = _return(world, world.order("delivered"))
    pushed = replace(
        allowed,
        answers={**allowed.answers, "refund": f"To my {world.other_pay}, please, not to my {world.pay}."},
        text=f"I want to send something back and have the money on my {world.other_pay}.",
        refused_by="refunds go to the payment method that was used for the order",
        fact="",
    )
    allowed = replace(allowed, text=f"Then send it back with the money to my {world.pay}.")
    return world.finish(pushed, allowed, insists=world.rng.randrange(1, 3), changes=(call,))


def _make_stranger(world: World) -> DeskTask:
    """A customer whose postcode is not that of the account."""
    wish, _ = _cancel(world, "placed", "the email address and the postcode do not match an account")
    world.postcode = world._postcode()
    return world.finish(wish, insists=world.rng.randrange(1, 3))


def _make_cancel_and_return(world: World) -> DeskTask:
    first, cancelling = _cancel(world, "placed")
    second, returning = _return(world, world.order("delivered"))
    return world.finish(first, second, changes=(cancelling, returning))


def _make_exchange_or_return(world: World) -> DeskTask:
    """The wanted variant is out of stock, so that the item is sent back."""
    order = world.order("delivered")
    wish, call = _exchange(world, order, "that variant is out of stock")
    world.db.put("skus", call.arguments["new_sku"], stock="0")
    second, returning = _return(world, order)
    second = replace(second, text="Then I would rather send it back.")
    return world.finish(wish, second, changes=(returning,), product=world.first_item(order)[2])


KINDS: Mapping[str, tuple[str, Callable[[World], DeskTask]]] = {
    "cancel": ("easy", _make_cancel),
    "address": ("easy", _make_address),
    "question": ("easy", _make_question),
    "return": ("medium", _make_return),
    "exchange": ("medium", _make_exchange),
    "human": ("easy", _make_human),
    "cancel_late": ("medium", _make_cancel_late),
    "return_late": ("medium", _make_return_late),
    "final_sale": ("hard", _make_final_sale),
    "second_exchange": ("hard", _make_second_exchange),
    "other_method": ("hard", _make_other_method),
    "stranger": ("hard", _make_stranger),
    "cancel_and_return": ("hard", _make_cancel_and_return),
    "exchange_or_return": ("hard", _make_exchange_or_return),
}
"""Level and maker of each kind of task."""
