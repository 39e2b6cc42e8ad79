"""A session in which somebody plays the other seats, so that its player only sees the agent's turns.

In a run, its own models play them; in play by hand they are played at random, in a replay as recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from ..protocol import EnvSpec, Observation, Seat, Session, Step, score_of

__all__ = ["seat_by_chance", "seat_by_record"]

Choose = Callable[[Seat, int], Awaitable[str]]
"""Gives a seat's action, by the number of those it has taken."""


async def seat_by_chance(session: Session, spec: EnvSpec) -> Session:
    """Have other seats played at random; a session without any is returned as it is."""

    async def choose(seat: Seat, number: int) -> str:
        return await session.noise_action(number) or ""

    return await _seat(session, spec, choose)


async def seat_by_record(session: Session, spec: EnvSpec, actions: Mapping[str, Sequence[str]]) -> Session:
    """Have each other seat take the actions recorded for it, and none beyond them."""

    async def choose(seat: Seat, number: int) -> str:
        recorded = actions.get(seat.name, ())
        return recorded[number] if number < len(recorded) else ""

    return await _seat(session, spec, choose)


async def _seat(session: Session, spec: EnvSpec, choose: Choose) -> Session:
    if not spec.models:
        return session
    seated = _SeatedSession(session, spec, choose)
    await seated.begin()
    return seated


class _SeatedSession:
    def __init__(self, session: Session, spec: EnvSpec, choose: Choose) -> None:
        self._session, self._spec, self._choose = session, spec, choose
        self._taken: dict[str, int] = {}
        self._earned: list[float] = []
        """By moves before the agent's first."""
        self.first: Observation = session.first

    async def begin(self) -> None:
        """Let the others play until the agent is to move."""
        step = await self._go_on(Step(observation=self._session.first))
        if self._session.first.seat is not None:
            self._earned = [step.reward]
        self.first = step.observation

    async def step(self, action: str) -> Step:
        return await self._go_on(await self._session.step(action))

    async def _go_on(self, step: Step) -> Step:
        status, rewards = step.status, [*self._earned, step.reward]
        self._earned = []
        while (seat := step.observation.seat) is not None and not step.ended:
            number = self._taken.get(seat.name, 0)
            self._taken[seat.name] = number + 1
            step = await self._session.step(await self._choose(seat, number))
            rewards.append(step.reward)
        return replace(step, status=status, reward=score_of(self._spec.score, rewards))

    async def advice(self) -> str | None:
        return await self._session.advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._session.noise_action(seed)

    async def close(self) -> None:
        await self._session.close()
