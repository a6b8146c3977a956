"""Undo of all that was written into a database and is not undone, from its sidecar alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import Connection

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import SourceConfig, open_database, read_config, refuse_locked
from consolidation_pipeline.connect.mapping import TableMapping
from consolidation_pipeline.connect.source_table import SourceTable, same_table
from consolidation_pipeline.connect.store import Conflict
from consolidation_pipeline.connect.undo import undo_write
from consolidation_pipeline.connect.watch import unwatch_all
from consolidation_pipeline.errors import ConflictError, UsageError


@dataclass(frozen=True)
class OpenWrite:
    """A write that is not undone: the name of its source, the tables of its images, and the keys that it hides."""

    id: UUID
    source: str
    tables: list[str]
    hidden: list[str]


_LIST_OPEN = """
    SELECT w.id, w.source, array_remove(array_agg(DISTINCT i.table_name), NULL),
        ARRAY(SELECT jsonb_array_elements_text(w.receipt -> 'hidden'))
    FROM consolidation_sidecar.writes w LEFT JOIN consolidation_sidecar.images i ON i.write_id = w.id
    WHERE w.undone_at IS NULL GROUP BY w.id ORDER BY w.number DESC
"""


def list_open_writes(connection: Connection[Any]) -> list[OpenWrite]:
    """Return the writes of the sidecar that are not undone, newest first."""
    return [OpenWrite(*row) for row in connection.execute(_LIST_OPEN)]


def undo_open(
    connection: Connection[Any], writes: Sequence[OpenWrite], configs: Mapping[str, SourceConfig]
) -> dict[UUID, list[Conflict]]:
    """Undo writes in this order, each in a transaction of its own.

    Args:
        configs: Configurations by source. A write whose source has none is undone by that of another on its table.

    Returns:
        What stands in the way, by write, with the rows that stay hidden.
    """
    conflicts = {}
    for write in writes:
        try:
            table = SourceTable(connection, _find_mapping(connection, write, configs))
            with refuse_locked(), connection.transaction():
                found = undo_write(connection, table, write.id)
        except (ConflictError, UsageError) as error:
            found = [Conflict(", ".join(write.tables), "", str(error))]
        if found:
            conflicts[write.id] = [replace(each, hidden=tuple(write.hidden)) for each in found]
    return conflicts


def _find_mapping(connection: Connection[Any], write: OpenWrite, configs: Mapping[str, SourceConfig]) -> TableMapping:
    """Return a mapping of the tables of a write, by the names that its images have for them."""
    for config in sorted(configs, key=lambda name: name != write.source):
        one = configs[config]
        named = [name for name in write.tables if same_table(connection, name, one.place)]
        for mapping in [one.mapping, *(one.model_copy(update={"table": name}).mapping for name in named)]:
            if {mapping.table, *mapping.other_tables}.issuperset(write.tables):
                return mapping
    raise UsageError(
        f"the sidecar has no configuration of source {write.source} for it any more: connect the table again in mode "
        "mirror, then `source disconnect --restore`"
    )


def restore_database(url_env: str) -> dict[UUID, list[Conflict]]:
    """Undo every write of the sidecar, and remove its triggers; without conflicts the sidecar too.

    Returns:
        The conflicts by write, with the rows that stay hidden.

    Raises:
        UsageError: The variable is not set, or the database has no sidecar.
        ConflictError: Other sessions held a table with a trigger all the time.
        StoreError: The database cannot be reached.
    """
    with open_database(url_env) as connection:
        if sidecar.check_version(connection) is None:
            raise UsageError(f"the database of {url_env} has no schema {sidecar.SCHEMA}: nothing is written there")
        configs = {name: read_config(values) for name, values in sidecar.list_sources(connection).items()}
        conflicts = undo_open(connection, list_open_writes(connection), configs)
        with refuse_locked(), connection.transaction():
            unwatch_all(connection)
            if not conflicts:
                sidecar.remove(connection)
    return conflicts
