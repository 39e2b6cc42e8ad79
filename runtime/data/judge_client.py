"""HTTP client of LLM judges behind OpenAI-compatible endpoints, with retries and a cache in the run folder.

A reply without a verdict is never guessed at, and neither the cache nor an error holds a token.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Judge
from ...envs.clients.keepalive import KeepAlive
from ...envs.wire import WireError, dump, load_object
from ..errors import StepRefused, read_text
from ..rollout.groups import run_in_slots
from ..storage.run_folder import JsonLines, on_disk
from ..text_format import escape_control_tokens

__all__ = ["JudgeAnswer", "JudgeClient", "JudgeQuestion"]

Sleep = Callable[[float], Awaitable[object]]
Secret = Callable[[str | None], str | None]

_FIRST_PAUSE_S = 0.5
_DOUBLINGS = 10
_QUOTED = 120
"""Characters of a bad answer that an error shows."""
_KEPT = 2000
"""Characters of a reply that are kept; the verdict is at its end."""
_SHORTEST_SECRET = 6
"""A shorter token is an everyday word, and would be taken out of verdicts."""
_PERMANENT_STATUSES = (400, 413, 422)
"""A bad, too large or unprocessable request: this question will never be answered; another may be."""
_RETRYABLE_STATUSES = (408, 409, 425, 429)
"""A timeout, a conflict, too early, too many: as from 500 on, the same question may be answered later. Any other status
is for the operator to fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """A question, and how its reply is read."""

    system: str
    user: str
    form: str
    """Repeated after a reply without a verdict."""
    read: Callable[[str], float | None]
    """The verdict in a reply, or None."""
    sample: int = 0
    """Number among several verdicts on the same matter."""
    likeliest: bool = False
    """The likeliest reply is the answer, even where the recipe draws several."""
    record: str = ""
    """The part of the question that is kept with its answer, besides its hash."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgeAnswer:
    """A verdict, or why there is none, and its cost; the same object wherever the same question was asked."""

    value: float | None
    fault: str
    calls: int
    tokens: int
    batch: str
    """The batch for which it was first asked."""
    key: str = ""
    """Of its line in the file of answers; empty where answers are not cached."""


class AnswerCache:
    """The file of answers, a line each; a line that a kill left incomplete is ignored."""

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, JudgeAnswer] = {}
        self.calls = 0
        """Requests made in this run, also before a resume."""
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        self._file = JsonLines(path, keep_bytes=len(whole))
        for line in whole.splitlines():
            self._recall(line)

    def _recall(self, line: bytes) -> None:
        try:
            read = json.loads(line)
            answer = JudgeAnswer(**{each.name: read[each.name] for each in fields(JudgeAnswer)})
        except (ValueError, KeyError, TypeError):
            return  # not a line of ours: the question is asked again
        self.calls += answer.calls
        self._remember(answer)

    def _remember(self, answer: JudgeAnswer) -> None:
        if answer.key and answer.value is not None:
            self.answers[answer.key] = answer

    def add(self, answer: JudgeAnswer, reply: str, question: str = "") -> None:
        """Without a key the answer is counted, but never found again."""
        self._remember(answer)
        with on_disk("judge"):
            self._file.append({**asdict(answer), "reply": reply, **({"question": question} if question else {})})

    def close(self) -> None:
        self._file.close()


# --- one endpoint --------------------------------------------------------------------------------------------------


class _CallFailed(Exception):
    """A request without a usable answer; `tokens` were paid for all the same."""

    def __init__(self, what: str, *, retry: bool = True, after_s: float = 0.0, tokens: int = 0) -> None:
        super().__init__(what)
        self.retry = retry
        self.after_s = after_s
        self.tokens = tokens


class JudgeEndpoint:
    """One judge of a recipe."""

    def __init__(self, settings: Judge, token: str | None, cache: AnswerCache, sleep: Sleep) -> None:
        self._settings = settings
        self._secret = token if token is not None and len(token) >= _SHORTEST_SECRET else None
        self._cache = cache
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
        """Answers in the order of the questions; a refusal waits for requests under way: they are paid for and kept."""
        keys = [sha256(self._body(question, ())).hexdigest() for question in questions]
        known = self._cache.answers if self._settings.cache else {}
        answers = {key: known[key] for key in keys if key in known}
        missing = {key: each for key, each in zip(keys, questions, strict=True) if key not in answers}
        self._refusal = None
        found = await run_in_slots([partial(self._answer, key, each, batch) for key, each in missing.items()], slots)
        if self._refusal is not None:
            raise self._refusal
        answers.update(zip(missing, found, strict=True))
        return [answers[key] for key in keys]

    def _body(self, question: JudgeQuestion, further: Sequence[Mapping[str, str]]) -> bytes:
        # a single verdict is the likeliest one; several are sampled
        is_drawn = self._settings.samples > 1 and not question.likeliest
        sampling = {"temperature": 1, "seed": question.sample} if is_drawn else {"temperature": 0}
        opening = [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}]
        return dump({"model": self._settings.model, "messages": [*opening, *further], **sampling})

    async def _answer(self, key: str, question: JudgeQuestion, batch: str) -> JudgeAnswer:
        calls, tokens, fault, reply, value, pause_s = 0, 0, "it was not asked", "", None, 0.0
        while value is None and calls <= self._settings.retries:
            await self._sleep(pause_s)
            if not self._count_call():
                break
            calls += 1
            try:
                reply, used = await self._reply(question, reply)
            except _CallFailed as failed:
                tokens, fault = tokens + failed.tokens, str(failed)
                if not failed.retry:
                    break
                pause_s = max(failed.after_s, _FIRST_PAUSE_S * 2 ** min(calls - 1, _DOUBLINGS))
                pause_s = min(pause_s, self._settings.timeout_s)
                continue
            tokens, pause_s, value = tokens + used, 0.0, question.read(reply)
            fault = "" if value is not None else f"its reply is no verdict: {reply[-_QUOTED:]!r}"
        key = key if self._settings.cache else ""
        answer = JudgeAnswer(value=value, fault=fault, calls=calls, tokens=tokens, batch=batch, key=key)
        if calls:
            self._cache.add(answer, reply[-_KEPT:], question.record)
        return answer

    def _count_call(self) -> bool:
        """Count the request that follows; False where the budget or an earlier refusal forbids it."""
        limit = self._settings.max_calls
        if self._refusal is None and limit is not None and self._cache.calls >= limit:
            self._refusal = StepRefused(
                f"judge: {self._cache.calls} requests were made, and 'reward.judge.max_calls' allows {limit}; "
                "raise it and resume"
            )
        if self._refusal is None:
            self._cache.calls += 1
        return self._refusal is None

    async def _reply(self, question: JudgeQuestion, rejected: str) -> tuple[str, int]:
        """The reply, empty where it was cut off, and its tokens; `rejected` is an earlier reply without a verdict."""
        further = (
            {"role": "assistant", "content": escape_control_tokens(rejected[-_KEPT:])},
            {"role": "user", "content": f"That holds no verdict in the form asked for. {question.form}"},
        )
        data = await self._post(self._body(question, further if rejected else ()))
        tokens = _tokens(data)
        try:
            choice = data["choices"][0]
            text, complete = choice["message"]["content"], choice.get("finish_reason") != "length"
        except (LookupError, TypeError, AttributeError):
            raise _CallFailed(f"its answer makes no sense: {str(data)[:_QUOTED]}", tokens=tokens) from None
        return text if isinstance(text, str) and complete else "", tokens

    async def _post(self, body: bytes) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await self._http.post("chat/completions", content=body)
        except TimeoutError:
            raise _CallFailed(f"no answer within {self._settings.timeout_s:g} s") from None
        except httpx.RequestError as error:
            raise _CallFailed(self._safe(f"{type(error).__name__}: {error}")) from None
        content = self._safe(response.text)
        if not response.is_success:
            raise self._failure(response, f"status {response.status_code}: {content[:_QUOTED]}")
        try:
            return load_object(content.encode(errors="replace"))
        except WireError as error:
            raise _CallFailed(f"its answer makes no sense: {error}") from None

    def _failure(self, response: httpx.Response, what: str) -> _CallFailed:
        status = response.status_code
        if status in _RETRYABLE_STATUSES or status >= 500:
            return _CallFailed(what, after_s=_seconds(response.headers.get("retry-after", "")))
        if status not in _PERMANENT_STATUSES and self._refusal is None:
            where = f"'{self._settings.model}' at {self._settings.url}"
            self._refusal = StepRefused(f"judge {where}: {what}; fix 'reward.judge' and resume")
        return _CallFailed(what, retry=False)

    def _safe(self, text: str) -> str:
        return text if self._secret is None else text.replace(self._secret, "***")

    async def close(self) -> None:
        await self._http.aclose()


def _seconds(text: str) -> float:
    """The seconds of a `Retry-After`; one that names a date counts as none."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else 0.0


def _tokens(data: Mapping[str, Any]) -> int:
    usage = data.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and total > 0 else 0


# --- all of a run --------------------------------------------------------------------------------------------------


class JudgeClient:
    """The judges of a run, asked from a thread of their own: answers arrive and deadlines hold during an update."""

    def __init__(
        self, plan: Plan, file: Path, secret: Secret, sleep: Sleep = asyncio.sleep, *, scores: bool = True
    ) -> None:
        """A client that only answers environments needs no prompt, and a token only once it is asked."""
        rewards = [stage.settings.reward for stage in plan.stages]
        self._judges = {reward.judge for reward in rewards if reward.judge is not None}
        self._secret = secret
        self._tokens = {judge: secret(judge.token) for judge in self._judges if scores}
        self.rubrics = {
            judge: None if judge.prompt is None else read_text(judge.prompt, "reward.judge.prompt").strip()
            for judge in self._judges
            if scores
        }
        """The recipe's own prompts."""
        self._file = file
        self._sleep = sleep
        self._loop: asyncio.AbstractEventLoop | None = None
        # from `_start` on
        self._thread: Thread
        self._cache: AnswerCache
        self._endpoints: Mapping[Judge, JudgeEndpoint]

    async def ask(
        self, settings: Judge, questions: Sequence[JudgeQuestion], slots: int, batch: str
    ) -> list[JudgeAnswer]:
        """Answers, at most `slots` asked for at a time; `batch` names what they are asked for."""
        loop = self._loop or self._start()
        asking = self._endpoints[settings].ask(questions, slots, batch)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))

    def _start(self) -> asyncio.AbstractEventLoop:
        with on_disk("judge"):
            self._cache = AnswerCache(self._file)
        tokens = {judge: self._secret(judge.token) for judge in self._judges} | self._tokens
        self._endpoints = {
            judge: JudgeEndpoint(judge, token, self._cache, self._sleep) for judge, token in tokens.items()
        }
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="judges", daemon=True)
        self._thread.start()
        return self._loop

    async def close(self) -> None:
        if self._loop is None:
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._cache.close()
        self._loop = None

    async def _end_tasks(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.close()
