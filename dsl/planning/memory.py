"""How much memory a run takes: parameters, optimiser states, activations, caches, in bytes per GPU.

Whole numbers throughout; what is split is rounded up, as the largest share decides. docs/memory.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from ..frozen import frozen
from ..model.plan import MemoryItem, MemoryUse, Phase, Role
from ..model.recipe import DType, Gpu, Hardware, Lora, ModelShape, Offload

__all__ = [
    "Sizing",
    "activation_bytes",
    "adapter_parameters",
    "capacity_bytes",
    "choose_zero",
    "critic_parameters",
    "engine_limit",
    "estimate_memory",
    "head_dim",
    "one_episode_cache",
    "parameters",
    "transfer_bytes",
    "width",
]

LOGIT_ELEMENTS = 1 << 25
"""Most logits that exist at the same time; beyond it log-probabilities are computed chunk by chunk."""
LOGIT_COPIES = 7
"""Logits, their log-softmax, probabilities and gradients, in fp32."""
BUCKET_ELEMENTS = 500_000_000
"""Elements of the learner's bucket of gradients, which is held twice while ranks exchange it."""
LIVE_ELEMENTS = 1_000_000_000
"""Weights that stage 3 keeps gathered at most, as they are soon needed again."""
PREFETCH_ELEMENTS = 50_000_000
"""Weights that stage 3 gathers ahead; they are held twice while they arrive."""
STEP_ELEMENTS = 1_000_000_000
"""Elements that stage 3 updates at a time."""
ENGINE_BATCH_TOKENS = 8192
"""Most tokens in one forward pass of a sampling engine."""
ENGINE_SEQUENCES = 256
"""Most sequences that a sampling engine draws from at the same time."""
PROCESS_BYTES = 1_500_000_000
"""Device context, kernels, communicators and fragmentation of one process on a GPU."""
HOST_PROCESS_BYTES = 500_000_000
"""A process without a GPU: the interpreter, PyTorch, and the kernels that it keeps."""
HOST_ENGINE_BYTES = 400_000_000
"""The libraries of a sampling engine, and what it keeps from its warm-up."""
HOST_KERNELS_BYTES = 250_000_000
"""Kernels for 16-bit matrix products on a CPU, which are kept for rows of many lengths."""

_GIB = 2**30
USABLE_BYTES: Mapping[Gpu, int] = {
    Gpu.A10: 22 * _GIB,
    Gpu.L4: 22 * _GIB,
    Gpu.RTX_4090: 23 * _GIB,
    Gpu.A100_40: 39 * _GIB,
    Gpu.L40S: 44 * _GIB,
    Gpu.A100_80: 79 * _GIB,
    Gpu.H100: 79 * _GIB,
    Gpu.H200: 139 * _GIB,
    Gpu.B200: 178 * _GIB,
}
"""Memory of each GPU that a program can use, which is a little less than its nominal size."""


@frozen
class Sizing:
    """Everything that the estimate depends on."""

    shape: ModelShape
    critic: ModelShape | None
    """None without a critic."""
    lora: Lora | None
    reference: bool
    """Whether a second, frozen copy of the policy is held."""
    teacher: ModelShape | None
    """Held in turn with the reference; None without a teacher."""
    width: int
    """Bytes of one weight."""
    zero: int
    """The stage that runs; see `choose_zero`."""
    offload: Offload
    checkpointing: bool
    ranks: int
    """Learners in all, between which ZeRO splits."""
    sequence_parallel: int
    """Learners that divide the tokens of a forward pass between them."""
    ranks_per_node: int
    tensor_parallel: int
    engines_per_node: int
    colocated: bool
    """Whether engines and learners use the same GPUs."""
    host: bool
    """Whether everything runs on the CPU."""
    inline: bool
    """Whether everything runs in one process."""
    learns: bool
    """Whether any stage updates weights."""
    samples: bool
    """Whether anything is played, to learn from or to evaluate."""
    micro_batch_tokens: int
    context_tokens: int
    slots_per_engine: int
    """Episodes that one engine has in progress."""
    cache_bytes: int | None
    """The cache that was asked for, on a CPU."""
    capacity: int | None
    """Memory of a GPU; None on a CPU or an unknown GPU."""
    memory_share: float


# --- parameters ----------------------------------------------------------------------------------------------------


def head_dim(shape: ModelShape) -> int:
    """Width of one attention head."""
    return shape.head_dim or shape.hidden // shape.heads


def _projections(shape: ModelShape) -> Mapping[str, tuple[int, int]]:
    """Inputs and outputs of each linear layer of a block."""
    attended = shape.heads * head_dim(shape)
    keys = shape.kv_heads * head_dim(shape)
    return {
        "q_proj": (shape.hidden, attended),
        "k_proj": (shape.hidden, keys),
        "v_proj": (shape.hidden, keys),
        "o_proj": (attended, shape.hidden),
        "gate_proj": (shape.hidden, shape.intermediate),
        "up_proj": (shape.hidden, shape.intermediate),
        "down_proj": (shape.intermediate, shape.hidden),
    }


def layer_parameters(shape: ModelShape) -> int:
    """Parameters of one block: seven matrices, two norms, and biases or head norms where the family has them."""
    matrices = sum(rows * columns for rows, columns in _projections(shape).values())
    biases = (shape.heads + 2 * shape.kv_heads) * head_dim(shape) if shape.attention_bias else 0
    head_norms = 2 * head_dim(shape) if shape.qk_norm else 0
    return matrices + biases + head_norms + 2 * shape.hidden


def parameters(shape: ModelShape) -> int:
    """All parameters; a tied output layer counts once."""
    embedding = shape.vocab * shape.hidden
    output = 0 if shape.tie_embeddings else embedding
    return embedding + shape.layers * layer_parameters(shape) + shape.hidden + output


def critic_parameters(shape: ModelShape) -> int:
    """A backbone with one number per token in place of the output layer."""
    return shape.vocab * shape.hidden + shape.layers * layer_parameters(shape) + shape.hidden + shape.hidden


def adapter_parameters(shape: ModelShape, lora: Lora) -> int:
    """Two thin matrices per target and block; a target that the block does not have adds nothing."""
    sides = _projections(shape)
    thin = sum(sum(sides[target]) for target in set(lora.targets) if target in sides)
    return shape.layers * lora.rank * thin


# --- activations and caches ----------------------------------------------------------------------------------------


def _layer_activation_bytes(shape: ModelShape, width: int) -> int:
    """What the backward pass of one block needs of its forward pass, per token, with fused attention."""
    dim = head_dim(shape)
    norms = 2 * shape.hidden * (4 + 2 * width)
    attention = 2 * (shape.heads + shape.kv_heads) * dim * width
    head_norms = (shape.heads + shape.kv_heads) * dim * (4 + width) if shape.qk_norm else 0
    feed_forward = 4 * shape.intermediate * width
    return norms + attention + head_norms + feed_forward


def activation_bytes(
    shape: ModelShape, tokens: int, width: int, checkpointing: bool, sequence_parallel: int = 1
) -> int:
    """With checkpointing each block keeps its input, and one block at a time is computed again; `tokens` are those of
    one rank."""
    block = _layer_activation_bytes(shape, width) + _exchanged_bytes(shape, width, sequence_parallel)
    if not checkpointing:
        return tokens * shape.layers * block
    return tokens * (shape.layers * shape.hidden * width + block)


def _exchanged_bytes(shape: ModelShape, width: int, sequence_parallel: int) -> int:
    """Attention of all tokens for some heads, per token of a rank, besides that of its own tokens for all heads; each
    rank has a key-value head at least."""
    if sequence_parallel == 1:
        return 0
    return 2 * (shape.heads + max(shape.kv_heads, sequence_parallel)) * head_dim(shape) * width


def logit_bytes(shape: ModelShape, tokens: int, trained: bool = True) -> int:
    """Everything that has the size of a chunk's logits; with several chunks the output layer's gradient in fp32 too."""
    chunked = tokens * shape.vocab > LOGIT_ELEMENTS
    head = 4 * shape.vocab * shape.hidden if chunked and trained else 0
    return 4 * LOGIT_COPIES * min(tokens * shape.vocab, LOGIT_ELEMENTS) + head


def kv_bytes_per_token(shape: ModelShape, width: int, tensor_parallel: int = 1) -> int:
    """Keys and values of one token in all blocks, on one of the GPUs that share an engine."""
    return 2 * shape.layers * _up(shape.kv_heads, tensor_parallel) * head_dim(shape) * width


def one_episode_cache(sizing: Sizing) -> int:
    """Cache of one episode of full length: the least that an engine can work with."""
    return sizing.context_tokens * kv_bytes_per_token(sizing.shape, sizing.width, sizing.tensor_parallel)


def width(dtype: DType, on_gpus: bool) -> int:
    """Bytes of one weight; `auto` is bf16 on GPUs and fp32 on a CPU."""
    if dtype is DType.AUTO:
        return 2 if on_gpus else 4
    return 4 if dtype is DType.FP32 else 2


def choose_zero(zero: int, width: int, offload: Offload, ranks: int) -> int:
    """The ZeRO stage that runs: a single rank has nothing to shard in fp32, and half precision has no stage 1."""
    if width == 4:
        return 0 if ranks == 1 and offload is Offload.NONE else zero
    return max(zero, 2)


def transfer_bytes(shape: ModelShape, lora: Lora | None, width: int) -> int:
    """What a sync sends: the adapters, or the whole model with its output layer written out."""
    return (_written_out(shape) if lora is None else adapter_parameters(shape, lora)) * width


def _written_out(shape: ModelShape) -> int:
    """All parameters, a tied output layer once more."""
    return parameters(shape) + (shape.vocab * shape.hidden if shape.tie_embeddings else 0)


def capacity_bytes(hardware: Hardware) -> int | None:
    """Memory of one GPU, as far as the recipe tells."""
    if hardware.gpus_per_node == 0:
        return None
    if hardware.gpu_memory_gb is not None:
        return int(hardware.gpu_memory_gb * 10**9)
    return USABLE_BYTES[hardware.gpu] if hardware.gpu else None


# --- the estimate --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def estimate_memory(sizing: Sizing) -> tuple[MemoryUse, ...]:
    """Memory of each role on its GPU or host, learners first; on a CPU all of it is host memory of each machine."""
    trained = _learning_roles(sizing) if sizing.learns else ()
    engines = (_use(Role.ROLLOUT, _engine_items(sizing, trained)),) if sizing.samples else ()
    placed = tuple(_in_place(use, sizing) for use in (*trained, *engines))
    sent = _sent_items(sizing) if trained and engines else []
    return (*placed, _use(Role.LEARNER, sent, host=True)) if sent else placed


def _learning_roles(sizing: Sizing) -> tuple[MemoryUse, ...]:
    policy, policy_host = _policy_items(sizing)
    critic, critic_host = _critic_items(sizing)
    uses = (
        _use(Role.LEARNER, policy),
        _use(Role.LEARNER, policy_host, host=True),
        _use(Role.CRITIC, critic),
        _use(Role.CRITIC, critic_host, host=True),
        _use(Role.REFERENCE, _reference_items(sizing)),
        _use(Role.LEARNER, _start_items(sizing), host=True),
    )
    return tuple(use for use in uses if use.items)


def _start_items(sizing: Sizing) -> list[MemoryItem]:
    """What a rank holds on the host before it is on the GPU: a whole model, unless it is divided as it is read."""
    if sizing.host or (sizing.zero == 3 and sizing.ranks > 1):
        return []
    shapes = (sizing.shape, *(each for each in (sizing.critic, sizing.teacher) if each))
    largest = max(map(parameters, shapes)) * sizing.width
    return [MemoryItem(what="model file", bytes=largest, phase=Phase.STARTING)]


def _sent_items(sizing: Sizing) -> list[MemoryItem]:
    """Weights of the newest sync, which wait in the shared memory of each machine for samplers, replacements too."""
    if sizing.inline:
        return []
    return [MemoryItem(what="weights sent", bytes=transfer_bytes(sizing.shape, sizing.lora, sizing.width))]


def _policy_items(sizing: Sizing) -> tuple[list[MemoryItem], list[MemoryItem]]:
    whole = parameters(sizing.shape)
    adapters = adapter_parameters(sizing.shape, sizing.lora) if sizing.lora else 0
    gpu, host = _states(sizing, whole + adapters, adapters or whole, sizing.shape, Phase.LEARNING)
    tokens = _up(sizing.micro_batch_tokens, sizing.sequence_parallel)
    gpu += [
        _activations(sizing, sizing.shape, Phase.LEARNING),
        MemoryItem(what="logits", bytes=logit_bytes(sizing.shape, tokens, sizing.lora is None), phase=Phase.LEARNING),
    ]
    return gpu + _process(sizing) + _kernels(sizing), host


def _critic_items(sizing: Sizing) -> tuple[list[MemoryItem], list[MemoryItem]]:
    if sizing.critic is None:
        return [], []
    whole, output = critic_parameters(sizing.critic), sizing.critic.hidden
    adapters = adapter_parameters(sizing.critic, sizing.lora) if sizing.lora else 0
    learning = adapters + output if adapters else whole
    gpu, host = _states(sizing, whole + adapters, learning, sizing.critic, Phase.VALUING)
    return [*gpu, _activations(sizing, sizing.critic, Phase.VALUING)], host


def _reference_items(sizing: Sizing) -> list[MemoryItem]:
    shapes = [sizing.shape] if sizing.reference else []
    held = max(map(parameters, [*shapes, *([sizing.teacher] if sizing.teacher else [])]), default=0)
    share = sizing.ranks if sizing.zero == 3 else 1
    return [MemoryItem(what="weights", bytes=_up(held, share) * sizing.width)] if held else []


def _states(
    sizing: Sizing, held: int, trained: int, shape: ModelShape, phase: Phase
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Weights, gradients and optimiser of one network: what is on the GPU, what is on the host per rank."""
    zero, ranks = sizing.zero, sizing.ranks
    weights = MemoryItem(what="weights", bytes=_up(held, ranks if zero == 3 else 1) * sizing.width)
    optimizer = MemoryItem(what="optimizer", bytes=_up(trained, ranks if zero >= 1 else 1) * _optimizer_bytes(sizing))
    gpu = [weights] if sizing.offload is not Offload.ALL else []
    host = [weights] if sizing.offload is Offload.ALL else []
    if sizing.offload is Offload.NONE:
        gpu += [optimizer, *_gradients(sizing, trained, phase)]
    else:
        host += [optimizer, *_offloaded(sizing, trained)]
        # at stage 3 each bucket goes to the host at once
        share = _up(trained, ranks)
        own = {2: share, 3: min(share, BUCKET_ELEMENTS)}.get(zero, trained)
        gpu.append(MemoryItem(what="gradients", bytes=4 * own, phase=phase))
    return gpu + _communication(sizing, trained, shape, phase), host


def _offloaded(sizing: Sizing, trained: int) -> list[MemoryItem]:
    """What an optimiser on the host has there besides its states, per rank: gradients in fp32, below stage 3 new
    weights on their way back."""
    share = _up(trained, sizing.ranks)
    # as they add up, and as the step takes them
    is_added_apart = sizing.zero == 3 or (sizing.zero == 2 and sizing.width == 4)
    gradients = MemoryItem(what="gradients", bytes=4 * share * (1 + is_added_apart))
    if sizing.zero == 3:
        return [gradients]
    return [gradients, MemoryItem(what="new weights", bytes=sizing.width * share)]


def _optimizer_bytes(sizing: Sizing) -> int:
    """Two moments in fp32, and a master copy except at stage 0, where fp32 weights are their own master."""
    return 8 if sizing.zero == 0 else 12


def _gradients(sizing: Sizing, trained: int, phase: Phase) -> list[MemoryItem]:
    """Gradients, which add up in fp32, and what the step makes of them when activations are gone."""
    share = _up(trained, sizing.ranks)
    if sizing.zero == 3:
        copied = 4 * min(share, STEP_ELEMENTS)
        return [
            MemoryItem(what="gradients", bytes=4 * share),
            MemoryItem(what="copy of gradients", bytes=copied, phase=Phase.STEPPING),
        ]
    if sizing.zero == 0:
        held, copied = trained, min(trained, BUCKET_ELEMENTS)
    elif sizing.zero == 1:
        held, copied = trained, share
    elif sizing.width == 4:
        # those of a micro-batch are kept apart until they are added
        held, copied = 2 * share, 0
    else:
        held, copied = share, 0
    gradients = [MemoryItem(what="gradients", bytes=4 * held, phase=phase)]
    if copied:
        gradients.append(MemoryItem(what="gradients, copied", bytes=4 * (held + copied), phase=Phase.STEPPING))
    return gradients


def _communication(sizing: Sizing, trained: int, shape: ModelShape, phase: Phase) -> list[MemoryItem]:
    """Buckets for gradients, and under stage 3 the weights that are gathered."""
    items, bucket = [], min(trained, BUCKET_ELEMENTS) * sizing.width
    if sizing.zero == 3:
        items.append(MemoryItem(what="buckets", bytes=2 * bucket))
    elif sizing.zero >= 1:
        items.append(MemoryItem(what="buckets", bytes=2 * bucket, phase=phase))
    if sizing.zero == 3 and (sizing.ranks > 1 or sizing.offload is Offload.ALL):
        whole, largest = parameters(shape), max(layer_parameters(shape), shape.vocab * shape.hidden)
        gathered = min(whole, LIVE_ELEMENTS) + min(whole, max(PREFETCH_ELEMENTS, largest))
        items.append(MemoryItem(what="gathered weights", bytes=gathered * sizing.width, phase=phase))
    return items


def _activations(sizing: Sizing, shape: ModelShape, phase: Phase) -> MemoryItem:
    tokens, shared = _up(sizing.micro_batch_tokens, sizing.sequence_parallel), sizing.sequence_parallel
    size = activation_bytes(shape, tokens, sizing.width, sizing.checkpointing, shared)
    return MemoryItem(what="activations", bytes=size, phase=phase)


def _process(sizing: Sizing) -> list[MemoryItem]:
    return [MemoryItem(what="process", bytes=HOST_PROCESS_BYTES if sizing.host else PROCESS_BYTES)]


def _kernels(sizing: Sizing) -> list[MemoryItem]:
    is_kept = sizing.host and sizing.width == 2
    return [MemoryItem(what="kernels", bytes=HOST_KERNELS_BYTES)] if is_kept else []


def _engine_process(sizing: Sizing) -> list[MemoryItem]:
    if not sizing.host:
        return _process(sizing)
    shared = sizing.inline and sizing.learns
    return [MemoryItem(what="process", bytes=HOST_ENGINE_BYTES + (0 if shared else HOST_PROCESS_BYTES))]


def _engine_items(sizing: Sizing, neighbours: Iterable[MemoryUse]) -> list[MemoryItem]:
    shape, share = sizing.shape, sizing.tensor_parallel
    adapters = adapter_parameters(shape, sizing.lora) if sizing.lora else 0
    # a sync of all weights brings the output layer written out
    held = _written_out(shape) if sizing.learns and not adapters else parameters(shape) + adapters
    # host memory is kept while the learner works
    phase = Phase.RESIDENT if sizing.host else Phase.SAMPLING
    weights = MemoryItem(what="weights", bytes=_up(held, share) * sizing.width, phase=phase)
    own = [weights, *_workspace(sizing), *_engine_process(sizing)]
    taken = sum(item.bytes for item in own)
    cache = _host_cache(sizing) if sizing.host else _gpu_cache(sizing, taken, neighbours)
    return [*own, MemoryItem(what="cache", bytes=cache, phase=phase)]


def _workspace(sizing: Sizing) -> list[MemoryItem]:
    """Activations of one forward pass, and the logits of what is drawn."""
    if sizing.host:
        return []
    shape = sizing.shape
    per_token = _up(2 * shape.intermediate, sizing.tensor_parallel) + 4 * shape.hidden
    forward = ENGINE_BATCH_TOKENS * per_token * sizing.width
    drawn = 2 * 4 * ENGINE_SEQUENCES * shape.vocab
    return [MemoryItem(what="workspace", bytes=forward + drawn, phase=Phase.SAMPLING)]


def _host_cache(sizing: Sizing) -> int:
    if sizing.cache_bytes is not None:
        return sizing.cache_bytes
    return sizing.slots_per_engine * one_episode_cache(sizing)


def _gpu_cache(sizing: Sizing, taken: int, neighbours: Iterable[MemoryUse]) -> int:
    """All that is left of the engine's share; never less than one episode needs, so that a shortage shows."""
    limit = engine_limit(sizing, neighbours)
    least = one_episode_cache(sizing)
    return least if limit is None else max(least, limit - taken)


def engine_limit(sizing: Sizing, neighbours: Iterable[MemoryUse]) -> int | None:
    """What an engine may take of a GPU: its share, and no more than what learners leave while they wait."""
    if sizing.capacity is None:
        return None
    share = int(sizing.memory_share * sizing.capacity)
    if not sizing.colocated:
        return share
    held = sum(item.bytes for use in neighbours if not use.host for item in use.items if item.phase is Phase.RESIDENT)
    return min(share, sizing.capacity - held)


def _in_place(use: MemoryUse, sizing: Sizing) -> MemoryUse:
    """What is on a GPU stays per GPU; what is in host memory is that of all processes of a machine."""
    if not (use.host or sizing.host):
        return use
    count = sizing.engines_per_node if use.role is Role.ROLLOUT else sizing.ranks_per_node
    return _use(use.role, [replace(item, bytes=item.bytes * count) for item in use.items], host=True)


def _use(role: Role, items: Iterable[MemoryItem], host: bool = False) -> MemoryUse:
    return MemoryUse(role=role, items=tuple(items), host=host)


def _up(amount: int, shares: int) -> int:
    return -(-amount // shares)
