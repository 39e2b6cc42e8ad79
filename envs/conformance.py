"""The suite that every environment must pass, ours or a user's, in this process or behind a URL.

`CHECKS` are plain async functions that take a `Subject` and raise `Violation`; a test may run them one by one,
`run_checks` runs them all.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from .clients.client import HttpEnv
from .clients.supervise import ServeCommand, ServerProcess
from .errors import EnvError, EpisodeOver, UnknownSplit, UnknownTask
from .protocol import TOOL_NAME, EnvClient, Session, Status, Step, score_of
from .releases import Ids

__all__ = [
    "BAD_ACTIONS",
    "CHECKS",
    "CheckResult",
    "ConformanceCheck",
    "Subject",
    "Transcript",
    "Violation",
    "play_transcript",
    "run_checks",
]


class Violation(Exception):
    """A broken rule of the contract, with the task that showed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An environment under examination."""

    client: EnvClient
    command: ServeCommand | None = None
    """How to start it in a process of its own; without it the checks across processes are left out."""
    num_tasks: int = 8
    """Tasks looked at, spread evenly over each split."""
    tasks: Sequence[str] = ()
    """Those looked at instead."""
    max_steps: int = 100
    neighbours: int = 32
    expert_share: float = 1.0
    """Share of the tasks for which an expert must solve what it claims to solve."""
    varying: Sequence[str] = ()
    """Tools whose results may differ from one episode to the next, such as one that tells the time."""
    released_ids: Mapping[str, Ids] = field(default_factory=dict)
    """What splits must begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    check: str
    passed: bool
    detail: str = ""
    """What was violated, why the check was skipped, or what it found."""


class Skipped(Exception):
    """The subject gives nothing to check here."""


ConformanceCheck: TypeAlias = Callable[[Subject], Awaitable[str | None]]
"""Returns what it found, if anything."""
Seen: TypeAlias = tuple[str, float, bool, bool, str]
Transcript: TypeAlias = tuple[Seen, ...]
"""What was seen and earned, step by step."""
Played: TypeAlias = tuple[tuple[str, Seen], ...]
"""Each action with what followed it; first the opening, which follows none."""

BAD_ACTIONS: Mapping[str, str] = {
    "empty": "",
    "blank": " \t\n ",
    "nonsense": "qwertz",
    "huge": "get " * 20_000,
    "unicode": "gét 1 öak 🪵 \u202e\u0661",
    "control characters": "get 1 oak\x00\x1b[2J\x07",
    "half a surrogate pair": "get \ud800",
    "markup": "<tool_call>{}</tool_call>",
    "format": "{0} %s ${HOME} {goal}",
}


_NOTHING = ("", "noop", "wait", "look around", "inventory", BAD_ACTIONS["nonsense"])
"""Nothing said, what does nothing where it is understood, and what is understood nowhere."""


async def run_checks(subject: Subject, checks: Sequence[ConformanceCheck] | None = None) -> tuple[CheckResult, ...]:
    return tuple([await _run(check, subject) for check in checks or CHECKS])


async def _run(check: ConformanceCheck, subject: Subject) -> CheckResult:
    name = check.__name__.replace("_", " ")
    try:
        found = await check(subject)
    except Skipped as reason:
        return CheckResult(check=name, passed=True, detail=f"left out: {reason}")
    except (Violation, EnvError) as error:
        return CheckResult(check=name, passed=False, detail=str(error))
    return CheckResult(check=name, passed=True, detail=found or "")


# --- playing ---


async def play_transcript(client: EnvClient, task: str, seed: int, max_steps: int) -> Transcript:
    """Play an episode by what the environment itself suggests, with nonsense now and then."""
    return tuple(seen for _, seen in await _play(client, task, seed, max_steps))


async def _play(
    client: EnvClient,
    task: str,
    seed: int,
    max_steps: int,
    varying: Sequence[str] = (),
    begun: asyncio.Event | None = None,
) -> Played:
    """Play like `play_transcript`, but leave out what the varying tools answer; `begun` is set after the first step."""
    session = await client.open(task, seed)
    played = [("", (session.first.text, 0.0, False, False, "reset"))]
    suggestions = await _suggestions(client, session, task, seed)
    try:
        for number in range(max_steps):
            action = await _some_action(session, number, suggestions)
            step = await session.step(action)
            varies = not {*_called(action)}.isdisjoint(varying)
            played.append((action, _seen(step) if not varies else ("", *_seen(step)[1:])))
            if step.ended:
                break
            if begun is not None:
                begun.set()
                # calls that never wait would give the neighbours no turn
                await asyncio.sleep(0)
    finally:
        if begun is not None:
            begun.set()
        await session.close()
    return tuple(played)


async def _suggestions(client: EnvClient, session: Session, task: str, seed: int) -> Iterator[str]:
    """Where there is no advice, the expert's actions except the last, which would end the episode."""
    if await session.advice() is not None:
        return iter(())
    return iter((await client.expert(task, seed) or ())[:-1])


async def _some_action(session: Session, number: int, suggestions: Iterator[str]) -> str:
    if number % 5 == 4:
        return BAD_ACTIONS["nonsense"]
    if number % 3 == 1:
        suggested = await session.noise_action(number)
    else:
        suggested = next(suggestions, None) or await session.advice()
    listed = session.first.valid_actions or ("",)
    return suggested if suggested is not None else listed[number % len(listed)]


def _called(action: str) -> list[str]:
    """The tools that an action calls, if it calls any."""
    try:
        data = json.loads(action)
    except (ValueError, RecursionError):
        return []
    calls = data if isinstance(data, list) else [data]
    return [call["name"] for call in calls if isinstance(call, dict) and isinstance(call.get("name"), str)]


def _seen(step: Step) -> Seen:
    return step.observation.text, step.reward, step.terminated, step.truncated, step.status.value


async def _sample(subject: Subject) -> list[str]:
    """The tasks that were named, or some spread evenly over every split, each once."""
    if subject.tasks:
        return list(subject.tasks)
    splits = (await subject.client.spec()).splits
    tasks: dict[str, None] = {}
    for split in splits:
        ids = [task.id for task in await subject.client.tasks(split)]
        stride = max(1, len(ids) // subject.num_tasks)
        tasks |= dict.fromkeys(islice(ids, 0, None, stride))
    if not tasks:
        raise Skipped("no task is known")
    spread = max(1, len(tasks) // subject.num_tasks)
    return list(tasks)[::spread]


async def _list_first_split(client: EnvClient) -> list[str]:
    splits = (await client.spec()).splits
    return [task.id for task in await client.tasks(splits[0])] if splits else []


async def _play_all(subject: Subject, client: EnvClient, tasks: Sequence[str]) -> list[Played]:
    return [await _play(client, task, 7, subject.max_steps, subject.varying) for task in tasks]


async def _play_crowd(subject: Subject, tasks: Sequence[str]) -> list[Played]:
    """Play tasks at the same time, in turns; half of them begin while the others play."""
    begun = asyncio.Event()

    async def play(number: int, task: str) -> Played:
        if number % 2:
            await begun.wait()
        return await _play(subject.client, task, 7, subject.max_steps, subject.varying, begun)

    return await asyncio.gather(*(play(number, task) for number, task in enumerate(tasks)))


def _require(holds: bool, violation: str) -> None:
    if not holds:
        raise Violation(violation)


def _require_same(tasks: Sequence[str], first: Sequence[Played], second: Sequence[Played], when: str) -> None:
    for task, one, other in zip(tasks, first, second, strict=True):
        if one == other:
            continue
        pairs = enumerate(zip(one, other, strict=False))
        number = next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
        action = (*one, *other[len(one) :])[number][0]
        raise Violation(f"task '{task}' went another way {when}, from step {number} on{_blame(action)}")


def _blame(action: str) -> str:
    """Which tools caused it, if any, and what to do."""
    names = list(dict.fromkeys(_called(action)))
    if not names:
        return ""
    tools = " and ".join(f"'{name[:60]}'" for name in names)
    options = " ".join(f"--varying {name[:60]}" for name in names)
    return (
        f": the same call of {tools} had another result; take it away from the agent by an option of the environment"
        f" (of mcp: 'excluded'), or accept that results vary with '{options}'"
    )


# --- the checks ---


async def splits_hold_tasks_with_unique_ids(subject: Subject) -> None:
    spec = await subject.client.spec()
    if not spec.splits and subject.tasks:
        raise Skipped("it lists no tasks")
    _require(len(spec.splits) > 0, "it lists no tasks: name those to check, with '--task ID'")
    for split in spec.splits:
        ids = [task.id for task in await subject.client.tasks(split)]
        _require(len(set(ids)) == len(ids), f"split '{split}' lists a task twice")
        _require(all(ids), f"split '{split}' has a task without an id")
        again = [task.id for task in await subject.client.tasks(split)]
        _require(ids == again, f"split '{split}' lists its tasks in another order when asked again")


async def ids_are_those_of_earlier_releases(subject: Subject) -> None:
    if not subject.released_ids:
        raise Skipped("none were written down with these options")
    for split, released in subject.released_ids.items():
        ids = [task.id for task in await subject.client.tasks(split)]
        _require(released.begin(ids), f"split '{split}' no longer begins with the ids it had")


async def train_and_test_share_no_task(subject: Subject) -> None:
    spec = await subject.client.spec()
    if not {"train", "test"} <= set(spec.splits):
        raise Skipped("there are no splits called train and test")
    train, test = [{task.id for task in await subject.client.tasks(split)} for split in ("train", "test")]
    _require(not train & test, f"'{next(iter(train & test), '')}' is in train and in test")


async def unknown_splits_and_tasks_are_refused(subject: Subject) -> None:
    await _refused(subject.client.tasks("no-such-split"), UnknownSplit, "an unknown split")
    if not (await subject.client.spec()).splits:
        raise Skipped("it lists no tasks")
    await _refused(subject.client.open("no-such-task", 0), UnknownTask, "an unknown task")


async def same_task_and_seed_give_the_same_episode_twice(subject: Subject) -> None:
    tasks = await _sample(subject)
    first = await _play_all(subject, subject.client, tasks)
    second = await _play_all(subject, subject.client, tasks)
    _require_same(tasks, first, second, "the second time")


async def neighbours_change_nothing(subject: Subject) -> None:
    tasks = await _sample(subject)
    alone = await _play_all(subject, subject.client, tasks)
    wanted = [tasks[number % len(tasks)] for number in range(max(subject.neighbours, len(tasks)))]
    crowd = await _play_crowd(subject, wanted)
    _require_same(wanted, [alone[tasks.index(task)] for task in wanted], crowd, f"among {len(wanted)} neighbours")


async def another_process_with_another_hash_seed_gives_the_same_episode(subject: Subject) -> None:
    if subject.command is None:
        raise Skipped("it cannot be started in a process of its own from here")
    tasks = await _sample(subject)
    here = await _play_all(subject, subject.client, tasks)
    ids = await _list_first_split(subject.client)
    for hash_seed in ("1", "4242"):
        there, ids_there = await _elsewhere(subject, subject.command, tasks, hash_seed)
        _require(ids == ids_there, f"the ids are others in another process, with PYTHONHASHSEED={hash_seed}")
        _require_same(tasks, here, there, f"in another process, with PYTHONHASHSEED={hash_seed}")


async def _elsewhere(
    subject: Subject, command: ServeCommand, tasks: Sequence[str], hash_seed: str
) -> tuple[list[Played], list[str]]:
    environ: Mapping[str, str] = {**command.environ, "PYTHONHASHSEED": hash_seed}
    moved = ServeCommand(
        env=command.env,
        options=command.options,
        arguments=command.arguments,
        environ=environ,
        program=command.program,
    )
    with TemporaryDirectory(prefix="agym-check-") as folder:
        async with ServerProcess(moved, log=Path(folder) / "server.log") as server:
            client = HttpEnv(server.url)
            try:
                return await _play_all(subject, client, tasks), await _list_first_split(client)
            finally:
                await client.close()


async def the_expert_solves_what_it_claims(subject: Subject) -> str:
    spec, tasks = await subject.client.spec(), await _sample(subject)
    scores = [score for task in tasks if (score := await _expert_score(subject, task)) is not None]
    if not scores:
        raise Skipped("there is no expert")
    solved = sum(math.isclose(score, spec.score_range[1]) for score in scores)
    share = solved / len(scores)
    _require(share >= subject.expert_share, f"the expert solves {share:.0%} of what it claims to solve")
    return f"{solved} of the {len(scores)} that it claims, of {len(tasks)}"


async def _expert_score(subject: Subject, task: str) -> float | None:
    actions = await subject.client.expert(task, 3)
    if actions is None:
        return None
    session = await subject.client.open(task, 3)
    try:
        rewards: list[float] = []
        for action in actions:
            step = await session.step(action)
            rewards.append(step.reward)
            if step.ended:
                break
        return score_of((await subject.client.spec()).score, rewards)
    finally:
        await session.close()


async def doing_nothing_earns_nothing_even_after_an_expert(subject: Subject) -> str:
    """What one episode has done is neither seen nor rewarded in the next, on the same server."""
    top, trivial = (await subject.client.spec()).score_range[1], await _trivial(subject)
    tasks = [task for task in await _sample(subject) if task not in trivial]
    experts = {task: await subject.client.expert(task, 3) for task in tasks}
    closing, num_shown = _closing(experts.values()), 0
    for task, actions in experts.items():
        nothing = (*_NOTHING, *([_emptied(actions[-1]), *closing] if actions else []))
        before = await _play_nothing(subject, task, nothing)
        await _require_unsolved(subject, task, before, top, "")
        if actions:
            await _expert_score(subject, task)
            after = await _play_nothing(subject, task, nothing)
            await _require_unsolved(subject, task, after, top, " after the expert has solved it")
            _require(before == after, f"doing nothing in '{task}' goes another way after the expert has played")
            num_shown += 1
    return f"{num_shown} of the {len(tasks)} after an expert"


async def _trivial(subject: Subject) -> set[str]:
    splits = (await subject.client.spec()).splits
    return {task.id for split in splits for task in await subject.client.tasks(split) if task.trivial}


async def _play_nothing(subject: Subject, task: str, actions: Sequence[str]) -> list[tuple[str, Transcript]]:
    """Give every action, in as many episodes as that takes; return each with its last action."""
    left, episodes = list(dict.fromkeys(actions)), list[tuple[str, Transcript]]()
    while left:
        session = await subject.client.open(task, 3)
        seen, action = [(session.first.text, 0.0, False, False, "reset")], ""
        try:
            while left and not any(seen[-1][2:4]):
                action = left.pop(0)
                seen.append(_seen(await session.step(action)))
        finally:
            await session.close()
        episodes.append((action, tuple(seen)))
    return episodes


async def _require_unsolved(
    subject: Subject, task: str, episodes: Sequence[tuple[str, Transcript]], top: float, when: str
) -> None:
    fold = (await subject.client.spec()).score
    for action, seen in episodes:
        solved = score_of(fold, [reward for _, reward, *_ in seen[1:]]) >= top
        _require(not solved, f"doing nothing solves task '{task}'{when}: {action[:60]!r} is enough")


def _closing(experts: Iterable[Sequence[str] | None]) -> tuple[str, ...]:
    """The word that all experts end with after other actions, such as `done`: on its own it does nothing. Others may be
    an answer."""
    known = [actions for actions in experts if actions]
    words = {actions[-1] if len(actions) > 1 else "" for actions in known}
    return tuple(word for word in words if len(words) == 1 and word.isalpha())


def _emptied(action: str) -> str:
    """The same action with nothing in it, as an answer without a text."""
    try:
        data = json.loads(action)
    except ValueError:
        word, more, _ = action.partition(" ")
        return re.sub(r"\[.*\]", "[]", action, flags=re.DOTALL) if "[" in action else word if more else ""
    if not isinstance(data, dict) or not isinstance(data.get("arguments"), dict):
        return ""
    return json.dumps({**data, "arguments": dict.fromkeys(data["arguments"], "")})


async def advice_leads_to_the_goal_from_anywhere(subject: Subject) -> None:
    spec, tasks = await subject.client.spec(), await _sample(subject)
    for task in tasks:
        session = await subject.client.open(task, 5)
        try:
            if await session.advice() is None:
                raise Skipped("there is no advice")
            score = await _advised(session, subject.max_steps)
        finally:
            await session.close()
        _require(score == spec.score_range[1], f"advice does not lead to the goal of '{task}' after noise")


async def _advised(session: Session, max_steps: int) -> float:
    """The last reward after noise on every third of the first thirty steps and advice on all others."""
    for number in range(max_steps):
        noise = await session.noise_action(number) if number % 3 == 0 and number < 30 else None
        action = noise if noise is not None else await session.advice()
        if action is None:
            break
        step = await session.step(action)
        if step.ended:
            return step.reward
    return -math.inf


async def hindsight_tells_of_other_tasks_of_training(subject: Subject) -> None:
    if "train" not in (await subject.client.spec()).splits:
        raise Skipped("there is no split called train")
    taught = {task.id for task in await subject.client.tasks("train")}
    for task in await _sample(subject):
        actions = await _actions(subject, task, 5)
        reached = await subject.client.hindsight(task, 5, actions)
        if reached is None:
            raise Skipped("there is no hindsight")
        told = [each.task for each in reached]
        _require(len(set(told)) == len(told), f"hindsight tells twice of a task that '{task}' led to")
        _require(
            set(told) <= taught - {task}, f"hindsight of '{task}' tells of a task that is none of training's others"
        )
        _require(task in taught or not told, f"hindsight tells what the held-out task '{task}' led to")
        _require(
            all(0 < each.actions <= len(actions) for each in reached),
            f"hindsight of '{task}' names actions that were never given",
        )


async def _actions(subject: Subject, task: str, seed: int) -> list[str]:
    """Actions of a played episode, noise and nonsense included."""
    session = await subject.client.open(task, seed)
    actions: list[str] = []
    try:
        for number in range(subject.max_steps):
            actions.append(await _some_action(session, number, iter(())))
            if (await session.step(actions[-1])).ended:
                break
    finally:
        await session.close()
    return actions


async def scores_stay_in_their_range(subject: Subject) -> None:
    spec, tasks = await subject.client.spec(), await _sample(subject)
    low, high = spec.score_range
    for task in tasks:
        seen = await play_transcript(subject.client, task, 11, subject.max_steps)
        score = score_of(spec.score, [reward for _, reward, *_ in seen[1:]])
        _require(low <= score <= high, f"task '{task}' ended with a score of {score}, outside {low} to {high}")


async def an_episode_ends_at_most_one_way(subject: Subject) -> None:
    for task in await _sample(subject):
        seen = await play_transcript(subject.client, task, 13, subject.max_steps)
        both = [number for number, (_, _, terminated, truncated, _) in enumerate(seen) if terminated and truncated]
        _require(not both, f"task '{task}' both terminated and truncated, at step {both and both[0]}")


async def tools_take_calls_as_actions(subject: Subject) -> str:
    """Each tool's schema is that of an object, and a call of a tool that does not exist is not understood.

    Where every text is a turn, the call is one more text: then it must not solve the task.
    """
    tools = (await subject.client.spec()).tools
    if not tools:
        raise Skipped("it has no tools")
    for tool in tools:
        _require(TOOL_NAME.fullmatch(tool.name) is not None, f"the tool '{tool.name[:60]}' has an unusable name")
        _require(tool.parameters.get("type") == "object", f"the parameters of '{tool.name}' are not of type 'object'")
    await _require_no_such_tool(subject, (await _sample(subject))[0])
    return f"{len(tools)} tools"


async def _require_no_such_tool(subject: Subject, task: str) -> None:
    spec, call = await subject.client.spec(), json.dumps({"name": "no-such-tool", "arguments": {}})
    if spec.free_text:
        played = await _play_nothing(subject, task, (call,))
        await _require_unsolved(subject, task, played, spec.score_range[1], "")
        return
    session = await subject.client.open(task, 0)
    try:
        step = await session.step(call)
    finally:
        await session.close()
    _require(step.status is Status.INVALID, "a call of a tool that is not there was understood")


async def stepping_after_the_end_is_refused(subject: Subject) -> None:
    for task in await _sample(subject):
        session = await subject.client.open(task, 3)
        try:
            if await _play_to_the_end(subject, session, task):
                await _refused(session.step("inventory"), EpisodeOver, f"a step after the end of '{task}'")
                return
        finally:
            await session.close()
    raise Skipped("no episode could be brought to its end")


async def _play_to_the_end(subject: Subject, session: Session, task: str) -> bool:
    for action in await subject.client.expert(task, 3) or [""] * subject.max_steps:
        if (await session.step(action)).ended:
            return True
    return False


async def bad_actions_are_answered_and_change_no_score(subject: Subject) -> None:
    """Each is answered by an observation, adds nothing to the score, and leaves the episode playable.

    Where every text is a turn, one may end the episode and need not be called wrong: then it must not solve the task.
    """
    spec, task = await subject.client.spec(), (await _sample(subject))[0]
    if spec.free_text:
        for action in BAD_ACTIONS.values():
            await _require_unsolved(
                subject, task, await _play_nothing(subject, task, (action,)), spec.score_range[1], ""
            )
        return
    for name, action in BAD_ACTIONS.items():
        session = await subject.client.open(task, 0)
        try:
            before = await session.step(action)
            after = await session.step(action)
        finally:
            await session.close()
        _require(before.status is not Status.OK, f"the action '{name}' was taken for a good one")
        _require(len(before.observation.text) < 2_000, f"the answer to the action '{name}' repeats it at length")
        _require(before.reward == after.reward, f"the action '{name}' changed the score")
        _require(not before.ended and spec.score_range[0] <= before.reward, f"the action '{name}' ended the episode")


async def closing_twice_is_harmless_and_stepping_after_it_refused(subject: Subject) -> None:
    session = await subject.client.open((await _sample(subject))[0], 0)
    await session.close()
    await session.close()
    await _refused(session.step("inventory"), EpisodeOver, "a step after the close")


async def _refused(call: Awaitable[object], expected: type[EnvError], what: str) -> None:
    try:
        await call
    except expected:
        return
    except EnvError as error:
        raise Violation(f"{what} raised {type(error).__name__}, not {expected.__name__}") from error
    raise Violation(f"{what} was not refused")


CHECKS: Sequence[ConformanceCheck] = (
    splits_hold_tasks_with_unique_ids,
    ids_are_those_of_earlier_releases,
    train_and_test_share_no_task,
    unknown_splits_and_tasks_are_refused,
    same_task_and_seed_give_the_same_episode_twice,
    neighbours_change_nothing,
    another_process_with_another_hash_seed_gives_the_same_episode,
    the_expert_solves_what_it_claims,
    doing_nothing_earns_nothing_even_after_an_expert,
    advice_leads_to_the_goal_from_anywhere,
    hindsight_tells_of_other_tasks_of_training,
    scores_stay_in_their_range,
    an_episode_ends_at_most_one_way,
    tools_take_calls_as_actions,
    stepping_after_the_end_is_refused,
    bad_actions_are_answered_and_change_no_score,
    closing_twice_is_harmless_and_stepping_after_it_refused,
)
