"""Environments in folders: `use: ./my_env` is checked against the `env.json` in it; its code is never read."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from ...schemas import load
from ..catalog import CODE_FILE, DATA_FILE, EnvironmentInfo, make_info
from ..check.json_schema import check_schema
from ..compose.library import Found, Refusal, Trouble
from ..diagnostics import Diagnostic, Note, has_errors
from ..frozen import frozen
from ..model.model_sizes import is_folder
from ..model.recipe import Transport
from ..source import Source, Span
from ..suggest import quote
from ..text.decode import decode
from ..text.node import Path
from ..text.tree import parse_tree
from .context import Case

__all__ = ["WithFolders", "check_environment_folders"]

ReadFile = Callable[[str], Found | Refusal]

_RELATIVE = "a path counts from the folder of the file that it is written in"
_MAKE = f"'agym envs new NAME' writes a folder with {DATA_FILE} and {CODE_FILE}, to be changed into your own"


@frozen(kw_only=False)
class _Look:
    """What an `env.json` says, or what is wrong with it."""

    info: EnvironmentInfo | None = None
    wrong: tuple[Diagnostic, ...] = ()


@frozen(kw_only=False)
class WithFolders(Mapping[str, EnvironmentInfo]):
    """Registered environments by name, and those in folders by path, each read once; only the former are listed."""

    registered: Mapping[str, EnvironmentInfo]
    read: ReadFile
    _looks: dict[str, _Look] = field(default_factory=dict)

    def __getitem__(self, name: str) -> EnvironmentInfo:
        if not is_folder(name):
            return self.registered[name]
        info = self.look(name).info
        if info is None:
            raise KeyError(name)
        return info

    def __iter__(self) -> Iterator[str]:
        return iter(self.registered)

    def __len__(self) -> int:
        return len(self.registered)

    def look(self, folder: str) -> _Look:
        if folder not in self._looks:
            found = self.read(posixpath.join(folder, DATA_FILE))
            self._looks[folder] = _understand(folder, found) if isinstance(found, Found) else _Look()
        return self._looks[folder]


def check_environment_folders(case: Case, environments: WithFolders) -> Iterator[Diagnostic]:
    """Report each folder that holds no environment, or one whose data is wrong."""
    for path, environment in case.environments():
        use = environment.use
        if use is None or not is_folder(use):
            continue
        at = (*path, "use")
        problem = _no_environment(use, environments.read)
        if problem is not None:
            yield case.error(*problem[:2], at, problem[2])
            continue
        for wrong in environments.look(use).wrong:
            yield replace(wrong, notes=(*wrong.notes, Note("it is used here", case.places.value(*at))))
        yield from _inline(case, environment.transport, path)


def _inline(case: Case, transport: Transport, path: Path) -> Iterator[Diagnostic]:
    if transport is Transport.INLINE:
        message = "an environment in a folder always runs in a process of its own"
        yield case.error("conflict", message, (*path, "transport"), "remove 'transport'")


def _no_environment(use: str, read: ReadFile) -> tuple[str, str, str | None] | None:
    """Code, message and help where a folder holds no environment."""
    shown = quote(use)
    itself, data, code = (_trouble(read(path)) for path in (use, _inside(use, DATA_FILE), _inside(use, CODE_FILE)))
    if itself is None:
        return "file-refused", f"{shown} is a file, expected the folder of an environment", "write the folder it is in"
    if itself is Trouble.MISSING:
        return "file-not-found", f"no folder {shown}", _RELATIVE
    if data is not None:
        inner = _inside(use, posixpath.basename(posixpath.normpath(use)).replace("-", "_"))
        if _trouble(read(_inside(inner, DATA_FILE))) is None:
            return "file-not-found", f"the folder {shown} has no {DATA_FILE}, but a folder in it has", f"write {inner}"
        return "file-not-found", f"the folder {shown} has no {DATA_FILE}, which describes an environment", _MAKE
    if code is not None:
        advice = f"write {_inside(use, CODE_FILE)} with a function create(options) that returns an Env"
        return "file-not-found", f"the folder {shown} has no {CODE_FILE}, which is run", advice
    return None


def _inside(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def _trouble(found: Found | Refusal) -> Trouble | None:
    return found.trouble if isinstance(found, Refusal) else None


# --- env.json ------------------------------------------------------------------------------------------------------


def _understand(folder: str, found: Found) -> _Look:
    source = decode(found.name, found.data, key=found.key)
    if isinstance(source, Diagnostic):
        return _Look(wrong=(source,))
    try:
        data = json.loads(source.text)
    except json.JSONDecodeError as error:
        return _Look(wrong=(_no_json(source, error),))
    except RecursionError:
        return _Look(wrong=(_refused(source.span(0, 1), "values are nested too deep"),))
    if not isinstance(data, dict):
        return _Look(wrong=(_refused(source.span(0, 1), "expected an object in braces"),))
    wrong = _violations(source)
    return _Look(wrong=wrong) if has_errors(wrong) else _described(folder, data, source.span(0, 1))


def _no_json(source: Source, error: json.JSONDecodeError) -> Diagnostic:
    end = len(source.text)
    span = source.span(min(error.pos, max(end - 1, 0)), min(error.pos + 1, end))
    message = f"{DATA_FILE} is not JSON here: {error.msg[:1].lower()}{error.msg[1:]}"
    return Diagnostic(code="json-syntax", message=message, span=span, help=_JSON)


_JSON = "names and texts stand in double quotes, a comma between two entries and none after the last, no comments"


def _violations(source: Source) -> tuple[Diagnostic, ...]:
    """What the schema of `env.json` forbids, each where it stands; JSON that YAML reads otherwise is left out."""
    parsed = parse_tree(replace(source, text=source.text.replace("\t", " ")))
    doubled = tuple(each for each in parsed.diagnostics if each.code == "duplicate-key")
    if parsed.root is None or doubled or has_errors(parsed.diagnostics):
        return doubled
    return check_schema(parsed.root, load("env.v1"))


def _described(folder: str, data: Any, span: Span) -> _Look:
    try:
        info = make_info(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _Look(wrong=(_refused(span, f"it does not describe an environment: {error!r}"),))
    # it is found again by its path; what applies only to our own is left out
    return _Look(info=replace(info, name=folder, extra=None, light=False))


def _refused(span: Span, message: str) -> Diagnostic:
    return Diagnostic(code="bad-value", message=message, span=span, help="schemas/env.v1.json describes the file")
