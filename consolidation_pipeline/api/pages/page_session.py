"""Visitors of the pages: a session, started with a key, and a form token against cross-site requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.access import Caller, count_request, is_loopback
from consolidation_pipeline.api.pages.query_params import resolve_local_path
from consolidation_pipeline.api.problems import RefusedError
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.admin.api_keys import LOCAL, OF_SCOPE, Principal
from consolidation_pipeline.service.admin.browser_sessions import SESSION_SECONDS, BrowserSessions

SESSION_COOKIE = "consolidation_session"
FORM_TOKEN_FIELD = "form_token"  # name of a form field, not a secret
_STALE_FORM_MESSAGE = "this form is from an expired page or from another site; go back, reload the page and try again"
_MAX_FIELDS = 50

Form = Mapping[str, str]


@dataclass(frozen=True)
class Visitor(Caller):
    """A caller in a browser; ``token`` is the session's."""

    token: str

    @property
    def name(self) -> str:
        """Name recorded in the ledger (``changed_by``)."""
        return f"web:{self.principal.name}"

    @property
    def form_token(self) -> str:
        """Token that the forms of this session carry."""
        return get_sessions(self.request).form_token(self.token)

    @property
    def can_decide(self) -> bool:
        """True if this visitor may change anything."""
        return self.principal.has_role("admin")

    def check_project(self, slug: str, suggestion: UUID) -> None:
        """Raise NotFoundError if a suggestion belongs to a project that the visitor may not see."""
        if self.principal.project not in (None, slug):
            raise NotFoundError(f"there is no suggestion {suggestion}")
        self.add_log_fields(project=slug)


def get_sessions(request: Request) -> BrowserSessions:
    """Return the sessions of the application."""
    sessions: BrowserSessions = request.app.state.sessions
    return sessions


def find_session_token(request: Request) -> str:
    """Return the token of the browser's session; start an anonymous session if there is no valid one."""
    sessions, token = get_sessions(request), request.cookies.get(SESSION_COOKIE, "")
    if not sessions.is_valid(token):
        token = sessions.create_token(None)
        request.state.new_session = token
    return token


def set_session_cookie(request: Request, response: Response) -> None:
    """Set the cookie of a session that was started during this request, if any."""
    token = getattr(request.state, "new_session", None)
    if token is not None:
        response.set_cookie(
            SESSION_COOKIE,
            token,
            max_age=SESSION_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


async def read_form(request: Request) -> Form:
    """Return the fields of a form; of fields with the same name, the last.

    Raises:
        RefusedError: 400, the form cannot be read; 403, its token is not of this session.
    """
    try:
        fields = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise RefusedError(400, "the form cannot be read") from None
    form = {name: value.replace("\r\n", "\n").replace("\0", "") for name, value in fields}
    token = request.cookies.get(SESSION_COOKIE, "")
    sessions = get_sessions(request)
    if not sessions.is_valid(token) or not sessions.is_valid_form(token, form.get(FORM_TOKEN_FIELD, "")):
        raise RefusedError(403, _STALE_FORM_MESSAGE)
    return form


def redirect_back(form: Form, done: UUID, *, default: str) -> Response:
    """Redirect to the page of the form. ``done``: id of the suggestion or group of changes for the page's notice."""
    back = resolve_local_path(form.get("back", ""), default=default)
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}done={done}", 303)


def require_visitor(role: str) -> Callable[..., Visitor]:
    """Return a FastAPI dependency that yields the visitor if its key has at least this role.

    The dependency raises RefusedError: 401 without a session, 403 for a lower role, 429 for too many requests.
    """

    def check(request: Request) -> Visitor:
        token = find_session_token(request)
        principal = _authenticate(request, token)
        count_request(request, principal)
        visitor = Visitor(principal, request, token)
        request.state.visitor = visitor
        if not principal.has_role(role):
            raise RefusedError(
                403,
                f"this needs a key with the role {role}; yours has the role {principal.role}, which may only read",
            )
        return visitor

    return check


def _authenticate(request: Request, token: str) -> Principal:
    check_host(request)
    if is_auth_off(request):
        return LOCAL
    principal = get_sessions(request).find_principal(request.app.state.engine, token)
    if principal is None:
        raise RefusedError(401, "log in first")
    if principal.scope is not None:
        raise RefusedError(403, f"this key is for scope {principal.scope} only: {OF_SCOPE}")
    return principal


def is_auth_off(request: Request) -> bool:
    """Return True if authentication is off."""
    return bool(request.app.state.settings.api_auth == "off")


def check_host(request: Request) -> None:
    """Raise RefusedError (403) if authentication is off and the host name in the request is not a loopback one."""
    if is_auth_off(request) and not is_loopback(request.url.hostname or ""):
        raise RefusedError(403, "without keys, the pages answer only requests to a loopback address")


ReaderVisitor = Annotated[Visitor, Depends(require_visitor("reader"))]
AdminVisitor = Annotated[Visitor, Depends(require_visitor("admin"))]
SubmittedForm = Annotated[Form, Depends(read_form)]
