"""The jail of a terminal: a small program of its own, run by a bare interpreter, that imports nothing of agym.

`launch` leaves the host's namespaces, `mounts` builds the file system, `syscalls` closes what the kernel offers
besides, `supervisor` is the first process inside and runs commands; `frames` and `trees` are spoken on both sides.
"""

__all__: list[str] = []
