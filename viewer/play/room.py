"""The room in which one person plays: one environment, one episode at a time, and a folder for what is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...envs.clients.seated import seat_by_chance
from ...envs.errors import EnvError
from ...envs.protocol import EnvClient, TaskInfo
from .saving import NotSaved, save_demonstration, save_episode
from .table import LONGEST_ACTION, Table, WritesReplies

__all__ = ["CannotPlay", "Room"]

_MOST_TASKS = 200
"""That are listed at once."""
_LARGEST_SEED = 2**53
"""A browser handles no larger integer."""


class CannotPlay(Exception):
    """What is wrong, for the player."""


@dataclass(slots=True, kw_only=True)
class Room:
    """An environment that somebody plays in."""

    name: str
    client: EnvClient
    form: WritesReplies
    folder: Path
    """For what is saved."""
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    first_split: str | None = None
    first_task: str | None = None
    first_seed: int = 0
    table: Table | None = None
    _tasks: dict[str, Mapping[str, TaskInfo]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _saved: set[str] = field(default_factory=set)
    """What was saved of the episode under way."""
    _started_at: float = 0.0

    async def describe(self) -> dict[str, Any]:
        spec = await self._ask(self.client.spec())
        return {
            "name": self.name,
            "summary": spec.summary,
            "prompt": spec.prompt,
            "splits": list(spec.splits),
            "first": {"split": self.first_split, "task": self.first_task, "seed": self.first_seed},
            "folder": str(self.folder),
            "episode": self._snapshot(),
        }

    async def list_tasks(self, split: str, words: str) -> dict[str, Any]:
        """Tasks of a split whose ids hold a text."""
        tasks = await self._tasks_of(split)
        found = [each for each in tasks.values() if words.lower() in each.id.lower()]
        listed = [{"id": each.id, "difficulty": each.difficulty} for each in found[:_MOST_TASKS]]
        return {"total": len(found), "tasks": listed}

    async def _tasks_of(self, split: str) -> Mapping[str, TaskInfo]:
        if split not in self._tasks:
            self._tasks[split] = {each.id: each for each in await self._ask(self.client.tasks(split))}
        return self._tasks[split]

    async def begin(self, task: str, seed: int) -> dict[str, Any]:
        """Begin an episode; one under way is abandoned."""
        if not 0 <= seed < _LARGEST_SEED:
            raise CannotPlay(f"a seed is a whole number from 0 to {_LARGEST_SEED - 1}")
        async with self._lock:
            await self._leave()
            spec = await self._ask(self.client.spec())
            session = await self._ask(seat_by_chance(await self._ask(self.client.open(task, seed)), spec))
            known = (tasks[task] for tasks in self._tasks.values() if task in tasks)
            self._started_at, self._saved = self.wall_clock(), set()
            self.table = Table(
                environment=self.name,
                spec=spec,
                task=next(known, TaskInfo(id=task)),
                seed=seed,
                client=self.client,
                session=session,
                clock=self.clock,
            )
            return self._require().snapshot()

    async def act(self, action: str, turn: int) -> dict[str, Any]:
        """Take an action; `turn` is which one it is meant to be, so that a second click does nothing."""
        if len(action) > LONGEST_ACTION:
            raise CannotPlay(f"an action has at most {LONGEST_ACTION:,} characters")
        async with self._lock:
            table = self._require()
            if turn == len(table.played) + 1:
                if table.is_over:
                    raise CannotPlay("the episode is over: begin another")
                await self._ask(table.act(action))
            return table.snapshot()

    async def advise(self) -> dict[str, Any]:
        async with self._lock:
            return {"action": await self._ask(self._require().advice())}

    async def save(self, kind: str) -> dict[str, Any]:
        """Save what was played so far, once in each way."""
        async with self._lock:
            table, write = self._require(), _SAVING.get(kind)
            if write is None:
                raise CannotPlay(f"an episode is saved as one of {', '.join(_SAVING)}")
            if not table.played:
                raise CannotPlay("nothing was played yet")
            mark = f"{kind} {len(table.played)}"
            if mark in self._saved:
                raise CannotPlay("that is saved already")
            record = table.record(f"played-{round(1000 * self._started_at)}-{len(table.played)}", self.form)
            try:
                file = await asyncio.to_thread(write, self.folder, record, table.pictures)
            except NotSaved as error:
                raise CannotPlay(str(error)) from error
            self._saved.add(mark)
            return {"file": str(self.folder / file)}

    def picture(self, name: str) -> bytes | None:
        return None if self.table is None else self.table.pictures.get(name)

    async def close(self) -> None:
        await self._leave()
        await self.client.close()

    async def _leave(self) -> None:
        table, self.table = self.table, None
        if table is not None:
            await table.close()

    def _require(self) -> Table:
        if self.table is None:
            raise CannotPlay("no episode is under way: begin one")
        return self.table

    def _snapshot(self) -> dict[str, Any] | None:
        return None if self.table is None else self.table.snapshot()

    async def _ask(self, question: Any) -> Any:
        try:
            return await question
        except EnvError as error:
            raise CannotPlay(str(error)) from error


_SAVING: Mapping[str, Callable[[Path, Mapping[str, Any], Mapping[str, bytes]], str]] = {
    "episode": save_episode,
    "demonstration": lambda folder, record, _: save_demonstration(folder, record),
}
