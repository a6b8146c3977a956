"""Edits of memories: through the ledger, with all that was derived from them, so that they can be undone.

An edit of a raw memory's text or type is a revision. The ledger has the old text. What was derived from it goes out of
use, its vector and hashes are made anew, and the next run derives the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, invalid_field, normalized_hash
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.service.lifecycle.changed_memories import (
    ANY_EDITOR,
    Editor,
    check_reasons,
    find_all,
    find_derived,
    load_allowed,
    tell_out_of_use,
)
from consolidation_pipeline.service.lifecycle.manual_actions import MANUAL_REASON
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.scope_keys import REVISED
from consolidation_pipeline.store.knowledge.quarantine import WriterFilter, list_suspects, write_revisions
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import MemoryUpdate, edit_rows, lock_memories
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns
from consolidation_pipeline.store.memories.revisions import StoredRevision, delete_groups_of, load_revisions
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.sources.sources import find_mirrored

# An agent may say that a memory matters, and not that it matters more than any other.
MAX_CLAIMED_IMPORTANCE = 1.0
# Field of an edit -> its column. All but the texts keep what was derived.
EDITABLE = {
    "content": "execution_summary",
    "goal": "goal",
    "result": "result",
    "feedback": "feedback",
    "lessons_learned": "lessons_learned",
    "memory_type": "memory_type",
    "tags": "tags",
    "files": "files",
    "success": "success",
    "importance": "importance",
}
# What a run derives depends on these.
_DERIVING = {*TEXT_COLUMNS, "memory_type"}
# An import tells these about a memory; its importance and success may have changed since.
_IMPORTED = (*TEXT_COLUMNS, "memory_type", "tags", "files", "metadata", "language")


@dataclass(frozen=True)
class MemoryEdit:
    """Result of an edit. ``changed``: names of the fields that are new; empty if nothing was to be changed.

    ``derived``: number of rows by kind that went out of use, as they were made of the old text. ``version``: of the
    memory now. A rollback of ``group_id`` brings the old text back, and what was made of it.
    """

    id: UUID
    project: str
    changed: Sequence[str]
    derived: Mapping[str, int]
    version: int
    group_id: UUID | None


@dataclass(frozen=True)
class Revised:
    """Result of many revisions: the memories that changed, and the group that undoes it, None if none did."""

    ids: Sequence[UUID] = field(default=())
    group_id: UUID | None = None


def edit_memory(
    engine: Engine,
    id: UUID,
    fields: Mapping[str, object],
    *,
    changed_by: str,
    reason: str | None = None,
    version: int | None = None,
    editor: Editor = ANY_EDITOR,
) -> MemoryEdit:
    """Change fields of a raw memory.

    If its text or type changes, what was derived from it goes out of use until the next run, which derives it again;
    other memories that were merged with it are active again. A field that is None is emptied.

    Args:
        engine: The store.
        id: The memory.
        fields: New values by name of ``EDITABLE``.
        changed_by: Author for the ledger.
        reason: Reason for the ledger.
        version: Version that the caller saw; None = do not compare.
        editor: What the caller may edit.

    Raises:
        NotFoundError: There is no such memory, or it is of another scope.
        ForbiddenError: Another writer wrote it.
        UsageError: It is a consolidated memory, or there is no such field.
        InvalidMemoryError: A value is not allowed.
        ConflictError: It is archived or deleted, has another version, or copies its text from a connected store.
        ProjectBusyError: A run or a rollback holds the project.
    """
    check_reasons(reason)
    unknown = sorted(set(fields) - set(EDITABLE))
    if unknown or not fields:
        what = f"{unknown[0]} cannot be edited" if unknown else "nothing is to be edited"
        raise UsageError(f"{what}; the fields are {', '.join(EDITABLE)}")
    project = _find_project_of(engine, id)

    def revise(stored: StoredRevision) -> dict[str, Any]:
        if version not in (None, stored.version):
            raise ConflictError(
                f"memory {id} is at version {stored.version}, not {version}: read it again before you edit it",
                (str(id),),
            )
        values = _read_values(stored, fields)
        if editor.writer is not None and values.get("importance", 0) > MAX_CLAIMED_IMPORTANCE:
            raise invalid_field("importance", values["importance"], "0 to 1, as an agent wrote it")
        return values

    done = _write(engine, project, {id: revise}, changed_by=changed_by, reason=reason, editor=editor)
    with engine.connect() as connection:
        now = load_revisions(connection, project.id, [id], scope=NO_WALLS)[id]
    names = [name for name, column in EDITABLE.items() if column in done.changed]
    return MemoryEdit(id, project.slug, names, done.derived, now.version, done.group_id)


def revise_memories(
    engine: Engine,
    project: Project,
    revisions: Mapping[UUID, NewMemory],
    *,
    changed_by: str,
    reason: str | None = None,
) -> Revised:
    """Give raw memories the text, type, tags, files, metadata and language of an import, as one change.

    What was derived from those that changed goes out of use until the next run. Importance and success stay: people and
    agents may have changed them.

    Raises:
        NotFoundError: One of the memories does not exist in the project.
        ConflictError: One of them is archived or deleted.
        ProjectBusyError: A run or a rollback holds the project.
    """

    def read(memory: NewMemory) -> Callable[[StoredRevision], dict[str, Any]]:
        values = {name: getattr(memory, name) for name in _IMPORTED}
        return lambda _: {**values, "tags": list(memory.tags), "files": sorted(memory.files)}

    done = _write(
        engine,
        project,
        {id_: read(memory) for id_, memory in revisions.items()},
        changed_by=changed_by,
        reason=reason,
        editor=ANY_EDITOR,
        mirrored=True,
    )
    return Revised(done.ids, done.group_id)


@dataclass(frozen=True)
class _Written:
    """Result of a write: the columns and the memories that are new, and the derived rows out of use by kind."""

    changed: frozenset[str]
    ids: Sequence[UUID]
    derived: Mapping[str, int]
    group_id: UUID | None


def _write(
    engine: Engine,
    project: Project,
    revisions: Mapping[UUID, Callable[[StoredRevision], dict[str, Any]]],
    *,
    changed_by: str,
    reason: str | None,
    editor: Editor,
    mirrored: bool = False,
) -> _Written:
    """Write new values of raw memories as one group of changes; memories whose values are the stored ones stay.

    ``mirrored``: copies of rows of connected stores may change too.
    """
    group_id, author = uuid4(), Author(project.id, None, changed_by)
    with hold_project(engine, project), engine.begin() as connection:
        lock_active_keys(connection, [project.id])
        lock_memories(connection, list(revisions))
        stored = _load_editable(connection, project, list(revisions), editor)
        new = {id_: _find_changes(stored[id_], revise(stored[id_])) for id_, revise in revisions.items()}
        new = {id_: values for id_, values in new.items() if values}
        if not new:
            return _Written(frozenset(), (), {}, None)
        columns = frozenset(name for values in new.values() for name in values)
        rows = {id_: {name: new[id_].get(name, stored[id_].values[name]) for name in sorted(columns)} for id_ in new}
        revised = [id_ for id_ in new if _DERIVING & set(new[id_])]
        if not mirrored:
            _reject_mirrored(connection, revised)
        for id_ in revised:
            rows[id_] |= _derive_columns(stored[id_].values | new[id_])
        derived = _revise(connection, author, rows, revised, group_id=group_id, reason=reason)
        kept = [id_ for id_ in new if id_ not in revised]
        for id_ in kept:
            update = MemoryUpdate(id_, stored[id_].version, group_id, reason)
            edit_rows(connection, author, "task_memories", [update], values=rows[id_])
    return _Written(columns, sorted(new), derived, group_id)


def _reject_mirrored(connection: Connection, ids: Sequence[UUID]) -> None:
    """Raise ConflictError if one of these memories is the copy of a row: its store would go on saying the old text."""
    found = find_mirrored(connection, ids)
    if found is not None:
        raise ConflictError(
            f"memory {found.memory_id} is the copy of row {found.key} of source {found.name}: change the row in its "
            f"store, and `consolidation source sync {found.name}` brings it",
            (str(found.memory_id),),
        )


def _load_editable(
    connection: Connection, project: Project, ids: Sequence[UUID], editor: Editor
) -> dict[UUID, StoredRevision]:
    """Return the memories. Raise the errors of ``edit_memory`` that concern what may be edited."""
    stored = load_allowed(connection, project, ids, editor)
    for id_ in ids:
        if stored[id_].is_deleted:
            raise ConflictError(f"memory {id_} is deleted or in quarantine: undo that first", (str(id_),))
        if stored[id_].is_archived:
            raise ConflictError(f"memory {id_} is archived: restore it first", (str(id_),))
    return stored


def _read_values(stored: StoredRevision, fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the columns of an edit, checked as an imported row is."""
    now = {name: stored.values[column] for name, column in EDITABLE.items()}
    row = {**now, **fields}
    for name in ("content", "memory_type", "importance"):
        if row[name] is None or not str(row[name]).strip():
            raise invalid_field(name, row[name], "a value: this field cannot be emptied")
    memory = parse_memory({name: value for name, value in row.items() if value is not None}, source="edit")
    values = {EDITABLE[name]: getattr(memory, EDITABLE[name]) for name in fields}
    return {name: sorted(v) if name == "files" else list(v) if name == "tags" else v for name, v in values.items()}


def _find_changes(stored: StoredRevision, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != stored.values[name]}


def _derive_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hashes of the new text, and no vector: the next run embeds it."""
    body = join_text_columns([values[name] for name in TEXT_COLUMNS])
    hashes = {"content_hash": content_hash(body), "normalized_hash": normalized_hash(body)}
    return {**hashes, "embedding": None, "embedding_model": None, "embedding_dim": None}


def _revise(
    connection: Connection,
    author: Author,
    rows: Mapping[UUID, Mapping[str, Any]],
    revised: Sequence[UUID],
    *,
    group_id: UUID,
    reason: str | None,
) -> dict[str, int]:
    """Write memories with new texts or types, and take what was derived from them out of use; count that by kind."""
    if not revised:
        return {}
    suspects = list_suspects(connection, author.project_id, WriterFilter(ids=list(revised)))
    found = find_derived(connection, author.project_id, suspects)
    words = f"{REVISED}{reason or MANUAL_REASON}"
    now = datetime.now(UTC)
    write_revisions(connection, author, found, rows, group_id=group_id, reason=words, now=now)
    delete_groups_of(connection, author.project_id, revised)
    return tell_out_of_use(connection, author, found, group_id)


def _find_project_of(engine: Engine, id: UUID) -> Project:
    """Return the project of a raw memory. Raise UsageError for a consolidated one."""
    project, found = find_all(engine, [id])
    if (kind := found[id].kind) != "raw":
        raise UsageError(
            f"{id} is of kind {kind}, made from other memories: edit one of these (`consolidation lineage {id}` "
            "lists them), and the next run makes it again; or delete it"
        )
    return project
