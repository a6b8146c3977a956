"""Labelled pairs: candidates of the similarity graph, and what people said about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.similarity.similarity_graph import ASK, IS_NODE, MERGE

# Candidates of two topics: enough to find one whose differences are worth a question.
_PER_TOPIC = 4
# Pairs of each verdict that are looked at, the nearest to the decision: a project may have millions.
_MAX_NEAR = 20_000

# `topic`: the pattern group of a memory, else its merged memory, else itself. `asked`: pairs of originals of a
# suggestion; a merged original stands for its sources. `distance`: pairs that would merge come least similar first,
# others most similar first. `uses`: labels of the topic that was asked about more often.
_LIST_CANDIDATES = """
    WITH topics AS MATERIALIZED (
        SELECT member_id, min(cluster_key) AS topic FROM consolidation.memory_clusters
        WHERE project_id = :project AND tier = 'pattern' GROUP BY member_id),
    nodes AS MATERIALIZED (
        SELECT t.id, t.memory_type, t.normalized_hash AS hash, /* scope */ AS scope, t.consolidated_into_id AS merged,
            coalesce(c.topic, coalesce(t.consolidated_into_id, t.id)::text) AS topic
        FROM consolidation.task_memories t LEFT JOIN topics c ON c.member_id = coalesce(t.consolidated_into_id, t.id)
        WHERE t.project_id = :project/* is_node */),
    labelled AS MATERIALIZED (
        SELECT least(a.normalized_hash, b.normalized_hash) AS low,
            greatest(a.normalized_hash, b.normalized_hash) AS high
        FROM consolidation.labelled_pairs l
            JOIN consolidation.task_memories a ON a.id = l.a JOIN consolidation.task_memories b ON b.id = l.b
        WHERE l.project_id = :project),
    uses AS MATERIALIZED (
        SELECT n.topic, count(*) AS uses
        FROM consolidation.labelled_pairs l, unnest(ARRAY[l.a, l.b]) AS side(id) JOIN nodes n USING (id)
        WHERE l.project_id = :project GROUP BY n.topic),
    originals AS MATERIALIZED (
        SELECT s.id AS suggestion, o.id AS original, m.id
        FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) AS o(id), LATERAL (
            SELECT o.id UNION ALL
            SELECT unnest(c.source_memory_ids) FROM consolidation.consolidated_memories c WHERE c.id = o.id) AS m(id)
        WHERE s.project_id = :project AND s.status IN ('pending', 'validated', 'rejected', 'kept')),
    asked AS MATERIALIZED (
        SELECT x.id AS a, y.id AS b FROM originals x
            JOIN originals y ON y.suggestion = x.suggestion AND y.original <> x.original AND y.id > x.id),
    near AS MATERIALIZED (
        (SELECT a, b, similarity, verdict FROM consolidation.memory_pairs
            WHERE project_id = :project AND embedding_model = :model AND verdict = :merge
            ORDER BY similarity, a, b LIMIT :near)
        UNION ALL
        (SELECT a, b, similarity, verdict FROM consolidation.memory_pairs
            WHERE project_id = :project AND embedding_model = :model AND verdict = :ask
            ORDER BY similarity DESC, a, b LIMIT :near)),
    pairs AS (
        SELECT n.a, n.b, n.similarity, n.verdict, a.topic AS topic_a, b.topic AS topic_b,
            CASE WHEN a.merged = b.merged THEN a.merged END AS merged_into,
            CASE WHEN n.verdict = :merge THEN n.similarity ELSE -n.similarity END AS distance,
            greatest(coalesce(u.uses, 0), coalesce(v.uses, 0)) AS uses
        FROM near n JOIN nodes a ON a.id = n.a JOIN nodes b ON b.id = n.b
            LEFT JOIN uses u ON u.topic = a.topic LEFT JOIN uses v ON v.topic = b.topic
        WHERE a.scope IS NOT DISTINCT FROM b.scope AND (:cross_type OR a.memory_type = b.memory_type)
            AND a.hash <> b.hash
            AND NOT EXISTS (SELECT 1 FROM asked q WHERE q.a = n.a AND q.b = n.b)
            AND NOT EXISTS (SELECT 1 FROM labelled l
                WHERE l.low = least(a.hash, b.hash) AND l.high = greatest(a.hash, b.hash))),
    spread AS (
        SELECT *, row_number() OVER (
            PARTITION BY verdict, least(topic_a, topic_b), greatest(topic_a, topic_b) ORDER BY distance, a, b) AS place
        FROM pairs),
    ranked AS (
        SELECT *, row_number() OVER (PARTITION BY verdict ORDER BY uses, distance, a, b) AS rank
        FROM spread WHERE place <= :per_topic)
    SELECT a, b, similarity, verdict, topic_a, topic_b, merged_into, distance, uses FROM ranked WHERE rank <= :most
    ORDER BY verdict DESC, rank
"""


def list_candidates(
    connection: Connection, project_id: UUID, model: str, *, scope: str, cross_type: bool, most: int
) -> Sequence[Row[Any]]:
    """Return pairs of the similarity graph that nobody was asked about, of different texts of one scope and type.

    Pairs that would merge come first, the least similar ahead; then those to ask about, the most similar ahead. Pairs
    of topics with fewer labels go before.

    Args:
        scope: The project's option.
        cross_type: True if the two may be of different types.
        most: Number of pairs of each verdict.
    """
    statement = compose(_LIST_CANDIDATES, scope=raw_scope_key(scope), is_node=conditions(IS_NODE))
    bound = {
        "project": project_id,
        "model": model,
        "ask": ASK,
        "merge": MERGE,
        "cross_type": cross_type,
        "near": _MAX_NEAR,
        "per_topic": _PER_TOPIC,
        "most": most,
    }
    return connection.execute(text(statement), bound).all()


_COUNT_OWN = "SELECT count(*) FROM consolidation.task_memories WHERE id IN (:a, :b) AND project_id = :project"
_APPEND_LABEL = """
    INSERT INTO consolidation.labelled_pairs (project_id, a, b, same, labelled_by)
    VALUES (:project, least(CAST(:a AS uuid), CAST(:b AS uuid)), greatest(CAST(:a AS uuid), CAST(:b AS uuid)), :same,
        :labelled_by)
    ON CONFLICT DO NOTHING
"""


def append_label(
    connection: Connection, project_id: UUID, a: UUID, b: UUID, *, same: bool | None, labelled_by: str
) -> None:
    """Store what a person says about two raw memories; ``same`` None: the person skipped them.

    Raises:
        NotFoundError: They are not two raw memories of the project.
        ConflictError: The pair was labelled before.
    """
    bound = {"project": project_id, "a": a, "b": b}
    if connection.execute(text(_COUNT_OWN), bound).scalar_one() != 2:
        raise NotFoundError(f"{a} and {b} are not two raw memories of this project")
    given = {**bound, "same": same, "labelled_by": labelled_by}
    if not connection.execute(text(_APPEND_LABEL), given).rowcount:
        raise ConflictError(f"the pair {a}, {b} was labelled by somebody else meanwhile", (str(a), str(b)))


_FIND_LABEL = """
    SELECT same FROM consolidation.labelled_pairs
    WHERE project_id = :project AND a = least(CAST(:a AS uuid), CAST(:b AS uuid))
        AND b = greatest(CAST(:a AS uuid), CAST(:b AS uuid))
"""
_DELETE_LABEL = """
    DELETE FROM consolidation.labelled_pairs
    WHERE project_id = :project AND a = least(CAST(:a AS uuid), CAST(:b AS uuid))
        AND b = greatest(CAST(:a AS uuid), CAST(:b AS uuid))
"""


def find_label(connection: Connection, project_id: UUID, a: UUID, b: UUID) -> Row[Any] | None:
    """Return the label of a pair, ``same`` as ``append_label`` got it; None if there is none."""
    return connection.execute(text(_FIND_LABEL), {"project": project_id, "a": a, "b": b}).one_or_none()


def delete_label(connection: Connection, project_id: UUID, a: UUID, b: UUID) -> bool:
    """Delete the label of a pair; return False if there is none."""
    return connection.execute(text(_DELETE_LABEL), {"project": project_id, "a": a, "b": b}).rowcount > 0


_COUNT_LABELS = """
    SELECT count(*) FILTER (WHERE same), count(*) FILTER (WHERE NOT same), count(*) FILTER (WHERE same IS NULL)
    FROM consolidation.labelled_pairs WHERE project_id = :project
"""


def count_labels(connection: Connection, project_id: UUID) -> tuple[int, int, int]:
    """Return the number of pairs labelled same, labelled different, and skipped."""
    same, different, skipped = connection.execute(text(_COUNT_LABELS), {"project": project_id}).one()
    return same, different, skipped


_LOAD_LABELS = """
    SELECT a, b, same FROM consolidation.labelled_pairs WHERE project_id = :project AND same IS NOT NULL
    ORDER BY labelled_at DESC, a, b LIMIT :most
"""


def load_labels(connection: Connection, project_id: UUID, *, most: int) -> list[tuple[UUID, UUID, bool]]:
    """Return the newest labels, without skipped pairs: two memories, and True if they may become one."""
    rows = connection.execute(text(_LOAD_LABELS), {"project": project_id, "most": most})
    return [(row.a, row.b, row.same) for row in rows]
