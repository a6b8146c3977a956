"""Authentication and authorization: an API key has a role and may be bound to one project.

Without a key only health and metrics answer.
"""

from __future__ import annotations

import time
from asyncio import Task, create_task, shield
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from threading import Lock
from typing import Annotated
from uuid import UUID

from cachetools import TTLCache, cached
from fastapi import Depends, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from consolidation_pipeline.api.problems import RefusedError
from consolidation_pipeline.api.query_parameters import refuse_unknown_parameters
from consolidation_pipeline.api.rate_limit import RateLimiter
from consolidation_pipeline.api.request_log import log_fields
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.admin.api_keys import LOCAL, OF_SCOPE, Authenticate, Principal
from consolidation_pipeline.service.admin.projects import find_owners, find_project
from consolidation_pipeline.service.search.typed_scopes import is_named, resolve_scope
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import Project

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="consolidation"'}
# Keys and projects are cached for this long, so a revoked key or a changed option takes effect after it.
_CACHE_SECONDS = 1.0
_CACHE_SIZE = 1_000
_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="`Authorization: Bearer KEY`")
_api_key_header = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="header", description="`X-API-Key: KEY`")


def create_key_cache(timer: Callable[[], float] = time.monotonic) -> TTLCache[bytes, Principal]:
    """Return an empty cache: ``_hash_secret`` of a valid key -> principal. Only the event loop may use it: no lock."""
    return TTLCache(_CACHE_SIZE, _CACHE_SECONDS, timer)


def create_project_finder(engine: Engine, timer: Callable[[], float] = time.monotonic) -> Callable[[str], Project]:
    """Return a ``find_project`` for this store that caches what it found. Threads may share it."""
    return cached(TTLCache(_CACHE_SIZE, _CACHE_SECONDS, timer), lock=Lock())(partial(find_project, engine))


def _hash_secret(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True)
class Caller:
    """The caller of a request: its principal, and access to the rows that belong to it."""

    principal: Principal
    request: Request

    @property
    def engine(self) -> Engine:
        """The store."""
        engine: Engine = self.request.app.state.engine
        return engine

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        settings: Settings = self.request.app.state.settings
        return settings

    @property
    def name(self) -> str:
        """Name recorded in the ledger (``changed_by``)."""
        return f"api:{self.principal.name}"

    def find_project(self, reference: str, *, allow_cached: bool = False) -> Project:
        """Return the project with this slug or id.

        Args:
            allow_cached: a cached copy, at most one second old, is enough.

        Raises:
            NotFoundError: the project does not exist.
            RefusedError: 403, the key is bound to another project. The caller does not learn whether this one exists.
        """
        own = self.principal.project_id
        find = self.request.app.state.find_recent_project if allow_cached else partial(find_project, self.engine)
        try:
            project: Project = find(reference)
        except NotFoundError:
            if own is not None:
                raise self._other_project() from None
            raise
        if not self.principal.can_access(project.id):
            raise self._other_project()
        self.add_log_fields(project=project.slug)
        return project

    def limit_scope(self, scope: str | None, project: Project) -> str | None:
        """Return the scope of a search: the key's own, else the one asked for; None = all.

        Raises:
            RefusedError: 403, the key is limited to another scope.
            UsageError: several scopes may be meant.
        """
        own = self.principal.scope
        if own is None:
            return resolve_scope(self.engine, project, scope)
        if scope is not None and not is_named(own, project, scope):
            raise RefusedError(403, f"this key is for scope {own} only")
        return own

    def require_all_projects(self) -> None:
        """Raise RefusedError (403) if the key is for one project."""
        if self.principal.project_id is not None:
            raise self._other_project()

    def _other_project(self) -> RefusedError:
        return RefusedError(403, f"this key is for project {self.principal.project} only")

    def add_log_fields(self, **fields: object) -> None:
        """Add fields to the log line of this request."""
        log_fields(self.request).update(fields)

    def check_owner(self, ids: Iterable[UUID], *, noun: str) -> None:
        """Raise NotFoundError unless all rows belong to the key's project.

        A key for all projects passes: the service reports rows that do not exist.

        Args:
            ids: of memories, playbook entries, jobs, changes, groups of changes or suggestions.
            noun: kind of the rows, for the log and the message.

        Raises:
            NotFoundError: a row belongs to another project or does not exist. The message does not tell which.
        """
        id_list = list(ids)
        self.add_log_fields(**{noun: ",".join(map(str, id_list[:3]))})
        if self.principal.project_id is None:
            return
        owners = find_owners(self.engine, id_list)
        for id_ in id_list:
            if id_ not in owners or not self.principal.can_access(owners[id_]):
                raise NotFoundError(f"there is no {noun} {id_}")


def require_role(role: str, *, of_scope: bool = False) -> Callable[..., Awaitable[Caller]]:
    """Return a FastAPI dependency that yields the caller if the key has at least this role.

    Without ``of_scope``, keys that are limited to a scope are refused: such a route would have to leave out the rows of
    other scopes.

    The dependency raises RefusedError: 401 without a valid key, 403 for a lower role, 429 for too many requests. After
    that it refuses unknown query parameters.
    """

    async def check(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        header: Annotated[str | None, Security(_api_key_header)],
    ) -> Caller:
        principal = await _authenticate(request, bearer.credentials if bearer else header)
        count_request(request, principal)
        if not principal.has_role(role):
            raise RefusedError(403, f"this needs the role {role}; the key has the role {principal.role}")
        if principal.scope is not None and not of_scope:
            raise RefusedError(403, f"this key is for scope {principal.scope} only: {OF_SCOPE}")
        await refuse_unknown_parameters(request)
        return Caller(principal, request)

    return check


def count_request(request: Request, principal: Principal) -> None:
    """Add the key to the log line and count the request.

    Raises:
        RefusedError: 429, the key made too many requests.
    """
    log_fields(request)["key"] = principal.key_id or principal.name
    limiter: RateLimiter = request.app.state.limiter
    if wait := limiter.take(str(principal.key_id)):
        raise RefusedError(429, f"too many requests: try again in {wait} s", headers={"Retry-After": str(wait)})


async def _authenticate(request: Request, secret: str | None) -> Principal:
    """Return the principal of a request: of its key or, with authentication off, the local admin."""
    if request.app.state.settings.api_auth == "off":
        if not is_loopback(request.url.hostname or ""):  # a web page pointed its own host name at this machine
            raise RefusedError(403, "without keys, the API answers only requests to a loopback address")
        return LOCAL
    principal = await _find_principal(request, secret) if secret else None
    if principal is None:
        message = "the key is not valid or was revoked" if secret else "a key is needed: Authorization: Bearer KEY"
        raise RefusedError(401, message, headers=_CHALLENGE)
    return principal


async def _find_principal(request: Request, secret: str) -> Principal | None:
    """Return the principal of a key, None if it is not valid. Requests that come meanwhile wait for the same answer."""
    recent: TTLCache[bytes, Principal] = request.app.state.recent_keys
    hashed = _hash_secret(secret)
    if (known := recent.get(hashed)) is not None:
        return known
    asked: dict[bytes, Task[Principal | None]] = request.app.state.asked_keys
    if hashed not in asked:
        authenticate: Authenticate = request.app.state.authenticate
        asked[hashed] = create_task(run_in_threadpool(authenticate, request.app.state.engine, secret))
        asked[hashed].add_done_callback(lambda _: asked.pop(hashed))
    principal = await shield(asked[hashed])
    if principal is not None:
        recent[hashed] = principal
    return principal


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach ``host``."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: Settings) -> None:
    """Raise UsageError if authentication is off and the network can reach the API."""
    if settings.api_auth == "off" and not is_loopback(settings.api_host):
        raise UsageError(
            f"CONSOLIDATION_API_AUTH=off needs a loopback host such as 127.0.0.1, not {settings.api_host}; "
            "on any other address, keys are required"
        )


# What a key of a scope may do.
ScopedReader = Annotated[Caller, Depends(require_role("reader", of_scope=True))]
ScopedAgent = Annotated[Caller, Depends(require_role("agent", of_scope=True))]
Reader = Annotated[Caller, Depends(require_role("reader"))]
Agent = Annotated[Caller, Depends(require_role("agent"))]
Admin = Annotated[Caller, Depends(require_role("admin"))]
