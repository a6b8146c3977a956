"""Error responses: problems (RFC 9457) with ``error``, a code for programs, and ``message``, a text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from consolidation_pipeline import errors
from consolidation_pipeline.core.invalid_values import explain_errors

MEDIA_TYPE = "application/problem+json"

# HTTP status and error code of our errors. A class that is missing here uses its nearest listed base class.
ERROR_STATUSES: Mapping[type[errors.ConsolidationError], tuple[int, str]] = {
    errors.ConsolidationError: (500, "internal"),
    errors.UsageError: (400, "usage"),
    errors.InvalidOptionError: (422, "invalid_option"),
    errors.InvalidMemoryError: (422, "invalid_memory"),
    errors.NotFoundError: (404, "not_found"),
    errors.ProjectDisabledError: (400, "validation_error"),
    errors.InvalidScopeError: (400, "invalid_scope"),
    errors.ForbiddenError: (403, "forbidden"),
    errors.ConflictError: (409, "conflict"),
    errors.ProjectBusyError: (409, "project_busy"),
    errors.JobCancelledError: (409, "job_cancelled"),
    errors.ExpiredError: (400, "expired"),
    errors.BudgetExhaustedError: (402, "budget_exhausted"),
    errors.EmbeddingError: (502, "embedding_failed"),
    errors.LLMError: (502, "model_failed"),
    errors.TooManyPairsError: (422, "too_many_pairs"),
    errors.StoreError: (503, "unavailable"),
}
# Error codes of HTTP errors, by status.
_ERROR_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "validation_error",
    429: "rate_limited",
    500: "internal",
    503: "unavailable",
}
_TITLES = {
    400: "The request cannot be carried out",
    401: "No valid key",
    402: "The budget is used up",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict with what is stored",
    413: "Too large",
    422: "The request is not valid",
    429: "Too many requests",
    500: "Server error",
    502: "A model failed",
    503: "Unavailable",
}
_MAX_MESSAGE_CHARS = 2000
_MAX_LISTED_ERRORS = 50
# The database's own message is only logged: it may name the host.
UNAVAILABLE_MESSAGE = "the database cannot be reached or is not ready; try again later"
_INTERNAL_MESSAGE = "an unexpected error; the server's log has details under this request id"


class InvalidField(BaseModel):
    """An invalid value in a request: its path and the reason."""

    where: str = Field(description="Path to the value, such as `body.options.t_merge`.")
    message: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Not found",
                    "status": 404,
                    "detail": "there is no project 'nots'; projects: notes",
                    "error": "not_found",
                    "message": "there is no project 'nots'; projects: notes",
                    "request_id": "6f1d0c4e",
                }
            ]
        }
    )

    type: str = Field(description="Always `about:blank`; see `error`.")
    title: str = Field(description="Text for the status.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The same as `message`.")
    error: str = Field(description="A code for programs, such as `not_found` or `conflict`.")
    message: str = Field(description="What is wrong, the value, and what is allowed.")
    request_id: str = Field(description="Id of the request in the server's log.")
    conflicts: list[str] | None = Field(None, description="Ids of the rows in conflict, for status 409.")
    errors: list[InvalidField] | None = Field(None, description="All invalid values, for status 422.")


class RefusedError(Exception):
    """The request is refused before any service is called; carries the HTTP status."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def build_problem(
    request: Request,
    status: int,
    message: str,
    *,
    error: str | None = None,
    headers: Mapping[str, str] | None = None,
    **fields: Any,
) -> Response:
    """Return an error response. ``fields`` are the optional members ``conflicts`` or ``errors``."""
    if len(message) > _MAX_MESSAGE_CHARS:  # it may quote the request
        message = f"{message[:_MAX_MESSAGE_CHARS]}.."
    body = {
        "type": "about:blank",
        "title": _TITLES.get(status, "The request failed"),
        "status": status,
        "detail": message,
        "error": error or _ERROR_CODES.get(status, "failed"),
        "message": message,
        "request_id": getattr(request.state, "request_id", ""),
        **fields,
    }
    # ASCII: a message may quote invalid Unicode.
    return Response(json.dumps(body).encode(), status, dict(headers or {}), media_type=MEDIA_TYPE)


def declare_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the argument ``responses`` of a route: errors with these statuses, and those that every route has."""
    everywhere = (400, 401, 403, 413, 422, 429, 500, 503)
    return {status: {"model": Problem, "description": _TITLES[status]} for status in sorted({*everywhere, *statuses})}


# Argument ``responses`` of a router without keys: its routes refuse unknown query parameters.
DECLARED_INVALID: dict[int | str, dict[str, Any]] = {422: {"model": Problem, "description": _TITLES[422]}}


def classify_error(error: errors.ConsolidationError) -> tuple[int, str, str]:
    """Return HTTP status, error code and message of one of our errors."""
    status, code = next(ERROR_STATUSES[kind] for kind in type(error).__mro__ if kind in ERROR_STATUSES)
    return status, code, UNAVAILABLE_MESSAGE if isinstance(error, errors.StoreError) else str(error)


def respond_to_error(request: Request, error: Exception) -> Response:
    """Return the response for one of our errors."""
    assert isinstance(error, errors.ConsolidationError)
    status, code, message = classify_error(error)
    fields: dict[str, Any] = {"conflicts": list(error.conflicts)} if isinstance(error, errors.ConflictError) else {}
    return build_problem(request, status, message, error=code, **fields)


def respond_to_unexpected(request: Request, *, unavailable: bool) -> Response:
    """Return the response for an unexpected error. ``unavailable``: the database connection broke."""
    status, message = (503, UNAVAILABLE_MESSAGE) if unavailable else (500, _INTERNAL_MESSAGE)
    return build_problem(request, status, message)


def _respond_to_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return build_problem(request, error.status, error.message, headers=error.headers)


def respond_to_http_error(request: Request, error: Exception) -> Response:
    """Return the response for an error of HTTP, such as an unknown path."""
    assert isinstance(error, HTTPException)
    messages = {
        400: "body: expected one JSON object in UTF-8, not nested thousands of levels deep",
        404: f"there is no {request.method} {request.url.path}; /docs lists the routes",
        405: f"{request.method} is not allowed here; the header Allow lists the methods",
    }
    return build_problem(
        request, error.status_code, messages.get(error.status_code, str(error.detail)), headers=error.headers
    )


def _respond_to_invalid(request: Request, error: Exception) -> Response:
    """List the invalid fields, and the known ones where one is unknown."""
    assert isinstance(error, RequestValidationError)
    explained = explain_errors(error.errors()[:_MAX_LISTED_ERRORS], _list_body_fields(request.scope["route"]))
    invalid = [{"where": path[:_MAX_MESSAGE_CHARS], "message": problem} for path, problem in explained.items()]
    message = "; ".join(f"{one['where']}: {one['message']}" for one in invalid)
    return build_problem(request, 422, message, errors=invalid)


def _list_body_fields(route: APIRoute) -> list[str]:
    """Return the names of the fields of a route's body."""
    if route.body_field is None:
        return []
    given = route.body_field.field_info.annotation
    # A body that may be left out is a union with None.
    model = next(kind for kind in (given, *get_args(given)) if hasattr(kind, "model_fields"))
    return list(model.model_fields)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every expected error of ``app`` with a problem. ``RequestLogMiddleware`` answers the unexpected ones."""
    app.add_exception_handler(errors.ConsolidationError, respond_to_error)
    app.add_exception_handler(RefusedError, _respond_to_refusal)
    app.add_exception_handler(HTTPException, respond_to_http_error)
    app.add_exception_handler(RequestValidationError, _respond_to_invalid)
