"""From an episode's line to its turns with their tokens, as a page shows them.

Texts of tokens come from the run's own `tokenizer.json`, read by `tokenizers`; where either is missing there are no
tokens. Anything in a stranger's line that should be a number and is not becomes null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import exp, isfinite
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Decoder", "brief_turns", "first_difference", "open_tokenizer", "turns_of"]

_FOLDERS = ("model", "start")
"""Of a run, where its tokenizer may be."""
_LARGEST_TOKENIZER = 1 << 28
_LARGEST_ID = 1 << 32
_MOST_TEXT = 4000
"""Characters of a text that is read side by side."""
_UNFINISHED = "\ufffd"
_LARGEST_EXPONENT = 700.0


class Decoder(Protocol):
    """What a tokenizer is needed for."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str: ...


def open_tokenizer(run: Path) -> Decoder | None:
    """Open the tokenizer of a run; None where it has none, or nothing is installed that reads it."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    for folder in _FOLDERS:
        file = run / folder / "tokenizer.json"
        try:
            if file.is_file() and file.stat().st_size <= _LARGEST_TOKENIZER:
                return _Guarded(Tokenizer.from_str(file.read_text(encoding="utf-8")))
        except BaseException as error:
            if not _is_of_tokenizers(error):
                raise
    return None


class _Guarded:
    """A tokenizer of a stranger's file, whose failure only leaves out the text."""

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        try:
            return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        except BaseException as error:
            if not _is_of_tokenizers(error):
                raise
            return ""


def _is_of_tokenizers(error: BaseException) -> bool:
    """The package raises plain exceptions; `except Exception` does not catch a panic of its Rust code."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def turns_of(record: Mapping[str, Any], decoder: Decoder | None) -> list[dict[str, Any]]:
    """Describe the turns of an episode; an observation is the answer to its turn, as in the file."""
    known = None if decoder is None else _Remembering(decoder)
    return [
        {
            "number": number,
            "segment": turn["segment"],
            "purpose": turn.get("purpose", "act"),
            "reply": turn["reply"],
            "action": turn["action"],
            "observation": turn["observation"],
            "picture": turn.get("picture"),
            "reward": turn["reward"],
            "state": turn.get("state") or None,
            "seconds": turn.get("seconds"),
            "tool_calls": turn.get("tool_calls", []),
            "trained": turn.get("trained"),
            "tokens": None if known is None else _tokens(turn, record["segments"], known),
        }
        for number, turn in enumerate(record["turns"], 1)
    ]


def brief_turns(record: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what was said, without tokens and without the ends of very long texts."""
    names = ("action", "reply", "observation", "reward", "purpose")
    turns = [{name: _beginning(turn.get(name)) for name in names} for turn in record["turns"]]
    opening = [message["content"] for message in record["opening"] if message["role"] != "system"]
    return {"opening": _beginning("\n".join(opening)), "turns": turns}


def first_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> int | None:
    """Number of the first turn in which the agents act differently or are told different things; None if none."""
    told = [[record["opening"], *_deeds(record)] for record in (a, b)]
    pairs = zip_longest(*told)
    return next((max(number, 1) for number, (old, new) in enumerate(pairs) if old != new), None)


def _deeds(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The action of each turn, and the answer; for a reply that was not understood, all of it."""
    for turn in record["turns"]:
        action = turn["action"]
        yield turn["reply"] if action is None else action, turn["observation"]


def _beginning(value: Any) -> Any:
    return value[:_MOST_TEXT] + f"... ({len(value):,} characters)" if _is_long(value) else value


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _MOST_TEXT


def _tokens(turn: Mapping[str, Any], segments: Sequence[Any], decoder: Decoder) -> dict[str, list[Any] | None] | None:
    """List what is known about the sampled tokens of a turn, a list for each field; null if no token has it."""
    # in JSON 2.0 is a whole number too
    number_of_segment, start, end = (int(turn[name]) for name in ("segment", "start", "end"))
    if not 0 <= number_of_segment < len(segments):
        return None
    segment = segments[number_of_segment]

    def column(name: str) -> list[Any]:
        found = segment.get(name)
        return found if isinstance(found, list) else []

    ids, sampled = column("ids"), column("sampled")
    places = [at for at in range(start, min(end, len(ids))) if _at(sampled, at) == 1]
    trained = turn.get("trained")

    def reals(name: str) -> list[float | None]:
        values = column(name)
        return [_real(_at(values, at)) for at in places]

    logprobs = reals("logprobs")
    # a token that is not in the loss has 0 in place of the learner's log-prob
    learner = [None] * len(places) if trained is False else reals("learner_logprobs")
    advantage, versions = turn.get("advantage"), column("versions")
    columns: dict[str, list[Any]] = {
        "logprob": logprobs,
        "reference": reals("reference_logprobs"),
        "learner": learner,
        "advantage": [_advantage(advantage, at - start, number, len(places)) for number, at in enumerate(places)],
        "ratio": [_ratio(*each) for each in zip(learner, logprobs, strict=True)],
        "version": [_whole(_at(versions, at)) for at in places],
        "trained": [trained] * len(places),
    }
    known = {name: values if any(each is not None for each in values) else None for name, values in columns.items()}
    texts = _texts([ids[at] for at in places], decoder)
    return {"text": texts, "id": [_whole(ids[at]) for at in places], **known}


class _Remembering:
    """A tokenizer that decodes the same tokens once."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._texts: dict[tuple[int, ...], str] = {(): ""}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        key = tuple(ids)
        if key not in self._texts:
            self._texts[key] = self._decoder.decode(ids, skip_special_tokens=skip_special_tokens)
        return self._texts[key]


def _texts(ids: Sequence[Any], decoder: Decoder) -> list[str]:
    """The text that each token adds; a character in several tokens belongs to the last."""
    known = [each if type(each) is int and 0 <= each < _LARGEST_ID else 0 for each in ids]
    texts, begin, read = list[str](), 0, 0
    for end in range(1, len(known) + 1):
        before = decoder.decode(known[begin:read], skip_special_tokens=False)
        after = decoder.decode(known[begin:end], skip_special_tokens=False)
        # a few more tokens complete any character
        if after.endswith(_UNFINISHED) and end - read < 4 and end < len(known):
            texts.append("")
            continue
        texts.append(after[len(before) :])
        begin, read = read, end
    return texts


def _advantage(value: Any, place: int, number: int, count: int) -> float | None:
    if not isinstance(value, list):
        return _real(value)
    return _real(_at(value, number if len(value) == count else place))


def _ratio(learner: float | None, logprob: float | None) -> float | None:
    if learner is None or logprob is None or abs(learner - logprob) > _LARGEST_EXPONENT:
        return None
    return exp(learner - logprob)


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if 0 <= place < len(values) else None


def _real(value: Any) -> float | None:
    return value if type(value) in (int, float) and abs(value) < _LARGEST_ID and isfinite(value) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < _LARGEST_ID else None
