"""The sampler: a vLLM engine in this process, stepped by its callers' event loop.

One task, the driver, does all stepping: it lets every coroutine that can run do so, admits new requests, makes one
engine step, hands out what is finished, and repeats while anything is under way. As the event loop runs callbacks in
the order they were scheduled, the order in which requests enter the engine, which decides the last bits of every
result, is a function of the run alone as long as no timer or socket takes part. Each request draws from its own seed:
where sockets do take part, sharing a batch still changes nothing but those last bits.

A request that comes just after a step has begun has to wait for all of it. So while episodes are in environments of
other processes, a step whose predecessor ended a reply waits for the next of them to come back: for the mean time of a
step divided by the n requests that are ready, so that together they never lose more than one that comes too late. Where
none has begun, as at the start of a rollout, the wait is not divided; in all it is never longer than a step.

The engine's core is driven without vLLM's front end, whose checks, copies and objects for each token take a third of
the time with a small model. What it also does, stop texts and length checks, is done here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...protocols import (
    FinishReason,
    Floats,
    NamedTensors,
    Sampled,
    SampleRequest,
    SamplerError,
    SamplerSettings,
    SamplingSettings,
    SyncError,
    SyncProof,
    WeightUpdate,
)
from ..buckets import fill_buckets
from .adapter import adapter_request
from .core import start_core, stop_core
from .cpu import matrix_products

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
    from vllm.v1.engine.core_client import InprocClient

    from .intake import Outcome

__all__ = ["VllmSampler", "core_request"]

_NO_WEIGHTS = -1
_WAKE_ROUNDS = 4
"""Event loop rounds after which a coroutine that got its reply has sent its next request, if it waits for nothing else:
one to wake it, the others for a time limit or a task around it."""
_STEPS_TIMED = 32
"""Latest engine steps, whose mean time is taken as that of the next."""
_SHORTEST_WAIT_S = 0.001
"""An event loop rounds shorter waits up to this."""
_MARGIN = 4.0
"""Factor by which a later sync may exceed the difference of the first: other text, sharper predictions."""
_PROBLEMS = 4
"""Tensors that an error names."""
_WORKERS_DEADLINE_S = 300.0
"""For workers in other processes to answer a call about weights."""
_TAIL_TOKENS = 8
"""Tokens beyond a stop text's own length that are decoded to find it; a token may be part of a character."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request under way."""

    id: str
    prompt: list[int]
    params: SamplingParams
    stop_texts: tuple[str, ...]
    future: asyncio.Future[Any]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class VllmSampler:
    """Sampler over vLLM; all calls must come from one event loop."""

    def __init__(
        self,
        settings: SamplerSettings,
        decode: Callable[[Sequence[int]], str] | None = None,
        start_core: Callable[[SamplerSettings], InprocClient] = start_core,
    ) -> None:
        """`decode` turns ids into text; without it stop texts are refused."""
        self._settings = settings
        self._decode = decode
        self._core = start_core(settings)
        self._version = _NO_WEIGHTS if settings.weights_follow else settings.version
        self._outcomes: Sequence[Outcome] = ()
        """Of the last sync, of each worker."""
        self._probe_limit: float | None = None
        """Mean difference of a probe's log-probs that counts as rounding; from the first sync on."""
        self._waiting: list[_Request] = []
        self._running: dict[str, _Request] = {}
        self._count = 0
        self._expected = 0
        """Requests that will be sent as soon as an environment has answered."""
        self._answered = asyncio.Event()
        self._step_times: deque[float] = deque([0.0], _STEPS_TIMED)
        self._driver: asyncio.Task[None] | None = None
        self._paused = self._was_paused = False
        self._failure: BaseException | None = None

    # --- sampling

    async def sample(self, request: SampleRequest) -> Sampled:
        sampled: Sampled = await self._submit(request.prompt, _params(request), request.sampling.stop_texts)
        return sampled

    @contextmanager
    def expecting(self) -> Iterator[None]:
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            self._answered.set()

    async def score(self, ids: Sequence[int]) -> Floats:
        scores: Floats = await self._submit(ids, _scoring_params(), ())
        return scores

    async def _submit(self, prompt: Sequence[int], params: SamplingParams, stop_texts: tuple[str, ...]) -> Any:
        self._check(prompt, stop_texts)
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        # a copy: the caller goes on appending to its own
        request = _Request(str(self._count), list(prompt), params, stop_texts, future)
        self._waiting.append(request)
        self._start_driver()
        try:
            return await future
        except asyncio.CancelledError:
            self._cancel(request)
            raise

    def _check(self, prompt: Sequence[int], stop_texts: tuple[str, ...]) -> None:
        if self._failure is not None:
            raise SamplerError("the sampling engine has failed and takes no more requests") from self._failure
        if self._version == _NO_WEIGHTS:
            raise SamplerError("the sampler has no weights yet")
        if not 0 < len(prompt) < self._settings.context_tokens:
            raise ValueError(f"expected a prompt of 1 to {self._settings.context_tokens - 1} tokens, got {len(prompt)}")
        if stop_texts and self._decode is None:
            raise ValueError("stop texts need a tokenizer")

    def _cancel(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        elif self._running.pop(request.id, None) is not None:
            self._core.abort_requests([request.id])

    # --- stepping

    def _start_driver(self) -> None:
        if self._driver is None and not self._paused:
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="vllm driver")

    async def _drive(self) -> None:
        try:
            self._wake()
            finished = True
            while not self._paused and (self._waiting or self._running):
                # if nothing finished, no one was woken, and one round is for sockets alone
                for _ in range(_WAKE_ROUNDS if finished or self._expected else 1):
                    await asyncio.sleep(0)
                if finished:
                    await self._wait_for_expected()
                self._admit()
                finished = self._step()
        except Exception as error:
            self._fail(error)
        finally:
            self._driver = None

    async def _wait_for_expected(self) -> None:
        """Wait for the requests that are expected, as long as the next one comes within the time that it is worth."""
        loop, step_s = asyncio.get_running_loop(), fmean(self._step_times)
        latest = loop.time() + step_s
        while self._expected:
            self._answered = asyncio.Event()
            within = step_s / (len(self._running) + len(self._waiting)) if self._running else step_s
            if within < _SHORTEST_WAIT_S:
                return
            try:
                async with asyncio.timeout_at(min(loop.time() + within, latest)):
                    await self._answered.wait()
            except TimeoutError:
                return

    def _admit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._running[request.id] = request
            adapted = self._settings.lora is not None
            self._core.add_request(core_request(request.id, request.prompt, request.params, adapted=adapted))

    def _step(self) -> bool:
        """Make one engine step; return whether a request has ended."""
        finished, started = False, time.perf_counter()
        outputs = self._core.get_output().outputs
        self._step_times.append(time.perf_counter() - started)
        for output in outputs:
            request = self._running.get(output.request_id)
            if request is not None and (result := self._take(request, output)) is not None:
                del self._running[request.id]
                finished = True
                if not request.future.done():
                    request.future.set_result(result)
        return finished

    def _take(self, request: _Request, output: EngineCoreOutput) -> Sampled | Floats | None:
        if request.params.prompt_logprobs is not None:
            return _read_scores(output) if output.finish_reason is not None else None
        request.ids += output.new_token_ids
        assert output.new_logprobs is not None
        request.logprobs += output.new_logprobs.logprobs[:, 0].tolist()
        request.versions += [self._version] * len(output.new_token_ids)
        finish = _FINISH[int(output.finish_reason)] if output.finish_reason is not None else None
        if finish is not FinishReason.STOP and self._has_stop_text(request):
            if finish is None:
                self._core.abort_requests([request.id])
            finish = FinishReason.STOP
        if finish is None:
            return None
        return Sampled(
            ids=tuple(request.ids),
            logprobs=tuple(request.logprobs),
            versions=tuple(request.versions),
            finish=finish,
        )

    def _has_stop_text(self, request: _Request) -> bool:
        if not request.stop_texts or self._decode is None:
            return False
        longest = max(len(text) for text in request.stop_texts)
        tail = self._decode(request.ids[-(longest + _TAIL_TOKENS) :])
        return any(text in tail for text in request.stop_texts)

    @contextmanager
    def _fail_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._fail(error)
            raise SamplerError(f"the sampling engine failed: {error}") from error

    def _fail(self, error: Exception) -> None:
        self._failure = error
        pending = [*self._running.values(), *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for request in pending:
            if not request.future.done():
                failure = SamplerError(f"the sampling engine failed: {error}")
                failure.__cause__ = error
                request.future.set_exception(failure)

    # --- weights

    async def forget(self) -> None:
        with self._fail_on_error():
            self._wake()
            forgot = self._core.reset_prefix_cache()
        if not forgot:
            raise SamplerError("the engine could not drop its prompt cache: a request is still under way")

    async def sleep(self) -> None:
        if self._settings.shares_gpu and not self._core.is_sleeping():
            await self.pause()
            self._core.sleep(level=1, mode="keep")
            self.resume()

    def _wake(self) -> None:
        if self._settings.shares_gpu and self._core.is_sleeping():
            # what the learner has freed is still held in torch's cache
            torch.cuda.empty_cache()
            self._core.wake_up()

    async def pause(self) -> None:
        """Stop all requests from advancing; they wait, and lose nothing."""
        self._paused = True
        if self._driver is not None:
            await self._driver

    def resume(self) -> None:
        self._paused = False
        if self._waiting or self._running:
            self._start_driver()

    async def load(self, update: WeightUpdate) -> SyncProof:
        from .intake import take_weights

        async with self.receive(update):
            async for tensors in self._divide(update.tensors):
                self.call_workers(take_weights, tensors, self._settings.lora)
        return await self.prove(update)

    @asynccontextmanager
    async def receive(self, update: WeightUpdate) -> AsyncIterator[None]:
        """Replace the weights by what reaches the workers within the context; the digests of the checksums need not be
        known before its end. Requests wait until `prove`."""
        from .intake import begin_update, finish_update

        lora, self._was_paused = self._settings.lora, self._paused
        await self.pause()
        try:
            with self._fail_on_error():
                self._wake()
            self.call_workers(begin_update, update.checksums, lora)
            try:
                yield
            finally:
                self._outcomes = self.call_workers(finish_update, update.checksums, lora)
            self._check_outcomes(update.version)
        except BaseException:
            # nothing must be sampled with weights of an aborted transfer, but the engine can take other weights
            self._version = _NO_WEIGHTS
            if not self._was_paused:
                self.resume()
            raise

    def call_workers(self, work: str | Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function in each worker of the engine, or a method of each."""
        hidden = self._core.engine_core.vllm_config.model_config.hf_config.hidden_size
        with self._fail_on_error(), matrix_products(hidden):
            answers: list[Any] = self._core.collective_rpc(work, timeout=_WORKERS_DEADLINE_S, args=args)
        return answers

    def _check_outcomes(self, version: int) -> None:
        # keys and values of the old weights must not be used: requests under way are recomputed from their ids
        if not self._core.reset_prefix_cache(reset_running_requests=True):
            raise SyncError("the engine could not drop the cache of the old weights")
        problems = list(dict.fromkeys(problem for each in self._outcomes for problem in each.problems))
        if problems:
            rest = f"; {len(problems) - _PROBLEMS} more" if problems[_PROBLEMS:] else ""
            named = "; ".join(problems[:_PROBLEMS])
            raise SyncError(f"the sampler does not hold version {version} of the weights: {named}{rest}")

    async def prove(self, update: WeightUpdate) -> SyncProof:
        """Check the received weights by log-probs, and let requests go on."""
        self._version = update.version
        self._core.set_weight_version(str(update.version))
        # the probe takes an engine step or two, and so do requests under way
        self.resume()
        try:
            difference = await self._verify_probe(update)
        finally:
            if self._was_paused:
                await self.pause()
        unproven = tuple(sorted(frozenset().union(*(each.unproven for each in self._outcomes))))
        compared = min(each.compared for each in self._outcomes)
        return SyncProof(compared=compared, unproven=unproven, difference=difference)

    async def _divide(self, tensors: NamedTensors | AsyncIterable[NamedTensors]) -> AsyncIterator[NamedTensors]:
        """Yield the tensors for each call of the workers: all at once, or in buckets if other processes get copies."""
        if isinstance(tensors, AsyncIterable):
            async for bucket in tensors:
                yield bucket
        elif self._settings.tensor_parallel == 1:
            yield tensors
        else:
            for bucket in fill_buckets(tensors):
                yield bucket

    async def _verify_probe(self, update: WeightUpdate) -> float:
        probe = update.probe
        scores = await asyncio.gather(*(self.score(ids) for ids in probe.sequences))
        compared = [found[len(found) - len(known) :] for found, known in zip(scores, probe.logprobs, strict=True)]
        expected = np.concatenate(list(probe.logprobs))
        # relative, as rounding grows with the size: in bf16, a log-prob of -20 is off by 0.1 and more
        differences = np.abs(np.concatenate(compared) - expected) / (1 + np.abs(expected))
        difference, limit = float(differences.mean()), self._probe_limit or probe.limits.ceiling
        if not difference <= limit:
            raise SyncError(
                f"the sampler does not hold version {update.version} of the weights, or does not compute with them as "
                f"the learner does: log-probs of {differences.size} tokens differ by {difference:.2g} on average, "
                f"relative to 1 + their size; the limit is {limit:.2g}; set 'model.dtype: fp32', or use a model that "
                f"both engines support"
            )
        self._probe_limit = self._probe_limit or min(limit, max(probe.limits.floor, _MARGIN * difference))
        return difference

    async def close(self) -> None:
        """Stop the engine; requests under way are lost."""
        await self.pause()
        self._fail(RuntimeError("it was closed"))
        stop_core(self._core)


# --- between our words and vLLM's ----------------------------------------------------------------------------------

_FINISH = {0: FinishReason.STOP, 1: FinishReason.LENGTH}


def core_request(name: str, prompt: list[int], params: SamplingParams, *, adapted: bool = False) -> EngineCoreRequest:
    """Build a request as the engine core takes it."""
    from vllm.v1.engine import EngineCoreRequest

    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=prompt,
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=adapter_request() if adapted else None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def _params(request: SampleRequest) -> SamplingParams:
    params = copy(_make_params(request.sampling, request.max_tokens))
    params.seed = request.seed
    return params


@lru_cache(maxsize=64)
def _make_params(sampling: SamplingSettings, max_tokens: int) -> SamplingParams:
    """Have vLLM check parameters once, which takes longer than to copy them for each request."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=max_tokens,
        stop_token_ids=list(sampling.stop_ids),
        allowed_token_ids=list(sampling.allowed) or None,
        logprobs=0,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _scoring_params() -> SamplingParams:
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, ignore_eos=True, detokenize=False)


def _read_scores(output: EngineCoreOutput) -> Floats:
    assert output.new_prompt_logprobs_tensors is not None
    scores: Floats = output.new_prompt_logprobs_tensors.logprobs[:, 0].cpu().numpy()
    return scores
