"""Login with a key, logout, and static files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.api.pages.page_session import (
    SESSION_COOKIE,
    SubmittedForm,
    check_host,
    find_session_token,
    get_sessions,
    is_auth_off,
)
from consolidation_pipeline.api.pages.query_params import resolve_local_path
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.service.admin.api_keys import Authenticate

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_START_PATH = "/review"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@router.get("/")
def start() -> Response:
    """Redirect to the review page."""
    return RedirectResponse(_START_PATH, 303)


@router.get("/login")
def show_login(request: Request, next: str = "") -> Response:
    """Show the login form."""
    check_host(request)
    return RedirectResponse(_START_PATH, 303) if is_auth_off(request) else _render_login(request, next)


def _render_login(request: Request, back: str, *, status: int = 200, message: str = "") -> Response:
    token = find_session_token(request)
    return render(
        request,
        "login.html",
        status=status,
        message=message,
        next=resolve_local_path(back),
        form_token=get_sessions(request).form_token(token),
    )


@router.post("/login")
def log_in(request: Request, form: SubmittedForm) -> Response:
    """Start a session with a key."""
    check_host(request)
    authenticate: Authenticate = request.app.state.authenticate
    principal = authenticate(request.app.state.engine, form.get("key", "").strip())
    back = form.get("next", "")
    if principal is None:
        message = (
            "This key is not valid, or it was revoked. Keys start with cnsl_ and are shown only when they are created."
        )
        return _render_login(request, back, status=401, message=message)
    request.state.new_session = get_sessions(request).create_token(principal.key_id)
    return RedirectResponse(resolve_local_path(back, default=_START_PATH), 303)


@router.post("/logout")
def log_out(form: SubmittedForm) -> Response:
    """End the browser's session."""
    del form  # only its token is needed, which is checked already
    response = RedirectResponse("/login", 303)
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
def read_file(name: Literal["pages.css", "pages.js", "icon.svg"]) -> Response:
    """Return a static file; needs no key."""
    headers = {"Cache-Control": "no-cache"}
    return Response(_load(name), media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def _load(name: str) -> bytes:
    return files("consolidation_pipeline.api.pages").joinpath("static", name).read_bytes()
