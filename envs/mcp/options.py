"""What a user may choose about an MCP server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadOption
from ..options import read_options
from ..protocol import Json

__all__ = ["MCPOptions", "read_mcp_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MCPOptions:
    tasks_file: str = ""
    """JSON lines, one task each."""
    command: tuple[str, ...] = ()
    """Program and arguments that start the server."""
    url: str = ""
    """A server that runs already."""
    tools: tuple[str, ...] = ()
    """What the agent may use; everything if empty."""
    excluded: tuple[str, ...] = ()
    """What the agent may not use of these."""
    cached: tuple[str, ...] = ()
    """Tools that always answer the same arguments the same way: their results are kept, across episodes."""
    files: str = ""
    """Folder that is copied into each episode's scratch folder before the server starts."""
    keep: bool = False
    """One connection for episode after episode, for a server that remembers nothing of them."""
    list_tools: bool = True
    """Whether the task comes with a list of the tools; with `format: tools` the chat template shows them already."""
    timeout_s: float = 20
    """Longest wait for one call."""
    max_steps: int = 30
    """Most actions in one episode, understood or not."""


def read_mcp_options(given: Mapping[str, Json]) -> MCPOptions:
    """Read the options of a server and its tasks; those of an example if neither is given."""
    example = {} if given.keys() & {"tasks_file", "command", "url"} else _EXAMPLE
    options = read_options(MCPOptions, {**given, **example})
    if not options.tasks_file:
        raise BadOption("mcp needs the option 'tasks_file', a file of tasks")
    if bool(options.command) == bool(options.url):
        raise BadOption("mcp needs either the option 'command' or the option 'url'")
    if options.files and options.url:
        raise BadOption("mcp option 'files' goes with 'command': a server at a 'url' has no scratch folder")
    if options.files and not Path(options.files).expanduser().is_dir():
        raise BadOption(f"mcp option 'files' must be a folder, and there is none at '{options.files[:200]}'")
    return options


_EXAMPLE: Mapping[str, Json] = {
    "command": (sys.executable, "-m", f"{__package__}.example"),
    "tasks_file": str(Path(__file__).parent / "data" / "example.jsonl"),
}
