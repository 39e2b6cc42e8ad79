"""Rules about the model: its origin, divisibility of its sizes, precision and adapters."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Diagnostic
from ..model.model_sizes import find_published
from ..model.recipe import DType, Lora
from ..model.stage_kinds import learns
from ..planning.memory import width
from ..suggest import did_you_mean, quote
from .context import Case, Rule

__all__ = ["MODEL_RULES"]

LAYERS = Lora().targets
"""Linear layers of the architectures whose sizes are known."""

HEADS_ON_A_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Widths that the sampling engine's attention supports there; with another it fails at its first forward pass."""


def model_has_one_origin(case: Case) -> Iterator[Diagnostic]:
    model = case.recipe.model
    if model.path is None and model.init is None:
        message = "the model needs 'path' or 'init'"
        yield case.missing(message, ("model",), hint="write 'path: Qwen/Qwen2.5-0.5B-Instruct', or 'init: {...}'")
    if model.path is not None and model.init is not None:
        message = "'path' loads a model and 'init' makes one from scratch: give only one of them"
        notes = (case.note("'path' is here", ("model", "path")),)
        yield case.error("conflict", message, ("model", "init"), hint="remove one of them", notes=notes)


def heads_divide(case: Case) -> Iterator[Diagnostic]:
    init = case.recipe.model.init
    if init is None:
        return
    if init.hidden % init.heads:
        yield _not_divisible(
            case, "heads", f"{init.heads} heads do not divide 'hidden' ({init.hidden})", _divisors(init.hidden, "heads")
        )
    elif (init.hidden // init.heads) % 2:
        # rotary embeddings rotate the numbers of a head in pairs
        message = f"the head size must be even, but {init.hidden} / {init.heads} is {init.hidden // init.heads}"
        yield _not_divisible(case, "heads", message, "write fewer heads, or a larger 'hidden'")
    kv_heads = init.kv_heads or init.heads
    if init.heads % kv_heads:
        yield _not_divisible(
            case,
            "kv_heads",
            f"{kv_heads} key-value heads do not divide {init.heads} heads",
            _divisors(init.heads, "kv_heads"),
        )


def heads_suit_a_cpu(case: Case) -> Iterator[Diagnostic]:
    init = case.recipe.model.init
    if init is None or case.recipe.hardware.gpus_per_node or init.hidden % (2 * init.heads):
        return
    if init.hidden // init.heads not in HEADS_ON_A_CPU:
        counts = [str(init.hidden // width) for width in HEADS_ON_A_CPU if init.hidden % width == 0]
        message = f"vLLM on CPU does not support a head size of {init.hidden // init.heads}"
        hint = f"write {' or '.join(counts)}" if counts else "make 'hidden' a multiple of 32"
        yield case.error("conflict", message, ("model", "init", "heads"), hint=hint)


def _not_divisible(case: Case, key: str, message: str, hint: str | None = None) -> Diagnostic:
    return case.error("not-divisible", message, ("model", "init", key), hint=hint)


def _divisors(number: int, key: str) -> str:
    found = [str(each) for each in range(1, min(number, 1024) + 1) if number % each == 0]
    return f"'{key}' can be {', '.join(found[-8:])}"


def shape_divides(case: Case) -> Iterator[Diagnostic]:
    shape = case.recipe.model.shape
    if shape is not None and shape.head_dim is None and shape.hidden % shape.heads:
        message = f"{shape.heads} heads do not divide 'hidden' ({shape.hidden})"
        hint = "set 'head_dim' if the head size is not hidden / heads"
        yield case.error("not-divisible", message, ("model", "shape", "heads"), hint=hint)
    if shape is not None and shape.heads % shape.kv_heads:
        message = f"{shape.kv_heads} key-value heads do not divide {shape.heads} heads"
        yield case.error(
            "not-divisible", message, ("model", "shape", "kv_heads"), hint=_divisors(shape.heads, "kv_heads")
        )


def within_positions(case: Case) -> Iterator[Diagnostic]:
    known = find_published(case.recipe.model.path)
    for base, stage in case.stages():
        if known is not None and stage.agent.context_tokens > known.max_positions:
            limit = f"the context length of {quote(case.recipe.model.path or '')} ({known.max_positions})"
            message = f"{stage.agent.context_tokens} tokens exceed {limit}"
            yield case.error(
                "context-too-long",
                message,
                (*base, "agent", "context_tokens"),
                hint=f"write {known.max_positions} or less",
            )


def adapters_exist(case: Case) -> Iterator[Diagnostic]:
    lora = case.recipe.model.lora
    if lora is None or case.shape is None:
        return
    if not lora.targets:
        yield case.error(
            "bad-value",
            "expected at least one target layer",
            ("model", "lora", "targets"),
            hint=f"for example [{', '.join(LAYERS)}]",
        )
    for index, target in enumerate(lora.targets):
        if target not in LAYERS:
            message = f"the model has no layer {quote(target)}"
            hint = did_you_mean(target, LAYERS)
            yield case.error("unknown-name", message, ("model", "lora", "targets", index), hint=hint)


def precision_fits(case: Case) -> Iterator[Diagnostic]:
    model, hardware = case.recipe.model, case.recipe.hardware
    on_gpus = hardware.gpus_per_node > 0
    if model.dtype is DType.FP16 and not on_gpus:
        message = "fp16 needs a GPU, but this recipe runs on the CPU"
        yield case.error("conflict", message, ("model", "dtype"), hint="write 'bf16' or 'fp32'")
    elif model.dtype is DType.FP16 and any(learns(stage.algorithm) for _, stage in case.stages()):
        message = "fp16 is too narrow to learn in: most gradients of a large update are rounded to 0"
        hint = "write 'bf16' or 'fp32'; 'fp16' suits a recipe that only evaluates"
        yield case.error("conflict", message, ("model", "dtype"), hint=hint)
    # the learner's engine steps an empty optimiser once at its start there, and the first update is too small
    elif width(model.dtype, on_gpus) == 2 and hardware.train.zero == 0:
        message = "ZeRO stage 0 gets the first update wrong in half precision: expected stage 1 or higher"
        hint = "write 'zero: 1', or 'dtype: fp32' for the model"
        yield case.error("conflict", message, ("hardware", "train", "zero"), hint=hint)


MODEL_RULES: tuple[Rule, ...] = (
    model_has_one_origin,
    heads_divide,
    heads_suit_a_cpu,
    shape_divides,
    within_positions,
    adapters_exist,
    precision_fits,
)
