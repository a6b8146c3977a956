"""Archive candidates, archiving and restoring, and counts of raw memories."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.admin.project_counts import count_project, count_raw_memories
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.memories.archive import (
    ArchiveCandidates,
    MemoryUpdate,
    archive_rows,
    edit_rows,
    load_archive_candidates,
    restore_rows,
)
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    NOW,
    add_memories,
    add_merged,
    add_project,
    author,
    contents,
    hide_sources,
    new_memory,
    record_statements,
)

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def load_candidates(
    connection: Connection, project: Project, table: str = "task_memories", **how: Any
) -> ArchiveCandidates:
    return load_archive_candidates(connection, project.id, table, **{"as_of": NOW, "restored_since": LONG_AGO} | how)


def new_update(id_: UUID, version: int = 1) -> MemoryUpdate:
    return MemoryUpdate(id_, version, uuid4(), "unused", "staleness")


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Ids of five memories; ``c`` and ``d`` are merged."""
    fields: dict[str, dict[str, Any]] = {
        "a": {"learned_at": ago(100), "last_accessed_at": ago(90), "reused_count": 2, "pinned": True},
        "b": {"learned_at": ago(-1), "importance": 0.9, "memory_type": "decision"},
        "c": {"learned_at": ago(300), "last_accessed_at": ago(290)},
        "d": {"learned_at": ago(200)},
        "e": {"learned_at": ago(50)},
    }
    ids = add_memories(connection, project, [new_memory(key, **values) for key, values in fields.items()])
    connection.execute(text(f"UPDATE {SCHEMA}.task_memories SET created_at = learned_at"))
    merge(connection, project, ids[2:4], learned_at=ago(300), last_accessed_at=ago(290), reuse_count=4)
    return ids


def merge(connection: Connection, project: Project, sources: list[UUID], **fields: Any) -> UUID:
    merged = add_merged(connection, project, "merged", sources, **fields)
    hide_sources(connection, project, sources, merged)
    return merged


def test_archive_candidates_load_policy_inputs(connection: Connection, project: Project, raw: list[UUID]) -> None:
    found = load_candidates(connection, project)
    rows = {id_: at for at, id_ in enumerate(to_uuids(found.ids))}
    assert list(rows) == sorted([raw[0], raw[1], raw[4]])
    units, (a, b, e) = found.units, (rows[raw[at]] for at in (0, 1, 4))
    assert [units.idle_days[at] for at in (a, b, e)] == [90.0, 0.0, 50.0]
    assert [units.reused_count[at] for at in (a, b, e)] == [2, 0, 0]
    assert [units.pinned[at] for at in (a, b, e)] == [True, False, False]
    assert [units.importance[at] for at in (a, b, e)] == [0.5, 0.9, 0.5]
    assert [units.memory_type[at] for at in (a, b, e)] == ["learning", "decision", "learning"]
    assert set(units.relevance) == {math.inf}
    assert found.versions.tolist() == [1, 1, 1]
    assert units.memories.tolist() == [1, 1, 1]


def test_newest_source_counts_as_access_of_merged(connection: Connection, project: Project, raw: list[UUID]) -> None:
    del raw
    found = load_candidates(connection, project, "consolidated_memories")
    assert (found.units.idle_days.tolist(), found.units.reused_count.tolist()) == ([200.0], [4])
    assert found.units.memories.tolist() == [2]


def test_import_without_use_count_restarts_idle_days(connection: Connection, project: Project) -> None:
    old, uses = {"learned_at": ago(400)}, {"last_accessed_at": ago(300)}
    memories = [
        new_memory("unknown", **old),
        new_memory("uncounted", **old, **uses),
        new_memory("counted", **old, **uses, reused_count=1),
        new_memory("used here", **old, last_accessed_at=ago(5), reused_count=1),
        new_memory("learned later", learned_at=ago(3)),
    ]
    ids = add_memories(connection, project, memories)
    connection.execute(text(f"UPDATE {SCHEMA}.task_memories SET created_at = :at"), {"at": ago(10)})
    found = load_candidates(connection, project)
    idle = dict(zip(to_uuids(found.ids), found.units.idle_days.tolist(), strict=True))
    assert [idle[id_] for id_ in ids] == [10.0, 10.0, 300.0, 5.0, 3.0]


def test_merged_memory_without_sources_is_idle_since_made(connection: Connection, project: Project) -> None:
    add_merged(connection, project, "merged", [], learned_at=ago(400), created_at=ago(7))
    assert load_candidates(connection, project, "consolidated_memories").units.idle_days.tolist() == [7.0]


def test_archive_candidates_are_filtered(connection: Connection, project: Project, raw: list[UUID]) -> None:
    other = add_project(connection, "other")
    add_merged(connection, project, "pattern", [], kind="pattern", abstraction_level=2)
    assert len(load_candidates(connection, project, "consolidated_memories").ids) == 1
    assert to_uuids(load_candidates(connection, project, ids=to_ids([raw[4], raw[2]])).ids) == [raw[4]]
    assert len(load_candidates(connection, project, ids=to_ids([])).ids) == 0
    assert len(load_candidates(connection, other).ids) == 0


def test_recently_restored_memory_counts_as_pinned(connection: Connection, project: Project, raw: list[UUID]) -> None:
    def pinned(**how: Any) -> dict[UUID, bool]:
        found = load_candidates(connection, project, **how)
        return dict(zip(to_uuids(found.ids), found.units.pinned.tolist(), strict=True))

    archive_rows(connection, author(project), "task_memories", [new_update(raw[1]), new_update(raw[4])], at=NOW)
    restore_rows(connection, author(project), "task_memories", [new_update(raw[1], 2)])
    assert pinned() == {raw[0]: True, raw[1]: True}
    restored_at = connection.execute(text("SELECT now()")).scalar_one()
    assert pinned(restored_since=restored_at)[raw[1]] is False
    assert pinned(restored_since=restored_at - timedelta(microseconds=1))[raw[1]] is True


@pytest.mark.parametrize("table", ["task_memories", "consolidated_memories"])
def test_restore_undoes_archiving_except_version(
    connection: Connection, project: Project, raw: list[UUID], table: str
) -> None:
    merged = connection.execute(text(f"SELECT id FROM {SCHEMA}.consolidated_memories")).scalar_one()
    id_ = raw[0] if table == "task_memories" else merged
    version = f"UPDATE {SCHEMA}.{table} SET version = 1 WHERE id = :id"
    before = contents(connection)
    with record_statements(connection) as sent:
        archive_rows(connection, author(project), table, [new_update(id_)], at=NOW)
    assert len(sent) < 15
    assert contents(connection) != before
    restore_rows(connection, author(project), table, [new_update(id_, 2)])
    edit_rows(connection, author(project), table, [new_update(id_, 3)], values={"pinned": False})
    edit_rows(connection, author(project), table, [new_update(id_, 4)], values={"pinned": id_ == raw[0]})
    connection.execute(text(version), {"id": id_})
    assert contents(connection) == before


def test_archive_rejects_stale_version(connection: Connection, project: Project, raw: list[UUID]) -> None:
    with pytest.raises(ConflictError, match=str(raw[0])):
        archive_rows(connection, author(project), "task_memories", [new_update(raw[0], 2)], at=NOW)


def test_sources_of_archived_merged_count_as_archived(
    connection: Connection, project: Project, raw: list[UUID]
) -> None:
    def counts() -> tuple[int, ...]:
        return tuple(count_raw_memories(connection, project.id))

    assert counts() == (5, 3, 2, 0)
    archive_rows(connection, author(project), "task_memories", [new_update(raw[4])], at=NOW)
    assert counts() == (5, 2, 2, 1)
    merged = connection.execute(text(f"SELECT id FROM {SCHEMA}.consolidated_memories")).scalar_one()
    archive_rows(connection, author(project), "consolidated_memories", [new_update(merged)], at=NOW)
    assert counts() == (5, 2, 0, 3)
    found = count_project(connection, project.id)
    assert (found.merged, found.units, found.reduction) == (0, 2, 0.0)
