"""A running Ray cluster -> Survey: what every node has, and how the nodes reach each other. Every wait has a deadline.

The probe is sent to the nodes as code, so that it also runs where agym is missing or of another version: in this file
it uses nothing but the standard library, numpy and Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .survey import Gpu, Link, Node, Survey

__all__ = ["ClusterError", "survey_cluster"]

_CONNECT_S = 10.0
_ANSWER_S = 60.0
"""For a node to start a process and answer."""
_TRANSFER_BYTES = 64 * 2**20


class ClusterError(Exception):
    """Why there is no cluster to survey, and what to do."""


class Probe:
    """A process on one node. Its methods return plain data."""

    def facts(self, packages: Sequence[str]) -> dict[str, Any]:
        import os
        import platform
        import shutil
        import socket
        from importlib.metadata import PackageNotFoundError, version

        def installed(package: str) -> str | None:
            try:
                return version(package)
            except PackageNotFoundError:
                return None

        def resolve(name: str) -> str | None:
            try:
                return socket.gethostbyname(name)
            except OSError:
                return None

        with open("/proc/meminfo") as file:
            memory = dict(line.split(":", 1) for line in file)
        shared = shutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None
        host = socket.gethostname()
        return {
            "host": host,
            "resolves_to": resolve(host),
            "versions": {"python": platform.python_version(), **{name: installed(name) for name in packages}},
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": int(memory["MemTotal"].split()[0]) * 1024,
            "free_memory_bytes": int(memory["MemAvailable"].split()[0]) * 1024,
            "shm_bytes": shared.total if shared else 0,
            "gpus": self._gpus(),
            "is_token_on": os.environ.get("RAY_AUTH_MODE", "").lower() == "token",
        }

    def _gpus(self) -> list[tuple[Any, ...]]:
        import shutil
        import subprocess

        query = "--query-gpu=name,driver_version,memory.total,memory.free"
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return []
        try:
            said = subprocess.run(
                [tool, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return []
        rows = (line.rsplit(",", 3) for line in said.splitlines())
        # a part of a GPU (MIG) has no figures of its own
        return [
            (name.strip(), driver.strip(), *(int(each) if each.strip().isdigit() else 0 for each in (total, free)))
            for name, driver, total, free in rows
        ]

    def clock(self) -> float:
        import time

        return time.time()

    def write(self, path: str, text: str) -> str | None:
        """Write a file; what went wrong, if anything did."""
        import os

        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return None

    def read(self, path: str, text: str) -> str | None:
        """Compare a file with what was written elsewhere; what went wrong, if anything did."""
        try:
            with open(path) as file:
                return None if file.read() == text else "another text"
        except OSError as error:
            return error.strerror or str(error)

    def remove(self, path: str) -> None:
        import os

        os.unlink(path)

    def listen(self) -> int:
        import socket

        self._listener = socket.create_server(("", 0))
        return int(self._listener.getsockname()[1])

    def connect(self, address: str, port: int) -> str | None:
        """Open a connection to another node; what went wrong, if anything did."""
        import socket

        try:
            socket.create_connection((address, port), timeout=10).close()
        except OSError as error:
            return error.strerror or str(error)
        return None

    def make(self, size: int) -> Any:
        import numpy

        return numpy.ones(size, dtype=numpy.uint8)

    def take(self, boxed: list[Any]) -> float:
        """Fetch an object that another node holds; the seconds it took."""
        import time

        import ray

        begun = time.perf_counter()
        ray.get(boxed[0])
        return time.perf_counter() - begun


def survey_cluster(address: str, folder: Path, packages: Sequence[str], say: Callable[[str], None]) -> Survey:
    """Look at every node of the cluster at `address`, and for a shared folder at `folder`."""
    with _joined(address):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
        alive = {node["NodeID"]: node for node in nodes() if node["Alive"]}
        say(f"looking at {len(alive)} nodes")
        actor: Any = ray.remote(Probe)
        probes = {
            node: actor.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote()
            for node in alive
        }
        try:
            return _ask(alive, probes, folder, packages, say)
        finally:
            for each in probes.values():
                ray.kill(each)


@contextmanager
def _joined(address: str) -> Iterator[None]:
    try:
        import ray
    except ImportError as error:
        raise ClusterError("it needs Ray: pip install 'agym-dsl[ray]'") from error
    import sys

    cloudpickle: Any = ray.cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    _refuse_silent(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        # the first line is often a mere status
        reason = " ".join(str(error).split())[:300]
        raise ClusterError(f"there is no Ray cluster at '{address}': {reason}; docs/cluster.md starts one") from error
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_silent(address: str) -> None:
    """Raise where Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise ClusterError(
            f"nothing answers at {address} ({reason.lower()}): is Ray started there, and the port open?"
        ) from error


def _ask(
    alive: Mapping[str, Mapping[str, Any]],
    probes: Mapping[str, Any],
    folder: Path,
    packages: Sequence[str],
    say: Callable[[str], None],
) -> Survey:
    facts = _each(probes, lambda probe: probe.facts.remote(packages))
    answered = {node: probes[node] for node in alive if node in facts}
    say("comparing clocks, the shared folder and the network")
    skews = _skews(answered)
    unreadable = _share(answered, folder)
    links = list(_links(answered, {node: alive[node]["NodeManagerAddress"] for node in answered}, facts))
    return Survey(
        silent=tuple(alive[node]["NodeManagerAddress"] for node in alive if node not in facts),
        folder=str(folder),
        nodes=tuple(
            _node(alive[node], facts[node], skews.get(node), unreadable.get(node, "no answer")) for node in answered
        ),
        links=tuple(links),
    )


def _node(known: Mapping[str, Any], facts: Mapping[str, Any], skew: float | None, unreadable: str | None) -> Node:
    resources = known["Resources"]
    return Node(
        **{**facts, "gpus": tuple(Gpu(*each) for each in facts["gpus"])},
        address=known["NodeManagerAddress"],
        ray_cpus=int(resources.get("CPU", 0)),
        ray_gpus=int(resources.get("GPU", 0)),
        object_store_bytes=int(resources.get("object_store_memory", 0)),
        clock_skew_s=skew,
        folder_problem=unreadable,
    )


def _each(probes: Mapping[str, Any], ask: Callable[[Any], Any]) -> dict[str, Any]:
    """The answers of those that answer in time."""
    import ray

    asked = {ask(probe): node for node, probe in probes.items()}
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    found = {}
    for each in ready:
        try:
            found[asked[each]] = ray.get(each, timeout=_ANSWER_S)
        except ray.exceptions.RayError:
            continue
    return found


def _one(answer: Any) -> Any:
    """An answer, or None where none came in time."""
    import ray

    try:
        return ray.get(answer, timeout=_ANSWER_S)
    except ray.exceptions.RayError:
        return None


def _skews(probes: Mapping[str, Any]) -> dict[str, float]:
    """How far each clock is ahead of this one, as far as half a round trip lets that be known."""
    found = {}
    for node, probe in probes.items():
        asked = time.time()
        there = _one(probe.clock.remote())
        if there is not None:
            answered = time.time()
            ahead = there - (asked + answered) / 2
            found[node] = 0.0 if abs(ahead) < (answered - asked) / 2 else ahead
    return found


def _share(probes: Mapping[str, Any], folder: Path) -> dict[str, str | None]:
    """What goes wrong where the first node writes a file in the folder and each node reads it."""
    if not probes:
        return {}
    path, text = str(folder / f".agym-doctor-{os.getpid()}"), os.urandom(16).hex()
    writer = next(iter(probes))
    failed = _one(probes[writer].write.remote(path, text))
    if failed:
        return {node: f"cannot be written: {failed.lower()}" if node == writer else None for node in probes}
    read = _each(probes, lambda probe: probe.read.remote(path, text))
    _one(probes[writer].remove.remote(path))
    return read


def _links(
    probes: Mapping[str, Any], addresses: Mapping[str, str], facts: Mapping[str, Mapping[str, Any]]
) -> Iterator[Link]:
    """Each node to the next, and the last to the first."""
    names = list(probes)
    pairs = zip(names, names[1:] + names[:1], strict=True) if len(names) > 1 else ()
    for source, target in pairs:
        port = _one(probes[source].listen.remote())
        problem = "no answer" if port is None else _one(probes[target].connect.remote(addresses[source], port))
        yield Link(
            source=addresses[source],
            target=addresses[target],
            problem=problem,
            bytes_per_s=None if problem else _bandwidth(probes[source], probes[target]),
        )


def _bandwidth(source: Any, target: Any) -> float | None:
    """Of the second of two transfers: the first also opens the connection."""
    import ray

    seconds = None
    for _ in range(2):
        made = source.make.remote(_TRANSFER_BYTES)
        ray.wait([made], timeout=_ANSWER_S, fetch_local=False)
        seconds = _one(target.take.remote([made]))
    return _TRANSFER_BYTES / seconds if seconds else None
