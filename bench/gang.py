"""A gang of processes that stand for the ranks of a learner: started once, put into groups of any size.

They are forked from a process that holds the imported engines, and fork for each piece of work.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

from agym.runtime.backends.process_group import join_ranks, open_store

__all__ = ["Gang"]

_ADDRESS = "127.0.0.1"
_IMPORTED = (
    "deepspeed",
    "transformers.models.qwen3.modeling_qwen3",
    "agym.runtime.backends.critic",
    "agym.runtime.backends.deepspeed",
    "agym.runtime.workers.learner_worker",
    "ranks",
)


class Gang:
    """`with Gang(4) as gang: gang.run(2, work, argument)` calls `work(rank, ranks, argument)` on two ranks."""

    def __init__(self, size: int, timeout_s: float = 60.0) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(list(_IMPORTED))
        self._timeout_s = timeout_s
        self._members = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))

    def run(self, ranks: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what each of the first `ranks` processes made of it, in a group of their own."""
        store = open_store(_ADDRESS, self._timeout_s)
        members = self._members[:ranks]
        for rank, (_, connection) in enumerate(members):
            connection.send((rank, ranks, store.port, self._timeout_s, work, arguments))
        answers = [connection.recv() for _, connection in members]
        if problems := [f"rank {rank} of {ranks}: {problem}" for rank, (_, problem) in enumerate(answers) if problem]:
            raise AssertionError("\n".join(problems))
        return [result for result, _ in answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._members:
            connection.close()
            process.join(10)
            process.kill()


def _serve(orders: Connection) -> None:
    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        # an engine takes its process to be in one group all its life
        if not (child := os.fork()):
            orders.send(_join_and_work(*order))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            orders.send((None, f"ended with status {status}"))


def _join_and_work(
    rank: int, ranks: int, port: int, timeout_s: float, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, str]:
    import torch

    torch.set_num_threads(1)
    try:
        join_ranks(rank, ranks, store=(_ADDRESS, port), address=_ADDRESS, timeout_s=timeout_s)
        return work(rank, ranks, *arguments), ""
    except Exception:
        return None, traceback.format_exc()
