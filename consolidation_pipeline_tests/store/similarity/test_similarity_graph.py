"""The stored similarity graph: nodes, pairs, pruning and the marks of compared memories."""

from __future__ import annotations

from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.errors import EmbeddingError, TooManyPairsError
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.memories.embeddings import save_embeddings
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import (
    ASK,
    MERGE,
    TOPIC,
    Neighbors,
    append_neighbors,
    clear_neighbors,
    count_units,
    load_dimension,
    load_neighbors,
    load_nodes,
    load_nodes_with_vectors,
    load_uncompared_ids,
    mark_compared,
    prune_neighbors,
    set_verdict,
)
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_merged,
    add_project,
    author,
    hide_sources,
    new_memory,
    newest_change,
    save_unit_vectors,
    unit_vector,
    update_row,
)


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Ids of four embedded memories, ascending."""
    ids = sorted(add_memories(connection, project, [new_memory(key, reused_count=2) for key in "abcd"]))
    save_unit_vectors(connection, ids)
    return ids


def _all_pairs(ids: list[UUID]) -> Neighbors:
    """Return all pairs of ``ids`` with verdicts from topic to merge."""
    pairs = [(a, b) for n, a in enumerate(sorted(ids)) for b in sorted(ids)[n + 1 :]]
    a, b = (to_ids(side) for side in zip(*pairs, strict=True))
    verdict = np.linspace(TOPIC, MERGE, len(pairs)).astype(np.int16)
    return Neighbors(a, b, np.linspace(0.6, 0.9, len(pairs), dtype=np.float32), verdict)


def _connect(connection: Connection, project: Project, ids: list[UUID], model: str = MODEL) -> None:
    append_neighbors(connection, project.id, model, [_all_pairs(ids)])


def _slice(pairs: Neighbors, part: slice) -> Neighbors:
    return Neighbors(*(column[part] for column in vars(pairs).values()))


def _rows(pairs: Neighbors) -> list[tuple[UUID, UUID, float, int]]:
    columns = (to_uuids(pairs.a), to_uuids(pairs.b), pairs.similarity.tolist(), pairs.verdict.tolist())
    return sorted(zip(*columns, strict=True))


def _pairs(connection: Connection, project: Project, model: str = MODEL) -> set[tuple[UUID, UUID]]:
    return {row[:2] for row in _rows(load_neighbors(connection, project.id, model, 0.0))}


def _archive(connection: Connection, project: Project, id_: UUID) -> int:
    update_row(connection, project, task_memories, id_, archived_at=NOW)
    return newest_change(connection)


def test_nodes_hold_comparable_memories_in_order(connection: Connection, project: Project, raw: list[UUID]) -> None:
    merged = add_merged(connection, project, "ab", raw[:2], seed=5, reuse_count=9)
    add_merged(connection, project, "retired", [], seed=6, retired_at=NOW)
    hide_sources(connection, project, raw[:2], merged)
    _archive(connection, project, raw[3])
    add_memories(connection, project, [new_memory("no vector")])
    mark_compared(connection, to_ids(raw[:1]), 4)

    nodes, vectors = load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)
    without_vectors = load_nodes(connection, project.id, MODEL, scope=NO_WALLS)
    assert to_uuids(nodes.ids) == raw[:3]
    assert all(np.array_equal(column, vars(without_vectors)[name]) for name, column in vars(nodes).items())
    assert sorted(to_uuids(load_uncompared_ids(connection, project.id, MODEL, 4))) == raw[1:3]
    assert count_units(connection, project.id, MODEL) == 2
    assert nodes.graph_version.tolist() == [4, -1, -1]
    assert to_uuids(nodes.merged_into[:2]) == [merged, merged]
    assert nodes.merged_into[2] == b""
    assert nodes.reused.tolist() == [2, 2, 2]
    assert nodes.memory_type.tolist() == ["learning"] * 3
    assert np.array_equal(vectors, np.stack([unit_vector(n) for n in range(3)]))
    assert to_uuids(nodes.select(nodes.merged_into == b"").ids) == [raw[2]]
    assert to_uuids(nodes.select(np.array([2, 0])).ids) == [raw[2], raw[0]]


def test_repeats_share_normalized_text(connection: Connection, project: Project) -> None:
    texts = {"a": "Use JWT.", "b": "use  jwt", "c": "Use OAuth."}
    raw = add_memories(connection, project, [new_memory(key, execution_summary=body) for key, body in texts.items()])
    save_unit_vectors(connection, raw)
    nodes = load_nodes(connection, project.id, MODEL, scope=NO_WALLS)
    repeats = dict(zip(to_uuids(nodes.ids), to_uuids(nodes.repeats), strict=True))
    assert repeats[raw[0]] == repeats[raw[1]] != repeats[raw[2]]


def test_empty_project_has_no_nodes(connection: Connection, project: Project) -> None:
    assert len(load_nodes(connection, project.id, MODEL, scope=NO_WALLS)) == 0
    assert load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)[1].shape == (0, 0)
    assert load_dimension(connection, project.id, MODEL) == 0
    assert load_neighbors(connection, project.id, MODEL, 0.5).similarity.shape == (0,)


def test_dimension_is_read_from_nodes(connection: Connection, project: Project, raw: list[UUID]) -> None:
    save_embeddings(connection, "task_memories", to_ids(raw[:1]), unit_vector(1, 8)[None], MODEL)
    with pytest.raises(EmbeddingError, match=r"\d dimensions"):
        load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)
    _archive(connection, project, raw[0])
    assert load_dimension(connection, project.id, MODEL) == 3
    assert len(load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)[0]) == 3


def test_neighbors_reach_threshold(connection: Connection, project: Project, raw: list[UUID]) -> None:
    _connect(connection, project, raw)
    found = load_neighbors(connection, project.id, MODEL, float(np.float32(0.9)))
    assert _rows(found) == [(raw[2], raw[3], float(np.float32(0.9)), MERGE)]
    assert found.similarity.dtype == np.float32
    assert found.verdict.dtype == np.int16
    found = load_neighbors(connection, project.id, MODEL, 0.0)
    assert _rows(found) == _rows(_all_pairs(raw))
    assert set(found.verdict.tolist()) == {TOPIC, ASK, MERGE}


def test_pairs_are_stored_with_new_memories(connection: Connection, project: Project, raw: list[UUID]) -> None:
    whole = _all_pairs(raw)
    append_neighbors(connection, project.id, MODEL, [whole.select(whole.b != to_ids(raw[3:])[0])])
    query = text("SELECT memory_id, neighbor_ids FROM consolidation.memory_neighbors ORDER BY memory_id")
    before = connection.execute(query).all()
    newest = to_ids(raw[3:])
    append_neighbors(connection, project.id, MODEL, [whole.select(whole.b == newest[0])], new=newest)
    assert connection.execute(query).all() == [*before, (raw[3], raw[:3])]
    assert _rows(load_neighbors(connection, project.id, MODEL, 0.0)) == _rows(whole)


def test_verdict_of_single_pairs_changes(connection: Connection, project: Project, raw: list[UUID]) -> None:
    whole = _all_pairs(raw)
    append_neighbors(connection, project.id, MODEL, [whole], new=to_ids(raw[2:]))
    chosen = np.array([1, 4])
    set_verdict(connection, project.id, MODEL, whole.select(chosen), MERGE)
    whole.verdict[chosen] = MERGE
    assert _rows(load_neighbors(connection, project.id, MODEL, 0.0)) == _rows(whole)


def test_neighbors_are_appended_in_blocks(connection: Connection, project: Project, raw: list[UUID]) -> None:
    whole = _all_pairs(raw)
    blocks = (_slice(whole, part) for part in (slice(0, 2), slice(2, 2), slice(2, 6)))
    assert append_neighbors(connection, project.id, MODEL, blocks) == 6
    assert append_neighbors(connection, project.id, MODEL, []) == 0
    assert _rows(load_neighbors(connection, project.id, MODEL, 0.0)) == _rows(whole)


def test_too_many_pairs_are_rejected(
    connection: Connection, project: Project, raw: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _all_pairs(raw)
    blocks = [_slice(whole, part) for part in (slice(0, 4), slice(4, 6))]
    monkeypatch.setattr(similarity_graph, "MAX_PAIRS", 5)
    too_many = pytest.raises(TooManyPairsError, match=r"more than 5 pairs .* set a higher t_pattern")
    with too_many, connection.begin_nested():
        append_neighbors(connection, project.id, MODEL, blocks)
    assert _pairs(connection, project) == set()
    monkeypatch.setattr(similarity_graph, "MAX_PAIRS", 6)
    assert append_neighbors(connection, project.id, MODEL, blocks) == 6


def test_pruning_removes_pairs_of_changed_memories(connection: Connection, project: Project, raw: list[UUID]) -> None:
    other = add_project(connection, "other")
    _connect(connection, project, raw)
    _connect(connection, project, raw, model="other")
    _connect(connection, other, raw)
    mark_compared(connection, to_ids(raw), 1)
    assert prune_neighbors(connection, project.id, MODEL) == 0
    save_embeddings(connection, "task_memories", to_ids(raw[1:2]), unit_vector(8)[None], MODEL)
    undo = _archive(connection, project, raw[3])
    assert prune_neighbors(connection, project.id, MODEL) == 5
    assert _pairs(connection, project) == {(raw[0], raw[2])}
    assert len(_pairs(connection, project, "other")) == len(_pairs(connection, other)) == 6

    mark_compared(connection, to_ids(raw), 1)
    revert_changes(connection, author(project), [undo], group_id=uuid4(), reason=None)
    assert to_uuids(load_uncompared_ids(connection, project.id, MODEL, 1)) == [raw[3]]
    clear_neighbors(connection, project.id, MODEL)
    assert _pairs(connection, project) == set()
    assert len(_pairs(connection, project, "other")) == 6


def test_pairs_survive_merge_and_undo(connection: Connection, project: Project, raw: list[UUID]) -> None:
    _connect(connection, project, raw)
    mark_compared(connection, to_ids(raw), 1)
    before = newest_change(connection)
    merged = add_merged(connection, project, "ab", raw[:2], seed=5)
    hide_sources(connection, project, raw[:2], merged)
    assert prune_neighbors(connection, project.id, MODEL) == 0
    changes = list(range(before + 1, newest_change(connection) + 1))
    revert_changes(connection, author(project), changes, group_id=uuid4(), reason=None)
    assert prune_neighbors(connection, project.id, MODEL) == 0
    assert len(_pairs(connection, project)) == 6
    assert load_nodes(connection, project.id, MODEL, scope=NO_WALLS).graph_version.tolist() == [1] * 4
