"""Raw memories: stored once and as they are, embedded once, scored as of an instant."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, memory_id, normalized_hash
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import SCHEMA, memory_relations, playbook_entries, task_memories
from consolidation_pipeline.store.database.vector_copy import format_vector, load_vectors, to_ids, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.memories import (
    Appended,
    append_memories,
    count_embedded,
    list_unembedded,
    load_decaying,
    load_texts,
    load_unembedded,
    reuse_embeddings,
    save_embeddings,
    save_relevance,
)
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    author,
    counted_statements,
    new_memory,
    plant_memories,
    plant_merged,
    plant_project,
    unit_vector,
)

NASTY = "tab\t newline\n return\r backslash \\ \\N \\. quote ' \" , {} [] é 漢字 🙂 \u2028 \x7f \x01 %s %(x)s :x"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _append(connection: Connection, project: Project, *memories: NewMemory) -> Appended:
    return append_memories(connection, project.id, project.slug, enumerate(memories, 1))


def _rows(connection: Connection) -> list[Any]:
    """Every memory with its files, and where each row lies: a row that was written again lies elsewhere."""
    files = f"ARRAY(SELECT path FROM {SCHEMA}.memory_files WHERE owner_id = m.id ORDER BY path)"
    query = f"SELECT m.*, {files} AS files, m.ctid::text, m.xmin::text FROM {task_memories} m ORDER BY external_id"
    return list(connection.execute(text(query)))


def test_a_second_import_changes_nothing(connection: Connection, project: Project) -> None:
    memories = [new_memory(key, files=(f"{key}.py",), tags=("x",)) for key in "abc"]
    assert _append(connection, project, *memories) == Appended(3, 0, ())
    before = _rows(connection)
    assert _append(connection, project, *memories) == Appended(0, 3, ())
    assert _append(connection, project, *memories, new_memory("d")) == Appended(1, 3, ())
    assert _rows(connection)[:3] == before


def test_an_id_is_derived_from_project_source_and_external_id(connection: Connection, project: Project) -> None:
    (id_,) = plant_memories(connection, project, [new_memory("a")])
    assert id_ == memory_id("garden", "test", "a")
    other = plant_project(connection, "other")
    assert plant_memories(connection, other, [new_memory("a")]) != [id_]
    assert _append(connection, project, new_memory("a", source="elsewhere")).added == 1


def test_other_content_under_an_id_is_reported_and_not_taken(connection: Connection, project: Project) -> None:
    _append(connection, project, new_memory("a", files=("a.py",)), new_memory("b"))
    before = _rows(connection)
    changed = new_memory("a", execution_summary="other", files=("other.py",))
    assert _append(connection, project, new_memory("b"), changed, new_memory("c")) == Appended(1, 1, (2,))
    assert _rows(connection)[:2] == before


def test_of_equal_ids_in_a_batch_the_first_counts(connection: Connection, project: Project) -> None:
    first = new_memory("a", files=("first.py",))
    again = new_memory("a", files=("again.py",))
    other = new_memory("a", execution_summary="other", files=("other.py",))
    assert _append(connection, project, first, again, other) == Appended(1, 1, (3,))
    (row,) = _rows(connection)
    assert (row.execution_summary, row.files) == ("a", ["first.py"])


def test_nothing_to_store_is_nothing(connection: Connection, project: Project) -> None:
    assert _append(connection, project) == Appended(0, 0, ())


def test_every_field_is_kept(connection: Connection, project: Project) -> None:
    memory = NewMemory(
        source=NASTY,
        external_id=NASTY,
        memory_type="decision",
        execution_summary=NASTY,
        goal=NASTY,
        result="",
        feedback=" ",
        lessons_learned="\\N",
        tags=(NASTY, "", "NULL", "null", '"', "a,b", "{}"),
        files=(NASTY, "NULL", "a b.py"),
        success=False,
        importance=0.1 + 0.2,
        user_id=NASTY,
        agent_id="a",
        session_id="s",
        task_id="t",
        learned_at=NOW,
        metadata={NASTY: [NASTY, None, 1.5, {"x": []}]},
        tool_usage=[],
        error_patterns=["a", "b"],
        language="german",
        reused_count=7,
        last_accessed_at=NOW + timedelta(microseconds=1),
        pinned=True,
    )
    _append(connection, project, memory)
    (row,) = _rows(connection)
    body = f"{NASTY.strip()}\n{NASTY.strip()}\n\\N"
    special = {
        "tags": list(memory.tags),
        "files": sorted(memory.files),
        "content_hash": content_hash(body),
        "normalized_hash": normalized_hash(body),
        "embedding_dim": None,
    }
    held = row._mapping
    expected = {name: getattr(memory, name) for name in memory.__dataclass_fields__} | special
    assert {name: held[name] for name in expected if name != "files"} == {
        k: v for k, v in expected.items() if k != "files"
    }
    assert sorted(held["files"]) == expected["files"]
    assert held["version"] == 1
    assert load_texts(connection, [row.id]) == {row.id: body}


def test_a_memory_without_a_time_was_learned_now(connection: Connection, project: Project) -> None:
    _append(connection, project, new_memory("a"))
    (row,) = _rows(connection)
    assert row.learned_at == row.created_at == connection.execute(text("SELECT now()")).scalar_one()
    assert (row.tool_usage, row.error_patterns, row.metadata, row.success) == (None, None, {}, None)


def test_many_rows_take_few_statements(connection: Connection, project: Project) -> None:
    memories = [new_memory(str(n), files=(f"{n}.py",)) for n in range(20_000)]
    with counted_statements(connection) as statements:
        assert _append(connection, project, *memories) == Appended(20_000, 0, ())
    assert len(statements) == 5
    assert connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.memory_files")).scalar_one() == 20_000


def test_an_imported_embedding_is_brought_to_length_one(connection: Connection, project: Project) -> None:
    embeddings = {"a": (3.0, 4.0), "b": (1e-300, 0.0), "c": (1e300, 1e300)}
    _append(connection, project, *(new_memory(k, embedding=v, embedding_model=MODEL) for k, v in embeddings.items()))
    query = f"SELECT id, embedding FROM {task_memories} ORDER BY external_id"
    _, vectors = load_vectors(connection, query, {}, dimension=2)
    expected = [[0.6, 0.8], [1, 0], [math.sqrt(0.5), math.sqrt(0.5)]]
    assert np.array_equal(vectors, np.array(expected, np.float32))
    assert {row.embedding_dim for row in _rows(connection)} == {2}


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_an_imported_embedding_that_cannot_be_used_is_refused(
    connection: Connection, project: Project, bad: float
) -> None:
    memory = new_memory("a", embedding=(bad, bad), embedding_model=MODEL)
    with pytest.raises(EmbeddingError, match="memory a"), connection.begin_nested():
        _append(connection, project, new_memory("b"), memory)
    assert _rows(connection) == []


def _embed(connection: Connection, table: str, ids: list[UUID], model: str = MODEL, seed: int = 0) -> None:
    save_embeddings(connection, table, to_ids(ids), np.stack([unit_vector(seed + n) for n in range(len(ids))]), model)


def _graph_versions(connection: Connection) -> list[int | None]:
    return [row.graph_version for row in _rows(connection)]


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


def test_a_vector_that_cannot_be_used_is_not_saved(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory("a")])
    with pytest.raises(EmbeddingError), connection.begin_nested():
        save_embeddings(connection, "task_memories", to_ids(ids), np.zeros((1, 3), np.float32), MODEL)
    assert count_embedded(connection, project.id, "task_memories", MODEL) == 0


def test_what_waits_for_a_vector_is_loaded_by_id_in_portions(connection: Connection, project: Project) -> None:
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


def test_consolidated_memories_and_entries_wait_for_vectors_too(connection: Connection, project: Project) -> None:
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


def test_vectors_are_taken_over_from_equal_content_of_any_project_and_table(
    connection: Connection, project: Project
) -> None:
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


def test_a_change_of_the_model_takes_the_place_of_old_vectors(connection: Connection, project: Project) -> None:
    old, new = plant_memories(connection, project, [new_memory("a"), new_memory("b", execution_summary="a")])
    _embed(connection, "task_memories", [old], model="old", seed=1)
    _embed(connection, "task_memories", [new], model="new", seed=2)
    assert reuse_embeddings(connection, project.id, "task_memories", "new") == 1
    assert count_embedded(connection, project.id, "task_memories", "new") == 2


def _relate(connection: Connection, project: Project, a: UUID, b: UUID, status: str, confidence: float) -> None:
    values = {"a_id": a, "b_id": b, "relation_type": "explains", "confidence": confidence, "status": status}
    change = Change(uuid4(), uuid4(), values | {"created_at": NOW - timedelta(days=1)})
    insert_rows(connection, author(project), memory_relations, [change], operation="associate")


def test_decay_reads_ages_and_confirmed_relations_as_of_an_instant(connection: Connection, project: Project) -> None:
    times = {"learned_at": NOW - timedelta(days=10), "last_accessed_at": NOW - timedelta(hours=12)}
    memories = [new_memory("a", importance=0.9, **times), new_memory("b", learned_at=NOW + timedelta(days=1))]
    a, b, archived = plant_memories(connection, project, [*memories, new_memory("c")])
    update = [Change(archived, uuid4(), {"archived_at": NOW}, 1)]
    update_rows(connection, author(project), task_memories, update, operation="archive")
    _relate(connection, project, a, b, "confirmed", 0.4)
    _relate(connection, project, archived, a, "confirmed", 0.8)
    _relate(connection, project, b, a, "candidate", 1.0)

    rows = load_decaying(connection, project.id, "task_memories", NOW)
    at = {id_: n for n, id_ in enumerate(to_uuids(rows.ids))}
    assert at.keys() == {a, b}
    assert (rows.age_days[at[a]], rows.access_days[at[a]], rows.importance[at[a]]) == (10, 0.5, 0.9)
    assert rows.age_days[at[b]] == -1
    assert np.isnan(rows.access_days[at[b]])
    assert (rows.relations[at[a]], rows.relations[at[b]]) == (1, 1)
    assert (rows.confidence[at[a]], rows.confidence[at[b]]) == (0.4, 0.4)

    earlier = load_decaying(connection, project.id, "task_memories", NOW - timedelta(days=2))
    assert earlier.relations.tolist() == [0, 0]
    assert earlier.confidence.tolist() == [0.5, 0.5]
    assert earlier.age_days[at[a]] == 8


def test_decay_leaves_out_what_does_not_count(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory(key) for key in "ab"])
    active = plant_merged(connection, project, "active", ids)
    plant_merged(connection, project, "retired", [], retired_at=NOW)
    update = [Change(ids[0], uuid4(), {"consolidated_into_id": active}, 1)]
    update_rows(connection, author(project), task_memories, update, operation="merge")
    assert to_uuids(load_decaying(connection, project.id, "task_memories", NOW).ids) == [ids[1]]
    assert to_uuids(load_decaying(connection, project.id, "consolidated_memories", NOW).ids) == [active]
    nothing = load_decaying(connection, plant_project(connection, "empty").id, "task_memories", NOW)
    assert {len(getattr(nothing, name)) for name in nothing.__dataclass_fields__} == {0}


def test_relevance_is_written_with_its_instant_and_nothing_else_is(connection: Connection, project: Project) -> None:
    ids = plant_memories(connection, project, [new_memory(key) for key in "ab"])
    save_relevance(connection, "task_memories", to_ids(ids[:1]), np.array([0.1 + 0.2]), NOW)
    rows = {row.id: row for row in _rows(connection)}
    assert (rows[ids[0]].relevance_score, rows[ids[0]].relevance_at) == (0.1 + 0.2, NOW)
    assert (rows[ids[0]].importance, rows[ids[0]].version) == (0.5, 1)
    assert rows[ids[1]].relevance_score is None
