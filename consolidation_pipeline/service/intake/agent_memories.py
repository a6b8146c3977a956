"""Single memories: agents add them, read them and give feedback on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline import tracing
from consolidation_pipeline.core.lifecycle.feedback import adjust_importance
from consolidation_pipeline.core.memories.memories import MAX_TIME_AHEAD, NewMemory, invalid_field, memory_id
from consolidation_pipeline.core.memories.row_fields import FIELD_ALIASES, check_characters
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.errors import EmbeddingError, InvalidMemoryError, NotFoundError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.service.intake.free_vectors import embed_if_free
from consolidation_pipeline.service.intake.group_commit import get_group_commit
from consolidation_pipeline.service.intake.importer import (
    BATCH_ROWS,
    CHANGED_CONTENT,
    RowParser,
    find_scope,
    load_reserved_sources,
)
from consolidation_pipeline.service.lifecycle.manual_actions import find_feedback_objection, lock_checked_memories
from consolidation_pipeline.service.lifecycle.memory_edits import MAX_CLAIMED_IMPORTANCE, MemoryEdit
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.similarity.embedding import embed_raw_memories
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import MemoryUpdate, edit_rows
from consolidation_pipeline.store.memories.memories import FEEDBACK_PREFIX, list_feedback, load_memory
from consolidation_pipeline.store.memories.votes import has_rated, set_vote
from consolidation_pipeline.store.projects import Project, get_project

MAX_NOTE_CHARS = 2000
# Fields by which a row names its id.
_ID_FIELDS = ("external_id", FIELD_ALIASES["external_id"])
# Fields by which a row tells its time, in the order in which they are read.
_TIME_FIELDS = ("learned_at", FIELD_ALIASES["learned_at"])
# Fields that an agent sets about its own memory.
_CLAIMS = ("user_id", "agent_id", "session_id", "success", "importance")


@dataclass(frozen=True)
class AddResult:
    """Result of ``add_memories``.

    ``added``, ``existing``: distinct ids of new memories, and of those stored before. ``errors``: (index, message) of
    each bad row. ``ids``: one for each row, in order; None for a bad row.
    """

    added: list[UUID]
    existing: list[UUID]
    errors: list[tuple[int, str]]
    ids: list[UUID | None]


def add_memories(
    engine: Engine,
    slug: str,
    rows: Sequence[Mapping[str, object]],
    *,
    source: str,
    changed_by: str,
    settings: Settings | None = None,
    scope: str | None = None,
    writer: str | None = None,
) -> AddResult:
    """Add memories to an existing project. Good rows are stored even if others are bad.

    Adding is idempotent on (source, id, content). The id of a row without one is derived from its content; if that
    memory has another text by now, as somebody edited it, the row becomes a new memory. Keyword
    search finds the memories at once. Vector search finds them at once if the project's embedding model is free and
    ``settings`` are given, else after the next run.

    Args:
        rows: Rows as in an import.
        source: Source of rows that name none.
        changed_by: Agent of rows that name none.
        settings: Settings that select the embedding model; None = do not embed.
        scope: Scope key that the memories must have, in a project with walls; None = any.
        writer: Agent that the caller proved to be; the rows' user, agent, session, importance and success are its
            claims then. None = an operator.

    Raises:
        NotFoundError: There is no such project.
        UsageError: There are more than ``BATCH_ROWS`` rows.
    """
    if len(rows) > BATCH_ROWS:
        raise UsageError(f"{len(rows):,} memories at once; {BATCH_ROWS:,} are allowed; import a file instead")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        reserved = load_reserved_sources(connection, project)
    with tracing.memory_span("create_memory", slug, {tracing.MEMORY_RECORD_COUNT: len(rows)}):
        parsed, errors = _parse_rows(rows, RowParser(engine, project, source, reserved=reserved), changed_by, writer)
        if scope is not None:
            errors |= _find_other_scopes(parsed, scope, parse_options(project.config).scope)
            parsed = {i: memory for i, memory in parsed.items() if i not in errors}
        vectors, model = ({}, "") if settings is None else embed_if_free(project, parsed, settings)
        added, changed = _store(engine, project, parsed, vectors, model)
        edited = {i: parsed[i] for i in changed if all(rows[i].get(name) in (None, "") for name in _ID_FIELDS)}
        attempts = count(2)
        while edited:
            number = next(attempts)
            named = {i: replace(one, external_id=f"{one.external_id}@{number}") for i, one in edited.items()}
            parsed |= named
            more, left = _store(engine, project, named, vectors, model)
            added |= more
            edited, changed = {i: edited[i] for i in left}, changed - (edited.keys() - left)
        errors |= dict.fromkeys(changed, CHANGED_CONTENT)
        ids = {i: memory_id(slug, row.source, row.external_id) for i, row in parsed.items() if i not in errors}
        if len(rows) == 1 and ids:
            tracing.set_attributes({tracing.MEMORY_RECORD_ID: str(ids[0])})
    distinct = list(dict.fromkeys(ids.values()))
    return AddResult(
        added=[id_ for id_ in distinct if id_ in added],
        existing=[id_ for id_ in distinct if id_ not in added],
        errors=sorted(errors.items()),
        ids=[ids.get(i) for i in range(len(rows))],
    )


def _store(
    engine: Engine, project: Project, memories: Mapping[int, NewMemory], vectors: Mapping[int, Vectors], model: str
) -> tuple[set[UUID], set[int]]:
    """Store memories; return the ids of new ones, and the indices of rows whose id has another text."""
    stored = get_group_commit(engine).append(engine, project, memories, vectors, model)
    return set(stored.ids), set(stored.changed)


def _parse_rows(
    rows: Sequence[Mapping[str, object]], parse_row: RowParser, agent: str, writer: str | None
) -> tuple[dict[int, NewMemory], dict[int, str]]:
    """Return the memories, and the errors of bad rows, by the index of the row."""
    parsed: dict[int, NewMemory] = {}
    errors: dict[int, str] = {}
    latest = datetime.now(UTC) + MAX_TIME_AHEAD
    for i, row in enumerate(rows):
        try:
            memory = parse_row(row)
            if writer is not None and memory.importance > MAX_CLAIMED_IMPORTANCE:
                raise invalid_field("importance", memory.importance, "0 to 1, as an agent wrote it")
            if memory.learned_at is not None and memory.learned_at > latest:
                key = next(name for name in _TIME_FIELDS if row.get(name))
                raise invalid_field(key, row[key], "a time at most one day ahead of now")
            parsed[i] = replace(memory, agent_id=memory.agent_id or agent, writer=writer or memory.writer)
        except InvalidMemoryError as error:
            errors[i] = str(error)
    return parsed, errors


def _find_other_scopes(memories: Mapping[int, NewMemory], scope: str, option: str) -> dict[int, str]:
    """Return the error of each memory that is not of ``scope`` by the project's option, by the index of its row."""
    if option == NO_WALLS:
        return {}
    keys = {i: find_scope(memory, option) for i, memory in memories.items()}
    return {
        i: f"it is of scope {key!r}: this key adds memories of scope {scope!r} only, made of {option}"
        for i, key in keys.items()
        if key != scope
    }


def embed_edited(engine: Engine, edit: MemoryEdit, *, settings: Settings) -> None:
    """Embed the new text of an edited memory, so that search finds it by meaning, if its project's model is free."""
    if not edit.changed:
        return
    with engine.connect() as connection:
        project = get_project(connection, edit.project)
    model = effective_options(project, settings).embedding_model
    if is_local(model):
        with suppress(EmbeddingError):  # The next run reports a memory that cannot be embedded.
            embed_raw_memories(engine, load_embedder(model), [edit.id])


def get_memory(engine: Engine, id: UUID) -> dict[str, Any]:
    """Return a raw or consolidated memory with all columns but its vector.

    Further keys: ``project``, ``kind``, ``level``, ``status`` (active, merged, archived, superseded, retired),
    ``successor`` (the memory that replaced it, or None), and ``feedback_given``, newest first, as far back as the
    ledger is kept. A raw memory also has ``claimed``: the fields that an agent set about its own memory.

    Raises:
        NotFoundError: There is no such memory.
    """
    with engine.connect() as connection:
        found = load_memory(connection, id)
        if found is None:
            raise NotFoundError(f"there is no memory {id}")
        found["feedback_given"] = [dict(row._mapping) for row in list_feedback(connection, id)]
    if found["kind"] == "raw":
        found["claimed"] = [name for name in _CLAIMS if found["writer"] and found[name] is not None]
    return found


def give_feedback(
    engine: Engine,
    id: UUID,
    *,
    helpful: bool | None,
    note: str | None = None,
    changed_by: str,
    voter: str | None = None,
) -> dict[str, Any]:
    """Record that a memory helped or did not: move its importance by one step, and vote. Its text does not change.

    The change is a group of its own, which can be rolled back. The same rating of one voter on the same day moves the
    importance once.

    Args:
        helpful: True or False; None = a note only, which leaves the importance as it is.
        note: Text for the ledger.
        changed_by: Author for the ledger.
        voter: Whose vote it is, see ``Principal.identify_voter``; None = ``changed_by``.

    Raises:
        NotFoundError: There is no such memory.
        UsageError: Both ``helpful`` and ``note`` are missing, or the note is too long.
        ConflictError: The memory is archived, hidden in a merged memory or superseded; the message names the successor.
    """
    reason = _format_reason(helpful, note)
    group, voter, today = uuid4(), voter or changed_by, datetime.now(UTC).date()
    with engine.begin() as connection:
        memory = lock_checked_memories(connection, [id], find_feedback_objection)[0]
        importance = memory.importance
        if helpful is not None:
            if not has_rated(connection, id, voter=voter, day=today, helpful=helpful):
                importance = adjust_importance(memory.importance, helpful=helpful)
            set_vote(connection, id, voter=voter, day=today, helpful=helpful, group_id=group)
        author, update = Author(memory.project_id, None, changed_by), MemoryUpdate(id, memory.version, group, reason)
        edit_rows(connection, author, memory.table, [update], values={"importance": importance})
    return {
        "id": id,
        "project": memory.project,
        "kind": memory.kind,
        "helpful": helpful,
        "note": note,
        "importance_before": memory.importance,
        "importance": importance,
        "group_id": group,
    }


def _format_reason(helpful: bool | None, note: str | None) -> str:
    """Return the reason for the ledger. Raises UsageError if there is no feedback, or the note is too long."""
    stripped = (note or "").strip()
    if helpful is None and not stripped:
        raise UsageError("the feedback is empty: give helpful as true or false, or a note")
    if len(stripped) > MAX_NOTE_CHARS:
        raise UsageError(f"the note has {len(stripped):,} characters; {MAX_NOTE_CHARS:,} are allowed")
    check_characters("note", stripped)
    verdict = {True: "helpful", False: "not helpful", None: "note"}[helpful]
    return FEEDBACK_PREFIX + verdict + (f": {stripped}" if stripped else "")
