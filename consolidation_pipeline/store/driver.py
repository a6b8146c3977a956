"""Statements that run for every search, past SQLAlchemy, which would take as long as they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection


def fetch(
    connection: Connection, query: str, bound: Mapping[str, Any], *, prepare: bool | None = None
) -> list[tuple[Any, ...]]:
    """The rows of a query with ``%(name)s`` for what is bound, within the transaction of ``connection``.

    ``prepare`` False: planned for just these values. None: prepared when it has come a few times.

    Raises:
        psycopg.Error: as the driver raises it.
    """
    driver: Any = connection.connection.driver_connection
    rows: list[tuple[Any, ...]] = driver.execute(query, bound, prepare=prepare).fetchall()
    return rows
