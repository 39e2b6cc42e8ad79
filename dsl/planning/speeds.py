"""How fast a GPU computes, reads its memory and sends: its maker's figures, and the share assumed to be reached.

Estimates only: docs/memory.md says what they leave out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..frozen import frozen
from ..model.recipe import Gpu, Hardware, ModelShape
from .memory import head_dim, kv_bytes_per_token, parameters

__all__ = ["ASSUMED", "SPEEDS", "Speed", "iteration_seconds", "link_seconds", "network_rate", "pass_seconds"]


@frozen
class Speed:
    """Peaks of one GPU."""

    flops: float
    """Dense operations in bf16 per second."""
    memory: float
    """Bytes read from its memory per second."""
    link: float
    """Bytes per second to and from the host, each way."""


_PCIE_4, _PCIE_5 = 32e9, 64e9
# NVIDIA's data sheets: dense bf16 on tensor cores, SXM where there are several forms; docs/memory.md says where seen
SPEEDS: Mapping[Gpu, Speed] = {
    Gpu.A10: Speed(flops=125e12, memory=0.6e12, link=_PCIE_4),
    Gpu.L4: Speed(flops=121e12, memory=0.3e12, link=_PCIE_4),
    Gpu.RTX_4090: Speed(flops=165e12, memory=1.008e12, link=_PCIE_4),
    Gpu.A100_40: Speed(flops=312e12, memory=1.555e12, link=_PCIE_4),
    Gpu.L40S: Speed(flops=362e12, memory=0.864e12, link=_PCIE_4),
    Gpu.A100_80: Speed(flops=312e12, memory=2.039e12, link=_PCIE_4),
    Gpu.H100: Speed(flops=989e12, memory=3.35e12, link=_PCIE_5),
    Gpu.H200: Speed(flops=989e12, memory=4.8e12, link=_PCIE_5),
    Gpu.B200: Speed(flops=2250e12, memory=8e12, link=_PCIE_5),
}


@frozen
class Assumed:
    """Shares of a peak that are assumed to be reached, and values that no data sheet gives."""

    learning: float = 0.35
    """Of the operations, while learning (MFU)."""
    scoring: float = 0.45
    """Of the operations, in a forward pass of long rows."""
    memory: float = 0.6
    """Of the memory's rate, while sampling."""
    link: float = 0.8
    network: float = 1.25e9
    """Bytes per second between two nodes whose rate is not given: 10 Gbit/s."""
    iteration_s: float = 0.005
    """Scheduling and launches of an engine's forward pass."""


ASSUMED = Assumed()


def pass_seconds(shape: ModelShape, speed: Speed, tokens: int, context: float, passes: float, share: float) -> float:
    """Time of forward passes over tokens with so much context each; a backward pass counts as two."""
    attention = 4 * shape.layers * shape.heads * head_dim(shape) * context
    return passes * tokens * (2 * parameters(shape) + attention) / (share * speed.flops)


def iteration_seconds(
    shape: ModelShape, speed: Speed, width: int, tensor_parallel: int, running: int, context: float
) -> float:
    """Time in which an engine samples a token of each running episode: it reads weights and caches, or it computes."""
    read = (parameters(shape) * width) / tensor_parallel
    read += running * context * kv_bytes_per_token(shape, width, tensor_parallel)
    computed = pass_seconds(shape, speed, running, context, 1, ASSUMED.scoring) / tensor_parallel
    return ASSUMED.iteration_s + max(read / (ASSUMED.memory * speed.memory), computed)


def link_seconds(speed: Speed, size: int) -> float:
    """Time of so many bytes from a GPU to its host, or back."""
    return size / (ASSUMED.link * speed.link)


def network_rate(hardware: Hardware) -> float:
    """Bytes per second from one node to another."""
    return ASSUMED.network if hardware.network_gb_per_s is None else hardware.network_gb_per_s * 1e9
