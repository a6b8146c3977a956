"""Scope walls: a change of the option ``scope`` applied to memories that were consolidated before."""

from __future__ import annotations

from dataclasses import dataclass

from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.similarity.scope_walls import (
    MisplacedMemory,
    dissolve_memories,
    list_misplaced,
    set_scope_keys,
)


@dataclass(frozen=True)
class WallResult:
    """Counts of ``apply_scope_walls``.

    ``dissolved``: consolidated memories and playbook entries made of several scopes. ``shown``: raw memories that are
    active again, as their merged memory was dissolved.
    """

    dissolved: int = 0
    shown: int = 0


def apply_scope_walls(run: ProjectRun) -> WallResult:
    """Dissolve what was made of several scopes, and store the scope of all else.

    It precedes grouping, so that the raw memories are merged anew, each within its scope. All of it is in the ledger.

    Raises:
        ConflictError: A row changed meanwhile. Nothing is written.
    """
    with run.transaction() as connection:
        crossing, others = find_misplaced(connection, run)
        shown = dissolve_memories(connection, run.author, crossing, now=run.now) if crossing else 0
        if others:
            set_scope_keys(connection, run.author, others)
    return WallResult(len(crossing), shown)


def find_misplaced(connection: Connection, run: ProjectRun) -> tuple[list[MisplacedMemory], list[MisplacedMemory]]:
    """Return what is to be dissolved, and what is of one scope with another stored key.

    Without walls, stored keys may stay: searches do not use them.
    """
    found = list_misplaced(connection, run.project.id, scope=run.options.scope)
    others = [row for row in found if not row.is_dissolved and row.scope_key is not None]
    return [row for row in found if row.is_dissolved], others
