"""A Ray cluster of two nodes on this machine, each in a network namespace of its own: what one sends to the other goes
over a link that can be cut. Needs Linux and the right to make namespaces.

Shared: `two_nodes()` for tests and benches. As a script it runs a recipe there:

    python bench/two_nodes.py FOLDER/recipe.yaml [--set KEY=VALUE ...]
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

__all__ = ["NoNamespaces", "TwoNodes", "two_nodes"]

_NETWORK = "10.231.77"
_WIRE = "wire"
_PORT = 6379
_JOIN_S = 120.0


class NoNamespaces(Exception):
    """This machine does not allow network namespaces."""


class TwoNodes:
    """Two namespaces with a link between them, and Ray in both."""

    def __init__(self, names: Sequence[str], environ: Mapping[str, str], cpus: int, folder: Path) -> None:
        self.names, self._environ = names, environ
        self._cpus, self._folder = cpus, folder
        self._has_head = False

    @property
    def address(self) -> str:
        return f"{_NETWORK}.1:{_PORT}"

    @property
    def settings(self) -> list[str]:
        """What makes a recipe run here."""
        return ["--set", f"hardware.ray_address={self.address}", "--set", "hardware.nodes=2"]

    def start(self, node: int, *command: str, **options: object) -> subprocess.Popen[str]:
        """Start a command on a node, in a session of its own."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[node], *command],
            **{"env": {**self._environ}, "text": True, "start_new_session": True, **options},  # type: ignore[call-overload]
        )

    def start_ray(self, node: int) -> None:
        """Start Ray on a node, also in the place of one that was killed; the first start makes the head."""
        head = ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        own = [f"--node-ip-address={_NETWORK}.{node + 1}", f"--num-cpus={self._cpus}"]
        rest = own + ([f"--address={self.address}"] if self._has_head else head)
        ray = str(Path(sys.executable).with_name("ray"))
        log = self._folder / f"node-{node}.log"
        with log.open("w") as file:
            words = ["start", *rest, "--object-store-memory=300000000", "--disable-usage-stats"]
            started = self.start(node, ray, *words, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = started.wait(_JOIN_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise RuntimeError(f"'ray start' on node {node} ended with {code}: {log.read_text()[-2000:]}")
        self._has_head = True

    def list_pids(self, node: int) -> list[int]:
        return [int(pid) for pid in _ip("netns", "pids", self.names[node]).split()]

    def find(self, node: int, text: str) -> list[int]:
        """The processes on a node whose command has a text."""
        return [pid for pid in self.list_pids(node) if text in _command(pid)]

    def cut(self) -> None:
        """Lose all that the nodes send each other, until `join`."""
        _ip("-n", self.names[1], "link", "set", _WIRE, "down")

    def join(self) -> None:
        _ip("-n", self.names[1], "link", "set", _WIRE, "up")


@contextmanager
def two_nodes(cpus: int = 4, environ: Mapping[str, str] = MappingProxyType({})) -> Iterator[TwoNodes]:
    """Each node has this many CPUs in Ray's books; `environ` goes to Ray."""
    with ExitStack() as stack:
        names = [f"agym-{secrets.token_hex(3)}-{node}" for node in range(2)]
        folder = stack.enter_context(TemporaryDirectory(prefix="agym-", dir="/tmp"))
        whole = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            **environ,
        }
        nodes = TwoNodes(names, whole, cpus, Path(folder))
        _link(nodes, stack)
        stack.callback(_kill_all, nodes)
        for node in range(2):
            nodes.start_ray(node)
        yield nodes


def _link(nodes: TwoNodes, stack: ExitStack) -> None:
    for name in nodes.names:
        try:
            _ip("netns", "add", name)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNamespaces(f"network namespaces are not allowed here: {error}") from error
        stack.callback(_ip, "netns", "del", name)
    _ip("-n", nodes.names[0], "link", "add", _WIRE, "type", "veth", "peer", "name", _WIRE, "netns", nodes.names[1])
    for node, name in enumerate(nodes.names):
        _ip("-n", name, "addr", "add", f"{_NETWORK}.{node + 1}/24", "dev", _WIRE)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", _WIRE, "up")


def _kill_all(nodes: TwoNodes) -> None:
    """End all processes in the namespaces; none of them outlives the cluster."""
    deadline = time.monotonic() + 30
    while pids := [pid for node in range(2) for pid in nodes.list_pids(node)]:
        for pid in pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {pids} do not end")
        time.sleep(0.1)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


if __name__ == "__main__":
    recipe = Path(sys.argv[1]).resolve()
    with two_nodes() as cluster:
        run = cluster.start(
            0, sys.executable, "-m", "agym", "run", recipe.name, *cluster.settings, *sys.argv[2:], cwd=recipe.parent
        )
        sys.exit(run.wait())
