"""Memory tests of a project: rows, their last results, and the memories that they name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest

_COLUMNS = "name, kind, body, source, enabled, created_at, checked_at, failure"
_LOAD_TESTS = f"SELECT {_COLUMNS} FROM consolidation.memory_tests WHERE project_id = :project ORDER BY created_at, name"


@dataclass(frozen=True)
class StoredTest:
    """A test with what is known about it. ``failure``: why it failed when it was run last, None = it passed."""

    test: MemoryTest
    source: str
    enabled: bool
    created_at: datetime
    checked_at: datetime | None
    failure: str | None


def load_memory_tests(connection: Connection, project_id: UUID) -> list[StoredTest]:
    """Return the tests of a project, the oldest first."""
    return [_to_test(row) for row in connection.execute(text(_LOAD_TESTS), {"project": project_id})]


def _to_test(row: Row[Any]) -> StoredTest:
    test = MemoryTest(row.name, row.kind, row.body)
    return StoredTest(test, row.source, row.enabled, row.created_at, row.checked_at, row.failure)


# A test that did not change keeps its time and last result.
_SAVE_TEST = """
    INSERT INTO consolidation.memory_tests AS t (project_id, name, kind, body, source, created_at)
    VALUES (:project, :name, :kind, CAST(:body AS jsonb), :source, clock_timestamp())
    ON CONFLICT (project_id, name) DO UPDATE
    SET kind = excluded.kind, body = excluded.body, source = excluded.source, created_at = excluded.created_at,
        checked_at = NULL, failure = NULL
    WHERE t.kind <> excluded.kind OR t.body <> excluded.body
"""


def save_memory_tests(connection: Connection, project_id: UUID, tests: Sequence[MemoryTest], *, source: str) -> None:
    """Store tests; each replaces the one of its name."""
    rows = [
        {
            "project": project_id,
            "name": test.name,
            "kind": test.kind,
            "body": json.dumps(dict(test.body)),
            "source": source,
        }
        for test in tests
    ]
    if rows:
        connection.execute(text(_SAVE_TEST), rows)


_DELETE_TEST = "DELETE FROM consolidation.memory_tests WHERE project_id = :project AND name = :name"
_ENABLE_TEST = """
    UPDATE consolidation.memory_tests SET enabled = :enabled WHERE project_id = :project AND name = :name
"""


def delete_memory_test(connection: Connection, project_id: UUID, name: str) -> bool:
    """Delete a test; return False if there is none of this name."""
    return connection.execute(text(_DELETE_TEST), {"project": project_id, "name": name}).rowcount > 0


def enable_memory_test(connection: Connection, project_id: UUID, name: str, *, enabled: bool) -> bool:
    """Enable or disable a test; return False if there is none of this name."""
    bound = {"project": project_id, "name": name, "enabled": enabled}
    return connection.execute(text(_ENABLE_TEST), bound).rowcount > 0


_RECORD_RESULTS = """
    UPDATE consolidation.memory_tests t SET checked_at = :now, failure = r.failure
    FROM unnest(CAST(:names AS text[]), CAST(:failures AS text[])) AS r(name, failure)
    WHERE t.project_id = :project AND t.name = r.name
"""


def record_test_results(
    connection: Connection, project_id: UUID, failures: Mapping[str, str | None], *, now: datetime
) -> None:
    """Store the last results: name of the test -> why it failed, None = it passed."""
    bound = {"project": project_id, "names": list(failures), "failures": list(failures.values()), "now": now}
    connection.execute(text(_RECORD_RESULTS), bound)


_FIND_NAMED = """
    SELECT id, normalized_hash, consolidated_into_id FROM consolidation.task_memories
    WHERE project_id = :project AND (normalized_hash = ANY(:hashes) OR id = ANY(:ids)) ORDER BY id
"""


@dataclass(frozen=True)
class NamedMemory:
    """A raw memory that a test names. ``text_hash``: of its normal form. ``merged_into``: its merged memory."""

    id: UUID
    text_hash: str
    merged_into: UUID | None


def find_named_memories(
    connection: Connection, project_id: UUID, hashes: Iterable[str], ids: Iterable[UUID]
) -> list[NamedMemory]:
    """Return the raw memories with one of these texts, by ``normalized_hash``, or ids."""
    rows = connection.execute(text(_FIND_NAMED), {"project": project_id, "hashes": list(hashes), "ids": list(ids)})
    return [NamedMemory(*row) for row in rows]


_LIST_ACTIVE_ENTRIES = """
    SELECT content FROM consolidation.playbook_entries WHERE project_id = :project AND status = 'active'
    ORDER BY priority DESC, id
"""


def list_active_entries(connection: Connection, project_id: UUID) -> list[str]:
    """Return the texts of the active playbook entries."""
    return list(connection.scalars(text(_LIST_ACTIVE_ENTRIES), {"project": project_id}))


# What people decided and pinned, and what helped its readers, as kinds of tests with two ids or a text. A pair of texts
# that is named twice is proposed once, by what was decided last.
_LIST_PROPOSALS = """
    SELECT kind, a, b, content FROM (
        SELECT CASE WHEN l.same THEN 'must_merge' ELSE 'must_not_merge' END AS kind, l.a, l.b, NULL AS content,
            1 AS part, l.labelled_at AS at
        FROM consolidation.labelled_pairs l
            JOIN consolidation.task_memories x ON x.id = l.a JOIN consolidation.task_memories y ON y.id = l.b
        WHERE l.project_id = :project AND l.same IS NOT NULL AND x.normalized_hash <> y.normalized_hash
            AND (NOT l.same OR x.consolidated_into_id = y.consolidated_into_id)
        UNION ALL
        SELECT CASE WHEN s.status = 'validated' THEN 'must_merge' ELSE 'must_not_merge' END, x.id, y.id, NULL, 1,
            s.reviewed_at
        FROM consolidation.consolidation_suggestions s
            JOIN consolidation.task_memories x ON x.id = s.original_memory_ids[1]
            JOIN consolidation.task_memories y ON y.id = s.original_memory_ids[2]
        WHERE s.project_id = :project AND s.status IN ('validated', 'rejected', 'kept')
            AND x.normalized_hash <> y.normalized_hash
            AND (s.status <> 'validated' OR x.consolidated_into_id = y.consolidated_into_id)
        UNION ALL
        SELECT 'pinned', t.id, NULL, NULL, 2, t.created_at FROM consolidation.task_memories t
        WHERE t.project_id = :project AND t.pinned AND t.archived_at IS NULL
        UNION ALL
        SELECT 'pinned', c.id, NULL, c.content, 2, c.created_at FROM consolidation.consolidated_memories c
        WHERE c.project_id = :project AND c.pinned AND c.retired_at IS NULL
        UNION ALL
        SELECT 'helped', v.memory_id, NULL, NULL, 3, max(v.day)::timestamptz FROM consolidation.memory_votes v
            JOIN consolidation.task_memories t ON t.id = v.memory_id AND t.archived_at IS NULL
        WHERE v.project_id = :project AND v.verdict = 1 GROUP BY v.memory_id
        UNION ALL
        SELECT 'playbook_has', e.id, NULL, e.content, 4, e.created_at FROM consolidation.playbook_entries e
        WHERE e.project_id = :project AND e.status = 'active') proposals
    ORDER BY part, at DESC, a, b LIMIT :most
"""


def list_proposals(connection: Connection, project_id: UUID, *, most: int) -> list[tuple[str, UUID, UUID | None, str]]:
    """Return what tests could follow from: decisions, pins, helpful memories and the playbook.

    Each is must_merge, must_not_merge, pinned, helped or playbook_has, one or two ids, and the text where the first
    id is none of a raw memory.
    """
    rows = connection.execute(text(_LIST_PROPOSALS), {"project": project_id, "most": most})
    return [(row.kind, row.a, row.b, row.content) for row in rows]
