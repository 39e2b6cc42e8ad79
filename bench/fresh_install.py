"""The wheel in fresh virtual environments: the base install, every extra resolved, one extra installed.

    python bench/fresh_install.py [--install serve]

Needs the package index. For each extra: how many packages pip would install, or what it says. The base and the extra
that is installed are tried: a recipe is validated, and an environment checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the wheel as a newcomer would.")
    parser.add_argument("--install", default="serve", help="the extra to install and try")
    arguments = parser.parse_args()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    with TemporaryDirectory(prefix="agym-fresh-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
        (wheel,) = folder.glob("*.whl")
        python = make_environment(folder / "base", str(wheel))
        checked = run(python, "-m", "agym", "validate", "quickstart").strip()
        print(f"base: {count(python)} packages; validate: {checked}")
        for extra in extras:
            print(f"{extra}: {resolve(python, f'{wheel}[{extra}]', folder / 'report.json')}", flush=True)
        python = make_environment(folder / "extra", f"{wheel}[{arguments.install}]")
        print(f"{arguments.install} installed: {count(python)} packages")
        print(run(python, "-m", "agym", "envs", "check", "textcraft").strip().splitlines()[-1])


def make_environment(folder: Path, requirement: str) -> str:
    run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--upgrade", "pip")
    run(python, "-m", "pip", "install", "-q", requirement)
    return python


def resolve(python: str, requirement: str, report: Path) -> str:
    """How many packages pip would install, or its last line."""
    words = ("-m", "pip", "install", "-q", "--dry-run", "--report", str(report), requirement)
    done = subprocess.run([python, *words], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        return "does not resolve: " + done.stderr.strip().splitlines()[-1]
    return f"resolves, {len(json.loads(report.read_text())['install'])} more packages"


def count(python: str) -> int:
    return len(json.loads(run(python, "-m", "pip", "list", "--format", "json")))


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=900, cwd="/").stdout


if __name__ == "__main__":
    main()
