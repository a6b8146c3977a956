"""`replay`: a job decides the same again, or the first decision that differs is shown."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import open_engine
from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT, Cli, Write

_OTHER_OPTIONS = """
    UPDATE consolidation.consolidation_jobs SET options = options || '{"t_merge": 0.9999}' WHERE id = :job
"""


@pytest.mark.slow
def test_replay_prints_hash_and_difference(cli: Cli, write: Write) -> None:
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    assert cli("import", write(*rows), "--project", "notes", "--source", "test").code == 0
    assert cli("run", "notes").code == 0
    same = cli("replay", "notes", "--json")
    assert same.code == 0
    assert same.json["same"]
    assert same.json["recorded"] == same.json["replayed"]
    job = same.json["job_id"]
    metrics = cli("status", "notes", "--json").json["metrics"]
    assert metrics["consolidation_report"]["change_set"] == same.json["recorded"]
    assert "the same" in cli("replay", job).out
    with open_engine(Settings()).begin() as connection:
        connection.execute(text(_OTHER_OPTIONS), {"job": job})
    other = cli("replay", job)
    assert other.code == 1
    assert "first decision that differs: merge of" in other.out
    assert "replayed: not made" in other.out
    assert "why:" in other.out
    cli("projects", "delete", "notes", "--yes")


def test_unknown_job_is_refused(cli: Cli) -> None:
    assert cli("replay", "00000000-0000-0000-0000-000000000000").code == 2
