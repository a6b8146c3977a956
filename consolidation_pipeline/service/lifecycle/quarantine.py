"""Quarantine: take the memories of a writer out of use, with everything that was derived from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import MANUAL_REASON
from consolidation_pipeline.service.lifecycle.named_memories import check_reason, find_named
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.scope_keys import QUARANTINED
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.quarantine import (
    AffectedRow,
    Quarantine,
    list_affected,
    list_hidden,
    list_suspects,
    write_quarantine,
)
from consolidation_pipeline.store.knowledge.quarantine import WriterFilter as WriterFilter
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import Project, find_project


@dataclass(frozen=True)
class Affected:
    """A row that a quarantine changes. ``effect``: what happens to it, in words."""

    id: UUID
    kind: str
    effect: str
    content: str


@dataclass(frozen=True)
class BlastRadius:
    """Memories and derived rows that a quarantine takes out of use.

    ``memories``: raw memories that meet the filter. ``shown_again``: number of other raw memories that are active
    again, as their merged memory is dissolved. ``totals``: number of affected rows by kind. ``affected``: these rows,
    lowest level first.
    """

    project: str
    memories: Sequence[UUID]
    shown_again: int
    totals: Mapping[str, int]
    affected: Sequence[Affected]


@dataclass(frozen=True)
class QuarantineResult(BlastRadius):
    """A quarantine that was carried out. A rollback of ``group_id`` releases it."""

    group_id: UUID


def find_blast_radius(engine: Engine, where: WriterFilter, *, project: str | None = None) -> BlastRadius:
    """Return what ``quarantine`` would take out of use. Nothing is written; the errors are the same."""
    with engine.connect() as connection:
        owner = _find_project(connection, where, project)
        return _describe(owner, _load_rows(connection, owner, where))


def quarantine(
    engine: Engine, where: WriterFilter, *, project: str | None = None, reason: str | None = None, changed_by: str
) -> QuarantineResult:
    """Take raw memories out of use, and undo everything that was derived from them, as one group of changes.

    Search, context and grouping do not see them any more, pinned or not. The next run derives knowledge again from what
    is left. A rollback of the group releases all of it.

    Args:
        where: The memories, by id or by writer.
        project: Slug or id; may be left out with ids.
        reason: Reason for the ledger and the archive.
        changed_by: Author for the ledger.

    Raises:
        UsageError: The filter is empty, its ids are of several projects or no raw memories, or it needs a project.
        NotFoundError: There is no such project or memory.
        ConflictError: No memory meets the filter, or all that do are in quarantine.
        ProjectBusyError: A run or a rollback holds the project.
    """
    reason = (reason or MANUAL_REASON).strip()
    check_reason(reason)
    with engine.connect() as connection:
        owner = _find_project(connection, where, project)
    group_id = uuid4()
    with hold_project(engine, owner), engine.begin() as connection:
        lock_active_keys(connection, [owner.id])
        rows = _load_rows(connection, owner, where)
        author = Author(owner.id, None, changed_by)
        archived = f"{QUARANTINED}{reason}"
        write_quarantine(connection, author, rows, group_id=group_id, reason=archived, now=datetime.now(UTC))
        if entries := sum(row.kind == "playbook" for row in rows.affected):
            append_event(connection, owner.id, "playbook.changed", {"group_id": str(group_id), "quarantined": entries})
    return QuarantineResult(**vars(_describe(owner, rows)), group_id=group_id)


def _find_project(connection: Connection, where: WriterFilter, reference: str | None) -> Project:
    """Return the project of the filter. Raise the errors of ``quarantine`` that concern ids and project."""
    by_writer = (where.agent_id, where.session_id, where.user_id, where.key_id)
    if not where.ids and all(value is None for value in by_writer):
        raise UsageError("name what to take out of use: ids of memories, or an agent, a session, a user or a key")
    if any(value is not None and not str(value).strip() for value in by_writer):
        raise UsageError("an agent, session or user must not be blank: that would be all memories without one")
    if not where.ids:
        if reference is None:
            raise UsageError("name the project whose memories are meant: an agent or session may be in several")
        return find_project(connection, reference)
    owner, found = find_named(connection, where.ids, reference)
    for id_ in where.ids:
        if (kind := found[id_].kind) != "raw":
            raise UsageError(f"{id_} is of kind {kind}: give raw memories; `consolidation lineage {id_}` lists its own")
    return owner


def _load_rows(connection: Connection, project: Project, where: WriterFilter) -> Quarantine:
    suspects = list_suspects(connection, project.id, where)
    if not suspects:
        raise ConflictError(f"no memory of {project.slug} meets this, or all that do are in quarantine already")
    affected = list_affected(connection, project.id, [memory.id for memory in suspects])
    return Quarantine(suspects, affected, list_hidden(connection, affected, suspects))


def _describe(project: Project, rows: Quarantine) -> BlastRadius:
    return BlastRadius(
        project=project.slug,
        memories=[memory.id for memory in rows.suspects],
        shown_again=len(rows.shown),
        totals=dict(Counter(row.kind for row in rows.affected)),
        affected=[Affected(row.id, row.kind, _describe_effect(row), row.content) for row in rows.affected],
    )


_EFFECTS = {
    "merged": "dissolved: its other memories are active again",
    "summary": "retired: the next run writes it again from its other memories",
    "suggestion": "withdrawn",
    "relation": "rejected",
}


def _describe_effect(row: AffectedRow) -> str:
    if row.kind != "playbook":
        return _EFFECTS.get(row.kind, "retired: the next run derives it again without them")
    if row.is_derived:
        return "retired: the next run proposes it again without them"
    left = "1 memory" if len(row.evidence) == 1 else f"{len(row.evidence)} memories"
    return f"keeps the evidence of {left}"
