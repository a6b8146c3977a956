"""Who may do what: a key says the role and the project; without one there is nothing but health and metrics."""

from __future__ import annotations

import time
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
from consolidation_pipeline.api.rate_limit import RateLimiter
from consolidation_pipeline.api.request_log import log_fields
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.admin.api_keys import LOCAL, Authenticate, Principal
from consolidation_pipeline.service.admin.ownership import find_owners, find_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import Project

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="consolidation"'}
# A busy caller's requests do not each look up the same. Revoked keys and changed options take effect after so long.
_CACHE_SECONDS = 1.0
_CACHE_SIZE = 1_000
_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="`Authorization: Bearer KEY`")
_api_key_header = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="header", description="`X-API-Key: KEY`")


def create_key_cache(timer: Callable[[], float] = time.monotonic) -> TTLCache[bytes, Principal]:
    """Return an empty cache of valid keys by ``_hash_secret``. It has no lock: only the event loop may use it."""
    return TTLCache(_CACHE_SIZE, _CACHE_SECONDS, timer)


def create_project_finder(engine: Engine, timer: Callable[[], float] = time.monotonic) -> Callable[[str], Project]:
    """Return a ``find_project`` for this store that caches what it found. Threads may share it."""
    return cached(TTLCache(_CACHE_SIZE, _CACHE_SECONDS, timer), lock=Lock())(partial(find_project, engine))


def _hash_secret(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True)
class Caller:
    """Who makes the request, and what of the store is theirs."""

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
        """The name that stands in the ledger for what is done here."""
        return f"api:{self.principal.name}"

    def find_project(self, reference: str, *, recent: bool = False) -> Project:
        """The project with this slug or id; with ``recent``, as it was within the last second.

        Raises:
            NotFoundError: there is none. Refused (403): it is not the key's, which does not learn whether it exists.
        """
        own = self.principal.project_id
        find = self.request.app.state.find_recent_project if recent else partial(find_project, self.engine)
        try:
            project: Project = find(reference)
        except NotFoundError:
            if own is not None:
                raise self._other_project() from None
            raise
        if not self.principal.sees(project.id):
            raise self._other_project()
        self.add_log_fields(project=project.slug)
        return project

    def _other_project(self) -> RefusedError:
        return RefusedError(403, f"this key is for project {self.principal.project} only")

    def add_log_fields(self, **what: object) -> None:
        """Have the log say so of this request."""
        log_fields(self.request).update(what)

    def check_owner(self, ids: Iterable[UUID], *, noun: str) -> None:
        """Check that rows belong to the key's project, whatever they are: memory, entry, job, change or group.

        With a key for all projects there is nothing to check: the service says what is not there.

        Raises:
            NotFoundError: a row belongs to another project, or is not there; which of the two is not told.
        """
        asked = list(ids)
        self.add_log_fields(**{noun: ",".join(map(str, asked[:3]))})
        if self.principal.project_id is None:
            return
        owners = find_owners(self.engine, asked)
        for id_ in asked:
            if id_ not in owners or not self.principal.sees(owners[id_]):
                raise NotFoundError(f"there is no {noun} {id_}")


def require_role(role: str) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the caller, who may do at least what ``role`` may.

    Raises:
        Refused: 401 without a valid key, 403 with one of a lesser role, 429 with too many requests.
    """

    async def check(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        header: Annotated[str | None, Security(_api_key_header)],
    ) -> Caller:
        principal = await _authenticate(request, bearer.credentials if bearer else header)
        count_request(request, principal)
        if not principal.may(role):
            raise RefusedError(403, f"this needs the role {role}; the key is for the role {principal.role}")
        return Caller(principal, request)

    return check


def count_request(request: Request, principal: Principal) -> None:
    """Note whose request it is, and count it. Raises Refused (429): the key has made too many."""
    log_fields(request)["key"] = principal.key_id or principal.name
    limiter: RateLimiter = request.app.state.limiter
    if wait := limiter.take(str(principal.key_id)):
        raise RefusedError(429, f"too many requests: try again in {wait} s", headers={"Retry-After": str(wait)})


async def _authenticate(request: Request, secret: str | None) -> Principal:
    """Whose request it is; with auth off, everyone on this machine may do everything."""
    if request.app.state.settings.api_auth == "off":
        if not is_loopback(request.url.hostname or ""):  # a web page that points its own name at this machine
            raise RefusedError(403, "without keys this API answers to its loopback address only")
        return LOCAL
    recent: TTLCache[bytes, Principal] = request.app.state.recent_keys
    principal = recent.get(_hash_secret(secret)) if secret else None
    if secret and principal is None:
        authenticate: Authenticate = request.app.state.authenticate
        principal = await run_in_threadpool(authenticate, request.app.state.engine, secret)
        if principal is not None:
            recent[_hash_secret(secret)] = principal
    if principal is None:
        why = "the key is not valid or was revoked" if secret else "a key is needed: Authorization: Bearer KEY"
        raise RefusedError(401, why, headers=_CHALLENGE)
    return principal


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach ``host``."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: Settings) -> None:
    """Raises UsageError where everyone on the network could do everything."""
    if settings.api_auth == "off" and not is_loopback(settings.api_host):
        raise UsageError(
            f"CONSOLIDATION_API_AUTH=off needs a loopback host such as 127.0.0.1, not {settings.api_host}: "
            "on the network, keys are needed"
        )


Reader = Annotated[Caller, Depends(require_role("reader"))]
Agent = Annotated[Caller, Depends(require_role("agent"))]
Admin = Annotated[Caller, Depends(require_role("admin"))]
