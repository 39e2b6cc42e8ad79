"""`grammar.lark` to `tables.py`: `python -m agym.dsl.expression.grammar` writes it, a test proves that it is fresh.

Enters: the grammar's text. Leaves: Python source with what a parser needs at run time. Lark makes the LALR(1) tables
here, once, because importing it and building them takes longer than checking a recipe; nothing else imports it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..frozen import frozen

__all__ = ["GRAMMAR", "TABLES", "main", "tables_source"]

GRAMMAR = Path(__file__).with_name("grammar.lark")
TABLES = Path(__file__).with_name("tables.py")

_HEADER = '''"""Tables of `grammar.lark`; written by `python -m agym.dsl.expression.grammar`, not by hand.

A state maps a terminal to what is done on it and a rule's name to the state that follows it: a number from 0 is a
state to go to, a negative one `n` reduces by rule `~n`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FINAL", "IGNORED", "KEYWORDS", "RULES", "STATES", "TOKENS"]

# fmt: off

'''


@frozen(kw_only=False)
class _Rule:
    origin: str
    length: int
    build: str
    """Name after `->`; empty where the only child stands for the whole."""


def tables_source(grammar: str) -> str:
    """The text of `tables.py` for a grammar; the same under every hash seed and version of lark."""
    data, memo = _compiled(grammar)
    terminals = {t["name"]: t["pattern"] for t in memo.values() if t["__type__"] == "TerminalDef"}
    keywords = {p["value"]: name for name, p in terminals.items() if p["value"].isalpha()}
    ignored = data["parser"]["lexer_conf"]["ignore"]
    tokens = {name: _regex(p) for name, p in terminals.items() if name not in keywords.values()}
    states, rules, final = _numbered(data["parser"]["parser"], memo)
    return _HEADER + "\n\n".join(
        [
            _block("TOKENS: Mapping[str, str] = {", _pairs(sorted(tokens.items())), "}"),
            f'IGNORED = "{ignored[0]}"\n',
            _block("KEYWORDS: Mapping[str, str] = {", _pairs(sorted(keywords.items())), "}"),
            _block(
                "RULES: tuple[tuple[str, int, str], ...] = (",
                (f"({json.dumps(r.origin)}, {r.length}, {json.dumps(r.build)})," for r in rules),
                ")",
            ),
            f"FINAL = {final}\n",
            _block("STATES: tuple[Mapping[str, int], ...] = (", _state_lines(states), ")"),
        ]
    ).replace("\n\n\n", "\n\n")


def _compiled(grammar: str) -> tuple[dict[str, Any], dict[int, Any]]:
    from lark import Lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    lark = Lark(grammar, parser="lalr", lexer="basic", keep_all_tokens=True, maybe_placeholders=False)
    return lark.memo_serialize([TerminalDef, Rule])  # type: ignore[no-any-return]


def _regex(pattern: Mapping[str, Any]) -> str:
    value: str = pattern["value"]
    return re.escape(value) if pattern["__type__"] == "PatternStr" else value


def _numbered(table: Mapping[str, Any], memo: Mapping[int, Any]) -> tuple[list[dict[str, int]], list[_Rule], int]:
    """States and rules in order of first use from the start, so that lark's own numbering does not show."""
    names: Mapping[int, str] = table["tokens"]
    order = [table["start_states"]["start"]]
    rules: list[_Rule] = []
    states: list[dict[str, int]] = []
    for state in order:  # grows while it is walked
        row: dict[str, int] = {}
        for symbol, (reduce, target) in sorted(table["states"][state].items(), key=lambda item: names[item[0]]):
            known: list[Any] = rules if reduce else order
            entry = _rule(memo[target["@"]]) if reduce else target
            if entry not in known:
                known.append(entry)
            row[str(names[symbol])] = ~known.index(entry) if reduce else known.index(entry)
        states.append(row)
    return states, rules, order.index(table["end_states"]["start"])


def _rule(data: Mapping[str, Any]) -> _Rule:
    return _Rule(str(data["origin"]["name"]), len(data["expansion"]), str(data["alias"] or ""))


def _pairs(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"{json.dumps(key)}: {json.dumps(value)}," for key, value in items)


def _block(head: str, lines: Iterable[str], tail: str) -> str:
    return "\n".join([head, *(f"    {line}" for line in lines), tail, ""])


def _state_lines(states: Iterable[Mapping[str, int]]) -> Iterator[str]:
    for number, state in enumerate(states):
        if not state:
            yield f"{{}},  # {number}"
            continue
        yield f"{{  # {number}"
        yield from _wrapped([f'"{symbol}": {target},' for symbol, target in state.items()])
        yield "},"


def _wrapped(items: Iterable[str], width: int = 110) -> Iterator[str]:
    line = ""
    for item in items:
        if len(line) + len(item) > width:
            yield "   " + line
            line = ""
        line += " " + item
    yield "   " + line


def main() -> int:
    TABLES.write_text(tables_source(GRAMMAR.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
