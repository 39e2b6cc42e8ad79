"""How tests are run: by pytest, in a process in which the standard library and pytest are what they are outside."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from .files import NeedsImage

__all__ = ["CONFIGS", "RUN", "check_imports", "write_runner"]

CONFIGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
"""Files in which pytest looks for its settings."""
RUN = "python3 -I -X pycache_prefix=/nonexistent /tests/.pytest.py"
"""Compiled files that lie near tests are not looked at: they could be of other tests."""
_RUNNER = """\
import json, os, sys
from importlib.machinery import PathFinder

sys.path.insert(0, '/opt/pytest')
PATH = [*sys.path]
OWN = {*sys.stdlib_module_names, *(name.split('.')[0] for name in os.listdir('/opt/pytest'))} - {'test'}


class Own:
    # modules of Python and of pytest are theirs, whatever the work folder has by such a name
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, PATH) if path is None and name in OWN else None


class Count:
    # a test that is skipped shows nothing
    passed = skipped = 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.passed and report.when == 'call'
        self.skipped += report.skipped and not hasattr(report, 'wasxfail')

    def pytest_collectreport(self, report):
        self.skipped += report.skipped


sys.meta_path.insert(sys.meta_path.index(PathFinder), Own)
# a package in the work folder may call itself a plugin
os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'
import pytest

with open('/tests/.pytest.json') as file:
    given = json.load(file)
sys.path[:0] = given['path']
count = Count()
code = pytest.main(given['arguments'], [count])
sys.exit(code or (0 if count.passed and not count.skipped else 1))
"""


def write_runner(arguments: Sequence[str], path: Sequence[str] = ()) -> Mapping[str, bytes]:
    """The files of `RUN`: pytest's arguments, and folders that modules are imported from."""
    given = {"arguments": ["-q", "-p", "no:cacheprovider", *arguments], "path": [*path]}
    return {".pytest.py": _RUNNER.encode(), ".pytest.json": json.dumps(given).encode()}


def check_imports(name: str, code: bytes, near: Collection[str], *, whole: bool = True) -> None:
    """A test that cannot be imported would fail whatever the agent did. Where the `whole` is not run, only what is
    imported in any case is looked at."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NeedsImage(f"{name} is no Python") from error
    for module in _imported(ast.walk(tree) if whole else tree.body):
        if module not in sys.stdlib_module_names and module not in near and module not in ("pytest", "_pytest"):
            raise NeedsImage(f"{name} imports {module[:40]}")


def _imported(nodes: Iterator[ast.AST] | Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
