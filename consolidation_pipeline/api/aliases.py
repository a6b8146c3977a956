"""Older names of routes. They answer as the routes do, and are not in the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute

PREFIX = "/api/v1"

# Name of the route by method and older name, without the prefix.
ALIASES: Mapping[str, str] = {
    "POST /consolidation/trigger": "/jobs",
    "POST /admin/consolidate-memories": "/jobs",
    "GET /consolidation/status/{job_id}": "/jobs/{job_id}",
    "GET /admin/consolidation-status/{job_id}": "/jobs/{job_id}",
    "POST /consolidation/cancel/{job_id}": "/jobs/{job_id}/cancel",
    "GET /consolidation/jobs/{project}": "/projects/{project}/jobs",
    "POST /summaries/{project}": "/projects/{project}/summaries",
    "POST /procedural/{project}": "/projects/{project}/profile",
    "GET /consolidation/configure/{project}": "/projects/{project}/options",
    "POST /consolidation/configure/{project}": "/projects/{project}/options",
    "GET /consolidation/metrics/{project}": "/projects/{project}/metrics",
    "GET /admin/consolidation-metrics/{project}": "/projects/{project}/metrics",
    "POST /consolidation/plan": "/plan",
    "GET /consolidation/history/{project}": "/projects/{project}/history",
    "GET /consolidation/changes/{project}": "/projects/{project}/changes",
    "POST /consolidation/rollback": "/rollback",
    "POST /consolidated-memories/search": "/search",
    "GET /consolidated-memories/{id}/lineage": "/memories/{id}/lineage",
    "POST /consolidated-context": "/context",
    "GET /review/{project}": "/projects/{project}/review",
    "GET /playbook/{project}": "/projects/{project}/playbook",
    "GET /relations/{project}": "/projects/{project}/relations",
    "POST /suggestions/{id}/validate": "/suggestions/{id}/approve",
}


def create_alias_router(routers: Iterable[APIRouter]) -> APIRouter:
    """Return a router with the older names of the routes of ``routers``."""
    routes = {
        f"{method} {route.path}": route
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    aliases = APIRouter()
    for old, path in ALIASES.items():
        method, _, old_path = old.partition(" ")
        route = routes[f"{method} {PREFIX}{path}"]
        aliases.add_api_route(
            PREFIX + old_path,
            route.endpoint,
            methods=[method],
            response_model=route.response_model,
            status_code=route.status_code,
            include_in_schema=False,
        )
    return aliases
