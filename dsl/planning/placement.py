"""Which worker runs on which machine and GPU, where `rules` found by `explain_misfit` that they fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from ..frozen import frozen
from ..model.plan import Placement, Role, Worker
from ..model.recipe import Environment, Hardware, Launcher, Layout, Transport

__all__ = ["Counts", "choose_launcher", "count_ranks", "explain_misfit", "place_workers"]

Card = tuple[int, int]
"""A node and an index on it."""

ON_LEARNERS = (Role.LEARNER, Role.CRITIC, Role.REFERENCE)
"""Roles that live in the learners' processes, rank by rank."""


@frozen
class Counts:
    """How many processes learn and how many sample; where they run in one process, one of each."""

    learners: int
    learners_per_node: int
    engines: int
    engines_per_node: int


def choose_launcher(hardware: Hardware) -> Launcher:
    """What `auto` comes to: Ray from two GPUs or two machines on."""
    if hardware.launcher is not Launcher.AUTO:
        return hardware.launcher
    many = hardware.nodes * max(hardware.gpus_per_node, 1) > 1
    return Launcher.RAY if many or hardware.ray_address is not None else Launcher.INLINE


def split_gpus(hardware: Hardware) -> tuple[int, int]:
    """GPUs that learn and GPUs that sample under `layout: split`; what one does not name the other leaves."""
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
    if hardware.gpus_per_node == 0:
        return Counts(learners=hardware.nodes, learners_per_node=1, engines=hardware.nodes, engines_per_node=1)
    learners, engines = _learner_cards(hardware), _engine_cards(hardware)
    return Counts(
        learners=len(learners),
        learners_per_node=_fullest([node for node, _ in learners]),
        engines=len(engines),
        engines_per_node=_fullest([cards[0][0] for cards in engines]),
    )


def explain_misfit(hardware: Hardware) -> str | None:
    """Why the engines do not fit the machines' GPUs, if they do not."""
    if hardware.gpus_per_node == 0:
        return None
    share, sampling = hardware.rollout.tensor_parallel, len(_sampling_cards(hardware))
    if sampling % share:
        return f"{sampling} sampling GPUs do not divide into engines of {share}"
    if len(_engine_cards(hardware)) < sampling // share:
        return f"an engine of {share} GPUs would have to span two nodes"
    return None


def place_workers(
    hardware: Hardware, roles: Collection[Role], environments: Mapping[str, Environment], light: Collection[str] = ()
) -> Placement:
    """All workers of a run, role by role, each role's ranks from 0."""
    workers = (*_workers(hardware, frozenset(roles)), *_environment_workers(environments, light))
    return Placement(launcher=choose_launcher(hardware).value, workers=workers)


@lru_cache(maxsize=256)
def _workers(hardware: Hardware, roles: frozenset[Role]) -> tuple[Worker, ...]:
    return tuple((_workers_on_cards if hardware.gpus_per_node else _workers_on_hosts)(hardware, roles))


def _environment_workers(environments: Mapping[str, Environment], light: Collection[str]) -> Iterator[Worker]:
    """Server processes, all on the first machine; none for what runs in the trainer's process or runs already."""
    rank = 0
    for name, environment in environments.items():
        if not _is_served(environment, light):
            continue
        for replica in range(environment.replicas):
            yield Worker(id=f"environment/{name}/{replica}", role=Role.ENVIRONMENT, rank=rank, node=0, gpus=())
            rank += 1


def _is_served(environment: Environment, light: Collection[str]) -> bool:
    if environment.url is not None or environment.transport is Transport.INLINE:
        return False
    return environment.transport is Transport.HTTP or environment.replicas > 1 or environment.use not in light


def _workers_on_hosts(hardware: Hardware, roles: Collection[Role]) -> Iterator[Worker]:
    for role in (Role.ROLLOUT, *ON_LEARNERS):
        if role in roles:
            yield from (_worker(role, rank, rank, ()) for rank in range(hardware.nodes))


def _workers_on_cards(hardware: Hardware, roles: Collection[Role]) -> Iterator[Worker]:
    if Role.ROLLOUT in roles:
        for rank, engine in enumerate(_engine_cards(hardware)):
            yield _worker(Role.ROLLOUT, rank, engine[0][0], tuple(index for _, index in engine))
    for role in ON_LEARNERS:
        if role in roles:
            cards = enumerate(_learner_cards(hardware))
            yield from (_worker(role, rank, node, (index,)) for rank, (node, index) in cards)


def _worker(role: Role, rank: int, node: int, gpus: tuple[int, ...]) -> Worker:
    return Worker(id=f"{role.value}/{rank}", role=role, rank=rank, node=node, gpus=gpus)


def _cards(hardware: Hardware) -> list[Card]:
    return [(node, index) for node in range(hardware.nodes) for index in range(hardware.gpus_per_node)]


def _learner_cards(hardware: Hardware) -> list[Card]:
    cards = _cards(hardware)
    return cards if hardware.layout is Layout.COLOCATED else cards[: split_gpus(hardware)[0]]


def _sampling_cards(hardware: Hardware) -> list[Card]:
    cards = _cards(hardware)
    if hardware.layout is Layout.COLOCATED:
        return cards
    learning, sampling = split_gpus(hardware)
    return cards[learning : learning + sampling]


def _engine_cards(hardware: Hardware) -> list[tuple[Card, ...]]:
    """Cards of each engine: whole engines node by node, as none may reach over two."""
    share = hardware.rollout.tensor_parallel
    engines = []
    for node in range(hardware.nodes):
        cards = [card for card in _sampling_cards(hardware) if card[0] == node]
        engines += [tuple(cards[i : i + share]) for i in range(0, len(cards) - share + 1, share)]
    return engines


def _fullest(nodes: list[int]) -> int:
    return max((nodes.count(node) for node in set(nodes)), default=0)
