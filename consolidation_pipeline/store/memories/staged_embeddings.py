"""Staged vectors: those of another model than the rows have, while a project changes its embedding model.

A staged vector counts as long as its row has the text that was embedded. The table of the row replaces ``/* table */``,
its condition for rows that need a vector ``/* is_active */``.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, copy_vectors, load_columns, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows
from consolidation_pipeline.store.memories.embeddings import EMBEDDED_TABLES, LIST_REUSABLE, for_table

_STAGE = """
    INSERT INTO consolidation.staged_embeddings AS s
        (project_id, memory_id, entity_type, content_hash, embedding_model, embedding_dim, embedding)
    SELECT :project, found.id, :entity_type, found.content_hash, :model, found.embedding_dim, found.embedding
    FROM (/* found */) found
    ON CONFLICT (project_id, embedding_model, memory_id) DO UPDATE
    SET content_hash = excluded.content_hash, embedding_dim = excluded.embedding_dim, embedding = excluded.embedding
    WHERE s.content_hash <> excluded.content_hash
"""
_OWN = """
    SELECT id, content_hash, embedding_dim, embedding FROM /* table */
    WHERE project_id = :project AND embedding_model = :model/* is_active */
"""
_REUSABLE = """
    SELECT r.id, t.content_hash, r.embedding_dim, r.embedding FROM (/* reusable */) r JOIN /* table */ t ON t.id = r.id
"""
_IS_NEW = """
    NOT EXISTS (
        SELECT 1 FROM consolidation.staged_embeddings s
        WHERE s.project_id = :project AND s.embedding_model = :model
            AND s.memory_id = /* rows */.id AND s.content_hash = /* rows */.content_hash)
"""
_COMPUTED = "SELECT id, content_hash, :dim AS embedding_dim, embedding FROM computed JOIN hashes USING (id)"


def stage_own_vectors(connection: Connection, project_id: UUID, table: str, model: str) -> int:
    """Stage the vectors of ``model`` that rows have, so that they outlast others; return the number of new."""
    return _stage(connection, project_id, table, model, _for_new(_OWN, table))


def stage_reusable_vectors(connection: Connection, project_id: UUID, table: str, model: str) -> int:
    """Stage vectors of equal texts in the same model, of any project and table; return the number of new ones."""
    found = _for_new(compose(_REUSABLE, reusable=LIST_REUSABLE), table)
    return _stage(connection, project_id, table, model, found)


def _for_new(statement: str, table: str) -> str:
    """Fill a table into a statement, for those of its rows that have no staged vector of their text."""
    return for_table(statement, table, compose(_IS_NEW, rows=table))


def _stage(connection: Connection, project_id: UUID, table: str, model: str, found: str, **more: object) -> int:
    bound = {"project": project_id, "entity_type": table, "model": model, **more}
    return connection.execute(text(compose(_STAGE, found=found)), bound).rowcount


_IS_UNSTAGED = """
    t.project_id = %(project)s AND t.embedding_model IS DISTINCT FROM %(model)s/* is_active */
    AND NOT EXISTS (
        SELECT 1 FROM consolidation.staged_embeddings s
        WHERE s.project_id = t.project_id AND s.embedding_model = %(model)s AND s.memory_id = t.id
            AND s.content_hash = t.content_hash)
"""
_LIST_UNSTAGED = "SELECT id FROM /* table */ t WHERE /* is_unstaged */ ORDER BY id"
_COUNT_UNSTAGED = "SELECT count(*) FROM /* table */ t WHERE /* is_unstaged */"


def list_unstaged(connection: Connection, project_id: UUID, table: str, model: str) -> Ids:
    """Return the sorted ids ``S16`` (n,) of the rows with a vector of ``model`` neither of their own nor staged."""
    statement = for_table(compose(_LIST_UNSTAGED, is_unstaged=_IS_UNSTAGED), table)
    return load_columns(connection, statement, {"project": project_id, "model": model}, {"id": "S16"})[0]


def save_staged(
    connection: Connection,
    project_id: UUID,
    table: str,
    ids: Ids,
    hashes: Sequence[str],
    vectors: Vectors,
    model: str,
) -> None:
    """Stage vectors float32 (n, d) of ``model`` for rows with these ids and hashes of their texts."""
    connection.execute(text("CREATE TEMP TABLE computed (id uuid, embedding vector) ON COMMIT DROP"))
    copy_vectors(connection, "computed (id, embedding)", ids, vectors)
    connection.execute(text("CREATE TEMP TABLE hashes (id uuid, content_hash text) ON COMMIT DROP"))
    copy_rows(connection, "hashes (id, content_hash)", zip(to_uuids(ids), hashes, strict=True))
    _stage(connection, project_id, table, model, _COMPUTED, dim=vectors.shape[1])
    connection.execute(text("DROP TABLE computed, hashes"))


_ANALYZE = "ANALYZE consolidation.staged_embeddings (project_id, embedding_model, memory_id, content_hash)"


def analyze_staged(connection: Connection) -> None:
    """Tell the planner how many vectors are staged.

    Without statistics it takes the table for empty and reads all of it for each row that may lack a vector: switching
    10,000 memories took 6 to 46 s instead of 0.1 s.
    """
    connection.execute(text(_ANALYZE))


_LIST_MODELS = """
    SELECT embedding_model, max(embedding_dim), count(*) FROM consolidation.staged_embeddings
    WHERE project_id = :project GROUP BY 1 ORDER BY 1
"""


def list_staged_models(connection: Connection, project_id: UUID) -> dict[str, tuple[int, int]]:
    """Return the models that a project has staged vectors of: name -> (dimension, number of vectors)."""
    rows = connection.execute(text(_LIST_MODELS), {"project": project_id})
    return {model: (dimension, vectors) for model, dimension, vectors in rows}


def count_unstaged(connection: Connection, project_id: UUID, model: str) -> int:
    """Return the number of rows that have a vector of ``model`` neither of their own nor staged."""
    counted = compose(_COUNT_UNSTAGED, is_unstaged=_IS_UNSTAGED)
    bound = {"project": project_id, "model": model}
    return sum(fetch_rows(connection, for_table(counted, table), bound)[0][0] for table in EMBEDDED_TABLES)


_DELETE = "DELETE FROM consolidation.staged_embeddings WHERE project_id = :project"


def delete_staged(connection: Connection, project_id: UUID) -> int:
    """Delete all staged vectors of a project; return their number."""
    return connection.execute(text(_DELETE), {"project": project_id}).rowcount
