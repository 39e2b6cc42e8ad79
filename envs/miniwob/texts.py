"""Every sentence of the environment except those of its browser."""

from __future__ import annotations

__all__ = ["FORMS", "OPENING", "PROMPT", "Ends"]

FORMS = (
    "click [3], hover [3], type [3] [words], select [3] [option], press [Enter], scroll [down], drag [3] [5] or wait"
)

PROMPT = """\
You have a task on a small web page. You see its elements, one to a line, each followed by its number. Each turn, give \
one action:
click [3]
hover [3]
type [3] [words] - in place of what is there; type [3] [words] [1] presses Enter as well
select [3] [option] - from a list of options
press [Enter] - or another key, such as press [Control+a]
scroll [down] or scroll [up] - the page; scroll [3] [down] - what holds that element
drag [3] [5] - with the mouse, from one to the other
wait
A point of the page, [40,120], can stand for the number with click, hover and drag. With each action half a second \
passes."""

OPENING = "Task: {task}\n{page}"


class Ends:
    RIGHT = "That was right."
    PARTLY = "That was right in part."
    WRONG = "That was wrong."
