"""Snapshot of a project: its rows copied into the database of a shadow, with the same ids, as of one moment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, text

from consolidation_pipeline.store.database.engine import connect
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.schema import SCHEMA, metadata
from consolidation_pipeline.store.shadow.databases import write_state

# A run of the copy must meet no keys, events to be sent, or stores that it could write to. A trigger fills the last.
_NOT_COPIED = {
    *("api_keys", "consolidation_events", "sources", "source_rows", "source_writes"),
    "suggestion_originals",
}
# A job that waits would be taken by the run of the shadow.
_CONDITIONS = {
    "consolidation_jobs": "project_id = {0} AND status NOT IN ('pending', 'running')",
    "projects": "id = {0}",
}

_READ_SNAPSHOT = """
    SELECT now() AS taken_at, coalesce(max(seq), 0) AS seq FROM consolidation.consolidation_changes
"""
_SET_SEQ = "SELECT setval(pg_get_serial_sequence('consolidation.consolidation_changes', 'seq'), :seq)"


def copy_project(engine: Engine, shadow: Engine, project_id: UUID) -> None:
    """Copy the rows of a project into the empty schema of a shadow. Nobody waits for it, and nothing else is read.

    The state of the shadow has then ``snapshot_at`` and ``seq``: changes of the shadow have a higher seq in its ledger.
    """
    settings = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with connect(engine).execution_options(**settings) as source, shadow.begin() as target:
        snapshot = source.execute(text(_READ_SNAPSHOT)).one()
        for table in metadata.sorted_tables:
            if "project_id" in table.c or table.name == "projects":
                _copy_rows(source, target, table, project_id)
        target.execute(text(_SET_SEQ), {"seq": snapshot.seq + 1})
        write_state(target, {"snapshot_at": snapshot.taken_at.isoformat(), "seq": snapshot.seq})
    with autocommit_connection(shadow) as connection:
        connection.execute(text("ANALYZE"))


def _copy_rows(source: Connection, target: Connection, table: Table, project_id: UUID) -> None:
    if table.name in _NOT_COPIED:
        return
    columns = ", ".join(column.name for column in table.c if column.computed is None)
    condition = _CONDITIONS.get(table.name, "project_id = {0}").format(f"'{project_id}'")
    query = f"SELECT {columns} FROM {SCHEMA}.{table.name} WHERE {condition}"
    copy_query(source, query, target, f"{SCHEMA}.{table.name} ({columns})")


def copy_query(source: Connection, query: str, target: Connection, into: str) -> None:
    """Copy the rows of a query from one database into a table, ``into``, of another."""
    reading: Any = source.connection.cursor()
    writing: Any = target.connection.cursor()
    with reading.copy(f"COPY ({query}) TO STDOUT") as rows, writing.copy(f"COPY {into} FROM STDIN") as copy:
        for chunk in rows:
            copy.write(chunk)
