from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from random import Random

import pytest
from agym.envs.babyai import BabyAI, create
from agym.envs.babyai.expert import solve
from agym.envs.babyai.levels import SEEDS, SPLITS, build_level, load_levels
from agym.envs.babyai.solvability import NUM_SEEDS, rate_level
from agym.envs.babyai.world import GridWorld
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status, Step

MODES = ("macro", "primitive")
DATA = files("agym.envs.babyai").joinpath("data")


def begun(task: str, **options: Json) -> BabyAI:
    env = create(options)
    env.reset(task, 0)
    return env


def played(env: BabyAI, *actions: str) -> Step:
    return [env.step(action) for action in actions][-1]


def solved(env: BabyAI, task: str) -> list[Step]:
    actions = env.expert(task, 0)
    assert actions is not None
    env.reset(task, 0)
    return [env.step(action) for action in actions]


# --- levels and splits ---------------------------------------------------------------------------------------------


def test_every_level_can_be_begun_and_shows_what_is_there() -> None:
    for name in load_levels():
        env = begun(f"{name}-3")
        assert env.step("turn left").observation.text.count("\n") >= 2


def test_the_splits_are_made_of_forty_levels_each_with_seeds_of_its_side() -> None:
    env = create({})
    for side in ("train", "test"):
        seeds = Counter(int(task.rpartition("-")[2]) for task in env.tasks(side))
        assert set(seeds.values()) == {40}
        assert set(seeds) == set(SEEDS[side])


def test_no_seed_is_on_both_sides() -> None:
    assert not set(SEEDS["train"]) & set(SEEDS["test"])


def test_any_beginning_of_a_split_has_something_of_every_level() -> None:
    assert len({task.rpartition("-")[0] for task in create({}).tasks("test")[:40]}) == 40


@pytest.mark.parametrize(
    ("split", "size"),
    [
        ("goto", 11),
        ("pickup", 5),
        ("action_obj_door", 1),
        ("find_obj_s7", 1),
        ("one_room_s20", 1),
        ("synth_loc", 1),
    ],
)
def test_the_splits_of_the_six_tasks_are_parts_of_test(split: str, size: int) -> None:
    env = create({})
    assert len(env.tasks(split)) == size * len(SEEDS["test"])
    assert set(env.tasks(split)) <= set(env.tasks("test"))


def test_levels_beyond_the_forty_are_played_by_name() -> None:
    env = create({"levels": ["MiniGrid-DoorKey-8x8", "GoToObj"]})
    assert env.tasks("train")[:3] == ("MiniGrid-DoorKey-8x8-0", "GoToObj-0", "MiniGrid-DoorKey-8x8-1")
    assert env.tasks("goto")[:2] == ("GoToObj-1000", "GoToObj-1001")
    assert env.tasks("synth_loc") == ()


def test_the_first_tasks_are_those_of_earlier_releases() -> None:
    assert create({}).tasks("train")[:3] == ("GoToRedBallGrey-0", "GoToRedBall-0", "GoToRedBallNoDists-0")
    assert create({}).tasks("test")[38:42] == (
        "BossLevel-1000",
        "BossLevelNoUnlock-1000",
        "GoToRedBallGrey-1001",
        "GoToRedBall-1001",
    )


@pytest.mark.parametrize("task", ["", "GoToObj", "GoToObj-", "GoToObj-x", "GoToObj-01", "GoToObj--1", "NoSuch-1", "-1"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask):
        create({}).reset(task, 0)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownSplit, match="only train, test, goto"):
        create({}).tasks("valid")


def test_drawing_a_world_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(30):
        build_level(load_levels()["PutNextLocalS5N3"], seed, None)
        build_level(load_levels()["MiniBossLevel"], seed, None)
    assert capfd.readouterr() == ("", "")


# --- playing -------------------------------------------------------------------------------------------------------


def test_an_episode_opens_with_the_goal_and_the_view() -> None:
    assert create({}).reset("BossLevel-4", 0).text == OPENING


def test_the_seed_of_the_episode_changes_nothing() -> None:
    assert create({}).reset("BossLevel-4", 1) == create({}).reset("BossLevel-4", 2)


def test_goals_keep_the_words_that_tell_the_order() -> None:
    texts = [create({}).reset(f"{name}-{seed}", 0).text for name in ("BossLevel", "SynthSeq") for seed in range(12)]
    goals = [text.splitlines()[0] for text in texts]
    assert any(", then " in goal for goal in goals)
    assert any(" after you " in goal for goal in goals)


@pytest.mark.parametrize("mode", MODES)
def test_reaching_the_goal_ends_the_episode_with_one(mode: str) -> None:
    steps = solved(create({"actions": mode}), "PutNextLocalS6N4-2")
    assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
    assert steps[-1].terminated
    assert not steps[-1].truncated
    assert steps[-1].observation.text == "You have reached the goal."


def test_info_tells_the_steps_and_the_score_that_they_leave() -> None:
    step = solved(create({"actions": "primitive"}), "GoToObj-17")[-1]
    assert step.info["scaled"] == pytest.approx(1 - 0.9 * int(str(step.info["steps"])) / 64)


@pytest.mark.parametrize("mode", MODES)
def test_the_limit_of_steps_is_enforced_whatever_is_done(mode: str) -> None:
    for action in ("turn left", "nonsense", "go to purple key 9", "check available actions"):
        env = begun("GoToObj-17", actions=mode, max_steps=5)
        steps = [env.step(action) for _ in range(5)]
        assert [step.truncated for step in steps] == [False] * 4 + [True]
        assert steps[-1].observation.text == "You have no steps left."
        with pytest.raises(EpisodeOver):
            env.step(action)


def test_the_limit_of_steps_ends_a_manoeuvre_on_its_way() -> None:
    env = begun("OneRoomS20-1", max_steps=4)
    step = env.step("move forward 9")
    assert step.truncated
    assert step.info["steps"] == 4


def test_a_level_has_a_limit_of_its_own() -> None:
    env = begun("GoToObj-17", max_steps=10_000)
    steps = [env.step("nonsense") for _ in range(64)]
    assert [step.truncated for step in steps] == [False] * 63 + [True]


def test_a_mistake_that_cannot_be_undone_ends_the_episode_with_nothing() -> None:
    env = begun("PickupDistDebug-1")
    goal = str(env.reset("PickupDistDebug-1", 0).text).splitlines()[0]
    wrong = [a for a in listed(env) if a.startswith("pick up ") and not _meant(a, goal)]
    step = env.step(wrong[0])
    assert step.terminated
    assert step.reward == 0.0
    assert step.observation.text.startswith("You have failed")


def _meant(action: str, goal: str) -> bool:
    return any(word in goal for word in action.removeprefix("pick up ").split()[:2])


def listed(env: BabyAI) -> tuple[str, ...]:
    return tuple(env.step("check available actions").observation.valid_actions or ())


@pytest.mark.parametrize("mode", MODES)
def test_every_action_listed_is_possible(mode: str) -> None:
    rng = Random(3)
    for name in ("UnlockLocalDist", "PutNextLocalS6N4", "SynthS5R2", "MiniGrid-GoToDoor-6x6"):
        env = begun(f"{name}-5", actions=mode)
        for _ in range(12):
            actions = listed(env)
            assert len(set(actions)) == len(actions)
            step = env.step(rng.choice(actions))
            assert step.status is Status.OK
            if step.ended:
                break


def test_available_actions_are_told_on_demand() -> None:
    env = begun("GoToObj-17")
    step = env.step("check available actions")
    assert step.observation.text == f"You can: {'; '.join(step.observation.valid_actions or ())}."


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("drop", "You are carrying nothing."),
        ("pick up", "There is nothing like that directly in front of you."),
        ("toggle", "There is nothing like that directly in front of you."),
        ("done", "Nothing happens."),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_comes_to_nothing_says_why(mode: str, action: str, text: str) -> None:
    step = begun("OneRoomS20-1", actions=mode).step(action)
    assert (step.status, step.observation.text) == (Status.REFUSED, text)


def test_walking_into_a_wall_is_refused() -> None:
    env = begun("OneRoomS20-1", actions="primitive")
    steps = [env.step("move forward") for _ in range(20)]
    assert steps[-1].status is Status.REFUSED
    assert steps[-1].observation.text == "The way is blocked."


def test_where_it_asks_for_it_one_says_that_one_is_there() -> None:
    env = create({})
    first = env.reset("MiniGrid-GoToObject-6x6-N2-4", 0)
    assert "Say done when you have arrived." in first.text
    target = re.findall(r"Goal: go to the (\w+ \w+)\.", first.text)[0]
    while f"go to {target} 1" not in listed(env):
        env.step("turn left")
    step = played(env, f"go to {target} 1", "done")
    assert step.reward == 1.0


# --- demonstrations ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_expert_wins_where_it_has_a_solution(mode: str) -> None:
    env = create({"actions": mode})
    for task in env.tasks("test")[:40]:
        actions = env.expert(task, 0)
        if actions is not None:
            env.reset(task, 0)
            assert played(env, *actions).reward == 1.0


@pytest.mark.parametrize("mode", MODES)
def test_advice_wins_whatever_was_done_before(mode: str) -> None:
    rng = Random(1)
    for name in ("GoToSeqS5R2", "UnlockPickupDist", "PutNextLocalS6N4", "PutNextS7N4Carrying", "BlockedUnlockPickup"):
        env = begun(f"{name}-1002", actions=mode)
        for number in range(200):
            action = env.noise_action(rng) if number < 15 and number % 3 == 0 else env.advice()
            assert action is not None
            step = env.step(action)
            if step.ended:
                break
        assert step.reward == 1.0


def test_advice_follows_the_expert_when_nothing_disturbs_it() -> None:
    env = begun("SynthS5R2-1001")
    advised = []
    while (action := env.advice()) is not None:
        advised.append(action)
        env.step(action)
    assert tuple(advised) == env.expert("SynthS5R2-1001", 0)


def test_manoeuvres_make_short_work() -> None:
    for task in create({}).tasks("test")[:12]:
        actions = {mode: create({"actions": mode}).expert(task, 0) for mode in MODES}
        assert len(actions["macro"] or ()) <= len(actions["primitive"] or ())


def test_noise_spares_what_may_be_needed() -> None:
    rng = Random(2)
    for task in ("KeyInBox-1", "PickupDistDebug-1", "MiniGrid-LavaGapS7-1", "MiniGrid-DistShift1-1"):
        env = begun(task)
        for _ in range(40):
            action = env.noise_action(rng)
            assert action is not None
            step = env.step(action)
            if step.ended:
                assert step.reward == 1.0 or step.truncated
                break


def test_noise_goes_nowhere_where_going_there_may_lose() -> None:
    rng = Random(3)
    for actions in MODES:
        for seed in range(1000, 1004):
            env = begun(f"MiniGrid-MemoryS7-{seed}", actions=actions)
            assert not any(env.step(env.noise_action(rng) or "").terminated for _ in range(15))


def test_the_frozen_shares_of_the_expert_are_of_every_level_it_may_play() -> None:
    rows = shares()
    assert set(rows) == {level.name for level in load_levels().values() if level.family != "minigrid"}
    assert all(int(share.split("/")[1]) == NUM_SEEDS for share, _, _ in rows.values())


def shares() -> dict[str, tuple[str, int, int]]:
    lines = (line.split() for line in DATA.joinpath("expert.txt").read_text().splitlines() if line[0] != "#")
    return {name: (share, int(commands), int(steps)) for name, share, commands, steps in lines}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["GoToRedBall", "ActionObjDoor", "UnlockLocalDist", "KeyInBox", "MiniBossLevel"])
def test_the_frozen_shares_of_the_expert_are_found_again(name: str) -> None:
    share, commands, steps = shares()[name]
    assert rate_level(load_levels()[name], SEEDS["test"][:NUM_SEEDS]) == f"{share} {commands} {steps}"


def test_what_the_expert_plans_with_leaves_the_world_as_it_was() -> None:
    world = GridWorld(build_level(load_levels()["MiniBossLevel"], 3, None))
    before = world.pose, world.steps, dict(world.seen)
    assert solve(world, macros=True)
    assert before == (world.pose, world.steps, dict(world.seen))


# --- words, options, speed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_corpus_has_every_word_an_episode_can_show(mode: str) -> None:
    for chosen in ([], ["MiniGrid-LockedRoom", "MiniGrid-GoToDoor-6x6", "MiniGrid-LavaGapS6", "MiniGrid-Fetch-8x8-N3"]):
        env = create({"actions": mode} | ({"levels": chosen} if chosen else {}))
        known = {word for text in env.corpus() for word in words(text)}
        assert len(known) < 230
        assert {word for task in env.tasks("train")[:80] for word in shown(env, task)} <= known


def words(text: str) -> Iterator[str]:
    yield from re.findall(r"[\w'-]+|[^\w\s]", text)


def shown(env: BabyAI, task: str) -> set[str]:
    rng = Random(task)
    seen = [env.reset(task, 0).text]
    for number in range(6):
        action = "nonsense" if number == 4 else env.noise_action(rng) or ""
        step = env.step(action)
        seen += ([action] if number != 4 else []) + [step.observation.text, *(step.observation.valid_actions or ())]
        if step.ended:
            break
    return {word for text in seen for word in words(text)}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"level": ["GoToObj"]}, "no option 'level'; did you mean 'levels'?"),
        ({"levels": ["GoToObjj"]}, "'levels' knows no 'GoToObjj'; did you mean 'GoToObj'?"),
        ({"levels": []}, "'levels' must list different names"),
        ({"levels": "GoToObj"}, "'levels' must list different names"),
        ({"levels": ["GoToObj", "GoToObj"]}, "'levels' must list different names"),
        ({"actions": "macros"}, "'actions' must be one of macro, primitive"),
        ({"max_steps": 0}, "'max_steps' must be a whole number"),
        ({"max_steps": True}, "'max_steps' must be a whole number"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.babyai").joinpath("env.json").read_text())
    assert tuple(data["splits"]) == tuple(SPLITS) == create({}).spec.splits
    assert data["options"]["levels"]["items"]["enum"] == list(load_levels())


OPENING = """\
Goal: go to the red key and open the purple door, then pick up the yellow ball and open the red door.
You see yellow door 1 (closed), 2 steps ahead and 2 steps to the left.
Walls: 2 steps ahead (3 left to 3 right); 3 steps to the right (0 to 2 ahead).
You are carrying nothing."""
