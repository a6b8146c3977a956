"""`status` and `metrics`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.jobs.job_requests import request_job
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_status_accepts_job_id_and_project(cli: Cli, consolidated: dict[str, Any]) -> None:
    by_id, by_project = cli("status", consolidated["job_id"], "--json"), cli("status", "notes", "--json")
    assert by_id.code == by_project.code == 0
    found = by_id.json
    assert found == by_project.json
    assert (found["status"], found["progress"], found["project"]) == ("completed", 1.0, "notes")
    assert (found["phases_completed"], found["phases_failed"]) == (list(PHASES), [])
    counters = ("memories_merged", "clusters_merged", "memories_archived", "memories_promoted", "summaries_created")
    assert [found[name] for name in counters] == [3, 1, 0, 0, 0]
    assert found["error_message"] is None
    assert len(found["consolidation_changes"]) == found["consolidation_changes_total"] == 4
    assert all(UUID(change) for change in found["consolidation_changes"])
    assert found["completed_at"].endswith("Z")
    assert datetime.fromisoformat(found["started_at"]) <= datetime.fromisoformat(found["completed_at"])
    assert "completed" in cli("status", "notes").out


def test_first_digits_of_a_job_are_enough(cli: Cli, consolidated: dict[str, Any]) -> None:
    job = consolidated["job_id"]
    assert cli("status", job[:8], "--json").json["job_id"] == job
    assert f"job {job} is completed" in cli("cancel", job[:8].upper()).err
    assert json.loads(cli("report", job[:13]).out)["run"]["job_id"] == job
    assert cli("history", "notes", "--job", job[:8], "--json").json["total"] == 4
    missing = cli("status", "00000000")
    assert (missing.code, "no job has an id that begins with 00000000" in missing.err) == (2, True)
    cli("projects", "create", job[:8])  # a project with this name comes first
    assert "has no job yet" in cli("status", job[:8]).err


def test_status_shows_newest_job_of_project(cli: Cli, consolidated: dict[str, Any]) -> None:
    newer = cli("run", "notes", "--phases", "decay_scores", "--json").json["job_id"]
    assert newer != consolidated["job_id"]
    assert cli("status", "notes", "--json").json["job_id"] == newer


def test_project_stands_for_its_live_job(cli: Cli, engine: Engine, settings: Settings) -> None:
    with open_run(engine, "notes", settings=settings) as run:
        waiting = [request_job(engine, "notes", job=name, triggered_by="ann").job_id for name in ("decay", "associate")]
        assert cli("status", "notes", "--json").json["job_id"] == str(run.job_id)
    for job_id in waiting:
        assert cli("status", "notes", "--json").json["job_id"] == str(job_id)
        assert f"cancelled job {job_id} of notes, which was pending" in cli("cancel", "notes").out
    nothing = cli("cancel", "notes")
    assert (nothing.code, "only a pending or running job can be cancelled" in nothing.err) == (3, True)


def test_killed_run_is_shown_as_failed(cli: Cli, engine: Engine, settings: Settings) -> None:
    with pytest.raises(KeyboardInterrupt), open_run(engine, "notes", settings=settings) as run:
        raise KeyboardInterrupt
    with engine.begin() as connection:  # the row that a killed process leaves
        revive = "UPDATE consolidation.consolidation_jobs SET status = 'running', error_message = NULL WHERE id = :id"
        connection.execute(text(revive), {"id": run.job_id})
    found = cli("status", run.job_id, "--json").json
    assert found["status"] == "failed"
    assert "ended before it was done" in found["error_message"]


def test_current_run_is_shown_as_running(cli: Cli, engine: Engine, settings: Settings) -> None:
    with open_run(engine, "notes", settings=settings) as run:
        with run.phase("embedding_matrix"):
            pass
        found = cli("status", run.job_id, "--json").json
    assert (found["status"], found["phases_completed"]) == ("running", ["embedding_matrix"])
    assert 0 < found["progress"] < 1


@pytest.mark.slow
def test_unknown_status_target_is_usage_error(cli: Cli) -> None:
    cli("projects", "create", "empty")
    for arguments, message in (
        (("status", uuid4()), "there is no job"),
        (("status", "nowhere"), "there is no project 'nowhere'"),
        (("cancel", "nowhere"), "there is no project 'nowhere'"),
        (("rollback", "empty"), "'empty' is no id: `consolidation history PROJECT` lists those"),
        (("status", "empty"), "has no job yet"),
        (("history", "nowhere"), "there is no project"),
        (("history", "notes", "--operation", "merg"), "the operations are merge"),
        (("metrics", "nowhere"), "there is no project"),
        (("lineage", uuid4()), "there is no memory"),
        (("lineage", "1234567"), "first 8 or more digits"),
        (("lineage", "not-an-id-at-all"), "is not the id of a memory"),
    ):
        answer = cli(*arguments)
        assert (answer.code, message in answer.err) == (2, True), answer


def test_metrics_count_project_memories(cli: Cli, consolidated: dict[str, Any]) -> None:
    found = cli("metrics", "notes", "--json").json
    assert (found["memories"], found["active"], found["consolidated"], found["merged"]) == (6, 3, 3, 1)
    assert found["reduction"] == pytest.approx(1 / 3, abs=1e-6)
    assert (found["by_type"], found["by_level"]) == ({"learning": 3}, {"1": 1})
    assert (found["cost_usd"], found["tokens"]) == (0, 0)
    assert (found["last_run"]["id"], found["last_run"]["status"]) == (consolidated["job_id"], "completed")
    assert (found["next_run"]["schedule"], found["next_run"]["due"]) == ("0 2 * * *", False)
    assert "33.3%" in cli("metrics", "notes").out


def test_metrics_of_new_project_are_empty(cli: Cli) -> None:
    cli("projects", "create", "empty")
    found = cli("metrics", "empty", "--json").json
    assert (found["memories"], found["reduction"], found["last_run"]) == (0, None, None)
    assert "never" in cli("metrics", "empty").out
