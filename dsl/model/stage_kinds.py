"""Facts about a stage's algorithm: its kind, whether it samples or learns, whether it has a critic or a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .algorithm import Algorithm, Baseline, Data, DataSource, Kind, Preset
from .known_values import is_zero
from .plan import Role
from .recipe import Hardware, Model, Rollout, Stage

__all__ = [
    "episodes_at_once",
    "episodes_per_task",
    "groups_per_update",
    "has_critic",
    "has_reference",
    "has_teacher",
    "is_given",
    "is_offline",
    "is_played",
    "kind_of",
    "learns",
    "longest_sequence",
    "most_row_tokens",
    "num_slots",
    "own_end",
    "pulls_to_reference",
    "recomputes_activations",
    "roles",
    "samples",
    "sides",
    "updates_often",
]

_KINDS: Mapping[Preset, Kind] = {
    Preset.SFT: Kind.SFT,
    Preset.RELAY: Kind.SFT,
    Preset.DPO: Kind.PREFERENCE,
    Preset.TURN_DPO: Kind.PREFERENCE,
    Preset.AGENT_EVOL: Kind.EVOLVE,
    Preset.EVAL: Kind.EVAL,
}
OFFLINE = (Kind.SFT, Kind.PREFERENCE, Kind.EVOLVE)


def kind_of(algorithm: Algorithm) -> Kind:
    """The kind of a stage with this algorithm; presets without an entry are policy gradients."""
    return _KINDS.get(algorithm.use, Kind.RL)


def learns(algorithm: Algorithm) -> bool:
    return kind_of(algorithm) is not Kind.EVAL


def is_offline(algorithm: Algorithm) -> bool:
    """Whether updates use batches of sequences or pairs rather than groups."""
    return kind_of(algorithm) in OFFLINE


def is_given(data: Data) -> bool:
    """Whether the training data is read from a path rather than played."""
    return data.source in (DataSource.FILE, DataSource.EPISODES)


def samples(algorithm: Algorithm) -> bool:
    """Whether the stage itself plays training tasks."""
    kind = kind_of(algorithm)
    if kind in (Kind.RL, Kind.EVOLVE):
        return True
    return is_offline(algorithm) and algorithm.data.source is DataSource.ROLLOUT


def episodes_per_task(algorithm: Algorithm) -> int:
    """Episodes per task of a stage that plays training tasks."""
    return {Kind.SFT: 1, Kind.EVOLVE: algorithm.evolve.samples}.get(kind_of(algorithm), algorithm.group_size)


def groups_per_update(algorithm: Algorithm) -> int:
    """Groups that one update of reinforcement learning uses, if none is left out."""
    if algorithm.groups_per_update is not None:
        return algorithm.groups_per_update
    step = algorithm.groups_per_step
    most = min(algorithm.updates_per_pass, step)
    return step // next(updates for updates in range(most, 0, -1) if step % updates == 0)


def updates_often(algorithm: Algorithm) -> bool:
    """Whether a step of reinforcement learning makes more than one update."""
    return algorithm.epochs > 1 or groups_per_update(algorithm) < algorithm.groups_per_step


def own_end(algorithm: Algorithm) -> int | None:
    """Steps after which the stage ends, regardless of `until`; None if there is no such number."""
    return {Kind.EVAL: 1, Kind.EVOLVE: algorithm.evolve.rounds}.get(kind_of(algorithm))


def is_played(algorithm: Algorithm) -> bool:
    """Whether the stage itself plays episodes, for training or evaluation."""
    return samples(algorithm) or kind_of(algorithm) is Kind.EVAL


def episodes_at_once(stage: Stage, episodes: int) -> int:
    """How many of a step's episodes its environments have room for at once."""
    limits = [each.sessions for each in stage.environments.values()]
    room = [limit for limit in limits if limit is not None]
    return min(episodes, sum(room)) if room and len(room) == len(limits) else episodes


def num_slots(stages: Sequence[tuple[Stage, int]], settings: Rollout, *, on_gpus: bool) -> int:
    """Episodes in progress at once over all engines; `stages` come with the training episodes of a step."""
    if settings.slots is not None:
        return settings.slots
    played = max((episodes_at_once(stage, episodes) for stage, episodes in stages), default=0)
    evaluated = (episodes_at_once(stage, _EVALUATED_AT_ONCE[on_gpus]) for stage, _ in stages)
    return played or max(evaluated, default=1)


_EVALUATED_AT_ONCE = {True: 64, False: 16}
"""Episodes in progress where training plays none, on GPUs and on a CPU: there the cache is made for that many, and more
of them are no quicker."""


def sides(algorithm: Algorithm) -> int:
    """Sequences that the loss compares: two of a pair."""
    return 2 if kind_of(algorithm) is Kind.PREFERENCE else 1


def longest_sequence(stages: Iterable[Stage]) -> int:
    """Most tokens that cannot be split between forward passes: an episode of full length, or two of a pair."""
    return max((stage.agent.context_tokens * sides(stage.algorithm) for stage in stages), default=0)


def most_row_tokens(stages: Iterable[Stage], hardware: Hardware) -> int:
    """Most tokens in one forward pass of a learner."""
    given = hardware.train.tokens_per_micro_batch
    return given or max(longest_sequence(stages), _ROW_TOKENS[hardware.gpus_per_node > 0])


_ROW_TOKENS = {True: 16384, False: 2048}
"""On GPUs and on a CPU. A GPU needs much to do at once; a CPU is as quick with little, and in a short row fewer places
stay empty."""


def recomputes_activations(hardware: Hardware) -> bool:
    """Whether the backward pass computes activations again; on a CPU, whose memory is large, they are kept."""
    return hardware.train.activation_checkpointing and hardware.gpus_per_node > 0


def has_critic(algorithm: Algorithm) -> bool:
    """Whether a critic gives the baseline or ranks candidate turns."""
    if kind_of(algorithm) is Kind.RL:
        return algorithm.advantage.baseline is Baseline.CRITIC
    return algorithm.use is Preset.TURN_DPO


def pulls_to_reference(algorithm: Algorithm) -> bool:
    """Whether an RL stage has a KL penalty towards a frozen policy."""
    return kind_of(algorithm) is Kind.RL and not is_zero(algorithm.kl.coef)


def has_reference(algorithm: Algorithm) -> bool:
    """Whether log-probs of a frozen policy are needed."""
    return pulls_to_reference(algorithm) or kind_of(algorithm) is Kind.PREFERENCE


def has_teacher(algorithm: Algorithm) -> bool:
    """Whether the frozen policy is a teacher rather than an earlier self."""
    return algorithm.use is Preset.DISTILL


def roles(model: Model, stages: Iterable[Stage], evaluates: bool) -> tuple[Role, ...]:
    """The workers that the stages need."""
    algorithms = [stage.algorithm for stage in stages]
    needed = {
        Role.ROLLOUT: evaluates or any(is_played(each) for each in algorithms),
        Role.LEARNER: any(learns(each) for each in algorithms),
        Role.CRITIC: any(has_critic(each) for each in algorithms),
        # adapters switched off are the reference: no second copy is held, except of a teacher
        Role.REFERENCE: any(has_reference(each) and (model.lora is None or has_teacher(each)) for each in algorithms),
    }
    return tuple(role for role, is_needed in needed.items() if is_needed)
