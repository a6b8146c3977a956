"""Votes on memories and playbook entries: what helped its readers, once a day and voter."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from uuid import UUID

from pgvector import Vector
from sqlalchemy import Connection, text

from consolidation_pipeline.core.lifecycle.feedback import (
    RELATED_QUERIES,
    SAME_QUERIES,
    UNHELPFUL_WEIGHT,
    UNKNOWN_QUERY_WEIGHT,
    VOTE_DAYS,
    Votes,
    compute_usefulness,
)
from consolidation_pipeline.store.database.raw_connections import fetch_rows, format_uuids
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors, format_vector
from consolidation_pipeline.store.database.writers import WRITER_KEY
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE

_ADD_VOTES = compose(
    """
    WITH voted AS (
        SELECT id, project_id, ARRAY[id] AS leaves FROM consolidation.task_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id, project_id, source_memory_ids FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id, project_id, supporting_memory_ids FROM consolidation.playbook_entries WHERE id = ANY(:ids))
    INSERT INTO consolidation.memory_votes
        (memory_id, voter, day, query_hash, project_id, verdict, own_share, group_id)
    SELECT id, :voter, :day, :query_hash, project_id, :verdict, coalesce((
        SELECT avg((/* writer_key */ = :voter)::integer) FROM consolidation.task_memories t WHERE t.id = ANY(leaves)
    ), 0), CAST(:group_id AS uuid)
    FROM voted ORDER BY id
    /* on_conflict */
    RETURNING memory_id
    """,
    writer_key=WRITER_KEY,
)
_KEEP, _REPLACE = (
    "ON CONFLICT DO NOTHING",
    """
    ON CONFLICT (memory_id, voter, day, query_hash)
    DO UPDATE SET verdict = excluded.verdict, own_share = excluded.own_share, group_id = excluded.group_id
    """,
)


_FIND_UNKNOWN = """
    SELECT unnest(CAST(:ids AS uuid[])) AS id
    EXCEPT (
        SELECT id FROM consolidation.task_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id FROM consolidation.playbook_entries WHERE id = ANY(:ids))
"""


def find_unknown(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """Return the ids that are neither of a memory nor of a playbook entry."""
    return set(connection.scalars(text(_FIND_UNKNOWN), {"ids": list(ids)}))


def add_uses_as_votes(
    connection: Connection, ids: Collection[UUID], *, voter: str, day: date, query_hash: str
) -> set[UUID]:
    """Add a vote for each memory or entry that a voter used; return those on which it had no such vote that day.

    ``query_hash``: of the query for which it used them, see ``save_vote_query``; empty = not known.
    """
    bound = {"ids": list(ids), "voter": voter, "day": day, "verdict": 1, "group_id": None, "query_hash": query_hash}
    return set(connection.scalars(text(compose(_ADD_VOTES, on_conflict=_KEEP)), bound))


def set_vote(connection: Connection, memory_id: UUID, *, voter: str, day: date, helpful: bool, group_id: UUID) -> None:
    """Set the vote of a voter on a memory that day; it counts until the changes of ``group_id`` are undone."""
    verdict = 1 if helpful else -1
    bound = {"ids": [memory_id], "voter": voter, "day": day, "verdict": verdict, "group_id": group_id}
    connection.execute(text(compose(_ADD_VOTES, on_conflict=_REPLACE)), {**bound, "query_hash": ""})


_SAVE_VOTE_QUERY = """
    INSERT INTO consolidation.vote_queries (project_id, query_hash, embedding_model, embedding, day)
    VALUES (:project, :query_hash, :model, CAST(:vector AS vector), :day)
    ON CONFLICT (project_id, query_hash, embedding_model) DO UPDATE SET day = greatest(vote_queries.day, excluded.day)
"""


def save_vote_query(
    connection: Connection, project_id: UUID, query_hash: str, *, model: str, vector: Vectors, day: date
) -> None:
    """Save the vector (d,) of a query for which memories helped."""
    bound = {"project": project_id, "query_hash": query_hash, "model": model, "day": day}
    connection.execute(text(_SAVE_VOTE_QUERY), {**bound, "vector": format_vector(vector)})


# The vote `v` is not of feedback that was undone.
_COUNTS = compose(
    """(v.group_id IS NULL OR NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes c
        WHERE c.group_id = v.group_id AND c.entity_id = v.memory_id AND /* is_undone */))""",
    is_undone=IS_UNDONE,
)
_HAS_VOTE = compose(
    """
    SELECT EXISTS (
        SELECT 1 FROM consolidation.memory_votes v
        WHERE v.memory_id = :id AND v.voter = :voter AND v.day = :day AND v.verdict = :verdict
            AND v.group_id IS NOT NULL AND /* counts */)
    """,
    counts=_COUNTS,
)


def has_rated(connection: Connection, memory_id: UUID, *, voter: str, day: date, helpful: bool) -> bool:
    """Return True if the voter gave feedback with this verdict on the memory that day, and it was not undone."""
    bound = {"id": memory_id, "voter": voter, "day": day, "verdict": 1 if helpful else -1}
    return bool(connection.execute(text(_HAS_VOTE), bound).scalar_one())


# A memory takes over the votes on those that were merged into it. A voter has one vote a day on all of these: that of
# the most similar query.
_LOAD_VOTES = compose(
    """
    WITH voted AS (
        SELECT memory_id AS id, v.* FROM consolidation.memory_votes v WHERE v.memory_id = ANY(%(ids)s::uuid[])
        UNION ALL
        SELECT t.consolidated_into_id, v.*
        FROM consolidation.task_memories t JOIN consolidation.memory_votes v ON v.memory_id = t.id
        WHERE t.consolidated_into_id = ANY(%(ids)s::uuid[])),
    weighted AS (
        SELECT v.id, v.voter, v.day, v.verdict, v.own_share, CASE
            WHEN v.verdict < 0 THEN %(unhelpful)s
            WHEN q.embedding IS NULL THEN %(unknown)s * (1 - v.own_share)
            ELSE greatest(0, least(1, (1 - (q.embedding <=> CAST(%(vector)s AS vector)) - %(related)s)
                / (%(same)s - %(related)s)))
        END AS weight
        FROM voted v LEFT JOIN consolidation.vote_queries q
            ON q.project_id = v.project_id AND q.query_hash = v.query_hash AND q.embedding_model = %(model)s
            AND vector_dims(q.embedding) = %(dimension)s
        WHERE v.day > current_date - %(days)s AND /* counts */),
    daily AS (
        SELECT id, voter, coalesce(max(weight) FILTER (WHERE verdict > 0), 0)
            - coalesce(max(weight) FILTER (WHERE verdict < 0), 0) AS net, avg(own_share) AS own_share
        FROM weighted GROUP BY id, voter, day)
    SELECT id::text, voter, sum(net)::float8, avg(own_share)::float8
    FROM daily GROUP BY id, voter ORDER BY id, voter
    """,
    counts=_COUNTS,
)
_WEIGHTS = {
    "days": VOTE_DAYS,
    "unhelpful": UNHELPFUL_WEIGHT,
    "unknown": UNKNOWN_QUERY_WEIGHT,
    "related": RELATED_QUERIES,
    "same": SAME_QUERIES,
}


def load_usefulness(
    connection: Connection, ids: Collection[str], *, query: tuple[str, Vectors] | None
) -> dict[str, float]:
    """Return the usefulness of those of these memories and entries that have votes.

    ``query``: embedding model and vector (d,) of what is asked now; a vote counts as far as its query is like it. None:
    the queries are not compared.
    """
    model, vector = query or ("", None)
    bound = {"ids": format_uuids(ids), "model": model, "vector": None, "dimension": 0}
    if vector is not None:
        bound |= {"vector": Vector(vector), "dimension": len(vector)}
    return compute_usefulness(Votes(*row) for row in fetch_rows(connection, _LOAD_VOTES, bound | _WEIGHTS))


_LOAD_ENTRY_VOTES = compose(
    """
    WITH supported AS (
        SELECT e.id, m.id AS memory_id
        FROM consolidation.playbook_entries e, unnest(e.supporting_memory_ids || e.source_id || e.id) AS m (id)
        WHERE e.project_id = :project),
    voted AS (
        SELECT s.id, v.* FROM supported s JOIN consolidation.memory_votes v USING (memory_id)
        UNION ALL
        SELECT DISTINCT s.id, v.*
        FROM supported s JOIN consolidation.task_memories t ON t.id = s.memory_id
            JOIN consolidation.memory_votes v ON v.memory_id = t.consolidated_into_id),
    daily AS (
        SELECT id, voter, sign(sum(verdict)) AS verdict, avg(own_share) AS own_share
        FROM voted v WHERE v.day > current_date - :days AND /* counts */ GROUP BY id, voter, day)
    SELECT id, voter, sum(verdict)::float8, avg(own_share)::float8
    FROM daily GROUP BY id, voter ORDER BY id, voter
    """,
    counts=_COUNTS,
)


def load_entry_usefulness(connection: Connection, project_id: UUID) -> dict[UUID, float]:
    """Return the usefulness of each playbook entry with votes on it or on what supports it, one a day and voter."""
    rows = connection.execute(text(_LOAD_ENTRY_VOTES), {"project": project_id, "days": VOTE_DAYS})
    return compute_usefulness(Votes(*row) for row in rows)


_DELETE_EXPIRED = "DELETE FROM consolidation./* table */ WHERE project_id = :project AND day <= current_date - :days"


def delete_expired_votes(connection: Connection, project_id: UUID) -> None:
    """Delete the votes of a project that are too old to count, and their queries."""
    for table in ("memory_votes", "vote_queries"):
        bound = {"project": project_id, "days": VOTE_DAYS}
        connection.execute(text(compose(_DELETE_EXPIRED, table=table)), bound)
