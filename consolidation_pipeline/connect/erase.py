"""Removal of rows from a store for good, with all that the sidecar has of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection, sql

from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.source_table import SourceTable
from consolidation_pipeline.connect.write_back import check_gone, set_links


def erase_rows(connection: Connection[Any], table: SourceTable, keys: Sequence[str]) -> int:
    """Delete rows with their parts, links to them, and every write of the sidecar that has an image of one.

    Writes that hide other rows too have to be undone before.

    Returns:
        The number of rows that were deleted.

    Raises:
        ConflictError: A trigger, rule or policy of the store keeps rows; the transaction has to be rolled back.
    """
    bound = {"keys": list(keys)}
    for part in table.mapping.parts:
        connection.execute(
            sql.SQL("DELETE FROM {} t WHERE {}").format(table_identifier(part.table), table.among_keys(part.key)), bound
        )
    deleted = connection.execute(
        sql.SQL("DELETE FROM {} t WHERE {}").format(table.mapping.identifier(), table.among_keys()), bound
    ).rowcount
    for name, key in [
        (table.mapping.table, table.mapping.key),
        *((each.table, each.key) for each in table.mapping.parts),
    ]:
        check_gone(connection, table, name, key, keys)
    for links in table.mapping.links:
        arrays = {
            key: [each for each in linked if each not in set(keys)]
            for key, _, linked in table.find_links(connection, links, keys)
        }
        set_links(connection, table, links, arrays)
    connection.execute(
        "DELETE FROM consolidation_sidecar.writes WHERE receipt -> 'hidden' ?| %(keys)s "
        "OR receipt ->> 'successor' = ANY(%(keys)s)",
        bound,
    )
    connection.execute("DELETE FROM consolidation_sidecar.outbox WHERE key = ANY(%(keys)s)", bound)
    return deleted
