"""OpenAPI 3.1 description of a server, made from its routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol import EnvSpec
from .asgi import Route, WireDialect

__all__ = ["NUMBER", "SEED", "TEXT", "TEXTS", "describe_server", "merge_descriptions", "object_schema"]

TEXT: Mapping[str, Any] = {"type": "string"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
NUMBER: Mapping[str, Any] = {"type": "integer", "minimum": 0}
SEED: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}


def object_schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """JSON Schema of an object with these fields."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def describe_server(spec: EnvSpec, dialects: Iterable[WireDialect], *, secured: bool) -> dict[str, Any]:
    paths = {
        _path(path): {method.lower(): _operation(dialect.name, path, route) for method, route in methods.items()}
        for dialect in dialects
        for path, methods in dialect.routes.items()
    }
    description: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": spec.name, "version": spec.version, "summary": spec.summary},
        "paths": paths,
    }
    if secured:
        description["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        description["security"] = [{"token": []}]
    return description


def merge_descriptions(descriptions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge descriptions of servers at one address, each below its name."""
    first = next(iter(descriptions.values()))
    about = {"title": "agym", "version": "1", "summary": f"environments: {', '.join(descriptions)}"}
    paths = {
        f"/{name}{path}": operations
        for name, description in descriptions.items()
        for path, operations in description["paths"].items()
    }
    # all of them ask for the same token
    return {**first, "info": about, "paths": paths}


def _path(path: tuple[str, ...]) -> str:
    return "/" + "/".join("{id}" if segment == "*" else segment for segment in path)


def _operation(dialect: str, path: tuple[str, ...], route: Route) -> dict[str, Any]:
    parameters = [{"name": "id", "in": "path", "required": True, "schema": TEXT}] if "*" in path else []
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()]
    operation: dict[str, Any] = {
        "tags": [dialect],
        "summary": route.summary,
        "parameters": parameters,
        "responses": {"default": {"description": "an answer, or what was wrong with the request"}},
    }
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": route.body}}}
    return operation
