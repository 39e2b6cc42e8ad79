"""Retrievers: the interface, one behind HTTP, and a dense one over given vectors. The default is `index.LocalIndex`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import httpx
import numpy as np
from numpy.typing import NDArray

from ...errors import EnvFault, FaultKind
from .passages import Passage

__all__ = ["DenseRetriever", "Encoder", "HttpEncoder", "HttpRetriever", "Retriever"]

_TIMEOUT_S = 20.0

Encoder: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to vectors, a row for each."""


class Retriever(Protocol):
    def search(self, query: str, limit: int) -> Sequence[Passage]:
        """Passages that fit a query best; ties always in the same order."""

    def rest(self, passage: Passage) -> Sequence[Passage]:
        """The passage, and those that follow it in its document."""


# --- behind HTTP ---


class HttpRetriever:
    """A retriever that is served: POST {queries, topk} -> {result: [[{document: {contents}}]]}."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url
        self._client = httpx.Client(timeout=_TIMEOUT_S, transport=transport)

    def search(self, query: str, limit: int) -> tuple[Passage, ...]:
        body = {"queries": [query], "topk": limit, "return_scores": True}
        answer = _post(self._client, self._url, body)
        try:
            (found,) = answer["result"]
            return tuple(_passage(hit.get("document", hit)) for hit in found[:limit])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvFault(f"{self._url} does not answer as a retriever: {error!r}", kind=FaultKind.GARBAGE) from error

    def rest(self, passage: Passage) -> tuple[Passage, ...]:
        """The passage alone: no more is known of its document."""
        return (passage,)


def _passage(document: Mapping[str, Any]) -> Passage:
    title, _, text = document["contents"].partition("\n")
    return Passage(title=title.strip('"'), text=text, document=str(document.get("id", title)))


def _post(client: httpx.Client, url: str, body: object) -> Any:
    try:
        return client.post(url, json=body).raise_for_status().json()
    except httpx.HTTPError as error:
        raise EnvFault(f"{url} does not answer: {error!r}", kind=FaultKind.UNREACHABLE) from error
    except ValueError as error:
        raise EnvFault(f"{url} answers with something that is not JSON", kind=FaultKind.GARBAGE) from error


# --- by vectors ---


class DenseRetriever:
    """Retriever by the product of the query's vector with each passage's."""

    def __init__(self, passages: Sequence[Passage], vectors: NDArray[np.float32], encode: Encoder) -> None:
        if vectors.ndim != 2 or len(vectors) != len(passages):
            raise ValueError(f"expected a vector for each of {len(passages)} passages, got {vectors.shape}")
        self._passages = passages
        self._vectors = vectors
        self._encode = encode

    def search(self, query: str, limit: int) -> tuple[Passage, ...]:
        scores = self._vectors @ self._encode([query])[0]
        # stable: ties go to the first
        return tuple(self._passages[at] for at in np.argsort(-scores, kind="stable")[:limit])

    def rest(self, passage: Passage) -> tuple[Passage, ...]:
        at = self._passages.index(passage)
        end = at
        while end < len(self._passages) and self._passages[end].document == passage.document:
            end += 1
        return tuple(self._passages[at:end])


class HttpEncoder:
    """An embedding model that is served: POST {input} -> {data: [{embedding}]}, as vLLM and others do."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url
        self._client = httpx.Client(timeout=_TIMEOUT_S, transport=transport)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        answer = _post(self._client, self._url, {"input": list(texts)})
        try:
            return np.asarray([row["embedding"] for row in answer["data"]], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise EnvFault(f"{self._url} does not answer as an encoder: {error!r}", kind=FaultKind.GARBAGE) from error
