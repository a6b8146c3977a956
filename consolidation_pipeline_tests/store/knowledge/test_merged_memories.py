"""Loading of merge groups that are not merged yet."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import Connection

from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.knowledge.merged_memories import load_unmerged_groups
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.clusters import ClusterMember, replace_clusters
from consolidation_pipeline_tests.store.sample_rows import (
    NOW,
    add_memories,
    add_merged,
    add_project,
    hide_sources,
    new_memory,
    update_row,
)


def cluster_members(key: str, members: list[UUID], *, tier: str = "merge") -> list[ClusterMember]:
    """Return the members of a group; the last one is the representative."""
    return [ClusterMember(tier, key, id_, "raw", 1.0, id_ == members[-1], {}) for id_ in members]


def test_already_merged_groups_are_not_loaded(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "abcdefghi"])
    one, other = add_merged(connection, project, "one", ids[:2]), add_merged(connection, project, "two", ids[6:7])
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
    assert load_unmerged_groups(connection, add_project(connection, "other").id) == {}


def test_group_with_lost_member_is_loaded_whole(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "abc"])
    hide_sources(connection, project, ids[:2], add_merged(connection, project, "one", ids[:2]))
    update_row(connection, project, task_memories, ids[2], archive_reason="test", archived_at=NOW)
    missing = uuid4()
    members = [*cluster_members("archived", [ids[0], ids[2]]), *cluster_members("deleted", [ids[1], missing])]
    replace_clusters(connection, project.id, None, members)
    loaded = load_unmerged_groups(connection, project.id)
    assert loaded == {"archived": [ids[2], ids[0]], "deleted": [missing, ids[1]]}
