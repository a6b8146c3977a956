"""Update of all connected stores: sync, then write where the mode says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.sources.connections import list_connected
from consolidation_pipeline.service.sources.sync import SyncResult, sync_source
from consolidation_pipeline.service.sources.write_back import WriteResult, write_source
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.sources import Source


@dataclass(frozen=True)
class SourceUpdate:
    """Result for one source. ``write``: None if its mode is not write. ``error``: why it was not finished."""

    name: str
    project: str
    sync: SyncResult | None = None
    write: WriteResult | None = None
    error: str | None = None


def update_sources(engine: Engine, selects: Callable[[str], bool] = lambda _: True) -> list[SourceUpdate]:
    """Sync the connected stores of the projects that ``selects`` names, one after the other.

    A store that cannot be reached, or a project that a run holds, does not keep the others from being updated.
    """
    return [_update(engine, source) for source in list_connected(engine) if selects(source.project)]


def _update(engine: Engine, source: Source) -> SourceUpdate:
    sync = None
    try:
        sync = sync_source(engine, source.name)
        write = write_source(engine, source.name) if source.mode == "write" else None
    except ConsolidationError as error:
        return SourceUpdate(source.name, source.project, sync, error=str(error))
    return SourceUpdate(source.name, source.project, sync, write)
