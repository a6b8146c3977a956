"""Every route of the application with a valid request for it.

New routes are included: roles are read from the routes' dependencies, bodies from the OpenAPI examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from httpx import Response
from starlette.testclient import TestClient

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.service.admin.api_keys import ROLES
from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

# Monitoring routes need no key.
PUBLIC_PATHS = {"/health/live", "/health/ready", "/metrics"}


@dataclass(frozen=True)
class Route:
    """A route, the role it needs (None: no key), a valid body (None: it takes no body) and the query that it needs."""

    method: str
    path: str
    role: str | None
    body: Any
    query: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def send(
        self, client: TestClient, names: dict[str, str], body: Any = None, params: Mapping[str, str] = {}, **how: Any
    ) -> Response:
        """Send a request with these path and query parameters; ``body`` None: the route's own body."""
        sent = self.body if body is None else body
        more = {} if sent is None or "content" in how else {"json": sent}
        query = {**self.query, **params}
        return client.request(self.method, self.path.format_map(names), params=query or None, **more, **how)


def list_routes(app: FastAPI, api: ApiContext) -> list[Route]:
    """Return all API routes but older names of them; their bodies refer to rows of the project ``notes``."""
    schema = app.openapi()
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if _is_ours(route) and route.include_in_schema and not isinstance(route, PageRoute):
            path = str(context.path)
            for method in sorted(route.methods):
                body, query = _body(schema, path, method, api), _required_query(schema, path, method)
                found.append(Route(method, path, _role(route), body, query))
    return found


def list_page_routes(app: FastAPI) -> list[Route]:
    """Return all routes of pages, each with the role it needs."""
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, PageRoute):
            found += [Route(method, str(context.path), _role(route), None) for method in sorted(route.methods)]
    return found


def list_other_paths(app: FastAPI) -> set[str]:
    """Return other paths: API documentation and mounted applications."""
    contexts = iter_route_contexts(app.routes)
    return {str(context.path) for context in contexts if not _is_ours(context.original_route)}


def _is_ours(route: Any) -> bool:
    return isinstance(route, APIRoute) and not route.endpoint.__module__.startswith("fastapi_offline.")


def _role(route: APIRoute) -> str | None:
    """Return the role that the route's dependency checks."""
    for dependency in route.dependant.dependencies:
        for cell in getattr(dependency.call, "__closure__", None) or ():
            if cell.cell_contents in ROLES:
                return str(cell.cell_contents)
    return None


def _body(schema: dict[str, Any], path: str, method: str, api: ApiContext) -> Any:
    operation = schema["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    return _use_existing_ids(_example(schema, content["schema"]), api)


def _required_query(schema: dict[str, Any], path: str, method: str) -> dict[str, str]:
    parameters = schema["paths"][path][method.lower()].get("parameters", ())
    return {one["name"]: "unknown" for one in parameters if one["in"] == "query" and one["required"]}


def _example(schema: dict[str, Any], part: dict[str, Any]) -> Any:
    part = next((one for one in part.get("anyOf", ()) if "$ref" in one), part)
    model = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    assert model.get("examples"), f"the body {part['$ref']} has no example"
    return model["examples"][0]


def _use_existing_ids(example: dict[str, Any], api: ApiContext) -> dict[str, Any]:
    """Replace the ids in the example by ids of rows of ``notes``."""
    own = {"project": SLUG, "target": str(api.job_id), "ids": [api.memory]}
    return {name: own.get(name, value) for name, value in example.items()}


def path_parameters(api: ApiContext) -> dict[str, str]:
    """Return path parameters of existing rows of ``notes``."""
    return {"project": SLUG, "job_id": str(api.job_id), "id": api.memory}


def find_text_positions(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each text in a body, as keys and indexes."""
    if isinstance(body, str):
        yield at
    for key, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        yield from find_text_positions(value, (*at, key))


def replace_at(body: Any, at: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of the body with another value at the path ``at``."""
    if not at:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[at[0]] = replace_at(body[at[0]], at[1:], value)
    return copy
