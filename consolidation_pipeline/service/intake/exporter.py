"""Export a project as JSON Lines: raw memories under the names that an import reads, derived ones on request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.line_reader import STDIN
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.memories.export import open_snapshot, stream_derived, stream_memories
from consolidation_pipeline.store.projects import get_project

# How often progress is told, in rows.
_TOLD = 1000


@dataclass
class Exported:
    """What was written: raw memories, and derived ones."""

    project: str
    file: str
    memories: int = 0
    derived: int = 0


def export_memories(
    engine: Engine,
    slug: str,
    path: str,
    *,
    with_derived: bool = False,
    progress: Callable[[Exported], None] = lambda _: None,
) -> Exported:
    """Write all raw memories of a project to ``path`` (``-`` = standard output), one JSON object a line.

    Imported into a project of the same slug they get the same ids. Vectors and what a run decides (merged, archived,
    relevance) are left out: a run makes them anew. ``with_derived`` adds the active consolidated memories with their
    sources; their text stands under ``text``, so that an import refuses them instead of taking them for raw ones.
    One consistent snapshot; a file is written beside ``path`` first and takes its place when it is whole.

    Raises:
        NotFoundError: no such project. UsageError: ``path`` cannot be written.
    """
    with open_snapshot(engine) as connection:
        project = get_project(connection, slug)
        done = Exported(slug, path)
        with _opened(path) as file:
            for done.memories, row in enumerate(stream_memories(connection, project.id), start=1):
                file.write(_line(_raw(row)))
                if done.memories % _TOLD == 0:
                    progress(done)
            if with_derived:
                for done.derived, row in enumerate(stream_derived(connection, project.id), start=1):
                    file.write(_line(row))
    progress(done)
    return done


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path).resolve()
    # A device or a pipe is written to, not replaced.
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


def _raw(row: Mapping[str, Any]) -> dict[str, Any]:
    # An import reads text in these two as JSON where it can, so a text is written as JSON to come back as it was.
    coded = {name: json.dumps(row[name]) for name in ("tool_usage", "error_patterns") if isinstance(row[name], str)}
    return {**row, **coded}


def _line(row: Mapping[str, Any]) -> bytes:
    said = {name: value for name, value in row.items() if value is not None and value != [] and value != {}}
    return json.dumps(said, ensure_ascii=False, default=_plain).encode() + b"\n"


def _plain(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
