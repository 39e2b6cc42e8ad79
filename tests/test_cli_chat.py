"""`agym chat`: a conversation as lines come in, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from agym.commands.invocation.shell import Shell, UsageError
from agym.commands.model.chat import converse, read_system_prompt

from .conftest import Agym


class Terminal(io.BytesIO):
    """Standard input at a terminal."""

    def isatty(self) -> bool:
        return True


def shell(stdin: io.BytesIO) -> Shell:
    out = io.StringIO()
    return Shell(stdin=stdin, out=out, err=io.StringIO(), cwd=Path(), environ={}, width=80, colour=False)


class Parrot:
    """A model that repeats what was said last, letter by letter, and notes what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

    def __call__(self, messages: Sequence[Mapping[str, str]]) -> Iterable[str]:
        self.shown.append([f"{each['role']}: {each['content']}" for each in messages])
        return iter(messages[-1]["content"])


def test_each_line_is_answered_with_all_that_was_said_before() -> None:
    surroundings, model = shell(io.BytesIO(b"one\n\n  two  \n")), Parrot()
    converse(model, "be brief", surroundings)
    assert surroundings.out.getvalue() == "one\ntwo\n"
    assert model.shown == [
        ["system: be brief", "user: one"],
        ["system: be brief", "user: one", "assistant: one", "user: two"],
    ]


def test_a_terminal_is_asked_and_ends_its_line() -> None:
    surroundings = shell(Terminal(b"hey\n"))
    converse(Parrot(), None, surroundings)
    assert surroundings.out.getvalue() == "> hey\n> \n"


def test_an_interrupted_reply_is_kept_as_far_as_it_came() -> None:
    shown: list[str] = []

    def stop_at_once(messages: Sequence[Mapping[str, str]]) -> Iterator[str]:
        shown.extend(each["content"] for each in messages)
        yield "half"
        raise KeyboardInterrupt

    surroundings = shell(io.BytesIO(b"one\ntwo\n"))
    converse(stop_at_once, None, surroundings)
    assert surroundings.out.getvalue() == "half\nhalf\n"
    assert shown == ["one", "one", "half", "two"]


def test_what_a_model_says_cannot_steer_the_terminal() -> None:
    surroundings = shell(io.BytesIO(b"go\n"))
    converse(lambda _: ["\x1b[2J", "a\tb\n", "\x9b1m"], None, surroundings)
    assert surroundings.out.getvalue() == "[2Ja\tb\n1m\n"


def test_the_system_prompt_is_that_of_the_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# x\n\n## System prompt\n\n`````\nWalk.\n\n```\ncode\n```\n`````\n\n## Use\n")
    assert read_system_prompt(tmp_path) == "Walk.\n\n```\ncode\n```"
    with pytest.raises(UsageError, match="holds no system prompt"):
        read_system_prompt(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("./nothing",), 3, "there is no folder './nothing'"),
        (("smollm2",), 3, "run 'agym models get smollm2'"),
        ((".", "--tokens", "0"), 2, "--tokens must be at least 1"),
        ((".", "--temperature", "nan"), 2, "--temperature at least 0"),
        ((".", "--card"), 2, "holds no system prompt"),
    ],
)
def test_what_cannot_be_talked_to_is_said(
    agym: Agym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    called = agym("chat", *words)
    assert called.code == code
    assert said in called.err
