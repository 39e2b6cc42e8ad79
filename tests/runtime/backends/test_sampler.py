"""The vLLM sampler, real, and what it and the learner must agree on."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from agym.dsl.model.recipe import DType, Lora
from agym.runtime.errors import LearnerLost
from agym.runtime.protocols import (
    FinishReason,
    NamedTensors,
    Probe,
    ProbeLimits,
    Sampled,
    SampleRequest,
    SamplerError,
    SamplerSettings,
    SamplingSettings,
    SyncError,
    TrainSequence,
    UpdateSettings,
    WeightUpdate,
)
from weight_sync import FAULTS, Pair, plant

from .conftest import REAL, VOCAB, model_folder

pytestmark = REAL

Make = Callable[..., object]
LORA = Lora(rank=4, alpha=16, targets=("q_proj", "v_proj", "o_proj", "down_proj"))
PROBE = random.Random(3).choices(range(VOCAB), k=100)


def whole(ids: Iterable[int]) -> TrainSequence:
    """A sequence that is scored as a whole."""
    ids = np.array(list(ids), np.int32)
    loss_mask = np.ones(len(ids), np.bool_)
    loss_mask[0] = False
    return TrainSequence(ids=ids, loss_mask=loss_mask, advantages=np.zeros(len(ids), np.float32))


def handover(learner: object, version: int, tolerance: float = 1e-5) -> WeightUpdate:
    logprobs = learner.logprobs([whole(PROBE)], 1.0)[0][1:]
    return WeightUpdate(
        version=version,
        tensors=learner.weights(),
        checksums=learner.checksums(),
        probe=Probe(sequences=[PROBE], logprobs=[logprobs], limits=ProbeLimits(floor=tolerance, ceiling=tolerance)),
    )


def request(prompt: Iterable[int], seed: int, max_tokens: int = 8, **sampling: object) -> SampleRequest:
    return SampleRequest(prompt=list(prompt), sampling=SamplingSettings(**sampling), max_tokens=max_tokens, seed=seed)


async def episode(sampler: object, index: int, turns: int, sampling: SamplingSettings) -> TrainSequence:
    """A world that answers each reply with random tokens."""
    world = random.Random(index)
    ids = [world.randrange(VOCAB) for _ in range(world.randrange(2, 60))]
    loss_mask, logprobs = [False] * len(ids), [0.0] * len(ids)
    for turn in range(turns):
        drawn = await sampler.sample(
            SampleRequest(prompt=ids, sampling=sampling, max_tokens=world.randint(1, 12), seed=index * 1000 + turn)
        )
        answer = [world.randrange(VOCAB) for _ in range(world.randrange(1, 9))]
        ids += [*drawn.ids, *answer]
        loss_mask += [True] * len(drawn.ids) + [False] * len(answer)
        logprobs += [*drawn.logprobs, *[0.0] * len(answer)]
    return TrainSequence(
        ids=np.array(ids, np.int32),
        loss_mask=np.array(loss_mask),
        advantages=np.array([world.gauss(0, 1) for _ in ids], np.float32),
        old_logprobs=np.array(logprobs, np.float32),
    )


async def episodes(sampler: object, count: int, turns: int = 5, **sampling: object) -> list[TrainSequence]:
    return await asyncio.gather(
        *(episode(sampler, index, turns, SamplingSettings(**sampling)) for index in range(count))
    )


def run(scenario: Callable[[], Awaitable[object]]) -> object:
    return asyncio.run(scenario())


def identical(some: list[TrainSequence], others: list[TrainSequence]) -> bool:
    return all(
        np.array_equal(one.ids, other.ids) and np.array_equal(one.old_logprobs, other.old_logprobs)
        for one, other in zip(some, others, strict=True)
    )


def shift(learner: object, names: Iterable[str] | None = None, by: float = 0.02) -> None:
    """Moves weights, as an update would."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in learner.weights():
            if names is None or name in names:
                tensor += by * torch.randn(tensor.shape, generator=generator)


# --- agreement


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_are_the_learners_own(sampler: object, learner: Make, temperature: float):
    engine = learner()

    async def scenario() -> list[TrainSequence]:
        await sampler.load(handover(engine, 0))
        return await episodes(sampler, 200, temperature=temperature, stop_ids=(1,))

    played = run(scenario)
    scored = engine.logprobs(played, temperature)
    assert sum(int(each.loss_mask.sum()) for each in played) > 4000
    worst = max(np.abs(one - each.old_logprobs).max() for one, each in zip(scored, played, strict=True))
    assert worst < 1e-4


def test_fresh_samples_have_a_ratio_of_one(sampler: object, learner: Make):
    engine = learner()

    async def scenario() -> None:
        for version in range(3):
            await sampler.load(handover(engine, version))
            metrics = engine.update(await episodes(sampler, 32), UpdateSettings(lr=1e-3))
            assert metrics.fault is None
            assert metrics.ratio_error < 1e-4

    run(scenario)


@pytest.mark.parametrize("hidden", [64, 192])
def test_a_change_of_any_tensor_reaches_the_sampler(tmp_path: Path, learner: Make, hidden: int):
    """Narrow models are multiplied plainly, wide ones with packed weights."""
    from agym.runtime.backends.vllm.sampler import VllmSampler

    model = model_folder(tmp_path, hidden)
    engine = learner(model=model)
    names = [name for name, _ in engine.weights()]
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} < set(names)
    # fresh weights are so small that what attention looks at hardly matters; make it matter
    shift(engine, by=0.2)

    async def scenario() -> None:
        sampler = VllmSampler(SamplerSettings(model=model, context_tokens=128, slots=4))
        before = np.inf
        for version, name in enumerate(["", *names]):
            shift(engine, [name])
            await sampler.load(handover(engine, version, tolerance=1e-4))
            after = await sampler.score(PROBE)
            assert np.abs(after - before).max() > 1e-3, name
            before = after
        await sampler.close()

    run(scenario)


def test_sampler_without_the_learners_weights_is_found_out(sampler: object, learner: Make):
    one, other = learner(), learner()
    shift(other, ["model.layers.1.mlp.up_proj.weight"])

    async def scenario() -> None:
        update = dataclasses.replace(handover(one, 1), tensors=other.weights())
        with pytest.raises(SyncError, match="does not hold version 1 of the weights"):
            await sampler.load(update)
        not_numbers = [(name, tensor * float("nan")) for name, tensor in one.weights()]
        with pytest.raises(SyncError):
            await sampler.load(dataclasses.replace(handover(one, 1), tensors=not_numbers))
        await sampler.load(handover(one, 1))

    run(scenario)


@pytest.mark.parametrize(("hidden", "lora"), [(64, None), (192, None), (64, LORA)], ids=["plain", "packed", "lora"])
def test_planted_faults_are_found_on_the_way_and_inside_the_engine(tmp_path: Path, hidden: int, lora: Lora | None):
    texts = [random.Random(seed).choices(range(VOCAB), k=25) for seed in range(4)]

    async def scenario() -> dict[str, int | None]:
        pair = Pair(model_folder(tmp_path, hidden), DType.FP32, lora, texts)
        shift(pair.learner, by=0.1)
        await pair.sampler.load(pair.update(random.Random(0)))
        found = {
            f"{name}, inside: {inside}": await plant(pair, name, inside=inside, seed=at)
            for at, name in enumerate(FAULTS)
            for inside in (False, True)
        }
        await pair.close()
        return found

    found = run(scenario)
    assert [fault for fault, syncs in found.items() if syncs == 0] == []
    assert sum(syncs is not None for syncs in found.values()) >= 18


def test_broken_first_sync_does_not_measure_its_own_rounding(sampler_settings: SamplerSettings, learner: Make):
    """What the learner says is off by a little more than rounding; the next one is held to what the first one was."""
    from agym.runtime.backends.vllm.sampler import VllmSampler

    engine = learner()

    def claimed(version: int, off: float) -> WeightUpdate:
        update = handover(engine, version)
        (logprobs,) = update.probe.logprobs
        probe = Probe(
            sequences=[PROBE],
            logprobs=[logprobs + off * (1 + np.abs(logprobs))],
            limits=ProbeLimits(floor=1e-4, ceiling=1e-2),
        )
        return dataclasses.replace(update, probe=probe)

    async def scenario() -> None:
        sampler = VllmSampler(sampler_settings)
        for off in (0.02, float("nan")):
            with pytest.raises(SyncError, match=r"log-probs of 99 tokens differ by .*; the limit is 0\.01"):
                await sampler.load(claimed(0, off))
        proof = await sampler.load(claimed(1, 0.001))
        assert proof.difference == pytest.approx(0.001, rel=0.1)
        assert (proof.compared, proof.unproven) == (len(engine.checksums()), ())
        await sampler.load(claimed(2, 0.0035))
        with pytest.raises(SyncError, match=r"differ by 0\.005 on average, .*; the limit is 0\.004"):
            await sampler.load(claimed(3, 0.005))
        await sampler.close()

    run(scenario)


def test_nothing_cached_under_old_weights_is_used_with_new_ones(sampler: object, learner: Make):
    engine = learner()
    prompt = PROBE * 3

    async def scenario() -> tuple[Sampled, Sampled]:
        await sampler.load(handover(engine, 0))
        before = await sampler.sample(request(prompt, 0))
        shift(engine)
        await sampler.load(handover(engine, 1))
        return before, await sampler.sample(request(prompt, 0))

    before, after = run(scenario)
    scored = engine.logprobs([whole([*prompt, *after.ids])], 1.0)[0][len(prompt) :]
    np.testing.assert_allclose(after.logprobs, scored, atol=1e-5)
    assert before.logprobs != after.logprobs


def test_request_under_way_goes_on_under_new_weights_as_if_it_had_always_had_them(sampler: object, learner: Make):
    old, new = learner(), learner()
    shift(new)

    async def scenario() -> Sampled:
        await sampler.load(handover(old, 4))
        asked = asyncio.create_task(sampler.sample(request(PROBE, 0, max_tokens=200)))
        while not (sampler._running and len(next(iter(sampler._running.values())).ids) > 20):
            await asyncio.sleep(0)
        await sampler.load(handover(new, 5))
        return await asked

    drawn = run(scenario)
    changed = drawn.versions.index(5)
    assert changed > 20
    assert drawn.versions == (4,) * changed + (5,) * (200 - changed)
    scored = [engine.logprobs([whole([*PROBE, *drawn.ids])], 1.0)[0][len(PROBE) :] for engine in (old, new)]
    np.testing.assert_allclose(drawn.logprobs[:changed], scored[0][:changed], atol=1e-5)
    np.testing.assert_allclose(drawn.logprobs[changed:], scored[1][changed:], atol=1e-5)


# --- determinism


def test_same_run_gives_the_same_bits_whatever_the_engine_did_before(
    sampler: object, learner: Make, sampler_settings: SamplerSettings
):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    engine = learner()

    async def scenario() -> tuple[list[TrainSequence], ...]:
        fresh = VllmSampler(sampler_settings)
        await episodes(sampler, 7, turns=3)
        played = []
        for each in (sampler, fresh, sampler):
            await each.load(handover(engine, 0))
            played.append(await episodes(each, 100))
        await fresh.close()
        return tuple(played)

    first, fresh, again = run(scenario)
    assert identical(first, fresh)
    assert identical(first, again)


def test_what_is_drawn_does_not_depend_on_who_else_is_being_sampled(sampler: object, learner: Make):
    async def scenario() -> tuple[list[TrainSequence], list[TrainSequence]]:
        await sampler.load(handover(learner(), 0))
        together = await episodes(sampler, 30)
        alone = [await episode(sampler, index, 5, SamplingSettings()) for index in range(30)]
        return together, alone

    for one, other in zip(*run(scenario), strict=True):
        assert np.array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.old_logprobs, other.old_logprobs, atol=1e-5)


@pytest.mark.parametrize("cut", [False, True])
def test_seeds_drawn_in_blocks_give_the_tokens_that_vllm_draws_one_by_one(cut: bool):
    from agym.runtime.backends.vllm.cpu import SeededSampler
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    samplers = SeededSampler(), TopKTopPSampler("processed_logprobs").forward_cpu
    own, theirs = ([torch.Generator().manual_seed(seed) for seed in range(12)] for _ in samplers)
    logits = torch.Generator().manual_seed(1)
    found = []
    for step in range(50):
        # requests come, end and change places; row 2 is a greedy one's
        rows = sorted(range(step % 5, 12 - step % 4), key=lambda each: (each * 7 + step) % 12)
        logits_NV = 3 * torch.randn(len(rows), VOCAB, generator=logits)
        top_k, top_p = (torch.full((len(rows),), 40), torch.full((len(rows),), 0.9)) if cut else (None, None)
        (ids, logprobs), (their_ids, their_logprobs) = (
            sample(logits_NV.clone(), {row: made[at] for row, at in enumerate(rows) if row != 2}, top_k, top_p)
            for sample, made in zip(samplers, (own, theirs), strict=True)
        )
        drawn = [row for row in range(len(rows)) if row != 2]
        assert ids[drawn].tolist() == their_ids[drawn].tolist()
        assert torch.equal(logprobs, their_logprobs)
        found += ids[drawn].tolist()
    assert len(set(found)) > 50


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_of_a_norm_gives_what_torch_gives_also_for_slices(dtype: torch.dtype):
    from agym.runtime.backends.vllm.cpu import normalise
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.layernorm import RMSNorm

    draws = torch.Generator().manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        norm = RMSNorm(32, dtype=dtype)
    norm.weight.data.copy_(torch.rand(32, generator=draws))
    # queries are a slice of what one product gives
    queries = torch.randn(7, 3 * 32, generator=draws).to(dtype)[:, :64].view(7, 2, 32)
    wide, residual = (torch.randn(7, 40, generator=draws).to(dtype)[:, 4:36] for _ in range(2))
    near = {"rtol": 1e-5, "atol": 1e-6} if dtype is torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(normalise(norm, queries), norm.forward_native(queries), **near)
    theirs = norm.forward_native(wide.clone(), residual.clone())
    torch.testing.assert_close(normalise(norm, wide, residual), theirs, **near)


def test_an_engine_on_a_cpu_uses_the_kernel_of_its_norms(sampler: object):
    def kernels(worker: object) -> list[bool]:
        from agym.runtime.backends.vllm.cpu import normalise
        from vllm.model_executor.layers.layernorm import RMSNorm

        norms = (each for each in worker.model_runner.get_model().modules() if type(each) is RMSNorm)
        return [getattr(norm._forward_method, "func", None) is normalise for norm in norms]

    (found,) = sampler.call_workers(kernels)
    assert len(found) > 6
    assert all(found)


def test_building_an_engine_leaves_the_process_as_it_was(sampler_settings: SamplerSettings):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    def state() -> tuple[object, ...]:
        return random.getstate(), tuple(np.random.get_state()[1]), torch.get_rng_state().tolist(), torch.set_num_threads

    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    before = state()
    engine = VllmSampler(sampler_settings)
    assert state() == before
    asyncio.run(engine.close())


def test_learner_outlives_the_sampler(learner: Make, sampler_settings: SamplerSettings, sequences: Make):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    engine = learner(zero=1)
    asyncio.run(VllmSampler(sampler_settings).close())
    assert engine.update(sequences(0), UpdateSettings(lr=1e-3)).fault is None


# --- requests


@pytest.fixture
def ready(sampler: object, learner: Make) -> object:
    asyncio.run(sampler.load(handover(learner(), 0)))
    return sampler


def test_reply_ends_with_the_stop_token_or_at_its_length(ready: object):
    async def scenario() -> tuple[Sampled, Sampled]:
        free = await ready.sample(request(PROBE, 0, max_tokens=6))
        return free, await ready.sample(request(PROBE, 0, max_tokens=6, stop_ids=(free.ids[2],)))

    free, stopped = run(scenario)
    assert (len(free.ids), free.finish) == (6, FinishReason.LENGTH)
    assert (stopped.ids, stopped.finish) == (free.ids[:3], FinishReason.STOP)


def test_reply_ends_with_the_token_that_completes_a_stop_text(ready: object):
    async def scenario() -> tuple[Sampled, Sampled]:
        free = await ready.sample(request(PROBE, 0, max_tokens=20))
        text = ready._decode(free.ids[4:6])
        return free, await ready.sample(request(PROBE, 0, max_tokens=20, stop_texts=(text, "never")))

    free, stopped = run(scenario)
    assert len(stopped.ids) <= 6
    assert (stopped.ids, stopped.finish) == (free.ids[: len(stopped.ids)], FinishReason.STOP)
    assert not ready._running


def test_greedy_takes_the_likeliest(ready: object):
    async def scenario() -> tuple[Sampled, ...]:
        return tuple([await ready.sample(request(PROBE, seed, temperature=0.0)) for seed in (1, 2)])

    one, other = run(scenario)
    assert one.ids == other.ids


def test_logprobs_are_those_of_the_distribution_that_was_cut(ready: object):
    async def scenario() -> Sampled:
        return await ready.sample(request(PROBE, 0, max_tokens=40, top_k=1))

    assert run(scenario).logprobs == (0.0,) * 40


def test_logprobs_are_those_of_the_tokens_that_were_allowed(ready: object):
    prompt, allowed = PROBE[:20], (3, 7, 11)

    async def scenario() -> None:
        scores = np.array([(await ready.score([*prompt, token]))[-1] for token in allowed], np.float64)
        expected = scores - np.log(np.exp(scores).sum())
        drawn = [await ready.sample(request(prompt, seed, 1, allowed=allowed, stop_ids=(7,))) for seed in range(20)]
        assert len({each.ids for each in drawn}) > 1
        for each in drawn:
            (token,) = each.ids
            assert each.logprobs[0] == pytest.approx(expected[allowed.index(token)], abs=1e-4)

    run(scenario)


def test_reply_fills_the_context_and_no_more(ready: object, sampler_settings: SamplerSettings):
    async def scenario() -> Sampled:
        return await ready.sample(request([5] * (sampler_settings.context_tokens - 3), 0, max_tokens=50))

    assert len(run(scenario).ids) == 3


@pytest.mark.parametrize("length", [0, 512])
def test_prompt_that_leaves_no_room_is_refused(ready: object, length: int):
    with pytest.raises(ValueError, match=f"expected a prompt of 1 to 511 tokens, got {length}"):
        run(lambda: ready.sample(request([5] * length, 0)))


def test_cancelled_request_leaves_nothing_behind(ready: object):
    async def scenario() -> None:
        asked = [asyncio.create_task(ready.sample(request(PROBE, seed, max_tokens=300))) for seed in range(3)]
        other = asyncio.create_task(ready.sample(request(PROBE, 9, max_tokens=20)))
        for at, rounds in enumerate((0, 1, 40)):
            for _ in range(rounds):
                await asyncio.sleep(0)
            asked[at].cancel()
        assert len((await other).ids) == 20
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert not ready._running
        assert not ready._waiting
        assert ready._core.engine_core.scheduler.get_num_unfinished_requests() == 0

    run(scenario)


def test_paused_sampler_keeps_requests_and_answers_when_resumed(ready: object):
    async def scenario() -> None:
        asked = asyncio.create_task(ready.sample(request(PROBE, 0, max_tokens=100)))
        for _ in range(30):
            await asyncio.sleep(0)
        await ready.pause()
        drawn = len(next(iter(ready._running.values())).ids)
        await asyncio.sleep(0.05)
        assert 0 < drawn < 100
        assert len(next(iter(ready._running.values())).ids) == drawn
        ready.resume()
        assert len((await asked).ids) == 100

    run(scenario)


def count_steps(ready: object, monkeypatch: pytest.MonkeyPatch, step_s: float) -> list[int]:
    """Requests in each engine step, as if earlier steps had taken `step_s`."""
    monkeypatch.setattr(ready, "_step_times", deque([step_s], 1))
    step, counted = ready._step, list[int]()

    def counting() -> bool:
        counted.append(len(ready._running))
        return step()

    monkeypatch.setattr(ready, "_step", counting)
    return counted


async def sample_after(sampler: object, wait: Awaitable[object], seed: int, max_tokens: int) -> Sampled:
    """As an episode does whose environment is in another process."""
    with sampler.expecting():
        await wait
    return await sampler.sample(request(PROBE, seed, max_tokens=max_tokens))


def test_first_step_waits_for_requests_whose_environments_still_answer(ready: object, monkeypatch: pytest.MonkeyPatch):
    counted = count_steps(ready, monkeypatch, step_s=30)

    async def scenario() -> None:
        waits = (asyncio.sleep(0.01 * seed) for seed in range(5))
        await asyncio.gather(*(sample_after(ready, wait, seed, 3) for seed, wait in enumerate(waits)))

    run(scenario)
    assert counted == [5, 5, 5]


@pytest.mark.parametrize("step_s", [0.02, 0.0002])
def test_requests_under_way_do_not_wait_longer_than_a_late_one_would(
    ready: object, monkeypatch: pytest.MonkeyPatch, step_s: float
):
    counted = count_steps(ready, monkeypatch, step_s)

    async def scenario() -> None:
        never = asyncio.Event()
        late = asyncio.create_task(sample_after(ready, never.wait(), 9, 1))
        lengths = range(1, 9)
        replies = await asyncio.gather(*(ready.sample(request(PROBE, seed, max_tokens=seed)) for seed in lengths))
        assert [len(each.ids) for each in replies] == list(lengths)
        assert not late.done()
        never.set()
        assert len((await late).ids) == 1

    run(scenario)
    assert counted == [8, 7, 6, 5, 4, 3, 2, 1, 1]


def test_an_episode_that_ends_in_its_environment_is_no_longer_expected(ready: object):
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await sample_after(ready, asyncio.Event().wait(), 0, 1)

    run(scenario)
    assert ready._expected == 0


def test_weights_can_come_while_paused_and_it_stays_paused(ready: object, learner: Make):
    async def scenario() -> None:
        await ready.pause()
        await ready.load(handover(learner(), 1))
        asked = asyncio.create_task(ready.sample(request(PROBE, 0)))
        await asyncio.sleep(0.05)
        assert not asked.done()
        ready.resume()
        assert (await asked).versions == (1,) * 8

    run(scenario)


# --- failure


class BrokenCore:
    """An engine that takes requests and fails at the first step."""

    def __init__(self, settings: SamplerSettings) -> None:
        self.engine_core = SimpleNamespace()

    def add_request(self, request: object) -> None:
        pass

    def get_output(self) -> object:
        raise MemoryError("no memory for the batch")


def test_engine_that_fails_fails_all_that_is_under_way_and_all_that_follows(sampler_settings: SamplerSettings):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    async def scenario() -> None:
        sampler = VllmSampler(dataclasses.replace(sampler_settings, weights_follow=False), start_core=BrokenCore)
        failures = await asyncio.gather(
            *(sampler.sample(request(PROBE, seed)) for seed in range(3)), return_exceptions=True
        )
        assert [str(failure) for failure in failures] == ["the sampling engine failed: no memory for the batch"] * 3
        with pytest.raises(SamplerError, match="has failed and takes no more requests"):
            await sampler.sample(request(PROBE, 0))

    run(scenario)


class SleepyCore:
    """An engine that keeps a log; asleep it can do nothing."""

    def __init__(self, settings: SamplerSettings) -> None:
        self.diary: list[str] = []

    def is_sleeping(self) -> bool:
        return self.diary[-1:] == ["sleep"]

    def sleep(self, level: int, mode: str) -> None:
        assert not self.is_sleeping()
        self.diary.append("sleep")

    def wake_up(self) -> None:
        self.diary.append("wake")

    def reset_prefix_cache(self) -> bool:
        assert not self.is_sleeping()
        self.diary.append("work")
        return True


@pytest.mark.parametrize("shares", [True, False])
def test_a_sampler_that_shares_a_card_rests_once_and_wakes_for_work(sampler_settings: SamplerSettings, shares: bool):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    core = SleepyCore(sampler_settings)

    async def scenario() -> None:
        settings = dataclasses.replace(sampler_settings, shares_gpu=shares)
        sampler = VllmSampler(settings, start_core=lambda _: core)
        for work in (sampler.forget, sampler.sleep, sampler.sleep, sampler.forget, sampler.forget):
            await work()

    run(scenario)
    assert core.diary == (["work", "sleep", "wake", "work", "work"] if shares else ["work"] * 3)


def test_sampling_before_the_first_weights_is_refused(sampler_settings: SamplerSettings):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    with pytest.raises(SamplerError, match="the sampler has no weights yet"):
        run(lambda: VllmSampler(sampler_settings, start_core=BrokenCore).sample(request(PROBE, 0)))


def test_stop_texts_without_a_tokenizer_are_refused(sampler_settings: SamplerSettings):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    settings = dataclasses.replace(sampler_settings, weights_follow=False)
    with pytest.raises(ValueError, match="stop texts need a tokenizer"):
        run(lambda: VllmSampler(settings, start_core=BrokenCore).sample(request(PROBE, 0, stop_texts=("x",))))


class TakingCore:
    """An engine that notes what its worker is asked, and takes any weights."""

    def __init__(self, settings: SamplerSettings) -> None:
        self.asked: list[str] = []
        model = SimpleNamespace(hf_config=SimpleNamespace(hidden_size=64))
        self.engine_core = SimpleNamespace(vllm_config=SimpleNamespace(model_config=model))

    def collective_rpc(self, work: Callable[..., object], timeout: float, args: tuple[object, ...]) -> list[object]:
        self.asked.append(work.__name__)
        return [SimpleNamespace(problems=[], compared=1, unproven=frozenset())]


def test_a_transfer_that_breaks_off_leaves_an_engine_that_can_take_the_next_and_samples_nothing(
    sampler_settings: SamplerSettings,
):
    from agym.runtime.backends.vllm.sampler import VllmSampler

    core = TakingCore(sampler_settings)
    probe = Probe(sequences=[], logprobs=[], limits=ProbeLimits(floor=1e-4, ceiling=1e-4))

    async def broken() -> AsyncIterator[NamedTensors]:
        yield []
        raise LearnerLost("the second bucket is gone")

    async def scenario() -> None:
        sampler = VllmSampler(dataclasses.replace(sampler_settings, weights_follow=False), start_core=lambda _: core)
        for _ in range(2):
            with pytest.raises(LearnerLost, match="the second bucket is gone"):
                await sampler.load(WeightUpdate(version=1, tensors=broken(), checksums={}, probe=probe))
        with pytest.raises(SamplerError, match="the sampler has no weights yet"):
            await sampler.sample(request(PROBE, 0))

    run(scenario)
    assert core.asked == ["begin_update", "take_weights", "finish_update"] * 2
