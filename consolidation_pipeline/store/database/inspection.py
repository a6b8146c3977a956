"""State of the database: server version and load, schema revision, indexes, vectors by project."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Dialect, make_url, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.engine import connect, connect_engine, with_driver
from consolidation_pipeline.store.database.schema import SCHEMA, metadata


@dataclass(frozen=True)
class ServerVersions:
    """Versions of Postgres and pgvector, and the schema's revision. The last two are None before ``init``."""

    postgres: str
    pgvector: str | None
    revision: str | None


def describe_columns(table: str) -> list[tuple[str, str, str]]:
    """Return name, type in SQL and comment of the columns of a table of the schema."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    columns = metadata.tables[f"{SCHEMA}.{table}"].columns
    return [(column.name, column.type.compile(dialect), column.comment or "") for column in columns]


_SCHEMA_EXISTS = "SELECT to_regclass('consolidation.alembic_version') IS NOT NULL"
_SCHEMA_REVISION = "SELECT version_num FROM consolidation.alembic_version"
_PGVECTOR_VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"


def inspect_server(connection: Connection) -> ServerVersions:
    """Return the versions of Postgres, pgvector and the schema."""
    exists = connection.execute(text(_SCHEMA_EXISTS)).scalar_one()
    return ServerVersions(
        postgres=str(connection.execute(text("SHOW server_version")).scalar_one()).split()[0],
        pgvector=connection.execute(text(_PGVECTOR_VERSION)).scalar(),
        revision=connection.execute(text(_SCHEMA_REVISION)).scalar() if exists else None,
    )


_HAS_HEARTBEATS = "SELECT to_regclass('daemon_heartbeats') IS NOT NULL"
_NEWEST_HEARTBEAT = "SELECT max(timestamp) AT TIME ZONE 'UTC' FROM daemon_heartbeats"


def find_daemon_heartbeat(url: str) -> datetime | None:
    """Return when Dagster's daemon was last alive, from Dagster's storage at ``url``; None if it never ran.

    Dagster takes longer to import than the rest of `consolidation doctor` takes.

    Raises:
        StoreError: The storage cannot be read.
    """
    with connect(connect_engine(with_driver(url, "psycopg"))) as connection:
        try:
            if not connection.execute(text(_HAS_HEARTBEATS)).scalar_one():
                return None
            newest: datetime | None = connection.execute(text(_NEWEST_HEARTBEAT)).scalar()
        except DBAPIError as error:
            raise StoreError(f"Dagster's storage cannot be read: {str(error.orig).strip()}") from error
        return newest


def hide_password(url: str) -> str:
    """Return a database URL with its password hidden, also among the parameters."""
    parsed = make_url(url)
    hidden = {name: "***" for name in ("password", "sslpassword") if name in parsed.query}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


@dataclass(frozen=True)
class VectorUsage:
    """Number of memories in force of one project, table and embedding model.

    In force: raw memories that are not archived, consolidated ones that are not retired. ``model`` and ``dimension``
    are None for memories without a vector. ``indexed``: those that an HNSW index would hold, ``abstract``: an inverted
    file.
    """

    project_id: UUID
    table: str
    model: str | None
    dimension: int | None
    memories: int
    indexed: int
    abstract: int


_LIST_VECTOR_USAGE = """
    SELECT project_id, 'task_memories', embedding_model, embedding_dim, count(*), count(*), 0
    FROM consolidation.task_memories WHERE NOT is_archived GROUP BY 1, 3, 4
    UNION ALL
    SELECT project_id, 'consolidated_memories', embedding_model, embedding_dim, count(*),
        count(*) FILTER (WHERE kind = 'merged'), count(*) FILTER (WHERE kind <> 'merged')
    FROM consolidation.consolidated_memories WHERE retired_at IS NULL GROUP BY 1, 3, 4
    ORDER BY 1, 2, 3
"""


def list_vector_usage(connection: Connection) -> list[VectorUsage]:
    """Count the memories in force of every project by table and embedding model; reads each memory once."""
    return [VectorUsage(*row) for row in connection.execute(text(_LIST_VECTOR_USAGE))]


_COUNT_HASH_MISMATCHES = """
    SELECT p.slug, count(*)
    FROM consolidation.consolidated_memories m JOIN consolidation.projects p ON p.id = m.project_id
    WHERE m.retired_at IS NULL AND m.content_hash <> encode(sha256(convert_to(m.content, 'UTF8')), 'hex')
    GROUP BY 1 ORDER BY 1
"""


def count_hash_mismatches(connection: Connection) -> dict[str, int]:
    """Count, by project, the consolidated memories whose text does not match their hash, and so their vector."""
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_HASH_MISMATCHES))}


@dataclass(frozen=True)
class IndexStatus:
    """Names of the schema's complete indexes, and of the invalid ones that a failed build left behind.

    An index that is being built is in neither.
    """

    complete: frozenset[str]
    invalid: frozenset[str]

    @property
    def missing(self) -> dict[str, str]:
        """Indexes of the migrations that do not exist or are not complete, with the statement that creates them."""
        made = {str(index.name): index for table in metadata.tables.values() for index in table.indexes}
        gone = sorted(made.keys() - self.complete)
        dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        return {name: " ".join(str(CreateIndex(made[name]).compile(dialect=dialect)).split()) for name in gone}


_LIST_INDEXES = """
    SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = to_regnamespace('consolidation')
        AND c.oid NOT IN (SELECT index_relid FROM pg_stat_progress_create_index)
"""


def inspect_indexes(connection: Connection) -> IndexStatus:
    """Return the indexes of the schema."""
    rows = connection.execute(text(_LIST_INDEXES)).all()
    return IndexStatus(*(frozenset(row.relname for row in rows if row.indisvalid is valid) for valid in (True, False)))


@dataclass(frozen=True)
class ServerLoad:
    """Load of a server, by its statistics.

    ``now``: its clock. ``dead``: numbers of dead and live rows of each table that holds too many dead ones.
    ``events``: rows of the outbox. ``shared_buffers``: bytes of the server's own memory; ``search_index_bytes``: of the
    indexes on vectors and words.
    """

    now: datetime
    connections: int
    max_connections: int
    database_bytes: int
    dead: dict[str, tuple[int, int]]
    events: int
    shared_buffers: int
    search_index_bytes: int


_INSPECT_LOAD = """
    SELECT clock_timestamp() AS now,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
        current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer AS max_connections,
        pg_database_size(current_database()) AS bytes,
        pg_stat_get_live_tuples('consolidation.consolidation_events'::regclass) AS events,
        pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
        (SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_am a ON a.oid = c.relam
            WHERE a.amname IN ('hnsw', 'ivfflat', 'gin')
                AND c.relnamespace = to_regnamespace('consolidation')) AS search_indexes
"""

# Autovacuum cleans a table when a fifth of it is dead. More dead rows than live ones, and more than this number, mean
# that it is off or that an old transaction blocks it.
BLOATED_ROWS = 50_000

_LIST_BLOATED_TABLES = """
    SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables
    WHERE schemaname = 'consolidation' AND n_dead_tup > :bloated AND n_dead_tup > n_live_tup ORDER BY 1
"""


def inspect_load(connection: Connection) -> ServerLoad:
    """Return the load of the server, from its statistics."""
    load = connection.execute(text(_INSPECT_LOAD)).one()
    bloated = connection.execute(text(_LIST_BLOATED_TABLES), {"bloated": BLOATED_ROWS})
    dead = {row[0]: (row[1], row[2]) for row in bloated}
    return ServerLoad(
        load.now,
        load.connections,
        load.max_connections,
        load.bytes,
        dead,
        load.events,
        load.shared_buffers,
        load.search_indexes,
    )


_LIST_PROJECTS_OVER_BUDGET = """
    SELECT DISTINCT p.slug
    FROM consolidation.consolidation_events e JOIN consolidation.projects p ON p.id = e.project_id
    WHERE e.type = 'budget.exhausted' AND e.created_at >= date_trunc('day', now(), 'UTC') ORDER BY 1
"""


def list_projects_over_budget(connection: Connection) -> list[str]:
    """Return the slugs of projects in which a budget ended a phase since midnight UTC."""
    return list(connection.scalars(text(_LIST_PROJECTS_OVER_BUDGET)))
