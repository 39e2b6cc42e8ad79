"""Tasks of testing: a test must pass what is right and fail what is wrong."""

from __future__ import annotations

import shlex

from .fix import replace_in
from .functions import FUNCTIONS, Function, write_literal
from .task import Draw, Prints, ShellTask

__all__ = ["extend_test", "fix_test", "write_check", "write_test"]


def _assert(call: str, value: str) -> str:
    return f"assert {call} == {write_literal(value)}"


def _add(line: str, path: str) -> str:
    """A command that adds a line to a file."""
    simple = "'" in line and not set(line) & set('"$`\\')
    quoted = f'"{line}"' if simple else shlex.quote(line)
    return f"echo {quoted} >> {path}"


def _check_test(function: Function, module: str, test: str) -> tuple[Prints, ...]:
    command = f"python3 {test} > /dev/null"
    path = f"{module}.py"
    return (
        Prints(command=command, files={path: function.source}),
        *(Prints(command=command, files={path: function.mutant(number)}, fails=True) for number in range(2)),
        Prints(command=command, files={path: f"def {function.name}(*given):\n    return None\n"}, fails=True),
        Prints(command=command, files={path: function.source + "\n"}),
    )


def write_test(draw: Draw) -> ShellTask:
    function, module = draw.rng.choice(FUNCTIONS), draw.word()
    test = f"test_{module}.py"
    first = f"from {module} import {function.name}"
    return ShellTask(
        goal=f"Write {test}, a program with an assert that fails where {function.name}() of {module}.py is wrong; its "
        "docstring has an example. It must end without an error for the function as it is.",
        files={f"{module}.py": function.source},
        solution=(f"cat {module}.py", _add(first, test), _add(_assert(*function.shown), test)),
        checks=_check_test(function, module, test),
    )


def extend_test(draw: Draw) -> ShellTask:
    function, module = draw.rng.choice(FUNCTIONS), draw.word()
    test = f"test_{module}.py"
    weak = f"from {module} import {function.name}\n{_assert(*function.weak)}\n"
    return ShellTask(
        goal=f"{test} passes even where {function.name}() of {module}.py is wrong. Add an assert of the example in the "
        "function's docstring.",
        files={f"{module}.py": function.source, test: weak},
        solution=(f"cat {module}.py {test}", _add(_assert(*function.shown), test)),
        checks=_check_test(function, module, test),
    )


def fix_test(draw: Draw) -> ShellTask:
    function, module = draw.rng.choice(FUNCTIONS), draw.word()
    test = f"test_{module}.py"
    right = _assert(*function.shown)
    wrong = right.replace(" == ", " != ")
    return ShellTask(
        goal=f"{function.name}() of {module}.py is right, but the assert in {test} is not. Correct {test}.",
        files={f"{module}.py": function.source, test: f"from {module} import {function.name}\n\n{wrong}\n"},
        solution=(f"cat {test}", replace_in(test, " != ", " == ")),
        checks=_check_test(function, module, test),
    )


def write_check(draw: Draw) -> ShellTask:
    name, kind, *words = draw.words(8)
    fields = draw.number(3, 5)
    good = "".join(",".join([word, *("1" for _ in range(fields - 1))]) + "\n" for word in words)
    bad = [good + f"{words[0]},1\n", f"{good}{','.join('1' * (fields + 1))}\n", good.replace(",1", "", 1)]
    program = f'awk -F, "NF != {fields} {{bad = 1}} END {{exit bad}}" "$1"'
    command = f"bash {name}.sh checked.csv > /dev/null"
    return ShellTask(
        goal=f"Write {name}.sh so that 'bash {name}.sh FILE' ends with 0 where each line of FILE has exactly {fields} "
        f"fields, separated by commas as in {kind}.csv, and with 1 otherwise.",
        files={f"{kind}.csv": good},
        solution=(f"head -n 2 {kind}.csv", _add(program, f"{name}.sh")),
        checks=(
            Prints(command=command, files={"checked.csv": good}),
            *(Prints(command=command, files={"checked.csv": text}, fails=True) for text in bad),
            Prints(command=command, files={"checked.csv": good.replace("1", "2")}),
        ),
    )
