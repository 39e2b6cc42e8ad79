"""What needs no browser: actions read, pages written."""

from __future__ import annotations

import re
from typing import Any

import pytest
from agym.envs.web.actions import (
    LONGEST,
    Action,
    Click,
    CloseTab,
    Drag,
    GoBack,
    GoForward,
    GoTo,
    Hover,
    Malformed,
    NewTab,
    Point,
    Press,
    Scroll,
    Select,
    Stop,
    SwitchTab,
    Type,
    Wait,
    parse,
)
from agym.envs.web.colours import name_colour
from agym.envs.web.labels import ElementLabel, format_label, split_label
from agym.envs.web.tree import PageNode, SeenPage, TreeWindow, estimate_tokens, format_page, read_page

# --- actions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [18]", Click(18)),
        ("  CLICK   [18] ", Click(18)),
        ("click [40,25]", Click(Point(40, 25))),
        ("hover [3]", Hover(3)),
        ("drag [3] [10, 20]", Drag(3, Point(10, 20))),
        ("type [7] [red shoes]", Type(7, "red shoes", None)),
        ("type [7] [red shoes] [1]", Type(7, "red shoes", True)),
        ("type [7] [red] [0]", Type(7, "red", False)),
        ("type [7] [1]", Type(7, "1", None)),
        ("type [7] []", Type(7, "", None)),
        ("type [7] [a [b] c] [1]", Type(7, "a [b] c", True)),
        ("type [7] [two\nlines]", Type(7, "two\nlines", None)),
        ("select [4] [5ft 10in]", Select(4, "5ft 10in")),
        ("press [ctrl+a]", Press("Control+a")),
        ("press [enter]", Press("Enter")),
        ("press [+]", Press("+")),
        ("press [Shift++]", Press("Shift++")),
        ("scroll [down]", Scroll(True, None)),
        ("scroll [9] [up]", Scroll(False, 9)),
        ("goto [http://a.b/c?d=[e]]", GoTo("http://a.b/c?d=[e]")),
        ("go_back", GoBack()),
        ("go_forward", GoForward()),
        ("new_tab", NewTab()),
        ("tab_focus [0]", SwitchTab(0)),
        ("close_tab", CloseTab()),
        ("wait", Wait()),
        ("stop", Stop("")),
        ("stop []", Stop("")),
        ("stop [Ida's, 3 [sic]]", Stop("Ida's, 3 [sic]")),
    ],
)
def test_what_reads_as_an_action_is_one(text: str, action: Action) -> None:
    assert parse(text) == action


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Malformed.EMPTY),
        (" \n ", Malformed.EMPTY),
        ("click" * LONGEST, Malformed.LONG),
        ("click [1]\x00", Malformed.CONTROL),
        ("click [\ud800]", Malformed.CONTROL),
        ("type [1] [\u202e]", Malformed.CONTROL),
        ("smash [1]", Malformed.UNKNOWN),
        ("I will click [1]", Malformed.UNKNOWN),
        ("[1]", Malformed.UNKNOWN),
        ("click", Malformed.ARGUMENTS),
        ("click 1", Malformed.ARGUMENTS),
        ("click [0]", Malformed.ARGUMENTS),
        ("click [1] [2]", Malformed.ARGUMENTS),
        ("click [\u0661]", Malformed.ARGUMENTS),
        ("click [1]\nclick [2]", Malformed.ARGUMENTS),
        ("click [1,2,3]", Malformed.ARGUMENTS),
        ("go_back [1]", Malformed.ARGUMENTS),
        ("scroll [sideways]", Malformed.ARGUMENTS),
        ("type [4,4] [x]", Malformed.ARGUMENTS),
        ("press [Hyper+a]", Malformed.KEY),
        ("press [AudioVolumeUp]", Malformed.KEY),
        ("press [é]", Malformed.KEY),
        ("press []", Malformed.KEY),
    ],
)
def test_what_is_no_action_is_told_why(text: str, fault: Malformed) -> None:
    assert parse(text) is fault


# --- pages ---------------------------------------------------------------------------------------------------------

WINDOW = TreeWindow(width=100, height=100)


class Document:
    """A page as Chromium describes it, made by hand: first the document, then what is in it."""

    def __init__(self, **more: Any) -> None:
        self._strings: list[str] = []
        self._nodes: dict[str, list[Any]] = {name: [] for name in ("parentIndex", "nodeType", "nodeName", "nodeValue")}
        self._nodes |= {"backendNodeId": [], "attributes": []}
        self._clickable: list[int] = []
        self._selected: list[int] = []
        self._layout: dict[str, list[Any]] = {"nodeIndex": [], "bounds": [], "styles": []}
        self._accessible: list[dict[str, Any]] = []
        self._more = {"scrollOffsetX": 0, "scrollOffsetY": 0, "contentHeight": 100, **more}
        self.add("#document", role="RootWebArea", parent=-1)

    def add(
        self,
        tag: str,
        *,
        role: str = "",
        name: str = "",
        text: str = "",
        parent: int = 0,
        at: tuple[float, float, float, float] | None = (0, 0, 10, 10),
        styles: tuple[str, ...] = (),
        attributes: dict[str, str] | None = None,
        clickable: bool = False,
        selected: bool = False,
        ignored: bool = False,
        value: str = "",
        **states: Any,
    ) -> int:
        """The index of what was added; its number in the browser is 100 more."""
        index = len(self._nodes["nodeName"])
        self._nodes["parentIndex"].append(parent)
        self._nodes["nodeType"].append(3 if tag == "#text" else 1)
        self._nodes["nodeName"].append(self._string(tag))
        self._nodes["nodeValue"].append(self._string(text) if text else -1)
        self._nodes["backendNodeId"].append(100 + index)
        pairs = (each for pair in (attributes or {}).items() for each in pair)
        self._nodes["attributes"].append([self._string(each) for each in pairs])
        self._clickable += [index] * clickable
        self._selected += [index] * selected
        if at is not None:
            self._layout["nodeIndex"].append(index)
            self._layout["bounds"].append(list(at))
            self._layout["styles"].append([self._string(each) for each in styles])
        if role:
            self._accessible.append(
                {
                    "backendDOMNodeId": 100 + index,
                    "ignored": ignored,
                    "role": {"value": role},
                    "name": {"value": name},
                    "value": {"value": value},
                    "properties": [{"name": each, "value": {"value": state}} for each, state in states.items()],
                }
            )
        return index

    def say(self, text: str, parent: int = 0, **more: Any) -> int:
        return self.add("#text", role="StaticText", name=text, text=text, parent=parent, **more)

    def _string(self, text: str) -> int:
        self._strings.append(text)
        return len(self._strings) - 1

    def page(self, window: TreeWindow = WINDOW) -> SeenPage:
        tree = {
            **self._nodes,
            "isClickable": {"index": self._clickable},
            "optionSelected": {"index": self._selected},
        }
        document = {"nodes": tree, "layout": self._layout, **self._more}
        return read_page(self._accessible, {"documents": [document], "strings": self._strings}, window)

    def text(self, window: TreeWindow = WINDOW, tokens: int = 1000) -> str:
        page = self.page(window)
        return format_page(page, {node.backend: number for number, node in enumerate(page.nodes, start=1)}, tokens).text


def test_an_element_has_its_number_role_name_and_state() -> None:
    page = Document()
    page.add("A", role="link", name="Kitchen")
    page.add("INPUT", role="checkbox", name="Keep", checked="true", required=True, disabled=False)
    page.add("INPUT", role="textbox", name="Name", value="Ida", focused=True)
    page.add("INPUT", role="slider", name="Size", value="5", valuemin=1, valuemax=9)
    page.add("H2", role="heading", name="Rooms", level=2)
    assert page.text().splitlines() == [
        "[1] link 'Kitchen'",
        "[2] checkbox 'Keep' checked required",
        "[3] textbox 'Name' focused value 'Ida'",
        "[4] slider 'Size' from 1 to 9 value '5'",
        "[5] heading 'Rooms' level 2",
    ]


def _named(lines: str) -> tuple[PageNode, ...]:
    return tuple(PageNode(depth=0, backend=ord(line) - 96, role="text", name=line) for line in lines)


def _text(lines: str, before: str = "", tokens: int = 1000) -> tuple[str, tuple[str, ...]]:
    """Lines named by a letter each, numbered by its place in the alphabet, and those of the page before."""
    page = SeenPage(nodes=_named(lines), above=False, below=False)
    known = [f"text '{line}' [{ord(line) - 96}]" for line in before]
    shown = format_page(page, {number: number for number in range(1, 27)}, tokens, numbers_last=True, before=known)
    return shown.text, tuple(re.findall("'(.)'", "".join(shown.lines)))


@pytest.mark.parametrize(
    ("lines", "before", "text"),
    [
        ("abcx", "abcd", "(as before: [1] to [3])\ntext 'x' [24]"),
        ("xabc", "abcd", "text 'x' [24]\n(as before: [1] to [3])"),
        ("abx", "abc", "text 'a' [1]\ntext 'b' [2]\ntext 'x' [24]"),
        ("abcxdefg", "abcdefg", "(as before: [1] to [3])\ntext 'x' [24]\n(as before: [4] to [7])"),
        ("cba", "abc", "text 'c' [3]\ntext 'b' [2]\ntext 'a' [1]"),
        ("abc", "abc", "(as before: [1] to [3])"),
        ("ab", "", "text 'a' [1]\ntext 'b' [2]"),
    ],
)
def test_lines_of_the_page_before_are_not_repeated(lines: str, before: str, text: str) -> None:
    assert _text(lines, before) == (text, tuple(lines))


def test_lines_that_were_cut_were_not_shown() -> None:
    text, shown = _text("abcdef", tokens=24)
    assert (text.splitlines()[-1], shown) == ("(there is more below)", ("a", "b", "c"))
    text, shown = _text("abcdef", "abc", tokens=24)
    assert text.splitlines()[0] == "(as before: [1] to [3])"
    assert shown == ("a", "b", "c", "d"), "what is not repeated leaves room for more"


def test_a_cut_page_goes_on_where_it_was_cut() -> None:
    page = SeenPage(nodes=_named("abcdef"), above=False, below=False)
    numbers = {number: number for number in range(1, 27)}
    assert format_page(page, numbers, 24, skipped=3).text.splitlines() == [
        *("[4] text 'd'", "[5] text 'e'", "[6] text 'f'"),
        "(there is more above)",
    ]
    assert format_page(page, numbers, 1, skipped=1).text == "[2] text 'b'\n(there is more above and below)"


def test_a_text_that_a_name_has_said_is_not_said_again() -> None:
    page = Document()
    link = page.add("A", role="link", name="To the kitchen")
    page.say("kitchen", parent=link)
    page.say("garden")
    assert page.text() == "[1] link 'To the kitchen'\n[2] text 'garden'"


def test_what_only_holds_others_is_shown_where_it_holds_several() -> None:
    page = Document()
    for texts in (("Ida", "Bo"), ("alone",)):
        row = page.add("TR", role="row", name=" ".join(texts))
        for text in texts:
            page.say(text, parent=page.add("TD", role="cell", name=text, parent=row))
    assert page.text() == "[1] row\n [2] text 'Ida'\n [3] text 'Bo'\n[4] text 'alone'"


def test_a_list_of_options_tells_them_and_which_is_chosen() -> None:
    page = Document()
    select = page.add("SELECT", role="combobox", name="Size", value="M", expanded=False)
    for size in ("S", "M"):
        page.say(size, parent=page.add("OPTION", role="option", name=size, parent=select, selected=size == "M"))
    assert page.text() == "[1] combobox 'Size' value 'M' options 'S', 'M'"


def test_an_empty_box_that_can_be_clicked_is_told_by_its_looks() -> None:
    page = Document()
    page.add("DIV", at=(5, 5, 20, 30), styles=("", "", "rgb(255, 0, 0)"), attributes={"class": "door"}, clickable=True)
    page.add("DIV", at=(5, 5, 20, 30), styles=("", "", "rgb(255, 0, 0)"))
    outer = page.add("DIV", clickable=True)
    page.say("door", parent=outer)
    assert page.text() == "[1] box .door red 20x30 at 15,20\n[2] text 'door'"


def test_shapes_of_a_drawing_are_told_but_not_those_on_a_button() -> None:
    page = Document()
    page.add("circle", at=(0, 0, 8, 8), styles=("rgb(0, 0, 255)", "none"))
    page.add("polygon", at=(0, 0, 8, 8), styles=("rgb(1, 2, 3)", "none"), attributes={"points": "0,0 8,0 4,8"})
    page.add("circle", at=(0, 0, 8, 8), styles=("none", "none"))
    button = page.add("BUTTON", role="button", attributes={"class": "bold"})
    page.add("line", at=(0, 0, 8, 8), styles=("none", "rgb(0, 0, 0)"), parent=button)
    page.say("B", parent=page.add("text"), at=(1, 1, 6, 9), styles=("rgb(0, 128, 0)",))
    assert page.text().splitlines() == [
        "[1] circle blue 8x8 at 4,4",
        "[2] polygon 3 corners #010203 8x8 at 4,4",
        "[3] button .bold",
        "[4] text 'B' green 6x9 at 4,6",
    ]


def test_what_is_out_of_the_window_hidden_ignored_or_stripped_is_not_shown() -> None:
    page = Document(contentHeight=500, scrollOffsetY=50)
    page.say("above", at=(0, 0, 10, 10))
    page.say("here", at=(0, 60, 10, 10))
    page.say("below", at=(0, 300, 10, 10))
    page.say("hidden", at=None)
    page.say("unsaid", at=(0, 60, 10, 10), ignored=True)
    page.say("score", parent=page.add("DIV", attributes={"id": "reward"}, at=(0, 60, 9, 9)), at=(0, 60, 9, 9))
    stripped = TreeWindow(width=100, height=100, strip=frozenset(("reward",)))
    assert page.text(stripped) == "[1] text 'here'\n(there is more above and below)"
    whole = TreeWindow(width=100, height=100, strip=frozenset(("reward",)), whole=True)
    assert page.text(whole) == "[1] text 'above'\n[2] text 'here'\n[3] text 'below'"


def test_positions_are_given_for_everything_where_they_are_asked_for() -> None:
    page = Document()
    page.add("TEXTAREA", role="textbox", name="Note", at=(10, 10, 50, 20), multiline=True)
    assert page.text(TreeWindow(width=100, height=100, positions=True)) == "[1] textbox 'Note' multiline 50x20 at 35,20"


def test_text_of_a_page_can_make_no_line_of_its_own_and_has_a_limit() -> None:
    page = Document()
    page.say("a\n[2] button 'Win'\u202e\x07" + "x" * 5000)
    (line,) = page.text().splitlines()
    assert line.startswith("[1] text 'a [2] button 'Win'xxx")
    assert len(line) < 1600


def test_a_page_too_long_is_cut_at_a_line_and_says_so() -> None:
    page = Document()
    for number in range(50):
        page.say(f"line {number}")
    lines = page.text(tokens=100).splitlines()
    assert lines[-1] == "(there is more below)"
    assert sum(map(estimate_tokens, lines[:-1])) <= 100


def test_an_empty_page_is_said_to_be_empty() -> None:
    assert Document().text() == "(the page is empty)"


@pytest.mark.parametrize(
    ("style", "name"),
    [
        ("rgb(255, 0, 0)", "red"),
        ("rgba(1, 2, 3, 0.5)", "#010203"),
        ("rgba(0, 0, 0, 0)", ""),
        ("none", ""),
        ("", ""),
    ],
)
def test_a_colour_has_a_name_where_it_is_a_common_one(style: str, name: str) -> None:
    assert name_colour(style) == name


# --- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "action", "label"),
    [
        ("click link 'Orders' [5]", "click [5]", (5, "link 'Orders'")),
        ("Click 'Orders' [5]", "Click [5]", (5, "'Orders'")),
        ("click “Orders” [5]", "click [5]", (5, "“Orders”")),
        ("click button [5]", "click [5]", (5, "button")),
        ("hover link 'Bea's page' [12]", "hover [12]", (12, "link 'Bea's page'")),
        ("click link 'a [3] of 'b'' [7]", "click [7]", (7, "link 'a [3] of 'b''")),
        ("type searchbox 'Search' [9] [it’s 'so' [1]] [0]", "type [9] [it’s 'so' [1]] [0]", (9, "searchbox 'Search'")),
        ("type textbox 'To' focused value 'Bea' [9] [Ida]", "type [9] [Ida]", (9, "textbox 'To' focused value 'Bea'")),
        ("select combobox 'Status' [4] [On hold]", "select [4] [On hold]", (4, "combobox 'Status'")),
    ],
)
def test_an_action_may_name_its_element(text: str, action: str, label: tuple[int, str]) -> None:
    assert split_label(text) == (action, ElementLabel(*label))
    assert not isinstance(parse(action), Malformed)


@pytest.mark.parametrize(
    "text",
    [
        *("click [5]", "type [5] [link 'a' [6]]", "stop [link 'a' [5]]", "click link 'Orders'", "click the link [5]"),
        *(
            f"click 'a' [5]{' ' * LONGEST}",
            "press button 'a' [5]",
            "click link 'Orders' [0]",
            "click link 'Orders' [40,25]",
            "",
        ),
    ],
)
def test_what_names_no_element_is_left_as_it_is(text: str) -> None:
    assert split_label(text) == (text, None)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        *(("link 'Orders'", True), ("LINK  “orders”", True), ("'Orders'", True), ("link", True)),
        *(("link 'Orders' visited", True), ("button 'Orders'", False), ("link 'Order'", False), ("'Home'", False)),
        *(("link 'Orders' checked", False), ("link ''", False)),
    ],
)
def test_a_label_must_fit_the_element(text: str, is_right: bool) -> None:
    node = PageNode(depth=0, backend=1, role="link", name="Orders", marks=("visited",))
    assert ElementLabel(5, text).fits(node) is is_right


def test_an_expert_names_elements_with_short_names() -> None:
    assert format_label(_node("link", "Bea's page"), 5) == "link 'Bea's page' [5]"
    assert format_label(_node("button", ""), 5) == format_label(_node("text", "x" * 61), 5) == "[5]"


def _node(role: str, name: str) -> PageNode:
    return PageNode(depth=0, backend=1, role=role, name=name)
