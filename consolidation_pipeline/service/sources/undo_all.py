"""Undo of all that is written in the store of a source, also of what this database does not know any more."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from consolidation_pipeline.connect.store import Conflict
from consolidation_pipeline.service.sources.recovery import hold_source
from consolidation_pipeline.service.sources.stores import open_store
from consolidation_pipeline.service.sources.write_back import undo_writes
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import get_source


def undo_everything(
    engine: Engine, name: str, *, tell: Callable[[str], None] = lambda _: None
) -> dict[UUID, list[Conflict]]:
    """Undo all that is written in a store.

    Besides the writes of the source these are those whose successor the store's program removed or changed, and those
    of earlier connections of the same rows.

    Args:
        tell: Called with each sentence on what came back with other values than before.

    Returns:
        What stands in the way, with the rows that stay hidden, by group; of earlier connections, by write.

    Raises:
        NotFoundError: There is no such source.
        ConflictError: A sync or a write of it is running.
        StoreError: The store cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        known = {write.id: write for write in list_writes(connection, source.id, ["intended", "written", "gone"])}
    is_written = any(write.status != "gone" for write in known.values())
    conflicts = undo_writes(engine, name, tell=tell) if is_written else {}
    with hold_source(engine, source), open_store(source.config, fitting=False) as store:
        for write_id, found in store.undo_open(name).items():
            conflicts[known[write_id].group_id if write_id in known else write_id] = found
    return conflicts
