"""Versions of memories that a search found: what supersedes them, and what they supersede."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from consolidation_pipeline.core.lifecycle.archive_policies import FORGOTTEN, STALENESS
from consolidation_pipeline.core.memories.relation_types import WITHDRAWN
from consolidation_pipeline.store.database.raw_connections import fetch_rows, format_uuids
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns


@dataclass(frozen=True)
class Version:
    """A relation of a memory that a search found to another version of it.

    ``hit_id``: the found memory. ``raw_id``: the other raw memory, and ``unit_id`` the memory that stands for it now.
    ``is_newer``: the other one is the newer. ``since``: when the newer of the two was learned. ``learned_at`` and
    ``content``: of the other one. ``last_told``, ``other_last_told``: when the last source was learned of the found
    memory, and of the one that stands for the other.
    """

    hit_id: UUID
    raw_id: UUID
    unit_id: UUID
    is_newer: bool
    status: str
    reason: str
    since: datetime
    learned_at: datetime
    content: str
    last_told: datetime
    other_last_told: datetime

    @property
    def is_told_again(self) -> bool:
        """True if a source of the older one was learned after all those of the newer one: it holds by now."""
        older, newer = self.last_told, self.other_last_told
        return older > newer if self.is_newer else newer > older


_LOAD_VERSIONS = """
    WITH live AS MATERIALIZED (
        SELECT a_id, b_id, status, reason FROM consolidation.memory_relations
        WHERE project_id = %(project)s AND relation_type = 'supersedes' AND status <> 'rejected'),
    hits AS MATERIALIZED (
        SELECT id AS hit_id, id AS raw_id FROM unnest(%(ids)s::uuid[]) id
        UNION ALL
        SELECT c.id, unnest(c.source_memory_ids) FROM consolidation.consolidated_memories c
        WHERE c.id = ANY(%(ids)s::uuid[]) AND c.kind = 'merged' AND EXISTS (SELECT 1 FROM live)),
    ends AS (
        SELECT h.hit_id, l.a_id AS other, true AS is_newer, l.status, l.reason, l.a_id
        FROM live l JOIN hits h ON h.raw_id = l.b_id
        UNION ALL
        SELECT h.hit_id, l.b_id, false, l.status, l.reason, l.a_id FROM live l JOIN hits h ON h.raw_id = l.a_id)
    SELECT e.hit_id, e.other, coalesce(t.consolidated_into_id, t.id), e.is_newer, e.status, coalesce(e.reason, ''),
        newer.learned_at, t.learned_at, (/* last_of_hit */), (/* last_of_other */), /* columns */
    FROM ends e JOIN consolidation.task_memories t ON t.id = e.other
        JOIN consolidation.task_memories newer ON newer.id = e.a_id
    WHERE (%(as_of)s::timestamptz IS NULL OR t.learned_at <= %(as_of)s)
        AND (t.archive_reason IS NULL OR t.archive_reason IN (%(staleness)s, %(forgotten)s))
    ORDER BY t.learned_at DESC, e.other, e.hit_id
"""
# The last source of a raw or merged memory that was learned by then.
_LAST_TOLD = """
    SELECT max(s.learned_at) FROM consolidation.task_memories s WHERE (%(as_of)s::timestamptz IS NULL
        OR s.learned_at <= %(as_of)s) AND (s.id = /* id */ OR s.id IN (
            SELECT unnest(c.source_memory_ids) FROM consolidation.consolidated_memories c WHERE c.id = /* id */))
"""


def load_versions(
    connection: Connection, project_id: UUID, ids: Sequence[str], *, as_of: datetime | None
) -> list[Version]:
    """Return the newer and older versions of raw and merged memories, newest first.

    Rejected ones, and versions that a person archived, are left out.
    With ``as_of``, only versions that were learned until then.
    """
    last = {"hit": "e.hit_id", "other": "coalesce(t.consolidated_into_id, t.id)"}
    told = {f"last_of_{name}": compose(_LAST_TOLD, id=id_) for name, id_ in last.items()}
    statement = compose(_LOAD_VERSIONS, columns=", ".join(f"t.{name}" for name in TEXT_COLUMNS), **told)
    bound = {"project": project_id, "ids": format_uuids(ids), "as_of": as_of}
    bound |= {"staleness": STALENESS, "forgotten": FORGOTTEN}
    return [
        Version(
            hit, raw, unit, is_newer, status, reason, since, learned_at, join_text_columns(texts), last or since, other
        )
        for hit, raw, unit, is_newer, status, reason, since, learned_at, last, other, *texts in fetch_rows(
            connection, statement, bound
        )
    ]


_LOAD_REJECTED = """
    SELECT a_id, b_id FROM consolidation.memory_relations
    WHERE project_id = %(project)s AND relation_type = 'supersedes' AND status = 'rejected'
        AND coalesce(reason, '') NOT LIKE %(withdrawn)s
        AND a_id = ANY(%(ids)s::uuid[]) AND b_id = ANY(%(ids)s::uuid[])
"""


def load_rejected(connection: Connection, project_id: UUID, ids: Collection[UUID]) -> set[tuple[UUID, UUID]]:
    """Return which raw memories (newer, older) do not supersede each other, as a person said."""
    bound = {"project": project_id, "ids": format_uuids(map(str, ids)), "withdrawn": f"{WITHDRAWN}%"}
    return {(newer, older) for newer, older in fetch_rows(connection, _LOAD_REJECTED, bound)}
