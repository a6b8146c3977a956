"""Middleware around every request: request id, log line, counters, limit of the body, unexpected errors."""

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
# A caller's id of this form is used as it is; other ids could forge lines of the log.
_SAFE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


def log_fields(request: Request) -> dict[str, Any]:
    """Return the fields of the request's log line, such as ``project``, ``job``, ``key``; handlers add to them."""
    fields: dict[str, Any] = request.scope["state"]["log_fields"]
    return fields


class RequestLogMiddleware:
    """Gives each request an id, logs and counts it, and answers unexpected errors with 500 or 503."""

    def __init__(self, app: ASGIApp, metrics: PrometheusMetrics, max_body: int) -> None:
        self._app, self._metrics, self._max_body = app, metrics, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        sent_id = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = sent_id if _SAFE_REQUEST_ID.fullmatch(sent_id) else uuid4().hex
        fields = {"request_id": request_id}
        scope.setdefault("state", {}).update(request_id=request_id, log_fields=fields)
        set_attributes({"consolidation.request.id": request_id})
        with log_context(fields):
            await self._record_answer(scope, receive, send)
        return None

    async def _record_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, then log and count it whatever the outcome."""
        start, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = scope["state"]["request_id"]
            await send(message)

        try:
            await self._limit_body(scope, receive, send_with_id)
        except Exception as error:
            logger.error("the request failed", exc_info=error)
            if status:
                raise  # part of the reply is sent: only a broken connection tells the caller
            response = respond_to_unexpected(Request(scope), unavailable=is_unavailable(error))
            await response(scope, receive, send_with_id)
        finally:
            self._record(scope, status, time.perf_counter() - start)

    async def _limit_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Answer 413 if its body is too large, by Content-Length or by the bytes received."""
        message = f"the body must not be larger than {self._max_body} bytes"
        length, read_bytes = Headers(scope=scope).get("content-length", ""), 0
        if length.isdecimal() and float(length) > self._max_body:
            refusal = build_problem(Request(scope), 413, message, headers={"Connection": "close"})
            return await refusal(scope, receive, send)

        async def receive_limited() -> Message:
            nonlocal read_bytes
            part = await receive()
            read_bytes += len(part.get("body", b""))
            if read_bytes > self._max_body:
                raise HTTPException(413, message, headers={"Connection": "close"})
            return part

        return await self._app(scope, receive_limited, send)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request by its route and log it, without query, body and headers."""
        # FastAPI routes are in the scope; plain Starlette routes leave only their endpoint there.
        route = getattr(scope.get("route") or scope.get("endpoint"), "path", None) or "unmatched"
        self._metrics.count(scope["method"], route, status, seconds)
        fields = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(1000 * seconds, 1)}
        logger.info("answered", extra={"fields": {**fields, **scope["state"]["log_fields"]}})
