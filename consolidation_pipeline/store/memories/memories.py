"""Memories: bulk import of raw memories, one memory with its columns and feedback, texts and row locks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Row, select, text

from consolidation_pipeline.core.memories.memories import (
    NewMemory,
    content_hash,
    embedding_text,
    memory_id,
    normalized_hash,
)
from consolidation_pipeline.core.vectors import find_unusable, normalize
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    describe_columns,
    memory_files,
    relevance_scores,
    task_memories,
)
from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, copy_vectors, format_vector
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE
from consolidation_pipeline.store.ledger.lineage import find_memories
from consolidation_pipeline.store.memories.pending_uses import load_pending_uses

# Columns of a raw memory that are embedded, the parameters of `embedding_text`.
TEXT_COLUMNS = ("goal", "execution_summary", "result", "lessons_learned", "feedback")

# Column -> type of what is stored of a new memory: what a `NewMemory` holds, and what is derived from it.
_DERIVED = {"id", "content_hash", "normalized_hash", "embedding_dim"}
_COLUMNS = {
    name: kind
    for name, kind, _ in describe_columns(task_memories.name)
    if name in _DERIVED or name in NewMemory.__dataclass_fields__
}
# Characters of rows that one statement takes: a value of type json may have 1 GB.
_MAX_SENT = 32_000_000


@dataclass(frozen=True)
class AppendResult:
    """Result of a batch. ``changed``: line numbers of rows whose id exists with other content; ``ids``: added rows."""

    added: int
    unchanged: int
    changed: tuple[int, ...]
    ids: frozenset[UUID] = field(default=frozenset(), compare=False)


@dataclass(frozen=True)
class GivenVectors:
    """Unit vectors ``x`` float32 (n, d) of ``model``, of new memories without their own. ``ids``: S16 (n,)."""

    ids: Ids
    x: Vectors
    model: str


_INSERT_MEMORIES = compose(
    """
    WITH arriving AS MATERIALIZED (
        SELECT DISTINCT ON (id) *
        FROM json_to_recordset(CAST(:rows AS json)) AS r (line bigint, files text[], /* types */)
        ORDER BY id, line),
    added AS (
        INSERT INTO consolidation.task_memories (project_id, learned_at, /* columns */)
        SELECT :project, coalesce(learned_at, now()), /* values */ FROM arriving /* vectors */
        ON CONFLICT DO NOTHING RETURNING id),
    listed AS (
        INSERT INTO consolidation.memory_files (project_id, owner_id, path)
        SELECT DISTINCT CAST(:project AS uuid), id, path FROM arriving JOIN added USING (id), unnest(files) AS path)
    SELECT id FROM added
    """,
    types=", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items()),
    columns=", ".join(name for name in _COLUMNS if name != "learned_at"),
)
_VALUES = {name: name for name in _COLUMNS if name != "learned_at"}
_WITH_VECTORS = {
    "embedding": "coalesce(arriving.embedding, given.embedding)",
    "embedding_model": "coalesce(embedding_model, CASE WHEN given.embedding IS NOT NULL THEN :model END)",
    "embedding_dim": "coalesce(embedding_dim, CASE WHEN given.embedding IS NOT NULL THEN :dim END)",
}
_CREATE_VECTORS = "CREATE TEMP TABLE given_vectors (id uuid, embedding vector) ON COMMIT DROP"
_JOIN_VECTORS = "LEFT JOIN given_vectors given USING (id)"
_DROP_VECTORS = "DROP TABLE given_vectors"
_COUNT_STORED = """
    SELECT count(*), coalesce(array_agg(line ORDER BY line) FILTER (WHERE a.content_hash <> m.content_hash), '{}')
    FROM json_to_recordset(CAST(:rows AS json)) AS a (line bigint, id uuid, content_hash text)
        JOIN consolidation.task_memories m USING (id)
"""


_FIND_SOURCES = """
    SELECT m.source, count(*) FROM consolidation.task_memories m
        JOIN unnest(CAST(:external_ids AS text[]), CAST(:texts AS text[])) AS row (external_id, content)
        ON m.external_id = row.external_id AND btrim(m.execution_summary) = btrim(row.content)
    WHERE m.project_id = :project GROUP BY m.source ORDER BY m.source
"""


def find_sources_of(
    connection: Connection, project_id: UUID, external_ids: Sequence[str], texts: Sequence[str]
) -> dict[str, int]:
    """Return the sources of memories with these external ids and texts, and how many of them each has."""
    bound = {"project": project_id, "external_ids": list(external_ids), "texts": list(texts)}
    return {row[0]: row[1] for row in connection.execute(text(_FIND_SOURCES), bound)}


def append_memories(
    connection: Connection, project_id: UUID, slug: str, rows: Iterable[tuple[int, NewMemory]]
) -> AppendResult:
    """Store new raw memories; rows with a known (source, external_id) are left as they are.

    Args:
        slug: The project's slug, from which ids are derived.
        rows: Line number and memory.

    Raises:
        EmbeddingError: The embedding of a memory is NaN, infinite or zero; nothing is stored.
    """
    return append_encoded(connection, project_id, [encode_memory(slug, line, memory) for line, memory in rows])


def append_encoded(
    connection: Connection, project_id: UUID, rows: Sequence[str], vectors: GivenVectors | None = None
) -> AppendResult:
    """Store memories as ``append_memories`` does, from ``encode_memory``: by one statement, if all are new.

    Of equal ids in a batch the first line counts. ``vectors`` of many memories travel in binary, which costs a tenth.
    """
    bound: dict[str, Any] = {"project": project_id}
    values, joined = _VALUES, ""
    if vectors is not None:
        connection.execute(text(_CREATE_VECTORS))
        copy_vectors(connection, "given_vectors (id, embedding)", vectors.ids, vectors.x)
        values, joined = _VALUES | _WITH_VECTORS, _JOIN_VECTORS
        bound |= {"model": vectors.model, "dim": vectors.x.shape[1]}
    statement = compose(_INSERT_MEMORIES, values=", ".join(values.values()), vectors=joined)
    added: list[UUID] = []
    changed: list[int] = []
    unchanged = 0
    for part in _split_rows(rows):
        sent = {**bound, "rows": f"[{','.join(part)}]"}
        new = connection.scalars(text(statement), sent).all()
        added += new
        if len(new) < len(part):
            stored, lines = connection.execute(text(_COUNT_STORED), {"rows": sent["rows"]}).one()
            changed += lines
            unchanged += stored - len(new) - len(lines)
    if vectors is not None:
        connection.execute(text(_DROP_VECTORS))
    return AppendResult(len(added), unchanged, tuple(changed), frozenset(added))


def _split_rows(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows in parts of at most ``_MAX_SENT`` characters, or of one row."""
    start = size = 0
    for at, row in enumerate(rows):
        size += len(row)
        if size > _MAX_SENT and at > start:
            yield rows[start:at]
            start, size = at, len(row)
    if start < len(rows):
        yield rows[start:]


def encode_memory(slug: str, line: int, memory: NewMemory, *, vector: Vectors | None = None, model: str = "") -> str:
    """Return a memory as the JSON object that ``append_encoded`` takes: its fields, and what is derived from them.

    Args:
        slug: The project's slug.
        line: Number of the row.
        memory: The memory.
        vector: Unit vector (d,) of its text, in place of the memory's own.
        model: Name of the model of ``vector``.

    Raises:
        EmbeddingError: The memory's own embedding is NaN, infinite or zero.
    """
    values = {name: value for name, value in vars(memory).items() if value is not None}
    if vector is not None:
        values["embedding_model"] = model
    elif memory.embedding is not None:
        vector = _unit_vector(memory)
    if vector is not None:
        values |= {"embedding": format_vector(vector), "embedding_dim": len(vector)}
    body = join_text_columns([values.get(name) for name in TEXT_COLUMNS])
    values["line"] = line
    values["id"] = str(memory_id(slug, memory.source, memory.external_id))
    values["content_hash"] = content_hash(body)
    values["normalized_hash"] = normalized_hash(body)
    return _encode_json(values)


_encode_json = json.JSONEncoder(ensure_ascii=False, default=lambda time: time.isoformat()).encode

_COUNT_REPEATS_APART = """
    SELECT coalesce(sum(scopes - 1), 0)::integer FROM (
        SELECT count(DISTINCT /* scope_key */) AS scopes FROM consolidation.task_memories t
        WHERE project_id = :project AND NOT is_archived GROUP BY memory_type, normalized_hash) texts
    WHERE scopes > 1
"""


def count_repeats_apart(connection: Connection, project_id: UUID, *, scope: str) -> int:
    """Return how many exact repeats of memories are in other scopes: each text once for each scope after the first.

    ``scope``: the project's option.
    """
    statement = compose(_COUNT_REPEATS_APART, scope_key=raw_scope_key(scope))
    return int(connection.execute(text(statement), {"project": project_id}).scalar_one())


def _unit_vector(memory: NewMemory) -> Vectors:
    rows = np.asarray([memory.embedding], np.float64)
    if find_unusable(rows).size:
        raise EmbeddingError(
            f"the embedding of memory {memory.external_id} is NaN, infinite or zero: leave it out, or give another"
        )
    unit: Vectors = normalize(rows)[0]
    return unit


# How the ledger's reason of a change by feedback begins.
FEEDBACK_PREFIX = "feedback: "
_INTERNAL = {"embedding", "content_tsv", "content_hash", "normalized_hash", "abstraction_level"}
_SUCCESSOR = {"task_memories": "consolidated_into_id", "consolidated_memories": "superseded_by_id"}


def load_memory(connection: Connection, memory_id: UUID) -> dict[str, Any] | None:
    """Return a raw or consolidated memory by column name, without its vector; None if there is none.

    Further keys: ``project``, ``kind``, ``level``, ``status``, ``content``, ``successor`` and ``files``.
    """
    found = next(iter(find_memories(connection, memory_id, memory_id, limit=1)), None)
    if found is None or found.kind == "playbook":
        return None
    table = task_memories if found.kind == "raw" else consolidated_memories
    # Built from the schema: all columns of either table, with their types.
    columns = [column for column in table.c if column.name not in _INTERNAL]
    scores = (relevance_scores.c.project_id == table.c.project_id) & (relevance_scores.c.memory_id == table.c.id)
    columns += [relevance_scores.c.relevance_score, relevance_scores.c.relevance_at]
    known = select(*columns).select_from(table.outerjoin(relevance_scores, scores)).where(table.c.id == memory_id)
    row = connection.execute(known).one()._mapping
    count = "reused_count" if found.kind == "raw" else "reuse_count"
    pending, last_use = load_pending_uses(connection, row["project_id"], memory_id)
    paths = select(memory_files.c.path).where(memory_files.c.owner_id == memory_id).order_by(memory_files.c.path)
    return {
        **vars(found),
        **row,
        count: row[count] + pending,
        "last_accessed_at": max(filter(None, (row["last_accessed_at"], last_use)), default=None),
        "successor": row[_SUCCESSOR[table.name]],
        "files": list(connection.scalars(paths)),
    }


_LIST_FEEDBACK = compose(
    """
    SELECT substr(c.reason, length(CAST(:prefix AS text)) + 1) AS words,
        (c.new_state ->> 'importance')::float8 AS importance, c.changed_by, c.changed_at, c.group_id
    FROM consolidation.consolidation_changes c
    WHERE c.entity_id = :id AND c.operation = 'edit' AND starts_with(c.reason, CAST(:prefix AS text))
        AND NOT /* is_undone */
    ORDER BY c.seq DESC
    """,
    is_undone=IS_UNDONE,
)


def list_feedback(connection: Connection, memory_id: UUID) -> Sequence[Row[Any]]:
    """Return the feedback on a memory that was not undone, newest first.

    Columns: words, importance (after the feedback), changed_by, changed_at and group_id.
    """
    return connection.execute(text(_LIST_FEEDBACK), {"id": memory_id, "prefix": FEEDBACK_PREFIX}).all()


_LOAD_TEXTS = compose(
    "SELECT id, /* columns */ FROM consolidation.task_memories WHERE id = ANY(:ids)", columns=", ".join(TEXT_COLUMNS)
)


def load_texts(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, str]:
    """Return the embedded text of raw memories, by id."""
    return {row[0]: join_text_columns(row[1:]) for row in connection.execute(text(_LOAD_TEXTS), {"ids": list(ids)})}


def join_text_columns(values: Sequence[str | None]) -> str:
    """Return the embedded text of a raw memory from the values of its ``TEXT_COLUMNS``."""
    return embedding_text(**dict(zip(TEXT_COLUMNS, values, strict=True)))


def join_texts(kind: str, texts: Sequence[str | None]) -> str:
    """Return the text of a memory: that of the ``TEXT_COLUMNS`` of a raw one, else its content, the only text."""
    return join_text_columns(texts) if kind == "raw" else str(texts[0])


_LOCK_ROWS = """
    SELECT count(*) FROM (
        SELECT 1 FROM /* table */ WHERE /* condition */ ORDER BY id FOR NO KEY UPDATE) AS locked
"""


def lock_rows(connection: Connection, table: str, condition: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Lock the rows of ``table`` that meet ``condition``, in the order of ids, as all writers do to avoid deadlocks."""
    statement = compose(_LOCK_ROWS, table=f"consolidation.{table}", condition=condition)
    connection.execute(text(statement), parameters or {})
