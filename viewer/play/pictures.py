"""Pictures of recorded episodes, by their names: a file's content is checked before it is sent."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...runtime.storage.episode_reader import EPISODES, read_picture
from ..api import Refused
from ..runs import Runs
from ..tags.asking import find_run, reading

__all__ = ["picture_routes"]


def picture_routes(runs: Runs) -> list[Route]:
    def picture(request: Request) -> Any:
        run = find_run(runs, request.path_params["run"])
        data = read_picture(run.root / EPISODES, request.path_params["name"])
        if data is None:
            raise Refused(404, "there is no such picture")
        return Response(data, media_type="image/png")

    return [reading("/api/runs/{run}/pictures/{name}", picture)]
