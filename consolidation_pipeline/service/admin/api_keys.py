"""Keys: who may call the API and the MCP server, and what they may do there.

A key is shown once, when it is made; what is stored is its SHA-256. It is long and random, so that a slow hash would
only make every request slower.
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

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.admin import api_keys
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import get_project

# Each may do what those before it may.
ROLES = ("reader", "agent", "admin")

# By the prefix, scanners recognise a key that was committed or logged by mistake.
PREFIX = "cnsl_"
_BYTES = 32
_SHAPE = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class KeyInfo:
    """What may be told about a key. ``project`` None: it is for all projects."""

    id: UUID
    name: str
    role: str
    project: str | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class Principal:
    """Who calls: a role, for one project or for all (None). ``key_id`` None: not by a key, but from this machine."""

    role: str
    project_id: UUID | None = None
    project: str | None = None
    key_id: UUID | None = None
    name: str = "local"

    def may(self, role: str) -> bool:
        """Whether the principal may do what ``role`` may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, project_id: UUID) -> bool:
        """Whether what belongs to the project is there for the principal."""
        return self.project_id is None or self.project_id == project_id


LOCAL = Principal("admin")

# Whose key a secret is; None: it is no valid one.
Authenticate = Callable[[Engine, str], Principal | None]


def create_key(
    engine: Engine, *, role: str, project: str | None = None, name: str | None = None
) -> tuple[KeyInfo, str]:
    """A new key for one project, or for all, and its secret, which is stored nowhere.

    Raises:
        UsageError: an unknown role, or a name that is empty or too long. NotFoundError: no such project.
    """
    name = _check(role, name or f"{role} of {project or 'all projects'}")
    secret = PREFIX + secrets.token_urlsafe(_BYTES)
    with engine.begin() as connection:
        project_id = None if project is None else get_project(connection, project).id
        id_ = api_keys.append_key(connection, key_hash=_hash(secret), role=role, project_id=project_id, name=name)
        (row,) = (row for row in api_keys.list_keys(connection) if row.id == id_)
    return _describe(row), secret


def _check(role: str, name: str) -> str:
    if role not in ROLES:
        raise UsageError(f"role {role!r} does not exist; the roles are {', '.join(ROLES)}")
    if not name.isprintable() or not name.strip() or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"the name {name[:_LONGEST_NAME]!r} is not allowed: use 1 to {_LONGEST_NAME} printable characters"
        )
    return name.strip()


def list_keys(engine: Engine) -> list[KeyInfo]:
    """All keys, oldest first, revoked ones too."""
    with engine.connect() as connection:
        return [_describe(row) for row in api_keys.list_keys(connection)]


def revoke_key(engine: Engine, id_or_name: UUID | str) -> KeyInfo:
    """Revoke a key, by its id or by a name that no other valid key has. Doing it again changes nothing.

    Raises:
        NotFoundError: there is no such key. ConflictError: several valid keys have the name; ``conflicts``: their ids.
    """
    with engine.begin() as connection:
        row = _find(connection, str(id_or_name))
        api_keys.revoke_key(connection, row.id)
        (row,) = (found for found in api_keys.list_keys(connection) if found.id == row.id)
    return _describe(row)


def _find(connection: Connection, reference: str) -> Row[Any]:
    named = [row for row in api_keys.list_keys(connection) if reference.lower() == str(row.id) or reference == row.name]
    valid = [row for row in named if row.revoked_at is None]
    if len(valid) > 1:
        ids = tuple(str(row.id) for row in valid)
        raise ConflictError(f"{len(valid)} keys are named {reference!r}: revoke them by id, {', '.join(ids)}", ids)
    if not named:
        raise NotFoundError(f"there is no key {reference!r}; `consolidation keys list` lists them")
    return (valid or named)[0]


def authenticate(engine: Engine, secret: str) -> Principal | None:
    """Who calls with this secret; None when it is no valid key. Notes the use, at most once a minute."""
    if not _SHAPE.fullmatch(secret):
        return None
    hashed = _hash(secret)
    with autocommit_connection(engine) as connection:
        row = api_keys.find_key(connection, hashed)
    if row is None or not hmac.compare_digest(row.key_hash, hashed):
        return None
    return _note_use(engine, row)


def recognize(engine: Engine, key_id: UUID) -> Principal | None:
    """Who has this key, of which somebody proved before that it is theirs; None: it was revoked. Notes the use."""
    with autocommit_connection(engine) as connection:
        row = api_keys.get_key(connection, key_id)
    return None if row is None else _note_use(engine, row)


def _note_use(engine: Engine, row: Row[Any]) -> Principal:
    if row.last_used_at is None or datetime.now(UTC) - row.last_used_at > api_keys.TOUCHED_EVERY:
        with engine.begin() as connection:
            api_keys.touch_key(connection, row.id)
    return Principal(row.role, row.project_id, row.slug, row.id, row.name)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _describe(row: Row[Any]) -> KeyInfo:
    return KeyInfo(row.id, row.name, row.role, row.slug, row.created_at, row.last_used_at, row.revoked_at)
