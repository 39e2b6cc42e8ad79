"""Field types of the recipe's dataclasses: limits, units, examples, and numbers that may change during a run.

A class is `@frozen`; each field is followed by a string that documents it, and `Annotated[...]` carries the metadata
below. `SHORTHAND: ClassVar[str]` names the field that a bare scalar stands for (`algorithm: grpo` is
`algorithm: {use: grpo}`), `RENAMED` the old names of fields.
"""

from __future__ import annotations

from typing import Annotated, Any

from ..expression.expr import Expr
from ..frozen import frozen


@frozen
class Bounds:
    """Limits of a number; `above`/`below` exclude the limit itself, `at_least`/`at_most` include it."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None


@frozen(kw_only=False)
class Pattern:
    """A regular expression that the whole text must match, and its name in messages."""

    regex: str
    what: str


@frozen(kw_only=False, eq=False)  # hashed by identity: a type hint must be hashable, a list is not
class Example:
    """An example for the schema; without one the default is shown."""

    value: Any


@frozen(kw_only=False)
class InScope:
    """The names available to an expression in this field: a key of `scopes.SCOPES`."""

    name: str
    number: bool = False
    """Of a field that is always an expression: whether it gives a number rather than true or false."""


@frozen(kw_only=False)
class Refers:
    """A path to a file or folder, relative to the folder of the file that contains it."""

    hub: bool = False
    """Text that does not start with `.`, `/` or `~` is an id of the hub and no path."""


@frozen(kw_only=False)
class Secret:
    """Never written to disk or shown; must come from `${env:NAME}`."""


@frozen(kw_only=False)
class Wide:
    """Not checked here: the schema of the named plugin applies."""


@frozen(kw_only=False)
class Nested:
    """A list that may also be written as one bare item."""


Json = str | int | float | bool | None | tuple[Any, ...] | dict[str, Any]

Size = Annotated[int, Bounds(at_least=1)]
"""A whole number from 1."""
Count = Annotated[int, Bounds(at_least=0)]
"""A whole number from 0."""
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(at_least=0)]
Fraction = Annotated[float, Bounds(at_least=0, at_most=1)]
NOT_BLANK = Pattern(r"[\s\S]*\S[\s\S]*", "text that is not empty")
Name = Annotated[str, NOT_BLANK]
"""A name or word; where text may be empty, its field says `str`."""
FilePath = Annotated[str, NOT_BLANK, Refers()]
HubPath = Annotated[str, NOT_BLANK, Refers(hub=True)]
SLUG = Pattern(r"[a-z0-9][a-z0-9._-]{0,99}", "lower-case letters, digits, '.', '_' and '-'")
Slug = Annotated[str, SLUG]

DynInt = Annotated[int | Expr, Bounds(at_least=1), InScope("schedule")]
"""A whole number, or an expression of the schedule's names that is one at every step."""
DynPositive = Annotated[float | Expr, Bounds(above=0), InScope("schedule")]
DynNonNegative = Annotated[float | Expr, Bounds(at_least=0), InScope("schedule")]
