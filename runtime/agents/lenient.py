"""Lenient reading: one normaliser for every format, which finds the action of a reply in any form that models give it.

It looks for tool calls of any dialect, lines that begin with `Action:` or `Answer:`, tags, code blocks, a reply that is
nothing but one marked-up line, and a line that is one of the actions that the environment lists. Labels and tags are
looked for outside of calls and code. All that is found must agree: two different actions count as none. What a reply
says after its action and `Observation:` is cut and never used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from ...dsl.model.recipe import Format
from .calls import (
    JSON_HINT,
    FoundCall,
    MalformedCall,
    ToolCall,
    Untyped,
    decode_json,
    find_calls,
    load_call,
    load_json,
    load_written,
    mask,
)
from .messages import ParsedReply, accept, refuse
from .toolbox import Toolbox, properties_of

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
    hint: str = JSON_HINT
    """How the model writes a call."""

    def read(self, answer: str, listed: Sequence[str] = ()) -> ParsedReply:
        """Read a reply without its thoughts; `listed` are the actions that the environment lists."""
        if self.format is Format.CODE and (found := self.strict(answer)).actions:
            return found
        try:
            return self._read(self._split(_open_block(_END_MARKS.sub("", answer))), listed)
        except _SeveralLines:
            return refuse("Text follows the action. End your reply after the line 'Action:'.")
        except MalformedCall as error:
            return refuse(str(error).replace(JSON_HINT, self.hint))

    def _read(self, reply: _Reply, listed: Sequence[str]) -> ParsedReply:
        calls, more = self._load_calls(reply)
        found = list(self._find(reply, listed, with_calls=bool(calls)))
        starts = [each.start for each in reply.calls] + [each.at for each in found]
        line = reply.text.strip()
        if not starts and "\n" not in line and (_unwrap(line) != line or _choose(line, listed)):
            return settle(_unwrap(line), listed)
        if not starts or not (self.thinking or not reply.text[: min(starts)].strip(_MARKUP)):
            return self.strict(reply.text)
        said = [*more, *(each.action for each in found if each.action.strip())]
        said += [line for line in reply.prose[min(starts) :].splitlines() if _choose(line, listed)]
        return self._take(calls, said, listed) if calls or said else refuse(found[0].if_empty)

    def _take(self, calls: Sequence[str], said: Sequence[str], listed: Sequence[str]) -> ParsedReply:
        """Take the one action that all agree on, or the calls if nothing names another action."""
        limit = self.limit if self.format is Format.TOOLS else 1
        called, others = ([settle(each, listed) for each in actions] for actions in (calls, dict.fromkeys(said)))
        if len(called) > limit and len(set(called)) > 1:
            return refuse(f"Your reply has {len(calls)} tool calls. Write no more than {limit}.")
        if any(each not in (called or others[:1]) for each in others):
            return refuse(_SEVERAL)
        return accept(*calls[:limit]) if len(calls[:limit]) > 1 else (called or others)[0]

    # --- parts of a reply

    def _split(self, text: str) -> _Reply:
        """Separate calls and code from prose, up to an observation that follows an action."""
        reply = self._scan(text)
        if self.format is Format.REACT and (at := _find_inline_label(reply.prose)) is not None:
            reply = self._scan(f"{text[:at]}\n{text[at + 1 :]}")
        acts = [each.start() for each in reply.blocks] if self.format is Format.CODE else []
        acts = acts or [
            *(each.start for each in reply.calls),
            *(each.at for each in _labels(reply.prose) if each.kind in _ACTS),
            *(each.start() for each in _TAG.finditer(reply.prose)),
        ]
        first = min(acts, default=-1)
        cut = next((each.start() for each in _OBSERVED.finditer(reply.prose) if each.start() > first), None)
        return reply if cut is None else self._scan(reply.text[:cut])

    def _scan(self, text: str) -> _Reply:
        blocks = list(_BLOCK.finditer(text))
        has_code = self.format is Format.CODE and blocks
        calls = [] if has_code else find_calls(text, fenced=True, bare=self.format is Format.TOOLS)
        if not calls and self.format is Format.TOOLS and self.strict(text).actions:
            calls = [FoundCall(0, len(text), ())]
        places: list[_Place] = [(each.start, each.end, each) for each in calls]
        places += [(*each.span(), each) for each in blocks]
        places += [(start, end, None) for start, end in _heredocs(text)]
        # a mark within a call or within code is part of it: what begins first contains what begins inside it
        outer, end = list[_Place](), 0
        places.sort(key=lambda each: each[0])
        for place, following in zip(places, [*places, None][1:], strict=True):
            if place[0] >= end and not (following and _wraps(place, following)):
                outer.append(place)
                end = place[1]
        kept = tuple(each for *_, each in outer if isinstance(each, FoundCall))
        return _Reply(
            text=text,
            calls=kept,
            blocks=tuple(each for *_, each in outer if isinstance(each, re.Match)),
            prose=mask(text, [(start, end) for start, end, _ in outer]),
            spoken=mask(text, [(each.start, each.end) for each in kept]),
        )

    def _load_calls(self, reply: _Reply) -> tuple[list[str], list[str]]:
        """Load the calls of a reply, and those that accompany calls in the model's own dialect."""
        if self.format is Format.TOOLS and (found := self.strict(reply.text)).actions:
            others = [each for each in reply.calls if not reply.text.startswith("<tool_call>", each.start)]
            return [self._check(action) for action in found.actions], [*self._load_others(others)]
        if problem := next((each.problem for each in reply.calls if each.problem), ""):
            raise MalformedCall(problem)
        if reply.calls and not any(each.calls for each in reply.calls):
            raise MalformedCall(f"The tool call has another form. {JSON_HINT}")
        return [self.box.to_action(call) for each in reply.calls for call in each.calls], []

    def _load_others(self, found: Sequence[FoundCall]) -> Iterator[str]:
        for call in chain.from_iterable(each.calls for each in found):
            with suppress(MalformedCall):
                yield self.box.to_action(call)

    def _find(self, reply: _Reply, listed: Sequence[str], *, with_calls: bool) -> Iterator[_Found]:
        """Find actions outside of calls; in a reply with calls, only what could be an action."""
        has_code = self.format is Format.CODE and reply.blocks
        marked = [] if has_code else [*self._find_labels(reply), *self._find_tags(reply)]
        if with_calls:
            marked = [each for each in marked if self._may_act(each.action)]
        yield from marked
        if "```" in reply.prose:
            return
        labelled = max((each.at for each in marked if each.is_label), default=-1)
        for block in reply.blocks:
            action = _content(block)
            alone = not (marked or with_calls)
            if alone or (block.start() > labelled and self._is_command(block, listed)):
                yield _Found(block.start(), action, "The code block is empty. Write the action in it.")

    def _is_command(self, block: re.Match[str], listed: Sequence[str]) -> bool:
        """Whether a block next to another action is an action too, and not what a thought is about."""
        action = _content(block)
        bare = block["body"] is not None and not block["language"] and "\n" not in action
        return bare and self._may_act(action) and (not listed or bool(_choose(action, listed)))

    def _may_act(self, action: str) -> bool:
        try:
            return bool(self.box.to_calls(action))
        except MalformedCall:
            return False

    # --- labels and tags

    def _find_labels(self, reply: _Reply) -> Iterator[_Found]:
        text = mask(reply.spoken, (each.span() for each in _TAG.finditer(reply.prose)))
        labels = list(_labels(reply.prose))
        for label, following in zip(labels, [*labels, None][1:], strict=True):
            if label.kind in _ACTS:
                action = _body(text[label.start : label.end], label.unclosed)
                if label.kind == "answer":
                    action = action and self._command("answer", action)
                elif action and following is not None and following.kind == "input":
                    given = _body(text[following.start : following.end], following.unclosed)
                    action = self._with_input(action, given)
                else:
                    action = self._check(action)
                yield _Found(label.at, action, "The line 'Action:' is empty. Write the action after it.", is_label=True)

    def _find_tags(self, reply: _Reply) -> Iterator[_Found]:
        for tag in _TAG.finditer(reply.prose):
            name, text = tag[1].lower(), _unfence(reply.spoken[tag.start(2) : tag.end(2)])
            action = self._check(text) if name == "action" or not text else self._command(name, text)
            yield _Found(tag.start(), action, "The tag is empty. Write the action in it.")

    def _check(self, action: str) -> str:
        """Check an action that is written as calls; one that names no tool of ours is left to the environment."""
        calls = load_written(action)
        if not calls or (self.box.is_act and any(call.name != self.box.tools[0].name for call in calls)):
            return action
        checked = [self.box.to_action(call) for call in calls]
        return checked[0] if len(checked) == 1 else action

    def _with_input(self, action: str, given: str) -> str:
        """Join an action to its `Action Input:`, as a call where it names a tool."""
        nothing = given.lower() in _NOTHING
        try:
            return self.box.to_action(load_call({"name": action, "arguments": {} if nothing else load_json(given)}))
        except MalformedCall:
            if any(tool.name == action for tool in self.box.tools) and (nothing or given.startswith("{")):
                raise
        return self._check(action) if nothing else self._command(action, given)

    def _command(self, name: str, text: str) -> str:
        """Write a command: a call where a tool of that name takes one argument."""
        for tool in self.box.tools:
            if tool.name == name and len(properties := properties_of(tool)) == 1:
                return self.box.to_action(ToolCall(name, {next(iter(properties)): Untyped(text)}))
        return text if name == "answer" else f"{name} {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """A reply, and where calls and code stand in it."""

    text: str
    calls: tuple[FoundCall, ...]
    blocks: tuple[re.Match[str], ...]
    prose: str
    """Without calls and code."""
    spoken: str
    """Without calls."""


_Place: TypeAlias = tuple[int, int, FoundCall | re.Match[str] | None]


@dataclass(frozen=True, slots=True)
class _Found:
    """An action that a reply says, in whichever form, and where."""

    at: int
    action: str
    if_empty: str
    is_label: bool = False


@dataclass(frozen=True, slots=True)
class _Label:
    """A label, and where what it labels stands."""

    at: int
    kind: str
    start: int
    end: int
    unclosed: str
    """Emphasis that begins before the label and ends after the action."""


class _SeveralLines(Exception):
    """What follows a label is more than one line, and no block."""


# --- marks ---------------------------------------------------------------------------------------------------------

_MARKUP = " \t\n*_`#>-"
_NOTHING = ("", "{}", "none", "null", "n/a")
"""What models write as the input of an action that takes none."""
_END_MARKS = re.compile(r"(?:\s*<\|(?:eot_id|eom_id|im_end)\|>)+\s*\Z")
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
_WORDS = f"({'|'.join(sorted(_KIND_OF, key=len, reverse=True))})"
_LABEL = re.compile(
    rf"^([ \t>#*_`-]*(?:\d+[.)][ \t]*[*_`]*)?){_WORDS}(?:[ \t]*\d+)?[ \t]*([*_`]*)[ \t]*[:：]([*_`]*)"
    rf"|^[ \t]*#{{2,6}}[ \t]+[*_]*{_WORDS}[*_]*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE = re.compile(r"[ \t](?=[*_`]*Action[*_`]*[:：])")
_TAG = re.compile(r"<(action|answer|search)>((?:(?!<).)*)</\1>", re.IGNORECASE | re.DOTALL)
_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>`{3,})(?P<language>[^`\n]*)\n"
    r"(?P<body>(?:(?![ \t]*(?P=fence))[^\n]*\n)*)[ \t]*(?P=fence)`*[ \t]*$"
    r"|```[\w+-]*[ \t]*\n(?P<rest>(?:(?!```).)*)```"
    r"|```(?P<line>(?:(?!```)[^\n])+)```",
    re.DOTALL | re.MULTILINE,
)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_PAIRS = ("```", "**", "__", "`", "*")
_FRAMED = re.compile(
    r"^[ \t*_]*(?:(?:next |final |my )?action|(?:final |my )?answer)(?:[ \t]*\d+)?[ \t]*[*_]*[ \t]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)


def _labels(prose: str) -> Iterator[_Label]:
    found = list(_LABEL.finditer(prose))
    for label, end in zip(found, [*(each.start() for each in found), len(prose)][1:], strict=True):
        kind = _KIND_OF[" ".join((label[2] or label[5]).lower().split())]
        before = label[1] or ""
        opened = before[len(before.rstrip("*_`")) :]
        # marks after the colon end those before the label, or else belong to the action
        start = label.start(4) if label[2] and (label[3] or not opened) else label.end()
        yield _Label(label.start(), kind, start, end, "" if label[3] or label[4] else opened)


def _find_inline_label(prose: str) -> int | None:
    """Find the space before the only `Action:` that follows a thought on its line, where no line begins with one."""
    labels, found = list(_labels(prose)), list[int]()
    for label in labels:
        end = prose.find("\n", label.start)
        found += [each.start() for each in _INLINE.finditer(prose, label.start, end if end >= 0 else len(prose))]
    return found[0] if len(found) == 1 and all(label.kind == "" for label in labels) else None


def _open_block(text: str) -> str:
    """Return the content of a block around the whole reply, if it is a reply with labels and not a program."""
    block = _BLOCK.fullmatch(text.strip())
    prose = block is not None and (block["language"] or "").strip().lower() in ("", "text", "markdown", "md")
    return _content(block) if block is not None and prose and _FRAMED.search(_content(block)) else text


def _content(block: re.Match[str]) -> str:
    text = next(each for each in (block["body"], block["rest"], block["line"]) if each is not None).strip("\n")
    return text if "\n" in text else text.strip()


def _heredocs(text: str) -> Iterator[tuple[int, int]]:
    """Texts that a shell command is given on the lines below it."""
    missing, at = set[str](), 0
    for opening in _HEREDOC.finditer(text):
        word = opening[2]
        if opening.start() >= at and word not in missing:
            if end := re.compile(rf"\n[ \t]*{word}[ \t]*$", re.MULTILINE).search(text, opening.end()):
                at = end.end()
                yield opening.start(), at
            else:
                missing.add(word)


def _wraps(place: _Place, following: _Place) -> bool:
    """Whether a block is only a frame around a call."""
    (start, _, block), (at, _, call) = place, following
    if not (isinstance(block, re.Match) and isinstance(call, FoundCall)):
        return False
    return re.fullmatch(r"[ \t]*`+\w*\s*", block.string[start:at]) is not None


def _unfence(section: str) -> str:
    text = section.replace("\0", " ").strip()
    block = _BLOCK.match(text)
    return text if block is None else _content(block).strip()


def _body(section: str, unclosed: str) -> str:
    """The action in what follows a label: a block, JSON, or one line before an empty one."""
    text = section.replace("\0", " ").strip()
    if _BLOCK.match(text):
        return _unfence(text)
    if text[:1] in ("{", "[") and (data := _json_of_lines(text)):
        return data
    paragraph = re.split(r"\n[ \t]*\n", text, maxsplit=1)[0].strip()
    if unclosed:
        paragraph = paragraph.removesuffix(unclosed[::-1]).strip()
    if "\n" in paragraph:
        raise _SeveralLines
    return _unwrap(paragraph)


def _json_of_lines(text: str) -> str:
    """JSON that begins a text, on one line; empty where other text follows at once."""
    try:
        data, end = decode_json(text, 0)
    except MalformedCall:
        return ""
    if not re.match(r"[ \t]*(?:\n[ \t]*\n|\Z)", text[end:]):
        return ""
    return json.dumps(data, ensure_ascii=False) if "\n" in text[:end] else text[:end]


def _unwrap(line: str) -> str:
    """Remove the mark-up around a whole line."""
    for mark in _PAIRS:
        inner = line[len(mark) : -len(mark)]
        if line.startswith(mark) and line.endswith(mark) and len(line) > 2 * len(mark) and mark not in inner:
            return _unwrap(inner.strip())
    return line


# --- listed actions ------------------------------------------------------------------------------------------------


def normalise(action: str) -> str:
    """Reduce an action to what distinguishes it from others: no case, no article, no mark-up, no full stop."""
    bare = _unwrap(action.strip().rstrip(".!").rstrip()).strip("\"'“”‘’ ").rstrip(".!").rstrip()
    words = bare.casefold().split()
    return " ".join([word for word in words if word not in ("a", "an", "the")] or words)


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
    meant = normalise(action) if listed else ""
    return tuple(dict.fromkeys(each for each in listed if meant and normalise(each) == meant))
