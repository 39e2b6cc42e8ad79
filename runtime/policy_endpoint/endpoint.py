"""The endpoint: which episode a key belongs to, which models there are, and what each route does with a request."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any, Protocol

from ...envs.errors import EnvFault
from ...envs.serving.asgi import ASGIReceive, ASGIScope, ASGISend
from .api_errors import ApiError, bad_request, episode_ended, unknown_model, wrong_key
from .chat_completions import completion, completion_chunks, read_chat_request
from .http import Body, Stream, read_json, reply_to, while_connected
from .messages import ChatMessage
from .policy import Answer, Policy, PolicyEpisode, PolicyRequest
from .responses import read_input, read_response_request, response, response_events, to_event_line

__all__ = ["Admission", "EnvRoutes", "Model", "PolicyEndpoint"]

log = logging.getLogger(__name__)

_OUR_MISTAKE = ApiError(500, "the endpoint made a mistake; its log says more", kind="server_error")
_ENDED_REMEMBERED = 65_536
_RESPONSES_REMEMBERED = 1024


class EnvRoutes(Protocol):
    """An episode's session with its environment, for a client in another process."""

    def describe(self) -> Mapping[str, Any]: ...

    async def step(self, data: Mapping[str, Any]) -> Mapping[str, Any]: ...


class Model(Protocol):
    """A model besides the policy, such as a judge or a simulated user: nothing that it says is trained on."""

    async def forward(self, path: str, data: Mapping[str, Any]) -> Body | Stream: ...


Admission = Callable[[ASGIScope], bool]
"""Says whether a connection may use the key of its episode."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    """What is served under a key: an episode under way, or requests each by itself."""

    begin: Callable[[], PolicyEpisode]
    """Gives the episode that a request belongs to."""
    policy: Policy
    env: EnvRoutes | None
    admits: Admission
    responses: OrderedDict[str, tuple[ChatMessage, ...]] = field(default_factory=OrderedDict)
    """What was said up to the end of each response, without instructions."""


class PolicyEndpoint:
    """An ASGI application for all episodes of one engine."""

    def __init__(
        self,
        *,
        name: str = "policy",
        models: Mapping[str, Model] | None = None,
        time: Callable[[], float] = lambda: 0.0,
        make_key: Callable[[], str] = lambda: f"agym-{token_hex(24)}",
    ) -> None:
        self.name = name
        """Of the policy."""
        self.models = dict(models or {})
        self._time, self.make_key = time, make_key
        self._open: dict[str, _Open] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.on_wrong_key: Callable[[ASGIScope], None] = lambda scope: None
        """Called for requests whose key was never issued, or is no longer valid."""
        self.url = ""
        """Base address, once it is served."""

    # --- episodes

    @contextmanager
    def open_episode(
        self,
        policy: Policy,
        *,
        seed: int,
        max_requests: int | None = None,
        env: EnvRoutes | None = None,
        admits: Admission = lambda scope: True,
        key: str | None = None,
    ) -> Iterator[PolicyEpisode]:
        """Give an episode a key of its own, which is invalid once the context ends."""
        episode = PolicyEpisode(key=key or self.make_key(), seed=seed, max_requests=max_requests)
        self._open[episode.key] = _Open(begin=lambda: episode, policy=policy, env=env, admits=admits)
        try:
            yield episode
        finally:
            episode.ended = True
            del self._open[episode.key]
            policy.forget(episode.key)
            self._ended[episode.key] = None
            if len(self._ended) > _ENDED_REMEMBERED:
                self._ended.popitem(last=False)

    @contextmanager
    def open_service(self, policy: Policy, *, key: str) -> Iterator[None]:
        """Serve whoever has the key within the context. Each request is an episode by itself: only the last responses
        are kept, from which other requests may continue by their ids."""
        numbers = count()
        self._open[key] = _Open(
            begin=lambda: PolicyEpisode(key=key, seed=next(numbers)), policy=policy, env=None, admits=lambda scope: True
        )
        try:
            yield
        finally:
            del self._open[key]
            policy.forget(key)

    def _authorize(self, scope: ASGIScope) -> _Open:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        key = given.removeprefix("Bearer ").strip()
        found = self._open.get(key)
        if found is None:
            self.on_wrong_key(scope)
            raise episode_ended() if key in self._ended else wrong_key()
        if not found.admits(scope):
            raise wrong_key()
        return found

    # --- requests

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except ApiError as error:
            answer = Body(error.status, error.body)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            answer = Body(
                500, ApiError(500, "the endpoint made a mistake; its log says more", kind="server_error").body
            )
        if answer is not None:
            await reply_to(send, answer)

    async def _answer(self, scope: ASGIScope, receive: ASGIReceive) -> Body | Stream | None:
        if scope["path"] == "/health":
            return Body(200, {"status": "ok"})
        found = self._authorize(scope)
        method, path = scope["method"], scope["path"].rstrip("/")
        if method == "GET":
            return self._describe(found, path)
        route = {
            "/v1/chat/completions": self._complete,
            "/v1/responses": self._respond,
            "/session/step": self._step,
        }.get(path)
        if route is None or method != "POST":
            raise ApiError(404, f"there is no route '{method} {path[:60]}'", code="not_found")
        data = await read_json(receive)
        return await while_connected(receive, route(found, data))

    def _describe(self, found: _Open, path: str) -> Body:
        names = [self.name, *self.models]
        listed = [{"id": name, "object": "model", "created": int(self._time()), "owned_by": "agym"} for name in names]
        if path == "/v1/models":
            return Body(200, {"object": "list", "data": listed})
        if path == "/session" and found.env is not None:
            return Body(200, found.env.describe())
        name = path.removeprefix("/v1/models/")
        if path == "/session" or name == path:
            raise ApiError(404, f"there is no route 'GET {path[:60]}'", code="not_found")
        if name not in names:
            raise unknown_model(name, names)
        return Body(200, listed[names.index(name)])

    async def _step(self, found: _Open, data: Mapping[str, Any]) -> Body:
        if found.env is None:
            raise ApiError(404, "this episode has no environment", code="not_found")
        try:
            return Body(200, await found.env.step(data))
        except EnvFault as error:  # the caller that plays the episode knows more
            raise ApiError(500, "the environment failed", kind="server_error") from error

    async def _complete(self, found: _Open, data: Mapping[str, Any]) -> Body | Stream:
        if (other := self._find_other(data)) is not None:
            return await other.forward("/chat/completions", data)
        name, answer = await self._ask(found, read_chat_request(data))
        created = int(self._time())
        if not data.get("stream"):
            return Body(200, completion(answer, data, name, created))
        return Stream(_chunk_lines(completion_chunks(answer, data, name, created)))

    async def _respond(self, found: _Open, data: Mapping[str, Any]) -> Body | Stream:
        if (other := self._find_other(data)) is not None:
            return await other.forward("/responses", data)
        earlier = self._find_earlier(found, data)
        name, answer = await self._ask(found, read_response_request(data, earlier))
        created = int(self._time())
        found.responses[f"resp_{name}"] = (*earlier, *read_input(data.get("input")), answer.reply.message)
        if len(found.responses) > _RESPONSES_REMEMBERED:
            found.responses.popitem(last=False)
        if not data.get("stream"):
            return Body(200, response(answer, data, name, created))
        return Stream(map(to_event_line, response_events(answer, data, name, created)))

    def _find_earlier(self, found: _Open, data: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
        name = data.get("previous_response_id")
        if name is None:
            return ()
        if name not in found.responses:
            raise bad_request(f"there is no response '{str(name)[:60]}' in this episode", "previous_response_id")
        return found.responses[name]

    def _find_other(self, data: Mapping[str, Any]) -> Model | None:
        """Return the model that a request names, None for the policy."""
        name = data.get("model")
        if not isinstance(name, str):
            raise bad_request("expected 'model' to be the name of a model", "model")
        if name != self.name and name not in self.models:
            raise unknown_model(name, [self.name, *self.models])
        return self.models.get(name)

    async def _ask(self, found: _Open, request: PolicyRequest) -> tuple[str, Answer]:
        """Return an answer, named by its episode and number: the same in a run that is repeated, apart from the key."""
        episode = found.begin()
        answer = await found.policy.answer(episode, request)
        return f"{episode.seed:08x}{answer.number:04d}", answer


def _chunk_lines(chunks: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    for chunk in chunks:
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
