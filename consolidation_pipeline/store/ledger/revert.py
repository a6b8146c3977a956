"""Revert of changes in the ledger, newest first, and the opposite: changes of a copy carried out, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table, text

from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import pass_vectors
from consolidation_pipeline.store.ledger.ledger_writer import (
    GRAPH_COLUMNS,
    LEDGERED,
    Author,
    check_constraints_at_end,
    forget_compared_sources,
    reject_selected,
    reject_summarized_twice,
)
from consolidation_pipeline.store.ledger.row_images import (
    COMPLETE_IMAGES,
    HAS_VECTOR_BYTES,
    PREVIOUS_EDGES,
    VECTOR_BYTES,
)
from consolidation_pipeline.store.ledger.row_references import reject_dangling

# Temporary tables: `reverting` holds the changes to revert, each with its turn; `wave` those of one turn and table.
# The name and columns of a ledgered table, from the schema, replace comments like `/* table */`.


def revert_changes(
    connection: Connection,
    author: Author,
    changes: Sequence[int],
    *,
    group_id: UUID,
    reason: str | None,
    scope: str = "group",
) -> dict[str, int]:
    """Revert changes, newest first, and record that as changes of operation rollback.

    Args:
        author: Author of the rollback.
        changes: ``seq`` of each change.
        group_id: Group of the recorded changes, which also have the ``reason``.
        scope: group or job, whichever is undone.

    Returns:
        Number of rows by effect: ``restored``, ``deleted``, ``recreated``.

    Raises:
        ConflictError: A change was undone before, its row has changed since, or a row that it references is gone.
            Nothing is written.
    """
    recorded = {"group_id": group_id, "reason": reason, "scope": scope}
    done = {"restored": 0, "deleted": 0, "recreated": 0}
    with check_constraints_at_end(connection, "row"):
        _revert_waves(connection, author, changes, recorded, done=done)
    return done


_FIND_UNDONE = """
    SELECT c.id FROM consolidation.consolidation_changes c JOIN reverting r ON c.reverts_change_id = r.id
"""

_CREATE_WAVE = """
    CREATE TEMP TABLE wave ON COMMIT DROP AS SELECT * FROM reverting WHERE turn = :turn AND entity_type = :name
"""


def _revert_waves(
    connection: Connection,
    author: Author,
    changes: Sequence[int],
    recorded: Mapping[str, object],
    *,
    done: dict[str, int],
) -> None:
    """Revert the changes in the fewest turns in which no row occurs twice, newest first."""
    turns = _stage_changes(connection, changes)
    reject_selected(connection, _FIND_UNDONE, "undoes a change that was to be rolled back: it was rolled back before")
    for turn in range(1, turns + 1):
        for name, table in LEDGERED.items():
            connection.execute(text(_CREATE_WAVE), {"turn": turn, "name": name})
            for effect, count in _revert_wave(connection, table).items():
                done[effect] += count
            connection.execute(text("DROP TABLE wave"))
        _append_rollback(connection, author, turn, recorded)
    reject_summarized_twice(connection, "SELECT entity_id FROM reverting")
    reject_dangling(connection, "reverting")
    connection.execute(text("DROP TABLE reverting"))


def rewind_changes(connection: Connection, changes: Sequence[int]) -> None:
    """Take back changes of a copy of a project, newest first, without a record: its ledger is cut by the caller.

    Undone changes and what undid them may be among them.

    Args:
        changes: ``seq`` of each change.

    Raises:
        ConflictError: A row is not in the state in which its newest change left it.
    """
    with check_constraints_at_end(connection, "row"):
        turns = _stage_changes(connection, changes)
        for turn in range(1, turns + 1):
            for name, table in LEDGERED.items():
                connection.execute(text(_CREATE_WAVE), {"turn": turn, "name": name})
                _revert_wave(connection, table)
                connection.execute(text("DROP TABLE wave"))
        connection.execute(text("DROP TABLE reverting"))


_DELETE_ROWS = "DELETE FROM /* table */ t USING wave w WHERE t.id = w.entity_id AND w.previous_state IS NULL"

_RESTORE_ROWS = """
    UPDATE /* table */ t SET version = w.version_before, (/* columns */) = (
        SELECT /* values */ FROM jsonb_populate_record(t, w.previous_state) r)
    FROM wave w WHERE t.id = w.entity_id AND w.previous_state IS NOT NULL AND w.new_state IS NOT NULL
"""

_RECREATE_ROWS = """
    INSERT INTO /* table */ (/* columns */)
    SELECT /* values */ FROM wave w, LATERAL jsonb_populate_record(NULL::/* table */, w.previous_state) r
    WHERE w.new_state IS NULL
"""


def _revert_wave(connection: Connection, table: Table) -> dict[str, int]:
    """Revert the rows of ``wave``: created rows are deleted first and deleted ones come last, to keep unique keys.

    Returns the number of rows by effect, see ``revert_changes``.
    """
    _reject_changed(connection, table)
    if table is consolidated_memories:
        connection.execute(text(COMPLETE_IMAGES))
    if "embedding" in table.c:
        _write_vectors_as_text(connection)
    statements = {
        "deleted": compose(_DELETE_ROWS, table=str(table)),
        "restored": _restore_rows(table),
        "recreated": _recreate_rows(table),
    }
    done = {effect: connection.execute(text(statement)).rowcount for effect, statement in statements.items()}
    _revert_parts(connection, table)
    for statement in (_FORGET_MOVED, _FORGET_SCORES):
        connection.execute(text(statement))
    return done


# Rows that moved in the similarity graph are compared again. Deleted rows leave nothing behind.
_FORGET_MOVED = f"""
    DELETE FROM consolidation.compared_memories c USING wave w
    WHERE c.project_id = w.project_id AND c.memory_id = w.entity_id
        AND (w.previous_state IS NULL OR w.previous_state ?| ARRAY{list(GRAPH_COLUMNS)})
"""
_FORGET_SCORES = """
    DELETE FROM consolidation.relevance_scores s USING wave w
    WHERE s.project_id = w.project_id AND s.memory_id = w.entity_id AND w.previous_state IS NULL
"""


_LIST_VECTORS = f"""
    SELECT entity_id, {VECTOR_BYTES} FROM (SELECT entity_id, previous_state AS image FROM wave) w
    WHERE {HAS_VECTOR_BYTES}
"""
_WRITE_VECTORS = """
    UPDATE wave w SET previous_state = w.previous_state || jsonb_build_object('embedding', v.embedding::text)
    FROM wave_vectors v WHERE v.id = w.entity_id
"""


def _write_vectors_as_text(connection: Connection) -> None:
    """Write vectors as text, from which rows are restored, in the images before of the temporary table ``wave``."""
    connection.execute(text("CREATE TEMP TABLE wave_vectors (id uuid, embedding vector) ON COMMIT DROP"))
    if pass_vectors(connection, _LIST_VECTORS, {}, "wave_vectors (id, embedding)"):
        connection.execute(text(_WRITE_VECTORS))
    connection.execute(text("DROP TABLE wave_vectors"))


def _restore_rows(table: Table) -> str:
    """Return the statement that restores the rows of ``table``."""
    kept = {"id", "project_id", "version"}
    columns = [column.name for column in table.c if column.computed is None and column.name not in kept]
    return compose(
        _RESTORE_ROWS,
        table=str(table),
        columns=", ".join(columns),
        values=", ".join(f"r.{name}" for name in columns),
    )


def _recreate_rows(table: Table) -> str:
    """Return the statement that inserts the deleted rows of ``table`` again."""
    columns = [column.name for column in table.c if column.computed is None]
    values = ", ".join(f"r.{name}" for name in columns)
    return compose(_RECREATE_ROWS, table=str(table), columns=", ".join(columns), values=values)


_APPEND_ROLLBACK = """
    INSERT INTO consolidation.consolidation_changes (
        job_id, project_id, group_id, operation, entity_type, entity_id, previous_state, new_state,
        version_before, version_after, reason, confidence, changed_by, reverts_change_id, reverts_scope)
    SELECT :job_id, project_id, :group_id, 'rollback', entity_type, entity_id, new_state, previous_state,
        version_after, version_before, :reason, confidence, :changed_by, id, :scope
    FROM reverting WHERE turn = :turn ORDER BY seq DESC
"""


def _append_rollback(connection: Connection, author: Author, turn: int, recorded: Mapping[str, object]) -> None:
    parameters = {"job_id": author.job_id, "changed_by": author.changed_by, "turn": turn, **recorded}
    connection.execute(text(_APPEND_ROLLBACK), parameters)


_LIST_REVERTED = """
    SELECT seq, entity_id FROM consolidation.consolidation_changes WHERE seq = ANY(:changes) ORDER BY seq DESC
"""

_CREATE_REVERTING = """
    CREATE TEMP TABLE reverting ON COMMIT DROP AS
    SELECT c.*, t.turn
    FROM consolidation.consolidation_changes c
        JOIN unnest(CAST(:seqs AS bigint[]), CAST(:turns AS integer[])) AS t(seq, turn) USING (seq)
"""


def _stage_changes(connection: Connection, changes: Sequence[int]) -> int:
    """Stage the changes as ``reverting``, each with its turn; return the number of turns."""
    rows = connection.execute(text(_LIST_REVERTED), {"changes": list(changes)}).all()
    turns = list(_number_turns([row.entity_id for row in rows]))
    connection.execute(text(_CREATE_REVERTING), {"seqs": [row.seq for row in rows], "turns": turns})
    connection.execute(text("ANALYZE reverting (entity_id, turn)"))
    return max(turns, default=0)


def _number_turns(entities: Iterable[UUID]) -> Iterator[int]:
    """Yield the turn of each entity, from 1: a new turn begins with an entity that the turn has already."""
    turn, seen = 1, set[UUID]()
    for entity in entities:
        if entity in seen:
            turn, seen = turn + 1, set()
        seen.add(entity)
        yield turn


_LOCK_ROWS = "SELECT 1 FROM /* table */ t JOIN wave w ON t.id = w.entity_id ORDER BY t.id FOR UPDATE OF t"

_FIND_CHANGED = """
    SELECT w.entity_id FROM wave w LEFT JOIN /* table */ t ON t.id = w.entity_id
    WHERE t.version IS DISTINCT FROM w.version_after
"""


def _reject_changed(connection: Connection, table: Table) -> None:
    """Raise ConflictError unless every row is in the state in which its newest change left it."""
    connection.execute(text(compose(_LOCK_ROWS, table=str(table))))
    reject_selected(connection, compose(_FIND_CHANGED, table=str(table)), f"of {table.name} changed since")


_DELETE_FILES = """
    DELETE FROM consolidation.memory_files f USING wave w
    WHERE f.owner_id = w.entity_id AND (w.previous_state IS NULL OR w.previous_state ? 'files')
"""
_INSERT_FILES = """
    INSERT INTO consolidation.memory_files (project_id, owner_id, path)
    SELECT w.project_id, w.entity_id, path
    FROM wave w, jsonb_array_elements_text(w.previous_state -> 'files') AS path
"""
_LIST_ARCHIVED_OR_RESTORED = """
    SELECT entity_id FROM wave WHERE previous_state ? 'archive_reason' AND new_state IS NOT NULL
"""
_DELETE_LINEAGE = """
    DELETE FROM consolidation.memory_lineage l USING wave w
    WHERE l.child_id = w.entity_id AND (w.previous_state IS NULL OR w.previous_state ? 'lineage')
"""
_INSERT_LINEAGE = compose(
    """
    INSERT INTO consolidation.memory_lineage (project_id, child_id, parent_id, parent_kind, similarity, job_id)
    /* edges */
    """,
    edges=PREVIOUS_EDGES,
)


def _revert_parts(connection: Connection, table: Table) -> None:
    """Restore files and lineage of the wave from the images before."""
    connection.execute(text(_DELETE_FILES))
    connection.execute(text(_INSERT_FILES))
    if table is not consolidated_memories:
        return
    forget_compared_sources(connection, connection.scalars(text(_LIST_ARCHIVED_OR_RESTORED)).all())
    connection.execute(text(_DELETE_LINEAGE))
    connection.execute(text(_INSERT_LINEAGE))


# Columns of the ledger that a change brings along; its author and time are those of the promotion.
CHANGE_COLUMNS = (
    *("seq", "id", "job_id", "project_id", "group_id", "operation", "entity_type", "entity_id"),
    *("previous_state", "new_state", "version_before", "version_after", "reason", "confidence"),
    *("reverts_change_id", "reverts_scope"),
)
# Temporary table, to be filled with the changes.
STAGED = "staged_changes"

_CREATE_STAGED = compose(
    f"""
    CREATE TEMP TABLE {STAGED} ON COMMIT DROP AS
    SELECT /* columns */ FROM consolidation.consolidation_changes WITH NO DATA
    """,
    columns=", ".join(CHANGE_COLUMNS),
)


_RENAME_JOB = f"""
    UPDATE {STAGED} SET previous_state = replace(previous_state::text, :old, :new)::jsonb,
        new_state = replace(new_state::text, :old, :new)::jsonb
    WHERE strpos(new_state::text, :old) > 0 OR strpos(previous_state::text, :old) > 0
"""
_LIST_STEPS = f"""
    SELECT seq, entity_id, entity_type,
        (operation, entity_type, previous_state IS NULL, new_state IS NULL)::text AS kind
    FROM {STAGED} ORDER BY seq
"""
# To carry out a change is to revert its opposite.
_CREATE_OPPOSITE = f"""
    CREATE TEMP TABLE reverting ON COMMIT DROP AS
    SELECT s.project_id, s.entity_id, s.entity_type, s.new_state AS previous_state, s.previous_state AS new_state,
        s.version_after AS version_before, s.version_before AS version_after, t.turn
    FROM {STAGED} s JOIN unnest(CAST(:seqs AS bigint[]), CAST(:turns AS integer[])) AS t(seq, turn) USING (seq)
"""
_CREATE_STEP = "CREATE TEMP TABLE wave ON COMMIT DROP AS SELECT * FROM reverting WHERE turn = :turn"
_APPEND_CHANGES = f"""
    INSERT INTO consolidation.consolidation_changes (
        id, job_id, project_id, group_id, operation, entity_type, entity_id, previous_state, new_state,
        version_before, version_after, reason, confidence, changed_by, reverts_change_id, reverts_scope)
    SELECT id, :job_id, project_id, group_id, operation, entity_type, entity_id, previous_state, new_state,
        version_before, version_after, reason, confidence, :changed_by, reverts_change_id, reverts_scope
    FROM {STAGED} ORDER BY seq
"""


def carry_out_changes(
    connection: Connection, author: Author, fill: Callable[[], object], *, jobs: Sequence[str]
) -> int:
    """Carry out changes that a copy of the project recorded, in their order, all or none, as those of ``author``.

    Args:
        fill: Copies the ``CHANGE_COLUMNS`` of the changes into the temporary table ``STAGED``.
        jobs: Jobs that lineage may name beside the author's; it names that one then.

    Returns:
        The number of changes.

    Raises:
        ConflictError: A row has another version than the change found, or a row that it references is gone.
    """
    connection.execute(text(_CREATE_STAGED))
    fill()
    for job in jobs:
        connection.execute(text(_RENAME_JOB), {"old": job, "new": str(author.job_id)})
    rows = connection.execute(text(_LIST_STEPS)).all()
    turns = list(_number_steps(rows))
    tables = {turn: row.entity_type for turn, row in zip(turns, rows, strict=True)}
    with check_constraints_at_end(connection, "row"):
        connection.execute(text(_CREATE_OPPOSITE), {"seqs": [row.seq for row in rows], "turns": turns})
        connection.execute(text("CREATE INDEX ON reverting (turn)"))
        connection.execute(text("ANALYZE reverting"))
        for turn, table in tables.items():
            connection.execute(text(_CREATE_STEP), {"turn": turn})
            _revert_wave(connection, LEDGERED[table])
            connection.execute(text("DROP TABLE wave"))
        parameters = {"job_id": author.job_id, "changed_by": author.changed_by}
        connection.execute(text(_APPEND_CHANGES), parameters)
        reject_dangling(connection, "reverting")
        connection.execute(text("DROP TABLE reverting"))
    return len(rows)


def _number_steps(rows: Iterable[Any]) -> Iterator[int]:
    """Yield the turn of each change, from 1. A turn has changes of one kind and table, and no row twice."""
    turn, kind, seen = 0, None, set[UUID]()
    for row in rows:
        if row.kind != kind or row.entity_id in seen:
            turn, kind, seen = turn + 1, row.kind, set()
        seen.add(row.entity_id)
        yield turn
