"""MCP over streamable HTTP, with the API's keys.

Stateless: no process keeps sessions, so any process behind a load balancer can answer any request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from threading import Semaphore

from anyio.to_thread import run_sync
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consolidation_pipeline.mcp.run_backends import QueuedRunBackend
from consolidation_pipeline.mcp.server import ToolServer, answer_unreadable
from consolidation_pipeline.mcp.tool_context import PRINCIPAL_KEY, ServerContext
from consolidation_pipeline.service.admin.api_keys import LOCAL, ROLES, Authenticate, Principal
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="consolidation"'}


class McpApp:
    """The MCP server as an ASGI application. It answers only while ``run`` is entered.

    The application that it is mounted on enters ``run()`` in its own lifespan: Starlette runs only the outermost one.

    Args:
        authenticate: returns the principal of a key, None if the key is not valid.
        limit: takes a key's id; returns the seconds that it has to wait, 0 for none.
        plan_slots: limits how many plans are made at once; shared with the HTTP API.
    """

    # Route name in the request metrics.
    path = "/mcp"

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        authenticate: Authenticate,
        *,
        limit: Callable[[str], int],
        plan_slots: Semaphore,
    ) -> None:
        self._engine, self._settings = engine, settings
        self._authenticate, self._limit = authenticate, limit
        context = ServerContext(lambda: engine, settings, QueuedRunBackend(), plan_slots=plan_slots)
        self._servers = {role: ToolServer(context, role) for role in ROLES}
        self._managers: dict[str, StreamableHTTPSessionManager] = {}

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept requests until the context is left."""
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
        """Authenticate a request and answer it."""
        if scope["type"] != "http":
            raise NotImplementedError(f"MCP over HTTP does not support {scope['type']}")
        secret = _read_secret(Headers(scope=scope))
        principal = await run_sync(self._authenticate_secret, secret)
        handler = self._choose_handler(principal, secret, scope["method"])
        await handler({**scope, PRINCIPAL_KEY: principal}, receive, send)

    def _choose_handler(self, principal: Principal | None, secret: str, method: str) -> ASGIApp:
        """Return the server of the caller's role, or an error response."""
        if principal is None:
            message = "the key is not valid or was revoked" if secret else "a key is needed: Authorization: Bearer KEY"
            return _build_problem(401, "unauthorized", message, **_CHALLENGE)
        if wait := self._limit(str(principal.key_id)):
            message = f"too many requests: try again in {wait} s"
            return _build_problem(429, "rate_limited", message, **{"Retry-After": str(wait)})
        if method != "POST":
            # GET would open a stream that stays empty; DELETE would end a session, and there are none.
            return _build_problem(405, "method_not_allowed", "only POST is allowed here", Allow="POST")
        return partial(self._handle_message, self._managers[principal.role].handle_request)

    async def _handle_message(self, handle: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a message to the library, unless it cannot be read: the answer of the library has no id."""
        parts, body, is_open = list[Message](), b"", True
        while is_open and len(body) <= self._settings.api_max_body:
            parts.append(await receive())
            body += parts[-1].get("body", b"")
            is_open = parts[-1].get("more_body", False)
        answer = answer_unreadable(body) if len(body) <= self._settings.api_max_body else None
        if answer is not None:
            content = answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(content, 400, media_type="application/json")(scope, receive, send)
            return
        again = iter(parts)

        async def receive_again() -> Message:
            return next(again, None) or await receive()

        await handle(scope, receive_again, send)

    def _authenticate_secret(self, secret: str) -> Principal | None:
        if self._settings.api_auth == "off":
            return LOCAL
        return self._authenticate(self._engine, secret) if secret else None


def _read_secret(headers: Headers) -> str:
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def _configure_transport_security(settings: Settings) -> TransportSecuritySettings:
    """Return the SDK's protection against DNS rebinding, enabled on a loopback address.

    A web page can point its own host name at this machine, so other names are refused there. On other addresses the
    server does not know its names, and a web page does not know a key.
    """
    loopback = settings.api_auth == "off" or settings.api_host in (*_LOOPBACK, "::1")
    names = [settings.api_host, *_LOOPBACK, *(name.strip() for name in settings.mcp_hosts.split(",") if name.strip())]
    hosts = [f"{name}{port}" for name in names for port in ("", ":*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=loopback,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


def _build_problem(status: int, error: str, message: str, **headers: str) -> Response:
    """Return an error response in the HTTP API's format (RFC 9457)."""
    body = {"type": "about:blank", "status": status, "detail": message, "error": error, "message": message}
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")
