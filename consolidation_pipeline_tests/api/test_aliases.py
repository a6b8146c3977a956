"""Older names of routes and of fields: they answer as the names of the schema do."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.testclient import TestClient

from consolidation_pipeline.api.aliases import ALIASES
from consolidation_pipeline_tests.api.conftest import API, ApiContext
from consolidation_pipeline_tests.api.routes import path_parameters
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


@pytest.mark.slow
def test_every_older_name_calls_the_endpoint_of_its_route(api: ApiContext) -> None:
    routes = {
        f"{method} {context.path}": context.original_route
        for context in iter_route_contexts(api.app.routes)
        if isinstance(context.original_route, APIRoute)
        for method in context.original_route.methods or ()
    }
    paths = api.app.openapi()["paths"]
    for old, path in ALIASES.items():
        method, _, old_path = old.partition(" ")
        alias, route = routes[f"{method} {API}{old_path}"], routes[f"{method} {API}{path}"]
        assert isinstance(alias, APIRoute)
        assert isinstance(route, APIRoute)
        assert alias.endpoint is route.endpoint, old
        assert (alias.status_code, alias.response_model) == (route.status_code, route.response_model), old
        assert API + old_path not in paths, old
        assert method.lower() in paths[API + path], path


def test_older_names_need_a_key_and_refuse_unknown_parameters(api: ApiContext) -> None:
    for old in ALIASES:
        method, _, path = old.partition(" ")
        url = API + path.format_map(path_parameters(api))
        assert api.client(None).request(method, url).status_code == 401, old
        body = {"project_id": SLUG} if method == "POST" else None
        assert api.client("admin").request(method, url, params={"colour": 1}, json=body).status_code == 422, old


def test_older_names_of_reading_routes_return_the_same(api: ApiContext, admin: TestClient) -> None:
    for old, path in ALIASES.items():
        method, _, old_path = old.partition(" ")
        if method == "GET":
            names = path_parameters(api)
            replies = [admin.get(API + one.format_map(names)) for one in (old_path, path)]
            assert {reply.status_code for reply in replies} == {200}, old
            first, second = ({**reply.json(), "next_run": None, "next_run_time": None} for reply in replies)
            assert first == second, old


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            ("/consolidated-memories/search", {"project_id": SLUG, "abstraction_levels": ["0", 1], "memory_types": []}),
            ("/search", {"project": SLUG, "levels": [0, 1], "types": []}),
        ),
        (
            ("/consolidated-context", {"project_id": SLUG, "task_description": "Run the migrations"}),
            ("/context", {"project": SLUG, "task": "Run the migrations"}),
        ),
    ],
)
def test_older_names_of_fields_are_accepted(
    admin: TestClient, old: tuple[str, dict[str, Any]], new: tuple[str, dict[str, Any]]
) -> None:
    query = {"query": "when must the migrations run?"} if "search" in new[0] else {}
    first, second = (admin.post(API + path, json={**query, **body}) for path, body in (old, new))
    assert (first.status_code, second.status_code) == (200, 200)
    assert {**first.json(), "search_time_ms": 0} == {**second.json(), "search_time_ms": 0}
    both = admin.post(API + new[0], json={**query, **new[1], "project_id": SLUG})
    assert both.status_code == 422
