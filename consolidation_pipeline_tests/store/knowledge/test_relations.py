"""Relations of memories: association inputs, related pairs, new relations and decisions."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.lifecycle.associations import EXPLAINS, SHARES_THEME, describe_rule
from consolidation_pipeline.core.memories.memories import relation_id
from consolidation_pipeline.core.memories.relation_types import RELATION_TYPES
from consolidation_pipeline.errors import ConflictError, EmbeddingError
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.schema import SCHEMA, consolidated_memories, task_memories
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.knowledge.relations import (
    NewRelation,
    append_relations,
    count_relations,
    decide_relations,
    list_relations,
    load_association_inputs,
    load_association_vectors,
    load_related_pairs,
    load_relations,
)
from consolidation_pipeline.store.memories.embeddings import save_embeddings
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_merged,
    add_project,
    author,
    hide_sources,
    new_memory,
    record_statements,
    unit_vector,
    update_row,
)


def new_relation(
    a: UUID, b: UUID, rule: int = SHARES_THEME, *, similarity: float = 0.8, status: str = "confirmed"
) -> NewRelation:
    found = describe_rule(rule, similarity)
    return NewRelation(relation_id("garden", found.relation_type, a, b), a, b, found, similarity, status)


def insert_relations(connection: Connection, project: Project, *relations: NewRelation) -> int:
    return append_relations(connection, author(project), relations, now=NOW)


def load_related(connection: Connection, project: Project) -> set[tuple[UUID, UUID, str]]:
    found = load_related_pairs(connection, project.id)
    types = [RELATION_TYPES[at] for at in found.relation_type]
    return set(zip(to_uuids(found.a), to_uuids(found.b), types, strict=True))


def test_association_inputs_are_newest_active_units(connection: Connection, project: Project) -> None:
    memories = [new_memory(str(n), memory_type="decision", learned_at=NOW - timedelta(hours=n)) for n in range(6)]
    ids = add_memories(connection, project, memories)
    merged = add_merged(connection, project, "merged", ids[1:3], learned_at=NOW - timedelta(hours=2))
    add_merged(connection, project, "pattern", ids, kind="pattern", abstraction_level=2, learned_at=NOW)
    add_merged(connection, project, "retired", [], learned_at=NOW, retired_at=NOW)
    hide_sources(connection, project, ids[1:3], merged)
    update_row(connection, project, task_memories, ids[3], archived_at=NOW)
    save_embeddings(connection, "task_memories", to_ids(ids[:1]), unit_vector(1)[None], MODEL)
    save_embeddings(connection, "task_memories", to_ids(ids[4:5]), unit_vector(1, 5)[None], "other")
    add_memories(connection, add_project(connection, "other"), [new_memory("x")])

    inputs = load_association_inputs(connection, project.id, MODEL, scope=NO_WALLS)
    assert to_uuids(inputs.ids) == sorted([ids[0], merged, ids[4], ids[5]])
    at = {id_: n for n, id_ in enumerate(to_uuids(inputs.ids))}
    assert [inputs.dimension[at[id_]] for id_ in (ids[0], merged, ids[4], ids[5])] == [3, 3, 0, 0]
    assert (inputs.memory_type[at[ids[0]]], inputs.memory_type[at[merged]]) == ("decision", "learning")
    assert inputs.learned_at[at[merged]] == int((NOW - timedelta(hours=2)).timestamp()) * 1_000_000
    newest = load_association_inputs(connection, project.id, MODEL, scope=NO_WALLS, newest=2)
    assert to_uuids(newest.ids) == sorted([ids[0], merged])

    found, vectors = load_association_vectors(connection, project.id, MODEL, 3)
    assert to_uuids(found) == sorted([ids[0], merged])
    assert vectors.shape == (2, 3)
    chosen, vector = load_association_vectors(connection, project.id, MODEL, 3, ids=to_ids([ids[0], ids[5]]))
    assert to_uuids(chosen) == [ids[0]]
    assert np.array_equal(vector, unit_vector(1)[None])
    with pytest.raises(EmbeddingError):
        load_association_vectors(connection, project.id, MODEL, 4)


def test_association_inputs_break_time_ties_by_id(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key, learned_at=NOW) for key in "abcdef"])
    assert (
        to_uuids(load_association_inputs(connection, project.id, MODEL, scope=NO_WALLS, newest=4).ids)
        == sorted(ids)[:4]
    )


def test_empty_project_has_no_association_inputs(connection: Connection, project: Project) -> None:
    assert len(load_association_inputs(connection, project.id, MODEL, scope=NO_WALLS)) == 0
    assert load_association_vectors(connection, project.id, MODEL, 0)[1].shape == (0, 0)
    assert load_related(connection, project) == set()


def test_relation_is_recorded_with_its_reason(connection: Connection, project: Project) -> None:
    a, b = add_memories(connection, project, [new_memory("a"), new_memory("b")])
    assert insert_relations(connection, project, new_relation(b, a, EXPLAINS)) == 1
    assert insert_relations(connection, project) == 0
    (row,) = connection.execute(text(f"SELECT * FROM {SCHEMA}.memory_relations")).all()
    assert (row.a_id, row.b_id, row.relation_type, row.status, row.confidence) == (b, a, "explains", "confirmed", 0.7)
    assert (row.created_at, row.version, row.similarity) == (NOW, 1, pytest.approx(0.8))
    query = f"SELECT * FROM {SCHEMA}.consolidation_changes WHERE entity_type = 'memory_relations'"
    (change,) = connection.execute(text(query)).all()
    assert (change.operation, change.entity_id, change.confidence) == ("associate", row.id, 0.7)
    assert change.reason == f"explains: {row.reason}"
    with pytest.raises(ConflictError, match="exists already"), connection.begin_nested():
        insert_relations(connection, project, new_relation(b, a, EXPLAINS))


def test_many_relations_take_few_statements(connection: Connection, project: Project) -> None:
    ids = sorted(add_memories(connection, project, [new_memory(str(n)) for n in range(60)]))
    many = [new_relation(a, b) for at, a in enumerate(ids) for b in ids[at + 1 :]]
    with record_statements(connection) as statements:
        assert insert_relations(connection, project, *many) == 1770
    assert len(statements) < 10
    query = f"SELECT count(DISTINCT group_id) FROM {SCHEMA}.consolidation_changes WHERE operation = 'associate'"
    assert connection.execute(text(query)).scalar_one() == 1770


def test_relation_id_is_directed_only_if_type_is() -> None:
    a, b = uuid4(), uuid4()
    assert relation_id("garden", "shares_theme", a, b) == relation_id("garden", "shares_theme", b, a)
    assert relation_id("garden", "explains", a, b) != relation_id("garden", "explains", b, a)
    ids = {relation_id(slug, kind, a, b) for slug in ("garden", "shop") for kind in RELATION_TYPES}
    assert len(ids) == 2 * len(RELATION_TYPES)


def test_related_pairs_name_current_units(connection: Connection, project: Project) -> None:
    a, b, c, d, e = add_memories(connection, project, [new_memory(key) for key in "abcde"])
    first, last = (add_merged(connection, project, name, [a, b]) for name in ("first", "last"))
    insert_relations(connection, project, new_relation(a, c, EXPLAINS), new_relation(d, e, status="rejected"))
    insert_relations(connection, project, new_relation(a, b), new_relation(first, e))
    assert load_related(connection, project) == {
        (a, c, "explains"), (d, e, "shares_theme"), (a, b, "shares_theme"), (first, e, "shares_theme")
    }  # fmt: skip
    hide_sources(connection, project, [a, b], first)
    update_row(connection, project, consolidated_memories, first, superseded_by_id=last, retired_at=NOW)
    update_row(connection, project, task_memories, d, archived_at=NOW)
    assert load_related(connection, project) == {
        (last, c, "explains"), (last, last, "shares_theme"), (last, e, "shares_theme")
    }  # fmt: skip


def test_relation_decision_records_group_for_each(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(key) for key in "abcd"])
    relations = [new_relation(ids[0], other, status="candidate") for other in ids[1:]]
    insert_relations(connection, project, *relations)
    rows = load_relations(connection, [relation.id for relation in relations] + [uuid4()])
    assert {(row.status, row.version, row.project_id) for row in rows.values()} == {("candidate", 1, project.id)}
    groups = decide_relations(connection, author(project), list(rows.values()), "confirmed", reason="seen")
    assert len(set(groups.values())) == len(groups) == 3
    query = f"SELECT entity_id, group_id, reason FROM {SCHEMA}.consolidation_changes WHERE operation = 'review'"
    assert {tuple(row) for row in connection.execute(text(query))} == {(id_, g, "seen") for id_, g in groups.items()}
    assert count_relations(connection, project.id) == {"confirmed": 3}
    with pytest.raises(ConflictError, match="changed meanwhile"), connection.begin_nested():
        decide_relations(connection, author(project), list(rows.values()), "rejected", reason=None)


def test_relations_are_listed_newest_first_with_texts(connection: Connection, project: Project) -> None:
    a, b = add_memories(connection, project, [new_memory("a", goal="Goal.", feedback="Good."), new_memory("b")])
    merged = add_merged(connection, project, "merged text", [])
    append_relations(connection, author(project), [new_relation(a, b)], now=NOW - timedelta(days=1))
    insert_relations(
        connection, project, new_relation(merged, a, EXPLAINS, status="rejected"), new_relation(a, uuid4())
    )
    rows = list_relations(connection, project.id, limit=10)
    assert [(row.a_text, row.b_text) for row in rows] == [
        ("Goal.\na\nGood.", None),
        ("merged text", "Goal.\na\nGood."),
        ("Goal.\na\nGood.", "b"),
    ]
    assert (rows[1].a_type, rows[1].relation_type, rows[1].status) == ("learning", "explains", "rejected")
    assert [row.id for row in list_relations(connection, project.id, limit=2)] == [rows[0].id, rows[1].id]
    assert [row.id for row in list_relations(connection, project.id, limit=9, status="rejected")] == [rows[1].id]
    assert count_relations(connection, project.id) == {"confirmed": 2, "rejected": 1}
    assert list_relations(connection, add_project(connection, "other").id, limit=9) == []
