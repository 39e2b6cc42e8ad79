from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from agym.envs.errors import BadOption, EnvFault, EpisodeOver, FaultKind, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status, Step
from agym.envs.sciworld import SciWorld, create
from agym.envs.sciworld.java import Javas
from agym.envs.sciworld.rooms import SeenRooms, drop_the_usual
from agym.envs.sciworld.tasks import GROUPS, TASKS, format_spans, parse_spans
from agym.envs.sciworld.texts import DONE, FAILED, MALFORMED, PROMPT, TERSE, UNKNOWN, read_status, tidy_text

ONE_JAVA: dict[str, Json] = {"heap_mb": 512, "processes": 1}
FAMILIES = ("measure", "test_conductivity", "find", "chemistry_mix", "lifespan")

# --- tasks and options, for which no process is started ---


def test_every_variation_that_can_be_played_twice_alike_is_in_one_part() -> None:
    env = create({})
    parts = [env.tasks(part) for part in ("train", "dev", "test")]
    listed = [task for part in parts for task in part]
    assert len(listed) == len(set(listed)) == 7207 - sum(len(task.left_out) for task in TASKS.values())


def test_parts_are_those_of_the_simulators_authors() -> None:
    boil = TASKS["boil"].parts
    assert (boil["train"], boil["dev"], boil["test"]) == (range(14), range(14, 21), range(21, 30))


def test_what_is_held_out_is_all_that_is_not_trained_on() -> None:
    env = create({})
    held_out = env.tasks("held_out")
    assert sorted(held_out) == sorted((*env.tasks("dev"), *env.tasks("test")))
    assert len(create({"tasks": ["find-non-living-thing"]}).tasks("held_out")) == 150


def test_families_are_the_parts_of_test_that_belong_to_their_tasks() -> None:
    env = create({})
    for family in FAMILIES:
        names = {task.partition("/")[0] for task in env.tasks(family)}
        assert names == set(GROUPS[family])
        assert set(env.tasks(family)) <= set(env.tasks("test"))
        assert {env.difficulty(task) for task in env.tasks(family)} == {family}


def test_ids_are_frozen() -> None:
    env = create({})
    assert env.tasks("train")[:2] == ("boil/0", "boil/1")
    assert env.tasks("test")[0] == "boil/21"
    assert env.tasks("lifespan")[-1] == "lifespan-longest-lived-then-shortest-lived/124"


def test_tasks_by_name_narrow_every_split() -> None:
    env = create({"tasks": ["find-plant", "melt"]})
    assert {task.partition("/")[0] for task in env.tasks("train")} == {"find-plant", "melt"}
    assert {task.partition("/")[0] for task in env.tasks("find")} == {"find-plant"}
    assert env.tasks("lifespan") == ()


@pytest.mark.parametrize(
    "task", ["", "boil", "boil/", "boil/30", "boil/01", "boil/-1", "boil/\u0663", "fry/0", "boil/²"]
)
def test_what_is_no_task_is_refused_before_anything_starts(task: str) -> None:
    for call in (lambda: create({}).reset(task, 0), lambda: create({}).difficulty(task)):
        with pytest.raises(UnknownTask):
            call()


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownSplit, match="chemistry_mix"):
        create({}).tasks("genetics")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": ["boil"]}, "did you mean 'tasks'"),
        ({"tasks": ["boli"]}, "knows no 'boli'; did you mean 'boil'"),
        ({"tasks": []}, "must list different names"),
        ({"tasks": ["boil", "boil"]}, "must list different names"),
        ({"tasks": "boil"}, "must list different names"),
        ({"simplifications": ["easy"]}, "knows no 'easy'"),
        ({"max_steps": 0}, "from 1 to 10000"),
        ({"max_steps": True}, "whole number"),
        ({"heap_mb": 100}, "from 256"),
        ({"processes": 0}, "from 1 to 64"),
        ({"valid_actions": 1}, "true or false"),
    ],
)
def test_a_mistake_in_the_options_is_named(options: dict[str, Json], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        create(options)


def test_teleporting_is_mentioned_only_where_it_is_possible() -> None:
    assert create({}).spec.prompt == PROMPT
    assert "teleport" in create({"simplifications": ["teleportAction"]}).spec.prompt


@pytest.mark.parametrize("chosen", [set(), {0}, {3, 4, 5}, {0, 2, 3, 9}])
def test_spans_and_numbers_are_inverse(chosen: set[int]) -> None:
    assert set(parse_spans(format_spans(chosen))) == chosen


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("You move to the kitchen.", Status.OK),
        ("a stopwatch, which is deactivated.", Status.OK),
        ("This room is called the hallway.\n\tA door that is not here.", Status.OK),
        ("No known action matches that input.", Status.INVALID),
        ("Unknown action.  Type 'help' for a list.", Status.INVALID),
        ("It's not clear how to get there from here.", Status.REFUSED),
        ("The door is already open.", Status.REFUSED),
        ("The kitchen is not openable.", Status.REFUSED),
        ("Ambiguous request: Please enter the number", Status.REFUSED),
    ],
)
def test_what_the_simulator_made_of_an_action_is_read_off_its_answer(text: str, status: Status) -> None:
    assert read_status(text) is status


def test_observations_have_no_tabs_and_no_trailing_blanks() -> None:
    assert tidy_text("In it, you see: \n\tthe agent\n\ta cup \n") == "In it, you see:\n  the agent\n  a cup"


KITCHEN = """\
This room is called the kitchen. In it, you see:
  a chair
  a chair
  a red box (containing nothing)
You also see:
  A door to the hallway (that is open)"""
HALLWAY = "This room is called the hallway. In it, you see:\n  a chair\nYou also see:\n  A door to the kitchen"
OUTSIDE = "This outside location is called the outside. Here you see:\n  air"


def test_of_a_room_seen_before_only_changes_are_shown() -> None:
    seen = SeenRooms()
    assert [seen.shorten(text) for text in (KITCHEN, HALLWAY, OUTSIDE)] == [KITCHEN, HALLWAY, OUTSIDE]
    same = "is called the outside. Nothing has changed since you last saw it."
    assert seen.shorten(OUTSIDE) == f"This outside location {same}"
    moved = KITCHEN.replace("  a chair\n", "", 1).replace("nothing", "a chair")
    assert seen.shorten(moved).splitlines() == [
        "This room is called the kitchen. This has changed since you last saw it:",
        "  now: a red box (containing a chair)",
        "  no longer: a chair",
        "  no longer: a red box (containing nothing)",
    ]
    assert "Nothing has changed" in seen.shorten(moved)


USUAL = """\
This room is called the kitchen. In it, you see:
  the agent
  a substance called air
  a cupboard. The cupboard door is open. In the cupboard is: a ceramic cup (containing nothing), a drawer.
  a fridge. The fridge door is closed.
  a counter. On the counter is: nothing.
  a oven, which is turned off. The oven door is open. In the oven is: nothing.
  a sink, which is turned on. In the sink is: nothing.
  a red light bulb, which is off
  a stopwatch, which is deactivated.
  a toilet. In the toilet is: A drain, which is closed, a substance called water.
  a thermometer, currently reading a temperature of 10 degrees celsius
You also see:
  A door to the bathroom (that is open)
  A door to the hallway (that is closed)"""
UNUSUAL = """\
This room is called the kitchen. In it, you see:
  a cupboard. In the cupboard is: a ceramic cup, a drawer.
  a fridge. The fridge door is closed.
  a counter
  a oven
  a sink, which is turned on
  a red light bulb
  a stopwatch
  a toilet. In the toilet is: A drain, which is closed, a substance called water.
  a thermometer, currently reading a temperature of 10 degrees celsius
You also see:
  A door to the bathroom
  A door to the hallway (that is closed)"""


def test_a_terse_description_leaves_out_what_is_empty_open_off_or_everywhere() -> None:
    assert drop_the_usual(USUAL) == UNUSUAL
    assert drop_the_usual(UNUSUAL) == UNUSUAL


def test_a_terse_environment_says_what_it_leaves_out_and_keeps_other_answers() -> None:
    assert create({"terse": True}).spec.prompt == PROMPT + TERSE
    answer = "In your inventory, you see:\n  a glass cup (containing nothing)"
    assert drop_the_usual(answer) == answer


@pytest.mark.parametrize("text", ["You move to the kitchen.", "a chair\nThis room is called the kitchen. In it:\n", ""])
def test_other_texts_are_shown_as_often_as_the_simulator_answers_them(text: str) -> None:
    seen = SeenRooms()
    assert [seen.shorten(text) for _ in range(2)] == [text, text]


def test_the_corpus_has_every_word_of_the_prompt_and_of_common_answers() -> None:
    words = set(" ".join(create({}).corpus()).split())
    assert {"look", "around", "focus", "door", "kitchen", "inventory"} <= words


# --- episodes, in one small process ---


@pytest.fixture(scope="module")
def keeper() -> Iterator[SciWorld]:
    """Holds on to the process for as long as these tests take."""
    env = create(ONE_JAVA)
    env.reset("lifespan-longest-lived/0", 0)
    yield env
    env.close()


@pytest.fixture
def env(keeper: SciWorld) -> Iterator[SciWorld]:
    env = create(ONE_JAVA)
    yield env
    env.close()


def begun(env: SciWorld, task: str, *actions: str) -> Step:
    env.reset(task, 0)
    return [env.step(action) for action in actions][-1]


heavy = pytest.mark.heavy


@heavy
@pytest.mark.parametrize("task", ["boil/25", "find-animal/299", "lifespan-shortest-lived/124", "chemistry-mix/31"])
def test_the_simulators_own_solution_scores_one_at_its_last_action_and_not_before(env: SciWorld, task: str) -> None:
    actions = env.expert(task, 0)
    assert actions is not None
    env.reset(task, 0)
    steps = [env.step(action) for action in actions]
    assert [step.ended for step in steps] == [False] * (len(steps) - 1) + [True]
    assert all(0 <= step.reward < 1 for step in steps[:-1])
    last = steps[-1]
    assert (last.reward, last.terminated, last.info["success"]) == (1.0, True, True)
    assert last.observation.text.endswith(DONE)


@heavy
def test_a_solution_has_no_commands_that_do_nothing(keeper: SciWorld) -> None:
    env = create({**ONE_JAVA, "simplifications": ["openDoors"], "look": True})
    actions = env.expert("find-non-living-thing/150", 0)
    assert actions is not None
    env.reset("find-non-living-thing/150", 0)
    steps = [env.step(action) for action in actions]
    assert {step.status for step in steps} == {Status.OK}
    assert "look around" not in actions
    assert steps[-1].info["success"]
    env.close()


@heavy
def test_an_episode_begins_with_the_task_and_what_is_seen(env: SciWorld) -> None:
    text = env.reset("boil/0", 0).text
    assert text.startswith("Your task is to boil water.")
    assert "\n\nThis room is called" in text
    assert env.reset("boil/0", 5).text == text


@heavy
def test_a_wrong_focus_ends_the_episode_with_nothing(env: SciWorld) -> None:
    step = begun(env, "boil/0", "focus on agent")
    assert (step.reward, step.terminated, step.info["success"]) == (0.0, True, False)
    assert step.observation.text.endswith(FAILED)
    with pytest.raises(EpisodeOver):
        env.step("look around")


@heavy
def test_an_action_that_makes_no_sense_leaves_the_score_as_it_was(env: SciWorld) -> None:
    actions = env.expert("boil/25", 0)
    assert actions is not None
    scores = [begun(env, "boil/25", *actions[:at], "qwertz", "\ud800").reward for at in (len(actions) - 1,)]
    env.reset("boil/25", 0)
    assert scores == [[env.step(action) for action in actions[:-1]][-1].reward]
    assert scores[0] > 0


@heavy
@pytest.mark.parametrize("action", ["", " \n", "é", "look\x00around", "look " * 50, "\u0660"])
def test_what_cannot_be_a_command_is_not_passed_on(env: SciWorld, action: str) -> None:
    step = begun(env, "boil/0", action)
    assert (step.status, step.observation.text) == (Status.INVALID, MALFORMED)


@heavy
def test_a_command_may_be_written_as_a_sentence(env: SciWorld) -> None:
    assert begun(env, "boil/0", "Look  around.") == begun(env, "boil/0", "look around")
    opened = begun(env, "boil/0", "Open the door to the kitchen.")
    assert opened == begun(env, "boil/0", "open door to kitchen")
    assert opened.status is Status.OK


@heavy
def test_an_unknown_command_is_told_as_such(env: SciWorld) -> None:
    step = begun(env, "boil/0", "fry the agent")
    assert (step.status, step.observation.text) == (Status.INVALID, UNKNOWN)


@heavy
def test_every_action_counts_towards_the_limit_understood_or_not(keeper: SciWorld) -> None:
    env = create({**ONE_JAVA, "max_steps": 3})
    steps = [env.step(action) for action in ("look around", "", "qwertz")] if env.reset("boil/0", 0) else []
    assert [(step.truncated, step.terminated) for step in steps] == [(False, False), (False, False), (True, False)]
    with pytest.raises(EpisodeOver):
        env.step("look around")
    env.close()


@heavy
def test_a_solution_longer_than_an_episode_is_none(keeper: SciWorld) -> None:
    env = create({**ONE_JAVA, "max_steps": 3})
    assert env.expert("boil/25", 0) is None
    env.close()


@heavy
def test_a_name_of_several_things_is_asked_back_and_the_number_is_the_answer(env: SciWorld) -> None:
    asked = begun(env, "boil/0", "open door")
    assert asked.status is Status.REFUSED
    assert asked.observation.text.startswith("Which do you mean?")
    assert env.step("0").observation.text == "The door is now open."


@heavy
def test_another_command_in_place_of_the_number_is_carried_out(env: SciWorld) -> None:
    step = begun(env, "boil/0", "open door", "inventory")
    assert step.status is Status.OK
    assert step.observation.text.startswith("In your inventory")


@heavy
def test_a_room_is_described_when_it_is_entered_where_that_was_asked_for(env: SciWorld) -> None:
    simple: dict[str, Json] = {**ONE_JAVA, "simplifications": ["openDoors"]}
    looking, blind = create({**simple, "look": True}), create(simple)
    first = looking.reset("lifespan-longest-lived/0", 0).text
    assert first == blind.reset("lifespan-longest-lived/0", 0).text
    moved = [each.step("go to kitchen").observation.text for each in (looking, blind)]
    assert moved[0].startswith(f"{moved[1]}\n\nThis room is called the kitchen.")
    assert moved[0].endswith(blind.step("look around").observation.text)
    assert "This room" not in looking.step("wait1").observation.text
    assert "called the outside" in looking.step("go to outside").observation.text
    looking.close()
    blind.close()


@heavy
def test_a_room_is_described_in_full_once_an_episode_where_repeats_are_off(keeper: SciWorld) -> None:
    options: dict[str, Json] = {**ONE_JAVA, "simplifications": ["openDoors"], "look": True}
    short, full = create({**options, "repeats": False}), create(options)
    for _ in range(2):
        assert short.reset("find-non-living-thing/150", 0) == full.reset("find-non-living-thing/150", 0)
        assert short.step("look around").observation.text.endswith("Nothing has changed since you last saw it.")
        assert full.step("look around").observation.text.count("\n") > 2
    assert short.step("go to hallway") == full.step("go to hallway")
    assert "the kitchen. Nothing has changed" in short.step("go to kitchen").observation.text
    assert len(full.step("go to kitchen").observation.text) > 500
    short.close()
    full.close()


@heavy
def test_rooms_of_a_terse_environment_are_those_of_the_simulator_without_the_usual(env: SciWorld) -> None:
    options: dict[str, Json] = {**ONE_JAVA, "simplifications": ["openDoors", "openContainers"], "look": True}
    terse, full = create({**options, "terse": True}), create(options)
    texts = [terse.reset("find-non-living-thing/150", 0).text, full.reset("find-non-living-thing/150", 0).text]
    for action in ("go to kitchen", "look around", "go to bathroom", "go to kitchen", "go to outside"):
        texts[:] = (each.step(action).observation.text for each in (terse, full))
        assert texts[0].split("\n\n")[-1] == drop_the_usual(texts[1].split("\n\n")[-1])
        assert not any(usual in texts[0] for usual in ("nothing", "that is open", "turned off", "the agent"))
    terse.close()
    full.close()


@heavy
def test_actions_are_listed_where_that_was_asked_for_and_nowhere_else(env: SciWorld) -> None:
    assert env.reset("find-plant/0", 0).valid_actions is None
    listing = create({**ONE_JAVA, "valid_actions": True})
    actions = listing.reset("find-plant/0", 0).valid_actions
    assert actions is not None
    assert "look around" in actions
    assert listing.step(actions[0]).observation.valid_actions
    listing.close()


@heavy
def test_simplifications_change_what_can_be_done_and_electricity_stays_where_it_is_the_task(keeper: SciWorld) -> None:
    env = create({**ONE_JAVA, "simplifications": ["noElectricalAction", "teleportAction"]})
    assert begun(env, "find-plant/0", "teleport to kitchen").status is Status.OK
    assert begun(env, "find-plant/0", "connect agent to air").status is Status.INVALID
    assert begun(env, "power-component/0", "connect agent to air").status is not Status.INVALID
    env.close()


# --- neighbours ---

WANDERING = ("go outside", "wait", "look around", "wait", "look around", "wait1", "look around")
"""Where animals move at random."""


def wandered(env: SciWorld, task: str = "find-animal/4") -> list[str]:
    env.reset(task, 0)
    return [env.step(action).observation.text for action in ("open door", "0", *WANDERING)]


@heavy
def test_neighbours_in_the_same_process_change_nothing(env: SciWorld) -> None:
    alone = wandered(env)
    others = [create(ONE_JAVA) for _ in range(3)]
    for number, other in enumerate(others):
        other.reset(f"find-plant/{number}", 0)
    env.reset("find-animal/4", 0)
    seen = []
    for action in ("open door", "0", *WANDERING):
        for other in others:
            other.step("wait")
        seen.append(env.step(action).observation.text)
    assert seen == alone
    for other in others:
        other.close()


@heavy
def test_a_neighbour_that_begins_during_an_episode_changes_nothing(keeper: SciWorld) -> None:
    # bees leave their hive and fly from room to room
    options: dict[str, Json] = {**ONE_JAVA, "simplifications": ["openDoors", "openContainers"]}
    moves = ("go to kitchen", "look around", "go to bathroom", "go to kitchen", "go to outside", "go to greenhouse")
    actions = (*moves, "look around", "wait", "wait", "look around")
    env, neighbour = create(options), create(options)
    env.reset("find-non-living-thing/150", 0)
    alone = [env.step(action).observation.text for action in actions]
    env.reset("find-non-living-thing/150", 0)
    neighbour.reset("find-plant/0", 0)
    assert [env.step(action).observation.text for action in actions] == alone
    assert any("adult bee" in text for text in alone)
    env.close()
    neighbour.close()


@heavy
def test_other_simplifications_in_the_same_process_change_nothing(env: SciWorld) -> None:
    other = create({**ONE_JAVA, "simplifications": ["teleportAction", "noElectricalAction"]})
    env.reset("power-component/0", 0)
    other.reset("find-plant/0", 0)
    assert env.step("connect agent to air").status is not Status.INVALID
    assert env.step("teleport to kitchen").status is Status.INVALID
    assert other.step("teleport to kitchen").status is Status.OK
    other.close()


@heavy
def test_questions_leave_no_trace(env: SciWorld) -> None:
    quiet = wandered(env)
    env.reset("find-animal/4", 0)
    seen = []
    for number, action in enumerate(("open door", "0", *WANDERING)):
        env.noise_action(Random(number))
        seen.append(env.step(action).observation.text)
    assert seen == quiet


@heavy
def test_noise_never_ends_an_episode_and_is_the_same_for_the_same_seed(env: SciWorld) -> None:
    env.reset("grow-plant/3", 0)
    for number in range(40):
        action = env.noise_action(Random(number))
        assert action == env.noise_action(Random(number))
        assert action is not None
        assert not env.step(action).ended


# --- processes ---


def children(pid: int) -> set[int]:
    """Processes that another has started and that still run."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.add(int(file.parent.name))
    return found


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@heavy
def test_a_process_ends_with_the_last_simulator_in_it() -> None:
    before = children(os.getpid())
    javas = Javas(256, 1)
    first, second = javas.simulator(), javas.simulator()
    (pid,) = children(os.getpid()) - before
    javas.give_back(first)
    assert not {pid} - children(os.getpid())
    javas.give_back(second)
    assert children(os.getpid()) == before


@heavy
def test_a_process_ends_when_everybody_has_forgotten_it() -> None:
    before = children(os.getpid())
    env: SciWorld | None = create({"heap_mb": 256, "processes": 1})
    assert env is not None
    env.reset("find-plant/0", 0)
    (pid,) = children(os.getpid()) - before
    env = None
    assert gone(pid)


@heavy
def test_a_full_process_takes_no_more_and_says_so() -> None:
    javas = Javas(256, 1)
    held = [javas.simulator() for _ in range(8)]
    with pytest.raises(EnvFault, match="full") as raised:
        javas.simulator()
    assert raised.value.kind is FaultKind.BUSY
    for simulator in held:
        javas.give_back(simulator)


@heavy
def test_a_process_that_died_is_a_fault_and_the_next_episode_has_another() -> None:
    before = children(os.getpid())
    env = create({"heap_mb": 256, "processes": 1})
    env.reset("find-plant/0", 0)
    (pid,) = children(os.getpid()) - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvFault):
        env.step("look around")
    assert env.reset("find-plant/0", 0).text.startswith("Your task")
    env.close()
    assert children(os.getpid()) == before


PLAYER = """
import time
from agym.envs.sciworld import create
env = create({"heap_mb": 256, "processes": 1})
env.reset("find-plant/0", 0)
print("playing", flush=True)
time.sleep(60)
"""


@heavy
def test_no_file_is_left_when_it_was_played(tmp_path: Path) -> None:
    program = PLAYER.partition("print")[0] + "env.close()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert not list(tmp_path.iterdir())


@heavy
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left_when_its_parent_is_killed(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PLAYER], stdout=subprocess.PIPE) as player:
        assert player.stdout is not None
        assert player.stdout.readline() == b"playing\n"
        (java,) = children(player.pid)
        player.send_signal(number)
    assert gone(java)
