"""Which worker runs on which machine and GPU, where `rules` found by `explain_misfit` that they fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from ..frozen import frozen
from ..model.plan import Placement, Role, Worker
from ..model.recipe import Environment, Hardware, Launcher, Layout, Transport

__all__ = ["Counts", "choose_launcher", "count_ranks", "explain_misfit", "place_workers"]

GpuAt = tuple[int, int]
"""A node and an index on it."""
Seat = tuple[int, tuple[int, ...]]
"""The node of one worker and the indices of its GPUs there; none on a CPU."""

ON_LEARNERS = (Role.LEARNER, Role.CRITIC, Role.REFERENCE)
"""Roles that live in the learners' processes, rank by rank."""


@frozen
class Counts:
    """How many processes train and how many sample; where they run in one process, one of each."""

    learners: int
    learners_per_node: int
    engines: int
    engines_per_node: int


def choose_launcher(hardware: Hardware) -> Launcher:
    """What `auto` chooses: Ray from two GPUs, two machines or two workers of a kind on."""
    if hardware.launcher is not Launcher.AUTO:
        return hardware.launcher
    many = hardware.nodes * (hardware.gpus_per_node or hardware.workers_per_node) > 1
    return Launcher.RAY if many or hardware.ray_address is not None else Launcher.INLINE


def split_gpus(hardware: Hardware) -> tuple[int, int]:
    """GPUs that learn and GPUs that sample under `layout: split`; a number that is not set is what the other leaves."""
    total = hardware.nodes * hardware.gpus_per_node
    learning, sampling = hardware.train.gpus, hardware.rollout.gpus
    if learning is None and sampling is None:
        return total - total // 2, total // 2
    if learning is None:
        return total - (sampling or 0), sampling or 0
    return learning, total - learning if sampling is None else sampling


@lru_cache(maxsize=256)
def count_ranks(hardware: Hardware) -> Counts:
    """Ranks and engines; the per-node figures are those of the fullest node."""
    learners, engines = _seats(hardware, Role.LEARNER), _seats(hardware, Role.ROLLOUT)
    return Counts(
        learners=len(learners),
        learners_per_node=_fullest(learners),
        engines=len(engines),
        engines_per_node=_fullest(engines),
    )


def explain_misfit(hardware: Hardware) -> str | None:
    """Why the engines do not fit the machines' GPUs, if they do not."""
    if hardware.gpus_per_node == 0:
        return None
    share, sampling = hardware.rollout.tensor_parallel, len(_sampling_gpus(hardware))
    if sampling % share:
        return f"{sampling} sampling GPUs do not divide into engines of {share}"
    if len(_engine_gpus(hardware)) < sampling // share:
        return f"an engine of {share} GPUs would have to span two nodes"
    return None


def place_workers(
    hardware: Hardware, roles: Collection[Role], environments: Mapping[str, Environment], light: Collection[str] = ()
) -> Placement:
    """All workers of a run, role by role, each role's ranks from 0."""
    workers = _workers(hardware, frozenset(roles))
    engines = [worker.node for worker in workers if worker.role is Role.ROLLOUT] or [0]
    servers = tuple(_environment_workers(environments, light, engines))
    return Placement(launcher=choose_launcher(hardware).value, workers=workers + servers)


@lru_cache(maxsize=256)
def _workers(hardware: Hardware, roles: frozenset[Role]) -> tuple[Worker, ...]:
    return tuple(
        Worker(id=f"{role.value}/{rank}", role=role, rank=rank, node=node, gpus=gpus)
        for role in (Role.ROLLOUT, *ON_LEARNERS)
        if role in roles
        for rank, (node, gpus) in enumerate(_seats(hardware, role))
    )


def _environment_workers(
    environments: Mapping[str, Environment], light: Collection[str], engines: Sequence[int]
) -> Iterator[Worker]:
    """Server processes: each engine starts its own, on its node; none for what runs in its process or runs already."""
    rank = 0
    for name, environment in environments.items():
        if not _is_served(environment, light):
            continue
        for number, node in enumerate(node for node in engines for _ in range(environment.replicas)):
            yield Worker(id=f"environment/{name}/{number}", role=Role.ENVIRONMENT, rank=rank, node=node, gpus=())
            rank += 1


def _is_served(environment: Environment, light: Collection[str]) -> bool:
    if environment.url is not None or environment.transport is Transport.INLINE:
        return False
    return environment.transport is Transport.HTTP or environment.replicas > 1 or environment.use not in light


def _seats(hardware: Hardware, role: Role) -> list[Seat]:
    """Where the ranks of a role run."""
    if hardware.gpus_per_node == 0:
        return [(node, ()) for node in range(hardware.nodes) for _ in range(hardware.workers_per_node)]
    if role is Role.ROLLOUT:
        return [(gpus[0][0], tuple(index for _, index in gpus)) for gpus in _engine_gpus(hardware)]
    return [(node, (index,)) for node, index in _learner_gpus(hardware)]


def _gpus(hardware: Hardware) -> list[GpuAt]:
    return [(node, index) for node in range(hardware.nodes) for index in range(hardware.gpus_per_node)]


def _learner_gpus(hardware: Hardware) -> list[GpuAt]:
    gpus = _gpus(hardware)
    return gpus if hardware.layout is Layout.COLOCATED else gpus[: split_gpus(hardware)[0]]


def _sampling_gpus(hardware: Hardware) -> list[GpuAt]:
    gpus = _gpus(hardware)
    if hardware.layout is Layout.COLOCATED:
        return gpus
    learning, sampling = split_gpus(hardware)
    return gpus[learning : learning + sampling]


def _engine_gpus(hardware: Hardware) -> list[tuple[GpuAt, ...]]:
    """GPUs of each engine: whole engines node by node, as none may reach over two."""
    share = hardware.rollout.tensor_parallel
    engines = []
    for node in range(hardware.nodes):
        gpus = [gpu for gpu in _sampling_gpus(hardware) if gpu[0] == node]
        engines += [tuple(gpus[i : i + share]) for i in range(0, len(gpus) - share + 1, share)]
    return engines


def _fullest(seats: list[Seat]) -> int:
    return max(Counter(node for node, _ in seats).values(), default=0)
