"""The Ray cluster of a run: joined or started, its machines chosen by the plan, each actor on the machine and the GPUs
that the plan says."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...dsl.model.plan import Plan, Role, Worker
from ...dsl.publish.plan_json import dump_json
from ..backends.engine_variables import missing_variables
from ..errors import RunError
from ..rollout.env_connections import EnvConnector
from .ray_member import Member, NotStarted

__all__ = [
    "HEALTH",
    "Cluster",
    "Node",
    "actor_variables",
    "choose_nodes",
    "explain_shortage",
    "join_cluster",
    "list_workers",
    "named_variables",
    "resource_claims",
    "watch_raylet",
]

_ROOM_S = 300.0
"""For a cluster to have room for the workers, and for their processes to start on machines that are busy."""
_POLL_S = 1.0
_OVER = "Ray has ended on the driver's machine"
HEALTH = "health"
"""Concurrency group of a learner's pings, which are answered while it works."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str
    offers: Mapping[str, float]


class Cluster:
    """The machines that a run has; they are looked up again whenever an actor is placed."""

    def __init__(self, plan: Plan, environ: Mapping[str, str], address: str) -> None:
        self._plan, self._address = plan, address
        self._claims = resource_claims(plan)
        self._variables = actor_variables(plan, environ)
        self._nodes: list[Node] = []
        """By their index in the plan."""
        self._members: list[Member] = []
        """All that were ever created."""
        self._is_over = False

    def end(self) -> None:
        """Ray has ended on the driver's machine, and no longer reaches any worker."""
        self._is_over = True
        for member in self._members:
            member.give_up(_OVER)

    async def find_nodes(self) -> None:
        """Find a machine for each node of the plan; those that are still alive keep their places."""
        needs = _needs_of_nodes(self._plan, self._claims)
        deadline = asyncio.get_running_loop().time() + _ROOM_S
        while True:
            if self._is_over:
                raise RunError(f"{_OVER}: resume the run; on a cluster of your own, first run 'ray start' there again")
            alive = await asyncio.to_thread(_living_nodes)
            if chosen := choose_nodes(alive, needs, self._nodes):
                self._nodes = chosen
                return
            if asyncio.get_running_loop().time() > deadline:
                raise RunError(f"start: {explain_shortage(needs, alive, self._address)}")
            await asyncio.sleep(_POLL_S)

    def address_of(self, worker: Worker) -> str:
        return self._nodes[worker.node].address

    async def create(
        self, worker: Worker, actor: type, *arguments: Any, log: Path, health: str | None = None
    ) -> Member:
        """Start an actor, and wait until its process is there; in the group `health` it answers pings."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        await self.find_nodes()
        node, claim = self._nodes[worker.node], self._claims[worker.id]
        remote: Any = ray.remote
        placed = remote(concurrency_groups={HEALTH: 1})(actor).options(
            num_cpus=claim["CPU"],
            num_gpus=claim["GPU"],
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            runtime_env={"env_vars": self._variables},
        )
        handle = placed.remote(*arguments)
        log.parent.mkdir(parents=True, exist_ok=True)
        member = Member(worker, node.address, handle, self._plan.hardware.heartbeat_s, health)
        self._members.append(member)
        try:
            pid = await member.wait(handle.prepare.remote(log, worker.gpus), within=_ROOM_S)
        except BaseException as error:
            # also if it was called off: else it starts later, and takes the room of its replacement
            await member.end()
            if not isinstance(error, NotStarted):
                raise
            raise RunError(
                f"start: waited {_ROOM_S:g} s for node {node.address} to have room for {worker.id}, which needs "
                f"{_describe(claim)}; end what else uses the cluster, or give the run machines of its own"
            ) from error
        member.also_kill = partial(_kill, node.id, pid)
        return member


def _kill(node: str, pid: int) -> None:
    """Kill a process on a node. A stopped process does not react to `ray.kill`, and keeps what it holds."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    remote: Any = ray.remote
    remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_kill_here).remote(pid)


def _kill_here(pid: int) -> None:
    # by now the id may belong to another process
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)


def list_workers(plan: Plan, role: Role) -> list[Worker]:
    """The plan's workers of a role that are processes; there is one of each, whatever a plan needs."""
    placed = [worker for worker in plan.placement.workers if worker.role is role]
    each = plan.hardware.rollout.tensor_parallel if role is Role.ROLLOUT else 1
    gpus = tuple(range(min(plan.hardware.gpus_per_node, each)))
    return placed or [Worker(id=f"{role.value}/0", role=role, rank=0, node=0, gpus=gpus)]


def resource_claims(plan: Plan) -> dict[str, dict[str, float]]:
    """What each actor requires of its machine, by its id: a CPU, and its share of the GPUs that it is placed on."""
    workers = [*list_workers(plan, Role.ROLLOUT), *list_workers(plan, Role.LEARNER)]
    users = Counter((worker.node, gpu) for worker in workers for gpu in worker.gpus)
    return {
        worker.id: {"CPU": 1.0, "GPU": sum(1 / users[worker.node, gpu] for gpu in worker.gpus)} for worker in workers
    }


def _needs_of_nodes(plan: Plan, claims: Mapping[str, Mapping[str, float]]) -> list[dict[str, float]]:
    needs: list[dict[str, float]] = [{"CPU": 0.0, "GPU": 0.0} for _ in range(plan.hardware.nodes)]
    for worker in (*list_workers(plan, Role.ROLLOUT), *list_workers(plan, Role.LEARNER)):
        for name, amount in claims[worker.id].items():
            needs[worker.node][name] += amount
    return [{name: round(amount, 3) for name, amount in need.items()} for need in needs]


def choose_nodes(
    alive: Sequence[Node], needs: Sequence[Mapping[str, float]], before: Sequence[Node] = ()
) -> list[Node] | None:
    """Choose a machine that offers enough for each need, in order; None where one is missing.

    Machines chosen before stay while they are alive; the needs of lost ones move to a machine of their own, or join
    another with room for both."""
    chosen = {at: node for at, node in enumerate(before) if node.id in {each.id for each in alive}}
    for at, need in enumerate(needs):
        if at in chosen:
            continue
        taken = {node.id for node in chosen.values()}
        free = [node for node in alive if node.id not in taken and _has_room(node, [need])]
        shared = [
            node
            for node in (alive if before else ())
            if _has_room(node, [need, *(needs[other] for other, each in chosen.items() if each.id == node.id)])
        ]
        if not (free or shared):
            return None
        chosen[at] = (free or shared)[0]
    return [chosen[at] for at in range(len(needs))]


def _has_room(node: Node, needs: Sequence[Mapping[str, float]]) -> bool:
    return all(node.offers.get(name, 0.0) >= sum(need[name] for need in needs) for name in needs[0])


def _living_nodes() -> list[Node]:
    """The driver's own machine first, the others by address."""
    import ray

    list_nodes: Any = ray.nodes
    own = ray.get_runtime_context().get_node_id()
    nodes = [
        Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"]) for each in list_nodes() if each["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.id != own, ip_address(node.address).packed, node.id))


def explain_shortage(needs: Sequence[Mapping[str, float]], nodes: Iterable[Node], address: str) -> str:
    """Say what is missing on which node, and how to add one."""
    most = {name: max(need[name] for need in needs) for name in ("CPU", "GPU")}
    offers = [
        f"node {node.address} offers " + " and ".join(_compare(node, name, most[name]) for name in most if most[name])
        for node in nodes
    ]
    number = f"{len(needs)} node{'s' * (len(needs) > 1)} with {_describe(most)}{' each' * (len(needs) > 1)}"
    if address == _LOCAL:
        return (
            f"the plan needs {number}, and without 'hardware.ray_address' there is this machine alone: run "
            "'ray start --head --port=6379' here and 'ray start --address=HOST:6379' on the others, and set "
            "'hardware.ray_address: auto'"
        )
    return (
        f"the plan needs {number}, and the Ray cluster at '{address}' lacks room: {'; '.join(offers)}; run "
        "'ray start --address=HOST:6379' on another machine, or change 'hardware'"
    )


def _compare(node: Node, name: str, needed: float) -> str:
    return f"{min(node.offers.get(name, 0.0), needed):g} of {needed:g} {name}{'s' * (needed != 1)}"


def _describe(claim: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}{'s' * (amount != 1)}" for name, amount in claim.items() if amount)


def actor_variables(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """What the engines read when their process starts, as set for engines in this process."""
    hardware = plan.hardware
    wanted = missing_variables({}, threads=hardware.threads or 1, cpu=hardware.gpus_per_node == 0)
    # the plan decides which GPUs a worker sees, not Ray's own choice
    pinned = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"} if hardware.gpus_per_node else {}
    return {name: environ.get(name, value) for name, value in wanted.items()} | pinned


def named_variables(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of our variables that the plan names, and no others: they leave this process."""
    return {name: environ[name] for name in re.findall(r"\$\{env:(\w+)", dump_json(plan)) if name in environ}


# --- joining -------------------------------------------------------------------------------------------------------

_LOCAL = "local"


async def join_cluster(plan: Plan, reach: EnvConnector, stack: ExitStack) -> Cluster:
    """Join the cluster that the recipe or `RAY_ADDRESS` names, else start Ray on this machine; it ends with `stack`."""
    address = plan.hardware.ray_address or reach.environ.get("RAY_ADDRESS") or _LOCAL
    cluster = Cluster(plan, reach.environ, address)
    if address == _LOCAL and plan.hardware.nodes > 1:
        raise RunError(f"start: {explain_shortage(_needs_of_nodes(plan, resource_claims(plan)), (), address)}")
    _join(plan, address, reach, stack)
    watch_raylet(_raylet_socket(), cluster.end, stack)
    await cluster.find_nodes()
    return cluster


def _join(plan: Plan, address: str, reach: EnvConnector, stack: ExitStack) -> None:
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    os.environ.update(_QUIET)
    if address == _LOCAL:
        settings |= _own_ray(plan, reach.logs, stack)
    try:
        import ray
    except ImportError as error:
        raise RunError("start: 'hardware.launcher: ray' needs Ray: pip install 'agym-dsl[ray]'") from error
    stack.callback(ray.shutdown)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RunError(f"start: Ray at '{address}': {str(error).strip().splitlines()[0]}") from error
    finally:
        # Ray handles the signal itself, and would end the run without a save
        signal.signal(signal.SIGTERM, handler)


def _raylet_socket() -> str:
    """Where the raylet of this machine listens, for which Ray has no public API."""
    from ray._private import worker

    node: Any = worker.global_worker.node
    return str(node.raylet_socket_name)


def watch_raylet(path: str, on_end: Callable[[], None], stack: ExitStack) -> None:
    """Hold a connection to the raylet of this machine, which ends with it: Ray itself reports that after a minute or
    more, or silently ends the process as soon as this one hands it an object."""
    loop = asyncio.get_running_loop()
    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
    connection.connect(path)

    def end() -> None:
        loop.remove_reader(connection)
        on_end()

    loop.add_reader(connection, end)
    stack.callback(loop.remove_reader, connection)


# what happens to an actor is reported once, by us
_QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_ALONE = {
    # what Ray itself does on systems where it would have to ask for open ports: it listens on the loopback alone
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # processes made in advance lack the variables of our actors, for which others are then started
    "RAY_prestart_worker_first_driver": "0",
    # our actors are the machine's main work, and run at this process's priority; Ray's default is 15
    "RAY_worker_niceness": "0",
    # records of each call, of Ray's event loops and of its processes, which are not used
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "RAY_enable_metrics_collection": "0",
}


def _own_ray(plan: Plan, logs: Path, stack: ExitStack) -> dict[str, Any]:
    """The settings of a Ray of our own: no dashboard, no open port, nothing outside the run's folder."""
    os.environ.update(_ALONE)
    # else Ray leaves one in the home folder
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = logs / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    stack.callback(_tidy, folder)
    # the path of a socket is limited to about a hundred characters, that of a run's folder is not
    short = Path(stack.enter_context(TemporaryDirectory(prefix="agym-", dir="/tmp"))) / "ray"
    short.symlink_to(folder.resolve(), target_is_directory=True)
    (total,) = _needs_of_nodes(plan, resource_claims(plan))
    return {
        "num_cpus": int(total["CPU"]),
        "num_gpus": int(total["GPU"]),
        "object_store_memory": _store_bytes(plan),
        "include_dashboard": False,
        "_temp_dir": str(short),
    }


def _tidy(folder: Path) -> None:
    """Leave only logs, and nothing that would break a copy of the run's folder."""
    for each in folder.glob("session_*"):
        if each.is_symlink():
            each.unlink()
        else:
            shutil.rmtree(each / "sockets", ignore_errors=True)


def _store_bytes(plan: Plan) -> int | None:
    """Room for the weights, in full precision and with the output layer written out, and for episodes; where weights
    change in flight, for the last ones too. Ray's own choice where the model's sizes are not known."""
    parameters, versions = plan.budget.parameters, 2 if plan.hardware.in_flight else 1
    return None if parameters is None else 5 * parameters * versions + 2**29
