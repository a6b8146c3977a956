"""Connected stores of a project that is to be deleted, and what it leaves in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.service.sources.stores import read_config
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.sources.source_overview import count_rows
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import list_sources


@dataclass(frozen=True)
class ProjectStore:
    """A connected store. ``hidden``: rows that are hidden there. ``is_written``: a write of it is not undone.

    ``restore``: command that undoes all there without the project; None = nothing was made there, in mode mirror.
    """

    name: str
    hidden: int
    is_written: bool
    restore: str | None

    def describe(self) -> str:
        """Return its name, the number of hidden rows, and the command that shows them again."""
        if not self.is_written:
            return self.name
        rows = counted(self.hidden, "row")
        return (
            f"{self.name} with {rows} hidden there, `consolidation source disconnect {self.name} --restore` shows them"
        )


def list_stores(connection: Connection, project_id: UUID) -> list[ProjectStore]:
    """Return the connected stores of a project."""
    stores = []
    for source in list_sources(connection, project_id):
        hidden = count_rows(connection, source.id).get("hidden", 0)
        is_written = hidden > 0 or bool(list_writes(connection, source.id, ["intended", "written"]))
        command = f"consolidation source restore {read_config(source.config).address}"
        stores.append(ProjectStore(source.name, hidden, is_written, None if source.mode == "mirror" else command))
    return stores


def describe_stores(stores: Sequence[ProjectStore]) -> str:
    """Return the stores as part of a sentence."""
    return "; ".join(store.describe() for store in stores)
