from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status, Step
from agym.envs.textworld import TextWorld, create
from agym.envs.textworld.games import generate_game

SMALL: Mapping[str, Json] = {"rooms": 2, "objects": 4, "quest_length": 3, "seeds": 20}


def begun(task: str = "seed-3", **options: Json) -> TextWorld:
    env = create({**SMALL, **options})
    env.reset(task, 0)
    return env


def played(env: TextWorld, task: str) -> list[Step]:
    actions = env.expert(task, 0)
    assert actions is not None
    env.reset(task, 0)
    return [env.step(action) for action in actions]


def test_an_episode_opens_with_the_goal_and_the_room() -> None:
    lines = create(SMALL).reset("seed-3", 0).text.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["Goal:", "You", "Exits:", "Here:", "You"]


def test_the_seed_of_the_episode_changes_nothing() -> None:
    env = create(SMALL)
    assert env.reset("seed-3", 1) == env.reset("seed-3", 2) == create(SMALL).reset("seed-3", 3)
    assert env.reset("seed-3", 1) != env.reset("seed-4", 1)


def test_reaching_the_goal_ends_the_episode_with_1() -> None:
    steps = played(create(SMALL), "seed-3")
    assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
    assert steps[-1].terminated
    assert steps[-1].observation.text.endswith("The goal is reached.")


@pytest.mark.slow
def test_the_walkthrough_leads_to_the_goal_of_every_game() -> None:
    env = create({})
    for task in (*env.tasks("train")[:10], *env.tasks("test")[:10]):
        steps = played(env, task)
        assert steps[-1].reward == 1.0
        assert len(steps) <= 5


def test_the_goal_is_the_last_command_of_the_walkthrough() -> None:
    env = create(SMALL)
    for task in env.tasks("train")[:8]:
        actions = env.expert(task, 0) or ("",)
        goal = env.reset(task, 0).text.splitlines()[0]
        assert goal.removesuffix(".").partition(" in the ")[0] == f"Goal: {actions[-1]}"
        assert (" in the " in goal) == actions[-1].startswith("drop ")


def test_every_command_listed_is_possible_and_looking_is_not_among_them() -> None:
    rng, env = Random(3), begun()
    for _ in range(30):
        listed = env.step("nonsense").observation.valid_actions or ()
        assert not any(command.startswith(("look", "inventory", "examine")) for command in listed)
        step = env.step(rng.choice(listed))
        assert step.status is Status.OK
        if step.ended:
            env.reset("seed-3", 0)


def test_nothing_that_is_hidden_is_told() -> None:
    for seed in range(30):
        env = create({"rooms": 1, "objects": 8, "quest_length": 2})
        _, _, text = env.reset(f"seed-{seed}", 0).text.partition("\n")
        told = {name.strip() for name in re.split(r"[;:,.\n]|\(.*?\)", text)}
        game = generate_game(1, 8, 2, seed)
        facts = [(fact.name, *(argument.name for argument in fact.arguments)) for fact in game.world.facts]
        for name, inside, *place in facts:
            if name == "in" and place != ["I"] and ("open", *place) not in facts:
                assert str(game.infos[inside].name) not in told


def test_a_state_has_one_name_however_it_was_reached() -> None:
    env = begun("seed-3", rooms=4)
    first = env.step("nonsense").info["state"]
    way = next(command for command in env.step("nonsense").observation.valid_actions or () if command.startswith("go"))
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[way.removeprefix("go ")]
    assert env.step(way).info["state"] != first
    assert env.step(f"go {back}").info["state"] == first


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("take the moon", Status.REFUSED),
        ("GO  sideways", Status.REFUSED),
        ("", Status.INVALID),
        ("qwertz", Status.INVALID),
        ("inventory", Status.INVALID),
        ("take " * 100, Status.INVALID),
    ],
)
def test_what_cannot_be_done_is_told_apart_from_what_is_no_command(action: str, status: Status) -> None:
    step = begun().step(action)
    assert (step.status, step.reward, step.ended) == (status, 0.0, False)


def test_every_command_counts_towards_the_limit() -> None:
    env = begun(max_steps=3)
    assert [env.step("nonsense").truncated for _ in range(3)] == [False, False, True]
    with pytest.raises(EpisodeOver):
        env.step("go north")


def test_a_walkthrough_longer_than_an_episode_is_none() -> None:
    assert create({**SMALL, "max_steps": 1}).expert("seed-3", 0) is None


def test_games_of_ones_own_are_played_from_their_files(tmp_path: Path) -> None:
    for split, seed in (("train", 1), ("train", 2), ("test", 3)):
        (tmp_path / split).mkdir(exist_ok=True)
        generate_game(2, 4, 3, seed).save(str(tmp_path / split / f"game{seed}.json"))
    env = create({"games": str(tmp_path)})
    assert env.tasks("train") == ("train/game1", "train/game2")
    assert env.tasks("test") == ("test/game3",)
    assert env.reset("test/game3", 0) == create(SMALL).reset("seed-3", 0)
    assert played(env, "train/game2")[-1].reward == 1.0
    with pytest.raises(UnknownTask, match="no game 'test/game1'"):
        env.reset("test/game1", 0)


@pytest.mark.parametrize("task", ["", "seed-", "seed-01", "3", "seed--1", "seed-123456789"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask):
        create(SMALL).reset(task, 0)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownSplit, match="only train, test"):
        create(SMALL).tasks("valid")


def test_noise_eats_nothing() -> None:
    env, rng = begun("seed-3", objects=12), Random(2)
    for _ in range(40):
        action = env.noise_action(rng)
        assert action is not None
        assert not action.startswith("eat")
        if env.step(action).ended:
            env.reset("seed-3", 0)


def test_the_corpus_shows_games_on_the_way_to_their_goals() -> None:
    env = create({**SMALL, "seeds": 3})
    text = "\n".join(env.corpus())
    assert all(env.reset(task, 0).text in text for task in env.tasks("train"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"room": 3}, "no option 'room'; did you mean 'rooms'?"),
        ({"rooms": 0}, "'rooms' must be a whole number from 1 to 50"),
        ({"quest_length": True}, "'quest_length' must be a whole number"),
        ({"games": 3}, "'games' must be a text"),
        ({"games": "/no/such/folder"}, "finds no games"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.textworld").joinpath("env.json").read_text())
    assert tuple(data["splits"]) == create(SMALL).spec.splits
