"""Read the tasks of a `tasks.yaml` as templates; a mistake there is an error that names its place.

A file has for each task its `intent`, `variants` and `path`, and what is right: an `answer` (or several `answers`), a
`url`, `changes`. More variants may be `drawn`, a row of SQL for each. SQL names values and facts after colons, texts
name them in braces. `changes` are rows: in an `edited` one the columns that begin with `new_` have the new values, and
the others say which row it is; of a column `words_text` only the words count. A line of a `path` is an action, or the
name of `steps` that several tasks share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path as File
from typing import Any, TypeAlias

import yaml

from .checks import NOT_POSSIBLE
from .paths import PathAction, list_placeholders, parse_path_action
from .tasks import PARTS, ChangeKind, ForEach, Query, TableQuery, TaskPath, TaskTemplate

__all__ = ["read_templates"]

_Keys: TypeAlias = Mapping[str, type]

_FILE: _Keys = {"site": str, "tasks": list}
_FILE_MAY: _Keys = {"database": str, "start": str, "facts": dict, "steps": dict}
_TASK: _Keys = {"id": str, "intent": str, "path": str}
_TASK_MAY: _Keys = {
    "needs": list,
    "start": str,
    "variants": list,
    "drawn": str,
    "facts": dict,
    "answer": str,
    "answers": str,
    "url": str,
    "free": list,
    "changes": dict,
}
_STEPS: _Keys = {"each": dict, "do": str}
_PARAMETER = re.compile(r"(?<![\w:]):([a-z]\w*)")
_TABLE = re.compile(r"(added|removed|edited) (\w+)\.(\w+)")


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(set(names)) < len(names):
            raise ValueError(f"{node.start_mark}: a key stands twice among {', '.join(map(str, names))}")
        return super().construct_mapping(node, deep)


def read_templates(file: File) -> tuple[TaskTemplate, ...]:
    raw = yaml.load(file.read_text("utf-8"), _Loader)
    _check_keys(raw, _FILE, _FILE_MAY, file.name)
    reader = _Reader(file, raw)
    return tuple(reader.read_template(each) for each in raw["tasks"])


def _check_keys(raw: object, must: _Keys, may: _Keys, where: str) -> None:
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: not a mapping")
    if missing := must.keys() - raw.keys():
        raise ValueError(f"{where}: {', '.join(sorted(missing))} missing")
    for name, value in raw.items():
        kind = {**must, **may}.get(name)
        if kind is None or not isinstance(value, kind):
            raise ValueError(f"{where}: '{name}' is {'unknown' if kind is None else f'not a {kind.__name__}'}")


class _Reader:
    def __init__(self, file: File, raw: Mapping[str, Any]) -> None:
        self._file = file
        self._site: str = raw["site"]
        self._database: str | None = raw.get("database")
        self._start: str = raw.get("start", "")
        self._where = file.name
        self._facts = self._read_facts(raw.get("facts", {}))
        self._steps: dict[str, TaskPath] = {}
        for name, steps in raw.get("steps", {}).items():
            self._where = f"{file.name}: {name}"
            self._steps[name] = self._read_steps(steps)

    def _error(self, message: str) -> ValueError:
        return ValueError(f"{self._where}: {message}")

    def read_template(self, raw: dict[str, Any]) -> TaskTemplate:
        self._where = f"{self._file.name}: {raw.get('id')}"
        _check_keys(raw, _TASK, _TASK_MAY, self._where)
        variants, facts = raw.get("variants", [{}]), self._read_facts(raw.get("facts", {}))
        self._check_variants(variants, facts.keys())
        template = TaskTemplate(
            id=raw["id"],
            site=self._site,
            needs=tuple(raw.get("needs", (self._site,))),
            intent=raw["intent"],
            variants=tuple(variants),
            drawn=self._read_own_query(raw["drawn"]) if "drawn" in raw else None,
            start=raw.get("start", self._start),
            facts={**self._facts, **facts},
            path=self._read_path(raw["path"]),
            answer=self._read_answer(raw),
            url=raw.get("url"),
            free=frozenset(raw.get("free", ())),
            changes=tuple(self._read_change(name, sql) for name, sql in raw.get("changes", {}).items()),
        )
        self._check_names(template)
        return template

    def _check_variants(self, variants: list[Any], facts: Set[str]) -> None:
        for variant in variants:
            if not isinstance(variant, dict) or variant.keys() != variants[0].keys():
                raise self._error("variants must have the same values")
            if both := variant.keys() & facts:
                raise self._error(f"{', '.join(sorted(both))} cannot be both a value and a fact")
            for name, value in variant.items():
                if type(value) not in (str, int):
                    raise self._error(f"'{name}' must be a string or a whole number: put it in quotes")

    def _read_facts(self, raw: Mapping[str, object]) -> dict[str, Query]:
        """Facts from the data of the file's own site, or of another that is named: `{shop: SELECT ...}`."""
        return {
            name: self._read_query(*next(iter(fact.items()))) if isinstance(fact, dict) else self._read_own_query(fact)
            for name, fact in raw.items()
        }

    def _read_own_query(self, sql: object, *, many: bool = False) -> Query:
        return self._read_query(self._database, sql, many=many)

    def _read_query(self, site: str | None, sql: object, *, many: bool = False) -> Query:
        if site is None or not isinstance(sql, str) or not sql.startswith("SELECT "):
            raise self._error(f"not SQL over the data of a site: {sql}")
        return Query(site, sql, many)

    def _read_answer(self, raw: Mapping[str, Any]) -> Query | str | None:
        if "answers" in raw and "answer" in raw:
            raise self._error("there can be an answer or several answers, not both")
        if "answers" in raw:
            return self._read_own_query(raw["answers"], many=True)
        answer: str | None = raw.get("answer")
        return answer if answer in (NOT_POSSIBLE, None) else self._read_own_query(answer)

    def _read_change(self, name: str, sql: object) -> TableQuery:
        found = _TABLE.fullmatch(name)
        if found is None:
            raise self._error(f"'{name}' must be added, removed or edited, and a table: added forum.post")
        return TableQuery(ChangeKind(found[1]), f"{found[2]}.{found[3]}", self._read_query(found[2], sql))

    # --- paths ---

    def _read_steps(self, raw: object) -> TaskPath:
        """Lines, or lines that are repeated: `{each: {review: SELECT ...}, do: ...}`."""
        if isinstance(raw, str):
            return self._read_path(raw)
        _check_keys(raw, _STEPS, {}, self._where)
        assert isinstance(raw, dict)
        ((name, query),) = self._read_facts(raw["each"]).items()
        return (ForEach(name, query, self._read_path(raw["do"])),)

    def _read_path(self, text: str) -> TaskPath:
        return tuple(each for line in text.splitlines() for each in self._read_line(line))

    def _read_line(self, line: str) -> TaskPath:
        """An action, or the name of steps defined above."""
        action = parse_path_action(line)
        if action is None and line not in self._steps:
            raise self._error(f"neither an action nor the name of steps: {line}")
        return self._steps[line] if action is None else (action,)

    # --- names ---

    def _check_names(self, template: TaskTemplate) -> None:
        """Every name that is used must be that of a value, a fact or a row of `each`."""
        if not template.start or not set(template.needs) <= set(PARTS):
            raise self._error(f"there must be a start, and parts among {', '.join(PARTS)}")
        values = set(template.variants[0])
        self._check_known(list_placeholders(template.intent + template.start), values)
        known = values | set(template.facts) | {each.name for each in template.path if isinstance(each, ForEach)}
        used, new = set[str](), set(_list_used(template))
        while new:
            used |= new
            facts = [template.facts[name] for name in new & template.facts.keys()]
            new = {name for fact in facts for name in _list_names(fact)} - used
        self._check_known(used, known)

    def _check_known(self, names: Set[str], known: Set[str]) -> None:
        if unknown := names - known:
            raise self._error(f"no value or fact is named {', '.join(sorted(unknown))}")


def _list_names(query: Query) -> list[str]:
    return _PARAMETER.findall(query.sql)


def _list_used(template: TaskTemplate) -> Iterator[str]:
    yield from list_placeholders(template.url or "")
    yield from _list_used_in_path(template.path)
    queries = [each.query for each in template.changes]
    for query in [*queries, template.answer] if isinstance(template.answer, Query) else queries:
        yield from _list_names(query)


def _list_used_in_path(path: TaskPath) -> Iterator[str]:
    for each in path:
        if isinstance(each, PathAction):
            yield from (name for text in each.texts() for name in list_placeholders(text))
        else:
            yield from (*_list_names(each.query), *_list_used_in_path(each.path))
