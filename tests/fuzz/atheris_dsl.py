"""Coverage-guided fuzzing of expressions and recipes: bytes in, diagnostics out, never an exception or a hang.

Needs atheris (`pip install atheris`), which is not among the development tools because it has wheels for few Pythons.

    python tests/fuzz/atheris_dsl.py -max_total_time=60 -timeout=1
    python tests/fuzz/atheris_dsl.py -max_total_time=60 build/corpus/       # keeps what it found interesting
    python tests/fuzz/atheris_dsl.py crash-0123abcd                         # runs one input again

The first byte of an input chooses what is fuzzed, the rest is its text. Without atheris, or with `--once`, every file
named (and a few built-in inputs) is run once: `python tests/fuzz/atheris_dsl.py --once build/corpus/*`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEEDS = (
    b"\x00step >= 100 or mean(success, 10) >= 0.8",
    b"\x01min(10 + 10 * (total_step // 100), 30)",
    b"\x021 if ending in ('done', 'horizon') and score / turns > 0.5 else -1",
    b"\x03" + b"(" * 700,
    b"\x04agym: 1\nname: [a, {b: c}, *x]\n",
    b"\x04a: &a [*a, *a]\nb: !!python/object:os.system x\n\t- c\n",
)


def fuzz_expression(scope: str, want: str) -> Callable[[str], None]:
    """Checks a text and, if nothing is wrong with it, evaluates it without any facts."""
    from agym.dsl.diagnostics import Severity
    from agym.dsl.expression.expr import Expr, ExprType, MappingFacts, StageStart, bound_steps, check_expression
    from agym.dsl.source import Source, Text

    def fuzz(text: str) -> None:
        source = Source("recipe.yaml", text)
        found = check_expression(Text.exact(source.span(0, len(text))), scope, ExprType(want))
        assert all(0 <= d.span.start <= d.span.end <= len(text) for d in found)
        if any(d.severity is Severity.ERROR for d in found):
            return
        Expr(text).evaluate(MappingFacts(scope))
        if scope == "until":
            bound_steps(Expr(text), StageStart())

    return fuzz


def fuzz_recipe(text: str) -> None:
    """Reads a text as YAML; every diagnostic can be shown."""
    from agym.dsl.source import Source
    from agym.dsl.text.tree import parse_tree

    for diagnostic in parse_tree(Source("recipe.yaml", text)).diagnostics:
        assert str(diagnostic.span)
        assert diagnostic.message


def targets() -> tuple[Callable[[str], None], ...]:
    return (
        fuzz_expression("until", "true or false"),
        fuzz_expression("schedule", "whole number"),
        fuzz_expression("episode", "number"),
        fuzz_expression("group", "true or false"),
        fuzz_recipe,
    )


def runner(functions: Sequence[Callable[[str], None]]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        if data:
            functions[data[0] % len(functions)](data[1:].decode("utf-8", "replace"))

    return run


def once(paths: Sequence[str]) -> int:
    run = runner(targets())
    inputs = [*SEEDS, *(Path(path).read_bytes() for path in paths)]
    for data in inputs:
        run(data)
    print(f"{len(inputs)} inputs, no crash")
    return 0


def atheris_if_there() -> Any | None:
    return importlib.import_module("atheris") if importlib.util.find_spec("atheris") else None


def main(argv: Sequence[str]) -> int:
    atheris = atheris_if_there()
    if atheris is None or "--once" in argv:
        return once([argument for argument in argv[1:] if not argument.startswith("-")])
    with atheris.instrument_imports(include=["agym.dsl"]):
        functions = targets()
    atheris.Setup(list(argv), runner(functions))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
