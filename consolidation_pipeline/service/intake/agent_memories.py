"""Memories one by one: agents add them, read them back and say whether they helped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline import tracing
from consolidation_pipeline.core.lifecycle.feedback import weigh_feedback
from consolidation_pipeline.core.memories.memories import NewMemory, memory_id
from consolidation_pipeline.core.memories.row_fields import check_characters
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.errors import EmbeddingError, InvalidMemoryError, NotFoundError, UsageError
from consolidation_pipeline.service.intake.importer import BATCH, CHANGED, RowReader
from consolidation_pipeline.service.lifecycle.manual_actions import lock_fit, unfit_to_weigh
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.similarity.embedding import embed_raw_memories
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import MemoryUpdate, set_importance
from consolidation_pipeline.store.memories.memories import FEEDBACK_PREFIX, append_memories, list_feedback, load_memory
from consolidation_pipeline.store.projects import Project, get_project

MAX_NOTE_CHARS = 2000


@dataclass(frozen=True)
class Added:
    """What became of rows: ids that are new, ids that were there before, and (index, message) of the bad rows.

    ``ids`` has one for each row, in their order, None for a bad one.
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
) -> Added:
    """Add memories, written as rows of an import are, to a project that exists; bad rows keep no good one out.

    Idempotent on (source, id, content); a row without an id has one that follows from all it says. A memory that names
    no agent is that of ``changed_by``. Words find it at once; meaning does so too where ``settings`` are given and the
    project's embedding model is free, else after the next run.

    Raises:
        NotFoundError: no such project. UsageError: more rows than one call takes.
    """
    if len(rows) > BATCH:
        raise UsageError(f"{len(rows):,} memories at once; {BATCH:,} are allowed, or import a file")
    with engine.connect() as connection:
        project = get_project(connection, slug)
    with tracing.memory_span("create_memory", slug, {tracing.MEMORY_RECORD_COUNT: len(rows)}):
        added = _add(engine, project, rows, source=source, changed_by=changed_by, settings=settings)
        if len(rows) == 1 and added.ids[0] is not None:
            tracing.set_attributes({tracing.MEMORY_RECORD_ID: str(added.ids[0])})
    return added


def _add(
    engine: Engine,
    project: Project,
    rows: Sequence[Mapping[str, object]],
    *,
    source: str,
    changed_by: str,
    settings: Settings | None,
) -> Added:
    slug = project.slug
    read, errors = _read(rows, RowReader(engine, project, source), changed_by)
    with engine.begin() as connection:
        stored = append_memories(connection, project.id, slug, read.items())
    errors |= dict.fromkeys(stored.changed, CHANGED)
    ids = {at: memory_id(slug, one.source, one.external_id) for at, one in read.items() if at not in errors}
    if settings is not None and stored.ids:
        _embed_where_free(engine, project, list(stored.ids), settings)
    kept = list(dict.fromkeys(ids.values()))
    return Added(
        added=[id_ for id_ in kept if id_ in stored.ids],
        existing=[id_ for id_ in kept if id_ not in stored.ids],
        errors=sorted(errors.items()),
        ids=[ids.get(at) for at in range(len(rows))],
    )


def _read(
    rows: Sequence[Mapping[str, object]], read_row: RowReader, agent: str
) -> tuple[dict[int, NewMemory], dict[int, str]]:
    """Memories, and what is wrong with a row, by its index."""
    read: dict[int, NewMemory] = {}
    errors: dict[int, str] = {}
    for at, row in enumerate(rows):
        try:
            memory = read_row(row)
            read[at] = memory if memory.agent_id else replace(memory, agent_id=agent)
        except InvalidMemoryError as error:
            errors[at] = str(error)
    return read, errors


def _embed_where_free(engine: Engine, project: Project, ids: Sequence[UUID], settings: Settings) -> None:
    model = effective_options(project, settings).embedding_model
    if not is_local(model):
        return
    try:
        embed_raw_memories(engine, load_embedder(model), ids)
    except EmbeddingError:
        return  # the memories are kept; the next run says which of them cannot be embedded


def get_memory(engine: Engine, id: UUID) -> dict[str, Any]:
    """A raw or consolidated memory with everything but its vector.

    Among it ``project``, ``project_id``, ``kind``, ``level``, ``status`` (active, merged, archived, superseded,
    retired), ``successor`` (the memory that stands in its place, or None), ``version``, and ``feedback_given``: what
    was said of it, newest first, as far as the ledger reaches back.

    Raises:
        NotFoundError: there is no such memory.
    """
    with engine.connect() as connection:
        found = load_memory(connection, id)
        if found is None:
            raise NotFoundError(f"there is no memory {id}")
        return {**found, "feedback_given": [dict(row._mapping) for row in list_feedback(connection, id)]}


def give_feedback(
    engine: Engine, id: UUID, *, helpful: bool | None, note: str | None = None, changed_by: str
) -> dict[str, Any]:
    """Say that a memory helped, or did not: its importance moves a step, its text stays as it is.

    ``note`` stands in the ledger, beside who said it; it may come alone, and then moves nothing. The change is a group
    of its own, which a rollback undoes.

    Raises:
        NotFoundError: there is no such memory. UsageError: nothing is said, or too much. ConflictError: the memory is
        archived, hidden in a merged memory or superseded; the message names what stands in its place.
    """
    words = _check_note(helpful, note)
    group = uuid4()
    with engine.begin() as connection:
        memory = lock_fit(connection, [id], unfit_to_weigh)[0]
        importance = weigh_feedback(memory.importance, helpful=helpful)
        author, mark = Author(memory.project_id, None, changed_by), MemoryUpdate(id, memory.version, group, words)
        set_importance(connection, author, memory.table, [mark], importance=importance)
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


def _check_note(helpful: bool | None, note: str | None) -> str:
    """The words for the ledger. Raises UsageError."""
    said = (note or "").strip()
    if helpful is None and not said:
        raise UsageError("the feedback says nothing: give helpful as true or false, or a note")
    if len(said) > MAX_NOTE_CHARS:
        raise UsageError(f"the note has {len(said):,} characters; {MAX_NOTE_CHARS:,} are allowed")
    check_characters("note", said)
    verdict = {True: "helpful", False: "not helpful", None: "note"}[helpful]
    return FEEDBACK_PREFIX + verdict + (f": {said}" if said else "")
