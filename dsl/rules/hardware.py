"""Rules about hardware: how GPUs are divided, what the engines require, whether everything fits in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from ..diagnostics import Diagnostic
from ..model.model_sizes import find_published
from ..model.plan import MemoryUse, Role, peaks
from ..model.recipe import Hardware, Launcher, Layout, Lora, ModelShape, Offload, Recipe
from ..model.stage_kinds import longest_sequence, most_row_tokens
from ..planning.budgets import make_sizing
from ..planning.memory import Sizing, engine_limit, estimate_memory, one_episode_cache
from ..planning.placement import choose_launcher, count_ranks, explain_misfit, split_gpus
from .context import Case, Rule

__all__ = ["HARDWARE_RULES"]


def engines_fit_the_machines(case: Case) -> Iterator[Diagnostic]:
    """Check that an engine's GPUs are on one node and share the model's heads: one report, with a valid alternative."""
    hardware = case.recipe.hardware
    if _split_fault(case):
        return
    fault = _engine_fault(case, hardware.rollout.tensor_parallel)
    if fault:
        most = hardware.gpus_per_node or hardware.rollout.tensor_parallel
        sizes = [str(size) for size in range(1, most + 1) if not _engine_fault(case, size)]
        hint = f"write tensor_parallel: {' or '.join(filter(None, (', '.join(sizes[:-1]), *sizes[-1:])))}"
        yield case.error(*fault, ("hardware", "rollout", "tensor_parallel"), hint=hint if sizes else None)


def _engine_fault(case: Case, share: int) -> tuple[str, str] | None:
    """Why engines of so many GPUs would not work: a code and a message."""
    hardware, shape = case.recipe.hardware, case.shape
    parts = "GPUs" if hardware.gpus_per_node else "processes"
    if 0 < hardware.gpus_per_node < share:
        return "gpus-do-not-fit", f"an engine needs {share} GPUs, but a node has only {hardware.gpus_per_node}"
    misfit = explain_misfit(replace(hardware, rollout=replace(hardware.rollout, tensor_parallel=share)))
    if misfit:
        return "gpus-do-not-fit", misfit
    if shape and shape.heads % share:
        return "not-divisible", f"{share} {parts} cannot share the model's {shape.heads} heads equally"
    if shape and shape.kv_heads % share and share % shape.kv_heads:
        return "not-divisible", f"{share} {parts} cannot share the model's {shape.kv_heads} key-value heads equally"
    return None


def split_adds_up(case: Case) -> Iterator[Diagnostic]:
    fault = _split_fault(case)
    if fault:
        named = [side for side in ("rollout", "train") if getattr(case.recipe.hardware, side).gpus is not None]
        path = ("hardware", named[0], "gpus") if named else ("hardware", "layout")
        yield case.error("gpus-do-not-fit", fault, path, hint=_way_to_split(case.recipe.hardware))


def _way_to_split(hardware: Hardware) -> str:
    total = hardware.nodes * hardware.gpus_per_node
    if total == 1:
        return "write 'layout: colocated', or more 'gpus_per_node'"
    half = total // 2
    return f"for example 'gpus: {total - half}' under 'train' and 'gpus: {half}' under 'rollout'"


def _split_fault(case: Case) -> str | None:
    hardware = case.recipe.hardware
    total = hardware.nodes * hardware.gpus_per_node
    if total == 0 or hardware.layout is not Layout.SPLIT:
        return None
    if total == 1:
        return "'layout: split' needs at least two GPUs"
    learning, sampling = split_gpus(hardware)
    if min(learning, sampling) < 1:
        return f"{learning} GPUs for learning and {sampling} for sampling, of {total}: each side needs at least one"
    if learning + sampling != total:
        return f"{learning} GPUs for learning plus {sampling} for sampling do not add up to {total}"
    return None


def one_process_has_one_gpu(case: Case) -> Iterator[Diagnostic]:
    hardware = case.recipe.hardware
    if choose_launcher(hardware) is not Launcher.INLINE:
        return
    counts = ((hardware.nodes, "nodes"), (hardware.gpus_per_node, "GPUs"), (hardware.workers_per_node, "workers"))
    what = next((f"{count} {kind}" for count, kind in counts if count > 1), None)
    if what is not None:
        message = f"'launcher: inline' runs everything in one process, which cannot use {what}"
        yield case.error("conflict", message, ("hardware", "launcher"), hint="write 'launcher: ray', or remove the key")


def offload_has_its_stage(case: Case) -> Iterator[Diagnostic]:
    train = case.recipe.hardware.train
    needed = {Offload.OPTIMIZER: 1, Offload.ALL: 3}.get(train.offload, 0)
    if train.zero < needed:
        at_least = "stage 3" if needed == 3 else "stage 1 or higher"
        message = f"'offload: {train.offload}' needs ZeRO {at_least}, not {train.zero}"
        yield case.error("conflict", message, ("hardware", "train", "offload"), hint=f"write 'zero: {needed}'")


def ranks_divide_rows(case: Case) -> Iterator[Diagnostic]:
    """Check that the ranks fall into groups, and that those of a group share the heads of each model of theirs."""
    size = case.recipe.hardware.train.sequence_parallel
    if _split_fault(case) or not (fault := _row_fault(case, size)):
        return
    sizes = [str(each) for each in range(1, size) if not _row_fault(case, each)]
    hint = f"write sequence_parallel: {' or '.join(filter(None, (', '.join(sizes[:-1]), *sizes[-1:])))}"
    yield case.error("not-divisible", fault, ("hardware", "train", "sequence_parallel"), hint=hint)


def _row_fault(case: Case, size: int) -> str | None:
    """Why so many ranks cannot divide a row."""
    ranks = count_ranks(case.recipe.hardware).learners
    if ranks % size:
        return f"'sequence_parallel' ({size}) does not divide the number of ranks ({ranks})"
    for whose, shape in _shapes_on_ranks(case):
        if shape.heads % size:
            return f"'sequence_parallel' ({size}) does not divide the {whose}'s {shape.heads} heads"
        if shape.kv_heads % size and size % shape.kv_heads:
            return (
                f"'sequence_parallel' ({size}) neither divides the {whose}'s {shape.kv_heads} key-value heads nor is a "
                "multiple of them"
            )
    return None


def _shapes_on_ranks(case: Case) -> Iterator[tuple[str, ModelShape]]:
    """Sizes of the models that learn or score, as far as they are known here."""
    if case.shape is not None:
        yield "model", case.shape
    for _, stage in case.stages():
        for whose, path in (("critic", stage.algorithm.critic.path), ("teacher", stage.algorithm.distill.teacher)):
            known = find_published(path)
            if known is not None:
                yield whose, known.shape


def overlap_needs_room(case: Case) -> Iterator[Diagnostic]:
    hardware = case.recipe.hardware
    if hardware.staleness and hardware.gpus_per_node and hardware.layout is Layout.COLOCATED:
        message = "sampling and learning share the same GPUs, so sampling cannot run ahead"
        hint = "write 'layout: split', or 'staleness: 0'"
        yield case.error("conflict", message, ("hardware", "staleness"), hint=hint)


def in_flight_needs_processes(case: Case) -> Iterator[Diagnostic]:
    hardware = case.recipe.hardware
    if hardware.in_flight and choose_launcher(hardware) is Launcher.INLINE:
        message = "'in_flight' needs samplers that work while the learner does, and here both are in one process"
        yield case.error(
            "conflict", message, ("hardware", "in_flight"), hint="write 'launcher: ray', or remove the key"
        )


def micro_batch_holds_an_episode(case: Case) -> Iterator[Diagnostic]:
    size = case.recipe.hardware.train.tokens_per_micro_batch
    for _, stage in case.stages():
        if size is not None and size < stage.agent.context_tokens:
            yield case.error(
                "over-budget",
                f"'tokens_per_micro_batch' ({size}) is below 'agent.context_tokens' ({stage.agent.context_tokens})",
                ("hardware", "train", "tokens_per_micro_batch"),
                hint=f"write tokens_per_micro_batch: {stage.agent.context_tokens} or more, or remove the key",
            )


# --- memory --------------------------------------------------------------------------------------------------------


def cache_holds_an_episode(case: Case) -> Iterator[Diagnostic]:
    """Check the fixed size of the KV cache on a CPU."""
    asked = case.recipe.hardware.rollout.kv_cache_gb
    if asked is None or case.shape is None or case.recipe.hardware.gpus_per_node:
        return
    needed = one_episode_cache(make_sizing(case.recipe, case.shape))
    if asked * 10**9 < needed:
        message = f"the KV cache of one episode needs {_gb(needed)} GB, but 'kv_cache_gb' is {asked:g}"
        hint = f"write {-(-needed // 10**8) / 10:g} or more, remove the key, or lower 'agent.context_tokens'"
        yield case.error("out-of-memory", message, ("hardware", "rollout", "kv_cache_gb"), hint=hint)


def everything_fits_in_gpu_memory(case: Case) -> Iterator[Diagnostic]:
    size = _sized(case)
    if size is None or size.capacity is None:
        return
    uses = estimate_memory(size)
    for role, peak in peaks(uses, case.recipe.hardware.layout).items():
        if peak > size.capacity:
            yield _out_of_memory(case, role, peak, size.capacity, uses)


def engine_fits_its_share(case: Case) -> Iterator[Diagnostic]:
    size = _sized(case)
    if size is None or size.capacity is None:
        return
    uses = estimate_memory(size)
    engine = next((use for use in uses if use.role is Role.ROLLOUT), None)
    share = int(size.memory_share * size.capacity)
    taken = sum(item.bytes for item in engine.items) if engine else 0
    limit = engine_limit(size, [use for use in uses if use.role is not Role.ROLLOUT])
    if engine is not None and share < taken <= size.capacity and limit == share:
        needed = f"an engine with one episode's KV cache needs {_gb(taken)} GB"
        message = f"{needed}; its share of the GPU is {_gb(share)} GB"
        hint = f"{_table(engine)}; raise 'memory_share' or 'tensor_parallel', or lower 'agent.context_tokens'"
        yield case.error("out-of-memory", message, ("hardware", "rollout", "memory_share"), hint=hint)


def _sized(case: Case) -> Sizing | None:
    hardware = case.recipe.hardware
    if case.shape is None or not hardware.gpus_per_node or _split_fault(case) or explain_misfit(hardware):
        return None
    return make_sizing(case.recipe, case.shape)


def _out_of_memory(case: Case, role: Role, peak: int, capacity: int, uses: Iterable[MemoryUse]) -> Diagnostic:
    hardware = case.recipe.hardware
    split = hardware.layout is Layout.SPLIT
    here = [use for use in uses if not use.host and (not split or (use.role is Role.ROLLOUT) is (role is Role.ROLLOUT))]
    return case.error(
        "out-of-memory",
        f"needs {_gb(peak)} GB per GPU; {_gpu(case)} has {_gb(capacity)} GB",
        ("hardware", "gpu" if hardware.gpu_memory_gb is None else "gpu_memory_gb"),
        hint=f"{'; '.join(map(_table, here))}; {_ways_to_fit(case)}",
    )


def _ways_to_fit(case: Case) -> str:
    """The cheapest settings with which everything fits: two that suffice alone, else the fewest that do together."""
    ways = [way for way in _savings(case.recipe) if _is_possible(replace(case, recipe=way[1](case.recipe)))]
    alone: dict[str, str] = {}
    for words, change in ways:
        if _fits(case, change(case.recipe)):
            alone.setdefault(words.rstrip("0123456789}"), words)  # the least value of each key
    if alone:
        return f"to fit, write {', or '.join(list(alone.values())[:2])}"
    together: list[tuple[str, Change]] = []
    for way in ways:
        together.append(way)
        if _fits(case, _all_changed(case.recipe, together)):
            break
    else:
        return "no setting makes it fit: use a smaller model, more or larger GPUs, or fewer 'agent.context_tokens'"
    for way in list(together):
        rest = [each for each in together if each is not way]
        together = rest if _fits(case, _all_changed(case.recipe, rest)) else together
    return f"to fit, write {' and '.join(words for words, _ in together)}"


Change = Callable[[Recipe], Recipe]


def _savings(recipe: Recipe) -> Iterator[tuple[str, Change]]:
    """Settings that take less memory: how each is written and how it changes a recipe, the cheapest first."""
    hardware, train = recipe.hardware, recipe.hardware.train
    longest = longest_sequence(recipe.schedule)
    if longest < most_row_tokens(recipe.schedule, hardware):
        yield _saving(
            f"hardware: {{train: {{tokens_per_micro_batch: {longest}}}}}", _learning(tokens_per_micro_batch=longest)
        )
    if not train.activation_checkpointing:
        yield _saving("hardware: {train: {activation_checkpointing: true}}", _learning(activation_checkpointing=True))
    for stage in range(train.zero + 1, 4):
        yield _saving(f"hardware: {{train: {{zero: {stage}}}}}", _learning(zero=stage))
    for size in range(train.sequence_parallel + 1, hardware.gpus_per_node + 1):
        yield _saving(f"hardware: {{train: {{sequence_parallel: {size}}}}}", _learning(sequence_parallel=size))
    for size in range(hardware.rollout.tensor_parallel + 1, hardware.gpus_per_node + 1):
        yield _saving(f"hardware: {{rollout: {{tensor_parallel: {size}}}}}", _sampling(tensor_parallel=size))
    if train.offload is Offload.NONE and train.zero:
        yield _saving("hardware: {train: {offload: optimizer}}", _learning(offload=Offload.OPTIMIZER))
    if recipe.model.lora is None:
        yield "model: {lora: {rank: 16}}", lambda made: replace(made, model=replace(made.model, lora=Lora()))
    if train.offload is not Offload.ALL:
        yield _saving("hardware: {train: {zero: 3, offload: all}}", _learning(zero=3, offload=Offload.ALL))
    for factor in (2, 4, 8):
        yield _saving(
            f"hardware: {{nodes: {factor * hardware.nodes}}}", partial(replace, nodes=factor * hardware.nodes)
        )


def _saving(words: str, change: Callable[[Hardware], Hardware]) -> tuple[str, Change]:
    return words, lambda recipe: replace(recipe, hardware=change(recipe.hardware))


def _learning(**values: Any) -> Callable[[Hardware], Hardware]:
    return lambda hardware: replace(hardware, train=replace(hardware.train, **values))


def _sampling(**values: Any) -> Callable[[Hardware], Hardware]:
    return lambda hardware: replace(hardware, rollout=replace(hardware.rollout, **values))


def _all_changed(recipe: Recipe, ways: Iterable[tuple[str, Change]]) -> Recipe:
    return reduce(lambda made, way: way[1](made), ways, recipe)


def _fits(case: Case, recipe: Recipe) -> bool:
    changed = replace(case, recipe=recipe)
    size = _sized(changed)
    if size is None or size.capacity is None or not _is_possible(changed):
        return False
    return max(peaks(estimate_memory(size), recipe.hardware.layout).values(), default=0) <= size.capacity


def _is_possible(case: Case) -> bool:
    hardware = case.recipe.hardware
    return not (
        _engine_fault(case, hardware.rollout.tensor_parallel) or _row_fault(case, hardware.train.sequence_parallel)
    )


def _gpu(case: Case) -> str:
    """Name the GPU, unless its memory is overridden."""
    hardware = case.recipe.hardware
    if hardware.gpu is None or hardware.gpu_memory_gb is not None:
        return "the GPU"
    return f"{'an' if hardware.gpu[0] in 'ahlr' else 'a'} {hardware.gpu}"  # as it is read aloud: an l4, a b200


def _table(use: MemoryUse) -> str:
    parts = [f"{item.what} {_gb(item.bytes)}" for item in use.items if item.bytes >= 5 * 10**7]
    return f"{use.role}: {', '.join(parts) or 'under 0.1'} GB"


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f}"


HARDWARE_RULES: tuple[Rule, ...] = (
    engines_fit_the_machines,
    split_adds_up,
    one_process_has_one_gpu,
    offload_has_its_stage,
    ranks_divide_rows,
    overlap_needs_room,
    in_flight_needs_processes,
    micro_batch_holds_an_episode,
    cache_holds_an_episode,
    everything_fits_in_gpu_memory,
    engine_fits_its_share,
)
