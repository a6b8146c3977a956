"""What runs for every search or request: connections without a transaction, and statements past SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine


def connect_briefly(engine: Engine) -> Connection:
    """A connection on which each statement is a transaction of its own.

    Not only for the round trips: a transaction that is only read in ends with a rollback, upon which the driver forgets
    all statements that it has prepared on this connection, and the next searches are planned anew.
    """
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def fetch(
    connection: Connection, query: str, bound: Mapping[str, Any], *, prepare: bool | None = None
) -> list[tuple[Any, ...]]:
    """The rows of a query with ``%(name)s`` for what is bound, past SQLAlchemy, which would take as long again.

    ``prepare`` False: planned for just these values. None: prepared when it has come a few times.

    Raises:
        psycopg.Error: as the driver raises it.
    """
    driver: Any = connection.connection.driver_connection
    rows: list[tuple[Any, ...]] = driver.execute(query, bound, prepare=prepare).fetchall()
    return rows
