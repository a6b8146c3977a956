"""Import of new memories beside COPY of the same rows into the same tables, with the same indexes.

    python benchmarks/importing.py [memories]

Prints the seconds of each, the best of three rounds, and their ratio.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pipeline import write_corpus
from temporary_server import use_temporary_server

MEMORIES = 30_000
ROUNDS = 3
TABLES = ("task_memories", "memory_files")


def list_columns(cursor: Any, table: str) -> str:
    """Return the columns of a table that Postgres does not generate."""
    cursor.execute(
        "SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_schema = 'consolidation' AND table_name = %s AND is_generated = 'NEVER' AND is_identity = 'NO'",
        (table,),
    )
    return str(cursor.fetchone()[0])


def time_import(engine: Any, settings: Any, slug: str, corpus: Path) -> float:
    """Return the seconds of an import into a project, with vectors of the default model."""
    from consolidation_pipeline.service.intake.importer import import_memories

    began = time.perf_counter()
    import_memories(engine, slug, str(corpus), format="jsonl", settings=settings)
    return time.perf_counter() - began


def time_copy(connection: Any) -> float:
    """Replace all stored rows by themselves. Return the seconds of the COPY that brings them back."""
    with connection.cursor() as cursor:
        targets = [f"consolidation.{table} ({list_columns(cursor, table)})" for table in TABLES]
        dumps = []
        for target in targets:
            with cursor.copy(f"COPY {target} TO STDOUT") as copy:
                dumps.append(b"".join(copy))
        remove_rows(connection)
        began = time.perf_counter()
        for target, dump in zip(targets, dumps, strict=True):
            with cursor.copy(f"COPY {target} FROM STDIN") as copy:
                copy.write(dump)
        return time.perf_counter() - began


def remove_rows(connection: Any) -> None:
    """Delete all memories and free their space, so that each measurement begins with empty tables."""
    for table in reversed(TABLES):
        connection.execute(f"DELETE FROM consolidation.{table}")
        connection.execute(f"VACUUM consolidation.{table}")
    connection.execute("CHECKPOINT")


def main() -> None:
    """Measure both ways for the number of memories on the command line."""
    use_temporary_server()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine
    from consolidation_pipeline.store.database.raw_connections import autocommit_connection

    memories = int(sys.argv[1]) if len(sys.argv) > 1 else MEMORIES
    settings = Settings()
    engine = open_engine(settings)
    imports, copies = [], []
    with tempfile.TemporaryDirectory() as folder, autocommit_connection(engine) as checked_out:
        connection = checked_out.connection.driver_connection
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus, memories)
        for at in range(ROUNDS):
            imports.append(time_import(engine, settings, f"round{at}", corpus))
            copies.append(time_copy(connection))
            remove_rows(connection)
    print(f"{memories:,} memories: import {min(imports):.2f} s, COPY {min(copies):.2f} s", end="")
    print(f", ratio {min(imports) / min(copies):.2f}")


if __name__ == "__main__":
    main()
