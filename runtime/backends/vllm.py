"""The sampler: a vLLM engine in this process, stepped by the event loop that its callers run in.

Enters: requests. Leaves: what was drawn, with the log-probs of the distribution it was drawn from.

One task, the driver, does all stepping: it lets every coroutine that can run do so, admits what they asked for, makes
one engine step, hands out what is finished, and so on while anything is under way. So a step never waits for a request
and a request never for more than one step; and as the event loop runs callbacks in the order they were scheduled,
the order in which requests enter the engine, which decides the last bits of every result, is a function of the run
alone as long as no timer or socket takes part. Each request draws from its own seed: where sockets do take part, who
shares a batch still moves nothing but those last bits.

The engine's core is driven without vLLM's front end, which would copy and check parameters for each request and build
objects for each token: with a small model that is a third of all time. What the front end also does, stop texts and
length checks, is done here.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...dsl.recipe import DType, Lora
from ..ports import (
    Draw,
    FinishReason,
    Floats,
    NamedTensors,
    Sampled,
    SampleRequest,
    SamplerError,
    SamplerSettings,
    SyncError,
    WeightUpdate,
)
from .group import join_process_group
from .lora import peft_name

if TYPE_CHECKING:
    from torch import Tensor
    from vllm import SamplingParams
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
    from vllm.v1.engine.core_client import InprocClient

__all__ = ["VllmSampler", "core_request"]

_NO_WEIGHTS = -1
_ROUNDS = 4
"""Rounds of the event loop after which a coroutine that got its reply has asked for the next, if it waits for nothing
else: one to wake it, the others for a time limit or a task that it is wrapped in."""
_TAIL_TOKENS = 8
"""Tokens beyond a stop text's own length that are decoded to find it; a token may be part of a letter."""
_DTYPES = {DType.AUTO: "auto", DType.FP32: "float32", DType.BF16: "bfloat16", DType.FP16: "float16"}


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
    """Samples with weights that it is given; all calls must come from one event loop."""

    def __init__(
        self,
        settings: SamplerSettings,
        decode: Callable[[Sequence[int]], str] | None = None,
        start: Callable[[SamplerSettings], InprocClient] | None = None,
    ) -> None:
        """`decode` turns ids into text; without it stop texts cannot be found and are refused."""
        self._settings = settings
        self._decode = decode
        self._core = (start or _start)(settings)
        self._version = _NO_WEIGHTS if settings.weights_follow else 0
        self._waiting: list[_Request] = []
        self._running: dict[str, _Request] = {}
        self._count = 0
        self._driver: asyncio.Task[None] | None = None
        self._paused = False
        self._failure: BaseException | None = None

    # --- sampling

    async def sample(self, request: SampleRequest) -> Sampled:
        """Continues a prompt."""
        sampled: Sampled = await self._ask(request.prompt, _params(request), request.draw.stop_texts)
        return sampled

    async def score(self, ids: Sequence[int]) -> Floats:
        """Log-probs of `ids[1:]`, each given all before it, at temperature 1."""
        scores: Floats = await self._ask(ids, _scoring(), ())
        return scores

    async def _ask(self, prompt: Sequence[int], params: SamplingParams, stop_texts: tuple[str, ...]) -> Any:
        self._check(prompt, stop_texts)
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        # a copy: the caller goes on appending to its own
        request = _Request(str(self._count), list(prompt), params, stop_texts, future)
        self._waiting.append(request)
        self._drive_on()
        try:
            return await future
        except asyncio.CancelledError:
            self._forget(request)
            raise

    def _check(self, prompt: Sequence[int], stop_texts: tuple[str, ...]) -> None:
        if self._failure is not None:
            raise SamplerError("the sampling engine has failed before and takes no more requests") from self._failure
        if self._version == _NO_WEIGHTS:
            raise SamplerError("expected weights before the first request")
        if not 0 < len(prompt) < self._settings.context_tokens:
            raise ValueError(f"expected a prompt of 1 to {self._settings.context_tokens - 1} tokens, got {len(prompt)}")
        if stop_texts and self._decode is None:
            raise ValueError("stop texts need a tokenizer to be found with")

    def _forget(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        elif self._running.pop(request.id, None) is not None:
            self._core.abort_requests([request.id])

    # --- stepping

    def _drive_on(self) -> None:
        if self._driver is None and not self._paused:
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="vllm driver")

    async def _drive(self) -> None:
        try:
            self._wake()
            finished = True
            while not self._paused and (self._waiting or self._running):
                # where nothing finished nobody was woken, and one round is for sockets alone
                for _ in range(_ROUNDS if finished else 1):
                    await asyncio.sleep(0)
                self._admit()
                finished = self._step()
        except Exception as error:
            self._fail(error)
        finally:
            self._driver = None

    def _admit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._running[request.id] = request
            adapted = self._settings.lora is not None
            self._core.add_request(core_request(request.id, request.prompt, request.params, adapted=adapted))

    def _step(self) -> bool:
        """One engine step; whether a request came to its end."""
        finished = False
        for output in self._core.get_output().outputs:
            request = self._running.get(output.request_id)
            if request is not None and (result := self._take(request, output)) is not None:
                del self._running[request.id]
                finished = True
                if not request.future.done():
                    request.future.set_result(result)
        return finished

    def _take(self, request: _Request, output: EngineCoreOutput) -> Sampled | Floats | None:
        if request.params.prompt_logprobs is not None:
            return _scores(output) if output.finish_reason is not None else None
        request.ids += output.new_token_ids
        assert output.new_logprobs is not None
        request.logprobs += output.new_logprobs.logprobs[:, 0].tolist()
        request.versions += [self._version] * len(output.new_token_ids)
        finish = _FINISH[int(output.finish_reason)] if output.finish_reason is not None else None
        if finish is not FinishReason.STOP and self._stopped(request):
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

    def _stopped(self, request: _Request) -> bool:
        if not request.stop_texts or self._decode is None:
            return False
        longest = max(len(text) for text in request.stop_texts)
        tail = self._decode(request.ids[-(longest + _TAIL_TOKENS) :])
        return any(text in tail for text in request.stop_texts)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._fail(error)
            raise SamplerError(f"the sampling engine failed: {error}") from error

    def _fail(self, error: Exception) -> None:
        self._failure = error
        lost = [*self._running.values(), *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for request in lost:
            if not request.future.done():
                failure = SamplerError(f"the sampling engine failed: {error}")
                failure.__cause__ = error
                request.future.set_exception(failure)

    # --- weights

    async def forget(self) -> None:
        """Drops what is kept of earlier prompts; none may be under way."""
        with self._failing():
            self._wake()
            forgot = self._core.reset_prefix_cache()
        if not forgot:
            raise SamplerError("expected the engine to drop what it had cached, with no request under way")

    async def rest(self) -> None:
        """Gives back the memory of a card that it shares with a learner, until it is next asked for something."""
        if self._settings.shares_card and not self._core.is_sleeping():
            await self.pause()
            self._core.sleep(level=1, mode="keep")
            self.resume()

    def _wake(self) -> None:
        if self._settings.shares_card and self._core.is_sleeping():
            # what the learner has freed it still keeps for itself
            torch.cuda.empty_cache()
            self._core.wake_up()

    async def pause(self) -> None:
        """Returns when no request advances any more; they wait, and lose nothing."""
        self._paused = True
        if self._driver is not None:
            await self._driver

    def resume(self) -> None:
        self._paused = False
        if self._waiting or self._running:
            self._drive_on()

    async def load(self, update: WeightUpdate) -> None:
        """Replaces the weights and proves it; raises SyncError. Requests under way go on with the new weights."""
        was_paused = self._paused
        await self.pause()
        with self._failing(), _products(self._core.engine_core.vllm_config.model_config.hf_config.hidden_size):
            self._wake()
            self._take_over(update.tensors)
        # keys and values of the old weights must serve no one: requests under way are computed again from their ids
        if not self._core.reset_prefix_cache(reset_running_requests=True):
            raise SyncError("expected the engine to drop what it had cached of the old weights")
        self._version = update.version
        self._core.set_weight_version(str(update.version))
        # the proof takes an engine step or two, and so do requests under way
        self.resume()
        try:
            await self._prove(update)
        finally:
            if was_paused:
                await self.pause()

    def _take_over(self, tensors: NamedTensors) -> None:
        lora = self._settings.lora
        if lora is None:
            self._core.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(tensors)})
        else:
            self._core.collective_rpc(_replace_adapter, args=(tensors, lora))

    async def _prove(self, update: WeightUpdate) -> None:
        probe = update.probe
        scores = await self.score(probe.ids)
        difference = float(np.abs(scores - probe.logprobs).max())
        if not difference <= probe.tolerance:
            raise SyncError(
                f"the sampler holds other weights than version {update.version}: its log-probs on the probe differ by "
                f"{difference:.2g}, expected at most {probe.tolerance:.2g}"
            )

    async def close(self) -> None:
        """Ends the engine; what is under way is lost."""
        await self.pause()
        self._fail(RuntimeError("it was closed"))
        _stop(self._core)


# --- between our words and vLLM's ----------------------------------------------------------------------------------

_FINISH = {0: FinishReason.STOP, 1: FinishReason.LENGTH}


def core_request(name: str, prompt: list[int], params: SamplingParams, *, adapted: bool = False) -> EngineCoreRequest:
    """A request as the engine core takes it."""
    from vllm.v1.engine import EngineCoreRequest

    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=prompt,
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=_adapter_request() if adapted else None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def _params(request: SampleRequest) -> SamplingParams:
    params = copy(_unseeded(request.draw, request.max_tokens))
    params.seed = request.seed
    return params


@lru_cache(maxsize=64)
def _unseeded(draw: Draw, max_tokens: int) -> SamplingParams:
    """Checked once by vLLM, which takes longer than to copy it for each request."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=draw.temperature,
        top_p=draw.top_p,
        top_k=draw.top_k,
        min_p=draw.min_p,
        max_tokens=max_tokens,
        stop_token_ids=list(draw.stop_ids),
        allowed_token_ids=list(draw.allowed) or None,
        logprobs=0,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _scoring() -> SamplingParams:
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, ignore_eos=True, detokenize=False)


def _scores(output: EngineCoreOutput) -> Floats:
    assert output.new_prompt_logprobs_tensors is not None
    scores: Floats = output.new_prompt_logprobs_tensors.logprobs[:, 0].cpu().numpy()
    return scores


def _start(settings: SamplerSettings) -> InprocClient:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.executor import Executor

    join_process_group()
    with _caller_undisturbed(), _products(_model_config(settings).hidden_size):
        config = EngineArgs(**_engine_args(settings)).create_engine_config()
        # the engine collects garbage several times while it starts, each time among all that was ever imported
        gc.freeze()
        core = InprocClient(config, Executor.get_class(config), log_stats=False)
    if settings.lora is not None and current_platform.is_cpu():
        core.collective_rpc(_multiply_once)
    return core


def _stop(core: InprocClient) -> None:
    """Ends an engine and leaves the process group alone, which vLLM's own way of ending destroys: a learner in the same
    process still needs it."""
    core._finalizer.detach()
    core.engine_core.model_executor.shutdown()
    core.engine_core.scheduler.shutdown()
    gc.unfreeze()


def _engine_args(settings: SamplerSettings) -> dict[str, Any]:
    all_follow = settings.weights_follow and settings.lora is None
    return {
        "model": str(settings.model),
        "dtype": _DTYPES[settings.dtype],
        "skip_tokenizer_init": True,
        "trust_remote_code": settings.trust_remote_code,
        "enforce_eager": settings.eager,
        "max_model_len": settings.context_tokens,
        "max_num_seqs": settings.slots,
        # a prompt in pieces would draw from its seed once for each piece, and on a CPU fails to
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(settings.context_tokens, _BATCHED_TOKENS),
        "block_size": settings.block_size,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": settings.cache_bytes or _cache_bytes(settings),
        "gpu_memory_utilization": settings.memory_share,
        "enable_sleep_mode": settings.shares_card,
        "logprobs_mode": "processed_logprobs",
        "load_format": "dummy" if all_follow else "auto",
        # weights come with the output layer written out, and the engine has one of its own to put it in: of a tied one
        # a CPU engine keeps a copy, which outlives new embeddings unnoticed
        "hf_overrides": {"tie_word_embeddings": False} if all_follow else {},
        **(_adapter_args(settings.lora) if settings.lora is not None else {}),
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "async_scheduling": False,
        "seed": 0,
    }


_BATCHED_TOKENS = 8192


def _cache_bytes(settings: SamplerSettings) -> int | None:
    """What the slots need at full length, on a CPU; a GPU gives what it has left."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return None
    config = _model_config(settings)
    heads, head_dim = config.num_key_value_heads, config.head_dim
    bytes_per_token = 2 * config.num_hidden_layers * heads * head_dim * (4 if settings.dtype is DType.FP32 else 2)
    blocks_per_slot = -(-settings.context_tokens // settings.block_size) + 1
    return int(settings.slots * blocks_per_slot * settings.block_size * bytes_per_token)


def _model_config(settings: SamplerSettings) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model, trust_remote_code=settings.trust_remote_code)
    if getattr(config, "head_dim", None) is None:
        config.head_dim = config.hidden_size // config.num_attention_heads
    return config


_SMALL_HIDDEN = 128
"""Width up to which a CPU multiplies matrices sooner than oneDNN has prepared to, as it does anew for each number of
rows: with 64 a third more tokens per second without it, with 256 a third fewer."""


@contextmanager
def _products(hidden: int) -> Iterator[None]:
    """While weights are being laid out: plain products for small models, oneDNN's packed ones for the others."""
    from vllm import _custom_ops

    packed = getattr(_custom_ops, "_supports_onednn", False)
    _custom_ops._supports_onednn = packed and hidden > _SMALL_HIDDEN
    try:
        yield
    finally:
        _custom_ops._supports_onednn = packed


# --- adapters ------------------------------------------------------------------------------------------------------

_ADAPTER = 1
"""The engine's number for the only one."""


def _adapter_args(lora: Lora) -> dict[str, Any]:
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(rank for rank in _RANKS if rank >= lora.rank),
        "lora_target_modules": list(lora.targets),
    }


_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The engine's own; an adapter of another rank is filled up with zeros."""


@lru_cache(maxsize=1)
def _adapter_request() -> LoRARequest:
    from vllm.lora.request import LoRARequest

    # nothing is read from its path: no request enters before an adapter has come
    return LoRARequest(lora_name="policy", lora_int_id=_ADAPTER, lora_path="by hand")


def _replace_adapter(worker: Any, tensors: NamedTensors, lora: Lora) -> None:
    """In a worker of the engine: the adapter gives way to another."""
    manager = worker.model_runner.lora_manager._adapter_manager
    adapter = _adapter(manager, tensors, lora)
    inside = {part for parts in manager.packed_modules.values() for part in parts}
    if strange := adapter.loras.keys() - manager.modules.keys() - inside:
        raise ValueError(f"expected layers that the engine has, got an adapter of {min(strange)}")
    manager.remove_adapter(_ADAPTER)
    manager.add_adapter(adapter)
    manager.activate_adapter(_ADAPTER)


def _adapter(manager: Any, tensors: NamedTensors, lora: Lora) -> LoRAModel:
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    renames = getattr(manager.model, "hf_to_vllm_mapper", None)
    return LoRAModel.from_lora_tensors(
        _ADAPTER,
        # copies: the engine multiplies the scale into B where it lies
        {peft_name(name): tensor.to("cpu", copy=True) for name, tensor in tensors},
        # only divided by the rank: it need not be whole
        PEFTHelper(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets)),  # type: ignore[arg-type]
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        weights_mapper=renames and renames.get_rename_mapper(),
    )


def _multiply_once(worker: Any) -> None:
    """In a worker on a CPU: all requests have the same adapter, and vLLM's own product copies it for each token."""
    manager = worker.model_runner.lora_manager._adapter_manager
    product = _OneAdapter()
    manager.punica_wrapper_mapping = dict.fromkeys(manager.punica_wrapper_mapping, product)
    for module in manager.modules.values():
        module.set_mapping(product)


class _OneAdapter:
    """What vLLM's layers ask to be added to their outputs."""

    def update_metadata(self, *_: Any) -> None:
        """Which token has which adapter."""

    def add_lora_linear(
        self,
        outputs_TD: Tensor,
        inputs_TD: Tensor,
        downs: tuple[Tensor, ...],
        ups: tuple[Tensor, ...],
        scale: float,
        widths: tuple[int, ...],
    ) -> None:
        """`downs` and `ups` of the layers that the engine has made one, whose outputs lie side by side."""
        for output, down, up in zip(outputs_TD.split(widths, dim=-1), downs, ups, strict=True):
            output += scale * (inputs_TD @ down[0, 0].T) @ up[0, 0].T


@contextmanager
def _caller_undisturbed() -> Iterator[None]:
    """An engine seeds the generators of the process and takes `torch.set_num_threads` away from it."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
