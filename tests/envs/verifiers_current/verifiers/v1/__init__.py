"""Tasksets, environments, seats and harnesses, as verifiers 0.4 has them, without its servers and programs."""

import importlib
from dataclasses import dataclass, field
from types import SimpleNamespace

__all__ = ["AgentConfig", "Env", "EvalClientConfig", "Harness", "HarnessConfig", "ModelContext", "ProgramResult"]


class _Config:
    """Named values with defaults, given by keyword."""

    def __init__(self, **given):
        unknown = set(given) - set(self._defaults())
        if unknown:
            raise ValueError(f"extra fields are not permitted: {', '.join(sorted(unknown))}")
        vars(self).update({**self._defaults(), **given})
        self.model_fields_set = set(given)

    def __init_subclass__(cls):
        cls.model_fields = cls._defaults()

    @classmethod
    def _defaults(cls):
        return {name: getattr(cls, name) for kind in cls.__mro__ for name in vars(kind).get("__annotations__", ())}

    @classmethod
    def model_validate(cls, given):
        return cls(**given)

    def model_copy(self, update):
        return type(self)(**{name: getattr(self, name) for name in self._defaults()} | update)

    def __iter__(self):
        return iter([(name, getattr(self, name)) for name in self._defaults()])


class HarnessConfig(_Config):
    id: str = "bash"
    tool_timeout: float = 600.0


class SubprocessConfig(_Config):
    type: str = "subprocess"


class AgentConfig(_Config):
    harness: HarnessConfig | None = None
    runtime: object = None
    model: str | None = None
    max_turns: int | None = None


class TasksetConfig(_Config):
    id: str = ""


class EnvConfig(_Config):
    taskset: TasksetConfig = TasksetConfig()
    agent: AgentConfig = AgentConfig()


class EvalClientConfig(_Config):
    base_url: str = ""
    api_key_var: str = ""


@dataclass(frozen=True)
class ModelContext:
    model: str
    client: EvalClientConfig


@dataclass(frozen=True)
class ProgramResult:
    exit_code: int
    stdout: str
    stderr: str


class Harness:
    def __class_getitem__(cls, config):
        return cls

    def __init__(self, config):
        self.config = config

    def resolve_prompt(self, data):
        return data.get("system"), data["prompt"]


@dataclass
class Task:
    data: dict
    config: object = None


@dataclass
class Trace:
    agent: object
    messages: list = field(default_factory=list)
    metrics: dict = field(default_factory=dict)
    rewards: dict = field(default_factory=dict)
    errors: list = field(default_factory=list)
    stop_condition: str | None = None

    @property
    def reward(self):
        return sum(each.score * each.weight for each in self.rewards.values())


class Taskset:
    Config = TasksetConfig

    def __init__(self, config):
        self.config = config

    def __iter__(self):
        return iter(self.load())


class Env:
    Config = EnvConfig

    def __init__(self, config):
        self.config, self.taskset = config, load_taskset(config.taskset)

    def serving(self):
        from contextlib import nullcontext

        return nullcontext()

    async def run_episode(self, task, ctx):
        seat = self.config.agent
        trace = Trace(agent=SimpleNamespace(config=replace_model(seat, ctx.model)))
        kind = importlib.import_module(seat.harness.id).PolicyHarness
        harness, prompt = kind(seat.harness), task.data["prompt"]
        try:
            while prompt is not None:
                data = {**task.data, "prompt": prompt}
                await self._launch(harness, ctx, trace, data)
                prompt = None if trace.stop_condition else self.follow(task, trace)
            self.score(task, trace)
        except Exception as error:
            trace.errors.append(SimpleNamespace(type=type(error).__name__, message=str(error)))
        return SimpleNamespace(ok=not trace.errors, errors=[], traces=[trace])

    async def _launch(self, harness, ctx, trace, data):
        urls = {name: f"http://{name}" for name in getattr(self, "servers", ())}
        recorded = _Recorded(trace, self.config.agent.max_turns)
        recorded.upstream = ctx.client.base_url
        async with recorded:
            await harness.launch(ctx, trace, None, recorded.url, "secret", urls, data)

    def follow(self, task, trace):
        return None


def replace_model(seat, model):
    return SimpleNamespace(**dict(seat) | {"model": model})


class _Recorded:
    """What stands between a harness and its model: it keeps the messages, and refuses requests over the limit."""

    def __init__(self, trace, limit):
        self._trace, self._limit = trace, limit

    async def __aenter__(self):
        from aiohttp import web

        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._pass_on)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _pass_on(self, request):
        from aiohttp import ClientSession, web

        asked = await request.json()
        if sum(message["role"] == "assistant" for message in asked["messages"]) >= self._limit:
            self._trace.messages, self._trace.stop_condition = asked["messages"], "max_turns"
            return web.json_response({"error": {"message": "rollout stopped: max_turns"}}, status=400)
        async with (
            ClientSession() as session,
            session.post(f"{self.upstream}/chat/completions", json=asked) as answered,
        ):
            said = await answered.json()
        self._trace.messages = [*asked["messages"], said["choices"][0]["message"]]
        return web.json_response(said)


def _find(module, kind):
    return next((each for each in map(vars(module).get, module.__all__) if issubclass(each, kind)), None)


def _module(name):
    return importlib.import_module(name.replace("-", "_"))


def load_taskset(config):
    return _find(_module(config.id), Taskset)(config)


def load_environment(config):
    return (_find(_module(config.taskset.id), Env) or Env)(config)


def resolve_env_config(data):
    taskset = data["taskset"]
    module = _module(taskset["id"])
    kind = _find(module, Taskset)
    if kind is None:
        raise TypeError("exports no Taskset")
    given = {name: AgentConfig(**value) for name, value in data.items() if name != "taskset"}
    return (_find(module, Env) or Env).Config(taskset=kind.Config(**taskset), **given)


def record_reward(trace, name, score, weight=1.0):
    trace.rewards[name] = SimpleNamespace(score=score, weight=weight)
