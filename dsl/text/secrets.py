"""Secrets that are written into a recipe, found by their shape or by the name of their key.

Each text is first searched for a literal part of each shape, which costs little; an expression is compiled only for a
text that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ..diagnostics import Diagnostic
from .node import Entry, ListNode, MapNode, Node, ScalarNode

__all__ = ["find_secrets"]

_SHAPES = (
    ("an OpenAI or Anthropic key", "sk-", r"\bsk-(?=[\w-]*\d)[\w-]{20,}"),
    ("a Stripe key", "k_live_", r"\b[rs]k_live_\w{16,}"),
    ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    ("an AWS key", "AKIA ASIA", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})"),
    ("a GitLab token", "glpat-", r"\bglpat-[\w-]{20,}"),
    ("a Google key", "AIza", r"\bAIza[\w-]{35}"),
    ("a Slack token", "xox slack.com", r"\bxox[a-z]-[\w-]{10,}|hooks\.slack\.com/services/\w+/\w+/\w+"),
    ("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a SendGrid key", "SG.", r"\bSG\.[\w-]{20,}\.[\w-]{40,}"),
    ("a JSON web token", "eyJ", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    ("a private key", "-----BEGIN", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a password in an address", "://", r"://[^/\s:@]*:(?![^/\s@]*\$\{)[^/\s@]+@"),
    ("a bearer token", "earer EARER", r"(?i:\bbearer\s+)(?!\$\{)(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}"),
    (
        "a key",
        "key KEY Key oken OKEN ecret ECRET assw ASSW",
        (
            r"(?i:(?:api|access|secret|private|auth)[_-]?key|token|secret|passw(?:or)?d)[\"']?\s*[=:]\s*[\"']?"
            r"(?!\$\{)(?=[\w+/=.-]*\d)[\w+/=.-]{16,}"
        ),
    ),
)
"""What it is, its literal parts (one of several), and its form."""
_WORDS = {"token", "password", "passwd", "passphrase", "secret", "secrets", "apikey", "credential", "credentials"}
_PAIRS = {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("auth", "key")}
_VOCABULARY = {"bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "start", "end", "special", "think", "image"}


def find_secrets(root: Node) -> Iterator[Diagnostic]:
    """Report each text that is a secret or contains one; one that comes from `${env:NAME}` does not count."""
    for entry, node in _texts(root, None):
        text = node.text.value
        what = _shape(text)
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


def _shape(text: str) -> str | None:
    fitting = ((what, form) for what, marks, form in _SHAPES if any(mark in text for mark in marks.split()))
    return next((what for what, form in fitting if re.search(form, text)), None)


@lru_cache(maxsize=1024)
def _names_secret(name: str) -> bool:
    lower = name.lower()
    if not lower.endswith((*_WORDS, "key")):
        return False
    words = [word for word in re.split(r"[\W_]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()) if word]
    if not words or _VOCABULARY & set(words):
        return False
    return words[-1] in _WORDS or tuple(words[-2:]) in _PAIRS
