"""The index of episodes: episodes read per second, bytes each, milliseconds of a filter, a page and a search.

    python bench/viewer.py [--episodes 1000000] [--folder FOLDER]

Makes episodes of about 6 KB each as a run writes them, in a folder that is kept if one is named. Limits: at least 5,000
episodes per second; filter and page below 200 ms and a search for words below 500 ms at the 95th percentile; below 500
bytes each without text.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory

import numpy as np
from agym.runtime.agents.messages import Message
from agym.runtime.learning.training_record import TrainingRecord
from agym.runtime.rollout.episode import Ending, Episode, Segment, Task, Turn
from agym.runtime.storage.episode_log import EpisodeEntry, EpisodePurpose, EpisodeTraining, episode_lines
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, compress_member
from agym.viewer.index import EpisodeIndex
from agym.viewer.queries import EpisodeFilter, Queries

GROUPS, SIZE = 32, 8
TURNS, PROMPT, REPLY, ANSWER = 5, 60, 12, 14
WORDS = (Path(__file__).parents[1] / "LICENSE").read_text(encoding="utf-8").lower().split()[:400]
"""For texts."""


def episode(
    draws: Random, task: int, index: int, *, turns: int | None = None, reply: int = REPLY, answer: int = ANSWER
) -> Episode:
    """An episode whose tokens take as much of its line as those of a run."""
    generator = np.random.default_rng(draws.randrange(2**32))
    num_turns = turns or draws.randint(2, 2 * TURNS - 2)
    played, ids, sampled = list[Turn](), PROMPT, [False] * PROMPT
    for number in range(num_turns):
        played.append(
            Turn(
                segment=0,
                start=ids,
                end=ids + reply,
                reply=text(draws, reply * 3 // 4),
                action=text(draws, 3) if draws.random() < 0.95 else None,
                observation=text(draws, answer * 3 // 4),
                reward=0.0,
                state=f"shown-{draws.randrange(2**64):016x}",
                sampling_s=0.2,
                env_s=0.001 * number,
            )
        )
        sampled += [True] * reply + [False] * answer
        ids = len(sampled)
    mask = np.array(sampled)
    success = draws.random() < 0.4
    return Episode(
        task=Task(environment=f"world-{task % 5}", id=f"task-{task % 500}", seed=task, difficulty=str(task % 3)),
        index=index,
        segments=(
            Segment(
                ids=generator.integers(0, 50_000, ids).astype(np.int32),
                sampled=mask,
                logprobs=np.where(mask, -generator.random(ids), 0).astype(np.float32),
                versions=np.where(mask, task % 1000, -1).astype(np.int32),
            ),
        ),
        turns=tuple(played),
        ending=Ending.DONE if success else Ending.HORIZON,
        horizon=2 * num_turns,
        score=float(success),
        success=success,
        opening=(Message("system", "You play a game."), Message("user", text(draws, 25))),
        seconds=3.0,
    )


def text(draws: Random, words: int) -> str:
    return " ".join(draws.choice(WORDS) for _ in range(words))


def step_lines(step: int) -> bytes:
    """The episodes of a step, as a run encodes them."""
    draws = Random(step)
    entries = [
        EpisodeEntry(episode=each, group=group, training=training(each))
        for group in range(GROUPS)
        for each in (episode(draws, step * GROUPS + group, index) for index in range(SIZE))
    ]
    return episode_lines(entries, purpose=EpisodePurpose.TRAIN, total_step=step, stage=f"stage-{step % 3}")


def training(played: Episode) -> EpisodeTraining:
    advantages = np.full(played.sampled_tokens, 0.5 if played.success else -0.25)
    record = TrainingRecord(reward=played.score, kept=True, turns=(True,) * len(played.turns), advantages=advantages)
    return EpisodeTraining(record=record, learner_logprobs=(None,), reference_logprobs=(None,))


def write_run(folder: Path, episodes: int, distinct: int = 40) -> tuple[int, int]:
    """Write a run of this many episodes; return its bytes, plain and compressed. Few steps are made, and written again
    with other numbers."""
    (folder / EPISODES).mkdir(parents=True)
    made = [step_lines(step) for step in range(min(distinct, -(-episodes // (GROUPS * SIZE))))]
    plain = 0
    with (folder / EPISODES / TRAIN_LOG).open("wb") as file:
        for step in range(-(-episodes // (GROUPS * SIZE))):
            lines = made[step % len(made)]
            was = step % len(made)
            lines = lines.replace(b'"total_step":%d,' % was, b'"total_step":%d,' % step)
            lines = lines.replace(b'"train-%d-' % was, b'"train-%d-' % step)
            plain += len(lines)
            file.write(compress_member(step, lines))
        return plain, file.tell()


FILTERS: dict[str, EpisodeFilter] = {
    "everything": EpisodeFilter(),
    "an environment's failures": EpisodeFilter(environments=("world-2",), success=False),
    "steps": EpisodeFilter(first_step=100, last_step=140),
    "a task": EpisodeFilter(tasks=("task-77",)),
    "a stage's endings": EpisodeFilter(stages=("stage-1",), endings=("horizon",)),
    "where: many": EpisodeFilter(where="success == false and turns > 5"),
    "where: few": EpisodeFilter(where="reward > 0.5 and turns == 3 and invalid_turns > 1"),
    "where: none": EpisodeFilter(where="advantage > 100"),
    "where: computed": EpisodeFilter(where="sampled_tokens / turns > 13"),
}
SEARCHES = {
    "a common word": EpisodeFilter(words="copyright"),
    "three words": EpisodeFilter(words="license grant perpetual"),
    "a beginning": EpisodeFilter(words="derivative wo"),
    "a word and failures": EpisodeFilter(words="notice", success=False),
}


def timed(ask: Callable[[], object], times: int) -> Iterator[float]:
    for _ in range(times):
        started = time.process_time()
        ask()
        yield 1000 * (time.process_time() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        run, cache = folder / "run", folder / "cache"
        if not run.exists():
            plain, packed = write_run(run, arguments.episodes)
            print(f"{plain / arguments.episodes:,.0f} bytes each, {packed / arguments.episodes:,.0f} compressed")
        measure(run, cache, arguments.times)
    return 0


def measure(run: Path, cache: Path, times: int) -> None:
    with EpisodeIndex(run, cache) as index:
        before, started, wall = index.count, time.process_time(), time.perf_counter()
        count = index.update()
        seconds, wall = time.process_time() - started, time.perf_counter() - wall
        read = count - before
        print(f"read {read:,} episodes in {seconds:.1f} s of CPU ({wall:.1f} s): {read / seconds:,.0f}/s")
        queries = Queries(index)
        for title, filters in (("filter and page", FILTERS), ("search", SEARCHES)):
            found = []
            for name, wanted in filters.items():
                took = list(timed(lambda wanted=wanted: queries.find(wanted), times))
                page = queries.find(wanted)
                found += took
                print(f"  {name}: {max(took):.0f} ms, {page.total:,}{'' if page.is_exact else '+'} episodes")
            print(f"{title}: p95 {quantiles(found, n=20)[-1]:.0f} ms of CPU")
        started = time.process_time()
        queries.record(queries.find(EpisodeFilter(first_step=3)).episodes[0])
        print(f"one episode: {1000 * (time.process_time() - started):.0f} ms of CPU")
        # the sizes are looked up last: that reads the whole index
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
        show_sizes(index.database, count)


def show_sizes(database: sqlite3.Connection, count: int) -> None:
    try:
        sizes = dict(database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
    except sqlite3.OperationalError:
        (pages,), (size,) = (database.execute(f"PRAGMA {word}").fetchone() for word in ("page_count", "page_size"))
        sizes = {"all": pages * size}
    words = sum(size for name, size in sizes.items() if name.startswith("words"))
    print(f"index: {(sum(sizes.values()) - words) / count:.0f} bytes each without words, {words / count:.0f} of words")


if __name__ == "__main__":
    raise SystemExit(main())
