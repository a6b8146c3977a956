"""Rehearsal of a write: each group is written in the store, searched for, and taken back in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.sources.recall_gate import (
    RecallError,
    check_texts,
    make_group,
    read_rows,
    write_checked,
)
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.service.sources.write_plan import PlannedWrite
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.sources import get_source


@dataclass(frozen=True)
class Rehearsed:
    """Outcome of one group.

    ``refusal``: why a write would refuse it; None = it would be written. ``found``: where the store's own search finds
    the successor. ``links``: rows of other tables that would link to it.
    """

    refusal: str | None = None
    found: str | None = None
    links: int = 0


def rehearse_writes(
    engine: Engine, name: str, planned: Sequence[PlannedWrite], *, copy_url_env: str | None = None
) -> dict[UUID, Rehearsed]:
    """Try groups one by one, and leave nothing behind. Rows are locked for the milliseconds that a group takes.

    Needs the rights of a write, in every mode: the tables are changed, and the changes rolled back.

    Args:
        copy_url_env: Variable with the URL of a copy of the store's database, in which to try; None = the store itself.

    Returns:
        The outcome by merged memory.

    Raises:
        NotFoundError: There is no such source.
        UsageError: This user may not create the sidecar, the copy has not the tables of the store, or the store is a
            folder, in which nothing can be tried.
        StoreError: The database cannot be reached, or refuses a change.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        project = get_project(connection, source.project)
    outcomes = {}
    with open_store({**source.config, "url_env": copy_url_env} if copy_url_env else source.config) as store:
        embedder = StoreEmbedder(engine, project, read_config(source.config), store)
        with store.transaction(discard=True):
            pass  # Refused as a whole where nothing can be tried.
        for plan in planned:
            try:
                rows = read_rows(store, plan)
                check_texts(engine, source, plan, rows)
                group = make_group(store, plan, rows, embedder, uuid4())
                with store.transaction(discard=True):
                    receipt, places = write_checked(store, name, group, rows)
                outcomes[plan.memory_id] = Rehearsed(found=places.describe(), links=receipt.links)
            except (ConflictError, RecallError, UsageError) as error:
                outcomes[plan.memory_id] = Rehearsed(refusal=str(error))
    return outcomes
