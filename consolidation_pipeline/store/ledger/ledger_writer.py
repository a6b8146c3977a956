"""The ledger: the one way to change knowledge.

Every insert, update and delete of a ledgered table goes through here and leaves, in the same transaction, a row of
``consolidation_changes`` with the state before and after and the row versions. Rows are staged by COPY and applied by
one statement per table, whatever their number.

An image of an insert or delete is the whole row; of an update, the columns that were written. Images of consolidated
memories carry their ``files`` and ``lineage`` too, so one image restores the whole. Which summary a raw memory is in
(``summarized_into_id``) belongs to the summary in the same way: it follows from its lineage and is set and cleared with
it, so that a summary does not stand in the way of undoing what was done to its memories before. Caches that the next
run computes anew (relevance, graph version) are left out of images.
"""

from __future__ import annotations

import json
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
from consolidation_pipeline.store.database.vector_copy import copy_vectors, to_ids

LEDGERED: dict[str, Table] = {
    table.name: table
    for table in (
        task_memories,
        consolidated_memories,
        memory_relations,
        playbook_entries,
        consolidation_suggestions,
    )
}

CACHES = {"relevance_score", "relevance_at", "graph_version"}
# A row that leaves or enters the similarity graph, or moves in it, must be compared anew.
MOVES_IN_GRAPH = ("embedding", "archived_at")
_PARTS = {"files": "TEXT[]", "lineage": "JSONB"}
_SHOWN_CONFLICTS = 20


@dataclass(frozen=True)
class Author:
    """Who changes a project: the run (or None by hand), and the name that stands in the ledger."""

    project_id: UUID
    job_id: UUID | None
    changed_by: str


@dataclass(frozen=True)
class Change:
    """One row to write. ``values`` are the columns (all for an insert, the changed ones for an update).

    An embedding is an array float32 (d,), of one length for all, or text as Postgres writes it.
    ``version`` is the row's present version: None for an insert. ``group_id`` ties together what one undoes at once.
    """

    entity_id: UUID
    group_id: UUID
    values: Mapping[str, Any]
    version: int | None = None
    reason: str | None = None
    confidence: float | None = None


def insert_rows(
    connection: Connection, author: Author, table: Table, changes: Sequence[Change], *, operation: str
) -> int:
    """Write new rows, their files and lineage included. Returns their number.

    A row starts at version 1, or above every version it had before it was rolled back.

    Raises:
        ConflictError: a row with one of the ids exists, or an id stands twice among the changes.
    """
    if not changes:
        return 0
    columns = _stage(connection, author, table, changes)
    refuse(connection, f"SELECT s.id FROM staged s JOIN {table} t USING (id)", "exists already")
    names = ", ".join(["id", "project_id", *columns])
    connection.execute(
        text(f"INSERT INTO {table} ({names}, version) SELECT {names}, {_next_version('s.id', '0')} FROM staged s")
    )
    _write_parts(connection, table, _staged_parts(changes), replace=False)
    return _append(connection, author, operation, table, previous="NULL", new=_row_image(table))


def update_rows(
    connection: Connection, author: Author, table: Table, changes: Sequence[Change], *, operation: str
) -> int:
    """Write the given columns of existing rows; every change names the same columns. Returns their number.

    Raises:
        ConflictError: a row is gone or has another version than the change saw, or an id stands twice among the
        changes; nothing is written then.
    """
    if not changes:
        return 0
    columns = _stage(connection, author, table, changes)
    _lock_rows(connection, table)
    parts = _staged_parts(changes)
    image = _columns_image(table, [*columns, *parts])
    connection.execute(
        text(
            f"CREATE TEMP TABLE before ON COMMIT DROP AS SELECT t.id, {image} AS state "
            f"FROM staged s JOIN {table} t USING (id)"
        )
    )
    written = "".join(f", {name} = s.{name}" for name in columns)
    moved = any(name in columns for name in MOVES_IN_GRAPH) and "graph_version" in table.c
    reset = ", graph_version = NULL" if moved else ""
    connection.execute(
        text(
            f"UPDATE {table} t SET version = {_next_version('t.id', 't.version')}{written}{reset} "
            "FROM staged s WHERE t.id = s.id"
        )
    )
    _write_parts(connection, table, parts, replace=True)
    if table is consolidated_memories and "archive_reason" in columns:
        forget_comparisons(connection, "SELECT id FROM staged")
    count = _append(
        connection,
        author,
        operation,
        table,
        previous="before.state",
        new=image,
        joined=" JOIN before USING (id)",
    )
    connection.execute(text("DROP TABLE before"))
    return count


def forget_comparisons(connection: Connection, merged: str) -> None:
    """Have the sources of merged memories, whose ids the query ``merged`` selects, compared anew.

    They leave and enter the similarity graph with the merged memory when that is archived and restored.
    """
    ids = {"ids": list(connection.scalars(text(merged)))}
    if not ids["ids"]:
        return
    # Materialized: a planner that takes the table for empty would look for the sources once for each of its rows.
    sources = f"SELECT id FROM {task_memories} WHERE consolidated_into_id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"
    connection.execute(
        text(
            f"WITH sources AS MATERIALIZED ({sources}) "
            f"UPDATE {task_memories} t SET graph_version = NULL FROM sources s WHERE t.id = s.id"
        ),
        ids,
    )


def mark_summarized(connection: Connection, summaries: str) -> None:
    """Have the raw memories say which of the summaries, whose ids the query ``summaries`` selects, they are in now.

    Those in the lineage of a summary are in it; those that were in one that is gone are in none any more.

    Raises:
        ConflictError: a memory is in another summary by now.
    """
    ids = {"ids": list(connection.scalars(text(summaries)))}
    if not ids["ids"]:
        return
    told = (
        "SELECT l.parent_id AS id, l.child_id AS summary FROM consolidation.memory_lineage l "
        "WHERE l.child_id = ANY(:ids) AND l.parent_kind = 'raw'"
    )
    refuse(
        connection,
        f"SELECT m.id FROM ({told}) told JOIN {task_memories} m USING (id) "
        "WHERE m.summarized_into_id <> told.summary AND m.summarized_into_id <> ALL(:ids)",
        "is in another summary by now: roll that back first",
        **ids,
    )
    chosen = (
        f"SELECT m.id, told.summary FROM {task_memories} m LEFT JOIN told USING (id) WHERE m.id IN ("
        f"SELECT id FROM told UNION SELECT id FROM {task_memories} WHERE summarized_into_id = ANY(:ids)) "
        "ORDER BY m.id FOR NO KEY UPDATE OF m"
    )
    connection.execute(
        text(
            f"WITH told AS MATERIALIZED ({told}), chosen AS MATERIALIZED ({chosen}) "
            f"UPDATE {task_memories} t SET summarized_into_id = c.summary FROM chosen c WHERE t.id = c.id"
        ),
        ids,
    )


def _next_version(entity: str, at_least: str) -> str:
    """SQL of a version the row never had: rollback takes versions back, so counting on would give one out twice."""
    highest = f"SELECT max(c.version_after) FROM consolidation.consolidation_changes c WHERE c.entity_id = {entity}"
    return f"1 + greatest({at_least}, ({highest}))"


def lineage_insert(owner: str, source: str, edges: str) -> str:
    """SQL that writes the edges in the jsonb expression ``edges`` of ``source``, owned by ``owner``."""
    return (
        "INSERT INTO consolidation.memory_lineage (project_id, child_id, parent_id, parent_kind, similarity, job_id) "
        f"SELECT {owner}, e.parent_id, e.parent_kind, e.similarity, e.job_id FROM {source}, "
        f"jsonb_to_recordset({edges}) AS e(parent_id uuid, parent_kind text, similarity real, job_id uuid)"
    )


def _stage(connection: Connection, author: Author, table: Table, changes: Sequence[Change]) -> list[str]:
    """COPY the changes into the temporary table ``staged``; returns the table's columns among them."""
    names = list(changes[0].values)
    if any(change.values.keys() != changes[0].values.keys() for change in changes):
        raise ValueError(f"changes of {table.name} name different columns; all must name {', '.join(names)}")
    columns = [name for name in names if name not in _PARTS]
    kinds = {name: _PARTS.get(name) or table.c[name].type.compile(connection.dialect) for name in names}
    connection.execute(text("DROP TABLE IF EXISTS staged"))
    declared = "".join(f", {name} {kind}" for name, kind in kinds.items())
    connection.execute(
        text(
            "CREATE TEMP TABLE staged (n bigint, id uuid, project_id uuid, change_group uuid, expected integer, "
            f"change_reason text, change_confidence double precision{declared}) ON COMMIT DROP"
        )
    )
    rows = (
        (n, c.entity_id, author.project_id, c.group_id, c.version, c.reason, c.confidence, *_encode(c.values, kinds))
        for n, c in enumerate(changes)
    )
    copy_rows(connection, "staged", rows)
    _stage_vectors(connection, changes)
    connection.execute(text("ANALYZE staged (id)"))
    refuse(connection, "SELECT id FROM staged GROUP BY id HAVING count(*) > 1", "stands twice among the changes")
    return columns


def _stage_vectors(connection: Connection, changes: Sequence[Change]) -> None:
    """Embeddings given as arrays travel in binary: as text they would cost more than all other columns together."""
    given = [(change.entity_id, change.values.get("embedding")) for change in changes]
    arrays = [(id_, vector) for id_, vector in given if isinstance(vector, np.ndarray)]
    if not arrays:
        return
    ids, vectors = zip(*arrays, strict=True)
    connection.execute(text("CREATE TEMP TABLE staged_vectors (id uuid, embedding vector) ON COMMIT DROP"))
    copy_vectors(connection, "staged_vectors (id, embedding)", to_ids(ids), np.stack(vectors))
    connection.execute(text("UPDATE staged s SET embedding = v.embedding FROM staged_vectors v WHERE s.id = v.id"))
    connection.execute(text("DROP TABLE staged_vectors"))


def copy_rows(connection: Connection, target: str, rows: Iterable[Sequence[Any]]) -> None:
    """Load rows into ``target`` by COPY."""
    cursor: Any = connection.connection.cursor()
    with cursor.copy(f"COPY {target} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _encode(values: Mapping[str, Any], kinds: Mapping[str, str]) -> list[Any]:
    return [_encoded(values[name], kind) for name, kind in kinds.items()]


def _encoded(value: Any, kind: str) -> Any:
    if isinstance(value, np.ndarray):
        return None  # _stage_vectors has it
    return json.dumps(value) if kind == "JSONB" and value is not None else value


def _staged_parts(changes: Sequence[Change]) -> list[str]:
    return [name for name in _PARTS if name in changes[0].values]


def _lock_rows(connection: Connection, table: Table) -> None:
    connection.execute(text(f"SELECT 1 FROM {table} t JOIN staged s USING (id) ORDER BY t.id FOR UPDATE OF t"))
    refuse(
        connection,
        f"SELECT s.id FROM staged s LEFT JOIN {table} t USING (id, project_id) "
        "WHERE t.version IS DISTINCT FROM s.expected",
        f"of {table.name} changed meanwhile",
    )


@contextmanager
def checked_at_once(connection: Connection, noun: str) -> Iterator[None]:
    """Do all of what is written inside or nothing; keys that are checked at commit are checked at its end.

    Raises:
        ConflictError: another ``noun`` has the key, or a row refers to one that is gone; nothing is written then.
    """
    try:
        with connection.begin_nested():
            yield
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            connection.execute(text("SET CONSTRAINTS ALL DEFERRED"))
    except IntegrityError as error:
        raise ConflictError(f"another {noun} stands in the way: {str(error.orig).strip()}") from error


def refuse(connection: Connection, query: str, what: str, **parameters: Any) -> None:
    """Raise ConflictError naming the rows that ``query`` selects, if any."""
    refuse_rows(connection.scalars(text(query + f" LIMIT {_SHOWN_CONFLICTS}"), parameters).all(), what)


def refuse_rows(ids: Sequence[UUID], what: str) -> None:
    """Raise ConflictError naming the rows with ``ids``, if any."""
    rows = tuple(map(str, ids[:_SHOWN_CONFLICTS]))
    if rows:
        raise ConflictError(f"row {rows[0]} {what}" + (f" ({len(rows)} rows)" if len(rows) > 1 else ""), rows)


def _write_parts(connection: Connection, table: Table, parts: Iterable[str], *, replace: bool) -> None:
    if "files" in parts:
        if replace:
            connection.execute(text("DELETE FROM consolidation.memory_files f USING staged s WHERE f.owner_id = s.id"))
        connection.execute(
            text(
                "INSERT INTO consolidation.memory_files (project_id, owner_id, path) "
                "SELECT DISTINCT project_id, id, path FROM staged, unnest(files) AS path"
            )
        )
    if "lineage" in parts and table is consolidated_memories:
        if replace:
            connection.execute(
                text("DELETE FROM consolidation.memory_lineage l USING staged s WHERE l.child_id = s.id")
            )
        connection.execute(text(lineage_insert("s.project_id, s.id", "staged s", "s.lineage")))
        mark_summarized(connection, f"SELECT t.id FROM {table} t JOIN staged s USING (id) WHERE t.kind = 'summary'")


def _append(
    connection: Connection,
    author: Author,
    operation: str,
    table: Table,
    *,
    previous: str,
    new: str,
    joined: str = "",
) -> int:
    return connection.execute(
        text(
            "INSERT INTO consolidation.consolidation_changes (job_id, project_id, group_id, operation, entity_type, "
            "entity_id, previous_state, new_state, version_before, version_after, reason, confidence, changed_by) "
            f"SELECT :job_id, s.project_id, s.change_group, :operation, '{table.name}', t.id, {previous}, {new}, "
            "s.expected, t.version, s.change_reason, s.change_confidence, :changed_by "
            f"FROM staged s JOIN {table} t USING (id){joined} ORDER BY s.n"
        ),
        {"job_id": author.job_id, "operation": operation, "changed_by": author.changed_by},
    ).rowcount


def _row_image(table: Table) -> str:
    """SQL of the whole row ``t`` as jsonb, caches and generated columns left out, files and lineage put in."""
    columns = [f"t.{c.name}" for c in table.c if c.computed is None and c.name not in CACHES]
    parts = [f"{query} AS {name}" for name, query in _part_image(table).items()]
    return f"(SELECT to_jsonb(r) FROM (SELECT {', '.join([*columns, *parts])}) r)"


def _columns_image(table: Table, names: Sequence[str]) -> str:
    """SQL of the named columns of row ``t`` as jsonb."""
    kept = [f"'{name}', t.{name}" for name in names if name not in _PARTS and name not in CACHES]
    parts = [f"'{name}', {query}" for name, query in _part_image(table).items() if name in names]
    return f"jsonb_build_object({', '.join([*kept, *parts])})"


def _part_image(table: Table) -> dict[str, str]:
    """SQL of what belongs to row ``t`` and stands in tables of its own, as jsonb, by name."""
    files = "(SELECT coalesce(jsonb_agg(path ORDER BY path), '[]') FROM consolidation.memory_files f WHERE f.owner_id = t.id)"
    lineage = (
        "(SELECT coalesce(jsonb_agg(jsonb_build_object('parent_id', parent_id, 'parent_kind', parent_kind, "
        "'similarity', similarity, 'job_id', job_id) ORDER BY parent_id), '[]') FROM consolidation.memory_lineage l "
        "WHERE l.child_id = t.id)"
    )
    if table is consolidated_memories:
        return {"files": files, "lineage": lineage}
    return {"files": files} if table is task_memories else {}
