"""What pages ask about tags: which there are, give one, take one away, download the tagged as SFT data."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...runtime.storage.episode_reader import DamagedEpisode
from ..api import Refused
from ..queries import EpisodeSummary, Queries
from ..runs import Run, Runs
from .asking import Body, find_run, posting, reading
from .messages import export_lines
from .store import TagError, TagStore

__all__ = ["read_records", "tag_routes"]

_MOST_EXPORTED = 10_000


def tag_routes(runs: Runs, store: TagStore) -> list[Route]:
    def list_tags(request: Request) -> Any:
        run = find_run(runs, request.path_params["run"])
        with run.queries() as (_, queries):
            tagged = _tagged(run, queries, store)
        return {"episodes": [{"id": each.id, "tags": list(store.tags(run.root, each))} for each in tagged]}

    def export(request: Request) -> Response:
        run = find_run(runs, request.path_params["run"])
        tags, ids = request.query_params.getlist("tag"), request.query_params.getlist("id")
        if not tags and not ids:
            raise Refused(400, "name what to export: 'tag' or 'id'")
        with run.queries() as (_, queries):
            chosen = [each for id_ in ids if (each := queries.summary(id_)) is not None]
            chosen += [each for each in _tagged(run, queries, store) if set(tags) & set(store.tags(run.root, each))]
            lines, _, _ = export_lines(read_records(queries, list(dict.fromkeys(chosen))[:_MOST_EXPORTED]))
        headers = {"Content-Disposition": f'attachment; filename="{run.id}-sft.jsonl"'}
        return Response(lines, media_type="application/jsonl", headers=headers)

    async def change(body: Body) -> Any:
        return await run_in_threadpool(_change, runs, store, body)

    return [
        reading("/api/runs/{run}/tags", list_tags),
        reading("/api/runs/{run}/export.jsonl", export),
        posting("/api/tags", change),
    ]


def _change(runs: Runs, store: TagStore, body: Body) -> Any:
    run = find_run(runs, body.text("run"))
    with run.queries() as (_, queries):
        episode = queries.summary(body.text("episode"))
    if episode is None:
        raise Refused(404, "there is no such episode")
    try:
        return {"tags": store.change(run.root, episode, body.text("tag").strip(), on=body.flag("on"))}
    except TagError as error:
        raise Refused(400, str(error)) from error


def _tagged(run: Run, queries: Queries, store: TagStore) -> list[EpisodeSummary]:
    found = (queries.summary(id_) for id_ in store.of(run.root))
    return [each for each in found if each is not None and store.tags(run.root, each)]


def read_records(queries: Queries, episodes: list[EpisodeSummary]) -> list[dict[str, Any]]:
    """Whole episodes; without those whose file has changed."""
    records = []
    for each in episodes:
        try:
            records.append(queries.record(each))
        except (DamagedEpisode, KeyError, OSError):
            continue
    return records
