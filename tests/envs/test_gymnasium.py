from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest
from agym.envs.errors import BadOption, EnvFault, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.gymnasium import Gymnasium, create
from agym.envs.gymnasium.actions import name_actions
from agym.envs.gymnasium.minigrid import tell_minigrid
from agym.envs.gymnasium.plan import value_actions
from agym.envs.protocol import Json, Status, Step
from gymnasium import spaces
from minigrid.wrappers import FullyObsWrapper

FIRM: Mapping[str, Json] = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}
DRAWN: Mapping[str, Json] = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False, "map_name": None}}
TAXI: Mapping[str, Json] = {"id": "Taxi-v4"}


def begun(task: str = "seed-3", **options: Json) -> Gymnasium:
    env = create(options)
    env.reset(task, 0)
    return env


def played(env: Gymnasium, *actions: str) -> list[Step]:
    return [env.step(action) for action in actions]


def solved(env: Gymnasium, task: str) -> list[Step]:
    actions = env.expert(task, 0)
    assert actions is not None
    env.reset(task, 0)
    return played(env, *actions)


class Parrot(gymnasium.Env[Any, Any]):
    """Wants its own seed back, in words."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012 - as Gymnasium has it
    action_space = spaces.Text(8, charset="0123456789")
    observation_space = spaces.Box(0, 255, (32, 32, 3), np.uint8)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.wanted = str(self.np_random.integers(1000))
        return np.zeros((32, 32, 3), np.uint8), {}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = action == self.wanted
        return np.zeros((32, 32, 3), np.uint8), -1.0 + 2 * right, right, False, {}

    def render(self) -> str:
        return f"say \x1b[43m{self.wanted}\x1b[0m\n"


class Silent(Parrot):
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it


class Board(gymnasium.Env[Any, Any]):
    """Two places in a row of three by three: the number named goes where the other numbers say."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it
    action_space = spaces.MultiDiscrete([2, 3])
    observation_space = spaces.Dict(
        {
            "board": spaces.Box(0, 2, (2, 3), np.int8),
            "action_mask": spaces.MultiBinary([2, 3]),
            "turn": spaces.Discrete(9),
        }
    )

    def _seen(self) -> dict[str, Any]:
        return {"board": self.board, "action_mask": self.board == 0, "turn": int((self.board > 0).sum())}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.board = np.zeros((2, 3), np.int8)
        self.board[tuple(self.np_random.integers((2, 3)))] = 2
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        free = self.board[tuple(action)] == 0
        self.board[tuple(action)] = 1
        return self._seen(), float(free), bool(self.board.all()), False, {}


class Layers(Board):
    """The same board as a layer for each number, and a choice for each place; the mask is a method."""

    action_space = spaces.Discrete(6)
    observation_space = spaces.Box(0, 1, (2, 3, 3), np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.eye(3, dtype=np.int8)[self.board], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, *others = super().step(np.unravel_index(action, (2, 3)))
        return np.eye(3, dtype=np.int8)[self.board], *others  # type: ignore[return-value]

    def action_masks(self) -> Any:
        return self.board.ravel() == 0


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("agym_test/Parrot-v0", entry_point=Parrot)
    gymnasium.register("agym_test/Silent-v0", entry_point=Silent)
    gymnasium.register("agym_test/Board-v0", entry_point=Board)
    gymnasium.register("agym_test/Layers-v0", entry_point=Layers)
    yield
    for name in ("Parrot", "Silent", "Board", "Layers"):
        del gymnasium.registry[f"agym_test/{name}-v0"]


# --- episodes are the environment's own ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1"])
def test_a_task_is_the_environments_own_episode_of_that_seed(name: str) -> None:
    ours, theirs = create({"id": name}), gymnasium.make(name)
    for seed in range(5):
        ours.reset(f"seed-{seed}", 99)
        theirs.reset(seed=seed)
        rng = Random(seed)
        for _ in range(30):
            words = ours._words
            action = rng.randrange(len(words))
            step = ours.step(words[action])
            seen, _, terminated, *_ = theirs.step(action)
            told = " ".join(step.info["state"].replace(",", "").split()) if isinstance(step.info["state"], str) else ""
            assert told == " ".join(str(part) for part in np.ravel(seen))
            assert step.terminated == terminated
            if step.ended:
                break


def test_the_seed_of_the_episode_changes_nothing() -> None:
    env = create(TAXI)
    assert env.reset("seed-5", 1) == env.reset("seed-5", 2)
    assert env.reset("seed-5", 1) != env.reset("seed-6", 1)


def test_a_lake_without_a_map_has_the_one_of_the_seed() -> None:
    env = create(DRAWN)
    first, again = env.reset("seed-5", 1).text, create(DRAWN).reset("seed-5", 2).text
    assert first == again
    assert first != env.reset("seed-6", 1).text
    assert first == env.reset("seed-5", 1).text


def test_train_and_test_have_as_many_seeds_as_was_asked_for() -> None:
    env = create({**TAXI, "seeds": 3})
    assert env.tasks("train") == ("seed-0", "seed-1", "seed-2")
    assert env.tasks("test") == ("seed-1000000", "seed-1000001", "seed-1000002")
    with pytest.raises(UnknownSplit, match="only train, test"):
        env.tasks("valid")


@pytest.mark.parametrize("task", ["", "seed-", "seed-x", "seed-01", "seed--1", "17", "seed-1234567890", "seed-\u0661"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask):
        create(FIRM).reset(task, 0)


# --- what is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (FIRM, "You are at row 1, column 1.\n[S] F F F\nF H F H\nF F F H\nH F F G"),
        (TAXI, "The taxi is at row 1, column 3. The passenger is at R. Destination: Y."),
        ({"id": "CliffWalking-v1"}, "You are at row 4, column 1."),
        ({"id": "Blackjack-v1"}, "You have 7. The dealer shows 10."),
    ],
)
def test_the_state_is_told_in_words(options: Mapping[str, Json], text: str) -> None:
    assert create(options).reset("seed-3", 0).text == text


def test_the_guide_says_what_the_ground_is_like() -> None:
    assert "You slip at times" in create({"id": "FrozenLake-v1"}).spec.prompt
    assert "You slip at times" not in create(FIRM).spec.prompt
    assert "|R: | : :G|" in create(TAXI).spec.prompt


def test_what_can_do_something_is_listed_where_the_environment_tells_it() -> None:
    env = create(TAXI)
    for number in range(20):
        listed = env.reset(f"seed-{number}", 0).valid_actions or ()
        row, column = (int(env.reset(f"seed-{number}", 0).text.split()[at].strip(".,")) for at in (5, 7))
        assert ("north" in listed, "south" in listed) == (row > 1, row < 5)
        assert "west" not in listed or column > 1


def test_a_drawing_has_brackets_in_place_of_colours() -> None:
    env = begun(id="agym_test/Parrot-v0", returns=[-10, 1])
    assert env.reset("seed-3", 0).text.startswith("say [")


def test_measures_are_told_as_they_are() -> None:
    text = create({"id": "CartPole-v1"}).reset("seed-3", 0).text
    seen, _ = gymnasium.make("CartPole-v1").reset(seed=3)
    assert [np.float32(word) for word in text.split()] == seen.tolist()


def test_nothing_is_said_about_the_state_that_is_not_exact() -> None:
    assert "state" not in played(begun(id="CartPole-v1"), "left")[0].info
    assert played(begun(**FIRM), "right")[0].info["state"] == "1"


BOARD: Mapping[str, Json] = {"id": "agym_test/Board-v0", "returns": [0, 5]}
LAYERS: Mapping[str, Json] = {"id": "agym_test/Layers-v0", "returns": [0, 5]}
PLACES = ["top left", "top", "top right", "left", "middle", "right"]


def test_a_board_is_told_row_by_row_and_the_mask_is_not() -> None:
    first = create(BOARD).reset("seed-3", 0)
    assert first.text == "board:\n0 0 0\n2 0 0\nturn: 1"
    assert first.valid_actions == ("0 0", "0 1", "0 2", "1 1", "1 2")


def test_the_numbers_of_a_board_have_the_names_that_were_given() -> None:
    text = create({**BOARD, "describe": {"cells": [".", "x", "o"]}}).reset("seed-3", 0).text
    assert text == "board:\n. . .\no . .\nturn: 1"


def test_actions_of_several_numbers_are_given_as_numbers() -> None:
    env = begun(**BOARD)
    assert env.spec.prompt.endswith("Each turn, give 2 numbers with spaces between them, from 0 0 to 1 2.")
    good, bad, also_bad = played(env, " 0  2 ", "0 3", "02")
    assert (good.status, bad.status, also_bad.status) == (Status.OK, Status.INVALID, Status.INVALID)
    assert good.observation.text == "board:\n0 0 1\n2 0 0\nturn: 2"
    assert "0 2" not in (good.observation.valid_actions or ())
    assert bad.observation.text.endswith("give 2 numbers with spaces between them, from 0 0 to 1 2.")


def test_layers_are_told_as_one_board_with_the_actions_names() -> None:
    env = create({**LAYERS, "describe": {"cells": [".", "x", "o"]}, "actions": PLACES})
    first = env.reset("seed-3", 0)
    assert first.text == ". . .\no . ."
    assert first.valid_actions == ("top left", "top", "top right", "middle", "right")
    assert env.step("Top Right").observation.text == ". . x\no . ."


def test_noise_takes_only_what_the_mask_allows() -> None:
    for options in (BOARD, {**LAYERS, "describe": "grid"}):
        env, rng = begun(**options), Random(1)
        steps = [env.step(str(env.noise_action(rng))) for _ in range(5)]
        assert (steps[-1].terminated, steps[-1].reward) == (True, 1.0)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (None, ("0 0", "0 1", "1 0", "1 1")),
        ([[1, 0], [0, 1]], ("0 0", "1 1")),
        ([1, 0, 0, 1], ("0 0", "1 1")),
    ],
)
def test_a_mask_names_the_possible_actions(mask: Any, allowed: tuple[str, ...]) -> None:
    assert name_actions(spaces.MultiDiscrete([2, 2]), (), (), "any").allowed(mask) == allowed


def test_a_mask_may_have_one_entry_for_each_number() -> None:
    actions = name_actions(spaces.MultiDiscrete([2, 3]), (), (), "any")
    assert actions.allowed([0, 1, 1, 0, 1]) == ("1 0", "1 2")
    with pytest.raises(EnvFault, match="4 entries for 6 actions"):
        actions.allowed([1, 1, 1, 1])


# --- MiniGrid ------------------------------------------------------------------------------------------------------

DOOR: Mapping[str, Json] = {"id": "minigrid:MiniGrid-DoorKey-5x5-v0"}


def test_minigrid_is_told_as_a_map_and_the_things_on_it() -> None:
    env = create(DOOR)
    assert env.reset("seed-3", 0).text.splitlines() == [
        "Your mission: use the key to open the door and then get to the goal.",
        "You face east and carry nothing.",
        "What you see, farther ahead is farther up:",
        *["? ? ? ? ? ? ?"] * 5,
        "? # D # # # ?",
        "? # . @ K # ?",
        "A yellow key: 1 to the right.",
        "A yellow door, locked: 1 ahead, 1 to the left.",
    ]
    assert "You move in a world of square places" in env.spec.prompt
    assert env.spec.max_turns == 250


def test_minigrid_is_played_by_names_to_its_goal() -> None:
    env = begun(**DOOR)
    taken = played(env, "turn right", "pick up")[-1]
    assert "carry a yellow key" in taken.observation.text
    *_, opened = played(env, "turn left", "turn left", "forward", "turn right", "toggle")
    assert "A yellow door, open: 1 ahead." in opened.observation.text
    steps = played(env, "forward", "forward", "turn right", "forward", "forward")
    assert steps[-1].terminated
    assert 0.9 < steps[-1].reward < 1.0


def test_the_whole_world_of_minigrid_is_told_by_column_and_row() -> None:
    bare = gymnasium.make(str(DOOR["id"]))
    whole = FullyObsWrapper(bare)
    seen, _ = whole.reset(seed=3)
    text = tell_minigrid(bare.unwrapped, seen)
    assert "The map of the world:" in text
    assert text.count("@") == 1
    assert "A green goal: column 4, row 4." in text


# --- describers of other packages ----------------------------------------------------------------------------------

DESCRIBERS = """
def count(env, seen):
    return f"{int((seen['board'] == 0).sum())} places are free in {type(env).__name__}"

def number(env, seen):
    return 7
"""
PLAYED = """
import sys, gymnasium
from agym.envs.gymnasium import create
sys.path.insert(0, {tests!r})
from test_gymnasium import Board
gymnasium.register("agym_test/Board-v0", entry_point=Board)
for name in ("count", "number", "cuont"):
    try:
        options = {{"id": "agym_test/Board-v0", "returns": [0, 5], "describe": name}}
        print(create(options).reset("seed-3", 0).text)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_another_package_offers_describers(tmp_path: Path) -> None:
    (tmp_path / "my_describers.py").write_text(DESCRIBERS)
    told = tmp_path / "my_describers-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: my-describers\nVersion: 1\n")
    (told / "entry_points.txt").write_text(
        "[agym.describers]\ncount = my_describers:count\nnumber = my_describers:number\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PLAYED.format(tests=str(Path(__file__).parent))],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "5 places are free in Board",
        "EnvFault the describer 'number' returned int, where a text is expected",
        "BadOption gymnasium option 'describe': no describer is called 'cuont'; did you mean 'count'?",
    ]


# --- actions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["", "2", "rights", "right right", "right\x00", "go right" * 90])
def test_what_is_no_action_is_told_so_and_costs_a_turn(action: str) -> None:
    env = begun(**FIRM, max_steps=2)
    first, second = played(env, action, action)
    assert first.status is Status.INVALID
    assert first.observation.text == "That is not an action: give one of: left, down, right, up."
    assert (first.truncated, second.truncated) == (False, True)
    with pytest.raises(EpisodeOver):
        env.step("right")


def test_letter_case_and_white_space_do_not_matter() -> None:
    env = begun(**TAXI)
    assert played(env, " Pick  UP ")[0].status is Status.OK


def test_an_action_that_is_a_text_is_passed_on_if_it_may_be() -> None:
    env = begun(id="agym_test/Parrot-v0", returns=[-10, 1])
    wanted = env.reset("seed-3", 0).text.strip("say []")
    wrong, bad, right = played(env, "12345", "twelve", wanted)
    assert (wrong.status, bad.status) == (Status.OK, Status.INVALID)
    assert right.terminated
    assert right.reward == pytest.approx(10 / 11)
    assert env.noise_action(Random(1)) is None


# --- score ---------------------------------------------------------------------------------------------------------


def test_a_goal_scores_1_and_a_hole_0() -> None:
    assert [step.reward for step in solved(create(FIRM), "seed-3")][-2:] == [0.0, 1.0]
    fell = played(begun(**FIRM), "right", "down")[-1]
    assert (fell.reward, fell.terminated) == (0.0, True)
    assert fell.observation.text.endswith("The episode is over.")


@pytest.mark.parametrize("name", ["Taxi-v4", "CliffWalking-v1"])
def test_the_best_plan_scores_1_and_a_detour_less(name: str) -> None:
    env = create({"id": name})
    assert [step.reward for step in solved(env, "seed-3")][-2:] == [0.0, 1.0]
    actions = env.expert("seed-3", 0)
    env.reset("seed-3", 0)
    late = played(env, *(("south", "north") if name == "Taxi-v4" else ("up", "down")), *(actions or ()))[-1]
    assert late.terminated
    assert 0.8 < late.reward < 1.0


def test_who_gives_up_scores_nothing_where_steps_cost() -> None:
    env = begun(**TAXI, max_steps=5)
    assert [step.reward for step in played(env, "north", "x", "x", "x", "x")] == [0.0] * 5


def test_what_can_only_grow_scores_as_it_grows() -> None:
    assert [step.reward for step in played(begun(id="CartPole-v1"), "left", "right")] == [1 / 500, 2 / 500]


def test_returns_may_be_chosen() -> None:
    step = played(begun(id="CartPole-v1", returns=[0, 2]), "left", "right", "left")[-1]
    assert step.reward == 1.0
    assert step.info["return"] == 3.0


# --- demonstrations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FIRM, DRAWN, TAXI, {"id": "CliffWalking-v1"}, {"id": "FrozenLake8x8-v1"}])
def test_the_expert_earns_what_it_claims(options: Mapping[str, Json]) -> None:
    env = create(options)
    claimed = [task for task in env.tasks("test")[:12] if env.expert(task, 0) is not None]
    assert len(claimed) >= 6
    assert all(solved(env, task)[-1].reward == 1.0 for task in claimed)


def test_the_best_plan_is_the_shortest_way() -> None:
    assert len(create(FIRM).expert("seed-1", 0) or ()) == 6
    assert len(create({"id": "CliffWalking-v1"}).expert("seed-1", 0) or ()) == 13


def test_a_plan_that_has_no_time_is_none() -> None:
    assert create({**FIRM, "max_steps": 5}).expert("seed-1", 0) is None
    assert create({"id": "CliffWalking-v1", "max_steps": 12}).expert("seed-1", 0) is None


def test_there_is_advice_only_where_it_leads_to_the_goal_from_anywhere() -> None:
    assert begun(**FIRM).advice() in ("down", "right")
    for name in ("FrozenLake-v1", "Taxi-v4", "Blackjack-v1", "CartPole-v1"):
        assert begun(id=name).advice() is None


def test_there_is_no_expert_where_chances_are_not_written_down() -> None:
    assert create({"id": "Blackjack-v1"}).expert("seed-1", 0) is None


def test_noise_loses_nothing_on_firm_ice() -> None:
    env, rng = begun(**FIRM), Random(1)
    for _ in range(60):
        step = env.step(str(env.noise_action(rng)))
        if step.ended:
            assert step.reward == 1.0
            env.reset("seed-3", 0)


def test_worth_counts_what_may_happen_by_its_chance() -> None:
    table = {0: {0: [(0.5, 1, 1.0, True), (0.5, 1, 0.0, True)], 1: [(1.0, 1, 0.2, True)]}, 1: {0: [], 1: []}}
    assert value_actions(table)[0] == [0.5, 0.2]


@pytest.mark.parametrize("options", [FIRM, TAXI, {"id": "CliffWalking-v1"}])
def test_the_corpus_has_every_word_an_episode_can_show(options: Mapping[str, Json]) -> None:
    env = create(options)
    known = {word.strip(".,[]") for text in env.corpus() for word in text.split()}
    for task in env.tasks("train")[:30]:
        shown = env.reset(task, 0).text + " " + " ".join(step.observation.text for step in solved(env, task))
        assert {word.strip(".,[]") for word in shown.split() if "." not in word.strip(".")} <= known


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs the option 'id'"),
        ({"id": "FrozenLake-v1", "seed": 3}, "no option 'seed'; did you mean 'seeds'?"),
        ({"id": ""}, "must be a text that is not empty"),
        ({"id": "NoSuch-v1"}, "cannot make 'NoSuch-v1'"),
        ({"id": "no_such_module_at_all:Maze-v0"}, "cannot make"),
        ({"id": "FrozenLake-v1", "kwargs": {"slippery": True}}, "cannot make"),
        ({"id": "FrozenLake-v1", "kwargs": []}, "must be a table"),
        ({"id": "FrozenLake-v1", "seeds": 0}, "must be a whole number"),
        ({"id": "FrozenLake-v1", "returns": [1, 0]}, "must list 2 numbers, the worst return and then the best"),
        ({"id": "FrozenLake-v1", "returns": [0, True]}, "must list 2 numbers"),
        ({"id": "MountainCar-v0"}, "give the option 'returns'"),
        ({"id": "Pendulum-v1"}, "neither a choice nor a text"),
        ({"id": "agym_test/Silent-v0", "returns": [0, 1]}, "cannot be put in words, so give the option 'describe'"),
        ({"id": "agym_test/Silent-v0", "describe": "minigrid"}, "needs observations with a small image"),
        ({"id": "agym_test/Silent-v0", "describe": "minigird"}, "did you mean 'minigrid'?"),
        ({"id": "agym_test/Silent-v0", "describe": {"cells": []}}, "option 'describe' must"),
        ({**LAYERS, "actions": ["up", "down"]}, "must name each of the 6 actions"),
        ({**BOARD, "actions": ["up", "down"]}, "are not one choice"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.gymnasium").joinpath("env.json").read_text())
    assert tuple(data["splits"]) == create(FIRM).spec.splits
