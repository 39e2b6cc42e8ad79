"""The viewer's pages and server: first view, curves of ten runs, a long episode, a million episodes, a watched run.

    python bench/viewer_pages.py make FOLDER [--episodes 1000000]     what the others look at; kept in the folder
    python bench/viewer_pages.py look FOLDER [--times 5]              pages in headless Chromium, answers over HTTP
    python bench/viewer_pages.py watched [--pairs 5] [--steps 40]     a run that trains, watched and not, in turn

`look` needs a folder that `make` has filled, and reads its index first. Limits: the first view below 1 s and 200 KB; a
page of curves of ten runs of 10,000 steps below 1 s; an episode of 32,000 tokens in 200 turns below 500 ms, and no gap
while it scrolls; of a million episodes a filter and page below 200 ms and a search below 500 ms at the 95th percentile;
a line that is appended seen within 2 s; the server below 300 MB. `watched`: seconds of a step within 2 %; the page of
the run is open in Chromium, which this machine runs too, or (`--no-page`) only asked for as the page does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from shutil import which
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from urllib.parse import urlencode

import psutil
from agym.envs.web import BROWSERS
from agym.runtime.rollout.episode import Episode
from agym.runtime.storage.episode_log import EpisodeEntry, EpisodePurpose, episode_lines
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, compress_member
from playwright.sync_api import Page, sync_playwright

from viewer import FILTERS, SEARCHES, episode, training, write_run

CURVES, STEPS, KEYS = 10, 10_000, 60
LONG_TURNS, LONG_REPLY, LONG_ANSWER = 200, 60, 100
"""Of an episode of 32,000 tokens."""
WIDTHS = {"width": 1280, "height": 900}
WAIT_MS = 120_000
RECIPE = """
agym: 1
name: watched
extends: quickstart
schedule: [{{stage: exploit, turns: 8, until: step >= {steps}}}]
eval: null
reward: 0 - 0.01 * sampled_tokens
checkpoint: {{every: 100000, export: false, episodes: all}}
"""


# --- what is looked at ------------------------------------------------------------------------------------------------


def make(folder: Path, episodes: int) -> None:
    runs = folder / "runs"
    if not (runs / "million").exists():
        plain, packed = write_run(runs / "million", episodes)
        print(f"{episodes:,} episodes, {plain / episodes:,.0f} bytes each, {packed / episodes:,.0f} compressed")
    for number in range(CURVES):
        write_metrics(runs / f"curve-{number}", number)
    write_long(runs / "long")


def write_metrics(root: Path, number: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    keys = ["rollout/success", "rollout/reward", "train/entropy", "train/loss", "horizon/turns", "timing_s/rollout"]
    keys += [f"other/metric_{each}" for each in range(KEYS - len(keys))]
    with (root / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(1, STEPS + 1):
            row: dict[str, Any] = {
                "total_step": step,
                "stage": f"stage-{step // 3400}",
                "step": step,
                "time": 10.0 * step,
            }
            # an extreme in one row must not be lost
            row |= {key: (step * (each + number + 1) % 997) / 997 for each, key in enumerate(keys)}
            row["train/loss"] = 1e6 if step == 7_777 else row["train/loss"]
            file.write(json.dumps(row) + "\n")


def write_long(root: Path) -> None:
    (root / EPISODES).mkdir(parents=True, exist_ok=True)
    entry = EpisodeEntry(episode=long_episode(), group=0, training=training(long_episode()))
    lines = episode_lines([entry], purpose=EpisodePurpose.TRAIN, total_step=1, stage="only")
    (root / EPISODES / TRAIN_LOG).write_bytes(compress_member(1, lines))


def long_episode() -> Episode:
    return episode(Random(0), 0, 0, turns=LONG_TURNS, reply=LONG_REPLY, answer=LONG_ANSWER)


# --- looking ----------------------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, cache: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Serve as a user does; the address, and the server."""
    command = [sys.executable, "-P", "-m", "agym", "view", str(folder), "--no-browser"]
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@contextmanager
def browser_page() -> Iterator[Page]:
    program = next(filter(None, map(which, BROWSERS)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"])
        page = browser.new_context(viewport=WIDTHS).new_page()
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()


def ask(url: str, path: str, query: object = ()) -> Any:
    with urllib.request.urlopen(f"{url}api/{path}?{urlencode(query)}", timeout=600) as answered:
        return json.loads(answered.read())


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def query_of(wanted: Any) -> list[tuple[str, str]]:
    """An `EpisodeFilter` as parameters of an address."""
    named = {"environment": wanted.environments, "ending": wanted.endings, "task": wanted.tasks, "stage": wanted.stages}
    single = {"words": wanted.words, "where": wanted.where, "step_from": wanted.first_step, "step_to": wanted.last_step}
    query = [(name, value) for name, values in named.items() for value in values]
    query += [(name, str(value)) for name, value in single.items() if value not in ("", None)]
    return query + ([] if wanted.success is None else [("success", str(wanted.success).lower())])


def look(folder: Path, times: int) -> None:
    with served(folder / "runs", folder / "cache") as (url, server):
        read_index(url)
        ask_million(url, times)
        ask_curves(url, times)
        memory = server.memory_full_info()
        print(f"server: {memory.rss / 1e6:,.0f} MB resident, {memory.uss / 1e6:,.0f} MB its own")
        append_one(url, folder / "runs" / "million")
    with served(folder / "runs", folder / "cache") as (url, server), browser_page() as page:
        open_pages(page, url, times)
        print(f"server of the pages: {server.memory_info().rss / 1e6:,.0f} MB resident")


def read_index(url: str) -> None:
    started = time.perf_counter()
    known = -1
    while True:
        count = ask(url, "runs/million")["num_episodes"]
        if count == known and ask(url, "runs/million/episodes", {"limit": 1})["exact"]:
            break
        known = count
        time.sleep(1)
    print(f"index: {count:,} episodes, ready after {time.perf_counter() - started:.0f} s")


def ask_million(url: str, times: int) -> None:
    for title, filters in (("filter and page", FILTERS), ("search", SEARCHES)):
        found = []
        for name, wanted in filters.items():
            query = query_of(wanted)
            took = [milliseconds(lambda query=query: ask(url, "runs/million/episodes", query)) for _ in range(times)]
            print(f"  {name}: {max(took):.0f} ms")
            found += took
        print(f"{title}: p95 {quantiles(found, n=20)[-1]:.0f} ms over HTTP")


def ask_curves(url: str, times: int) -> None:
    names = [f"curve-{number}" for number in range(CURVES)]
    query = {"keys": "rollout/success,train/loss", "points": 600}

    def all_curves() -> None:
        for name in names:
            got = ask(url, f"runs/{name}/curves", query)
            assert len(got["x"]) <= query["points"]
            assert max(got["series"]["train/loss"]["high"]) == 1e6, "an extreme was lost"

    print(f"ten curves over HTTP: first {milliseconds(all_curves):.0f} ms, ", end="")
    print(f"then {median(milliseconds(all_curves) for _ in range(times)):.0f} ms")


def append_one(url: str, run: Path) -> None:
    before = ask(url, "runs/million")["num_episodes"]
    step = 10**6
    lines = episode_lines(
        [EpisodeEntry(episode=long_episode(), group=0, training=training(long_episode()))],
        purpose=EpisodePurpose.TRAIN,
        total_step=step,
        stage="appended",
    )
    started = time.perf_counter()
    # it stays: a file that is cut is another, and read anew
    with (run / EPISODES / TRAIN_LOG).open("ab") as file:
        file.write(compress_member(step, lines))
    while ask(url, "runs/million")["num_episodes"] == before:
        time.sleep(0.02)
    print(f"a line that was appended is seen after {time.perf_counter() - started:.2f} s")


def open_pages(page: Page, url: str, times: int) -> None:
    sizes = list[int]()
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    curves = "#/curves?" + "&".join(f"run=curve-{number}" for number in range(CURVES))
    (long_id,) = (each["id"] for each in ask(url, "runs/long/episodes")["episodes"])
    addresses = {
        "first view": "#/",
        "a run of 10,000 steps": "#/runs/curve-0",
        "curves of ten runs": curves,
        "episodes, a million": "#/runs/million/episodes",
        "an episode of 32,000 tokens": f"#/runs/long/episodes/{long_id}?all=1",
    }
    for name, address in addresses.items():
        took, bytes_ = list[float](), list[int]()
        for _ in range(times + 1):
            page.goto("about:blank")
            sizes.clear()
            took.append(milliseconds(lambda address=address: shown(page, url, address)))
            bytes_.append(sum(sizes))
        print(f"{name}: first {took[0]:.0f} ms, then {median(took[1:]):.0f} ms, {bytes_[0] / 1000:,.0f} kB")
    print(f"the long episode scrolled: {scroll(page)}")


def shown(page: Page, url: str, address: str) -> None:
    page.goto(url + address)
    page.wait_for_selector(f'html[data-shown="{address}"]', state="attached")


def scroll(page: Page) -> str:
    """Scroll down by screens; a screen without any text is a gap."""
    return page.evaluate(
        """async () => {
          let screens = 0, gaps = 0, slowest = 0;
          const end = () => document.documentElement.scrollHeight - innerHeight - 2;
          for (let at = 0; at < end(); at += innerHeight) {
            const before = performance.now();
            scrollTo(0, at);
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            slowest = Math.max(slowest, performance.now() - before);
            screens += 1;
            const seen = [0.2, 0.4, 0.6, 0.8].some((part) => {
              const element = document.elementFromPoint(innerWidth / 3, innerHeight * part);
              return element && element.closest("main div div") && element.innerText.trim();
            });
            gaps += seen ? 0 : 1;
          }
          return `${screens} screens, ${gaps} gaps, slowest ${slowest.toFixed(0)} ms`;
        }"""
    )


# --- a watched run ----------------------------------------------------------------------------------------------------


def watched(pairs: int, steps: int, has_page: bool) -> None:
    ratios = []
    with TemporaryDirectory() as temporary:
        for pair in range(pairs):
            took = {}
            for is_watched in (pair % 2 == 0, pair % 2 == 1):
                run = Path(temporary) / f"{pair}-{is_watched}"
                took[is_watched] = train_run(run, steps, is_watched, has_page)
            ratios.append(took[True] / took[False])
            print(f"pair {pair}: {took[False]:.3f} s a step, watched {took[True]:.3f}: {ratios[-1]:.3f}", flush=True)
    print(f"watched by not: median {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def train_run(folder: Path, steps: int, is_watched: bool, has_page: bool) -> float:
    """Train, and return the median seconds of a step, the first ten left out."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE.format(steps=steps), encoding="utf-8")
    run = folder / "runs" / "watched"
    command = [sys.executable, "-P", "-m", "agym", "run", "recipe.yaml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        while not (run / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.2)
        with watching(run, has_page) if is_watched else nullcontext():
            process.wait()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return median(row["timing_s/step"] for row in rows[10:])


@contextmanager
def watching(run: Path, has_page: bool) -> Iterator[None]:
    with TemporaryDirectory() as cache, served(run, Path(cache)) as (url, _):
        if has_page:
            with browser_page() as page:
                shown(page, url, f"#/runs/{run.name}")
                yield
            return
        ended = Event()
        thread = Thread(target=ask_on, args=(url, run.name, ended))
        thread.start()
        yield
        ended.set()
        thread.join()


def ask_on(url: str, run: str, ended: Event) -> None:
    """Ask as the page of a run does."""
    known = None
    while not ended.wait(1):
        version = ask(url, f"runs/{run}/changes")["version"]
        if version != known:
            known = version
            keys = ",".join(ask(url, f"runs/{run}")["keys"][:30])
            ask(url, f"runs/{run}/curves", {"keys": keys, "points": 600})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "look"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
    commands.choices["make"].add_argument("--episodes", type=int, default=1_000_000)
    commands.choices["look"].add_argument("--times", type=int, default=5)
    command = commands.add_parser("watched")
    command.add_argument("--pairs", type=int, default=5)
    command.add_argument("--steps", type=int, default=40)
    command.add_argument("--no-page", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.episodes)
    elif arguments.command == "look":
        look(arguments.folder, arguments.times)
    else:
        watched(arguments.pairs, arguments.steps, not arguments.no_page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
