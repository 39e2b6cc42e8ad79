"""A library without a disk."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from agym.dsl.compose.library import FileKind, Found, Refusal, Trouble, list_candidates
from agym.dsl.source import Source


@dataclass(frozen=True)
class MemoryLibrary:
    """Files by path and shipped recipes by name, held in memory."""

    files: Mapping[str, str | bytes]
    shipped: Mapping[str, str | bytes] = field(default_factory=dict)
    project: str = "."

    def read(self, reference: str, base: Source | None) -> Found | Refusal:
        if base is None:
            return self._found(reference, self.files.get(reference)) or self._missing()
        paths = list_candidates(reference, self.folder(base), self.project)
        if isinstance(paths, Trouble):
            return Refusal(trouble=paths)
        in_files = (self._found(path, self.files.get(path)) for path in paths)
        found = next((file for file in in_files if file), None)
        return found or self._found(reference, self.shipped.get(reference)) or self._not_a_file(paths[0])

    def find(self, path: str, base: Source) -> FileKind | None:
        """All that a recipe names is there: a folder is what has no suffix."""
        return FileKind.FILE if posixpath.splitext(path)[1] else FileKind.FOLDER

    def folder(self, source: Source) -> str:
        return posixpath.dirname(source.identity)

    def _found(self, name: str, content: str | bytes | None) -> Found | None:
        if content is None:
            return None
        data = content.encode("utf-8") if isinstance(content, str) else content
        return Found(name=name, key=name, data=data)

    def _not_a_file(self, path: str) -> Refusal:
        is_folder = any(name.startswith(path + "/") for name in self.files)
        return Refusal(trouble=Trouble.FOLDER) if is_folder else self._missing()

    def _missing(self) -> Refusal:
        return Refusal(trouble=Trouble.MISSING, known=(*self.files, *self.shipped))
