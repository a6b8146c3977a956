"""Fast paths of searches and requests: autocommit connections, and statements without SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from psycopg import OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from sqlalchemy import Connection, Engine


def autocommit_connection(engine: Engine) -> Connection:
    """Return a connection on which each statement is a transaction of its own.

    This saves round trips. It also keeps prepared statements: after the rollback that ends a read-only transaction the
    driver forgets them, and the next searches are planned again.
    """
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def execute_plain(connection: Connection, statements: str) -> None:
    """Execute statements without values or rows by libpq alone: the driver's cursor takes several times as long.

    Raises:
        psycopg.OperationalError: The connection is lost.
        psycopg.Error: The server refuses one of them.
    """
    driver: Any = connection.connection.driver_connection
    result = driver.pgconn.exec_(statements.encode())
    if result.status == ExecStatus.COMMAND_OK:
        return
    error = error_from_result(result)
    # An error of the server has a code. Of one of the connection the driver knows no class.
    raise error if error.sqlstate else OperationalError(str(error))


def format_uuids(ids: Iterable[UUID | str]) -> str:
    """Return a bound value to be cast to ``uuid[]``: the driver takes ten times as long to write a list."""
    return f"{{{','.join(map(str, ids))}}}"


def fetch_rows(
    connection: Connection,
    query: str,
    bound: Mapping[str, Any],
    *,
    prepare: bool | None = None,
    binary: bool = False,
) -> list[tuple[Any, ...]]:
    """Return the rows of a query by the driver alone: SQLAlchemy would double the time.

    Args:
        query: SQL with ``%(name)s`` for each value of ``bound``.
        prepare: False = plan for these values; None = prepare after a few executions.
        binary: Receive numbers and bytes as they are, which is faster for many of them.

    Raises:
        psycopg.Error: Any error of the driver.
    """
    driver: Any = connection.connection.driver_connection
    rows: list[tuple[Any, ...]] = driver.execute(query, bound, prepare=prepare, binary=binary).fetchall()
    return rows
