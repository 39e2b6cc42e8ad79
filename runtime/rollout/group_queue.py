"""Which engine plays which group: one by one, longest expected first, to the engine with the least under way.

Nothing here waits or looks at a clock, so that a simulation can use the same code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .episode import Episode
from .groups import GroupRequest

__all__ = ["GroupQueue", "TurnLengths"]


class TurnLengths:
    """Mean tokens of a turn in each environment, of all episodes so far."""

    def __init__(self) -> None:
        self._tokens: defaultdict[str, int] = defaultdict(int)
        self._turns: defaultdict[str, int] = defaultdict(int)

    def note(self, episode: Episode) -> None:
        self._tokens[episode.task.environment] += episode.total_tokens
        self._turns[episode.task.environment] += len(episode.turns)

    def expect(self, request: GroupRequest) -> float:
        """Tokens that an episode of the group takes if it lasts to its horizon."""
        name = request.task.environment
        if not self._turns[name]:
            return float(request.limits.horizon * request.limits.tokens_per_turn)
        return request.limits.horizon * self._tokens[name] / self._turns[name]


class GroupQueue:
    """The groups of one play that no engine has yet. An engine has room while fewer episodes than its slots are under
    way: its slots are full, and no group waits at one engine while another has room."""

    def __init__(self, requests: Sequence[GroupRequest], lengths: TurnLengths, slots: int) -> None:
        self._requests, self._slots = requests, slots
        expected = [lengths.expect(request) for request in requests]
        self._waiting = sorted(range(len(requests)), key=lambda at: (-expected[at], at))
        self._under_way: dict[int, int] = {}
        """Episodes of each engine that takes part."""

    def add_engine(self, engine: int) -> None:
        self._under_way.setdefault(engine, 0)

    def remove_engine(self, engine: int) -> None:
        self._under_way.pop(engine, None)

    def assign(self) -> tuple[int, int] | None:
        """Return the next engine and the index of the request that it gets; None where none has room, or none waits."""
        free = [(episodes, engine) for engine, episodes in self._under_way.items() if episodes < self._slots]
        if not free or not self._waiting:
            return None
        _, engine = min(free)
        at = self._waiting.pop(0)
        self._under_way[engine] += self._requests[at].size
        return engine, at

    def end_episode(self, engine: int) -> None:
        if engine in self._under_way:
            self._under_way[engine] -= 1

    def give_back(self, at: int) -> None:
        """Put a group that was lost with its engine ahead of all others."""
        self._waiting.insert(0, at)
