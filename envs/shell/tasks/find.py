"""Tasks of finding: where a thing is, how often it occurs; the answer goes into a file."""

from __future__ import annotations

from .task import Draw, FileIs, ShellTask

__all__ = ["count_errors", "find_largest", "find_setting", "find_twins"]

_ANSWER = "answer.txt"


def find_setting(draw: Draw) -> ShellTask:
    files = {f"src/{word}.py": f'"""Part {word}."""\n\nSIZE = {draw.number(1, 99)}\n' for word in draw.words(6)}
    name = f"{draw.word().upper()}_LIMIT"
    path = draw.rng.choice(tuple(files))
    files[path] += f"{name} = {draw.number(100, 999)}\n"
    return ShellTask(
        goal=f"One file below src sets {name}. Write its path, such as src/a.py, into {_ANSWER}.",
        files=files,
        solution=(f"grep -rl {name} src > {_ANSWER}",),
        checks=(FileIs(path=_ANSWER, text=path),),
    )


def find_largest(draw: Draw) -> ShellTask:
    words = draw.words(6)
    paths = [f"data/{word}.txt" if at % 2 else f"data/{words[0]}/{word}.txt" for at, word in enumerate(words)]
    lengths = draw.rng.sample(range(2, 40), len(paths))
    files = {path: "line\n" * length for path, length in zip(paths, lengths, strict=True)}
    largest = max(files, key=lambda path: len(files[path]))
    return ShellTask(
        goal=f"Write the path of the largest file below data, such as data/a/b.txt, into {_ANSWER}.",
        files=files,
        solution=(f"find data -type f -printf '%s %p\\n' | sort -n | tail -n 1 | cut -d' ' -f2 > {_ANSWER}",),
        checks=(FileIs(path=_ANSWER, text=largest),),
    )


def count_errors(draw: Draw) -> ShellTask:
    files, count = dict[str, str](), 0
    for word in draw.words(3):
        lines = [draw.rng.choice(("ERROR no", "INFO error gone:", "INFO", "WARNING")) for _ in range(12)]
        lines.append("ERROR lost")
        count += sum(line.startswith("ERROR") for line in lines)
        files[f"logs/{word}.log"] = "".join(f"{line} {word}\n" for line in lines)
    return ShellTask(
        goal=f"How many lines of the files below logs hold the word ERROR? Write the number into {_ANSWER}.",
        files=files,
        solution=(f"cat logs/*.log | grep -c ERROR > {_ANSWER}",),
        checks=(FileIs(path=_ANSWER, text=str(count)),),
    )


def find_twins(draw: Draw) -> ShellTask:
    files = {f"notes/{word}.txt": f"About {word}: {draw.word()}.\n" for word in draw.words(7)}
    twins = sorted(draw.rng.sample(sorted(files), 2))
    files[twins[1]] = files[twins[0]]
    return ShellTask(
        goal=f"Two files below notes hold the same. Write their paths into {_ANSWER}, one a line, sorted.",
        files=files,
        solution=(f"md5sum notes/* | sort | uniq -w 32 -D | cut -c 35- | sort > {_ANSWER}",),
        checks=(FileIs(path=_ANSWER, text="\n".join(twins)),),
    )
