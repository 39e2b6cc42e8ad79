"""The algorithm section of a recipe: composable parts. `presets.yaml` names the combinations of the literature.

The defaults here are those of `grpo`; a preset replaces some, and the recipe's own keys override both.
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
    InScope,
    NonNegative,
    Positive,
    Size,
)

_SUCCESS = Expr("success")


class Preset(StrEnum):
    """Names for `use:`; each is an entry of `presets.yaml`."""

    PPO = "ppo"
    GRPO = "grpo"
    DR_GRPO = "dr_grpo"
    DAPO = "dapo"
    GSPO = "gspo"
    CISPO = "cispo"
    SAPO = "sapo"
    DPPO = "dppo"
    RLOO = "rloo"
    REINFORCE = "reinforce"
    REINFORCE_PP = "reinforce_pp"
    REMAX = "remax"
    LOOP = "loop"
    STARPO_S = "starpo_s"
    GIGPO = "gigpo"
    BILEVEL_PPO = "bilevel_ppo"
    MTPO = "mtpo"
    DISTILL = "distill"
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
    TOKEN_REWARDS = "token_rewards"


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
    SAPO = "sapo"
    DPPO = "dppo"
    POLICY_GRADIENT = "policy_gradient"


class Divergence(StrEnum):
    TV = "tv"
    KL = "kl"


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
    """Decay rates of the running means of the gradient and of its square."""
    eps: Positive = 1e-8
    """Constant added to the denominator of the update."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay; norms and biases are never decayed."""
    warmup_steps: Count = 0
    """Updates over which the learning rate rises linearly, from 1/(n+1) of its value; the first update is never 0."""


@frozen
class Advantage:
    """How rewards become one advantage per sampled token."""

    estimator: Estimator = Estimator.OUTCOME
    """How credit propagates from a reward to earlier tokens."""
    baseline: Baseline = Baseline.GROUP_MEAN
    """What is subtracted from the return; a group of one has advantage 0."""
    normalise: Normalise = Normalise.GROUP_STD
    """What the difference is divided by."""
    gamma: Fraction = 1.0
    """Discount per sampled token; observation tokens are not discounted."""
    lam: Fraction = 1.0
    """Lambda of generalised advantage estimation over tokens."""
    turn_gamma: Fraction = 1.0
    """Discount per turn."""
    turn_lam: Fraction = 1.0
    """Lambda of generalised advantage estimation over turns."""
    step_weight: NonNegative = 1.0
    """Weight of the advantage among steps from the same state, added to the episode's own."""
    drop_below: NonNegative = 0.0
    """Absolute advantage below which an episode is left out of the update."""


@frozen
class Clip:
    """Range of the ratio of new to old probability outside which its gradient is cut; under `dppo` that of the
    divergence."""

    low: DynNonNegative = 0.2
    """Lower margin: the ratio is clipped below 1 - low. Under `dppo`, the divergence that tokens with a negative
    advantage may have."""
    high: DynNonNegative = 0.2
    """Upper margin: the ratio is clipped above 1 + high. Under `dppo`, the divergence that tokens with a positive
    advantage may have."""
    dual: Annotated[float, Bounds(above=1), Example(3.0)] | None = None
    """Bound on the loss of a token with a negative advantage, as a multiple of that advantage."""


@frozen
class Gate:
    """Temperatures of the soft gate that takes the place of a clip under `sapo`; the higher, the narrower."""

    positive: Positive = 1.0
    """For tokens with a positive advantage."""
    negative: Positive = 1.05
    """For all other tokens."""


@frozen
class Loss:
    """The objective of one update."""

    kind: LossKind = LossKind.PPO_CLIP
    """Form of the surrogate."""
    ratio: Level = Level.TOKEN
    """Span of one importance ratio."""
    clip: Clip = field(default_factory=Clip)
    """Clipping of the ratio."""
    gate: Gate = field(default_factory=Gate)
    """Soft gate of `sapo`."""
    divergence: Divergence = Divergence.TV
    """What `dppo` bounds, between the probabilities of the sampled token and of all others together: their total
    variation, or their KL divergence."""
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """How token losses become one number; the divisor is that of the whole update, never of a micro-batch."""
    length: Annotated[int, Bounds(at_least=1), Example(8192)] | None = None
    """Divisor of `fixed_length`; the token budget of an episode if not given."""


@frozen
class KL:
    """A KL penalty towards a reference policy, which is loaded only if it is used."""

    coef: DynNonNegative = 0.0
    """Weight of the KL from the reference."""
    estimator: KLEstimator = KLEstimator.K3
    """k1 is the plain log-ratio, k2 half its square, k3 the unbiased one that is never negative."""
    gradient: KLEstimator | None = None
    """Estimator that the gradient comes from, if not from the one that gives the value; that of `k2` is the gradient of
    the true KL, unlike that of `k3`."""
    place: KLPlace = KLPlace.LOSS
    """Whether it is added to the loss or subtracted from the reward of each token."""
    clamp: Annotated[float, Bounds(above=0), Example(10.0)] | None = None
    """Bound on the absolute estimate of one token."""
    target: Annotated[float, Bounds(above=0), Example(0.05)] | None = None
    """Mean KL that an adaptive weight aims for."""
    target_steps: Size = 100
    """Updates over which the adaptive weight may double."""
    reference: Reference = Reference.START
    """`start`: the policy at the start of the run, or after the imitation stages that precede this one. `stage`: the
    policy at the start of the stage."""
    previous_coef: DynNonNegative = 0.0
    """Weight of a second KL, from the policy before this step; always in the loss."""


@frozen
class Entropy:
    """An entropy bonus."""

    SHORTHAND: ClassVar[str] = "coef"

    coef: DynNonNegative = 0.0
    """Weight of the mean entropy per sampled token."""


@frozen
class Critic:
    """The value network of PPO and its relatives."""

    path: Annotated[HubPath, Example("Qwen/Qwen2.5-0.5B-Instruct")] | None = None
    """Folder or hub id of its backbone, one for all stages; a copy of the policy at first use if not given."""
    lr: DynPositive = 1e-5
    """Learning rate of the critic; its other constants are the optimiser's, without warm-up."""
    clip: Annotated[float, Bounds(above=0), Example(0.2)] | None = 0.2
    """How far a value may move from the old one before its gradient is cut; null for no limit."""
    epochs: Size = 1
    """Passes over each batch."""
    warmup_steps: Count = 0
    """Steps at the start of the stage in which only the critic learns."""
    max_grad_norm: Positive = 1.0
    """Maximum gradient norm; larger gradients are scaled down."""
    privileged: bool = False
    """Whether the critic of `turn_dpo` also sees the solution, which the policy never does."""


@frozen
class Filter:
    """Groups and episodes that an update trains on."""

    SHORTHAND: ClassVar[str] = "groups"

    groups: Annotated[Expr, InScope("group"), Example("std > 0")] | None = None
    """Condition that a group must meet; if not given, groups in which every advantage is 0 are left out."""
    episodes: Annotated[Expr, InScope("episode"), Example("invalid_turns < 3")] | None = None
    """Condition that an episode must meet to be in the loss; the others stay in the baseline."""
    top_share: Annotated[float, Bounds(above=0, at_most=1), Example(0.25)] = 1.0
    """Share of the remaining groups to keep, those with the highest standard deviation of reward."""
    resample: bool = False
    """Whether to sample more groups until the step is full again."""
    max_resamples: Size = 4
    """Maximum rounds of resampling in one step."""


@frozen
class Reject:
    """Whole episodes that are left out because the sampler's policy was too far from the learner's."""

    geometric: Annotated[tuple[Positive, Positive], Example((0.99, 1.01))] | None = None
    """Range that the geometric mean of an episode's ratios, learner over sampler, must lie in."""
    off_policy: Annotated[float, Bounds(above=0), Example(0.5)] | None = None
    """Mean log-ratio per token, sampler over learner as it is at each update, above which the episode's tokens with a
    negative advantage are left out."""


@frozen
class Importance:
    """Correction for sampling by another engine, at another precision or with older weights."""

    correction: Correction = Correction.TRUNCATE
    """Whether to cap the weight at `cap`, or to mask weights outside `floor` to `cap`."""
    level: Level = Level.TOKEN
    """Span of one weight."""
    cap: Positive = 2.0
    """Upper bound of a weight."""
    floor: NonNegative = 0.0
    """Lower bound of a weight, for `mask`."""
    reject: Reject = field(default_factory=Reject)
    """Episodes to leave out."""


@frozen
class Data:
    """Source of the episodes of an offline stage."""

    SHORTHAND: ClassVar[str] = "source"

    source: DataSource = DataSource.EXPERT
    """The environments' scripted solutions, a JSON-lines file, the saved episodes of a run, or fresh rollouts of the
    current policy in each step; `agent_evol` explores in any case, and `rollout` then adds no others."""
    path: Annotated[FilePath, Example("data/demonstrations.jsonl")] | None = None
    """File or run folder that `source` reads."""
    limit: Annotated[int, Bounds(at_least=1), Example(2000)] | None = None
    """Maximum number of episodes, or given pairs, to use."""
    noise: Fraction = 0.0
    """Share of the expert's actions replaced by random well-formed ones, to teach recovery."""
    loss_on: LossOn = LossOn.EXPERT
    """Tokens in the loss: the expert's actions alone, all actions including replaced ones, or prompts and observations
    as well."""
    relabel: Relabel = Relabel.NONE
    """`hindsight` makes an episode that reached another training goal on its way a demonstration of that goal too."""
    keep: Annotated[Expr, InScope("episode"), Example("success")] | None = None
    """Condition that an episode must meet; `success` if not given where fresh rollouts are imitated."""


@frozen
class Preference:
    """Learning from pairs of a better and a worse response."""

    beta: Positive = 0.1
    """Strength of the pull towards the reference."""
    level: Level = Level.EPISODE
    """What a pair consists of: two episodes, or two turns from the same state ranked by what followed."""
    margin: NonNegative = 0.0
    """Smallest difference in score that makes a pair."""
    pairs_per_group: Size = 4
    """Maximum pairs per group; the best against the worst first."""
    label_smoothing: Annotated[float, Bounds(at_least=0, below=0.5)] = 0.0
    """Share of pairs assumed to be labelled the wrong way round."""
    sft_coef: NonNegative = 0.0
    """Weight of the better response's mean log-likelihood per token, added to the preference loss."""
    candidates: Size = 4
    """Candidate actions per turn that a privileged critic ranks."""


@frozen
class Distill:
    """Learning from a teacher, which scores what the policy samples."""

    SHORTHAND: ClassVar[str] = "teacher"

    teacher: Annotated[HubPath, Example("Qwen/Qwen2.5-7B-Instruct")] | None = None
    """Folder or hub id of the teacher, whose tokenizer must be the policy's."""


@frozen
class Evolve:
    """Rounds of exploring, keeping what succeeded, and retraining."""

    rounds: Size = 3
    """Number of rounds; each is one step."""
    samples: Size = 4
    """Episodes per task in each round of exploring."""
    keep: Annotated[Expr, InScope("episode"), Example("success")] = _SUCCESS
    """Condition that an explored episode must meet to be trained on."""
    retrain_from: RetrainFrom = RetrainFrom.BASE
    """Whether each round's training starts from the base weights or from the last round's."""
    keep_demonstrations: bool = True
    """Whether every round trains on the demonstrations of `data`, or only the first."""


@frozen
class Algorithm:
    """How the policy is trained on episodes."""

    SHORTHAND: ClassVar[str] = "use"

    use: Preset = Preset.GRPO
    """Named combination of the parts below; each part can still be set on its own."""
    group_size: Size = 8
    """Episodes per task; the group is the baseline."""
    groups_per_step: Size = 32
    """Tasks drawn per step."""
    groups_per_update: Annotated[int, Bounds(at_least=1), Example(8)] | None = None
    """Groups per optimiser update; if not given, `updates_per_pass` decides. Must divide `groups_per_step`."""
    updates_per_pass: Size = 1
    """Optimiser updates per pass over a step's groups, if `groups_per_update` is not given. A preset's number is a
    maximum: the largest number up to it that divides `groups_per_step` is used."""
    batch_size: Size = 32
    """Sequences, or pairs, per update of an offline stage."""
    epochs: Size = 1
    """Passes over the episodes of a step."""
    kl_stop: Annotated[float, Bounds(above=0), Example(0.05)] | None = None
    """Mean KL from the sampling policy above which the passes over a step stop early."""
    lr: DynPositive = 1e-6
    """Learning rate."""
    max_grad_norm: Positive = 1.0
    """Maximum gradient norm; larger gradients are scaled down."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """The optimiser."""
    advantage: Advantage = field(default_factory=Advantage)
    """Advantages from rewards."""
    loss: Loss = field(default_factory=Loss)
    """Loss from advantages."""
    kl: KL = field(default_factory=KL)
    """KL penalty towards a reference policy."""
    entropy: Entropy = field(default_factory=Entropy)
    """Entropy bonus."""
    filter: Filter = field(default_factory=Filter)
    """Groups and episodes that an update trains on."""
    importance: Importance = field(default_factory=Importance)
    """Correction between the sampling and the learning policy."""
    critic: Critic = field(default_factory=Critic)
    """Value network; only with `baseline: critic`, or for ranking in `turn_dpo`."""
    data: Data = field(default_factory=Data)
    """Episodes of an offline stage."""
    preference: Preference = field(default_factory=Preference)
    """Learning from pairs."""
    distill: Distill = field(default_factory=Distill)
    """Learning from a teacher."""
    evolve: Evolve = field(default_factory=Evolve)
    """Rounds of exploring and retraining."""
