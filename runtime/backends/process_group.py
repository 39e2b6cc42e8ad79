"""The process group that the engines of a process share.

Enters: nothing, or a group that a launcher has made. Leaves: a group. Whichever engine starts first joins it; made here
it needs neither ports, nor variables of the environment, nor the file that vLLM would leave behind.
"""

from __future__ import annotations

import torch.distributed
from torch._C._distributed_c10d import HashStore

__all__ = ["join_process_group"]


def join_process_group() -> None:
    """A group of one, if no launcher has made one."""
    if not torch.distributed.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
