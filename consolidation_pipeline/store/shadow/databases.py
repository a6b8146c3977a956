"""Databases of shadows: one for each, beside the database of memories on the same server, with the same schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.engine import connect_engine, upgrade
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.sql import quote_literal

_PREFIX = "consolidation_shadow_"

_LIST_DATABASES = """
    SELECT datname, shobj_description(oid, 'pg_database') AS described FROM pg_database
    WHERE starts_with(datname, :prefix) AND shobj_description(oid, 'pg_database') IS NOT NULL ORDER BY datname
"""


def list_shadows(engine: Engine, project_id: UUID) -> dict[str, str]:
    """Return the shadows of a project: name -> name of the database."""
    with autocommit_connection(engine) as connection:
        rows = connection.execute(text(_LIST_DATABASES), {"prefix": _PREFIX}).all()
    owner = {"of": engine.url.database, "project_id": str(project_id)}
    described = {row.datname: json.loads(row.described) for row in rows}
    return {one["name"]: database for database, one in described.items() if owner.items() <= one.items()}


_CREATE_DATABASE = "CREATE DATABASE {}"


def create_shadow(engine: Engine, project_id: UUID, name: str) -> Engine:
    """Create the database of a shadow with an empty schema. One that is there already is dropped.

    Raises:
        StoreError: The user may not create a database, or not the extension ``vector`` in it.
    """
    described = {"of": engine.url.database, "project_id": str(project_id), "name": name}
    database = _PREFIX + sha256(json.dumps(described).encode()).hexdigest()[:16]
    drop_shadow(engine, database)
    try:
        with autocommit_connection(engine) as connection:
            connection.execute(text(_CREATE_DATABASE.format(database)))
            connection.execute(text(f"COMMENT ON DATABASE {database} IS {quote_literal(json.dumps(described))}"))
    except DBAPIError as error:
        reason = str(error.orig).strip()
        raise StoreError(f"a shadow needs a database of its own, which this user may not create: {reason}") from error
    shadow = open_shadow(engine, database)
    try:
        upgrade(shadow)
    except StoreError as error:
        drop_shadow(engine, database)
        raise StoreError(
            f"a shadow needs a database of its own: {error}; in the database template1 it counts for every new database"
        ) from error
    return shadow


def open_shadow(engine: Engine, database: str) -> Engine:
    """Return an engine on the database of a shadow."""
    return connect_engine(engine.url.set(database=database).render_as_string(hide_password=False))


def drop_shadow(engine: Engine, database: str) -> None:
    """Drop the database of a shadow, if it is there, and end its connections."""
    open_shadow(engine, database).dispose()
    with autocommit_connection(engine) as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)"))


def drop_shadows(engine: Engine, project_id: UUID) -> None:
    """Drop all shadows of a project: they are copies of its memories."""
    for database in list_shadows(engine, project_id).values():
        drop_shadow(engine, database)


_CREATE_STATE = "CREATE TABLE public.shadow (name text PRIMARY KEY, value jsonb NOT NULL)"
_HAS_STATE = "SELECT to_regclass('public.shadow') IS NOT NULL"
_READ_STATE = "SELECT name, value FROM public.shadow"
_WRITE_STATE = """
    INSERT INTO public.shadow (name, value) SELECT key, value FROM jsonb_each(CAST(:state AS jsonb))
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""


def read_state(connection: Connection) -> dict[str, Any]:
    """Return what is noted about a shadow, in its database; empty if its snapshot is not complete."""
    if not connection.execute(text(_HAS_STATE)).scalar():
        return {}
    return dict(connection.execute(text(_READ_STATE)).tuples().all())


def write_state(connection: Connection, state: Mapping[str, Any]) -> None:
    """Note something about a shadow, by name."""
    if not connection.execute(text(_HAS_STATE)).scalar():
        connection.execute(text(_CREATE_STATE))
    connection.execute(text(_WRITE_STATE), {"state": json.dumps(dict(state))})
