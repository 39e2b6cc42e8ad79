"""What an environment leaves to a judge: kept with an episode until the answers arrive, then counted.

In: the last step of an episode, and its rewards. Out: the episode, with the score and the success that they give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...envs.errors import EnvFault, FaultKind
from ...envs.protocol import JudgeRequest, Step, score_of
from ...envs.wire import WireError, judge_from
from .env_calls import ConnectedEnv, check_score
from .episode import Episode, PendingVerdict

__all__ = ["accept_verdict", "find_pending"]


def find_pending(step: Step | None, rewards: Sequence[float], turn: int, env: ConnectedEnv) -> PendingVerdict | None:
    """What the last step of an episode, taken in `turn`, leaves to a judge; `rewards` are those of all its steps."""
    request = None if step is None or not step.ended else _read_request(step, env)
    if request is None:
        return None
    score = score_of(env.spec.score, [*rewards[:-1], request.reward])
    check_score(score, env)
    return PendingVerdict(
        questions=request.questions,
        required=request.required,
        reward=request.reward,
        turn=turn,
        score=score,
        success=score >= env.success_at,
    )


def _read_request(step: Step, env: ConnectedEnv) -> JudgeRequest | None:
    asked = step.info.get("judge")
    try:
        return None if asked is None else judge_from(asked)
    except WireError as error:
        raise EnvFault(
            f"{env.name} asked the judge nothing that can be read: {error}", kind=FaultKind.GARBAGE
        ) from error


def accept_verdict(episode: Episode, *, yes: bool) -> Episode:
    """Apply the answers to what an episode left open: yes to all of it, or not."""
    pending = episode.pending
    assert pending is not None, "an episode with nothing open has no verdict to wait for"
    episode = replace(episode, pending=None)
    if not yes:
        return episode
    # the last step ended it; what a harness said after that changed nothing
    turns = tuple(
        replace(turn, reward=pending.reward) if at == pending.turn else turn for at, turn in enumerate(episode.turns)
    )
    return replace(episode, score=pending.score, success=pending.success, turns=turns)
