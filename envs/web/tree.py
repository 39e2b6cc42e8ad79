"""A page as text: `Node`s, one for each line worth showing, within a budget of tokens.

Made from Chromium's accessibility tree, which gives roles, names and states, and its snapshot of the document, which
gives the order and what there is to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Any

from .colours import name_colour

__all__ = [
    "LINE_TEXTS",
    "STYLES",
    "Box",
    "PageNode",
    "SeenPage",
    "TreeWindow",
    "estimate_tokens",
    "format_page",
    "read_page",
]

STYLES = ("fill", "stroke", "background-color", "color", "cursor")
"""Computed styles that the snapshot must have, in this order."""

_LONGEST_TEXT = 1500
_WORDS = re.compile(r"\w+")
_ACTABLE = frozenset(
    _WORDS.findall(
        "link button textbox searchbox combobox listbox checkbox radio switch slider spinbutton tab menuitem"
        " menuitemcheckbox menuitemradio treeitem option Date DateTime InputTime ColorWell DisclosureTriangle"
        " PopUpButton Iframe Canvas"
    )
)
_TELLING = frozenset(
    _WORDS.findall(
        "image img status tooltip columnheader rowheader navigation main banner contentinfo complementary search form"
        " region article figure tabpanel video audio"
    )
)
"""Shown where they have a name and hold more than one thing."""
_HOLDING = frozenset(
    _WORDS.findall("dialog alertdialog alert menu menubar tablist tree grid row listitem LayoutTableRow")
)
"""Shown where they hold more than one thing."""
_ROWS = frozenset(("row", "listitem", "LayoutTableRow"))
"""Their name is only what they hold."""
_GREY = frozenset(("", "generic", "none", "paragraph", "Section", "LabelText", "SvgRoot"))
"""They mean nothing, but may be there to be clicked."""
_SAYS = {
    "img": "image",
    "Canvas": "canvas",
    "Date": "date",
    "DateTime": "datetime",
    "InputTime": "time",
    "ColorWell": "colour",
    "DisclosureTriangle": "button",
    "PopUpButton": "combobox",
    "LayoutTableRow": "row",
    "listitem": "item",
    "Iframe": "frame",
}
_SHAPES = frozenset(("circle", "ellipse", "line", "path", "polygon", "polyline", "rect"))
_ROLES = frozenset(
    {"box", "heading", "text", *_SHAPES, *(_SAYS.get(role, role) for role in _ACTABLE | _TELLING | _HOLDING)}
)
"""The first word of every line of a page."""
_TEXT_NODE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Position and size in the window, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, window: TreeWindow) -> bool:
        beside = self.x >= window.width or self.x + self.width <= 0
        return not beside and self.y < window.height and self.y + self.height > 0

    def __str__(self) -> str:
        x, y = round(self.x + self.width / 2), round(self.y + self.height / 2)
        return f"{round(self.width)}x{round(self.height)} at {x},{y}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWindow:
    """The visible part of a page."""

    width: int
    height: int
    strip: frozenset[str] = frozenset()
    """Elements, by their `id`, that the agent must not see."""
    whole: bool = False
    """Also what would come into view by scrolling."""
    positions: bool = False
    """Say of everything how large it is and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageNode:
    """A line of the page."""

    depth: int
    backend: int
    """Chromium's number of it."""
    role: str
    name: str
    marks: tuple[str, ...] = ()
    """What else there is to know: `checked`, `value 'red'`."""

    def __str__(self) -> str:
        name = (f"'{self.name}'",) if self.name else ()
        return " ".join((self.role, *name, *self.marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPage:
    nodes: tuple[PageNode, ...]
    above: bool
    """There is more above the window."""
    below: bool


# --- text ---


_REPEATED = 3
"""Fewer lines than this are shown again."""


@dataclass(frozen=True, slots=True)
class PageText:
    text: str
    lines: tuple[str, ...]
    """Of all elements that it shows or refers to."""
    is_cut: bool
    """Whether lines after these did not fit."""


def format_page(
    page: SeenPage,
    numbers: Mapping[int, int],
    tokens: int,
    *,
    numbers_last: bool = False,
    before: Sequence[str] = (),
    skipped: int = 0,
) -> PageText:
    """Format one line for each node after the first `skipped`, as many as take about `tokens` tokens, at least one;
    a note says where there is more.

    Lines that are in `before`, one after another, are not repeated: the first and the last number stand for them.
    """
    form = "{indent}{node} [{number}]" if numbers_last else "{indent}[{number}] {node}"
    nodes = page.nodes[skipped:]
    lines = [form.format(indent=" " * node.depth, node=node, number=numbers[node.backend]) for node in nodes]
    parts = [([line], line) for line in lines]
    for first, size in reversed(_find_repeated(lines, before)):
        ends = [numbers[nodes[at].backend] for at in (first, first + size - 1)]
        parts[first : first + size] = [(lines[first : first + size], "(as before: [{}] to [{}])".format(*ends))]
    parts = parts[: max(1, _count_kept([text for _, text in parts], tokens))]
    kept = [line for covered, _ in parts for line in covered]
    is_cut = len(kept) < len(lines)
    ways = [way for way, there in (("above", page.above or skipped), ("below", page.below or is_cut)) if there]
    scroll = [f"(there is more {' and '.join(ways)})"] if ways else []
    texts = [text for _, text in parts]
    return PageText("\n".join((*texts, *scroll)) or "(the page is empty)", tuple(kept), is_cut=is_cut)


def _find_repeated(lines: Sequence[str], before: Sequence[str]) -> list[tuple[int, int]]:
    """Return where lines of before begin, and how many they are."""
    blocks = SequenceMatcher(a=before, b=lines, autojunk=False).get_matching_blocks()
    return [(block.b, block.size) for block in blocks if block.size >= _REPEATED]


def _count_kept(texts: Sequence[str], tokens: int) -> int:
    costs = accumulate(map(estimate_tokens, texts))
    return sum(cost <= tokens for cost in costs)


def estimate_tokens(line: str) -> int:
    """Estimate how many tokens a language model's tokenizer makes of a line, too many rather than too few."""
    return 1 + len(re.findall(r"[^\W_]{1,4}|[^\w\s]|_", line))


# --- nodes ---


@dataclass(slots=True)
class _Thing:
    """A node of the document, with what is known of it."""

    index: int
    backend: int
    tag: str
    text: str
    attributes: Mapping[str, str]
    role: str = ""
    name: str = ""
    value: str = ""
    states: Mapping[str, Any] = field(default_factory=dict)
    box: Box | None = None
    styles: Mapping[str, str] = field(default_factory=dict)
    clickable: bool = False
    selected: bool = False
    drawn: bool = False
    """It is text of a drawing, whose size and colour say something."""
    children: list[_Thing] = field(default_factory=list)


def read_page(accessible: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any], window: TreeWindow) -> SeenPage:
    document, strings = snapshot["documents"][0], snapshot["strings"]
    things = _things(document, strings)
    _join(things, accessible)
    shown = tuple(_walk(things[0], 0, window, None)) if things else ()
    top, height = document.get("scrollOffsetY", 0), document.get("contentHeight", 0)
    below = not window.whole and top + window.height < height - 1
    return SeenPage(nodes=shown, above=not window.whole and top > 0, below=below)


def _things(document: Mapping[str, Any], strings: Sequence[str]) -> list[_Thing]:
    tree, layout = document["nodes"], document["layout"]
    things = [
        _Thing(
            index=index,
            backend=backend,
            tag=_string(strings, tree["nodeName"][index]).lower(),
            text=_string(strings, tree["nodeValue"][index]) if tree["nodeType"][index] == _TEXT_NODE else "",
            attributes=_pairs([_string(strings, each) for each in tree["attributes"][index]]),
        )
        for index, backend in enumerate(tree["backendNodeId"])
    ]
    for thing, parent in zip(things, tree["parentIndex"], strict=True):
        if parent >= 0:
            things[parent].children.append(thing)
            thing.drawn = things[parent].tag in ("text", "tspan")
    for index in tree.get("isClickable", {}).get("index", ()):
        things[index].clickable = True
    for index in tree.get("optionSelected", {}).get("index", ()):
        things[index].selected = True
    left, top = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    for index, (x, y, width, height), styles in zip(
        layout["nodeIndex"], layout["bounds"], layout["styles"], strict=True
    ):
        things[index].box = Box(x=x - left, y=y - top, width=width, height=height)
        things[index].styles = dict(zip(STYLES, (_string(strings, each) for each in styles), strict=False))
    return things


def _string(strings: Sequence[str], index: int) -> str:
    return strings[index] if index >= 0 else ""


def _pairs(listed: Sequence[str]) -> dict[str, str]:
    return dict(zip(listed[::2], listed[1::2], strict=True))


def _join(things: Sequence[_Thing], accessible: Sequence[Mapping[str, Any]]) -> None:
    by_backend = {thing.backend: thing for thing in things}
    for node in accessible:
        thing = by_backend.get(node.get("backendDOMNodeId", 0))
        # a text has, besides its own node, one for each of its lines
        if thing is None or node.get("ignored") or thing.role:
            continue
        thing.role = str(node.get("role", {}).get("value", ""))
        thing.name = _tidy(node.get("name", {}).get("value", ""))
        thing.value = _tidy(node.get("value", {}).get("value", ""))
        thing.states = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}


def _tidy(text: object) -> str:
    words = " ".join(str(text).split())
    plain = "".join(letter for letter in words if letter.isprintable())
    return plain if len(plain) <= _LONGEST_TEXT else plain[: _LONGEST_TEXT - 1] + "…"


def _walk(thing: _Thing, depth: int, window: TreeWindow, outer: _Thing | None) -> Iterator[PageNode]:
    """Lines of a thing and its content; `outer` is the innermost enclosing thing that has a line."""
    if window.strip and thing.attributes.get("id") in window.strip:
        return
    own = _choose_role(thing, outer) if _in_view(thing, window) else ""
    if own:
        yield _node(thing, depth, own, thing.name, window)
    if thing.role == "StaticText" or thing.tag == "select":
        return
    inner, around = (depth + 1, thing) if own else (depth, outer)
    within = [node for child in thing.children for node in _walk(child, inner, window, around)]
    if not own and _in_view(thing, window):
        if len(within) > 1 and _holds(thing):
            name = "" if thing.role in _ROWS else thing.name
            yield _node(thing, depth, _SAYS.get(thing.role, thing.role), name, window)
            within = [_deeper(node) for node in within]
        elif not within and _can_be_used(thing) and (outer is None or outer.role not in _ACTABLE):
            yield _node(thing, depth, "box", "", window)
    yield from within


def _choose_role(thing: _Thing, outer: _Thing | None) -> str:
    """Role of the thing on a line of its own, if it has one regardless of its content."""
    said, in_control = (outer.name, outer.role in _ACTABLE) if outer else ("", False)
    if thing.role == "StaticText":
        return "text" if thing.name and thing.name not in said else ""
    if thing.role in _ACTABLE:
        return "" if thing.role == "link" and in_control and thing.name == said else _SAYS.get(thing.role, thing.role)
    if thing.role == "heading" or (thing.role in ("image", "img") and thing.tag != "svg"):
        return _SAYS.get(thing.role, thing.role)
    return thing.tag if thing.tag in _SHAPES and not in_control and _is_painted(thing) else ""


def _holds(thing: _Thing) -> bool:
    return thing.role in _HOLDING or (thing.role in _TELLING and thing.name != "")


def _can_be_used(thing: _Thing) -> bool:
    """Whether an empty element without a role can still be clicked or focused."""
    usable = thing.clickable or bool(thing.states.get("focusable"))
    box = thing.box
    sized = box is not None and box.width * box.height > 0
    return usable and sized and thing.role in _GREY and thing.tag not in ("html", "body")


def _is_painted(thing: _Thing) -> bool:
    """Whether a shape is visible and more than a dot."""
    box = thing.box
    sized = box is not None and max(box.width, box.height) >= 2
    return sized and any(name_colour(thing.styles.get(paint, "")) for paint in ("fill", "stroke"))


def _in_view(thing: _Thing, window: TreeWindow) -> bool:
    return thing.box is not None and (window.whole or thing.box.meets(window))


def _deeper(node: PageNode) -> PageNode:
    return PageNode(depth=node.depth + 1, backend=node.backend, role=node.role, name=node.name, marks=node.marks)


def _node(thing: _Thing, depth: int, role: str, name: str, window: TreeWindow) -> PageNode:
    marks = tuple(_marks(thing, role, window.positions))
    return PageNode(depth=depth, backend=thing.backend, role=role, name=name, marks=marks)


def _marks(thing: _Thing, role: str, positions: bool) -> Iterator[str]:
    drawing = role in ("box", "canvas") or role in _SHAPES or (thing.drawn and role == "text")
    if not thing.name and role in ("box", "button", "image", "link") and (hint := _hint(thing.attributes)):
        yield hint
    if role == "polygon":
        yield f"{len(re.findall(r'[-0-9.]+', thing.attributes.get('points', ''))) // 2} corners"
    if drawing and (painted := _paint(thing)):
        yield painted
    if role != "text":
        yield from _state(thing, role)
    if (drawing or positions) and thing.box is not None:
        yield str(thing.box)


def _state(thing: _Thing, role: str) -> Iterator[str]:
    if role == "heading" and (level := thing.states.get("level")):
        yield f"level {level}"
    yield from (says for name, says in _STATES.items() if thing.states.get(name) in (True, "true", "mixed"))
    expanded = thing.states.get("expanded")
    if expanded is not None and thing.tag != "select":
        yield "expanded" if expanded else "collapsed"
    if role in ("slider", "spinbutton"):
        yield from (f"{short} {thing.states[name]}" for name, short in _RANGE.items() if thing.states.get(name))
    if thing.tag == "select":
        yield from _choice(thing)
    elif thing.value and thing.value != thing.name:
        yield f"value '{thing.value}'"


_STATES: Mapping[str, str] = {
    "multiline": "multiline",
    "checked": "checked",
    "pressed": "pressed",
    "selected": "selected",
    "disabled": "disabled",
    "required": "required",
    "focused": "focused",
}
_RANGE = {"valuemin": "from", "valuemax": "to"}
LINE_TEXTS = (
    *sorted(_ROLES),
    *_STATES.values(),
    *_RANGE.values(),
    *("level", "expanded", "collapsed", "value"),
    *("(there is more above and below)", "(as before: [1] to [2])", "(the page is empty)"),
)
"""What the lines of a page say besides what is on it."""


def _hint(attributes: Mapping[str, str]) -> str:
    """Class or id of a thing that has no name."""
    classes = attributes.get("class", "").split()
    named = "".join(f".{each}" for each in classes) or (f"#{attributes['id']}" if attributes.get("id") else "")
    return _tidy(named)[:40]


def _paint(thing: _Thing) -> str:
    paints = ("fill", "stroke") if thing.tag in _SHAPES or thing.drawn else ("background-color",)
    return next((name for paint in paints if (name := name_colour(thing.styles.get(paint, "")))), "")


def _choice(thing: _Thing) -> Iterator[str]:
    options = list(_options(thing))
    if chosen := [f"'{name}'" for name, selected in options if selected and name]:
        yield f"value {', '.join(chosen)}"
    yield "options " + ", ".join(f"'{name}'" for name, _ in options)


def _options(thing: _Thing) -> Iterator[tuple[str, bool]]:
    for child in thing.children:
        if child.tag == "option":
            yield _tidy(child.attributes.get("label") or "".join(each.text for each in child.children)), child.selected
        else:
            yield from _options(child)
