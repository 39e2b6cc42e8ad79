"""The process group that the engines of a process share.

A learner of one rank makes a group of its own, which needs neither ports, nor environment variables, nor the file that
vLLM would leave behind. For several ranks a launcher makes it: one of them opens the store, all join.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed
from torch import Tensor
from torch._C._distributed_c10d import HashStore, TCPStore
from torch.distributed import DistError

from ..errors import RunError

__all__ = [
    "extend_timeout",
    "join_process_group",
    "join_ranks",
    "max_over_ranks",
    "open_store",
    "sum_over_ranks",
]


def join_process_group() -> None:
    """Make a group of one rank, unless a launcher has made a group."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(_backend(), store=HashStore(), rank=0, world_size=1)


def open_store(address: str, timeout_s: float) -> TCPStore:
    """Open the store at which ranks find each other, on a free port (`.port`) of this machine.

    The port is bound before its number is shared, so that no other process can take it. The caller keeps the store
    while the ranks work.
    """
    return TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def join_ranks(
    rank: int, ranks: int, *, store: tuple[str, int], address: str, local_rank: int = 0, timeout_s: float
) -> None:
    """Join the group of a learner's ranks, before any engine starts in this process.

    `store` is where the first rank opened it, `address` this node's own, `local_rank` the GPU among those that the
    process sees. A collective in which a rank is missing ends with an error after `timeout_s`.
    """
    os.environ.update({"LOCAL_RANK": str(local_rank), **_interfaces(address)})
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    timeout = timedelta(seconds=timeout_s)
    try:
        meeting = TCPStore(*store, is_master=False, timeout=timeout)
        torch.distributed.init_process_group(_backend(), store=meeting, rank=rank, world_size=ranks, timeout=timeout)
    except (DistError, RuntimeError) as error:
        raise RunError(
            f"start: rank {rank} of {ranks} did not find the others at {store[0]}:{store[1]} within {timeout_s:g} s: "
            f"{str(error).splitlines()[0]}"
        ) from error


def extend_timeout() -> None:
    """Give groups that an engine made for itself the deadline of the whole group; theirs is half an hour."""
    from torch.distributed.distributed_c10d import _set_pg_timeout, _world

    timeout = torch.distributed.group.WORLD._get_backend(_device()).options._timeout  # type: ignore[union-attr]
    for group in _world.pg_map:
        _set_pg_timeout(timeout, group)


def _backend() -> str:
    return "nccl" if torch.cuda.is_available() else "gloo"


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _interfaces(address: str) -> dict[str, str]:
    """Name the interface of an address: a host's own name often resolves to loopback, which others cannot reach."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if address in (each.address for each in addresses):
            return {key: os.environ.get(key, name) for key in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    raise RunError(f"start: this node has no network interface with the address {address}")


def sum_over_ranks(values: Tensor) -> Tensor:
    if torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(values)
    return values


def max_over_ranks(values: Tensor) -> Tensor:
    if torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
    return values
