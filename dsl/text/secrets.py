"""Secrets that are written into a recipe, found by their shape or by the name of their key.

Each text is first searched for what any of the shapes begins with, which costs little; expressions are compiled only
for a text that has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from ..diagnostics import Diagnostic
from .node import Entry, ListNode, MapNode, Node, ScalarNode

__all__ = ["find_secrets"]

_SHAPES = (
    ("an OpenAI or Anthropic key", r"\bsk-(?=[\w-]*\d)[\w-]{20,}"),
    ("a Stripe key", r"\b[rs]k_live_\w{16,}"),
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})"),
    ("a GitLab token", r"\bglpat-[\w-]{20,}"),
    ("a Google key", r"\bAIza[\w-]{35}"),
    ("a Slack token", r"\bxox[a-z]-[\w-]{10,}|hooks\.slack\.com/services/\w+/\w+/\w+"),
    ("an npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a SendGrid key", r"\bSG\.[\w-]{20,}\.[\w-]{40,}"),
    ("a JSON web token", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a password in an address", r"://[^/\s:@]*:(?![^/\s@]*\$\{)[^/\s@]+@"),
    ("a bearer token", r"(?i:\bbearer\s+)(?!\$\{)(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}"),
    (
        "a key",
        (
            r"(?i:(?:api|access|secret|private|auth)[_-]?key|token|secret|passw(?:or)?d)[\"']?\s*[=:]\s*[\"']?"
            r"(?!\$\{)(?=[\w+/=.-]*\d)[\w+/=.-]{16,}"
        ),
    ),
)
_MARKS = (
    *(
        "sk-",
        "k_live_",
        "hf_",
        "AKIA",
        "ASIA",
        "gh",
        "github_pat_",
        "glpat-",
        "AIza",
        "xox",
        "slack.com",
        "npm_",
        "SG.",
        "eyJ",
    ),
    *("-----BEGIN", "://", "earer", "EARER", "key", "KEY", "oken", "OKEN", "ecret", "ECRET", "assw", "ASSW"),
)
_WORDS = {"token", "password", "passwd", "passphrase", "secret", "secrets", "apikey", "credential", "credentials"}
_PAIRS = {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("auth", "key")}
_VOCABULARY = {"bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "start", "end", "special", "think", "image"}


def find_secrets(root: Node) -> Iterator[Diagnostic]:
    """Report each text that is a secret or contains one; one that comes by `${env:NAME}` is none."""
    for entry, node in _texts(root, None):
        text = node.text.value
        what = _shape(text) if any(mark in text for mark in _MARKS) else None
        named = entry is not None and _names_secret(entry.name) and text and "${" not in text
        if what is None and not named:
            continue
        key = entry.name.rpartition(".")[2] if entry else ""
        name = re.sub(r"\W+", "_", key).upper() if named else _VARIABLES.get(what or "", "SECRET")
        subject = f"'{key}' must come from an environment variable" if named else f"this has {what} in it"
        yield Diagnostic(
            code="literal-secret",
            message=f"{subject}: secrets do not belong in a recipe",
            span=node.span,
            help=f"write {key}: ${{env:{name}}}"
            if named
            else f"put ${{env:{name}}} in its place, and set that variable",
        )


_VARIABLES = {
    "a password in an address": "PASSWORD",
    "a Hugging Face token": "HF_TOKEN",
    "a GitHub token": "GITHUB_TOKEN",
}


def _texts(node: Node, entry: Entry | None) -> Iterator[tuple[Entry | None, ScalarNode]]:
    if isinstance(node, MapNode):
        for each in node.entries:
            yield from _texts(each.value, each)
    elif isinstance(node, ListNode):
        for item in node.items:
            yield from _texts(item, entry)
    elif isinstance(node.value, str):
        yield entry, node


@cache
def _expressions() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((what, re.compile(shape)) for what, shape in _SHAPES)


def _shape(text: str) -> str | None:
    return next((what for what, shape in _expressions() if shape.search(text)), None)


@lru_cache(maxsize=1024)
def _names_secret(name: str) -> bool:
    lower = name.lower()
    if not any(word in lower for word in ("key", "token", "secret", "pass", "credential")):
        return False
    words = [word for word in re.split(r"[\W_]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()) if word]
    if not words or _VOCABULARY & set(words):
        return False
    return words[-1] in _WORDS or tuple(words[-2:]) in _PAIRS
