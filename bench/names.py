"""Claim: a name means one thing in the package, a folder holds 13 modules or fewer, no two folders import each other.

Counts, from the syntax trees, the public classes, functions and type aliases that appear under one name in two modules
or more; websites, and entry points that have one name by convention, left out. Then the folders above the limit, and
the siblings, folders or modules that lie next to folders, that import each other at run time.

    python bench/names.py [FOLDER]     of this package, or of another copy of it
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("commands", "dsl", "envs", "recipes", "reporters", "runtime", "schemas")
MAX_MODULES = 13
CONVENTIONAL = {"add_arguments", "create", "main", "run"}
APPLICATIONS = "envs.websites"

Module = tuple[str, ...]
"""A module's name in parts, the package itself left out: ("dsl", "compile")."""
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules(root: Path) -> dict[Module, ast.Module]:
    """Every module of the package, `__init__` among them."""
    files = [*root.glob("*.py"), *(file for room in ROOMS for file in (root / room).rglob("*.py"))]
    parsed = {file.relative_to(root).with_suffix("").parts: file.read_text(encoding="utf-8") for file in files}
    return {module: ast.parse(text) for module, text in sorted(parsed.items())}


# --- names ---------------------------------------------------------------------------------------------------------


def homonyms(trees: Mapping[Module, ast.Module]) -> dict[str, list[str]]:
    """The modules of each public name that appears in two or more; the most frequent first."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        dotted = ".".join(module).removesuffix(".__init__")
        if not f"{dotted}.".startswith(f"{APPLICATIONS}."):
            for name in sorted(public_names(tree) - CONVENTIONAL):
                places[name].append(dotted)
    shared = {name: found for name, found in places.items() if len(found) > 1}
    return dict(sorted(shared.items(), key=lambda item: (-len(item[1]), item[0])))


def public_names(tree: ast.Module) -> set[str]:
    """Classes, functions and type aliases at the top of a module."""
    named = (node.name if isinstance(node, Definition) else _alias(node) for node in tree.body)
    return {name for name in named if name and not name.startswith("_")}


def _alias(node: ast.stmt) -> str | None:
    """`Row` of `Row = dict[str, float]`: in camel case, and a type that is named, filled in or joined by `|`."""
    match node:
        case ast.Assign([ast.Name(name)], ast.Name() | ast.Attribute() | ast.Subscript() | ast.BinOp()):
            return name if name[0].isupper() and not name.isupper() else None
    return None


# --- folders -------------------------------------------------------------------------------------------------------


def crowded(all_modules: Iterable[Module]) -> dict[str, int]:
    """Folders with more than MAX_MODULES modules, `__init__` not counted."""
    counts = Counter("/".join(module[:-1]) for module in all_modules if module[-1] != "__init__")
    return {folder: count for folder, count in sorted(counts.items()) if count > MAX_MODULES}


def arrows(trees: Mapping[Module, ast.Module]) -> set[tuple[Module, Module]]:
    """Who imports whom at run time among siblings: folders, and modules that lie next to folders."""
    folders = {module[:-1] for module in trees}
    known = folders | trees.keys()
    found = ((module, target) for module, tree in trees.items() for target in imported(module, tree, known))
    pairs = (_siblings(module, target) for module, target in found)
    with_folders = {folder[:-1] for folder in folders if folder}
    return {pair for pair in pairs if pair and pair[0][:-1] in with_folders}


def _siblings(importer: Module, target: Module) -> tuple[Module, Module] | None:
    """Where the paths to two modules diverge; None where one is the folder of the other."""
    depth = next((i for i, (a, b) in enumerate(zip(importer, target, strict=False), start=1) if a != b), None)
    return (importer[:depth], target[:depth]) if depth else None


def imported(module: Module, tree: ast.Module, known: Container[Module]) -> Iterator[Module]:
    """The modules and folders that one imports by relative imports, in functions too, but not only for its types."""
    for node in _run_time(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            named = (*module[: -node.level], *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield (*named, alias.name) if (*named, alias.name) in known else named


def _run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield child
            yield from _run_time(child)


def circles(pairs: Iterable[tuple[Module, Module]]) -> list[list[str]]:
    """Siblings that reach each other by their imports, each circle with all that belong to it."""
    reached: defaultdict[Module, set[Module]] = defaultdict(set)
    for importer, target in pairs:
        reached[importer].add(target)
    for middle in list(reached):
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    knots = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in list(reached) if a in reached[a]}
    return [[".".join(module) for module in knot] for knot in sorted(knots)]


def main() -> int:
    root = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    trees = modules(root)
    shared = homonyms(trees)
    for name, found in shared.items():
        print(f"{name:<24}{len(found):>3}  {', '.join(found)}")
    print(f"\n{len(shared)} public names stand in two modules or more\n")
    full, knots = crowded(trees), circles(arrows(trees))
    for folder, count in full.items():
        print(f"{folder:<40}{count:>3} modules")
    for knot in knots:
        print(f"import each other: {', '.join(knot)}")
    print(f"{len(full)} folders of more than {MAX_MODULES} modules, {len(knots)} circles of folders")
    return 0


if __name__ == "__main__":
    sys.exit(main())
