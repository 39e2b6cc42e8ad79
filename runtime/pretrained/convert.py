"""Convert a GGUF file to a folder that `transformers` and vLLM read: bf16, tied as it was, with its chat template."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ..backends.hf_models import without_progress_bars
from ..errors import RunError
from .catalog import Pretrained

__all__ = ["convert"]


def convert(model: Pretrained, gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a folder."""
    source, name = gguf.parent, gguf.name
    with without_progress_bars():
        # quantised blocks become fp32 first; bf16 is far finer than the four bits that they had
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    config = read.config
    if not config.tie_word_embeddings:
        raise RunError(f"'{model.name}' was expected to share its output layer with its embedding")
    if hasattr(config, "quantization_config"):
        # what was read is no longer quantised
        del config.quantization_config
    config.bos_token_id, config.eos_token_id, config.pad_token_id = model.bos, model.eos, model.eos
    config.architectures = [type(read).__name__]
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    plain.generation_config = GenerationConfig(bos_token_id=model.bos, eos_token_id=model.eos, pad_token_id=model.eos)
    with without_progress_bars():
        plain.to(torch.bfloat16).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    tokenizer.pad_token, tokenizer.model_max_length = tokenizer.eos_token, config.max_position_embeddings
    tokenizer.save_pretrained(folder)
