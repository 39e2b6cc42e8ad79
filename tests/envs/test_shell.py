"""The shell: its tasks and their solutions, what is shown, and grading that cannot be fooled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from agym.envs.errors import BadOption, EpisodeOver, UnknownTask
from agym.envs.protocol import Status, Step
from agym.envs.shell import Shell, create
from agym.envs.shell.grading import _clean, _holds, grade
from agym.envs.shell.jail.trees import encode_files, pack_tree, unpack_tree
from agym.envs.shell.tasks import GROUPS, KINDS, FileIs, Passes, Prints, ShellTask, load_task
from agym.envs.shell.tasks.functions import FUNCTIONS, Function
from agym.envs.shell.terminal import Limits, Result, explain_unavailable
from agym.envs.shell.texts import DONE, show_result

needs_jail = pytest.mark.skipif(
    explain_unavailable() is not None, reason=f"no terminal can be started here: {explain_unavailable()}"
)


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = create({"max_steps": 12})
    yield shell
    shell.close()


def play(shell: Shell, task: str, *actions: str) -> Step:
    shell.reset(task, 0)
    for action in actions[:-1]:
        assert not shell.step(action).ended
    return shell.step(actions[-1])


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_there_are_sixty_held_out_tasks_twelve_of_each_group() -> None:
    shell = create({})
    tested = [shell.difficulty(task) for task in shell.tasks("test")]
    assert {group: tested.count(group) for group in GROUPS} == dict.fromkeys(GROUPS, 12)
    assert len(shell.tasks("train")) == 240
    assert create({"groups": ["git"]}).tasks("test")[:2] == ("commit_file-0", "merge_branch-0")


def test_training_and_held_out_tasks_share_no_name() -> None:
    shell = create({})
    names = [{path for task in shell.tasks(split) for path in load_task(task).files} for split in ("train", "test")]
    assert names[0] & names[1] == {"README.md"}


def test_tasks_differ_and_are_the_same_when_asked_again() -> None:
    shell = create({})
    tasks = [load_task(task) for task in (*shell.tasks("train"), *shell.tasks("test"))]
    assert len({str((task.goal, task.files, task.setup)) for task in tasks}) == len(tasks)
    assert tasks == [load_task(task.id) for task in tasks]


@pytest.mark.parametrize("task", ["", "find_setting", "find_setting-15", "find_setting-01", "other-1"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask, match="shell has no task"):
        load_task(task)


def test_a_task_of_a_group_that_was_left_out_is_refused(shell: Shell) -> None:
    with pytest.raises(UnknownTask, match="in the groups git"):
        create({"groups": ["git"]}).reset("find_setting-0", 0)
    with pytest.raises(BadOption, match="knows no 'cooking'"):
        create({"groups": ["cooking"]})


@pytest.mark.slow
@needs_jail
@pytest.mark.parametrize("kind", KINDS)
def test_each_held_out_task_is_solved_by_its_expert_and_by_nothing_else(kind: str, shell: Shell) -> None:
    for task in (f"{kind}-{number}" for number in range(3)):
        assert play(shell, task, DONE).reward == 0.0
        step = play(shell, task, *shell.expert(task, 0))
        assert (step.reward, step.terminated) == (1.0, True), task


def evaluate(source: str, call: str) -> str:
    names: dict[str, object] = {}
    exec(source, names)
    return str(eval(call, names))


@pytest.mark.parametrize("function", FUNCTIONS, ids=[function.name for function in FUNCTIONS])
def test_a_function_does_what_is_said_and_each_wrong_form_does_not(function: Function) -> None:
    for call, value in (function.shown, function.weak, *function.hidden):
        assert evaluate(function.source, call) == value
    for number in range(2):
        wrong = function.mutant(number)
        assert evaluate(wrong, function.shown[0]) != function.shown[1]
        assert evaluate(wrong, function.weak[0]) == function.weak[1]
        assert any(evaluate(wrong, call) != value for call, value in function.hidden)


# --- playing -------------------------------------------------------------------------------------------------------


@needs_jail
def test_folder_variables_and_functions_are_kept_between_commands(shell: Shell) -> None:
    shell.reset("find_setting-0", 0)
    shell.step("mkdir 'a b'; cd 'a b'; x='1 2'; export y=3; f() { echo \"f $x\"; }; alias l=pwd")
    assert shell.step("l; f; bash -c 'echo $y'").observation.text == "/repo/a b\nf 1 2\n3"
    shell.step("exit 4")
    assert shell.step("pwd").observation.text == "/repo/a b"


@needs_jail
def test_what_is_kept_may_be_more_than_a_pipe_holds(shell: Shell) -> None:
    shell.reset("find_setting-0", 0)
    shell.step("x=$(head -c 100000 /dev/zero | tr '\\0' x); y=1; sleep 1 &")
    assert shell.step("echo ${#x} $y").observation.text == "100000 1"
    # what is more is not kept, and what there was before stays
    shell.step("z=$x$x; y=2")
    assert shell.step("echo ${#z} $y").observation.text == "0 1"


@needs_jail
def test_an_episode_finds_nothing_of_the_one_before(shell: Shell) -> None:
    play(shell, "find_setting-0", "touch /tmp/left left; cd /tmp; x=1", DONE)
    shell.reset("find_setting-0", 0)
    assert shell.step("pwd; ls /tmp; echo $x").observation.text == "/repo"


@needs_jail
@pytest.mark.parametrize(
    ("command", "shown", "status"),
    [
        ("true", "(no output)", Status.OK),
        ("echo a; false", "a\n[exit code 1]", Status.OK),
        ("printf '\\033[31mred\\033[0m\\a \\033]0;title\\aend'", "red end", Status.OK),
        ("printf '\\377\\000x'", "\ufffdx", Status.OK),
        ("qwertz", "bash: line 9: qwertz: command not found\n[exit code 127]", Status.INVALID),
        ("kill -9 $$", "[exit code -9]", Status.OK),
        ("", "Write a command for bash, or done.", Status.INVALID),
        ("echo \x1b", "A command is plain text, without control characters.", Status.INVALID),
        ("echo " * 1000, "That is longer than 4000 characters.", Status.INVALID),
        ("seq 3", "1\n2\n3", Status.OK),
        ("read x; echo \"got '$x'\"", "got ''", Status.OK),
    ],
)
def test_what_came_of_a_command_is_shown(command: str, shown: str, status: Status, shell: Shell) -> None:
    shell.reset("find_setting-0", 0)
    step = shell.step(command)
    assert (step.observation.text, step.status) == (shown, status)


@needs_jail
def test_a_long_output_is_cut_in_the_middle(shell: Shell) -> None:
    shell.reset("find_setting-0", 0)
    text = shell.step("seq 100000").observation.text
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000")
    assert "[586895 bytes left out]" in text


@needs_jail
def test_a_command_without_an_end_is_ended_and_the_episode_goes_on() -> None:
    shell = create({"command_s": 1})
    shell.reset("find_setting-0", 0)
    assert shell.step("cd /tmp").observation.text == "(no output)"
    assert shell.step("echo begun; sleep 99").observation.text == "begun\nThe command was ended: it took too long."
    assert shell.step("pwd").observation.text == "/tmp"
    shell.close()


@needs_jail
def test_an_episode_ends_at_its_limit_and_is_graded() -> None:
    shell = create({"max_steps": 4})
    solution = load_task("find_setting-0").solution
    step = play(shell, "find_setting-0", "ls", "ls", "ls", *solution)
    assert (step.reward, step.terminated, step.truncated) == (1.0, False, True)
    with pytest.raises(EpisodeOver):
        shell.step("ls")


@needs_jail
def test_an_episode_ends_once_its_time_is_used_up() -> None:
    shell = create({"command_s": 1, "episode_s": 1})
    assert play(shell, "find_setting-0", "sleep 99").truncated


@needs_jail
def test_advice_goes_through_the_solution_and_ends_where_the_agent_leaves_it(shell: Shell) -> None:
    shell.reset("fix_import-0", 0)
    first, second = load_task("fix_import-0").solution
    assert shell.advice() == first
    shell.step("ls")
    shell.step(first)
    assert shell.advice() == second
    shell.step("rm -r *")
    assert shell.advice() is None


def test_what_ended_a_command_is_told() -> None:
    result = Result(output=b"ab", code=-9, ended="memory", head=1, left_out=7, cpu_s=0.0)
    assert show_result(result) == "a\n[7 bytes left out]\nb\nThe command was ended: it took too much memory."


def test_the_corpus_holds_every_word_of_a_task() -> None:
    texts = "\n".join(create({}).corpus())
    assert load_task("restore_file-7").goal in texts
    assert load_task("find_setting-0").goal not in texts


# --- grading -------------------------------------------------------------------------------------------------------

SOLVE = {task: " && ".join(load_task(task).solution) for task in ("find_setting-0", "commit_file-0", "write_test-0")}
FIND, COMMIT, TEST = SOLVE
MODULE = next(iter(load_task(TEST).files))
SUBJECT = load_task(COMMIT).checks[0].output.split("\n")[0]  # type: ignore[union-attr]

TAMPERED = {
    "an answer that is a link": (FIND, f"{SOLVE[FIND]} && mv answer.txt a && ln -s a answer.txt"),
    "an answer that is a folder": (FIND, "mkdir answer.txt"),
    "an answer that is a pipe": (FIND, "mkfifo answer.txt"),
    "an answer that nobody may read": (FIND, f"{SOLVE[FIND]} && chmod 000 answer.txt"),
    "an answer written too late": (FIND, f"(sleep 30; {SOLVE[FIND]}) > /dev/null 2>&1 &"),
    "all answers at once": (FIND, "ls src/* > answer.txt"),
    "more than can be looked at": (FIND, f"{SOLVE[FIND]}; for i in $(seq 20); do truncate -s 16M f$i; done"),
    "one file many times": (FIND, f"{SOLVE[FIND]}; truncate -s 16M f; for i in $(seq 20); do ln f f$i; done"),
    "settings that run a program": (
        COMMIT,
        f"printf '#!/bin/sh\\necho {SUBJECT}\\n' > x; chmod +x x; "
        + "; ".join(f"git config {name} /repo/x" for name in ("core.fsmonitor", "core.pager", "alias.log")),
    ),
    "hooks": (
        COMMIT,
        "cd .git/hooks; printf '#!/bin/sh\\ngit commit -qam x\\n' > post-index-change; chmod +x *",
    ),
    "a repository elsewhere": (COMMIT, f"{SOLVE[COMMIT]} && mv .git g && echo 'gitdir: g' > .git"),
    "a repository by a link": (COMMIT, f"{SOLVE[COMMIT]} && mv .git g && ln -s g .git"),
    "a program before git": (COMMIT, "printf '#!/bin/sh\\necho x\\n' > git; chmod +x git; PATH=/repo:$PATH"),
    "a module that cannot be replaced": (TEST, f"{SOLVE[TEST]}; rm {MODULE}; mkdir -p {MODULE}/x"),
    "a test that always passes": (TEST, f"echo pass > test_{MODULE}"),
    "a test that always fails": (TEST, f"echo 'assert False' > test_{MODULE}"),
    "a test that ends its interpreter": (TEST, f"echo 'import os; os._exit(0)' > test_{MODULE}"),
    "a test that ends all": (TEST, f"echo 'import os; os.kill(-1, 9)' > test_{MODULE}"),
    "a test without an end": (TEST, f"echo 'while True: pass' > test_{MODULE}"),
    "modules before the interpreter's": (
        TEST,
        f"echo > test_{MODULE}; echo 'raise SystemExit(1)' > sitecustomize.py",
    ),
    "no processes left": (FIND, "kill -9 -1"),
}


@pytest.mark.slow
@needs_jail
@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_no_solution_is_graded_as_none(name: str, shell: Shell) -> None:
    task, command = TAMPERED[name]
    step = play(shell, task, command, DONE)
    assert (step.reward, step.terminated) == (0.0, True)


@pytest.mark.slow
@needs_jail
def test_settings_in_the_agents_home_do_not_speak_for_git() -> None:
    command = "git config core.fsmonitor"
    entries = json.loads(encode_files({".gitconfig": "[core]\n\tfsmonitor = /repo/x\n"}))
    for check in (Prints(command=command, fails=True), Passes(command=f"! {command}", files={})):
        assert grade(ShellTask(goal="", files={}, solution=(), checks=(check,)), entries, Limits(), 5.0)


ODD = {
    "names of no language": "touch $'\\377\\376' $'new\\nline' '$(x)' -- -rf",
    "deep folders": "for i in $(seq 1200); do mkdir d && cd d; done; cd /repo",
    "links in circles": "ln -s . loop; ln -s b a; ln -s a b; ln -s /etc etc; ln -s /nowhere gone",
    "pipes and sockets": "mkfifo p; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    "folders nobody may enter": "mkdir closed; touch closed/x; chmod 000 closed",
    "large files": "head -c 15000000 /dev/zero > /tmp/a; cp /tmp/a a",
    "processes": "sleep 99 & setsid sleep 99 &",
    "a shell in another's place": "exec true",
    "options of the shell": "set -euo pipefail; trap 'exit 3' EXIT; shopt -s extglob",
}


@pytest.mark.slow
@needs_jail
@pytest.mark.parametrize("name", ODD)
def test_what_else_is_left_does_not_matter(name: str) -> None:
    shell = create({"command_s": 2})
    assert play(shell, COMMIT, ODD[name], f"cd /repo; {SOLVE[COMMIT]}", DONE).reward == 1.0


def test_a_file_is_compared_but_for_spaces_at_ends_of_lines() -> None:
    (entry,) = json.loads(encode_files({"a": "x  \ny\n\n"}))
    assert _holds(FileIs(path="a", text="x\ny"), [entry])
    assert not _holds(FileIs(path="a", text="x\n y"), [entry])
    assert not _holds(FileIs(path="b", text="x\ny"), [entry])


def test_only_history_is_kept_of_a_repository() -> None:
    names = (".git", ".git/HEAD", ".git/config", ".git/hooks", ".git/hooks/x", ".git/refs/heads/main", "a/.git/config")
    entries = [{"path": name, "kind": "folder" if name == ".git" else "file", "data": ""} for name in names]
    assert [entry["path"] for entry in _clean(entries)] == [
        *(".git", ".git/HEAD", ".git/refs/heads/main", "a/.git/config", ".git/config")
    ]


def test_a_folder_is_packed_and_unpacked(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    unpack_tree(str(first), encode_files({"a/b.sh": "#!x", "c\udcff": b"\xff"}))
    (first / "link").symlink_to("nowhere")
    unpack_tree(str(second), pack_tree(str(first), 1000))
    assert pack_tree(str(second), 1000) == pack_tree(str(first), 1000)
    assert (second / "a/b.sh").stat().st_mode & 0o777 == 0o755
    with pytest.raises(ValueError, match="more than 3 bytes"):
        pack_tree(str(first), 3)
