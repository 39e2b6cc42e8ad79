from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from agym.envs.clients.client import HttpEnv
from agym.envs.clients.supervise import ServeCommand, ServerEvent, ServerProcess, ServerTrouble, Watch
from agym.envs.errors import EnvFault, FaultKind
from agym.envs.protocol import Deadlines

from .conftest import alive

COUNTER = ServeCommand(env="counter")
CLOSE = Watch(start_s=30, every_s=0.1, probe_s=0.5, misses=2, stop_s=10)


def program(folder: Path, text: str) -> ServeCommand:
    """A server of another system; `listener` is its socket."""
    script = folder / "program.py"
    opening = "import socket, sys, time\nlistener = socket.socket(fileno=int(sys.argv[sys.argv.index('--fd') + 1]))\n"
    script.write_text(opening + "listener.setblocking(True)\n" + text)
    return ServeCommand(env="other", program=(sys.executable, str(script)))


async def until(holds: object, what: str) -> None:
    for _ in range(600):
        if holds():  # type: ignore[operator]
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"waited in vain until {what}")


async def test_a_server_is_started_serves_and_is_gone(tmp_path: Path) -> None:
    async with ServerProcess(COUNTER, log=tmp_path / "server.log", watch=CLOSE) as server:
        client = HttpEnv(server.url)
        session = await client.open("reach-3", 0)
        assert (await session.step("add 1")).observation.text.startswith("The number is")
        await session.close()
        await client.close()
        pid = server.pid
        assert pid is not None
        assert alive(pid)
    assert not alive(pid)
    assert server.events == []


async def test_options_reach_the_server(tmp_path: Path) -> None:
    command = ServeCommand(env="textcraft", options={"world": "small", "depths": [2]})
    async with ServerProcess(command, log=tmp_path / "server.log") as server:
        client = HttpEnv(server.url)
        assert {task.difficulty for task in await client.tasks("train")} == {"depth2"}
        await client.close()


async def test_a_killed_server_is_named_and_answers_again_at_the_same_address(tmp_path: Path) -> None:
    told: list[ServerEvent] = []
    async with ServerProcess(COUNTER, log=tmp_path / "server.log", watch=CLOSE, report=told.append) as server:
        client = HttpEnv(server.url, deadlines=Deadlines(step_s=20, open_s=20))
        session = await client.open("reach-3", 0)
        first = server.pid
        assert first is not None
        os.killpg(first, signal.SIGKILL)
        with pytest.raises(EnvFault) as caught:
            await session.step("add 1")
        assert caught.value.kind is FaultKind.LOST  # the new server does not know it
        await session.close()
        await (await client.open("reach-3", 0)).close()
        await client.close()
        assert server.pid != first
        assert server.num_restarts == 1
    assert [event.trouble for event in told] == [ServerTrouble.DIED]
    assert "'counter' was killed by SIGKILL" in told[0].message


async def test_a_server_that_hangs_is_named_and_restarted(tmp_path: Path) -> None:
    async with ServerProcess(COUNTER, log=tmp_path / "server.log", watch=CLOSE) as server:
        first = server.pid
        assert first is not None
        (player,) = map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())
        os.kill(player, signal.SIGSTOP)
        await until(lambda: server.num_restarts == 1 and server.pid != first, "the server was restarted")
        assert not alive(first)
        assert not alive(player)
        assert server.events[0].trouble is ServerTrouble.HANGS
        assert "no answer to GET /health within 0.5 s" in server.events[0].message
        client = HttpEnv(server.url)
        assert (await client.spec()).name == "counter"
        await client.close()


@dataclass
class Ended:
    """A process that has ended."""

    returncode: int

    async def wait(self) -> int:
        return self.returncode


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
def test_a_signal_is_told_by_its_name_if_it_has_one(tmp_path: Path, number: int, name: str) -> None:
    ended = Ended(-number)
    server = ServerProcess(COUNTER, log=tmp_path / "server.log")
    assert server._how_it_ended(ended) == f"was killed by {name}"  # type: ignore[arg-type]


async def test_a_server_whose_keeper_fails_is_given_up(tmp_path: Path) -> None:
    server = ServerProcess(COUNTER, log=tmp_path / "removed.log")
    server._process = Ended(1)  # type: ignore[assignment]
    await server._keep()
    assert server.given_up is not None
    assert server.given_up.startswith("the server of 'counter' is watched no more: FileNotFoundError")


LEASH = """
import os, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
"""
GARBAGE = f"""{LEASH}
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 5\\r\\n\\r\\nhello")
    connection.close()
"""


async def test_a_server_that_answers_garbage_does_not_count_as_started(tmp_path: Path) -> None:
    with pytest.raises(EnvFault, match="'other' did not start: the answer to /health makes no sense") as caught:
        async with ServerProcess(program(tmp_path, GARBAGE), log=tmp_path / "server.log", watch=CLOSE):
            pass
    assert caught.value.kind is FaultKind.GARBAGE


async def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    command = program(tmp_path, "sys.exit('no licence found')")
    with pytest.raises(EnvFault, match="did not start: it ended with exit code 1, saying: no licence found"):
        async with ServerProcess(command, log=tmp_path / "server.log", watch=CLOSE):
            pass


async def test_what_an_earlier_server_said_is_not_quoted(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("said by an earlier one\n", encoding="utf-8")
    with pytest.raises(EnvFault, match=r"it ended with exit code 0; its log"):
        async with ServerProcess(program(tmp_path, "sys.exit(0)"), log=log, watch=CLOSE):
            pass


async def test_wrong_options_are_quoted(tmp_path: Path) -> None:
    command = ServeCommand(env="textcraft", options={"wurld": "small"})
    with pytest.raises(EnvFault, match="no option 'wurld'; did you mean 'world'"):
        async with ServerProcess(command, log=tmp_path / "server.log"):
            pass


@pytest.mark.slow
async def test_a_server_that_never_answers_nor_heeds_its_leash_is_killed(tmp_path: Path) -> None:
    watch = Watch(start_s=0.5)
    with pytest.raises(EnvFault, match=r"no answer to GET /health within 0.5 s"):
        async with ServerProcess(program(tmp_path, "time.sleep(60)"), log=tmp_path / "log", watch=watch):
            pass


async def test_a_server_that_keeps_dying_is_given_up_and_its_address_refuses(tmp_path: Path) -> None:
    watch = Watch(start_s=30, every_s=0.1, max_restarts=2)
    marker = tmp_path / "started"
    command = program(
        tmp_path,
        f"import pathlib\nif pathlib.Path({str(marker)!r}).exists(): sys.exit('once was enough')\n"
        f"pathlib.Path({str(marker)!r}).touch()\n"
        "from agym.envs.serving.serve import main\nsys.exit(main(['counter', '--fd', str(listener.detach())]))",
    )
    async with ServerProcess(command, log=tmp_path / "server.log", watch=watch) as server:
        assert server.pid is not None
        os.killpg(server.pid, signal.SIGKILL)
        await until(lambda: len(server.events) == 3, "two restarts had failed")
        troubles = [event.trouble for event in server.events]
        assert troubles == [ServerTrouble.DIED, ServerTrouble.FAILED_TO_START, ServerTrouble.FAILED_TO_START]
        client = HttpEnv(server.url, deadlines=Deadlines(open_s=0.2))
        with pytest.raises(EnvFault) as caught:
            await client.spec()
        assert caught.value.kind is FaultKind.UNREACHABLE
        await client.close()


CHILD = """
import pathlib, subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[0]).with_name("child").write_text(str(child.pid))
from agym.envs.serving.serve import main
sys.exit(main(["counter", "--fd", str(listener.detach()), "--leash"]))
"""


async def test_the_children_of_a_server_go_with_it(tmp_path: Path) -> None:
    async with ServerProcess(program(tmp_path, CHILD), log=tmp_path / "server.log", watch=CLOSE):
        child = int((tmp_path / "child").read_text())
        assert alive(child)
    await until(lambda: not alive(child), "the child was gone")


KEEPER = """
import asyncio, pathlib, sys
from agym.envs.clients.supervise import ServeCommand, ServerProcess
async def keep():
    command = ServeCommand(env="other", program=(sys.executable, sys.argv[1]))
    async with ServerProcess(command, log=pathlib.Path(sys.argv[2])) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(keep())
"""


async def test_a_server_and_its_children_do_not_outlive_a_keeper_that_is_killed(tmp_path: Path) -> None:
    script = program(tmp_path, CHILD).program[1]
    argv = [sys.executable, "-c", KEEPER, script, str(tmp_path / "server.log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        server = int(keeper.stdout.readline())
        child = int((tmp_path / "child").read_text())
        assert alive(server)
        assert alive(child)
        keeper.kill()
    await until(lambda: not alive(server) and not alive(child), "server and child were gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_asked_to_stop_ends_well(number: signal.Signals) -> None:
    argv = [sys.executable, "-m", "agym.envs.serving.serve", "counter", "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline().startswith('{"url":"http://127.0.0.1:')
        server.send_signal(number)
        assert server.wait(20) == 0
        assert server.stderr.read() == ""


def test_a_server_told_its_token_by_a_file_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    async def ask() -> None:
        command = ServeCommand(env="counter", arguments=("--token-file", str(tmp_path / "token")))
        async with ServerProcess(command, log=tmp_path / "server.log") as server:
            client = HttpEnv(server.url, token="secret")
            assert (await client.spec()).name == "counter"
            await client.close()

    asyncio.run(ask())
