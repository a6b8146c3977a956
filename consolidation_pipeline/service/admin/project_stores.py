"""Connected stores of a project: what its options may not mix, and what its deletion leaves in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import parse_scope
from consolidation_pipeline.service.sources.stores import read_config
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.projects import Project
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


def check_scope(connection: Connection, project: Project, config: Mapping[str, Any]) -> None:
    """Raise InvalidOptionError if new options of a project would mix memories that a connected store keeps apart.

    Args:
        config: All options that the project would have.
    """
    scope = parse_options(config).scope
    # Another stored option may not be allowed any more, and be what is set here.
    before = parse_options({name: value for name, value in project.config.items() if name == "scope"}).scope
    if scope == before:
        return
    for source in list_sources(connection, project.id):
        missing = [name for name in read_config(source.config).scope_names if name not in parse_scope(scope)]
        if missing:
            raise InvalidOptionError(
                f"scope = {scope} would mix memories that source {source.name} keeps apart by {', '.join(missing)}: "
                "disconnect it, and connect it by its name with --scope for what is to stay apart"
            )


def describe_stores(stores: Sequence[ProjectStore]) -> str:
    """Return the stores as part of a sentence."""
    return "; ".join(store.describe() for store in stores)
