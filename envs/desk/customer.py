"""The simulated customer: a small state machine with a list of wishes, that says what is asked for and no more.

What the agent says is read by keywords: first whether it asks for a go-ahead, then what it asks for, then whether it
refuses. A wish that was carried out is over at the agent's next words; one that the policy forbids, once it was refused
as often as the customer insists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

__all__ = ["Customer", "Script", "Wish", "says_amount"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that a customer is after."""

    text: str
    order: str
    tool: str = ""
    """What would carry it out; empty for a question."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What is told when it is asked for, by topic."""
    refused_by: str = ""
    """Why the policy forbids it, as an expert would say it; empty where it does not."""
    fact: str = ""
    """What the customer must be told, such as an amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """All that a customer knows."""

    name: str
    email: str
    postcode: str
    wishes: tuple[Wish, ...]
    insists: int = 0
    """How often a refusal is answered by asking again."""


_TOPICS: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"\be-?mail\b|\bidentity\b|\bverify\b"),
    "postcode": re.compile(r"\bpost ?code\b|\bzip\b|\bidentity\b|\bverify\b"),
    "order": re.compile(r"\b(number|which|what)\b[^.?]*\border\b|\border (number|id)\b"),
    "reason": re.compile(r"\breason\b|\bwhy\b"),
    "address": re.compile(r"\b(new|what|which)\b[^.?]*\baddress\b"),
    "item": re.compile(r"\b(which|what)\b[^.?]*\b(items?|products?)\b"),
    "variant": re.compile(r"\b(which|what)\b[^.?]*\b(variant|size|colou?r|kind)\b|\binstead\b"),
    "refund": re.compile(r"\b(which|what|how)\b[^.?]*\b(refund|payment|money)\b"),
}
_NAMES: Mapping[str, re.Pattern[str]] = {
    "cancel_order": re.compile(r"\bcancel"),
    "change_address": re.compile(r"\baddress\b|\bdeliver"),
    "return_item": re.compile(r"\breturn|\brefund"),
    "exchange_item": re.compile(r"\bexchange|\bswap"),
}
_GO_AHEAD = re.compile(r"\b(shall|should|may|can) (i|we)\b|\bgo ahead\b|\bconfirm|\bproceed\b|\byes or no\b")
_QUESTION = re.compile(r"\?|\bplease\b")
_REQUEST = re.compile(r"\b(need|provide|tell me|give me|share)\b")
_REFUSAL = re.compile(
    r"\b(cannot|can't|can not|unable|won't|will not|not (possible|allowed|permitted|able))\b", re.IGNORECASE
)

_GREETINGS = ("Hello, this is {name}. {wish}", "Good morning, {name} here. {wish}", "Hi! {wish} My name is {name}.")
_INSISTING = (
    "But I have been a customer for years. Can you not make an exception?",
    "The last colleague did it for me. Please try once more.",
    "I really need this. There must be a way.",
)
_GIVING_IN = ("All right, then leave it.", "That is a pity, but I see.", "Fine, then not.")
_NEXT = ("Thank you. {wish}", "Good. One more thing: {wish}", "I see. {wish}")
_YES = ("Yes, please.", "Yes, go ahead.", "Yes, that is right.")
_NO = "No. Tell me first what you would change, and of which order."
_LOST = ("What do you need to know from me?", "Sorry, I do not follow. Can you help me?")
_ALL = ("That was all. Goodbye.", "Thank you, that is all I wanted.")


def says_amount(text: str, fact: str) -> bool:
    """Whether a text holds this amount or date, and not as a part of another."""
    return re.search(rf"(?<![\d.,-]){re.escape(fact)}(?![\d-]|[.,]\d)", text) is not None


class Customer:
    """A customer in one conversation."""

    def __init__(self, script: Script, rng: Random) -> None:
        self._script = script
        self._phrases = {
            name: rng.choice(choice)
            for name, choice in (
                ("greeting", _GREETINGS),
                ("giving_in", _GIVING_IN),
                ("next", _NEXT),
                ("yes", _YES),
                ("lost", _LOST),
                ("all", _ALL),
            )
        }
        self._first_plea = rng.randrange(len(_INSISTING))
        self._at = 0
        self._num_refusals = 0
        self._is_met = False
        self.answered: set[tuple[int, str]] = set()
        """Topics that were told, by wish; identity under wish 0."""
        self.agreed: set[tuple[str, str]] = set()
        """Tools and orders that the customer has said yes to."""
        self.refused: set[int] = set()
        """Forbidden wishes that the customer has given up after refusals."""
        self.told: set[str] = set()

    @property
    def wish(self) -> Wish | None:
        """What the customer is after now; None when that was all."""
        return self._script.wishes[self._at] if self._at < len(self._script.wishes) else None

    @property
    def at(self) -> int:
        return self._at

    @property
    def is_met(self) -> bool:
        """Whether the wish was carried out, and the customer has not heard of it yet."""
        return self._is_met

    def greet(self) -> str:
        return self._phrases["greeting"].format(name=self._script.name, wish=self._script.wishes[0].text)

    def note_change(self, tool: str, order: str) -> None:
        """Take notice of a change that was made."""
        wishes = self._script.wishes
        met = [at for at in range(self._at, len(wishes)) if (wishes[at].tool, wishes[at].order) == (tool, order)]
        if self._at in met:
            # a customer who would settle for less and is given that at once has been refused the rest
            self.refused |= set(met[:-1])
            self._at, self._is_met = met[-1], True

    def hear(self, text: str) -> str:
        """Answer what the agent has said."""
        self.told |= {wish.fact for wish in self._script.wishes if wish.fact and says_amount(text, wish.fact)}
        wish, lower = self.wish, text.casefold()
        if wish is None:
            return self._phrases["all"]
        if self._is_met or (not wish.tool and wish.fact in self.told):
            return self._move_on("")
        asks = bool(_GO_AHEAD.search(lower)) and "?" in text
        if asks and wish.tool and _NAMES[wish.tool].search(lower) and re.search(rf"\b{wish.order.casefold()}\b", lower):
            self.agreed.add((wish.tool, wish.order))
            return self._phrases["yes"]
        if told := self._answer(wish, lower):
            return told
        if _REFUSAL.search(lower) and wish.refused_by:
            return self._resist(wish)
        return _NO if asks and wish.tool else self._phrases["lost"]

    def _answer(self, wish: Wish, lower: str) -> str:
        """What is known about each topic that was asked for; empty if none was."""
        if not _QUESTION.search(lower) and (_REFUSAL.search(lower) or not _REQUEST.search(lower)):
            return ""
        known = {
            "email": f"My email address is {self._script.email}.",
            "postcode": f"My postcode is {self._script.postcode}.",
            "order": f"It is order {wish.order}.",
            **wish.answers,
        }
        asked = [topic for topic, pattern in _TOPICS.items() if topic in known and pattern.search(lower)]
        self.answered |= {(0 if topic in ("email", "postcode") else self._at, topic) for topic in asked}
        return " ".join(known[topic] for topic in asked)

    def _resist(self, wish: Wish) -> str:
        self._num_refusals += 1
        if self._num_refusals <= self._script.insists:
            return _INSISTING[(self._first_plea + self._num_refusals) % len(_INSISTING)]
        self.refused.add(self._at)
        return self._move_on(self._phrases["giving_in"])

    def _move_on(self, before: str) -> str:
        self._at, self._num_refusals, self._is_met = self._at + 1, 0, False
        if self.wish is None:
            return f"{before} {self._phrases['all']}".strip()
        return f"{before} {self.wish.text}".strip() if before else self._phrases["next"].format(wish=self.wish.text)

    def state(self) -> tuple[object, ...]:
        """All that later answers can depend on."""
        sets = (self.answered, self.agreed, self.refused, self.told)
        return (self._at, self._num_refusals, self._is_met, *(sorted(each) for each in sets))
