"""What an algorithm is in a recipe: composable parts. `presets.yaml` names the combinations that the literature names.

Defaults here are those of `grpo`'s skeleton; a preset replaces some, the recipe's own keys win over both.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Annotated, ClassVar

from ..expression.expr import Expr
from ..frozen import frozen
from .fields import (
    Bounds,
    Count,
    DynNonNegative,
    DynPositive,
    Example,
    FilePath,
    Fraction,
    HubPath,
    NonNegative,
    Positive,
    Scope,
    Size,
)

__all__ = [
    "KL",
    "Advantage",
    "Aggregation",
    "Algorithm",
    "Baseline",
    "Clip",
    "Correction",
    "Critic",
    "Data",
    "DataSource",
    "Entropy",
    "Estimator",
    "Evolve",
    "Filter",
    "Importance",
    "KLEstimator",
    "KLPlace",
    "Kind",
    "Level",
    "Loss",
    "LossKind",
    "LossOn",
    "Normalise",
    "Optimizer",
    "Preference",
    "Preset",
    "Reference",
    "Relabel",
    "RetrainFrom",
]

_UNEQUAL = Expr("std > 0")
_SUCCESS = Expr("success")


class Preset(StrEnum):
    """Names that a recipe may write after `use:`; each is an entry of `presets.yaml`."""

    PPO = "ppo"
    GRPO = "grpo"
    DR_GRPO = "dr_grpo"
    DAPO = "dapo"
    GSPO = "gspo"
    CISPO = "cispo"
    RLOO = "rloo"
    REINFORCE = "reinforce"
    REINFORCE_PP = "reinforce_pp"
    REMAX = "remax"
    LOOP = "loop"
    STARPO_S = "starpo_s"
    GIGPO = "gigpo"
    BILEVEL_PPO = "bilevel_ppo"
    MTPO = "mtpo"
    SFT = "sft"
    DPO = "dpo"
    TURN_DPO = "turn_dpo"
    AGENT_EVOL = "agent_evol"
    RELAY = "relay"
    EVAL = "eval"


class Kind(StrEnum):
    """What a stage does; decides its ops. Set by the preset, never written in a recipe."""

    RL = "rl"
    SFT = "sft"
    PREFERENCE = "preference"
    EVOLVE = "evolve"
    EVAL = "eval"


class Estimator(StrEnum):
    OUTCOME = "outcome"
    REWARD_TO_GO = "reward_to_go"
    TURN_RETURNS = "turn_returns"
    GAE = "gae"
    BILEVEL_GAE = "bilevel_gae"
    STEP_GROUPS = "step_groups"


class Baseline(StrEnum):
    NONE = "none"
    GROUP_MEAN = "group_mean"
    LEAVE_ONE_OUT = "leave_one_out"
    BATCH_MEAN = "batch_mean"
    GREEDY = "greedy"
    CRITIC = "critic"


class Normalise(StrEnum):
    NONE = "none"
    GROUP_STD = "group_std"
    BATCH_STD = "batch_std"


class LossKind(StrEnum):
    PPO_CLIP = "ppo_clip"
    GSPO = "gspo"
    CISPO = "cispo"
    POLICY_GRADIENT = "policy_gradient"


class Level(StrEnum):
    TOKEN = "token"
    TURN = "turn"
    EPISODE = "episode"


class Aggregation(StrEnum):
    TOKEN_MEAN = "token_mean"
    SEQUENCE_MEAN = "sequence_mean"
    FIXED_LENGTH = "fixed_length"


class KLEstimator(StrEnum):
    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KLPlace(StrEnum):
    LOSS = "loss"
    REWARD = "reward"


class Reference(StrEnum):
    START = "start"
    STAGE = "stage"


class Correction(StrEnum):
    NONE = "none"
    TRUNCATE = "truncate"
    MASK = "mask"


class DataSource(StrEnum):
    EXPERT = "expert"
    FILE = "file"
    EPISODES = "episodes"
    ROLLOUT = "rollout"


class LossOn(StrEnum):
    EXPERT = "expert"
    ACTIONS = "actions"
    ALL = "all"


class RetrainFrom(StrEnum):
    BASE = "base"
    LAST = "last"


class Relabel(StrEnum):
    NONE = "none"
    HINDSIGHT = "hindsight"


@frozen
class Optimizer:
    """AdamW and its constants."""

    betas: tuple[Annotated[float, Bounds(at_least=0, below=1)], Annotated[float, Bounds(at_least=0, below=1)]] = (
        0.9,
        0.999,
    )
    """Decay of the running mean of the gradient and of its square."""
    eps: Positive = 1e-8
    """Added to the denominator of the update."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay; norms and biases are never decayed."""
    warmup_steps: Count = 0
    """Updates over which the learning rate rises linearly from 1/(n+1) of itself; the first update is never 0."""


@frozen
class Advantage:
    """How rewards become one number per sampled token."""

    estimator: Estimator = Estimator.OUTCOME
    """How credit travels back from a reward to the tokens before it."""
    baseline: Baseline = Baseline.GROUP_MEAN
    """What is subtracted from the return; a group of one has advantage 0."""
    normalise: Normalise = Normalise.GROUP_STD
    """What the difference is divided by."""
    gamma: Fraction = 1.0
    """Discount from one sampled token to the one before; observation tokens cost nothing."""
    lam: Fraction = 1.0
    """Lambda of generalised advantage estimation over tokens."""
    turn_gamma: Fraction = 1.0
    """Discount from one turn to the turn before."""
    turn_lam: Fraction = 1.0
    """Lambda of generalised advantage estimation over turns."""
    step_weight: NonNegative = 1.0
    """Weight of the advantage among steps taken from the same state, beside the episode's own."""
    drop_below: NonNegative = 0.0
    """Episodes whose advantage is smaller in size than this are left out of the update."""


@frozen
class Clip:
    """How far the ratio of new to old probability may move before its gradient is cut."""

    low: DynNonNegative = 0.2
    """The ratio is cut below 1 - low."""
    high: DynNonNegative = 0.2
    """The ratio is cut above 1 + high."""
    dual: Annotated[float, Bounds(above=1), Example(3.0)] | None = None
    """Bound on the loss of a token with negative advantage, as a multiple of that advantage."""


@frozen
class Loss:
    """The objective of one update."""

    kind: LossKind = LossKind.PPO_CLIP
    """The form of the surrogate."""
    ratio: Level = Level.TOKEN
    """What one importance ratio covers."""
    clip: Clip = field(default_factory=Clip)
    """Clipping of the ratio."""
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """How token losses become one number; the divisor is that of the whole update, never of a micro-batch."""
    length: Annotated[int, Bounds(at_least=1), Example(8192)] | None = None
    """Divisor of `fixed_length`; the token budget of an episode if not given."""


@frozen
class KL:
    """A pull towards a reference policy; where nothing is measured from it, none is loaded."""

    coef: DynNonNegative = 0.0
    """Weight of the divergence from the reference."""
    estimator: KLEstimator = KLEstimator.K3
    """k1 is the plain log-ratio, k2 half its square, k3 the unbiased one that is never negative."""
    place: KLPlace = KLPlace.LOSS
    """Whether it is added to the loss or taken off the reward of each token."""
    clamp: Annotated[float, Bounds(above=0), Example(10.0)] | None = None
    """Bound on the size of the estimate of one token."""
    target: Annotated[float, Bounds(above=0), Example(0.05)] | None = None
    """Adapts the weight so that the mean divergence stays near this value."""
    target_steps: Size = 100
    """Updates over which the adaptive weight may double."""
    reference: Reference = Reference.START
    """`start`: the policy that the run began with, or where stages imitated before, the one that they led to. `stage`:
    that at the start of the stage."""
    previous_coef: DynNonNegative = 0.0
    """Weight of a second divergence, from the policy before this step; always in the loss."""


@frozen
class Entropy:
    """A reward for staying undecided."""

    SHORTHAND: ClassVar[str] = "coef"

    coef: DynNonNegative = 0.0
    """Weight of the mean entropy per sampled token."""


@frozen
class Critic:
    """The value network of PPO and its kin."""

    path: Annotated[HubPath, Example("Qwen/Qwen2.5-0.5B-Instruct")] | None = None
    """Folder or hub id of its backbone, one for all stages; begins as the policy when first needed if not given."""
    lr: DynPositive = 1e-5
    """Its own learning rate; it has the optimiser's other constants, and no warm-up of it."""
    clip: Annotated[float, Bounds(above=0), Example(0.2)] | None = 0.2
    """How far a value may move from the old one before its gradient is cut; null for no cut."""
    epochs: Size = 1
    """Passes over each batch."""
    warmup_steps: Count = 0
    """Steps at the start of the stage in which only the critic learns."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    privileged: bool = False
    """The critic of `turn_dpo` also reads what the environment tells only to it: a solution."""


@frozen
class Filter:
    """Which groups and episodes an update learns from."""

    SHORTHAND: ClassVar[str] = "groups"

    groups: Annotated[Expr, Scope("group"), Example("std > 0")] = _UNEQUAL
    """Groups for which this is false are left out."""
    episodes: Annotated[Expr, Scope("episode"), Example("invalid_turns < 3")] | None = None
    """Episodes for which this is false are left out of the loss, and kept in the baseline."""
    top_share: Annotated[float, Bounds(above=0, at_most=1), Example(0.25)] = 1.0
    """Of the groups that remain, the share with the highest standard deviation of reward that is kept."""
    resample: bool = False
    """Sample further groups until the step is full again."""
    max_resamples: Size = 4
    """Rounds of further sampling in one step, at the most."""


@frozen
class Importance:
    """Correction for sampling by another engine, at another precision or an older version of the weights."""

    correction: Correction = Correction.TRUNCATE
    """Cap the weight at `cap`, or leave out what lies outside `floor` to `cap`."""
    level: Level = Level.TOKEN
    """What one weight covers."""
    cap: Positive = 2.0
    """Upper bound of a weight."""
    floor: NonNegative = 0.0
    """Lower bound of a weight, for `mask`."""


@frozen
class Data:
    """Where the episodes of an offline stage come from."""

    SHORTHAND: ClassVar[str] = "source"

    source: DataSource = DataSource.EXPERT
    """The environments' scripted solutions, a JSON-lines file, the saved episodes of a run, or fresh rollouts, which
    each step plays with the present policy; `agent_evol` explores in any case, and takes this for no others."""
    path: Annotated[FilePath, Example("data/demonstrations.jsonl")] | None = None
    """The file, or the run folder, that `source` reads."""
    limit: Annotated[int, Bounds(at_least=1), Example(2000)] | None = None
    """Episodes, or given pairs, to use, at the most."""
    noise: Fraction = 0.0
    """Share of the expert's actions replaced by random well-formed ones, so that recovering is learnt too."""
    loss_on: LossOn = LossOn.EXPERT
    """Learns the expert's actions alone, all actions with the replaced ones, or prompts and observations as well."""
    relabel: Relabel = Relabel.NONE
    """`hindsight` makes an episode that reached another goal of training on its way a demonstration of that one too."""
    keep: Annotated[Expr, Scope("episode"), Example("success")] | None = None
    """Episodes for which this is false are left out; where fresh rollouts are imitated, `success` if not given."""


@frozen
class Preference:
    """Learning from pairs, better and worse."""

    beta: Positive = 0.1
    """Strength of the pull towards the reference."""
    level: Level = Level.EPISODE
    """Whether a pair is two episodes or two turns from the same state, by what followed them."""
    margin: NonNegative = 0.0
    """Smallest difference of score that makes a pair."""
    pairs_per_group: Size = 4
    """Pairs taken from one group, at the most; the best against the worst first."""
    label_smoothing: Annotated[float, Bounds(at_least=0, below=0.5)] = 0.0
    """Share of pairs that are taken to be labelled the wrong way round."""
    sft_coef: NonNegative = 0.0
    """Weight of the better one's mean log-likelihood per token, beside the preference."""
    candidates: Size = 4
    """Candidate actions per turn that a privileged critic ranks."""


@frozen
class Evolve:
    """Explore, keep what succeeded, retrain; again."""

    rounds: Size = 3
    """How often; each round is one step."""
    samples: Size = 4
    """Episodes per task in each round of exploring."""
    keep: Annotated[Expr, Scope("episode"), Example("success")] = _SUCCESS
    """Episodes for which this is true are learnt from."""
    retrain_from: RetrainFrom = RetrainFrom.BASE
    """Whether each round's training starts from the base weights or goes on from the last."""
    keep_demonstrations: bool = True
    """Whether each round learns from the demonstrations of `data`, and not the first alone."""


@frozen
class Algorithm:
    """How the weights learn from episodes."""

    SHORTHAND: ClassVar[str] = "use"

    use: Preset = Preset.GRPO
    """A named combination of the parts below; every part can still be set on its own."""
    group_size: Size = 8
    """Episodes per task; what they have in common is the baseline."""
    groups_per_step: Size = 32
    """Tasks drawn in one step."""
    groups_per_update: Annotated[int, Bounds(at_least=1), Example(8)] | None = None
    """Groups in one optimiser update; all of the step's if not given. Must divide `groups_per_step`."""
    batch_size: Size = 32
    """Sequences, or pairs, in one update of an offline stage."""
    epochs: Size = 1
    """Passes over the episodes of a step."""
    kl_stop: Annotated[float, Bounds(above=0), Example(0.05)] | None = None
    """Ends the passes over a step early once the mean divergence from the sampling policy is above this."""
    lr: DynPositive = 1e-6
    """Learning rate."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """The optimiser."""
    advantage: Advantage = field(default_factory=Advantage)
    """From rewards to advantages."""
    loss: Loss = field(default_factory=Loss)
    """From advantages to a loss."""
    kl: KL = field(default_factory=KL)
    """Divergence from a reference."""
    entropy: Entropy = field(default_factory=Entropy)
    """Entropy bonus."""
    filter: Filter = field(default_factory=Filter)
    """Which groups and episodes count."""
    importance: Importance = field(default_factory=Importance)
    """Correction between the sampling and the learning policy."""
    critic: Critic = field(default_factory=Critic)
    """The value network; only with `baseline: critic`, or for ranking in `turn_dpo`."""
    data: Data = field(default_factory=Data)
    """Episodes of an offline stage."""
    preference: Preference = field(default_factory=Preference)
    """Pairs."""
    evolve: Evolve = field(default_factory=Evolve)
    """Rounds of exploring and retraining."""
