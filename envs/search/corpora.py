"""Retrievers by options, shared by all instances of a process: an index takes seconds to build, and memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

from ..errors import BadOption
from .corpus.index import LocalIndex
from .corpus.passages import Passage, read_folder
from .corpus.retriever import DenseRetriever, HttpEncoder, HttpRetriever, Retriever
from .options import SearchOptions
from .wordnet import load_shipped, make_passages

__all__ = ["INDEX", "VECTORS", "open_retriever", "read_corpus"]

INDEX = ".index"
"""In the folder of a corpus that was indexed beforehand."""
VECTORS = "vectors.npy"
"""There too: a row for each passage, in their order."""

_MAKING = Lock()


def open_retriever(options: SearchOptions) -> Retriever:
    with _MAKING:  # others that ask for the same wait for it
        if options.retriever_url:
            return _remote(options.retriever_url)
        corpus = Path(options.corpus) if options.corpus else None
        if corpus is not None and options.encoder_url:
            return _dense(corpus, options.encoder_url)
        return _local(corpus)


def read_corpus(folder: Path | None) -> Iterable[Passage]:
    return make_passages(load_shipped()) if folder is None else read_folder(folder)


@cache
def _remote(url: str) -> Retriever:
    return HttpRetriever(url)


@cache
def _dense(folder: Path, url: str) -> Retriever:
    try:
        vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        return DenseRetriever(tuple(read_folder(folder)), vectors, HttpEncoder(url))
    except (OSError, ValueError) as error:
        raise BadOption(f"search option 'encoder_url': '{folder / VECTORS}' cannot be used: {error}") from error


@cache
def _local(folder: Path | None) -> Retriever:
    if folder is not None and (folder / INDEX).is_dir():
        return LocalIndex.open(folder / INDEX)
    return LocalIndex.build(read_corpus(folder))
