"""Statements by libpq alone: their errors have the classes that the rest of the program expects."""

from __future__ import annotations

import psycopg
import pytest

from consolidation_pipeline.store.database.engine import Engine, is_unavailable
from consolidation_pipeline.store.database.raw_connections import execute_plain


def test_refused_statement_names_its_error(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(psycopg.errors.UndefinedTable, match="no_such_table"):
        execute_plain(connection, "DELETE FROM no_such_table")


def test_lost_connection_is_unavailable(engine: Engine) -> None:
    with engine.connect() as connection, engine.connect() as other:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        connection.commit()
        other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
        for _ in range(2):  # The first error is the server's, the second one libpq's, which has no SQLSTATE.
            with pytest.raises(psycopg.OperationalError) as lost:
                execute_plain(connection, "BEGIN; COMMIT")
            assert is_unavailable(lost.value)
        connection.invalidate()
