from __future__ import annotations

import pytest
from agym.envs.counter import Counter
from agym.envs.errors import BadOption, UnknownEnv
from agym.envs.registry import factory, names


def test_what_is_shipped_can_be_named() -> None:
    assert {"counter", "textcraft"} <= set(names())


def test_a_factory_makes_a_new_instance_each_time() -> None:
    make = factory("counter")
    first, second = make(), make()
    assert isinstance(first, Counter)
    assert first is not second


def test_a_misspelt_name_is_put_right() -> None:
    with pytest.raises(UnknownEnv, match="did you mean 'textcraft'"):
        factory("textcarft")


def test_a_name_like_none_lists_what_there_is() -> None:
    with pytest.raises(UnknownEnv, match=r"there are .*counter"):
        factory("zzz")


def test_options_reach_the_environment() -> None:
    with pytest.raises(BadOption, match="no option 'colour'"):
        factory("counter", {"colour": "red"})()
