"""Route class of the pages: errors as pages, session cookies, security headers."""

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
from consolidation_pipeline.api.pages.query_params import resolve_local_path
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.api.problems import UNAVAILABLE_MESSAGE, RefusedError, classify_error, respond_to_http_error
from consolidation_pipeline.core.invalid_values import explain_errors
from consolidation_pipeline.store.database.engine import is_unavailable

logger = logging.getLogger("consolidation_pipeline.api")

# Only files from this site, nothing inline, no frames, forms only to this site.
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
    400: "The request failed",
    403: "Not allowed",
    404: "Not found",
    409: "Conflict",
    422: "The address is not valid",
    429: "Too many requests",
    500: "Server error",
    503: "Not available now",
}
_UNEXPECTED_MESSAGE = "An unexpected error. The failed step changed nothing; the server's log has details."

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """Route of a page for people."""

    def get_route_handler(self) -> Handler:
        """Return the route's handler, with error pages instead of problems and with security headers."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            try:
                response = await handle(request)
            except RefusedError as error:
                response = _respond_to_refusal(request, error)
            except (errors.ConsolidationError, RequestValidationError, HTTPException) as error:
                response = render_error(request, *describe_error(error))
            except Exception as error:
                logger.error("the request failed", exc_info=error)
                status = 503 if is_unavailable(error) else 500
                response = render_error(request, status, UNAVAILABLE_MESSAGE if status == 503 else _UNEXPECTED_MESSAGE)
            _secure(response)
            set_session_cookie(request, response)
            return response

        return handle_page


def _secure(response: Response) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


def respond_to_unknown_path(request: Request, error: Exception) -> Response:
    """Return an error page to a browser that asks for an unknown path, and a problem to others."""
    assert isinstance(error, HTTPException)
    if "text/html" not in request.headers.get("accept", ""):
        return respond_to_http_error(request, error)
    response = render_error(request, 404, f"There is no page {request.url.path}.")
    _secure(response)
    return response


def render_error(request: Request, status: int, message: str, **values: object) -> Response:
    """Return an error page. ``values``: further values for the template ``error.html``.

    Without ``back`` it leads back to the page of the form that was sent.
    """
    title = _TITLES.get(status, _TITLES[400])
    values = {"back": _find_form_page(request), **values}
    return render(request, "error.html", status=status, title=title, message=message, **values)


def _find_form_page(request: Request) -> str:
    """Return the path of the page on this site whose form was sent, empty if there is none."""
    origin, referer = f"{request.url.scheme}://{request.url.netloc}", request.headers.get("referer", "")
    if request.method != "POST" or not referer.startswith(f"{origin}/"):
        return ""
    return resolve_local_path(referer.removeprefix(origin))


def _respond_to_refusal(request: Request, error: RefusedError) -> Response:
    """Redirect to the login, and from there back to a page; show other refusals as an error page."""
    if error.status == 401:
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        back = f"?{urlencode({'next': path})}" if request.method == "GET" and path != "/" else ""
        return RedirectResponse(f"/login{back}", 303)
    response = render_error(request, error.status, error.message)
    response.headers.update(error.headers)
    return response


def describe_error(error: errors.ConsolidationError | RequestValidationError | HTTPException) -> tuple[int, str]:
    """Return HTTP status and message of an error."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        details = {f"{path.rpartition('.')[2]}: {problem}" for path, problem in explain_errors(error.errors()).items()}
        return 422, "; ".join(sorted(details))
    status, _, message = classify_error(error)
    return status, message
