"""`prune`, and the sizes that `doctor` shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.admin.size_checks import PRUNED, REBUILT, check_sizes
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.store.admin.table_sizes import list_table_sizes
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import metadata
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import Cli


def age_everything(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        columns = {
            "consolidation_changes": "changed_at",
            "consolidation_events": "created_at",
            "consolidated_memories": "updated_at",
        }
        for table, column in columns.items():
            aged = f"UPDATE consolidation.{table} SET {column} = {column} - :by"
            connection.execute(text(aged), {"by": timedelta(days=200)})


def test_prune_removes_what_is_past_retention(cli: Cli, engine: Engine, consolidated: dict[str, Any]) -> None:
    assert cli("prune", "--json").json == {"changes": 0, "events": 0, "removals": {}, "busy": []}
    age_everything(engine)
    with engine.connect() as connection:
        project = get_project(connection, "notes")
    with hold_project(engine, project):
        assert cli("prune").err == "skipped, as a run or rollback holds them: notes\n"
    done = cli("prune", "--json").json
    assert (done["changes"], list(done["removals"]), done["busy"]) == (4, ["notes"], [])
    assert cli("rollback", consolidated["job_id"]).code == 2
    assert cli("prune").out == "removed: 0 changes of 0 projects, 0 events\n"


@pytest.mark.usefixtures("consolidated")
def test_doctor_tells_sizes_and_what_prunes_them(engine: Engine) -> None:
    found = {finding.check: finding.message for finding in check_sizes(engine)}
    with engine.connect() as connection:
        largest, *_ = list_table_sizes(connection)
    assert f"in all; the largest: {largest.name} " in found["tables"]
    assert "consolidation_changes" in found["ledger size"]
    assert "`consolidation prune`" in found["ledger size"]
    assert "never shrink" in found["growth"]
    assert "memory_neighbors" not in found["growth"]


def test_every_table_has_a_size(engine: Engine) -> None:
    with engine.connect() as connection:
        names = {table.name for table in list_table_sizes(connection)}
    assert {table.name for table in metadata.sorted_tables} <= names
    assert {*PRUNED, *REBUILT} <= names
