"""A frozen class behaves just as if the standard library's decorator had made it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest
from agym.dsl.frozen import frozen


@frozen
class Lamp:
    """With a default, and one that is made anew each time."""

    SHORTHAND: ClassVar[str] = "name"

    name: str
    watts: int = 5
    tags: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    name: str
    watts: int = 5
    tags: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)


@frozen(kw_only=False)
class Pair:
    left: int
    right: int = 2


@frozen(eq=False)
class Node:
    value: int


@frozen
class Nothing:
    """No fields at all."""


def test_what_can_be_asked_of_a_dataclass_can_be_asked_of_it() -> None:
    lamp, standard = Lamp(name="a"), Standard(name="a")
    assert is_dataclass(Lamp)
    assert [(each.name, each.default) for each in fields(lamp)] == [
        (each.name, each.default) for each in fields(standard)
    ]
    assert repr(lamp) == repr(standard).replace("Standard", "Lamp")
    assert replace(lamp, watts=9) == Lamp(name="a", watts=9)
    assert not hasattr(lamp, "__dict__")
    assert repr(Nothing()) == "Nothing()"


def test_a_default_that_is_made_is_made_anew() -> None:
    assert Lamp(name="a").extra is not Lamp(name="a").extra
    assert Lamp(name="a", extra={"x": 1}).extra == {"x": 1}


@pytest.mark.parametrize("make", [Lamp, lambda: Lamp("a"), lambda: Lamp(name="a", colour=1), lambda: Pair(1, 2, 3)])  # type: ignore[call-arg, misc]
def test_arguments_are_checked(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        make()


def test_arguments_by_place_where_that_is_said() -> None:
    assert Pair(1) == Pair(left=1, right=2)
    assert Pair(1, 3).right == 3


def test_it_cannot_change() -> None:
    lamp = Lamp(name="a")
    with pytest.raises(FrozenInstanceError, match="'watts' of a Lamp"):
        lamp.watts = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del lamp.watts
    with pytest.raises(FrozenInstanceError):
        lamp.colour = "red"  # type: ignore[attr-defined]


def test_equal_values_make_equal_objects_of_one_class() -> None:
    assert (Pair(1), hash(Pair(1))) == (Pair(1, 2), hash(Pair(1, 2)))
    assert Pair(1) != Pair(2)
    assert Lamp(name="a") != Standard(name="a")
    assert Nothing() == Nothing()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Lamp(name="a"))


def test_without_eq_each_object_equals_itself_alone() -> None:
    node = Node(value=1)
    assert node == node
    assert node != Node(value=1)
    assert len({node, Node(value=1)}) == 2


def test_it_can_be_copied_and_sent_to_another_process() -> None:
    lamp = Lamp(name="a", extra={"x": 1})
    assert pickle.loads(pickle.dumps(lamp)) == lamp
    assert copy.deepcopy(lamp) == lamp
