"""Files and folders that the options of environments name: whether they are there, and whether their rows are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..catalog import RowCheck
from ..compose.library import Found, Refusal, Trouble
from ..diagnostics import Diagnostic
from ..suggest import quote
from ..text.decode import MAX_BYTES
from ..text.node import Path
from .context import Case

__all__ = ["check_option_files"]

ReadFile = Callable[[str], Found | Refusal]


def check_option_files(case: Case, read: ReadFile) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        info = case.catalog.environments.get(environment.use or "")
        for name in info.path_options if info else ():
            value = environment.options.get(name)
            if isinstance(value, str) and value.strip():
                check = info.rows.get(name) if info else None
                yield from _check_file(case, (*path, "options", name), value, read(value), check)


def _check_file(
    case: Case, path: Path, value: str, found: Found | Refusal, check: RowCheck | None
) -> Iterator[Diagnostic]:
    if isinstance(found, Found):
        wrong = _wrong_rows(found.data, check) if check else ()
        if wrong:
            line, message = wrong[0]
            others = f"; {len(wrong) - 1} more of its lines are wrong" if len(wrong) > 1 else ""
            yield case.error("bad-option", f"{quote(value.removeprefix('./'))}, line {line}: {message}{others}", path)
    elif found.trouble is Trouble.MISSING:
        hint = "a path is relative to the folder of the file that it is written in"
        yield case.error(
            "file-not-found", f"there is no file or folder {quote(value.removeprefix('./'))}", path, hint=hint
        )
    elif found.trouble is not Trouble.FOLDER or check:
        why = "a folder, expected a file" if found.trouble is Trouble.FOLDER else f"not readable: {found.detail}"
        yield case.error("file-refused", f"{quote(value.removeprefix('./'))} is {why}", path)


def _wrong_rows(data: bytes, check: RowCheck) -> Sequence[tuple[int, str]]:
    """Of the part that was read: the rest of a large file is checked when the run starts."""
    text = data.rpartition(b"\n")[0] if len(data) > MAX_BYTES else data
    try:
        return list(check(text.decode("utf-8")))
    except UnicodeDecodeError as error:
        return [(text.count(b"\n", 0, error.start) + 1, "it is not UTF-8")]
