"""Choice of the rows that a sync compares: what the store told of, or all."""

from __future__ import annotations

from dataclasses import replace

from consolidation_pipeline.connect.store import Changes, MemoryStore
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import list_refused_keys
from consolidation_pipeline.store.sources.sources import Source, count_keys, list_keys

# States of rows that are in the store.
PRESENT = ("mirrored", "refused", "successor")


def read_changes(engine: Engine, source: Source, store: MemoryStore) -> Changes:
    """Return what is to be compared: what the store told of, and the rows of groups that were refused since."""
    if source.mode == "mirror":  # What the trigger of another source tells of the table is for that one.
        return Changes()
    with engine.connect() as connection:
        erased = list_keys(connection, source.id, ["erased"])
    changes = store.read_changes(erased)
    if source.synced_at is None or changes.keys is None:
        return replace(changes, keys=None, reason=changes.reason if source.synced_at else None)
    with engine.connect() as connection:
        known = count_keys(connection, source.id, PRESENT, without=[*changes.keys, *changes.pending])
        refused = list_refused_keys(connection, source.id, since=source.synced_at)
    if changes.others not in (None, known):
        reason = f"{known:,} other memories were known, and {changes.others:,} are there"
        return replace(changes, keys=None, reason=reason)
    return replace(changes, keys=list(dict.fromkeys([*changes.keys, *refused])))
