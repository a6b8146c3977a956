"""Embeddings: rows that need a vector, reuse of vectors, saving."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import Connection, select

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import compared_memories, playbook_entries, task_memories
from consolidation_pipeline.store.database.vector_copy import format_vector, load_vectors, to_ids, to_uuids
from consolidation_pipeline.store.memories.embeddings import (
    count_embedded,
    list_unembedded,
    load_unembedded,
    reuse_embeddings,
    save_embeddings,
)
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.similarity_graph import mark_compared
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_merged,
    add_project,
    insert_row,
    new_memory,
    save_unit_vectors,
    unit_vector,
    update_row,
)


def _list_compared(connection: Connection) -> set[UUID]:
    return set(connection.scalars(select(compared_memories.c.memory_id)))


def test_embeddings_are_saved_to_their_rows(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "abc"])
    mark_compared(connection, to_ids(ids), 3)
    save_unit_vectors(connection, ids[:2])
    assert count_embedded(connection, project.id, MODEL)["task_memories"] == (2, 1)
    assert count_embedded(connection, project.id, "other")["task_memories"] == (0, 3)
    assert _list_compared(connection) == {ids[2]}
    query = f"SELECT id, embedding FROM {task_memories} WHERE embedding IS NOT NULL ORDER BY external_id"
    found, vectors = load_vectors(connection, query, {}, dimension=3)
    assert to_uuids(found) == ids[:2]
    assert np.array_equal(vectors, np.stack([unit_vector(0), unit_vector(1)]))


def test_unusable_embedding_is_not_saved(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory("a")])
    with pytest.raises(EmbeddingError), connection.begin_nested():
        save_embeddings(connection, "task_memories", to_ids(ids), np.zeros((1, 3), np.float32), MODEL)
    assert count_embedded(connection, project.id, MODEL)["task_memories"] == (0, 1)


def test_unembedded_memories_load_by_id_in_batches(connection: Connection, project: Project) -> None:
    ids = sorted(add_memories(connection, project, [new_memory(key, goal=f"goal {key}") for key in "abcde"]))
    update_row(connection, project, task_memories, ids[0], archived_at=NOW)
    save_unit_vectors(connection, ids[1:2])
    save_unit_vectors(connection, ids[2:3], model="other")
    waiting = list_unembedded(connection, project.id, "task_memories", MODEL)
    assert to_uuids(waiting) == ids[2:]
    batch = load_unembedded(connection, "task_memories", waiting[:2], MODEL)
    assert to_uuids(batch.ids) == ids[2:4]
    assert batch.hashes == [content_hash(body) for body in batch.texts]
    assert all(body.startswith("goal ") for body in batch.texts)
    save_unit_vectors(connection, ids[2:3])
    rest = load_unembedded(connection, "task_memories", to_ids(ids), MODEL)
    assert to_uuids(rest.ids) == ids[3:]


def test_unembedded_merged_and_entries_are_listed(connection: Connection, project: Project) -> None:
    none = {"embedding": None, "embedding_model": None, "embedding_dim": None}
    merged = add_merged(connection, project, "merged", [], **none)
    add_merged(connection, project, "retired", [], retired_at=NOW, **none)
    entry = insert_row(connection, project, playbook_entries, content="Do.", content_hash=content_hash("Do."))
    for table, id_, body in (("consolidated_memories", merged, "merged"), ("playbook_entries", entry.entity_id, "Do.")):
        batch = load_unembedded(connection, table, list_unembedded(connection, project.id, table, MODEL), MODEL)
        assert (to_uuids(batch.ids), batch.texts) == ([id_], [body])
        save_unit_vectors(connection, [id_], table=table)
        assert not list_unembedded(connection, project.id, table, MODEL).size


def test_embeddings_of_equal_content_are_reused(connection: Connection, project: Project) -> None:
    other = add_project(connection, "other")
    known = add_memories(connection, other, [new_memory("same")])
    save_unit_vectors(connection, known, seed=7)
    add_merged(connection, other, "merged text", [], seed=8, embedding=format_vector(unit_vector(8)))
    ids = add_memories(
        connection, project, [new_memory("same"), new_memory("merged text"), new_memory("new"), new_memory("own")]
    )
    save_unit_vectors(connection, ids[3:], seed=9)
    mark_compared(connection, to_ids([*known, *ids]), 1)
    assert reuse_embeddings(connection, project.id, "task_memories", "another model") == 0
    assert reuse_embeddings(connection, project.id, "task_memories", MODEL) == 2
    assert reuse_embeddings(connection, project.id, "task_memories", MODEL) == 0
    query = f"SELECT id, embedding FROM {task_memories} WHERE project_id = %(p)s AND embedding IS NOT NULL"
    found, vectors = load_vectors(connection, query, {"p": project.id}, dimension=3)
    stored = dict(zip(to_uuids(found), vectors, strict=True))
    for id_, seed in zip((ids[0], ids[1], ids[3]), (7, 8, 9), strict=True):
        assert np.array_equal(stored[id_], unit_vector(seed))
    assert _list_compared(connection) == {*known, *ids[2:]}


def test_new_model_replaces_old_embeddings(connection: Connection, project: Project) -> None:
    old, new = add_memories(connection, project, [new_memory("a"), new_memory("b", execution_summary="a")])
    save_unit_vectors(connection, [old], model="old", seed=1)
    save_unit_vectors(connection, [new], model="new", seed=2)
    assert reuse_embeddings(connection, project.id, "task_memories", "new") == 1
    assert count_embedded(connection, project.id, "new")["task_memories"] == (2, 0)
