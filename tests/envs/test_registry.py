from __future__ import annotations

import pytest
from agym.envs.counter import Counter
from agym.envs.errors import BadOption, NotInstalled, UnknownEnv
from agym.envs.registry import _check, _explain_missing, factory, list_names


def test_what_is_shipped_can_be_named() -> None:
    assert {"counter", "textcraft"} <= set(list_names())


def test_a_factory_makes_a_new_instance_each_time() -> None:
    make = factory("counter")
    first, second = make(), make()
    assert isinstance(first, Counter)
    assert first is not second


def test_a_misspelt_name_is_put_right() -> None:
    with pytest.raises(UnknownEnv, match="did you mean 'textcraft'"):
        factory("textcarft")


def test_a_name_like_none_lists_what_there_is() -> None:
    with pytest.raises(UnknownEnv, match=r"expected one of .*counter"):
        factory("zzz")


def test_options_reach_the_environment() -> None:
    with pytest.raises(BadOption, match="no option 'colour'"):
        factory("counter", {"colour": "red"})()


def lacking(options: object) -> object:
    raise ModuleNotFoundError("No module named 'minigrid.core'", name="minigrid.core")


def test_a_package_that_is_missing_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(NotInstalled, match=r"'babyai' needs the package 'minigrid': pip install 'agym-dsl\[babyai\]'"):
        _check("babyai", lacking)({})


def test_a_plugins_missing_package_is_named() -> None:
    with pytest.raises(NotInstalled, match=r"'mine' needs the package 'minigrid'$"):
        _check("mine", lacking)({})


def test_a_missing_module_of_our_own_is_our_mistake() -> None:
    with pytest.raises(ModuleNotFoundError), _explain_missing("babyai"):
        raise ModuleNotFoundError("No module named 'agym.envs.gone'", name="agym.envs.gone")
