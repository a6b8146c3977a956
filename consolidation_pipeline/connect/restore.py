"""Undo of all that was written into a database, from its sidecar alone."""

from __future__ import annotations

from uuid import UUID

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import open_database, read_config
from consolidation_pipeline.connect.source_table import SourceTable
from consolidation_pipeline.connect.store import Conflict
from consolidation_pipeline.connect.undo import undo_all
from consolidation_pipeline.errors import UsageError


def restore_database(url_env: str) -> dict[UUID, list[Conflict]]:
    """Undo every write of the sidecar; return the conflicts by write.

    Raises:
        UsageError: The variable is not set, or the database has no sidecar.
        StoreError: The database cannot be reached.
    """
    with open_database(url_env) as connection:
        if sidecar.find_version(connection) is None:
            raise UsageError(f"the database of {url_env} has no schema {sidecar.SCHEMA}: nothing was written there")
        configs = sidecar.list_sources(connection)
        return undo_all(
            connection, {name: SourceTable(connection, read_config(config).mapping) for name, config in configs.items()}
        )
