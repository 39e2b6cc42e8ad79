"""Names of environments, splits and sinks, checked against the catalog.

Used on a bound recipe, and on a tree from which no recipe could be made, with the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..catalog import Catalog, EnvironmentInfo
from ..check.expected import scalar_text
from ..diagnostics import Diagnostic
from ..model.model_sizes import is_folder
from ..source import Span
from ..suggest import did_you_mean, find_nearest, quote
from ..text.node import MapNode, Node, ScalarNode, child_nodes, get_entry

__all__ = ["find_unknown_names", "no_environment", "no_sink", "no_split", "suggest_environment"]


_MORE_ENVIRONMENTS = (
    "'agym envs list' shows those that are shipped or come with an installed plugin; 'agym envs new NAME' begins one "
    "of your own, './NAME' is one in a folder, and 'url:' instead of 'use:' names a server that is already running"
)


def suggest_environment(name: str, known: Iterable[str]) -> str:
    """What to write instead of a name that no environment has."""
    names = sorted(known)
    near = find_nearest(name, names)
    return f"did you mean '{near}'?" if near else f"known: {', '.join(names)}; {_MORE_ENVIRONMENTS}"


def no_environment(name: str, span: Span, catalog: Catalog) -> Diagnostic:
    message = f"environment {quote(name)} is not registered"
    help_text = suggest_environment(name, catalog.environments)
    return Diagnostic(code="unknown-environment", message=message, span=span, help=help_text)


def no_split(name: str, span: Span, info: EnvironmentInfo) -> Diagnostic:
    message = f"environment '{info.name}' has no split {quote(name)}"
    return Diagnostic(code="unknown-split", message=message, span=span, help=did_you_mean(name, info.splits))


def no_sink(name: str, span: Span, catalog: Catalog) -> Diagnostic:
    message = f"unknown sink {quote(name)}"
    return Diagnostic(code="unknown-name", message=message, span=span, help=did_you_mean(name, catalog.sinks))


# --- in a tree -----------------------------------------------------------------------------------------------------


def find_unknown_names(tree: Node, catalog: Catalog) -> Iterator[Diagnostic]:
    """Report unknown names in a tree with every shorthand written out; other values are left to other checks."""
    known: dict[str, EnvironmentInfo] = {}
    for world in (*_at(tree, "environments", "*"), *_at(tree, "schedule", "*", "environments", "*")):
        for use in _names(world, "use"):
            info = catalog.environments.get(use.text.value)
            if info is None and not is_folder(use.text.value):
                yield no_environment(scalar_text(use), use.span, catalog)
            elif info is not None:
                known[info.name] = info
                yield from _unknown_splits(_names(world, "tasks", "*", "split"), info)
    for info in known.values():
        yield from _unknown_splits(_names(tree, "eval", "tasks"), info)
    for use in _names(tree, "logging", "*", "use"):
        if use.text.value not in catalog.sinks:
            yield no_sink(scalar_text(use), use.span, catalog)


def _unknown_splits(splits: Iterator[ScalarNode], info: EnvironmentInfo) -> Iterator[Diagnostic]:
    for split in splits:
        if info.splits and split.text.value not in info.splits:
            yield no_split(scalar_text(split), split.span, info)


def _at(node: Node, *path: str) -> Iterator[Node]:
    """The nodes at a path, `*` being every item of a list or value of a map."""
    if not path:
        yield node
        return
    entry = get_entry(node, path[0]) if isinstance(node, MapNode) else None
    for child in child_nodes(node) if path[0] == "*" else [entry.value] if entry else []:
        yield from _at(child, *path[1:])


def _names(node: Node, *path: str) -> Iterator[ScalarNode]:
    for each in _at(node, *path):
        text = each.value if isinstance(each, ScalarNode) else None
        if isinstance(each, ScalarNode) and isinstance(text, str) and text.strip() and "${" not in text:
            yield each
