"""What the pages are like: rewrites `data/pages.txt` and `data/words.txt`.

python -m agym.envs.miniwob.solvability [PAGE...]

Each page is played twice in the same way, with a neighbour the second time. What plays out differently is left out, and
is in no split. Then the expert is tried.
"""

from __future__ import annotations

import re
import sys
from random import Random

from ..errors import EnvError
from ..tables import read_table, write_table
from .env import MiniWob, create
from .pages import NUMBERS, find_html
from .solve import SOLVERS

__all__ = ["plays_alike", "rate_page"]

NUM_PLAYED = 2
NUM_SOLVED = 3
NUM_ACTIONS = 3


def play_randomly(env: MiniWob, task: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Observations and rewards of a few random actions."""
    rng, seen, rewards = Random(task), [env.reset(task, 0).text], [0.0]
    for _ in range(NUM_ACTIONS):
        step = env.step(env.noise_action(rng) or "wait")
        seen.append(step.observation.text)
        rewards.append(step.reward)
        if step.ended:
            break
    return tuple(seen), tuple(rewards)


def plays_alike(first: MiniWob, second: MiniWob, page: str, words: set[str]) -> bool:
    for number in NUMBERS["test"][:NUM_PLAYED]:
        task = f"{page}-{number}"
        seen = play_randomly(first, task)
        words.update(re.findall(r"\S+", " ".join(seen[0])))
        if play_randomly(second, task) != seen:
            return False
    return True


def rate_page(first: MiniWob, second: MiniWob, page: str) -> tuple[str, str]:
    """Count the tasks that the expert solves, and collect the words seen on the page."""
    words: set[str] = set()
    try:
        if not plays_alike(first, second, page, words):
            return "left-out", ""
    except EnvError as error:
        print(page, error, file=sys.stderr)
        return "left-out", ""
    seen = " ".join(sorted(words))
    if page not in SOLVERS:
        return "-", seen
    tried = NUMBERS["test"][:NUM_SOLVED]
    won = sum(first.expert(f"{page}-{number}", 0) is not None for number in tried)
    return f"{won}/{len(tried)}", seen


def main() -> None:
    pages = sys.argv[1:] or sorted(file.stem for file in (find_html() / "miniwob").glob("*.html"))
    first, second = create({}), create({})
    try:
        for page in pages:
            cells = rate_page(first, second, page)
            print(page, cells[0], flush=True)
            for file, cell in zip(("pages.txt", "words.txt"), cells, strict=True):
                rows = {**read_table(__package__, file), page: cell}
                write_table(__package__, file, dict(sorted(rows.items())))
    finally:
        first.close()
        second.close()


if __name__ == "__main__":
    main()
