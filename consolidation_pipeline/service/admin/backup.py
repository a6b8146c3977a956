"""Backup of the database of memories in one file, its check, and its restore.

The file is a ZIP archive of two members: ``manifest.json``, and ``consolidation.dump`` as ``pg_dump`` writes it in its
custom format.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ValidationError

from consolidation_pipeline.errors import ConflictError, ConsolidationError, ProjectBusyError, StoreError, UsageError
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.backup import (
    SchemaState,
    dump_schema,
    list_busy_projects,
    read_state,
    render_script,
    restore_schema,
)
from consolidation_pipeline.store.database.engine import (
    Engine,
    connect,
    connect_engine,
    database_url,
    knows_revision,
    upgrade,
)

_FORMAT = 1
_MANIFEST, _DUMP = "manifest.json", "consolidation.dump"
_CHUNK = 1 << 20

Progress = Callable[[str], None]


class Manifest(BaseModel):
    """Content of a backup.

    Attributes:
        format: version of the file's format.
        program: version of the program that made it.
        postgres: major version of the server.
        pg_dump: major version of the program that made the dump.
        revision: of the schema.
        vector_schema: schema of the extension ``vector``.
        rows: number of rows of each table.
        bytes, sha256: of the dump.
    """

    format: int
    program: str
    created_at: datetime
    postgres: int
    pg_dump: int
    revision: str
    vector_schema: str
    rows: Mapping[str, int]
    bytes: int
    sha256: str


def create_backup(settings: Settings, path: Path, *, replace: bool, progress: Progress) -> Manifest:
    """Write a backup of the database to ``path``, which appears only when it is complete.

    Raises:
        UsageError: The file exists and ``replace`` is False, or it cannot be written.
        StoreError: The database cannot be reached or has no schema, or there is no ``pg_dump`` for it.
    """
    if path.exists() and not (replace and path.is_file()):
        raise UsageError(f"{path} exists: choose another name" + (" or --replace" if path.is_file() else ""))
    engine = connect_engine(database_url(settings))
    with _write_whole(path) as file, dump_schema(engine) as (state, pg_dump, dump):
        if state.revision is None or state.vector_schema is None:
            raise StoreError("there is nothing to back up: the database has no schema `consolidation`")
        digest, size = hashlib.sha256(), 0
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            with archive.open(_DUMP, "w", force_zip64=True) as member:
                for chunk in dump:
                    member.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    progress(f"{size / 1e6:.0f} MB")
            manifest = Manifest(
                format=_FORMAT,
                program=version("consolidation-pipeline"),
                created_at=datetime.now(UTC),
                postgres=state.postgres,
                pg_dump=pg_dump,
                revision=state.revision,
                vector_schema=state.vector_schema,
                rows=state.rows,
                bytes=size,
                sha256=digest.hexdigest(),
            )
            archive.writestr(_MANIFEST, manifest.model_dump_json(indent=2))
    return manifest


@contextmanager
def _write_whole(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the name ``path`` at the end, readable by its owner only.

    Until then it is ``path`` with ``.partial``, which an error removes and the next attempt writes over.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not partial.exists() or not os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                raise BlockingIOError  # it was just completed and renamed
            try:
                file.truncate()
                yield file
                file.flush()
                os.fsync(file.fileno())
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
    except BlockingIOError:
        raise UsageError(f"another process is writing {partial}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def check_backup(path: Path, *, progress: Progress) -> Manifest:
    """Read a backup from beginning to end, without a database, and return what it holds.

    Raises:
        UsageError: The file is no backup, or is damaged.
    """
    with _open_backup(path) as (archive, manifest):
        for _ in render_script(_read_dump(archive, manifest, progress), manifest.pg_dump):
            pass
    return manifest


def restore_backup(settings: Settings, path: Path, *, replace: bool, progress: Progress) -> tuple[Manifest, str | None]:
    """Restore a backup in one transaction, then migrate it to this program's schema.

    Returns:
        What the backup holds, and the revision of the schema now.

    Raises:
        UsageError: The file is no backup, or is damaged; nothing has changed.
        ConflictError: The database holds rows and ``replace`` is False, or the backup is of a newer program.
        ProjectBusyError: A run or rollback holds a project.
        StoreError: The database refuses it; nothing has changed, or the message says that it is to be migrated.
    """
    engine = connect_engine(database_url(settings))
    with _open_backup(path) as (archive, manifest):
        _check_target(engine, manifest, replace=replace)
        state = SchemaState(manifest.postgres, manifest.revision, manifest.vector_schema, manifest.rows)
        dump = _read_dump(archive, manifest, progress)
        script = render_script(dump, manifest.pg_dump)
        restore_schema(engine, script, state, version=manifest.pg_dump, replace=replace)
    upgrade(engine)
    with connect(engine) as connection:
        return manifest, read_state(connection).revision


def _check_target(engine: Engine, manifest: Manifest, *, replace: bool) -> None:
    if not knows_revision(manifest.revision):
        raise ConflictError(
            f"the backup is of a newer program: its schema is at revision {manifest.revision}, and program "
            f"{manifest.program} made it; upgrade this program"
        )
    with connect(engine) as connection:
        state = read_state(connection)
        busy = list_busy_projects(connection) if state.rows.get("projects") else []
    filled = {table: rows for table, rows in state.rows.items() if rows and table != "alembic_version"}
    if filled and not replace:
        counts = ", ".join(f"{rows:,} {table}" for table, rows in list(filled.items())[:4])
        raise ConflictError(
            f"the database is not empty ({counts}): restore into an empty one, or --replace all that it holds"
        )
    if busy:
        raise ProjectBusyError(f"a run or rollback holds {', '.join(busy)}: wait for it, or cancel it")
    if state.vector_schema not in (None, manifest.vector_schema):
        raise ConflictError(
            f"the extension `vector` is in schema {state.vector_schema}, in the backup it is in "
            f"{manifest.vector_schema}: ALTER EXTENSION vector SET SCHEMA {manifest.vector_schema}"
        )


@contextmanager
def _open_backup(path: Path) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = Manifest.model_validate_json(archive.read(_MANIFEST))
            if manifest.format != _FORMAT:
                raise UsageError(f"{path} has format {manifest.format}, this program reads {_FORMAT}: upgrade it")
            yield archive, manifest
    except (zipfile.BadZipFile, KeyError, ValidationError) as error:
        raise UsageError(f"{path} is no backup of this program, or is not complete: {_first_line(error)}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _first_line(error: Exception) -> str:
    return str(error.args[0] if error.args else error).splitlines()[0]


def _read_dump(archive: zipfile.ZipFile, manifest: Manifest, progress: Progress) -> Iterator[bytes]:
    """Yield the dump by chunks. Raise ConsolidationError at its end if it is not what was written."""
    digest, size = hashlib.sha256(), 0
    with archive.open(_DUMP) as member:
        while chunk := member.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            progress(f"{size / 1e6:.0f} of {manifest.bytes / 1e6:.0f} MB")
            yield chunk
    if (digest.hexdigest(), size) != (manifest.sha256, manifest.bytes):
        raise ConsolidationError(f"the backup is damaged: {_DUMP} has another checksum than when it was made")
