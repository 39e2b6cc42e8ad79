"""The process group that the engines of a process share.

The engine that starts first joins or makes it; made here it needs neither ports, nor environment variables, nor the
file that vLLM would leave behind.
"""

from __future__ import annotations

import torch.distributed
from torch._C._distributed_c10d import HashStore

__all__ = ["join_process_group"]


def join_process_group() -> None:
    """Make a group of one, if no launcher has made one."""
    if not torch.distributed.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
