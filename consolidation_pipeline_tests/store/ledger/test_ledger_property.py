"""Undo and redo of any random history restore the tables exactly."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Table, select, text

from consolidation_pipeline.store.database.schema import (
    SCHEMA,
    consolidated_memories,
    consolidation_suggestions,
    memory_relations,
    playbook_entries,
    task_memories,
)
from consolidation_pipeline.store.database.vector_copy import format_vector, to_ids
from consolidation_pipeline.store.knowledge.summaries import IS_UNSUMMARIZED
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows, update_rows
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.memories.relevance import save_relevance
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.similarity_graph import mark_compared
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.store.sample_rows import (
    NOW,
    add_memories,
    add_project,
    author,
    contents,
    encode_vector,
    list_effective_changes,
    merged_values,
    new_memory,
    newest_change,
    unit_vector,
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
lists = st.lists(texts, max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda v: st.lists(v) | st.dictionaries(texts, v),
    max_leaves=4,
)
instants = st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
shares = st.floats(0, 1).map(abs)

# Table -> columns that an update may write, in any combination.
EDITS: dict[Table, dict[str, st.SearchStrategy[Any]]] = {
    task_memories: {
        "archived_at": instants,
        "archive_reason": st.none() | texts,
        "tags": lists,
        "importance": shares,
        "tool_usage": json_values,
        "metadata": st.dictionaries(texts, json_values, max_size=2),
        "files": lists,
    },
    consolidated_memories: {
        "content": texts,
        "details": st.dictionaries(texts, json_values, max_size=2),
        "tags": lists,
        "retired_at": instants,
        "confidence_score": shares,
        "last_accessed_at": instants,
        "files": lists,
        "embedding": st.integers(0, 9).map(lambda seed: format_vector(unit_vector(seed))),
    },
    playbook_entries: {
        "content": texts,
        "priority": st.integers(0, 100),
        "status": st.sampled_from(["active", "retired"]),
    },
    memory_relations: {"confidence": shares, "status": st.sampled_from(["candidate", "confirmed"])},
    consolidation_suggestions: {"status": st.sampled_from(["pending", "rejected"]), "suggested_keywords": lists},
}  # fmt: skip


class RandomHistory:
    """Project with four memories, and random operations on it."""

    def __init__(self, connection: Connection, data: st.DataObject) -> None:
        self.connection, self.data = connection, data
        self.project: Project = add_project(connection)
        self.raw: list[UUID] = add_memories(connection, self.project, [new_memory(key) for key in "abcd"])
        self.states = [(newest_change(connection), contents(connection))]
        # The same choices must give the same ids, or hypothesis cannot repeat a failure.
        self.fresh = map(UUID, map("00000000-0000-4000-8000-{:012}".format, count(1)))

    def step(self) -> None:
        """Apply a random operation."""
        steps = [self.insert, self.update, self.update, self.merge, self.summarize, self.undo, self.score]
        self.data.draw(st.sampled_from(steps))()
        self.states.append((newest_change(self.connection), contents(self.connection)))

    def insert(self) -> None:
        table = self.data.draw(st.sampled_from([t for t in EDITS if t is not task_memories]))
        values = {
            consolidated_memories: merged_values(self.data.draw(texts), self._some_raw()),
            playbook_entries: {
                "content": self.data.draw(texts),
                "content_hash": "h",
                "supporting_memory_ids": self.raw,
            },
            memory_relations: {
                "a_id": next(self.fresh),
                "b_id": self.raw[0],
                "relation_type": "explains",
                "confidence": 0.7,
                "status": "candidate",
            },
            consolidation_suggestions: {
                "group_id": "g",
                "suggested_content": "s",
                "fingerprint": str(next(self.fresh)),
                # Its own memories: no memory may be in two pending suggestions; the database checks this at commit.
                "original_memory_ids": [next(self.fresh), next(self.fresh)],
                "original_versions": [1, 1],
            },
        }[table]
        self._insert(table, values)

    def update(self) -> None:
        table = self.data.draw(st.sampled_from(list(EDITS)))
        rows = self.connection.execute(text(f"SELECT id, version FROM {table} ORDER BY id")).all()
        chosen = self.data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=3)) if rows else []
        columns = self.data.draw(st.lists(st.sampled_from(sorted(EDITS[table])), unique=True, min_size=1))
        group = next(self.fresh)
        changes = [
            Change(row.id, group, {name: self.data.draw(EDITS[table][name]) for name in columns}, row.version)
            for row in chosen
        ]
        update_rows(self.connection, author(self.project), table, changes, operation="edit")

    def merge(self) -> None:
        sources = self._some_raw()
        merged = self._insert(consolidated_memories, merged_values("merged", sources, files=self.data.draw(lists)))
        group, values = next(self.fresh), {"consolidated_into_id": merged}
        changes = [Change(id_, group, values, self._version(id_)) for id_ in sources]
        update_rows(self.connection, author(self.project), task_memories, changes, operation="merge")

    def summarize(self) -> None:
        query = f"SELECT id FROM {task_memories} t WHERE {IS_UNSUMMARIZED} ORDER BY id"
        free = self.connection.scalars(text(query)).all()
        chosen = self.data.draw(st.lists(st.sampled_from(free), unique=True, min_size=1)) if free else []
        values = merged_values("summary", chosen, kind="summary", abstraction_level=2, files=[])
        self._insert(consolidated_memories, values)

    def undo(self) -> None:
        """Undo everything since a random point."""
        self.revert(self.data.draw(st.sampled_from(range(len(self.states)))))

    def score(self) -> None:
        for table in (task_memories, consolidated_memories):
            ids = self.connection.scalars(select(table.c.id)).all()
            save_relevance(self.connection, table.name, to_ids(ids), np.full(len(ids), 0.5), NOW)
        mark_compared(self.connection, to_ids(self.connection.scalars(select(task_memories.c.id)).all()), 1)

    def revert(self, to: int) -> None:
        """Undo the changes since the state with this number, at once or one by one, newest first."""
        changes = list_effective_changes(self.connection, self.states[to][0])
        at_once = self.data.draw(st.booleans())
        for part in [changes] if at_once else [[change] for change in reversed(changes)]:
            revert_changes(self.connection, author(self.project), part, group_id=next(self.fresh), reason=None)

    def _insert(self, table: Table, values: dict[str, Any]) -> UUID:
        change = Change(next(self.fresh), next(self.fresh), values)
        insert_rows(self.connection, author(self.project), table, [change], operation="edit")
        return change.entity_id

    def _some_raw(self) -> list[UUID]:
        return self.data.draw(st.lists(st.sampled_from(self.raw), unique=True, min_size=1))

    def _version(self, id_: UUID) -> int:
        query = f"SELECT version FROM {task_memories} WHERE id = :id"
        return int(self.connection.execute(text(query), {"id": id_}).scalar_one())


def _assert_ledger_matches_rows(connection: Connection) -> None:
    """Assert that the newest image of each row in the ledger equals the stored row."""
    query = f"""
        SELECT DISTINCT ON (entity_id) entity_type, entity_id, version_after, new_state
        FROM {SCHEMA}.consolidation_changes ORDER BY entity_id, seq DESC
    """
    for row in connection.execute(text(query)):
        now = connection.execute(
            text(f"SELECT to_jsonb(t) FROM {SCHEMA}.{row.entity_type} t WHERE id = :id"), {"id": row.entity_id}
        ).scalar()
        assert (now is None) == (row.new_state is None)
        if now is not None:
            assert now["version"] == row.version_after
            if now.get("embedding"):
                now["embedding"] = encode_vector(now["embedding"])
            written = row.new_state.keys() - {"files", "lineage", "version"}
            assert json.dumps({k: now[k] for k in sorted(written)}) == json.dumps(
                {k: row.new_state[k] for k in sorted(written)}
            )


@settings(
    deadline=None,
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_undo_and_redo_restore_any_history(connection: Connection, data: st.DataObject) -> None:
    with connection.begin() as transaction:
        history = RandomHistory(connection, data)
        for _ in range(data.draw(st.integers(1, 7))):
            history.step()
        _assert_ledger_matches_rows(connection)
        chosen = data.draw(st.sampled_from(range(len(history.states))))
        history.revert(chosen)
        assert contents(connection) == history.states[chosen][1]
        _assert_ledger_matches_rows(connection)
        history.revert(-1)
        assert contents(connection) == history.states[-1][1]
        transaction.rollback()
