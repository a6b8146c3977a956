"""The similarity graph: complete for whoever is marked as compared, and untouched when nothing changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.graph import (
    Member,
    append_neighbors,
    clear_neighbors,
    load_clusters,
    load_dimension,
    load_neighbors,
    load_node_vectors,
    load_nodes,
    mark_compared,
    prune_neighbors,
    replace_clusters,
)
from consolidation_pipeline.store.ledger import Change, update_rows
from consolidation_pipeline.store.memories import save_embeddings
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.reverting import revert_changes
from consolidation_pipeline.store.schema import SCHEMA, consolidated_memories, task_memories
from consolidation_pipeline.store.vectors_io import to_ids, to_uuids
from consolidation_pipeline_tests.store.planting import (
    MODEL,
    author,
    new_memory,
    newest_change,
    plant_memories,
    plant_merged,
    plant_project,
    unit_vector,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Four embedded memories, by id."""
    ids = sorted(plant_memories(connection, project, [new_memory(key, reused_count=2) for key in "abcd"]))
    save_embeddings(connection, "task_memories", to_ids(ids), np.stack([unit_vector(n) for n in range(4)]), MODEL)
    return ids


def _connect(connection: Connection, project: Project, ids: list[UUID], model: str = MODEL) -> None:
    """All pairs of ``ids``."""
    pairs = [(a, b) for n, a in enumerate(sorted(ids)) for b in sorted(ids)[n + 1 :]]
    similarity = np.linspace(0.6, 0.9, len(pairs), dtype=np.float32)
    a, b = (to_ids(side) for side in zip(*pairs, strict=True))
    append_neighbors(connection, project.id, model, a, b, similarity)


def _pairs(connection: Connection, project: Project, model: str = MODEL) -> set[tuple[UUID, UUID]]:
    a, b, _ = load_neighbors(connection, project.id, model, 0.0)
    return set(zip(to_uuids(a), to_uuids(b), strict=True))


def _archive(connection: Connection, project: Project, id_: UUID) -> int:
    change = Change(id_, uuid4(), {"archived_at": NOW}, 1)
    update_rows(connection, author(project), task_memories, [change], operation="archive")
    return newest_change(connection)


def test_nodes_are_what_can_be_compared_and_their_vectors_stand_in_the_same_order(
    connection: Connection, project: Project, raw: list[UUID]
) -> None:
    merged = plant_merged(connection, project, "ab", raw[:2], seed=5, reuse_count=9)
    plant_merged(connection, project, "retired", [], seed=6, retired_at=NOW)
    hide = [Change(id_, uuid4(), {"consolidated_into_id": merged}, 1) for id_ in raw[:2]]
    update_rows(connection, author(project), task_memories, hide, operation="merge")
    _archive(connection, project, raw[3])
    plant_memories(connection, project, [new_memory("no vector")])
    mark_compared(connection, raw[:1], 4)

    nodes = load_nodes(connection, project.id, MODEL)
    ids, vectors = load_node_vectors(connection, project.id, MODEL, 3)
    expected = sorted([*raw[:3], merged])
    assert to_uuids(nodes.ids) == to_uuids(ids) == expected
    at = {id_: n for n, id_ in enumerate(expected)}
    assert {id_: nodes.kind[n] for id_, n in at.items()} == dict.fromkeys(raw[:3], "raw") | {merged: "merged"}
    assert {id_: int(nodes.graph_version[n]) for id_, n in at.items()} == dict.fromkeys(expected, -1) | {raw[0]: 4}
    assert [to_uuids(nodes.merged_into[[at[id_]]]) for id_ in raw[:2]] == [[merged], [merged]]
    assert nodes.merged_into[at[merged]] == nodes.merged_into[at[raw[2]]] == b""
    assert nodes.reused.sum() == 3 * 2 + 9
    assert np.array_equal(vectors[at[raw[2]]], unit_vector(2))
    assert np.array_equal(vectors[at[merged]], unit_vector(5))
    assert to_uuids(nodes.select(nodes.kind == "merged").ids) == [merged]


def test_an_empty_project_has_no_nodes(connection: Connection, project: Project) -> None:
    assert len(load_nodes(connection, project.id, MODEL)) == 0
    assert load_node_vectors(connection, project.id, MODEL, 0)[1].shape == (0, 0)
    assert load_dimension(connection, project.id, MODEL) == 0
    assert load_neighbors(connection, project.id, MODEL, 0.5)[2].shape == (0,)


def test_the_dimension_is_that_of_the_nodes(connection: Connection, project: Project, raw: list[UUID]) -> None:
    save_embeddings(connection, "task_memories", to_ids(raw[:1]), unit_vector(1, 8)[None], MODEL)
    with pytest.raises(EmbeddingError, match="3 dimensions"):
        load_node_vectors(connection, project.id, MODEL, 3)
    _archive(connection, project, raw[0])
    assert load_dimension(connection, project.id, MODEL) == 3
    assert len(load_node_vectors(connection, project.id, MODEL, 3)[0]) == 3


def test_neighbors_are_those_at_the_threshold_or_above_by_id(
    connection: Connection, project: Project, raw: list[UUID]
) -> None:
    _connect(connection, project, raw)
    a, b, similarity = load_neighbors(connection, project.id, MODEL, float(np.float32(0.9)))
    assert (to_uuids(a), to_uuids(b), similarity.tolist()) == ([raw[2]], [raw[3]], [np.float32(0.9)])
    a, b, similarity = load_neighbors(connection, project.id, MODEL, 0.0)
    assert similarity.dtype == np.float32
    pairs = list(zip(to_uuids(a), to_uuids(b), strict=True))
    assert pairs == sorted(pairs)
    assert len(pairs) == 6


def test_pruning_forgets_the_pairs_of_whoever_moved_or_left(
    connection: Connection, project: Project, raw: list[UUID]
) -> None:
    other = plant_project(connection, "other")
    _connect(connection, project, raw)
    _connect(connection, project, raw, model="other")
    _connect(connection, other, raw)
    mark_compared(connection, raw, 1)
    assert prune_neighbors(connection, project.id, MODEL) == 0
    save_embeddings(connection, "task_memories", to_ids(raw[1:2]), unit_vector(8)[None], MODEL)
    undo = _archive(connection, project, raw[3])
    assert prune_neighbors(connection, project.id, MODEL) == 5
    assert _pairs(connection, project) == {(raw[0], raw[2])}
    assert len(_pairs(connection, project, "other")) == len(_pairs(connection, other)) == 6

    mark_compared(connection, raw, 1)
    revert_changes(connection, author(project), [undo], group_id=uuid4(), reason=None)
    versions = dict(connection.execute(text(f"SELECT id, graph_version FROM {task_memories}")).tuples().all())
    assert [versions[id_] for id_ in raw] == [1, 1, 1, None]
    clear_neighbors(connection, project.id, MODEL)
    assert _pairs(connection, project) == set()
    assert len(_pairs(connection, project, "other")) == 6


def test_a_merged_memory_that_is_undone_takes_its_pairs_along(
    connection: Connection, project: Project, raw: list[UUID]
) -> None:
    merged = plant_merged(connection, project, "ab", raw[:2], seed=5)
    insert = newest_change(connection)
    mark_compared(connection, [*raw, merged], 1)
    _connect(connection, project, [*raw[2:], merged])
    values = {"embedding": "[0,0,1]", "details": {"x": 1}}
    update = [Change(merged, uuid4(), values, 1)]
    update_rows(connection, author(project), consolidated_memories, update, operation="merge")
    assert prune_neighbors(connection, project.id, MODEL) == 2
    mark_compared(connection, [merged], 1)
    _connect(connection, project, [raw[0], merged])
    revert_changes(connection, author(project), [insert + 1], group_id=uuid4(), reason=None)
    assert _pairs(connection, project) == {(raw[2], raw[3])}
    nodes = load_nodes(connection, project.id, MODEL)
    assert nodes.graph_version[nodes.kind == "merged"].tolist() == [-1]
    _connect(connection, project, [raw[1], merged])
    revert_changes(connection, author(project), [insert], group_id=uuid4(), reason=None)
    assert _pairs(connection, project) == {(raw[2], raw[3])}


def _members(raw: list[UUID], **fields: Any) -> list[Member]:
    given: dict[str, Any] = {
        "similarity": 0.1 + 0.2,
        "details": {"cohesion_mean": 0.9, "vetoes": [{"a": "it's"}]},
    } | fields
    return [
        Member("merge", "one", raw[0], "raw", 1.0, True, given["details"]),
        Member("merge", "one", raw[1], "raw", given["similarity"], False, {}),
        Member("pattern", "two", raw[2], "merged", None, True, {}),
    ]


def _places(connection: Connection) -> list[Any]:
    query = f"SELECT ctid::text, job_id, member_id FROM {SCHEMA}.memory_clusters ORDER BY member_id"
    return list(connection.execute(text(query)))


def test_equal_groups_are_not_written_again(connection: Connection, project: Project, raw: list[UUID]) -> None:
    first, second = uuid4(), uuid4()
    replace_clusters(connection, project.id, first, _members(raw))
    before = _places(connection)
    replace_clusters(connection, project.id, second, _members(raw)[::-1])
    assert _places(connection) == before
    assert {row.job_id for row in before} == {first}


def test_other_groups_take_their_place(connection: Connection, project: Project, raw: list[UUID]) -> None:
    other = plant_project(connection, "other")
    replace_clusters(connection, other.id, None, _members(raw))
    for changed in (_members(raw), _members(raw, similarity=0.5), _members(raw, details={}), _members(raw)[:2], []):
        job = uuid4()
        replace_clusters(connection, project.id, job, changed)
        held = [
            m
            for tier in ("merge", "pattern")
            for group in load_clusters(connection, project.id, tier).values()
            for m in group
        ]
        assert [(m.tier, m.cluster_key, m.member_id, m.details) for m in held] == [
            (m.tier, m.cluster_key, m.member_id, m.details) for m in changed
        ]
        jobs = f"SELECT DISTINCT job_id FROM {SCHEMA}.memory_clusters WHERE project_id = :project"
        assert connection.execute(text(jobs), {"project": project.id}).scalars().all() == ([job] if changed else [])
    assert len(load_clusters(connection, other.id, "merge")["one"]) == 2


def test_the_representative_comes_first(connection: Connection, project: Project, raw: list[UUID]) -> None:
    members = [Member("merge", "key", id_, "raw", 0.9, id_ == raw[2], {}) for id_ in raw]
    replace_clusters(connection, project.id, None, members)
    (group,) = load_clusters(connection, project.id, "merge").values()
    assert [member.member_id for member in group] == [raw[2], raw[0], raw[1], raw[3]]
    assert load_clusters(connection, project.id, "suggest") == {}
