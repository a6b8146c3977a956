"""Log in with a key, log out, and the files that every page needs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.api.pages.page_session import COOKIE, Filled, check_host, find_token, is_open, sessions_of
from consolidation_pipeline.api.pages.query_params import back_to
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.service.admin.api_keys import Authenticate

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_START = "/review"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@router.get("/")
def start() -> Response:
    """The page that people come for."""
    return RedirectResponse(_START, 303)


@router.get("/login")
def show_login(request: Request, next: str = "") -> Response:
    """A form that takes a key."""
    check_host(request)
    return RedirectResponse(_START, 303) if is_open(request) else _show(request, next)


def _show(request: Request, back: str, *, status: int = 200, message: str = "") -> Response:
    token = find_token(request)
    return render(
        request,
        "login.html",
        status=status,
        message=message,
        next=back_to(back),
        form_token=sessions_of(request).form_token(token),
    )


@router.post("/login")
def log_in(request: Request, form: Filled) -> Response:
    """Begin a session with a key."""
    check_host(request)
    authenticate: Authenticate = request.app.state.authenticate
    principal = authenticate(request.app.state.engine, form.get("key", "").strip())
    back = form.get("next", "")
    if principal is None:
        message = (
            "This key is not valid, or it was revoked. Keys begin with cnsl_ and are shown once, when they are made."
        )
        return _show(request, back, status=401, message=message)
    request.state.new_session = sessions_of(request).begin(principal.key_id)
    return RedirectResponse(back_to(back, default=_START), 303)


@router.post("/logout")
def log_out(form: Filled) -> Response:
    """End the browser's session."""
    del form  # its token is all that counts
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
def read_file(name: Literal["pages.css", "pages.js", "icon.svg"]) -> Response:
    """A file that pages use; everybody may have it."""
    headers = {"Cache-Control": "no-cache"}
    return Response(_load(name), media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def _load(name: str) -> bytes:
    return files("consolidation_pipeline.api.pages").joinpath("static", name).read_bytes()
