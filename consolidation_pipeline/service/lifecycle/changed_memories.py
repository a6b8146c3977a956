"""Memories that a person or an agent changes: who may do so, and what goes out of use with what they said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.errors import ForbiddenError, NotFoundError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.lifecycle.manual_actions import check_archive_reason
from consolidation_pipeline.service.lifecycle.named_memories import check_reason, find_named
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.quarantine import (
    OwnedMemory,
    Quarantine,
    SuspectMemory,
    list_affected,
    list_hidden,
    list_kept,
)
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.revisions import StoredRevision, load_revisions
from consolidation_pipeline.store.projects import Project


@dataclass(frozen=True)
class Editor:
    """Limits of who edits or deletes.

    ``writer``: only memories that this writer wrote; None = any. ``scope``: only memories of this scope; None = any.
    """

    writer: str | None = None
    scope: str | None = None


# May change all memories.
ANY_EDITOR = Editor()


def check_reasons(reason: str | None) -> None:
    """Raise UsageError if a reason is too long for the ledger, or may not be that of an archive."""
    check_reason(reason)
    check_archive_reason(reason)


def find_all(engine: Engine, ids: Sequence[UUID]) -> tuple[Project, dict[UUID, OwnedMemory]]:
    """Return memories by id, and their project."""
    if not ids:
        raise UsageError("name the memories: give at least one id")
    with engine.connect() as connection:
        return find_named(connection, ids)


def load_allowed(
    connection: Connection, project: Project, ids: Sequence[UUID], editor: Editor
) -> dict[UUID, StoredRevision]:
    """Return raw memories that somebody may change. Raise NotFoundError or ForbiddenError for another one."""
    option = parse_options(project.config).scope
    stored = load_revisions(connection, project.id, ids, scope=option)
    for id_ in ids:
        found = stored.get(id_)
        if found is None or (editor.scope is not None and found.scope_key not in (None, editor.scope)):
            raise NotFoundError(f"there is no memory {id_}")
        if editor.writer is not None and found.writer != editor.writer:
            raise ForbiddenError(
                f"memory {id_} was written by another: an agent's key changes what it wrote, an admin any"
            )
    return stored


def find_derived(
    connection: Connection, project_id: UUID, suspects: Sequence[SuspectMemory], *, roots: Collection[UUID] = ()
) -> Quarantine:
    """Return what is derived from raw memories, and from consolidated ones (``roots``) that are gone already."""
    ids = [memory.id for memory in suspects]
    kept = [row for row in list_kept(connection, project_id, ids) if row.id not in roots]
    affected = [row for row in list_affected(connection, project_id, [*roots, *ids], kept=kept) if row.id not in roots]
    return Quarantine(suspects, affected, list_hidden(connection, affected, suspects), kept)


def tell_out_of_use(connection: Connection, author: Author, rows: Quarantine, group_id: UUID) -> dict[str, int]:
    """Tell readers of the playbook that it changed; return the number of derived rows by kind."""
    totals = dict(Counter(row.kind for row in rows.affected))
    if "playbook" in totals:
        payload = {"group_id": str(group_id), "out_of_use": totals["playbook"]}
        append_event(connection, author.project_id, "playbook.changed", payload)
    return totals
