"""Import and run of a project in a process of its own, as another machine would: prints the hash of what it decided.

python -m consolidation_pipeline_tests.service.shadow.run_project URL FILE INSTANT
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy import text

from consolidation_pipeline.service.intake.importer import import_memories
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline.store.ledger.change_sets import load_change_set
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases


def main(url: str, path: str, instant: str) -> None:
    """Import a file into the database at ``url`` and run all phases as of ``instant``, in ISO 8601."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(database_url=SecretStr(url), data_dir=Path(folder))
        engine = connect_engine(with_driver(url, "psycopg"))
        import_memories(engine, SLUG, path, format="jsonl", source="test")
        with Pipeline(engine, settings, Path(folder)).open() as run:
            run.now = datetime.fromisoformat(instant)
            run_phases(run)
        with engine.begin() as connection:
            update = (
                "UPDATE consolidation.consolidation_jobs "
                "SET metrics = metrics || jsonb_build_object('as_of', CAST(:as_of AS text)) WHERE id = :job"
            )
            connection.execute(text(update), {"as_of": instant, "job": run.job_id})
            print(run.job_id, load_change_set(connection, run.job_id).digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
