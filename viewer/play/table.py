"""One episode played by a person: actions in, observations and rewards out, and a record by episode.v2 at its end.

Takes an open session of any environment; the caller that makes the environment hands it in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...envs.pictures import is_picture
from ...envs.protocol import EnvClient, EnvSpec, Observation, Session, Status, Step, TaskInfo, score_of
from ...runtime.storage.episode_reader import picture_name

__all__ = ["LONGEST_ACTION", "PLAYED", "Said", "Table", "WritesReplies"]

PLAYED = "played"
"""Name of the stage of what a person played."""
LONGEST_ACTION = 100_000
"""Characters of an action."""


class Said(Protocol):
    """A message of a conversation."""

    @property
    def role(self) -> str: ...

    @property
    def content(self) -> str: ...


class WritesReplies(Protocol):
    """How an agent would have said it: the format of a recipe's agent."""

    def opening(self, guide: str, observation: str) -> Sequence[Said]: ...

    def observation(self, text: str) -> Sequence[Said]: ...

    @property
    def write(self) -> Callable[[str], str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    action: str
    step: Step
    seconds: float


@dataclass(slots=True, kw_only=True)
class Table:
    """An episode under way, or one that has ended."""

    environment: str
    spec: EnvSpec
    task: TaskInfo
    seed: int
    client: EnvClient
    session: Session
    clock: Callable[[], float]
    played: list[_Played] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    """By their names, of all that was seen."""
    dropped_pictures: int = 0
    _script: tuple[str, ...] | None = None
    """The expert's solution from the start, once it was asked for."""

    def __post_init__(self) -> None:
        self._keep_picture(self.session.first)

    @property
    def is_over(self) -> bool:
        return bool(self.played) and self.played[-1].step.ended

    @property
    def score(self) -> float:
        return score_of(self.spec.score, [each.step.reward for each in self.played])

    @property
    def seen(self) -> Observation:
        """What the player sees."""
        return self.played[-1].step.observation if self.played else self.session.first

    async def act(self, action: str) -> Step:
        started = self.clock()
        step = await self.session.step(action)
        self.played.append(_Played(action=action, step=step, seconds=self.clock() - started))
        self._keep_picture(step.observation)
        return step

    async def advice(self) -> str | None:
        """What an expert would do now; if it knows only a full solution, as long as that has been followed."""
        if self.is_over:
            return None
        now = await self.session.advice()
        if now is not None:
            return now
        if self._script is None:
            self._script = await self.client.expert(self.task.id, self.seed) or ()
        done = tuple(each.action for each in self.played)
        rest = self._script[len(done) :]
        return rest[0] if rest and self._script[: len(done)] == done else None

    async def close(self) -> None:
        await self.session.close()

    # --- what is shown

    def snapshot(self) -> dict[str, Any]:
        """All that a page shows."""
        return {
            "task": self.task.id,
            "difficulty": self.task.difficulty,
            "seed": self.seed,
            "opening": self.session.first.text,
            "opening_picture": self.name_of(self.session.first),
            "turns": [self._turn(number, each) for number, each in enumerate(self.played, 1)],
            "valid_actions": None if self.is_over else self.seen.valid_actions,
            "over": self.is_over,
            "score": self.score,
            "max_turns": self.spec.max_turns,
            "dropped_pictures": self.dropped_pictures,
        }

    def _turn(self, number: int, played: _Played) -> dict[str, Any]:
        step = played.step
        return {
            "number": number,
            "action": played.action,
            "status": step.status.value,
            "observation": step.observation.text,
            "reward": step.reward,
            "state": step.info.get("state"),
            "seconds": played.seconds,
            "picture": self.name_of(step.observation),
        }

    def name_of(self, observation: Observation) -> str | None:
        """Name of an observation's picture, where it was kept."""
        if observation.picture is None:
            return None
        name = picture_name(observation.picture)
        return name if name in self.pictures else None

    def _keep_picture(self, observation: Observation) -> None:
        if observation.picture is None:
            return
        if is_picture(observation.picture):
            self.pictures[picture_name(observation.picture)] = observation.picture
        else:
            self.dropped_pictures += 1

    # --- what is kept

    def record(self, name: str, form: WritesReplies) -> dict[str, Any]:
        """The episode by episode.v2: a demonstration without tokens, as none were sampled."""
        opening = form.opening(self.spec.prompt, self.session.first.text)
        first = self.name_of(self.session.first)
        step = self.played[-1].step if self.played else None
        return {
            "version": 2,
            "purpose": "demonstration",
            "total_step": 0,
            "stage": PLAYED,
            "id": name,
            "group": name,
            "task": {
                "environment": self.environment,
                "id": self.task.id,
                "seed": self.seed,
                "difficulty": self.task.difficulty or "",
            },
            "index": 0,
            "horizon": max(len(self.played), self.spec.max_turns or 1),
            "ending": "done" if step is not None and step.terminated else "horizon",
            "score": self.score,
            "success": self.score >= self.spec.score_range[1],
            "fault": "",
            "retries": 0,
            "seconds": round(sum(each.seconds for each in self.played), 3),
            "sampled_tokens": 0,
            "total_tokens": 0,
            **({} if first is None else {"picture": first}),
            **({"dropped_pictures": self.dropped_pictures} if self.dropped_pictures else {}),
            "opening": [{"role": each.role, "content": each.content} for each in opening],
            "turns": [self._recorded(place, each, form) for place, each in enumerate(self.played)],
            "segments": [],
        }

    def _recorded(self, place: int, played: _Played, form: WritesReplies) -> dict[str, Any]:
        step, picture = played.step, self.name_of(played.step.observation)
        (told,) = form.observation(step.observation.text)
        return {
            "segment": 0,
            # there are no tokens: each reply counts as one, so that readers know where the next begins
            "start": place,
            "end": place + 1,
            "reply": form.write(played.action),
            "action": None if step.status is Status.INVALID else played.action,
            "observation": told.content,
            "reward": step.reward,
            "state": str(step.info.get("state", "")),
            "purpose": "act",
            "role": told.role,
            "seconds": {"sampling": 0, "environment": round(played.seconds, 4)},
            **({} if picture is None else {"picture": picture}),
        }
