"""Removes secrets from text: the errors of libraries may quote a key or an address."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["redact"]

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")
_SHORTEST = 6
"""Shorter values are everyday words."""


def redact(text: str, environ: Mapping[str, str]) -> str:
    """Remove values of variables that are named like secrets, and users and passwords of addresses."""
    secrets = {value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= _SHORTEST}
    # the longest first: one may be a part of another
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _USER_IN_ADDRESS.sub("***@", text)
