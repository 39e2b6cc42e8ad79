"""A local index: passages found by their words, ranked by BM25, after those whose title is what was searched for.

The same from run to run: one thread writes, in the order of the passages, and ties go to the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tantivy

from .passages import Passage

__all__ = ["LocalIndex"]

_WRITER_BYTES = 256_000_000
_MAX_TERMS = 32
"""Of a query; the rest is not looked for."""
_TIED = 16
"""Found beyond what is wanted, so that the last place goes to the earliest of those that tie for it."""
_REST = 200
_TITLE_BOOST = 2.0
_FIELDS = ("title", "text")


class LocalIndex:
    def __init__(self, index: tantivy.Index) -> None:
        self._analyzer = _analyzer()
        self._schema = index.schema
        self._searcher = index.searcher()

    @classmethod
    def build(cls, passages: Iterable[Passage], folder: Path | None = None) -> LocalIndex:
        """Build an index in memory, or in a folder."""
        if folder is not None:
            folder.mkdir(parents=True)
        index = _with_analyzer(tantivy.Index(_schema(), path=str(folder) if folder else None))
        writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
        for place, each in enumerate(passages):
            fields = {"title": each.title, "text": each.text, "document": each.document, "place": place}
            writer.add_document(tantivy.Document.from_dict(fields, _schema()))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return cls(index)

    @classmethod
    def open(cls, folder: Path) -> LocalIndex:
        return cls(_with_analyzer(tantivy.Index.open(str(folder))))

    @property
    def num_passages(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, query: str, limit: int) -> tuple[Passage, ...]:
        # terminal escapes, half characters: what is not text is not a word either
        text = query.encode("utf-8", "ignore").decode("utf-8")
        words = self._analyzer.analyze(text)
        if not words:
            return ()
        terms = list(dict.fromkeys(words))[:_MAX_TERMS]
        hits = self._searcher.search(self._any_of(terms), limit + _TIED, count=False).hits
        found = [(round(-score, 4), self._searcher.doc(address)) for score, address in hits]
        found.sort(key=lambda each: (not self._is_called(words, each[1]), each[0], each[1].get_first("place")))
        return tuple(_passage(document) for _, document in found[:limit])

    def _is_called(self, words: list[str], document: tantivy.Document) -> bool:
        """Return whether these words are its title, or one of the names in it."""
        names = str(document.get_first("title") or "").split(",")
        return any(self._analyzer.analyze(name) == words for name in names)

    def rest(self, passage: Passage) -> tuple[Passage, ...]:
        query = tantivy.Query.term_query(self._schema, "document", passage.document)
        hits = self._searcher.search(query, _REST, count=False, order_by_field="place", order=tantivy.Order.Asc).hits
        found = [_passage(self._searcher.doc(address)) for _, address in hits]
        return tuple(found[found.index(passage) :]) if passage in found else (passage,)

    def _any_of(self, words: Iterable[str]) -> tantivy.Query:
        parts = [(word, field) for word in words for field in _FIELDS]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, self._one(*part)) for part in parts])

    def _one(self, word: str, field: str) -> tantivy.Query:
        query = tantivy.Query.term_query(self._schema, field, word, "freq")
        return tantivy.Query.boost_query(query, _TITLE_BOOST) if field == "title" else query


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for field in _FIELDS:
        builder.add_text_field(field, stored=True, tokenizer_name="words", index_option="freq")
    builder.add_text_field("document", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("place", stored=True, fast=True)
    return builder.build()


def _analyzer() -> tantivy.TextAnalyzer:
    """Words without case, accents and endings."""
    filters = (
        tantivy.Filter.remove_long(40),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
        tantivy.Filter.stemmer("english"),
    )
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for each in filters:
        builder = builder.filter(each)
    return builder.build()


def _with_analyzer(index: tantivy.Index) -> tantivy.Index:
    index.register_tokenizer("words", _analyzer())
    return index


def _passage(document: tantivy.Document) -> Passage:
    def field(name: str) -> str:
        value: Any = document.get_first(name)
        return str(value or "")

    return Passage(title=field("title"), text=field("text"), document=field("document"))
