"""The HTTP application: API under /api/v1, OpenAPI at /docs, MCP at /mcp, web pages, health and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from threading import BoundedSemaphore
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.routing import Route

from consolidation_pipeline import tracing
from consolidation_pipeline.api import (
    docs_page,
    health,
    jobs,
    ledger,
    memories,
    memory_edits,
    memory_tests,
    metrics,
    projects,
    quarantine,
    relations,
    review,
    search,
    shadows,
    sources,
    suggestions,
)
from consolidation_pipeline.api.access import check_exposure, create_key_cache, create_project_finder
from consolidation_pipeline.api.aliases import create_alias_router
from consolidation_pipeline.api.metrics import PrometheusMetrics
from consolidation_pipeline.api.pages import history, label_pairs, login
from consolidation_pipeline.api.pages import memory_tests as memory_test_pages
from consolidation_pipeline.api.pages import projects as project_pages
from consolidation_pipeline.api.pages import review as review_pages
from consolidation_pipeline.api.pages import sources as source_pages
from consolidation_pipeline.api.pages.page_route import respond_to_unknown_path
from consolidation_pipeline.api.problems import MEDIA_TYPE, add_error_handlers
from consolidation_pipeline.api.rate_limit import RateLimiter
from consolidation_pipeline.api.request_log import RequestLogMiddleware
from consolidation_pipeline.api.usage_buffer import UsageBuffer
from consolidation_pipeline.mcp.http_server import McpApp
from consolidation_pipeline.mcp.tool_context import MAX_CONCURRENT_PLANS
from consolidation_pipeline.service.admin import api_keys
from consolidation_pipeline.service.admin.api_keys import Authenticate
from consolidation_pipeline.service.admin.browser_sessions import BrowserSessions, load_signing_secret
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import POOL_SIZE, Engine

# Requests run in threads. A request holds one connection at a time, a rollback two. There are fewer threads than pooled
# connections, so requests wait for a thread: they hold nothing then and do not time out. No request waits for a second
# connection while it holds one. A search takes about 5 ms of CPU here and 5 ms in the database, so 12 threads keep one
# core busy, which is all that one Python process can use.
WORKER_THREADS = POOL_SIZE - 3

# Routes are matched in this order: the ones that agents call most come first.
API_ROUTERS = (
    search.router,
    memories.router,
    memory_edits.router,
    jobs.router,
    ledger.router,
    projects.router,
    review.router,
    quarantine.router,
    relations.router,
    shadows.router,
    sources.router,
    memory_tests.router,
    suggestions.router,
    health.router,
    metrics.router,
)
PAGE_ROUTERS = (
    login.router,
    review_pages.router,
    project_pages.router,
    history.router,
    label_pairs.router,
    source_pages.router,
    memory_test_pages.router,
    docs_page.router,
)

_DESCRIPTION = """
Consolidate agents' memories: plan a run, run it, inspect the changes, undo them, search what was learned.

Send a key as `Authorization: Bearer KEY` or `X-API-Key: KEY`; `consolidation keys create` creates one. A key has a role
and is for one project or for all: a reader searches and reads, an agent also writes memories, an admin may do
everything. A project is named by its slug or its id. Errors are problems (RFC 9457) with `error`, a code for programs,
and `message`, a text for people. `X-Request-ID` is returned and appears in the server's log.
"""


def create_app(engine: Engine, settings: Settings, *, authenticate: Authenticate = api_keys.authenticate) -> FastAPI:
    """Return the application for a store that is ready.

    Raises:
        UsageError: authentication is off and the host is not a loopback address.
    """
    check_exposure(settings)
    tracing.get_tracer()  # before the first request: FastAPI and the MCP SDK create spans only once there is a provider
    # Like FastAPI, but the documentation pages load their files from this server.
    app = FastAPIOffline(
        docs_url=None,
        static_url=docs_page.STATIC_PATH,
        title="consolidation",
        version=version("consolidation-pipeline"),
        summary="Dreaming for the agent memories you already keep in Postgres: plan, apply, undo.",
        description=_DESCRIPTION,
        lifespan=_lifespan,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"metrics": False, "logs": False, "operation_spans": False, "exclude": _is_probe},
    )
    app.state.engine, app.state.settings, app.state.authenticate = engine, settings, authenticate
    app.state.recent_keys, app.state.find_recent_project = create_key_cache(), create_project_finder(engine)
    app.state.asked_keys = {}
    app.state.limiter = RateLimiter(settings.api_rate, settings.api_burst)
    app.state.plan_slots = BoundedSemaphore(MAX_CONCURRENT_PLANS)
    app.state.metrics = PrometheusMetrics(engine)
    app.state.sessions = BrowserSessions(load_signing_secret(settings.data_dir))
    mcp = McpApp(engine, settings, authenticate, limit=app.state.limiter.take, plan_slots=app.state.plan_slots)
    app.state.usage_buffer = UsageBuffer(engine)
    app.state.background_tasks = (mcp.run, app.state.usage_buffer.run)
    # A route instead of a mount: a mount would redirect /mcp to /mcp/.
    app.router.routes.append(Route("/mcp", endpoint=mcp, include_in_schema=False))
    for router in (*API_ROUTERS, *PAGE_ROUTERS, create_alias_router(API_ROUTERS)):
        app.include_router(router)
    add_error_handlers(app)
    app.add_exception_handler(404, respond_to_unknown_path)
    app.add_middleware(RequestLogMiddleware, metrics=app.state.metrics, max_body=settings.api_max_body)
    _declare_problem_media_type(app)
    return app


def _is_probe(scope: MutableMapping[str, Any]) -> bool:
    """Return True for probes that come every few seconds and would fill the traces."""
    return str(scope["path"]).startswith(("/metrics", "/health/"))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the background tasks while the application runs, also MCP's: Starlette runs only the outermost lifespan."""
    current_default_thread_limiter().total_tokens = WORKER_THREADS
    async with AsyncExitStack() as stack:
        for run in app.state.background_tasks:
            await stack.enter_async_context(run())
        yield


def _declare_problem_media_type(app: FastAPI) -> None:
    """Declare error responses in OpenAPI as problem+json; FastAPI declares all models as plain JSON."""
    build_schema = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build_schema()
            for operation in (one for path in schema["paths"].values() for one in path.values()):
                for status, response in operation["responses"].items():
                    if status >= "400" and "application/json" in response.get("content", {}):
                        response["content"] = {MEDIA_TYPE: response["content"].pop("application/json")}
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
