"""The HTTP application: everything under /api/v1, OpenAPI at /docs; pages for people, health and metrics beside it."""

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
    health,
    jobs,
    ledger,
    memories,
    metrics,
    projects,
    review,
    search,
    suggestions,
    summary_jobs,
)
from consolidation_pipeline.api.access import check_exposure, create_key_cache, create_project_finder
from consolidation_pipeline.api.metrics import PrometheusMetrics
from consolidation_pipeline.api.pages import history, login
from consolidation_pipeline.api.pages import projects as project_pages
from consolidation_pipeline.api.pages import review as review_pages
from consolidation_pipeline.api.problems import MEDIA_TYPE, add_error_handlers
from consolidation_pipeline.api.rate_limit import RateLimiter
from consolidation_pipeline.api.request_log import RequestLogMiddleware
from consolidation_pipeline.api.usage_buffer import UsageBuffer
from consolidation_pipeline.mcp.http_server import McpApp
from consolidation_pipeline.mcp.tool_context import MAX_CONCURRENT_PLANS
from consolidation_pipeline.service.admin import api_keys
from consolidation_pipeline.service.admin.api_keys import Authenticate
from consolidation_pipeline.service.admin.browser_sessions import Sessions, load_secret
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import POOL_SIZE, Engine, ping_seldom

# Requests are worked on in threads. A request holds one connection at a time, a rollback two: with fewer threads than
# the pool has connections, a request waits for a thread, where nothing is held and nothing times out, and none waits
# for a connection while it holds one. A search takes some 5 ms of the processor here and as many in the
# database, so 12 threads keep one core busy, which is what one Python process can use.
WORKER_THREADS = POOL_SIZE - 3

# A request is held against one route after the other: what agents call most comes first.
API_ROUTERS = (
    search.router,
    memories.router,
    jobs.router,
    summary_jobs.router,
    ledger.router,
    projects.router,
    review.router,
    suggestions.router,
    health.router,
    metrics.router,
)
PAGE_ROUTERS = (login.router, review_pages.router, project_pages.router, history.router)

_DESCRIPTION = """
Consolidation of agents' memories: plan it, run it, look at what changed, undo it; search what was learned.

A key goes into `Authorization: Bearer KEY` or `X-API-Key: KEY`; `consolidation keys create` makes one. A key has a role
(a reader reads, an agent also writes memories, an admin does everything) and is for one project or for all.
A project is named by its slug or its id. Errors are problems (RFC 9457) with `error`, a word for programs, and
`message`, for people. `X-Request-ID` comes back and stands in the server's log.
"""


def create_app(engine: Engine, settings: Settings, *, authenticate: Authenticate = api_keys.authenticate) -> FastAPI:
    """The application over a store that is ready.

    Raises:
        UsageError: keys are off, and the host is not a loopback address.
    """
    check_exposure(settings)
    ping_seldom(engine)
    tracing.start()  # before the first request: FastAPI and the MCP SDK make their spans once there is a provider
    # As FastAPI itself, but that the pages of the documentation need no other server than this one.
    app = FastAPIOffline(
        static_url="/docs/static",
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
    app.state.limiter = RateLimiter(settings.api_rate, settings.api_burst)
    app.state.plan_slots = BoundedSemaphore(MAX_CONCURRENT_PLANS)
    app.state.metrics = PrometheusMetrics(engine)
    app.state.sessions = Sessions(load_secret(settings.data_dir))
    mcp = McpApp(engine, settings, authenticate, limit=app.state.limiter.take, plan_slots=app.state.plan_slots)
    app.state.uses = UsageBuffer(engine)
    app.state.running = (mcp.run, app.state.uses.run)
    # A route and not a mount: that would redirect /mcp to /mcp/.
    app.router.routes.append(Route("/mcp", endpoint=mcp, include_in_schema=False))
    for router in (*API_ROUTERS, *PAGE_ROUTERS):
        app.include_router(router)
    add_error_handlers(app)
    app.add_middleware(RequestLogMiddleware, metrics=app.state.metrics, max_body=settings.api_max_body)
    _declare_problem_media_type(app)
    return app


def _is_probe(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request is one of those that come every few seconds and would fill the traces."""
    return str(scope["path"]).startswith(("/metrics", "/health/"))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """What runs as long as the application does: also what is put on it, for only the outermost has a lifespan."""
    current_default_thread_limiter().total_tokens = WORKER_THREADS
    async with AsyncExitStack() as stack:
        for run in app.state.running:
            await stack.enter_async_context(run())
        yield


def _declare_problem_media_type(app: FastAPI) -> None:
    """Have OpenAPI say that problems come as problem+json; FastAPI declares all models as plain JSON."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            for operation in (one for path in schema["paths"].values() for one in path.values()):
                for status, response in operation["responses"].items():
                    if status >= "400" and "application/json" in response.get("content", {}):
                        response["content"] = {MEDIA_TYPE: response["content"].pop("application/json")}
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
