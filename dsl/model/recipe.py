"""The recipe, key by key: frozen dataclasses, the only place where defaults live.

A stage holds complete settings: it has already inherited what it does not set itself.
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
    InScope,
    Json,
    Name,
    Nested,
    NonNegative,
    Pattern,
    Positive,
    Refers,
    Secret,
    Size,
    Slug,
    Wide,
)

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


class Thoughts(StrEnum):
    KEEP = "keep"
    STRIP = "strip"
    AUTO = "auto"


class Parsing(StrEnum):
    LENIENT = "lenient"
    STRICT = "strict"


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


class HarnessScore(StrEnum):
    ENVIRONMENT = "environment"
    RESULT = "result"


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


class WeightTransfer(StrEnum):
    AUTO = "auto"
    OBJECT_STORE = "object_store"


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
    SOME = "some"
    ALL = "all"


class SaveEvaluations(StrEnum):
    NONE = "none"
    ALL = "all"


class Gpu(StrEnum):
    """GPUs whose memory is known."""

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
    """Size of the vocabulary, special tokens included; an upper bound for `word`."""
    corpus: Annotated[FilePath, Example("data/corpus.txt")] | None = None
    """Text file to train on; the environments' prompts, observations and expert actions if not given."""


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
    """Key and value heads; must divide `heads`. Defaults to `heads`."""
    intermediate: Annotated[int, Bounds(at_least=1), Example(384)] | None = None
    """Width of the feed-forward layer; three times `hidden` if not given."""
    tie_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    tokenizer: TokenizerInit = field(default_factory=TokenizerInit)
    """How the tokenizer is made."""


@frozen
class ModelShape:
    """Sizes of a model without a configuration at hand, for the plan's memory estimate."""

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
    """Head size; `hidden` / `heads` if not given."""
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
    """Dropout on the adapters' inputs in training; above 0, sampler and learner no longer agree exactly."""
    targets: tuple[Name, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Layers with an adapter."""
    path: Annotated[FilePath, Example("runs/first/weights/adapter")] | None = None
    """Folder of adapters to begin with, as PEFT or `agym export` writes them; `rank`, `alpha` and `targets` must be
    theirs."""


@frozen
class Model:
    """The policy: weights from a folder or hub, or made from scratch."""

    SHORTHAND: ClassVar[str] = "path"

    path: Annotated[HubPath, Example("Qwen/Qwen2.5-7B-Instruct")] | None = None
    """Folder, hub id, or a name of `agym models list`; a folder is a path that starts with `.`, `/` or `~`."""
    revision: Annotated[Name, Example("main")] | None = None
    """Branch, tag or commit on the hub."""
    init: Init | None = None
    """A model made from scratch; instead of `path`."""
    tokenizer: Annotated[HubPath, Example("Qwen/Qwen2.5-7B-Instruct")] | None = None
    """Folder or hub id of a tokenizer to use instead of the model's own."""
    chat_template: Annotated[FilePath, Example("templates/plain.jinja")] | None = None
    """Jinja file to use instead of the tokenizer's own chat template."""
    dtype: DType = DType.AUTO
    """Precision of weights and compute; `auto` is bf16 on GPUs, bf16 for a pretrained model on a CPU with bf16
    instructions, and fp32 otherwise. `fp16` only to evaluate."""
    lora: Lora | None = None
    """Adapters to train instead of all weights. The reference is then the base model, or the base with the adapters
    from the start of the stage, never a second model; a critic is a model of its own that trains adapters of the same
    kind."""
    trust_remote_code: bool = False
    """Whether code shipped with a hub model may run."""
    shape: ModelShape | None = None
    """Sizes for the memory estimate, if neither the folder nor the table of known models has them."""


# --- environments --------------------------------------------------------------------------------------------------


@frozen
class TaskSelection:
    """A selection of an environment's tasks."""

    SHORTHAND: ClassVar[str] = "split"

    split: Annotated[Name, Example("train")] | None = None
    """Split of the environment."""
    ids: Annotated[tuple[Name, ...], Example(["craft-oak-door", "craft-iron-lamp"])] | None = None
    """Task ids; instead of `split`."""
    file: Annotated[FilePath, Example("tasks/mine.txt")] | None = None
    """File with one task id per line; instead of `split`."""
    range: Annotated[tuple[Count, Size], Example([0, 200])] | None = None
    """Range of the split's ids in their order, the end excluded."""
    limit: Annotated[int, Bounds(at_least=1), Example(100)] | None = None
    """Number of tasks, drawn with the recipe's seed."""


@frozen
class Tasks:
    """Tasks for training and tasks for evaluation; a run refuses an overlap."""

    train: TaskSelection = field(default_factory=lambda: TaskSelection(split="train"))
    """Tasks for training."""
    eval: TaskSelection = field(default_factory=lambda: TaskSelection(split="test"))
    """Tasks for evaluation."""


@frozen
class Environment:
    """A world that sets tasks and responds to actions."""

    SHORTHAND: ClassVar[str] = "use"

    use: Annotated[Name, Refers(hub=True), Example("textcraft")] | None = None
    """Name of a registered environment, or a folder with your own: `./my_env`, in which are `env.json` and `env.py`."""
    url: Annotated[str, _ADDRESS, Example("http://127.0.0.1:8200")] | None = None
    """Address of a server that is already running; instead of `use`."""
    dialect: Dialect = Dialect.NATIVE
    """Protocol of the server at `url`."""
    kind: AgentGymKind | None = None
    """AgentGym environment behind the server at `url`; replies differ by kind."""
    token: Annotated[str, Secret(), Example("${env:ENV_TOKEN}")] | None = None
    """Bearer token for the server at `url`."""
    tasks: Tasks = field(default_factory=Tasks)
    """Tasks for training and evaluation."""
    weight: DynNonNegative = 1.0
    """Share of a step's groups, relative to the other environments."""
    turns: DynInt | None = None
    """Horizon in this environment, if not the stage's."""
    success_at: float = 1.0
    """Lowest score that counts as a success."""
    replicas: Size = 1
    """Number of server processes."""
    sessions: Annotated[int, Bounds(at_least=1), Example(1)] | None = None
    """Episodes open in it at once, for a server that takes no more; the others wait for their turn."""
    transport: Transport = Transport.AUTO
    """In the trainer's process or over HTTP; `auto` runs light environments in the process."""
    options: Annotated[Mapping[str, Json], Wide(), Refers(hub=True), Example({"world": "small"})] = field(
        default_factory=dict
    )
    """Options of the environment itself; text that begins with `./` or `../` is a path."""


# --- agent ---------------------------------------------------------------------------------------------------------


@frozen
class Planning:
    """A plan made first and revised along the way."""

    SHORTHAND: ClassVar[str] = "every"

    every: Annotated[int, Bounds(at_least=1), Example(5)] | None = None
    """Turns between revisions of the plan; only one plan at the start if not given."""
    on_failure: bool = True
    """Whether to revise the plan after an action that the environment refused."""
    tokens: Size = 256
    """Maximum length of a plan, in tokens."""


@frozen
class Reflection:
    """Another attempt after a failure, with the lesson from it."""

    SHORTHAND: ClassVar[str] = "attempts"

    attempts: Annotated[int, Bounds(at_least=2)] = 2
    """Attempts in all."""
    tokens: Size = 256
    """Maximum length of a lesson, in tokens."""


@frozen
class Memory:
    """How much of its past turns the agent still sees."""

    SHORTHAND: ClassVar[str] = "kind"

    kind: MemoryKind = MemoryKind.FULL
    """All turns, the last turns, or the last turns and a summary of the others."""
    turns: Size = 8
    """Turns kept in view under `window` and `summary`, a reply with several actions counting as one; older ones are
    dropped once there are twice as many."""
    tokens: Size = 256
    """Maximum length of a summary, in tokens."""


@frozen
class HarnessLimits:
    """Limits of the processes of one episode."""

    memory_mb: Size = 4096
    """Memory of all its processes together, in MiB."""
    processes: Size = 64
    """Processes at a time."""
    output_kb: Size = 1024
    """Size of its result, and of its log on standard error, in KiB."""
    file_mb: Size = 256
    """Size of each file that it writes, in MiB."""


@frozen
class Harness:
    """An agent written elsewhere, which reaches the policy by an OpenAI-compatible endpoint."""

    SHORTHAND: ClassVar[str] = "use"

    use: Annotated[Name, Example("my-agent")] | None = None
    """Name under which an installed package registers it, in the entry point group `agym.harnesses`."""
    command: Annotated[tuple[HubPath, ...], Example(["python", "./agent.py"])] | None = None
    """Command that plays one episode, instead of `use`: the task as JSON on its standard input, the result as JSON on
    its standard output. A word that begins with `./` or `../` is a path."""
    options: Annotated[Mapping[str, Json], Wide(), Example({"style": "terse"})] = field(default_factory=dict)
    """Options of the harness itself, handed to it with the task."""
    score: HarnessScore = HarnessScore.ENVIRONMENT
    """Where the score of an episode comes from: the environment's session, or the result that the harness gives."""
    requests: Size = 100
    """Requests to the policy in one episode; further ones are refused."""
    timeout_s: Positive = 600.0
    """Time limit for one episode, in seconds; a harness that is not done by then counts as a fault."""
    log_kb: Size = 64
    """Size up to which its log is kept in the run folder; of a longer one its beginning and end, in KiB."""
    limits: HarnessLimits = field(default_factory=HarnessLimits)
    """Limits of a command's processes."""


@frozen
class Agent:
    """How a model becomes an agent: its prompt, its budgets, and what happens when it errs."""

    SHORTHAND: ClassVar[str] = "format"
    RENAMED: ClassVar[Mapping[str, str]] = {"on_void_turn": "on_invalid_turn"}

    format: Format = Format.REACT
    """`react`: a thought, then an action. `tools`: the model's own tool calls. `code`: a code block. `plain`: the
    whole reply is the action."""
    parsing: Parsing = Parsing.LENIENT
    """How replies are read. `strict`: as the format writes them. `lenient`: also in the forms that models give them
    otherwise, as long as they hold one action and no other."""
    prompt: Annotated[FilePath, Example("prompts/terse.txt")] | None = None
    """File with the system prompt; the format's and the environment's own if not given."""
    tokens_per_turn: DynInt = 512
    """Maximum tokens sampled per turn; the action in an unfinished reply is not taken."""
    context_tokens: Size = 8192
    """Context length in tokens: of a whole episode, or of each piece where `memory` or `reflection` splits it."""
    observation_tokens: Annotated[int, Bounds(at_least=1), Example(1024)] | None = None
    """Maximum length of an observation; longer ones are cut in the middle and say so."""
    thinking: bool = True
    """Whether the model may think before it acts; if not, a reply is the action alone."""
    thoughts: Thoughts = Thoughts.KEEP
    """Thoughts of earlier turns. `keep`: they stay in view, as they were sampled. `strip`: they are dropped, and the
    earlier turns shown as the chat template shows them, so that a reply with thoughts begins a new token sequence.
    `auto`: `strip` where the template drops them, else `keep`."""
    parallel_calls: Size = 1
    """Actions taken from one reply under `tools`."""
    guided: bool = False
    """Whether only valid actions can be sampled, where the environment lists them; for evaluation, not for training."""
    show_actions: bool | None = None
    """Whether each observation ends with the actions that are possible now, where the environment lists them; if not
    given, a pretrained model is shown them and one made from scratch is not."""
    demonstrations: Count = 0
    """Expert episodes of other training tasks that stand in the chat before the task, as turns of its own."""
    on_invalid: OnInvalid = OnInvalid.TELL
    """Response to a reply without an action: tell the agent, or end the episode."""
    invalid_limit: Annotated[int, Bounds(at_least=1), Example(3)] | None = None
    """Replies without an action in a row after which the episode ends."""
    on_invalid_turn: OnInvalidTurn = OnInvalidTurn.KEEP
    """Whether to train on a reply without an action; masked episodes stay in the baseline."""
    on_truncated: OnTruncated = OnTruncated.TRAIN
    """Whether to train on an episode that ran out of turns or tokens."""
    planning: Planning | None = None
    """A plan before acting."""
    reflection: Reflection | None = None
    """New attempts after a failure; the last attempt's score counts."""
    memory: Memory = field(default_factory=Memory)
    """Past turns that stay in view."""
    harness: Harness | None = None
    """An agent written elsewhere that plays instead of our own."""


@frozen
class Sampling:
    """How tokens are sampled."""

    temperature: DynNonNegative = 1.0
    """Sampling temperature: above 1 flatter, below 1 sharper; 0 takes the likeliest token and cannot be used for
    training."""
    top_p: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    """Probability mass of the likeliest tokens to sample from."""
    top_k: Count = 0
    """Number of likeliest tokens to sample from; 0 for all."""
    min_p: Fraction = 0.0
    """Smallest probability of a token, relative to the likeliest one's."""
    stop: Annotated[tuple[_Stop, ...], Nested(), Example(["</action>"])] = ()
    """Strings that end a turn, in addition to the model's own end token."""


# --- reward --------------------------------------------------------------------------------------------------------


@frozen
class Judge:
    """A model that scores episodes, behind an OpenAI-compatible endpoint."""

    url: Annotated[str, _ADDRESS, Example("http://127.0.0.1:8000/v1")]
    """Base address of the endpoint."""
    model: Annotated[Name, Example("Qwen/Qwen2.5-72B-Instruct")]
    """Name of the judge at that endpoint."""
    prompt: Annotated[FilePath, Example("prompts/judge.txt")] | None = None
    """File with the instructions to the judge; a general rubric if not given."""
    token: Annotated[str, Secret(), Example("${env:JUDGE_TOKEN}")] | None = None
    """Bearer token."""
    scope: JudgeScope = JudgeScope.EPISODE
    """What is scored: whole episodes or each turn."""
    scale: Annotated[tuple[float, float], Example([0, 10])] = (0.0, 10.0)
    """Lowest and highest score, mapped to 0 and 1."""
    samples: Size = 1
    """Verdicts per episode; their mean counts."""
    concurrency: Size = 16
    """Maximum number of concurrent requests."""
    timeout_s: Positive = 60.0
    """Time limit for a verdict, in seconds."""
    retries: Count = 3
    """Retries after a failure; then the episode is left out and counted."""
    cache: bool = True
    """Whether to keep verdicts in the run folder and never ask twice."""
    max_calls: Annotated[int, Bounds(at_least=1), Example(100000)] | None = None
    """Number of requests after which the run stops, resumable."""


@frozen
class Overlong:
    """A penalty that rises gradually towards the token budget."""

    buffer: Size = 512
    """Sampled tokens before the end of the budget at which the penalty starts."""
    penalty: NonNegative = 1.0
    """Penalty at the end of the budget."""


@frozen
class Reward:
    """The reward of an episode."""

    SHORTHAND: ClassVar[str] = "episode"

    source: RewardSource = RewardSource.ENVIRONMENT
    """Source of `score`: the environment, a judge, or a judge that compares the episodes of a group in pairs."""
    episode: Annotated[Expr, InScope("episode", number=True), Example("score - 0.05 * invalid_turns")] = _SCORE
    """Outcome reward, on the last action token of the episode."""
    turn: Annotated[Expr, InScope("turn", number=True), Example("0.1 * turn_reward")] | None = None
    """Reward of each turn, on the turn's last action token; none if not given."""
    invalid_turn: DynNonNegative = 0.0
    """Penalty for each reply without an action."""
    overlong: Overlong | None = None
    """Penalty for episodes close to the token budget."""
    clip: Annotated[tuple[float, float], Example([-1, 1])] | None = None
    """Bounds of the outcome, after all terms."""
    normalise: RewardNormalise = RewardNormalise.NONE
    """`environment` divides by a running standard deviation per environment."""
    judge: Judge | None = None
    """The judge: it gives the score under `source: judge` or `pairwise`, and answers what environments leave to it."""


# --- schedule ------------------------------------------------------------------------------------------------------


@frozen
class Stage:
    """An entry of the schedule, complete: keys that it does not set come from the recipe."""

    stage: Annotated[Slug, Example("explore")]
    """Name of the stage; unique."""
    turns: Annotated[int | Expr, Bounds(at_least=1), InScope("schedule"), Example(10)] | None = None
    """Interaction horizon: turns allowed in an episode."""
    until: Annotated[Expr, InScope("until"), Example("step >= 100 or mean(success, 10) >= 0.8")] | None = None
    """End condition; the stage ends after the first step for which it is true."""
    shrink: bool = False
    """Whether fewer turns than in the stage before are allowed."""
    eval_every: Annotated[int, Bounds(at_least=1), Example(500)] | None = None
    """Steps of the run between evaluations during this stage; `eval.every` if not given."""
    algorithm: Algorithm = field(default_factory=Algorithm)
    """Overrides of the recipe's `algorithm`."""
    environments: Mapping[str, Environment] = field(default_factory=dict)
    """Overrides of the recipe's `environments`; null removes one from this stage."""
    agent: Agent = field(default_factory=Agent)
    """Overrides of the recipe's `agent`."""
    sampling: Sampling = field(default_factory=Sampling)
    """Overrides of the recipe's `sampling`."""
    reward: Reward = field(default_factory=Reward)
    """Overrides of the recipe's `reward`."""


# --- the run -------------------------------------------------------------------------------------------------------


@frozen
class Limits:
    """Episodes that may be in the same phase at once; as many as there are slots if not given."""

    reset: Annotated[int, Bounds(at_least=1), Example(8)] | None = None
    """Episodes starting a task."""
    step: Annotated[int, Bounds(at_least=1), Example(64)] | None = None
    """Episodes waiting for the environment."""
    score: Annotated[int, Bounds(at_least=1), Example(16)] | None = None
    """Episodes being scored."""


@frozen
class Rollout:
    """How episodes are played."""

    slots: Annotated[int, Bounds(at_least=1), Example(128)] | None = None
    """Episodes in progress at once; those of a whole step if not given."""
    limits: Limits = field(default_factory=Limits)
    """Narrower limits per phase."""
    retries: Count = 2
    """Retries of an episode whose environment failed; then it is left out and counted."""
    reset_timeout_s: Positive = 60.0
    """Time limit for starting a task, and for its solution, in seconds."""
    step_timeout_s: Positive = 30.0
    """Time limit for the response to an action, in seconds."""
    episode_timeout_s: Positive = 1800.0
    """Time limit for one episode, in seconds."""
    max_fault_share: Fraction = 0.5
    """Share of a step's episodes lost to failing environments or judges above which the run stops, resumable."""


@frozen
class Eval:
    """Evaluation on tasks that are never used for training."""

    every: Size = 25
    """Steps between evaluations."""
    at_start: bool = True
    """Whether to evaluate before the first step."""
    at_end: bool = True
    """Whether to evaluate after the last step."""
    tasks: Annotated[Name, Example("test")] | None = None
    """Split to evaluate on instead of the environments' own `tasks.eval`."""
    limit: Annotated[int, Bounds(at_least=1), Example(100)] | None = None
    """Number of tasks per environment, drawn with the recipe's seed."""
    turns: Annotated[tuple[Size, ...], Nested(), Example([10, 20, 30])] | None = None
    """Horizon, or several; the largest of the schedule if not given."""
    samples: Size = 1
    """Episodes per task; `avg@k` is their mean, `pass@k` whether one succeeds."""
    temperature: NonNegative = 1.0
    """Sampling temperature for evaluation."""
    greedy: bool = False
    """Whether to evaluate at temperature 0 as well."""
    confidence: Annotated[float, Bounds(above=0, below=1)] = 0.95
    """Coverage of the bootstrap intervals over tasks."""


@frozen
class SavedEpisodes:
    """Which episodes are saved in the run folder, for `agym view` and to train on later."""

    SHORTHAND: ClassVar[str] = "which"

    which: SaveEpisodes = SaveEpisodes.SOME
    """None, those of evaluations alone, `some` as the keys below say, or all."""
    train: Annotated[Count, Example(32)] = 1
    """Groups of each training step that are saved, whole and chosen by the recipe's seed."""
    eval: SaveEvaluations = SaveEvaluations.ALL
    """Which episodes of evaluations are saved."""

    @property
    def num_groups(self) -> int | None:
        """Groups of each training step; None for all."""
        if self.which is SaveEpisodes.ALL:
            return None
        return self.train if self.which is SaveEpisodes.SOME else 0

    @property
    def saves_evaluations(self) -> bool:
        if self.which is SaveEpisodes.SOME:
            return self.eval is SaveEvaluations.ALL
        return self.which is not SaveEpisodes.NONE


@frozen
class Checkpoint:
    """What is saved for resuming and for use."""

    SHORTHAND: ClassVar[str] = "every"

    every: Size = 25
    """Steps between checkpoints."""
    keep: Size = 2
    """Number of newest checkpoints to keep."""
    keep_exports: Annotated[int, Bounds(at_least=0)] = 2
    """Number of newest exported models to keep of deleted checkpoints, besides that of the best."""
    best: Annotated[Name, Example("eval/textcraft/success")] | None = None
    """Metric whose best checkpoint is kept as well."""
    export: bool = True
    """Whether to write safetensors at every save."""
    episodes: SavedEpisodes = field(default_factory=SavedEpisodes)
    """Which episodes are saved: `none`, `eval`, `all`, or how many."""


@frozen
class RolloutHardware:
    """The sampling engines."""

    tensor_parallel: Size = 1
    """GPUs per engine, or processes on a CPU; must divide the model's heads."""
    gpus: Annotated[int, Bounds(at_least=1), Example(4)] | None = None
    """Sampling GPUs over all nodes, under `layout: split`."""
    memory_share: Annotated[float, Bounds(above=0, at_most=1)] = 0.85
    """Share of a GPU's memory for an engine's weights and KV cache."""
    kv_cache_gb: Annotated[float, Bounds(above=0), Example(2.0)] | None = None
    """Size of the KV cache on a CPU; what the slots need if not given."""
    block_size: Size = 32
    """Tokens per block of the KV cache."""
    eager: bool | None = None
    """Whether to skip graph capture: faster to start, slower to sample. Always so on a CPU."""


@frozen
class TrainHardware:
    """The learning engines."""

    zero: Annotated[int, Bounds(at_least=0, at_most=3)] = 2
    """ZeRO stage: what is sharded over the ranks. 1: optimiser. 2: and gradients. 3: and weights."""
    gpus: Annotated[int, Bounds(at_least=1), Example(4)] | None = None
    """Learning GPUs over all nodes, under `layout: split`."""
    offload: Offload = Offload.NONE
    """What is kept in host memory while not in use."""
    tokens_per_micro_batch: Annotated[int, Bounds(at_least=1), Example(16384)] | None = None
    """Packed tokens per forward pass; if not given, 16,384 on GPUs and 2,048 on a CPU, or an episode of full length
    where that is more."""
    sequence_parallel: Annotated[int, Bounds(at_least=1), Example(4)] = 1
    """Neighbouring ranks that divide the tokens of each forward pass between them (Ulysses), for long contexts: each
    holds that much less of the activations. It divides the ranks and the heads of every model that learns or scores."""
    share_prefixes: bool = True
    """Whether to compute once what episodes of a forward pass begin with in common, such as the prompt of a group. Not
    where ranks divide a forward pass (`sequence_parallel`)."""
    activation_checkpointing: bool = True
    """Whether to recompute activations in the backward pass instead of keeping them. On a CPU they are always kept."""
    fp32_head: bool | None = None
    """Whether logits of half-precision weights stay in fp32 instead of being rounded before log-probabilities are
    taken. On GPUs by default, where it costs next to nothing; on a CPU it costs up to a fifth of an update."""


@frozen
class Hardware:
    """Machines and GPUs of the run."""

    nodes: Size = 1
    """Number of machines."""
    gpus_per_node: Count = 0
    """GPUs per machine; 0 runs on the CPU."""
    workers_per_node: Size = 1
    """Engines, and ranks of the learner, on each machine without GPUs."""
    gpu: Gpu | None = None
    """Model of the GPU, for the memory estimate."""
    gpu_memory_gb: Annotated[float, Bounds(above=0), Example(80.0)] | None = None
    """Memory of a GPU that is not in the table."""
    network_gb_per_s: Annotated[float, Bounds(above=0), Example(25.0)] | None = None
    """Rate between two machines, for the estimate of a sync's time; 1.25 (10 Gbit/s) if not given."""
    threads: Annotated[int, Bounds(at_least=1), Example(1)] | None = None
    """CPU threads per engine; chosen by model size if not given."""
    layout: Layout = Layout.COLOCATED
    """Whether sampling and learning take turns on the same GPUs or have separate ones."""
    launcher: Launcher = Launcher.AUTO
    """Workers in this process or as Ray actors; `auto` uses Ray for two GPUs or more."""
    ray_address: Annotated[Name, Example("auto")] | None = None
    """Address of a running Ray cluster; one is started on this machine if not given."""
    heartbeat_s: Annotated[float, Bounds(above=0)] = 60.0
    """Seconds without an answer after which a worker counts as hung and is replaced; longer than it takes to load the
    weights."""
    staleness: Count = 0
    """Steps that sampling may lag behind; 0 is strictly on-policy."""
    in_flight: bool = False
    """Whether samplers take new weights while episodes are under way. Tokens are at most `staleness` steps old, and how
    old depends on timing."""
    max_restarts: Count = 3
    """Maximum number of times in a row that a lost learner is started anew without another checkpoint in between."""
    weight_transfer: WeightTransfer = WeightTransfer.AUTO
    """How new weights reach samplers on GPUs: `auto` by CUDA IPC on shared GPUs and by NCCL to others, or through host
    memory and Ray's object store, as adapters always do."""
    rollout: RolloutHardware = field(default_factory=RolloutHardware)
    """The sampling engines."""
    train: TrainHardware = field(default_factory=TrainHardware)
    """The learning engines."""


@frozen
class Guards:
    """When to skip, roll back or stop: NaN, KL, gradient norm, entropy."""

    on_nan: OnFault = OnFault.ROLL_BACK
    """Response to a NaN loss or gradient: skip the update, roll back to the last good checkpoint, or stop."""
    kl_max: Annotated[float, Bounds(above=0), Example(1.0)] | None = 1.0
    """Maximum mean KL from the sampling policy in one update."""
    on_kl: OnFault = OnFault.ROLL_BACK
    """Response when `kl_max` is exceeded."""
    grad_norm_max: Annotated[float, Bounds(above=0), Example(50.0)] | None = None
    """Maximum gradient norm before clipping."""
    on_grad_norm: OnFault = OnFault.SKIP
    """Response when `grad_norm_max` is exceeded."""
    entropy_min: Annotated[float, Bounds(above=0), Example(0.03)] | None = None
    """Minimum entropy per sampled token; the run stops after `patience` steps below it."""
    zero_std_max: Annotated[float, Bounds(above=0, at_most=1), Example(0.95)] | None = None
    """Maximum share of groups with all scores equal; the run stops after `patience` steps above it."""
    invalid_max: Annotated[float, Bounds(above=0, at_most=1), Example(0.5)] | None = None
    """Maximum share of replies without an action; the run stops after `patience` steps above it."""
    mismatch_max: Annotated[float, Bounds(above=0), Example(0.05)] | None = 0.05
    """Maximum mean KL between sampler and learner on the same tokens and weights; the run stops above it."""
    mismatch_ratio_max: Annotated[float, Bounds(above=1), Example(100.0)] | None = 100.0
    """Maximum ratio of the learner's probability of a sampled token to the sampler's, with the same weights; the run
    stops above it."""
    patience: Size = 5
    """Steps in a row that `entropy_min`, `zero_std_max` and `invalid_max` tolerate."""
    max_roll_backs: Count = 3
    """Maximum number of roll-backs in one run; then it stops."""


@frozen
class Sink:
    """A destination of metrics, in addition to the console and `metrics.jsonl`."""

    SHORTHAND: ClassVar[str] = "use"

    use: Annotated[Name, Example("tensorboard")]
    """`tensorboard`, `wandb`, `mlflow`, `trackio`, or one from a plugin."""
    project: Annotated[Name, Example("textcraft")] | None = None
    """wandb or trackio project, or mlflow experiment; the recipe's name if not given."""
    entity: Annotated[Name, Example("my-team")] | None = None
    """wandb entity."""
    uri: Annotated[Name, Example("file:./mlruns")] | None = None
    """mlflow tracking URI, or a trackio server."""
    offline: bool = False
    """Whether to write to disk only, to be synced later."""
    options: Annotated[Mapping[str, Json], Wide(), Example({"group": "ablation"})] = field(default_factory=dict)
    """Options of the sink."""


@frozen
class Recipe:
    """One training run."""

    agym: Literal[1]
    """Version of the recipe language."""
    name: Annotated[Slug, Example("textcraft-scaling-inter")]
    """Name of the run and of its folder."""
    description: Annotated[str, Example("GRPO with a growing horizon")] = ""
    """One line about the run, for people."""
    seed: Annotated[int, Bounds(at_least=0, at_most=2**32 - 1)] = 0
    """Seed of everything random."""
    output: Annotated[Name, Example("runs")] = "runs"
    """Folder in which the run's own folder is created."""
    tags: Annotated[tuple[Name, ...], Nested(), Example(["ablation"])] = ()
    """Tags to find the run by."""
    model: Model
    """The policy."""
    environments: Annotated[Mapping[Slug, Environment], Example({"textcraft": {"use": "textcraft"}})]
    """The environments, by names of your own."""
    agent: Agent = field(default_factory=Agent)
    """The agent around the model."""
    sampling: Sampling = field(default_factory=Sampling)
    """How tokens are sampled in training."""
    reward: Reward = field(default_factory=Reward)
    """The reward of an episode."""
    algorithm: Algorithm = field(default_factory=Algorithm)
    """How the policy is trained."""
    schedule: tuple[Stage, ...]
    """The stages, in order."""
    rollout: Rollout = field(default_factory=Rollout)
    """How episodes are played."""
    eval: Eval | None = field(default_factory=Eval)
    """Evaluation; null for none."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """What is saved, and how often."""
    hardware: Hardware = field(default_factory=Hardware)
    """Machines and GPUs of the run."""
    guards: Guards = field(default_factory=Guards)
    """When to skip, roll back or stop: NaN, KL, gradient norm, entropy."""
    logging: Annotated[tuple[Sink, ...], Nested(), Example(["tensorboard"])] = ()
    """Destinations of metrics, in addition to the console and `metrics.jsonl`."""
