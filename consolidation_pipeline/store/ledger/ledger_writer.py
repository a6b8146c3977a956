"""Ledger writer: the only way to change the ledgered tables.

Each insert, update or delete of a ledgered row adds a row to ``consolidation_changes`` in the same transaction, with
the state ("image") and version of the row before and after. Rows are staged by COPY and applied by one statement per
table, whatever their number.

The image of an insert or delete is the whole row; of an update, the columns that were written; ``row_images`` tells how
long lists of ids are shortened. Images of consolidated memories include ``files`` and ``lineage``, so one image
restores everything. Only the lineage of a summary tells which raw memories are in
it, so a summary does not block the undo of earlier changes to them.

Statements here work on any ledgered table: its name and columns, from the schema, replace comments like
``/* table */``. ``staged`` is the temporary table of the changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    consolidation_suggestions,
    memory_relations,
    playbook_entries,
    task_memories,
)
from consolidation_pipeline.store.database.scope_keys import is_dissolved
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import copy_vectors, format_vector, to_ids
from consolidation_pipeline.store.ledger.row_images import columns_image, shorten_images, whole_image

_TABLES = (task_memories, consolidated_memories, memory_relations, playbook_entries, consolidation_suggestions)
LEDGERED: dict[str, Table] = {table.name: table for table in _TABLES}

# A row that enters or leaves the similarity graph, or whose vector changes, must be compared again.
GRAPH_COLUMNS = ("embedding", "archived_at")
_PARTS = {"files": "TEXT[]", "lineage": "JSONB"}
_SHOWN_CONFLICTS = 20
# Up to this number of changes, vectors travel as text: a table and two statements for them would cost more.
_FEW_VECTORS = 32


@dataclass(frozen=True)
class Author:
    """Author of changes to a project. ``job_id``: the run; None for a manual change. ``changed_by``: shown name."""

    project_id: UUID
    job_id: UUID | None
    changed_by: str


@dataclass(frozen=True)
class Change:
    """A row to write.

    ``group_id``: changes that are undone together have the same. ``values``: all columns for an insert, the changed
    ones for an update. An embedding is an array float32 (d,), of one length for all changes, or Postgres text.
    ``version``: version of the row now; None for an insert.
    """

    entity_id: UUID
    group_id: UUID
    values: Mapping[str, Any]
    version: int | None = None
    reason: str | None = None
    confidence: float | None = None


_FIND_EXISTING = "SELECT s.id FROM staged s JOIN /* table */ t USING (id)"

# A new version is above every version the row ever had, as a rollback takes versions back.
_INSERT_STAGED = """
    INSERT INTO /* table */ (/* columns */, version)
    SELECT /* columns */, 1 + greatest(0, (
        SELECT max(c.version_after) FROM consolidation.consolidation_changes c WHERE c.entity_id = s.id))
    FROM staged s
"""


def insert_rows(
    connection: Connection, author: Author, table: Table, changes: Sequence[Change], *, operation: str
) -> int:
    """Insert rows with their files and lineage; return their number.

    A row starts at version 1, or above every version it had before a rollback deleted it.

    Raises:
        ConflictError: A row with one of the ids exists, or two changes have the same id.
    """
    if not changes:
        return 0
    columns = _stage(connection, author, table, changes)
    reject_selected(connection, compose(_FIND_EXISTING, table=str(table)), "exists already")
    names = ", ".join(["id", "project_id", *columns])
    connection.execute(text(compose(_INSERT_STAGED, table=str(table), columns=names)))
    _write_parts(connection, table, _staged_parts(changes), replace=False)
    return _append(connection, author, operation, table, previous="NULL", new=whole_image(table))


_STAGE_IMAGES = """
    CREATE TEMP TABLE before ON COMMIT DROP AS
    SELECT t.id, /* image */ AS state FROM staged s JOIN /* table */ t USING (id)
"""

_UPDATE_STAGED = """
    UPDATE /* table */ t
    SET version = 1 + greatest(t.version, (
        SELECT max(c.version_after) FROM consolidation.consolidation_changes c WHERE c.entity_id = t.id))
        /* assignments */
    FROM staged s WHERE t.id = s.id
"""

_STAGED_IDS = "SELECT id FROM staged"


def update_rows(
    connection: Connection, author: Author, table: Table, changes: Sequence[Change], *, operation: str
) -> int:
    """Update columns of existing rows, the same columns in every change; return the number of rows.

    Raises:
        ConflictError: A row is gone or has another version than the change says, or two changes have the same id.
            Nothing is written.
    """
    if not changes:
        return 0
    columns = _stage(connection, author, table, changes)
    _lock_rows(connection, table)
    parts = _staged_parts(changes)
    image = columns_image(table, [*columns, *parts])
    connection.execute(text(compose(_STAGE_IMAGES, table=str(table), image=image)))
    assignments = "".join(f", {name} = s.{name}" for name in columns)
    connection.execute(text(compose(_UPDATE_STAGED, table=str(table), assignments=assignments)))
    if table is task_memories and any(name in columns for name in GRAPH_COLUMNS):
        connection.execute(text(_FORGET_COMPARED))
    _write_parts(connection, table, parts, replace=True)
    if table is consolidated_memories and "archive_reason" in columns:
        forget_compared_sources(connection, connection.scalars(text(_STAGED_IDS)).all())
    joined = f" JOIN before USING (id) CROSS JOIN LATERAL (SELECT {image} AS state OFFSET 0) after"
    previous, new = shorten_images(table, [*columns, *parts])
    count = _append(connection, author, operation, table, previous=previous, new=new, joined=joined)
    connection.execute(text("DROP TABLE before"))
    return count


_FORGET_COMPARED = """
    DELETE FROM consolidation.compared_memories c USING staged s
    WHERE c.project_id = s.project_id AND c.memory_id = s.id
"""
# Materialized: a planner that takes the table for empty would search the sources once for each of its rows.
_FORGET_COMPARED_SOURCES = """
    WITH sources AS MATERIALIZED (
        SELECT c.project_id, c.memory_id FROM consolidation.task_memories t JOIN consolidation.compared_memories c
            ON c.project_id = t.project_id AND c.memory_id = t.id
        WHERE t.consolidated_into_id = ANY(:ids) ORDER BY c.memory_id FOR UPDATE OF c)
    DELETE FROM consolidation.compared_memories c USING sources s
    WHERE c.project_id = s.project_id AND c.memory_id = s.memory_id
"""


def forget_compared_sources(connection: Connection, merged_ids: Sequence[UUID]) -> None:
    """Mark the sources of merged memories to be compared again.

    Sources leave and enter the similarity graph when their merged memory is archived and restored.
    """
    if merged_ids:
        connection.execute(text(_FORGET_COMPARED_SOURCES), {"ids": list(merged_ids)})


_FIND_SUMMARIZED_TWICE = compose(
    """
    SELECT l.parent_id FROM consolidation.consolidated_memories s
        JOIN consolidation.memory_lineage l ON l.child_id = s.id
        JOIN consolidation.memory_lineage rival ON rival.parent_id = l.parent_id AND rival.child_id <> s.id
        JOIN consolidation.consolidated_memories other ON other.id = rival.child_id
    WHERE s.id IN (/* written */) AND s.kind = 'summary' AND NOT /* dissolved */
        AND other.kind = 'summary' AND NOT /* other_dissolved */
    """,
    dissolved=is_dissolved("s.archive_reason"),
    other_dissolved=is_dissolved("other.archive_reason"),
)


def reject_summarized_twice(connection: Connection, written: str) -> None:
    """Raise ConflictError if a memory of a summary in use is in another one. ``written``: SQL of ids to look at."""
    found = compose(_FIND_SUMMARIZED_TWICE, written=written)
    reject_selected(connection, found, "is in another summary by now: roll that back first")


_CREATE_STAGED = """
    DROP TABLE IF EXISTS staged;
    CREATE TEMP TABLE staged (
        n bigint, id uuid, project_id uuid, change_group uuid, expected integer,
        change_reason text, change_confidence double precision /* columns */) ON COMMIT DROP
"""


def _stage(connection: Connection, author: Author, table: Table, changes: Sequence[Change]) -> list[str]:
    """Copy the changes into the temporary table ``staged``; return the columns of ``table`` among their values."""
    names = list(changes[0].values)
    if any(change.values.keys() != changes[0].values.keys() for change in changes):
        raise ValueError(f"changes of {table.name} have different columns; all must have {', '.join(names)}")
    columns = [name for name in names if name not in _PARTS]
    kinds = {name: _PARTS.get(name) or table.c[name].type.compile(connection.dialect) for name in names}
    reject_rows(_find_repeated(changes), "is changed twice by these changes")
    declared = "".join(f", {name} {kind}" for name, kind in kinds.items())
    connection.execute(text(compose(_CREATE_STAGED, columns=declared)))
    own = (_encode(change.values, kinds, as_text=len(changes) <= _FEW_VECTORS) for change in changes)
    rows = (
        (n, c.entity_id, author.project_id, c.group_id, c.version, c.reason, c.confidence, *values)
        for n, (c, values) in enumerate(zip(changes, own, strict=True))
    )
    copy_rows(connection, "staged", rows)
    _stage_vectors(connection, changes)
    connection.execute(text("ANALYZE staged (id)"))
    return columns


def _find_repeated(changes: Sequence[Change]) -> list[UUID]:
    return [id_ for id_, times in Counter(change.entity_id for change in changes).items() if times > 1]


_SET_VECTORS = "UPDATE staged s SET embedding = v.embedding FROM staged_vectors v WHERE s.id = v.id"


def _stage_vectors(connection: Connection, changes: Sequence[Change]) -> None:
    """Copy many embeddings in binary: as text they would cost more than all other columns together."""
    given = [(change.entity_id, change.values.get("embedding")) for change in changes]
    arrays = [(id_, vector) for id_, vector in given if isinstance(vector, np.ndarray)]
    if len(changes) <= _FEW_VECTORS or not arrays:
        return
    ids, vectors = zip(*arrays, strict=True)
    connection.execute(text("CREATE TEMP TABLE staged_vectors (id uuid, embedding vector) ON COMMIT DROP"))
    copy_vectors(connection, "staged_vectors (id, embedding)", to_ids(ids), np.stack(vectors))
    connection.execute(text(_SET_VECTORS))
    connection.execute(text("DROP TABLE staged_vectors"))


def copy_rows(connection: Connection, target: str, rows: Iterable[Sequence[Any]]) -> None:
    """Copy rows into ``target``, written as ``table`` or ``table (column, ..)``."""
    cursor: Any = connection.connection.cursor()
    with cursor.copy(f"COPY {target} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _encode(values: Mapping[str, Any], kinds: Mapping[str, str], *, as_text: bool) -> Iterator[Any]:
    for name, kind in kinds.items():
        value = values[name]
        if isinstance(value, np.ndarray):  # See _stage_vectors.
            value = format_vector(value) if as_text else None
        yield json.dumps(value) if kind == "JSONB" and value is not None else value


def _staged_parts(changes: Sequence[Change]) -> list[str]:
    return [name for name in _PARTS if name in changes[0].values]


# No key changes: a stronger lock would wait for inserts of rows that refer to these.
_LOCK_ROWS = "SELECT 1 FROM /* table */ t JOIN staged s USING (id) ORDER BY t.id FOR NO KEY UPDATE OF t"
_FIND_CHANGED = """
    SELECT s.id FROM staged s LEFT JOIN /* table */ t USING (id, project_id)
    WHERE t.version IS DISTINCT FROM s.expected
"""


def _lock_rows(connection: Connection, table: Table) -> None:
    connection.execute(text(compose(_LOCK_ROWS, table=str(table))))
    changed = compose(_FIND_CHANGED, table=str(table))
    reject_selected(connection, changed, f"of {table.name} changed meanwhile")


@contextmanager
def check_constraints_at_end(connection: Connection, noun: str) -> Iterator[None]:
    """Write all changes of the block or none; check deferred constraints at its end, not at commit.

    Raises:
        ConflictError: Another row (called ``noun``) has the same key, or a row refers to one that is gone.
    """
    try:
        with connection.begin_nested():
            yield
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED"))
    except IntegrityError as error:
        raise ConflictError(f"another {noun} is in the way: {str(error.orig).strip()}") from error


def reject_selected(connection: Connection, query: str, what: str, **parameters: Any) -> None:
    """Raise ConflictError naming the rows that ``query`` selects, if any."""
    reject_rows(connection.scalars(text(query + f" LIMIT {_SHOWN_CONFLICTS}"), parameters).all(), what)


def reject_rows(ids: Sequence[UUID], what: str) -> None:
    """Raise ConflictError naming the rows with ``ids``, if any."""
    rows = tuple(map(str, ids[:_SHOWN_CONFLICTS]))
    if rows:
        raise ConflictError(f"row {rows[0]} {what}" + (f" ({len(rows)} rows)" if len(rows) > 1 else ""), rows)


# Files that stay are not written again: a summary may have thousands.
_DELETE_FILES = """
    DELETE FROM consolidation.memory_files f USING staged s
    WHERE f.owner_id = s.id AND (f.owner_id, f.path) NOT IN (SELECT id, path FROM staged, unnest(files) AS path)
"""
_INSERT_FILES = """
    INSERT INTO consolidation.memory_files (project_id, owner_id, path)
    SELECT DISTINCT project_id, id, path FROM staged, unnest(files) AS path
    ON CONFLICT DO NOTHING
"""
_DELETE_LINEAGE = "DELETE FROM consolidation.memory_lineage l USING staged s WHERE l.child_id = s.id"
_INSERT_LINEAGE = """
    INSERT INTO consolidation.memory_lineage (project_id, child_id, parent_id, parent_kind, similarity, job_id)
    SELECT s.project_id, s.id, e.parent_id, e.parent_kind, e.similarity, e.job_id
    FROM staged s, jsonb_to_recordset(s.lineage)
        AS e(parent_id uuid, parent_kind text, similarity real, job_id uuid)
"""


def _write_parts(connection: Connection, table: Table, parts: Iterable[str], *, replace: bool) -> None:
    if "files" in parts:
        if replace:
            connection.execute(text(_DELETE_FILES))
        connection.execute(text(_INSERT_FILES))
    if "lineage" in parts and table is consolidated_memories:
        if replace:
            connection.execute(text(_DELETE_LINEAGE))
        connection.execute(text(_INSERT_LINEAGE))
        reject_summarized_twice(connection, _STAGED_IDS)


_APPEND_CHANGES = """
    INSERT INTO consolidation.consolidation_changes (
        job_id, project_id, group_id, operation, entity_type, entity_id, previous_state, new_state,
        version_before, version_after, reason, confidence, changed_by)
    SELECT :job_id, s.project_id, s.change_group, :operation, :entity_type, t.id, /* previous */, /* new */,
        s.expected, t.version, s.change_reason, s.change_confidence, :changed_by
    FROM staged s JOIN /* table */ t USING (id) /* joined */ ORDER BY s.n
"""


def _append(
    connection: Connection, author: Author, operation: str, table: Table, *, previous: str, new: str, joined: str = ""
) -> int:
    statement = compose(_APPEND_CHANGES, table=str(table), previous=previous, new=new, joined=joined)
    parameters = {
        "job_id": author.job_id,
        "operation": operation,
        "entity_type": table.name,
        "changed_by": author.changed_by,
    }
    return connection.execute(text(statement), parameters).rowcount
