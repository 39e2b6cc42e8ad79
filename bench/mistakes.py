"""Recipes with one mistake each, whose place and whose right word are known.

Every key of two complete recipes, every value of a fixed choice, and the names that a recipe refers to are misspelt in
every way of KINDS; every value is replaced by one of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agym.dsl.catalog import Catalog
from agym.dsl.check.key_suggestions import NAME, KeyPattern, SchemaKeys
from agym.dsl.expression.functions import PLAIN, SCHEDULES, WINDOWS
from agym.dsl.expression.scopes import SCOPES
from agym.dsl.model.recipe import Lora
from agym.dsl.source import Source
from agym.dsl.text.node import Entry, ListNode, MapNode, Node, ScalarNode
from agym.dsl.text.node import Path as Steps
from agym.dsl.text.tree import parse_tree

ROOT = Path(__file__).resolve().parents[1]
GOOD = ROOT / "tests" / "recipes_good"
BAD = ROOT / "tests" / "recipes_bad"
MUTATIONS = BAD / "mutations.tsv"
COMPLETE = ("complete-cluster.yaml", "complete-laptop.yaml")


# --- slips of the pen ----------------------------------------------------------------------------------------------


def _left_out(word: str) -> str:
    middle = len(word) // 2
    return word[:middle] + word[middle + 1 :]


def _swapped(word: str) -> str:
    """Two letters that differ, from the middle on; before it where there are none."""
    places = [*range(len(word) // 2, len(word) - 1), *range(len(word) // 2)]
    at = next((i for i in places if i + 1 < len(word) and word[i] != word[i + 1]), None)
    return word if at is None else word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _doubled(word: str) -> str:
    middle = len(word) // 2
    return word[:middle] + word[middle] + word[middle:]


def _hyphens(word: str) -> str:
    return word.replace("_", "-")


def _camel_case(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part.capitalize() for part in rest)


KINDS: Mapping[str, Callable[[str], str]] = {
    "left-out": _left_out,
    "swapped": _swapped,
    "doubled": _doubled,
    "hyphens": _hyphens,
    "camel-case": _camel_case,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One recipe with one mistake, whose place is known."""

    what: str
    """The row of the table that it counts in."""
    name: str
    text: str
    start: int
    end: int
    meant: str | None = None
    """The word that a suggestion must name; None where there is nothing to suggest."""
    codes: tuple[str, ...] = ()
    """What may be said about it; anything if empty."""


def slips(word: str, known: Sequence[str], kinds: Sequence[str] = tuple(KINDS)) -> Iterator[tuple[str, str]]:
    """Kind and misspelling; not those that are words themselves."""
    for kind, change in ((kind, KINDS[kind]) for kind in kinds):
        made = change(word)
        if made and made != word and made not in known:
            yield kind, made


T = TypeVar("T")


def one_of(things: Sequence[T], seat: Iterable[str]) -> T:
    """One that seems to be chosen at random, and stays the same when others come or go elsewhere."""
    return things[sum(map(ord, "".join(seat))) % len(things)]


# --- keys ----------------------------------------------------------------------------------------------------------


def keys_of(text: str, known: SchemaKeys) -> Iterator[tuple[Steps, KeyPattern, Entry]]:
    """All keys of the language in a recipe; names of the writer's own left out."""
    root = parse_tree(Source("recipe", text)).root
    assert root is not None
    yield from _keys(root, (), (), known)


def _keys(
    node: Node, steps: Steps, pattern: KeyPattern, known: SchemaKeys
) -> Iterator[tuple[Steps, KeyPattern, Entry]]:
    if isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            yield from _keys(item, (*steps, index), pattern, known)
    for entry in node.entries if isinstance(node, MapNode) else ():
        own = (*pattern, entry.name)
        if own in known.known:
            yield (*steps, entry.name), own, entry
        yield from _keys(entry.value, (*steps, entry.name), own if own in known.known else (*pattern, NAME), known)


def misspelt_keys(known: SchemaKeys) -> Iterator[Mutation]:
    """Each key of the complete recipes, in its place among all the others."""
    for name in COMPLETE:
        text = (GOOD / name).read_text(encoding="utf-8")
        for steps, pattern, entry in keys_of(text, known):
            for kind, made in slips(entry.name, known.children(pattern[:-1])):
                start = entry.key.span.start
                yield Mutation(
                    what="keys",
                    name=f"{name}: {_dotted(steps)} {kind}",
                    text=text[:start] + made + text[entry.key.span.end :],
                    start=start,
                    end=start + len(made),
                    meant=entry.name,
                    codes=("unknown-key",),
                )


def _dotted(steps: Steps) -> str:
    return ".".join(map(str, steps))


# --- small recipes -------------------------------------------------------------------------------------------------

SKELETON: Mapping[str, str] = {
    "agym": "1",
    "name": "misspelt",
    "vars": "{last: 30, rates: {first: 1e-6, floor: 1e-7}}",
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "environments": "{textcraft: textcraft}",
    "schedule": "[{stage: train, turns: 10, until: step >= 100}]",
}
"""What a recipe needs around the part that is looked at."""
KEPT = {"stage", "turns", "until", "use", "url", "path"}
"""Keys that stay in the maps around that part."""


@dataclass(slots=True)
class Small:
    """Writes one part of a recipe in block style, and notes where one word of it ends up."""

    path: Steps
    word: str
    in_value: bool = False
    """Whether the word takes the place of the value rather than of the key."""
    text: str = ""
    start: int = -1

    def write(self, root: MapNode) -> None:
        for name, value in SKELETON.items():
            if name != self.path[0]:
                self.text += f"{name}: {value}\n"
            else:
                self._section(root)
        if self.path[0] not in SKELETON:
            self._section(root)

    def _section(self, root: MapNode) -> None:
        self._entry(next(each for each in root.entries if each.name == self.path[0]), (self.path[0],), "")

    def _entry(self, entry: Entry, steps: Steps, indent: str) -> None:
        is_it = steps == self.path
        self._put(entry.name if not is_it or self.in_value else self.word, is_it and not self.in_value)
        self.text += ":"
        if is_it and self.in_value:
            self.text += " "
            self._put(self.word, True)
            self.text += "\n"
        else:
            self._value(entry.value, steps, indent)

    def _put(self, word: str, noted: bool) -> None:
        self.start = len(self.text) if noted else self.start
        self.text += word

    def _value(self, node: Node, steps: Steps, indent: str) -> None:
        inner = indent + "  "
        if isinstance(node, MapNode):
            self.text += "\n"
            self._entries(node, steps, inner, inner)
        elif isinstance(node, ListNode) and "\n" in node.span.text:
            index = self.path[len(steps)] if self._leads_to(steps) else 0
            assert isinstance(index, int)
            self._item(node.items[index], (*steps, index), inner)
        else:
            self.text += f" {' '.join(node.span.text.split())}\n"

    def _item(self, node: Node, steps: Steps, indent: str) -> None:
        self.text += "\n"
        if isinstance(node, MapNode):
            self._entries(node, steps, f"{indent}- ", f"{indent}  ")
        else:
            self.text += f"{indent}- {node.span.text}\n"

    def _entries(self, node: MapNode, steps: Steps, first: str, indent: str) -> None:
        for number, entry in enumerate(self._kept(node, steps)):
            self.text += indent if number else first
            self._entry(entry, (*steps, entry.name), indent)

    def _leads_to(self, steps: Steps) -> bool:
        return len(steps) < len(self.path) and self.path[: len(steps)] == steps

    def _kept(self, node: MapNode, steps: Steps) -> Sequence[Entry]:
        """Of a map on the path: the next key of the path, what it cannot do without, and around the word all that is
        short."""
        if not self._leads_to(steps):
            return node.entries[:1]
        wanted, innermost = self.path[len(steps)], len(steps) == len(self.path) - 1
        return [
            entry
            for entry in node.entries
            if entry.name == wanted or (isinstance(entry.value, ScalarNode) and (innermost or entry.name in KEPT))
        ]


def small(root: MapNode, path: Steps, word: str, *, in_value: bool = False) -> tuple[str, int]:
    writer = Small(path, word, in_value)
    writer.write(root)
    return writer.text, writer.start


def complete_keys(known: SchemaKeys) -> Iterator[tuple[MapNode, Steps, KeyPattern, Entry]]:
    """Every key of the complete recipes, with the recipe that it is in."""
    for name in COMPLETE:
        text = (GOOD / name).read_text(encoding="utf-8")
        root = parse_tree(Source(name, text)).root
        assert isinstance(root, MapNode)
        for steps, pattern, entry in keys_of(text, known):
            yield root, steps, pattern, entry


def small_keys(known: SchemaKeys) -> Iterator[Mutation]:
    """Each key once, in a recipe of a few lines."""
    seen: set[KeyPattern] = set()
    for root, steps, pattern, entry in complete_keys(known):
        if pattern in seen:
            continue
        seen.add(pattern)
        kind, made = one_of(list(slips(entry.name, known.children(pattern[:-1]))), pattern)
        made_text, start = small(root, steps, made)
        yield Mutation(
            what="keys, in a small recipe",
            name=f"unknown-key--{'-'.join(pattern).replace('_', '-').lower()}-{kind}",
            text=made_text,
            start=start,
            end=start + len(made),
            meant=entry.name,
            codes=("unknown-key",),
        )


# --- values and names ----------------------------------------------------------------------------------------------


def choices(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of a fixed choice; none where a key takes anything else."""
    branches = [schema, *schema.get("anyOf", ())]
    return next(
        (tuple(each["enum"]) for each in branches if all(isinstance(v, str) for v in each.get("enum", [0]))), ()
    )


def misspelt_values(known: SchemaKeys, *, all_kinds: bool) -> Iterator[Mutation]:
    """Each value of each choice in each way; or one value of each choice in one way."""
    seen: set[KeyPattern] = set()
    for root, steps, pattern, entry in complete_keys(known):
        values = choices(known.known[pattern])
        if not values or pattern in seen or not isinstance(entry.value, ScalarNode):
            continue
        seen.add(pattern)
        every = [(value, *slip) for value in values for slip in slips(value, values)]
        for value, kind, made in every if all_kinds else [one_of(every, pattern)]:
            made_text, start = small(root, steps, made, in_value=True)
            yield Mutation(
                what="values of a choice",
                name=f"bad-value--{'-'.join(pattern).replace('_', '-').lower()}-{kind}",
                text=made_text,
                start=start,
                end=start + len(made),
                meant=value,
                codes=("bad-value",),
            )


HOLE = "?"
HEAD = "agym: 1\nname: misspelt\nmodel: Qwen/Qwen2.5-0.5B-Instruct\n"
ENVIRONMENTS = "environments: {textcraft: textcraft}\n"
SCHEDULE = "schedule:\n  - {stage: train, turns: 10, until: step >= 100}\n"
UNTIL = "schedule:\n  - stage: train\n    turns: 10\n    until: >-\n      step >= 100\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of one sort, and a recipe with a hole where one of them belongs."""

    what: str
    code: str
    words: tuple[str, ...]
    some: tuple[str, ...]
    """Those of which the corpus has a recipe."""
    recipe: str

    def slips(self, word: str) -> Iterator[tuple[str, str]]:
        if not self.code.startswith("expr-"):
            return slips(word, self.words)
        # a slip may make a word of another sort, and a hyphen takes one name from another
        others = (*SCOPES["until"].facts, *PLAIN, *WINDOWS, *SCHEDULES)
        return slips(word, (*self.words, *others), [kind for kind in KINDS if kind != "hyphens"])


def names(known: Catalog) -> tuple[Names, ...]:
    until = tuple(SCOPES["until"].facts)
    return (
        Names(
            what="environments",
            code="unknown-environment",
            words=tuple(known.environments),
            some=("babyai", "sciworld", "search", "textcraft", "webarena"),
            recipe=f"{HEAD}environments:\n  mine: {{use: {HOLE}}}\n{SCHEDULE}",
        ),
        Names(
            what="splits",
            code="unknown-split",
            words=tuple(known.environments["textcraft"].splits),
            some=("train", "test", "depth3"),
            recipe=f"{HEAD}environments:\n  mine: {{use: textcraft, tasks: {{train: {HOLE}}}}}\n{SCHEDULE}",
        ),
        Names(
            what="options",
            code="unknown-option",
            words=tuple(known.environments["textcraft"].options),
            some=("terse", "max_distractors"),
            recipe=f"{HEAD}environments:\n  mine:\n    use: textcraft\n    options: {{{HOLE}: 1}}\n{SCHEDULE}",
        ),
        Names(
            what="sinks",
            code="unknown-name",
            words=tuple(known.sinks),
            some=("tensorboard", "wandb", "mlflow"),
            recipe=f"{HEAD}{ENVIRONMENTS}logging: [{HOLE}]\n{SCHEDULE}",
        ),
        Names(
            what="layers of a model",
            code="unknown-name",
            words=Lora().targets,
            some=("q_proj", "gate_proj"),
            recipe=f"{HEAD}{ENVIRONMENTS}{SCHEDULE}".replace(
                "Qwen/Qwen2.5-0.5B-Instruct", f"{{path: Qwen/Qwen2.5-0.5B-Instruct, lora: {{targets: [{HOLE}]}}}}"
            ),
        ),
        Names(
            what="variables",
            code="unknown-var",
            words=("last", "first_turns", "rate"),
            some=("last", "first_turns", "rate"),
            recipe=f"{HEAD}vars: {{last: 10, first_turns: 5, rate: 3}}\n{ENVIRONMENTS}"
            f"schedule:\n  - stage: train\n    turns: ${{vars.{HOLE}}}\n    until: step >= 100\n",
        ),
        Names(
            what="names in an expression",
            code="expr-name",
            words=until,
            some=("success", "total_step", "entropy"),
            recipe=f"{HEAD}{ENVIRONMENTS}{UNTIL}      or {HOLE} == 7\n",
        ),
        Names(
            what="metrics in a window",
            code="expr-call",
            words=tuple(name for name in until if SCOPES["until"].facts[name].metric),
            some=("reward", "grad_norm"),
            recipe=f"{HEAD}{ENVIRONMENTS}{UNTIL}      or mean({HOLE}, 10) > 7\n",
        ),
        Names(
            what="functions",
            code="expr-call",
            words=tuple(dict.fromkeys((*PLAIN, *WINDOWS, *SCHEDULES))),
            some=("mean", "slope", "clip"),
            recipe=f"{HEAD}{ENVIRONMENTS}{UNTIL}      or {HOLE}(step, 2, 3) > 7\n",
        ),
    )


def misspelt_names(known: Catalog, *, all_kinds: bool) -> Iterator[Mutation]:
    """Each name in each way; or a few names of each sort, each in one way."""
    for sort in names(known):
        for word in sort.words if all_kinds else sort.some:
            every = list(sort.slips(word))
            for kind, made in every if all_kinds else [one_of(every, word)]:
                before, after = sort.recipe.split(HOLE)
                yield Mutation(
                    what=sort.what,
                    name=f"{sort.code}--{word.replace('_', '-')}-{kind}",
                    text=before + made + after,
                    start=len(before),
                    end=len(before) + len(made),
                    meant=word,
                    codes=(sort.code,),
                )


# --- values of another kind ----------------------------------------------------------------------------------------

OTHER_KINDS: Mapping[str, str] = {"a list of lists": "[[[0]]]", "a map": "{zz: {zz: 0}}"}
FREE = ("vars", "matrix", "options", "extends")
"""Keys below which anything is allowed, or which are read before kinds are checked."""


def wrong_kinds(known: SchemaKeys) -> Iterator[Mutation]:
    """Each value of the complete recipes replaced by one that nothing takes."""
    for name in COMPLETE:
        text = (GOOD / name).read_text(encoding="utf-8")
        for steps, _, entry in keys_of(text, known):
            span = entry.value.span
            if any(each in FREE for each in steps) or (isinstance(entry.value, MapNode) and "\n" in span.text):
                continue
            for kind, value in OTHER_KINDS.items():
                yield Mutation(
                    what=f"{kind} for a value",
                    name=f"{name}: {_dotted(steps)}",
                    text=text[: span.start] + value + text[span.end :],
                    start=span.start,
                    end=span.start + len(value),
                )


# --- the corpus ----------------------------------------------------------------------------------------------------


def one_of_each(known: SchemaKeys, registered: Catalog) -> list[Mutation]:
    """Each key, each choice and some names, misspelt once: MUTATIONS has what is said about them."""
    return [
        *small_keys(known),
        *misspelt_values(known, all_kinds=False),
        *misspelt_names(registered, all_kinds=False),
    ]
