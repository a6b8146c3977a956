"""What a database says about itself: the server and its load, the schema, indexes, every project's vectors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Dialect, make_url, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

from consolidation_pipeline.store.database.schema import SCHEMA, metadata


@dataclass(frozen=True)
class Server:
    """Versions of a server; ``pgvector`` and ``revision`` are None before the schema was made."""

    postgres: str
    pgvector: str | None
    revision: str | None


def inspect_server(connection: Connection) -> Server:
    """Versions of Postgres and pgvector, and the revision of the schema."""
    revision = None
    if connection.execute(text("SELECT to_regclass('consolidation.alembic_version')")).scalar() is not None:
        revision = connection.execute(text("SELECT version_num FROM consolidation.alembic_version")).scalar()
    return Server(
        postgres=str(connection.execute(text("SHOW server_version")).scalar_one()).split()[0],
        pgvector=connection.execute(text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")).scalar(),
        revision=revision,
    )


def hide_password(url: str) -> str:
    """A database URL fit to be shown: the password is hidden, also where it stands among the parameters."""
    parsed = make_url(url)
    hidden = {name: "***" for name in ("password", "sslpassword") if name in parsed.query}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


@dataclass(frozen=True)
class VectorUse:
    """Memories of one project and table, raw ones that are not archived and derived ones that are in force, by model.

    ``model`` and ``dimension`` are None for those without a vector.
    """

    project_id: UUID
    table: str
    model: str | None
    dimension: int | None
    memories: int


def list_vector_uses(connection: Connection) -> list[VectorUse]:
    """Of every project; reads each memory once."""
    live = {"task_memories": "NOT is_archived", "consolidated_memories": "retired_at IS NULL"}
    each = " UNION ALL ".join(
        f"SELECT project_id, '{table}', embedding_model, embedding_dim, count(*) "
        f"FROM consolidation.{table} WHERE {condition} GROUP BY 1, 3, 4"
        for table, condition in live.items()
    )
    return [VectorUse(*row) for row in connection.execute(text(f"{each} ORDER BY 1, 2, 3"))]


def count_unlike_their_hash(connection: Connection) -> dict[str, int]:
    """Derived memories whose text is not the one that their hash, and so their vector, was made of; by project."""
    query = """
        SELECT p.slug, count(*) FROM consolidation.consolidated_memories m JOIN consolidation.projects p ON p.id = m.project_id
        WHERE m.retired_at IS NULL AND m.content_hash <> encode(sha256(convert_to(m.content, 'UTF8')), 'hex')
        GROUP BY 1 ORDER BY 1
    """
    return {row[0]: row[1] for row in connection.execute(text(query))}


@dataclass(frozen=True)
class Indexes:
    """Names of the indexes in the schema that are complete, and of those that a build left so that they are of no use.

    One that is just being built is neither.
    """

    complete: frozenset[str]
    invalid: frozenset[str]

    @property
    def missing(self) -> dict[str, str]:
        """Those that migrations make and that are not there, or not complete, with the statement that makes them."""
        made = {str(index.name): index for table in metadata.tables.values() for index in table.indexes}
        gone = sorted(made.keys() - self.complete)
        dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        return {name: " ".join(str(CreateIndex(made[name]).compile(dialect=dialect)).split()) for name in gone}


def inspect_indexes(connection: Connection) -> Indexes:
    """The indexes that there are."""
    query = """
        SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = to_regnamespace(:schema)
            AND c.oid NOT IN (SELECT index_relid FROM pg_stat_progress_create_index)
    """
    rows = connection.execute(text(query), {"schema": SCHEMA}).all()
    return Indexes(*(frozenset(row.relname for row in rows if row.indisvalid is valid) for valid in (True, False)))


@dataclass(frozen=True)
class Load:
    """How full a server is. ``now``: its clock. ``dead``: rows that nobody sees any more and that take up room, and
    ``live`` ones, by table, where the dead ones are many. ``events``: rows of the outbox.
    """

    now: datetime
    connections: int
    max_connections: int
    database_bytes: int
    dead: dict[str, tuple[int, int]]
    events: int


def inspect_load(connection: Connection) -> Load:
    """How full the server is; all of it from statistics."""
    bloated = f"""
        SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE schemaname = 'consolidation'
            AND n_dead_tup > {BLOATED_ROWS} AND n_dead_tup > n_live_tup ORDER BY 1
    """
    query = """
        SELECT clock_timestamp() AS now, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
                AS connections, current_setting('max_connections')::integer
                - current_setting('superuser_reserved_connections')::integer AS max_connections,
            pg_database_size(current_database()) AS bytes,
            pg_stat_get_live_tuples('consolidation.consolidation_events'::regclass) AS events
    """
    told = connection.execute(text(query)).one()
    dead = {row[0]: (row[1], row[2]) for row in connection.execute(text(bloated))}
    return Load(told.now, told.connections, told.max_connections, told.bytes, dead, told.events)


# Autovacuum takes care of a table when a fifth of it is dead; more dead rows than live ones, and as many as these, mean
# that it is off or that an old transaction stands in its way.
BLOATED_ROWS = 50_000


def list_stopped_by_budget(connection: Connection) -> list[str]:
    """Projects in which a budget ended a phase since midnight UTC."""
    query = """
        SELECT DISTINCT p.slug FROM consolidation.consolidation_events e JOIN consolidation.projects p ON p.id = e.project_id
        WHERE e.type = 'budget.exhausted' AND e.created_at >= date_trunc('day', now(), 'UTC') ORDER BY 1
    """
    return list(connection.execute(text(query)).scalars())
