"""Recipes composed from files held in memory, and a result that is easy to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from agym.dsl.compose.compose import Composed, compose
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.text.node import Node, node_at, to_data

from ...memory_library import MemoryLibrary

SHIPPED = {"base/grpo-7b": "algorithm: {use: grpo, lr: 1e-6}\nhardware: {nodes: 1}\n"}
SHORTHANDS = {("algorithm",): "use"}


@dataclass(frozen=True, slots=True)
class Result:
    """What a recipe resulted in."""

    composed: Composed

    @property
    def data(self) -> Any:
        """The one tree of a recipe without errors."""
        assert self.composed.diagnostics == ()
        (variant,) = self.composed.variants
        return to_data(variant.tree)

    @property
    def all_data(self) -> list[Any]:
        """Every tree, whatever the errors."""
        return [to_data(variant.tree) for variant in self.composed.variants]

    @property
    def choices(self) -> list[dict[str, str]]:
        return [dict(variant.choices) for variant in self.composed.variants]

    @property
    def only(self) -> Diagnostic:
        (diagnostic,) = self.composed.diagnostics
        return diagnostic

    @property
    def errors(self) -> list[tuple[str, str, str]]:
        """Code, place and what is underlined."""
        return [(d.code, str(d.span), d.span.text) for d in self.composed.diagnostics]

    def node(self, *path: str | int) -> Node:
        found = node_at(self.composed.variants[0].tree, path)
        assert found is not None
        return found

    def place(self, *path: str | int) -> str:
        return str(self.node(*path).span)


Composing = Callable[..., Result]


@pytest.fixture
def composed() -> Composing:
    """`composed("...", b="...")`: r.yaml, with b.yaml next to it."""

    def run(
        recipe: str, settings: Sequence[str] = (), environ: Mapping[str, str] | None = None, **files: str
    ) -> Result:
        held = {"r.yaml": recipe} | {f"{name}.yaml": text for name, text in files.items()}
        library = MemoryLibrary(held, SHIPPED)
        return Result(compose(Source("r.yaml", recipe), library, settings, environ or {}, SHORTHANDS.get))

    return run
