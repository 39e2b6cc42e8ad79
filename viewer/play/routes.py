"""What the play page asks for, and the replay of a recorded episode. Only these routes, and tags, have side effects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...envs.errors import EnvError
from ...envs.protocol import EnvClient
from ...runtime.errors import RunError
from ...runtime.storage.episode_reader import DamagedEpisode
from ..api import Refused, json_response
from ..runs import Runs
from ..tags.asking import Body, find_run, posting
from .replay import replay_episode
from .room import CannotPlay, Room

__all__ = ["PAGE", "OpenRecorded", "play_routes", "replay_routes"]

PAGE = Path(__file__).with_name("page")
"""Folder of the page of play."""

OpenRecorded = Callable[[Path, str, str], Awaitable[EnvClient]]
"""Opens the environment of a run by its name and stage there; `RunError` where it cannot or must not be."""

_REPLAY_S = 300.0


def play_routes(room: Room) -> list[Route]:
    async def describe(_: Request) -> Any:
        return await room.describe()

    async def tasks(request: Request) -> Any:
        query = request.query_params
        return await room.list_tasks(query.get("split", "")[:1000], query.get("words", "")[:1000])

    async def picture(request: Request) -> Any:
        data = room.picture(request.path_params["name"])
        if data is None:
            raise Refused(404, "there is no such picture")
        return Response(data, media_type="image/png")

    async def begin(body: Body) -> Any:
        return await _play(room.begin(body.text("task"), body.whole("seed", 0)))

    async def act(body: Body) -> Any:
        return await _play(room.act(body.text("action"), body.whole("turn")))

    async def advise(_: Body) -> Any:
        return await _play(room.advise())

    async def save(body: Body) -> Any:
        return await _play(room.save(body.text("as")))

    return [
        _asking("/api/play", describe),
        _asking("/api/play/tasks", tasks),
        _asking("/api/play/media/{name}", picture),
        posting("/api/play/begin", begin),
        posting("/api/play/act", act),
        posting("/api/play/advise", advise),
        posting("/api/play/save", save),
    ]


def replay_routes(runs: Runs, open_recorded: OpenRecorded) -> list[Route]:
    """The route of replays, one at a time: each may start a browser or a Java machine."""
    busy = asyncio.Lock()

    async def replay(body: Body) -> Any:
        run, record = await run_in_threadpool(_read_record, runs, body)
        if busy.locked():
            raise Refused(409, "another episode is being replayed: wait until it is done")
        async with busy:
            try:
                client = await open_recorded(run, record["task"]["environment"], record["stage"])
            except (EnvError, RunError) as error:
                raise Refused(400, str(error)) from error
            try:
                async with asyncio.timeout(_REPLAY_S):
                    return asdict(await replay_episode(client, record))
            except TimeoutError:
                raise Refused(400, f"the replay took more than {_REPLAY_S:g} s, and was given up") from None
            except EnvError as error:
                raise Refused(400, str(error)) from error
            finally:
                await client.close()

    return [posting("/api/replay", replay)]


def _read_record(runs: Runs, body: Body) -> tuple[Path, dict[str, Any]]:
    run = find_run(runs, body.text("run"))
    with run.queries() as (_, queries):
        episode = queries.summary(body.text("episode"))
        if episode is None:
            raise Refused(404, "there is no such episode")
        try:
            return run.root, queries.record(episode)
        except (DamagedEpisode, KeyError, OSError) as error:
            raise Refused(404, "the file of this episode has changed, or is damaged") from error


async def _play(doing: Awaitable[Any]) -> Any:
    try:
        return await doing
    except CannotPlay as error:
        raise Refused(400, str(error)) from error


def _asking(path: str, answer: Callable[[Request], Awaitable[Any]]) -> Route:
    """A route that reports on the room, in the loop in which it is played."""

    async def endpoint(request: Request) -> Response:
        try:
            answered = await _play(answer(request))
        except Refused as refusal:
            return json_response({"error": str(refusal)}, refusal.status)
        return answered if isinstance(answered, Response) else json_response(answered)

    return Route(path, endpoint, methods=["GET"])
