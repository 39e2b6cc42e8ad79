"""Screens the generators of an installed reasoning-gym and rewrites the frozen lists:

    python -m agym.envs.reasoning_gym.solvability

Each makes the same problems twice in this process, whatever the state of the process's own random generators, four
times side by side in threads, and in processes with other hash seeds. One that draws from the process's own randomness,
or differs anywhere, is left out, and so is one that fails. `UNSAFE` are those whose verifiers run what the agent says,
`ENDLESS` those that a short answer keeps busy.

A verifier must not accept wrong answers. Another problem's answer may be right by chance, and what is nearly right may
earn a little: so no single answer may earn more than half on average, over some dozens of problems that have another
answer. It is tested with a few constants, each of those problems' own answers, and for each problem its own answer, if
it is all numbers, with every number replaced by NaN, which some comparisons let pass.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from statistics import fmean
from typing import Any

import numpy as np
import reasoning_gym
from reasoning_gym.factory import DATASETS

from ..tables import write_table
from .generators import ReasoningProblem

__all__ = ["ENDLESS", "UNSAFE", "digest_problems", "rate_wrong_answers", "screen_generator"]

UNSAFE = (
    *("binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24"),
    *("simple_integration", "spiral_matrix", "string_insertion"),
)
ENDLESS = ("propositional_logic", "rubiks_cube", "rush_hour")
_REASONS: Mapping[str, str] = {
    **dict.fromkeys(UNSAFE, "its verifier runs the answer as a program"),
    **dict.fromkeys(ENDLESS, "a short answer can keep its verifier busy without end"),
    **dict.fromkeys(("bf", "tower_of_hanoi"), "it writes to the terminal"),
    "time_intervals": "it starts from today's date",
    "zebra_puzzles": "it needs a package that wants a compiler",
}
"""What playing does not show."""
_NUM = 6
_NUM_SCORED = 18
"""Problems of each half that wrong answers are tried on."""
_WRONG = ("0", "nan", "a")
_MOST = 0.5
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def make_problems(name: str, num: int = _NUM) -> list[Any]:
    halves = [reasoning_gym.create_dataset(name, seed=seed, size=num) for seed in (0, 1_000_000)]
    return [(maker, maker[number]) for maker in halves for number in range(num)]


def digest_problems(name: str) -> str:
    told = [(entry["question"], entry["answer"]) for _, entry in make_problems(name)]
    return sha256(json.dumps(told, default=str).encode()).hexdigest()[:16]


def screen_generator(name: str) -> tuple[str, str]:
    """Screen a generator: the share of its own answers that it accepts, or the reason to leave it out."""
    if name in _REASONS:
        return "", _REASONS[name]
    try:
        alone = _alone(name)
        with ThreadPoolExecutor(4) as threads:
            together = set(threads.map(digest_problems, [name] * 4))
        made = make_problems(name)
        right = sum(e["answer"] is not None and m.score_answer(answer=e["answer"], entry=e) == 1.0 for m, e in made)
        wrong = rate_wrong_answers(name)
    except Exception as error:
        return "", f"it fails: {type(error).__name__}: {' '.join(str(error).split())[:80]}"
    if alone is None:
        return "", "it draws from the process's own source of chance"
    if together != {alone}:
        return "", "threads disturb each other in it"
    if wrong > _MOST:
        return "", f"a wrong answer earns {wrong:.2f} on average"
    return f"{right}/{len(made)} {alone}", ""


def rate_wrong_answers(name: str) -> float:
    """Highest average score of one answer, or one kind of answer, over problems that have another."""
    made = [ReasoningProblem(entry, maker) for maker, entry in make_problems(name, _NUM_SCORED)]
    own = [(problem.answer or "").strip() for problem in made]
    tried = [[answer] * len(made) for answer in (*_WRONG, *own)] + [[_no_number(answer) for answer in own]]
    return max(_mean_of_wrong(made, own, answers) for answers in tried)


def _no_number(answer: str) -> str:
    return answer if any(map(str.isalpha, answer)) else _NUMBER.sub("NaN", answer)


def _mean_of_wrong(made: Sequence[ReasoningProblem], own: Sequence[str], answers: Sequence[str]) -> float:
    rows = zip(made, own, answers, strict=True)
    return fmean([problem.score(answer) for problem, right, answer in rows if answer != right] or [0.0])


def _alone(name: str) -> str | None:
    """Digest of its problems; None if they depend on the process's own randomness or change it."""
    digests = set()
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), str(np.random.get_state())
        digests.add(digest_problems(name))
        if before != (random.getstate(), str(np.random.get_state())):
            return None
    return digests.pop() if len(digests) == 1 else None


def digest_elsewhere(names: Iterable[str], hash_seed: str) -> Mapping[str, str]:
    command = [sys.executable, "-m", f"{__package__}.solvability", *names]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    rows = {}
    for name in sorted(DATASETS):
        rows[name] = screen_generator(name)
        print(name, *rows[name], flush=True)
    solid = {name: found for name, (found, reason) in rows.items() if not reason}
    for hash_seed in ("1", "4242"):
        digests = digest_elsewhere(solid, hash_seed)
        for name in [name for name in solid if solid[name].split()[1] != digests[name]]:
            rows[name] = "", "it goes another way under another hash seed"
            del solid[name]
    write_table(__package__, "generators.txt", solid)
    write_table(__package__, "left_out.txt", {name: reason for name, (_, reason) in rows.items() if reason})


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps({name: digest_problems(name) for name in sys.argv[1:]}))
    else:
        main()
