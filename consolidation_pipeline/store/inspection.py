"""What a database says about itself: the server, the schema, and the state of every project's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, make_url, text

from consolidation_pipeline.store.schema import SCHEMA


@dataclass(frozen=True)
class Server:
    """Versions of a server; ``pgvector`` and ``revision`` are None before the schema was made."""

    postgres: str
    pgvector: str | None
    revision: str | None


def inspect_server(connection: Connection) -> Server:
    """Versions of Postgres and pgvector, and the revision of the schema."""
    revision = None
    if connection.execute(text(f"SELECT to_regclass('{SCHEMA}.alembic_version')")).scalar() is not None:
        revision = connection.execute(text(f"SELECT version_num FROM {SCHEMA}.alembic_version")).scalar()
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
class VectorHealth:
    """Of one project's memories that are not archived: how many have no vector, and the models of the others."""

    slug: str
    unembedded: int
    models: Sequence[str]


def list_vector_health(connection: Connection) -> list[VectorHealth]:
    """Every project with memories, by slug."""
    rows = connection.execute(
        text(
            "SELECT p.slug, count(*) FILTER (WHERE m.embedding IS NULL), "
            "coalesce(array_agg(DISTINCT m.embedding_model) FILTER (WHERE m.embedding IS NOT NULL), '{}') "
            f"FROM {SCHEMA}.projects p JOIN {SCHEMA}.task_memories m ON m.project_id = p.id WHERE NOT m.is_archived "
            "GROUP BY p.slug ORDER BY p.slug"
        )
    )
    return [VectorHealth(*row) for row in rows]
