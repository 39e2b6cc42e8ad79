"""What there is to be done.

What enters: the templates that sites have written down. What leaves: `Task`s by id. What is true is computed from the
data that an episode begins with; how an expert does it is a list of `Deed`s, which name elements as pages show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .checks import Databases, Outcome, Truth, says, stands_at

__all__ = ["PARTS", "SEVERAL", "Choose", "Click", "Deed", "Fill", "Go", "Press", "Task", "Template", "Values"]

PARTS = ("shopping", "shopping_admin", "forum", "wiki", "tracker")
"""What a task can be about."""
SEVERAL = "several"
"""Where it is about more than one of them."""

Values: TypeAlias = Mapping[str, str | int]
"""What is different from variant to variant."""


# --- how it is done ---


@dataclass(frozen=True, slots=True)
class Click:
    role: str
    """As a page's text has it: `link`, `button`, `checkbox`, `radio`."""
    name: str
    after: str = ""
    """The first of that role and name below an element of this name."""


@dataclass(frozen=True, slots=True)
class Fill:
    role: str
    """`textbox`, `searchbox`, `spinbutton`, `date`."""
    name: str
    text: str
    enter: bool = False
    """Whether to press Enter afterwards."""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Choose:
    role: str
    """`combobox` or `listbox`."""
    name: str
    option: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Go:
    url: str


@dataclass(frozen=True, slots=True)
class Press:
    keys: str


Deed: TypeAlias = Click | Fill | Choose | Go | Press


# --- what is to be done ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    id: str
    site: str
    """One of `PARTS`, or `SEVERAL`."""
    intent: str
    """With values in braces: `How many orders does {customer} have?`"""
    variants: tuple[Values, ...] = ({},)
    start: str
    """The address where it begins, with values in braces."""
    path: Callable[[Databases, Values], Sequence[Deed]]
    """All that is to be done but the answer, which follows from `answer`."""
    answer: Callable[[Databases, Values], Truth] | Truth | None = None
    """What the agent must say; `NOT_POSSIBLE` where it cannot be done."""
    url: Callable[[Databases, Values], str] | str | None = None
    """The address that must be looked at in the end, with values in braces."""
    free: frozenset[str] = frozenset()
    """Parameters that the address may have besides, such as an order that was not asked for."""
    state: Callable[[Outcome, Values], bool] | None = None
    """Whether the right thing was changed, and nothing else; without it nothing may be."""
    needs: tuple[str, ...] = ()
    """The parts of a task about several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A template with values."""

    id: str
    template: Template
    values: Values
    held_out: bool

    @property
    def intent(self) -> str:
        return self.template.intent.format(**self.values)

    @property
    def start(self) -> str:
        return self.template.start.format(**self.values)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.template.needs or (self.template.site,)

    def truth(self, databases: Databases) -> Truth | None:
        answer = self.template.answer
        return answer(databases, self.values) if callable(answer) else answer

    def url(self, databases: Databases) -> str | None:
        url = self.template.url
        return url(databases, self.values) if callable(url) else url and url.format(**self.values)

    def done(self, answer: str, url: str, outcome: Outcome) -> bool:
        """Whether all holds that is asked for: what was said, where it ended, what was changed."""
        truth, wanted, state = self.truth(outcome.before), self.url(outcome.before), self.template.state
        return (
            (truth is None or says(answer, truth))
            and (wanted is None or stands_at(url, wanted, self.template.free))
            and (state(outcome, self.values) if state else not outcome.changes)
        )
