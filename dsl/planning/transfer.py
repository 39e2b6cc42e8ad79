"""What a sync sends to the samplers, and about how long it takes."""

from __future__ import annotations

from ..model.plan import Placement, Role, Transfer
from ..model.recipe import Hardware, Launcher
from .memory import Sizing, transfer_bytes
from .speeds import SPEEDS, Speed, link_seconds, network_rate

__all__ = ["estimate_transfer"]


def estimate_transfer(sizing: Sizing, hardware: Hardware, placement: Placement) -> Transfer | None:
    """None where nothing learns, or nothing samples. No time where the GPU is not known."""
    if not (sizing.learns and sizing.samples):
        return None
    size = transfer_bytes(sizing.shape, sizing.lora, sizing.width)
    samplers = [worker.node for worker in placement.workers if worker.role is Role.ROLLOUT]
    learners = [worker.node for worker in placement.workers if worker.role is Role.LEARNER]
    speed = SPEEDS[hardware.gpu] if hardware.gpu and not sizing.host else None
    seconds = None
    if speed is not None and placement.launcher == Launcher.RAY:
        seconds = _seconds(
            sizing, speed, size, size / network_rate(hardware), set(learners), set(samplers) - set(learners[:1])
        )
    return Transfer(bytes=size, samplers=len(samplers), nodes=len(set(samplers)), seconds=seconds)


def _seconds(sizing: Sizing, speed: Speed, size: int, network: float, learners: set[int], others: set[int]) -> float:
    """From the first rank to its host, to each other node in turn, and from there to the GPUs, one after the other;
    before that stage 3 makes the weights whole."""
    gathered = 0.0
    if sizing.zero == 3 and sizing.ranks > 1:
        gathered = network if len(learners) > 1 else link_seconds(speed, size)
    return gathered + 2 * link_seconds(speed, size) + len(others) * network
