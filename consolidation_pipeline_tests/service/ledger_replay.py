"""Replay of the ledger: imported memories, then every change in order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import CACHED_COLUMNS
from consolidation_pipeline_tests.store.sample_rows import encode_vector

# (table, id) -> the row's columns, with ``files`` and ``lineage`` as images have them.
Key = tuple[str, str]
Row = Mapping[str, Any]
State = dict[Key, Row]

RAW = "task_memories"
_HIDDEN = {name: [c.name for c in table.c if c.computed is not None] for name, table in LEDGERED.items()}
# The ledger holds the content of raw memories, not their vectors.
_HIDDEN[RAW] += CACHED_COLUMNS

_ROWS = " UNION ALL ".join(
    f"SELECT '{name}', id::text, to_jsonb(t) - ARRAY{hidden}::text[] FROM {SCHEMA}.{name} t"
    for name, hidden in _HIDDEN.items()
)
_FILES = f"SELECT owner_id::text AS owner, path FROM {SCHEMA}.memory_files ORDER BY owner_id, path"
_LINEAGE = (
    "SELECT child_id::text AS owner, jsonb_build_object('parent_id', parent_id, 'parent_kind', parent_kind, "
    f"'similarity', similarity, 'job_id', job_id) FROM {SCHEMA}.memory_lineage ORDER BY child_id, parent_id"
)


def load_state(pipeline: Pipeline) -> State:
    """Return the rows of the ledgered tables without caches and generated columns.

    Files and lineage of a missing row are listed under the name of their own table.
    """
    state: State = {(table, id_): _encode(row) for table, id_, row in pipeline.rows(_ROWS)}
    for name, query, owners in (
        ("files", _FILES, (RAW, "consolidated_memories")),
        ("lineage", _LINEAGE, ("consolidated_memories",)),
    ):
        parts = defaultdict(list)
        for owner, part in pipeline.rows(query):
            parts[owner].append(part)
        for key, row in state.items():
            if key[0] in owners:
                state[key] = {**row, name: parts.pop(key[1], [])}
        state |= {(f"memory_{name}", owner): {name: found} for owner, found in parts.items()}
    return state


def _encode(row: dict[str, Any]) -> Row:
    return {**row, "embedding": encode_vector(row["embedding"])} if row.get("embedding") else row


class Replay:
    """State of all ledgered rows after the changes up to ``seq``."""

    def __init__(self) -> None:
        self.state: State = {}
        self.seq = 0
        self._past: dict[Key, list[tuple[int, Row | None]]] = defaultdict(list)

    def add_imported(self, raw: State) -> None:
        """Add raw memories that are new to the replay; imports are not in the ledger."""
        for key, row in raw.items():
            if key[0] == RAW and key not in self.state:
                assert row["version"] == 1
                self._put(key, row)

    def apply_changes(self, pipeline: Pipeline, *, until: int | None = None) -> None:
        """Apply the changes since the last call, up to the one with seq ``until``."""
        query = (
            "SELECT seq, entity_type, entity_id::text, previous_state, new_state, version_after "
            "FROM {s}.consolidation_changes WHERE seq > :seq AND (CAST(:until AS bigint) IS NULL OR seq <= :until) "
            "AND entity_type <> 'consolidation_changes' ORDER BY seq"
        )
        for change in pipeline.rows(query, seq=self.seq, until=until):
            self.seq = change.seq
            self._apply((change.entity_type, change.entity_id), change)

    def before(self, key: Key, seq: int) -> Row | None:
        """Return the row as it was before the change ``seq``; None if it did not exist."""
        past = self._past[key]
        at = bisect_left([number for number, _ in past], seq)
        return past[at - 1][1] if at else None

    def _apply(self, key: Key, change: Any) -> None:
        if change.new_state is None:
            self._put(key, None)
        elif change.previous_state is None:
            assert key not in self.state
            self._put(key, change.new_state)
        else:
            self._put(key, {**self.state[key], **change.new_state, "version": change.version_after})

    def _put(self, key: Key, row: Row | None) -> None:
        self._past[key].append((self.seq, row))
        if row is None:
            del self.state[key]
        else:
            self.state[key] = row


def select_project(state: State, project_id: UUID) -> State:
    """Return the rows of one project."""
    return {key: row for key, row in state.items() if row.get("project_id") == str(project_id)}


def find_differences(found: State, expected: State) -> dict[Key, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the differing rows by key: their differing columns as found and as expected."""
    keys = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    return {key: _differing_columns(found.get(key, {}), expected.get(key, {})) for key in sorted(keys)}


def _differing_columns(a: Row, b: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in {**a, **b} if name not in a or name not in b or a[name] != b[name]]
    return {name: a.get(name) for name in names}, {name: b.get(name) for name in names}
