"""A page's route: errors are pages too, sessions are kept, and every answer says what a browser may do with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline import errors
from consolidation_pipeline.api.pages.page_session import set_session_cookie
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.api.problems import UNAVAILABLE_MESSAGE, RefusedError, classify_error
from consolidation_pipeline.store.database.engine import is_unavailable

logger = logging.getLogger("consolidation_pipeline.api")

# Everything comes from here, nothing is inline, nobody frames it, and forms lead nowhere else.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

_TITLES = {
    400: "That did not work",
    403: "Not allowed",
    404: "Not found",
    409: "Somebody was quicker",
    422: "Something in the address is not right",
    429: "A little slower, please",
    500: "Something went wrong here",
    503: "Not available just now",
}
_UNEXPECTED_MESSAGE = "This was not foreseen. Nothing was changed by a step that failed; the server's log says more."

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose answers are read by people."""

    def get_route_handler(self) -> Handler:
        """The route's own handler, with pages in place of problems and headers on all."""
        answer = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                response = await answer(request)
            except RefusedError as error:
                response = _respond_to_refusal(request, error)
            except (errors.ConsolidationError, RequestValidationError, HTTPException) as error:
                response = render_error(request, *describe_error(error))
            except Exception as error:
                logger.error("the request failed", exc_info=error)
                status = 503 if is_unavailable(error) else 500
                response = render_error(request, status, UNAVAILABLE_MESSAGE if status == 503 else _UNEXPECTED_MESSAGE)
            for name, value in SECURITY_HEADERS.items():
                response.headers.setdefault(name, value)
            set_session_cookie(request, response)
            return response

        return shown


def render_error(request: Request, status: int, message: str, **more: object) -> Response:
    """A page that says what is wrong. ``more``: what the template ``error.html`` shows beside it."""
    return render(
        request, "error.html", status=status, title=_TITLES.get(status, _TITLES[400]), message=message, **more
    )


def _respond_to_refusal(request: Request, error: RefusedError) -> Response:
    """Where somebody has to log in, the way there, and back if that is a page."""
    if error.status == 401:
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        back = f"?{urlencode({'next': path})}" if request.method == "GET" and path != "/" else ""
        return RedirectResponse(f"/login{back}", 303)
    response = render_error(request, error.status, error.message)
    response.headers.update(error.headers)
    return response


def describe_error(error: errors.ConsolidationError | RequestValidationError | HTTPException) -> tuple[int, str]:
    """Status and words of an error."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        where = {f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()}
        return 422, "; ".join(sorted(where))
    status, _, message = classify_error(error)
    return status, message
