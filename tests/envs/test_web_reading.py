"""A page that is read piece by piece, without a browser: a stand-in gives the tree of each look."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from agym.envs.protocol import Status
from agym.envs.web.actions import Click, Scroll, Type
from agym.envs.web.reading import Reading
from agym.envs.web.session import _DOING, Scene, Visit
from agym.envs.web.tree import PageNode, SeenPage, TreeWindow

SCENE = Scene(window=TreeWindow(width=100, height=100), tokens=24, numbers_last=True, headed=False)
DOWN, UP = Scroll(element=None, down=True), Scroll(element=None, down=False)


class StubKeys:
    async def press(self, key: str) -> None:
        """Do nothing."""


class Page:
    """What a `Tab` asks its page."""

    keyboard = StubKeys()

    class mouse:  # noqa: N801 - as the driver names it
        @staticmethod
        async def click(x: float, y: float) -> None:
            """Do nothing."""


class StubTab:
    """A tab whose elements are set by a test, a line each; a piece of 24 tokens holds three, fewer with marks."""

    def __init__(self, names: str, *, below: bool = False) -> None:
        self.reading, self.leaf = Reading(), Page()
        self.names = {ord(name): name for name in names}
        self.marks: dict[int, tuple[str, ...]] = {}
        self.numbers: dict[int, int] = {}
        self.below, self.moves = below, list[bool]()
        self.statuses: list[Status] = []
        """Of the actions that were carried out."""

    async def look(self) -> SeenPage:
        nodes = tuple(
            PageNode(depth=0, role="text", name=name, marks=self.marks.get(at, ()), backend=at)
            for at, name in self.names.items()
        )
        for node in nodes:
            self.numbers.setdefault(node.backend, len(self.numbers) + 1)
        return SeenPage(nodes=nodes, above=False, below=self.below)

    def backend(self, number: int) -> int | None:
        return next((backend for backend, each in self.numbers.items() if each == number), None)

    async def ask(self, function: str, backend: int | None, *arguments: object) -> Any:
        if arguments and isinstance(arguments[0], bool):
            self.moves.append(arguments[0])
            return self.below or backend is not None
        return {"x": 1, "y": 1} if backend is not None else "done"


def read(tab: StubTab, *actions: Any, tokens: int = SCENE.tokens, repeats: bool = True) -> list[str]:
    """Carry out actions, or functions that change the page; return the lines of the last look."""

    async def go() -> str:
        visit = Visit(replace(SCENE, tokens=tokens, repeats=repeats), cast(Any, None))
        visit.tabs.append(cast(Any, tab))
        text = await visit.see()
        for action in actions:
            if callable(action):
                action()
            else:
                tab.statuses.append((await _DOING[type(action)](visit, action)).status)
            text = await visit.see()
        return text

    return asyncio.run(go()).splitlines()


def names(lines: list[str]) -> str:
    return "".join(line.split("'")[1] for line in lines if line.startswith("text"))


def test_each_piece_goes_on_where_the_one_before_ended_and_up_goes_back_one() -> None:
    assert names(read(StubTab("abcdefgh"))) == "abc"
    assert names(read(StubTab("abcdefgh"), DOWN)) == "def"
    assert names(read(StubTab("abcdefgh"), DOWN, DOWN)) == "gh"
    assert names(read(StubTab("abcdefgh"), DOWN, DOWN, UP)) == "def"
    assert names(read(StubTab("abcdefgh"), DOWN, DOWN, UP, UP)) == "abc"


def test_what_ticks_or_loses_the_focus_leaves_the_reader_where_they_are() -> None:
    tab = StubTab("abcdefgh")
    tab.marks[ord("a")] = ("focused",)
    ticks = iter("123456")

    def tick() -> None:
        tab.marks[ord("a")] = (f"value {next(ticks)}",)

    assert names(read(tab, DOWN, tick, DOWN, tick)) == "fgh"


def test_what_is_put_in_front_or_removed_shows_the_page_from_its_beginning() -> None:
    tab = StubTab("abcdefgh")
    assert names(read(tab, DOWN, lambda: tab.names.pop(ord("b")))) == "acd"
    tab = StubTab("abcdefgh")

    def put() -> None:
        tab.names = {ord("z"): "z", **tab.names}

    assert names(read(tab, DOWN, put)) == "zab"


def test_the_end_of_the_last_piece_stays_in_view_where_nothing_is_further_down() -> None:
    tab = StubTab("abcdef")
    lines = read(tab, DOWN, DOWN)
    assert (names(lines), tab.statuses[-1]) == ("def", Status.REFUSED)
    assert lines[-1] == "(there is more above)"


def test_the_window_moves_after_its_last_piece_and_begins_with_its_first() -> None:
    tab = StubTab("abcdef", below=True)
    assert names(read(tab, DOWN, DOWN)) == "abc"
    assert tab.moves == [True]


def test_scrolling_in_an_element_of_the_piece_in_view_leaves_the_piece() -> None:
    assert names(read(StubTab("abcdef"), DOWN, Scroll(element=5, down=True))) == "def"


@pytest.mark.parametrize(
    "action", [Click(place=2), Type(element=2, text="x", enter=False), Scroll(element=2, down=True)]
)
def test_the_piece_of_an_element_that_is_used_comes_next(action: Any) -> None:
    assert names(read(StubTab("abcdefgh"), DOWN, DOWN, action)) == "abc"


def test_an_element_that_is_as_two_looks_ago_is_shown_again() -> None:
    """What 'as before' refers to is the last that was said about an element."""
    tab = StubTab("abcdefghijkl")

    def mark(name: str) -> Any:
        return lambda: tab.marks.update({ord(each): ("checked",) if each == name else () for each in "fg"})

    mark("f")()
    shown = read(tab, DOWN, mark("g"), mark("f"), tokens=48, repeats=False)
    assert shown[:3] == ["text 'f' checked [6]", "text 'g' [7]", "(as before: [8] to [12])"]


def test_what_is_scrolled_back_to_is_shown_in_full() -> None:
    assert names(read(StubTab("abcdefgh"), DOWN, UP, repeats=False)) == "abc"


def test_another_tab_is_read_from_its_beginning() -> None:
    one, other = StubTab("abcdefgh"), StubTab("stuvwxyz")

    async def go() -> str:
        visit = Visit(replace(SCENE, repeats=False), cast(Any, None))
        visit.tabs += [cast(Any, one), cast(Any, other)]
        await visit.see()
        await visit._scroll(DOWN)
        await visit.see()
        visit.here = 1
        await visit.see()
        visit.here = 0
        return await visit.see()

    assert names(asyncio.run(go()).splitlines()) == "abc"
