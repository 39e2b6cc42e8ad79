"""Episodes played by an environment's scripted expert, in the tokens that the model itself would have produced.

Enters: a task, an environment that can advise, a share of noise. Leaves: an Episode whose `sampled` marks the tokens to
imitate. After a random action the expert is asked again from where that led, so that recovering is shown as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..dsl.algorithm import LossOn
from ..envs.protocol import Session, Status, Step, score_of
from .agents.formats import AgentFormat
from .episode import Ending, Episode, Segment, Task, Turn
from .rendering import Chat
from .rollout import Budgets, World
from .seeds import derive

__all__ = ["Demonstrator", "NoExpert"]


class NoExpert(Exception):
    """The environment knows no solution to imitate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    """Plays the expert's part."""

    chat: Chat
    encode: Callable[[str], list[int]]
    format: AgentFormat
    noise: float
    loss_on: LossOn

    async def attempt(self, world: World, task: Task, budgets: Budgets, seed: int) -> Episode:
        session = await world.client.open(task.id, task.seed)
        try:
            return await self._play(world, session, task, budgets, seed)
        finally:
            await session.close()

    async def _play(self, world: World, session: Session, task: Task, budgets: Budgets, seed: int) -> Episode:
        draws = np.random.Generator(np.random.PCG64(derive(seed, "noise")))
        everything = self.loss_on is LossOn.ALL
        opening = self.format.opening(world.spec.prompt, session.first.text, world.prompt)
        ids = self.chat.begin(opening)
        learnt = [everything] * len(ids)
        turns: list[Turn] = []
        ending = Ending.HORIZON
        while len(turns) < budgets.horizon:
            noisy = bool(draws.random() < self.noise)
            action = await self._action(session, task, noisy, derive(seed, "action", len(turns)))
            text = self.format.write(action)
            reply = [*self.encode(text), self.chat.end_of_reply]
            if len(ids) + len(reply) > budgets.context_tokens:
                ending = Ending.BUDGET
                break
            start = len(ids)
            ids += reply
            learnt += [everything or not noisy or self.loss_on is LossOn.ACTIONS] * len(reply)
            step = await session.step(action)
            turns.append(_turn(start, len(ids), text, action, step))
            if step.ended:
                ending = Ending.DONE if step.terminated else Ending.HORIZON
                break
            follow = self.chat.follow(self.format.observation(step.observation.text))
            ids += follow
            learnt += [everything] * len(follow)
        score = score_of(world.spec.score, [turn.reward for turn in turns])
        return Episode(
            task=task,
            index=0,
            segments=(_segment(ids, learnt),),
            turns=tuple(turns),
            ending=ending,
            horizon=budgets.horizon,
            score=score,
            success=score >= world.success_at,
        )

    async def _action(self, session: Session, task: Task, noisy: bool, seed: int) -> str:
        action = await session.noise_action(seed) if noisy else None
        action = action if action is not None else await session.advice()
        if action is None:
            raise NoExpert(
                f"environment '{task.environment}' knows no solution of task '{task.id}': expected an environment with "
                "an expert, or `data: {source: file, path: ...}`"
            )
        return action


def _turn(start: int, end: int, text: str, action: str, step: Step) -> Turn:
    return Turn(
        segment=0,
        start=start,
        end=end,
        reply=text,
        action=None if step.status is Status.INVALID else action,
        observation=step.observation.text,
        reward=step.reward,
    )


def _segment(ids: Sequence[int], learnt: Sequence[bool]) -> Segment:
    mask = np.asarray(learnt, np.bool_)
    mask[0] = False  # nothing predicts the first token
    return Segment(
        ids=np.asarray(ids, np.int32),
        sampled=mask,
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.full(len(ids), -1, np.int32),
    )
