"""Indexes on scope keys, one for each table of a large project whose memories are kept apart by scopes.

A search of one scope finds its rows by them and compares each: an index on the vectors of all scopes leads past the
rows of all others. The key of a raw memory follows from the project's option ``scope``, which is part of the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.scope_keys import has_walls, raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.search.vector_indexes import SEARCHABLE, ProjectIndex, digest, find_complete

# Rows of a scope up to which comparing each takes no longer than a search through an index on vectors.
MOST_COMPARED = 5_000


@dataclass(frozen=True)
class ScopeIndex(ProjectIndex):
    """Index on the scope keys of a project's memories in one table. ``option``: the project's option ``scope``."""

    option: str = NO_WALLS

    # Bytes that a row takes while the index is built.
    row_bytes = 128

    @property
    def prefix(self) -> str:
        """Beginning of the names of a project's indexes on scope keys of a table."""
        return f"{self.table}_scope_{digest(self.project_id.hex)}_"

    @property
    def name(self) -> str:
        """Name of the index in the schema. With another option, the name is another."""
        return f"{self.prefix}{digest(self.option)}"

    @property
    def key(self) -> str:
        """SQL of the scope key of a row, as searches write it."""
        return raw_scope_key(self.option, self.table) if self.table == "task_memories" else "scope_key"

    @property
    def definition(self) -> str:
        """SQL of the method and key of the index."""
        return f"USING btree (({self.key}))"


_COUNT_ROWS = """
    SELECT count(*) FROM (
        SELECT 1 FROM consolidation./* table */
        WHERE /* condition */ AND /* key */ IN (%(scope)s, '') LIMIT %(most)s) rows
"""


def find_scope_indexes(connection: Connection, project_id: UUID, option: str, scope: str) -> Mapping[str, ScopeIndex]:
    """Return the complete indexes on scope keys by table, if a ``scope`` and the empty one have few rows; else none."""
    if not has_walls(option):
        return {}
    complete = find_complete(connection, (ScopeIndex(table, project_id, option) for table in SEARCHABLE))
    for index in complete.values():
        statement = compose(_COUNT_ROWS, table=index.table, condition=index.condition, key=index.key)
        ((rows,),) = fetch_rows(connection, statement, {"scope": scope, "most": MOST_COMPARED + 1})
        if rows > MOST_COMPARED:
            return {}
    return complete
