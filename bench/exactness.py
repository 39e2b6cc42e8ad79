"""Claim: what is trained on is what was sampled, token for token, and the learner's log-probs are the sampler's.

Real episodes of TextCraft, played by an agent that has imitated for a while and then learns, in fp32. A byte-level
tokenizer, whose replies often would not survive being decoded and encoded again, and a word-level one; at temperature 1
and 0.7; with the prompt cache in use and with one that never hits. Of each turn the engine's own record (the prompt
that it was given, the ids that it drew) is compared with the tokens that the learner is given and with their mask; then
the learner's forward pass with the sampler's log-probs. Limits: no token differs; log-probs by less than 1e-4 over 1000
episodes of each kind. Then the same is broken on purpose, and each break has to be found.

    python bench/exactness.py [--episodes 1000] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp
from pathlib import Path
from time import perf_counter, time
from typing import Any, NamedTuple

import numpy as np
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.source import Source
from agym.envs.protocol import Deadlines
from agym.files import DiskLibrary
from agym.runtime.agents.chat import Tokenizer
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.hf_models import ModelSource, load_tokenizer
from agym.runtime.engine import Engine
from agym.runtime.protocols import Floats, TrainSequence
from agym.runtime.reporting import SilentReporter
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.rollout.episode import Episode, Group, Segment
from agym.runtime.rollout.groups import GroupRequest
from agym.runtime.storage.run_folder import MODEL, RunFolder
from agym.runtime.workers.build import learner_worker, prepare_model, rollout_worker
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.rollout_worker import PlaySettings

LIMIT = 1e-4
EPISODES_PER_STEP = 64
KINDS = {"bpe": "{kind: bpe, vocab: 512}", "word": "{kind: word, vocab: 1024}"}
RECIPE = """\
agym: 1
name: exactness
model: {{dtype: fp32, init: {{layers: 2, hidden: 64, heads: 2, kv_heads: 1, tie_embeddings: true,
         tokenizer: {tokenizer}}}}}
environments: {{textcraft: {{use: textcraft, options: {{world: small, terse: true, max_distractors: 1}}}}}}
agent: {{format: plain, tokens_per_turn: 16, context_tokens: 768}}
algorithm: {{use: grpo, group_size: 8, groups_per_step: 8, groups_per_update: 4, lr: 1e-3, kl: {{coef: 0}}}}
reward: score - 0.01 * sampled_tokens  # so that nearly every group teaches something
schedule:
  - stage: imitate
    until: step >= {imitate}
    algorithm: {{use: sft, batch_size: 16, lr: 5e-3, data: {{limit: 400, noise: 0.3}}}}
  - {{stage: warm, turns: 6, until: step >= {steps}}}
  - {{stage: cool, turns: 6, until: step >= {steps}, sampling: {{temperature: 0.7}}}}
eval: {{every: 1000, at_start: false, at_end: false}}
checkpoint: {{every: 1000, export: false}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="of each kind")
    parser.add_argument("--quick", action="store_true", help="one kind of tokenizer and few episodes")
    parser.add_argument("--one", nargs=2, metavar=("TOKENIZER", "CACHE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asyncio.run(measure(*arguments.one, arguments.episodes, quick=arguments.quick))))
        return 0
    kinds = ["bpe"] if arguments.quick else list(KINDS)
    episodes = EPISODES_PER_STEP if arguments.quick else arguments.episodes
    found = [one(kind, cache, episodes, quick=arguments.quick) for kind in kinds for cache in ("used", "never")]
    rows = [Row(**row) for each in found for row in each["rows"]]
    breaks = found[0]["breaks"]
    show(rows, breaks)
    return 0 if all(row.holds for row in rows) and all(map(is_as_it_should, breaks, breaks.values())) else 1


def one(kind: str, cache: str, episodes: int, *, quick: bool) -> dict[str, Any]:
    """In a process of its own: engines are not made to follow one another."""
    command = [sys.executable, __file__, "--one", kind, cache, "--episodes", str(episodes), *["--quick"] * quick]
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


# --- the engine's own record ---------------------------------------------------------------------------------------


class Tap:
    """Stands between the sampler and vLLM's core: keeps vLLM's own object of every request."""

    def __init__(self, core: Any, *, reuse: bool) -> None:
        self._core = core
        self._reuse = reuse
        self.requests: list[Any] = []
        self.prefills: list[Any] = []
        self.logprobs: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def add_request(self, request: Any) -> None:
        if not self._reuse:
            # a prompt is only found again under the salt that it was kept with
            request.cache_salt = request.request_id
        self._core.add_request(request)
        if request.sampling_params.prompt_logprobs is None:
            own = self._core.engine_core.scheduler.requests[request.request_id]
            self.requests.append(own)
            self.prefills.append(own.prefill_stats)

    def get_output(self) -> Any:
        outputs = self._core.get_output()
        for each in outputs.outputs:
            if each.new_logprobs is not None:
                self.logprobs.setdefault(each.request_id, []).extend(each.new_logprobs.logprobs[:, 0])
        return outputs

    def taken(self) -> list[Said]:
        """Of all requests since the last call, in vLLM's own words."""
        said = [
            Said(packed(each.prompt_token_ids), packed(each.output_token_ids), told(self.logprobs[each.request_id]))
            for each in self.requests
        ]
        self.requests, self.logprobs = [], {}
        return said

    def worked(self) -> tuple[int, int]:
        """Tokens of prompts since the last call, and how many of them came from the cache."""
        prefills, self.prefills = self.prefills, []
        return sum(each.num_prompt_tokens for each in prefills), sum(each.num_cached_tokens for each in prefills)


class Said(NamedTuple):
    """One turn, as bytes."""

    prompt: bytes
    drawn: bytes
    logprobs: bytes


def packed(ids: Sequence[int]) -> bytes:
    return np.asarray(list(ids), np.int32).tobytes()


def told(logprobs: Sequence[float]) -> bytes:
    return np.asarray(logprobs, np.float32).tobytes()


# --- what is compared ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen at one temperature."""

    tokenizer: str
    cache: str
    temperature: float
    episodes: int = 0
    turns: int = 0
    tokens: int = 0
    learnt: int = 0
    """Tokens that entered an update."""
    reread: int = 0
    """Replies that decoding and encoding again would have changed."""
    reused: int = 0
    """Prompt tokens that came from the cache."""
    prompts: int = 0
    unlike: int = 0
    """Turns whose tokens are not the engine's, sequences whose tokens or mask are not the episode's."""
    largest: float = 0.0
    total: float = 0.0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return self.unlike == 0 and self.largest < LIMIT and self.learnt > 0


def turns_of(episode: Episode) -> Iterator[Said]:
    for turn in episode.turns:
        segment, here = episode.segments[turn.segment], slice(turn.start, turn.end)
        yield Said(packed(segment.ids[: turn.start]), packed(segment.ids[here]), told(segment.logprobs[here]))


def unlike(episodes: Sequence[Episode], records: Sequence[Said]) -> int:
    """Turns that the engine knows nothing of, requests that no episode holds, masks that cover something else."""
    engine, ours = Counter(records), Counter(said for episode in episodes for said in turns_of(episode))
    return (engine - ours).total() + (ours - engine).total() + sum(map(unlike_mask, episodes))


def unlike_mask(episode: Episode) -> int:
    """Segments whose mask is not exactly the tokens of their turns."""
    drawn = [np.zeros(len(segment.ids), np.bool_) for segment in episode.segments]
    for turn in episode.turns:
        drawn[turn.segment][turn.start : turn.end] = True
    return sum(not np.array_equal(mask, each.sampled) for mask, each in zip(drawn, episode.segments, strict=True))


def sequences_of(episodes: Sequence[Episode]) -> list[TrainSequence]:
    """All that was sampled, whether or not an advantage would single it out."""
    return [
        TrainSequence(
            ids=segment.ids,
            loss_mask=segment.sampled,
            advantages=np.zeros(len(segment.ids), np.float32),
            old_logprobs=segment.logprobs,
        )
        for episode in episodes
        for segment in episode.segments
    ]


def differences(sequences: Sequence[TrainSequence], own: Sequence[Floats]) -> Floats:
    parts = [
        np.abs(mine - each.old_logprobs)[each.loss_mask]
        for each, mine in zip(sequences, own, strict=True)
        if each.old_logprobs is not None
    ]
    return np.concatenate(parts)


# --- the run, with somebody looking on -----------------------------------------------------------------------------


class Watched(InlineWorkerGroup):
    """Compares everything that is played with what the engine holds, and all that is trained on with what was
    played."""

    def __init__(self, *workers: Any, tap: Tap, rows: Mapping[float, Row], tokenizer: Tokenizer) -> None:
        super().__init__(*workers)
        self._tap = tap
        self._rows = rows
        self._tokenizer = tokenizer
        self._row: Row | None = None
        self._known: set[tuple[bytes, ...]] = set()
        self.found: dict[str, tuple[bool, bool]] = {}
        """Of each break whether the engine's record shows it, and whether the log-probs do."""

    async def play(
        self, orders: Sequence[GroupRequest], style: PlaySettings, seen: Callable[[Episode], None]
    ) -> list[Group]:
        row = self._rows[style.sampling.temperature]
        started = perf_counter()
        groups = await super().play(orders, style, seen)
        row.seconds += perf_counter() - started
        episodes, records = [episode for group in groups for episode in group.episodes], self._tap.taken()
        prompts, reused = self._tap.worked()
        row.episodes += len(episodes)
        row.turns += sum(len(episode.turns) for episode in episodes)
        row.prompts += prompts
        row.reused += reused
        row.unlike += unlike(episodes, records)
        row.reread += sum(self._rereads(said.drawn) for said in records)
        sequences = sequences_of(episodes)
        apart = await self._apart(sequences, style.sampling.temperature)
        row.tokens += len(apart)
        row.largest = max(row.largest, float(apart.max()))
        row.total += float(apart.sum())
        self._row, self._known = row, {_key(each) for each in sequences}
        if not self.found:
            self.found = {
                name: await self._shows(name, episodes, records, style.sampling.temperature) for name in BREAKS
            }
        return groups

    async def _apart(self, sequences: Sequence[TrainSequence], temperature: float) -> Floats:
        return differences(
            sequences, await self.compute(LearnerWorker.logprobs, sequences, temperature, reference=False)
        )

    async def _shows(
        self, name: str, episodes: Sequence[Episode], records: Sequence[Said], temperature: float
    ) -> tuple[bool, bool]:
        broken = [BREAKS[name](episode, self._tokenizer) for episode in episodes]
        apart = await self._apart(sequences_of(broken), temperature)
        return unlike(broken, records) > 0, bool(apart.max() >= LIMIT)

    async def compute(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if work in (LearnerWorker.update, LearnerWorker.update_weighed) and self._row is not None:
            sequences: Sequence[TrainSequence] = args[0]
            self._row.unlike += sum(_key(each) not in self._known for each in sequences)
            self._row.learnt += sum(int(each.loss_mask.sum()) for each in sequences)
        return await super().compute(work, *args, **kwargs)

    def _rereads(self, packed_ids: bytes) -> bool:
        ids = np.frombuffer(packed_ids, np.int32).tolist()
        return self._tokenizer.encode(self._tokenizer.decode(ids)) != ids


def _key(sequence: TrainSequence) -> tuple[bytes, ...]:
    assert sequence.old_logprobs is not None, "what was sampled carries the log-probs it was drawn with"
    return sequence.ids.tobytes(), sequence.loss_mask.tobytes(), sequence.old_logprobs.tobytes()


async def measure(kind: str, cache: str, episodes: int, *, quick: bool) -> dict[str, Any]:
    steps = -(-episodes // EPISODES_PER_STEP)
    plan = plan_of(RECIPE.format(tokenizer=KINDS[kind], steps=steps, imitate=20 if quick else 150))
    rows = {t: Row(tokenizer=kind, cache=cache, temperature=t) for t in (1.0, 0.7)}
    with tempfile.TemporaryDirectory() as folder:
        space = RunFolder.start(Path(folder) / "run", "{}", "")
        envs = OpenEnvs(EnvConnector(space.root / "logs", os.environ, print, Deadlines()))
        model = await prepare_model(plan, space.root, envs)
        rollout = rollout_worker(plan, model, envs, perf_counter)
        sampler: Any = rollout.sampler
        tap = sampler._core = Tap(sampler._core, reuse=cache == "used")
        tokenizer = load_tokenizer(ModelSource(path=str(space.root / MODEL)))
        workers = Watched(rollout, learner_worker(plan, model), tap=tap, rows=rows, tokenizer=tokenizer)
        try:
            await Engine(plan, space, workers, SilentReporter(), perf_counter, wall_clock=time).run()
        finally:
            await workers.close()
            space.close()
    return {
        "rows": [asdict(row) for row in rows.values()],
        "breaks": workers.found,
    }


def plan_of(text: str) -> Plan:
    compiled = compile_recipe(Source("exactness.yaml", text), DiskLibrary("."), catalog=catalog())
    if not compiled.variants:
        raise SystemExit("\n".join(f"{each.span}: {each.message}" for each in compiled.diagnostics))
    return compiled.variants[0].plan


# --- broken on purpose ---------------------------------------------------------------------------------------------


Break = Callable[[Episode, Tokenizer], Episode]


def _segment(change: Callable[[Segment], Segment]) -> Break:
    return lambda episode, _: replace(episode, segments=tuple(map(change, episode.segments)))


def _one_token(segment: Segment) -> Segment:
    ids = segment.ids.copy()
    at = int(np.flatnonzero(segment.sampled)[0])
    ids[at] = ids[at] + 1 if ids[at] < ids.max() else ids[at] - 1
    return replace(segment, ids=ids)


def _reread(episode: Episode, tokenizer: Tokenizer) -> Episode:
    """The conversation as text, and encoded again: the same letters, other tokens."""
    (segment,) = episode.segments
    ids = tokenizer.encode(tokenizer.decode(segment.ids.tolist()))[: len(segment.ids)]
    ids += segment.ids[len(ids) :].tolist()
    return replace(episode, segments=(replace(segment, ids=np.asarray(ids, np.int32)),))


WHOLE = "nothing"
BREAKS: Mapping[str, Break] = {
    WHOLE: lambda episode, _: episode,
    "one token is another": _segment(_one_token),
    "the mask is shifted by one": _segment(lambda s: replace(s, sampled=np.append(False, s.sampled[:-1]))),
    "log-probs are shifted by one": _segment(lambda s: replace(s, logprobs=np.roll(s.logprobs, 1))),
    "decoded and read again": _reread,
    "the first token is lost": _segment(lambda s: replace(s, ids=np.concatenate([s.ids[1:], s.ids[-1:]]))),
}


# --- what is shown -------------------------------------------------------------------------------------------------


def is_as_it_should(name: str, found: Sequence[bool]) -> bool:
    return tuple(found) == (name != WHOLE,) * 2


def show(rows: Sequence[Row], breaks: Mapping[str, Sequence[bool]]) -> None:
    print(
        "| tokenizer | cache | T | episodes | turns | sampled | learnt | read again differs | prompt from cache"
        " | tokens or masks unlike | largest difference | as a ratio | mean | |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.tokenizer} | {row.cache} | {row.temperature:g} | {row.episodes} | {row.turns} | {row.tokens} |"
            f" {row.learnt} | {row.reread / max(row.turns, 1):.0%} | {row.reused / max(row.prompts, 1):.0%} |"
            f" {row.unlike} | {row.largest:.1e} | {exp(row.largest) - 1:.1e} | {row.total / max(row.tokens, 1):.1e} |"
            f" {'holds' if row.holds else 'DOES NOT HOLD'} |"
        )
    print(f"\nlimit: no token unlike, largest difference of a log-prob under {LIMIT:g}\n")
    print("| broken on purpose | engine's record shows it | log-probs show it |\n|---|---|---|")
    for name, (by_record, by_logprobs) in breaks.items():
        print(f"| {name} | {by_record} | {by_logprobs} |")


if __name__ == "__main__":
    sys.exit(main())
