"""Checks of merged memories, their sources and their lineage."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.store.checks.check import Check, limit_to_changes, list_changed_rows, select, select_changed
from consolidation_pipeline.store.database.scope_keys import crosses_scopes
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns

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

NO_MEMORY_IS_ABANDONED = Check(
    "no_memory_is_abandoned",
    select(_FIND_LOST_MEMORIES),
    "Every memory that was merged away is in a merged memory that is active or archived.",
)

_FIND_ORPHAN_LINEAGE = """
    SELECT l.child_id, l.parent_id FROM consolidation.memory_lineage l
        LEFT JOIN consolidation.consolidated_memories child ON child.id = l.child_id
        LEFT JOIN consolidation.task_memories raw ON raw.id = l.parent_id
        LEFT JOIN consolidation.consolidated_memories consolidated ON consolidated.id = l.parent_id
    WHERE l.project_id = :project /* changed */
        AND (child.id IS NULL OR (raw.id IS NULL AND consolidated.id IS NULL))
"""

LINEAGE_IS_WHOLE = Check(
    "lineage_is_whole",
    select_changed(_FIND_ORPHAN_LINEAGE, "l.child_id"),
    "Both rows of every lineage edge exist.",
    by_ledger=True,
)

_FIND_DUPLICATE_MERGED_MEMORIES = """
    SELECT min(id::text), count(*) FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
    GROUP BY memory_type, normalized_hash, coalesce(scope_key, '') HAVING count(*) > 1
"""

NO_FACT_TWICE = Check(
    "no_fact_twice",
    select(_FIND_DUPLICATE_MERGED_MEMORIES),
    "No two active merged memories have the same text.",
)

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
        for found in list_changed_rows(
            connection,
            project_id,
            compose(_FIND_CROSSING_SCOPES, crosses_scopes=crosses_scopes(option, "c")),
            "c.id",
            jobs,
            option=option,
        )
    ]


NO_MEMORY_CROSSES_SCOPES = Check(
    "no_memory_crosses_scopes",
    find_crossing_scopes,
    "The memories behind every consolidated memory are of one scope, by the option of the run that wrote it.",
    by_ledger=True,
)

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
    statement, limit = limit_to_changes(_LOAD_MERGED_TEXTS, "id", jobs)
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


NO_LITERAL_IS_LOST = Check(
    "no_literal_is_lost",
    find_lost_literals,
    "Every number, version, path, identifier and quotation of a source is in its merged memory.",
    by_ledger=True,
)

# Within the time that the ledger is kept.
_FIND_UNLEDGERED_VERSIONS = """
    SELECT c.id FROM consolidation.consolidated_memories c
    WHERE c.project_id = :project AND c.updated_at > now() - interval '90 days' AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes l
        WHERE l.entity_id = c.id AND l.version_after = c.version)
"""

EVERY_MERGE_IS_IN_THE_LEDGER = Check(
    "every_merge_is_in_the_ledger",
    select(_FIND_UNLEDGERED_VERSIONS),
    "The ledger has the newest version of every merged memory, so that the merge can be undone.",
)

# Counted before the join: to group afterwards would sort whole rows with their texts and vectors.
_FIND_WRONG_SOURCE_COUNTS = """
    SELECT id, source_count, coalesce(hidden, 0) FROM consolidation.consolidated_memories LEFT JOIN (
        SELECT consolidated_into_id AS id, count(*) AS hidden FROM consolidation.task_memories
        WHERE project_id = :project AND is_consolidated GROUP BY 1) sources USING (id)
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
        AND (source_count <> coalesce(hidden, 0) OR source_count <> cardinality(source_memory_ids))
"""

SOURCES_ADD_UP = Check(
    "sources_add_up",
    select(_FIND_WRONG_SOURCE_COUNTS),
    "The source count of every merged memory equals the number of memories merged into it.",
    blocking=False,
)
