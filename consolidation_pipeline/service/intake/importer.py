"""Import of memories in batches. Good rows are stored; bad rows are listed and written to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.differences.language_detection import detect_configuration
from consolidation_pipeline.core.memories.memories import NewMemory, check_memory_type, invalid_field, memory_id
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.embed.local import DIMENSION, LOCAL_MODEL
from consolidation_pipeline.errors import ConflictError, InvalidMemoryError, NotFoundError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import COLUMNS, NO_WALLS, make_scope_key
from consolidation_pipeline.service.intake.free_vectors import embed_if_free
from consolidation_pipeline.service.intake.readers.formats import default_source, read_rows
from consolidation_pipeline.service.intake.readers.rows import BadRow, Item, Remark
from consolidation_pipeline.service.lifecycle.memory_edits import revise_memories
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Vectors, to_ids
from consolidation_pipeline.store.memories.import_marks import load_import_marks
from consolidation_pipeline.store.memories.memories import (
    GivenVectors,
    append_encoded,
    count_repeats_apart,
    encode_memory,
)
from consolidation_pipeline.store.projects import Project, create_project, get_project
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension
from consolidation_pipeline.store.sources.sources import list_sources

# Rows per transaction: large enough for COPY to be fast, small enough for memory.
BATCH_ROWS = 5000

CHANGED_CONTENT = "its id was stored before with other content; raw memories are never rewritten, so give it a new id"
OTHER_FOLDER = (
    "it was stored before with another text, from the folder {}; give this folder a name of its own by --source"
)


@dataclass
class ImportResult:
    """Result of an import: numbers of added rows and of rows stored before, the bad rows, and their file, if any.

    ``scope``: the project's option. ``scopes``: scopes of the good rows. ``repeats_apart``: texts that the project's
    scopes have in common, counted once for each scope after the first: they are not merged. ``revised``: memories that
    got the new text of their file. ``remarks``: what was skipped, and why. ``left_empty``: the project was created, and
    no row was good.
    """

    project: str
    source: str
    scope: str = NO_WALLS
    scopes: int = 0
    repeats_apart: int = 0
    added: int = 0
    unchanged: int = 0
    revised: int = 0
    remarks: list[Remark] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    rejects: Path | None = None
    left_empty: bool = False


def import_memories(
    engine: Engine,
    slug: str,
    path: str,
    *,
    format: str,
    source: str | None = None,
    default_type: str = "learning",
    scope: str | None = None,
    rejects_dir: Path | None = None,
    settings: Settings | None = None,
    progress: Callable[[ImportResult], None] = lambda _: None,
) -> ImportResult:
    """Import a file or a repository into a project, which is created if it is missing.

    The import streams. Each batch is a transaction, so a repeated import continues after the last stored batch. It is
    idempotent on (source, external_id, content). A note of a memory folder that was edited since gets its new text.

    Args:
        slug: The project. Its ``language`` tells that of rows that name none.
        path: File or folder; ``-`` = standard input.
        format: A key of ``READERS``.
        source: Source of rows that name none; None = derived from ``path``.
        default_type: Memory type of rows that name none.
        scope: Option ``scope`` of the project, if it is created; None = the default.
        settings: Settings that select the embedding model. If it is free, memories are stored with their vectors;
            None = the next run embeds them.
        rejects_dir: Folder of the file of bad rows, JSON lines of line, reason and row; None = not written.
        progress: Called after each batch.

    Raises:
        UsageError: The source cannot be read at all, the format, slug or memory type is not legal, or the project
            exists with another scope.
        InvalidOptionError: ``scope`` is not legal.
    """
    check_memory_type(default_type)
    config = {} if scope is None else {"scope": parse_options({"scope": scope}).scope}
    rows = read_rows(path, format)
    first = next(rows, None)  # Before the project is created: an unreadable source must not leave an empty project.
    is_new = not _exists(engine, slug)
    project = ensure_project(engine, slug, config)
    own_scope = parse_options(project.config).scope
    if scope is not None and own_scope != config["scope"]:
        raise UsageError(
            f"project {slug} exists with scope = {own_scope}, not {config['scope']}: leave --scope out, or change it "
            f"by `consolidation projects configure {slug} scope={config['scope']}`"
        )
    result = ImportResult(slug, source or default_source(path, format), own_scope)
    with engine.connect() as connection:
        reserved = load_reserved_sources(connection, project)
    parse_row = RowParser(engine, project, result.source, reserved=reserved, default_type=default_type)
    scope_keys = set[str]()
    parsed = _parse_rows(rows if first is None else chain([first], rows), result, parse_row, scope_keys)
    for batch, encoded, vectors in prefetch(_encode_batches(project, parsed, settings)):
        with engine.begin() as connection:
            stored = append_encoded(connection, project.id, encoded, vectors)
        result.added += stored.added
        result.unchanged += stored.unchanged
        changed = [batch[number] for number in stored.changed]
        _revise_changed(engine, project, changed, result, is_named=source is not None)
        progress(result)
    result.scopes = len(scope_keys)
    if result.scopes > 1:
        with engine.connect() as connection:
            result.repeats_apart = count_repeats_apart(connection, project.id, scope=own_scope)
    result.bad.sort(key=lambda row: row.line)
    result.rejects = _write_rejects(result, rejects_dir)
    result.left_empty = is_new and not result.added and bool(result.bad)
    return result


def _exists(engine: Engine, slug: str) -> bool:
    try:
        with engine.connect() as connection:
            return bool(get_project(connection, slug).id)
    except NotFoundError:
        return False


def ensure_project(engine: Engine, slug: str, config: Mapping[str, Any] | None = None) -> Project:
    """Return the project with this slug; create it with the options ``config`` if it is missing.

    Raises:
        InvalidOptionError: One of the options is not allowed. Nothing is stored.
    """
    with engine.begin() as connection:
        return find_or_create_project(connection, slug, config)


def find_or_create_project(connection: Connection, slug: str, config: Mapping[str, Any] | None) -> Project:
    """Return the project as ``ensure_project`` does, in the transaction of ``connection``; errors are the same."""
    parse_options(config or {})
    try:
        return create_project(connection, slug, config)
    except ConflictError:
        return get_project(connection, slug)


def load_reserved_sources(connection: Connection, project: Project) -> set[str]:
    """Return the names of connected stores: a memory with such a source came from that store by a sync."""
    return {store.name for store in list_sources(connection, project.id)}


def choose_language(config: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function that tells the text search configuration of a text by a project's option ``language``."""
    option = parse_options(config).language
    return detect_configuration if option == "auto" else lambda _: option


class RowParser:
    """Parser of the rows of one project. Its option ``language`` tells that of rows that name none.

    Rows with one of the ``reserved`` sources are refused.
    """

    def __init__(
        self,
        engine: Engine,
        project: Project,
        source: str,
        *,
        reserved: Collection[str],
        default_type: str = "learning",
    ) -> None:
        self._engine = engine
        self._project = project
        self._parse = partial(
            parse_memory, source=source, default_type=default_type, find_language=choose_language(project.config)
        )
        self._dimensions = {LOCAL_MODEL: DIMENSION}
        self._reserved = reserved

    def __call__(self, fields: Mapping[str, object]) -> NewMemory:
        """Return the memory that a row describes. Raise InvalidMemoryError if it is not legal."""
        memory = self._parse(fields)
        if memory.source in self._reserved:
            raise invalid_field("source", memory.source, "a name that is not that of a connected store, which syncs it")
        model, length = memory.embedding_model, len(memory.embedding or ())
        if model is None or not length:
            return memory
        if model not in self._dimensions:
            with self._engine.connect() as connection:
                self._dimensions[model] = load_dimension(connection, self._project.id, model) or length
        if length != (expected := self._dimensions[model]):
            raise InvalidMemoryError(
                f"embedding has {length} numbers: expected {expected}, as other vectors of {model}"
            )
        return memory


def _parse_rows(
    rows: Iterator[Item], result: ImportResult, parse_row: RowParser, scope_keys: set[str]
) -> Iterator[tuple[int, NewMemory]]:
    """Yield line and memory of each good row; add the bad rows to ``result`` and the others' to ``scope_keys``."""
    for row in rows:
        if isinstance(row, BadRow):
            result.bad.append(row)
            continue
        if isinstance(row, Remark):
            result.remarks.append(row)
            continue
        try:
            memory = parse_row(row.fields)
        except InvalidMemoryError as error:
            where = f"{row.file}: " if row.file else ""
            result.bad.append(BadRow(row.line, f"{where}{error}", row.fields))
        else:
            scope_keys.add(find_scope(memory, result.scope))
            yield row.line, memory


def _encode_batches(
    project: Project, parsed: Iterator[tuple[int, NewMemory]], settings: Settings | None
) -> Iterator[tuple[list[tuple[int, NewMemory]], list[str], GivenVectors | None]]:
    """Yield batches of lines and memories, encoded for the store, and their vectors if the project's model is free."""
    while batch := list(islice(parsed, BATCH_ROWS)):
        # Lines of several files repeat, so rows are numbered.
        encoded = [encode_memory(project.slug, number, memory) for number, (_, memory) in enumerate(batch)]
        yield batch, encoded, None if settings is None else _embed_batch(project, batch, settings)


def _embed_batch(project: Project, batch: Sequence[tuple[int, NewMemory]], settings: Settings) -> GivenVectors | None:
    # A vector that came with its memory stays: the project may get its model before the first run.
    bare = {number: memory for number, (_, memory) in enumerate(batch) if memory.embedding is None}
    vectors, model = embed_if_free(project, bare, settings)
    by_id: dict[UUID, Vectors] = {}
    for number, vector in vectors.items():
        memory = batch[number][1]
        by_id.setdefault(memory_id(project.slug, memory.source, memory.external_id), vector)
    return GivenVectors(to_ids(list(by_id)), np.stack(list(by_id.values())), model) if by_id else None


def _revise_changed(
    engine: Engine,
    project: Project,
    changed: list[tuple[int, NewMemory]],
    result: ImportResult,
    *,
    is_named: bool,
) -> None:
    """Give memories the new text of the file that they were imported from; other changed rows are bad rows.

    A memory whose file is the same as at its import was edited here: it stays as it is. ``is_named``: a person named
    the source, so the folder may be in another place now.
    """
    marks = {memory_id(project.slug, memory.source, memory.external_id): (line, memory) for line, memory in changed}
    with engine.connect() as connection:
        stored = load_import_marks(connection, project.id, list(marks))
    revisions = {}
    for id_, (line, memory) in marks.items():
        mark, path = stored[id_], str(memory.metadata.get("path"))
        if "sha256" not in memory.metadata:
            result.bad.append(BadRow(line, CHANGED_CONTENT))
        elif mark.sha256 == memory.metadata["sha256"]:
            result.unchanged += 1
        elif not is_named and mark.folder != memory.metadata.get("folder"):
            result.bad.append(BadRow(line, f"{path}: {OTHER_FOLDER.format(mark.folder)}"))
        elif mark.is_archived:
            result.remarks.append(Remark(path, "edited since, but its memory was archived or deleted here"))
        else:
            revisions[id_] = memory
    if revisions:
        reason = f"edited in {result.source}"
        result.revised += len(revise_memories(engine, project, revisions, changed_by="import", reason=reason).ids)


def find_scope(memory: NewMemory, option: str) -> str:
    """Return the scope key of a memory."""
    given = {f"metadata.{key}": str(value) for key, value in memory.metadata.items() if value is not None}
    return make_scope_key({name: getattr(memory, name) for name in COLUMNS} | given, option)


def _write_rejects(result: ImportResult, folder: Path | None) -> Path | None:
    """Write the bad rows to the file of their project and source, replacing an older one; return its path."""
    if folder is None:
        return None
    path = folder / f"{result.project}.{result.source.replace('/', '_')}.rejects.jsonl"
    if not result.bad:
        path.unlink(missing_ok=True)
        return None
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"line": row.line, "reason": row.reason, "row": row.fields} for row in result.bad)
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return path
