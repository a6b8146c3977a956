"""Keys of the API: their hashes, and what each may do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, insert, select, text, update

from consolidation_pipeline.store.database.schema import api_keys, projects

# Often enough to see which keys nobody uses any more, and no write per request.
TOUCHED_EVERY = timedelta(minutes=1)


def append_key(connection: Connection, *, key_hash: str, role: str, project_id: UUID | None, name: str) -> UUID:
    """A new key; returns its id."""
    values = {"key_hash": key_hash, "role": role, "project_id": project_id, "name": name}
    id_: UUID = connection.execute(insert(api_keys).values(**values).returning(api_keys.c.id)).scalar_one()
    return id_


def list_keys(connection: Connection) -> Sequence[Row[Any]]:
    """All keys with the slugs of their projects, oldest first."""
    return connection.execute(_keys().order_by(api_keys.c.created_at, api_keys.c.id)).all()


def find_key(connection: Connection, key_hash: str) -> Row[Any] | None:
    """The key with this hash, unless it was revoked."""
    query = _keys().where(api_keys.c.key_hash == key_hash, api_keys.c.revoked_at.is_(None))
    return connection.execute(query).one_or_none()


def get_key(connection: Connection, key_id: UUID) -> Row[Any] | None:
    """The key with this id, unless it was revoked."""
    query = _keys().where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    return connection.execute(query).one_or_none()


def _keys() -> Select[Any]:
    return select(api_keys, projects.c.slug).outerjoin(projects, projects.c.id == api_keys.c.project_id)


def touch_key(connection: Connection, key_id: UUID) -> bool:
    """Note that a key is used now, at most once a minute; whether it was noted."""
    query = """
        UPDATE consolidation.api_keys SET last_used_at = now()
        WHERE id = :key AND (last_used_at IS NULL OR last_used_at <= now() - CAST(:every AS interval))
    """
    return bool(connection.execute(text(query), {"key": key_id, "every": TOUCHED_EVERY}).rowcount)


def revoke_key(connection: Connection, key_id: UUID) -> bool:
    """From now on the key opens nothing. False when it was revoked before."""
    query = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    return bool(connection.execute(query.values(revoked_at=text("now()"))).rowcount)
