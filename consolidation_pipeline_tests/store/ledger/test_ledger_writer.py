"""Writing the ledger: before- and after-images of every change, and rollback as an exact inverse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.database.schema import (
    SCHEMA,
    consolidated_memories,
    consolidation_changes,
    memory_relations,
    playbook_entries,
    task_memories,
)
from consolidation_pipeline.store.database.vector_copy import format_vector, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_reader import list_changes
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows, update_rows
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    SPECIAL_TEXT,
    add_memories,
    add_merged,
    add_project,
    author,
    contents,
    encode_vector,
    hide_sources,
    insert_row,
    list_effective_changes,
    merged_values,
    new_memory,
    newest_change,
    record_statements,
    unit_vector,
    update_row,
)

LATER = datetime(2026, 3, 1, 12, 30, 45, 123456, tzinfo=UTC)


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    return add_memories(connection, project, [new_memory(key, files=("a.py",)) for key in "abc"])


def _update(connection: Connection, project: Project, table: Table, id_: UUID, version: int, **values: Any) -> int:
    """Update one row; return ``seq`` of its change."""
    update_row(connection, project, table, id_, version, **values)
    return newest_change(connection)


def _undo(connection: Connection, project: Project, *changes: int) -> dict[str, int]:
    return revert_changes(connection, author(project), changes, group_id=uuid4(), reason="test")


def _version(connection: Connection, table: Table, id_: UUID) -> int | None:
    return connection.execute(text(f"SELECT version FROM {table} WHERE id = :id"), {"id": id_}).scalar()


def test_insert_records_whole_row(connection: Connection, project: Project, raw: list[UUID]) -> None:
    group, job = uuid4(), uuid4()
    values = merged_values("both", raw[:2], files=["b.py", "a.py"], tags=["x"])
    change = Change(uuid4(), group, values, reason="alike", confidence=0.9)
    assert insert_rows(connection, author(project, job), consolidated_memories, [change], operation="merge") == 1
    row = list_changes(connection, project.id, limit=10)[0]
    assert (row.operation, row.entity_type, row.entity_id) == ("merge", "consolidated_memories", change.entity_id)
    assert (row.job_id, row.group_id, row.reason, row.confidence) == (job, group, "alike", 0.9)
    assert (row.previous_state, row.version_before, row.version_after) == (None, None, 1)
    assert row.new_state["content"] == "both"
    assert row.new_state["files"] == ["a.py", "b.py"]
    assert {edge["parent_id"] for edge in row.new_state["lineage"]} == {str(id_) for id_ in raw[:2]}
    assert "content_tsv" not in row.new_state
    assert {column.name for column in consolidated_memories.c if column.computed is None} <= row.new_state.keys()


def test_update_records_columns_before_and_after(connection: Connection, project: Project, raw: list[UUID]) -> None:
    _update(connection, project, task_memories, raw[0], 1, archived_at=LATER, archive_reason="staleness")
    row = list_changes(connection, project.id, limit=1)[0]
    assert row.previous_state == {"archived_at": None, "archive_reason": None}
    assert row.new_state == {"archived_at": "2026-03-01T12:30:45.123456+00:00", "archive_reason": "staleness"}
    assert (row.version_before, row.version_after) == (1, 2)
    assert _version(connection, task_memories, raw[0]) == 2


def test_update_records_files_and_lineage(connection: Connection, project: Project, raw: list[UUID]) -> None:
    merged = add_merged(connection, project, "one", raw[:1], files=["a.py"])
    before = contents(connection)
    values = merged_values("two", raw, files=["b.py"], seed=1)
    seq = _update(connection, project, consolidated_memories, merged, 1, **values)
    row = list_changes(connection, project.id, limit=1)[0]
    assert (row.previous_state["files"], row.new_state["files"]) == (["a.py"], ["b.py"])
    assert (len(row.previous_state["lineage"]), len(row.new_state["lineage"])) == (1, 3)
    assert _undo(connection, project, seq) == {"restored": 1, "deleted": 0, "recreated": 0}
    assert contents(connection) == before


def test_files_alone_can_be_changed(connection: Connection, project: Project, raw: list[UUID]) -> None:
    before = contents(connection)
    seq = _update(connection, project, task_memories, raw[0], 1, files=["new.py"])
    assert list_changes(connection, project.id, limit=1)[0].previous_state == {"files": ["a.py"]}
    assert ("new.py",) in {row[2:] for row in contents(connection)["memory_files"]}
    _undo(connection, project, seq)
    assert contents(connection) == before


def test_merge_is_undone_and_redone_exactly(connection: Connection, project: Project, raw: list[UUID]) -> None:
    before = contents(connection)
    merged = add_merged(connection, project, "all", raw, files=["a.py", "z.py"], tags=["t"])
    hide_sources(connection, project, raw, merged)
    after, last = contents(connection), newest_change(connection)
    undone = _undo(connection, project, *list_effective_changes(connection, 0))
    assert undone == {"restored": 3, "deleted": 1, "recreated": 0}
    assert contents(connection) == before
    redone = _undo(connection, project, *list_effective_changes(connection, last))
    assert redone == {"restored": 3, "deleted": 0, "recreated": 1}
    assert contents(connection) == after
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))


def test_embedding_survives_undo_and_redo(connection: Connection, project: Project, raw: list[UUID]) -> None:
    def load() -> bytes:
        query = f"SELECT id, embedding FROM {consolidated_memories}"
        return load_vectors(connection, query, {}, dimension=50)[1].tobytes()

    vector = unit_vector(5, 50)
    vector[3], vector[4] = 1e-41, -0.0
    text_of = "[" + ",".join(map(repr, vector.tolist())) + "]"
    merged = add_merged(connection, project, "x", raw, embedding=text_of, embedding_dim=50)
    assert load() == vector.tobytes()
    other = "[" + ",".join(map(repr, unit_vector(6, 50).tolist())) + "]"
    seq = _update(connection, project, consolidated_memories, merged, 1, embedding=other)
    _undo(connection, project, seq)
    assert load() == vector.tobytes()
    _undo(connection, project, seq - 1)
    _undo(connection, project, newest_change(connection))
    assert load() == vector.tobytes()


def test_any_text_survives_undo_and_redo(connection: Connection, project: Project, raw: list[UUID]) -> None:
    lists = [SPECIAL_TEXT, "", " ", "NULL", "null", "{}", '"', "a,b", "\\", "\n"]
    details = {"k\"e'y\t": [SPECIAL_TEXT, 1, 1.5, None, True, {"x": []}], "empty": {}, "none": []}
    values = merged_values(
        SPECIAL_TEXT, raw, tags=lists, details=details, files=[SPECIAL_TEXT, "NULL"], cluster_key=SPECIAL_TEXT
    )
    change = Change(uuid4(), uuid4(), values, reason=SPECIAL_TEXT)
    insert_rows(connection, author(project), consolidated_memories, [change], operation="merge")

    def assert_unchanged() -> None:
        chosen = consolidated_memories.select().where(consolidated_memories.c.id == change.entity_id)
        row = connection.execute(chosen).one()
        assert (row.content, row.tags, row.details, row.cluster_key) == (SPECIAL_TEXT, lists, details, SPECIAL_TEXT)
        files = connection.execute(text(f"SELECT path FROM {SCHEMA}.memory_files WHERE owner_id = :id"), {"id": row.id})
        assert set(files.scalars()) == {SPECIAL_TEXT, "NULL"}

    assert_unchanged()
    after, seq = contents(connection), newest_change(connection)
    assert list_changes(connection, project.id, limit=1)[0].reason == SPECIAL_TEXT
    changed = merged_values("plain", raw, files=[])
    update = _update(connection, project, consolidated_memories, change.entity_id, 1, **changed)
    _undo(connection, project, update)
    assert_unchanged()
    _undo(connection, project, seq)
    _undo(connection, project, newest_change(connection))
    assert_unchanged()
    assert contents(connection) == after


@pytest.mark.parametrize("value", [[], {}, ["a", "b"], [1, None], "text", 'te"xt', 5, 0.1, True, [[]], [{"a": []}]])
def test_any_json_value_is_stored_unchanged(
    connection: Connection, project: Project, raw: list[UUID], value: object
) -> None:
    seq = _update(connection, project, task_memories, raw[0], 1, tool_usage=value)

    def load() -> object:
        query = task_memories.select().with_only_columns(task_memories.c.tool_usage)
        return connection.execute(query.where(task_memories.c.id == raw[0])).scalar_one()

    assert load() == value
    _undo(connection, project, seq)
    assert load() is None
    _undo(connection, project, newest_change(connection))
    assert load() == value


def test_merged_memory_without_sources_has_no_lineage(connection: Connection, project: Project) -> None:
    add_merged(connection, project, "alone", [])
    assert list_changes(connection, project.id, limit=1)[0].new_state["lineage"] == []


def test_stale_version_conflicts_and_writes_nothing(connection: Connection, project: Project, raw: list[UUID]) -> None:
    before, seq = contents(connection), newest_change(connection)
    changes = [Change(raw[0], uuid4(), {"pinned": True}, 1), Change(raw[1], uuid4(), {"pinned": True}, 7)]
    with pytest.raises(ConflictError) as caught:
        update_rows(connection, author(project), task_memories, changes, operation="edit")
    assert caught.value.conflicts == (str(raw[1]),)
    assert contents(connection) == before
    assert newest_change(connection) == seq
    # The transaction is still usable.
    assert update_rows(connection, author(project), task_memories, changes[:1], operation="edit") == 1


def test_missing_or_foreign_row_conflicts(connection: Connection, project: Project, raw: list[UUID]) -> None:
    other = add_project(connection, "other")
    for owner, id_ in ((project, uuid4()), (other, raw[0])):
        with pytest.raises(ConflictError, match=str(id_)):
            _update(connection, owner, task_memories, id_, 1, pinned=True)


def test_duplicate_id_is_rejected(connection: Connection, project: Project, raw: list[UUID]) -> None:
    merged = add_merged(connection, project, "x", raw)
    before = contents(connection)
    again = [Change(merged, uuid4(), merged_values("y"))]
    twice = [Change(id_, uuid4(), merged_values("y")) for id_ in [uuid4()] * 2]
    for changes in (again, twice):
        with pytest.raises(ConflictError, match=str(changes[0].entity_id)):
            insert_rows(connection, author(project), consolidated_memories, changes, operation="merge")
    update = [Change(merged, uuid4(), {"pinned": True}, 1)] * 2
    with pytest.raises(ConflictError, match="twice"):
        update_rows(connection, author(project), consolidated_memories, update, operation="edit")
    assert contents(connection) == before


def test_changes_must_name_same_columns(connection: Connection, project: Project, raw: list[UUID]) -> None:
    changes = [Change(raw[0], uuid4(), {"pinned": True}, 1), Change(raw[1], uuid4(), {"pinned": True, "tags": []}, 1)]
    with pytest.raises(ValueError, match="pinned"):
        update_rows(connection, author(project), task_memories, changes, operation="edit")


def test_empty_change_list_writes_nothing(connection: Connection, project: Project) -> None:
    assert insert_rows(connection, author(project), playbook_entries, [], operation="promote") == 0
    assert update_rows(connection, author(project), playbook_entries, [], operation="edit") == 0
    assert _undo(connection, project) == {"restored": 0, "deleted": 0, "recreated": 0}


def test_second_rollback_is_rejected(connection: Connection, project: Project, raw: list[UUID]) -> None:
    seq = _update(connection, project, task_memories, raw[0], 1, pinned=True)
    _undo(connection, project, seq)
    before, last = contents(connection), newest_change(connection)
    with pytest.raises(ConflictError, match="rolled back before"):
        _undo(connection, project, seq)
    assert (contents(connection), newest_change(connection)) == (before, last)


def test_rollback_of_changed_row_conflicts(connection: Connection, project: Project, raw: list[UUID]) -> None:
    first = [_update(connection, project, task_memories, id_, 1, pinned=True) for id_ in raw]
    second = _update(connection, project, task_memories, raw[0], 2, importance=0.9)
    between = _update(connection, project, task_memories, raw[0], 3, importance=0.8)
    before, last = contents(connection), newest_change(connection)
    for selected in (first, [*first, between]):  # a conflict in the first change, and one in a later change
        with pytest.raises(ConflictError) as caught:
            _undo(connection, project, *selected)
        assert caught.value.conflicts == (str(raw[0]),)
        assert (contents(connection), newest_change(connection)) == (before, last)
    _undo(connection, project, *first, second, between)


def test_rollback_undoes_newest_change_first(connection: Connection, project: Project, raw: list[UUID]) -> None:
    before = contents(connection)
    for version, tags in enumerate((["one"], ["one", "two"], []), 1):
        for id_ in raw:
            _update(connection, project, task_memories, id_, version, tags=tags)
    _undo(connection, project, *list_effective_changes(connection, 0))
    assert contents(connection) == before
    query = f"SELECT version_after FROM {SCHEMA}.consolidation_changes WHERE operation = 'rollback' ORDER BY seq"
    assert connection.execute(text(query)).scalars().all() == [3, 3, 3, 2, 2, 2, 1, 1, 1]


def test_row_version_is_never_reused(connection: Connection, project: Project, raw: list[UUID]) -> None:
    first = _update(connection, project, task_memories, raw[0], 1, tags=["first"])
    second = _update(connection, project, task_memories, raw[0], 2, tags=["second"])
    _undo(connection, project, second)
    undoing = newest_change(connection)
    _undo(connection, project, first)
    _update(connection, project, task_memories, raw[0], 1, tags=["third"])
    assert _version(connection, task_memories, raw[0]) == 4
    # A redo of the second change on top of the third would mix both.
    with pytest.raises(ConflictError, match="changed since"):
        _undo(connection, project, undoing)


def test_reinserted_id_gets_new_version(connection: Connection, project: Project, raw: list[UUID]) -> None:
    change = Change(uuid4(), uuid4(), merged_values("x", raw))
    insert_rows(connection, author(project), consolidated_memories, [change], operation="merge")
    _undo(connection, project, newest_change(connection))
    insert_rows(connection, author(project), consolidated_memories, [change], operation="merge")
    assert _version(connection, consolidated_memories, change.entity_id) == 2


def test_referenced_row_is_not_deleted(connection: Connection, project: Project, raw: list[UUID]) -> None:
    merged = add_merged(connection, project, "x", raw)
    inserted = newest_change(connection)
    _update(connection, project, task_memories, raw[0], 1, consolidated_into_id=merged)
    before = contents(connection)
    with pytest.raises(ConflictError, match="is in the way"):
        _undo(connection, project, inserted)
    assert contents(connection) == before
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))


def test_successor_with_unique_key_is_undone(connection: Connection, project: Project) -> None:
    """A user has one active profile: the old one is retired before the new one is inserted."""
    profile = {"kind": "procedural", "abstraction_level": 3, "user_id": "ann"}
    old = add_merged(connection, project, "old", [], **profile)
    start = newest_change(connection)
    before = contents(connection)
    _update(connection, project, consolidated_memories, old, 1, retired_at=LATER)
    add_merged(connection, project, "new", [], **profile)
    after, end = contents(connection), newest_change(connection)
    _undo(connection, project, *list_effective_changes(connection, start))
    assert contents(connection) == before
    _undo(connection, project, *list_effective_changes(connection, end))
    assert contents(connection) == after


def test_redo_conflicts_with_newer_unique_row(connection: Connection, project: Project, raw: list[UUID]) -> None:
    def relate() -> int:
        values = {"a_id": raw[0], "b_id": raw[1], "relation_type": "shares_theme", "confidence": 0.8}
        insert_row(connection, project, memory_relations, **values, status="candidate")
        return newest_change(connection)

    _undo(connection, project, relate())
    undoing = newest_change(connection)
    relate()
    before = contents(connection)
    with pytest.raises(ConflictError, match="is in the way"):
        _undo(connection, project, undoing)
    assert contents(connection) == before


def test_prepared_statements_accept_any_columns(connection: Connection, project: Project, raw: list[UUID]) -> None:
    """Frequent statements are prepared; a prepared statement must accept any set of columns."""
    shapes: list[dict[str, Any]] = [{"pinned": True}, {"files": []}, {"tags": ["x"], "files": ["y"]}, {"metadata": {}}]
    version = 1
    for _ in range(4):
        for values in shapes:
            seq = _update(connection, project, task_memories, raw[0], version, **values)
            add_merged(connection, project, f"x{version}", raw)
            version += 1
    _undo(connection, project, *range(seq - 4, newest_change(connection) + 1))


@pytest.mark.slow
def test_many_rows_are_changed_in_few_statements(connection: Connection, project: Project) -> None:
    ids = add_memories(connection, project, [new_memory(str(n)) for n in range(4_000)])
    changes = [Change(id_, uuid4(), {"pinned": True, "tags": ["x"]}, 1) for id_ in ids]
    # Statistics before the first vacuum: with a plan for an empty table the update takes minutes.
    stale = "UPDATE pg_class SET reltuples = 0, relpages = pg_relation_size(oid) / 8192 WHERE oid = '{}'::regclass"
    connection.execute(text(stale.format(task_memories)))
    with record_statements(connection) as statements:
        assert update_rows(connection, author(project), task_memories, changes, operation="edit") == 4_000
        last = newest_change(connection)
        assert _undo(connection, project, *range(last - 3_999, last + 1))["restored"] == 4_000
    assert len(statements) < 90


@pytest.mark.parametrize("retention", ["off", "on"])
@pytest.mark.parametrize("age", [0, 89, 91])
def test_ledger_is_append_only_except_retention(
    connection: Connection, project: Project, retention: str, age: int
) -> None:
    ledger = f"{SCHEMA}.consolidation_changes"
    insert = (
        f"INSERT INTO {ledger} (project_id, group_id, operation, entity_type, entity_id, new_state, changed_at) "
        "VALUES (:project, :project, 'edit', 'task_memories', :project, '{}', now() - make_interval(days => :age))"
    )
    connection.execute(text(insert), {"project": project.id, "age": age})
    connection.execute(text(f"SET consolidation.retention = '{retention}'"))
    for statement in (f"UPDATE {ledger} SET reason = 'x'", f"TRUNCATE {ledger}", f"TRUNCATE {ledger} CASCADE"):
        with pytest.raises(DBAPIError, match="append-only"), connection.begin_nested():
            connection.execute(text(statement))
    if retention == "on" and age > 90:
        assert connection.execute(text(f"DELETE FROM {ledger}")).rowcount == 1
        return
    with pytest.raises(DBAPIError, match="append-only"), connection.begin_nested():
        connection.execute(text(f"DELETE FROM {ledger}"))


def test_embedding_may_be_an_array(connection: Connection, project: Project) -> None:
    ids, vectors = [uuid4(), uuid4()], [unit_vector(1), unit_vector(2)]
    rows = [
        Change(id_, uuid4(), {**merged_values(str(at)), "embedding": vector})
        for at, (id_, vector) in enumerate(zip(ids, vectors, strict=True))
    ]
    insert_rows(connection, author(project), consolidated_memories, rows, operation="merge")
    changed = [Change(ids[0], uuid4(), {"embedding": unit_vector(3)}, 1)]
    update_rows(connection, author(project), consolidated_memories, changed, operation="edit")
    query = f"SELECT id, embedding FROM {consolidated_memories} WHERE id = ANY(%(ids)s)"
    found, loaded = load_vectors(connection, query, {"ids": ids}, dimension=3)
    stored = dict(zip(to_uuids(found), loaded.tolist(), strict=True))
    assert stored == {ids[0]: unit_vector(3).tolist(), ids[1]: unit_vector(2).tolist()}
    (newest, *_) = list_changes(connection, project.id, limit=1)
    images = [image["embedding"] for image in (newest.previous_state, newest.new_state)]
    assert images == [encode_vector(unit_vector(seed)) for seed in (1, 3)]


def test_vector_of_an_earlier_image_is_restored(connection: Connection, project: Project, raw: list[UUID]) -> None:
    old, new = (format_vector(unit_vector(seed)) for seed in (1, 2))
    merged = add_merged(connection, project, "x", raw, embedding=old)
    seq = _update(connection, project, consolidated_memories, merged, 1, embedding=new)
    image = "jsonb_build_object('embedding', CAST(:old AS text))"
    rewrite = f"UPDATE {consolidation_changes} SET previous_state = {image} WHERE seq = :seq"
    connection.execute(text("SET LOCAL session_replication_role = replica"))  # The ledger is append-only.
    connection.execute(text(rewrite), {"old": old, "seq": seq})
    connection.execute(text("SET LOCAL session_replication_role = origin"))
    _undo(connection, project, seq)
    query = f"SELECT id, embedding FROM {consolidated_memories}"
    assert load_vectors(connection, query, {}, dimension=3)[1].tolist() == [unit_vector(1).tolist()]
