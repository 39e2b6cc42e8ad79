"""All sentences of the environment except those of its browser and its sites."""

from __future__ import annotations

__all__ = ["ENDED", "FORMS", "MISTAKEN", "OPENING", "PROMPT", "REMINDER"]

FORMS = (
    "click [3], type [3] [words], select [3] [option], hover [3], press [Enter], scroll [down], goto [address],"
    " go_back, go_forward, new_tab, tab_focus [0], close_tab, wait, stop [answer]"
)

PROMPT = """\
You use web sites to carry out a task. There are a shop, http://shop.test, and the desk of those who run it, \
http://admin.shop.test; a forum, http://forum.test; a wiki, http://wiki.test; and a tracker of software projects, \
http://tracker.test. You are logged in already. Today is 2 March 2026. You see what of a page is in the window, one \
element to a line, each followed by its number. Each turn, give one action:
click link 'Orders' [3] - the element as its line names it, or its number alone: click [3]
hover [3]
type [3] [words] - in place of what is there, then Enter; type [3] [words] [0] without Enter
select [3] [option] - from a list of options
press [Control+a] - a key
scroll [down] | scroll [up] - the page; scroll [3] [down] - what holds that element
goto [address] | go_back | go_forward
new_tab | tab_focus [0] | close_tab
wait
stop [answer] - when you are done; the answer if one was asked for (just the words or the number, several with commas \
between them), or N/A where the task cannot be done"""

OPENING = "Task: {intent}\n{page}"
REMINDER = "{page}\nTask: {intent}"
MISTAKEN = "[{number}] is {is_there}. Name an element together with the number at the end of its own line."
ENDED = "That was the end."
