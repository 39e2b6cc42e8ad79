"""The viewer's answers as JSON: questions with ids and filters in, no path in and none out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from sqlite3 import Error as DatabaseError
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..runtime.storage.episode_reader import DamagedEpisode
from . import overview
from .compare import PURPOSES, compare_packages, compare_recipes, compare_tasks
from .episode_view import brief_turns, first_difference, turns_of
from .json_log import dump_json, read_document, read_text
from .metrics import AXES, curves, curves_csv, metric_names
from .queries import EpisodeFilter, EpisodeSummary, Queries
from .runs import Run, Runs
from .where import WhereError

__all__ = ["Refused", "api_routes", "json_response"]

_MOST_EPISODES = 500
"""Of a page."""
_MOST_POINTS = 5000
_MOST_TOGETHER = 16
"""Episodes side by side."""
_MOST_KEYS = 100
_MOST_TEXT = 10_000
"""Characters of a parameter."""
_ORDERS = ("newest", "oldest")
_COLUMNS = ("environment", "ending", "purpose", "mode")
_TRUTH: Mapping[str, bool] = {"true": True, "false": False}


class Refused(Exception):
    """A question without an answer, and its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def json_response(value: Any, status: int = 200) -> Response:
    return Response(dump_json(value), status, media_type="application/json")


def api_routes(runs: Runs) -> list[Route]:
    """Make the routes of the answers, each of which is computed in a thread."""

    def route(path: str, answer: Callable[[Runs, Request], Any]) -> Route:
        # no coroutine: the server calls it in one of its threads
        def endpoint(request: Request) -> Response:
            try:
                answered = answer(runs, request)
                return answered if isinstance(answered, Response) else json_response(answered)
            except Refused as refusal:
                return json_response({"error": str(refusal)}, refusal.status)
            except RecursionError:
                return json_response({"error": "this is nested too deeply"}, 400)

        return Route(path, endpoint, methods=["GET"])

    return [route(f"/api/{path}", answer) for path, answer in _ANSWERS.items()]


# --- answers -------------------------------------------------------------------------------------------------------


def _list_runs(runs: Runs, _: Request) -> Any:
    return {"runs": [_run_line(run) for run in runs.list()]}


def _run_line(run: Run) -> dict[str, Any]:
    version = run.version()
    line = {"id": run.id, "name": _name(run), **overview.summarize(run.metrics.table())}
    started = read_document(run.root / "manifest.json").get("started_at")
    line["time"] = started if line["time"] is None and isinstance(started, float) else line["time"]
    return {**line, "version": version, "ended": overview.describe_ending(run.root, run.events.rows())}


def _describe_run(runs: Runs, request: Request) -> Any:
    run = _run(runs, request.path_params["run"])
    with run.queries() as (index, queries):
        # before anything is read, so that a change meanwhile is seen as one
        version = run.version()
        table = run.metrics.table()
        counts = {"num_episodes": index.count, "num_damaged": index.num_damaged}
        columns = {column: queries.names(column) for column in _COLUMNS}
    return {
        "id": run.id,
        "name": _name(run),
        "version": version,
        "recipe": read_text(run.root / "recipe.yaml") or "",
        "stages": overview.stages(table),
        "ops": overview.ops_by_stage(table),
        "plan": overview.describe_plan(read_document(run.root / "plan.json")),
        "events": overview.event_lines(run.events.rows()),
        "evals": overview.evaluations(table),
        "keys": metric_names(table),
        "columns": columns,
        **counts,
    }


def _curves(runs: Runs, request: Request) -> Any:
    run = _run(runs, request.path_params["run"])
    axis = _one_of(request, "x", tuple(AXES))
    points = _whole(request, "points", 600, 1, _MOST_POINTS)
    return curves(run.metrics.table(), _keys(request), axis, points)


def _curves_csv(runs: Runs, request: Request) -> Response:
    run = _run(runs, request.path_params["run"])
    table = run.metrics.table()
    headers = {"Content-Disposition": f'attachment; filename="{run.id}.csv"'}
    return Response(curves_csv(table, _keys(request) or metric_names(table)), media_type="text/csv", headers=headers)


def _find_episodes(runs: Runs, request: Request) -> Any:
    run = _run(runs, request.path_params["run"])
    where = _text(request, "where").replace("\n", " ")
    success = _text(request, "success")
    if success not in ("", *_TRUTH):
        raise Refused(400, "'success' must be true or false")
    wanted = EpisodeFilter(
        words=_text(request, "words"),
        where=where,
        environments=_texts(request, "environment"),
        endings=_texts(request, "ending"),
        purposes=_texts(request, "purpose"),
        modes=_texts(request, "mode"),
        tasks=_texts(request, "task"),
        groups=_texts(request, "group"),
        stages=_texts(request, "stage"),
        success=_TRUTH.get(success),
        first_step=_step(request, "step_from"),
        last_step=_step(request, "step_to"),
    )
    order = _one_of(request, "order", _ORDERS)
    offset, limit = _whole(request, "offset", 0, 0, 10**9), _whole(request, "limit", 50, 1, _MOST_EPISODES)
    is_behind = False
    try:
        with run.queries() as (_, queries):
            is_behind = run.is_reading
            page = queries.find(wanted, offset=offset, limit=limit, order=order)
    except WhereError as error:
        raise Refused(400, f"{where}\n{' ' * error.start}^\n{error.problem}") from error
    except (DatabaseError, OverflowError) as error:
        raise Refused(400, f"these episodes cannot be found: {error}") from error
    return {
        "total": page.total,
        "exact": page.is_exact and not is_behind,
        "episodes": [_summary(each) for each in page.episodes],
    }


def _show_episode(runs: Runs, request: Request) -> Any:
    run = _run(runs, request.path_params["run"])
    with run.queries() as (_, queries):
        summary, record = _read_episode(queries, request.path_params["episode"])
        group = queries.group(summary.group)
    ids = [each.id for each in group]
    at = ids.index(summary.id)
    return {
        "episode": _summary(summary),
        "previous": ids[at - 1] if at else None,
        "next": ids[at + 1] if at + 1 < len(ids) else None,
        "group": [_summary(each) for each in group],
        "turns": turns_of(record, run.decoder),
        "opening_picture": record.get("picture"),
        "record": record,
    }


def _show_turns(runs: Runs, request: Request) -> Any:
    """Several episodes side by side, each with the first turn in which it differs from the first of them."""
    run, ids = _run(runs, request.path_params["run"]), _texts(request, "id")
    if not 0 < len(ids) <= _MOST_TOGETHER:
        raise Refused(400, f"'id' names {len(ids)} episodes, of 1 to {_MOST_TOGETHER}")
    with run.queries() as (_, queries):
        found = [_read_episode(queries, id_) for id_ in ids]
    return {
        "episodes": [
            {"episode": _summary(summary), **brief_turns(record), "differs": first_difference(found[0][1], record)}
            for summary, record in found
        ]
    }


def _read_episode(queries: Queries, id_: str) -> tuple[EpisodeSummary, dict[str, Any]]:
    summary = queries.summary(id_)
    if summary is None:
        raise Refused(404, "there is no such episode")
    try:
        return summary, queries.record(summary)
    except (DamagedEpisode, KeyError, OSError) as error:
        raise Refused(404, "the file of this episode has changed, or is damaged") from error


def _history(runs: Runs, request: Request) -> Any:
    run = _run(runs, request.path_params["run"])
    with run.queries() as (_, queries):
        found = queries.history(_text(request, "environment"), _text(request, "task"))
    return {"episodes": [_summary(each) for each in found]}


def _compare(runs: Runs, request: Request) -> Any:
    a, b = (_run(runs, _text(request, name)) for name in ("a", "b"))
    recipes = [read_text(run.root / "recipe.yaml") or "" for run in (a, b)]
    manifests = [read_document(run.root / "manifest.json") for run in (a, b)]
    with a.queries() as (_, of_a), b.queries() as (_, of_b):
        tasks = compare_tasks(*_rates(of_a, of_b))
    return {**tasks, "recipe": compare_recipes(*recipes), "packages": compare_packages(*manifests)}


def _rates(a: Queries, b: Queries) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    for purpose in PURPOSES:
        rates = a.task_rates(purpose), b.task_rates(purpose)
        if all(rates):
            return rates
    return {}, {}


def _changes(runs: Runs, request: Request) -> Any:
    return {"version": _run(runs, request.path_params["run"]).version()}


_ANSWERS: Mapping[str, Callable[[Runs, Request], Any]] = {
    "runs": _list_runs,
    "runs/{run}": _describe_run,
    "runs/{run}/curves": _curves,
    "runs/{run}/curves.csv": _curves_csv,
    "runs/{run}/episodes": _find_episodes,
    "runs/{run}/episodes/{episode:path}": _show_episode,
    "runs/{run}/turns": _show_turns,
    "runs/{run}/history": _history,
    "runs/{run}/changes": _changes,
    "compare": _compare,
}


def _summary(episode: EpisodeSummary) -> dict[str, Any]:
    return {field.name: getattr(episode, field.name) for field in fields(episode)}


def _name(run: Run) -> str:
    return run.root.name.encode(errors="replace").decode()


# --- parameters ----------------------------------------------------------------------------------------------------


def _run(runs: Runs, id_: str) -> Run:
    # one that was never listed, as on an earlier page, is looked for once
    run = runs.get(id_) or next((each for each in runs.list() if each.id == id_), None)
    if run is None:
        raise Refused(404, "there is no such run")
    if not run.root.is_dir():
        raise Refused(404, "the folder of this run is gone")
    return run


def _text(request: Request, name: str) -> str:
    return (_texts(request, name) or ("",))[-1]


def _texts(request: Request, name: str) -> tuple[str, ...]:
    """Values of a parameter that may be repeated; empty ones stand for none."""
    given = tuple(value for value in request.query_params.getlist(name) if value)
    if sum(map(len, given)) > _MOST_TEXT:
        raise Refused(400, f"'{name}' has more than {_MOST_TEXT:,} characters")
    return given


def _keys(request: Request) -> list[str]:
    keys = [key for key in dict.fromkeys(",".join(_texts(request, "keys")).split(",")) if key]
    if len(keys) > _MOST_KEYS:
        raise Refused(400, f"'keys' names {len(keys)}, of at most {_MOST_KEYS}")
    return keys


def _step(request: Request, name: str) -> int | None:
    return _whole(request, name, 0, 0, 10**15) if _text(request, name) else None


def _whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = _text(request, name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,16}", text) or not low <= int(text) <= high:
        raise Refused(400, f"'{name}' must be a whole number from {low} to {high}")
    return int(text)


def _one_of(request: Request, name: str, values: tuple[str, ...]) -> str:
    text = _text(request, name) or values[0]
    if text not in values:
        raise Refused(400, f"'{name}' must be one of {', '.join(values)}")
    return text
