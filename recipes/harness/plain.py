"""An agent of its own: a plain loop with OpenAI's client. It plays one episode; its task is on standard input.

It needs the package `openai` alone.
"""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

from openai import OpenAI


def act(action: str) -> Any:
    """Take an action in the environment."""
    request = Request(
        os.environ["AGYM_SESSION_URL"] + "/step",
        json.dumps({"action": action}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urlopen(request) as reply:
        return json.load(reply)


def main() -> None:
    task = json.load(sys.stdin)
    client = OpenAI()
    messages: list[Any] = [{"role": "system", "content": task["prompt"]}] if task["prompt"] else []
    messages.append({"role": "user", "content": task["observation"]})
    for _ in range(task["turns"]):
        reply = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages)
        message = reply.choices[0].message
        step = act(message.content or "")
        print(f"{message.content!r} -> {step['observation']!r}", file=sys.stderr)
        if step["done"]:
            break
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": step["observation"]})
    print(json.dumps({}))


if __name__ == "__main__":
    main()
