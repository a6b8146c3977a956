"""Every route of the application with requests for it, made from what the application says of itself.

A route that is new is walked too: its role is read from its dependency, its body from its example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from httpx import Response
from starlette.testclient import TestClient

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.service.admin.api_keys import ROLES
from consolidation_pipeline_tests.api.conftest import Served
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

# For those who watch the process: they answer without a key.
OPEN = {"/health/live", "/health/ready", "/metrics"}


@dataclass(frozen=True)
class Route:
    """A route, the role it needs (None: no key), and a body that is valid for it (None: it takes none)."""

    method: str
    path: str
    role: str | None
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def send(self, client: TestClient, names: dict[str, str], body: Any = None, **how: Any) -> Response:
        """Send the request with these path parameters, and its own body where no other is given."""
        sent = self.body if body is None else body
        more = {} if sent is None or "content" in how else {"json": sent}
        return client.request(self.method, self.path.format_map(names), **more, **how)


def walk(app: FastAPI, served: Served) -> list[Route]:
    """All routes; their bodies are about the project ``notes``."""
    schema = app.openapi()
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if _is_ours(route) and not isinstance(route, PageRoute):
            path = str(context.path)
            for method in sorted(route.methods):
                found.append(Route(method, path, _role(route), _body(schema, path, method, served)))
    return found


def walk_pages(app: FastAPI) -> list[Route]:
    """All pages for people, and the role that each needs."""
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, PageRoute):
            found += [Route(method, str(context.path), _role(route), None) for method in sorted(route.methods)]
    return found


def others(app: FastAPI) -> set[str]:
    """Paths of what is not a route of ours: the documentation, and applications that are mounted."""
    contexts = iter_route_contexts(app.routes)
    return {str(context.path) for context in contexts if not _is_ours(context.original_route)}


def _is_ours(route: Any) -> bool:
    return isinstance(route, APIRoute) and not route.endpoint.__module__.startswith("fastapi_offline.")


def _role(route: APIRoute) -> str | None:
    """The role that the route's dependency was made for."""
    for dependency in route.dependant.dependencies:
        for cell in getattr(dependency.call, "__closure__", None) or ():
            if cell.cell_contents in ROLES:
                return str(cell.cell_contents)
    return None


def _body(schema: dict[str, Any], path: str, method: str, served: Served) -> Any:
    operation = schema["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    return _about(_example(schema, content["schema"]), served)


def _example(schema: dict[str, Any], part: dict[str, Any]) -> Any:
    part = next((one for one in part.get("anyOf", ()) if "$ref" in one), part)
    model = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    assert model.get("examples"), f"the body {part['$ref']} has no example"
    return model["examples"][0]


def _about(example: dict[str, Any], served: Served) -> dict[str, Any]:
    """The example with the rows of ``notes`` in place of those it names."""
    own = {"project_id": SLUG, "consolidation_id": str(served.job_id), "ids": [served.memory]}
    return {name: own.get(name, value) for name, value in example.items()}


def names(served: Served) -> dict[str, str]:
    """Path parameters that lead to rows of ``notes``."""
    return {"project": SLUG, "job_id": str(served.job_id), "id": served.memory}


def strings(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the texts of a body are."""
    if isinstance(body, str):
        yield at
    for key, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        yield from strings(value, (*at, key))


def replace(body: Any, at: tuple[Any, ...], value: Any) -> Any:
    """The body with another value at a place."""
    if not at:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[at[0]] = replace(body[at[0]], at[1:], value)
    return copy
