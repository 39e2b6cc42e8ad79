"""Every sentence of the environment except those of its browser."""

from __future__ import annotations

__all__ = ["ENDED", "FORMS", "OPENING", "PROMPT"]

FORMS = (
    "click [3], type [3] [words], select [3] [option], hover [3], press [Enter], scroll [down], goto [address],"
    " go_back, go_forward, new_tab, tab_focus [0], close_tab, wait, stop [answer]"
)

PROMPT = """\
You use web sites to carry out a task. You see what of a page is in the window, one element to a line, each with its \
number. Each turn, give one action:
click [3] | hover [3]
type [3] [words] - in place of what is there, then Enter; type [3] [words] [0] without Enter
select [3] [option] - from a list of options
press [Control+a] - a key
scroll [down] | scroll [up] - the page; scroll [3] [down] - what holds that element
goto [address] | go_back | go_forward
new_tab | tab_focus [0] | close_tab
wait
stop [answer] - when you are done; the answer if one was asked for, or N/A where the task cannot be done
No other sites can be reached."""

OPENING = "Task: {intent}\n{page}"
ENDED = "That was the end."
