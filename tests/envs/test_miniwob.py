from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.resources import files

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.clients.supervise import ServeCommand
from agym.envs.conformance import Subject, run_checks
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.miniwob import MiniWob, create
from agym.envs.miniwob.pages import NUMBERS, find_html, load_all_pages, load_pages, load_words, read_expert_share
from agym.envs.miniwob.solvability import plays_alike
from agym.envs.miniwob.solve import SOLVERS, PageView
from agym.envs.miniwob.texts import Ends
from agym.envs.protocol import Deadlines, Json, Status
from agym.envs.registry import factory
from agym.envs.web.tree import PageNode
from agym.machine import inspect_machine

# --- tasks and options, for which no browser is started ------------------------------------------------------------


def test_every_page_of_the_package_has_its_line() -> None:
    assert set(load_all_pages()) == {file.stem for file in (find_html() / "miniwob").glob("*.html")}
    assert set(load_words()) >= set(load_pages())


def test_splits_have_every_page_with_numbers_of_their_side() -> None:
    env = create({})
    train, test = env.tasks("train"), env.tasks("test")
    assert (len(train), len(test)) == (250 * len(load_pages()), 20 * len(load_pages()))
    assert {task.rpartition("-")[0] for task in train[: len(load_pages())]} == set(load_pages())
    assert not set(NUMBERS["train"]) & set(NUMBERS["test"])


def test_ids_are_frozen() -> None:
    env = create({"pages": ["click-test", "enter-text"]})
    assert env.tasks("train")[:3] == ("click-test-0", "enter-text-0", "click-test-1")
    assert env.tasks("test")[-1] == "enter-text-1019"
    assert env.difficulty("click-test-2-0") == "click-test-2"


@pytest.mark.parametrize(
    "task", ["", "click-test", "click-test-", "click-test-250", "click-test-01", "click-test-\u0663", "no-page-1"]
)
def test_what_is_no_task_is_refused_before_anything_starts(task: str) -> None:
    for call in (lambda: create({}).reset(task, 0), lambda: create({}).difficulty(task)):
        with pytest.raises(UnknownTask):
            call()


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownSplit, match="only train, test"):
        create({}).tasks("dev")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page": ["click-test"]}, "did you mean 'pages'"),
        ({"pages": ["click-tset"]}, "did you mean 'click-test'"),
        ({"pages": []}, "must list different names"),
        ({"pages": "click-test"}, "must list different names"),
        ({"max_steps": 0}, "from 1 to 1000"),
        ({"observation_tokens": True}, "whole number"),
        ({"positions": 1}, "true or false"),
    ],
)
def test_a_mistake_in_the_options_is_named(options: dict[str, Json], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        create(options)


def test_the_data_for_recipes_lists_the_pages() -> None:
    data = json.loads(files("agym.envs.miniwob").joinpath("env.json").read_text())
    assert data["options"]["pages"]["items"]["enum"] == list(load_pages())


def test_stepping_where_no_episode_is_under_way_is_refused() -> None:
    with pytest.raises(EpisodeOver):
        create({}).step("wait")


def test_pages_with_a_solver_are_those_with_a_share() -> None:
    assert {page for page, share in load_pages().items() if share != "-"} == set(SOLVERS) & set(load_pages())
    assert read_expert_share("click-test") == 1.0
    assert read_expert_share("book-flight") == 0.0


def test_what_the_pages_say_is_in_the_corpus() -> None:
    said = " ".join(create({"pages": ["click-test-2"]}).corpus())
    assert "ONE." in said
    assert "Allyson" not in said


# --- solutions, on pages made by hand ------------------------------------------------------------------------------


def sight(*lines: str) -> PageView:
    """Each is a role, and a name after a colon, and marks after a bar."""
    seen = []
    for number, line in enumerate(lines, start=1):
        said, _, marks = line.partition("|")
        role, _, name = said.partition(":")
        made = PageNode(depth=0, backend=number, role=role, name=name, marks=tuple(filter(None, marks.split("|"))))
        seen.append((number, made))
    return PageView(seen)


MAIL = ("image:|.trash", "text:Bo", "image:|.trash")


@pytest.mark.parametrize(
    ("page", "task", "lines", "actions"),
    [
        ("click-button", 'Click on the "No" button.', ("text:No", "button:Yes", "button:No"), ["click [1]"]),
        ("button-delay", "Click button ONE, wait 1 seconds", ("button:TWO", "button:ONE"), ["click [2]", "wait"]),
        ("click-option", "Select b and click Submit.", ("radio:a", "radio:b", "button:Submit"), ["click [2]"]),
        ("enter-date", "Enter 1/16/2012 as the date", ("date:", "button:Submit"), ["type [1] [2012-01-16]"]),
        ("enter-time", "Enter 12:05 AM as the time", ("time:", "button:Submit"), ["type [1] [00:05]"]),
        ("enter-time", "Enter 10:15 PM as the time", ("time:", "button:Submit"), ["type [1] [22:15]"]),
        ("simple-algebra", "Solve for x", ("text:x - 2 = 3", "text:x =", "textbox:", "button:S"), ["type [3] [5]"]),
        ("simple-arithmetic", "Solve", ("text:2 x 8 =", "textbox:", "button:Submit"), ["type [2] [16]"]),
        ("find-word", "Find the 2nd word", ("text:Mauris, duis in.", "textbox:", "button:S"), ["type [2] [duis]"]),
        (
            "email-inbox-delete",
            "the email by Bo and click the trash icon",
            ("image:|.trash", "text:Bo", "image:|.trash"),
            ["click [3]"],
        ),
        ("click-color", "Click on the red colored box.", ("box:|blue|9x9", "box:|red|9x9"), ["click [2]"]),
    ],
)
def test_a_solution_is_read_off_the_page(page: str, task: str, lines: tuple[str, ...], actions: list[str]) -> None:
    solver, seen = SOLVERS[page](task, sight(*lines)), sight(*lines)
    assert [next(solver), *(solver.send(seen) for _ in actions[1:])] == actions


def test_a_page_other_than_expected_has_no_solution() -> None:
    with pytest.raises(LookupError):
        next(SOLVERS["click-button"]('Click on the "No" button.', sight("button:Yes")))


# --- in a browser --------------------------------------------------------------------------------------------------


def browses(test: object) -> object:
    missing = pytest.mark.skipif(inspect_machine().browser is None, reason="there is no browser")
    return pytest.mark.heavy(missing(test))


@pytest.fixture(scope="module")
def env() -> Iterator[MiniWob]:
    env = create({"max_steps": 4})
    yield env
    env.close()


@browses
def test_the_task_is_told_once_and_the_score_not_at_all(env: MiniWob) -> None:
    first = env.reset("click-test-2-1000", 0).text
    assert first == "Task: Click button ONE.\nbutton 'ONE' [1]\nbutton 'TWO' [2]"
    assert env.step("hover [2]").observation.text == "button 'ONE' [1]\nbutton 'TWO' [2]"


@browses
def test_right_ends_with_1_wrong_with_minus_1_and_before_it_is_0(env: MiniWob) -> None:
    for name, score, said in (("ONE", 1.0, Ends.RIGHT), ("TWO", -1.0, Ends.WRONG)):
        first = env.reset("click-test-2-1000", 0).text
        number = next(line for line in first.splitlines() if name in line and "]" in line).split("[")[1].rstrip("]")
        before = env.step("wait")
        assert (before.reward, before.ended) == (0.0, False)
        after = env.step(f"click [{number}]")
        assert (after.reward, after.terminated, after.observation.text) == (score, True, said)
        assert after.info == {"success": score == 1.0}
        with pytest.raises(EpisodeOver):
            env.step("wait")


@browses
def test_an_episode_that_is_broken_off_leaves_no_page(env: MiniWob) -> None:
    env.reset("click-test-2-1000", 0)
    browser = env._surfer._browser
    assert browser is not None
    num_pages = len(browser.process.contexts)
    env.end()
    assert len(browser.process.contexts) == num_pages - 1
    with pytest.raises(EpisodeOver):
        env.step("wait")


@browses
def test_time_taken_costs_nothing_and_the_last_action_ends_it(env: MiniWob) -> None:
    env.reset("click-test-1001", 0)
    steps = [env.step(action) for action in ("wait", "nonsense", "goto [http://miniwob.test/]", "click [77]")]
    assert [step.status for step in steps] == [Status.OK, Status.INVALID, Status.INVALID, Status.REFUSED]
    assert [step.truncated for step in steps] == [False, False, False, True]
    assert "There is no element [77] now." in steps[-1].observation.text


@browses
def test_the_number_decides_the_task_and_the_seed_nothing(env: MiniWob) -> None:
    first = env.reset("click-option-1000", 0).text
    env.step("wait")
    assert env.reset("click-option-1000", 1).text == first
    assert env.reset("click-option-1001", 0).text != first


@browses
@pytest.mark.parametrize("page", ["click-button", "choose-list", "enter-text", "click-collapsible", "enter-date"])
def test_the_expert_wins(page: str) -> None:
    env = create({})
    task = f"{page}-1007"
    actions = env.expert(task, 0)
    assert actions is not None
    env.reset(task, 0)
    assert [env.step(action) for action in actions][-1].reward == 1.0
    env.close()


@browses
def test_what_moves_by_itself_moves_the_same_each_time() -> None:
    first, second = create({}), create({})
    assert plays_alike(first, second, "stock-market", set())
    first.close()
    second.close()


@browses
def test_positions_are_told_where_they_are_asked_for() -> None:
    env = create({"positions": True})
    assert " at " in env.reset("resize-textarea-0", 0).text.splitlines()[1]
    env.close()


@browses
def test_an_episode_after_the_browser_was_closed_has_another() -> None:
    env = create({})
    first = env.reset("click-test-3", 0).text
    env.close()
    env.close()
    assert env.reset("click-test-3", 0).text == first
    env.close()


@browses
def test_it_conforms() -> None:
    options: dict[str, Json] = {"pages": ["click-test-2", "choose-list", "click-collapsible"], "max_steps": 5}
    # on a busy machine many neighbours take their time
    patient = Deadlines(open_s=300, step_s=300)
    client = InlineEnv(factory("miniwob", options), deadlines=patient)
    command = ServeCommand(env="miniwob", options=options)
    subject = Subject(client=client, command=command, num_tasks=3, max_steps=5, neighbours=12)

    async def checked() -> list[str]:
        results = await run_checks(subject)
        await client.close()
        return [f"{result.check}: {result.detail}" for result in results if not result.passed]

    # not a line of test_conformance.py: that many episodes in a browser take longer than a check may there
    assert asyncio.run(checked()) == []
