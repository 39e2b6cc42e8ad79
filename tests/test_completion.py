"""Completion scripts, driven by the shells themselves where they are there."""

import shutil
import subprocess
from pathlib import Path

import pytest
from agym.commands import COMMANDS
from agym.commands.completion import command_specs
from agym.commands.parser import build_parser
from agym.reporters.completion import CommandSpec, bash, fish, zsh

from .conftest import Agym

ASK = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_agym
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *words: str) -> list[str]:
    """What bash would offer in place of the last word."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script), "agym", *words], capture_output=True, text=True, check=True, timeout=30
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
    assert completed(script, "") == [*COMMANDS, "--help", "--version"]
    assert completed(script, "va") == ["validate"]
    assert completed(script, "re") == ["recipes"]


def test_bash_completes_options_of_the_command_that_was_named(script: Path) -> None:
    assert set(completed(script, "plan", "quickstart", "--")) == {"--help", "--format", "--set", "--run"}
    assert completed(script, "show", "--o") == ["--origins"]


def test_bash_completes_values_of_options(script: Path) -> None:
    assert completed(script, "validate", "--format", "") == ["text", "json", "github", "sarif"]
    assert completed(script, "plan", "--format", "m") == ["mermaid"]


def test_bash_leaves_files_to_itself(script: Path) -> None:
    assert completed(script, "validate", "rec") == []
    assert completed(script, "show", "a.yaml", "--diff", "rec") == []


def test_bash_completes_words_where_they_are_few(script: Path) -> None:
    assert completed(script, "completion", "z") == ["zsh"]
    assert "recipe" in completed(script, "schema", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_learns_every_command_option_and_value(agym: Agym, shell: str) -> None:
    out = agym("completion", shell).out
    for command in command_specs(build_parser(COMMANDS)):
        assert command.name in out
        for option in command.options:
            assert option.lstrip("-") in out
        for values in command.values.values():
            assert all(value in out for value in values)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_the_script_where_they_are_installed(agym: Agym, tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    file = tmp_path / f"agym.{shell}"
    file.write_text(agym("completion", shell).out, encoding="utf-8")
    if program is not None:
        subprocess.run([program, "-n", str(file)], check=True, timeout=30)


def test_quotes_in_a_summary_do_not_end_the_script(tmp_path: Path) -> None:
    odd = CommandSpec(
        name="it",
        summary="don't `stop` $HERE",
        options={"--x": "it's [odd]: yes"},
        values={"--x": ()},
        words=(),
        files=True,
    )
    file = tmp_path / "odd.bash"
    file.write_text(bash((odd,)), encoding="utf-8")
    subprocess.run(["bash", "-n", str(file)], check=True, timeout=30)
    assert "don'\"'\"'t" in zsh((odd,))
    assert "don\\'t" in fish((odd,))
