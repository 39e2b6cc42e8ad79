from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from agym.envs.clients.client import HttpEnv, InlineEnv
from agym.envs.clients.supervise import ServeCommand, ServerProcess
from agym.envs.conformance import CHECKS, CheckResult, ConformanceCheck, Subject, _closing, _emptied, run_checks
from agym.envs.errors import EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import START_S, Deadlines, Env, EnvSpec, Observation, Reached, Runs, Status, Step
from agym.envs.registry import factory
from agym.envs.releases import Ids
from agym.envs.shell.terminal import explain_unavailable

ENVIRONMENTS: dict[str, ServeCommand] = {
    "babyai": ServeCommand(
        env="babyai", options={"levels": ["GoToObjS6", "OpenDoorLoc", "PickupLoc", "KeyInBox", "ActionObjDoor"]}
    ),
    "babyai, single steps": ServeCommand(
        env="babyai", options={"actions": "primitive", "levels": ["PickupLoc", "PutNextLocalS6N4", "UnlockLocalDist"]}
    ),
    "counter": ServeCommand(env="counter"),
    "desk": ServeCommand(env="desk"),
    "gymnasium, a lake": ServeCommand(
        env="gymnasium", options={"id": "FrozenLake-v1", "kwargs": {"is_slippery": False, "map_name": None}}
    ),
    "gymnasium, a taxi": ServeCommand(env="gymnasium", options={"id": "Taxi-v4"}),
    "gymnasium, a map": ServeCommand(env="gymnasium", options={"id": "minigrid:MiniGrid-DoorKey-5x5-v0"}),
    "gymnasium, cards": ServeCommand(env="gymnasium", options={"id": "Blackjack-v1"}),
    "mcp": ServeCommand(
        env="mcp",
        options={
            "command": [sys.executable, str(Path(__file__).parent / "mcp_server.py")],
            "tasks_file": str(Path(__file__).parent / "mcp_tasks.jsonl"),
            "tools": ["add", "balance", "transfer"],
            "max_steps": 10,
        },
    ),
    "reasoning_gym": ServeCommand(env="reasoning_gym", options={"dataset": "gcd", "size": 50}),
    "sciworld": ServeCommand(
        env="sciworld",
        options={
            "tasks": ["find-non-living-thing", "find-animal", "lifespan-longest-lived"],
            "max_steps": 15,
            "heap_mb": 1024,
            "processes": 1,
        },
    ),
    "search": ServeCommand(env="search", options={"tools": ["search", "open"]}),
    "shell": ServeCommand(env="shell", options={"max_steps": 10}),
    "textarena, one player": ServeCommand(env="textarena", options={"game": "TowerOfHanoi-v0"}),
    "textarena, two players": ServeCommand(env="textarena", options={"game": "Nim-v0"}),
    "textcraft": ServeCommand(env="textcraft"),
    "textcraft, small and terse": ServeCommand(
        env="textcraft", options={"world": "small", "terse": True, "max_distractors": 2, "shuffle": False}
    ),
    "textworld": ServeCommand(env="textworld", options={"rooms": 3, "objects": 6, "quest_length": 3, "seeds": 40}),
}
HEAVY = {"mcp", "sciworld", "shell"}
"""They start processes of their own."""
FEW = {"num_tasks": 4, "neighbours": 12}
"""Of what takes a process each."""


@pytest.fixture(scope="module")
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """One environment for all checks, as where they run one after the other."""
    command = ENVIRONMENTS[request.param]
    if command.env == "shell" and (reason := explain_unavailable()) is not None:
        pytest.skip(reason)
    client = InlineEnv(factory(command.env, command.options), deadlines=Deadlines(open_s=START_S))
    yield Subject(client=client, command=command, **(FEW if request.param in HEAVY else {}))
    asyncio.run(client.close())


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=check.__name__, marks=pytest.mark.slow if "another_process" in check.__name__ else ())
        for check in CHECKS
    ],
)
@pytest.mark.parametrize(
    "subject",
    [pytest.param(name, marks=pytest.mark.heavy if name in HEAVY else ()) for name in ENVIRONMENTS],
    indirect=True,
)
async def test_every_environment_conforms(subject: Subject, check: ConformanceCheck) -> None:
    (result,) = await run_checks(subject, [check])
    assert result.passed, result.detail


async def test_an_environment_behind_a_url_conforms(tmp_path: Path) -> None:
    async with ServerProcess(ENVIRONMENTS["counter"], log=tmp_path / "server.log") as server:
        client = HttpEnv(server.url)
        results = await run_checks(Subject(client=client, num_tasks=3))
        assert all(result.passed for result in results), results
        await client.close()


# --- the suite catches what it is there to catch ---


class Flawed(Env):
    """Conforms, except for one flaw."""

    def __init__(self, flaw: str = "", shared: list[int] | None = None) -> None:
        self.flaw = flaw
        self.shared = shared if shared is not None else []
        self.spec = EnvSpec(name="flawed", version="1", summary="", splits=("train", "test"), runs=Runs.INLINE)
        self.number = -1
        self.known: int | None = None
        self.calls = 0

    def tasks(self, split: str) -> tuple[str, ...]:
        if split not in self.spec.splits:
            if self.flaw == "unknown split":
                return ()
            raise _unknown("split")
        self.calls += 1
        ids = [f"{split}-{number}" for number in range(4)]
        if self.flaw == "overlap":
            ids.append("both")
        if self.flaw == "twice":
            ids.append(ids[0])
        return tuple(ids if self.flaw != "order" or self.calls % 2 else reversed(ids))

    def reset(self, task: str, seed: int) -> Observation:
        if not task.startswith(("train", "test", "both")):
            raise _unknown("task")
        self.number = 1 if self.flaw == "one is enough" else 3
        self.known = None
        extra = ""
        if self.flaw == "chance":
            extra = str(Random().random())
        if self.flaw == "hash":
            extra = str(hash(task))
        if self.flaw == "shared":
            self.shared.append(1)
            extra = str(len(self.shared))
        if self.flaw == "remembers":
            extra = f"{self.shared.count(-1)} won so far"
        if self.flaw == "joined":
            self.shared.append(0)
        return Observation(text=f"{task} {seed} {extra}")

    def trivial(self, task: str) -> bool:
        return self.flaw == "free on purpose"

    def step(self, action: str) -> Step:
        if self.number == 0 and self.flaw != "after the end":
            raise EpisodeOver("over")
        if self._is_disturbed():
            return Step(observation=Observation(text="disturbed"))
        good = action in ("down", "wait")
        if not good:
            return self._bad(action)
        self.number -= action == "down"
        won = self.number <= 0
        self.shared += [-1] if won else []
        reward = 2.0 if self.flaw == "range" else float(won)
        if self.flaw == "expert":
            reward = 0.0
        return Step(
            observation=Observation(text=str(self.number)),
            reward=reward,
            terminated=won,
            truncated=won and self.flaw == "two ends",
        )

    def _is_disturbed(self) -> bool:
        """Whether another has made a step since the last one, or an episode has begun since the first."""
        known, now = self.known, self.shared.count(0)
        self.shared += [0] if self.flaw == "interleaved" else []
        self.known = self.shared.count(0)
        return self.flaw in ("interleaved", "joined") and known not in (None, now)

    def _bad(self, action: str) -> Step:
        if self.flaw == "crash" and "\x00" in action:
            raise ValueError("embedded null byte")
        text = action if self.flaw == "echo" else "what?"
        status = Status.OK if self.flaw == "takes anything" else Status.INVALID
        self.shared.append(1)
        reward = len(self.shared) / 1000 if self.flaw == "pays for nonsense" else 0.0
        solved = self.flaw == "kept" and -1 in self.shared
        free = self.flaw.startswith("free") and action == ""
        if solved or free:
            self.number = 0
            return Step(observation=Observation(text=text), reward=1.0, terminated=True)
        return Step(observation=Observation(text=text), status=status, reward=reward)

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        return ("down",) * 3

    def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...]:
        late = len(actions) + (self.flaw == "late")
        if self.flaw != "hindsight" and not task.startswith("train"):
            return ()
        wanted = {"train-0", "train-1"} - ({task} if self.flaw != "own goal" else set())
        return tuple(Reached(task=each, actions=late, first=Observation(text="")) for each in sorted(wanted))

    def advice(self) -> str | None:
        return None if self.number <= 0 else "wait" if self.flaw == "bad advice" else "down"

    def noise_action(self, rng: Random) -> str:
        return "wait" if self.flaw == "bad advice" else rng.choice(("down", "wait"))


def _unknown(what: str) -> Exception:
    return {"split": UnknownSplit, "task": UnknownTask}[what](f"unknown {what}")


async def failures(make: Callable[[], Env], **chosen: object) -> dict[str, str]:
    client = InlineEnv(make)
    results: tuple[CheckResult, ...] = await run_checks(Subject(client=client, num_tasks=4, max_steps=20, **chosen))  # type: ignore[arg-type]
    await client.close()
    return {result.check: result.detail for result in results if not result.passed}


def test_an_environment_without_a_flaw_passes() -> None:
    assert asyncio.run(failures(Flawed)) == {}


@pytest.mark.parametrize(
    ("flaw", "check", "detail"),
    [
        ("twice", "splits hold tasks with unique ids", "lists a task twice"),
        ("order", "splits hold tasks with unique ids", "in another order"),
        ("overlap", "train and test share no task", "'both' is in train and in test"),
        ("unknown split", "unknown splits and tasks are refused", "an unknown split was not refused"),
        ("chance", "same task and seed give the same episode twice", "another way the second time, from step 0"),
        ("shared", "neighbours change nothing", "among 32 neighbours"),
        ("interleaved", "neighbours change nothing", "among 32 neighbours, from step 2 on"),
        ("joined", "neighbours change nothing", "among 32 neighbours, from step 2 on"),
        ("expert", "the expert solves what it claims", "solves 0%"),
        (
            "free",
            "doing nothing earns nothing even after an expert",
            "doing nothing solves task 'train-0': '' is enough",
        ),
        (
            "kept",
            "doing nothing earns nothing even after an expert",
            "doing nothing solves task 'train-0'",
        ),
        (
            "one is enough",
            "doing nothing earns nothing even after an expert",
            "doing nothing solves task 'train-0': 'down' is enough",
        ),
        ("remembers", "doing nothing earns nothing even after an expert", "another way after the expert has played"),
        ("bad advice", "advice leads to the goal from anywhere", "does not lead to the goal"),
        ("hindsight", "hindsight tells of other tasks of training", "tells what the held-out task 'test-0' led to"),
        ("own goal", "hindsight tells of other tasks of training", "none of training's others"),
        ("late", "hindsight tells of other tasks of training", "names actions that were never given"),
        ("range", "scores stay in their range", "a score of 2.0"),
        ("two ends", "an episode ends at most one way", "both terminated and truncated"),
        ("after the end", "stepping after the end is refused", "was not refused"),
        ("crash", "bad actions are answered and change no score", "embedded null byte"),
        ("echo", "bad actions are answered and change no score", "'huge' repeats it at length"),
        ("takes anything", "bad actions are answered and change no score", "'empty' was taken for a good one"),
        ("pays for nonsense", "bad actions are answered and change no score", "changed the score"),
    ],
)
async def test_each_flaw_is_caught_by_its_check(flaw: str, check: str, detail: str) -> None:
    shared: list[int] = []
    found = await failures(lambda: Flawed(flaw, shared))
    assert detail in found.get(check, f"nothing, but {found}")


async def test_a_task_that_is_free_on_purpose_may_be() -> None:
    assert "doing nothing earns nothing even after an expert" not in await failures(lambda: Flawed("free on purpose"))


@pytest.mark.parametrize(
    ("action", "emptied"),
    [
        ('{"name": "answer", "arguments": {"text": "5"}}', '{"name": "answer", "arguments": {"text": ""}}'),
        ("stop [the answer [is] 5]", "stop []"),
        ("answer Paris is it", "answer"),
        ("Paris", ""),
        ("[1, 2]", ""),
        ("", ""),
    ],
)
def test_an_action_is_emptied(action: str, emptied: str) -> None:
    assert _emptied(action) == emptied


@pytest.mark.parametrize(
    ("experts", "word"),
    [
        ([("ls", "done"), None, ("pwd", "done")], ("done",)),
        ([("done",), ("pwd", "done")], ()),
        ([("search", "answer[Paris]")], ()),
        ([("look", "yes"), ("look", "no")], ()),
        ([None], ()),
    ],
)
def test_a_word_that_all_experts_end_with_is_nothing_by_itself(
    experts: list[tuple[str, ...] | None], word: tuple[str, ...]
) -> None:
    assert _closing(experts) == word


class Unlisted(Flawed):
    """Lists no tasks, like servers of other systems."""

    def __init__(self, flaw: str = "") -> None:
        super().__init__(flaw)
        self.spec = replace(self.spec, splits=())


async def test_what_lists_no_tasks_is_checked_by_those_that_are_named() -> None:
    assert await failures(Unlisted) == {
        "splits hold tasks with unique ids": "it lists no tasks: name those to check, with '--task ID'"
    }
    assert await failures(Unlisted, tasks=("train-0", "test-1")) == {}
    found = await failures(lambda: Unlisted("kept"), tasks=("test-1",))
    assert "doing nothing solves task 'test-1'" in found["doing nothing earns nothing even after an expert"]


class Calling(Flawed):
    """Two of its three tools answer alike in every episode."""

    def advice(self) -> None:
        return None

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        calls = [[{"name": "look"}], [{"name": "now"}, {"name": "look"}], {"name": "wait"}]
        return (*(json.dumps(call) for call in calls), *("down",) * 3)

    def step(self, action: str) -> Step:
        try:
            json.loads(action)
        except ValueError:
            return super().step(action)
        self.shared.append(1)
        return Step(observation=Observation(text=f"it is {len(self.shared)}" if "now" in action else "all is well"))


async def test_a_tool_whose_results_vary_is_named_and_may_be_accepted() -> None:
    shared: list[int] = []
    found = await failures(lambda: Calling(shared=shared))
    said = found["same task and seed give the same episode twice"]
    assert said.startswith(
        "task 'train-0' went another way the second time, from step 3 on: the same call of 'now' and"
    )
    assert "'excluded'" in said
    assert said.endswith("accept that results vary with '--varying now --varying look'")
    assert await failures(lambda: Calling(shared=shared), varying=("now",)) == {}


async def test_ids_that_changed_since_a_release_are_caught() -> None:
    assert await failures(Flawed, released_ids={"test": Ids.of(["test-0", "test-1"])}) == {}
    found = await failures(Flawed, released_ids={"test": Ids.of(["test-1", "test-0"])})
    assert "no longer begins with the ids it had" in found["ids are those of earlier releases"]


async def test_what_hangs_on_the_hash_seed_is_caught_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "hashed.py").write_text(HASHED)
    command = ServeCommand(env="hashed", program=(sys.executable, str(tmp_path / "hashed.py")))
    check = next(check for check in CHECKS if "another_process" in check.__name__)
    client = InlineEnv(lambda: Flawed("hash"))
    (result,) = await run_checks(Subject(client=client, command=command), [check])
    assert "went another way in another process" in result.detail
    await client.close()


HASHED = f"""
import asyncio, socket, sys, uvicorn
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from test_conformance import Flawed
from agym.envs.serving.server import EnvServer
listener = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
config = uvicorn.Config(EnvServer(lambda: Flawed("hash")), log_level="warning", lifespan="on")
asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
"""
