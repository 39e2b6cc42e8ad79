"""Claim: playing costs little more than sampling: rollout tokens per second are 0.95 (floor 0.85) of a bare engine's.

128 episodes of the quickstart to 12 turns, at temperature 1, by an agent that has imitated for a while. Then the same
engine is given the same prompts and made to draw as many tokens, each episode's next turn as soon as its last one has
ended, with no environment, no text and no bookkeeping. The same episodes are played each round, so all observations
have been rendered before, as 97 in 100 have in a run of this game:

- `LLMEngine`, as a user of vLLM would write that loop; once also with a seed for each request, as our rollout has
- the core of it alone, which our sampler drives as well, with a seed for each request
- one big batch: each episode's tokens as one request, an upper bound that turns can at best come near to
- `LLMEngine` with vLLM's own settings for blocks, prompts in pieces and matrix products, in a second engine

With `--model smollm2` the same of a pretrained model with adapters, in bf16: 0.95 (floor 0.9). The 32 episodes of a
step of smollm2/babyai after its imitation, to 4 turns; no big batch, and no second engine.

    python bench/rollout.py [--model smollm2] [--rounds 7] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agym.dsl.model.plan import Plan
from agym.runtime.protocols import Sampled, Sampler, SampleRequest, SamplerSettings
from engines import Engines, in_prepared_process, recipe_plan, started, walked, warm_up_of
from paired import alternated, table

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.engine.llm_engine import LLMEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Which agent plays how much."""

    recipe: str
    imitated: int
    """Steps of imitation; fewer in a quick try."""
    imitated_quickly: int
    threads: int
    groups: int
    horizon: int
    size: int = 8

    def plan(self, *, quick: bool) -> Plan:
        steps = self.imitated_quickly if quick else self.imitated
        settings = f"schedule.0.until=step >= {steps}", "eval=null", "schedule.0.eval_every=null"
        return warm_up_of(recipe_plan(self.recipe, *settings))


_GAMES = {
    "quickstart": Game(recipe="quickstart", imitated=250, imitated_quickly=60, threads=1, groups=16, horizon=12),
    "smollm2": Game(recipe="smollm2/babyai", imitated=8, imitated_quickly=8, threads=2, groups=4, horizon=4),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=_GAMES, default="quickstart")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round, after less of a warm-up")
    arguments = parser.parse_args()
    game = _GAMES[arguments.model]
    in_prepared_process(game.threads)
    with tempfile.TemporaryDirectory() as folder:
        rounds = 1 if arguments.quick else arguments.rounds
        asyncio.run(measure(game, game.plan(quick=arguments.quick), Path(folder), rounds))
    return 0


async def measure(game: Game, plan: Plan, folder: Path, rounds: int) -> None:
    recording = Recording()
    async with started(plan, folder, game.groups * game.size, recording.start) as engines:
        await walked(plan, folder, engines.workers)
        await engines.workers.sync(game.imitated)
        await compare(game, engines, recording, rounds)


async def compare(game: Game, engines: Engines, recording: Recording, rounds: int) -> None:
    orders = await engines.orders(game.groups, game.size, game.horizon)
    style = engines.style(game.groups * game.size)

    async def ours() -> None:
        await engines.rollout.play(orders, style, lambda episode: None)

    recording.on = True
    await ours()
    recording.on = False
    talks = recording.talks()
    ways = {"our rollout": ours, **_bare_ways(recording, talks)}
    spent = await alternated(ways, rounds)
    drawn = sum(turn.draws for talk in talks for turn in talk)
    turns = sum(map(len, talks))
    print(f"{len(talks)} episodes, {turns} turns, {drawn / turns:.1f} sampled tokens a turn\n")
    print(table("our rollout", spent, dict.fromkeys(ways, drawn)))


def _bare_ways(recording: Recording, talks: Sequence[Talk]) -> Mapping[str, Callable[[], Awaitable[None]]]:
    front, core = FrontEnd(recording), Core(recording)
    ways = {
        "LLMEngine": replay(front, talks, seeded=False),
        "LLMEngine, seeds": replay(front, talks, seeded=True),
        "engine core, seeds": replay(core, talks, seeded=True),
    }
    if recording.is_adapted:
        return ways
    whole = at_once(talks)
    return ways | {
        "LLMEngine, vLLM's settings": replay(FrontEnd(recording, recording.second_engine()), talks, seeded=False),
        "one big batch, LLMEngine": replay(front, whole, seeded=False),
        "one big batch, engine core, seeds": replay(core, whole, seeded=True),
    }


# --- what was asked of the engine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A request: what was read since the last one, and how much was drawn."""

    given: Sequence[int]
    draws: int
    seed: int


Talk = Sequence[Turn]
"""An episode as the engine saw it."""


class Recording:
    """Makes the sampler of a run, on an engine that has vLLM's own front end as well, and listens to it."""

    def __init__(self) -> None:
        self.on = False
        self.is_adapted = False
        self._heard: dict[object, list[tuple[SampleRequest, Sampled]]] = {}

    def start(self, settings: SamplerSettings, decode: Callable[[Sequence[int]], str]) -> Sampler:
        from agym.runtime.backends.vllm.sampler import VllmSampler

        sampler = VllmSampler(settings, decode, self._start)
        self._sample, sampler.sample = sampler.sample, self._listen  # type: ignore[method-assign]
        return sampler

    def _start(self, settings: SamplerSettings) -> InprocClient:
        from agym.runtime.backends.vllm.core import _engine_args, _model_config, _preserve_process_state
        from agym.runtime.backends.vllm.cpu import matrix_products, speed_up
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.core_client import InprocClient
        from vllm.v1.engine.llm_engine import LLMEngine

        self._arguments = _engine_args(settings)
        with _preserve_process_state(), matrix_products(_model_config(settings).hidden_size):
            self.engine = LLMEngine.from_engine_args(EngineArgs(**self._arguments))
        assert isinstance(self.engine.engine_core, InprocClient)
        self.is_adapted = settings.lora is not None
        speed_up(self.engine.engine_core)
        return self.engine.engine_core

    def second_engine(self) -> LLMEngine:
        """Another engine, as vLLM makes it when asked for nothing but the same length, slots and precision."""
        from agym.runtime.backends.vllm.core import _preserve_process_state
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        asked_for = ("model", "dtype", "skip_tokenizer_init", "max_model_len", "max_num_seqs", "enforce_eager")
        given = (*asked_for, "kv_cache_memory_bytes", "load_format", "hf_overrides", "use_tqdm_on_load")
        with _preserve_process_state():
            engine = LLMEngine.from_engine_args(EngineArgs(**{name: self._arguments[name] for name in given}))
        # ending it would end the process group too, which the learner still needs
        engine.engine_core._finalizer.detach()
        return engine

    async def _listen(self, request: SampleRequest) -> Sampled:
        if not self.on:
            return await self._sample(request)
        prompt = tuple(request.prompt)
        sampled = await self._sample(request)
        # with a slot for each episode, a task is an episode
        self._heard.setdefault(asyncio.current_task(), []).append((replace(request, prompt=prompt), sampled))
        return sampled

    def talks(self) -> list[Talk]:
        return [list(_turns(heard)) for heard in self._heard.values()]


def _turns(heard: Sequence[tuple[SampleRequest, Sampled]]) -> Iterator[Turn]:
    known = 0
    for request, sampled in heard:
        yield Turn(given=request.prompt[known:], draws=len(sampled.ids), seed=request.seed)
        known = len(request.prompt) + len(sampled.ids)


def at_once(talks: Sequence[Talk]) -> list[Talk]:
    """As many tokens drawn for each episode, and nothing read in between."""
    return [[replace(talk[0], draws=sum(turn.draws for turn in talk))] for talk in talks]


# --- bare loops ----------------------------------------------------------------------------------------------------


class FrontEnd:
    """vLLM as its users know it."""

    def __init__(self, recording: Recording, engine: LLMEngine | None = None) -> None:
        self._engine = engine or recording.engine
        self._is_adapted = recording.is_adapted
        self.forget = self._engine.reset_prefix_cache

    def add(self, name: str, prompt: list[int], params: SamplingParams) -> None:
        from agym.runtime.backends.vllm.adapter import adapter_request

        adapter = adapter_request() if self._is_adapted else None
        self._engine.add_request(name, {"prompt_token_ids": prompt}, params, lora_request=adapter)

    def step(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Those that have ended, with what was drawn."""
        for output in self._engine.step():
            if output.finished:
                yield output.request_id, output.outputs[0].token_ids


class Core:
    """What is below it, driven with as little as possible."""

    def __init__(self, recording: Recording) -> None:
        self._core: InprocClient = recording.engine.engine_core  # type: ignore[assignment]
        self._is_adapted = recording.is_adapted
        self._drawn: dict[str, list[int]] = {}
        self._logprobs: dict[str, list[float]] = {}
        self.forget = self._core.reset_prefix_cache

    def add(self, name: str, prompt: list[int], params: SamplingParams) -> None:
        from agym.runtime.backends.vllm.sampler import core_request

        self._drawn[name], self._logprobs[name] = [], []
        self._core.add_request(core_request(name, prompt, params, adapted=self._is_adapted))

    def step(self) -> Iterator[tuple[str, Sequence[int]]]:
        for output in self._core.get_output().outputs:
            self._drawn[output.request_id] += output.new_token_ids
            self._logprobs[output.request_id] += output.new_logprobs.logprobs[:, 0].tolist()
            if output.finish_reason is not None:
                del self._logprobs[output.request_id]
                yield output.request_id, self._drawn.pop(output.request_id)


def replay(engine: FrontEnd | Core, talks: Sequence[Talk], *, seeded: bool) -> Callable[[], Awaitable[None]]:
    """All episodes at the same time, each turn as soon as the one before it has ended."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.FINAL_ONLY if isinstance(engine, FrontEnd) else RequestOutputKind.DELTA

    async def go() -> None:
        engine.forget()
        prompts: list[list[int]] = [[] for _ in talks]
        running = dict[str, tuple[int, int]]()

        def begin(talk: int, number: int) -> None:
            turn, name = talks[talk][number], f"{talk}.{number}"
            prompts[talk] = [*prompts[talk], *turn.given]
            params = SamplingParams(
                temperature=1.0,
                max_tokens=turn.draws,
                ignore_eos=True,
                seed=turn.seed if seeded else None,
                logprobs=0,
                detokenize=False,
                output_kind=kind,
            )
            running[name] = talk, number
            engine.add(name, prompts[talk], params)

        for talk in range(len(talks)):
            begin(talk, 0)
        while running:
            for name, drawn in engine.step():
                talk, number = running.pop(name)
                prompts[talk] = [*prompts[talk], *drawn]
                if number + 1 < len(talks[talk]):
                    begin(talk, number + 1)

    return go


if __name__ == "__main__":
    sys.exit(main())
