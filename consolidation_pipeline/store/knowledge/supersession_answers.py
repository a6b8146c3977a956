"""Answers of supersession judges: which older memories a newer one was compared with, and what it makes outdated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.knowledge.supersessions import IS_DATED, SCOPE
from consolidation_pipeline.store.similarity.similarity_graph import IS_NODE

_LIST_UNJUDGED = """
    SELECT t.id, /* scope */ FROM consolidation.task_memories t
        LEFT JOIN consolidation.compared_memories c ON c.project_id = t.project_id AND c.memory_id = t.id
    WHERE /* is_dated */ AND (/* is_node */) AND c.judged_by IS DISTINCT FROM :judge
    ORDER BY t.learned_at DESC, t.id
"""


def list_unjudged(connection: Connection, project_id: UUID, judge: str, *, scope: str) -> list[tuple[UUID, str]]:
    """Return the memories that ``judge`` was not asked about as newer ones, and the hash of the scope of each.

    Those that were learned last come first; archived ones are left out. ``scope``: the project's option.
    """
    parts = {"scope": compose(SCOPE, scope_key=raw_scope_key(scope)), "is_dated": IS_DATED, "is_node": IS_NODE}
    rows = connection.execute(text(compose(_LIST_UNJUDGED, **parts)), {"project": project_id, "judge": judge})
    return [(row[0], row[1]) for row in rows]


_MARK_JUDGED = """
    UPDATE consolidation.compared_memories SET judged_by = :judge
    WHERE project_id = :project AND memory_id = ANY(:ids)
"""


def mark_judged(connection: Connection, project_id: UUID, judge: str, ids: Collection[UUID]) -> None:
    """Note that ``judge`` was asked about memories as newer ones. A memory that changes loses this note."""
    connection.execute(text(_MARK_JUDGED), {"project": project_id, "judge": judge, "ids": list(ids)})


# Newer and older memory.
Pair = tuple[UUID, UUID]

_LOAD_ANSWERED = """
    SELECT a.newer_id, a.older_id FROM consolidation.supersession_answers a
        JOIN consolidation.task_memories n ON n.id = a.newer_id AND n.content_hash = a.newer_hash
        JOIN consolidation.task_memories o ON o.id = a.older_id AND o.content_hash = a.older_hash
    WHERE a.project_id = :project AND a.judge = :judge AND a.newer_id = ANY(:newer)
"""


def load_answered(connection: Connection, project_id: UUID, judge: str, newer: Collection[UUID]) -> set[Pair]:
    """Return the pairs of some ``newer`` memories that have an answer of ``judge`` about their present texts."""
    bound = {"project": project_id, "judge": judge, "newer": list(newer)}
    return {(row[0], row[1]) for row in connection.execute(text(_LOAD_ANSWERED), bound)}


class SupersessionAnswer(NamedTuple):
    """Answer about a newer and an older memory. ``was``, ``now``: the sentences that differ; None = all still holds.

    ``newer_hash``, ``older_hash``: content hashes of the texts that were judged.
    """

    newer_id: UUID
    older_id: UUID
    newer_hash: str
    older_hash: str
    was: str | None
    now: str | None


_STORE_ANSWERS = """
    INSERT INTO consolidation.supersession_answers (
        project_id, newer_id, older_id, judge, newer_hash, older_hash, was, now)
    SELECT :project, newer_id, older_id, :judge, newer_hash, older_hash, was, now
    FROM unnest(CAST(:newer_id AS uuid[]), CAST(:older_id AS uuid[]), CAST(:newer_hash AS text[]),
            CAST(:older_hash AS text[]), CAST(:was AS text[]), CAST(:now AS text[]))
        AS given(newer_id, older_id, newer_hash, older_hash, was, now)
    ON CONFLICT (project_id, newer_id, older_id) DO UPDATE SET
        judge = excluded.judge, newer_hash = excluded.newer_hash, older_hash = excluded.older_hash,
        was = excluded.was, now = excluded.now, created_at = excluded.created_at
"""


def store_answers(connection: Connection, project_id: UUID, judge: str, answers: Sequence[SupersessionAnswer]) -> None:
    """Store answers, in place of earlier ones about the same memories."""
    columns: Iterable[list[object]] = map(list, zip(*answers, strict=True))
    bound = dict(zip(SupersessionAnswer._fields, columns, strict=True)) if answers else {}
    if bound:
        connection.execute(text(_STORE_ANSWERS), {"project": project_id, "judge": judge, **bound})


class OutdatedMemory(NamedTuple):
    """An older memory of which a sentence is outdated by a newer one, by the answer of a judge."""

    newer_id: UUID
    older_id: UUID
    was: str
    now: str


_LOAD_OUTDATED = """
    SELECT a.newer_id, a.older_id, a.was, a.now FROM consolidation.supersession_answers a
        JOIN (SELECT t.id, t.content_hash, t.learned_at, /* scope */ AS scope FROM consolidation.task_memories t
            WHERE /* is_dated */) n ON n.id = a.newer_id AND n.content_hash = a.newer_hash
        JOIN (SELECT t.id, t.content_hash, t.learned_at, /* scope */ AS scope FROM consolidation.task_memories t
            WHERE /* is_dated */) o ON o.id = a.older_id AND o.content_hash = a.older_hash
    WHERE a.project_id = :project AND a.was IS NOT NULL AND n.learned_at > o.learned_at AND n.scope = o.scope
    ORDER BY a.newer_id, a.older_id
"""


def load_outdated(connection: Connection, project_id: UUID, *, scope: str) -> list[OutdatedMemory]:
    """Return what the answers say of the present texts, dates and scopes. ``scope``: the project's option."""
    parts = {"scope": compose(SCOPE, scope_key=raw_scope_key(scope)), "is_dated": IS_DATED}
    rows = connection.execute(text(compose(_LOAD_OUTDATED, **parts)), {"project": project_id})
    return [OutdatedMemory(*row) for row in rows]
