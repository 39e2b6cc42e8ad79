"""Keys that an earlier version knew by another name: read under the current one, with a warning that says so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..diagnostics import Diagnostic, Note, Severity
from ..model.recipe import Recipe
from ..model.reflect import Record, record
from ..source import Text
from ..text.edit import set_entry
from ..text.node import Entry, ListNode, MapNode, ScalarNode, get_entry, with_children

__all__ = ["rename_keys"]


def rename_keys(tree: MapNode) -> tuple[MapNode, tuple[Diagnostic, ...]]:
    """Replace old keys by the current ones, with a diagnostic for each; return the same tree if there are none."""
    found: list[Diagnostic] = []
    tree = _in_sections(tree, found)
    schedule = get_entry(tree, "schedule")
    if schedule is not None and isinstance(schedule.value, ListNode):
        items = schedule.value.items
        stages = with_children(
            schedule.value, (_in_sections(item, found) if isinstance(item, MapNode) else item for item in items)
        )
        if stages is not schedule.value:
            tree = set_entry(tree, Entry(key=schedule.key, value=stages))
    return tree, tuple(found)


@cache
def _sections() -> Mapping[str, Mapping[str, str]]:
    """Sections of a recipe or stage with renamed keys: the new name by the old."""
    typed = {name: field.type for name, field in record(Recipe).fields.items()}
    return {name: type_.renamed for name, type_ in typed.items() if isinstance(type_, Record) and type_.renamed}


def _in_sections(part: MapNode, found: list[Diagnostic]) -> MapNode:
    for section, names in _sections().items():
        entry = get_entry(part, section)
        for old, new in names.items() if entry is not None else ():
            if entry is not None and isinstance(entry.value, MapNode) and get_entry(entry.value, old) is not None:
                entry = Entry(key=entry.key, value=_rename(entry.value, old, new, found))
                part = set_entry(part, entry)
    return part


def _rename(section: MapNode, old: str, new: str, found: list[Diagnostic]) -> MapNode:
    was, now = get_entry(section, old), get_entry(section, new)
    assert was is not None
    span = was.key.span
    others = tuple(entry for entry in section.entries if entry is not was and entry is not now)
    if now is not None and now.key.span.source is span.source:
        message = f"'{old}' is the old name of '{new}', which is given as well"
        notes = (Note(f"'{new}' is here", now.key.span),)
        found.append(Diagnostic(code="renamed-key", message=message, span=span, help=f"remove '{old}'", notes=notes))
        return MapNode(entries=(*others, now), span=section.span)
    # given in two sources, the old name is that of a setting, an axis or a variable, which is laid over the file
    message, advice = f"'{old}' is now called '{new}'", f"write {new} instead; a later version will refuse the old name"
    found.append(Diagnostic(code="renamed-key", message=message, span=span, help=advice, severity=Severity.WARNING))
    key = ScalarNode(value=new, text=Text.made(new, span), span=span)
    entries = (Entry(key=key, value=was.value) if entry is was else entry for entry in section.entries)
    return MapNode(entries=tuple(entry for entry in entries if entry is not now), span=section.span)
