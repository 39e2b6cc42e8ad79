"""What the pages are like: writes `data/pages.txt` and `data/words.txt` again.

python -m agym.envs.miniwob.solvability [PAGE...]

Each page is played twice in the same way, with a neighbour the second time. What goes another way is left out, and is
in no split. Then the expert is tried.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from random import Random

from ..errors import EnvError
from .env import MiniWob, create
from .pages import NUMBERS, html
from .solve import SOLVERS

__all__ = ["alike", "row"]

NUM_PLAYED = 2
NUM_SOLVED = 3
NUM_ACTIONS = 3
_DATA = Path(__file__).parent / "data"


def played(env: MiniWob, task: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """What is seen when something is done by chance."""
    rng, seen, rewards = Random(task), [env.reset(task, 0).text], [0.0]
    for _ in range(NUM_ACTIONS):
        step = env.step(env.noise_action(rng) or "wait")
        seen.append(step.observation.text)
        rewards.append(step.reward)
        if step.ended:
            break
    return tuple(seen), tuple(rewards)


def alike(first: MiniWob, second: MiniWob, page: str, words: set[str]) -> bool:
    for number in NUMBERS["test"][:NUM_PLAYED]:
        task = f"{page}-{number}"
        seen = played(first, task)
        words.update(re.findall(r"\S+", " ".join(seen[0])))
        if played(second, task) != seen:
            return False
    return True


def row(first: MiniWob, second: MiniWob, page: str) -> tuple[str, str]:
    """The page's line of each file."""
    words: set[str] = set()
    try:
        if not alike(first, second, page, words):
            return f"{page} left-out", ""
    except EnvError as error:
        print(page, error, file=sys.stderr)
        return f"{page} left-out", ""
    said = " ".join([page, *sorted(words)])
    if page not in SOLVERS:
        return f"{page} -", said
    tried = NUMBERS["test"][:NUM_SOLVED]
    won = sum(first.expert(f"{page}-{number}", 0) is not None for number in tried)
    return f"{page} {won}/{len(tried)}", said


def main() -> None:
    pages = sys.argv[1:] or sorted(file.stem for file in (html() / "miniwob").glob("*.html"))
    first, second = create({}), create({})
    try:
        for page in pages:
            rated, said = row(first, second, page)
            print(rated, flush=True)
            _put("pages.txt", rated)
            _put("words.txt", said or page)
    finally:
        first.close()
        second.close()


def _put(name: str, line: str) -> None:
    """In place of the page's line, or where it belongs."""
    file, page = _DATA / name, line.split()[0]
    head, *lines = file.read_text("utf-8").splitlines()
    kept = [each for each in lines if each.split()[0] != page]
    file.write_text("\n".join((head, *sorted((*kept, line)), "")), "utf-8")


if __name__ == "__main__":
    main()
