"""Model folders inside a run folder: what they may hold, so that loading one runs no code; and what a run began from.

A run folder may come from a stranger. A checksum proves that nothing changed since it was written, not who wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .checkpoint_files import FORMAT, find_damage, hash_files, safetensors_problem, seal_files
from .run_folder import MODEL, START, FolderError, fill_folder, read_manifest

__all__ = ["check_model", "find_model_problem", "record_source", "start_folder"]

_KNOWN = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "README.md")
"""agym writes no other files into a model: pickles and modules are refused because they are not listed here."""
_NOT_READ = ("adapter_config.json",)
"""In a model folder, `transformers` would follow it to another model."""
_SOURCE = "source.json"


def check_model(folder: Path, *, trusted: bool = False, unsealed: bool = False) -> Path:
    """Return a model folder of a run that is whole and cannot run code; otherwise a FolderError says what is wrong."""
    problem = find_damage(folder, unsealed=unsealed) or next(find_model_problem(folder, trusted=trusted), None)
    if problem is not None:
        raise FolderError(f"'{folder}' is damaged or not of agym: {problem}; use another checkpoint, or restore it")
    return folder


def find_model_problem(folder: Path, *, trusted: bool = False) -> Iterator[str]:
    """What a model folder contains that no run writes. `trusted` models may name code of their own."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield f"{name}: is a link"
        elif path.is_file():
            yield from (f"{name}: {problem}" for problem in _file_problems(path, name, trusted))


def _file_problems(path: Path, name: str, trusted: bool) -> Iterator[str]:
    is_code = fnmatch(name, "*.py")
    if name in _NOT_READ or not (any(fnmatch(name, each) for each in _KNOWN) or (trusted and is_code)):
        yield "code, which runs only with 'model.trust_remote_code'" if is_code else "no run writes such a file"
    elif path.suffix == ".safetensors" and (problem := safetensors_problem(path)):
        yield problem
    elif path.suffix == ".json":
        yield from _json_problems(path, trusted)


def _json_problems(path: Path, trusted: bool) -> Iterator[str]:
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        yield "is no JSON"
        return
    if not trusted and _names_code(data):
        yield "its 'auto_map' names code, which runs only with 'model.trust_remote_code'"
    weights = data.get("weight_map") if isinstance(data, dict) else None
    if isinstance(weights, dict) and any(Path(str(each)).name != each for each in weights.values()):
        yield "names a file outside of the folder"


def _names_code(data: Any) -> bool:
    if isinstance(data, dict):
        return "auto_map" in data or any(map(_names_code, data.values()))
    return isinstance(data, list) and any(map(_names_code, data))


# --- what a run began from -----------------------------------------------------------------------------------------


def record_source(folder: Path, model: Path, origin: str, revision: str | None, adapters: Path | None = None) -> None:
    """Note in `folder` where the model of a run and its adapters are, with the checksums of their files; refuse others
    later."""
    if (folder / _SOURCE).is_file():
        _refuse_another(folder, model, origin, adapters)
        return
    with fill_folder(folder) as made:
        note: dict[str, Any] = {"path": origin, "revision": revision, "files": _fingerprint(model)}
        if adapters is not None:
            note["adapters"] = {"path": str(adapters), "files": _fingerprint(adapters)}
        (made / _SOURCE).write_text(json.dumps(note, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        seal_files(made, {})


def _fingerprint(model: Path) -> dict[str, Any]:
    files = [path for path in sorted(model.iterdir()) if path.suffix in (".json", ".safetensors") and path.is_file()]
    return hash_files(files, [path.name for path in files])


def _refuse_another(folder: Path, model: Path, origin: str, adapters: Path | None) -> None:
    if problem := find_damage(folder):
        raise FolderError(f"'{folder}' is damaged: {problem}; restore it, or delete it if the model is the same")
    note = json.loads((folder / _SOURCE).read_bytes())
    _compare_files(f"'{origin}' is not the model", note.get("files", {}), model)
    # a run of an earlier version did not note them
    if adapters is not None and "adapters" in note:
        _compare_files(f"'{adapters}' does not hold the adapters", note["adapters"]["files"], adapters)


def _compare_files(what: str, before: dict[str, Any], folder: Path) -> None:
    now = _fingerprint(folder)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        raise FolderError(
            f"{what} that this run began from: '{changed[0]}' has changed; restore it, or start over with --fresh"
        )


def start_folder(root: Path) -> Path:
    """Where the model is that a run made from scratch."""
    is_old = read_manifest(root)["format"] < FORMAT
    return root / (MODEL if is_old and not (root / START).exists() else START)
