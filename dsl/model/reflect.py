"""Reflection on the recipe's dataclasses: their keys and types as data, read from type hints once for all of dsl."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..expression.expr import Expr
from ..expression.scopes import ExprType
from ..frozen import frozen
from .fields import Bounds, Example, InScope, Nested, Pattern, Refers, Secret, Wide

__all__ = [
    "ABSENT",
    "Choice",
    "Constant",
    "Field",
    "Flag",
    "Formula",
    "Free",
    "Number",
    "Record",
    "Row",
    "Series",
    "Table",
    "Type",
    "Word",
    "record",
    "records",
    "type_at",
    "type_below",
]


class _Absent:
    """Where there is no default, no example, no value; None is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@frozen(eq=False)
class Number:
    """A number, or the text of an expression that gives one."""

    whole: bool
    bounds: Bounds
    scope: str | None = None
    """Names that the expression may use; None for a number that may not change while the run goes on."""

    @property
    def want(self) -> ExprType:
        return ExprType.INTEGER if self.whole else ExprType.NUMBER


@frozen(eq=False)
class Flag:
    """true or false."""


@frozen(eq=False)
class Word:
    """Text."""

    pattern: Pattern | None = None
    secret: bool = False
    refers: Refers | None = None


@frozen(eq=False)
class Choice:
    """One of an enum's values."""

    enum: type[StrEnum]
    values: tuple[str, ...]


@frozen(eq=False)
class Constant:
    """One of few fixed values: `agym: 1`."""

    values: tuple[int | str, ...]


@frozen(eq=False)
class Formula:
    """Always an expression."""

    scope: str
    want: ExprType


@frozen(eq=False)
class Record:
    """A map with known keys: a dataclass."""

    cls: type
    doc: str
    shorthand: str | None
    """The key that a bare scalar stands for."""
    fields: Mapping[str, Field]
    renamed: Mapping[str, str]
    """Names of keys in an earlier version, and what each is called now."""


@frozen(eq=False)
class Table:
    """A map with names of the author's own."""

    names: Pattern | None
    item: Type


@frozen(eq=False)
class Series:
    """A list of any length."""

    item: Type
    bare: bool
    """Whether one item may stand without the list around it."""


@frozen(eq=False)
class Row:
    """A list of a fixed length."""

    items: tuple[Type, ...]


@frozen(eq=False)
class Free:
    """Anything; `map` if only a map of anything."""

    map: bool = False
    refers: Refers | None = None
    """Where text in it may be a path, if it begins like one."""


Type = Number | Flag | Word | Choice | Constant | Formula | Record | Table | Series | Row | Free


@frozen(eq=False)
class Field:
    """A key of a Record."""

    name: str
    type: Type
    nullable: bool
    default: Any
    """As the dataclass holds it; ABSENT where the key is required."""
    example: Any
    """As a person would write it; ABSENT where none was declared."""

    @property
    def required(self) -> bool:
        return self.default is ABSENT


# --- from classes --------------------------------------------------------------------------------------------------


@cache
def record(cls: type) -> Record:
    """Describe a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    made = {each.name: _field(each.name, hints[each.name], _default(each)) for each in fields(cls)}
    doc = " ".join((cls.__doc__ or "").split())
    renamed: Mapping[str, str] = getattr(cls, "RENAMED", {})
    return Record(cls=cls, doc=doc, shorthand=getattr(cls, "SHORTHAND", None), fields=made, renamed=renamed)


def records(start: Record) -> Iterator[Record]:
    """List a record and all that are reachable from it, each once, in order of first use."""
    found: dict[type, Record] = {}

    def visit(type_: Type) -> None:
        if isinstance(type_, Record) and type_.cls not in found:
            found[type_.cls] = type_
        elif isinstance(type_, Record):
            return
        for part in _parts(type_):
            visit(part)

    visit(start)
    yield from found.values()


def _parts(type_: Type) -> tuple[Type, ...]:
    match type_:
        case Record():
            return tuple(each.type for each in type_.fields.values())
        case Table() | Series():
            return (type_.item,)
        case Row():
            return type_.items
        case _:
            return ()


def type_at(start: Type, path: tuple[str | int, ...]) -> Type | None:
    """Find the type at a path, a bare item counting as a list; None if there is none."""
    found: Type | None = start
    for step in path:
        found = type_below(found, step)
    return found


def type_below(type_: Type | None, step: str | int) -> Type | None:
    """Find the type of a value in a map or list; None if there is none."""
    match type_:
        case Record() if isinstance(step, str):
            inner = type_.fields.get(step)
            return inner.type if inner else None
        case Table() if isinstance(step, str):
            return type_.item
        case Series() if isinstance(step, int):
            return type_.item
        case Row() if isinstance(step, int) and 0 <= step < len(type_.items):
            return type_.items[step]
        case _:
            return None


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ABSENT if field.default is MISSING else field.default


def _field(name: str, hint: Any, default: Any) -> Field:
    core, notes, nullable = _opened(hint)
    example = _note(notes, Example)
    return Field(
        name=name,
        type=_type(core, notes),
        nullable=nullable,
        default=default,
        example=ABSENT if example is None else example.value,
    )


def _opened(hint: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
    """A hint's alternatives, everything noted on it or on one of them, and whether null is among them."""
    notes: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, notes = hint.__origin__, hint.__metadata__
    if get_origin(hint) not in (Union, types.UnionType):
        return (hint,), notes, hint is type(None)
    cores: tuple[Any, ...] = ()
    nullable = False
    for each in get_args(hint):
        inner, more, null = _opened(each)
        nullable = nullable or null
        cores += () if each is type(None) else inner
        notes += more
    return cores, notes, nullable


def _note(notes: tuple[Any, ...], kind: type) -> Any:
    return next((note for note in notes if isinstance(note, kind)), None)


def _type(cores: tuple[Any, ...], notes: tuple[Any, ...]) -> Type:
    if _note(notes, Wide) is not None:
        return Free(map=True, refers=_note(notes, Refers))
    if len(cores) == 1:
        return _single(cores[0], notes)
    if Expr in cores and set(cores) <= {int, float, Expr}:
        return _number(float if float in cores else int, notes)
    return Free()


def _number(core: type, notes: tuple[Any, ...]) -> Number:
    scope = _note(notes, InScope)
    return Number(whole=core is int, bounds=_note(notes, Bounds) or Bounds(), scope=scope.name if scope else None)


def _single(core: Any, notes: tuple[Any, ...]) -> Type:
    origin = get_origin(core)
    if origin is tuple:
        first, *others = get_args(core)
        if others == [Ellipsis]:
            return Series(item=_item(first), bare=_note(notes, Nested) is not None)
        return Row(items=tuple(_item(each) for each in (first, *others)))
    if origin is Literal:
        return Constant(values=get_args(core))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = get_args(core)
        return Table(names=_note(_opened(key)[1], Pattern), item=_item(item))
    if core is Expr:
        scope = _note(notes, InScope)
        return Formula(scope=scope.name, want=ExprType.NUMBER if scope.number else ExprType.BOOLEAN)
    if core is bool:
        return Flag()
    if core in (int, float):
        return _number(core, notes)
    if isinstance(core, type) and issubclass(core, StrEnum):
        return Choice(enum=core, values=tuple(map(str, core)))
    if is_dataclass(core) and isinstance(core, type):
        return record(core)
    if core is str:
        secret = _note(notes, Secret) is not None
        return Word(pattern=_note(notes, Pattern), secret=secret, refers=_note(notes, Refers))
    raise TypeError(f"a recipe cannot hold {core!r}")


def _item(hint: Any) -> Type:
    cores, notes, _ = _opened(hint)
    return _type(cores, notes)
