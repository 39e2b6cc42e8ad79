from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from agym.dsl.model.recipe import Agent, Format
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import CHECKS, CheckResult, Subject, run_checks
from agym.envs.errors import BadOption, EnvFault, EpisodeOver, FaultKind, UnknownSplit, UnknownTask
from agym.envs.limits import MAX_ANSWER
from agym.envs.mcp import create
from agym.envs.mcp.actions import MalformedCall, ServerCall, parse_calls
from agym.envs.mcp.check import BadCheck, compile_check, find_tools, read_number
from agym.envs.mcp.connection import Connection, Scratch, ServerTool, ToolResult
from agym.envs.mcp.env import Tools
from agym.envs.mcp.options import read_mcp_options
from agym.envs.mcp.tasks import find_wrong_rows, load_task_file
from agym.envs.pool import EnvPool
from agym.envs.protocol import EnvSpec, Json, Status, Step, TaskInfo
from agym.envs.serving.sessions import Sessions
from agym.envs.wire import tasks_from, tasks_to
from agym.runtime.agents.calls import DIALECTS
from agym.runtime.agents.formats import format_for
from mcp import MCPError

from .conftest import started

HERE = Path(__file__).parent
BANK: Mapping[str, Json] = {
    "command": [sys.executable, str(HERE / "mcp_server.py")],
    "tasks_file": str(HERE / "mcp_tasks.jsonl"),
}


def call(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def played(env: Tools, *actions: str) -> Step:
    return [env.step(action) for action in actions][-1]


def begun(task: str = "sum", **options: Json) -> Tools:
    env = create({**BANK, **options})
    env.reset(task, 0)
    return env


heavy = pytest.mark.heavy
"""A server of its own takes a second or two to start."""


@heavy
def test_the_servers_own_schemas_are_the_tools_and_what_a_model_calls_is_what_it_gets() -> None:
    async def go() -> tuple[EnvSpec, Step]:
        client = InlineEnv(lambda: create(BANK))
        try:
            spec = await client.spec()
            session = await client.open("sum", 0)
            form = format_for(Agent(format=Format.TOOLS), dialect=DIALECTS[0], tools=spec.tools)
            said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
            (action,) = form.read(said).actions
            assert not form.read(said.replace("3", '"three"')).actions
            return spec, await session.step(action)
        finally:
            await client.close()

    spec, step = asyncio.run(go())
    tools = {tool.name: tool for tool in spec.tools}
    assert "answer" in tools
    assert tools["add"].parameters["required"] == ["a", "b"]
    assert "which ends the task" in spec.tool_prompt
    assert (step.status, step.observation.text) == (Status.OK, "5")


@pytest.fixture(scope="module")
def env() -> Iterator[Tools]:
    """For what leaves the bank as it was: one server for all."""
    made = create({**BANK, "keep": True})
    yield made
    made.close()


def children() -> set[int]:
    """Processes that this one has started and that still run."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(file.parent.name))
    return found


# --- playing -------------------------------------------------------------------------------------------------------


def test_an_episode_opens_with_the_task_and_the_tools(env: Tools) -> None:
    lines = env.reset("sum", 0).text.splitlines()
    assert lines[:3] == ["Task: What is 2 + 3?", "", "Tools:"]
    assert "- add(a: integer, b: integer): Add two numbers." in lines
    assert '- balance(account: "alice" | "bob"): What is in an account.' in lines
    assert "- transfer(source: string, target: string, amount: integer, note?: string): Move money." in lines


def test_calls_are_made_and_the_right_answer_scores_1(env: Tools) -> None:
    env.reset("sum", 0)
    step = env.step(call("add", a=2, b=3))
    assert (step.observation.text, step.status, step.reward, step.ended) == ("5", Status.OK, 0.0, False)
    last = env.step(call("answer", text=" Five "))
    assert (last.reward, last.terminated) == (1.0, True)
    with pytest.raises(EpisodeOver):
        env.step(call("add", a=2, b=3))


def test_a_wrong_answer_ends_the_task_with_nothing_and_tells_nothing(env: Tools) -> None:
    env.reset("sum", 0)
    last = env.step(call("answer", text="6"))
    assert (last.reward, last.terminated, last.observation.text) == (0.0, True, "The task is over.")


@heavy
def test_a_check_looks_at_what_was_done() -> None:
    env = create(BANK)
    env.reset("pay", 0)
    paid = call("transfer", source="alice", target="bob", amount=30)
    assert played(env, paid, call("answer", text="done")).reward == 1.0
    env.reset("pay", 0)
    half = call("transfer", source="alice", target="bob", amount=15)
    assert played(env, half, half, call("answer", text="done")).reward == 0.0
    env.reset("pay", 0)
    assert played(env, call("answer", text="done")).reward == 0.0


@heavy
def test_every_episode_begins_with_a_server_that_remembers_nothing() -> None:
    env = create(BANK)
    for _ in range(2):
        env.reset("rich", 0)
        paid = call("transfer", source="alice", target="bob", amount=30)
        assert played(env, call("balance", account="alice"), paid, call("balance", account="alice"))
        assert env.step(call("balance", account="bob")).observation.text == "30"
    env.close()


def test_several_calls_are_made_side_by_side_and_told_in_order(env: Tools) -> None:
    env.reset("rich", 0)
    calls = [{"name": "meet"}, {"name": "add", "arguments": {"a": 1, "b": 1}}, {"name": "meet", "arguments": {}}]
    assert env.step(json.dumps(calls)).observation.text == "1. met\n2. 2\n3. met"


def test_what_a_tool_refuses_is_told(env: Tools) -> None:
    env.reset("pay", 0)
    step = env.step(call("transfer", source="alice", target="bob", amount=300))
    assert step.status is Status.REFUSED
    assert step.observation.text.startswith("transfer failed: ")
    assert "alice has only 100" in step.observation.text
    assert env.step(call("add", a="one")).status is Status.REFUSED


@heavy
def test_a_call_that_takes_too_long_is_given_up_and_the_episode_goes_on() -> None:
    env = begun(timeout_s=0.5)
    late = env.step(json.dumps([{"name": "sleep", "arguments": {"seconds": 30}}, {"name": "process"}]))
    assert late.observation.text.startswith("1. sleep failed: no answer within 0.5 s\n2. ")
    assert env.step(call("add", a=1, b=1)).observation.text == "2"
    env.close()


@heavy
def test_every_action_counts_towards_the_limit() -> None:
    env = begun(max_steps=2)
    assert not env.step("nonsense").ended
    assert env.step(call("add", a=1, b=1)).truncated
    with pytest.raises(EpisodeOver):
        env.step(call("answer", text="5"))


@heavy
def test_only_the_tools_that_were_chosen_are_there() -> None:
    env = create({**BANK, "tools": ["add"]})
    assert "balance" not in env.reset("pay", 0).text
    assert env.step(call("balance", account="bob")).observation.text == 'There is no tool called "balance".'
    # the check may ask what the agent may not
    assert env.step(call("answer", text="done")).reward == 0.0
    env.close()


def test_a_tool_may_be_taken_away_from_the_agent_and_the_others_remain(env: Tools) -> None:
    fewer = create({**BANK, "keep": True, "excluded": ["add", "shout"]})
    fewer._connection = env._connection
    assert not {"add", "shout"} & {line.partition("(")[0] for line in fewer.reset("pay", 0).text.split("- ")}
    assert fewer.step(call("add", a=1, b=1)).status is Status.INVALID
    assert fewer.step(call("balance", account="bob")).status is Status.OK


def test_the_list_of_tools_may_be_left_to_the_chat_template(env: Tools) -> None:
    bare = create({**BANK, "keep": True, "list_tools": False})
    bare._connection = env._connection
    assert "Tools:" in env.reset("pay", 0).text
    assert bare.reset("pay", 0).text == "Task: Pay bob 30 from alice's account."
    assert bare.describe().tools == env.describe().tools


@heavy
@pytest.mark.parametrize("option", ["tools", "excluded"])
def test_a_tool_that_is_not_there_is_named(option: str) -> None:
    with pytest.raises(BadOption, match="no tool 'subtract', only add, balance"):
        begun(**{option: ["subtract"]})


class Server:
    """A connection to a server that answers every call alike."""

    tools = (ServerTool(name="balance", description="", schema={}),)

    def __init__(self, result: ToolResult) -> None:
        self._result = result

    def call(self, calls: Sequence[ServerCall]) -> list[ToolResult]:
        return [self._result for _ in calls]

    def close(self) -> None: ...


def checked(folder: Path, check: str, result: ToolResult) -> Tools:
    """Before a task of this check, on a server that answers so."""
    (folder / "tasks.jsonl").write_text(json.dumps({"id": "a", "instruction": "b", "check": check}))
    env = create({**BANK, "tasks_file": str(folder / "tasks.jsonl"), "keep": True})
    env._connection = Server(result)  # type: ignore[assignment]
    return env


@pytest.mark.parametrize("check", ["result('balance') == '40'", "result('balance') != '40'"])
@pytest.mark.parametrize("kind", [FaultKind.DEADLINE, FaultKind.GARBAGE])
def test_a_check_whose_own_call_is_not_answered_is_a_fault_and_no_score(
    tmp_path: Path, check: str, kind: FaultKind
) -> None:
    env = checked(tmp_path, check, ToolResult(text="no answer", good=False, fault=kind))
    env.reset("a", 0)
    with pytest.raises(EnvFault, match="the check called balance: no answer") as raised:
        env.step(call("answer", text="40"))
    assert raised.value.kind is kind


def test_a_check_may_ask_what_a_tool_refuses(tmp_path: Path) -> None:
    env = checked(tmp_path, "result('balance') == 'closed'", ToolResult(text="closed", good=False))
    env.reset("a", 0)
    assert env.step(call("answer", text="40")).reward == 1.0


@pytest.mark.parametrize("check", ["not result('balanse') == '1'", "called('balanse') == 0"])
def test_a_check_that_asks_for_a_tool_that_is_not_there_is_named(tmp_path: Path, check: str) -> None:
    env = checked(tmp_path, check, ToolResult(text="40", good=True))
    with pytest.raises(BadOption, match="no tool 'balanse', for which the check of task 'a' asks, only balance"):
        env.reset("a", 0)


# --- each episode on its own ---------------------------------------------------------------------------------------

NOTED = {"id": "note", "instruction": "Note hello.", "check": "result('notes') == 'hello, hello, hello'"}
NOTE = {"name": "note", "arguments": {"text": "hello"}}


def path_in(figures: str) -> Path:
    return Path(bytes.fromhex(figures.strip()).decode())


def noting(folder: Path, **options: Json) -> Tools:
    """A task whose check looks at what the server has on disk."""
    (folder / "notes.jsonl").write_text(json.dumps({**NOTED, "solution": [NOTE]}))
    return create({**BANK, "tasks_file": str(folder / "notes.jsonl"), **options})


@heavy
def test_what_a_server_writes_to_disk_is_gone_with_the_episode(tmp_path: Path) -> None:
    env = noting(tmp_path)
    env.reset("note", 0)
    folder = path_in(env.step(json.dumps(NOTE)).observation.text)
    assert env.step(call("notes")).observation.text == "hello, hello, hello"
    assert folder.is_dir()
    assert env.step(call("answer", text="")).reward == 1.0
    assert not folder.parent.exists()
    env.reset("note", 0)
    assert env.step(call("answer", text="")).reward == 0.0
    env.reset("note", 0)
    crashed = path_in(env.step(json.dumps(NOTE)).observation.text)
    with pytest.raises(EnvFault, match="the MCP server is gone"):
        env.step(call("crash"))
    env.close()
    assert not crashed.parent.exists()


@heavy
@pytest.mark.parametrize("keep", [False, True])
def test_a_server_that_keeps_its_state_is_found_by_the_check_of_nothing(tmp_path: Path, keep: bool) -> None:
    check = next(check for check in CHECKS if "doing_nothing" in check.__name__)
    client = InlineEnv(lambda: noting(tmp_path, keep=keep))

    async def go() -> CheckResult:
        (result,) = await run_checks(Subject(client=client), [check])
        await client.close()
        return result

    result = asyncio.run(go())
    assert result.passed is not keep
    assert "doing nothing solves task 'note' after the expert has solved it" in result.detail or not keep


PLAYER = """
import json, sys
import agym.envs.mcp
env = agym.envs.mcp.create(json.loads(sys.stdin.readline()))
env.reset("sum", 0)
print(env.step('{"name": "note", "arguments": {"text": "left"}}').observation.text, flush=True)
sys.stdin.read()
env.close()
"""


@heavy
def test_the_scratch_folder_of_a_killed_player_is_removed_by_the_next(tmp_path: Path) -> None:
    def play(player: subprocess.Popen[str]) -> Path:
        assert player.stdin is not None
        assert player.stdout is not None
        player.stdin.write(f"{json.dumps(BANK)}\n")
        player.stdin.flush()
        return path_in(player.stdout.readline())

    with started(PLAYER, tmp_path) as player:
        scratch = play(player)
        assert scratch.is_relative_to(tmp_path)
        assert (scratch / "note.txt").is_file()
        player.kill()
    assert scratch.is_dir()
    with started(PLAYER, tmp_path) as player:
        assert play(player).is_dir()
        assert not scratch.exists()
    assert not [*tmp_path.iterdir()]


@heavy
def test_the_words_of_a_command_are_where_the_episode_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    command = [sys.executable, "mcp_server.py", "--db={scratch}/db", "./mcp_server.py", "../envs", "envs"]
    env = begun(command=command)
    folder = path_in(env.step(call("note", text="x")).observation.text)
    assert (folder / "note.txt").is_file()
    said = env.step(call("arguments")).observation.text.splitlines()
    env.close()
    assert said == ["--db={scratch}/db", str(HERE / "mcp_server.py"), str(HERE), "envs"]


@heavy
def test_a_scratch_folder_begins_with_the_files_that_were_given_and_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("seven", encoding="utf-8")
    env = begun(files=str(tmp_path))
    for path in ("sub/a.txt", "{scratch}/sub/a.txt"):
        assert env.step(call("read", path=path)).observation.text == "{scratch}/sub/a.txt: seven"
    assert (tmp_path / "sub" / "a.txt").is_file()
    env.close()


# --- what was kept -------------------------------------------------------------------------------------------------


def answers(env: Tools, name: str) -> list[str]:
    told = []
    for _ in range(2):
        env.reset("sum", 0)
        told.append(env.step(call(name)).observation.text)
    env.close()
    return told


@heavy
def test_results_of_tools_that_always_say_the_same_are_kept_across_episodes() -> None:
    first, second = answers(create({**BANK, "cached": ["process"]}), "process")
    assert first == second
    first, second = answers(create(BANK), "process")
    assert first != second


@heavy
def test_a_failure_is_never_kept() -> None:
    env = begun(cached=["transfer"], command=[sys.executable, str(HERE / "mcp_server.py"), "alone"])
    paid = call("transfer", source="bob", target="alice", amount=5)
    assert env.step(paid).status is Status.REFUSED
    env.step(call("transfer", source="alice", target="bob", amount=5))
    assert env.step(paid).status is Status.OK
    env.close()


@heavy
def test_a_connection_is_kept_where_the_server_remembers_nothing() -> None:
    first, second = answers(create({**BANK, "keep": True}), "process")
    assert first == second


# --- hostile servers -----------------------------------------------------------------------------------------------


@heavy
def test_what_a_hostile_tool_says_is_shown_cut_and_cleaned_and_changes_nothing(env: Tools) -> None:
    neighbour = begun("rich")
    env.reset("sum", 0)
    step = env.step(call("shout"))
    assert not step.ended
    assert len(step.observation.text) < 8100
    assert not set(step.observation.text) & {"\x1b", "\x07", "\u202e"}
    assert step.observation.text.endswith("[cut]")
    assert env.step(call("add", a=2, b=2)).observation.text == "4"
    assert env.step(call("answer", text="4")).reward == 0.0
    assert neighbour.step(call("balance", account="bob")).observation.text == "0"
    neighbour.close()


@heavy
def test_a_server_that_died_is_a_fault_and_the_next_episode_has_another() -> None:
    before, env = children(), begun()
    with pytest.raises(EnvFault):
        env.step(call("crash"))
    assert env.reset("sum", 0).text.startswith("Task")
    env.close()
    assert children() == before


@heavy
def test_a_server_that_died_is_quoted_with_the_end_of_its_standard_error() -> None:
    env = begun(command=["env", "KEY=sk-1 23", *map(str, BANK["command"])])  # type: ignore[arg-type]
    with pytest.raises(EnvFault) as raised:
        env.step(call("crash"))
    env.close()
    said = str(raised.value)
    assert "the MCP server is gone; its standard error ends: " in said
    assert said.endswith("199; ValueError: no such account; KEY=...")
    assert ("23" not in said.partition("199")[2], len(said) < 700) == (True, True)


def test_a_server_that_does_not_start_is_quoted_too() -> None:
    with pytest.raises(
        EnvFault, match=r"no MCP server at .*; its standard error ends: .*ModuleNotFoundError: No module"
    ):
        begun(command=[sys.executable, "-c", "import no_such_module"])


@heavy
def test_an_answer_over_the_limit_is_a_fault_that_names_it(url: str) -> None:
    for where in (BANK, {"url": url, "tasks_file": BANK["tasks_file"]}):
        env = create(where)
        env.reset("sum", 0)
        assert env.step(call("flood", size=MAX_ANSWER // 4)).observation.text.endswith("[cut]")
        with pytest.raises(EnvFault, match=f"^mcp: the answer to a call of 'flood' is longer than {MAX_ANSWER:,}"):
            env.step(call("flood", size=MAX_ANSWER + 1))
        env.reset("sum", 0)
        assert env.step(call("add", a=1, b=1)).observation.text == "2"
        env.close()


@heavy
def test_no_process_is_left_when_an_episode_has_ended() -> None:
    before, env = children(), begun()
    assert len(children() - before) == 1
    env.step(call("answer", text="5"))
    assert children() == before
    env.close()


@heavy
@pytest.mark.parametrize("expires", [False, True])
async def test_no_process_is_left_of_an_episode_that_was_broken_off(expires: bool) -> None:
    before, now = children(), [0.0]
    sessions = Sessions(EnvPool(lambda: create(BANK)), limit=1, lease_s=10, clock=lambda: now[0])
    opened = await sessions.open("sum", 0)
    assert len(children() - before) == 1
    now[0] = 11
    await (sessions.expire() if expires else sessions.close(opened.session))
    assert children() == before
    await sessions.close_all()


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "print('hello')"]])
def test_what_is_no_server_is_a_fault(command: list[str]) -> None:
    with pytest.raises(EnvFault, match="no MCP server at") as raised:
        begun(command=command)
    assert raised.value.kind is FaultKind.UNREACHABLE


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["env", "API_KEY=sk-1 23", "--token=sk-123", "/no/such/program"], "'env API_KEY=... --token=... /no"),
        (["API_KEY=sk-123", "program"], "'API_KEY=... program'"),
    ],
)
def test_secrets_are_kept_from_whoever_asks_for_an_episode(command: list[str], told: str) -> None:
    with pytest.raises(EnvFault, match=re.escape(told)) as raised:
        begun(command=command)
    assert "23" not in str(raised.value)


def test_who_asks_for_a_server_by_its_url_is_not_told() -> None:
    with pytest.raises(EnvFault, match=re.escape("no MCP server at 'http://127.0.0.1:1/mcp?key=...'")):
        create({"url": "http://me:sk-123@127.0.0.1:1/mcp?key=sk-123", "tasks_file": BANK["tasks_file"]}).reset("sum", 0)


def around(client: object) -> Connection:
    """A connection in no thread."""
    connection = object.__new__(Connection)
    connection._client, connection._over, connection._options = client, Event(), read_mcp_options(BANK)  # type: ignore[assignment]
    connection._too_long, connection._last_words, connection._scratch = Event(), None, Scratch("")
    return connection


class Endless:
    """Lists tools page by page, without an end; at the third it is closed."""

    def __init__(self, over: int | None = None) -> None:
        self.num_pages, self._over = 0, over

    async def list_tools(self, cursor: str | None) -> Any:
        self.num_pages += 1
        assert self.num_pages < 100
        if self.num_pages == self._over:
            self.connection._over.set()
        return SimpleNamespace(tools=[], next_cursor="more")


@pytest.mark.parametrize(("over", "num_pages"), [(None, 50), (3, 3)])
def test_a_list_of_tools_without_an_end_is_not_followed_for_ever(over: int | None, num_pages: int) -> None:
    client = Endless(over)
    client.connection = connection = around(client)
    assert asyncio.run(connection._list()) == ()
    assert client.num_pages == num_pages


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TimeoutError(), FaultKind.DEADLINE),
        (ValueError("no JSON"), FaultKind.GARBAGE),
        (MCPError(code=-32602, message="unknown account"), None),
    ],
)
def test_an_answer_that_did_not_come_is_told_from_one_that_refuses(error: Exception, fault: FaultKind | None) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    result = asyncio.run(around(SimpleNamespace(call_tool=fail))._call(ServerCall("balance", {})))
    assert (result.good, result.fault) == (False, fault)


# --- over HTTP -----------------------------------------------------------------------------------------------------


@pytest.fixture
def url() -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with subprocess.Popen([sys.executable, str(HERE / "mcp_server.py"), "http", str(port)]) as bank:
        for _ in range(300):
            with socket.socket() as door:
                if door.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
        bank.terminate()


@heavy
def test_a_server_that_runs_already_is_played_on_by_its_url(url: str) -> None:
    env = create({"url": url, "tasks_file": BANK["tasks_file"]})
    env.reset("pay", 0)
    paid = call("transfer", source="alice", target="bob", amount=30)
    assert played(env, paid, call("answer", text="done")).reward == 1.0
    env.reset("sum", 0)
    with pytest.raises(EnvFault):
        played(env, call("crash"), call("add", a=1, b=1))
    with pytest.raises(EnvFault):
        env.reset("sum", 0)
    env.close()


# --- actions, checks, tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a call"),
        ("add(1, 2)", "not a call"),
        ('{"name": "add", "arguments": {"a": NaN}}', "not a call"),
        ('{"name": "add", "arguments": {"a": 1e999}}', "not a call"),
        ('{"name": "add", "arguments": {"a": "\\ud800"}}', "not a call"),
        ("[" * 9000, "not a call"),
        ("[]", "between 1 and 8"),
        (json.dumps([{"name": "add"}] * 9), "between 1 and 8"),
        ('{"name": "subtract"}', 'no tool called "subtract"'),
        ('{"name": "add", "arguments": [1]}', "must be an object"),
        ('{"name": "add", "arguments": {}, "id": 1}', 'object with "name"'),
        ('"add"', 'object with "name"'),
        ('[{"name": "add"}, {"name": "answer", "arguments": {"text": "1"}}]', "answer alone"),
        ('{"name": "answer", "arguments": {"value": "1"}}', "Answer with"),
        ('{"name": "add", "arguments": {"a": "' + "x" * 20_000 + '"}}', "longer than"),
    ],
)
def test_what_is_no_call_is_told_why(text: str, reason: str) -> None:
    with pytest.raises(MalformedCall, match=reason):
        parse_calls(text, {"add"})


def test_an_answer_may_be_a_number() -> None:
    (answer,) = parse_calls('{"name": "answer", "arguments": {"text": 5}}', ())
    assert answer.arguments == {"text": "5"}


class Told:
    answer = "Alice: 1,250"

    def called(self, tool: str) -> int:
        return len(tool)

    def result(self, tool: str, /, **arguments: object) -> str:
        return f"{tool} {arguments}"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("'alice' in lower(answer)", True),
        ("'alice' in answer or not called('x') == 1", False),
        ("number('1,250') == 1250 and -1 < 0", True),
        ("number('many') == number('many')", False),
        ("number('many') > 3 or number('many') < number('3')", False),
        ("number('0.1') == 0.1 and -number('10000000000000001') < -10000000000000000", True),
        ("called('four') >= 4 and called('four') != 5 and called('four') <= 4", True),
        ("result('get', of='x') == \"get {'of': 'x'}\"", True),
        ("'bob' not in answer", True),
    ],
)
def test_a_check_is_worked_out(text: str, holds: bool) -> None:
    assert bool(compile_check(text)(Told())) is holds


def test_the_tools_of_a_check_are_known() -> None:
    assert {*find_tools("called('a') > 1 and not result('b', of=result('c')) == 'd'")} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,234,567.50", "1234567.5"),
        ("-1,250", "-1250"),
        (" 5 ", "5.0"),
        ("10000000000000001", "10000000000000001"),
        ("1e3", "1000"),
    ],
)
def test_a_number_is_read(text: str, said: str) -> None:
    assert read_number(text) == Decimal(said)


@pytest.mark.parametrize("text", ["", "five", "1,2,3", "12,3", "1,2345", "1_2", "nan", "inf", "1e9999999999999999999"])
def test_what_is_no_number_equals_nothing(text: str) -> None:
    assert read_number(text) != read_number(text)


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ("1,2,3", ("1,2,3",), ("123", "12,3")),
        (10000000000000001, ("10000000000000001", "10,000,000,000,000,001.0"), ("10000000000000000",)),
        (12, ("12", "12.0"), ("1_2", "1,2")),
    ],
)
def test_only_the_right_number_is_right(
    tmp_path: Path, expected: object, right: Sequence[str], wrong: Sequence[str]
) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "a", "instruction": "b", "answer": expected}))
    task = load_task_file(str(tmp_path / "tasks.jsonl"))["a"]
    assert [each for each in (*right, *wrong) if task.accepts(each)] == [*right]


@pytest.mark.parametrize(
    "text",
    [
        "answer.upper()",
        "open('x')",
        "[1]",
        "answer[0]",
        "1 < 2 < 3",
        "x",
        "lambda: 1",
        "1 +",
        "answer is 'x'",
        "2 ** 9",
        "",
    ],
)
def test_what_may_not_be_in_a_check_is_refused(text: str) -> None:
    with pytest.raises(BadCheck):
        compile_check(text)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "tasks.jsonl:2: "),
        ("[]", "expected an object"),
        ('{"id": "a", "instruction": "b", "answers": "c"}', "expected an object"),
        ('{"id": "", "instruction": "b", "answer": "c"}', "needs an 'id'"),
        ('{"id": "a", "instruction": "b"}', "needs an 'answer' or a 'check'"),
        ('{"id": "a", "instruction": "b", "answer": "c", "split": "dev"}', "'split' must be"),
        ('{"id": "a", "instruction": "b", "answer": {}}', "'answer' must be"),
        ('{"id": "a", "instruction": "b", "check": "open()"}', "not allowed"),
        ('{"id": "a", "instruction": "b", "answer": "c", "solution": ["x"]}', "'solution' must be"),
        ('{"id": "first", "instruction": "b", "answer": "c"}', "appears twice"),
        ('{"id": "a", "instruction": "b", "answer": "c", "trivial": 1}', "'trivial' must be"),
    ],
)
def test_a_bad_line_of_the_file_of_tasks_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(f'{{"id": "first", "instruction": "b", "answer": "c"}}\n{line}\n')
    with pytest.raises(BadOption, match=complaint):
        create({**BANK, "tasks_file": str(file)})


def test_every_wrong_line_is_found_without_the_protocol() -> None:
    good, wrong = '{"id": "a", "instruction": "b", "answer": "c"}', '{"id": "b"}'
    assert [*find_wrong_rows(f"{good}\n\n")] == []
    found = [*find_wrong_rows(f"{wrong}\n{good}\n{good}\n{{\n")]
    assert [at for at, _ in found] == [1, 3, 4]
    assert found[1][1] == "task 'a' appears twice"
    assert [*find_wrong_rows("\n")] == [(1, "there is no task in it")]
    code = "import sys; import agym.envs.mcp.tasks; assert not {'mcp', 'anyio'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_task_may_be_solved_by_nothing_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "instruction": "b", "answer": "", "trivial": true}')

    async def listed() -> Sequence[TaskInfo]:
        pool = EnvPool(lambda: create({**BANK, "tasks_file": str(tmp_path / "tasks.jsonl")}))
        tasks = await pool.tasks("train")
        await pool.close()
        return tasks

    tasks = asyncio.run(listed())
    assert [task.trivial for task in tasks] == [True]
    assert tasks_from(tasks_to(tasks)) == tasks


def test_tasks_are_in_the_splits_that_they_name(env: Tools) -> None:
    assert env.tasks("train") == ("sum", "pay")
    assert env.tasks("test") == ("rich",)
    assert [env.difficulty(task) for task in ("sum", "pay", "rich")] == ["sums", "payments", None]
    with pytest.raises(UnknownSplit):
        env.tasks("dev")
    with pytest.raises(UnknownTask):
        env.reset("none", 0)


def test_a_solution_ends_with_the_answer(env: Tools) -> None:
    assert env.expert("sum", 0) == (call("add", a=2, b=3), call("answer", text="5"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"url": "http://x"}, "needs the option 'tasks_file'"),
        ({"tasks_file": "x"}, "either the option 'command' or"),
        ({**BANK, "url": "http://x"}, "either the option 'command' or"),
        ({**BANK, "commands": []}, "no option 'commands'; did you mean 'command'?"),
        ({**BANK, "command": "server"}, "'command' must list texts"),
        ({**BANK, "tools": []}, "'tools' must list texts"),
        ({"tasks_file": "x", "url": "ftp://x"}, "'url' must begin with http"),
        ({**BANK, "keep": 1}, "'keep' must be true or false"),
        ({**BANK, "files": "/no/such/folder"}, "'files' must be a folder, and there is none at '/no/such/folder'"),
        ({"tasks_file": "x", "url": "http://x", "files": "."}, "'files' goes with 'command'"),
        ({**BANK, "timeout_s": 0}, "'timeout_s' must be"),
        ({**BANK, "max_steps": True}, "'max_steps' must be"),
        ({**BANK, "tasks_file": "/no/such/file"}, "cannot read the file of tasks"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)
