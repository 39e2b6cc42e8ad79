"""The file system of a jail: the system's programs, read only, and one scratch memory to write in.

`open_sources` is called while the process still has its user outside, `build_root` inside.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from .libc import call_kernel, mount, set_mount_flags, unmount

__all__ = ["build_root", "open_sources"]

_OPEN_TREE, _MOVE_MOUNT = 428, 429
_HERE, _RECURSIVE, _CLONE, _CLOEXEC, _FROM_EMPTY = -100, 0x8000, 1, 0o2000000, 4
_REC, _PRIVATE, _BIND, _DETACH = 0x4000, 1 << 18, 4096, 2
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_FIXED = 1 | _NOSUID | _NODEV
"""Read only, and no special rights by what lies there."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_BASE = "/tmp"
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def open_sources(config: Mapping[str, Any]) -> dict[str, int]:
    """Detached copies of all that is shown inside, by where it is shown."""
    mount("none", "/", None, _REC | _PRIVATE)
    devices = {f"/dev/{name}": f"dev/{name}" for name in _DEVICES}
    shown = {**config["binds"], **devices}
    copies = {inside: _copy_mount(outside) for outside, inside in shown.items()}
    for inside, fd in copies.items():
        set_mount_flags(fd, 1 | _NOSUID | _NOEXEC if inside.startswith("dev/") else _FIXED)
    return copies


def _copy_mount(path: str) -> int:
    flags = ctypes.c_uint(_CLONE | _CLOEXEC | _RECURSIVE)
    return call_kernel(f"copy the mount of {path}", _OPEN_TREE, ctypes.c_int(_HERE), path.encode(), flags)


def build_root(config: Mapping[str, Any], sources: Mapping[str, int]) -> None:
    """Build the new root and move into it; what is outside is then gone."""
    mount("root", _BASE, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=512,mode=755")
    os.chdir(_BASE)
    for folder in ("dev", "etc", "proc", *config["scratch"]):
        os.mkdir(folder)
    for inside, fd in sources.items():
        _attach(inside, fd)
    _write_files(config["files"])
    for name, target in {**config["links"], **{f"dev/{name}": target for name, target in _LINKS.items()}}.items():
        os.symlink(target, name)
    # other processes are hidden, and so is everything of the kernel but one's own processes
    mount("proc", "proc", "proc", _NOSUID | _NODEV | _NOEXEC, "subset=pid")
    set_mount_flags("proc", 1)
    _mount_scratch(config["scratch"], config["scratch_bytes"], config["scratch_files"])
    _enter()


def _attach(inside: str, fd: int) -> None:
    os.makedirs(os.path.dirname(inside) or ".", exist_ok=True)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(inside, exist_ok=True)
    else:
        os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o644))
    target = (ctypes.c_int(_HERE), inside.encode(), ctypes.c_uint(_FROM_EMPTY))
    call_kernel(f"show {inside}", _MOVE_MOUNT, ctypes.c_int(fd), b"", *target)
    os.close(fd)


def _write_files(files: Mapping[str, str]) -> None:
    for inside, text in files.items():
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        with open(inside, "x", encoding="utf-8") as file:
            file.write(text)


def _mount_scratch(folders: Sequence[str], size: int, files: int) -> None:
    """Mount one memory for all folders that can be written to, so that one limit holds for them together."""
    os.mkdir("scratch")
    mount("scratch", "scratch", "tmpfs", _NOSUID | _NODEV, f"size={size},nr_inodes={files},mode=755")
    for folder in folders:
        os.mkdir(f"scratch/{folder}")
        mount(f"scratch/{folder}", folder, None, _BIND)
    unmount("scratch", _DETACH)
    os.rmdir("scratch")


def _enter() -> None:
    call_kernel("change the root folder", _PIVOT_ROOT[os.uname().machine], b".", b".")
    unmount(".", _DETACH)
    os.chdir("/")
    # not what is mounted below it: the scratch memory stays writable
    set_mount_flags("/", _FIXED, below=False)
