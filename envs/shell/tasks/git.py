"""Tasks of git: commit one file of two, merge a branch, bring back a file, find a commit."""

from __future__ import annotations

from .task import Draw, FileIs, Prints, ShellTask

__all__ = ["commit_file", "find_commit", "merge_branch", "restore_file"]

_BEGIN = "git init -q\ngit add -A\ngit commit -qm 'First files'\n"


def _commit(path: str, line: str, subject: str) -> str:
    return f"echo '{line}' >> {path}\ngit add -A\ngit commit -qm '{subject}'\n"


def commit_file(draw: Draw) -> ShellTask:
    first, second, third = draw.words(3)
    files = {f"{name}.txt": f"{name}\n" for name in (first, second)}
    subject = f"Add {third}"
    return ShellTask(
        goal=f"Two files were changed. Commit the change of {first}.txt alone, with the message '{subject}'.",
        files=files,
        setup=f"{_BEGIN}echo {third} >> {first}.txt\necho {third} >> {second}.txt\n",
        solution=(f"git add {first}.txt", f"git commit -q -m '{subject}'"),
        checks=(
            Prints(command="git log --format=%s", output=f"{subject}\nFirst files"),
            Prints(command="git show --format= --name-only HEAD", output=f"{first}.txt"),
            Prints(command=f"git show HEAD:{first}.txt", output=f"{first}\n{third}"),
            Prints(command="git status --porcelain -uno", output=f" M {second}.txt"),
        ),
    )


def merge_branch(draw: Draw) -> ShellTask:
    branch, first, second, third, fourth = draw.words(5)
    theirs, ours = f"Describe {third}", f"Describe {fourth}"
    setup = _BEGIN + f"git checkout -q -b {branch}\n" + _commit(f"{first}.txt", third, theirs)
    return ShellTask(
        goal=f"Merge the branch {branch} into main.",
        files={f"{name}.txt": f"{name}\n" for name in (first, second)},
        setup=f"{setup}git checkout -q main\n{_commit(f'{second}.txt', fourth, ours)}",
        solution=("git log --oneline --all", f"git merge -q -m 'Merge {branch}' {branch}"),
        checks=(
            Prints(command="git branch --show-current", output="main"),
            Prints(
                command="git log --no-merges --format=%s | sort",
                output="\n".join(sorted(("First files", theirs, ours))),
            ),
            Prints(
                command=f"git show HEAD:{first}.txt HEAD:{second}.txt", output=f"{first}\n{third}\n{second}\n{fourth}"
            ),
            Prints(command="git log -1 --format=%s main^2", output=theirs),
        ),
    )


def restore_file(draw: Draw) -> ShellTask:
    lost, kept, line, *others = draw.words(6)
    path = f"notes/{lost}.txt"
    setup = _BEGIN + _commit(path, line, f"Extend {lost}") + f"git rm -q {path}\ngit commit -qm 'Tidy up'\n"
    setup += "".join(_commit(f"{kept}.txt", other, f"Note {other}") for other in others)
    return ShellTask(
        goal=f"{path} was deleted some commits ago. Bring it back as it was before that.",
        files={path: f"{lost}\n", f"{kept}.txt": f"{kept}\n"},
        setup=setup,
        solution=(f'git checkout "$(git rev-list -n 1 HEAD -- {path})^" -- {path}',),
        checks=(FileIs(path=path, text=f"{lost}\n{line}"),),
    )


def find_commit(draw: Draw) -> ShellTask:
    source, *words = draw.words(7)
    subjects = {word: f"{draw.rng.choice(('Add', 'Note', 'Describe'))} {draw.word()}" for word in words}
    wanted = draw.rng.choice(words)
    return ShellTask(
        goal=f"Which commit brought the line {wanted} into {source}.txt? Write the commit's subject into answer.txt.",
        files={f"{source}.txt": f"{source}\n"},
        setup=_BEGIN + "".join(_commit(f"{source}.txt", word, subject) for word, subject in subjects.items()),
        solution=(f"git log -S {wanted} --format=%s -- {source}.txt > answer.txt",),
        checks=(FileIs(path="answer.txt", text=subjects[wanted]),),
    )
