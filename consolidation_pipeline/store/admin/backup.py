"""Dump and restore of the schema by PostgreSQL's own programs: one snapshot out, one transaction in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import IO

from sqlalchemy import URL, Connection, Engine, make_url, text

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.engine import connect
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.database.server_account import find_installed_server
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.jobs.project_lock import HELD_LOCKS

# Folders of Debian's packages, beside the wheel's and PATH.
_OTHER_FOLDERS = "/usr/lib/postgresql/*/bin"
_CHUNK = 1 << 20
# A server before 17 does not know this setting, which newer dumps begin with.
_UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"
# Lines before the first object of a dump, with its settings.
_PREAMBLE_LINES = 40


@dataclass(frozen=True)
class SchemaState:
    """State of the schema in one snapshot of the database.

    Attributes:
        postgres: major version of the server.
        revision: of the schema; None = there is none.
        vector_schema: schema of the extension ``vector``; None = it is not installed.
        rows: number of rows of each table.
    """

    postgres: int
    revision: str | None
    vector_schema: str | None
    rows: Mapping[str, int]


_LIST_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = :schema ORDER BY 1"
_VECTOR_SCHEMA = """
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""


def read_state(connection: Connection) -> SchemaState:
    """Return the state of the schema, with exact counts."""
    tables = connection.scalars(text(_LIST_TABLES), {"schema": SCHEMA}).all()
    revision = None
    if "alembic_version" in tables:
        revision = connection.execute(text(f"SELECT version_num FROM {SCHEMA}.alembic_version")).scalar()
    return SchemaState(
        postgres=int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10000,
        revision=revision,
        vector_schema=connection.execute(text(_VECTOR_SCHEMA)).scalar(),
        rows={name: connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.{name}")).scalar_one() for name in tables},
    )


_LIST_BUSY_PROJECTS = compose(
    f"""
    SELECT slug FROM {SCHEMA}.projects
    WHERE hashtextextended('consolidation:project:' || CAST(id AS text), 0) IN (/* held_locks */) ORDER BY 1
    """,
    held_locks=HELD_LOCKS,
)


def list_busy_projects(connection: Connection) -> Sequence[str]:
    """Return the slugs of projects that a run or rollback holds. The schema may be of any revision."""
    return connection.scalars(text(_LIST_BUSY_PROJECTS)).all()


def find_programs(names: Sequence[str], version: int) -> Path:
    """Return a folder that has all of these programs of PostgreSQL, in the lowest major version from ``version`` on.

    Raises:
        StoreError: There is none.
    """
    installed = [folder for folder in (find_installed_server(),) if folder is not None]
    on_path = [Path(found).resolve().parent for found in (shutil.which(names[0]),) if found]
    others = sorted(Path("/").glob(_OTHER_FOLDERS.lstrip("/")))
    folders = [folder for folder in (*installed, *on_path, *others) if all((folder / name).exists() for name in names)]
    found = {folder: _read_version(folder / names[0]) for folder in folders}
    usable = {folder: number for folder, number in found.items() if number >= version}
    if not usable:
        newest = f"the newest found is of {max(found.values())}" if found else "none is found"
        raise StoreError(
            f"{' and '.join(names)} of PostgreSQL {version} or newer are needed, {newest}: install the client programs "
            f"of PostgreSQL {version} and put them on PATH"
        )
    return min(usable, key=lambda folder: usable[folder])


def _read_version(program: Path) -> int:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"\) (\d+)", done.stdout)
    return int(number[1]) if number else 0


def connection_options(engine: Engine) -> tuple[list[str], dict[str, str]]:
    """Return arguments and variables for a program of PostgreSQL. The password is in the variables only."""
    url: URL = make_url(engine.url).set(drivername="postgresql")
    if "sslpassword" in url.query:
        raise StoreError("programs of PostgreSQL take no sslpassword from a URL: use a key without one")
    given = url.query.get("password", url.password)
    bare = url.difference_update_query(["password"]).set(password="").render_as_string(hide_password=False)
    variables = {"PGPASSWORD": str(given)} if given else {}
    # libpq takes "user:@host" as an empty password, so that it does not look for another one.
    return ["--dbname", bare.replace(":@", "@", 1)], {**os.environ, **variables, "PGCONNECT_TIMEOUT": "10"}


@contextmanager
def dump_schema(engine: Engine) -> Iterator[tuple[SchemaState, int, Iterator[bytes]]]:
    """Yield the state of the schema, the major version of ``pg_dump``, and its dump in the custom format by chunks.

    State and dump are of one snapshot. Nothing waits for it but changes of the schema.

    Raises:
        StoreError: ``pg_dump`` fails, or there is none for this server. It may come with the last chunk.
    """
    with connect(engine).execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
        state = read_state(connection)
        folder = find_programs(["pg_dump"], state.postgres)
        snapshot = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
        options, variables = connection_options(engine)
        command = [
            *(str(folder / "pg_dump"), "--format=custom", "--compress=gzip:1", f"--schema={SCHEMA}"),
            *("--no-owner", "--no-privileges", f"--snapshot={snapshot}", *options),
        ]
        if (version := _read_version(folder / "pg_dump")) < 16:  # which took a level only
            command[2] = "--compress=1"
        yield state, version, read_output(command, variables)


def render_script(dump: Iterator[bytes], version: int) -> Iterator[bytes]:
    """Yield the SQL of a dump in the custom format, by chunks.

    Raises:
        StoreError: The dump is damaged, or there is no ``pg_restore`` of ``version`` or newer.
    """
    folder = find_programs(["pg_restore", "psql"], version)
    command = [str(folder / "pg_restore"), "--no-owner", "--no-privileges", "--file=-"]
    return read_output(command, dict(os.environ), dump)


def read_output(
    command: Sequence[str], variables: Mapping[str, str], given: Iterator[bytes] | None = None
) -> Iterator[bytes]:
    """Run a program and yield its output by chunks; ``given`` is its input. Raise StoreError if it fails."""
    source = subprocess.DEVNULL if given is None else subprocess.PIPE
    with (
        TemporaryFile() as errors,
        subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=errors, env=variables) as process,
    ):
        failures: list[BaseException] = []
        feeder = Thread(target=_feed, args=(process.stdin, given, failures), daemon=True)
        try:
            if given is not None:
                feeder.start()
            assert process.stdout is not None
            while chunk := process.stdout.read(_CHUNK):
                yield chunk
            if given is not None:
                feeder.join()
            if failures:
                raise failures[0]
            if process.wait():
                raise StoreError(f"{Path(command[0]).name} fails: {_read_error(errors)}")
        finally:
            process.kill()


def _feed(stream: IO[bytes], chunks: Iterator[bytes], failures: list[BaseException]) -> None:
    try:
        with stream:
            for chunk in chunks:
                stream.write(chunk)
    except BrokenPipeError:
        pass  # the program ended early and says why
    except BaseException as error:
        failures.append(error)


def _read_error(errors: IO[bytes]) -> str:
    """Return the first error of a program's messages, or all of them, in one line."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").splitlines()
    first = next((line.partition("ERROR:")[2] for line in lines if "ERROR:" in line), None)
    return " ".join((first or " ".join(lines)).split()) or "it was ended"


_BEGIN = """
BEGIN;
SET LOCAL lock_timeout = '20s';
SET LOCAL client_min_messages = warning;
SELECT pg_advisory_xact_lock(hashtextextended('consolidation:migrate', 0));
"""
_REFUSE_ROWS = """
DO $$
DECLARE name text; has_rows boolean;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'alembic_version' LOOP
        EXECUTE format('LOCK TABLE {schema}.%I IN ACCESS EXCLUSIVE MODE', name);
        EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I)', name) INTO has_rows;
        IF has_rows THEN RAISE EXCEPTION 'the database is not empty: {schema}.% has rows', name; END IF;
    END LOOP;
END $$;
"""
_CLEAR = """
DROP SCHEMA IF EXISTS {schema} CASCADE;
CREATE EXTENSION IF NOT EXISTS vector SCHEMA "{vector_schema}";
"""
_CHECK_COUNT = """
DO $$ BEGIN
    IF (SELECT count(*) FROM {schema}.{table}) <> {rows} THEN
        RAISE EXCEPTION 'the backup is damaged: {table} should have {rows} rows';
    END IF;
END $$;
ANALYZE {schema}.{table};
"""

# The entries of a store's outbox that were read since the backup are gone: the next sync compares all rows.
_COMPARE_STORES = f"UPDATE {SCHEMA}.sources SET synced_at = NULL;\n"


def restore_schema(
    engine: Engine,
    script: Iterator[bytes],
    state: SchemaState,
    *,
    version: int,
    replace: bool,
) -> None:
    """Run the SQL of a dump in one transaction: either all of it is there afterwards, or nothing has changed.

    Args:
        script: what ``render_script`` yields; what it raises prevents the commit.
        state: the state that the dump was made of; the counts are checked before the commit.
        version: that of ``render_script``.
        replace: remove what is there; else tables with rows are an error.

    Raises:
        StoreError: ``psql`` fails; the message has the first error of the server.
    """
    options, variables = connection_options(engine)
    folder = find_programs(["pg_restore", "psql"], version)
    command = [str(folder / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", *options]
    begin = _BEGIN if replace else _BEGIN + _REFUSE_ROWS.format(schema=SCHEMA)
    clear = _CLEAR.format(schema=SCHEMA, vector_schema=state.vector_schema or "public")
    checks = (_CHECK_COUNT.format(schema=SCHEMA, table=table, rows=rows) for table, rows in state.rows.items())
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env=variables
        ) as process,
    ):
        assert process.stdin is not None
        try:
            for chunk in chain([(begin + clear).encode()], _drop_unknown_settings(script)):
                process.stdin.write(chunk)
            process.stdin.write("".join(checks).encode())
            if "sources" in state.rows:
                process.stdin.write(_COMPARE_STORES.encode())
            # Without this line, the end of the input rolls all of it back.
            process.stdin.write(b"\nCOMMIT;\n")
            process.stdin.close()
        except BrokenPipeError:  # psql ended at an error
            with suppress(BrokenPipeError):
                process.stdin.close()
        except BaseException:
            process.kill()
            with suppress(BrokenPipeError):
                process.stdin.close()
            raise
        if process.wait():
            raise StoreError(f"the backup is not restored, nothing has changed: {_read_error(errors)}")


def _drop_unknown_settings(script: Iterator[bytes]) -> Iterator[bytes]:
    """Leave out settings that older servers do not know. They are in the first chunk, before any data."""
    for number, chunk in enumerate(script):
        if number == 0:
            lines = chunk.splitlines(keepends=True)
            head = [line for line in lines[:_PREAMBLE_LINES] if line != _UNKNOWN_BEFORE_17]
            chunk = b"".join([*head, *lines[_PREAMBLE_LINES:]])
        yield chunk
