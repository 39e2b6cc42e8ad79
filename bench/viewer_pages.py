"""The viewer's pages and server: first view, curves of ten runs, a long episode, a million episodes, a watched run.

    python bench/viewer_pages.py make FOLDER [--episodes 1000000]     what the others look at; kept in the folder
    python bench/viewer_pages.py look FOLDER [--times 5]              pages in headless Chromium, answers over HTTP
    python bench/viewer_pages.py watched [--pairs 5]                  a run that trains, watched and not, in turn

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import which
from statistics import mean, median, quantiles, stdev
from tempfile import TemporaryDirectory
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
agent: {tokens_per_turn: 4}
schedule: [{stage: exploit, turns: 8, until: step >= 100000}]
eval: null
reward: 0 - 0.01 * sampled_tokens
algorithm: {lr: 1e-9}
guards: {zero_std_max: null, entropy_min: null}
checkpoint: {every: 100000, export: false}
"""
"""It trains at each step, and yet stays as it is: so do the lengths of its replies, and with them its steps."""
WARM_STEPS = 10


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
    # it stays: a file that is cut counts as another, and is read anew
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Seconds of a run's clock in which it was watched, or not, throughout."""

    is_watched: bool
    start: float
    end: float
    cpu: float
    """Seconds of CPU that the watchers took."""


def watched(pairs: int, seconds: float, has_page: bool) -> None:
    """Train one run; compare each second window with the mean of its neighbours, watched and, as a control, not."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
        run = folder / "runs" / "watched"
        command = [sys.executable, "-P", "-m", "agym", "run", "recipe.yaml"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
            wait_for_steps(run / "metrics.jsonl", WARM_STEPS, process)
            with watching(run, folder / "cache", has_page) as watch:
                windows = [watch(each % 4 == 1, seconds) for each in range(4 * pairs + 1)]
            process.send_signal(signal.SIGINT)
            process.wait()
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [mean(seconds_within(rows, each)) for each in windows]
    ratios = [2 * steps[at] / (steps[at - 1] + steps[at + 1]) for at in range(1, len(steps), 2)]
    for name, found in (("watched", ratios[::2]), ("control", ratios[1::2])):
        error = stdev(found) / len(found) ** 0.5
        print(f"{name}: mean {mean(found):.3f} (standard error {error:.3f}), {min(found):.3f} to {max(found):.3f}")
    cores = mean(each.cpu / (each.end - each.start) for each in windows if each.is_watched)
    print(f"a step takes {mean(steps[::2]):.3f} s; page and server take {cores:.3f} of a core")


def wait_for_steps(path: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= steps):
        time.sleep(0.2)
    assert process.returncode is None, "the run has ended"


def seconds_within(rows: list[dict[str, Any]], window: Window) -> list[float]:
    """The seconds of the steps that lie in a window as a whole."""
    found = [row["timing_s/step"] for row in rows if row["time"] <= window.end]
    first = next(at for at, row in enumerate(rows) if row["time"] - row["timing_s/step"] >= window.start)
    return found[first:]


@contextmanager
def watching(run: Path, cache: Path, has_page: bool) -> Iterator[Callable[[bool, float], Window]]:
    """What waits through a window, with the run's page open or not, or with what the page asks."""
    with served(run, cache) as (url, server), browser_page() as page:

        def watch(is_watched: bool, seconds: float) -> Window:
            page.goto("about:blank")
            if is_watched and has_page:
                shown(page, url, f"#/runs/{run.name}")
            started, before = time.time(), cpu_seconds(server)
            if is_watched and not has_page:
                ask_on(url, run.name, seconds)
            else:
                page.wait_for_timeout(1000 * seconds)
            return Window(is_watched=is_watched, start=started, end=time.time(), cpu=cpu_seconds(server) - before)

        yield watch


def cpu_seconds(server: psutil.Process) -> float:
    """Of the server, and of the browser, which is below this process."""
    browser = [each for each in psutil.Process().children(recursive=True) if "chrom" in each.name()]
    times = [each.cpu_times() for each in (server, *browser)]
    return sum(each.user + each.system for each in times)


def ask_on(url: str, run: str, seconds: float) -> None:
    """Ask as the page of a run does."""
    known, ends = None, time.monotonic() + seconds
    while time.monotonic() < ends:
        version = ask(url, f"runs/{run}/changes")["version"]
        if version != known:
            known = version
            keys = ",".join(ask(url, f"runs/{run}")["keys"][:30])
            ask(url, f"runs/{run}/curves", {"keys": keys, "points": 600})
        time.sleep(1)


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
    command.add_argument("--seconds", type=float, default=20, help="of a window")
    command.add_argument("--no-page", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.episodes)
    elif arguments.command == "look":
        look(arguments.folder, arguments.times)
    else:
        watched(arguments.pairs, arguments.seconds, not arguments.no_page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
