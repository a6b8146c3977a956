"""`run`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from consolidation_pipeline.cli import output
from consolidation_pipeline.defs import job_batches
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.service.jobs import job_requests
from consolidation_pipeline.service.jobs.job_requests import request_job
from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import LESSONS, Cli, Write


def count_jobs(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM consolidation.consolidation_jobs")).scalar_one())


def break_vectors(engine: Engine, slug: str) -> None:
    """Give one memory a vector no model of the project makes, so that comparing fails."""
    with engine.begin() as connection:
        project = get_project(connection, slug)
        update = (
            "UPDATE consolidation.task_memories SET embedding = '[1, 0]', embedding_dim = 2, embedding_model = :model "
            "WHERE id = (SELECT id FROM consolidation.task_memories WHERE project_id = :project ORDER BY id LIMIT 1)"
        )
        connection.execute(text(update), {"project": project.id, "model": LOCAL_MODEL})


def test_run_json_reports_result(consolidated: dict[str, Any]) -> None:
    assert consolidated["project"] == "notes"
    assert (consolidated["status"], consolidated["error"]) == ("completed", None)
    assert consolidated["phases_completed"] == list(PHASES)
    assert (consolidated["memories_merged"], consolidated["merged_created"]) == (3, 1)
    assert (consolidated["units_before"], consolidated["units_after"]) == (6, 4)
    assert consolidated["reduction"] == pytest.approx(1 / 3)
    assert set(consolidated["metrics"]) >= set(PHASES)
    assert consolidated["undo"] == f"consolidation rollback {UUID(consolidated['job_id'])}"


def test_second_run_is_unchanged_without_job(cli: Cli, consolidated: dict[str, Any], engine: Engine) -> None:
    again = cli("run", "notes", "--json")
    assert (again.code, again.json["status"], again.json["job_id"]) == (0, "unchanged", consolidated["job_id"])
    assert (again.json["memories_merged"], again.json["merged_created"], again.json["metrics"]) == (0, 0, {})
    assert again.json["units_after"] == consolidated["units_after"]
    assert "nothing changed since" in cli("run", "notes").out
    assert count_jobs(engine) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("consolidated")
def test_run_extends_merged_memory(cli: Cli, write: Write) -> None:
    cli("import", write({"id": "n9", "content": LESSONS[0]}), "--project", "notes", "--source", "test")
    answer = cli("run", "notes")
    assert answer.code == 0
    assert "0 created, 1 extended" in answer.out
    assert "consolidation rollback " in answer.out


def test_selected_phases_run_alone(cli: Cli, write: Write) -> None:
    cli("import", write({"content": "a"}, {"content": "b"}), "--project", "p")
    answer = cli("run", "p", "--phases", "similarity_graph, embedding_matrix", "--json")
    assert (answer.code, answer.json["phases_completed"]) == (0, ["embedding_matrix", "similarity_graph"])


@pytest.mark.parametrize("phases", ["mergd", "clusters,mergd", "", ","])
def test_unknown_phase_error_lists_phases(cli: Cli, write: Write, engine: Engine, phases: str) -> None:
    cli("import", write({"content": "a"}), "--project", "p")
    answer = cli("run", "p", "--phases", phases)
    assert (answer.code, all(name in answer.err for name in PHASES)) == (2, True), answer.err
    assert count_jobs(engine) == 0


@pytest.mark.parametrize("arguments", [(), ("--all", "p")])
def test_run_requires_projects_or_all(cli: Cli, arguments: tuple[str, ...]) -> None:
    answer = cli("run", *arguments)
    assert (answer.code, "--all" in answer.err) == (2, True)


def test_run_with_unknown_project_runs_nothing(cli: Cli, write: Write, engine: Engine) -> None:
    cli("import", write({"content": "a"}), "--project", "p")
    answer = cli("run", "p", "typo", "--json")
    assert (answer.code, answer.json["error"]) == (2, "not_found")
    assert count_jobs(engine) == 0


@pytest.mark.slow
def test_several_projects_are_run_in_order(cli: Cli, write: Write) -> None:
    for slug in ("b", "a"):
        cli("import", write({"content": slug}), "--project", slug)
    answer = cli("run", "b", "a", "b", "--json")
    assert answer.code == 0
    assert [(run["project"], run["status"]) for run in answer.json["runs"]] == [("b", "completed"), ("a", "completed")]


@pytest.mark.slow
def test_run_all_continues_after_failure(cli: Cli, write: Write, engine: Engine) -> None:
    for slug in ("a", "b", "off"):
        cli("import", write({"content": f"{slug} one"}, {"content": f"{slug} two"}), "--project", slug)
    cli("projects", "configure", "off", "--disable")
    break_vectors(engine, "a")
    answer = cli("run", "--all", "--json")
    assert answer.code == 1
    assert [(run["project"], run["status"]) for run in answer.json["runs"]] == [("a", "failed"), ("b", "completed")]
    failed = answer.json["runs"][0]
    assert failed["error"].startswith(f"{failed['phases_failed'][0]}: ")
    assert f"a: error: {failed['phases_failed'][0]}: " in answer.err
    assert "Traceback" not in answer.err


def test_run_all_without_projects_succeeds(cli: Cli) -> None:
    answer = cli("run", "--all")
    assert (answer.code, answer.out, answer.err) == (0, "", "there is no enabled project to run\n")
    assert cli("run", "--all", "--json").json == {"runs": []}


def test_failed_run_exits_with_1(cli: Cli, write: Write, engine: Engine) -> None:
    cli("import", write({"content": "one"}, {"content": "two"}), "--project", "a")
    break_vectors(engine, "a")
    answer = cli("run", "a")
    assert answer.code == 1
    assert "a: failed" in answer.out
    assert cli("run", "a", "--json").json["status"] == "failed"


def test_run_of_busy_project_is_conflict(
    cli: Cli, write: Write, engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("import", write({"content": "one"}), "--project", "a")
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(output, "_LINE_SECONDS", 0.01)
    with open_run(engine, "a", settings=settings):
        answer = cli("run", "a", "--json")
        told = cli("run", "a")
    assert (answer.code, answer.json["error"]) == (3, "project_busy")
    assert (told.code, "consolidating a" in told.err, "%" in told.err) == (3, True, False)  # no progress of another run
    assert count_jobs(engine) == 1


def test_pending_jobs_of_other_runs_are_left(
    cli: Cli, write: Write, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("taken", "busy"):
        cli("import", write({"content": slug}), "--project", slug)
        request_job(engine, slug, triggered_by="ann")
    taken, busy = listed = job_requests.list_pending_jobs(engine)
    assert cli("run", "taken").code == 0
    runs: list[Any] = []
    monkeypatch.setattr(job_requests, "list_pending_jobs", lambda _: listed)
    monkeypatch.setattr(job_batches, "execute_in_process", runs.append)
    with project_lock(engine, busy.project_id, "busy", wait_seconds=0):
        answer = cli("run", "--pending", "--json")
        told = cli("run", "--pending")
    assert [(run["project"], run["status"], run["error_kind"]) for run in answer.json["runs"]] == [
        ("taken", "skipped", "job_ended"),
        ("busy", "skipped", "project_busy"),
    ]
    assert (answer.code, told.code, runs) == (0, 0, [])
    assert f"taken: another run took job {taken.job_id}, which is completed: nothing was run\n" in told.err
    assert (count_jobs(engine), job_requests.explain_taken(engine, busy.job_id)) == (2, None)


def test_pending_jobs_are_run_without_daemon(cli: Cli, write: Write, engine: Engine) -> None:
    assert cli("run", "--pending").err == "no job is pending\n"
    for slug in ("a", "b"):
        cli("import", write({"content": slug}), "--project", slug)
    asked = request_job(engine, "a", phases=["embedding_matrix"], triggered_by="ann")
    gone = request_job(engine, "b", triggered_by="ann")
    cancelled = cli("cancel", gone.job_id, "--json")
    assert (cancelled.code, cancelled.json["previous_status"], cancelled.json["status"]) == (0, "pending", "cancelled")
    answer = cli("run", "--pending", "--json")
    (run,) = answer.json["runs"]
    assert (answer.code, run["job_id"], run["phases_completed"]) == (0, str(asked.job_id), ["embedding_matrix"])
    assert count_jobs(engine) == 2
    assert cli("status", asked.job_id, "--json").json["triggered_by"] == "ann"
    again = cli("cancel", asked.job_id, "--json")
    assert (again.code, again.json["error"], "is completed" in again.err) == (3, "conflict", True)
    assert cli("run", "--pending", "a").code == 2
