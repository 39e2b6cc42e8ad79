"""Real engines for the heavy tests: one tiny model, one vLLM engine in this process for the whole session, learners."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.hf_models import ModelSource as Source
from agym.runtime.backends.hf_models import load_tokenizer, make_model, make_tokenizer
from agym.runtime.protocols import LearnerSettings, SamplerSettings, TrainSequence

VOCAB = 300

REAL = [
    pytest.mark.heavy,
    # the engines' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
"""Marks of tests with an engine."""

# what the linker reads cannot be set any more; without it the engines are slower but still correct
os.environ.update(
    {name: value for name, value in missing_variables(os.environ, threads=1, cpu=True).items() if name != "LD_PRELOAD"}
)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: 0.1M parameters, tied embeddings, a byte-level vocabulary."""
    return model_folder(tmp_path_factory.mktemp("model"), hidden=64)


def model_folder(folder: Path, hidden: int) -> Path:
    words = random.Random(0)
    text = " ".join("".join(words.choices("abcdefg", k=5)) for _ in range(500))
    tokenizer = make_tokenizer(TokenizerInit(vocab=VOCAB), [text])
    assert len(tokenizer) == VOCAB
    sizes = Init(layers=3, hidden=hidden, heads=2, kv_heads=1, tie_embeddings=True)
    make_model(sizes, tokenizer, 0, folder, positions=1024)
    return folder


@pytest.fixture(scope="session")
def sampler_settings(model: Path) -> SamplerSettings:
    return SamplerSettings(model=model, context_tokens=512, slots=64)


@pytest.fixture(scope="session")
def sampler(sampler_settings: SamplerSettings) -> Iterator[object]:
    import asyncio

    from agym.runtime.backends.vllm.sampler import VllmSampler

    torch.set_num_threads(1)
    engine = VllmSampler(sampler_settings, load_tokenizer(Source(path=str(sampler_settings.model))).decode)
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
def learner(model: Path) -> Iterator[Callable[..., object]]:
    """`learner(zero=2)` makes one."""
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    torch.set_num_threads(1)
    made = []

    def make(**settings: object) -> object:
        made.append(DeepSpeedLearner(LearnerSettings(**{"model": model, **settings})))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def sequences() -> Callable[..., list[TrainSequence]]:
    """`sequences(seed, count)`: random tokens, a third of which are trained on."""

    def make(seed: int, count: int = 12) -> list[TrainSequence]:
        rng = np.random.default_rng(seed)
        return [_sequence(rng, int(length)) for length in rng.integers(5, 120, count)]

    return make


def _sequence(rng: np.random.Generator, length: int) -> TrainSequence:
    loss_mask = rng.random(length) < 0.3
    loss_mask[0], loss_mask[-1] = False, True
    return TrainSequence(
        ids=rng.integers(0, VOCAB, length).astype(np.int32),
        loss_mask=loss_mask,
        advantages=rng.normal(size=length).astype(np.float32),
        old_logprobs=(-5.7 + 0.1 * rng.normal(size=length)).astype(np.float32),
    )
