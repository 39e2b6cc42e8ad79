"""Lenient reading: one normaliser for every format, which finds the action of a reply in any form that models give it.

In the order of how plainly they speak: tool calls of any dialect, lines that begin with `Action:` or `Answer:`, tags,
code blocks, a reply that is nothing but one marked-up line, and a line that is one of the actions that the environment
lists. What a reply says after `Observation:` is cut and never believed. Two different actions are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dsl.model.recipe import Format
from .calls import FoundCall, MalformedCall, find_calls, is_call, load_call, load_json
from .messages import ParsedReply, accept, refuse
from .toolbox import Toolbox

__all__ = ["Lenient", "normalise", "settle"]

_SEVERAL = "Your reply holds different actions. Write one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient:
    """The lenient reader of a format."""

    format: Format
    thinking: bool
    limit: int
    """Calls in one reply."""
    box: Toolbox
    strict: Callable[[str], ParsedReply]

    def read(self, answer: str, listed: Sequence[str] = ()) -> ParsedReply:
        """Read a reply without its thoughts; `listed` are the actions that the environment lists."""
        try:
            found = self._read(_open_block(_cut_observation(answer)), listed)
        except _SeveralLines:
            return refuse("Text follows the action. End your reply after the line 'Action:'.")
        if len(found.actions) != 1 or not listed:
            return found
        return settle(found.actions[0], listed)

    def _read(self, text: str, listed: Sequence[str]) -> ParsedReply:
        if self.format in (Format.CODE, Format.TOOLS) and (found := self.strict(text)).actions:
            return found
        for look in _LOOKS.get(self.format, _USUAL):
            if seen := look(self, text):
                return seen.parsed if self.thinking or not seen.before.strip(_MARKUP) else self._refuse(text)
        if (line := text.strip()) and "\n" not in line and _choose(line, listed):
            return settle(line, listed)
        return self._refuse(text)

    def _refuse(self, text: str) -> ParsedReply:
        found = self.strict(text)
        return found if self.format is Format.PLAIN or not found.actions else refuse(_SEVERAL)

    # --- calls

    def find_calls(self, text: str) -> _Finding | None:
        calls = find_calls(text) or _fenced_call(text)
        if not calls:
            return None
        rest = _without(text, calls)
        if len(calls) == 1 and (labels := self._labelled(rest)) and any(each.strip() for each in labels):
            return _Finding(refuse(_SEVERAL), "")
        return _Finding(self._act(calls), text[: calls[0].start])

    def _act(self, calls: Sequence[FoundCall]) -> ParsedReply:
        problem = next((each.problem for each in calls if each.problem), "")
        made = [call for each in calls for call in each.calls]
        if problem:
            return refuse(problem)
        limit = self.limit if self.format is Format.TOOLS else 1
        try:
            actions = [self.box.to_action(call) for call in made]
        except MalformedCall as error:
            return refuse(str(error))
        if len(actions) > limit and len(set(actions)) > 1:
            return refuse(f"Your reply has {len(made)} tool calls. Write no more than {limit}.")
        return accept(*actions[:limit])

    # --- labels

    def find_labels(self, text: str) -> _Finding | None:
        sections = _split(text)
        start = next((at for at, kind, _ in sections if kind in _ACTS), None)
        if start is None:
            return None
        found = [each for each in self._labelled(text) if each]
        return _Finding(_only(found, "The line 'Action:' is empty. Write the action after it."), text[:start])

    def _labelled(self, text: str) -> list[str]:
        """The actions of all lines with a label; an empty one for a label without any."""
        sections = _split(text)
        actions: list[str] = []
        for at, (_, kind, body) in enumerate(sections):
            if kind == "action":
                following = sections[at + 1] if at + 1 < len(sections) else (0, "", "")
                actions.append(self._with_input(_body(body), following[2] if following[1] == "input" else None))
            elif kind == "answer":
                actions.append(self._command("answer", _body(body)))
        return actions

    def _with_input(self, action: str, given: str | None) -> str:
        """Join an action to its `Action Input:`, as a call where it names a tool."""
        if given is None or not action:
            return action
        try:
            return self.box.to_action(load_call({"name": action, "arguments": load_json(_body(given))}))
        except MalformedCall:
            return self._command(action, _body(given))

    def _command(self, name: str, text: str) -> str:
        """Write a command: a call where a tool of that name takes one argument."""
        if not text:
            return ""
        try:
            (call,) = self.box.to_calls(f"{name} {text}")
            return self.box.to_action(call) if call.name == name else _plain_command(name, text)
        except MalformedCall:
            return _plain_command(name, text)

    # --- tags, blocks, marked-up lines

    def find_tags(self, text: str) -> _Finding | None:
        found = list(_TAG.finditer(text))
        if not found:
            return None
        actions = [
            each[2].strip() if each[1].lower() == "action" else self._command(each[1].lower(), each[2].strip())
            for each in found
        ]
        return _Finding(_only(actions, "The tag is empty. Write the action in it."), text[: found[0].start()])

    def find_blocks(self, text: str) -> _Finding | None:
        found = list(_BLOCK.finditer(text))
        if not found or "```" in _BLOCK.sub("", text):
            return None
        actions = [(each[1] if each[1] is not None else each[2]).strip("\n") for each in found]
        actions = [each if "\n" in each else each.strip() for each in actions]
        return _Finding(_only(actions, "The code block is empty. Write the action in it."), text[: found[0].start()])

    def find_marked_line(self, text: str) -> _Finding | None:
        line = text.strip()
        bare = _unwrap(line)
        return _Finding(accept(bare), "") if "\n" not in line and bare and bare != line else None


@dataclass(frozen=True, slots=True)
class _Finding:
    """What was read, and the text before it."""

    parsed: ParsedReply
    before: str


_Look = Callable[[Lenient, str], _Finding | None]
_USUAL: tuple[_Look, ...] = (
    Lenient.find_calls,
    Lenient.find_labels,
    Lenient.find_tags,
    Lenient.find_blocks,
    Lenient.find_marked_line,
)
_LOOKS = {Format.CODE: (Lenient.find_blocks, *_USUAL)}
"""A format's own order, where it has one."""


def _only(actions: Sequence[str], empty: str) -> ParsedReply:
    """Accept the one action that all say, in spite of how often."""
    different = dict.fromkeys(each for each in actions if each.strip())
    return accept(*different) if len(different) == 1 else refuse(_SEVERAL if different else empty)


def _plain_command(name: str, text: str) -> str:
    return text if name == "answer" else f"{name} {text}"


# --- parts of a reply ----------------------------------------------------------------------------------------------

_MARKUP = " \t\n*_`#>-"
_OBSERVED = re.compile(
    r"^[ \t>#*_-]*observations?(?:[ \t]*\d+)?[ \t]*[*_]*[ \t]*[:：]|<(?:tool_response|information|observation)>",
    re.IGNORECASE | re.MULTILINE,
)
_KINDS = {
    "action": ("action", "next action", "final action", "my action", "command"),
    "answer": ("answer", "final answer", "my answer"),
    "input": ("action input", "input"),
    "": ("thought", "thoughts", "reasoning", "plan", "explanation", "note", "reason", "reflection"),
}
_ACTS = ("action", "answer")
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words}
_LABEL = re.compile(
    rf"^[ \t>#*_-]*({'|'.join(sorted(_KIND_OF, key=len, reverse=True))})(?:[ \t]*\d+)?"
    r"[ \t]*[*_]*[ \t]*[:：][*_]*[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<(action|answer|search)>((?:(?!<).)*)</\1>", re.IGNORECASE | re.DOTALL)
_BLOCK = re.compile(r"```[\w+-]*[ \t]*\n((?:(?!```).)*)```|```((?:(?!```)[^\n])+)```", re.DOTALL)
_PAIRS = ("```", "**", "__", "`", "*")


def _cut_observation(text: str) -> str:
    """Cut what the reply says it was shown: nobody has shown it anything yet."""
    found = _OBSERVED.search(text)
    return text[: found.start()] if found else text


def _split(text: str) -> list[tuple[int, str, str]]:
    """Split a reply at its labels: where each begins, its kind, and what follows it."""
    found = list(_LABEL.finditer(text))
    ends = [*(each.start() for each in found), len(text)][1:]
    return [
        (each.start(), _KIND_OF[" ".join(each[1].lower().split())], text[each.end() : end])
        for each, end in zip(found, ends, strict=True)
    ]


class _SeveralLines(Exception):
    """What follows a label is more than one line, and no block."""


def _open_block(text: str) -> str:
    """Return what stands in a block around the whole reply, where that has labels of its own."""
    block = _BLOCK.fullmatch(text.strip())
    return block[1] if block and block[1] is not None and _LABEL.search(block[1]) else text


def _body(section: str) -> str:
    """The action in what follows a label: a block, or one line before an empty one."""
    text = section.strip()
    if block := _BLOCK.match(text):
        return (block[1] if block[1] is not None else block[2]).strip()
    paragraph = re.split(r"\n[ \t]*\n", text, maxsplit=1)[0].strip()
    if "\n" in paragraph:
        raise _SeveralLines
    return _unwrap(paragraph)


def _unwrap(line: str) -> str:
    """Remove the mark-up around a whole line."""
    for mark in _PAIRS:
        inner = line[len(mark) : -len(mark)]
        if line.startswith(mark) and line.endswith(mark) and len(line) > 2 * len(mark) and mark not in inner:
            return _unwrap(inner.strip())
    return line


def _without(text: str, calls: Sequence[FoundCall]) -> str:
    ends, starts = [0, *(each.end for each in calls)], [*(each.start for each in calls), len(text)]
    return "\n".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _fenced_call(text: str) -> list[FoundCall]:
    """A call in a block of JSON, as AgentGym asks for it."""
    found: list[FoundCall] = []
    for block in _BLOCK.finditer(text):
        try:
            data = load_json((block[1] if block[1] is not None else block[2]).strip())
        except MalformedCall:
            continue
        if is_call(data):
            found.append(FoundCall(block.start(), block.end(), (load_call(_without_thought(data)),)))
    return found


def _without_thought(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if key != "thought"}


# --- listed actions ------------------------------------------------------------------------------------------------


def normalise(action: str) -> str:
    """Reduce an action to what tells it from others: no case, no article, no mark-up, no full stop."""
    bare = _unwrap(action.strip()).strip("\"'“”‘’ ").rstrip(".!").rstrip()
    return " ".join(word for word in bare.casefold().split() if word not in ("a", "an", "the"))


def settle(action: str, listed: Sequence[str]) -> ParsedReply:
    """Take the listed action that is meant, where there is exactly one; any other text stays as it is."""
    chosen = _choose(action, listed)
    if len(chosen) > 1:
        named = " or ".join(f"'{each}'" for each in chosen[:4])
        return refuse(f"Your action may be {named}. Write one of them, word for word.")
    return accept(*(chosen or (action,)))


def _choose(action: str, listed: Sequence[str]) -> tuple[str, ...]:
    if action in listed:
        return (action,)
    meant = normalise(action)
    return tuple(dict.fromkeys(each for each in listed if normalise(each) == meant))
