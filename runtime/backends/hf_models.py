"""Models and tokenizers as ordinary Hugging Face folders, made from scratch or existing, and read the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.model.recipe import Init, TokenizerInit, TokenizerKind
from ..agents.template import Template, TemplateError
from ..errors import RunError
from ..protocols import NamedTensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = [
    "CHAT_TEMPLATE",
    "ModelSource",
    "ModelTokenizer",
    "UnknownWord",
    "VocabularyTooSmall",
    "copy_tokenizer",
    "find_ends",
    "load_causal_model",
    "load_tokenizer",
    "make_model",
    "make_tokenizer",
    "without_progress_bars",
    "write_model",
]

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
SPECIAL = (PAD, END, *ROLES)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Two tokens around each message and no white space of its own: a small model has no tokens to waste."""

_BYTES = 256
UNKNOWN = "<|unknown|>"
"""Token for words that a word-level vocabulary lacks."""


_DAY = date(2025, 1, 1)


class VocabularyTooSmall(ValueError):
    """Fewer entries than any text needs."""


class UnknownWord(ValueError):
    """A text has a word that a word-level vocabulary lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Location of a model."""

    path: str
    """A folder or a hub id."""
    trust_remote_code: bool = False


# --- tokenizers ----------------------------------------------------------------------------------------------------


class ModelTokenizer:
    """Adapter from a Hugging Face tokenizer to what `Chat` needs."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end token, so a reply could never end")

    @property
    def end_of_reply(self) -> int:
        return int(self._tokenizer.eos_token_id)

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that encode to control tokens, except the one for unknown words."""
        added = (str(token) for token in self._tokenizer.added_tokens_decoder.values() if token.special)
        return tuple(sorted({*added, *self._tokenizer.all_special_tokens} - {self._tokenizer.unk_token}))

    @property
    def vocabulary(self) -> dict[str, int]:
        return dict(self._tokenizer.get_vocab())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        reply: bool,
        thinking: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        options: dict[str, Any] = {"strftime_now": _same_day} | ({} if thinking else {"enable_thinking": False})
        text = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=reply,
            **options,
        )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Encode a text to be read: a word that the vocabulary lacks becomes the token for unknown words."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_known(self, text: str) -> list[int]:
        """Encode a text to be imitated: raises UnknownWord, so that the model is not trained to say "unknown"."""
        ids = self.encode(text)
        if self._tokenizer.unk_token_id in ids:
            raise UnknownWord(f"'{text[:200]}' has a word that is not in the vocabulary")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)


def _same_day(format_: str) -> str:
    """Replace the clock that some templates read: a run that is resumed on another day must render the same."""
    return _DAY.strftime(format_)


def load_tokenizer(source: ModelSource, chat_template: str | None = None) -> ModelTokenizer:
    """Load the tokenizer of a folder or hub id; `chat_template` replaces its own."""
    return ModelTokenizer(_pretrained_tokenizer(source), chat_template)


def make_tokenizer(init: TokenizerInit, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """Train a tokenizer on `texts`; the same texts in the same order give the same one."""
    from transformers import PreTrainedTokenizerFast

    fast = _TRAINERS[init.kind](init.vocab, texts)
    tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast(
        tokenizer_object=fast,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN if init.kind is TokenizerKind.WORD else None,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _train_bpe(vocab: int, texts: Iterable[str]) -> FastTokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocab < _BYTES + len(SPECIAL):
        raise VocabularyTooSmall(
            f"a vocabulary needs at least {_BYTES + len(SPECIAL)} entries, one per byte or special token; got {vocab}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


_WORD = r"</?\w+>|```|\w+(?:['\-]\w+)*|\n|[^\w\s]"
"""A tag, a fence, a word (hyphens and apostrophes inside), a line's end, or a single sign; other white space is not
kept."""


def _train_words(vocab: int, texts: Iterable[str]) -> FastTokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    splitter = pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)
    counts: dict[str, int] = {}
    for text in texts:
        for word, _ in splitter.pre_tokenize_str(text):
            counts[word] = counts.get(word, 0) + 1
    special = (*SPECIAL, UNKNOWN)
    if len(counts) + len(special) > vocab:
        raise VocabularyTooSmall(
            f"the vocabulary needs room for {len(counts)} words and {len(special)} special tokens; got {vocab}"
        )
    words = sorted(counts, key=lambda word: (-counts[word], word))
    places = {word: at for at, word in enumerate((*special, *words))}
    tokenizer = Tokenizer(models.WordLevel(places, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = _make_word_decoder()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def _make_word_decoder() -> Any:
    """Build a decoder that puts a space before each word, but none at a line's start, before a closing sign, after an
    opening one or next to a special token."""
    from tokenizers import Regex, decoders

    return decoders.Sequence(
        [
            decoders.Replace(Regex(r"^(?![\n.,:;!?)\]}%]$|<\|)"), " "),
            decoders.Fuse(),
            decoders.Replace(Regex(r"(?<=[\n(\[{]|\|>) "), ""),
            decoders.Replace(Regex(r"^ "), ""),
        ]
    )


_TRAINERS: Mapping[TokenizerKind, Callable[[int, Iterable[str]], FastTokenizer]] = {
    TokenizerKind.BPE: _train_bpe,
    TokenizerKind.WORD: _train_words,
}


# --- models --------------------------------------------------------------------------------------------------------


def make_model(init: Init, tokenizer: PreTrainedTokenizerBase, seed: int, folder: Path, positions: int = 8192) -> None:
    """Write a model folder with weights drawn from `seed`, leaving every random generator as it was; no sequence is
    longer than `positions`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(init.family.value, **_config_values(init, tokenizer, positions))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with without_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_causal_model(source: ModelSource, dtype: str, attention: str) -> PreTrainedModel:
    """Load the model of a folder, with a precision and an attention."""
    from transformers import AutoModelForCausalLM

    with without_progress_bars():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            source.path,
            trust_remote_code=source.trust_remote_code,
            dtype=dtype,
            attn_implementation=attention,
        )
    return model


def write_model(
    model: PreTrainedModel, tensors: NamedTensors, folder: Path, *, tied: bool, file_bytes: int = 5 * 10**9
) -> None:
    """Write weights as safetensors, one file in memory at a time, and the model's configuration; `tied` says whether
    the output layer is the embedding and so not among the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = deepcopy(model.config)
    config.tie_word_embeddings = tied
    config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    _write_weights(tensors, folder, file_bytes)


def _write_weights(tensors: NamedTensors, folder: Path, file_bytes: int) -> None:
    """Write files of bounded size and their index, named as `transformers` does."""
    from safetensors.torch import save_file

    files: list[list[str]] = []
    total = 0
    for part in _divide(tensors, file_bytes):
        files.append(list(part))
        total += sum(tensor.nbytes for tensor in part.values())
        save_file(part, folder / str(len(files)), metadata={"format": "pt"})
    if len(files) == 1:
        (folder / "1").rename(folder / "model.safetensors")
        return
    names = [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    for number, name in enumerate(names, 1):
        (folder / str(number)).rename(folder / name)
    places = {each: name for name, part in zip(names, files, strict=True) for each in part}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")


def _divide(tensors: NamedTensors, limit: int) -> Iterator[dict[str, Tensor]]:
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if part and size + tensor.nbytes > limit:
            yield part
            part, size = {}, 0
        # a copy: the next one may reuse its memory
        part[name] = tensor.cpu().clone()
        size += tensor.nbytes
    yield part


def copy_tokenizer(source: ModelSource, folder: Path, chat_template: str | None = None) -> None:
    """Put a tokenizer into a model's folder, with the chat template that was used; generation ends as replies did."""
    tokenizer = _pretrained_tokenizer(source)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    _add_end_tokens(find_ends(ModelTokenizer(tokenizer)), folder)


def find_ends(tokenizer: ModelTokenizer) -> tuple[int, ...]:
    """Find the tokens that end a reply: the chat template's, and the tokenizer's own, which may differ."""
    try:
        return tuple(dict.fromkeys((Template(tokenizer).end, tokenizer.end_of_reply)))
    except TemplateError:
        return (tokenizer.end_of_reply,)


def _add_end_tokens(ends: Sequence[int], folder: Path) -> None:
    from transformers import GenerationConfig

    exists = (folder / "generation_config.json").is_file()
    config = GenerationConfig.from_pretrained(folder) if exists else GenerationConfig()
    known = config.eos_token_id
    listed = known if isinstance(known, list) else [] if known is None else [known]
    if missing := [end for end in ends if end not in listed]:
        config.eos_token_id = [*missing, *listed]
        config.save_pretrained(folder)


def _pretrained_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.path, trust_remote_code=source.trust_remote_code
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"'{source.path}' has no tokenizer that can be read: {reason}") from error
    return tokenizer


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hide the library's progress bars, which would garble the run's own view."""
    from transformers.utils import logging

    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def _config_values(init: Init, tokenizer: PreTrainedTokenizerBase, positions: int) -> dict[str, Any]:
    if init.hidden % init.heads:
        raise ValueError(f"'hidden' ({init.hidden}) must be divisible by 'heads' ({init.heads})")
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": init.hidden,
        "num_hidden_layers": init.layers,
        "num_attention_heads": init.heads,
        "num_key_value_heads": init.kv_heads or init.heads,
        "head_dim": init.hidden // init.heads,
        "intermediate_size": init.intermediate or 3 * init.hidden,
        "max_position_embeddings": positions,
        "tie_word_embeddings": init.tie_embeddings,
        # keeps the scale of activations through layers: at the 0.02 of large models, a narrow one's would vanish
        "initializer_range": init.hidden**-0.5,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
    }
