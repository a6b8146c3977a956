"""Raw memories: stored once and unchanged."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, memory_id, normalized_hash
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import SCHEMA, task_memories
from consolidation_pipeline.store.database.vector_copy import load_vectors
from consolidation_pipeline.store.memories import memories
from consolidation_pipeline.store.memories.memories import AppendResult, append_memories, load_texts
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    SPECIAL_TEXT,
    add_memories,
    add_project,
    new_memory,
    record_statements,
)


def _append(connection: Connection, project: Project, *memories: NewMemory) -> AppendResult:
    return append_memories(connection, project.id, project.slug, enumerate(memories, 1))


def _rows(connection: Connection) -> list[Any]:
    """Return all memories with files, ``ctid`` and ``xmin``: these change if a row is written again."""
    files = f"ARRAY(SELECT path FROM {SCHEMA}.memory_files WHERE owner_id = m.id ORDER BY path)"
    query = f"SELECT m.*, {files} AS files, m.ctid::text, m.xmin::text FROM {task_memories} m ORDER BY external_id"
    return list(connection.execute(text(query)))


def test_second_import_changes_nothing(connection: Connection, project: Project) -> None:
    memories = [new_memory(key, files=(f"{key}.py",), tags=("x",)) for key in "abc"]
    assert _append(connection, project, *memories) == AppendResult(3, 0, ())
    before = _rows(connection)
    assert _append(connection, project, *memories) == AppendResult(0, 3, ())
    assert _append(connection, project, *memories, new_memory("d")) == AppendResult(1, 3, ())
    assert _rows(connection)[:3] == before


def test_many_rows_are_sent_in_parts(connection: Connection, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "_MAX_SENT", 1500)
    rows = [new_memory(key, files=(f"{key}.py",)) for key in "abcdefg"]
    with record_statements(connection) as statements:
        assert _append(connection, project, *rows, new_memory("a")) == AppendResult(7, 1, ())
    assert len([one for one in statements if "INSERT INTO consolidation.task_memories" in one]) > 2
    assert len(_rows(connection)) == 7


def test_memory_id_depends_on_project_and_source(connection: Connection, project: Project) -> None:
    (id_,) = add_memories(connection, project, [new_memory("a")])
    assert id_ == memory_id("garden", "test", "a")
    other = add_project(connection, "other")
    assert add_memories(connection, other, [new_memory("a")]) != [id_]
    assert _append(connection, project, new_memory("a", source="elsewhere")).added == 1


def test_changed_content_is_reported_and_not_stored(connection: Connection, project: Project) -> None:
    _append(connection, project, new_memory("a", files=("a.py",)), new_memory("b"))
    before = _rows(connection)
    changed = new_memory("a", execution_summary="other", files=("other.py",))
    assert _append(connection, project, new_memory("b"), changed, new_memory("c")) == AppendResult(1, 1, (2,))
    assert _rows(connection)[:2] == before


def test_first_of_equal_ids_in_batch_is_stored(connection: Connection, project: Project) -> None:
    first = new_memory("a", files=("first.py",))
    again = new_memory("a", files=("again.py",))
    other = new_memory("a", execution_summary="other", files=("other.py",))
    assert _append(connection, project, first, again, other) == AppendResult(1, 1, (3,))
    (row,) = _rows(connection)
    assert (row.execution_summary, row.files) == ("a", ["first.py"])


def test_append_without_memories_stores_nothing(connection: Connection, project: Project) -> None:
    assert _append(connection, project) == AppendResult(0, 0, ())


def test_append_stores_every_field(connection: Connection, project: Project) -> None:
    memory = NewMemory(
        source=SPECIAL_TEXT,
        external_id=SPECIAL_TEXT,
        memory_type="decision",
        execution_summary=SPECIAL_TEXT,
        goal=SPECIAL_TEXT,
        result="",
        feedback=" ",
        lessons_learned="\\N",
        tags=(SPECIAL_TEXT, "", "NULL", "null", '"', "a,b", "{}"),
        files=(SPECIAL_TEXT, "NULL", "a b.py"),
        success=False,
        importance=0.1 + 0.2,
        user_id=SPECIAL_TEXT,
        agent_id="a",
        session_id="s",
        task_id="t",
        learned_at=NOW,
        metadata={SPECIAL_TEXT: [SPECIAL_TEXT, None, 1.5, {"x": []}]},
        tool_usage=[],
        error_patterns=["a", "b"],
        language="german",
        reused_count=7,
        last_accessed_at=NOW + timedelta(microseconds=1),
        pinned=True,
    )
    _append(connection, project, memory)
    (row,) = _rows(connection)
    body = f"{SPECIAL_TEXT.strip()}\n{SPECIAL_TEXT.strip()}\n\\N"
    special = {
        "tags": list(memory.tags),
        "files": sorted(memory.files),
        "content_hash": content_hash(body),
        "normalized_hash": normalized_hash(body),
        "embedding_dim": None,
    }
    stored = {**row._mapping, "files": sorted(row.files)}
    expected = {name: getattr(memory, name) for name in memory.__dataclass_fields__} | special
    assert {name: stored[name] for name in expected} == expected
    assert stored["version"] == 1
    assert load_texts(connection, [row.id]) == {row.id: body}


def test_memory_without_time_is_learned_now(connection: Connection, project: Project) -> None:
    _append(connection, project, new_memory("a"))
    (row,) = _rows(connection)
    assert row.learned_at == row.created_at == connection.execute(text("SELECT now()")).scalar_one()
    assert (row.tool_usage, row.error_patterns, row.metadata, row.success) == (None, None, {}, None)


@pytest.mark.slow
def test_append_needs_one_statement(connection: Connection, project: Project) -> None:
    memories = [new_memory(str(n), files=(f"{n}.py",)) for n in range(20_000)]
    with record_statements(connection) as statements:
        assert _append(connection, project, *memories) == AppendResult(20_000, 0, ())
    assert len(statements) == 1
    assert connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.memory_files")).scalar_one() == 20_000


def test_imported_embedding_is_normalized(connection: Connection, project: Project) -> None:
    embeddings = {"a": (3.0, 4.0), "b": (1e-300, 0.0), "c": (1e300, 1e300)}
    _append(connection, project, *(new_memory(k, embedding=v, embedding_model=MODEL) for k, v in embeddings.items()))
    query = f"SELECT id, embedding FROM {task_memories} ORDER BY external_id"
    _, vectors = load_vectors(connection, query, {}, dimension=2)
    expected = [[0.6, 0.8], [1, 0], [math.sqrt(0.5), math.sqrt(0.5)]]
    assert np.array_equal(vectors, np.array(expected, np.float32))
    assert {row.embedding_dim for row in _rows(connection)} == {2}


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_unusable_imported_embedding_is_rejected(connection: Connection, project: Project, bad: float) -> None:
    memory = new_memory("a", embedding=(bad, bad), embedding_model=MODEL)
    with pytest.raises(EmbeddingError, match="memory a"), connection.begin_nested():
        _append(connection, project, new_memory("b"), memory)
    assert _rows(connection) == []
