"""Merged memories that are written into connected stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class WritableMerge:
    """An active merged memory whose sources are all rows of one store.

    ``keys``, ``stamps``, ``texts``: of the rows that are visible there now, the new row of an earlier write included. A
    text begins with the title of its note, if it has one.
    ``group_id``: the changes of the ledger that merged last; None = they are past their retention.
    ``unchanged_seconds``: time since one of its rows was read first or changed.
    """

    id: UUID
    version: int
    content: str
    memory_type: str
    keys: Sequence[str]
    stamps: Sequence[str]
    texts: Sequence[str]
    group_id: UUID | None
    unchanged_seconds: float


_LIST_WRITABLE = """
    WITH members AS (
        SELECT t.consolidated_into_id AS id, t.id AS raw_id,
            concat_ws(E'\\n', nullif(btrim(t.goal), ''), btrim(t.execution_summary)) AS body, r.key, r.stamp, r.state,
            r.source_id, r.changed_at
        FROM consolidation.task_memories t LEFT JOIN consolidation.source_rows r ON r.memory_id = t.id
        WHERE t.project_id = :project AND t.consolidated_into_id IS NOT NULL
        UNION ALL
        SELECT m.id, NULL, m.content, r.key, r.stamp, r.state, r.source_id, r.changed_at
        FROM consolidation.source_rows r JOIN consolidation.consolidated_memories m ON m.id = r.memory_id
        WHERE r.source_id = :source AND r.state = 'successor')
    SELECT m.id, m.version, m.content, m.memory_type,
        array_agg(g.key ORDER BY g.key) FILTER (WHERE g.state IN ('mirrored', 'successor')),
        array_agg(g.stamp ORDER BY g.key) FILTER (WHERE g.state IN ('mirrored', 'successor')),
        array_agg(g.body ORDER BY g.key) FILTER (WHERE g.state IN ('mirrored', 'successor')),
        (SELECT c.group_id FROM consolidation.consolidation_changes c
         WHERE c.entity_id = m.id AND c.operation = 'merge' ORDER BY c.seq DESC LIMIT 1),
        extract(epoch FROM now() - max(g.changed_at))::float8
    FROM consolidation.consolidated_memories m JOIN members g USING (id)
    WHERE m.project_id = :project AND m.kind = 'merged' AND m.retired_at IS NULL
    GROUP BY m.id
    HAVING bool_and(g.source_id IS NOT DISTINCT FROM :source)
        AND bool_and(g.state IN ('mirrored', 'hidden', 'successor'))
        AND count(*) FILTER (WHERE g.state IN ('mirrored', 'successor')) > 1
    ORDER BY m.id
"""


def list_writable(connection: Connection, project_id: UUID, source_id: UUID) -> list[WritableMerge]:
    """Return the merged memories that can be written into a store: more than one of their rows is visible there."""
    bound = {"project": project_id, "source": source_id}
    return [WritableMerge(*row) for row in connection.execute(text(_LIST_WRITABLE), bound)]


@dataclass(frozen=True)
class SourceWrite:
    """A write into a store. ``plan``: kept key or text, the keys with their stamps, and the group of changes."""

    id: UUID
    memory_id: UUID
    version: int
    status: str
    plan: Mapping[str, Any]
    reason: str | None

    @property
    def group_id(self) -> UUID:
        """Group of changes that made the merged memory; the memory's own id if the write does not tell it."""
        return UUID(self.plan.get("group", str(self.memory_id)))

    @property
    def ids(self) -> set[UUID]:
        """Ids by which people name the write."""
        return {self.memory_id, self.group_id}

    @property
    def hidden(self) -> list[str]:
        """Keys of the rows that it hides."""
        return sorted(key for key in self.plan["stamps"] if key != self.plan["keep"])


_INTEND = """
    INSERT INTO consolidation.source_writes (id, project_id, source_id, memory_id, version, status, plan)
    SELECT :id, project_id, id, :memory, :version, 'intended', CAST(:plan AS jsonb)
    FROM consolidation.sources WHERE id = :source
"""


def intend_write(
    connection: Connection, source_id: UUID, id: UUID, *, memory_id: UUID, version: int, plan: Mapping[str, Any]
) -> None:
    """Record that a merged memory is about to be written."""
    bound = {"id": id, "source": source_id, "memory": memory_id, "version": version, "plan": json.dumps(dict(plan))}
    connection.execute(text(_INTEND), bound)


_END = """
    UPDATE consolidation.source_writes SET status = :status, reason = :reason, ended_at = now() WHERE id = :id
"""


def end_write(connection: Connection, id: UUID, status: str, reason: str | None = None) -> None:
    """Record how a write ended: written, refused or undone."""
    connection.execute(text(_END), {"id": id, "status": status, "reason": reason})


_ABANDON = """
    UPDATE consolidation.source_writes SET status = 'gone', reason = :reason, ended_at = now()
    WHERE source_id = :source AND memory_id = ANY(:memories) AND status = 'written'
"""


def abandon_writes(connection: Connection, source_id: UUID, memory_ids: Sequence[UUID], reason: str) -> None:
    """Record that the store's program removed or changed what was written: what was hidden stays hidden."""
    connection.execute(text(_ABANDON), {"source": source_id, "memories": list(memory_ids), "reason": reason})


# A write keeps a row, or adds one, which has the merged memory itself. That row may be hidden by a later write.
_LIST_STOOD_FOR = """
    WITH RECURSIVE written AS MATERIALIZED (
        SELECT id, memory_id, coalesce(plan ->> 'keep', memory_id::text) AS stand_in, plan -> 'stamps' AS stamps
        FROM consolidation.source_writes WHERE source_id = :source AND status = 'written'),
    stood AS (
        SELECT key, memory_id, NULL::uuid AS write_id FROM consolidation.source_rows
        WHERE source_id = :source AND key = ANY(:keys)
        UNION
        SELECT r.key, r.memory_id, w.id
        FROM stood s CROSS JOIN LATERAL (VALUES (s.key), (s.memory_id::text)) name (name)
        JOIN written w ON w.stand_in = name.name
        CROSS JOIN LATERAL jsonb_object_keys(w.stamps) AS stamp (key)
        JOIN consolidation.source_rows r ON r.source_id = :source AND r.key = stamp.key AND r.state = 'hidden')
    SELECT ARRAY(SELECT DISTINCT w.memory_id FROM stood JOIN written w ON w.id = stood.write_id),
        ARRAY(SELECT DISTINCT t.id FROM stood JOIN consolidation.task_memories t ON t.id = stood.memory_id)
"""


def list_stood_for(
    connection: Connection, source_id: UUID, keys: Sequence[str]
) -> tuple[Sequence[UUID], Sequence[UUID]]:
    """Return what rows of a store stand for: the merged memories of their writes, and raw memories.

    The raw memories are those of the rows, and of the rows that are hidden behind them.
    """
    found = connection.execute(text(_LIST_STOOD_FOR), {"source": source_id, "keys": list(keys)}).one()
    return found[0], found[1]


_LIST = """
    SELECT id, memory_id, version, status, plan, reason FROM consolidation.source_writes
    WHERE source_id = :source AND status = ANY(:statuses) AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(:ids))
    ORDER BY intended_at DESC, id
"""


def list_writes(
    connection: Connection, source_id: UUID, statuses: Sequence[str], ids: Sequence[UUID] | None = None
) -> list[SourceWrite]:
    """Return the writes of a store with these statuses, newest first: those of ``ids``, or all."""
    bound = {"source": source_id, "statuses": list(statuses), "ids": None if ids is None else list(ids)}
    return [SourceWrite(*row) for row in connection.execute(text(_LIST), bound)]


_LIST_IDS = "SELECT id FROM consolidation.source_writes WHERE source_id = :source AND status = :status"


def list_write_ids(connection: Connection, source_id: UUID, status: str) -> list[UUID]:
    """Return the ids of the writes of a store with this status."""
    return list(connection.scalars(text(_LIST_IDS), {"source": source_id, "status": status}))


_LIST_REFUSED_KEYS = """
    SELECT DISTINCT jsonb_object_keys(plan -> 'stamps') FROM consolidation.source_writes
    WHERE source_id = :source AND status = 'refused' AND ended_at >= :since
"""


def list_refused_keys(connection: Connection, source_id: UUID, *, since: datetime) -> list[str]:
    """Return the keys of the rows of all groups that were refused since then."""
    return list(connection.scalars(text(_LIST_REFUSED_KEYS), {"source": source_id, "since": since}))


# A write that was undone, or whose row is gone, was made before that.
_COUNT_ENDED = """
    WITH ended AS (
        SELECT status = 'undone' AS is_undone, plan ->> 'keep' IS NULL AS is_inserted,
            extract(epoch FROM CASE status WHEN 'written' THEN ended_at ELSE intended_at END) > :since AS is_made,
            (SELECT count(*) FROM jsonb_object_keys(plan -> 'stamps') key WHERE key IS DISTINCT FROM plan ->> 'keep')
                AS hidden
        FROM consolidation.source_writes
        WHERE source_id = :source AND status IN ('written', 'undone', 'gone') AND extract(epoch FROM ended_at) > :since)
    SELECT count(*) FILTER (WHERE is_made) AS written,
        coalesce(sum(hidden) FILTER (WHERE is_made), 0)::integer AS hidden,
        count(*) FILTER (WHERE is_made AND is_inserted) AS inserted, count(*) FILTER (WHERE is_undone) AS restored
    FROM ended
"""


class EndedWrites(NamedTuple):
    """Numbers of writes that were made and undone, and of the rows that they hid and added."""

    written: int
    hidden: int
    inserted: int
    restored: int


def count_ended_writes(connection: Connection, source_id: UUID, since: float) -> EndedWrites:
    """Return what was written into a store and undone there after ``since``, in seconds of Unix time."""
    return EndedWrites(*connection.execute(text(_COUNT_ENDED), {"source": source_id, "since": since}).one())


# A write is dissolved if one of the memories whose rows it hides is in no merged memory any more, or in one of which
# the store shows no row: nothing there would say any more what the hidden row says.
_LIST_DISSOLVED = """
    WITH written AS MATERIALIZED (
        SELECT w.id AS write_id, w.source_id, stamp.key
        FROM consolidation.source_writes w CROSS JOIN LATERAL jsonb_object_keys(w.plan -> 'stamps') AS stamp (key)
        WHERE w.project_id = :project AND w.status = 'written' AND w.plan ->> 'keep' IS DISTINCT FROM stamp.key),
    hidden AS MATERIALIZED (
        SELECT w.write_id, w.source_id, t.consolidated_into_id AS merge_id
        FROM written w JOIN consolidation.source_rows r ON r.source_id = w.source_id AND r.key = w.key
        JOIN consolidation.task_memories t ON t.id = r.memory_id
        WHERE r.state = 'hidden' AND t.archived_at IS NULL),
    untold AS MATERIALIZED (
        SELECT source_id, merge_id FROM hidden
        EXCEPT
        SELECT r.source_id, t.consolidated_into_id
        FROM consolidation.task_memories t JOIN consolidation.source_rows r ON r.memory_id = t.id
        WHERE t.project_id = :project AND t.consolidated_into_id IS NOT NULL AND r.state = 'mirrored'
        EXCEPT
        SELECT source_id, memory_id FROM consolidation.source_rows WHERE project_id = :project AND state = 'successor')
    SELECT s.name, w.id, w.memory_id, w.version, w.status, w.plan, w.reason
    FROM consolidation.source_writes w JOIN consolidation.sources s ON s.id = w.source_id
    WHERE w.id IN (
        SELECT h.write_id FROM hidden h JOIN untold u
        ON u.source_id = h.source_id AND u.merge_id IS NOT DISTINCT FROM h.merge_id)
    ORDER BY w.intended_at DESC, w.id
"""


def list_dissolved(connection: Connection, project_id: UUID) -> list[tuple[str, SourceWrite]]:
    """Return the writes of a project that hide rows whose merge was undone, newest first, with their source."""
    rows = connection.execute(text(_LIST_DISSOLVED), {"project": project_id})
    return [(row[0], SourceWrite(*row[1:])) for row in rows]


_LIST_TAKEN = """
    SELECT w.id, w.memory_id, w.version, w.status, w.plan, w.reason, r.key
    FROM consolidation.source_writes w CROSS JOIN LATERAL jsonb_object_keys(w.plan -> 'stamps') AS stamp (key)
    JOIN consolidation.source_rows r ON r.source_id = w.source_id AND r.key = stamp.key
    WHERE w.source_id = :source AND w.status = 'written' AND w.plan ->> 'keep' IS DISTINCT FROM stamp.key
        AND r.state IN ('mirrored', 'refused')
    ORDER BY w.intended_at, w.id, r.key
"""


def list_taken(connection: Connection, source_id: UUID) -> list[tuple[SourceWrite, str]]:
    """Return the hidden rows of a store whose keys new rows have: their write and the key."""
    return [(SourceWrite(*row[:-1]), row[-1]) for row in connection.execute(text(_LIST_TAKEN), {"source": source_id})]


_LOAD_TEXTS = """
    SELECT r.key, concat_ws(E'\n', nullif(btrim(t.goal), ''), btrim(t.execution_summary)) AS body
    FROM consolidation.source_rows r LEFT JOIN consolidation.task_memories t ON t.id = r.memory_id
    WHERE r.source_id = :source AND r.state = :state AND r.key = ANY(:keys)
"""


def load_row_texts(connection: Connection, source_id: UUID, keys: Sequence[str], *, state: str) -> dict[str, str]:
    """Return the texts that memories have of those of these rows that are in a state, such as hidden, by key."""
    bound = {"source": source_id, "state": state, "keys": list(keys)}
    return {row.key: row.body for row in connection.execute(text(_LOAD_TEXTS), bound)}


_HIDE_ROWS = """
    UPDATE consolidation.source_rows SET state = 'hidden' WHERE source_id = :source AND key = ANY(:keys)
"""


def hide_rows(connection: Connection, source_id: UUID, keys: Sequence[str]) -> None:
    """Record that rows of a store are hidden."""
    connection.execute(text(_HIDE_ROWS), {"source": source_id, "keys": list(keys)})


_SHOW_ROWS = """
    UPDATE consolidation.source_rows r SET state = CASE WHEN EXISTS (
        SELECT FROM consolidation.consolidated_memories m WHERE m.id = r.memory_id) THEN 'successor' ELSE 'mirrored' END
    WHERE source_id = :source AND key = ANY(:keys)
"""


def show_rows(connection: Connection, source_id: UUID, keys: Sequence[str]) -> None:
    """Record that hidden rows are there again: mirrored ones, and new rows of earlier writes."""
    connection.execute(text(_SHOW_ROWS), {"source": source_id, "keys": list(keys)})


_FORGET_WRITES = """
    DELETE FROM consolidation.source_writes WHERE source_id = :source AND plan -> 'stamps' ?| CAST(:keys AS text[])
"""


def forget_writes(connection: Connection, source_id: UUID, keys: Sequence[str]) -> None:
    """Forget the writes of a store in which one of these rows was, with the texts that they planned."""
    connection.execute(text(_FORGET_WRITES), {"source": source_id, "keys": list(keys)})


_FORGET = "DELETE FROM consolidation.source_rows WHERE source_id = :source AND key = ANY(:keys)"


def forget_rows(connection: Connection, source_id: UUID, keys: Sequence[str]) -> None:
    """Forget rows of a store: new rows of writes that were undone."""
    connection.execute(text(_FORGET), {"source": source_id, "keys": list(keys)})
