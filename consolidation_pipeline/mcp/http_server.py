"""The MCP server over streamable HTTP, with the keys of the API.

Stateless: a request brings all it needs, so any process behind a balancer can answer it and none keeps sessions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from threading import Semaphore

from anyio.to_thread import run_sync
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from consolidation_pipeline.mcp.run_backends import QueuedRunBackend
from consolidation_pipeline.mcp.server import build_server
from consolidation_pipeline.mcp.tool_context import PRINCIPAL_KEY, ServerContext
from consolidation_pipeline.service.admin.api_keys import LOCAL, ROLES, Authenticate, Principal
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="consolidation"'}


class McpApp:
    """An ASGI application; it answers on whatever path it is put, and only inside ``run``.

    ``path``: how metrics call it.
    """

    path = "/mcp"

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        authenticate: Authenticate,
        *,
        limit: Callable[[str], int],
        plans: Semaphore | None,
    ) -> None:
        self._engine, self._settings = engine, settings
        self._authenticate, self._limit = authenticate, limit
        door = ServerContext(lambda: engine, settings, QueuedRunBackend())
        if plans is not None:
            door = replace(door, plans=plans)
        self._servers = {role: build_server(door, role) for role in ROLES}
        self._managers: dict[str, StreamableHTTPSessionManager] = {}

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Be ready for requests; belongs into the lifespan of the application that this one is mounted on."""
        async with AsyncExitStack() as stack:
            for role, server in self._servers.items():
                server.streamable_http_app(
                    stateless_http=True,
                    max_request_body_size=self._settings.api_max_body,
                    transport_security=_configure_transport_security(self._settings),
                )
                self._managers[role] = server.session_manager
                await stack.enter_async_context(server.session_manager.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a caller with a key."""
        if scope["type"] != "http":
            raise NotImplementedError(f"MCP does not speak {scope['type']}")
        secret = _read_secret(Headers(scope=scope))
        principal = await run_sync(self._identify, secret)
        answer = self._choose(principal, secret, scope["method"])
        await answer({**scope, PRINCIPAL_KEY: principal}, receive, send)

    def _choose(self, principal: Principal | None, secret: str, method: str) -> ASGIApp:
        """What answers a request: the server of the caller's role, or a refusal."""
        if principal is None:
            why = "the key is not valid or was revoked" if secret else "a key is needed: Authorization: Bearer KEY"
            return _build_problem(401, "unauthorized", why, **_CHALLENGE)
        if wait := self._limit(str(principal.key_id)):
            why = f"too many requests: try again in {wait} s"
            return _build_problem(429, "rate_limited", why, **{"Retry-After": str(wait)})
        if method != "POST":
            # GET would hold a stream open on which nothing ever comes, DELETE end a session that there is not.
            return _build_problem(405, "method_not_allowed", "only POST is allowed here", Allow="POST")
        return self._managers[principal.role].handle_request

    def _identify(self, secret: str) -> Principal | None:
        if self._settings.api_auth == "off":
            return LOCAL
        return self._authenticate(self._engine, secret) if secret else None


def build_mcp_app(
    engine: Engine,
    settings: Settings,
    authenticate: Authenticate,
    *,
    limit: Callable[[str], int] = lambda _: 0,
    plans: Semaphore | None = None,
) -> McpApp:
    """The server as an ASGI application.

    ``authenticate``: whose key it is; ``limit``: takes a key's id, returns the seconds it has to wait, 0 = none;
    ``plans``: how many may be made at once, where others than this server make them too. The application that it is
    part of enters ``run()`` in its lifespan, for Starlette runs no lifespan but the outermost.
    """
    return McpApp(engine, settings, authenticate, limit=limit, plans=plans)


def _read_secret(headers: Headers) -> str:
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def _configure_transport_security(settings: Settings) -> TransportSecuritySettings:
    """On a loopback address, requests under other names are refused: a web page could have pointed its name at it.

    Elsewhere the server has names that it does not know, and keys that a web page does not.
    """
    here = settings.api_auth == "off" or settings.api_host in (*_LOOPBACK, "::1")
    names = [settings.api_host, *_LOOPBACK, *(name.strip() for name in settings.mcp_hosts.split(",") if name.strip())]
    hosts = [f"{name}{port}" for name in names for port in ("", ":*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=here,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


def _build_problem(status: int, error: str, message: str, **headers: str) -> Response:
    """The API's way to tell an error (RFC 9457)."""
    body = {"type": "about:blank", "status": status, "detail": message, "error": error, "message": message}
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")
