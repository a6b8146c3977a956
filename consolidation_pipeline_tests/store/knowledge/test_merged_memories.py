"""Loading of merge groups that are not merged yet."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import Connection

from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.knowledge.merged_memories import load_unmerged_groups
from consolidation_pipeline.store.ledger.ledger_writer import Change, update_rows
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.clusters import ClusterMember, replace_clusters
from consolidation_pipeline_tests.store.sample_rows import (
    author,
    new_memory,
    plant_memories,
    plant_merged,
    plant_project,
)


def cluster_members(key: str, members: list[UUID], *, tier: str = "merge") -> list[ClusterMember]:
    """Return the members of a group; the last one is the representative."""
    return [ClusterMember(tier, key, id_, "raw", 1.0, id_ == members[-1], {}) for id_ in members]


def hide_sources(connection: Connection, project: Project, ids: list[UUID], behind: UUID) -> None:
    changes = [Change(id_, uuid4(), {"consolidated_into_id": behind}, 1) for id_ in ids]
    update_rows(connection, author(project), task_memories, changes, operation="merge")


def test_already_merged_groups_are_not_loaded(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory(key) for key in "abcdefghi"])
    one, other = plant_merged(connection, project, "one", ids[:2]), plant_merged(connection, project, "two", ids[6:7])
    hide_sources(connection, project, ids[:3], one)
    hide_sources(connection, project, [ids[4], ids[6]], one)
    hide_sources(connection, project, [ids[7]], other)
    groups = {"done": ids[:2], "grown": [ids[3], ids[2]], "new": [ids[5], ids[8]], "joined": [ids[7], ids[6]]}
    members = [member for key, chosen in groups.items() for member in cluster_members(key, chosen)]
    suggested = cluster_members("suggested", [ids[3], ids[5]], tier="suggest")
    replace_clusters(connection, project.id, None, [*members, *suggested])
    loaded = load_unmerged_groups(connection, project.id)
    assert list(loaded) == ["grown", "joined", "new"]
    assert all(loaded[key] == [groups[key][1], groups[key][0]] for key in loaded)
    assert load_unmerged_groups(connection, plant_project(connection, "other").id) == {}


def test_group_that_lost_member_is_loaded_whole(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory(key) for key in "abc"])
    hide_sources(connection, project, ids[:2], plant_merged(connection, project, "one", ids[:2]))
    archived = [Change(ids[2], uuid4(), {"archive_reason": "test", "archived_at": "2026-01-01"}, 1)]
    update_rows(connection, author(project), task_memories, archived, operation="archive")
    gone = uuid4()
    members = [*cluster_members("archived", [ids[0], ids[2]]), *cluster_members("gone", [ids[1], gone])]
    replace_clusters(connection, project.id, None, members)
    loaded = load_unmerged_groups(connection, project.id)
    assert loaded == {"archived": [ids[2], ids[0]], "gone": [gone, ids[1]]}
