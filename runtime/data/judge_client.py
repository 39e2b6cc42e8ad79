"""Judges behind OpenAI-compatible endpoints: asked with patience that ends, and each question once in a run.

Enters: a plan's `reward.judge`s, questions. Leaves: answers, each a verdict or the reason why there is none; what was
answered stays in a file of the run folder. A reply that is no verdict is never guessed at, and neither the file nor an
error holds a token.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from errno import ENOSPC
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx

from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Judge, RewardSource
from ...envs.clients.keepalive import KeepAlive
from ...envs.wire import WireError, dump, load_object
from ..errors import RunError, StepRefused
from ..rollout.groups import run_in_slots
from ..storage.run_folder import on_disk

__all__ = ["JudgeAnswer", "JudgeClient", "JudgeQuestion"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]
Secret = Callable[[str | None], str | None]

_FIRST_PAUSE_S = 0.5
_DOUBLINGS = 10
_QUOTED = 120
"""Characters of an answer that makes no sense that are told."""
_KEPT = 2000
"""Characters of a reply that are kept; the verdict is at its end."""
_SHORTEST = 6
_OF_THE_QUESTION = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Another question may well be answered."""
_PASSING = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""As everything from 500 on: the same question may be answered later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """What is asked, and how the reply is read."""

    system: str
    user: str
    form: str
    """Said again where a reply held no verdict."""
    read: Callable[[str], float | None]
    """The verdict in a reply; None where it holds none."""
    sample: int = 0
    """Which of the verdicts on the same matter."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgeAnswer:
    """A verdict, or why there is none, and what it cost; the same object wherever the same was asked."""

    value: float | None
    fault: str
    calls: int
    tokens: int
    batch: str
    """For which it was first asked."""


_PARTS = tuple(each.name for each in fields(JudgeAnswer))


class AnswerCache:
    """The file of what was answered: one line per question; a line that a kill left by half is forgotten."""

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, JudgeAnswer] = {}
        self.calls = 0
        """Requests made in this run, before a resume too."""
        path.touch()
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        # not buffered: what was written stays when this process is killed
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        for line in whole.splitlines():
            self._recall(line)

    def _recall(self, line: bytes) -> None:
        try:
            read = json.loads(line)
            answer = JudgeAnswer(**{name: read[name] for name in _PARTS})
            key = str(read["key"])
        except (ValueError, KeyError, TypeError):
            return  # not a line of ours: what it said is asked for again
        self.calls += answer.calls
        self._remember(key, answer)

    def _remember(self, key: str, answer: JudgeAnswer) -> None:
        if key and answer.value is not None:
            self.answers[key] = answer

    def add(self, key: str, answer: JudgeAnswer, reply: str) -> None:
        """Without a key it is counted, and never found again."""
        self._remember(key, answer)
        line = dump({"key": key, **asdict(answer), "reply": reply}) + b"\n"
        with on_disk("judge"):
            if self._file.write(line) != len(line):
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(self._file.name))

    def close(self) -> None:
        self._file.close()


# --- one endpoint --------------------------------------------------------------------------------------------------


class _Trouble(Exception):
    """Why a request came to nothing."""

    def __init__(self, what: str, *, again: bool = True, after_s: float = 0.0) -> None:
        super().__init__(what)
        self.again = again
        self.after_s = after_s


@dataclass(slots=True)
class _Effort:
    """What one question has taken so far."""

    calls: int = 0
    tokens: int = 0
    fault: str = "it was not asked"
    pause_s: float = 0.0
    over: bool = False


class JudgeEndpoint:
    """One judge of a recipe."""

    def __init__(self, settings: Judge, token: str | None, journal: AnswerCache, sleep: Sleep) -> None:
        self._settings = settings
        # a shorter one is an everyday word, and would be taken out of verdicts
        self._hidden = token if token is not None and len(token) >= _SHORTEST else None
        self._journal = journal
        self._sleep = sleep
        self._refusal: StepRefused | None = None
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers={"content-type": "application/json"}
            | ({} if token is None else {"authorization": f"Bearer {token}"}),
            timeout=None,  # each request has a deadline
            limits=httpx.Limits(max_connections=None),
            transport=KeepAlive() if settings.url.startswith("http:") else None,
            trust_env=False,
        )

    async def ask(self, questions: Sequence[JudgeQuestion], slots: int, batch: str) -> list[JudgeAnswer]:
        """In the order of the questions. A refusal waits for what is under way: it was paid for, and is kept."""
        keys = [self._key(question) for question in questions]
        known = self._journal.answers if self._settings.cache else {}
        answers = {key: known[key] for key in keys if key in known}
        wanted = {key: each for key, each in zip(keys, questions, strict=True) if key not in answers}
        self._refusal = None
        found = await run_in_slots([partial(self._answer, key, each, batch) for key, each in wanted.items()], slots)
        if self._refusal is not None:
            raise self._refusal
        answers.update(zip(wanted, found, strict=True))
        return [answers[key] for key in keys]

    def _key(self, question: JudgeQuestion) -> str:
        return sha256(self._body(question, ())).hexdigest()

    def _body(self, question: JudgeQuestion, further: Sequence[Mapping[str, str]]) -> bytes:
        # the likeliest verdict where there is one; several are drawn
        drawn = {"temperature": 1, "seed": question.sample} if self._settings.samples > 1 else {"temperature": 0}
        opening = [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}]
        return dump({"model": self._settings.model, "messages": [*opening, *further], **drawn})

    async def _answer(self, key: str, question: JudgeQuestion, batch: str) -> JudgeAnswer:
        effort, reply, value = _Effort(), "", None
        while value is None and not effort.over and effort.calls <= self._settings.retries:
            await self._sleep(effort.pause_s)
            if not self._may_ask():
                break
            effort.calls += 1
            try:
                reply = await self._reply(question, reply, effort)
            except _Trouble as trouble:
                self._note(trouble, effort)
                continue
            value, effort.pause_s = question.read(reply), 0.0
            effort.fault = f"its reply is no verdict: {reply[-_QUOTED:]!r}"
        answer = JudgeAnswer(
            value=value,
            fault=effort.fault if value is None else "",
            calls=effort.calls,
            tokens=effort.tokens,
            batch=batch,
        )
        if effort.calls:
            self._journal.add(key if self._settings.cache else "", answer, reply[-_KEPT:])
        return answer

    def _may_ask(self) -> bool:
        """Counts the request that follows."""
        most = self._settings.max_calls
        if self._refusal is None and most is not None and self._journal.calls >= most:
            self._refusal = StepRefused(
                f"judge: {self._journal.calls} requests were made, and 'reward.judge.max_calls' allows {most}; "
                "raise it and resume"
            )
        if self._refusal is None:
            self._journal.calls += 1
        return self._refusal is None

    def _note(self, trouble: _Trouble, effort: _Effort) -> None:
        effort.fault, effort.over = str(trouble), not trouble.again
        pause_s = _FIRST_PAUSE_S * 2 ** min(effort.calls - 1, _DOUBLINGS)
        effort.pause_s = min(max(trouble.after_s, pause_s), self._settings.timeout_s)

    async def _reply(self, question: JudgeQuestion, before: str, effort: _Effort) -> str:
        """What the judge says; `before` is what it said that was no verdict. Empty where it was cut off."""
        further = (
            {"role": "assistant", "content": before[-_KEPT:]},
            {"role": "user", "content": f"That holds no verdict in the form asked for. {question.form}"},
        )
        data = await self._sent(self._body(question, further if before else ()))
        effort.tokens += _tokens(data)
        try:
            choice = data["choices"][0]
            said, whole = choice["message"]["content"], choice.get("finish_reason") != "length"
        except (LookupError, TypeError, AttributeError):
            raise _Trouble(f"its answer makes no sense: {str(data)[:_QUOTED]}") from None
        return said if isinstance(said, str) and whole else ""

    async def _sent(self, body: bytes) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await self._http.post("chat/completions", content=body)
        except TimeoutError:
            raise _Trouble(f"no answer within {self._settings.timeout_s:g} s") from None
        except httpx.RequestError as error:
            raise _Trouble(self._safe(f"{type(error).__name__}: {error}")) from None
        content = self._safe(response.text)
        if not response.is_success:
            raise self._turned_down(response, f"status {response.status_code}: {content[:_QUOTED]}")
        try:
            return load_object(content.encode(errors="replace"))
        except WireError as error:
            raise _Trouble(f"its answer makes no sense: {error}") from None

    def _turned_down(self, response: httpx.Response, what: str) -> _Trouble:
        status = response.status_code
        if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return _Trouble(what, after_s=_seconds(response.headers.get("retry-after", "")))
        if status not in _OF_THE_QUESTION and self._refusal is None:
            where = f"'{self._settings.model}' at {self._settings.url}"
            self._refusal = StepRefused(f"judge {where}: {what}; mend 'reward.judge' and resume")
        return _Trouble(what, again=False)

    def _safe(self, text: str) -> str:
        return text if self._hidden is None else text.replace(self._hidden, "***")

    async def close(self) -> None:
        await self._http.aclose()


def _seconds(text: str) -> float:
    """Of a `Retry-After`; one that names a moment counts as none."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else 0.0


def _tokens(data: Mapping[str, Any]) -> int:
    usage = data.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and total > 0 else 0


# --- all of a run --------------------------------------------------------------------------------------------------


class JudgeClient:
    """The judges of a run.

    They are asked from a thread of their own, so that answers are heard and deadlines hold while this one is busy with
    an update.
    """

    def __init__(self, plan: Plan, file: Path, secret: Secret, sleep: Sleep = asyncio.sleep) -> None:
        wanted = [each.settings.reward for each in plan.stages if each.settings.reward.source in _ASKING]
        settings = {each.judge for each in wanted if each.judge is not None}
        self._tokens = {each: secret(each.token) for each in settings}
        self.rubrics = {each: None if each.prompt is None else _read(each.prompt) for each in settings}
        """What a recipe's own prompts say."""
        self._file = file
        self._sleep = sleep
        self._journal: AnswerCache | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._endpoints: dict[Judge, JudgeEndpoint] = {}

    async def ask(
        self, settings: Judge, questions: Sequence[JudgeQuestion], slots: int, batch: str
    ) -> list[JudgeAnswer]:
        """At most `slots` at the same time; `batch` is a name for what they are asked for."""
        return await self._apart(self._ask(settings, questions, slots, batch))

    async def _ask(
        self, settings: Judge, questions: Sequence[JudgeQuestion], slots: int, batch: str
    ) -> list[JudgeAnswer]:
        if self._journal is None:
            with on_disk("judge"):
                self._journal = AnswerCache(self._file)
        if settings not in self._endpoints:
            self._endpoints[settings] = JudgeEndpoint(settings, self._tokens[settings], self._journal, self._sleep)
        return await self._endpoints[settings].ask(questions, slots, batch)

    async def _apart(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._loop.run_forever, name="judges", daemon=True)
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        await self._apart(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = None

    async def _end(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.close()
        if self._journal is not None:
            self._journal.close()


_ASKING = (RewardSource.JUDGE, RewardSource.PAIRWISE)


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"reward.judge.prompt: '{path}' cannot be read: {error}") from error
