"""Grouping vectors: vectors of texts without their boilerplate, cached beside the plain vectors that search uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import Vectors, copy_vectors, to_ids
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows

_LOAD_TEXT_HASHES = """
    SELECT memory_id, text_hash FROM consolidation.grouping_embeddings
    WHERE project_id = :project AND embedding_model = :model
"""


def load_text_hashes(connection: Connection, project_id: UUID, model: str) -> dict[UUID, str]:
    """Return by memory the hash of the text that its grouping vector of ``model`` was made from."""
    rows = connection.execute(text(_LOAD_TEXT_HASHES), {"project": project_id, "model": model})
    return {row.memory_id: row.text_hash for row in rows}


_CREATE_WANTED = "CREATE TEMP TABLE wanted (memory_id uuid, text_hash text) ON COMMIT DROP"
_CREATE_COMPUTED = "CREATE TEMP TABLE computed (memory_id uuid, embedding vector) ON COMMIT DROP"
_UPSERT_VECTORS = """
    WITH known AS (
        SELECT w.text_hash, c.embedding FROM computed c JOIN wanted w USING (memory_id)
        UNION ALL
        SELECT text_hash, embedding FROM consolidation.grouping_embeddings
        WHERE project_id = :project AND embedding_model = :model
            AND text_hash IN (SELECT text_hash FROM wanted)),
    one AS (SELECT DISTINCT ON (text_hash) text_hash, embedding FROM known)
    INSERT INTO consolidation.grouping_embeddings AS g (project_id, embedding_model, memory_id, text_hash, embedding)
    SELECT :project, :model, w.memory_id, w.text_hash, o.embedding FROM wanted w JOIN one o USING (text_hash)
    ON CONFLICT (project_id, embedding_model, memory_id) DO UPDATE
    SET text_hash = excluded.text_hash, embedding = excluded.embedding WHERE g.text_hash <> excluded.text_hash
"""
_DELETE_UNWANTED = """
    DELETE FROM consolidation.grouping_embeddings
    WHERE project_id = :project AND embedding_model = :model/* unwanted */
"""
_UNWANTED = "memory_id NOT IN (SELECT memory_id FROM wanted)"
_DROP_TABLES = "DROP TABLE wanted, computed"


def replace_grouping_vectors(
    connection: Connection,
    project_id: UUID,
    model: str,
    *,
    text_hashes: Mapping[UUID, str],
    computed: Mapping[str, int],
    vectors: Vectors,
    checked: Collection[UUID] | None,
) -> None:
    """Store a vector for each memory of ``text_hashes``, and delete those of the other ``checked`` memories.

    Takes two COPYs and three statements, whatever the number of memories.

    Args:
        text_hashes: memory -> hash of its text without boilerplate.
        computed: hash -> row of ``vectors``. The other hashes have a vector in the project already.
        vectors: new vectors, float32 (n, d).
        checked: memories whose vectors are brought up to date; None = all of the project.
    """
    bound = {"project": project_id, "model": model}
    if text_hashes:
        connection.execute(text(_CREATE_WANTED))
        connection.execute(text(_CREATE_COMPUTED))
        copy_rows(connection, "wanted (memory_id, text_hash)", [list(item) for item in text_hashes.items()])
        # One memory per new text: its vector serves all memories of that text.
        memory_of = {hash_: id_ for id_, hash_ in text_hashes.items() if hash_ in computed}
        if memory_of:
            rows = [computed[hash_] for hash_ in memory_of]
            copy_vectors(connection, "computed (memory_id, embedding)", to_ids(list(memory_of.values())), vectors[rows])
        connection.execute(text(_UPSERT_VECTORS), bound)
    filters = conditions(_UNWANTED if text_hashes else None, None if checked is None else "memory_id = ANY(:checked)")
    delete = compose(_DELETE_UNWANTED, unwanted=filters)
    connection.execute(text(delete), bound if checked is None else {**bound, "checked": list(checked)})
    if text_hashes:
        connection.execute(text(_DROP_TABLES))
