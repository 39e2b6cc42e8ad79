"""Advantages: from rewards to one number per sampled token.

The input is groups of TurnRewards and the `advantage` settings of a recipe; the output, for every episode, a float64
array over its sampled tokens, in their order. Pure; `docs/conventions.md` lists each choice and which frameworks
differ.

Three questions, each answered by a table: how far a reward reaches back (`estimator`), what it is compared with
(`baseline`), what the difference is divided by (`normalise`). The pieces, for an episode with turns k = 0..K-1, the
last sampled token of turn k at e(k), turn rewards r(k), token rewards x(j), token discount g, turn discount G:

    A(j) = g^(e(k) - j) * (R(k) - b(k)) / s(k)  +  sum over i >= j of g^(i - j) * x(i)        for a token j of turn k

    estimator      R(k)                                                  g
    outcome        r(0) + ... + r(K-1), at every turn                    1
    turn_returns   r(k) + G * R(k+1)                                     1
    reward_to_go   r(k) + g^(tokens of turn k+1) * R(k+1)                `gamma`
    token_rewards  0                                                     `gamma`

`reward_to_go` without baseline is the discounted sum of all rewards from the token on: for a token j of turn k that is
g^(e(k) - j) * R(k). Token rewards (the KL penalty) are the token's own and those after it; they are neither compared
nor divided within the group, as the size of a penalty says nothing about the other episodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from math import fsum, sqrt

import numpy as np

from ...dsl.model.advantage_support import READS, explain_unsupported
from ...dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise
from .baselines import BASELINES, NORMALISERS, align_turns, mean_of
from .turn_rewards import Float64s, TurnRewards, TurnRewardsError

__all__ = ["AdvantageError", "compute_advantages", "compute_value_targets", "explain_unsupported"]

Groups = Sequence[Sequence[TurnRewards]]
PerEpisode = list[list[Float64s]]

_VARIANCE_EPSILON = 1e-8
"""Added to the variance of a batch of tokens before the division by its root."""


class AdvantageError(ValueError):
    """Advantage settings that have no meaning together."""


def compute_advantages(groups: Groups, settings: Advantage) -> PerEpisode:
    """Compute the advantage of every sampled token; 0 on turns outside the loss mask.

    The batch is what is handed in: statistics over it depend neither on micro-batches nor on ranks.
    """
    _check_supported(settings)
    return _FINISHERS[settings.normalise](groups, _ESTIMATORS[settings.estimator](groups, settings))


def compute_value_targets(groups: Groups, settings: Advantage) -> PerEpisode:
    """Compute value targets: the value before each token plus its advantage as estimated, not whitened."""
    _check_supported(settings)
    if settings.baseline is not Baseline.CRITIC:
        raise AdvantageError(f"value targets need baseline 'critic', got '{settings.baseline}'")
    estimated = _ESTIMATORS[settings.estimator](groups, settings)
    return [
        [advantage + episode.known_values for advantage, episode in zip(*pair, strict=True)]
        for pair in zip(estimated, groups, strict=True)
    ]


def _check_supported(settings: Advantage) -> None:
    if reason := explain_unsupported(settings):
        raise AdvantageError(reason)


def _discount(values: Float64s, discount: float) -> Float64s:
    """y(j) = x(j) + discount * y(j+1), from the end."""
    backwards = accumulate(reversed(values.tolist()), lambda later, value: value + discount * later)
    return np.asarray(list(backwards), np.float64)[::-1]


# --- by comparing episodes -------------------------------------------------------------------------------------------


def _sum_outcome(episode: TurnRewards, settings: Advantage) -> Float64s:
    """The sum of all turn rewards, at every turn."""
    return np.full(episode.num_turns, fsum(episode.rewards))


def _turn_returns(episode: TurnRewards, settings: Advantage) -> Float64s:
    """R(k) = r(k) + turn_gamma * R(k+1): turns alone cost discount, however long they are."""
    return _discount(episode.turn_rewards, settings.turn_gamma)


def _returns_at_ends(episode: TurnRewards, settings: Advantage) -> Float64s:
    """R(k) = r(k) + gamma^(tokens of turn k+1) * R(k+1): the return at the last token of turn k.

    Observation tokens between the two turns are not counted; OpenRLHF and slime discount over them, SkyRL forgets what
    came after them.
    """
    at_ends = np.zeros(episode.num_tokens)
    at_ends[episode.ends] = episode.turn_rewards
    return _discount(at_ends, settings.gamma)[episode.ends]


def _no_returns(episode: TurnRewards, settings: Advantage) -> Float64s:
    """R(k) = 0: only the rewards of single tokens are left, such as a teacher's."""
    return np.zeros(episode.num_turns)


_RETURNS: Mapping[Estimator, Callable[[TurnRewards, Advantage], Float64s]] = {
    Estimator.OUTCOME: _sum_outcome,
    Estimator.TURN_RETURNS: _turn_returns,
    Estimator.REWARD_TO_GO: _returns_at_ends,
    Estimator.TOKEN_REWARDS: _no_returns,
}


def _estimate_by_returns(groups: Groups, settings: Advantage) -> PerEpisode:
    return _spread_over_tokens(groups, settings, _compare_turns(groups, settings, _RETURNS[settings.estimator]))


def _compare_turns(
    groups: Groups, settings: Advantage, returns: Callable[[TurnRewards, Advantage], Float64s]
) -> list[list[Float64s]]:
    """(R(k) - b(k)) / s(k) of every turn of every episode.

    b and s are taken turn by turn over the compared episodes, each of which counts once. Under `batch_mean` these are
    all episodes, else those of the group, masked ones included.
    """
    together: Groups = [list(chain.from_iterable(groups))] if settings.baseline is Baseline.BATCH_MEAN else groups
    rows = chain.from_iterable(_compare_episodes(episodes, settings, returns) for episodes in together if episodes)
    return [[next(rows) for _ in group] for group in groups]


def _compare_episodes(
    episodes: Sequence[TurnRewards], settings: Advantage, returns: Callable[[TurnRewards, Advantage], Float64s]
) -> list[Float64s]:
    matrix = align_turns([returns(episode, settings) for episode in episodes])
    greedy = (
        _greedy_returns(episodes, settings, returns, matrix.shape[1]) if settings.baseline is Baseline.GREEDY else None
    )
    compared = NORMALISERS[settings.normalise](BASELINES[settings.baseline](matrix, greedy), matrix)
    return [row[: episode.num_turns] for row, episode in zip(compared, episodes, strict=True)]


def _greedy_returns(
    episodes: Sequence[TurnRewards],
    settings: Advantage,
    returns: Callable[[TurnRewards, Advantage], Float64s],
    width: int,
) -> Float64s:
    """R(k) of the greedy episode of each task; beyond its end, that of its last turn."""
    found = [episode.greedy for episode in episodes]
    known = [episode for episode in found if episode is not None]
    if len(known) < len(found):
        raise TurnRewardsError("baseline 'greedy' needs the greedy episode of the task, which is missing")
    return align_turns([np.zeros(width), *(returns(episode, settings) for episode in known)])[1:, :width]


def _spread_over_tokens(groups: Groups, settings: Advantage, per_turn: list[list[Float64s]]) -> PerEpisode:
    gamma = settings.gamma if "gamma" in READS[settings.estimator] else 1.0
    return [
        [_spread_episode(episode, numbers, gamma) for episode, numbers in zip(*pair, strict=True)]
        for pair in zip(groups, per_turn, strict=True)
    ]


def _spread_episode(episode: TurnRewards, per_turn: Float64s, gamma: float) -> Float64s:
    turns = episode.turns
    fade = gamma ** (episode.ends[turns] - np.arange(episode.num_tokens))
    numbers: Float64s = fade * per_turn[turns]
    return numbers if episode.token_rewards is None else numbers + _discount(episode.token_rewards_or_zeros, gamma)


# --- by comparing steps from the same state -------------------------------------------------------------------------


def _step_groups(groups: Groups, settings: Advantage) -> PerEpisode:
    """A(k) = A_episode + step_weight * A_step(k), as in GiGPO.

    A_episode is that of `outcome`: every episode counts once (verl-agent's default and ROLL count it once per step).
    A_step compares R(k) = r(k) + turn_gamma * R(k+1) among all turns of the group that were taken from a state of the
    same name, also several of one episode, by the same baseline and standard deviation. A state met once has A_step 0,
    and so has one without a name. States are never matched across groups (ROLL merges those of different tasks).
    """
    of_episodes = _compare_turns(groups, settings, _sum_outcome)
    of_steps = [_compare_steps(group, settings) for group in groups]
    per_turn = [
        [episode + settings.step_weight * step for episode, step in zip(*pair, strict=True)]
        for pair in zip(of_episodes, of_steps, strict=True)
    ]
    return _spread_over_tokens(groups, settings, per_turn)


def _compare_steps(group: Sequence[TurnRewards], settings: Advantage) -> list[Float64s]:
    returns = [_turn_returns(episode, settings) for episode in group]
    steps = [np.zeros(episode.num_turns) for episode in group]
    for places in _group_by_state(group):
        column = np.asarray([[returns[i][k]] for i, k in places])
        compared = NORMALISERS[settings.normalise](BASELINES[settings.baseline](column, None), column)
        for (i, k), number in zip(places, compared[:, 0], strict=True):
            steps[i][k] = number
    return steps


def _group_by_state(group: Sequence[TurnRewards]) -> list[list[tuple[int, int]]]:
    """Places (episode, turn) that share a named state."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, episode in enumerate(group):
        if episode.states is None:
            raise TurnRewardsError("estimator 'step_groups' needs state names, which this episode lacks")
        for k, state in enumerate(episode.states):
            found[state].append((i, k))
    found.pop("", None)
    return list(found.values())


# --- by a critic ----------------------------------------------------------------------------------------------------


def _gae(episode: TurnRewards, settings: Advantage) -> Float64s:
    """d(j) = x(j) + [r(k) if j = e(k)] + gamma * V(j+1) - V(j);  A(j) = d(j) + gamma * lam * A(j+1).

    j+1 is the next sampled token, be it of the next turn: an observation between them costs neither gamma nor lambda,
    and the value of no token of it is used (verl, NeMo and AReaL agree; SkyRL, slime and ROLL go through it). After
    the last token V is 0, whatever ended the episode: turns and tokens are part of the task, and what is left undone
    at their end is lost (all but AReaL agree, which guesses from the padding what would have come).
    """
    rewards = episode.token_rewards_or_zeros
    rewards[episode.ends] += episode.turn_rewards
    return _gae_over(rewards, episode.known_values, settings.gamma, settings.lam)


def _gae_over(rewards: Float64s, values: Float64s, gamma: float, lam: float) -> Float64s:
    surprises = rewards + gamma * np.append(values[1:], 0.0) - values
    return _discount(surprises, gamma * lam)


def _bilevel_gae(episode: TurnRewards, settings: Advantage) -> Float64s:
    """First over turns, then over the tokens of each turn, which ends with the return found for it.

        d(k) = r(k) + X(k) + turn_gamma * V(k+1) - V(k);  A(k) = d(k) + turn_gamma * turn_lam * A(k+1)
        within turn k: gae by gamma and lam, V = 0 after its last token, whose reward is A(k) + V(k) - X(k)

    V(k) is the value before the turn's first token, that of the state it was taken from; X(k) is the sum of its token
    rewards, which the second pass gives to their tokens. Every turn counts, also one rewarded exactly 0: RAGEN and
    VAGEN find turns by their rewards not being 0, and read V(k) before the turn's last token, when all of the action
    to be judged but that token has been seen. With turn_lam 1 the two places of V(k) give the same numbers.
    """
    token_rewards_or_zeros, values = episode.token_rewards_or_zeros, episode.known_values
    starts, ends = episode.starts, episode.ends
    own = np.add.reduceat(token_rewards_or_zeros, starts)
    turn_values = values[starts]
    over_turns = _gae_over(episode.turn_rewards + own, turn_values, settings.turn_gamma, settings.turn_lam)
    rewards = token_rewards_or_zeros.copy()
    rewards[ends] += over_turns + turn_values - own
    within = [
        _gae_over(rewards[a : b + 1], values[a : b + 1], settings.gamma, settings.lam)
        for a, b in zip(starts, ends, strict=True)
    ]
    return np.concatenate(within)


def _map_episodes(estimate: Callable[[TurnRewards, Advantage], Float64s]) -> Callable[[Groups, Advantage], PerEpisode]:
    return lambda groups, settings: [[estimate(episode, settings) for episode in group] for group in groups]


_ESTIMATORS: Mapping[Estimator, Callable[[Groups, Advantage], PerEpisode]] = {
    Estimator.OUTCOME: _estimate_by_returns,
    Estimator.TURN_RETURNS: _estimate_by_returns,
    Estimator.REWARD_TO_GO: _estimate_by_returns,
    Estimator.TOKEN_REWARDS: _estimate_by_returns,
    Estimator.STEP_GROUPS: _step_groups,
    Estimator.GAE: _map_episodes(_gae),
    Estimator.BILEVEL_GAE: _map_episodes(_bilevel_gae),
}


# --- over the tokens of the batch -----------------------------------------------------------------------------------


def _mask(groups: Groups, estimated: PerEpisode) -> PerEpisode:
    """Set the advantage of tokens outside the loss mask to 0."""
    return [
        [np.where(episode.token_mask, numbers, 0.0) for episode, numbers in zip(*pair, strict=True)]
        for pair in zip(groups, estimated, strict=True)
    ]


def _whiten(groups: Groups, estimated: PerEpisode) -> PerEpisode:
    """(A - mean) / sqrt(var + 1e-8) over the n tokens of the batch in the loss mask, var divided by n - 1.

    Every token counts once, so long episodes weigh more. Tokens outside the loss mask are in neither mean nor variance,
    and are 0 afterwards (verl, SkyRL and RAGEN leave numbers on them; SkyRL has padding in the mean; OpenRLHF and NeMo
    divide by n). All equal, or one alone: 0.
    """
    pairs = zip(chain.from_iterable(groups), chain.from_iterable(estimated), strict=True)
    trained = np.concatenate([np.zeros(0), *(numbers[episode.token_mask] for episode, numbers in pairs)])
    if not trained.size:
        return _mask(groups, estimated)
    mean = mean_of(trained.tolist())
    variance = fsum(((trained - mean) ** 2).tolist()) / max(trained.size - 1, 1)
    scale = 1.0 / sqrt(variance + _VARIANCE_EPSILON)
    return _mask(groups, [[(numbers - mean) * scale for numbers in group] for group in estimated])


_FINISHERS: Mapping[Normalise, Callable[[Groups, PerEpisode], PerEpisode]] = {
    Normalise.NONE: _mask,
    Normalise.GROUP_STD: _mask,
    Normalise.BATCH_STD: _whiten,
}
