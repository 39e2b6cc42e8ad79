"""Talk to the model of a folder: a conversation in, the text of the next reply out, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..agents.messages import Message
from ..agents.template import Template, TemplateError
from ..backends.hf_models import ModelTokenizer, find_ends, without_progress_bars
from ..errors import RunError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["ChatModel", "ReplySettings", "load_chat_model"]

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""Shown where a token ends within a letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    tokens: int = 512
    """Longest reply."""
    temperature: float = 0.7
    """0 takes the likeliest token."""
    seed: int = 0


def load_chat_model(folder: Path, *, computes_bf16: bool = True) -> ChatModel:
    """Load a folder's model in the precision of its weights, or in fp32 where the CPU computes in no other; RunError if
    it is not a chat model."""
    try:
        with without_progress_bars():
            dtype = "auto" if computes_bf16 else torch.float32
            causal = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"'{folder}' is no model folder: {str(error).partition(chr(10))[0]}") from error
    if not tokenizer.chat_template:
        raise RunError(f"the tokenizer in '{folder}' has no chat template")
    if tokenizer.eos_token_id is None:
        raise RunError(f"the tokenizer in '{folder}' has no end token, so a reply could never end")
    return ChatModel(causal, tokenizer)


class ChatModel:
    """A model and its tokenizer; every reply is drawn anew from the seed of its settings."""

    def __init__(self, causal: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._causal, self._tokenizer = causal.eval(), tokenizer
        ends = None if causal.generation_config is None else causal.generation_config.eos_token_id
        words = ModelTokenizer(tokenizer)
        self._ends = {*find_ends(words), *(ends if isinstance(ends, list) else [ends])}
        self._render = _find_renderer(words)
        self._positions: int | None = getattr(causal.config, "max_position_embeddings", None)

    def reply(self, messages: Sequence[Mapping[str, str]], settings: ReplySettings) -> Iterator[str]:
        """Yield the next reply, a piece at a time; what was yielded stays."""
        opening = list(self._tokenizer.encode(self._render(messages), add_special_tokens=False))
        room = settings.tokens if self._positions is None else self._positions - len(opening)
        if room < 1:
            raise RunError(f"the conversation exceeds the model's context of {self._positions} tokens: start anew")
        ids: list[int] = []
        shown = ""
        for token in self._sample(opening, settings):
            if token in self._ends or len(ids) == min(room, settings.tokens):
                break
            ids.append(token)
            text = str(self._tokenizer.decode(ids, skip_special_tokens=True))
            if not text.endswith(_UNFINISHED):
                yield text[len(shown) :]
                shown = text

    def _sample(self, opening: Sequence[int], settings: ReplySettings) -> Iterator[int]:
        generator, cache = torch.Generator().manual_seed(settings.seed), None
        new_ids = torch.tensor([opening])
        while True:
            with torch.no_grad():
                output = self._causal(input_ids=new_ids, past_key_values=cache, use_cache=True)
            cache, logits_V = output.past_key_values, output.logits[0, -1].float()
            if settings.temperature:
                drawn = torch.multinomial(torch.softmax(logits_V / settings.temperature, 0), 1, generator=generator)
            else:
                drawn = logits_V.argmax()[None]
            new_ids = drawn[None]
            yield int(drawn)


def _find_renderer(tokenizer: ModelTokenizer) -> Callable[[Sequence[Mapping[str, str]]], str]:
    """Render as training does, which puts a system prompt before the user's words where the template has no such role;
    by the template alone where training could not use it."""
    try:
        template = Template(tokenizer)
    except TemplateError:
        return partial(tokenizer.render, reply=True)
    return lambda messages: template.render([Message(each["role"], each["content"]) for each in messages])
