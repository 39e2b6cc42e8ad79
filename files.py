"""Files on disk: the Library that the language reads through, the search for recipes in folders, atomic writes."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .dsl.compose.library import (
    SUFFIXES,
    FileKind,
    Found,
    Refusal,
    Trouble,
    explain_refusal,
    is_inside,
    list_candidates,
)
from .dsl.diagnostics import Diagnostic
from .dsl.source import Source
from .dsl.suggest import find_nearest, quote
from .dsl.text.decode import MAX_BYTES, decode

__all__ = ["STDIN", "DiskLibrary", "find_recipes", "is_base", "project_root", "shipped_names", "write_atomically"]

STDIN = "-"
PACKAGE = Path(os.path.realpath(__file__)).parent
SHIPPED = PACKAGE / "recipes"
PROJECT_MARKS = (".git", "pyproject.toml")
BASE_FOLDER = "base"
LOOKS_LIKE_RECIPE = re.compile(rb"""^(?:agym|"agym"|'agym')[ \t]*:|recipe\.v1\.json""", re.MULTILINE)


# --- reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DiskLibrary:
    """Recipes on disk and shipped ones; each file is read once."""

    cwd: Path
    shipped: Path = SHIPPED
    _read: dict[str, bytes | Refusal] = field(default_factory=dict)
    _projects: dict[str, str] = field(default_factory=dict)
    _real: dict[str, str] = field(default_factory=dict)

    def read(self, reference: str, base: Source | None) -> Found | Refusal:
        """Read a file by a path, or a shipped recipe by its name; files win."""
        return self._read_first(reference, base, may_wait=False)

    def _read_first(self, reference: str, base: Source | None, *, may_wait: bool) -> Found | Refusal:
        paths = self._paths(reference, base)
        if isinstance(paths, Trouble):
            return Refusal(trouble=paths)
        refusals = []
        for path in (*paths, *self._shipped_paths(reference)):
            found = self._found(path, base, may_wait=may_wait)
            if isinstance(found, Found):
                return found
            refusals.append(found)
        # a file that cannot be read is more telling than others that do not exist
        refusal = next((each for each in refusals if each.trouble is not Trouble.MISSING), refusals[0])
        return refusal if refusal.trouble is not Trouble.MISSING else self._missing(reference, paths[0])

    def find(self, path: str, base: Source) -> FileKind | None:
        """What is at a path, `~` being the person's own folder."""
        whole = os.path.join(self.folder(base), os.path.expanduser(path))
        if os.path.isdir(whole):
            return FileKind.FOLDER
        return FileKind.FILE if os.path.exists(whole) else None

    def folder(self, source: Source) -> str:
        """Folder of a file; for a setting, the one that agym was called in."""
        return os.path.dirname(os.path.join(self.cwd, source.identity))

    def open(self, reference: str) -> Source | Diagnostic:
        """The recipe that the command line names: a path, or the name of a shipped one."""
        found = self._read_first(reference, None, may_wait=True)
        if isinstance(found, Refusal):
            advice = "'agym recipes' lists those that are shipped" if found.trouble is Trouble.MISSING else None
            return explain_refusal(found, reference, Source(reference, "").span(0, 0), advice)
        return decode(found.name, found.data, key=found.key)

    def _paths(self, reference: str, base: Source | None) -> tuple[str, ...] | Trouble:
        if base is None:
            return (os.path.join(self.cwd, os.path.expanduser(reference)),)
        folder = self.folder(base)
        return list_candidates(reference, folder, self._project(folder))

    def _shipped_paths(self, reference: str) -> tuple[str, ...]:
        paths = list_candidates(reference, str(self.shipped), str(self.shipped))
        return () if isinstance(paths, Trouble) else paths

    def _project(self, folder: str) -> str:
        if folder not in self._projects:
            self._projects[folder] = str(project_root(Path(folder), self.shipped))
        return self._projects[folder]

    def _found(self, path: str, base: Source | None, *, may_wait: bool) -> Found | Refusal:
        key = self._key(path)
        if base is not None and self._leaves(key, base):
            return Refusal(trouble=Trouble.OUTSIDE, detail="it is a link")
        if key not in self._read:
            # by the path itself: the target of a link to a pipe has no name
            self._read[key] = _content(path, may_wait=may_wait)
        content = self._read[key]
        return content if isinstance(content, Refusal) else Found(name=self._name(path), key=key, data=content)

    def _key(self, path: str) -> str:
        """The path without links, cached: many recipes extend the same."""
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]

    def _leaves(self, key: str, base: Source) -> bool:
        """True where a link leads out of both the project and the shipped recipes."""
        project = self._project(self.folder(base))
        return not any(is_inside(key, self._key(str(folder))) for folder in (project, self.shipped))

    def _name(self, path: str) -> str:
        """Path as a person would type it: relative below the working folder."""
        return os.path.relpath(path, self.cwd) if is_inside(path, str(self.cwd)) else path

    def _missing(self, reference: str, path: str) -> Refusal:
        folder, bare = os.path.dirname(reference), not reference.endswith(SUFFIXES)
        files = _list_recipes(os.path.dirname(path))
        if folder:  # which is the same in all, and must not make them look alike
            names = (os.path.splitext(file)[0] if bare else file for file in files)
            near = find_nearest(os.path.basename(reference), names)
            files = [os.path.join(folder, near)] if near else []
        return Refusal(trouble=Trouble.MISSING, known=(*files, *shipped_names(self.shipped)))


def project_root(folder: Path, shipped: Path = SHIPPED) -> Path:
    """Boundary of references: the nearest folder above that marks a project, else the folder itself."""
    if is_inside(str(folder), str(shipped)):
        return shipped
    above = (folder, *folder.parents)
    return next((each for each in above if any((each / mark).exists() for mark in PROJECT_MARKS)), folder)


def shipped_names(shipped: Path = SHIPPED) -> tuple[str, ...]:
    """Names of the recipes that come with the package, bases included."""
    return tuple(path.relative_to(shipped).with_suffix("").as_posix() for path in sorted(shipped.rglob("*.yaml")))


def _content(path: str, *, may_wait: bool) -> bytes | Refusal:
    """Read a file. A person may name a pipe, and waits for its data; a recipe may not."""
    try:
        if not may_wait and stat.S_ISFIFO(os.stat(path).st_mode):
            return Refusal(trouble=Trouble.UNREADABLE, detail="it is a pipe")
        with open(path, "rb") as file:
            # one byte over the limit is enough for a refusal, and reading /dev/zero ends there too
            return file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        return Refusal(trouble=Trouble.FOLDER)
    except FileNotFoundError:
        return Refusal(trouble=Trouble.MISSING)
    except OSError as error:
        return Refusal(trouble=Trouble.UNREADABLE, detail=(error.strerror or str(error)).lower())
    except ValueError as error:
        return Refusal(trouble=Trouble.UNREADABLE, detail=str(error))


def _list_recipes(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIXES))
    except OSError:
        return []


# --- finding -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSearch:
    """Recipes behind the arguments of a command."""

    paths: tuple[str, ...]
    """As shown, and as the Library opens them."""
    problems: tuple[Diagnostic, ...]
    """Arguments that lead to no recipe."""
    left_out: int
    """YAML files in the named folders that are not recipes."""


def find_recipes(arguments: Sequence[str], cwd: Path) -> RecipeSearch:
    """Find the recipes behind files, folders, globs, shipped names and `-`, each once, in order."""
    found: dict[str, str] = {}
    problems: list[Diagnostic] = []
    left_out = 0
    for argument in arguments:
        paths, others = _expand(argument, cwd)
        left_out += others
        if not paths:
            problems.append(_no_recipe(argument, cwd, others))
        for path in paths:
            found.setdefault(os.path.realpath(os.path.join(cwd, path)), path)
    return RecipeSearch(paths=tuple(found.values()), problems=tuple(problems), left_out=left_out)


def is_base(path: str) -> bool:
    """True for a file in a folder named `base`: a part of recipes, which may lack what a recipe needs."""
    return BASE_FOLDER in Path(path).parts[:-1]


def _expand(argument: str, cwd: Path) -> tuple[list[str], int]:
    path = os.path.join(cwd, os.path.expanduser(argument))
    if argument == STDIN:
        return [argument], 0
    if os.path.isdir(path):
        return _in_folder(argument, path)
    if os.path.lexists(path) or argument in shipped_names():
        return [argument], 0
    if glob.has_magic(argument):
        paths = sorted(glob.glob(os.path.expanduser(argument), root_dir=cwd, recursive=True))
        return [each for each in paths if os.path.isfile(os.path.join(cwd, each))], 0
    return [], 0


def _in_folder(shown_as: str, folder: str) -> tuple[list[str], int]:
    files = list(_yaml_files(folder))
    recipes = [os.path.relpath(path, folder) for path in files if _is_recipe(path)]
    return [os.path.normpath(os.path.join(shown_as, path)) for path in recipes], len(files) - len(recipes)


def _yaml_files(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        # in place: os.walk then leaves them out
        folders[:] = sorted(each for each in folders if not _skipped(os.path.join(here, each)))
        yield from (os.path.join(here, name) for name in sorted(files) if name.endswith(SUFFIXES))


def _skipped(folder: str) -> bool:
    """Hidden folders, virtual environments and installed JavaScript hold no recipes of this project."""
    name = os.path.basename(folder)
    return name.startswith(".") or name == "node_modules" or os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _is_recipe(path: str) -> bool:
    """True with `agym:` at the top level or the schema's modeline, and for an unreadable file, which is reported."""
    content = _content(path, may_wait=True)
    return isinstance(content, Refusal) or LOOKS_LIKE_RECIPE.search(content) is not None


def _no_recipe(argument: str, cwd: Path, others: int) -> Diagnostic:
    path = os.path.join(cwd, os.path.expanduser(argument))
    code = "no-recipes"
    if os.path.isdir(path):
        message = f"no recipe in the folder {quote(argument)}" + (f", only {others} other YAML files" if others else "")
        advice = "a recipe is a .yaml or .yml file with a top-level key 'agym'"
    elif glob.has_magic(argument):
        message, advice = f"no file matches {quote(argument)}", "quote the pattern, or name files"
    else:
        code, message = "file-not-found", f"{quote(argument)} is not there"
        advice = _meant(argument, path)
    return Diagnostic(code=code, message=message, span=Source(argument, "").span(0, 0), help=advice)


def _meant(argument: str, path: str) -> str:
    folder = os.path.dirname(argument)
    siblings = (os.path.join(folder, name) for name in _list_recipes(os.path.dirname(path)))
    near = find_nearest(argument, (*siblings, *shipped_names()))
    return f"did you mean '{near}'?" if near else "name a file, a folder, or one of `agym recipes`"


# --- writing -------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, text: str, *, replace: bool = False) -> None:
    """Write all of the text or nothing; FileExistsError where the file exists and `replace` is not set."""
    import tempfile  # costs 5 ms, which only a write should pay

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        if replace:
            os.replace(temporary, path)
        else:
            # unlike a check before the write, a link has no race condition
            os.link(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
