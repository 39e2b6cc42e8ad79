"""`grammar.lark` to `grammar.json`: `python -m agym.dsl.expression.grammar` writes it, a test checks that it is fresh.

Lark makes the LALR(1) tables here, once, because importing it and building them takes longer than checking a recipe;
nothing else imports it. In a state, a number from 0 is the state to go to, a negative one `n` reduces by rule `~n`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..frozen import frozen

__all__ = ["GRAMMAR", "TABLES", "main", "write_tables"]

GRAMMAR = Path(__file__).with_name("grammar.lark")
TABLES = Path(__file__).with_name("grammar.json")


@frozen(kw_only=False)
class _Rule:
    origin: str
    length: int
    build: str
    """Name after `->`; empty where the only child stands for the whole."""


def write_tables(grammar: str) -> str:
    """The text of `grammar.json`; the same under every hash seed and version of lark."""
    data, memo = _compiled(grammar)
    terminals = {t["name"]: t["pattern"] for t in memo.values() if t["__type__"] == "TerminalDef"}
    keywords = {p["value"]: name for name, p in terminals.items() if p["value"].isalpha()}
    tokens = {name: _regex(p) for name, p in terminals.items() if name not in keywords.values()}
    states, rules, final = _numbered(data["parser"]["parser"], memo)
    tables = {
        "tokens": dict(sorted(tokens.items())),
        "ignored": data["parser"]["lexer_conf"]["ignore"][0],
        "keywords": dict(sorted(keywords.items())),
        "rules": [(rule.origin, rule.length, rule.build) for rule in rules],
        "final": final,
        "states": states,
    }
    return "{\n" + ",\n".join(f'"{name}": {_as_lines(value)}' for name, value in tables.items()) + "\n}\n"


def _as_lines(value: Any) -> str:
    """A list with a line for each item, so that a change of the grammar shows as one."""
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]" if isinstance(value, list) else json.dumps(value)


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


def main() -> int:
    TABLES.write_text(write_tables(GRAMMAR.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
