"""A recorded episode, played again in its environment: same task, seed and actions, up to the first difference.

What the agent did is what counts, not what it said: a reply without an action is skipped. Of what it was told, only
what came from the environment is compared: texts that a limit cut short, by the remaining part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...envs.clients.seated import seat_by_record
from ...envs.protocol import EnvClient, Observation, Session, Step
from ...runtime.agents.chat import LEFT_OUT

__all__ = ["Difference", "Replayed", "replay_episode"]

_COMPARED = 40
"""Characters at the end of a text that was cut in its middle."""
_CLOSE = 1e-6
"""Rewards are written with so many decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where the environment behaved differently."""

    turn: int
    """From 1; 0 is what was seen before the first."""
    what: str
    """`observation`, `reward` or `ending`."""
    recorded: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    turns: int
    """That were played again, up to the difference."""
    skipped: int
    """Replies without an understood action: what was sent to the environment is not recorded."""
    difference: Difference | None


async def replay_episode(client: EnvClient, record: Mapping[str, Any]) -> Replayed:
    """Play an episode again."""
    turns = [turn for turn in record["turns"] if isinstance(turn, Mapping)]
    task, done, skipped = record["task"], 0, 0
    spec, seats = await client.spec(), {str(seat["name"]): seat["actions"] for seat in record.get("seats", ())}
    told = str(record["opening"][-1]["content"]) if record["opening"] else ""
    for attempt in _attempts(turns):
        session = await seat_by_record(await client.open(str(task["id"]), int(task["seed"])), spec, seats)
        try:
            if difference := _compare_first(told, session.first):
                return Replayed(turns=done, skipped=skipped, difference=difference)
            played, passed, difference = await _play(session, attempt, done, judged="judge" in record)
        finally:
            await session.close()
        done, skipped = done + played, skipped + passed
        if difference is not None:
            return Replayed(turns=done, skipped=skipped, difference=difference)
        told = str(attempt[-1][1]["observation"]) if attempt else told
    return Replayed(turns=done, skipped=skipped, difference=None)


_Attempt = list[tuple[int, Mapping[str, Any]]]


def _attempts(turns: list[Mapping[str, Any]]) -> Iterator[_Attempt]:
    """Turns with their numbers; after a lesson a new attempt begins."""
    attempt: _Attempt = []
    for number, turn in enumerate(turns, 1):
        attempt.append((number, turn))
        if turn.get("purpose") == "lesson":
            yield attempt
            attempt = []
    yield attempt


async def _play(session: Session, attempt: _Attempt, done: int, *, judged: bool) -> tuple[int, int, Difference | None]:
    played, skipped, ended = 0, 0, False
    for number, turn in attempt:
        if turn.get("purpose", "act") != "act":
            continue
        if turn["action"] is None:
            skipped += 1
            continue
        if ended:
            return played, skipped, Difference(turn=number, what="ending", recorded="it went on", now="it had ended")
        step = await session.step(str(turn["action"]))
        played, ended = played + 1, step.ended
        if difference := _compare(number, turn, step, judged=judged):
            return played, skipped, difference
    return played, skipped, None


def _compare_first(told: str, first: Observation) -> Difference | None:
    if _is_same(told, first.text):
        return None
    return Difference(turn=0, what="observation", recorded=told, now=first.text)


def _compare(number: int, turn: Mapping[str, Any], step: Step, *, judged: bool) -> Difference | None:
    told, now = str(turn["observation"]), step.observation.text
    # what was told after the last turn may be missing from the record
    if told and not _is_same(told, now):
        return Difference(turn=number, what="observation", recorded=told, now=now)
    # under a judge the reward is the judge's
    if not judged and abs(turn["reward"] - step.reward) > _CLOSE * max(1.0, abs(step.reward)):
        return Difference(turn=number, what="reward", recorded=f"{turn['reward']:g}", now=f"{step.reward:g}")
    return None


def _is_same(told: str, now: str) -> bool:
    """Whether a text that the agent was told begins with what the environment says now, or with what a limit left."""
    told, now, cut = _letters(told), _letters(now), _letters(LEFT_OUT)
    head, found, tail = told.partition(cut)
    if found and cut not in now:
        return now.startswith(head) and now[-min(len(tail), _COMPARED) :] in tail
    # a question of the agent's own plan or memory may follow it
    return told == now or (bool(now) and told.startswith(now))


def _letters(text: str) -> str:
    """A text without its spaces: control tokens in it were broken by one."""
    return "".join(text.encode(errors="replace").decode().split())
