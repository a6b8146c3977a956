"""API keys: the hash of each secret, its role and its project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

# Often enough to find keys that nobody uses, without a write for each request.
TOUCH_INTERVAL = timedelta(minutes=1)

_APPEND_KEY = """
    INSERT INTO consolidation.api_keys (key_hash, role, project_id, name, scope_key)
    VALUES (:key_hash, :role, :project_id, :name, :scope) RETURNING id
"""


def append_key(
    connection: Connection, *, key_hash: str, role: str, project_id: UUID | None, name: str, scope: str | None
) -> UUID:
    """Insert a key and return its id. ``scope``: key of the scope that it is limited to."""
    values = {"key_hash": key_hash, "role": role, "project_id": project_id, "name": name, "scope": scope}
    id_: UUID = connection.execute(text(_APPEND_KEY), values).scalar_one()
    return id_


_LIST_KEYS = """
    SELECT k.*, p.slug FROM consolidation.api_keys k LEFT JOIN consolidation.projects p ON p.id = k.project_id
    ORDER BY k.created_at, k.id
"""


def list_keys(connection: Connection) -> Sequence[Row[Any]]:
    """Return all keys with the slugs of their projects, oldest first."""
    return connection.execute(text(_LIST_KEYS)).all()


_FIND_KEY = """
    SELECT k.*, p.slug FROM consolidation.api_keys k LEFT JOIN consolidation.projects p ON p.id = k.project_id
    WHERE k.key_hash = :key_hash AND k.revoked_at IS NULL
"""


def find_key(connection: Connection, key_hash: str) -> Row[Any] | None:
    """Return the key with this hash, or None if there is none or it was revoked."""
    return connection.execute(text(_FIND_KEY), {"key_hash": key_hash}).one_or_none()


_GET_KEY = """
    SELECT k.*, p.slug FROM consolidation.api_keys k LEFT JOIN consolidation.projects p ON p.id = k.project_id
    WHERE k.id = :key AND k.revoked_at IS NULL
"""


def get_key(connection: Connection, key_id: UUID) -> Row[Any] | None:
    """Return the key with this id, or None if there is none or it was revoked."""
    return connection.execute(text(_GET_KEY), {"key": key_id}).one_or_none()


_TOUCH_KEY = """
    UPDATE consolidation.api_keys SET last_used_at = now()
    WHERE id = :key AND (last_used_at IS NULL OR last_used_at <= now() - CAST(:interval AS interval))
"""


def touch_key(connection: Connection, key_id: UUID) -> bool:
    """Record that a key is used now, at most once per ``TOUCH_INTERVAL``. Return True if it was recorded."""
    return bool(connection.execute(text(_TOUCH_KEY), {"key": key_id, "interval": TOUCH_INTERVAL}).rowcount)


_REVOKE_KEY = "UPDATE consolidation.api_keys SET revoked_at = now() WHERE id = :key AND revoked_at IS NULL"


def revoke_key(connection: Connection, key_id: UUID) -> bool:
    """Revoke a key. Return False if it was revoked before."""
    return bool(connection.execute(text(_REVOKE_KEY), {"key": key_id}).rowcount)
