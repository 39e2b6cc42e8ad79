"""A judge of pairs that needs no model: it prefers the conversation that won, and of two that did the shorter.

It speaks the OpenAI chat completions form on this machine, and goes by the prompt alone: by what the environment is
shown there to have answered last. It knows one game, TextCraft in its terse words.

    python bench/referee.py [--port 8000]          then: agym run studies/iterative
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["refereeing", "verdict"]

_WON = "reached "
"""How the environment's answer to the last action of a game that is won begins."""


def verdict(prompt: str) -> str:
    """The answer to a prompt that shows conversations A and B."""
    _, _, rest = prompt.partition("Conversation A:\n")
    a, _, b = rest.partition("\n\nConversation B:\n")
    worth_a, worth_b = (_worth(each.partition("\n\n")[0].splitlines()) for each in (a, b))
    if worth_a == worth_b:
        return "better: tie"
    return f"better: {'A' if worth_a > worth_b else 'B'}"


def _worth(lines: Sequence[str]) -> float:
    """0 where it is lost; else higher, the fewer messages it took."""
    last = json.loads(lines[-1]) if lines else {}
    return 1 / len(lines) if str(last.get("environment", "")).startswith(_WON) else 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": verdict(body["messages"][-1]["content"])}
        content = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def refereeing(port: int = 0) -> Iterator[str]:
    """A referee on this machine while the block lasts, at the address given; on a free port unless one is named."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    with refereeing(parser.parse_args().port) as url:
        print(f"sits at {url}; Enter ends it")
        sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
