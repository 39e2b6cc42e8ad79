"""WordNet 3.0: its database as synsets, those that are shipped, and a passage for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from .corpus.passages import Passage

__all__ = ["TOPICS", "Synset", "find_wholes", "format_synsets", "load_shipped", "make_passages", "read_database"]

TOPICS: Mapping[str, frozenset[int]] = {
    "artifact": frozenset({6}),
    "body": frozenset({8}),
    "nature": frozenset({5, 17, 19, 20, 27}),
    "place": frozenset({15}),
    "time": frozenset({28}),
    "other": frozenset(),
}
"""By the number of the lexicographers' file; `other` is what is in none of them."""

_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_PART_OF = "#p"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synset:
    """One meaning."""

    id: str
    names: tuple[str, ...]
    """What it is called; the first name is the usual one."""
    gloss: str
    wholes: tuple[str, ...] = ()
    """Ids of what it is directly part of."""
    topic: str = "other"


def read_database(folder: Path) -> dict[str, Synset]:
    return {synset.id: synset for name in _FILES for synset in _read(folder / name)}


def _read(file: Path) -> Iterator[Synset]:
    with file.open(encoding="latin-1") as lines:
        # the licence stands first, indented
        yield from (_parse_entry(line) for line in lines if not line.startswith(" "))


def _parse_entry(line: str) -> Synset:
    """Parse a line of wndb(5): offset, file, type, number of words, words, number of pointers, pointers, gloss."""
    head, _, gloss = line.partition(" | ")
    offset, topic, kind, count, *rest = head.split()
    num_names = int(count, 16)
    pointers = rest[2 * num_names + 1 :]
    return Synset(
        id=f"{kind}{offset}",
        names=tuple(_name(word) for word in rest[: 2 * num_names : 2]),
        gloss=_definition(gloss),
        wholes=tuple(
            f"{pointers[at + 2]}{pointers[at + 1]}"
            for at in range(0, 4 * int(rest[2 * num_names]), 4)
            if pointers[at] == _PART_OF
        ),
        topic=next((name for name, files in TOPICS.items() if int(topic) in files), "other"),
    )


def _name(word: str) -> str:
    """A word without the mark of where an adjective may stand."""
    return word.partition("(")[0].replace("_", " ")


def _definition(gloss: str) -> str:
    """The gloss without its examples, which are quoted and come last."""
    return gloss.partition('; "')[0].strip().rstrip(";")


def make_passages(synsets: Mapping[str, Synset], topics: Collection[str] = tuple(TOPICS)) -> Iterator[Passage]:
    """Make passages on some topics, and on what these are part of."""
    chosen = {each.id: each for each in synsets.values() if each.topic in topics}
    chosen |= {whole.id: whole for each in tuple(chosen.values()) for whole in find_wholes(each, synsets)}
    for each in sorted(chosen.values(), key=lambda each: each.id):
        wholes = "; ".join(", ".join(whole.names) for whole in find_wholes(each, synsets))
        part_of = f". Part of: {wholes}" if wholes else ""
        yield Passage(title=", ".join(each.names), text=f"{each.gloss}{part_of}.", document=f"wordnet/{each.id}")


def find_wholes(synset: Synset, synsets: Mapping[str, Synset]) -> tuple[Synset, ...]:
    return tuple(synsets[each] for each in synset.wholes if each in synsets)


# --- what is shipped ---


@cache  # never changes
def load_shipped() -> Mapping[str, Synset]:
    lines = (resources.files(__package__) / "data" / "wordnet.txt").read_text("utf-8").splitlines()
    return {synset.id: synset for synset in map(_parse_line, lines)}


def format_synsets(synsets: Iterable[Synset]) -> Iterator[str]:
    """Format synsets as the lines of `data/wordnet.txt`, which `load_shipped` reads."""
    for each in synsets:
        yield "\t".join((each.id, each.topic, "; ".join(each.names), " ".join(each.wholes), each.gloss))


def _parse_line(line: str) -> Synset:
    id_, topic, names, wholes, gloss = line.split("\t")
    return Synset(id=id_, topic=topic, names=tuple(names.split("; ")), wholes=tuple(wholes.split()), gloss=gloss)
