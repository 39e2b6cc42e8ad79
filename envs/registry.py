"""Names to environments: the ones shipped here, those that other packages offer under the entry point `agym.envs`, and
folders with an `env.py`, named by their path.

A name leads to a function that takes the options and makes an instance; nothing is imported before it is asked for.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TypeAlias

from .errors import EnvError, EnvFault, NotInstalled, UnknownEnv, suggest
from .protocol import Env, EnvFactory, Json

__all__ = ["Create", "factory", "is_folder", "list_names", "short_name"]

Create: TypeAlias = Callable[[Mapping[str, Json]], Env]

_SHIPPED = (
    "babyai",
    "counter",
    "desk",
    "gymnasium",
    "mcp",
    "miniwob",
    "reasoning_gym",
    "sciworld",
    "search",
    "shell",
    "textarena",
    "textcraft",
    "textworld",
    "verifiers",
    "webarena",
    "websites",
)
_GROUP = "agym.envs"


def is_folder(name: str) -> bool:
    """Whether it is the path of an environment's folder rather than a name."""
    return name.startswith((".", "/", "~"))


def short_name(name: str) -> str:
    """A name for logs and addresses: that of the folder itself where a path is given."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", Path(name).resolve().name) if is_folder(name) else name


def list_names() -> tuple[str, ...]:
    return tuple(sorted({*_SHIPPED, *(point.name for point in entry_points(group=_GROUP))}))


def factory(name: str, options: Mapping[str, Json] | None = None) -> EnvFactory:
    """Factory for instances of a named environment with these options."""
    return partial(_create(name), dict(options or {}))


def _create(name: str) -> Create:
    if name in _SHIPPED:
        return _check(name, _import_shipped(name))
    if is_folder(name):
        return _check(name, _load_folder(name))
    for point in entry_points(group=_GROUP, name=name):
        return _check(name, point.load())
    raise UnknownEnv(f"no environment is called '{name[:40]}'{suggest(name, list_names())}")


def _import_shipped(name: str) -> object:
    with _explain_missing(name):
        return import_module(f"{__package__}.{name}").create


@contextmanager
def _explain_missing(name: str) -> Iterator[None]:
    """Name a missing package and the line that installs it; a missing module of our own is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", __name__.partition(".")[0]):
            raise
        if is_folder(name):
            where = _place(error, Path(name).expanduser().resolve())
            raise NotInstalled(
                f"environment '{name}' needs the module '{error.name}'{where}: install its package"
            ) from error
        data = Path(__file__).parent / name / "env.json"
        extra = json.loads(data.read_text("utf-8"))["extra"] if data.is_file() else None
        line = f": pip install 'agym-dsl[{extra}]'" if extra else ""
        raise NotInstalled(f"environment '{name}' needs the package '{package}'{line}") from error


def _check(name: str, create: object) -> Create:
    if not callable(create):
        raise UnknownEnv(f"environment '{name}' is registered with something that cannot be called")

    def checked(options: Mapping[str, Json]) -> Env:
        with _explain_missing(name), _explain_failure(name):
            env = create(options)
        if not isinstance(env, Env):
            raise UnknownEnv(f"environment '{name}' is registered with something that makes no Env")
        return env

    return checked


# --- a folder of your own ------------------------------------------------------------------------------------------


def _load_folder(name: str) -> object:
    """The `create` of FOLDER/env.py, imported as a module of a package with the folder's name."""
    folder = Path(name).expanduser().resolve()
    if not (folder / "env.py").is_file():
        raise UnknownEnv(f"there is no environment in '{name}': it needs env.py, with a function create(options)")
    package = re.sub(r"\W", "_", folder.name)
    _refuse_taken(package, name, folder)
    with _explain_broken(name, folder):
        if package not in sys.modules:
            _import_package(package, folder)
        module = import_module(f"{package}.env")
    if not hasattr(module, "create"):
        raise UnknownEnv(f"'{name}/env.py' has no function create(options), which makes the environment")
    return module.create


@contextmanager
def _explain_failure(name: str) -> Iterator[None]:
    """Say in one line why the code of a folder made no environment: a fault, as the next attempt may succeed."""
    try:
        yield
    except (EnvError, ModuleNotFoundError):
        raise
    except (Exception, SystemExit) as error:
        if not is_folder(name):
            raise
        where = _place(error, Path(name).expanduser().resolve())
        raise EnvFault(f"environment '{name}' cannot be made: {_describe(error)}{where}") from error


def _refuse_taken(package: str, name: str, folder: Path) -> None:
    """Refuse a folder whose name another package has, which its own modules might then import instead."""
    if package in sys.stdlib_module_names or package == "__main__":
        raise UnknownEnv(f"the folder '{name}' has the name of a module of Python: give it another")
    spec = getattr(sys.modules.get(package), "__spec__", None) or find_spec(package)
    places = [Path(place).resolve() for place in (spec and spec.submodule_search_locations) or ()]
    is_bare_folder = spec is not None and spec.origin is None
    # the working folder is searched where a module was started by `python -m`: what is there need not be installed
    is_here = Path.cwd() / package in places
    is_free = package not in sys.modules and (is_bare_folder or is_here)
    if spec is not None and folder not in places and not is_free:
        raise UnknownEnv(f"the folder '{name}' has the name of the Python package '{package}': give it another")


def _import_package(package: str, folder: Path) -> None:
    """Import a folder as a package without a search path that others would then be found on too."""
    init = folder / "__init__.py"
    loader = (SourceFileLoader if init.is_file() else _NoCode)(package, str(init))
    spec = spec_from_loader(package, loader, is_package=True)
    assert spec is not None, "it is made of its loader"
    spec.submodule_search_locations = [str(folder)]
    module = module_from_spec(spec)
    sys.modules[package] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[package]
        raise


class _NoCode(SourceFileLoader):
    """The loader of a folder without `__init__.py`, whose data is found like that of any package."""

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def _explain_broken(name: str, folder: Path) -> Iterator[None]:
    """Say in one line, with the file and the line in it, why the code of a folder cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        where = _place(error, folder)
        raise NotInstalled(f"environment '{name}' needs the module '{missing}'{where}: install its package") from error
    except EnvError:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownEnv(f"environment '{name}': {_describe(error)}{_place(error, folder)}") from error


def _describe(error: Exception | SystemExit) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _place(error: Exception | SystemExit, folder: Path) -> str:
    """File and line of the folder in which an error arose, if it did there."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    frames = [each for each in extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(folder)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
