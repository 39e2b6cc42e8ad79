"""A run in miniature, with everything in it but the engines: a table that learns, a world that answers, real workers.

The policy is a table of logits by the third last token, drawn from by each request's own seed and moved along the
gradient with momentum: what is drawn, in which order it is trained on, and what the optimiser remembers all change
numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from agym.dsl.catalog import Catalog, EnvironmentInfo
from agym.dsl.compile import compile_recipe
from agym.dsl.compose.library import FileKind
from agym.dsl.model.algorithm import Importance
from agym.dsl.model.plan import Plan
from agym.dsl.source import Source
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Env, EnvClient, EnvSpec, Observation, Runs, Score, Status, Step
from agym.runtime.agents.chat import Chat
from agym.runtime.backends.hf_models import UnknownWord
from agym.runtime.data.judge_client import JudgeClient
from agym.runtime.engine import Engine, RunOutcome
from agym.runtime.interrupts import StopSignal
from agym.runtime.learning.importance import weigh_sequences
from agym.runtime.protocols import (
    Checksum,
    FinishReason,
    Floats,
    OptimizerSettings,
    ProbeLimits,
    Sampled,
    SampleRequest,
    SyncError,
    SyncProof,
    TrainSequence,
    UpdateFault,
    UpdateMetrics,
    UpdateSettings,
    WeightUpdate,
)
from agym.runtime.reporting import SilentReporter
from agym.runtime.rollout.env_connections import OpenEnvs
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, episode_files, read_chunks
from agym.runtime.storage.run_folder import JUDGE, RunFolder
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.rollout_worker import RolloutWorker
from agym.runtime.workers.worker_group import WorkerGroup

from ..engine_server import EngineServer
from .fake_critic import FakeCritic

# --- words -----------------------------------------------------------------------------------------------------------

SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|unknown|>")
WORDS = (
    *SPECIAL,
    "say",
    "0",
    "1",
    "2",
    "3",
    "4",
    "wrong",
    "empty",
    "write",
    "an",
    "action",
    "is",
    "your",
    "reply",
    ".",
)
TOKEN = re.compile(r"<\|\w+\|>|\w+|\.")


class Words:
    """One token per word; a word it does not know is a token of its own when read, and an error when said."""

    end_of_reply = 0
    marks = ()

    def render(self, messages: Sequence[Mapping[str, str]], *, reply: bool, **_: object) -> str:
        said = "".join(f"<|{message['role']}|>{message['content']}<|end|>" for message in messages)
        return said + ("<|assistant|>" if reply else "")

    def encode(self, text: str) -> list[int]:
        return [WORDS.index(word.lower()) if word.lower() in WORDS else 4 for word in TOKEN.findall(text)]

    def encode_known(self, text: str) -> list[int]:
        if 4 in (ids := self.encode(text)):
            raise UnknownWord(f"'{text}' has a word that is not in the vocabulary")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return re.sub(r"(?<=\|>) | (?=<\|)", "", " ".join(WORDS[at] for at in ids))


class NotingReporter(SilentReporter):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


# --- a world ---------------------------------------------------------------------------------------------------------


class Echo(Env):
    """Say the number that is shown; the next one follows from the seed. Two right answers win."""

    spec = EnvSpec(
        name="echo", version="1", summary="say it", splits=("train", "test"), score=Score.SUM, runs=Runs.INLINE
    )

    def __init__(self) -> None:
        self._draws = Random(0)
        self._wanted = 0
        self._right = 0

    def tasks(self, split: str) -> tuple[str, ...]:
        return tuple(f"{split}-{at}" for at in range(5 if split == "train" else 3))

    def difficulty(self, task: str) -> str:
        return "even" if task.endswith(("0", "2", "4")) else "odd"

    def reset(self, task: str, seed: int) -> Observation:
        self._draws, self._right = Random(f"{task} {seed}"), 0
        return self._show()

    def _show(self) -> Observation:
        self._wanted = self._draws.randrange(4)
        return Observation(text=f"say {self._wanted}")

    def step(self, action: str) -> Step:
        if action not in "01234" or not action:
            return Step(observation=Observation(text="wrong"), status=Status.INVALID)
        right = action == str(self._wanted)
        self._right += right
        return Step(observation=self._show(), reward=0.5 * right, terminated=self._right == 2)

    def advice(self) -> str | None:
        return str(self._wanted)

    def noise_action(self, rng: Random) -> str | None:
        return str(rng.randrange(4))


# --- engines ---------------------------------------------------------------------------------------------------------

Table = np.ndarray


def log_softmax(logits: Table) -> Table:
    moved = logits - logits.max(-1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(-1, keepdims=True))


def seen(ids: Sequence[int], at: int) -> int:
    """What decides the token at a place: before a reply, the last word that was said."""
    return int(ids[at - 3]) if at >= 3 else 0


def logprobs_of(table: Table, ids: Sequence[int], temperature: float = 1.0) -> Floats:
    """Of `ids[1:]`."""
    rows = log_softmax(table[[seen(ids, at) for at in range(1, len(ids))]] / temperature)
    return rows[np.arange(len(ids) - 1), list(ids[1:])].astype(np.float32)


def beginner() -> Table:
    """Says some number, and mostly ends its reply."""
    table: Table = np.random.Generator(np.random.PCG64(7)).normal(0, 0.3, (len(WORDS),) * 2)
    table[1:, [WORDS.index(number) for number in "0123"]] += 3
    table[0, 0] += 5
    return table


def expert() -> Table:
    """Says the number that it was asked for."""
    table = beginner()
    numbers = [WORDS.index(number) for number in "0123"]
    table[numbers, numbers] += 3
    return table


def checksum_of(table: Table) -> Checksum:
    return Checksum(dtype=str(table.dtype), shape=table.shape, digest=zlib.crc32(table.tobytes()))


@dataclass
class TableSampler:
    table: Table | None = None
    version: int = -1
    requests: list[SampleRequest] = field(default_factory=list)
    forgotten: int = 0
    expected: int = 0
    broken: Exception | None = None

    async def sample(self, request: SampleRequest) -> Sampled:
        if self.broken is not None:
            raise self.broken
        assert self.table is not None
        self.requests.append(request)
        draws = np.random.Generator(np.random.PCG64(request.seed))
        ids, logprobs, finish = list(request.prompt), list[float](), FinishReason.LENGTH
        while len(logprobs) < request.max_tokens and finish is FinishReason.LENGTH:
            temperature = request.sampling.temperature
            row = log_softmax(self.table[seen(ids, len(ids))] / (temperature or 1.0))
            token = int(row.argmax()) if temperature == 0 else int(draws.choice(len(row), p=np.exp(row)))
            ids.append(token)
            logprobs.append(float(np.float32(row[token])))
            if token in request.sampling.stop_ids:
                finish = FinishReason.STOP
        drawn = tuple(ids[len(request.prompt) :])
        return Sampled(ids=drawn, logprobs=tuple(logprobs), versions=(self.version,) * len(drawn), finish=finish)

    @contextmanager
    def expecting(self) -> Iterator[None]:
        self.expected += 1
        yield
        self.expected -= 1

    async def score(self, ids: Sequence[int]) -> Floats:
        assert self.table is not None
        return logprobs_of(self.table, ids)

    async def load(self, update: WeightUpdate) -> SyncProof:
        ((name, tensor),) = update.tensors
        self.table, self.version = cast(Any, tensor).copy(), update.version
        if update.checksums != {name: checksum_of(self.table)}:
            raise SyncError("other weights")
        pairs = zip(update.probe.sequences, update.probe.logprobs, strict=True)
        difference = max(
            float(np.abs(logprobs_of(self.table, ids)[-len(theirs) :] - theirs).mean()) for ids, theirs in pairs
        )
        if difference > update.probe.limits.floor:
            raise SyncError("other log-probs")
        return SyncProof(compared=1, unproven=(), difference=difference)

    async def forget(self) -> None:
        self.forgotten += 1

    async def sleep(self) -> None: ...

    async def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def close(self) -> None: ...


@dataclass
class TableLearner:
    table: Table = field(default_factory=lambda: beginner())
    momentum: Table = field(default_factory=lambda: np.zeros((len(WORDS),) * 2))
    optimizer: OptimizerSettings | None = None
    updates: list[UpdateSettings] = field(default_factory=list)
    fresh: int = 0
    divergences: list[float] = field(default_factory=list)
    faulty: Callable[[int, Sequence[TrainSequence]], UpdateFault | None] = lambda number, sequences: None
    """What goes wrong with an update, counted from 1 since this learner was started."""

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        self.optimizer = settings
        if fresh:
            self.fresh += 1
            self.momentum = np.zeros_like(self.momentum)

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        self.updates.append(settings)
        gradient, logprobs, tokens, entropy, reference_kl, sampler_kl = np.zeros_like(self.table), [], 0, 0.0, 0.0, 0.0
        ratio_error = 0.0
        for sequence in sequences:
            for at in np.flatnonzero(sequence.loss_mask).tolist():
                place = seen(sequence.ids, at)
                row = log_softmax(self.table[place] / settings.loss.temperature)
                p, token = np.exp(row), int(sequence.ids[at])
                gain = float(sequence.advantages[at]) * (
                    1.0 if sequence.weights is None else float(sequence.weights[at])
                )
                if sequence.reference_logprobs is not None:
                    apart = row[token] - float(sequence.reference_logprobs[at])
                    reference_kl += apart**2 / 2
                    gain -= settings.loss.kl_coef * apart
                if sequence.old_logprobs is not None:
                    apart = row[token] - float(sequence.old_logprobs[at])
                    sampler_kl += np.expm1(apart) - apart
                    ratio_error = max(ratio_error, abs(float(np.expm1(apart))))
                gradient[place] -= gain * ((np.arange(len(p)) == token) - p)
                logprobs.append(row[token])
                entropy -= float((p * row).sum())
                tokens += 1
        fault = self.faulty(len(self.updates), sequences)
        self.divergences.append(reference_kl / tokens)
        norm = float(np.sqrt((gradient**2).sum())) / max(tokens, 1)
        if fault is None:
            assert self.optimizer is not None
            self.momentum = self.optimizer.betas[0] * self.momentum + gradient / tokens
            self.table = self.table - settings.lr * self.momentum
        loss = float("nan") if fault is UpdateFault.NAN else -float(np.mean(logprobs))
        return UpdateMetrics(
            fault=fault,
            loss=loss,
            policy_loss=loss,
            entropy=entropy / tokens,
            reference_kl=reference_kl / tokens,
            sampler_kl=sampler_kl / tokens,
            ratio_mean=1.0,
            ratio_error=ratio_error,
            clipped_low=0.0,
            clipped_high=0.0,
            grad_norm=norm,
            lr=settings.lr,
            tokens=tokens,
            sequences=len(sequences),
            micro_batches=1,
        )

    def update_weighed(
        self, sequences: Sequence[TrainSequence], settings: UpdateSettings, importance: Importance
    ) -> tuple[UpdateMetrics, list[Floats]]:
        own = self.logprobs(sequences, settings.loss.temperature)
        return self.update(weigh_sequences(sequences, own, importance), settings), own

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        found = [
            np.append(np.float32(0), logprobs_of(self.table, each.ids.tolist(), temperature)) for each in sequences
        ]
        return [np.where(each.loss_mask, row, np.float32(0)) for each, row in zip(sequences, found, strict=True)]

    def weights(self) -> Any:
        return [("table", self.table)]

    def checksums(self) -> dict[str, Checksum]:
        return {name: checksum_of(table) for name, table in self.weights()}

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        np.savez(folder / "learner.npz", table=self.table, momentum=self.momentum)

    def load(self, folder: Path) -> None:
        state = np.load(folder / "learner.npz")
        self.table, self.momentum = state["table"], state["momentum"]

    def export(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        np.save(folder / "table.npy", self.table)

    def close(self) -> None: ...


def critic_of(learner: TableLearner) -> FakeCritic:
    """Begins from the current policy: made at another moment it would say other numbers."""
    return FakeCritic(expected={token: float(row.mean()) for token, row in enumerate(learner.table)})


# --- a run -----------------------------------------------------------------------------------------------------------


def echoing(text: str) -> str:
    """A recipe of the world above."""
    return f"""
agym: 1
name: echo
model: {{init: {{tokenizer: {{kind: word}}}}}}
environments: {{echo: {{use: echo}}}}
agent: {{format: plain, tokens_per_turn: 2, context_tokens: 64}}
{text}"""


RECIPE = echoing("""
algorithm:
  {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 4, optimizer: {betas: [0.5, 0.9]},
   kl: {coef: 0.01, reference: stage, target: 0.02, target_steps: 5}}
reward: {normalise: environment}
schedule:
  - {stage: imitate, until: step >= 2, algorithm: {use: sft, batch_size: 4, lr: 1, data: {source: expert, noise: 0.2},
     optimizer: {betas: [0.4, 0.9], warmup_steps: 2}}}
  - {stage: exploit, turns: 2, until: step >= 3}
  - {stage: explore, turns: "min(2 + step, 4)", until: "step >= 4 or mean(grad_norm, 2) > 99"}
eval: {every: 3, turns: [2, 4], samples: 2, greedy: true}
checkpoint: {every: 2, best: eval/echo/success, episodes: all}
""")

CATALOG = Catalog(
    environments={
        name: EnvironmentInfo(name=name, summary="say it", splits={"train": 5, "test": 3}, light=True)
        for name in ("echo", "other")
    }
    | {"asking": EnvironmentInfo(name="asking", summary="say it", splits={"train": 5, "test": 3}, judged=True)}
)


class NoFiles:
    def read(self, reference: str, base: Source | None) -> Any:
        raise FileNotFoundError(reference)

    def find(self, path: str, base: Source) -> FileKind:
        return FileKind.FILE if "." in path.lstrip(".") else FileKind.FOLDER

    def folder(self, source: Source) -> str:
        return ""


@lru_cache(maxsize=64)
def plan_of(text: str = RECIPE, *settings: str) -> Plan:
    compiled = compile_recipe(Source("recipe.yaml", text), cast(Any, NoFiles()), settings, {}, CATALOG)
    errors = [f"{each.span}: {each.message}" for each in compiled.diagnostics if each.severity.value == "error"]
    plan = compiled.variants[0].plan if compiled.variants else None
    assert plan is not None, errors
    return plan


@dataclass
class Run:
    """One run folder, with engines that start anew each time it is entered."""

    root: Path
    plan: Plan
    sampler: TableSampler = field(default_factory=TableSampler)
    learner: TableLearner = field(default_factory=TableLearner)
    critic_of: Callable[[TableLearner], FakeCritic] = critic_of
    stop: StopSignal = field(default_factory=StopSignal)
    clients: Mapping[str, EnvClient] = field(default_factory=dict)
    reporter: Any = field(default_factory=SilentReporter)
    engine_notes: list[str] = field(default_factory=list)
    around: Callable[[WorkerGroup], WorkerGroup] = lambda workers: workers

    def go(self) -> RunOutcome:
        return asyncio.run(self.walk())

    async def walk(self) -> RunOutcome:
        space = (
            RunFolder.resume(self.root) if (self.root / "plan.json").exists() else RunFolder.start(self.root, "{}", "")
        )
        judges = JudgeClient(self.plan, self.root / JUDGE, lambda reference: reference)
        engine = Engine(
            self.plan,
            space,
            self.around(self.workers()),
            self.reporter,
            itertools.count().__next__,
            self.stop,
            judges=judges,
            wall_clock=lambda: 0.0,
        )
        try:
            return await engine.run()
        finally:
            await judges.close()
            space.close()

    def workers(self) -> InlineWorkerGroup:
        async def opened(name: str, settings: object) -> EnvClient:
            return self.clients.get(name) or InlineEnv(Echo)

        words = Words()
        rollout = RolloutWorker(self.sampler, Chat(words), words.encode_known, OpenEnvs(opened), lambda: 0.0)
        first = TableLearner().table

        def reference(folder: Path | None) -> TableLearner:
            if folder == Path("teacher"):
                return TableLearner(table=expert())
            return TableLearner(table=first if folder is None else np.load(folder / "table.npy"))

        learner = LearnerWorker(
            self.learner,
            reference,
            ProbeLimits(floor=1e-5, ceiling=1e-5),
            lambda: self.critic_of(self.learner),
            reference,
            self.engine_notes,
        )
        return InlineWorkerGroup(rollout, learner)

    def watched(self) -> list[str]:
        """Runs, and returns what the crew was asked for."""
        calls: list[str] = []
        self.around = lambda workers: Mortal(workers, self.root, range(0), calls)
        self.go()
        return calls

    def killed(self, at: int) -> Run:
        """Dies in its `at`th call; returns the run that goes on from the folder of that moment."""
        ((_, again),) = self.killed_in(range(at, at + 1))
        return again

    def killed_in(self, calls: range) -> list[tuple[int, Run]]:
        """Returns, for each of these calls, the run that goes on from the folder of that moment; dies in the last of
        them."""
        self.around = lambda workers: Mortal(workers, self.root, calls)
        with pytest.raises(Killed):
            self.go()
        return [(at, self.again(grave_of(self.root, at))) for at in calls]

    def again(self, root: Path | None = None) -> Run:
        """Engines just started, on this folder or on a copy of it; what happened to this one does not happen there."""
        fresh = Run(root=root or self.root, plan=self.plan, clients=self.clients, critic_of=self.critic_of)
        fresh.learner.faulty = self.learner.faulty
        return fresh

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.root)

    def exact(self) -> list[dict[str, Any]]:
        """Rows without what a clock says."""
        return [
            {key: row[key] for key in row if not key.startswith(("time", "timing_s/", "perf/", "workers/"))}
            for row in self.rows()
        ]

    def steps(self) -> list[dict[str, Any]]:
        return [row for row in self.rows() if "step" in row]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.root / "checkpoints").iterdir())


def trained(engines: EngineServer, folder: Path, recipe: str) -> Path:
    """The folder of a run that the command line made, with real engines."""
    (folder / "recipe.yaml").write_text(recipe)
    done = engines.run("-m", "agym", "run", "recipe.yaml", cwd=folder, timeout=580)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    (run,) = (folder / "runs").iterdir()
    return run


def episodes_of(run: Path) -> dict[str, list[dict[str, Any]]]:
    """What the log of episodes holds, by file and in its order, without what a clock says."""
    return {
        file.name: [
            json.loads(line, object_hook=_without_seconds)
            for chunk in read_chunks(file)
            for line in chunk.data.splitlines()
        ]
        for file in episode_files(run / EPISODES)
    }


def trained_in(run: Path, step: int) -> list[dict[str, Any]]:
    """The training episodes of a step."""
    return [each for each in episodes_of(run)[TRAIN_LOG] if each["total_step"] == step]


def _without_seconds(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "seconds"}


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class HttpServer(ThreadingHTTPServer):
    """Takes all requests of a step at once: the five that Python lets wait make the others try again after a second."""

    request_queue_size = 256


NewRun = Callable[..., Run]


@pytest.fixture
def new_run(tmp_path: Path) -> NewRun:
    """`new_run("algorithm.lr=1", text=..., clients=...)` in a folder of its own."""
    numbers = itertools.count()

    def make(*settings: str, text: str = RECIPE, **rest: Any) -> Run:
        return Run(root=tmp_path / f"run-{next(numbers)}", plan=plan_of(text, *settings), **rest)

    return make


@pytest.fixture
def words() -> Words:
    return Words()


def grave_of(root: Path, at: int) -> Path:
    return root.with_name(f"grave-{root.name}-{at}")


class Killed(BaseException):
    """The process is gone."""


def worker_call(name: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """What a worker is asked for through a group of workers, and what it is given."""
    return (args[0].__name__, args[1:]) if name in ("rollout", "learner", "compute") else (name, args)


@dataclass
class Mortal:
    """Workers whose process dies in the middle of the last of these calls; the folder of each such moment is kept."""

    workers: WorkerGroup
    root: Path
    deaths: range
    calls: list[str] = field(default_factory=list)

    def count_replaced(self) -> Mapping[str, int]:
        return {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.workers, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(worker_call(name, args)[0])
            result = await function(*args, **kwargs)
            at = len(self.calls)
            if at in self.deaths and not grave_of(self.root, at).exists():
                # what was just done is half done: its result never arrives
                shutil.copytree(self.root, grave_of(self.root, at), ignore=shutil.ignore_patterns(".lock"))
                if at == self.deaths[-1]:
                    raise Killed
            return result

        return call


@pytest.fixture
def echo() -> type[Echo]:
    return Echo


@pytest.fixture
def player_of() -> Callable[..., Any]:
    """`player_of(sampler, phases, table=...)`: an agent at play without a run around it."""
    from agym.dsl.model.recipe import Agent, Format, Rollout
    from agym.runtime.agents.formats import format_for
    from agym.runtime.protocols import SamplingSettings
    from agym.runtime.rollout.env_calls import ConcurrencyLimits
    from agym.runtime.rollout.player import Player

    def make(sampler: TableSampler, timeouts: Rollout | None = None) -> Player:
        timeouts = timeouts or Rollout()
        sampler.table = TableLearner().table if sampler.table is None else sampler.table
        return Player(
            sampler=sampler,
            chat=Chat(Words()),
            format=format_for(Agent(format=Format.PLAIN)),
            prompt=None,
            sampling=replace(SamplingSettings(), stop_ids=(0,)),
            timeouts=timeouts,
            concurrency=ConcurrencyLimits.of(timeouts),
            clock=lambda: 0.0,
        )

    return make


@pytest.fixture
def table_sampler() -> type[TableSampler]:
    return TableSampler


# --- what some presets need -----------------------------------------------------------------------------------------


class _Judge(BaseHTTPRequestHandler):
    """Prefers whoever speaks less of 'wrong' answers."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _, a, b = body["messages"][-1]["content"].split("Conversation ", 2)
        found = (a.count("wrong"), b.count("wrong"))
        word = "tie" if found[0] == found[1] else "A" if found[0] < found[1] else "B"
        message = {"role": "assistant", "content": f"better: {word}"}
        whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 7}}
        content = json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def judge_url() -> Iterator[str]:
    server = HttpServer(("127.0.0.1", 0), _Judge)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def solvable(echo: Any) -> InlineEnv:
    class Solvable(echo):  # type: ignore[misc]
        def expert(self, task: str, seed: int) -> tuple[str, ...]:
            self.reset(task, seed)
            actions = [str(self._wanted)]
            self.step(actions[0])
            return (*actions, str(self._wanted))

        def hindsight(self, task: str, seed: int, actions: Any) -> dict[str, tuple[str, ...]]:
            return {}

    return InlineEnv(Solvable)
