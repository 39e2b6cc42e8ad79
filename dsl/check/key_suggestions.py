"""Keys of a schema, and suggestions for keys that it does not know.

Paths here are patterns: lists are left out, and a name of the writer's own is NAME, as in `environments.NAME.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...schemas import Schema
from ..frozen import frozen
from ..suggest import find_closest, fold_name, quote

__all__ = ["NAME", "KeyPattern", "SchemaKeys", "Suggestion", "load_aliases"]

KeyPattern = tuple[str, ...]

NAME = "NAME"
DEEPEST = 12
ANYWHERE = frozenset({"name", "type", "id", "kind", "value", "mode", "path", "url", "use", "options", "description"})
"""Names that many things have: one of another section is not meant."""
AFFIXES = re.compile("^(use|enable|vllm|sglang|actor|ppo|dpo|grpo|log_prob)_|_(enabled?|per_gpu|per_device)$")
"""What other frameworks add to a name."""
A_SLIP = 0.26
"""Up to here a name is taken for a slip of one in the same map rather than for the exact name of one elsewhere."""


@cache
def load_aliases() -> Mapping[str, Any]:
    """What other frameworks call `keys`, by folded names, `explained` by patterns, and `values`; read on a mistake."""
    import yaml

    text = Path(__file__).with_name("key_aliases.yaml").read_text(encoding="utf-8")
    found = yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return {
        "keys": {fold_name(name): meant.split() for meant, names in found["keys"].items() for name in names},
        "explained": {name: text for text, names in found["explained"].items() for name in names},
        "values": found["values"],
    }


def _explain(name: str, at: KeyPattern) -> str | None:
    """What to do instead of writing another framework's key that has no counterpart."""
    explained: Mapping[str, str] = load_aliases()["explained"]
    folded = _underscored(name)
    return explained.get(f"{at[-1] if at else ''}.{folded}") or explained.get(folded)


def _explain_kind(name: str) -> str | None:
    """The same for names that are known by how they begin."""
    begins = ((start[:-1], text) for start, text in load_aliases()["explained"].items() if start.endswith("*"))
    return next((text for start, text in begins if _underscored(name).startswith(start)), None)


def _underscored(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name).lower()


@frozen
class Suggestion:
    """What to write instead of an unknown key."""

    help: str | None
    key: str | None = None
    """The key of the same map that was meant."""


class SchemaKeys:
    """The keys of a schema, by pattern."""

    def __init__(self, schema: Schema) -> None:
        self.definitions: Mapping[str, Schema] = schema.get("definitions", {})
        self.known: dict[KeyPattern, Schema] = dict(self._walk(schema, ()))

    def _walk(self, schema: Schema, at: KeyPattern) -> Iterator[tuple[KeyPattern, Schema]]:
        if len(at) > DEEPEST:
            return
        for part in self.maps(schema):
            current = {name: inner for name, inner in part.get("properties", {}).items() if "deprecated" not in inner}
            for name, inner in current.items():
                yield (*at, name), inner
                yield from self._walk(inner, (*at, name))
            rest = part.get("additionalProperties")
            if isinstance(rest, Mapping) and rest:
                yield (*at, NAME), rest
                yield from self._walk(rest, (*at, NAME))

    def maps(self, schema: Schema) -> Iterator[Schema]:
        """The schemas of maps that may stand here, also as items of a list."""
        if "$ref" in schema:
            yield from self.maps(self.definitions.get(schema["$ref"].rpartition("/")[2], {}))
        for branch in schema.get("anyOf", ()):
            yield from self.maps(branch)
        items = schema.get("items")
        if isinstance(items, Mapping):
            yield from self.maps(items)
        if "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
            yield schema

    def pattern(self, path: Sequence[str | int]) -> KeyPattern:
        """The pattern of a path in a recipe."""
        found: KeyPattern = ()
        for step in path:
            if isinstance(step, str):
                found = (*found, step if (*found, step) in self.known else NAME)
        return found

    def children(self, at: KeyPattern) -> list[str]:
        return [known[-1] for known in self.known if known[:-1] == at and known[-1] != NAME]

    # --- what was meant --------------------------------------------------------------------------------------------

    def suggest(self, name: str, at: KeyPattern) -> Suggestion:
        near = find_closest(name, self.children(at))
        if near and near[0][0] == 0:
            return self._rename(near[0][1])
        explained = _explain(name, at)
        if explained is not None:
            return Suggestion(help=explained)
        foreign = self._rank(self._foreign(name, at), at)
        if fold_name(name) in ANYWHERE and at:  # what it means depends on where it stands
            foreign = [path for path in foreign if _shared(path, at)]
        is_here = bool(foreign) and foreign[0][: len(at)] == at
        if near and near[0][0] <= A_SLIP and not is_here:
            return self._rename(near[0][1])
        if foreign:
            return self._elsewhere(name, foreign, at)
        same = [path for path in self.known if fold_name(path[-1]) == fold_name(name) and path[-1] != NAME]
        same = [path for path in same if _shared(path, at)] if fold_name(name) in ANYWHERE and at else same
        if same:
            return self._elsewhere(name, self._rank(same, at), at)
        kind = _explain_kind(name)
        if kind is not None:
            return Suggestion(help=kind)
        return self._rename(near[0][1]) if near else self._far(name, at)

    def _rename(self, name: str) -> Suggestion:
        return Suggestion(help=f"did you mean '{name}'?", key=name)

    def _far(self, name: str, at: KeyPattern) -> Suggestion:
        """A slip of a key elsewhere; else what there is, if that is little."""
        slips = find_closest(name, dict.fromkeys(path[-1] for path in self.known), A_SLIP)
        if slips:
            same = [path for path in self.known if path[-1] == slips[0][1]]
            return self._elsewhere(name, self._rank(same, at), at)
        children = self.children(at)
        if children and at and len(children) > 10:
            return Suggestion(help=f"'agym schema --field {'.'.join(at)}' explains the keys here")
        return Suggestion(help=f"known: {', '.join(children)}" if children else None)

    def _foreign(self, name: str, at: KeyPattern) -> list[KeyPattern]:
        """What other frameworks mean by a name; not the place itself, nor what that is in."""
        keys = load_aliases()["keys"]
        meant = keys.get(fold_name(name)) or keys.get(fold_name(AFFIXES.sub("", _underscored(name))), ())
        paths = [tuple(path.split(".")) for path in meant]
        inside = [("schedule", *path) for path in paths]
        return [path for path in [*paths, *inside] if path in self.known and at[: len(path)] != path]

    def _rank(self, paths: Sequence[KeyPattern], at: KeyPattern) -> list[KeyPattern]:
        """The paths nearest to a place; several if none is nearer than the others."""
        in_stage = at[:1] == ("schedule",)
        open_to = [path for path in paths if in_stage or path[:1] != ("schedule",) or path[1:] not in self.known]
        if not open_to:
            return []

        def rank(path: KeyPattern) -> tuple[int, int, bool]:
            return -_shared(path, at), len(path), path[:1] != ("schedule",)

        best = min(map(rank, open_to))
        return [path for path in open_to if rank(path) == best][:3]

    def _elsewhere(self, name: str, paths: list[KeyPattern], at: KeyPattern) -> Suggestion:
        first = paths[0]
        if first[:-1] == at:
            near = [path[-1] for path in paths if path[:-1] == at]
            return Suggestion(help=f"did you mean {_either(near)}?", key=first[-1])
        inside = first[: len(at)] == at
        names = [".".join(path[len(at) :] if inside else path) for path in paths]
        if first[-1] == name:
            return Suggestion(help=f"{quote(name)} belongs {_place(paths)}; write {_nested(names[0])}")
        return Suggestion(help=f"did you mean {_either(names)}? write {_nested(names[0])}")


def _either(names: Sequence[str]) -> str:
    return " or ".join(f"'{each}'" for each in names)


def _shared(a: KeyPattern, b: KeyPattern) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _place(paths: list[KeyPattern]) -> str:
    if len(paths[0]) == 1:
        return "at the top of the recipe"
    places = " or ".join(f"'{'.'.join(path[:-1])}'" for path in paths)
    return f"in an entry of {places}" if paths[0][:-1] == ("schedule",) else f"under {places}"


def _nested(dotted: str) -> str:
    """`kl: {coef: ...}` for `kl.coef`."""
    *outer, last = dotted.split(".")
    text = f"{last}: ..."
    for each in reversed(outer):
        text = f"{each}: [{{{text}}}]" if each == "schedule" else f"{each}: {{{text}}}"
    return text
