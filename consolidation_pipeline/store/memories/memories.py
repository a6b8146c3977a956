"""Raw memories: loading imports in bulk, reading them back, embeddings and relevance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import (
    NewMemory,
    content_hash,
    embedding_text,
    memory_id,
    normalized_hash,
)
from consolidation_pipeline.core.vectors import find_unusable, normalize
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.vector_copy import (
    Ids,
    Vectors,
    copy_columns,
    copy_vectors,
    format_vector,
    load_columns,
    load_vectors,
    to_ids,
    to_uuids,
)
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows
from consolidation_pipeline.store.memories.linked_units import ACTIVE, links

# Column -> type in the staging table, in the order in which rows are written.
_STAGED = {
    "id": "uuid",
    "source": "text",
    "external_id": "text",
    "task_id": "text",
    "user_id": "text",
    "agent_id": "text",
    "session_id": "text",
    "memory_type": "text",
    "goal": "text",
    "execution_summary": "text",
    "result": "text",
    "feedback": "text",
    "lessons_learned": "text",
    "tags": "text[]",
    "tool_usage": "jsonb",
    "error_patterns": "jsonb",
    "metadata": "jsonb",
    "success": "boolean",
    "importance": "double precision",
    "pinned": "boolean",
    "reused_count": "integer",
    "last_accessed_at": "timestamptz",
    "content_hash": "text",
    "normalized_hash": "text",
    "embedding": "vector",
    "embedding_model": "text",
    "embedding_dim": "integer",
    "learned_at": "timestamptz",
    "language": "regconfig",
}


@dataclass(frozen=True)
class Appended:
    """What became of a batch: ``changed`` are line numbers of rows whose id exists with other content.

    ``ids``: of the rows that were added.
    """

    added: int
    unchanged: int
    changed: tuple[int, ...]
    ids: frozenset[UUID] = field(default=frozenset(), compare=False)


def append_memories(
    connection: Connection, project_id: UUID, slug: str, rows: Iterable[tuple[int, NewMemory]]
) -> Appended:
    """Store a batch of (line, memory); rows whose (source, external_id) exists are left as they are.

    One COPY and three statements, whatever the number of rows. Of equal ids in a batch the first line counts.

    Raises:
        EmbeddingError: an embedding that came along is NaN, infinite or zero; nothing is stored then.
    """
    declared = ", ".join(f"{name} {kind}" for name, kind in _STAGED.items())
    connection.execute(text("DROP TABLE IF EXISTS arriving"))
    connection.execute(text(f"CREATE TEMP TABLE arriving (line bigint, files text[], {declared}) ON COMMIT DROP"))
    copy_rows(connection, "arriving", (_staged_row(slug, line, memory) for line, memory in rows))
    names = ", ".join(name for name in _STAGED if name != "learned_at")
    added = (
        connection.execute(
            text(
                f"INSERT INTO consolidation.task_memories (project_id, learned_at, {names}) "
                f"SELECT DISTINCT ON (id) :project, coalesce(learned_at, now()), {names} FROM arriving "
                "ORDER BY id, line ON CONFLICT DO NOTHING RETURNING id"
            ),
            {"project": project_id},
        )
        .scalars()
        .all()
    )
    connection.execute(
        text(
            "INSERT INTO consolidation.memory_files (project_id, owner_id, path) "
            "SELECT DISTINCT CAST(:project AS uuid), id, path FROM "
            "(SELECT DISTINCT ON (id) id, files FROM arriving WHERE id = ANY(:added) ORDER BY id, line) kept, "
            "unnest(files) AS path"
        ),
        {"project": project_id, "added": added},
    )
    total, changed = connection.execute(
        text(
            "SELECT count(*), "
            "coalesce(array_agg(line ORDER BY line) FILTER (WHERE a.content_hash <> m.content_hash), '{}') "
            "FROM arriving a JOIN consolidation.task_memories m USING (id)"
        )
    ).one()
    return Appended(len(added), total - len(added) - len(changed), tuple(changed), frozenset(added))


def _staged_row(slug: str, line: int, memory: NewMemory) -> list[Any]:
    body = _body([getattr(memory, name) for name in TEXT_COLUMNS])
    derived = {
        "id": memory_id(slug, memory.source, memory.external_id),
        "content_hash": content_hash(body),
        "normalized_hash": normalized_hash(body),
        "embedding": None if memory.embedding is None else format_vector(_unit_vector(memory)),
        "embedding_dim": None if memory.embedding is None else len(memory.embedding),
        "tags": list(memory.tags),
        "metadata": json.dumps(memory.metadata),
        "tool_usage": _json(memory.tool_usage),
        "error_patterns": _json(memory.error_patterns),
    }
    return [line, list(memory.files), *(derived[n] if n in derived else getattr(memory, n) for n in _STAGED)]


def _unit_vector(memory: NewMemory) -> Vectors:
    rows = np.asarray([memory.embedding], np.float64)
    if find_unusable(rows).size:
        raise EmbeddingError(
            f"the embedding of memory {memory.external_id} is NaN, infinite or zero: leave it out, or give another"
        )
    unit: Vectors = normalize(rows)[0]
    return unit


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


@dataclass(frozen=True)
class Unembedded:
    """Texts of one table that wait for a vector: ids ``S16`` (n,), texts and content hashes in the same order."""

    ids: Ids
    texts: list[str]
    hashes: list[str]

    def select(self, rows: npt.NDArray[np.int64]) -> Unembedded:
        """Those at the given positions."""
        return Unembedded(self.ids[rows], [self.texts[at] for at in rows], [self.hashes[at] for at in rows])


# The columns of a raw memory that are embedded, as `embedding_text` takes them.
TEXT_COLUMNS = ("goal", "execution_summary", "result", "lessons_learned", "feedback")
# SQL of the files of row ``t``, raw or consolidated, ascending.
FILES = "ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files"
# Table -> (columns that are embedded, rows that need a vector).
_EMBEDDED = {
    "task_memories": (", ".join(TEXT_COLUMNS), "archived_at IS NULL"),
    "consolidated_memories": ("content", "retired_at IS NULL"),
    "playbook_entries": ("content", "status <> 'retired'"),
}
EMBEDDED_TABLES = tuple(_EMBEDDED)


def count_embedded(connection: Connection, project_id: UUID, table: str, model: str) -> int:
    """Rows of ``table`` that count and have a vector of ``model``."""
    _, live = _EMBEDDED[table]
    query = f"SELECT count(*) FROM consolidation.{table} WHERE project_id = :project AND {live} AND embedding_model = :model"
    return int(connection.execute(text(query), {"project": project_id, "model": model}).scalar_one())


def reuse_embeddings(connection: Connection, project_id: UUID, table: str, model: str) -> int:
    """Take vectors over from rows of any project and table that hold the same content in the same model."""
    reset = ", graph_version = NULL" if table == "task_memories" else ""
    lock_rows(connection, table, _waiting(table), {"project": project_id, "model": model})
    return connection.execute(
        text(
            f"UPDATE consolidation.{table} t SET embedding = r.embedding, embedding_model = :model, "
            f"embedding_dim = r.embedding_dim{reset} FROM ({_reusable(table)}) r WHERE t.id = r.id"
        ),
        {"project": project_id, "model": model},
    ).rowcount


def load_reusable(connection: Connection, project_id: UUID, model: str, dimension: int) -> tuple[Ids, Vectors]:
    """Ids ``S16`` (n,) of raw memories and the vectors (n, dimension) that ``reuse_embeddings`` would give them."""
    query = f"SELECT id, embedding FROM ({_reusable('task_memories')}) r ORDER BY id"
    named = query.replace(":project", "%(project)s").replace(":model", "%(model)s")
    return load_vectors(connection, named, {"project": project_id, "model": model}, dimension=dimension)


def _waiting(table: str) -> str:
    return f"project_id = :project AND {_EMBEDDED[table][1]} AND embedding_model IS DISTINCT FROM :model"


def _reusable(table: str) -> str:
    """SQL of the rows of ``table`` that wait for a vector while their content has one: id, embedding, its length."""
    sources = " UNION ALL ".join(
        f"SELECT content_hash, embedding, embedding_dim FROM consolidation.{name} WHERE embedding_model = :model "
        "AND content_hash IN (SELECT content_hash FROM wanted)"
        for name in EMBEDDED_TABLES
    )
    return (
        f"WITH wanted AS (SELECT id, content_hash FROM consolidation.{table} WHERE {_waiting(table)}), "
        f"cached AS (SELECT DISTINCT ON (content_hash) * FROM ({sources}) s) "
        "SELECT w.id, c.embedding, c.embedding_dim FROM wanted w JOIN cached c USING (content_hash)"
    )


def list_unembedded(connection: Connection, project_id: UUID, table: str, model: str) -> Ids:
    """Ids ``S16`` (n,) of the rows without a vector of ``model``, sorted."""
    _, live = _EMBEDDED[table]
    query = (
        f"SELECT id FROM consolidation.{table} WHERE project_id = %(project)s AND {live} "
        "AND embedding_model IS DISTINCT FROM %(model)s ORDER BY id"
    )
    return load_columns(connection, query, {"project": project_id, "model": model}, {"id": "S16"})[0]


def load_unembedded(connection: Connection, table: str, ids: Ids, model: str) -> Unembedded:
    """Of the rows with ``ids``, those that are there and have no vector of ``model`` yet, by id."""
    columns, live = _EMBEDDED[table]
    rows = connection.execute(
        text(
            f"SELECT id, content_hash, {columns} FROM consolidation.{table} WHERE id = ANY(:ids) AND {live} "
            "AND embedding_model IS DISTINCT FROM :model ORDER BY id"
        ),
        {"ids": to_uuids(ids), "model": model},
    ).all()
    texts = [row[2] if len(row) == 3 else _body(row[2:]) for row in rows]
    return Unembedded(to_ids([row[0] for row in rows]), texts, [row[1] for row in rows])


def _body(fields: Sequence[str | None]) -> str:
    return embedding_text(**dict(zip(TEXT_COLUMNS, fields, strict=True)))


def save_embeddings(connection: Connection, table: str, ids: Ids, vectors: Vectors, model: str) -> None:
    """Write vectors float32 (n, d) to the rows with ``ids``: one COPY, one statement."""
    connection.execute(text("CREATE TEMP TABLE vectors (id uuid, embedding vector) ON COMMIT DROP"))
    copy_vectors(connection, "vectors (id, embedding)", ids, vectors)
    # Without it the planner takes the few for many, and reads the whole table for every batch.
    connection.execute(text("ANALYZE vectors (id)"))
    reset = ", graph_version = NULL" if table == "task_memories" else ""
    lock_rows(connection, table, "id IN (SELECT id FROM vectors)")
    connection.execute(
        text(
            f"UPDATE consolidation.{table} t SET embedding = v.embedding, embedding_model = :model, "
            f"embedding_dim = :dim{reset} FROM vectors v WHERE t.id = v.id"
        ),
        {"model": model, "dim": vectors.shape[1]},
    )
    connection.execute(text("DROP TABLE vectors"))


@dataclass(frozen=True)
class Decaying:
    """Inputs of decay, arrays of shape (n,): ids ``S16``, days float64 as of the instant asked for.

    ``score``, and how many days ago it was taken: what stands there now; NaN = nothing.
    """

    ids: Ids
    age_days: npt.NDArray[np.float64]
    access_days: npt.NDArray[np.float64]
    importance: npt.NDArray[np.float64]
    relations: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    score_days: npt.NDArray[np.float64]


def load_decaying(connection: Connection, project_id: UUID, table: str, as_of: datetime) -> Decaying:
    """Active rows of ``table`` with their ages and links as of an instant.

    A link is a confirmed relation that existed then, between two units that are active: one that was archived or
    retired lifts nobody any more. Relations of a memory that was merged count for its merged memory, those between two
    sources of one merged memory for none; several to one other unit count once per type, with the highest confidence.
    """
    existing = "r.project_id = %(project)s AND r.status = 'confirmed' AND r.created_at <= %(as_of)s"
    query = f"""
        WITH RECURSIVE {links(existing)}
        SELECT t.id, extract(epoch FROM %(as_of)s - t.learned_at)::float8 / 86400,
            coalesce(extract(epoch FROM %(as_of)s - t.last_accessed_at)::float8 / 86400, 'NaN'), t.importance,
            coalesce(l.relations, 0), coalesce(l.confidence, 0.5), coalesce(t.relevance_score, 'NaN'),
            coalesce(extract(epoch FROM %(as_of)s - t.relevance_at)::float8 / 86400, 'NaN')
        FROM consolidation.{table} t LEFT JOIN links l ON l.id = t.id
        WHERE t.project_id = %(project)s AND {ACTIVE[table]} ORDER BY t.id
    """
    kinds = {"id": "S16", "age": ">f8", "access": ">f8", "importance": ">f8", "relations": ">i8", "confidence": ">f8"}
    kinds |= {"score": ">f8", "score_age": ">f8"}
    return Decaying(*load_columns(connection, query, {"project": project_id, "as_of": as_of}, kinds))


def save_relevance(
    connection: Connection, table: str, ids: Ids, relevance: npt.NDArray[np.float64], as_of: datetime
) -> None:
    """Write relevance (n,) and the instant it stands for: one COPY, one statement."""
    connection.execute(text("CREATE TEMP TABLE scores (id uuid, relevance double precision) ON COMMIT DROP"))
    copy_columns(connection, "scores (id, relevance)", {"id": ids, "relevance": relevance})
    lock_rows(connection, table, "id IN (SELECT id FROM scores)")
    connection.execute(
        text(
            f"UPDATE consolidation.{table} t SET relevance_score = s.relevance, relevance_at = :as_of "
            "FROM scores s WHERE t.id = s.id"
        ),
        {"as_of": as_of},
    )
    connection.execute(text("DROP TABLE scores"))


def lock_rows(connection: Connection, table: str, condition: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Lock rows in the order of their ids, as everyone does who changes many: else two such writers could deadlock."""
    locked = f"SELECT 1 FROM consolidation.{table} WHERE {condition} ORDER BY id FOR NO KEY UPDATE"
    connection.execute(text(f"SELECT count(*) FROM ({locked}) AS locked"), parameters or {})


def load_texts(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, str]:
    """Text that is embedded, by id, of raw memories."""
    query = f"SELECT id, {', '.join(TEXT_COLUMNS)} FROM consolidation.task_memories WHERE id = ANY(:ids)"
    return {row[0]: _body(row[1:]) for row in connection.execute(text(query), {"ids": list(ids)})}
