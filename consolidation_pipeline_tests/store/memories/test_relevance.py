"""Relevance: inputs of decay as of an instant, and saved scores."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, select, text

from consolidation_pipeline.store.database.schema import memory_relations, relevance_scores, task_memories
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.memories.relevance import load_decay_inputs, save_relevance
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    NOW,
    add_memories,
    add_merged,
    add_project,
    hide_sources,
    insert_row,
    new_memory,
    update_row,
)


def _relate(connection: Connection, project: Project, a: UUID, b: UUID, status: str, confidence: float) -> None:
    values = {"a_id": a, "b_id": b, "relation_type": "explains", "confidence": confidence, "status": status}
    insert_row(connection, project, memory_relations, **values, created_at=NOW - timedelta(days=1))


def test_decay_inputs_are_read_as_of_instant(connection: Connection, project: Project) -> None:
    times = {"learned_at": NOW - timedelta(days=10), "last_accessed_at": NOW - timedelta(hours=12)}
    memories = [new_memory("a", importance=0.9, **times), new_memory("b", learned_at=NOW + timedelta(days=1))]
    a, b, archived = add_memories(connection, project, [*memories, new_memory("c")])
    connection.execute(text(f"UPDATE {task_memories} SET created_at = learned_at"))
    update_row(connection, project, task_memories, archived, archived_at=NOW)
    _relate(connection, project, a, b, "confirmed", 0.4)
    _relate(connection, project, archived, a, "confirmed", 0.8)
    _relate(connection, project, b, a, "candidate", 1.0)

    rows = load_decay_inputs(connection, project.id, "task_memories", NOW)
    at = {id_: n for n, id_ in enumerate(to_uuids(rows.ids))}
    assert at.keys() == {a, b}
    assert (rows.age_days[at[a]], rows.access_days[at[a]], rows.importance[at[a]]) == (10, 0.5, 0.9)
    assert (rows.age_days[at[b]], rows.access_days[at[b]]) == (-1, -1)
    assert (rows.relations[at[a]], rows.relations[at[b]]) == (1, 1)
    assert (rows.confidence[at[a]], rows.confidence[at[b]]) == (0.4, 0.4)

    earlier = load_decay_inputs(connection, project.id, "task_memories", NOW - timedelta(days=2))
    assert earlier.relations.tolist() == [0, 0]
    assert earlier.confidence.tolist() == [0.5, 0.5]
    assert earlier.age_days[at[a]] == 8


def test_decay_inputs_exclude_inactive_rows(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "ab"])
    active = add_merged(connection, project, "active", ids)
    add_merged(connection, project, "retired", [], retired_at=NOW)
    hide_sources(connection, project, ids[:1], active)
    assert to_uuids(load_decay_inputs(connection, project.id, "task_memories", NOW).ids) == [ids[1]]
    assert to_uuids(load_decay_inputs(connection, project.id, "consolidated_memories", NOW).ids) == [active]
    empty = load_decay_inputs(connection, add_project(connection, "empty").id, "task_memories", NOW)
    assert {len(getattr(empty, name)) for name in empty.__dataclass_fields__} == {0}


def test_save_relevance_writes_score_and_time_only(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "ab"])
    save_relevance(connection, "task_memories", to_ids(ids[:1]), np.array([0.1 + 0.2]), NOW)
    stored = select(relevance_scores.c.memory_id, relevance_scores.c.relevance_score, relevance_scores.c.relevance_at)
    assert connection.execute(stored).all() == [(ids[0], 0.1 + 0.2, NOW)]
    later = NOW + timedelta(days=1)
    save_relevance(connection, "task_memories", to_ids(ids[:1]), np.array([0.2]), later)
    assert connection.execute(stored).all() == [(ids[0], 0.2, later)]
    rows = connection.execute(select(task_memories.c.importance, task_memories.c.version))
    assert set(rows.tuples()) == {(0.5, 1)}
