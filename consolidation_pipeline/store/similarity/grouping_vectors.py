"""Vectors for grouping of memories that hold boilerplate: a cache beside the plain vectors, which search uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.vector_copy import Vectors, copy_vectors, to_ids
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows


def load_text_hashes(connection: Connection, project_id: UUID, model: str) -> dict[UUID, str]:
    """By memory, the hash of the text that its vector of ``model`` for grouping was made from."""
    query = "SELECT memory_id, text_hash FROM consolidation.grouping_embeddings WHERE project_id = :project AND embedding_model = :model"
    rows = connection.execute(text(query), {"project": project_id, "model": model})
    return {row.memory_id: row.text_hash for row in rows}


def replace_grouping_vectors(
    connection: Connection,
    project_id: UUID,
    model: str,
    *,
    text_hashes: Mapping[UUID, str],
    computed: Mapping[str, int],
    vectors: Vectors,
    checked: Collection[UUID] | None = None,
) -> None:
    """Keep a vector for each memory of ``text_hashes`` (id -> hash of its text without boilerplate), and for no other
    of ``checked`` (None = of the project).

    ``computed``: hash -> row of ``vectors`` float32 (n, d); the other hashes have a vector in the project already.
    Two COPYs and three statements, whatever the number of memories.
    """
    connection.execute(text("CREATE TEMP TABLE wanted (memory_id uuid, text_hash text) ON COMMIT DROP"))
    connection.execute(text("CREATE TEMP TABLE computed (memory_id uuid, embedding vector) ON COMMIT DROP"))
    copy_rows(connection, "wanted (memory_id, text_hash)", [list(item) for item in text_hashes.items()])
    # One memory carries the vector of each new text.
    carriers = {hash_: id_ for id_, hash_ in text_hashes.items() if hash_ in computed}
    if carriers:
        rows = [computed[hash_] for hash_ in carriers]
        copy_vectors(connection, "computed (memory_id, embedding)", to_ids(list(carriers.values())), vectors[rows])
    where = {"project": project_id, "model": model}
    connection.execute(text(_UPSERT), where)
    gone = "" if checked is None else " AND memory_id = ANY(:checked)"
    connection.execute(
        text(
            f"DELETE FROM consolidation.grouping_embeddings WHERE project_id = :project AND embedding_model = :model{gone} "
            "AND memory_id NOT IN (SELECT memory_id FROM wanted)"
        ),
        where if checked is None else {**where, "checked": list(checked)},
    )
    connection.execute(text("DROP TABLE wanted, computed"))


_UPSERT = """
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
