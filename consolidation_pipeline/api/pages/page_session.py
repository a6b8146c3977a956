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

from consolidation_pipeline.api.access import Caller, admit, is_loopback
from consolidation_pipeline.api.pages.query_params import back_to
from consolidation_pipeline.api.problems import Refused
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.admin.api_keys import LOCAL, Principal
from consolidation_pipeline.service.admin.browser_sessions import LASTS_SECONDS, Sessions

COOKIE = "consolidation_session"
FORM_TOKEN = "form_token"  # the name of a field, no secret
_STALE = "this form is from a page that is too old, or from another site: go back, reload the page and try again"
_MOST_FIELDS = 50

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
        return sessions_of(self.request).form_token(self.token)

    @property
    def decides(self) -> bool:
        """Whether this person may change anything."""
        return self.principal.may("admin")

    def own_project(self, slug: str, *, noun: str, id_: UUID) -> None:
        """Check that something that belongs to a project may be seen. Raises NotFoundError, as if it was not there."""
        if self.principal.project not in (None, slug):
            raise NotFoundError(f"there is no {noun} {id_}")
        self.note(project=slug)


def sessions_of(request: Request) -> Sessions:
    """The sessions of the application."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def find_token(request: Request) -> str:
    """The token of the browser's session; a new one, of nobody, where it has none that is valid."""
    sessions, token = sessions_of(request), request.cookies.get(COOKIE, "")
    if not sessions.is_valid(token):
        token = sessions.begin(None)
        request.state.new_session = token
    return token


def keep_session(request: Request, response: Response) -> None:
    """Give the browser the session that was begun while answering, if one was."""
    token = getattr(request.state, "new_session", None)
    if token is not None:
        response.set_cookie(
            COOKIE,
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
        fields = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refused(400, "this is not a form that can be read") from None
    form = {name: value.replace("\r\n", "\n").replace("\0", "") for name, value in fields}
    token = request.cookies.get(COOKIE, "")
    sessions = sessions_of(request)
    if not sessions.is_valid(token) or not sessions.fits(token, form.get(FORM_TOKEN, "")):
        raise Refused(403, _STALE)
    return form


def go_back(form: Form, done: UUID, *, default: str) -> Response:
    """To the page that the form came from, which tells what was ``done``: a suggestion or a group of changes."""
    back = back_to(form.get("back", ""), default=default)
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}done={done}", 303)


def visiting(role: str) -> Callable[..., Visitor]:
    """A dependency: the visitor, who may do at least what ``role`` may.

    Raises:
        Refused: 401 for nobody, 403 with a key of a lesser role, 429 with too many requests.
    """

    def check(request: Request) -> Visitor:
        token = find_token(request)
        principal = _identify(request, token)
        admit(request, principal)
        visitor = Visitor(principal, request, token)
        request.state.visitor = visitor
        if not principal.may(role):
            raise Refused(
                403, f"this needs a key of the role {role}; yours is for the role {principal.role}: you can look"
            )
        return visitor

    return check


def _identify(request: Request, token: str) -> Principal:
    check_host(request)
    if is_open(request):
        return LOCAL
    principal = sessions_of(request).identify(request.app.state.engine, token)
    if principal is None:
        raise Refused(401, "log in first")
    return principal


def is_open(request: Request) -> bool:
    """Whether nobody needs a key."""
    return bool(request.app.state.settings.api_auth == "off")


def check_host(request: Request) -> None:
    """Raises Refused (403): there are no keys, and a web page points its own name at this machine."""
    if is_open(request) and not is_loopback(request.url.hostname or ""):
        raise Refused(403, "without keys these pages answer to their loopback address only")


Guest = Annotated[Visitor, Depends(visiting("reader"))]
Host = Annotated[Visitor, Depends(visiting("admin"))]
Filled = Annotated[Form, Depends(read_form)]
