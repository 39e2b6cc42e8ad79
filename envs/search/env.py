"""Search: answer a question with searches over a corpus.

An episode is a question; a search shows passages, an answer ends it. The score is how the answer compares with the
accepted ones, 0 until one is given. The seed changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

from ..errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step
from .actions import MalformedToolUse, SearchTool, ToolUse, list_tools, parse_tool_use
from .benchmarks import BENCHMARKS, find_benchmarks, read_benchmark
from .corpora import open_retriever, read_corpus
from .corpus.passages import Passage
from .corpus.retriever import Retriever
from .options import SearchOptions, read_search_options
from .questions import Question, load_wordnet_questions, read_own_questions
from .sandbox import Sandbox, explain_unavailable
from .scoring import SCORES
from .texts import TOOL_PROMPT, SearchTexts, cut_page, explain_malformed, list_passages, list_vocabulary, write_prompt
from .wordnet import load_shipped, make_passages

__all__ = ["SPEC", "Search", "create"]

HOPS: Mapping[str, int] = {"hop1": 1, "hop2": 2}
"""Splits of the test questions, by how many facts in a row they ask for."""

SPEC = EnvSpec(
    name="search",
    version="1",
    summary="answer a question with searches over a corpus",
    splits=("train", "test", *HOPS),
)

_TOLD = 20_000
"""Most passages of a user's corpus that go into `corpus()`, from which a tokenizer is made."""


def create(options: Mapping[str, Json]) -> Search:
    return Search(options)


class Search(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_search_options(options)
        self._tools = frozenset(map(SearchTool, (*self._options.tools, SearchTool.ANSWER)))
        if SearchTool.PYTHON in self._tools and (reason := explain_unavailable()) is not None:
            raise BadOption(f"search cannot offer the tool 'python' on this machine: {reason}")
        self._splits, self._questions = _splits(self._options), _questions(self._options)
        self.spec = replace(
            SPEC,
            splits=tuple(self._splits),
            prompt=write_prompt(self._tools),
            tools=list_tools(self._tools),
            tool_prompt=TOOL_PROMPT,
        )
        self._retriever: Retriever | None = None
        self._question: Question | None = None
        """Of the episode under way."""
        self._found: tuple[Passage, ...] = ()
        self._unread = ""
        """What follows the page that was opened."""
        self._searched: set[str] = set()

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        if split in BENCHMARKS and split not in self._splits:
            raise UnknownSplit(f"search has '{split}' where the option 'benchmarks' names a folder with its file")
        if split not in self._splits:
            raise UnknownSplit(f"search has no split '{split[:40]}', only {', '.join(self._splits)}")
        return self._splits[split]

    def difficulty(self, task: str) -> str | None:
        hops = self._find(task).hops
        return None if hops is None else f"hop{hops}"

    def _find(self, task: str) -> Question:
        if task not in self._questions:
            raise UnknownTask(f"search has no task '{task[:60]}'")
        return self._questions[task]

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        question = self._find(task)
        self._retriever = open_retriever(self._options)
        self._question, self._found, self._unread, self._searched = question, (), "", set()
        return Observation(text=SearchTexts.QUESTION.format(text=question.text))

    def step(self, action: str) -> Step:
        if self._question is None:
            raise EpisodeOver("search has no episode under way: reset it first")
        command = parse_tool_use(action, self._tools)
        if isinstance(command, MalformedToolUse):
            return _reply(explain_malformed(command, self._tools), Status.INVALID)
        if command.tool is SearchTool.ANSWER:
            return self._answer(self._question, command.text)
        return _USES[command.tool](self, command)

    def _search(self, command: ToolUse) -> Step:
        assert self._retriever is not None
        self._found = tuple(self._retriever.search(command.text, self._options.passages))
        self._searched.add(command.text)
        return _reply(list_passages(self._found))

    def _open(self, command: ToolUse) -> Step:
        assert self._retriever is not None
        if command.text.isdecimal():
            number = int(command.text)
            if not 0 < number <= len(self._found):
                return _reply(SearchTexts.NO_SUCH, Status.REFUSED)
            opened = self._retriever.rest(self._found[number - 1])
            self._unread = "\n".join([opened[0].title, *(each.text for each in opened)]).strip()
        if not self._unread:
            return _reply(SearchTexts.NO_MORE, Status.REFUSED)
        shown, self._unread = cut_page(self._unread)
        return _reply(shown)

    def _python(self, command: ToolUse) -> Step:
        return _reply(Sandbox().run(command.text))

    def _answer(self, question: Question, answer: str) -> Step:
        scores = {name: score(answer, question.answers) for name, score in SCORES.items()}
        reward = scores[self._options.score]
        self._question = None
        verdict = SearchTexts.RIGHT if reward == 1 else SearchTexts.PARTLY if reward else SearchTexts.WRONG
        return Step(observation=Observation(text=verdict), reward=reward, terminated=True, info=scores)

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """A search for each fact, and the answer; for questions whose facts are not known there is none."""
        return _way(self._find(task)) or None

    def advice(self) -> str | None:
        if self._question is None:
            return None
        done = {f"{SearchTool.SEARCH} {query}" for query in self._searched}
        return next((action for action in _way(self._question) if action not in done), None)

    def noise_action(self, rng: Random) -> str | None:
        """A search for what another training question is about."""
        if self._question is None:
            return None
        ids = self._splits["train"]
        other = self._find(rng.choice(ids)) if ids else self._question
        return f"{SearchTool.SEARCH} {other.steps[0] if other.steps else other.text}"

    def corpus(self) -> Iterator[str]:
        """The prompt, the questions, and what may be found: of the shipped corpus, what belongs to the chosen
        topics."""
        yield self.spec.prompt
        yield from list_vocabulary(self._options.passages)
        for question in self._questions.values():
            yield from (question.text, *question.answers, *question.steps)
        if self._options.corpus:
            yield from islice((f"{each.title}: {each.text}" for each in read_corpus(Path(self._options.corpus))), _TOLD)
        elif not self._options.retriever_url:
            yield from (f"{each.title}: {each.text}" for each in make_passages(load_shipped(), self._options.topics))


_USES: Mapping[SearchTool, Callable[[Search, ToolUse], Step]] = {
    SearchTool.SEARCH: Search._search,
    SearchTool.OPEN: Search._open,
    SearchTool.PYTHON: Search._python,
}


def _reply(text: str, status: Status = Status.OK) -> Step:
    return Step(observation=Observation(text=text), status=status)


def _way(question: Question) -> tuple[str, ...]:
    if not question.steps:
        return ()
    return (*(f"{SearchTool.SEARCH} {query}" for query in question.steps), f"{SearchTool.ANSWER} {question.answers[0]}")


# --- the questions that options ask for ---


@cache  # files are read once
def _by_split(options: SearchOptions) -> Mapping[str, tuple[Question, ...]]:
    splits: dict[str, tuple[Question, ...]] = {}
    chosen = read_own_questions(Path(options.questions)) if options.questions else _select_shipped(options)
    for side in ("train", "test"):
        splits[side] = tuple(question for question in chosen if question.side == side)
    if not options.questions:
        for name, hops in HOPS.items():
            splits[name] = tuple(question for question in splits["test"] if question.hops == hops)
    if options.benchmarks:
        folder = Path(options.benchmarks)
        splits |= {name: read_benchmark(folder, name) for name in find_benchmarks(folder)}
    return splits


def _select_shipped(options: SearchOptions) -> tuple[Question, ...]:
    return tuple(
        each for each in load_wordnet_questions() if each.hops in options.hops and each.topic in options.topics
    )


def _splits(options: SearchOptions) -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(question.id for question in questions) for name, questions in _by_split(options).items()}


@cache
def _questions(options: SearchOptions) -> Mapping[str, Question]:
    return {question.id: question for questions in _by_split(options).values() for question in questions}
