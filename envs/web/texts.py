"""Every sentence that a visit says."""

from __future__ import annotations

from collections.abc import Mapping

from .actions import LONGEST, Malformed

__all__ = ["MALFORMED", "BrowserTexts"]


class BrowserTexts:
    DIALOG = "A dialog said, and was agreed to: {what}"
    NO_ELEMENT = "There is no element [{number}] now."
    NOT_TYPED = "[{number}] takes no text."
    FORM: Mapping[str, str] = {
        "date": "That takes a date such as 2024-03-31.",
        "time": "That takes a time such as 18:05.",
        "month": "That takes a month such as 2024-03.",
        "week": "That takes a week such as 2024-W07.",
        "datetime-local": "That takes a date and time such as 2024-03-31T18:05.",
    }
    NOT_CHOSEN: Mapping[str, str] = {
        "no list": "[{number}] is no list of options; click it instead.",
        "no option": "[{number}] has no option '{what}'.",
        "disabled": "That cannot be chosen now.",
    }
    NOT_SCROLLED = "There is nothing further that way."
    ELSEWHERE = "That address cannot be reached from here."
    NO_PAGE = "That page could not be opened: {what}"
    NO_BACK = "There is no page to go back to."
    NO_FORWARD = "There is no page to go forward to."
    NO_TAB = "There is no tab {number}."
    MANY_TABS = "No more than {number} tabs can be open."
    LAST_TAB = "The last tab cannot be closed."
    OUTSIDE = "That point is outside the window of {width}x{height}."


MALFORMED: Mapping[Malformed, str] = {
    Malformed.EMPTY: "That was no action.",
    Malformed.LONG: f"That was longer than {LONGEST} characters.",
    Malformed.CONTROL: "An action is plain text.",
    Malformed.UNKNOWN: "That is no action; give one of {forms}.",
    Malformed.ARGUMENTS: "That is not how it is written; give one of {forms}.",
    Malformed.KEY: "No key is called that; write for example press [Enter] or press [Control+a].",
}
