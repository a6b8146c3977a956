"""Playbook entries: the candidates for them, the stored entries, and writing entries through the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.playbook import adjust_priority
from consolidation_pipeline.store.database.schema import playbook_entries
from consolidation_pipeline.store.database.scope_keys import REPLACED, raw_scope_key, source_scope
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.database.writers import WRITER_KEY
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.ledger.playbook_history import as_of_parameters, entries_as_of
from consolidation_pipeline.store.memories.votes import load_entry_usefulness


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An active pattern or principle that may become an entry.

    ``details``: without its evidence, which is large and not used in entries. ``raw_ids``: its raw memories, ascending.
    ``writers``: their writers. ``scope_key``: their scope, None in a project without walls.
    """

    id: UUID
    kind: str
    content: str
    content_hash: str
    details: Mapping[str, Any]
    tags: tuple[str, ...]
    confidence: float | None
    needs_review: bool
    is_heuristic: bool
    raw_ids: tuple[UUID, ...]
    writers: frozenset[str]
    scope_key: str | None = None


# Of the raw memories whose ids are in the column /* ids */.
_WRITERS = """ARRAY(
            SELECT DISTINCT /* writer */ FROM consolidation.task_memories t WHERE t.id = ANY(/* ids */))"""


def _writers_of(ids: str) -> str:
    return compose(_WRITERS, writer=WRITER_KEY, ids=ids)


_LOAD_CANDIDATES = """
    SELECT id, kind, content, content_hash, details - 'evidence' AS details, tags, confidence_score AS confidence,
        needs_review, consolidation_method = 'heuristic' AS is_heuristic,
        ARRAY(SELECT unnest(source_memory_ids) AS id ORDER BY id) AS raw_ids, /* writers */ AS writers,
        scope.key AS scope_key
    FROM consolidation.consolidated_memories c, /* scope */
    WHERE project_id = :project AND kind IN ('pattern', 'principle') AND retired_at IS NULL
        AND (CAST(:model AS text) IS NULL OR embedding_model = :model) AND NOT scope.crosses
    ORDER BY id
"""


def load_candidates(connection: Connection, project_id: UUID, model: str | None, *, scope: str) -> list[Candidate]:
    """Return the active patterns and principles that have a vector of ``model``, by id; none of several scopes.

    ``model``: None = with any vector or none. ``scope``: the project's option, here and below.
    """
    writers, joined = _writers_of("c.source_memory_ids"), source_scope(scope, "c")
    statement = compose(_LOAD_CANDIDATES, writers=writers, scope=joined)
    rows = connection.execute(text(statement), {"project": project_id, "model": model})
    return [
        Candidate(
            **{
                **row._mapping,
                "tags": tuple(row.tags),
                "raw_ids": tuple(row.raw_ids),
                "writers": frozenset(row.writers),
            }
        )
        for row in rows
    ]


_LOAD_WRITERS = compose(
    "SELECT id, /* writer */ AS writer FROM consolidation.task_memories t WHERE id = ANY(:ids)", writer=WRITER_KEY
)


def load_writers(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the writer of each raw memory, by memory id."""
    return {row.id: row.writer for row in connection.execute(text(_LOAD_WRITERS), {"ids": list(ids)})}


@dataclass(frozen=True, kw_only=True)
class PlaybookEntry:
    """A stored entry: its columns, and facts from the ledger.

    ``supporting_ids``: the raw memories that support it; ``writers``: their writers. ``is_text_manual``,
    ``is_status_manual``: a person set the text or status last; True too if the ledger does not reach back that far.
    ``status_at``: when the status was set last, None if the ledger does not tell.
    ``declined_ids``: supporting memories that a person removed by undoing the one change that added them.
    ``scope_key``: scope of its supporting memories, None without walls or without any.
    """

    id: UUID
    version: int | None
    source_id: UUID | None
    status: str
    content: str
    content_hash: str
    category: str
    tags: tuple[str, ...]
    priority: int
    confidence: float | None
    supporting_ids: tuple[UUID, ...]
    writers: frozenset[str] = field(default=frozenset(), compare=False)
    is_heuristic: bool = False
    is_text_manual: bool = False
    is_status_manual: bool = False
    status_at: datetime | None = field(default=None, compare=False)
    declined_ids: frozenset[UUID] = frozenset()
    scope_key: str | None = None


# A change is manual if it has no job, and reverts no whole job: undoing a job is no decision on each entry of it.
_LOAD_ENTRIES = """
    SELECT e.id, e.version, e.source_id, e.status, e.content, e.content_hash, e.category, e.tags, e.priority,
        e.confidence, e.supporting_memory_ids AS supporting_ids, /* writers */ AS writers,
        coalesce(s.consolidation_method = 'heuristic', false) AS is_heuristic,
        coalesce((
            SELECT c.job_id IS NULL AND coalesce(c.reverts_scope, 'group') = 'group'
            FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id AND c.new_state ? 'content'
            ORDER BY seq DESC LIMIT 1), true) AS is_text_manual,
        coalesce(d.is_manual, true) AS is_status_manual, d.changed_at AS status_at,
        ARRAY(
            SELECT one::uuid FROM jsonb_array_elements_text(n.before) AS one WHERE NOT n.after ? one) AS declined_ids,
        (SELECT min(/* scope_key */) FROM consolidation.task_memories t WHERE t.id = ANY(e.supporting_memory_ids))
            AS scope_key
    FROM consolidation.playbook_entries e
        LEFT JOIN consolidation.consolidated_memories s ON s.id = e.source_id
        LEFT JOIN LATERAL (
            SELECT c.job_id IS NULL AND coalesce(c.reverts_scope, 'group') = 'group' AS is_manual, c.changed_at
            FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id AND c.new_state ? 'status'
            ORDER BY seq DESC LIMIT 1) d ON true
        LEFT JOIN LATERAL (
            SELECT coalesce(c.previous_state -> 'supporting_memory_ids', '[]') AS before,
                c.new_state -> 'supporting_memory_ids' AS after,
                c.job_id IS NULL AND coalesce(c.reverts_scope, 'group') = 'group' AS is_manual
            FROM consolidation.consolidation_changes c
            WHERE c.entity_id = e.id AND c.new_state ? 'supporting_memory_ids'
            ORDER BY seq DESC LIMIT 1) n ON n.is_manual
    WHERE e.project_id = :project ORDER BY e.id
"""


def load_entries(connection: Connection, project_id: UUID, *, scope: str) -> list[PlaybookEntry]:
    """Return every entry of a project, retired ones too, by id."""
    writers = _writers_of("e.supporting_memory_ids")
    statement = compose(_LOAD_ENTRIES, writers=writers, scope_key=raw_scope_key(scope))
    rows = connection.execute(text(statement), {"project": project_id})
    return [
        PlaybookEntry(
            **{
                **row._mapping,
                "tags": tuple(row.tags),
                "supporting_ids": tuple(row.supporting_ids),
                "writers": frozenset(row.writers),
                "declined_ids": frozenset(row.declined_ids),
            }
        )
        for row in rows
    ]


_LOAD_ENTRY_VECTORS = """
    SELECT id, embedding FROM consolidation.playbook_entries
    WHERE project_id = %(project)s AND status <> 'retired' AND embedding_model = %(model)s
    UNION ALL
    SELECT id, embedding FROM consolidation.consolidated_memories
    WHERE id = ANY(%(ids)s) AND embedding_model = %(model)s
"""


def load_entry_vectors(
    connection: Connection, project_id: UUID, model: str, candidates: Sequence[UUID], dimension: int
) -> dict[UUID, Vectors]:
    """Return the vectors float32 (dimension,) of entries that are not retired and of ``candidates``, by id.

    Vectors of another model are left out.

    Raises:
        EmbeddingError: a vector has another length than ``dimension``.
    """
    parameters = {"project": project_id, "model": model, "ids": list(candidates)}
    ids, vectors = load_vectors(connection, _LOAD_ENTRY_VECTORS, parameters, dimension=dimension)
    return dict(zip(to_uuids(ids), vectors, strict=True))


_LOAD_SUCCESSORS = """
    WITH RECURSIVE chain AS (
        SELECT e.source_id AS origin, d.superseded_by_id AS id
        FROM consolidation.playbook_entries e JOIN consolidation.consolidated_memories d ON d.id = e.source_id
        WHERE e.project_id = :project AND d.retired_at IS NOT NULL
        UNION
        SELECT c.origin, d.superseded_by_id FROM chain c JOIN consolidation.consolidated_memories d ON d.id = c.id
        WHERE d.retired_at IS NOT NULL)
    SELECT c.origin, c.id FROM chain c JOIN consolidation.consolidated_memories d ON d.id = c.id
    WHERE d.retired_at IS NULL
"""


def load_successors(connection: Connection, project_id: UUID) -> dict[UUID, UUID]:
    """Return the last successor of each superseded source of an entry, by source id, if it is active."""
    return dict(connection.execute(text(_LOAD_SUCCESSORS), {"project": project_id}).tuples().all())


_LOAD_REPLACED = f"""
    SELECT DISTINCT d.id, d.retired_at FROM consolidation.playbook_entries e
        JOIN consolidation.consolidated_memories d ON d.id = e.source_id
    WHERE e.project_id = :project AND d.archive_reason ^@ '{REPLACED}'
"""


def load_replaced(connection: Connection, project_id: UUID) -> dict[UUID, datetime]:
    """Return when sources of entries were retired, as newer memories replaced all that they said, by source id."""
    return dict(connection.execute(text(_LOAD_REPLACED), {"project": project_id}).tuples().all())


_LOAD_WITHDRAWN = """
    WITH gone AS (
        SELECT entity_id FROM (
            SELECT DISTINCT ON (entity_id) entity_id, new_state, reverts_scope
            FROM consolidation.consolidation_changes
            WHERE project_id = :project AND entity_type = 'playbook_entries' ORDER BY entity_id, seq DESC) newest
        WHERE new_state IS NULL AND reverts_scope = 'group')
    SELECT DISTINCT entity_id, new_state ->> 'source_id' AS source, new_state ->> 'content_hash' AS hash
    FROM consolidation.consolidation_changes JOIN gone USING (entity_id)
"""


def load_withdrawn(connection: Connection, project_id: UUID) -> dict[UUID, frozenset[str]]:
    """Return the content hashes of entries that a person undid one by one, by the id of their source."""
    sources: dict[UUID, set[UUID]] = defaultdict(set)
    hashes: dict[UUID, set[str]] = defaultdict(set)
    for row in connection.execute(text(_LOAD_WITHDRAWN), {"project": project_id}):
        sources[row.entity_id].update(() if row.source is None else (UUID(row.source),))
        hashes[row.entity_id].update(() if row.hash is None else (row.hash,))
    found: dict[UUID, frozenset[str]] = {}
    for entry, ids in sources.items():
        found |= {id_: found.get(id_, frozenset()) | hashes[entry] for id_ in ids}
    return found


@dataclass(frozen=True)
class EntryChange:
    """An entry to write. ``version``: the stored version, None for a new entry. ``values``: the columns to set."""

    id: UUID
    version: int | None
    group_id: UUID
    values: Mapping[str, Any]
    reason: str
    confidence: float | None


def write_entries(
    connection: Connection, author: Author, changes: Sequence[EntryChange], *, operation: str, now: datetime
) -> None:
    """Write entries, each as a group of its own in the ledger; entries with the same columns share a statement.

    Raises:
        ConflictError: an entry changed since it was read.
    """
    by_columns: dict[tuple[bool, frozenset[str]], list[Change]] = defaultdict(list)
    for one in changes:
        times = {"updated_at": now, **({"created_at": now} if one.version is None else {})}
        change = Change(one.id, one.group_id, {**one.values, **times}, one.version, one.reason, one.confidence)
        by_columns[one.version is None, frozenset(one.values)].append(change)
    for (is_new, _), rows in by_columns.items():
        write = insert_rows if is_new else update_rows
        write(connection, author, playbook_entries, rows, operation=operation)


_LIST_ENTRIES = compose(
    """
    SELECT e.id, e.content, category, e.tags, priority, confidence, cardinality(supporting_memory_ids) AS evidence,
        (SELECT count(DISTINCT /* writer */) FROM consolidation.task_memories t
            WHERE t.id = ANY(supporting_memory_ids)) AS writers,
        supporting_memory_ids, source_id, e.status, e.created_at, e.updated_at
    FROM /* entries */ e WHERE e.project_id = :project AND e.status = :status
        AND (CAST(:category AS text) IS NULL OR category = :category)
    ORDER BY priority DESC, confidence DESC NULLS LAST, e.id
    """,
    writer=WRITER_KEY,
)


def list_entries(
    connection: Connection,
    project_id: UUID,
    *,
    limit: int,
    status: str,
    category: str | None = None,
    as_of: datetime | None = None,
) -> list[dict[str, Any]]:
    """Return the columns of the entries of one ``status``, and of one ``category`` if given, by ``priority``.

    The votes of the readers raise or lower it. Ties: by confidence. With ``as_of``, as the entries were then, without
    votes.
    """
    parameters = {"project": project_id, "status": status, "category": category} | as_of_parameters(as_of)
    rows = connection.execute(text(compose(_LIST_ENTRIES, entries=entries_as_of(as_of))), parameters)
    usefulness = load_entry_usefulness(connection, project_id) if as_of is None else {}
    entries = [{**row._mapping, "priority": adjust_priority(row.priority, usefulness.get(row.id, 0.0))} for row in rows]
    # The order of the query holds among equal priorities.
    return sorted(entries, key=lambda entry: -entry["priority"])[:limit]


_COUNT_ENTRIES = """
    SELECT status, count(*) FROM /* entries */ e WHERE project_id = :project GROUP BY status ORDER BY 1
"""


def count_entries(connection: Connection, project_id: UUID, *, as_of: datetime | None = None) -> dict[str, int]:
    """Return the number of a project's entries by status, now or at a time."""
    statement = compose(_COUNT_ENTRIES, entries=entries_as_of(as_of))
    parameters = {"project": project_id} | as_of_parameters(as_of)
    return {row[0]: row[1] for row in connection.execute(text(statement), parameters)}
