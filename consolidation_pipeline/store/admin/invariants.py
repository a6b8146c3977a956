"""Invariants of a project's data. Each function returns the rows that break one rule, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.core.memories.memories import MAX_TIME_AHEAD
from consolidation_pipeline.core.memories.relation_types import CANDIDATE_TYPES
from consolidation_pipeline.store.database.scope_keys import crosses_scopes
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.writers import WRITER_KEY
from consolidation_pipeline.store.knowledge.summaries import COVERS
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns
from consolidation_pipeline.store.similarity.similarity_graph import IS_MOVED

# Vectors are stored as float32: a norm is exact to about 1e-7, a similarity to about 1e-6.
_NORM_SLACK = 1e-3
_SIMILARITY_SLACK = 1e-4


# Most checks read small columns of all rows. Those that read texts, details or lineage may be limited to the rows that
# some ``jobs`` changed: all rows were checked before.
_CHANGED = "SELECT entity_id FROM consolidation.consolidation_changes WHERE job_id = ANY(:jobs)"


def _list_changed_violations(
    connection: Connection, project_id: UUID, statement: str, column: str, jobs: Sequence[UUID] | None, **bound: object
) -> list[str]:
    """Return the rows of ``statement``; with ``jobs`` those whose ``column`` is the id of a row that they changed."""
    statement, limit = _limit(statement, column, jobs)
    return _list_violations(connection, project_id, statement, **bound, **limit)


def _limit(statement: str, column: str, jobs: Sequence[UUID] | None) -> tuple[str, dict[str, object]]:
    """Return ``statement`` for rows whose ``column`` is the id of a row that ``jobs`` changed, and its parameters."""
    if jobs is None:
        return compose(statement, changed=""), {}
    return compose(statement, changed=conditions(f"{column} IN ({_CHANGED})")), {"jobs": [*jobs]}


_LIST_JOBS_TO_CHECK = """
    SELECT array_agg(j.id)
    FROM consolidation.consolidation_jobs this JOIN consolidation.consolidation_jobs j USING (project_id)
    WHERE this.dagster_run_id = :run AND this.project_id = :project AND j.started_at <= this.started_at
        AND j.started_at > (
            SELECT max(started_at) FROM consolidation.consolidation_jobs
            WHERE project_id = :project AND status = 'completed' AND phases_completed @> :phases
                AND started_at >= date_trunc('week', this.started_at) AND started_at < this.started_at)
"""


def list_jobs_to_check(
    connection: Connection, project_id: UUID, run_id: str, phases: Sequence[str]
) -> list[UUID] | None:
    """Return the jobs whose changes the checks of a Dagster run look at; None if they look at all rows.

    They look at all rows in the first run of each week that completes all ``phases``, and outside of runs of a job.
    Else they look at what was changed since the last such run began, by this run and by those that failed.
    """
    bound = {"project": project_id, "run": run_id, "phases": list(phases)}
    jobs: list[UUID] | None = connection.execute(text(_LIST_JOBS_TO_CHECK), bound).scalar_one()
    return jobs


def _list_violations(connection: Connection, project_id: UUID, statement: str, **bound: object) -> list[str]:
    rows = connection.execute(text(statement), {"project": project_id, **bound})
    return [" ".join(str(value) for value in row) for row in rows]


# The newest run of a phase, and the raw memories that it had before it: those that came, or were changed by somebody
# else, since then wait for the next run.
_NEWEST_RUN = """
    SELECT id, started_at AS at FROM consolidation.consolidation_jobs
    WHERE project_id = :project AND :phase = ANY(phases_completed) ORDER BY started_at DESC LIMIT 1
"""
_AND_UNCHANGED = """
    AND NOT EXISTS (SELECT FROM consolidation.consolidation_changes c
        WHERE c.entity_id = m.id AND c.changed_at > run.at AND c.job_id IS DISTINCT FROM run.id)
"""


# --- memories and vectors ------------------------------------------------------------------------------------------


_FIND_FUTURE_MEMORIES = """
    SELECT id, learned_at FROM consolidation.task_memories
    WHERE project_id = :project AND learned_at > now() + :ahead
"""


def find_future_memories(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories learned more than a day from now: a clock or a time zone is wrong."""
    return _list_violations(connection, project_id, _FIND_FUTURE_MEMORIES, ahead=MAX_TIME_AHEAD)


_FIND_UNEMBEDDED = compose(
    """
    SELECT m.id FROM consolidation.task_memories m, (/* newest_run */) run
    WHERE project_id = :project AND NOT is_archived AND embedding IS NULL AND created_at <= run.at /* and_unchanged */
    """,
    newest_run=_NEWEST_RUN,
    and_unchanged=_AND_UNCHANGED,
)


def find_unembedded(connection: Connection, project_id: UUID) -> list[str]:
    """Find raw memories that are not archived and got no vector by the newest run that made vectors."""
    return _list_violations(connection, project_id, _FIND_UNEMBEDDED, phase="embedding_matrix")


_FIND_MIXED_MODELS = compose(
    """
    SELECT embedding_model, count(*) FROM consolidation.task_memories m, (/* newest_run */) run
    WHERE project_id = :project AND NOT is_archived AND embedding IS NOT NULL AND created_at <= run.at
    GROUP BY 1 ORDER BY 2 DESC OFFSET 1
    """,
    newest_run=_NEWEST_RUN,
)


def find_mixed_models(connection: Connection, project_id: UUID) -> list[str]:
    """Find embedding models besides the most used one: vectors of different models are never compared."""
    return _list_violations(connection, project_id, _FIND_MIXED_MODELS, phase="embedding_matrix")


_FIND_UNNORMALIZED_VECTORS = """
    SELECT id FROM (
        SELECT id, embedding FROM consolidation.task_memories t WHERE project_id = :project/* changed */ OFFSET 0) t
    WHERE abs(vector_norm(embedding) - 1) > :slack
    UNION
    SELECT memory_id FROM consolidation.staged_embeddings
    WHERE project_id = :project AND abs(vector_norm(embedding) - 1) > :slack
"""


def find_unnormalized_vectors(
    connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None
) -> list[str]:
    """Find raw memories whose vector is not of length 1, and rows with such a staged vector.

    ``jobs``: look at the memories that were not compared yet, as the vectors of the others were checked before. The
    ledger does not hold vectors.
    """
    statement = compose(_FIND_UNNORMALIZED_VECTORS, changed="" if jobs is None else conditions(IS_MOVED))
    return _list_violations(connection, project_id, statement, slack=_NORM_SLACK)


_FIND_WITHOUT_RELEVANCE = compose(
    """
    WITH run AS (/* newest_run */)
    SELECT m.id FROM consolidation.task_memories m LEFT JOIN consolidation.relevance_scores s
        ON s.project_id = m.project_id AND s.memory_id = m.id, run
    WHERE m.project_id = :project AND NOT is_archived AND NOT is_consolidated
        AND (coalesce(relevance_score, 0) <= 0 OR relevance_score = 'NaN' OR relevance_score = 'Infinity')
        AND created_at <= run.at /* and_unchanged */
    UNION ALL
    SELECT m.id FROM consolidation.consolidated_memories m LEFT JOIN consolidation.relevance_scores s
        ON s.project_id = m.project_id AND s.memory_id = m.id, run
    WHERE m.project_id = :project AND retired_at IS NULL
        AND (coalesce(relevance_score, 0) <= 0 OR relevance_score = 'NaN' OR relevance_score = 'Infinity')
        /* and_unchanged */
    """,
    newest_run=_NEWEST_RUN,
    and_unchanged=_AND_UNCHANGED,
)


def find_without_relevance(connection: Connection, project_id: UUID) -> list[str]:
    """Find active memories to which the newest run that scores memories gave no positive, finite relevance."""
    return _list_violations(connection, project_id, _FIND_WITHOUT_RELEVANCE, phase="decay_scores")


# --- similarity graph and groups -----------------------------------------------------------------------------------


_FIND_BAD_PAIRS = """
    SELECT n.a, n.b, n.similarity FROM consolidation.memory_pairs n
        LEFT JOIN consolidation.task_memories a ON a.id = n.a
        LEFT JOIN consolidation.task_memories b ON b.id = n.b
    WHERE n.project_id = :project AND (a.id IS NULL OR b.id IS NULL OR NOT n.similarity BETWEEN -1 AND 1)
"""


def find_bad_pairs(connection: Connection, project_id: UUID) -> list[str]:
    """Find pairs of the similarity graph with an end that does not exist, or a similarity that is no cosine."""
    return _list_violations(connection, project_id, _FIND_BAD_PAIRS)


_FIND_WEAK_MERGE_GROUPS = """
    SELECT c.cluster_key, c.details ->> 'weakest_new_pair'
    FROM consolidation.memory_clusters c, LATERAL (
        SELECT (thresholds ->> 't_merge')::float8 AS t_merge FROM consolidation.similarity_calibrations k
        LEFT JOIN consolidation.consolidation_jobs run ON run.id = c.job_id
        WHERE k.project_id = c.project_id AND k.created_at <= coalesce(run.completed_at, 'infinity')
        ORDER BY k.created_at DESC LIMIT 1) k
    WHERE c.project_id = :project AND c.tier = 'merge' AND c.is_representative
        AND (c.details ->> 'weakest_new_pair')::float8 < k.t_merge - :slack
"""


def find_weak_merge_groups(connection: Connection, project_id: UUID) -> list[str]:
    """Find merge groups with a new member that is less similar to another one than the merge threshold of their run."""
    return _list_violations(connection, project_id, _FIND_WEAK_MERGE_GROUPS, slack=_SIMILARITY_SLACK)


_FIND_SHARED_MEMBERS = """
    SELECT member_id, count(*) FROM consolidation.memory_clusters
    WHERE project_id = :project AND tier = 'merge' GROUP BY 1 HAVING count(*) > 1
"""


def find_shared_members(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories in two merge groups."""
    return _list_violations(connection, project_id, _FIND_SHARED_MEMBERS)


# --- merged memories -----------------------------------------------------------------------------------------------


# Most consolidated memories have an active merged memory. Only the others are followed along their successors.
_FIND_LOST_MEMORIES = """
    WITH RECURSIVE successors AS (
        SELECT m.id AS memory, c.id, c.retired_at, c.archive_reason, c.superseded_by_id
        FROM consolidation.task_memories m
            LEFT JOIN consolidation.consolidated_memories c ON c.id = m.consolidated_into_id
        WHERE m.project_id = :project AND m.is_consolidated
            AND (c.id IS NULL OR (c.retired_at IS NOT NULL AND c.archive_reason IS NULL))
        UNION
        SELECT s.memory, c.id, c.retired_at, c.archive_reason, c.superseded_by_id
        FROM successors s JOIN consolidation.consolidated_memories c ON c.id = s.superseded_by_id
        WHERE s.retired_at IS NOT NULL)
    SELECT memory FROM successors GROUP BY memory
    HAVING NOT bool_or(id IS NOT NULL AND (retired_at IS NULL OR archive_reason IS NOT NULL))
"""


def find_lost_memories(connection: Connection, project_id: UUID) -> list[str]:
    """Find merged raw memories whose merged memory, or its last successor, is neither active nor archived."""
    return _list_violations(connection, project_id, _FIND_LOST_MEMORIES)


_FIND_ORPHAN_LINEAGE = """
    SELECT l.child_id, l.parent_id FROM consolidation.memory_lineage l
        LEFT JOIN consolidation.consolidated_memories child ON child.id = l.child_id
        LEFT JOIN consolidation.task_memories raw ON raw.id = l.parent_id
        LEFT JOIN consolidation.consolidated_memories consolidated ON consolidated.id = l.parent_id
    WHERE l.project_id = :project /* changed */
        AND (child.id IS NULL OR (raw.id IS NULL AND consolidated.id IS NULL))
"""


def find_orphan_lineage(connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None) -> list[str]:
    """Find lineage edges of which one end does not exist."""
    return _list_changed_violations(connection, project_id, _FIND_ORPHAN_LINEAGE, "l.child_id", jobs)


_FIND_DUPLICATE_MERGED_MEMORIES = """
    SELECT min(id::text), count(*) FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
    GROUP BY memory_type, normalized_hash, coalesce(scope_key, '') HAVING count(*) > 1
"""


def find_duplicate_merged_memories(connection: Connection, project_id: UUID) -> list[str]:
    """Find active merged memories with the same text, type and scope."""
    return _list_violations(connection, project_id, _FIND_DUPLICATE_MERGED_MEMORIES)


# What the option was when a row was written: the run that drew the lineage has it.
_LIST_SCOPE_OPTIONS = """
    SELECT DISTINCT options ->> 'scope' FROM consolidation.consolidation_jobs
    WHERE project_id = :project AND options ->> 'scope' <> 'project'
"""
_FIND_CROSSING_SCOPES = """
    SELECT c.id, c.kind FROM consolidation.consolidated_memories c
    WHERE c.project_id = :project AND c.retired_at IS NULL /* changed */ AND /* crosses_scopes */ AND EXISTS (
        SELECT 1 FROM consolidation.memory_lineage l JOIN consolidation.consolidation_jobs j ON j.id = l.job_id
        WHERE l.child_id = c.id AND j.options ->> 'scope' = :option)
"""


def find_crossing_scopes(connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None) -> list[str]:
    """Find active consolidated memories whose raw memories were of several scopes when they were written."""
    options = connection.scalars(text(_LIST_SCOPE_OPTIONS), {"project": project_id}).all()
    return [
        found
        for option in options
        for found in _list_changed_violations(
            connection,
            project_id,
            compose(_FIND_CROSSING_SCOPES, crosses_scopes=crosses_scopes(option, "c")),
            "c.id",
            jobs,
            option=option,
        )
    ]


_LOAD_MERGED_TEXTS = """
    SELECT c.id, c.content || E'\\n' || coalesce((
            SELECT string_agg(d, E'\\n') FROM jsonb_array_elements_text(c.details -> 'dropped') d), '') AS kept,
        m.goal, m.execution_summary, m.result, m.lessons_learned, m.feedback
    FROM (
        SELECT * FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL /* changed */
        ORDER BY updated_at DESC, id LIMIT :newest) c
        JOIN consolidation.task_memories m ON m.consolidated_into_id = c.id
    ORDER BY c.id
"""


def find_lost_literals(
    connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None, *, newest: int = 1000
) -> list[str]:
    """Find literals of sources that the ``newest`` merged memories neither contain nor list as dropped."""
    statement, limit = _limit(_LOAD_MERGED_TEXTS, "id", jobs)
    rows = connection.execute(text(statement), {"project": project_id, "newest": newest, **limit})
    lost, kept = [], {}
    for row in rows:
        source = join_text_columns([getattr(row, name) for name in TEXT_COLUMNS])
        if f"\n{source}\n" in f"\n{row.kept}\n":
            continue  # the text contains the whole source, as the first one of most merged memories
        if row.id not in kept:
            kept[row.id] = literals(row.kept)
        # A rewritten text may mark up a literal in another way.
        missing = [literal for literal in literals(source) - kept[row.id] if not stands_in(literal, row.kept)]
        lost += [f"{row.id} {literal.kind} {literal.value}" for literal in missing]
    return lost


_FIND_UNLEDGERED_VERSIONS = """
    SELECT c.id FROM consolidation.consolidated_memories c
    WHERE c.project_id = :project AND c.updated_at > now() - interval '90 days' AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes l
        WHERE l.entity_id = c.id AND l.version_after = c.version)
"""


def find_unledgered_versions(connection: Connection, project_id: UUID) -> list[str]:
    """Find consolidated memories whose current version is not in the ledger, within the time the ledger is kept."""
    return _list_violations(connection, project_id, _FIND_UNLEDGERED_VERSIONS)


# Counted before the join: to group afterwards would sort whole rows with their texts and vectors.
_FIND_WRONG_SOURCE_COUNTS = """
    SELECT id, source_count, coalesce(hidden, 0) FROM consolidation.consolidated_memories LEFT JOIN (
        SELECT consolidated_into_id AS id, count(*) AS hidden FROM consolidation.task_memories
        WHERE project_id = :project AND is_consolidated GROUP BY 1) sources USING (id)
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
        AND (source_count <> coalesce(hidden, 0) OR source_count <> cardinality(source_memory_ids))
"""


def find_wrong_source_counts(connection: Connection, project_id: UUID) -> list[str]:
    """Find active merged memories whose source count is not the number of raw memories merged into them."""
    return _list_violations(connection, project_id, _FIND_WRONG_SOURCE_COUNTS)


# --- relations -----------------------------------------------------------------------------------------------------


_FIND_DANGLING_RELATIONS = """
    SELECT r.id, ends.id FROM consolidation.memory_relations r, LATERAL (VALUES (r.a_id), (r.b_id)) AS ends(id)
    WHERE r.project_id = :project AND (r.a_id = r.b_id OR NOT EXISTS (
        SELECT 1 FROM consolidation.task_memories m WHERE m.id = ends.id AND m.project_id = :project
        UNION ALL
        SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = ends.id AND m.project_id = :project))
"""


def find_dangling_relations(connection: Connection, project_id: UUID) -> list[str]:
    """Find relations of a memory to itself, or to a memory that the project does not have."""
    return _list_violations(connection, project_id, _FIND_DANGLING_RELATIONS)


_FIND_UNREVIEWED_RELATIONS = """
    SELECT id, relation_type FROM consolidation.memory_relations r
    WHERE project_id = :project AND status = 'confirmed' AND relation_type = ANY(:candidate_types)
        AND created_at > now() - interval '90 days' AND NOT EXISTS (
            SELECT 1 FROM consolidation.consolidation_changes c
            WHERE c.entity_id = r.id AND c.operation = 'review' AND c.new_state ->> 'status' = 'confirmed')
"""


def find_unreviewed_relations(connection: Connection, project_id: UUID) -> list[str]:
    """Find confirmed relations of candidate types that no person confirmed, within the time the ledger is kept."""
    types = list(CANDIDATE_TYPES)
    return _list_violations(connection, project_id, _FIND_UNREVIEWED_RELATIONS, candidate_types=types)


_FIND_MISDIRECTED_SUPERSESSIONS = """
    SELECT r.id, a.learned_at FROM consolidation.memory_relations r
        JOIN consolidation.task_memories a ON a.id = r.a_id JOIN consolidation.task_memories b ON b.id = r.b_id
    WHERE r.project_id = :project AND r.relation_type = 'supersedes' AND r.status <> 'rejected'
        AND a.learned_at <= b.learned_at
"""


def find_misdirected_supersessions(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that supersede one that is not older."""
    return _list_violations(connection, project_id, _FIND_MISDIRECTED_SUPERSESSIONS)


# --- archive -------------------------------------------------------------------------------------------------------


# Raw and consolidated memories that are archived: `archived_at` is the time of archiving.
_ARCHIVED = """
    SELECT id, memory_type, importance, pinned, learned_at, archived_at, archive_reason
    FROM consolidation.task_memories WHERE project_id = :project AND archived_at IS NOT NULL
    UNION ALL
    SELECT id, memory_type, importance, pinned, learned_at, retired_at, archive_reason
    FROM consolidation.consolidated_memories WHERE project_id = :project AND archive_reason IS NOT NULL
"""
# The change that archived the memory `t`. The ledger keeps it for a limited time only.
_ARCHIVING = """
    SELECT a.seq, a.job_id FROM consolidation.consolidation_changes a
    WHERE a.entity_id = t.id AND a.operation = 'archive' AND a.new_state ->> 'archive_reason' = t.archive_reason
    ORDER BY a.seq DESC LIMIT 1
"""

_FIND_FORGOTTEN_TYPES = compose(
    """
    SELECT id, memory_type FROM (/* archived */) t
    WHERE archive_reason = 'forgotten' AND memory_type IN ('decision', 'discovery')
    """,
    archived=_ARCHIVED,
)


def find_forgotten_types(connection: Connection, project_id: UUID) -> list[str]:
    """Find decisions and discoveries that were forgotten."""
    return _list_violations(connection, project_id, _FIND_FORGOTTEN_TYPES)


_FIND_FORGOTTEN_YOUNG = compose(
    """
    SELECT id, archived_at - learned_at FROM (/* archived */) t
    WHERE archive_reason = 'forgotten' AND archived_at - learned_at < interval '90 days'
    """,
    archived=_ARCHIVED,
)


def find_forgotten_young(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that were forgotten before they were 90 days old."""
    return _list_violations(connection, project_id, _FIND_FORGOTTEN_YOUNG)


# A person may edit an archived memory, which breaks no rule. So its value counts only if the ledger has the archiving
# and no later change of the value.
_FIND_FORGOTTEN_IMPORTANT = compose(
    """
    SELECT t.id, t.importance FROM (/* archived */) t, LATERAL (/* archiving */) archiving
    WHERE t.archive_reason = 'forgotten' AND t.importance >= 0.7 AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.entity_id = t.id AND e.seq > archiving.seq AND e.previous_state ? 'importance')
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
)


def find_forgotten_important(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that were forgotten with an importance of 0.7 or more."""
    return _list_violations(connection, project_id, _FIND_FORGOTTEN_IMPORTANT)


# If the score was computed after the archiving, the memory was active again in between.
_FIND_FORGOTTEN_RELEVANT = compose(
    """
    SELECT t.id, s.relevance_score, j.options ->> 'forget_threshold'
    FROM (/* archived */) t JOIN consolidation.relevance_scores s ON s.project_id = :project AND s.memory_id = t.id,
        LATERAL (/* archiving */) archiving JOIN consolidation.consolidation_jobs j ON j.id = archiving.job_id
    WHERE t.archive_reason = 'forgotten' AND s.relevance_at <= t.archived_at
        AND s.relevance_score >= (j.options ->> 'forget_threshold')::float8
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
)


def find_forgotten_relevant(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that were forgotten with a relevance at or above the threshold of the job."""
    return _list_violations(connection, project_id, _FIND_FORGOTTEN_RELEVANT)


_FIND_ARCHIVED_PINNED = compose(
    """
    SELECT t.id, t.archive_reason FROM (/* archived */) t, LATERAL (/* archiving */) archiving
    WHERE t.archive_reason IN ('staleness', 'forgotten') AND t.pinned AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.entity_id = t.id AND e.seq > archiving.seq AND e.previous_state ? 'pinned')
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
)


def find_archived_pinned(connection: Connection, project_id: UUID) -> list[str]:
    """Find pinned memories that a policy archived."""
    return _list_violations(connection, project_id, _FIND_ARCHIVED_PINNED)


_FIND_UNEXPLAINED_ARCHIVES = """
    SELECT id FROM consolidation.task_memories
    WHERE project_id = :project AND (archived_at IS NOT NULL OR archive_reason IS NOT NULL)
        AND is_archived = (archive_reason IS NULL)
    UNION ALL
    SELECT id FROM consolidation.consolidated_memories
    WHERE project_id = :project
        AND ((retired_at IS NOT NULL AND superseded_by_id IS NULL) OR archive_reason IS NOT NULL)
        AND (retired_at IS NOT NULL AND superseded_by_id IS NULL) = (archive_reason IS NULL)
"""


def find_unexplained_archives(connection: Connection, project_id: UUID) -> list[str]:
    """Find archived memories without a reason, and active ones with one."""
    return _list_violations(connection, project_id, _FIND_UNEXPLAINED_ARCHIVES)


# --- patterns, principles and playbook -----------------------------------------------------------------------------


_FIND_FOREIGN_EVIDENCE = """
    SELECT c.id, e ->> 'unit'
    FROM consolidation.consolidated_memories c, jsonb_array_elements(c.details -> 'evidence') AS e
    WHERE c.project_id = :project AND c.kind IN ('pattern', 'principle') /* changed */ AND NOT EXISTS (
        SELECT 1 FROM consolidation.memory_lineage l
        WHERE l.child_id = c.id AND l.parent_id::text = e ->> 'unit')
"""


def find_foreign_evidence(connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None) -> list[str]:
    """Find patterns and principles with evidence from a memory that they were not derived from."""
    return _list_changed_violations(connection, project_id, _FIND_FOREIGN_EVIDENCE, "c.id", jobs)


_FIND_DUPLICATE_PATTERNS = """
    SELECT c.kind, c.cluster_key, count(*) FROM consolidation.consolidated_memories c
    WHERE c.project_id = :project AND c.kind IN ('pattern', 'principle')
        AND c.retired_at IS NULL AND c.cluster_key IS NOT NULL
    GROUP BY 1, 2 HAVING count(*) > 1
"""


def find_duplicate_patterns(connection: Connection, project_id: UUID) -> list[str]:
    """Find groups with two active patterns or two active principles."""
    return _list_violations(connection, project_id, _FIND_DUPLICATE_PATTERNS)


_FIND_UNSUPPORTED_ENTRIES = """
    SELECT id FROM consolidation.playbook_entries
    WHERE project_id = :project AND status = 'active'
        AND (SELECT count(DISTINCT e) FROM unnest(supporting_memory_ids) e) < :required
"""


def find_unsupported_entries(connection: Connection, project_id: UUID) -> list[str]:
    """Find active playbook entries with fewer supporting memories than are required."""
    return _list_violations(connection, project_id, _FIND_UNSUPPORTED_ENTRIES, required=REQUIRED_EVIDENCE)


_FIND_FOREIGN_SUPPORT = """
    SELECT p.id, e.id FROM consolidation.playbook_entries p, unnest(p.supporting_memory_ids) AS e(id)
    WHERE p.project_id = :project /* changed */ AND NOT EXISTS (
        SELECT 1 FROM consolidation.task_memories m WHERE m.id = e.id AND m.project_id = :project
        UNION ALL
        SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = e.id AND m.project_id = :project)
"""


def find_foreign_support(connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None) -> list[str]:
    """Find supporting memories of playbook entries that the project does not have."""
    return _list_changed_violations(connection, project_id, _FIND_FOREIGN_SUPPORT, "p.id", jobs)


_FIND_LOW_PRIORITIES = compose(
    """
    SELECT e.id, e.priority FROM consolidation.playbook_entries e CROSS JOIN LATERAL (
        SELECT count(DISTINCT /* writer */) AS writers FROM consolidation.task_memories t
        WHERE t.id = ANY(e.supporting_memory_ids)) evidence
    WHERE e.project_id = :project AND e.priority < CASE
        WHEN confidence IS NULL THEN 50
        ELSE least(100, 50 + trunc(50 * confidence) + greatest(0, writers - :required)) END
    """,
    writer=WRITER_KEY,
)


def find_low_priorities(connection: Connection, project_id: UUID) -> list[str]:
    """Find playbook entries below the priority that ``core.knowledge.playbook`` gives to their evidence."""
    return _list_violations(connection, project_id, _FIND_LOW_PRIORITIES, required=REQUIRED_EVIDENCE)


_FIND_DUPLICATE_ENTRIES = """
    SELECT source_id, count(*) FROM consolidation.playbook_entries
    WHERE project_id = :project AND status = 'active' AND source_id IS NOT NULL
    GROUP BY 1 HAVING count(*) > 1
"""


def find_duplicate_entries(connection: Connection, project_id: UUID) -> list[str]:
    """Find patterns and principles with two active playbook entries."""
    return _list_violations(connection, project_id, _FIND_DUPLICATE_ENTRIES)


# --- summaries and profiles ----------------------------------------------------------------------------------------


_FIND_INCONSISTENT_SUMMARIES = compose(
    """
    WITH edges AS MATERIALIZED (
        SELECT l.parent_id AS memory, s.id AS summary, /* covers */ AS covers
        FROM consolidation.consolidated_memories s JOIN consolidation.memory_lineage l ON l.child_id = s.id
        WHERE s.project_id = :project AND s.kind = 'summary')
    SELECT coalesce(e.memory, s.source) AS memory, coalesce(e.summary, s.id)::text AS found FROM (
        SELECT id, unnest(source_memory_ids) AS source FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'summary') s
    FULL JOIN edges e ON e.memory = s.source AND e.summary = s.id
    WHERE e.memory IS NULL OR s.id IS NULL
    UNION ALL
    SELECT memory, min(summary::text) FROM edges WHERE covers GROUP BY memory HAVING count(*) > 1
    """,
    covers=COVERS,
)


def find_inconsistent_summaries(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that a summary lists but its lineage does not, or the reverse, or that are in two summaries."""
    return _list_violations(connection, project_id, _FIND_INCONSISTENT_SUMMARIES)


_FIND_INVALID_PROFILES = """
    WITH profiles AS (
        SELECT id, coalesce(user_id, '') AS owner, coalesce(scope_key, '') AS scope
        FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'procedural' AND retired_at IS NULL),
    parents AS (
        SELECT p.id, s.kind = 'summary' AND coalesce(s.user_id, '') = p.owner AS is_own
        FROM profiles p LEFT JOIN consolidation.memory_lineage l ON l.child_id = p.id
            LEFT JOIN consolidation.consolidated_memories s ON s.id = l.parent_id)
    SELECT DISTINCT id FROM parents WHERE is_own IS NOT TRUE
    UNION
    SELECT min(id::text)::uuid FROM profiles GROUP BY owner, scope HAVING count(*) > 1
"""


def find_invalid_profiles(connection: Connection, project_id: UUID) -> list[str]:
    """Find second active profiles of a user in a scope, and profiles not made of existing summaries of their user."""
    return _list_violations(connection, project_id, _FIND_INVALID_PROFILES)


# --- suggestions ---------------------------------------------------------------------------------------------------


_FIND_SHARED_ORIGINALS = """
    SELECT o.id, count(DISTINCT s.id)
    FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) AS o(id)
    WHERE s.project_id = :project AND s.status = 'pending' GROUP BY 1 HAVING count(DISTINCT s.id) > 1
"""


def find_shared_originals(connection: Connection, project_id: UUID) -> list[str]:
    """Find memories that two pending suggestions would merge."""
    return _list_violations(connection, project_id, _FIND_SHARED_ORIGINALS)


_FIND_INVALID_APPROVALS = """
    SELECT s.id, s.result_memory_id FROM consolidation.consolidation_suggestions s
    WHERE s.project_id = :project AND (s.status = 'validated' OR s.result_memory_id IS NOT NULL) AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidated_memories c
        WHERE c.id = s.result_memory_id AND c.project_id = :project AND c.kind = 'merged' AND s.status = 'validated')
"""


def find_invalid_approvals(connection: Connection, project_id: UUID) -> list[str]:
    """Find approved suggestions without a merged memory of the project, and others that have one."""
    return _list_violations(connection, project_id, _FIND_INVALID_APPROVALS)


# --- connected stores ----------------------------------------------------------------------------------------------


_FIND_UNMIRRORED_ROWS = """
    SELECT s.name, r.key FROM consolidation.sources s JOIN consolidation.source_rows r ON r.source_id = s.id
    WHERE s.project_id = :project AND r.state IN ('mirrored', 'hidden') AND NOT EXISTS (
        SELECT FROM consolidation.task_memories t WHERE t.id = r.memory_id AND t.project_id = :project)
    -- The new row of a write, which a later one hid.
    AND NOT (r.state = 'hidden' AND EXISTS (
        SELECT FROM consolidation.consolidated_memories m WHERE m.id = r.memory_id AND m.project_id = :project))
"""


def find_unmirrored_rows(connection: Connection, project_id: UUID) -> list[str]:
    """Find rows of connected stores that have no raw memory."""
    return _list_violations(connection, project_id, _FIND_UNMIRRORED_ROWS)


_FIND_UNEXPLAINED_HIDDEN_ROWS = """
    SELECT s.name, r.key FROM consolidation.sources s JOIN consolidation.source_rows r ON r.source_id = s.id
    WHERE s.project_id = :project AND r.state = 'hidden' AND NOT EXISTS (
        SELECT FROM consolidation.source_writes w
        WHERE w.source_id = s.id AND w.status IN ('written', 'gone') AND w.plan -> 'stamps' ? r.key)
"""


def find_unexplained_hidden_rows(connection: Connection, project_id: UUID) -> list[str]:
    """Find rows that are hidden in their store and belong to no written group."""
    return _list_violations(connection, project_id, _FIND_UNEXPLAINED_HIDDEN_ROWS)


# --- names ---------------------------------------------------------------------------------------------------------

# Name of each check, in Dagster and in reports of runs.
CHECK_NAMES: Mapping[Callable[..., list[str]], str] = {
    find_future_memories: "no_memory_is_from_the_future",
    find_unembedded: "every_memory_is_embedded",
    find_mixed_models: "one_embedding_model",
    find_unnormalized_vectors: "vectors_are_normalized",
    find_without_relevance: "relevance_is_positive",
    find_bad_pairs: "pairs_are_cosines",
    find_weak_merge_groups: "merge_groups_do_not_chain",
    find_shared_members: "one_merge_group_per_memory",
    find_lost_memories: "no_memory_is_abandoned",
    find_orphan_lineage: "lineage_is_whole",
    find_duplicate_merged_memories: "no_fact_twice",
    find_crossing_scopes: "no_memory_crosses_scopes",
    find_lost_literals: "no_literal_is_lost",
    find_unledgered_versions: "every_merge_is_in_the_ledger",
    find_wrong_source_counts: "sources_add_up",
    find_dangling_relations: "relations_have_two_ends",
    find_unreviewed_relations: "candidates_do_not_count",
    find_misdirected_supersessions: "newer_supersedes_older",
    find_forgotten_types: "no_decision_is_forgotten",
    find_forgotten_young: "nothing_young_is_forgotten",
    find_forgotten_important: "nothing_important_is_forgotten",
    find_forgotten_relevant: "nothing_relevant_is_forgotten",
    find_archived_pinned: "nothing_pinned_is_archived",
    find_unexplained_archives: "every_archive_has_a_reason",
    find_foreign_evidence: "evidence_points_to_units",
    find_duplicate_patterns: "one_pattern_per_group",
    find_unsupported_entries: "every_entry_has_evidence",
    find_foreign_support: "evidence_is_of_the_project",
    find_low_priorities: "priority_follows_evidence",
    find_duplicate_entries: "one_entry_per_source",
    find_inconsistent_summaries: "every_episode_is_in_its_summary",
    find_invalid_profiles: "profiles_rest_on_summaries",
    find_shared_originals: "one_pending_suggestion_per_memory",
    find_invalid_approvals: "every_approval_made_a_memory",
    find_unmirrored_rows: "every_row_has_a_memory",
    find_unexplained_hidden_rows: "every_hidden_row_was_written",
}
