"""Keys of a schema, and suggestions for keys that it does not know.

Paths here are patterns: lists are left out, and a name of the writer's own is NAME, as in `environments.NAME.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from ...schemas import Schema
from ..frozen import frozen
from ..suggest import either, find_closest, fold_name, quote
from .foreign_names import explain_kind, explain_name, find_foreign, split_words, vary_name
from .key_words import WordIndex

__all__ = ["NAME", "KeyPattern", "SchemaKeys", "Suggestion"]

KeyPattern = tuple[str, ...]

NAME = "NAME"
DEEPEST = 12
ANYWHERE = frozenset({"name", "type", "id", "kind", "value", "mode", "path", "url", "use", "options", "description"})
"""Names that many things have: a key of another section is not meant."""
A_SLIP = 0.26
"""Up to here a name is taken for a slip of one in the same map rather than for the exact name of one elsewhere."""
AS_NEAR = 0.02
"""Slips that differ by no more are offered together."""
FAR = 0.45
MOST_KEYS = 32
"""Keys of a map that are listed for a name that is like none of them."""
FEW_KEYS = 12
MOST_LETTERS = 120


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
        """What was meant by a name that is not a key there: the surest reading of it first."""
        readings = (
            *(self._same, self._dotted, self._in_its_section, self._explained, self._meant_elsewhere),
            *(self._of_a_kind, self._varied),
        )
        found = (reading(name, at) for reading in readings)
        return next((each for each in found if each is not None), None) or self._far(name, at)

    def _near(self, name: str, at: KeyPattern) -> list[tuple[float, str]]:
        return find_closest(name, self.children(at))

    def _same(self, name: str, at: KeyPattern) -> Suggestion | None:
        near = self._near(name, at)
        return self._rename([near[0][1]]) if near and near[0][0] == 0 else None

    def _explained(self, name: str, at: KeyPattern) -> Suggestion | None:
        explained = explain_name(name, at[-1] if at else "")
        return _advise(explained)

    def _in_its_section(self, name: str, at: KeyPattern) -> Suggestion | None:
        """`horizon` in `kl`, which is `kl_horizon` where names have no sections; not what is a key of another one."""
        section = next((step for step in reversed(at) if step != NAME), None)
        foreign = self._foreign(f"{section}_{name}", at) if section else []
        inside = [path for path in foreign if path[:-1] == at]
        return self._elsewhere("", inside, at) if inside else None

    def _meant_elsewhere(self, name: str, at: KeyPattern) -> Suggestion | None:
        """A name that other frameworks have, a slip of a key in the same map, or a key of another one."""
        foreign = self._foreign(name, at)
        near = self._near(name, at)
        here = [path[-1] for path in foreign if path[-1] in self.children(at)]
        if here and foreign[0][-1] == here[0]:  # `temp` means that of this section
            return self._rename(here)
        if foreign:  # `rollout_n` is no slip of `rollout`
            near = [each for each in near if len(split_words(each[1])) == len(split_words(name))]
        same = self._of_that_name(name, at)
        is_here = (bool(foreign) and foreign[0][:-1] == at) or any(path[: len(at)] == at for path in same if at)
        if near and near[0][0] <= A_SLIP and not is_here:
            equal = [each for score, each in near if score <= near[0][0] + AS_NEAR]
            return self._rename(equal[:3], key=equal[0])
        if foreign:
            return self._elsewhere(name, foreign, at)
        parts = [each for each in self.children(at) if name.lower() in split_words(each)]
        if same and parts and at and not is_here:  # `kl` in `guards`, which has `kl_max`
            also = "', '".join(".".join(path) for path in self._rank(same, at))
            return self._rename(parts[:3], more=f" otherwise it is '{also}'")
        return self._elsewhere(name, self._rank(same, at), at) if same else None

    def _of_that_name(self, name: str, at: KeyPattern) -> list[KeyPattern]:
        same = [path for path in self.known if fold_name(path[-1]) == fold_name(name) and path[-1] != NAME]
        return [path for path in same if _shared(path, at)] if fold_name(name) in ANYWHERE and at else same

    def _dotted(self, name: str, at: KeyPattern) -> Suggestion | None:
        """`algorithm.lr: 1e-6`, and the paths of other frameworks: `actor_rollout_ref.rollout.n`."""
        parts = tuple(filter(None, re.split(r"[./:]+", name)))
        if len(parts) < 2 or len(name) > MOST_LETTERS:
            return None
        whole = next((path for path in (parts, (*at, *parts)) if self.pattern(path) in self.known), None)
        if whole is not None:
            nested = whole[len(at) :] if whole[: len(at)] == at else whole
            return Suggestion(help=f"a dot does not nest keys in YAML; write {_nested('.'.join(nested))}")
        ends = ("_".join(parts[start:]) for start in range(len(parts)))
        found = (self._same(each, at) or self._variant(each, at) for each in ends)
        return next((each for each in found if each is not None), None) or self.suggest(parts[-1], at)

    def _of_a_kind(self, name: str, at: KeyPattern) -> Suggestion | None:
        return _advise(explain_kind(name))

    def _varied(self, name: str, at: KeyPattern) -> Suggestion | None:
        """The name without what frameworks put before and after one: `vllm_max_model_len`, `actor_lr`."""
        return next((found for each in vary_name(name) if (found := self._variant(each, at)) is not None), None)

    def _variant(self, name: str, at: KeyPattern) -> Suggestion | None:
        explained = self._explained(name, at)
        if explained:
            return explained
        foreign = self._foreign(name, at)
        if foreign:
            return self._elsewhere(name, foreign, at)
        same = self._of_that_name(name, at) if len(name) > 3 or not at else []
        ranked = self._rank([path for path in same if path != at], at)
        return self._elsewhere("", ranked, at) if ranked else None

    def _rename(self, names: Sequence[str], key: str | None = None, more: str = "") -> Suggestion:
        return Suggestion(help=f"did you mean {either(names)}?{more}", key=key or names[0])

    def _far(self, name: str, at: KeyPattern) -> Suggestion:
        """What comes nearest, in the map, by a slip of a key elsewhere, or by its words; and what keys there are."""
        near = [each for score, each in self._near(name, at) if score < FAR]
        slips = [] if near else find_closest(name, dict.fromkeys(path[-1] for path in self.known), A_SLIP)
        if slips:
            same = [path for path in self.known if path[-1] == slips[0][1]]
            return self._elsewhere(name, self._rank(same, at), at)
        paths = [(*at, each) for each in near[:1]]
        paths += [path for path in self._by_words(name, at) if path not in paths]
        names = [".".join(path[len(at) :] if path[: len(at)] == at else path) for path in paths[:3]]
        guess = f"did you mean {either(names)}? " if names else ""
        key = paths[0][-1] if paths and paths[0][:-1] == at else None
        return Suggestion(help=guess + self._listed(name, at), key=key)

    def _by_words(self, name: str, at: KeyPattern) -> list[KeyPattern]:
        open_to = self._open_to(self._words.find(name, at), at)
        return [path for path in open_to if at[: len(path)] != path]

    @cached_property
    def _words(self) -> WordIndex:
        return WordIndex(path for path in self.known if path[-1] != NAME and path[:1] != ("schedule",))

    def _listed(self, name: str, at: KeyPattern) -> str:
        """All keys of a map, as far as they can be read, for a name that is like none of them."""
        section = at
        first = split_words(name)[:1]
        if not at and first and (first[0],) in self.known and self.children((first[0],)):
            section = (first[0],)
        children = self.children(section)
        if not children:
            return "remove it"
        where = f"the keys of '{section[-1]}' are" if section and section[-1] != NAME else "the keys here are"
        if len(children) > MOST_KEYS:
            return f"'agym schema --field {'.'.join(section)}' lists the keys here; remove it if none of them is meant"
        return f"{where} {', '.join(children)}; remove it if none of them is meant"

    def _foreign(self, name: str, at: KeyPattern) -> list[KeyPattern]:
        """What other frameworks mean by a name; not the place itself, nor what that is in."""
        paths = [tuple(path.split(".")) for path in find_foreign(name)]
        inside = [("schedule", *path) for path in paths]
        known = [path for path in [*paths, *inside] if path in self.known and at[: len(path)] != path]
        if fold_name(name) in ANYWHERE and at:  # what it means depends on where it stands
            return self._rank([path for path in known if _shared(path, at)], at)
        nearest = self._rank(known, at)
        return (nearest + [path for path in self._open_to(known, at) if path not in nearest])[:3]

    def _open_to(self, paths: Sequence[KeyPattern], at: KeyPattern) -> list[KeyPattern]:
        """Without those of a stage, where the same can be written for the recipe, and the other way round."""
        in_stage = at[:1] == ("schedule",)
        open_to = [path for path in paths if in_stage or path[:1] != ("schedule",) or path[1:] not in self.known]
        return [path for path in open_to if not in_stage or ("schedule", *path) not in open_to]

    def _rank(self, paths: Sequence[KeyPattern], at: KeyPattern) -> list[KeyPattern]:
        """The paths nearest to a place; several if none is nearer than the others."""
        open_to = self._open_to(paths, at)
        if not open_to:
            return []

        def rank(path: KeyPattern) -> tuple[int, int, bool]:
            return -_shared(path, at), len(path), path[:1] != ("schedule",)

        best = min(map(rank, open_to))
        return [path for path in open_to if rank(path) == best][:3]

    def _elsewhere(self, name: str, paths: list[KeyPattern], at: KeyPattern) -> Suggestion:
        first = paths[0]
        names = [".".join(path[len(at) :] if path[: len(at)] == at else path) for path in paths]
        if first[:-1] == at:
            return Suggestion(help=f"did you mean {either(names)}?", key=first[-1])
        if first[-1] == name:
            return Suggestion(help=f"{quote(name)} belongs {_place(paths)}{_whole(first)}; write {_nested(names[0])}")
        return Suggestion(help=f"did you mean {either(names)}? write {_nested(names[0])}{self._here(at)}")

    def _here(self, at: KeyPattern) -> str:
        """The keys of a small map, in which a name was perhaps meant that we take for one of another."""
        children = self.children(at)
        named = f"; the keys of '{at[-1]}' are {', '.join(children)}" if at and at[-1] != NAME else ""
        return named if len(children) <= FEW_KEYS else ""

    def translate(self, name: str, at: KeyPattern = ()) -> str | None:
        """The key that a name of another framework stands for, where that is sure."""
        paths = self._foreign(name, at) or (self._rank(self._of_that_name(name, at), at) if len(name) > 1 else [])
        return ".".join(paths[0]) if paths and len(paths[0]) > 1 else None


def _advise(explained: str | None) -> Suggestion | None:
    """What agym does instead, and the advice to remove the key."""
    if explained is None:
        return None
    says_what = any(word in explained for word in ("remove", "write ", "leave", "did you mean"))
    return Suggestion(help=explained if says_what else f"{explained}; remove it")


def _whole(path: KeyPattern) -> str:
    return f", as {'.'.join(path)}" if len(path) > 1 and path[0] != "schedule" else ""


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
