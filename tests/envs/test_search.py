from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status
from agym.envs.search import Search, create
from agym.envs.search.build import main as build
from agym.envs.search.questions import load_wordnet_questions
from agym.envs.search.scoring import SCORES, exact_match, f1, normalize
from agym.envs.search.wordnet import load_shipped

FIRST_OF_TRAIN = ("hop1/artifact/rumble-seat", "hop1/place/grand-canyon-national-park", "hop1/time/succoth")
FIRST_OF_TEST = ("hop1/time/jeth", "hop1/other/ketoacidosis", "hop1/artifact/microprocessor")


def begun(task: str, **options: Json) -> Search:
    env = create(options)
    env.reset(task, 0)
    return env


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A user's own corpus: passages line by line, a text of several pages, and questions about them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [
        {"title": "Otter", "text": "The otter eats fish."},
        {"id": "pike", "contents": '"Pike"\nThe pike is a fish that eats other fish.'},
    ]
    (folder / "animals.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    paragraphs = [f"Chapter {number} is about rivers. " + "water " * 90 for number in range(8)]
    (folder / "rivers.md").write_text("# On rivers\n\n" + "\n\n".join(paragraphs))
    return folder


def call(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_a_call_is_the_command_that_it_stands_for() -> None:
    task = FIRST_OF_TRAIN[0]
    (query, answer) = begun(task).expert(task, 0) or ("", "")
    by_word, by_call = begun(task), begun(task)
    assert by_word.step(query) == by_call.step(call("search", query=query.removeprefix("search ")))
    assert by_word.step(answer) == by_call.step(call("answer", text=answer.removeprefix("answer ")))


@pytest.mark.parametrize(
    "action",
    [
        call("search", words="x"),
        call("search", query=5),
        call("search", query="x", more="y"),
        call("open", passage="1"),
        call("steal", query="x"),
        '{"name": "search"}',
        '{"name": "search", "arguments": {"query": "x"}, "id": 1}',
        "{" * 5000,
    ],
)
def test_a_call_that_is_none_of_its_tools_is_not_understood(action: str) -> None:
    assert begun(FIRST_OF_TRAIN[0]).step(action).status is Status.INVALID


def test_its_tools_are_those_that_were_chosen() -> None:
    assert [tool.name for tool in create({"tools": ["search", "open"]}).spec.tools] == ["search", "open", "answer"]
    assert [tool.name for tool in create({}).spec.tools] == ["search", "answer"]


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_there_are_at_least_3000_questions_of_one_and_of_two_hops() -> None:
    env = create({})
    ids = {*env.tasks("train"), *env.tasks("test")}
    assert len(ids) == len(load_wordnet_questions()) >= 3000
    assert {env.difficulty(task) for task in ids} == {"hop1", "hop2"}


def test_the_first_tasks_are_those_of_earlier_releases() -> None:
    assert create({}).tasks("train")[:3] == FIRST_OF_TRAIN
    assert create({}).tasks("test")[:3] == FIRST_OF_TEST


def test_no_fact_is_asked_for_on_both_sides() -> None:
    facts = {"train": set[str](), "test": set[str]()}
    for line in files("agym.envs.search").joinpath("data/questions.txt").read_text().splitlines():
        side, hops, synset, _ = line.split("\t")
        for _ in range(int(hops)):
            facts[side].add(synset)  # that it is part of what it is part of
            (synset,) = load_shipped()[synset].wholes
        facts[side].add(synset)
    assert not facts["train"] & facts["test"]


def test_hops_and_topics_choose_among_the_shipped_questions() -> None:
    env = create({"hops": [1], "topics": ["body", "time"]})
    assert {task.split("/")[0] for task in env.tasks("train")} == {"hop1"}
    assert {task.split("/")[1] for task in env.tasks("test")} == {"body", "time"}
    assert env.tasks("hop1") == env.tasks("test")
    assert env.tasks("hop2") == ()


def test_the_parts_of_the_test_side_are_its_splits() -> None:
    env = create({})
    assert {*env.tasks("hop1"), *env.tasks("hop2")} == set(env.tasks("test"))


@pytest.mark.parametrize("task", ["", "hop1", "hop3/place/x", "own/1", "nq/1"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask):
        create({}).reset(task, 0)


def test_a_benchmark_without_its_file_says_how_to_give_it() -> None:
    with pytest.raises(UnknownSplit, match="'hotpotqa' where the option 'benchmarks'"):
        create({}).tasks("hotpotqa")


# --- playing -------------------------------------------------------------------------------------------------------


def test_an_episode_is_a_question_searches_and_an_answer() -> None:
    env = begun("hop2/place/fuego")
    assert env.reset("hop2/place/fuego", 0).text == (
        'Question: "Fuego" is directly part of one thing. What is that thing itself directly part of?'
    )
    shown = env.step("search Fuego")
    assert shown.observation.text.startswith(
        "1. Fuego: a volcano in south central Guatemala. Part of: Guatemala, Republic of Guatemala.\n2. "
    )
    assert (shown.reward, shown.ended, shown.status) == (0.0, False, Status.OK)
    last = env.step("answer Central America")
    assert (last.reward, last.terminated, last.observation.text) == (1.0, True, "That is right.")
    with pytest.raises(EpisodeOver):
        env.step("search anything")


@pytest.mark.parametrize("options", [{}, {"hops": [1], "topics": ["body"], "passages": 1}])
def test_the_facts_of_every_question_are_found_by_its_searches(options: Mapping[str, Json]) -> None:
    """All of the test side, and some of training; all of it where a single passage is shown."""
    env = create(options)
    for task in (*env.tasks("test"), *env.tasks("train")[:: 1 if options else 20]):
        *searches, answer = env.expert(task, 0) or ()
        env.reset(task, 0)
        shown = [env.step(search).observation.text for search in searches]
        assert answer.removeprefix("answer ") in shown[-1].partition("Part of: ")[2], task
        assert env.step(answer).reward == 1.0


def test_a_wrong_answer_ends_the_episode_with_nothing() -> None:
    step = begun(first("train")).step("answer the moon, perhaps")
    assert (step.reward, step.terminated, step.observation.text) == (0.0, True, "That is wrong.")


def first(split: str) -> str:
    return create({}).tasks(split)[0]


def test_any_name_of_the_answer_will_do_whatever_its_case_and_article() -> None:
    env = create({})
    question = next(each for each in load_wordnet_questions() if len(each.answers) > 2)
    for name in question.answers:
        env.reset(question.id, 0)
        assert env.step(f"answer The {name.upper()}.").reward == 1.0


def test_a_half_right_answer_earns_its_share_where_that_is_asked_for() -> None:
    question = next(each for each in load_wordnet_questions() if len(each.answers[0].split()) == 2)
    word = question.answers[0].split()[0]
    step = begun(question.id, score="f1").step(f"answer {word}")
    assert 0 < step.reward < 1
    assert step.info == {"exact_match": 0.0, "f1": step.reward}
    assert begun(question.id).step(f"answer {word}").reward == 0.0


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("find otters", "That is no command. Begin with search or answer."),
        ("open 1", "That is no command. Begin with search or answer."),
        ("python 1", "That is no command. Begin with search or answer."),
        ("search", "Something is missing after the first word."),
        ("answer  ", "Something is missing after the first word."),
        ("search " + "x" * 9000, "That is too long."),
    ],
)
def test_what_cannot_be_understood_is_told_as_such(action: str, text: str) -> None:
    step = begun(first("train")).step(action)
    assert (step.status, step.observation.text, step.reward) == (Status.INVALID, text, 0.0)


@pytest.mark.parametrize("query", ["\u202e\u0661", "?!", 'text:"a" AND (', "\x00\x1b[2J", "\ud800 otter", "x" * 5000])
def test_no_query_is_too_strange_to_be_searched_for(query: str) -> None:
    step = begun(first("train")).step(f"search {query}")
    assert step.status is Status.OK
    assert step.observation.text


def test_a_search_finds_as_many_passages_as_was_asked_for() -> None:
    text = begun(first("train"), passages=7).step("search city").observation.text
    assert len(re.findall(r"^\d\. ", text, re.MULTILINE)) == 7


# --- one's own corpus and questions --------------------------------------------------------------------------------


def test_passages_of_a_corpus_of_ones_own_are_found(corpus: Path) -> None:
    env = begun(first("train"), corpus=str(corpus))
    assert env.step("search what does an otter eat").observation.text.startswith("1. Otter: The otter eats fish.")
    assert "1. Pike: The pike is" in env.step("search PIKES").observation.text


def test_what_was_found_is_opened_where_it_stands_and_read_on(corpus: Path) -> None:
    env = begun(first("train"), corpus=str(corpus), tools=["search", "open"])
    env.step("search chapter 2 rivers")
    pages = [env.step("open 1").observation.text]
    assert "Chapter 2 is about" in pages[0]
    while (step := env.step("open next")).status is Status.OK:
        pages.append(step.observation.text)
    assert step.observation.text == "Nothing more follows."
    assert [each for each in range(8) if f"Chapter {each} is" in "".join(pages)] == list(range(2, 8))
    assert all(len(page) < 2500 for page in pages)


def test_only_what_was_found_can_be_opened(corpus: Path) -> None:
    env = begun(first("train"), corpus=str(corpus), tools=["search", "open"])
    assert env.step("open next").status is Status.REFUSED
    assert env.step("open 1").observation.text == "The last search found no passage with that number."
    env.step("search otter")
    assert env.step("open 0").status is Status.REFUSED
    assert env.step("open one").observation.text == "Give the number of a passage, or next."


def test_an_index_made_beforehand_finds_the_same(corpus: Path) -> None:
    queries = ("otter fish", "chapter 5 water", "pike")
    before = [begun(first("train"), corpus=str(corpus)).step(f"search {query}") for query in queries]
    moved = corpus.rename(corpus.with_name("moved"))
    assert build([str(moved), "--index"]) == 0
    assert [begun(first("train"), corpus=str(moved)).step(f"search {query}") for query in queries] == before


def test_questions_of_ones_own_take_the_place_of_the_shipped_ones(tmp_path: Path, corpus: Path) -> None:
    file = tmp_path / "questions.jsonl"
    rows: list[Mapping[str, Json]] = [
        {"question": "What does an otter eat?", "answers": ["fish"]},
        {"id": "eater", "question": "What eats fish?", "golden_answers": ["otter", "pike"], "split": "test"},
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    env = create({"questions": str(file), "corpus": str(corpus)})
    assert (env.tasks("train"), env.tasks("test"), env.spec.splits) == (("own/1",), ("own/eater",), ("train", "test"))
    assert env.reset("own/eater", 0).text == "Question: What eats fish?"
    assert env.expert("own/eater", 0) is None
    assert env.step("answer the Pike").reward == 1.0
    assert env.difficulty("own/1") is None


def test_an_accepted_answer_may_be_a_number(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"question": "How many?", "answers": ["about three", 3, 3.5]}\n')
    env = create({"questions": str(file)})
    for answer in ("3", "3.5", "about three"):
        env.reset("own/1", 0)
        assert env.step(f"answer {answer}").reward == 1.0


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_what_ends_a_line_elsewhere_may_stand_in_a_question(tmp_path: Path, end: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(f'{{"question": "One{end}or two?", "answers": ["two"]}}\r\n\n', encoding="utf-8")
    env = create({"questions": str(file)})
    assert env.reset(env.tasks("train")[0], 0).text == f"Question: One{end}or two?"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", r":1: expected an object with 'question'"),
        ('{"question": "x", "answers": []}', "no answer is accepted"),
        ('{"question": "x", "answers": ["y", true]}', "must be a text or a number, not True"),
        ('{"question": "x", "answers": [null]}', "must be a text or a number, not None"),
        ('\n{"question": "x", "answers": ["y"], "split": "dev"}', r":2: .*'split' must be train or test"),
        ("nonsense", ":1: expected an object"),
        ('{"question": "x", "answers": ["y"], "id": 1}\n' * 2, "two questions have the same id"),
    ],
)
def test_a_mistake_in_a_file_of_questions_is_told_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(text)
    with pytest.raises(BadOption, match=complaint):
        create({"questions": str(file)})


# --- scores --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [("The Eiffel  Tower!", "eiffel tower"), ("an A-team", "ateam"), ("Theatre", "theatre"), ("", ""), ("U.S.", "us")],
)
def test_answers_are_made_plain_as_squad_does(text: str, left: str) -> None:
    assert normalize(text) == left


@pytest.mark.parametrize(
    ("answer", "accepted", "exact", "overlap"),
    [
        ("Paris", ["paris", "Lutetia"], 1.0, 1.0),
        ("the city of Paris", ["Paris"], 0.0, 0.5),
        ("New York", ["York"], 0.0, 2 / 3),
        ("York York", ["York"], 0.0, 2 / 3),
        ("London", ["Paris"], 0.0, 0.0),
        ("the", ["Paris"], 0.0, 0.0),
    ],
)
def test_exact_match_and_f1_are_those_of_squad(answer: str, accepted: list[str], exact: float, overlap: float) -> None:
    assert exact_match(answer, accepted) == exact
    assert f1(answer, accepted) == pytest.approx(overlap)


@pytest.mark.parametrize(("answer", "exact"), [("?", 0.0), ("the", 0.0), ("", 0.0), ("A", 1.0), (" a ", 1.0)])
def test_an_answer_of_which_the_rules_leave_nothing_is_compared_as_it_is(answer: str, exact: float) -> None:
    assert exact_match(answer, ["angstrom", "A"]) == exact


def test_no_shipped_question_accepts_an_answer_of_which_the_rules_leave_nothing() -> None:
    assert all(normalize(answer) for question in load_wordnet_questions() for answer in question.answers)
    assert all(question.answers for question in load_wordnet_questions())


# --- demonstrations ------------------------------------------------------------------------------------------------


def test_advice_does_what_the_expert_does_whatever_was_searched_before() -> None:
    env = begun(create({}).tasks("hop2")[0])
    expert = env.expert(create({}).tasks("hop2")[0], 0)
    done = []
    while (action := env.advice()) is not None:
        env.step(env.noise_action(Random(len(done))) or "")
        done.append(action)
        env.step(action)
    assert tuple(done) == expert


def test_noise_never_names_what_is_held_out() -> None:
    env, rng = begun(first("test")), Random(1)
    held_out = {f"search {each.steps[0]}" for each in load_wordnet_questions() if each.side == "test"}
    assert not {env.noise_action(rng) for _ in range(200)} & held_out


# --- words, options ------------------------------------------------------------------------------------------------


def test_the_corpus_has_every_word_an_episode_on_its_topic_can_show() -> None:
    env = create({"topics": ["body"], "hops": [1], "passages": 1})
    known = {word for text in env.corpus() for word in _words(text)}
    for task in env.tasks("train")[:200]:
        actions = env.expert(task, 0) or ()
        seen = [env.reset(task, 0).text, *actions, *(env.step(action).observation.text for action in actions)]
        assert {word for text in seen for word in _words(text)} <= known


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['\-]\w+)*|[^\w\s]", text)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"passage": 2}, "no option 'passage'; did you mean 'passages'?"),
        ({"passages": 0}, "'passages' must be a whole number from 1 to 20"),
        ({"passages": True}, "'passages' must be a whole number"),
        ({"tools": []}, "'tools' must list different ones of search, open, python"),
        ({"tools": ["answer"]}, "'tools' knows no 'answer'"),
        ({"tools": ["serach"]}, "'tools' knows no 'serach'; did you mean 'search'?"),
        ({"hops": [3]}, "'hops' knows no '3'"),
        ({"hops": [True]}, "'hops' must list different ones of 1, 2"),
        ({"topics": ["body", "body"]}, "'topics' must list different ones"),
        ({"corpus": "/no/such"}, "'corpus' must be a folder, and there is none"),
        ({"questions": ""}, "'questions' must be a text that is not empty"),
        ({"questions": "/no/such"}, "'questions' must be a file, and there is none"),
        ({"retriever_url": "ftp://x"}, "'retriever_url' must begin with http"),
        (
            {"retriever_url": "http://x", "encoder_url": "http://x"},
            "'encoder_url' cannot be combined with 'retriever_url'",
        ),
        ({"encoder_url": "http://x"}, "'encoder_url' needs a 'corpus'"),
        ({"score": "bleu"}, "'score' must be one of exact_match, f1"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=re.escape(complaint)):
        create(options)


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"holds no \.jsonl, \.md, \.txt file"):
        begun(first("train"), corpus=str(tmp_path))


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.search").joinpath("env.json").read_text())
    assert data["options"]["score"]["enum"] == list(SCORES)
    assert tuple(data["splits"])[:4] == create({}).spec.splits
