"""The playbook: what may become an entry, the entries there are, and how they are written through the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.schema import playbook_entries
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An active pattern or principle that an entry may be made of. ``leaves``: its raw memories, ascending.

    ``details`` without its evidence, which is most of it and says nothing in an entry.
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
    leaves: tuple[UUID, ...]


def load_candidates(connection: Connection, project_id: UUID, model: str) -> list[Candidate]:
    """The active patterns and principles that have a vector of ``model``, by id."""
    rows = connection.execute(
        text(
            "SELECT id, kind, content, content_hash, details - 'evidence' AS details, tags, "
            "confidence_score AS confidence, needs_review, consolidation_method = 'heuristic' AS is_heuristic, "
            "ARRAY(SELECT unnest(source_memory_ids) AS id ORDER BY id) AS leaves FROM consolidation.consolidated_memories "
            "WHERE project_id = :project AND kind IN ('pattern', 'principle') AND retired_at IS NULL "
            "AND embedding_model = :model ORDER BY id"
        ),
        {"project": project_id, "model": model},
    )
    return [Candidate(**{**row._mapping, "tags": tuple(row.tags), "leaves": tuple(row.leaves)}) for row in rows]


@dataclass(frozen=True, kw_only=True)
class PlaybookEntry:
    """An entry as the playbook holds it: its columns, then what the ledger tells about it.

    ``words_by_hand``, ``status_by_hand``: whoever gave it its text, or status, last was a person; also where the ledger
    does not reach back so far. ``declined``: evidence that a person took out of it by undoing just that.
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
    supporting: tuple[UUID, ...]
    is_heuristic: bool = False
    words_by_hand: bool = False
    status_by_hand: bool = False
    declined: frozenset[UUID] = frozenset()


# Undoing a whole job is no word on each entry of it.
_BY_HAND = "c.job_id IS NULL AND coalesce(c.reverts_scope, 'group') = 'group'"
_NEWEST = f"""(SELECT {_BY_HAND} FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id AND c.new_state ? '{{key}}'
    ORDER BY seq DESC LIMIT 1)"""
_ENTRIES = f"""
    SELECT e.id, e.version, e.source_id, e.status, e.content, e.content_hash, e.category, e.tags, e.priority,
        e.confidence, e.supporting_memory_ids AS supporting,
        coalesce(s.consolidation_method = 'heuristic', false) AS is_heuristic,
        coalesce({_NEWEST.format(key="content")}, true) AS words_by_hand,
        coalesce({_NEWEST.format(key="status")}, true) AS status_by_hand,
        ARRAY(SELECT one::uuid FROM jsonb_array_elements_text(n.before) AS one WHERE NOT n.after ? one) AS declined
    FROM {playbook_entries} e LEFT JOIN consolidation.consolidated_memories s ON s.id = e.source_id LEFT JOIN LATERAL (
        SELECT coalesce(c.previous_state -> 'supporting_memory_ids', '[]') AS before,
            c.new_state -> 'supporting_memory_ids' AS after, {_BY_HAND} AS by_hand
        FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id AND c.new_state ? 'supporting_memory_ids'
        ORDER BY seq DESC LIMIT 1) n ON n.by_hand
    WHERE e.project_id = :project ORDER BY e.id
"""


def load_entries(connection: Connection, project_id: UUID) -> list[PlaybookEntry]:
    """Every entry of a project, retired ones too, by id."""
    rows = connection.execute(text(_ENTRIES), {"project": project_id})
    return [
        PlaybookEntry(
            **{
                **row._mapping,
                "tags": tuple(row.tags),
                "supporting": tuple(row.supporting),
                "declined": frozenset(row.declined),
            }
        )
        for row in rows
    ]


def load_entry_vectors(
    connection: Connection, project_id: UUID, model: str, candidates: Sequence[UUID], dimension: int
) -> dict[UUID, Vectors]:
    """Vectors float32 (dimension,) by id: of the entries that are not retired, and of the ``candidates``.

    Those of another model are left out.
    """
    query = (
        f"SELECT id, embedding FROM {playbook_entries} WHERE project_id = %(project)s AND status <> 'retired' "
        "AND embedding_model = %(model)s UNION ALL SELECT id, embedding FROM consolidation.consolidated_memories "
        "WHERE id = ANY(%(ids)s) AND embedding_model = %(model)s"
    )
    parameters = {"project": project_id, "model": model, "ids": list(candidates)}
    ids, vectors = load_vectors(connection, query, parameters, dimension=dimension)
    return dict(zip(to_uuids(ids), vectors, strict=True))


def load_successors(connection: Connection, project_id: UUID) -> dict[UUID, UUID]:
    """What a superseded source of an entry came to stand in at last, where that is active."""
    query = f"""
        WITH RECURSIVE chain AS (
            SELECT e.source_id AS origin, d.superseded_by_id AS id
            FROM {playbook_entries} e JOIN consolidation.consolidated_memories d ON d.id = e.source_id
            WHERE e.project_id = :project AND d.retired_at IS NOT NULL
            UNION
            SELECT c.origin, d.superseded_by_id FROM chain c JOIN consolidation.consolidated_memories d ON d.id = c.id
            WHERE d.retired_at IS NOT NULL)
        SELECT c.origin, c.id FROM chain c JOIN consolidation.consolidated_memories d ON d.id = c.id WHERE d.retired_at IS NULL
    """
    return dict(connection.execute(text(query), {"project": project_id}).tuples().all())


def load_withdrawn(connection: Connection, project_id: UUID) -> dict[UUID, frozenset[str]]:
    """Sources whose entry a person undid by itself: source -> the hashes of the texts that the entry had."""
    query = """
        WITH gone AS (
            SELECT entity_id FROM (
                SELECT DISTINCT ON (entity_id) entity_id, new_state, reverts_scope FROM consolidation.consolidation_changes
                WHERE project_id = :project AND entity_type = 'playbook_entries' ORDER BY entity_id, seq DESC) newest
            WHERE new_state IS NULL AND reverts_scope = 'group')
        SELECT DISTINCT entity_id, new_state ->> 'source_id' AS source, new_state ->> 'content_hash' AS hash
        FROM consolidation.consolidation_changes JOIN gone USING (entity_id)
    """
    sources: dict[UUID, set[UUID]] = defaultdict(set)
    hashes: dict[UUID, set[str]] = defaultdict(set)
    for row in connection.execute(text(query), {"project": project_id}):
        sources[row.entity_id].update(() if row.source is None else (UUID(row.source),))
        hashes[row.entity_id].update(() if row.hash is None else (row.hash,))
    found: dict[UUID, frozenset[str]] = {}
    for entry, ids in sources.items():
        found |= {id_: found.get(id_, frozenset()) | hashes[entry] for id_ in ids}
    return found


@dataclass(frozen=True)
class EntryChange:
    """An entry to be written: the columns that are new, and the present version; None for a new entry."""

    id: UUID
    version: int | None
    group_id: UUID
    values: Mapping[str, Any]
    reason: str
    confidence: float | None


def write_entries(
    connection: Connection, author: Author, changes: Sequence[EntryChange], *, operation: str, now: datetime
) -> None:
    """Write entries, each as a group of its own in the ledger; one statement for those that change the same columns.

    Raises:
        ConflictError: an entry changed since it was read.
    """
    alike: dict[tuple[bool, frozenset[str]], list[Change]] = defaultdict(list)
    for one in changes:
        times = {"updated_at": now, **({"created_at": now} if one.version is None else {})}
        change = Change(one.id, one.group_id, {**one.values, **times}, one.version, one.reason, one.confidence)
        alike[one.version is None, frozenset(one.values)].append(change)
    for (is_new, _), rows in alike.items():
        write = insert_rows if is_new else update_rows
        write(connection, author, playbook_entries, rows, operation=operation)


def list_entries(
    connection: Connection, project_id: UUID, *, limit: int, status: str, category: str | None = None
) -> Sequence[Row[Any]]:
    """Entries of one ``status``, and of one ``category`` if given, by priority, then confidence."""
    query = f"""
        SELECT id, content, category, tags, priority, confidence, cardinality(supporting_memory_ids) AS evidence,
            supporting_memory_ids, source_id, status, created_at, updated_at
        FROM {playbook_entries} WHERE project_id = :project AND status = :status
            AND (CAST(:category AS text) IS NULL OR category = :category)
        ORDER BY priority DESC, confidence DESC NULLS LAST, id LIMIT :limit
    """
    parameters = {"project": project_id, "status": status, "category": category, "limit": limit}
    return connection.execute(text(query), parameters).all()


def count_entries(connection: Connection, project_id: UUID) -> dict[str, int]:
    """How many entries of each status a project has."""
    query = f"SELECT status, count(*) FROM {playbook_entries} WHERE project_id = :project GROUP BY status ORDER BY 1"
    return {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id})}
