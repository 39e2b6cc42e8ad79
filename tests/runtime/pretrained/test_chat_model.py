"""Replies of a model folder, piece by piece, with a model of two layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers  # noqa: F401 - a model is made
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.hf_models import ModelSource, ModelTokenizer, copy_tokenizer, make_model, make_tokenizer
from agym.runtime.errors import RunError
from agym.runtime.pretrained.chat import ChatModel, ReplySettings, _find_renderer, load_chat_model

pytestmark = pytest.mark.slow

HEY = [{"role": "user", "content": "hey"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    words = make_tokenizer(TokenizerInit(vocab=300), ["hey you"])
    make_model(Init(layers=2, hidden=32, heads=1), words, 0, made, positions=64)
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> ChatModel:
    return load_chat_model(folder)


def test_the_same_seed_gives_the_same_reply_and_another_another(model: ChatModel) -> None:
    replies = ["".join(model.reply(HEY, ReplySettings(tokens=20, seed=seed))) for seed in (0, 0, 1)]
    assert replies[0] == replies[1] != replies[2]


def test_greedy_replies_are_those_of_transformers(model: ChatModel, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    opening = words.apply_chat_template(HEY, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    whole = AutoModelForCausalLM.from_pretrained(folder).generate(**opening, max_new_tokens=12, do_sample=False)
    expected = words.decode(whole[0, opening["input_ids"].shape[1] :], skip_special_tokens=True)
    reply = "".join(model.reply(HEY, ReplySettings(tokens=12, temperature=0.0)))
    # what ends within a letter is held back
    assert reply
    assert expected.startswith(reply)


def test_a_reply_ends_with_the_context_and_a_full_one_is_said(model: ChatModel) -> None:
    assert len("".join(model.reply(HEY, ReplySettings(tokens=500, seed=3)))) <= 64
    with pytest.raises(RunError, match="exceeds the model's context of 64 tokens: start anew"):
        list(model.reply([{"role": "user", "content": "hey " * 80}], ReplySettings()))


def test_what_is_no_chat_model_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no model folder"):
        load_chat_model(tmp_path)


CHATML = (
    "{% for each in messages %}<|user|>{{ each.role }}\n{{ each.content }}<|pad|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)
"""A template that ends replies with another token than the tokenizer's own."""


def test_a_system_prompt_goes_before_the_users_words_where_the_template_has_no_such_role(folder: Path) -> None:
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    words.chat_template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
    render = _find_renderer(ModelTokenizer(words))
    with_prompt = [{"role": "system", "content": "you"}, *HEY]
    assert render(with_prompt) == render([{"role": "user", "content": "you\n\nhey"}])


def test_generation_ends_where_the_template_ends_replies_and_at_the_tokenizers_own_end(
    folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    words = AutoTokenizer.from_pretrained(folder)
    copy_tokenizer(ModelSource(path=str(folder)), tmp_path, CHATML)
    ends = GenerationConfig.from_pretrained(tmp_path).eos_token_id
    assert ends == [words.convert_tokens_to_ids("<|pad|>"), words.eos_token_id]
