"""Embeddings: rows that need a vector, reuse of vectors, saving."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import playbook_entries, task_memories
from consolidation_pipeline.store.database.vector_copy import format_vector, load_vectors, to_ids, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.embeddings import (
    count_embedded,
    list_unembedded,
    load_unembedded,
    reuse_embeddings,
    save_embeddings,
)
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    author,
    new_memory,
    plant_memories,
    plant_merged,
    plant_project,
    unit_vector,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _embed(connection: Connection, table: str, ids: list[UUID], model: str = MODEL, seed: int = 0) -> None:
    save_embeddings(connection, table, to_ids(ids), np.stack([unit_vector(seed + n) for n in range(len(ids))]), model)


def _graph_versions(connection: Connection) -> list[int | None]:
    return list(connection.scalars(text(f"SELECT graph_version FROM {task_memories} ORDER BY external_id")))


def test_embeddings_are_saved_to_their_rows(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory(key) for key in "abc"])
    connection.execute(text(f"UPDATE {task_memories} SET graph_version = 3"))
    _embed(connection, "task_memories", ids[:2])
    assert count_embedded(connection, project.id, "task_memories", MODEL) == 2
    assert count_embedded(connection, project.id, "task_memories", "other") == 0
    assert _graph_versions(connection) == [None, None, 3]
    query = f"SELECT id, embedding FROM {task_memories} WHERE embedding IS NOT NULL ORDER BY external_id"
    found, vectors = load_vectors(connection, query, {}, dimension=3)
    assert to_uuids(found) == ids[:2]
    assert np.array_equal(vectors, np.stack([unit_vector(0), unit_vector(1)]))


def test_unusable_embedding_is_not_saved(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory("a")])
    with pytest.raises(EmbeddingError), connection.begin_nested():
        save_embeddings(connection, "task_memories", to_ids(ids), np.zeros((1, 3), np.float32), MODEL)
    assert count_embedded(connection, project.id, "task_memories", MODEL) == 0


def test_unembedded_memories_load_by_id_in_batches(connection: Connection, project: Project) -> None:
    ids = sorted(plant_memories(connection, project, [new_memory(key, goal=f"goal {key}") for key in "abcde"]))
    archived = [Change(ids[0], uuid4(), {"archived_at": NOW}, 1)]
    update_rows(connection, author(project), task_memories, archived, operation="archive")
    _embed(connection, "task_memories", ids[1:2])
    _embed(connection, "task_memories", ids[2:3], model="other")
    waiting = list_unembedded(connection, project.id, "task_memories", MODEL)
    assert to_uuids(waiting) == ids[2:]
    batch = load_unembedded(connection, "task_memories", waiting[:2], MODEL)
    assert to_uuids(batch.ids) == ids[2:4]
    assert batch.hashes == [content_hash(body) for body in batch.texts]
    assert all(body.startswith("goal ") for body in batch.texts)
    _embed(connection, "task_memories", ids[2:3])
    rest = load_unembedded(connection, "task_memories", to_ids(ids), MODEL)
    assert to_uuids(rest.ids) == ids[3:]


def test_unembedded_merged_and_entries_are_listed(connection: Connection, project: Project) -> None:
    none = {"embedding": None, "embedding_model": None, "embedding_dim": None}
    merged = plant_merged(connection, project, "merged", [], **none)
    plant_merged(connection, project, "retired", [], retired_at=NOW, **none)
    entry = Change(uuid4(), uuid4(), {"content": "Do.", "content_hash": content_hash("Do.")})
    insert_rows(connection, author(project), playbook_entries, [entry], operation="promote")
    for table, id_, body in (("consolidated_memories", merged, "merged"), ("playbook_entries", entry.entity_id, "Do.")):
        batch = load_unembedded(connection, table, list_unembedded(connection, project.id, table, MODEL), MODEL)
        assert (to_uuids(batch.ids), batch.texts) == ([id_], [body])
        _embed(connection, table, [id_])
        assert not list_unembedded(connection, project.id, table, MODEL).size


def test_embeddings_of_equal_content_are_reused(connection: Connection, project: Project) -> None:
    other = plant_project(connection, "other")
    known = plant_memories(connection, other, [new_memory("same")])
    _embed(connection, "task_memories", known, seed=7)
    plant_merged(connection, other, "merged text", [], seed=8, embedding=format_vector(unit_vector(8)))
    ids = plant_memories(
        connection, project, [new_memory("same"), new_memory("merged text"), new_memory("new"), new_memory("own")]
    )
    _embed(connection, "task_memories", ids[3:], seed=9)
    connection.execute(text(f"UPDATE {task_memories} SET graph_version = 1"))
    assert reuse_embeddings(connection, project.id, "task_memories", "another model") == 0
    assert reuse_embeddings(connection, project.id, "task_memories", MODEL) == 2
    assert reuse_embeddings(connection, project.id, "task_memories", MODEL) == 0
    query = f"SELECT id, embedding FROM {task_memories} WHERE project_id = %(p)s AND embedding IS NOT NULL"
    found, vectors = load_vectors(connection, query, {"p": project.id}, dimension=3)
    held = dict(zip(to_uuids(found), vectors, strict=True))
    for id_, seed in zip((ids[0], ids[1], ids[3]), (7, 8, 9), strict=True):
        assert np.array_equal(held[id_], unit_vector(seed))
    moved = f"SELECT id FROM {task_memories} WHERE graph_version IS NULL"
    assert set(connection.execute(text(moved)).scalars()) == set(ids[:2])


def test_new_model_replaces_old_embeddings(connection: Connection, project: Project) -> None:
    old, new = plant_memories(connection, project, [new_memory("a"), new_memory("b", execution_summary="a")])
    _embed(connection, "task_memories", [old], model="old", seed=1)
    _embed(connection, "task_memories", [new], model="new", seed=2)
    assert reuse_embeddings(connection, project.id, "task_memories", "new") == 1
    assert count_embedded(connection, project.id, "task_memories", "new") == 2
