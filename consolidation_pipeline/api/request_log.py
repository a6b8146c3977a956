"""Around every request: an id in and out, a line in the log, counters, a limit of the body, and the last resort."""

from __future__ import annotations

import logging
import re
import time
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consolidation_pipeline.api.metrics import PrometheusMetrics
from consolidation_pipeline.api.problems import build_problem, respond_to_unexpected
from consolidation_pipeline.logs import log_context
from consolidation_pipeline.store.database.engine import is_unavailable
from consolidation_pipeline.tracing import set_attributes

logger = logging.getLogger("consolidation_pipeline.api")

REQUEST_ID_HEADER = "X-Request-ID"
# Such an id of the caller's is taken over; any other could forge lines of the log.
_SAFE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


def log_fields(request: Request) -> dict[str, Any]:
    """What the log says of the request beside its path: ``project``, ``job``, ``key``; handlers add to it."""
    noted: dict[str, Any] = request.scope["state"]["told"]
    return noted


class RequestLogMiddleware:
    """Gives each request an id, logs and counts it, and answers with 500 or 503 where nothing else did."""

    def __init__(self, app: ASGIApp, metrics: PrometheusMetrics, max_body: int) -> None:
        self._app, self._metrics, self._max_body = app, metrics, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = given if _SAFE_REQUEST_ID.fullmatch(given) else uuid4().hex
        facts = {"request_id": request_id}
        scope.setdefault("state", {}).update(request_id=request_id, told=facts)
        set_attributes({"consolidation.request.id": request_id})
        with log_context(facts):
            await self._follow(scope, receive, send)
        return None

    async def _follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer and, whatever comes of it, leave a line in the log and a count."""
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = scope["state"]["request_id"]
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except Exception as error:
            logger.error("the request failed", exc_info=error)
            if status:
                raise  # half a reply is out: only a broken connection tells the caller
            response = respond_to_unexpected(Request(scope), unavailable=is_unavailable(error))
            await response(scope, receive, sending)
        finally:
            self._record(scope, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, unless the body is too large; one without a length is counted as it comes."""
        message = f"the body must not be larger than {self._max_body} bytes"
        told_length, taken = Headers(scope=scope).get("content-length", ""), 0
        if told_length.isdecimal() and float(told_length) > self._max_body:
            return await build_problem(Request(scope), 413, message, headers={"Connection": "close"})(
                scope, receive, send
            )

        async def receiving() -> Message:
            nonlocal taken
            received = await receive()
            taken += len(received.get("body", b""))
            if taken > self._max_body:
                raise HTTPException(413, message, headers={"Connection": "close"})
            return received

        return await self._app(scope, receiving, send)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request by its route and log it; neither knows the query, the body or a header."""
        # Routes of FastAPI's leave themselves, plain ones only what they call.
        route = getattr(scope.get("route") or scope.get("endpoint"), "path", None) or "unmatched"
        self._metrics.count(scope["method"], route, status, seconds)
        facts = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(1000 * seconds, 1)}
        logger.info("answered", extra={"facts": {**facts, **scope["state"]["told"]}})
