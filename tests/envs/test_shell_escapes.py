"""Ways out of the shell's jail, tried for real: none may lead anywhere."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from agym.envs.shell.jail.syscalls import MACHINES
from agym.envs.shell.terminal import ENVIRON, Limits, Terminal, explain_unavailable

pytestmark = pytest.mark.skipif(
    explain_unavailable() is not None, reason=f"no terminal can be started here: {explain_unavailable()}"
)

OUT = "ESCAPED"
"""What an attempt prints once it has got where it should not; bash shows the text of what it sees die."""
SAY = "print('ESC' + 'APED')"


def python(program: str) -> str:
    return f"python3 - <<'END'\nimport ctypes, os, socket\nlibc = ctypes.CDLL(None, use_errno=True)\n{program}\nEND"


def works(call: str) -> str:
    """Whether a function of the C library does what it is asked for."""
    return python(f"if libc.{call} >= 0: {SAY}\nprint(os.strerror(ctypes.get_errno()))")


def calls(name: str, *arguments: object) -> str:
    """The same of a system call that may have no function."""
    return works(f"syscall({', '.join(map(str, (f'@NR {name}@', *arguments)))})")


def if_true(command: str) -> str:
    return f"if {command}; then echo ESC''APED; fi"


def connects(family: str, kind: str, address: str) -> str:
    return python(f"s = socket.socket(socket.{family}, socket.{kind})\ns.connect({address})\n{SAY}")


FILES = {
    "a file outside": if_true("cat @SECRET@"),
    "a file outside, upwards": if_true("cat ../../../../../../@SECRET@"),
    "a file outside, by a link": if_true("ln -s @SECRET@ link && cat link"),
    "a file outside, by the first process": if_true("cat /proc/1/root/@SECRET@"),
    "a file outside, by its folder": if_true("ls /proc/1/cwd/"),
    "a file outside, by an open file": if_true("ls /proc/1/fd"),
    "the root's home": if_true("test -e /root"),
    "homes": if_true("test -e /home"),
    "the system's settings": if_true("test -e /etc/shadow || test -e /etc/fstab || test -e /etc/hostname"),
    "the machine's variables": if_true("test -e /sys || test -e /run || test -e /var || test -e /mnt"),
    "a system's program, new": if_true("touch /usr/bin/evil"),
    "a system's program, changed": if_true("echo evil >> /usr/bin/env"),
    "a system's program, removed": if_true("rm -f /usr/bin/env"),
    "a system's program, renamed": if_true("mv /usr/bin/env /repo/"),
    "a system's program, by its mode": if_true("chmod 777 /usr/bin/env"),
    "a system's program, by a hard link": if_true("ln /usr/bin/env /repo/env"),
    "the interpreter below the jail": if_true("for f in /opt/python/bin/python3* /usr/bin/python3*; do : > $f; done"),
    "a running program": if_true("echo > /proc/self/exe"),
    "the users": if_true("echo evil::0:0::/:/bin/sh >> /etc/passwd"),
    "the root folder": if_true("touch /evil"),
    "the folder of devices": if_true("touch /dev/evil"),
    "a library for all programs": if_true("echo /repo/evil.so > /etc/ld.so.preload"),
    "a folder by its number": python(
        f"d = os.open('/', os.O_RDONLY)\nfor _ in range(20): d = os.open('..', os.O_RDONLY, dir_fd=d)\n"
        f"if 'root' in os.listdir(d): {SAY}"
    ),
    "open files of the parent": python(
        # 8 leads to the jail's first process, for what the next command takes over
        f"for fd in {{*range(3, 256)}} - {{8}}:\n    try: os.fstat(fd); {SAY}\n    except OSError: pass"
    ),
}
MOUNTS = {
    "mount a file system": works("mount(b'x', b'/repo', b'tmpfs', 0, None)"),
    "mount a folder elsewhere": works("mount(b'/usr', b'/repo', None, 4096, None)"),
    "mount the system to write": works("mount(b'none', b'/usr', None, 32 | 4096, None)"),
    "mount the kernel's files": works("mount(b'x', b'/repo', b'sysfs', 0, None)"),
    "mount all processes": works("mount(b'x', b'/repo', b'proc', 0, None)"),
    "mount groups of control": works("mount(b'x', b'/repo', b'cgroup2', 0, None)"),
    "mount a disk": if_true("mount /dev/vda /repo || mount /dev/sda1 /repo"),
    "unmount": works("umount2(b'/proc', 2)"),
    "a mount by its number": calls("open_tree", -100, "b'/'", 1),
    "a mount made anew": calls("fsopen", "b'tmpfs'", 0),
    "a mount that may be written": calls("mount_setattr", -100, "b'/usr'", 0, "(ctypes.c_uint64 * 4)(0, 1)", 32),
    "another root folder": works("chroot(b'/repo')"),
    "another root folder, by exchange": calls("pivot_root", "b'/repo'", "b'/repo'"),
    "a file by its handle": calls("name_to_handle_at", -100, "b'/'", "bytes(200)", "bytes(8)", 0),
    "a file opened by its handle": calls("open_by_handle_at", 3, "bytes(200)", 0),
}
DEVICES = {
    "a disk": python(f"os.mknod('disk', 0o60666, os.makedev(8, 0))\nopen('disk', 'rb').read(1); {SAY}"),
    "the memory": python(f"os.mknod('mem', 0o20666, os.makedev(1, 1))\nopen('mem', 'rb').read(1); {SAY}"),
    "devices that were there": if_true("ls /dev | grep -vxE 'fd|full|null|random|std(err|in|out)|urandom|zero'"),
    "a terminal outside": if_true("echo > /dev/tty"),
    "ports": works("iopl(3)"),
    "one port": works("ioperm(0x80, 1, 1)"),
}
RIGHTS = {
    "become root": works("setuid(0)"),
    "become root's group": works("setgid(0)"),
    "become somebody else": works("setresuid(65534, 65534, 65534)"),
    "more groups": works("setgroups(1, (ctypes.c_int * 1)(0))"),
    "groups from outside": python(f"if set(os.getgroups()) - {{1000}}: {SAY}") if os.geteuid() == 0 else "true",
    "su": if_true("echo | su -c true"),
    "sudo": if_true("sudo -n true"),
    "a program with root's rights": if_true("test \"$(cp /bin/bash b && chmod 6755 b && ./b -p -c 'id -u')\" = 0"),
    "a program given to root": if_true("cp /bin/bash c && chown 0:0 c"),
    "rights taken": python(
        "head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)\n"
        f"if libc.capset(head, data) == 0: {SAY}"
    ),
    "rights by a file": if_true("cp /bin/bash d && setcap all+ep d"),
    "new rights allowed again": works("prctl(38, 0, 0, 0, 0)"),
    "another filter of calls": python(
        "libc.prctl(22, 0, 0, 0, 0)\nfrom pathlib import Path\n"
        f"if 'Seccomp:\\t2' not in Path('/proc/self/status').read_text(): {SAY}"
    ),
    "a user namespace": works("unshare(0x10000000)"),
    "a user namespace, by a program": if_true("unshare -Ur true"),
    "a user namespace, by a clone": python(
        f"pid = libc.syscall(@NR clone@, 0x10000000 | 17, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: {SAY}"
    ),
    "a user namespace, by a newer clone": python(
        "data = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\n"
        f"pid = libc.syscall(@NR clone3@, data, 88)\nif pid == 0: os._exit(0)\nif pid > 0: {SAY}"
    ),
    "a network namespace": works("unshare(0x40000000)"),
    "another's namespace": python(f"if libc.setns(os.open('/proc/1/ns/net', os.O_RDONLY), 0) == 0: {SAY}"),
    "another's namespace, by a program": if_true("nsenter -t 1 -a true"),
    "higher limits": if_true("ulimit -Hn 100000 || ulimit -Hu 100000 || ulimit -v unlimited"),
    "limits of the first process": calls("prlimit64", 1, 7, "(ctypes.c_uint64 * 2)(8, 8)", 0),
    "calls of 32 bits": python(
        "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
        "m.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3] if os.uname().machine == 'x86_64' else []) or b'')\n"
        "if os.uname().machine == 'x86_64':\n"
        f"    ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))(); {SAY}"
    ),
    "calls of a second table": works("syscall(0x40000000 | 39)"),
}
PROCESSES = {
    "a process outside": if_true("kill -0 @PID@"),
    "a process outside, ended": if_true("kill -9 @PID@"),
    "a process outside, held": python(f"os.pidfd_open(@PID@)\n{SAY}"),
    "a process outside, seen": if_true("test -e /proc/@PID@"),
    "variables of a process outside": if_true("cat /proc/@PID@/environ"),
    "variables of the first process": if_true("cat /proc/1/environ"),
    "memory of the first process": if_true("head -c 1 /proc/1/mem || cat /proc/1/maps"),
    "memory of the first process, by a call": calls("process_vm_readv", 1, "bytes(16)", 1, "bytes(16)", 1, 0),
    "more processes than ours": if_true("test $(ls -d /proc/[0-9]* | wc -l) -gt 6"),
    "trace the first process": works("ptrace(16, 1, 0, 0)"),
    "trace one's own": works("ptrace(0, 0, 0, 0)"),
    "an open file of the first process": calls("pidfd_getfd", "os.pidfd_open(1)", 0, 0),
    "end the first process": "kill -9 1; kill -TERM 1; kill -INT 1; kill -SEGV 1",
    "stop the first process": "kill -STOP 1",
    "end all processes": "kill -9 -1",
    "more of the processor": if_true("nice -n -5 true 2> err && ! test -s err"),
    "the first process's share": works("setpriority(0, 1, 19)"),
    "the first process's processors": works("sched_setaffinity(1, 8, (ctypes.c_uint64 * 1)(1))"),
    "a core file": if_true("bash -c 'kill -SEGV $$'; ls core*"),
    "memory without a name": works("memfd_create(b'x', 0)"),
    "memory that others share": works("shmget(1, 4096, 0o1777)"),
    "queues that others share": works("msgget(1, 0o1777)"),
    "locks that others share": works("semget(1, 1, 0o1777)"),
    "named queues": calls("mq_open", "b'evil'", 66, 0o777, 0),
    "variables from outside": if_true("env | grep -E '@VARIABLES@'"),
}
NETWORK = {
    "loopback": if_true("(echo > /dev/tcp/127.0.0.1/@PORT@)"),
    "loopback, by a program": connects("AF_INET", "SOCK_STREAM", "('127.0.0.1', @PORT@)"),
    "loopback, version 6": connects("AF_INET6", "SOCK_STREAM", "('::1', @PORT@)"),
    "datagrams": connects("AF_INET", "SOCK_DGRAM", "('127.0.0.1', 53)"),
    "raw packets": python(f"socket.socket(socket.AF_PACKET, socket.SOCK_RAW); {SAY}"),
    "the kernel's messages": python(f"socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); {SAY}"),
    "the machine below": connects("AF_VSOCK", "SOCK_STREAM", "(2, 1024)"),
    "an abstract socket": connects("AF_UNIX", "SOCK_STREAM", "'\\x00@ABSTRACT@'"),
    "a socket in a folder": connects("AF_UNIX", "SOCK_STREAM", "'@SOCKET@'"),
    "a name": if_true("getent hosts example.org"),
    "listen": python(f"socket.socket(socket.AF_INET).bind(('', 0)); {SAY}"),
}
KERNEL = {
    "name of core files": if_true("echo '|/repo/x' > /proc/sys/kernel/core_pattern"),
    "the keys that stop a machine": if_true("echo c > /proc/sysrq-trigger"),
    "the kernel's memory": if_true("head -c 1 /proc/kcore || cat /proc/kallsyms"),
    "the kernel's log": if_true("dmesg"),
    "groups of control": if_true("test -e /sys/fs/cgroup"),
    "the clock": works("settimeofday((ctypes.c_long * 2)(1, 0), None)"),
    "the clock, newer": works("clock_settime(0, (ctypes.c_long * 2)(1, 0))"),
    "the clock's speed": works("adjtimex((ctypes.c_long * 32)(1))"),
    "the host's name": works("sethostname(b'evil', 4)"),
    "the host's domain": works("setdomainname(b'evil', 4)"),
    "restart": works("reboot(0)"),
    "another kernel": calls("kexec_load", 0, 0, 0, 0),
    "a module": calls("init_module", "b''", 0, "b''"),
    "memory on disk": works("swapon(b'/repo', 0)"),
    "accounts of processes": works("acct(None)"),
    "quotas": works("quotactl(0x80000100, None, 0, None)"),
    "keys": calls("keyctl", 0, -3, 1),
    "a new key": calls("add_key", "b'user'", "b'x'", "b'x'", 1, -3),
    "a key asked for": calls("request_key", "b'user'", "b'x'", 0, -3),
    "programs in the kernel": calls("bpf", 0, "bytes(64)", 64),
    "the processor's counters": calls("perf_event_open", "bytes(128)", 0, -1, -1, 0),
    "faults of pages": calls("userfaultfd", 0),
    "rings of calls": calls("io_uring_setup", 4, "bytes(256)"),
    "watching all files": calls("fanotify_init", 0, 0),
}
ATTEMPTS: Mapping[str, str] = {**FILES, **MOUNTS, **DEVICES, **RIGHTS, **PROCESSES, **NETWORK, **KERNEL}
CONTROLS = (
    "a file outside",
    "a process outside",
    "a process outside, seen",
    "variables of a process outside",
    "loopback",
    "an abstract socket",
    "a socket in a folder",
    "variables from outside",
)
"""Attempts that succeed outside: what they look for is there."""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What there is to be reached: a file, a process, servers."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.txt").write_text("secret")
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"SECRET": "secret"})
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("")
        abstract.listen()
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(str(folder / "s"))
            named.listen()
            yield {
                "SECRET": str(folder / "secret.txt"),
                "PID": str(sleeper.pid),
                "PORT": str(tcp.getsockname()[1]),
                "ABSTRACT": abstract.getsockname()[1:].decode(),
                "SOCKET": str(folder / "s"),
                "VARIABLES": "|".join(f"^{name}=" for name in os.environ if name.isidentifier() and name not in OURS),
            }
    assert sleeper.poll() is None, "the process outside was ended"
    sleeper.communicate(b"\n")
    assert (folder / "secret.txt").read_text() == "secret"


OURS = {*ENVIRON, "PWD", "OLDPWD", "SHLVL", "_"}
"""Variables that a jail sets, and those that bash does."""


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(Limits())
    yield terminal
    terminal.close()


def fill_in(command: str, outside: Mapping[str, str]) -> str:
    numbers = MACHINES[os.uname().machine][1]
    command = re.sub(r"@NR (\w+)@", lambda found: str(numbers[found[1]]), command)
    return re.sub(r"@(\w+)@", lambda found: outside[found[1]], command)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_attempt_escapes(name: str, terminal: Terminal, outside: Mapping[str, str]) -> None:
    result = terminal.run(fill_in(ATTEMPTS[name], outside), fresh=True)
    assert OUT.encode() not in result.output, result.output.decode()
    assert result.ended == "exit", "the attempt was not played to its end"
    assert b"SyntaxError" not in result.output
    assert b"NameError" not in result.output
    assert terminal.run("echo here; hostname", fresh=True).output == b"here\nagym\n"


@pytest.mark.parametrize("name", CONTROLS)
def test_what_attempts_look_for_is_there(name: str, outside: Mapping[str, str]) -> None:
    done = subprocess.run(["bash", "-c", fill_in(ATTEMPTS[name], outside)], capture_output=True, check=False)
    assert OUT.encode() in done.stdout, done.stderr.decode()


def test_sixty_ways_at_least_are_tried() -> None:
    assert len(ATTEMPTS) >= 60
    assert len(set(ATTEMPTS.values())) == len(ATTEMPTS)


# --- limits --------------------------------------------------------------------------------------------------------

SMALL = Limits(
    memory_bytes=192 << 20,
    processes=24,
    disk_bytes=8 << 20,
    file_bytes=4 << 20,
    files=400,
    open_files=40,
)
FLOODS: Mapping[str, tuple[str, str]] = {
    "forks": ("bomb() { bomb | bomb & }; bomb; sleep 9", "time"),
    "forks that never wait": ("while :; do sleep 99 & done", "time"),
    "detached processes": ("for i in 1 2 3; do setsid sleep 99 & done; sleep 0.1", "exit"),
    "memory of one": ("python3 -c 'x = bytearray(1 << 30)'; true", "exit"),
    "memory of many": (
        "for i in 1 2 3 4 5 6; do python3 -c 'x = b\"x\" * (60 << 20); input()' < <(sleep 9) & done; sleep 9",
        "memory",
    ),
    "disk": ("for i in 1 2 3 4; do head -c 3000000 /dev/zero > f$i; done; test $(du -s . | cut -f1) -le 8200", "exit"),
    "disk, in /tmp": (
        "for i in 1 2 3 4; do head -c 3000000 /dev/zero > /tmp/f$i; done; test $(du -s /tmp | cut -f1) -le 8200",
        "exit",
    ),
    "a long file": ("head -c 9000000 /dev/zero > f; test $(stat -c %s f) -le 4194304", "exit"),
    "a long file with nothing in it": ("truncate -s 1T f; ! test -s f", "exit"),
    "many files": ("for i in $(seq 1000); do : > n$i; done 2> /dev/null; test $(ls | wc -l) -le 400", "exit"),
    "time": ("sleep 99", "time"),
    "processor time": ("while :; do :; done", "time"),
    "signals ignored": ("trap '' TERM INT HUP; while :; do :; done", "time"),
    "output": ("yes", "output"),
    "output of nothing but lines": ("yes ''", "output"),
    "open files": ("python3 -c 'f = [open(\"/dev/null\") for _ in range(100)]'; true", "exit"),
    "a state without an end": ("yes >&8", "time"),
    "pipes": (
        "python3 -c 'import os; p = [os.pipe() for _ in range(15)]; [os.write(w, b\"x\" * 65536) for _, w in p]'",
        "exit",
    ),
    "a large state": ("x=$(head -c 500000 /dev/zero | tr '\\0' x)", "exit"),
}


@pytest.fixture(scope="module")
def small() -> Iterator[Mapping[bool, Terminal]]:
    """Terminals by whether their time is short."""
    terminals = {short: Terminal(replace(SMALL, command_s=1.0 if short else 60.0)) for short in (True, False)}
    yield terminals
    for terminal in terminals.values():
        terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_no_flood_harms(name: str, small: Mapping[bool, Terminal]) -> None:
    command, ended = FLOODS[name]
    terminal = small[ended == "time"]
    terminal.run("rm -rf /repo/* /tmp/*", fresh=True)
    result = terminal.run(command, fresh=True)
    assert result.ended == ended, result.output.decode()
    if ended == "exit":
        assert result.code == 0, result.output.decode()
    assert len(result.output) <= SMALL.output_bytes
    terminal.get()
    assert terminal.run("set -- /proc/[0-9]*; echo here $#", fresh=True).output == b"here 2\n"


def test_what_is_left_running_ends_with_the_terminal() -> None:
    terminal = Terminal(Limits())
    mark = f"98{os.getpid()}.5"
    try:
        terminal.run(f"setsid sleep {mark} & (setsid nohup sleep {mark} &) ; sleep {mark} &")
        wait_until(lambda: len(running(mark)) == 3)
    finally:
        terminal.close()
    # the kernel ends what is in a jail once its first process is gone
    wait_until(lambda: not running(mark))


def running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if path.read_bytes() == f"sleep\0{mark}\0".encode() else []
        except OSError:
            continue  # it has ended meanwhile
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "this has not come about"
        time.sleep(0.02)


def test_one_terminal_does_not_reach_another() -> None:
    server = 's = socket.socket(socket.AF_UNIX); s.bind(b"\\0agym"); s.listen(); time.sleep(60)'
    listen = f"python3 -c 'import socket, time; {server}' &"
    first, second = Terminal(Limits()), Terminal(Limits())
    try:
        first.run(f"echo secret > /repo/a; echo secret > /tmp/a; {listen}")
        connect = connects("AF_UNIX", "SOCK_STREAM", "b'\\0agym'")
        wait_until(lambda: OUT.encode() in first.run(connect).output)
        assert OUT.encode() not in second.run(connect).output
        assert second.run("cat /repo/a /tmp/a").code == 1
    finally:
        first.close()
        second.close()


def test_a_refusal_of_the_kernel_is_told() -> None:
    """As in a container that has used up its namespaces."""
    code = "from agym.envs.shell import create; create({}).describe()"
    within = f"echo 0 > /proc/sys/user/max_user_namespaces && exec {sys.executable} -c '{code}'"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "bash", "-c", within], capture_output=True, text=True, check=False
    )
    if "No such file" in done.stderr or "ermission denied" in done.stderr:
        pytest.skip(f"the limit cannot be set here: {done.stderr}")
    assert done.stderr.splitlines()[-1] == (
        "agym.envs.errors.NotInstalled: no terminal can be started here: leave the host's namespaces: No space left on "
        "device; envs/shell/README.md says what it takes"
    )


def test_limits_are_those_of_the_terminal() -> None:
    terminal = Terminal(replace(SMALL, processes=33))
    try:
        assert terminal.run("ulimit -u; ulimit -c; ulimit -n").output == b"33\n0\n40\n"
    finally:
        terminal.close()
