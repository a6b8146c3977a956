"""Sizes of the tables, and of Dagster's records beside them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.engine import DAGSTER_SCHEMA
from consolidation_pipeline.store.database.schema import SCHEMA


@dataclass(frozen=True)
class TableSize:
    """Size of a table on disk, with its indexes; its rows by the statistics of the server."""

    name: str
    bytes: int
    rows: int


_LIST_SIZES = """
    SELECT c.relname, pg_total_relation_size(c.oid), pg_stat_get_live_tuples(c.oid)
    FROM pg_class c WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind = 'r' ORDER BY 2 DESC, 1
"""


def list_table_sizes(connection: Connection) -> list[TableSize]:
    """Return the tables of the schema, the largest first."""
    return [TableSize(*row) for row in connection.execute(text(_LIST_SIZES), {"schema": SCHEMA})]


# The embedded server has a database for them, any other one a schema.
_MEASURE_DAGSTER = """
    SELECT coalesce(
        (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
            WHERE relnamespace = to_regnamespace(:name) AND relkind = 'r'),
        (SELECT pg_database_size(oid) FROM pg_database WHERE datname = :name), 0)::bigint
"""


def measure_dagster(connection: Connection) -> int:
    """Return the bytes of Dagster's own records on this server; 0 if they are elsewhere."""
    return int(connection.execute(text(_MEASURE_DAGSTER), {"name": DAGSTER_SCHEMA}).scalar_one())
