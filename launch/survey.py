"""What a survey of a cluster found, and what is wrong with it: facts in, problems with advice out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Gpu", "Link", "Node", "Survey", "find_problems"]

_MAX_SKEW_S = 1.0
_MIN_FREE_SHARE = 0.1
_MIN_FREE_GPU_SHARE = 0.9
_MIN_BYTES_PER_S = 100e6
"""Below this the weights of a 7B model take longer than a step."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    driver: str
    memory_mib: int
    free_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as its probe and Ray describe it."""

    address: str
    host: str
    resolves_to: str | None
    """What its own name resolves to on itself."""
    versions: Mapping[str, str | None]
    cores: int
    memory_bytes: int
    free_memory_bytes: int
    shm_bytes: int
    gpus: tuple[Gpu, ...]
    is_token_on: bool
    ray_cpus: int
    ray_gpus: int
    object_store_bytes: int
    clock_skew_s: float | None
    """Seconds that its clock is ahead; None where it did not answer."""
    folder_problem: str | None
    """Why it cannot read what another node wrote; None where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The connection from one node to another."""

    source: str
    target: str
    problem: str | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A cluster."""

    nodes: tuple[Node, ...]
    silent: tuple[str, ...]
    """Addresses of nodes that did not answer."""
    links: tuple[Link, ...]
    folder: str


def find_problems(survey: Survey, *, nodes: int = 0, gpus_per_node: int = 0) -> list[str]:
    """Find what would stop or slow a run, also one of a recipe with so many nodes and GPUs."""
    found = (problem for check in _CHECKS for problem in check(survey))
    return [*found, *_lacking(survey, nodes, gpus_per_node)]


def _silent(survey: Survey) -> Iterator[str]:
    for address in survey.silent:
        yield f"{address} did not answer; see whether Ray still runs there (its logs: /tmp/ray/session_latest/logs)"


def _versions(survey: Survey) -> Iterator[str]:
    for package in survey.nodes[0].versions if survey.nodes else ():
        by_version: dict[str, list[str]] = {}
        for node in survey.nodes:
            by_version.setdefault(node.versions[package] or "not installed", []).append(node.address)
        if len(by_version) > 1:
            yield f"{package} differs: {_listed(by_version)}; install the same everywhere, best from one image"


def _gpus(survey: Survey) -> Iterator[str]:
    for what, of in (
        ("the GPUs differ", lambda node: _count_gpus(node) or "none"),
        ("the GPU drivers differ", lambda node: ", ".join(sorted({gpu.driver for gpu in node.gpus})) or "none"),
    ):
        by_kind = _group(survey.nodes, of)
        if len(by_kind) > 1:
            yield f"{what}: {_listed(by_kind)}; a plan takes all nodes to be alike"
    for node in survey.nodes:
        if node.ray_gpus < len(node.gpus):
            yield (
                f"{node.address}: Ray offers {node.ray_gpus} of {len(node.gpus)} GPUs; start it there with "
                f"--num-gpus={len(node.gpus)}"
            )
        for index, gpu in enumerate(node.gpus):
            if gpu.free_mib < _MIN_FREE_GPU_SHARE * gpu.memory_mib:
                yield (
                    f"{node.address}: GPU {index} has {gpu.free_mib} of {gpu.memory_mib} MiB free; "
                    "nvidia-smi on that node says which process holds the rest"
                )


def _count_gpus(node: Node) -> str:
    kinds: dict[str, int] = {}
    for gpu in node.gpus:
        kinds[gpu.name] = kinds.get(gpu.name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in kinds.items())


def _memory(survey: Survey) -> Iterator[str]:
    for node in survey.nodes:
        if node.free_memory_bytes < _MIN_FREE_SHARE * node.memory_bytes:
            yield (
                f"{node.address}: only {_gib(node.free_memory_bytes)} of {_gib(node.memory_bytes)} of memory are "
                "free; end what holds it"
            )
        if node.object_store_bytes > node.shm_bytes:
            yield (
                f"{node.address}: /dev/shm has {_gib(node.shm_bytes)} and Ray's object store "
                f"{_gib(node.object_store_bytes)}, which then goes to disk; give the container a larger --shm-size, "
                "or Ray a smaller --object-store-memory"
            )


def _folder(survey: Survey) -> Iterator[str]:
    by_problem = _group([node for node in survey.nodes if node.folder_problem], lambda node: node.folder_problem or "")
    for problem, addresses in by_problem.items():
        yield (
            f"'{survey.folder}' is not shared: {', '.join(addresses)}: {problem.lower()}; mount one file system under "
            "the same path on all nodes, or name another with --folder and the recipe's 'output'"
        )


def _names(survey: Survey) -> Iterator[str]:
    for node in survey.nodes if _spans_machines(survey) else ():
        if node.resolves_to is None or node.resolves_to.startswith("127."):
            yield (
                f"{node.address}: its own name '{node.host}' stands for {node.resolves_to or 'nothing'}, where the "
                "other nodes cannot reach it; correct /etc/hosts, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to "
                "the interface of that address before Ray is started"
            )


def _clocks(survey: Survey) -> Iterator[str]:
    for node in survey.nodes:
        if node.clock_skew_s is not None and abs(node.clock_skew_s) > _MAX_SKEW_S:
            way = "ahead" if node.clock_skew_s > 0 else "behind"
            yield f"{node.address}: its clock is {abs(node.clock_skew_s):.1f} s {way}; start chrony or ntpd there"


def _network(survey: Survey) -> Iterator[str]:
    for link in survey.links:
        way = f"from {link.source} to {link.target}"
        if link.problem:
            yield f"no connection {way}: {link.problem.lower()}; open all ports between the nodes"
        elif link.bytes_per_s is None:
            yield f"no object came {way} in time; open all ports between the nodes"
        elif link.bytes_per_s < _MIN_BYTES_PER_S and link.source != link.target:
            yield (
                f"only {link.bytes_per_s / 1e6:.0f} MB/s {way}: weights will take long; see that Ray uses the fast "
                "interface (--node-ip-address)"
            )


def _token(survey: Survey) -> Iterator[str]:
    open_to_all = [node.address for node in survey.nodes if not node.is_token_on]
    if open_to_all and _spans_machines(survey):
        yield (
            f"Ray asks for no token on {', '.join(open_to_all)}: whoever reaches it can run any code; start it on "
            "every node with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN_PATH"
        )


def _lacking(survey: Survey, nodes: int, gpus_per_node: int) -> Iterator[str]:
    fitting = sum(node.ray_gpus >= gpus_per_node for node in survey.nodes)
    if fitting < nodes:
        each = f" with {gpus_per_node} GPUs" if gpus_per_node else ""
        yield f"the recipe needs {nodes} nodes{each}, and the cluster has {fitting}; start Ray on more"


def _spans_machines(survey: Survey) -> bool:
    return len({node.address for node in survey.nodes}) > 1


def _group(nodes: Iterable[Node], of: Callable[[Node], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(of(node), []).append(node.address)
    return found


def _listed(groups: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{what} on {' and '.join(addresses)}" for what, addresses in groups.items())


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


_CHECKS: tuple[Callable[[Survey], Iterator[str]], ...] = (
    _silent,
    _versions,
    _gpus,
    _memory,
    _folder,
    _names,
    _clocks,
    _network,
    _token,
)
