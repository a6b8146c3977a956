"""Export of a project to a file: raw memories with the field names of an import, derived ones on request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.export_formats import prepare_writer
from consolidation_pipeline.service.intake.readers.line_reader import STDIN
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.memories.export import open_snapshot, stream_derived, stream_memories
from consolidation_pipeline.store.projects import get_project

# Raw memories between two reports of progress.
_PROGRESS_ROWS = 1000


@dataclass
class ExportResult:
    """Result of an export: numbers of raw and of derived memories written."""

    project: str
    file: str
    format: str
    memories: int = 0
    derived: int = 0


def export_memories(
    engine: Engine,
    slug: str,
    path: str,
    *,
    format: str = "jsonl",
    with_derived: bool = False,
    progress: Callable[[ExportResult], None] = lambda _: None,
) -> ExportResult:
    """Write all raw memories of a project to ``path``; ``-`` = standard output.

    Imported into a project of the same slug, they get the same ids. Vectors and results of runs (merged, archived,
    relevance) are left out, as a run computes them again. The export is one consistent snapshot. It is written to a
    file beside ``path``, which replaces ``path`` when it is complete.

    Args:
        format: One of ``export_formats.FORMATS``.
        with_derived: Add the active consolidated memories with their sources. Their text has the key ``text``, so that
            an import rejects them.
        progress: Called with the counts so far.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The format is unknown, or ``path`` cannot be written in it.
    """
    open_writer = prepare_writer(format, with_derived=with_derived, is_terminal=path == STDIN and sys.stdout.isatty())
    with open_snapshot(engine) as connection:
        project = get_project(connection, slug)
        result = ExportResult(slug, path, format)
        with _open_target(path) as file, open_writer(file) as write:
            for row in stream_memories(connection, project.id):
                write(row)
                result.memories += 1
                if result.memories % _PROGRESS_ROWS == 0:
                    progress(result)
            for row in stream_derived(connection, project.id) if with_derived else ():
                write(row)
                result.derived += 1
    progress(result)
    return result


@contextmanager
def _open_target(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path).resolve()
    # A device or a pipe is written to directly.
    part = target.with_name(f"{target.name}.part") if target.is_file() or not target.exists() else target
    try:
        with part.open("wb") as file:
            yield file
        os.replace(part, target)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if part != target:
            part.unlink(missing_ok=True)
