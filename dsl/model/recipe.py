"""What a recipe is, key by key: frozen dataclasses whose defaults live here and nowhere else.

`bind.py` makes one from a checked node tree; `rules.py` reads it; `lower.py` turns it into a Plan. A stage holds
complete settings: what it does not say itself it has inherited before it gets here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from ..expression.expr import Expr
from ..frozen import frozen
from .algorithm import Algorithm
from .fields import (
    Bounds,
    Count,
    DynInt,
    DynNonNegative,
    Example,
    FilePath,
    Fraction,
    HubPath,
    Json,
    Name,
    Nested,
    NonNegative,
    Pattern,
    Positive,
    Scope,
    Secret,
    Size,
    Slug,
    Wide,
)

__all__ = [
    "Agent",
    "AgentGymKind",
    "Checkpoint",
    "DType",
    "Dialect",
    "Environment",
    "Eval",
    "Family",
    "Format",
    "Gpu",
    "Guards",
    "Hardware",
    "Init",
    "Judge",
    "JudgeScope",
    "Launcher",
    "Layout",
    "Limits",
    "Lora",
    "Memory",
    "MemoryKind",
    "Model",
    "ModelShape",
    "Offload",
    "OnFault",
    "OnInvalid",
    "OnInvalidTurn",
    "OnTruncated",
    "Overlong",
    "Planning",
    "Recipe",
    "Reflection",
    "Reward",
    "RewardSource",
    "Rollout",
    "RolloutHardware",
    "Sampling",
    "SaveEpisodes",
    "Sink",
    "Stage",
    "TaskSelection",
    "Tasks",
    "TokenizerInit",
    "TokenizerKind",
    "TrainHardware",
    "Transport",
]

_ADDRESS = Pattern(r"https?://.+", "an http or https address")
_Stop = Annotated[str, Pattern(r"[\s\S]+", "text that is not empty")]
_SCORE = Expr("score")


class DType(StrEnum):
    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Family(StrEnum):
    QWEN3 = "qwen3"
    QWEN2 = "qwen2"
    LLAMA = "llama"


class TokenizerKind(StrEnum):
    BPE = "bpe"
    WORD = "word"


class Dialect(StrEnum):
    NATIVE = "native"
    AGENTGYM = "agentgym"
    OPENENV = "openenv"


class AgentGymKind(StrEnum):
    """The environments of AgentGym whose servers can be played on."""

    BABYAI = "babyai"
    SCIWORLD = "sciworld"
    SEARCHQA = "searchqa"
    SQLGYM = "sqlgym"
    TEXTCRAFT = "textcraft"
    WEBARENA = "webarena"
    WEBSHOP = "webshop"


class Transport(StrEnum):
    AUTO = "auto"
    INLINE = "inline"
    HTTP = "http"


class Format(StrEnum):
    REACT = "react"
    TOOLS = "tools"
    CODE = "code"
    PLAIN = "plain"


class OnInvalid(StrEnum):
    TELL = "tell"
    END = "end"


class OnInvalidTurn(StrEnum):
    KEEP = "keep"
    MASK_TURN = "mask_turn"
    MASK_EPISODE = "mask_episode"


class OnTruncated(StrEnum):
    TRAIN = "train"
    MASK = "mask"


class MemoryKind(StrEnum):
    FULL = "full"
    WINDOW = "window"
    SUMMARY = "summary"


class RewardSource(StrEnum):
    ENVIRONMENT = "environment"
    JUDGE = "judge"
    PAIRWISE = "pairwise"


class RewardNormalise(StrEnum):
    NONE = "none"
    ENVIRONMENT = "environment"


class JudgeScope(StrEnum):
    EPISODE = "episode"
    TURN = "turn"


class Layout(StrEnum):
    COLOCATED = "colocated"
    SPLIT = "split"


class Launcher(StrEnum):
    AUTO = "auto"
    INLINE = "inline"
    RAY = "ray"


class Offload(StrEnum):
    NONE = "none"
    OPTIMIZER = "optimizer"
    ALL = "all"


class OnFault(StrEnum):
    SKIP = "skip"
    ROLL_BACK = "roll_back"
    STOP = "stop"


class SaveEpisodes(StrEnum):
    NONE = "none"
    EVAL = "eval"
    ALL = "all"


class Gpu(StrEnum):
    """Cards whose memory is known."""

    A10 = "a10"
    L4 = "l4"
    L40S = "l40s"
    A100_40 = "a100-40gb"
    A100_80 = "a100-80gb"
    H100 = "h100"
    H200 = "h200"
    B200 = "b200"
    RTX_4090 = "rtx-4090"


# --- model ---------------------------------------------------------------------------------------------------------


@frozen
class TokenizerInit:
    """A tokenizer trained from text."""

    SHORTHAND: ClassVar[str] = "kind"

    kind: TokenizerKind = TokenizerKind.BPE
    """`bpe` splits any text; `word` has one token per word of the corpus and refuses other words."""
    vocab: Annotated[int, Bounds(at_least=32)] = 512
    """Size of the vocabulary, special tokens included; for `word` an upper bound."""
    corpus: Annotated[FilePath, Example("data/corpus.txt")] | None = None
    """A text file to train on; the prompts, observations and expert actions of the environments if not given."""


@frozen
class Init:
    """A model made from scratch."""

    family: Family = Family.QWEN3
    """Architecture."""
    layers: Size = 4
    """Transformer blocks."""
    hidden: Size = 128
    """Width of the residual stream; a multiple of `heads`."""
    heads: Size = 4
    """Attention heads."""
    kv_heads: Annotated[int, Bounds(at_least=1), Example(2)] | None = None
    """Key and value heads; must divide `heads`, and is `heads` if not given."""
    intermediate: Annotated[int, Bounds(at_least=1), Example(384)] | None = None
    """Width of the feed-forward layer; three times `hidden` if not given."""
    tie_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    tokenizer: TokenizerInit = field(default_factory=TokenizerInit)
    """How the tokenizer is made."""


@frozen
class ModelShape:
    """Sizes of a model whose configuration is not at hand, for the plan's memory estimate."""

    layers: Size
    """Transformer blocks."""
    hidden: Size
    """Width of the residual stream."""
    heads: Size
    """Attention heads."""
    kv_heads: Size
    """Key and value heads."""
    intermediate: Size
    """Width of the feed-forward layer."""
    vocab: Size
    """Rows of the embedding."""
    head_dim: Annotated[int, Bounds(at_least=1), Example(128)] | None = None
    """Width of a head; `hidden` over `heads` if not given."""
    tie_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    attention_bias: bool = False
    """Whether queries, keys and values have biases, as in Qwen2."""
    qk_norm: bool = False
    """Whether queries and keys are normalised per head, as in Qwen3."""


@frozen
class Lora:
    """Low-rank adapters on a frozen model."""

    rank: Annotated[int, Bounds(at_least=1, at_most=512)] = 16
    """Rank of each adapter; sampling engines take no more than 512."""
    alpha: Positive = 32.0
    """Scale; the adapter's output is multiplied by alpha / rank."""
    dropout: Annotated[float, Bounds(at_least=0, below=1)] = 0.0
    """Share of an adapter's inputs set to 0 in training; above 0 sampler and learner no longer agree exactly."""
    targets: tuple[Name, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Layers that get one."""


@frozen
class Model:
    """The policy: weights from a folder or hub, or made from scratch."""

    SHORTHAND: ClassVar[str] = "path"

    path: Annotated[HubPath, Example("Qwen/Qwen2.5-7B-Instruct")] | None = None
    """Folder or hub id; a folder is a path that starts with `.`, `/` or `~`."""
    revision: Annotated[Name, Example("main")] | None = None
    """Branch, tag or commit on the hub."""
    init: Init | None = None
    """Makes a model from scratch; instead of `path`."""
    tokenizer: Annotated[HubPath, Example("Qwen/Qwen2.5-7B-Instruct")] | None = None
    """Folder or hub id of another tokenizer than the model's own."""
    chat_template: Annotated[FilePath, Example("templates/plain.jinja")] | None = None
    """A Jinja file to use instead of the tokenizer's own chat template."""
    dtype: DType = DType.AUTO
    """Precision of weights and compute; `auto` is bf16 on GPUs and fp32 on a CPU."""
    lora: Lora | None = None
    """Trains adapters instead of all weights. The reference is then the base model, or the base with the adapters of a
    stage's start, and never a second model; a critic is a model of its own that learns by adapters of the same kind."""
    trust_remote_code: bool = False
    """Whether code that comes with a hub model may run."""
    shape: ModelShape | None = None
    """Sizes for the memory estimate, if neither the folder nor the table of known models has them."""


# --- environments --------------------------------------------------------------------------------------------------


@frozen
class TaskSelection:
    """Which of an environment's tasks."""

    SHORTHAND: ClassVar[str] = "split"

    split: Annotated[Name, Example("train")] | None = None
    """A split that the environment names."""
    ids: Annotated[tuple[Name, ...], Example(["craft-oak-door", "craft-iron-lamp"])] | None = None
    """These tasks, by their ids; instead of `split`."""
    file: Annotated[FilePath, Example("tasks/mine.txt")] | None = None
    """A file with one task id per line; instead of `split`."""
    range: Annotated[tuple[Count, Size], Example([0, 200])] | None = None
    """From the first up to, not including, the second, of the split's ids, in their order."""
    limit: Annotated[int, Bounds(at_least=1), Example(100)] | None = None
    """So many, drawn by the recipe's seed."""


@frozen
class Tasks:
    """Tasks to learn from and tasks to measure on; a run refuses an overlap."""

    train: TaskSelection = field(default_factory=lambda: TaskSelection(split="train"))
    """To learn from."""
    eval: TaskSelection = field(default_factory=lambda: TaskSelection(split="test"))
    """To measure on."""


@frozen
class Environment:
    """A world that sets tasks and answers actions."""

    SHORTHAND: ClassVar[str] = "use"

    use: Annotated[Name, Example("textcraft")] | None = None
    """A registered environment."""
    url: Annotated[str, _ADDRESS, Example("http://127.0.0.1:8200")] | None = None
    """A server that runs already; instead of `use`."""
    dialect: Dialect = Dialect.NATIVE
    """What the server at `url` speaks."""
    kind: AgentGymKind | None = None
    """Which of the AgentGym environments the server at `url` is; its replies differ by kind."""
    token: Annotated[str, Secret(), Example("${env:ENV_TOKEN}")] | None = None
    """Bearer token of the server at `url`."""
    tasks: Tasks = field(default_factory=Tasks)
    """Which tasks."""
    weight: DynNonNegative = 1.0
    """Share of a step's groups, relative to the other environments."""
    turns: DynInt | None = None
    """Horizon in this environment, where it differs from the stage's."""
    success_at: float = 1.0
    """The score from which an episode counts as a success."""
    replicas: Size = 1
    """Server processes."""
    transport: Transport = Transport.AUTO
    """In the trainer's process, or over HTTP; `auto` takes the process for light environments."""
    options: Annotated[Mapping[str, Json], Wide(), Example({"world": "small"})] = field(default_factory=dict)
    """What the environment itself understands."""


# --- agent ---------------------------------------------------------------------------------------------------------


@frozen
class Planning:
    """A plan first, revised as things go."""

    SHORTHAND: ClassVar[str] = "every"

    every: Annotated[int, Bounds(at_least=1), Example(5)] | None = None
    """Revises the plan every so many turns; only at the start if not given."""
    on_failure: bool = True
    """Also revises it after an action that the environment refused."""
    tokens: Size = 256
    """Tokens of a plan, at the most."""


@frozen
class Reflection:
    """After a failed attempt, another with the lesson."""

    SHORTHAND: ClassVar[str] = "attempts"

    attempts: Annotated[int, Bounds(at_least=2)] = 2
    """Attempts in all."""
    tokens: Size = 256
    """Tokens of a lesson, at the most."""


@frozen
class Memory:
    """What the agent still sees of its past turns."""

    SHORTHAND: ClassVar[str] = "kind"

    kind: MemoryKind = MemoryKind.FULL
    """All of it, the last turns, or the last turns and a summary of the others."""
    turns: Size = 8
    """Turns that stay in view under `window` and `summary`, a reply of several actions as one; the older ones leave it
    once there are twice as many."""
    tokens: Size = 256
    """Tokens of a summary, at the most."""


@frozen
class Agent:
    """How a model becomes an agent: its prompt, its budgets, what happens when it errs."""

    SHORTHAND: ClassVar[str] = "format"
    RENAMED: ClassVar[Mapping[str, str]] = {"on_void_turn": "on_invalid_turn"}

    format: Format = Format.REACT
    """`react`: a thought, then an action. `tools`: the model's own tool calls. `code`: a code block. `plain`: the
    whole reply is the action."""
    prompt: Annotated[FilePath, Example("prompts/terse.txt")] | None = None
    """A file with the system prompt; the format's and the environment's own if not given."""
    tokens_per_turn: DynInt = 512
    """Tokens sampled in one turn, at the most; what an unfinished reply says is not done."""
    context_tokens: Size = 8192
    """Tokens in view: of a whole episode, or, where `memory` or `reflection` cut it, of each piece."""
    observation_tokens: Annotated[int, Bounds(at_least=1), Example(1024)] | None = None
    """Longer observations are cut in the middle, and say so."""
    thinking: bool = True
    """Whether the model may think before it acts; if not, a reply holds the action alone."""
    parallel_calls: Size = 1
    """Actions taken from one reply under `tools`."""
    guided: bool = False
    """Lets only valid actions be sampled, where the environment lists them; to measure with, not to learn from."""
    demonstrations: Count = 0
    """Expert episodes of other training tasks shown in the prompt."""
    on_invalid: OnInvalid = OnInvalid.TELL
    """What follows a reply that holds no action: the agent is told, or the episode ends."""
    invalid_limit: Annotated[int, Bounds(at_least=1), Example(3)] | None = None
    """Ends the episode after so many such replies in a row."""
    on_invalid_turn: OnInvalidTurn = OnInvalidTurn.KEEP
    """Whether a reply that holds no action is learnt from; masked episodes stay in the baseline."""
    on_truncated: OnTruncated = OnTruncated.TRAIN
    """Whether an episode that ran out of turns or tokens is learnt from."""
    planning: Planning | None = None
    """Makes a plan before acting."""
    reflection: Reflection | None = None
    """Tries again after a failure; the last attempt's score counts."""
    memory: Memory = field(default_factory=Memory)
    """What stays in view."""


@frozen
class Sampling:
    """How tokens are drawn."""

    temperature: DynNonNegative = 1.0
    """Flatter above 1, sharper below; 0 takes the likeliest, and cannot be learnt from."""
    top_p: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    """Draws from the likeliest tokens that together have this probability."""
    top_k: Count = 0
    """Draws from so many of the likeliest tokens; 0 for all."""
    min_p: Fraction = 0.0
    """Leaves out tokens less likely than this share of the likeliest."""
    stop: Annotated[tuple[_Stop, ...], Nested(), Example(["</action>"])] = ()
    """Texts that end a turn, beside the model's own end token."""


# --- reward --------------------------------------------------------------------------------------------------------


@frozen
class Judge:
    """A model that scores episodes, behind an OpenAI-compatible endpoint."""

    url: Annotated[str, _ADDRESS, Example("http://127.0.0.1:8000/v1")]
    """Base address of the endpoint."""
    model: Annotated[Name, Example("Qwen/Qwen2.5-72B-Instruct")]
    """Name of the judge at that endpoint."""
    prompt: Annotated[FilePath, Example("prompts/judge.txt")] | None = None
    """A file with what to ask; a general rubric if not given."""
    token: Annotated[str, Secret(), Example("${env:JUDGE_TOKEN}")] | None = None
    """Bearer token."""
    scope: JudgeScope = JudgeScope.EPISODE
    """Scores whole episodes, or each turn."""
    scale: Annotated[tuple[float, float], Example([0, 10])] = (0.0, 10.0)
    """Lowest and highest score; mapped to 0 and 1."""
    samples: Size = 1
    """Verdicts per episode; their mean counts."""
    concurrency: Size = 16
    """Requests at the same time, at the most."""
    timeout_s: Positive = 60.0
    """Longest wait for a verdict."""
    retries: Count = 3
    """Further tries after a failure; then the episode is left out and counted."""
    cache: bool = True
    """Keeps verdicts in the run folder and never asks twice."""
    max_calls: Annotated[int, Bounds(at_least=1), Example(100000)] | None = None
    """Ends the run, resumable, after so many requests."""


@frozen
class Overlong:
    """A penalty that rises softly towards the token budget."""

    buffer: Size = 512
    """Sampled tokens before the budget's end at which it begins."""
    penalty: NonNegative = 1.0
    """What is taken off at the end of the budget."""


@frozen
class Reward:
    """What an episode is worth."""

    SHORTHAND: ClassVar[str] = "episode"

    source: RewardSource = RewardSource.ENVIRONMENT
    """Where `score` comes from: the environment, a judge, or a judge that compares the episodes of a group in pairs."""
    episode: Annotated[Expr, Scope("episode", number=True), Example("score - 0.05 * invalid_turns")] = _SCORE
    """The outcome, on the last action token of the episode."""
    turn: Annotated[Expr, Scope("turn", number=True), Example("0.1 * turn_reward")] | None = None
    """A reward of each turn's own, on the turn's last action token; none if not given."""
    invalid_turn: DynNonNegative = 0.0
    """Taken off at each reply that holds no action."""
    overlong: Overlong | None = None
    """Taken off episodes that come close to the token budget."""
    clip: Annotated[tuple[float, float], Example([-1, 1])] | None = None
    """Bounds of the outcome, after all terms."""
    normalise: RewardNormalise = RewardNormalise.NONE
    """`environment` divides by a running standard deviation per environment."""
    judge: Judge | None = None
    """The judge."""


# --- schedule ------------------------------------------------------------------------------------------------------


@frozen
class Stage:
    """An entry of the schedule, complete: what it did not say it has from the recipe."""

    stage: Annotated[Slug, Example("explore")]
    """Its name; unique."""
    turns: Annotated[int | Expr, Bounds(at_least=1), Scope("schedule"), Example(10)] | None = None
    """The interaction horizon: turns allowed in an episode."""
    until: Annotated[Expr, Scope("until"), Example("step >= 100 or mean(success, 10) >= 0.8")] | None = None
    """The stage ends after the first step for which this is true."""
    shrink: bool = False
    """Allows fewer turns than the stage before."""
    eval_every: Annotated[int, Bounds(at_least=1), Example(500)] | None = None
    """Steps of the run between two measurements while this stage lasts; as `eval.every` says if not given."""
    algorithm: Algorithm = field(default_factory=Algorithm)
    """Overrides of the recipe's `algorithm`."""
    environments: Mapping[str, Environment] = field(default_factory=dict)
    """Overrides of the recipe's `environments`; null leaves one out of this stage."""
    agent: Agent = field(default_factory=Agent)
    """Overrides of the recipe's `agent`."""
    sampling: Sampling = field(default_factory=Sampling)
    """Overrides of the recipe's `sampling`."""
    reward: Reward = field(default_factory=Reward)
    """Overrides of the recipe's `reward`."""


# --- the run -------------------------------------------------------------------------------------------------------


@frozen
class Limits:
    """Episodes that may be in the same phase at the same time; as many as there are slots if not given."""

    reset: Annotated[int, Bounds(at_least=1), Example(8)] | None = None
    """Starting a task."""
    step: Annotated[int, Bounds(at_least=1), Example(64)] | None = None
    """Waiting for the environment's answer."""
    score: Annotated[int, Bounds(at_least=1), Example(16)] | None = None
    """Being scored."""


@frozen
class Rollout:
    """How episodes are run."""

    slots: Annotated[int, Bounds(at_least=1), Example(128)] | None = None
    """Episodes in progress at the same time; a whole step's if not given."""
    limits: Limits = field(default_factory=Limits)
    """Narrower limits per phase."""
    retries: Count = 2
    """Further tries of an episode whose environment failed; then it is left out and counted."""
    reset_timeout_s: Positive = 60.0
    """Longest wait for a task to start, and for its solution to be shown."""
    step_timeout_s: Positive = 30.0
    """Longest wait for the answer to an action."""
    episode_timeout_s: Positive = 1800.0
    """Longest time of one episode."""
    max_fault_share: Fraction = 0.5
    """Ends the run, resumable, when more than this share of a step's episodes was lost to failing environments
    or judges."""


@frozen
class Eval:
    """Measuring on tasks that are never learnt from."""

    every: Size = 25
    """Steps between two measurements."""
    at_start: bool = True
    """Also before the first step."""
    at_end: bool = True
    """Also after the last."""
    tasks: Annotated[Name, Example("test")] | None = None
    """Another split than the environments' own `tasks.eval`."""
    limit: Annotated[int, Bounds(at_least=1), Example(100)] | None = None
    """So many tasks of each environment, drawn by the recipe's seed."""
    turns: Annotated[tuple[Size, ...], Nested(), Example([10, 20, 30])] | None = None
    """Horizon, or several to measure at; the largest of the schedule if not given."""
    samples: Size = 1
    """Episodes per task; `avg@k` is their mean, `pass@k` whether one succeeds."""
    temperature: NonNegative = 1.0
    """At which tokens are drawn."""
    greedy: bool = False
    """Also measures at temperature 0."""
    confidence: Annotated[float, Bounds(above=0, below=1)] = 0.95
    """Coverage of the bootstrap intervals over tasks."""


@frozen
class Checkpoint:
    """What is kept for a resume and for use."""

    SHORTHAND: ClassVar[str] = "every"

    every: Size = 25
    """Steps between two checkpoints."""
    keep: Size = 2
    """The newest so many are kept; exported weights of older ones stay."""
    best: Annotated[Name, Example("eval/textcraft/success")] | None = None
    """Also keeps the checkpoint where this metric was highest."""
    export: bool = True
    """Writes safetensors at every save."""
    episodes: SaveEpisodes = SaveEpisodes.EVAL
    """Which episodes are saved for `agym view`."""


@frozen
class RolloutHardware:
    """The engines that sample."""

    tensor_parallel: Size = 1
    """GPUs that share one engine; must divide the model's heads."""
    gpus: Annotated[int, Bounds(at_least=1), Example(4)] | None = None
    """GPUs that sample, of all nodes together, under `layout: split`."""
    memory_share: Annotated[float, Bounds(above=0, at_most=1)] = 0.85
    """Share of a GPU's memory that an engine takes for weights and cache."""
    kv_cache_gb: Annotated[float, Bounds(above=0), Example(2.0)] | None = None
    """Size of the cache on a CPU; what the slots need if not given."""
    block_size: Size = 32
    """Tokens in one block of the cache."""
    eager: bool | None = None
    """Skips graph capture: quicker to start, slower to sample. On a CPU always so."""


@frozen
class TrainHardware:
    """The engines that learn."""

    zero: Annotated[int, Bounds(at_least=0, at_most=3)] = 2
    """ZeRO stage: what is split over the ranks. 1: optimiser. 2: and gradients. 3: and weights."""
    gpus: Annotated[int, Bounds(at_least=1), Example(4)] | None = None
    """GPUs that learn, of all nodes together, under `layout: split`."""
    offload: Offload = Offload.NONE
    """What is kept in host memory between its uses."""
    tokens_per_micro_batch: Annotated[int, Bounds(at_least=1), Example(16384)] | None = None
    """Packed tokens in one forward pass; one episode of full length if not given."""
    activation_checkpointing: bool = True
    """Computes activations again in the backward pass instead of keeping them."""


@frozen
class Hardware:
    """What the run may use."""

    nodes: Size = 1
    """Machines."""
    gpus_per_node: Count = 0
    """GPUs on each; 0 runs on the CPU."""
    gpu: Gpu | None = None
    """The card, for the memory estimate."""
    gpu_memory_gb: Annotated[float, Bounds(above=0), Example(80.0)] | None = None
    """Memory of a card that the table does not know."""
    threads: Annotated[int, Bounds(at_least=1), Example(1)] | None = None
    """CPU threads of each engine; chosen by model size if not given."""
    layout: Layout = Layout.COLOCATED
    """Sampling and learning take turns on the same GPUs, or have their own."""
    launcher: Launcher = Launcher.AUTO
    """Workers in this process, or as Ray actors; `auto` takes Ray from two GPUs on."""
    ray_address: Annotated[Name, Example("auto")] | None = None
    """A Ray cluster that runs already; one is started on this machine if not given."""
    staleness: Count = 0
    """Steps that sampling may lag behind; 0 is strictly on-policy."""
    rollout: RolloutHardware = field(default_factory=RolloutHardware)
    """The engines that sample."""
    train: TrainHardware = field(default_factory=TrainHardware)
    """The engines that learn."""


@frozen
class Guards:
    """What must not go unnoticed."""

    on_nan: OnFault = OnFault.ROLL_BACK
    """After a loss or gradient that is not a number: skip the update, roll back to the last good checkpoint, stop."""
    kl_max: Annotated[float, Bounds(above=0), Example(1.0)] | None = None
    """Bound on the mean divergence from the sampling policy in one update."""
    on_kl: OnFault = OnFault.ROLL_BACK
    """What follows when it is passed."""
    grad_norm_max: Annotated[float, Bounds(above=0), Example(50.0)] | None = None
    """Bound on the norm of the gradient before it is scaled down."""
    on_grad_norm: OnFault = OnFault.SKIP
    """What follows when it is passed."""
    entropy_min: Annotated[float, Bounds(above=0), Example(0.03)] | None = None
    """Stops when the entropy per sampled token stays below this."""
    zero_std_max: Annotated[float, Bounds(above=0, at_most=1), Example(0.95)] | None = None
    """Stops when the share of groups whose episodes all score the same stays above this."""
    invalid_max: Annotated[float, Bounds(above=0, at_most=1), Example(0.5)] | None = None
    """Stops when the share of replies that hold no action stays above this."""
    mismatch_max: Annotated[float, Bounds(above=0), Example(0.05)] | None = None
    """Stops when the mean divergence between sampler and learner on the same tokens and weights is above this."""
    patience: Size = 5
    """Steps that "stays" means."""
    max_roll_backs: Count = 3
    """Roll-backs in one run, at the most; then it stops."""


@frozen
class Sink:
    """Where metrics go, beside the console and `metrics.jsonl`."""

    SHORTHAND: ClassVar[str] = "use"

    use: Annotated[Name, Example("tensorboard")]
    """`tensorboard`, `wandb`, `mlflow`, or one that a plugin brings."""
    project: Annotated[Name, Example("textcraft")] | None = None
    """Project of wandb, experiment of mlflow; the recipe's name if not given."""
    entity: Annotated[Name, Example("my-team")] | None = None
    """Account of wandb."""
    uri: Annotated[Name, Example("file:./mlruns")] | None = None
    """Tracking address of mlflow."""
    offline: bool = False
    """Writes to disk only, to be sent later."""
    options: Annotated[Mapping[str, Json], Wide(), Example({"group": "ablation"})] = field(default_factory=dict)
    """What a plugin's sink itself understands."""


@frozen
class Recipe:
    """One training run, whole."""

    agym: Literal[1]
    """Version of the recipe language."""
    name: Annotated[Slug, Example("textcraft-scaling-inter")]
    """Name of the run and of its folder."""
    description: Annotated[str, Example("GRPO with a growing horizon")] = ""
    """One line, for people."""
    seed: Annotated[int, Bounds(at_least=0, at_most=2**32 - 1)] = 0
    """Everything that is drawn is drawn from this."""
    output: Annotated[Name, Example("runs")] = "runs"
    """Folder in which the run's own folder is made."""
    tags: Annotated[tuple[Name, ...], Nested(), Example(["ablation"])] = ()
    """Words to find the run by."""
    model: Model
    """The policy."""
    environments: Annotated[Mapping[Slug, Environment], Example({"textcraft": {"use": "textcraft"}})]
    """The worlds, by names of your own."""
    agent: Agent = field(default_factory=Agent)
    """The agent around the model."""
    sampling: Sampling = field(default_factory=Sampling)
    """How tokens are drawn in training."""
    reward: Reward = field(default_factory=Reward)
    """What an episode is worth."""
    algorithm: Algorithm = field(default_factory=Algorithm)
    """How the weights learn."""
    schedule: tuple[Stage, ...]
    """The stages, in order."""
    rollout: Rollout = field(default_factory=Rollout)
    """How episodes are run."""
    eval: Eval | None = field(default_factory=Eval)
    """Measuring; null for none."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """Saving."""
    hardware: Hardware = field(default_factory=Hardware)
    """What the run may use."""
    guards: Guards = field(default_factory=Guards)
    """What must not go unnoticed."""
    logging: Annotated[tuple[Sink, ...], Nested(), Example(["tensorboard"])] = ()
    """Where metrics go, beside the console and `metrics.jsonl`."""
