"""Search for texts and ids in the whole database: in a plain dump by ``pg_dump``, or by SQL if there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.admin.backup import connection_options, find_programs, read_output
from consolidation_pipeline.store.database.schema import SCHEMA, metadata

# A canary may lie across two chunks of a dump.
_OVERLAP = 1_000
_BLOCK = 8 << 20


@dataclass(frozen=True)
class ScanResult:
    """Result of a scan. ``method``: pg_dump or sql. ``found``: the canaries that are in the database."""

    method: str
    found: frozenset[str]


def scan_database(engine: Engine, canaries: Sequence[str]) -> ScanResult:
    """Look for canaries, texts of one line, in the whole database.

    Without a ``pg_dump`` for this server, every column of the schema that holds text is searched by SQL.
    """
    try:
        found = frozenset[str]()
        for block in _read_blocks(_dump(engine)):
            found |= {canary for canary in canaries if canary not in found and canary.encode() in block}
        return ScanResult("pg_dump", found)
    except StoreError:
        with engine.connect() as connection:
            return ScanResult("sql", frozenset(c for c in canaries if locate(connection, c)))


def _dump(engine: Engine) -> Iterator[bytes]:
    with engine.connect() as connection:
        version = int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10000
    options, variables = connection_options(engine)
    program = find_programs(["pg_dump"], version) / "pg_dump"
    return read_output([str(program), "--format=plain", "--data-only", *options], variables)


def _read_blocks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks in large blocks, each with the end of the one before."""
    block, size = list[bytes](), 0
    for chunk in chunks:
        block.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            whole = b"".join(block)
            yield whole
            block, size = [whole[-_OVERLAP:]], 0
    yield b"".join(block)


_LIST_COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = :schema AND is_generated = 'NEVER' AND data_type = ANY(ARRAY['text', 'jsonb', 'ARRAY', 'uuid'])
    ORDER BY 1, 2
"""


def locate(connection: Connection, canary: str) -> dict[str, int]:
    """Return the number of rows of our schema that hold a canary, by ``table.column``."""
    found = {}
    tables = {table.name for table in metadata.sorted_tables}
    for table, column in connection.execute(text(_LIST_COLUMNS), {"schema": SCHEMA}).tuples().all():
        if table not in tables:
            continue
        statement = f"SELECT count(*) FROM {SCHEMA}.{table} WHERE strpos({column}::text, :canary) > 0"
        if rows := connection.execute(text(statement), {"canary": canary}).scalar_one():
            found[f"{table}.{column}"] = int(rows)
    return found
