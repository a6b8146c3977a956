"""Import of memories in batches. Good rows are stored; bad rows are listed and written to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from consolidation_pipeline.core.memories.memories import NewMemory, check_memory_type
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.embed.local import DIMENSION, LOCAL_MODEL
from consolidation_pipeline.errors import ConflictError, InvalidMemoryError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.intake.readers.formats import default_source, read_rows
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.memories.memories import append_memories
from consolidation_pipeline.store.projects import Project, create_project, get_project
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Rows per transaction: large enough for COPY to be fast, small enough for memory.
BATCH_ROWS = 5000

CHANGED_CONTENT = "its id was stored before with other content; raw memories are never rewritten, so give it a new id"


@dataclass
class ImportResult:
    """Result of an import: numbers of added rows and of rows stored before, the bad rows, and their file, if any."""

    project: str
    source: str
    added: int = 0
    unchanged: int = 0
    bad: list[BadRow] = field(default_factory=list)
    rejects: Path | None = None


def import_memories(
    engine: Engine,
    slug: str,
    path: str,
    *,
    format: str,
    source: str | None = None,
    default_type: str = "learning",
    rejects_dir: Path | None = None,
    progress: Callable[[ImportResult], None] = lambda _: None,
) -> ImportResult:
    """Import a file or a repository into a project, which is created if it is missing.

    The import streams. Each batch is a transaction, so a repeated import continues after the last stored batch. It is
    idempotent on (source, external_id, content).

    Args:
        slug: The project. Its ``language`` is that of rows that name none.
        path: File or folder; ``-`` = standard input.
        format: A key of ``READERS``.
        source: Source of rows that name none; None = derived from ``path``.
        default_type: Memory type of rows that name none.
        rejects_dir: Folder of the file of bad rows, JSON lines of line, reason and row; None = not written.
        progress: Called after each batch.

    Raises:
        UsageError: The source cannot be read at all, or the format, slug or memory type is not legal.
    """
    check_memory_type(default_type)
    rows = read_rows(path, format)
    first = next(rows, None)  # Before the project is created: an unreadable source must not leave an empty project.
    project = ensure_project(engine, slug)
    result = ImportResult(slug, source or default_source(path, format))
    parse_row = RowParser(engine, project, result.source, default_type=default_type)
    parsed = _parse_rows(rows if first is None else chain([first], rows), result, parse_row)
    for batch in prefetch(iter(lambda: list(islice(parsed, BATCH_ROWS)), [])):
        with engine.begin() as connection:
            stored = append_memories(connection, project.id, slug, batch)
        result.added += stored.added
        result.unchanged += stored.unchanged
        result.bad += [BadRow(line, CHANGED_CONTENT) for line in stored.changed]
        progress(result)
    result.bad.sort(key=lambda row: row.line)
    result.rejects = _write_rejects(result, rejects_dir)
    return result


def ensure_project(engine: Engine, slug: str) -> Project:
    """Return the project with this slug; create it if it is missing."""
    with engine.begin() as connection:
        try:
            return create_project(connection, slug)
        except ConflictError:
            return get_project(connection, slug)


class RowParser:
    """Parser of the rows of one project. Its option ``language`` is that of rows that name none."""

    def __init__(self, engine: Engine, project: Project, source: str, *, default_type: str = "learning") -> None:
        self._engine = engine
        self._project = project
        self._defaults = {
            "source": source,
            "default_type": default_type,
            "default_language": parse_options(project.config).language,
        }
        self._dimensions = {LOCAL_MODEL: DIMENSION}

    def __call__(self, fields: Mapping[str, object]) -> NewMemory:
        """Return the memory that a row describes. Raise InvalidMemoryError if it is not legal."""
        memory = parse_memory(fields, **self._defaults)
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
    rows: Iterator[Row | BadRow], result: ImportResult, parse_row: RowParser
) -> Iterator[tuple[int, NewMemory]]:
    """Yield line and memory of each good row; add the bad rows to ``result``."""
    for row in rows:
        if isinstance(row, BadRow):
            result.bad.append(row)
            continue
        try:
            yield row.line, parse_row(row.fields)
        except InvalidMemoryError as error:
            result.bad.append(BadRow(row.line, str(error), row.fields))


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
