"""Files, folders and models that a recipe names: that they are there, and that what names them can be a path.

The Library says what is on the disk, by a path relative to the recipe's folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..check.bind import TreePlaces
from ..check.expected import scalar_text
from ..check.paths import list_references
from ..compose.library import FileKind
from ..diagnostics import Diagnostic
from ..model.model_sizes import is_folder
from ..model.recipe import Recipe
from ..source import Span
from ..suggest import quote
from ..text.node import Path, node_at

__all__ = ["find_wrong_paths"]

Find = Callable[[str], FileKind | None]

_ON_THE_HUB = r"https?://huggingface\.co/([\w.-]+/[\w.-]+)"
_VARIABLE = r"\$(\w+)|%(\w+)%"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".ckpt", ".json")
_NOTHING = ("None", "none", "null", "nil", "False", "false", "")
_OPENS_WITH = 4
"""Words that no path has, and a prompt does."""
_COMMAND = ("command",)
"""Its words may be anything, and those that begin as a path name a file."""
_EITHER = ("algorithm", "data", "path")
_FOLDER = ("model", "lora", "path")


def find_wrong_paths(recipe: Recipe, places: TreePlaces, find: Find) -> Iterator[Diagnostic]:
    """Report what is not a path, and paths that lead nowhere; each once, though stages inherit most of them."""
    done: set[Span] = set()
    for path, value, refers in list_references(recipe):
        span = places.value(*path)
        node = node_at(places.tree, path)
        # what an environment's folder must contain is checked elsewhere
        if span in done or node is None or "${" in value or path[-1] == "use":
            continue
        done.add(span)
        found = _wrong(value, scalar_text(node), refers.hub, path, find)
        if found:
            code, message, advice = found
            yield Diagnostic(code=code, message=message, span=span, help=advice)


def _wrong(value: str, shown: str, hub: bool, path: Path, find: Find) -> tuple[str, str, str | None] | None:
    """Code, message and help."""
    key, text = str(path[-1]), quote(shown)
    if path[-2:-1] == _COMMAND:
        return _missing(value, text, path, find) if value.startswith(("./", "../")) else None
    variable = re.search(_VARIABLE, value) if "$" in value or "%" in value else None
    if variable:
        name = variable[1] or variable[2]
        advice = f"write {shown.replace(variable[0], f'${{env:{name}}}')}" if len(shown) <= 80 else None
        return "bad-value", f"{text} is not expanded: a recipe is not read by a shell", advice
    if hub and value.strip() in _NOTHING:
        return "bad-value", f"{text} is no model", "write a folder or an id of the hub, or remove the key"
    if "://" in value:
        there = re.match(_ON_THE_HUB, value)
        kinds = "a folder or an id of the hub" if hub else "a file"
        advice = f"write {there[1]}" if there and hub else "download it, and write the path to it"
        return "bad-value", f"expected {kinds}, got an address", advice
    if not hub and _is_prose(value):
        example = "templates/mine.jinja" if key == "chat_template" else "prompts/mine.txt"
        advice = f"save the text in a file, and write its path: {key}: {example}"
        return "bad-value", "expected the path of a file, got the text itself", advice
    return _elsewhere(value, text, find) if hub else _missing(value, text, path, find)


def _is_prose(value: str) -> bool:
    return "\n" in value.strip() or "{{" in value or (len(value.split()) > _OPENS_WITH and "/" not in value)


def _missing(value: str, text: str, path: Path, find: Find) -> tuple[str, str, str | None] | None:
    kind = find(value)
    if kind is None:
        return "file-not-found", f"no {'folder' if path[-3:] == _FOLDER else 'file'} {text}", _RELATIVE
    if kind is FileKind.FOLDER and path[-3:] not in (_EITHER, _FOLDER):
        return "file-refused", f"{text} is a folder, expected a file", "name a file in it"
    if kind is FileKind.FILE and path[-3:] == _FOLDER:
        return "file-refused", f"{text} is a file, expected the folder of adapters", "write the folder that it is in"
    return None


def _elsewhere(value: str, text: str, find: Find) -> tuple[str, str, str | None] | None:
    """What is wrong with a folder, or with what cannot be an id of the hub."""
    kind = find(value) if is_folder(value) else None
    if kind is FileKind.FOLDER:
        return None
    if value.endswith(_WEIGHTS) and (kind is FileKind.FILE or value.count("/") != 1):
        return "file-refused", f"{text} is a file, expected the folder of a model", "write the folder that it is in"
    if kind is FileKind.FILE:
        return "file-refused", f"{text} is a file, expected the folder of a model", None
    if is_folder(value):
        return "file-not-found", f"no folder {text}", _RELATIVE
    if value.count("/") > 1 or "\\" in value:
        advice = f"write ./{value}" if find(value) else "write ./ before a folder, or an id such as Qwen/Qwen2.5-0.5B"
        return "file-not-found", f"{text} is no id of the hub, which has one '/'", advice.replace("\\", "/")
    return None


_RELATIVE = "paths count from the folder of the file that they are written in"
