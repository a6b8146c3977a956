"""Which project something belongs to: what the doors ask before they let a key at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from consolidation_pipeline.store import projects as store
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import Project


def find_project(engine: Engine, reference: str) -> Project:
    """The project with this slug or, where none has it, this id. Raises NotFoundError."""
    with autocommit_connection(engine) as connection:
        return store.find_project(connection, reference)


def find_owners(engine: Engine, ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
    """The ids of the projects that rows belong to: memories, playbook entries, suggestions, jobs, changes, groups.

    What is not there is left out.
    """
    with autocommit_connection(engine) as connection:
        return store.load_project_ids(connection, ids)
