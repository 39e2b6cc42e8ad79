"""`agym serve`: which model, what is refused before an engine starts, and a real one that is asked and ended."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from .conftest import Agym
from .engine_server import EngineServer, Process


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 128}))
    return folder


MISTAKES = [
    (("./nowhere",), 3, "there is no folder"),
    (("empty",), 2, "there is no config.json in it"),
    (("outer",), 2, "its model is the folder 'model' in it"),
    (("model", "--checkpoint", "best"), 2, "is not the folder of a run"),
    (("model", "--port", "70000"), 2, "--port must be from 1 to 65535"),
    (("model", "--key", "short"), 2, "--key takes 8 to 200"),
    (("model", "--key", "with a space"), 2, "--key takes 8 to 200"),
    (("model", "--context", "129"), 2, "at most 128, which is what the model holds"),
    (("model", "--context", "3"), 2, "at least 16"),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES)
def test_a_mistake_is_told_before_an_engine_starts(
    agym: Agym, model: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (model.parent / "empty").mkdir()
    (model.parent / "outer/model").mkdir(parents=True)
    called = agym("serve", *words)
    assert (called.code, called.out) == (code, "")
    assert said in called.err
    assert len(called.err.splitlines()) == 1


def test_a_run_without_a_checkpoint_has_nothing_to_serve(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    called = agym("serve", ".")
    assert called.code == 3
    assert "has no checkpoint yet" in called.err


@pytest.mark.heavy
def test_a_model_is_served_until_it_is_interrupted(engines: EngineServer, tmp_path: Path) -> None:
    from agym.dsl.model.recipe import Init, TokenizerInit
    from agym.runtime.backends.hf_models import make_model, make_tokenizer
    from openai import AuthenticationError, BadRequestError, OpenAI

    made = Init(layers=1, hidden=64, heads=2, kv_heads=1, tokenizer=TokenizerInit(vocab=300))
    folder = tmp_path / "tiny"
    folder.mkdir()
    make_model(made, make_tokenizer(made.tokenizer, ["say one"]), 1, folder, positions=256)
    process = engines.start("-m", "agym", "serve", "tiny", "--key", "my-own-key", "--context", "64", cwd=tmp_path)
    url = wait_for_url(process)
    client = OpenAI(base_url=url, api_key="my-own-key", max_retries=0, timeout=300)
    assert [each.id for each in client.models.list()] == ["tiny"]
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "say one"}], "max_tokens": 5}
    replies = [client.chat.completions.create(**ask, seed=3, logprobs=True) for _ in range(2)]  # type: ignore[call-overload]
    assert [each.choices[0].message.content for each in replies] == [replies[0].choices[0].message.content] * 2
    assert len(replies[0].choices[0].logprobs.content) == replies[0].usage.completion_tokens <= 5
    with pytest.raises(BadRequestError, match="the context holds 64"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "say " * 100}])
    with pytest.raises(AuthenticationError, match="agym serve"):
        client.with_options(api_key="another-key").models.list()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0, process.output


def wait_for_url(process: Process) -> str:
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"OPENAI_BASE_URL=(\S+)", process.output):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(process.output)
