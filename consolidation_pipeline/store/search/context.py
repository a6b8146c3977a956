"""Queries of the context of a task: raw memories behind consolidated ones, and playbook entries that rest on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.playbook import adjust_priority
from consolidation_pipeline.store.database.scope_keys import has_walls, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.ledger.playbook_history import as_of_parameters, entries_as_of
from consolidation_pipeline.store.memories.votes import load_entry_usefulness

_LOAD_RAW_SOURCES = """
    SELECT id, source_memory_ids FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
"""


def load_raw_sources(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, frozenset[UUID]]:
    """Return the ids of the raw memories that each consolidated memory was made from; other ids are left out."""
    rows = connection.execute(text(_LOAD_RAW_SOURCES), {"ids": list(ids)})
    return {row.id: frozenset(row.source_memory_ids) for row in rows}


_LOAD_PATTERNS = """
    SELECT l.parent_id AS id, array_agg(l.child_id) AS pattern_ids
    FROM consolidation.memory_lineage l JOIN consolidation.consolidated_memories c ON c.id = l.child_id
    WHERE l.parent_id = ANY(:ids) AND c.kind = 'pattern' AND c.retired_at IS NULL GROUP BY l.parent_id
"""


def load_patterns(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, frozenset[UUID]]:
    """Return the ids of the active patterns that were made from each memory; memories without any are left out."""
    rows = connection.execute(text(_LOAD_PATTERNS), {"ids": list(ids)})
    return {row.id: frozenset(row.pattern_ids) for row in rows}


_LIST_SCOPES = """
    SELECT DISTINCT key FROM (
        SELECT /* raw_key */ AS key FROM consolidation.task_memories t WHERE project_id = :project) keys
    WHERE key ^@ ANY(:prefixes) ORDER BY key
"""


def list_scopes(connection: Connection, project_id: UUID, prefixes: Sequence[str], *, option: str) -> list[str]:
    """Return the scope keys of a project that begin with one of ``prefixes``, sorted.

    Args:
        option: The project's option ``scope``.
    """
    statement = compose(_LIST_SCOPES, raw_key=raw_scope_key(option))
    found = connection.execute(text(statement), {"project": project_id, "prefixes": list(prefixes)})
    return [row.key for row in found]


_HAS_SCOPE = """
    SELECT EXISTS (SELECT 1 FROM consolidation.task_memories t WHERE project_id = :project AND /* raw_key */ = :scope)
"""


def has_scope(connection: Connection, project_id: UUID, scope: str, *, option: str) -> bool:
    """Return True if a raw memory of a project has the scope key ``scope``; ``option``: the project's."""
    statement = compose(_HAS_SCOPE, raw_key=raw_scope_key(option))
    return bool(connection.execute(text(statement), {"project": project_id, "scope": scope}).scalar_one())


_LOAD_SCOPES = """
    SELECT id, /* raw_key */ AS scope FROM consolidation.task_memories t WHERE id = ANY(:ids) UNION ALL
    SELECT id, scope_key FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
"""


def load_scopes(connection: Connection, ids: Sequence[UUID], option: str) -> dict[UUID, str]:
    """Return the key of the scope of each memory; nothing for a project without walls.

    Args:
        option: The project's option ``scope``.
    """
    if not has_walls(option):
        return {}
    rows = connection.execute(text(compose(_LOAD_SCOPES, raw_key=raw_scope_key(option))), {"ids": list(ids)})
    return {row.id: row.scope or "" for row in rows}


@dataclass(frozen=True)
class SupportedEntry:
    """Active playbook entry.

    ``raw_ids``: the raw memories that it was made from or that support it. ``learned_at``: of the newest of them.
    """

    id: UUID
    content: str
    category: str
    tags: list[str]
    priority: int
    confidence: float | None
    raw_ids: frozenset[UUID]
    learned_at: datetime


_LOAD_SUPPORTED_ENTRIES = """
    SELECT e.id, e.content, e.category, e.tags, e.priority, e.confidence, support.raw_ids,
        coalesce((SELECT max(learned_at) FROM consolidation.task_memories WHERE id = ANY(support.raw_ids)),
            e.created_at) AS learned_at
    FROM /* entries */ e, LATERAL (
        SELECT array_agg(raw_id) AS raw_ids FROM (
            SELECT unnest(e.supporting_memory_ids) UNION
            SELECT unnest(c.source_memory_ids) FROM consolidation.consolidated_memories c WHERE c.id = e.source_id
        ) ids(raw_id)) support
    WHERE e.project_id = :project AND e.status = 'active' AND support.raw_ids && CAST(:ids AS uuid[]) /* in_scope */
"""


_IS_IN_SCOPE = """NOT EXISTS (SELECT 1 FROM consolidation.task_memories t
    WHERE t.id = ANY(support.raw_ids) AND /* scope_key */ NOT IN (:scope, ''))"""


def load_supported_entries(
    connection: Connection,
    project_id: UUID,
    ids: Sequence[UUID],
    *,
    scope: str | None,
    scope_option: str,
    as_of: datetime | None,
) -> list[SupportedEntry]:
    """Return the active entries that rest on at least one of the raw memories ``ids``, highest priority first.

    The votes of the readers raise or lower the priority.

    With ``scope``, all memories behind an entry are of this scope or of the empty one. ``scope_option``: the project's.
    With ``as_of``, as the entries were then, without votes.
    """
    is_scoped = scope is not None and has_walls(scope_option)
    own = compose(_IS_IN_SCOPE, scope_key=raw_scope_key(scope_option)) if is_scoped else None
    statement = compose(_LOAD_SUPPORTED_ENTRIES, entries=entries_as_of(as_of), in_scope=conditions(own))
    bound = {"project": project_id, "ids": list(ids)} | ({"scope": scope} if is_scoped else {})
    bound |= as_of_parameters(as_of)
    rows = connection.execute(text(statement), bound)
    entries = [SupportedEntry(**{**row._mapping, "raw_ids": frozenset(row.raw_ids)}) for row in rows]
    useful = load_entry_usefulness(connection, project_id) if as_of is None else {}
    ranked = [replace(one, priority=adjust_priority(one.priority, useful.get(one.id, 0.0))) for one in entries]
    return sorted(ranked, key=lambda entry: (-entry.priority, entry.id))


_COUNT_CATEGORIES = """
    SELECT category, count(*) FROM consolidation.playbook_entries
    WHERE project_id = :project AND status = 'active' GROUP BY category ORDER BY category
"""


def count_categories(connection: Connection, project_id: UUID) -> dict[str, int]:
    """Return the number of active playbook entries by category."""
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_CATEGORIES), {"project": project_id})}


_HAS_CONSOLIDATED_MEMORIES = """
    SELECT EXISTS (
        SELECT 1 FROM consolidation.consolidated_memories WHERE project_id = :project AND retired_at IS NULL)
"""


def has_consolidated_memories(connection: Connection, project_id: UUID) -> bool:
    """Return True if the project has an active consolidated memory."""
    return bool(connection.execute(text(_HAS_CONSOLIDATED_MEMORIES), {"project": project_id}).scalar_one())
