"""Rows that people name by the first digits of their ids. Memories: ``service.undo.lineage.find_memory_id``."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.id_lookup import find_row_ids


@dataclass(frozen=True)
class NamedTable:
    """Table whose rows people name: what a row is called, and the command that lists them."""

    name: str
    noun: str
    command: str


JOBS = NamedTable("consolidation_jobs", "job", "consolidation history PROJECT")
KEYS = NamedTable("api_keys", "key", "consolidation keys list")
RELATIONS = NamedTable("memory_relations", "relation", "consolidation relations list PROJECT")
SUGGESTIONS = NamedTable("consolidation_suggestions", "suggestion", "consolidation suggestions list PROJECT")


def find_row_id(engine: Engine, table: NamedTable, reference: str) -> UUID:
    """Return the id of a row. Whether a whole id exists is not checked.

    Args:
        table: One of the tables of this module.
        reference: The id, or at least its first 8 hexadecimal digits.

    Raises:
        UsageError: The reference is no id, or several ids begin with it.
        NotFoundError: No id begins with it.
    """
    first, last = find_bounds(reference, f"is no id of a {table.noun}: give one of `{table.command}`, or")
    if first == last:
        return first
    with engine.connect() as connection:
        found = find_row_ids(connection, table.name, first, last)
    return choose_id(reference, found, f"no {table.noun} has an id that begins with {reference}; see `{table.command}`")
