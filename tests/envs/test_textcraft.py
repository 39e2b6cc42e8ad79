from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from random import Random

import pytest
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status, Step
from agym.envs.textcraft import TextCraft, create
from agym.envs.textcraft.procedural import EXTRAS

SMALL: Mapping[str, Json] = {"world": "small", "terse": True, "max_distractors": 2}
CHOICES: Mapping[str, Mapping[str, Json]] = {"full": {}, "small": SMALL}


@pytest.fixture(params=sorted(CHOICES))
def env(request: pytest.FixtureRequest) -> TextCraft:
    return create(CHOICES[request.param])


def begun(task: str = "full/oak-crate", **options: Json) -> TextCraft:
    env = create(options)
    env.reset(task, 0)
    return env


def played(env: TextCraft, *actions: str) -> Step:
    return [env.step(action) for action in actions][-1]


def test_the_expert_solves_every_task_within_the_hint(env: TextCraft) -> None:
    for task in env.tasks("train") + env.tasks("test"):
        env.reset(task, 1)
        actions = env.expert(task, 1)
        steps = [env.step(action) for action in actions]
        assert len(actions) <= (env.spec.max_turns or 0)
        assert all(step.status is Status.OK for step in steps)
        assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert steps[-1].terminated


def test_no_shorter_sequence_of_commands_is_left_out_of_the_expert(env: TextCraft) -> None:
    for task in env.tasks("test")[::5]:
        actions = env.expert(task, 1)
        for left_out in range(len(actions)):
            env.reset(task, 1)
            steps = [env.step(action) for number, action in enumerate(actions) if number != left_out]
            assert not steps or not steps[-1].terminated


def test_advice_follows_the_expert_when_nothing_disturbs_it(env: TextCraft) -> None:
    for task in env.tasks("test")[::9]:
        env.reset(task, 2)
        advised = []
        while (action := env.advice()) is not None:
            advised.append(action)
            env.step(action)
        assert tuple(advised) == env.expert(task, 2)


def test_advice_wins_whatever_noise_came_before(env: TextCraft) -> None:
    rng = Random(0)
    for task in env.tasks("train")[::9]:
        env.reset(task, 3)
        step = None
        for number in range(60):
            action = env.noise_action(rng) if number < 20 and rng.random() < 0.4 else env.advice()
            assert action is not None
            step = env.step(action)
            assert step.status is not Status.INVALID
            if step.ended:
                break
        assert step is not None
        assert step.terminated


def test_the_splits_by_depth_make_up_the_test_split(env: TextCraft) -> None:
    by_depth = [env.tasks(f"depth{depth}") for depth in range(1, 6)]
    assert sorted(task for tasks in by_depth for task in tasks) == sorted(env.tasks("test"))
    for depth, tasks in enumerate(by_depth, start=1):
        assert {env.difficulty(task) for task in tasks} == {f"depth{depth}"}


def test_ids_are_frozen() -> None:
    full, small = create({}), create(SMALL)
    assert (len(full.tasks("train")), len(full.tasks("test"))) == (434, 214)
    assert (len(small.tasks("train")), len(small.tasks("test"))) == (896, 128)
    assert full.tasks("train")[:2] == ("full/oak-plank", "full/birch-plank")
    assert small.tasks("test")[:2] == ("small/lead-rod", "small/slate-rod")


def test_an_episode_is_what_it_was_when_the_version_was_given() -> None:
    assert create({}).reset("full/oak-bench", 7).text == (
        "Crafting commands:\n"
        "craft 1 oak panel using 3 oak plank\n"
        "craft 4 oak plank using 1 oak log\n"
        "craft 1 iron pump using 1 iron gear, 1 oak beam\n"
        "craft 1 oak wagon using 1 oak barrow, 1 oak beam\n"
        "craft 1 red window using 2 red pane, 1 oak beam\n"
        "craft 1 oak beam using 2 oak log\n"
        "craft 1 oak bench using 2 oak plank, 2 oak beam\n"
        "\n"
        "Goal: craft oak bench."
    )


def test_a_state_is_named_by_goal_and_what_is_held_however_it_came_about() -> None:
    one = played(begun(), "get 1 oak log", "get 2 iron ore").info
    other = played(begun(), "get 2 iron ore", "fly", "get 1 oak log", "inventory").info
    assert one == other == {"state": "oak crate from 2 iron ore, 1 oak log"}
    assert played(begun(), "get 1 oak log").info != one
    assert played(begun("full/oak-bench"), "get 1 oak log", "get 2 iron ore").info != one


def test_what_is_used_up_is_held_no_longer_and_the_end_has_no_state() -> None:
    env = begun()
    *before, last = [env.step(action) for action in env.expert("full/oak-crate", 0)]
    assert before[0].info != before[-1].info
    assert last.terminated
    assert last.info == {}


def test_depths_leave_out_the_others_in_every_split() -> None:
    env = create({"depths": [2, 3]})
    assert {env.difficulty(task) for split in ("train", "test") for task in env.tasks(split)} == {"depth2", "depth3"}
    assert env.tasks("depth1") == ()
    assert create({"depths": 4}).tasks("test") == create({}).tasks("depth4")


def test_distractors_are_as_many_as_allowed_and_not_always() -> None:
    def others(most: int) -> set[int]:
        env = create({"max_distractors": most})
        needed = env.reset("full/oak-bench", 0).text.count("craft ") if most == 0 else 4
        return {env.reset("full/oak-bench", seed).text.count("craft ") - needed for seed in range(30)}

    assert others(0) == {0}
    assert others(3) == {0, 1, 2, 3}


def test_without_shuffling_parts_come_before_what_is_made_of_them() -> None:
    env = create({"shuffle": False})
    for task in env.tasks("test")[::10]:
        lines = [line for line in env.reset(task, 0).text.splitlines() if line.startswith("craft ")]
        made = [line.split(" using ")[0].split(" ", 2)[2] for line in lines]
        for position, line in enumerate(lines):
            parts = {part.split(" ", 1)[1] for part in line.split(" using ")[1].split(", ")}
            assert not parts & set(made[position + 1 :])


@pytest.mark.parametrize(("share", "least", "most"), [(0, 0.0, 0.0), (0.25, 0.15, 0.35), (1, 1.0, 1.0)])
def test_extras_are_asked_for_as_often_as_chosen(share: Json, least: float, most: float) -> None:
    env = create({**SMALL, "extras": share})
    lines = [line for task in env.tasks("train") for line in env.reset(task, 0).text.splitlines()[:-1]]
    with_extra = [line for line in lines if set(_words(line)) & set(EXTRAS)]
    assert least <= len(with_extra) / len(lines) <= most


def test_amounts_go_up_to_the_most_that_was_chosen() -> None:
    env = create({**SMALL, "max_amount": 2})
    plans = [action for task in env.tasks("train") for action in env.expert(task, 0)]
    assert {word for action in plans for word in action.split() if word.isdigit()} == {"1", "2"}


def test_small_prompts_and_actions_stay_small() -> None:
    env = create(SMALL)
    tasks = env.tasks("train")
    prompts = [len(_words(env.reset(task, seed).text)) for seed in (0, 1) for task in tasks]
    actions = [len(_words(action)) for task in tasks for action in env.expert(task, 0)]
    assert sum(prompts) / len(prompts) <= 60
    assert max(prompts) <= 90
    assert sum(actions) / len(actions) <= 8


def _words(text: str) -> list[str]:
    return text.replace(",", " , ").split()


@pytest.mark.parametrize("options", CHOICES.values(), ids=CHOICES)
def test_the_corpus_has_every_word_an_episode_can_show(options: Mapping[str, Json]) -> None:
    env, rng = create(options), Random(1)
    known = {word for text in env.corpus() for word in _words(text)}
    assert len(known) < (120 if options else 600)
    for task in (env.tasks("train") + env.tasks("test"))[::3]:
        seen = [env.reset(task, 5).text]
        for _ in range(12):
            action = env.noise_action(rng) if rng.random() < 0.5 else env.advice()
            if action is None:
                break
            seen += [action, env.step(action).observation.text]
        words = {word for text in seen for word in _words(text)}
        assert {word for word in words - known if not word.strip(".").isdigit()} <= _bare(words - known, known)


def _bare(words: set[str], known: set[str]) -> set[str]:
    """Words that are known except for the full stop after them."""
    return {word for word in words if word.strip(".:") in {other.strip(".:") for other in known}}


LISTED = "craft 1 oak panel using 3 oak plank"
"""The first crafting command of the task that is begun."""


@pytest.mark.parametrize(
    ("actions", "status", "text"),
    [
        (["get 2 oak log"], Status.OK, "Picked up 2 oak log."),
        (["get 2 oak log", "get 1 oak log", "inventory"], Status.OK, "You hold 3 oak log."),
        (["inventory"], Status.OK, "You hold nothing."),
        (["Get 2 oak log."], Status.OK, "Picked up 2 oak log."),
        (["get 2 oak log.", "craft 4 oak plank using 1 oak log."], Status.OK, "Crafted 4 oak plank."),
        (
            ["get 1 oak plank"],
            Status.REFUSED,
            "There is no oak plank to pick up. Craft it: craft 4 oak plank using 1 oak log",
        ),
        (["get 1 gold dragon"], Status.REFUSED, "There is no gold dragon to pick up."),
        (
            ["craft 4 oak plank using 1 oak log"],
            Status.REFUSED,
            "You cannot craft oak plank yet: you still need 1 oak log.",
        ),
        (
            ["craft 1 oak chair using 1 oak log"],
            Status.REFUSED,
            f"No crafting command here makes oak chair. Write one that is listed, such as: {LISTED}",
        ),
        (
            ["get 1 oak log", "craft 1 oak plank using 1 oak log"],
            Status.REFUSED,
            "That is not how oak plank is crafted. The crafting command is: craft 4 oak plank using 1 oak log",
        ),
        (["get 1 oak log", "craft 4 oak plank using 1 oak log"], Status.OK, "Crafted 4 oak plank."),
        (
            ["get 1 oak log", "craft 4 oak plank using 1 oak log", "inventory"],
            Status.OK,
            "You hold 4 oak plank.",
        ),
        (
            ["craft 4 oak plank"],
            Status.INVALID,
            f"Write a crafting command as it is listed, such as: {LISTED}",
        ),
        (
            ["get oak log"],
            Status.INVALID,
            "After 'get' come an amount from 1 to 999 and an item, such as: get 2 oak log",
        ),
    ],
)
def test_each_answer_says_what_happened(actions: list[str], status: Status, text: str) -> None:
    step = played(begun(), *actions)
    assert (step.status, step.observation.text, step.reward) == (status, text, 0.0)


def test_ingredients_may_come_in_any_order_but_not_twice() -> None:
    env = begun("full/oak-bench")
    for action in env.expert("full/oak-bench", 0)[:-1]:
        env.step(action)
    assert played(env, "craft 1 oak bench using 1 oak beam, 1 oak beam, 2 oak plank").status is Status.REFUSED
    assert played(env, "craft 1 oak bench using 2 oak beam, 2 oak plank").terminated


def test_a_refused_command_costs_nothing() -> None:
    env = begun("full/oak-bench")
    played(env, "get 1 oak log", "craft 1 oak beam using 2 oak log", "craft 9 oak plank using 1 oak log")
    assert played(env, "inventory").observation.text == "You hold 1 oak log."


def test_only_the_commands_shown_work() -> None:
    env = create({"max_distractors": 0})
    env.reset("full/oak-plank", 0)
    env.step("get 2 oak log")
    assert env.step("craft 1 oak beam using 2 oak log").status is Status.REFUSED


def test_nothing_goes_on_before_a_reset_or_after_the_end() -> None:
    env = create({})
    with pytest.raises(EpisodeOver):
        env.step("inventory")
    assert env.advice() is None
    assert env.noise_action(Random(0)) is None
    env.reset("full/oak-plank", 0)
    for action in env.expert("full/oak-plank", 0):
        env.step(action)
    with pytest.raises(EpisodeOver):
        env.step("inventory")
    env.reset("full/oak-plank", 0)
    assert env.step("inventory").observation.text == "You hold nothing."


@pytest.mark.parametrize(
    "task", ["oak-plank", "small/oak-rod", "full/oak plank", "full/oak-log", "full/", "", "full/Oak-plank", "x" * 999]
)
def test_an_id_that_is_not_exactly_one_of_its_own_is_refused(task: str) -> None:
    env = create({})
    for call in (lambda: env.reset(task, 0), lambda: env.difficulty(task), lambda: env.expert(task, 0)):
        with pytest.raises(UnknownTask):
            call()


@pytest.mark.parametrize("split", ["", "tests", "depth0", "depth6", "depth", "depthx"])
def test_an_unknown_split_is_refused(split: str) -> None:
    with pytest.raises(UnknownSplit):
        create({}).tasks(split)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"wrold": "full"}, "no option 'wrold'; did you mean 'world'?"),
        ({"zzz": 1}, "no option 'zzz'; expected one of world, depths"),
        ({"world": "tiny"}, "'world' must be one of full, small"),
        ({"depths": []}, "'depths' must be a whole number from 1 to 5 or list different whole numbers from 1 to 5"),
        ({"depths": [1, 6]}, "'depths' must be a whole number from 1 to 5 or list different whole numbers from 1 to 5"),
        ({"depths": [1, 1]}, "'depths' must be a whole number from 1 to 5 or list different whole numbers from 1 to 5"),
        ({"depths": "1"}, "'depths' must be a whole number from 1 to 5 or list different whole numbers from 1 to 5"),
        ({"depths": True}, "'depths' must be a whole number from 1 to 5 or list different whole numbers from 1 to 5"),
        ({"terse": 1}, "'terse' must be true or false"),
        ({"shuffle": None}, "'shuffle' must be true or false"),
        ({"max_distractors": -1}, "'max_distractors' must be a whole number"),
        ({"max_distractors": True}, "'max_distractors' must be a whole number"),
        ({"world": ["full"]}, "'world' must be one of"),
        ({"world": "small", "extras": 1.1}, "'extras' must be a number from 0 to 1"),
        ({"world": "small", "extras": True}, "'extras' must be a number from 0 to 1"),
        ({"world": "small", "max_amount": 0}, "'max_amount' must be a whole number from 1 to 9"),
        ({"world": "full", "extras": 0.5}, "'extras' has no effect in a world whose recipes are fixed"),
        ({"max_amount": 2}, "'max_amount' has no effect"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.textcraft").joinpath("env.json").read_text())
    assert tuple(data["splits"]) == create({}).spec.splits


def test_no_demonstration_makes_what_is_held_out() -> None:
    env = create({"world": "small", "max_distractors": 8})
    held_out, rng = {task.rpartition("/")[2].replace("-", " ") for task in env.tasks("test")}, Random(1)
    seen = made = 0
    for number, task in enumerate(env.tasks("train")[::9]):
        shown = env.reset(task, number).text
        seen += any(f"craft 1 {item} " in shown for item in held_out)
        for _ in range(30):
            action = env.noise_action(rng) or ""
            made += any(action.startswith(f"craft 1 {item} ") for item in held_out)
    assert seen > 20
    assert made == 0


# --- hindsight


def wandered(env: TextCraft, task: str, seed: int) -> list[str]:
    """What is done under noise until the goal is reached."""
    rng, actions = Random(f"{task} {seed}"), []
    env.reset(task, seed)
    while (advice := env.advice()) is not None:
        noise = env.noise_action(rng) if rng.random() < 0.5 else None
        actions.append(noise or advice)
        env.step(actions[-1])
    return actions


def test_hindsight_tells_of_all_that_was_crafted_on_the_way_as_it_would_have_been_posed(env: TextCraft) -> None:
    told = 0
    for task in env.tasks("train")[::7]:
        actions = wandered(env, task, 4)
        found = env.hindsight(task, 4, actions)
        told += len(found)
        own = env.reset(task, 4).text
        answers = [env.step(action).observation.text for action in actions]
        for each in found:
            item, goal = (name.partition("/")[2].replace("-", " ") for name in (each.task, task))
            before, _, after = own.rpartition(goal)
            assert each.first.text == f"{before}{item}{after}"
            said = [answer.lower().rstrip(".").split(" ", 2)[::2] for answer in answers]
            assert said.index(["crafted", item]) + 1 == each.actions
    assert told > 100


def test_hindsight_never_tells_of_a_held_out_item_even_if_one_was_crafted() -> None:
    env = create(SMALL | {"max_distractors": 20})
    held_out, crafted = set(env.tasks("test")), set()
    for task in env.tasks("train"):
        commands = env.reset(task, 0).text.splitlines()[:-1]
        # everything that can be crafted from bare materials is, of use or not
        actions = [action for command in commands for action in (*_materials(command), command)] * 2
        done = []
        for action in actions:
            done.append(action)
            step = env.step(action)
            if step.status is Status.OK and action.startswith("craft"):
                crafted.add(_id(action))
            if step.ended:
                break
        told = {each.task for each in env.hindsight(task, 0, done)}
        assert told <= set(env.tasks("train")) - {task}
    assert crafted & held_out


def _materials(command: str) -> list[str]:
    return [f"get {part}" for part in command.split(" using ")[1].split(", ")]


def _id(command: str) -> str:
    return "small/" + command.split(" using ")[0].split(" ", 2)[2].replace(" ", "-")


def test_an_episode_of_a_held_out_goal_tells_nothing(env: TextCraft) -> None:
    for task in env.tasks("test")[::9]:
        assert env.hindsight(task, 0, env.expert(task, 0)) == ()


def test_only_depths_that_are_chosen_are_mentioned() -> None:
    env = create({"depths": [2, 3, 4]})
    found = [each for task in env.tasks("train")[::5] for each in env.hindsight(task, 0, env.expert(task, 0))]
    assert {env.difficulty(each.task) for each in found} == {"depth2", "depth3"}
