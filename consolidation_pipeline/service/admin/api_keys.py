"""API keys: roles of the callers of the API and the MCP server.

The secret of a key is shown once, on creation; its SHA-256 is stored. A slow hash would make each request slower and
nothing safer, as the secret is long and random.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds, may_be_id
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.search.typed_scopes import resolve_scope
from consolidation_pipeline.store.admin import api_keys
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import get_project

# Continues a refusal.
OF_SCOPE = "it searches, asks for context, and lists, adds, edits and deletes memories"
# A role includes the roles before it.
ROLES = ("reader", "agent", "admin")

# Secret scanners recognise a key by its prefix.
PREFIX = "cnsl_"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_MAX_NAME_CHARS = 200


@dataclass(frozen=True)
class ApiKey:
    """API key without its secret. ``project``: slug; None = all projects. ``scope``: None = all scopes."""

    id: UUID
    name: str
    role: str
    project: str | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    scope: str | None = None


@dataclass(frozen=True)
class Principal:
    """Caller with its role.

    ``project_id``: None = all projects. ``key_id``: None = on this machine, without a key. ``scope``: key of the scope
    that it is limited to, None = all; such a caller searches, asks for context and adds memories, and nothing else.
    """

    role: str
    project_id: UUID | None = None
    project: str | None = None
    key_id: UUID | None = None
    name: str = "local"
    scope: str | None = None

    def has_role(self, role: str) -> bool:
        """Return True if the principal's role includes ``role``."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def identify_voter(self, session: str) -> str:
        """Return whose votes on memories the principal's are, by which they are counted.

        An agent is one voter whatever session it claims. Sessions that an admin names are voters of their own.
        """
        if self.writer is not None:
            return self.writer
        return f"session {session}" if session else f"admin {self.name}"

    @property
    def writer(self) -> str | None:
        """Writer of the memories that it adds; None for an admin, whose rows are trusted as an import is."""
        return None if self.role == "admin" else f"key:{self.key_id}"

    def can_access(self, project_id: UUID) -> bool:
        """Return True if the principal may access the project."""
        return self.project_id is None or self.project_id == project_id


LOCAL = Principal("admin")

# Function that returns the principal of a secret, or None if the secret is not valid.
Authenticate = Callable[[Engine, str], Principal | None]


def create_key(
    engine: Engine, *, role: str, project: str | None = None, name: str | None = None, scope: str | None = None
) -> tuple[ApiKey, str]:
    """Create a key for one project or for all, and return it with its secret, which is not stored.

    Args:
        role: One of ``ROLES``.
        project: Slug; None = all projects.
        name: Purpose of the key.
        scope: Key of a scope of the project, or its first values, such as a user id; None = all scopes.

    Raises:
        UsageError: The role is unknown, the name is blank or too long, the key cannot be limited to a scope, or several
            scopes may be meant.
        NotFoundError: There is no such project.
    """
    if scope is not None:
        scope = resolve_scope(engine, _check_scope(role, project, scope), scope)
    owner = f"{role} of {project or 'all projects'}"
    name = _check_key(role, name or (owner if scope is None else f"{owner}, scope {scope}"[:_MAX_NAME_CHARS]))
    secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    with engine.begin() as connection:
        project_id = None if project is None else get_project(connection, project).id
        id_ = api_keys.append_key(
            connection, key_hash=_hash(secret), role=role, project_id=project_id, name=name, scope=scope
        )
        (row,) = (row for row in api_keys.list_keys(connection) if row.id == id_)
    return _describe(row), secret


def _check_scope(role: str, project: str | None, scope: str) -> str:
    """Return the project. Raise UsageError if a key of this role cannot be limited to a scope."""
    if project is None:
        raise UsageError("a key of a scope needs a project: scopes of several projects have nothing in common")
    if role == "admin":
        raise UsageError("a key of a scope has the role reader or agent: an admin sees all scopes")
    if not scope or not scope.isprintable():
        raise UsageError(f"scope {scope!r} is not allowed: give the key of a scope, such as a user id")
    return project


def _check_key(role: str, name: str) -> str:
    """Return the name without surrounding blanks. Raise UsageError if role or name is not allowed."""
    if role not in ROLES:
        raise UsageError(f"role {role!r} does not exist; the roles are {', '.join(ROLES)}")
    if not name.isprintable() or not name.strip() or len(name) > _MAX_NAME_CHARS:
        raise UsageError(
            f"the name {name[:_MAX_NAME_CHARS]!r} is not allowed: use 1 to {_MAX_NAME_CHARS} printable characters"
        )
    return name.strip()


def list_keys(engine: Engine) -> list[ApiKey]:
    """Return all keys, oldest first, revoked ones included."""
    with engine.connect() as connection:
        return [_describe(row) for row in api_keys.list_keys(connection)]


def revoke_key(engine: Engine, id_or_name: UUID | str) -> ApiKey:
    """Revoke a key by its name, its id or at least the first 8 digits of it. Revoking it again changes nothing.

    Raises:
        UsageError: Several ids begin with these digits.
        NotFoundError: There is no such key.
        ConflictError: Several valid keys have this name; ``conflicts`` has their ids.
    """
    with engine.begin() as connection:
        row = _find_key(connection, str(id_or_name))
        api_keys.revoke_key(connection, row.id)
        (row,) = (found for found in api_keys.list_keys(connection) if found.id == row.id)
    return _describe(row)


def _find_key(connection: Connection, reference: str) -> Row[Any]:
    keys = api_keys.list_keys(connection)
    missing = f"there is no key {reference!r}; `consolidation keys list` lists them"
    named = [row for row in keys if reference.lower() == str(row.id) or reference == row.name]
    if not named and may_be_id(reference):
        first, last = find_bounds(reference, missing)
        chosen = choose_id(reference, [row.id for row in keys if first <= row.id <= last], missing)
        named = [row for row in keys if row.id == chosen]
    valid = [row for row in named if row.revoked_at is None]
    if len(valid) > 1:
        ids = tuple(str(row.id) for row in valid)
        raise ConflictError(f"{len(valid)} keys are named {reference!r}: revoke them by id, {', '.join(ids)}", ids)
    if not named:
        raise NotFoundError(missing)
    return (valid or named)[0]


def authenticate(engine: Engine, secret: str) -> Principal | None:
    """Return the principal of a secret, or None if it is no valid key. Record the use at most once a minute."""
    if not _SECRET_PATTERN.fullmatch(secret):
        return None
    hashed = _hash(secret)
    with autocommit_connection(engine) as connection:
        row = api_keys.find_key(connection, hashed)
    if row is None or not hmac.compare_digest(row.key_hash, hashed):
        return None
    return _record_use(engine, row)


def load_principal(engine: Engine, key_id: UUID) -> Principal | None:
    """Return the principal of a key that was authenticated before, or None if it was revoked. Record the use."""
    with autocommit_connection(engine) as connection:
        row = api_keys.get_key(connection, key_id)
    return None if row is None else _record_use(engine, row)


def _record_use(engine: Engine, row: Row[Any]) -> Principal:
    if row.last_used_at is None or datetime.now(UTC) - row.last_used_at > api_keys.TOUCH_INTERVAL:
        with engine.begin() as connection:
            api_keys.touch_key(connection, row.id)
    return Principal(row.role, row.project_id, row.slug, row.id, row.name, row.scope_key)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _describe(row: Row[Any]) -> ApiKey:
    times = row.created_at, row.last_used_at, row.revoked_at
    return ApiKey(row.id, row.name, row.role, row.slug, *times, row.scope_key)
