"""Summaries and profiles: the memories they are made of, their coverage, and the stored profiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.observation import Observation
from consolidation_pipeline.core.knowledge.summary_batches import SESSION_IDLE
from consolidation_pipeline.store.database.scope_keys import (
    crosses_scopes,
    is_dissolved,
    is_out_of_use,
    raw_scope_key,
    source_scope,
)
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.knowledge.abstractions import (
    APPROVED,
    REWRITE_PENDING,
    SourceRow,
    read_source_columns,
)
from consolidation_pipeline.store.memories.memories import join_text_columns
from consolidation_pipeline.store.similarity.similarity_graph import IS_NODE

# SQL that is true if the consolidated memory `s` is a summary that stands for its memories; it may be archived.
COVERS = compose("s.kind = 'summary' AND NOT /* dissolved */", dissolved=is_dissolved("s.archive_reason"))
# SQL that is true if the raw memory `t` waits for a summary. Sources of merged memories wait too.
IS_UNSUMMARIZED = compose(
    """NOT EXISTS (
        SELECT 1 FROM consolidation.memory_lineage l JOIN consolidation.consolidated_memories s ON s.id = l.child_id
        WHERE l.parent_id = t.id AND /* covers */)
    AND /* is_node */""",
    covers=COVERS,
    is_node=IS_NODE,
)


@dataclass(frozen=True, kw_only=True)
class SummarySource(SourceRow):
    """A source of a summary or profile. ``kind``: raw or summary. ``user_id``: None for a blank one too.

    ``is_pending``: of a summary: it was made without the model, as it failed, and is to be made again.
    ``superseded``: of a raw memory: ids of the confirmed relations by which newer ones replaced what it says.
    """

    user_id: str | None
    is_pending: bool = False
    superseded: tuple[str, ...] = ()


_LOAD_RAW_SOURCES = """
    SELECT id, 'raw' AS kind, ARRAY[goal, execution_summary, result, lessons_learned, feedback] AS texts, memory_type,
        success, importance, tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files,
        language::text AS language, learned_at, ARRAY[id] AS raw_ids, nullif(t.user_id, '') AS user_id,
        /* scope_key */ AS scope_key
    FROM consolidation.task_memories t WHERE project_id = :project /* filters */
    ORDER BY user_id NULLS FIRST, scope_key, learned_at, id
"""


def load_unsummarized(connection: Connection, project_id: UUID, model: str, *, scope: str) -> list[SummarySource]:
    """Return the raw memories with a vector of ``model`` that are not archived and in no summary.

    Sorted by user, those without one first, then by scope, then oldest first. ``scope``: the project's option.
    """
    filters = conditions("embedding_model = :model", IS_UNSUMMARIZED)
    statement = compose(_LOAD_RAW_SOURCES, filters=filters, scope_key=raw_scope_key(scope))
    rows = connection.execute(text(statement), {"project": project_id, "model": model}).mappings()
    return [SummarySource(**read_source_columns(row)) for row in rows]


_IN_SUMMARY = "t.id IN (SELECT parent_id FROM consolidation.memory_lineage WHERE child_id = :summary)"
# `superseded` of the details holds the relations that a summary regards, `told` the memories that it tells.
_LIST_OUTDATED_SUMMARIES = """
    WITH replaced AS MATERIALIZED (
        SELECT l.child_id, CAST(r.id AS text) AS relation, CAST(r.b_id AS text) AS memory
        FROM consolidation.memory_relations r JOIN consolidation.memory_lineage l ON l.parent_id = r.b_id
        WHERE r.project_id = :project AND r.relation_type = 'supersedes' AND r.status = 'confirmed'),
    current AS MATERIALIZED (
        SELECT child_id, array_agg(relation) AS relations, array_agg(memory) AS memories
        FROM replaced GROUP BY child_id)
    SELECT t.id FROM consolidation.consolidated_memories t LEFT JOIN current ON current.child_id = t.id
    WHERE project_id = :project AND kind = 'summary' AND retired_at IS NULL
        AND NOT pinned AND NOT details ? :approved AND NOT /* crosses_scopes */
        AND (:has_model OR consolidation_method = 'heuristic')
        AND (:has_model AND details ? :pending
            OR EXISTS (SELECT FROM unnest(current.relations, current.memories) AS new (relation, memory)
                WHERE NOT coalesce(details -> 'superseded' ? relation, false)
                    AND coalesce(details -> 'told' ? memory, true))
            OR EXISTS (SELECT FROM jsonb_array_elements_text(details -> 'superseded') AS known (relation)
                WHERE known.relation <> ALL (coalesce(current.relations, '{}'))))
    ORDER BY t.id
"""


def load_outdated_summaries(
    connection: Connection, project_id: UUID, *, scope: str, has_model: bool
) -> list[tuple[UUID, list[SummarySource]]]:
    """Return the active summaries to write again: the id of each, and its memories, oldest first.

    They wait for the text of a model, or since they were written, what they tell was superseded, or is no longer. Those
    that a person pinned or approved are left out, and without a model those that one wrote.
    """
    listed = compose(_LIST_OUTDATED_SUMMARIES, crosses_scopes=crosses_scopes(scope, "t"))
    marks = {"project": project_id, "pending": REWRITE_PENDING, "approved": APPROVED, "has_model": has_model}
    statement = compose(_LOAD_RAW_SOURCES, filters=conditions(_IN_SUMMARY), scope_key=raw_scope_key(scope))
    found = []
    for id_ in connection.execute(text(listed), marks).scalars().all():
        rows = connection.execute(text(statement), {"project": project_id, "summary": id_}).mappings()
        found.append((id_, [SummarySource(**read_source_columns(row)) for row in rows]))
    return [(id_, memories) for id_, memories in found if memories]


_LOAD_RENEWABLE = compose(
    """
    SELECT s.id, s.user_id, s.scope_key, ARRAY(
        SELECT parent_id FROM consolidation.memory_lineage l WHERE l.child_id = s.id) AS members
    FROM consolidation.consolidated_memories s
    WHERE s.project_id = :project AND s.kind = 'summary' AND /* out_of_use */
    ORDER BY s.updated_at DESC, s.id
    """,
    out_of_use=is_out_of_use("s.archive_reason"),
)


class RenewableSummary(NamedTuple):
    """A summary that is out of use as some of its ``members`` were edited or deleted, or are in quarantine."""

    id: UUID
    user_id: str | None
    scope_key: str | None
    members: Sequence[UUID]


def load_renewable(connection: Connection, project_id: UUID) -> list[RenewableSummary]:
    """Return the summaries that wait to be written again from what is left of their memories, newest first."""
    return [RenewableSummary(*row) for row in connection.execute(text(_LOAD_RENEWABLE), {"project": project_id})]


_LOAD_SUMMARIES = """
    SELECT id, kind, ARRAY[content] AS texts, memory_type, success, importance, tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files,
        language::text AS language, learned_at, source_memory_ids AS raw_ids, nullif(t.user_id, '') AS user_id,
        details ? 'rewrite_pending' AS is_pending, scope.key AS scope_key
    FROM consolidation.consolidated_memories t, /* scope */
    WHERE project_id = :project AND kind = 'summary' AND retired_at IS NULL AND NOT scope.crosses
    ORDER BY user_id NULLS FIRST, scope_key, learned_at, id
"""


def load_summaries(connection: Connection, project_id: UUID, *, scope: str) -> list[SummarySource]:
    """Return the active summaries of a project, sorted as by ``load_unsummarized``; none of several scopes."""
    statement = compose(_LOAD_SUMMARIES, scope=source_scope(scope, "t"))
    rows = connection.execute(text(statement), {"project": project_id}).mappings()
    return [SummarySource(**read_source_columns(row)) for row in rows]


@dataclass(frozen=True)
class UnsummarizedCount:
    """The number of memories without a summary. ``session_ended``: a session with some of them has ended."""

    memories: int
    session_ended: bool


_COUNT_UNSUMMARIZED = compose(
    """
    SELECT coalesce(sum(waiting), 0)::integer, coalesce(bool_or(ended), false) FROM (
        SELECT count(*) AS waiting,
            session_id IS NOT NULL AND max(created_at) <= CAST(:idle_since AS timestamptz) AS ended
        FROM consolidation.task_memories t WHERE project_id = :project /* filters */ GROUP BY session_id) sessions
    """,
    filters=conditions(IS_UNSUMMARIZED),
)


def count_unsummarized(connection: Connection, project_id: UUID, as_of: datetime) -> UnsummarizedCount:
    """Count the memories without a summary. A session has ended if it was idle for ``SESSION_IDLE`` at ``as_of``."""
    parameters = {"project": project_id, "idle_since": as_of - SESSION_IDLE}
    return UnsummarizedCount(*connection.execute(text(_COUNT_UNSUMMARIZED), parameters).one())


@dataclass(frozen=True)
class SummaryCoverage:
    """Raw memories in a summary, and summaries.

    ``source_chars``, ``chars``: characters of both, of summaries that know those of their memories.
    """

    memories: int
    summaries: int
    source_chars: int
    chars: int


_COUNT_COVERAGE = compose(
    """
    SELECT coalesce(sum(source_count), 0)::integer, count(*),
        coalesce(sum((details ->> 'source_chars')::bigint), 0)::bigint,
        coalesce(sum(char_length(content)) FILTER (WHERE details ? 'source_chars'), 0)::bigint
    FROM consolidation.consolidated_memories s WHERE project_id = :project AND /* covers */
    """,
    covers=COVERS,
)


def count_coverage(connection: Connection, project_id: UUID) -> SummaryCoverage:
    """Count a project's summarized memories and its summaries.

    Summaries that a person archived count too: their memories are not summarized again.
    """
    return SummaryCoverage(*connection.execute(text(_COUNT_COVERAGE), {"project": project_id}).one())


_LOAD_PROFILED = """
    SELECT owner, ARRAY[goal, execution_summary, result, lessons_learned, feedback] AS texts, memory_type, success,
        tags, ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = n.id ORDER BY path) AS files,
        language::text AS language, learned_at, agent_id AS agent, session_id AS session
    FROM (
        SELECT t.*, s.owner, row_number() OVER (PARTITION BY s.owner ORDER BY t.learned_at DESC, t.id) AS place
        FROM unnest(CAST(:summaries AS uuid[]), CAST(:owners AS integer[])) AS s(id, owner)
        JOIN consolidation.memory_lineage l ON l.child_id = s.id
        JOIN consolidation.task_memories t ON t.id = l.parent_id AND t.archived_at IS NULL) n
    WHERE place <= :most
    ORDER BY owner, learned_at, id
"""


def load_profiled(
    connection: Connection, summaries: Sequence[Collection[UUID]], *, most: int
) -> list[list[Observation]]:
    """Return the memories of each profile that are not archived, the newest ``most``, oldest first.

    ``summaries``: ids of the summaries of each profile.
    """
    pairs = [(id_, owner) for owner, ids in enumerate(summaries) for id_ in ids]
    parameters = {"summaries": [id_ for id_, _ in pairs], "owners": [owner for _, owner in pairs], "most": most}
    found: list[list[Observation]] = [[] for _ in summaries]
    for row in connection.execute(text(_LOAD_PROFILED), parameters).mappings():
        fields: dict[str, Any] = {**row, "tags": tuple(row["tags"]), "files": tuple(row["files"])}
        own = found[fields.pop("owner")]
        own.append(Observation(text=join_text_columns(fields.pop("texts")), **fields))
    return found


# User and scope key of a profile, each empty if it has none.
ProfileOwner = tuple[str, str]


@dataclass(frozen=True)
class ExistingProfile:
    """A stored profile. ``is_archived``: a person archived it. ``is_retired``: so, or it was of several scopes.

    ``by_model``: a model wrote its text. ``is_pending``: it or one of its summaries waits for the text of a model, and
    no person pinned it.
    """

    id: UUID
    owner: ProfileOwner
    version: int
    cluster_key: str
    is_archived: bool
    is_retired: bool
    by_model: bool
    is_pending: bool


_LOAD_PROFILES = compose(
    """
    SELECT id, coalesce(user_id, ''), coalesce(scope_key, ''), version, cluster_key,
        retired_at IS NOT NULL AND NOT /* dissolved */,
        retired_at IS NOT NULL,
        consolidation_method = 'llm',
        details ? 'rewrite_pending' AND NOT pinned
    FROM consolidation.consolidated_memories WHERE project_id = :project AND kind = 'procedural'
    """,
    dissolved=is_dissolved("archive_reason"),
)


def load_profiles(connection: Connection, project_id: UUID) -> dict[UUID, ExistingProfile]:
    """Return the profiles of a project by id, archived ones too."""
    rows = connection.execute(text(_LOAD_PROFILES), {"project": project_id}).tuples()
    return {row[0]: ExistingProfile(row[0], row[1:3], *row[3:]) for row in rows}
