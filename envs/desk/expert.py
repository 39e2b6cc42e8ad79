"""An expert that knows the task: what to do next wherever an episode stands, and why."""

from __future__ import annotations

from dataclasses import dataclass

from .actions import DeskCall, write_call
from .customer import Wish
from .episode import Episode
from .tasks import DeskTask

__all__ = ["Advised", "advise", "make_plan"]

_QUESTIONS = {
    "order": "Which order is it?",
    "reason": "What is the reason?",
    "address": "What is the new address?",
    "item": "Which item is it?",
    "variant": "Which variant would you like?",
    "refund": "How should the refund be paid?",
}
_CONFIRMATIONS = {
    "cancel_order": "Shall I cancel order {order}? The refund is {fact}.",
    "change_address": "Shall I change the address of order {order} to the new one?",
    "return_item": "Shall I return the item of order {order}? The refund is {fact}, to the method you paid with.",
    "exchange_item": "Shall I exchange the item of order {order} for the variant you named?",
}


@dataclass(frozen=True, slots=True)
class Advised:
    """What to do next, and why."""

    call: DeskCall
    reason: str

    @property
    def action(self) -> str:
        return write_call(self.call)


def make_plan(task: DeskTask, seed: int) -> tuple[Advised, ...]:
    """The steps that solve a task from its start, each with its reason."""
    episode, steps = Episode(task, seed), list[Advised]()
    while not episode.is_over:
        steps.append(advise(episode))
        episode.act(steps[-1].call)
    return tuple(steps)


def advise(episode: Episode) -> Advised:
    wish = episode.customer.wish
    if episode.task.hand_over:
        call = DeskCall("hand_over", {"summary": episode.task.hand_over})
        return Advised(call, "the policy leaves injuries and payments of others to a human")
    if wish is None:
        return Advised(DeskCall("done", {}), "nothing is left to do")
    return _identify(episode) or _inquire(episode, wish) or _settle(episode, wish)


def _say(text: str, reason: str) -> Advised:
    return Advised(DeskCall("say", {"text": text}), reason)


def _identify(episode: Episode) -> Advised | None:
    """Find the customer's account; None when that is done, or cannot be."""
    customer, script = episode.customer, episode.task.script
    if not {(0, "email"), (0, "postcode")} <= customer.answered:
        return _say("Please tell me your email address and your postcode.", "the customer must be identified first")
    if ("find_customer", script.email, script.postcode) in episode.looked:
        return None
    call = DeskCall("find_customer", {"email": script.email, "postcode": script.postcode})
    return Advised(call, "both must belong to one account")


def _inquire(episode: Episode, wish: Wish) -> Advised | None:
    """Ask for, and look up, what the wish needs; None when all is known."""
    if not episode.identified or episode.customer.is_met:
        return None
    missing = [
        topic for topic in ("order", *wish.answers) if (episode.customer.at, topic) not in episode.customer.answered
    ]
    if missing:
        return _say(" ".join(_QUESTIONS[topic] for topic in missing), f"not known yet: {', '.join(missing)}")
    if ("get_order", wish.order) not in episode.looked:
        return Advised(DeskCall("get_order", {"order_id": wish.order}), "the policy depends on the order's status")
    product = episode.task.product
    if wish.tool == "exchange_item" and product and ("get_product", product) not in episode.looked:
        return Advised(DeskCall("get_product", {"product": product}), "the variant must be in stock")
    return None


def _settle(episode: Episode, wish: Wish) -> Advised:
    """Refuse, answer, ask for a go-ahead, or change."""
    agreed = (wish.tool, wish.order) in episode.customer.agreed
    if episode.customer.is_met:
        return _say("That is done. Is there anything else?", "the change was made")
    if wish.refused_by:
        return _say(
            f"I am sorry, that is not possible: {wish.refused_by}.", f"the policy forbids it: {wish.refused_by}"
        )
    if not wish.tool:
        return _say(f"It is {wish.fact}.", "the order says so")
    if not agreed:
        text = _CONFIRMATIONS[wish.tool].format(order=wish.order, fact=wish.fact)
        return _say(text, "a change needs the customer's yes")
    calls = (
        each for each in episode.task.changes if (each.name, each.arguments["order_id"]) == (wish.tool, wish.order)
    )
    return Advised(next(calls), "the policy allows it, and the customer said yes")
