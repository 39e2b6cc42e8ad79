"""Claims: agents written elsewhere are trained on token for token, and playing through the endpoint is quick.

`exact`: episodes of four harnesses (a plain script, the OpenAI Agents SDK, LangGraph, smolagents; `make harnesses`
installs them), played by a tiny model that has imitated for a while, in fp32. vLLM's own record of every request (the
prompt that it was given, the ids that it drew, their log-probs) is compared with the episodes: each sampled token has
to be in exactly one segment, after the tokens that it was drawn after, and the learner's log-probs within 1e-4 of the
sampler's. What was compared is kept in the folder, and a later call goes on from there.

`speed`: the same tasks by our own agent, by a coroutine and by a process per episode, in turn; required of the
coroutine with smollm2 are 0.8 of our own agent's episodes per second. And the processor time of the endpoint per
request, without an engine: at most 5 ms.

`clients`: the tests of other libraries' clients and of the agents on their SDKs.

    python bench/harnesses.py exact [--episodes 1000] [--most 1000] [--folder build/harnesses]
    python bench/harnesses.py speed [--model tiny|smollm2] [--rounds 5]
    python bench/harnesses.py clients
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import perf_counter, time
from typing import Any

from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Harness
from agym.runtime.engine import Engine
from agym.runtime.reporting import SilentReporter
from agym.runtime.rollout.episode import Episode
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.rollout_worker import PlaySettings
from engines import in_prepared_process, warm_up_of
from exactness import LIMIT, Said, Tap, differences, packed, sequences_of, told, unlike_mask
from harness_speed import GROUP, MODELS, ROOT, engines_of, orders_of, plan_of, speed, style_of

PYTHON = ROOT / ".venv-harness/bin/python"
SCRIPTS: Mapping[str, tuple[str, str]] = {
    "plain": ("python", "plain.py"),
    "openai-agents": (str(PYTHON), "openai_agents_agent.py"),
    "langgraph": (str(PYTHON), "langgraph_agent.py"),
    "smolagents": (str(PYTHON), "smolagents_agent.py"),
}
"""The interpreter and the script of each harness."""
_HORIZON, _SLOTS = 8, 4
_IMITATED = 100
_SHORT = (f"schedule.0.until=step >= {_IMITATED}", f"schedule.0.algorithm.lr=cosine(5e-3, 2.5e-4, {_IMITATED})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exact", "speed", "clients"))
    parser.add_argument("--episodes", type=int, default=1000, help="of all four harnesses together")
    parser.add_argument("--most", type=int, default=10**9, help="episodes of one call; the next one goes on")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/harnesses", help="where `exact` keeps its counts")
    parser.add_argument("--model", choices=MODELS, default="tiny", help="of `speed`")
    parser.add_argument("--rounds", type=int, default=5, help="of `speed`")
    arguments = parser.parse_args()
    if arguments.what != "speed" and not PYTHON.exists():
        subprocess.run(["make", "harnesses"], cwd=ROOT, check=True)
    if arguments.what == "clients":
        tests = ("tests/runtime/harness/test_sdk_agents.py", "tests/runtime/policy_endpoint")
        return subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=ROOT, check=False).returncode
    in_prepared_process()
    return asyncio.run((exact if arguments.what == "exact" else speed)(arguments))


# --- exact ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen of one harness."""

    harness: str
    episodes: int = 0
    solved: int = 0
    faults: int = 0
    requests: int = 0
    segments: int = 0
    begun_by_start: int = 0
    begun_by_branch: int = 0
    begun_by_rewrite: int = 0
    tokens: int = 0
    claimed: int = 0
    """Tokens that the endpoint counted."""
    unlike: int = 0
    """Requests of the engine that are not exactly one place of one episode, and places that are not a request."""
    largest: float = 0.0

    @property
    def holds(self) -> bool:
        return self.unlike == 0 and self.tokens == self.claimed > 0 and self.largest < LIMIT and self.faults == 0


async def exact(arguments: argparse.Namespace) -> int:
    arguments.folder.mkdir(parents=True, exist_ok=True)
    kept = arguments.folder / "exact.json"
    rows = (
        [Row(**each) for each in json.loads(kept.read_text())]
        if kept.exists()
        else [Row(harness=name) for name in SCRIPTS]
    )
    wanted, left = -(-arguments.episodes // (GROUP * len(rows))) * GROUP, arguments.most
    if any(row.episodes < wanted for row in rows) and left > 0:
        await _play_exactly(rows, wanted, left, kept)
    _show_exact(rows)
    return 0 if all(row.holds for row in rows) and all(row.episodes >= wanted for row in rows) else 1


async def _play_exactly(rows: Sequence[Row], wanted: int, left: int, kept: Path) -> None:
    plan = plan_of("harness/openai-agents", *_SHORT)
    warm_up = warm_up_of(plan)
    async with engines_of(plan) as (rollout, workers, space):
        await Engine(warm_up, space, workers, SilentReporter(), perf_counter, wall_clock=time).run()
        await workers.sync(_IMITATED)
        sampler: Any = rollout.sampler
        tap = sampler._core = Tap(sampler._core, reuse=True)
        while left > 0 and (row := min(rows, key=lambda each: each.episodes)).episodes < wanted:
            number = row.episodes // GROUP
            orders = await orders_of(plan, rollout, range(number, number + 1), _HORIZON)
            (group,) = await workers.play(orders, _style_by(plan, row.harness), lambda episode: None)
            await _count(row, group.episodes, tap.taken(), workers)
            left -= GROUP
            kept.write_text(json.dumps([asdict(each) for each in rows]))
            print(f"{row.harness}: {row.episodes} of {wanted}", file=sys.stderr, flush=True)


def _style_by(plan: Plan, harness: str) -> PlaySettings:
    python, script = SCRIPTS[harness]
    agent = plan.stages[-1].settings.agent
    command = (python, str(ROOT / "recipes/harness" / script))
    return style_of(plan, replace(agent, harness=Harness(command=command, timeout_s=600.0)), _SLOTS)


async def _count(row: Row, episodes: Sequence[Episode], records: Sequence[Said], workers: InlineWorkerGroup) -> None:
    engine, ours = Counter(records), Counter(said for episode in episodes for said in _places(episode))
    sequences = sequences_of(episodes)
    own = await workers.compute(LearnerWorker.logprobs, sequences, 1.0, reference=False)
    apart = differences(sequences, own)
    row.episodes += len(episodes)
    row.solved += sum(episode.success for episode in episodes)
    row.faults += sum(len(episode.faults) for episode in episodes)
    row.unlike += (engine - ours).total() + (ours - engine).total() + sum(map(unlike_mask, episodes))
    row.segments += sum(len(episode.segments) for episode in episodes)
    row.tokens += len(apart)
    row.largest = max(row.largest, float(apart.max()))
    for report in (episode.harness for episode in episodes):
        assert report is not None, "a harness has played it"
        row.requests += report.requests
        row.claimed += report.completion_tokens
        row.begun_by_start += report.origins.count("start")
        row.begun_by_branch += report.origins.count("branch")
        row.begun_by_rewrite += report.origins.count("rewrite")


def _places(episode: Episode) -> Iterator[Said]:
    """Where replies are; a reply with several calls is several turns, the first of which holds it."""
    for turn in episode.turns:
        if turn.end > turn.start:
            segment, here = episode.segments[turn.segment], slice(turn.start, turn.end)
            yield Said(packed(segment.ids[: turn.start]), packed(segment.ids[here]), told(segment.logprobs[here]))


def _show_exact(rows: Sequence[Row]) -> None:
    names = [each.name for each in fields(Row)]
    print(f"| {' | '.join(name.replace('_', ' ') for name in names)} | |\n|{'---|' * (len(names) + 1)}")
    for row in rows:
        values = (f"{value:.1e}" if isinstance(value := getattr(row, name), float) else value for name in names)
        print(f"| {' | '.join(map(str, values))} | {'holds' if row.holds else 'DOES NOT HOLD'} |")
    print(f"\nlimit: nothing unlike, no fault, largest difference of a log-prob under {LIMIT:g}")


if __name__ == "__main__":
    sys.exit(main())
