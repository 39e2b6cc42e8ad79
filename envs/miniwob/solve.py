"""Scripted solutions of the pages whose task says plainly what to do.

A solver takes the task and what is in view, and yields actions; each is answered with what is then in view. One that
finds the page other than it expects raises `LookupError` or `ValueError`, or gives up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeAlias

from ..web.tree import PageNode

__all__ = ["SOLVERS", "PageView", "Solver"]


class PageView:
    """The elements in view, with their numbers."""

    def __init__(self, seen: Sequence[tuple[int, PageNode]]) -> None:
        self.seen = tuple(seen)

    def all(self, *roles: str) -> list[int]:
        return [number for number, node in self.seen if node.role in roles]

    def find(self, name: str, *roles: str) -> int:
        """The first element of that name and of one of the roles."""
        return next(
            (number for number, node in self.seen if node.name == name and (not roles or node.role in roles)), 0
        ) or _missing(name)

    def find_marked(self, mark: str, *roles: str) -> int:
        found = (number for number, node in self.seen if mark in node.marks and (not roles or node.role in roles))
        return next(found, 0) or _missing(mark)

    def texts(self) -> list[str]:
        return [node.name for _, node in self.seen if node.role == "text"]

    def values(self) -> list[str]:
        found = (re.fullmatch(r"value '(.*)'", mark) for _, node in self.seen for mark in node.marks)
        return [each[1] for each in found if each]

    def find_after(self, name: str, *roles: str) -> int:
        """The first element of the roles that comes after a text."""
        at = next((at for at, (_, node) in enumerate(self.seen) if node.name == name), None)
        if at is None:
            return _missing(name)
        return next((number for number, node in self.seen[at + 1 :] if node.role in roles), 0) or _missing(name)


def _missing(what: str) -> int:
    raise LookupError(what)


Solving: TypeAlias = Generator[str, PageView, None]
Solver: TypeAlias = Callable[[str, PageView], Solving]


def _find_quoted(task: str) -> list[str]:
    return re.findall(r'"(.*?)"', task)


def _match(pattern: str, task: str) -> tuple[str, ...]:
    match = re.search(pattern, task)
    if match is None:
        raise LookupError(pattern)
    return tuple(match.groups())


def _ordinal(task: str) -> int:
    return int(_match(r"(\d+)(?:st|nd|rd|th)", task)[0])


def _submit(sight: PageView) -> str:
    return f"click [{sight.all('button')[-1]}]"


# --- one after another ---


def _click_only(task: str, sight: PageView) -> Solving:
    yield f"click [{sight.all('button')[0]}]"


def _click_buttons(task: str, sight: PageView) -> Solving:
    for name in re.findall(r"button ([A-Z]+)", task):
        yield f"click [{sight.find(name, 'button')}]"


def _click_late(task: str, sight: PageView) -> Solving:
    yield f"click [{sight.find('ONE', 'button')}]"
    # half a second passes with each action
    for _ in range(2 * int(_match(r"wait (\d+)", task)[0]) - 1):
        yield "wait"
    yield f"click [{sight.find('TWO', 'button')}]"


def _click_quoted(task: str, sight: PageView) -> Solving:
    name = _find_quoted(task)[0]
    yield f"click [{sight.find('Close' if name == 'x' else name, 'button', 'text', 'link')}]"


def _click_close(task: str, sight: PageView) -> Solving:
    yield f"click [{sight.find('Close', 'button')}]"


def _click_tab(task: str, sight: PageView) -> Solving:
    yield f"click [{sight.find(_match(r'(Tab #[0-9]+)', task)[0], 'tab')}]"


def _click_through_tabs(task: str, sight: PageView) -> Solving:
    name = _find_quoted(task)[0]
    for tab in sight.all("tab"):
        sight = yield f"click [{tab}]"
        if name in sight.texts():
            yield f"click [{sight.find(name, 'text')}]"


def _click_section(task: str, sight: PageView) -> Solving:
    sight = yield f"click [{sight.all('tab')[0]}]"
    yield _submit(sight)


def _click_colour(task: str, sight: PageView) -> Solving:
    yield f"click [{sight.find_marked(_match(r'the (.+) colored', task)[0], 'box')}]"


def _click_widget(task: str, sight: PageView) -> Solving:
    kind = _find_quoted(task)[0]
    if kind == "textarea":
        yield f"click [{sight.find_marked('multiline', 'textbox')}]"
    plain = [number for number, node in sight.seen if node.role == "textbox" and "multiline" not in node.marks]
    yield f"click [{plain[0] if kind == 'text' else sight.all(kind)[0]}]"


def _click_in_order(task: str, sight: PageView) -> Solving:
    texts = [node for _, node in sight.seen if node.role == "text"]
    # by where they are: the numbers are covered after the first click
    for node in sorted(texts, key=lambda node: int(node.name)):
        yield f"click [{_match(r'at (.*)', node.marks[-1])[0]}]"


def _click_point(task: str, sight: PageView) -> Solving:
    x, y = map(int, _match(r"\((-?\d+),(-?\d+)\)", task))
    dots = [number for number, node in sight.seen if node.role == "circle"]
    # column by column, each from the top
    yield f"click [{dots[(x + 2) * 5 + 2 - y]}]"


def _choose(task: str, sight: PageView) -> Solving:
    names = _match(r"Select (.*) from the (?:scroll )?list", task)[0].split(", ")
    for name in names:
        yield f"select [{sight.all('combobox', 'listbox')[0]}] [{name}]"
    yield _submit(sight)


def _tick(task: str, sight: PageView) -> Solving:
    wanted = _match(r"Select (.*) and click Submit", task)[0]
    for name in wanted.split(", ") if wanted != "nothing" else ():
        yield f"click [{sight.find(name, 'checkbox', 'radio')}]"
    yield _submit(sight)


def _tick_and_type(task: str, sight: PageView) -> Solving:
    which, kind = _match(r"Check the (\d+)(?:st|nd|rd|th) (radio button|checkbox)", task)
    yield f"click [{sight.all(kind.removesuffix(' button'))[int(which) - 1]}]"
    box = int(_match(r"into the (\d+)(?:st|nd|rd|th) textbox", task)[0])
    yield f"type [{sight.all('textbox')[box - 1]}] [{_find_quoted(task)[0]}]"
    yield _submit(sight)


def _odd_or_even(task: str, sight: PageView) -> Solving:
    numbers = [node.name for _, node in sight.seen if node.role == "text"]
    odd, even = ([each for each, node in sight.seen if node.name == name] for name in ("Odd", "Even"))
    for at, number in enumerate(numbers):
        yield f"click [{(odd if int(number) % 2 else even)[at]}]"
    yield _submit(sight)


def _focus(task: str, sight: PageView) -> Solving:
    boxes = sight.all("textbox")
    yield f"click [{boxes[_ordinal(task) - 1 if len(boxes) > 1 else 0]}]"


# --- typing ---


def _type(what: Callable[[str, PageView], str]) -> Solver:
    """Solvers that type one thing and press the button."""

    def solve(task: str, sight: PageView) -> Solving:
        boxes = [number for number, node in sight.seen if node.role in ("textbox", "date", "time", "spinbutton")]
        yield f"type [{boxes[-1]}] [{what(task, sight)}]"
        yield _submit(sight)

    return solve


def _in_case(task: str, sight: PageView) -> str:
    text = _find_quoted(task)[0]
    return text.upper() if "upper case" in task else text.lower()


def _iso_date(task: str, sight: PageView) -> str:
    month, day, year = _match(r"(\d+)/(\d+)/(\d+)", task)
    return f"{year}-{month:0>2}-{day:0>2}"


def _iso_time(task: str, sight: PageView) -> str:
    hour, minute, half = _match(r"(\d+):(\d+) ([AP])M", task)
    return f"{int(hour) % 12 + 12 * (half == 'P'):02}:{minute}"


def _calculate(task: str, sight: PageView) -> str:
    left, sign, right = _match(r"(-?\d+) ([-+x]) (-?\d+) =", " ".join(sight.texts()))
    sums = {"+": int(left) + int(right), "-": int(left) - int(right), "x": int(left) * int(right)}
    return str(sums[sign])


def _solve_for_x(task: str, sight: PageView) -> str:
    text = " ".join(sight.texts())
    for x in range(-200, 201):
        left, sign, right, result = _match(r"(\S+) ([-+]) (\S+) = (\S+)", text)
        first, second = (x if each == "x" else int(each) for each in (left, right))
        if (first + second if sign == "+" else first - second) == (x if result == "x" else int(result)):
            return str(x)
    raise LookupError(text)


def _look_up(task: str, sight: PageView) -> str:
    texts = sight.texts()
    return texts[texts.index(_match(r"value of (.*) into", task)[0]) + 1]


def _word(task: str, sight: PageView) -> str:
    words: list[str] = re.findall(r"\w+", " ".join(sight.texts()))
    return words[_ordinal(task) - 1]


def _last_word(task: str, sight: PageView) -> str:
    words: list[str] = re.findall(r"\w+", sight.values()[0])
    return words[-1]


def _password(task: str, sight: PageView) -> Solving:
    for box in sight.all("textbox"):
        yield f"type [{box}] [{_find_quoted(task)[0]}]"
    yield _submit(sight)


def _login(task: str, sight: PageView) -> Solving:
    for box, text in zip(sight.all("textbox"), _find_quoted(task), strict=True):
        yield f"type [{box}] [{text}]"
    yield _submit(sight)


def _from_table(task: str, sight: PageView) -> Solving:
    texts = sight.texts()
    for label in [text for text in texts if text.endswith(":")]:
        yield f"type [{sight.find_after(label, 'textbox')}] [{texts[texts.index(label[:-1]) + 1]}]"
    yield _submit(sight)


# --- mail ---


def _mail(task: str, sight: PageView) -> Solving:
    sender, mark = _match(r"email by (\w+) and click the (trash|star) icon", task)
    at = next(at for at, (_, node) in enumerate(sight.seen) if node.name == sender)
    yield f"click [{PageView(sight.seen[at:]).find_marked(f'.{mark}', 'image')}]"


SOLVERS: Mapping[str, Solver] = {
    "ascending-numbers": _click_in_order,
    "button-delay": _click_late,
    "choose-list": _choose,
    "click-button": _click_quoted,
    "click-button-sequence": _click_buttons,
    "click-checkboxes": _tick,
    "click-checkboxes-large": _tick,
    "click-checkboxes-transfer": _tick,
    "click-collapsible": _click_section,
    "click-collapsible-nodelay": _click_section,
    "click-color": _click_colour,
    "click-dialog": _click_close,
    "click-dialog-2": _click_quoted,
    "click-link": _click_quoted,
    "click-option": _tick,
    "click-scroll-list": _choose,
    "click-tab": _click_tab,
    "click-tab-2": _click_through_tabs,
    "click-tab-2-easy": _click_through_tabs,
    "click-tab-2-hard": _click_through_tabs,
    "click-tab-2-medium": _click_through_tabs,
    "click-test": _click_only,
    "click-test-2": _click_buttons,
    "click-test-transfer": _click_buttons,
    "click-widget": _click_widget,
    "email-inbox-delete": _mail,
    "email-inbox-important": _mail,
    "email-inbox-noscroll": _mail,
    "enter-date": _type(_iso_date),
    "enter-password": _password,
    "enter-text": _type(lambda task, sight: _find_quoted(task)[0]),
    "enter-text-2": _type(_in_case),
    "enter-text-dynamic": _type(lambda task, sight: _find_quoted(task)[0]),
    "enter-time": _type(_iso_time),
    "find-word": _type(_word),
    "focus-text": _focus,
    "focus-text-2": _focus,
    "form-sequence-2": _tick_and_type,
    "grid-coordinate": _click_point,
    "login-user": _login,
    "login-user-popup": _login,
    "odd-or-even": _odd_or_even,
    "read-table": _type(_look_up),
    "read-table-2": _from_table,
    "scroll-text": _type(_last_word),
    "simple-algebra": _type(_solve_for_x),
    "simple-arithmetic": _type(_calculate),
    "text-transform": _type(lambda task, sight: "".join(sight.texts())),
    "unicode-test": _click_quoted,
    "use-spinner": _type(lambda task, sight: _match(r"Select (-?\d+) with", task)[0]),
}
