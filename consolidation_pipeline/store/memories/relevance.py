"""Relevance: inputs of the decay of memories, and saved scores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, copy_columns, load_columns
from consolidation_pipeline.store.memories.history_of_use import age_start
from consolidation_pipeline.store.memories.linked_units import IS_ACTIVE, active_units


@dataclass(frozen=True)
class DecayInputs:
    """Inputs of decay: ids ``S16`` (n,), and arrays of shape (n,) with ages in days as of an instant.

    ``age_days``: since the memory was learned or imported, see ``history_of_use``; of a consolidated memory, of its
    oldest source. ``access_days``: since the last use, the age if there was none. ``relations``: number of links;
    ``confidence``: their mean confidence. ``score``: stored relevance, and ``score_days`` its age; NaN = none.
    """

    ids: Ids
    age_days: npt.NDArray[np.float64]
    access_days: npt.NDArray[np.float64]
    importance: npt.NDArray[np.float64]
    relations: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    score_days: npt.NDArray[np.float64]


# `links`: one per relation type and pair of units, however many relations make it; the highest confidence counts. The
# mean is taken in one order, so that it is the same to the last bit every time.
_LOAD_DECAY_INPUTS = compose(
    """
    WITH RECURSIVE /* active_units */,
    links AS (
        SELECT id, count(*) AS relations, avg(confidence ORDER BY confidence) AS confidence
        FROM (
            SELECT side.id, max(r.confidence) AS confidence
            FROM chosen r JOIN active_units a ON a.origin = r.a_id JOIN active_units b ON b.origin = r.b_id,
                LATERAL (VALUES (a.id, b.id), (b.id, a.id)) AS side(id, other)
            WHERE a.id <> b.id GROUP BY side.id, side.other, r.relation_type) single
        GROUP BY id)
    SELECT t.id, extract(epoch FROM %(as_of)s - t.age_start)::float8 / 86400,
        extract(epoch FROM %(as_of)s - greatest(t.last_accessed_at, t.age_start))::float8 / 86400, t.importance,
        coalesce(l.relations, 0), coalesce(l.confidence, 0.5), coalesce(r.relevance_score, 'NaN'),
        coalesce(extract(epoch FROM %(as_of)s - r.relevance_at)::float8 / 86400, 'NaN')
    FROM (/* memories */) t LEFT JOIN links l ON l.id = t.id
        LEFT JOIN consolidation.relevance_scores r ON r.project_id = t.project_id AND r.memory_id = t.id
    ORDER BY t.id
    """,
    active_units=active_units(
        "r.project_id = %(project)s AND r.status = 'confirmed' AND r.created_at <= %(as_of)s "
        "AND r.relation_type <> 'supersedes'"
    ),
)
# `LATERAL`: grouped sources of all rows would be sorted again for each row while Postgres has no statistics.
_MEMORIES = {
    "task_memories": compose(
        """
        SELECT t.*, /* age_start */ AS age_start FROM consolidation.task_memories t
        WHERE t.project_id = %(project)s AND /* is_active */
        """,
        age_start=age_start("t"),
        is_active=IS_ACTIVE["task_memories"],
    ),
    "consolidated_memories": compose(
        """
        SELECT t.*, coalesce(oldest.age_start, greatest(t.learned_at, t.created_at)) AS age_start
        FROM consolidation.consolidated_memories t LEFT JOIN LATERAL (
            SELECT min(/* age_start */) AS age_start FROM unnest(t.source_memory_ids) AS source (id)
                JOIN consolidation.task_memories s ON s.id = source.id) oldest ON true
        WHERE t.project_id = %(project)s AND /* is_active */
        """,
        age_start=age_start("s"),
        is_active=IS_ACTIVE["consolidated_memories"],
    ),
}
_DECAY_COLUMNS = {
    "id": "S16",
    "age": ">f8",
    "access": ">f8",
    "importance": ">f8",
    "relations": ">i8",
    "confidence": ">f8",
    "score": ">f8",
    "score_age": ">f8",
}


def load_decay_inputs(connection: Connection, project_id: UUID, table: str, as_of: datetime) -> DecayInputs:
    """Return the active rows of ``table`` with their ages and links as of an instant, by id.

    A link is a confirmed relation that existed at the instant, between two units that are active now; that one
    supersedes the other is no link. Relations of a
    memory that was merged count for its merged memory; relations between two sources of one merged memory do not
    count. Several relations to one other unit count once per type, with the highest confidence.
    """
    statement = compose(_LOAD_DECAY_INPUTS, memories=_MEMORIES[table])
    parameters = {"project": project_id, "as_of": as_of}
    return DecayInputs(*load_columns(connection, statement, parameters, _DECAY_COLUMNS))


_SAVE_RELEVANCE = """
    INSERT INTO consolidation.relevance_scores (project_id, memory_id, relevance_score, relevance_at)
    SELECT t.project_id, t.id, s.relevance, :as_of FROM /* table */ t JOIN scores s USING (id) ORDER BY t.id
    ON CONFLICT (project_id, memory_id) DO UPDATE
    SET relevance_score = excluded.relevance_score, relevance_at = excluded.relevance_at
"""


def save_relevance(
    connection: Connection, table: str, ids: Ids, relevance: npt.NDArray[np.float64], as_of: datetime
) -> None:
    """Store relevance (n,) and its instant for the rows of ``table`` with ``ids``: one COPY, one statement."""
    connection.execute(text("CREATE TEMP TABLE scores (id uuid, relevance double precision) ON COMMIT DROP"))
    copy_columns(connection, "scores (id, relevance)", {"id": ids, "relevance": relevance})
    connection.execute(text(compose(_SAVE_RELEVANCE, table=f"consolidation.{table}")), {"as_of": as_of})
    connection.execute(text("DROP TABLE scores"))
