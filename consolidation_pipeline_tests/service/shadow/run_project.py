"""Import and run of a project in a process of its own, as another machine would: prints the hash of what it decided.

python -m consolidation_pipeline_tests.service.shadow.run_project URL FILE
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pydantic import SecretStr

from consolidation_pipeline.service.intake.importer import import_memories
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline.store.ledger.change_sets import load_change_set
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


def main(url: str, path: str) -> None:
    """Import a file into the database at ``url`` and run all phases."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(database_url=SecretStr(url), data_dir=Path(folder))
        engine = connect_engine(with_driver(url, "psycopg"))
        import_memories(engine, SLUG, path, format="jsonl", source="test")
        job_id = Pipeline(engine, settings, Path(folder)).run().job_id
        with engine.connect() as connection:
            print(job_id, load_change_set(connection, job_id).digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
