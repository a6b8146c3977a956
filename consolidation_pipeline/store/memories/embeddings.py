"""Embeddings: rows that need a vector, vectors reused from equal content, and saving new ones.

The statements work on the three embedded tables: the table replaces ``/* table */``, its condition for rows that need a
vector ``/* is_active */``.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose, conditions, quote_literal
from consolidation_pipeline.store.database.vector_copy import (
    Ids,
    Vectors,
    copy_vectors,
    load_columns,
    load_vectors,
    to_ids,
    to_uuids,
)
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns, lock_rows

# Table -> (columns that are embedded, SQL that is true if a row needs a vector).
_EMBEDDED = {
    "task_memories": (", ".join(TEXT_COLUMNS), "archived_at IS NULL"),
    "consolidated_memories": ("content", "retired_at IS NULL"),
    "playbook_entries": ("content", "status <> 'retired'"),
}
EMBEDDED_TABLES = tuple(_EMBEDDED)


@dataclass(frozen=True)
class UnembeddedTexts:
    """Texts of one table that need a vector: ids ``S16`` (n,), texts and content hashes in the same order."""

    ids: Ids
    texts: list[str]
    hashes: list[str]

    def select(self, rows: npt.NDArray[np.int64]) -> UnembeddedTexts:
        """Return the texts at these positions."""
        return UnembeddedTexts(self.ids[rows], [self.texts[at] for at in rows], [self.hashes[at] for at in rows])


_COUNT_EMBEDDED = """
    SELECT /* name */, count(*) FILTER (WHERE embedding_model = :model) AS embedded,
        count(*) FILTER (WHERE embedding_model IS DISTINCT FROM :model) AS missing
    FROM /* table */ WHERE project_id = :project/* is_active */
"""


def count_embedded(connection: Connection, project_id: UUID, model: str) -> dict[str, tuple[int, int]]:
    """Return by table the numbers of rows that have a vector of ``model``, and of those that still need one."""
    parts = (for_table(compose(_COUNT_EMBEDDED, name=quote_literal(table)), table) for table in EMBEDDED_TABLES)
    found = connection.execute(text(" UNION ALL ".join(parts)), {"project": project_id, "model": model})
    counts = {table: (embedded, missing) for table, embedded, missing in found}
    return {table: counts[table] for table in EMBEDDED_TABLES}


_IS_UNEMBEDDED = "project_id = :project AND embedding_model IS DISTINCT FROM :model/* is_active */"

# Vectors of equal content in the same model, of any project and table, also staged ones.
LIST_REUSABLE = """
    WITH wanted AS (
        SELECT id, content_hash FROM /* table */
        WHERE project_id = :project AND embedding_model IS DISTINCT FROM :model/* is_active */),
    cached AS (
        SELECT DISTINCT ON (content_hash) * FROM (
            SELECT content_hash, embedding, embedding_dim FROM consolidation.task_memories
            WHERE embedding_model = :model AND content_hash IN (SELECT content_hash FROM wanted)
            UNION ALL
            SELECT content_hash, embedding, embedding_dim FROM consolidation.consolidated_memories
            WHERE embedding_model = :model AND content_hash IN (SELECT content_hash FROM wanted)
            UNION ALL
            SELECT content_hash, embedding, embedding_dim FROM consolidation.playbook_entries
            WHERE embedding_model = :model AND content_hash IN (SELECT content_hash FROM wanted)
            UNION ALL
            SELECT content_hash, embedding, embedding_dim FROM consolidation.staged_embeddings
            WHERE embedding_model = :model AND content_hash IN (SELECT content_hash FROM wanted)) same)
    SELECT w.id, c.embedding, c.embedding_dim FROM wanted w JOIN cached c USING (content_hash)
"""
# A raw memory with a new vector must be compared again.
_REUSE_EMBEDDINGS = """
    WITH saved AS (
        UPDATE /* table */ t SET embedding = r.embedding, embedding_model = :model, embedding_dim = r.embedding_dim
        FROM (/* reusable */) r WHERE t.id = r.id RETURNING t.project_id, t.id),
    moved AS (
        DELETE FROM consolidation.compared_memories c USING saved s
        WHERE c.project_id = s.project_id AND c.memory_id = s.id)
    SELECT count(*) FROM saved
"""


def reuse_embeddings(connection: Connection, project_id: UUID, table: str, model: str) -> int:
    """Copy vectors from rows of any project and table with the same content and model; return the number of rows."""
    bound = {"project": project_id, "model": model}
    lock_rows(connection, table, compose(_IS_UNEMBEDDED, is_active=_is_active(table)), bound)
    statement = for_table(compose(_REUSE_EMBEDDINGS, reusable=LIST_REUSABLE), table)
    return int(connection.execute(text(statement), bound).scalar_one())


_LOAD_REUSABLE_VECTORS = "SELECT id, embedding FROM (/* reusable */) r ORDER BY id"


def load_reusable_vectors(connection: Connection, project_id: UUID, model: str, dimension: int) -> tuple[Ids, Vectors]:
    """Return the raw memories that ``reuse_embeddings`` would change: ids ``S16`` (n,), vectors (n, dimension)."""
    statement = for_table(compose(_LOAD_REUSABLE_VECTORS, reusable=LIST_REUSABLE), "task_memories")
    for name in ("project", "model"):
        statement = statement.replace(f":{name}", f"%({name})s")
    return load_vectors(connection, statement, {"project": project_id, "model": model}, dimension=dimension)


_LIST_UNEMBEDDED = """
    SELECT id FROM /* table */
    WHERE project_id = %(project)s AND embedding_model IS DISTINCT FROM %(model)s/* is_active */
    ORDER BY id
"""


def list_unembedded(connection: Connection, project_id: UUID, table: str, model: str) -> Ids:
    """Return the ids ``S16`` (n,) of the rows that need a vector of ``model``, sorted."""
    bound = {"project": project_id, "model": model}
    return load_columns(connection, for_table(_LIST_UNEMBEDDED, table), bound, {"id": "S16"})[0]


_LOAD_UNEMBEDDED = """
    SELECT id, content_hash, /* columns */ FROM /* table */
    WHERE id = ANY(:ids) AND embedding_model IS DISTINCT FROM :model/* is_active */
    ORDER BY id
"""


def load_unembedded(connection: Connection, table: str, ids: Ids, model: str) -> UnembeddedTexts:
    """Return the texts of those rows with ``ids`` that still need a vector of ``model``, by id."""
    statement = compose(_LOAD_UNEMBEDDED, columns=_EMBEDDED[table][0])
    rows = connection.execute(text(for_table(statement, table)), {"ids": to_uuids(ids), "model": model}).all()
    texts = [row[2] if len(row) == 3 else join_text_columns(row[2:]) for row in rows]
    return UnembeddedTexts(to_ids([row[0] for row in rows]), texts, [row[1] for row in rows])


_SAVE_EMBEDDINGS = """
    WITH saved AS (
        UPDATE /* table */ t SET embedding = v.embedding, embedding_model = :model, embedding_dim = :dim
        FROM vectors v WHERE t.id = v.id RETURNING t.project_id, t.id)
    DELETE FROM consolidation.compared_memories c USING saved s
    WHERE c.project_id = s.project_id AND c.memory_id = s.id
"""


def save_embeddings(connection: Connection, table: str, ids: Ids, vectors: Vectors, model: str) -> None:
    """Write vectors float32 (n, d) of ``model`` to the rows with ``ids``: one COPY, one statement."""
    connection.execute(text("CREATE TEMP TABLE vectors (id uuid, embedding vector) ON COMMIT DROP"))
    copy_vectors(connection, "vectors (id, embedding)", ids, vectors)
    # Without statistics the planner expects many rows, and reads the whole table for every batch.
    connection.execute(text("ANALYZE vectors (id)"))
    lock_rows(connection, table, "id IN (SELECT id FROM vectors)")
    statement = compose(_SAVE_EMBEDDINGS, table=f"consolidation.{table}")
    connection.execute(text(statement), {"model": model, "dim": vectors.shape[1]})
    connection.execute(text("DROP TABLE vectors"))


def for_table(statement: str, table: str, *more: str) -> str:
    """Fill an embedded table and the conditions of its rows that need a vector, with ``more``, into a statement."""
    return compose(statement, table=f"consolidation.{table}", is_active=conditions(_EMBEDDED[table][1], *more))


def _is_active(table: str) -> str:
    return conditions(_EMBEDDED[table][1])
