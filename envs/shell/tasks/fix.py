"""Tasks of fixing what is broken: a function, a file of settings, an import, a script."""

from __future__ import annotations

import json
import shlex

from .functions import FUNCTIONS
from .task import Draw, Prints, ShellTask, call_python, quote_json

__all__ = ["fix_function", "fix_import", "fix_script", "fix_settings"]


def replace_in(path: str, old: str, new: str) -> str:
    """A command that replaces a text, taken literally, wherever a file holds it."""
    pattern = "".join(f"\\{letter}" if letter in "\\/.*[]^$" else letter for letter in old)
    replacement = "".join(f"\\{letter}" if letter in "\\/&" else letter for letter in new)
    return f"sed -i {shlex.quote(f's/{pattern}/{replacement}/')} {path}"


def fix_function(draw: Draw) -> ShellTask:
    function, module = draw.rng.choice(FUNCTIONS), draw.word()
    path, wrong = f"{module}.py", draw.number(0, 1)
    return ShellTask(
        goal=f"{function.name}() in {path} does not do what its docstring says. Correct it.",
        files={path: function.mutant(wrong), "README.md": f"# {module}\n\nOne function of use.\n"},
        solution=(f"cat {path}", replace_in(path, function.wrong[wrong], function.right)),
        checks=tuple(
            Prints(command=call_python(module, call), output=value)
            for call, value in (*function.hidden, function.shown, function.weak)
        ),
    )


def fix_settings(draw: Draw) -> ShellTask:
    names = draw.words(4)
    settings = {name: draw.number(1, 999) for name in names}
    path, text = f"config/{draw.word()}.json", quote_json(settings)
    first, last = f'"{names[0]}": {settings[names[0]]},', f'"{names[3]}": {settings[names[3]]}'
    right, wrong = draw.rng.choice(((first, first[:-1]), (last, f"{last},")))
    what = "lacks a comma" if right == first else "has a comma too many"
    return ShellTask(
        goal=f"{path} is no valid JSON: it {what}. Correct it, and leave the values as they are.",
        files={path: text.replace(right, wrong)},
        solution=(f"cat {path}", replace_in(path, wrong, right)),
        checks=(
            Prints(command=f"python3 -m json.tool --compact --sort-keys {path}", output=_compact(settings)),
            Prints(command="ls config", output=path.partition("/")[2]),
        ),
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def fix_import(draw: Draw) -> ShellTask:
    old, new, main, other = draw.words(4)
    factor = draw.number(2, 9)
    source = f"import sys\n\nfrom {old} import scale\nimport {other}\n\nprint({other}.show(scale(int(sys.argv[1]))))\n"
    return ShellTask(
        goal=f"{old}.py has been renamed to {new}.py, and now {main}.py fails. Make 'python3 {main}.py 3' work again; "
        "rename no file.",
        files={
            f"{main}.py": source,
            f"{new}.py": f"def scale(number):\n    return {factor} * number\n",
            f"{other}.py": 'def show(value):\n    return f"result {value}"\n',
        },
        solution=(f"python3 {main}.py 3", replace_in(f"{main}.py", f"from {old}", f"from {new}")),
        checks=(
            *(
                Prints(command=f"python3 {main}.py {n}", output=f"result {factor * n}")
                for n in (4, 11, draw.number(20, 99))
            ),
            Prints(command="ls *.py", output="\n".join(sorted(f"{name}.py" for name in (main, new, other)))),
        ),
    )


def fix_script(draw: Draw) -> ShellTask:
    name, first, second, third = draw.words(4)
    counts = [draw.number(2, 9) for _ in range(2)]
    hidden = {f"{second} {third}.txt": "x\n" * counts[0], f"{third}.txt": "x\n" * counts[1]}
    given = " ".join(map(shlex.quote, hidden))
    return ShellTask(
        goal=f"'bash {name}.sh FILE...' prints how many lines each file has, but fails for a file such as "
        f"'{first} {name}.txt' with a space in its name. Correct {name}.sh.",
        files={
            f"{name}.sh": 'for file in "$@"; do\n  wc -l < $file\ndone\n',
            f"{first} {name}.txt": f"{first}\n" * draw.number(2, 9),
        },
        solution=(f"cat {name}.sh", replace_in(f"{name}.sh", "$file", '"$file"')),
        checks=(
            Prints(command=f"bash {name}.sh {given}", output="\n".join(map(str, counts)), files=hidden),
            Prints(command=f"bash {name}.sh {third}.txt", output=str(counts[1])),
        ),
    )
