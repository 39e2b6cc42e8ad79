"""`extends`: bases merged left to right, with the recipe itself on top. Each file is read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, reduce

from ..diagnostics import Diagnostic, Note
from ..source import Source, Span
from ..suggest import quote
from ..text.decode import decode
from ..text.edit import Shorthand, drop_entries, merge
from ..text.node import ListNode, MapNode, Node, ScalarNode, get_entry, is_null
from ..text.tree import parse_tree
from .library import Found, Library, Refusal, explain_refusal
from .renames import rename_keys

__all__ = ["MAX_CHAIN", "Loader", "add_route", "parse_recipe"]

MAX_CHAIN = 16
MAX_READS = 64


def add_route(diagnostic: Diagnostic, ways: Mapping[Source, Source]) -> Diagnostic:
    """Add the `extends` chain of this recipe to a diagnostic in a base, which all that extend it share."""

    def led(span: Span) -> Span:
        return Span(ways.get(span.source, span.source), span.start, span.end)

    notes = tuple(Note(note.message, led(note.span)) for note in diagnostic.notes)
    return replace(diagnostic, span=led(diagnostic.span), notes=notes)


def parse_recipe(source: Source) -> tuple[MapNode | None, tuple[Diagnostic, ...]]:
    """Parse a source to the map of a recipe."""
    parsed = parse_tree(source)
    if isinstance(parsed.root, MapNode):
        root, renamed = rename_keys(parsed.root)
        return root, (*parsed.diagnostics, *renamed)
    if parsed.root is None or parsed.diagnostics:  # the value is wrong already, such as 'turns:10' without its space
        return None, parsed.diagnostics
    what = "a list" if isinstance(parsed.root, ListNode) else quote(parsed.root.text.value)
    span = parsed.root.span
    first_line = span.source.span(span.start, span.start + len(span.text.split("\n", 1)[0]))
    message = f"expected a recipe, a map of keys, got {what}"
    wrong = Diagnostic(code="wrong-type", message=message, span=first_line, help="start with 'agym: 1'")
    return None, (wrong,)


@lru_cache(maxsize=256)
def _parse_base(name: str, data: bytes, key: str) -> tuple[Source, MapNode | None, tuple[Diagnostic, ...]]:
    """Parse a base once for all recipes that extend it."""
    source = decode(name, data, key=key)
    return (source.span.source, None, (source,)) if isinstance(source, Diagnostic) else (source, *parse_recipe(source))


class Loader:
    """Merges a recipe with its bases; a chain holds the `extends` values that lead from file to file."""

    def __init__(self, library: Library, shorthand: Shorthand) -> None:
        self.library = library
        self.shorthand = shorthand
        self.diagnostics: list[Diagnostic] = []
        self.partial = False
        """Whether a base is missing, so that a key which the tree lacks may be there."""
        self.num_reads = 0
        self.loaded: dict[str, MapNode | None] = {}
        self.ways: dict[Source, Source] = {}
        """By base, the same with the `extends` value that led to it."""

    def with_bases(self, tree: MapNode, source: Source, chain: tuple[Span, ...] = ()) -> MapNode:
        """The tree of `source` on top of its bases."""
        entry = get_entry(tree, "extends")
        if entry is None:
            return tree
        bases = [self.base(node, source, chain) for node in self.references(entry.value)]
        layers: list[Node] = [base for base in bases if base is not None]
        self.partial = self.partial or len(layers) < len(bases)
        merged = reduce(
            lambda below, over: merge(below, over, self.shorthand), [*layers, drop_entries(tree, "extends")]
        )
        return merged if isinstance(merged, MapNode) else tree

    def references(self, value: Node) -> Iterator[ScalarNode]:
        if is_null(value):
            return
        for node in value.items if isinstance(value, ListNode) else (value,):
            if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
                message = "expected the name of a recipe or a list of names"
                self.report("wrong-type", message, node.span, "write extends: base.yaml")
            elif "${" in node.value:
                message = "'extends' cannot contain '${...}': it is read before references are replaced"
                self.report("bad-reference", message, node.span, "write the path out")
            else:
                yield node
                continue
            self.partial = True

    def base(self, node: ScalarNode, source: Source, chain: tuple[Span, ...]) -> MapNode | None:
        chain = (*chain, node.span)
        if len(chain) > MAX_CHAIN:
            message = f"more than {MAX_CHAIN} recipes extend one another in a chain"
            self.report("extends-too-long", message, node.span, "shorten the chain, or extend a list of recipes")
            return None
        self.num_reads += 1
        if self.num_reads > MAX_READS:
            if self.num_reads == MAX_READS + 1:
                self.report("too-large", f"more than {MAX_READS} recipes are extended", node.span, "extend fewer")
            return None
        found = self.library.read(node.text.value, source)
        if isinstance(found, Refusal):
            self.diagnostics.append(explain_refusal(found, node.text.value, node.span))
            return None
        closing = next((link for link in chain if link.source.identity == found.key), None)
        if closing is not None:
            self.cycle(node, chain, closing)
            return None
        if found.key not in self.loaded:
            self.loaded[found.key] = None
            self.loaded[found.key] = self.load(found, node.span, chain)
        return self.loaded[found.key]

    def load(self, found: Found, leads_here: Span, chain: tuple[Span, ...]) -> MapNode | None:
        source, root, diagnostics = _parse_base(found.name, found.data, found.key)
        before = self.ways.get(leads_here.source, leads_here.source)
        self.ways[source] = replace(source, included_from=Span(before, leads_here.start, leads_here.end))
        self.diagnostics += diagnostics
        return None if root is None else self.with_bases(root, source, chain)

    def cycle(self, node: ScalarNode, chain: tuple[Span, ...], closing: Span) -> None:
        names = [link.source.name for link in chain[chain.index(closing) :]]
        if len(names) == 1:
            self.report("extends-cycle", "a recipe cannot extend itself", node.span, "name another recipe")
            return
        message = f"recipes extend each other in a cycle: {' -> '.join([*names, names[0]])}"
        note = Note("the cycle starts here", closing)
        self.report("extends-cycle", message, node.span, "remove one of these 'extends'", note)

    def report(self, code: str, message: str, span: Span, help: str | None, *notes: Note) -> None:  # noqa: A002
        self.diagnostics.append(Diagnostic(code=code, message=message, span=span, help=help, notes=notes))
