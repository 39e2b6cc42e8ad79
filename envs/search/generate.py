"""Make the shipped questions and passages anew from WordNet: `data/questions.txt` and `data/wordnet.txt`.

    python -m agym.envs.search.generate CORPUS

Takes a corpus that `build` made, WordNet in it; the same packages give the same files, byte for byte. A question is
kept where each of its searches shows the passage that has the fact, among the three that a search finds by default, in
the shipped corpus as in the large one.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from .corpora import INDEX
from .corpus.index import LocalIndex
from .options import SearchOptions
from .questions import ASKED, Question, make_question
from .scoring import normalize
from .wordnet import Synset, find_wholes, format_synsets, make_passages, read_database

__all__ = ["main", "make_questions"]

_DATA = Path(__file__).parent / "data"
_TEST_SHARE = 0.2
_LONGEST = 60
"""Characters of a name."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agym.envs.search.generate", description="Make the shipped questions again.")
    parser.add_argument("corpus", type=Path, help="a folder that agym.envs.search.build has made")
    corpus: Path = parser.parse_args(argv).corpus
    synsets = read_database(corpus / ".packages" / "wordnet-base" / "usr/share/wordnet")
    asked_for = tuple(make_questions(synsets))
    kept = _keep_shown(LocalIndex.open(corpus / INDEX), asked_for)
    needed = _collect_needed(kept, synsets)
    kept = _keep_shown(LocalIndex.build(make_passages(needed)), kept)
    _write("wordnet.txt", format_synsets(needed.values()))
    _write("questions.txt", (_line(*each) for each in kept))
    print(f"{len(kept)} questions of {len(asked_for)}, {len(needed)} passages")


# --- what can be asked ---

Asked = tuple[str, tuple[Synset, ...], str]
"""A name, the synsets that lead from it to the answer, and the side."""


def make_questions(synsets: Mapping[str, Synset]) -> Iterator[Asked]:
    """Every question with one answer, in an order that mixes them."""
    named = _by_name(synsets)
    clear = {each.id: each for each in synsets.values() if len(each.wholes) == 1}
    found = list(_find_questions(clear, named, synsets))
    yield from sorted(found, key=lambda each: _digest(make_question(*each).id))


def _find_questions(
    clear: Mapping[str, Synset], named: Mapping[str, Sequence[Synset]], synsets: Mapping[str, Synset]
) -> Iterator[Asked]:
    taken: set[str] = set()
    for first in clear.values():
        name = next((name for name in first.names if len(named[name.lower()]) == 1), None)
        if name is None or len(name) > _LONGEST:
            continue
        side = "test" if _digest(_root(first, clear, synsets).id) < _TEST_SHARE else "train"
        for hops in ASKED:
            row = _row(first, hops, clear, named, synsets)
            if row is None or (id_ := make_question(name, row, side).id) in taken or _gives_away(name, row):
                continue
            taken.add(id_)
            yield name, row, side


def _by_name(synsets: Mapping[str, Synset]) -> Mapping[str, Sequence[Synset]]:
    named: dict[str, list[Synset]] = defaultdict(list)
    for synset in synsets.values():
        if synset.id.startswith("n"):
            for name in {name.lower() for name in synset.names}:
                named[name].append(synset)
    return named


def _row(
    first: Synset,
    hops: int,
    clear: Mapping[str, Synset],
    named: Mapping[str, Sequence[Synset]],
    synsets: Mapping[str, Synset],
) -> tuple[Synset, ...] | None:
    """Synsets that lead to the answer, if each step is unambiguous."""
    row = [first]
    for _ in range(hops):
        if row[-1].id not in clear:
            return None
        row.append(synsets[row[-1].wholes[0]])
    # what is named in between may mean other things, but none that is part of anything
    between = (each for each in row[1:-1] for other in named[each.names[0].lower()] if other != each)
    return None if any(other.wholes for other in between) or len({*row}) < len(row) else tuple(row)


def _gives_away(name: str, row: Sequence[Synset]) -> bool:
    """Whether an answer, or what leads to it, can be read off the question."""
    words = f" {normalize(name)} "
    return any(f" {normalize(each)} " in words for synset in row[1:] for each in synset.names)


def _root(synset: Synset, clear: Mapping[str, Synset], synsets: Mapping[str, Synset]) -> Synset:
    """The last of what it is part of: what has the same root is on the same side, so that no fact is on both."""
    seen = {synset.id}
    while synset.id in clear and synset.wholes[0] not in seen:
        synset = synsets[synset.wholes[0]]
        seen.add(synset.id)
    return synset


def _digest(text: str) -> float:
    """Deterministic, uniform number from 0 to 1."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48


# --- what is kept ---


def _keep_shown(index: LocalIndex, candidates: Iterable[Asked]) -> tuple[Asked, ...]:
    return tuple(each for each in candidates if _is_shown(index, each[1], make_question(*each)))


def _is_shown(index: LocalIndex, row: Sequence[Synset], question: Question) -> bool:
    return all(
        f"wordnet/{synset.id}" in {hit.document for hit in index.search(query, SearchOptions().passages)}
        for query, synset in zip(question.steps, row, strict=False)
    )


def _collect_needed(kept: Iterable[Asked], synsets: Mapping[str, Synset]) -> dict[str, Synset]:
    found = {synset.id: synset for _, row, _ in kept for synset in row}
    found |= {whole.id: whole for each in tuple(found.values()) for whole in find_wholes(each, synsets)}
    return dict(sorted(found.items()))


def _line(name: str, row: Sequence[Synset], side: str) -> str:
    return "\t".join((side, str(len(row) - 1), row[0].id, name))


def _write(name: str, lines: Iterable[str]) -> None:
    (_DATA / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
