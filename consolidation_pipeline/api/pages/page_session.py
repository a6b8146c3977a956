"""Who looks at a page: somebody with a session, which a key began. Every form carries a token of that session."""

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
from consolidation_pipeline.service.admin.api_keys import LOCAL, Principal
from consolidation_pipeline.service.admin.browser_sessions import LASTS_SECONDS, Sessions

SESSION_COOKIE = "consolidation_session"
FORM_TOKEN_FIELD = "form_token"  # the name of a field, no secret
_STALE_FORM_MESSAGE = (
    "this form is from a page that is too old, or from another site: go back, reload the page and try again"
)
_MAX_FIELDS = 50

Form = Mapping[str, str]


@dataclass(frozen=True)
class Visitor(Caller):
    """A caller in a browser."""

    token: str

    @property
    def name(self) -> str:
        """The name that stands in the ledger for what is decided here."""
        return f"web:{self.principal.name}"

    @property
    def form_token(self) -> str:
        """What the forms of this session carry."""
        return get_sessions(self.request).form_token(self.token)

    @property
    def can_decide(self) -> bool:
        """Whether this person may change anything."""
        return self.principal.may("admin")

    def check_project(self, slug: str, *, noun: str, id_: UUID) -> None:
        """Check that something that belongs to a project may be seen. Raises NotFoundError, as if it was not there."""
        if self.principal.project not in (None, slug):
            raise NotFoundError(f"there is no {noun} {id_}")
        self.add_log_fields(project=slug)


def get_sessions(request: Request) -> Sessions:
    """The sessions of the application."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def find_session_token(request: Request) -> str:
    """The token of the browser's session; a new one, of nobody, where it has none that is valid."""
    sessions, token = get_sessions(request), request.cookies.get(SESSION_COOKIE, "")
    if not sessions.is_valid(token):
        token = sessions.begin(None)
        request.state.new_session = token
    return token


def set_session_cookie(request: Request, response: Response) -> None:
    """Give the browser the session that was begun while answering, if one was."""
    token = getattr(request.state, "new_session", None)
    if token is not None:
        response.set_cookie(
            SESSION_COOKIE,
            token,
            max_age=LASTS_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


async def read_form(request: Request) -> Form:
    """The fields of a form; the last of each name counts. Refused (403): it carries no token of this session."""
    try:
        fields = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise RefusedError(400, "this is not a form that can be read") from None
    form = {name: value.replace("\r\n", "\n").replace("\0", "") for name, value in fields}
    token = request.cookies.get(SESSION_COOKIE, "")
    sessions = get_sessions(request)
    if not sessions.is_valid(token) or not sessions.fits(token, form.get(FORM_TOKEN_FIELD, "")):
        raise RefusedError(403, _STALE_FORM_MESSAGE)
    return form


def redirect_back(form: Form, done: UUID, *, default: str) -> Response:
    """To the page that the form came from, which tells what was ``done``: a suggestion or a group of changes."""
    back = resolve_local_path(form.get("back", ""), default=default)
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}done={done}", 303)


def require_visitor(role: str) -> Callable[..., Visitor]:
    """A dependency: the visitor, who may do at least what ``role`` may.

    Raises:
        Refused: 401 for nobody, 403 with a key of a lesser role, 429 with too many requests.
    """

    def check(request: Request) -> Visitor:
        token = find_session_token(request)
        principal = _authenticate(request, token)
        count_request(request, principal)
        visitor = Visitor(principal, request, token)
        request.state.visitor = visitor
        if not principal.may(role):
            raise RefusedError(
                403, f"this needs a key of the role {role}; yours is for the role {principal.role}: you can look"
            )
        return visitor

    return check


def _authenticate(request: Request, token: str) -> Principal:
    check_host(request)
    if is_auth_off(request):
        return LOCAL
    principal = get_sessions(request).identify(request.app.state.engine, token)
    if principal is None:
        raise RefusedError(401, "log in first")
    return principal


def is_auth_off(request: Request) -> bool:
    """Whether nobody needs a key."""
    return bool(request.app.state.settings.api_auth == "off")


def check_host(request: Request) -> None:
    """Raises Refused (403): there are no keys, and a web page points its own name at this machine."""
    if is_auth_off(request) and not is_loopback(request.url.hostname or ""):
        raise RefusedError(403, "without keys these pages answer to their loopback address only")


ReaderVisitor = Annotated[Visitor, Depends(require_visitor("reader"))]
AdminVisitor = Annotated[Visitor, Depends(require_visitor("admin"))]
SubmittedForm = Annotated[Form, Depends(read_form)]
