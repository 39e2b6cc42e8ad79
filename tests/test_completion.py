"""Completion scripts, driven by the shells themselves where they are there."""

import shutil
import subprocess
from pathlib import Path

import pytest
from agym.commands import COMMANDS

from .conftest import Agym

ASK = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
$(complete -p agym | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *words: str) -> list[str]:
    """What bash would offer in place of the last word."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script), "agym", *words],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def script(agym: Agym, tmp_path: Path) -> Path:
    called = agym("completion", "bash")
    assert called.code == 0
    file = tmp_path / "agym.bash"
    file.write_text(called.out, encoding="utf-8")
    return file


def test_bash_accepts_the_script(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)


def test_bash_completes_commands(script: Path) -> None:
    assert completed(script, "") == list(COMMANDS)
    assert completed(script, "va") == ["validate"]
    assert completed(script, "rec") == ["recipes"]


def test_bash_completes_options_of_the_command_that_was_named(script: Path) -> None:
    options = {"--help", "--format", "--set", "--run", "--simulate"}
    assert set(completed(script, "plan", "quickstart", "--")) == options
    assert completed(script, "show", "--o") == ["--origins"]


def test_bash_completes_values_of_options(script: Path) -> None:
    assert completed(script, "validate", "--format", "") == ["text", "json", "github", "sarif"]
    assert completed(script, "plan", "--format", "m") == ["mermaid"]


def test_bash_completes_commands_of_a_command(script: Path) -> None:
    assert completed(script, "envs", "p") == ["play"]
    assert "--expert" in completed(script, "envs", "check", "--")


def test_bash_completes_files_where_no_words_are_known(script: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    assert completed(script, "validate", "mi") == ["mine.yaml"]
    assert completed(script, "show", "a.yaml", "--diff", "mi") == ["mine.yaml"]


def test_bash_completes_words_where_they_are_few(script: Path) -> None:
    assert completed(script, "completion", "z") == ["zsh"]
    assert "recipe" in completed(script, "schema", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_learns_commands_options_and_values(agym: Agym, shell: str) -> None:
    out = agym("completion", shell).out
    for word in (*COMMANDS, "origins", "sarif", "mermaid", "serve"):
        assert word in out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_the_script_where_they_are_installed(agym: Agym, tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    file = tmp_path / f"agym.{shell}"
    file.write_text(agym("completion", shell).out, encoding="utf-8")
    if program is not None:
        subprocess.run([program, "-n", str(file)], check=True, timeout=30)
