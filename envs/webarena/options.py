"""What a user may choose about WebArena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import BadOption, suggest
from ..options import read_options
from ..protocol import Json

__all__ = ["SITES", "WebArenaOptions", "read_webarena_options"]

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebArenaOptions:
    tasks_file: str = ""
    """WebArena's configuration of tasks; without it there are none."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Address of each site, without a slash at its end."""
    observation_tokens: int = 4096
    """Longest text of a page."""
    max_steps: int = 30
    """Most actions in one episode."""
    screenshots: bool = False
    """Whether each observation has a picture."""


def read_webarena_options(given: Mapping[str, Json]) -> WebArenaOptions:
    options = read_options(WebArenaOptions, given)
    if "tasks_file" in given and not Path(options.tasks_file).is_file():
        raise BadOption(f"webarena option 'tasks_file' must name a file; there is none at '{options.tasks_file[:200]}'")
    for site, address in options.hosts.items():
        if site not in SITES:
            raise BadOption(f"webarena has no site '{site[:40]}'{suggest(site, SITES)}")
        if not _is_address(address):
            raise BadOption(f"webarena's host of '{site}' must be an address such as http://127.0.0.1:7770")
    return replace(options, hosts={site: address.rstrip("/") for site, address in options.hosts.items()})


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
