"""`status`, `history`, `metrics` and `lineage`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import LESSONS, Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_status_of_a_job_by_its_id_and_by_its_project(cli: Cli, consolidated: dict[str, Any]) -> None:
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


def test_the_newest_job_of_a_project_is_shown(cli: Cli, consolidated: dict[str, Any]) -> None:
    newer = cli("run", "notes", "--phases", "decay_scores", "--json").json["job_id"]
    assert newer != consolidated["job_id"]
    assert cli("status", "notes", "--json").json["job_id"] == newer


def test_a_killed_run_is_not_shown_as_running(cli: Cli, engine: Engine, settings: Settings) -> None:
    with pytest.raises(KeyboardInterrupt), open_run(engine, "notes", settings=settings) as run:
        raise KeyboardInterrupt
    with engine.begin() as connection:  # as a killed process leaves it
        revive = "UPDATE consolidation.consolidation_jobs SET status = 'running', error_message = NULL WHERE id = :id"
        connection.execute(text(revive), {"id": run.job_id})
    found = cli("status", run.job_id, "--json").json
    assert found["status"] == "failed"
    assert "ended before it was done" in found["error_message"]


def test_a_run_under_way_is_shown_as_running(cli: Cli, engine: Engine, settings: Settings) -> None:
    with open_run(engine, "notes", settings=settings) as run:
        with run.phase("embedding_matrix"):
            pass
        found = cli("status", run.job_id, "--json").json
    assert (found["status"], found["phases_completed"]) == ("running", ["embedding_matrix"])
    assert 0 < found["progress"] < 1


def test_what_is_not_there_is_a_usage_error(cli: Cli) -> None:
    cli("projects", "create", "empty")
    for arguments, said in (
        (("status", uuid4()), "there is no job"),
        (("status", "nowhere"), "there is no project 'nowhere'"),
        (("status", "empty"), "has no job yet"),
        (("history", "nowhere"), "there is no project"),
        (("history", "notes", "--operation", "merg"), "the operations are merge"),
        (("metrics", "nowhere"), "there is no project"),
        (("lineage", uuid4()), "there is no memory"),
        (("lineage", "1234567"), "first 8 or more digits"),
        (("lineage", "not-an-id-at-all"), "is not the id of a memory"),
    ):
        answer = cli(*arguments)
        assert (answer.code, said in answer.err) == (2, True), answer


def test_history_has_every_change_newest_first(cli: Cli, consolidated: dict[str, Any]) -> None:
    found = cli("history", "notes", "--json").json
    assert (found["project"], found["total"], len(found["changes"])) == ("notes", 4, 4)
    seqs = [change["seq"] for change in found["changes"]]
    assert seqs == sorted(seqs, reverse=True)
    assert {change["job_id"] for change in found["changes"]} == {consolidated["job_id"]}
    assert len({change["group_id"] for change in found["changes"]}) == 1
    first = found["changes"][-1]
    assert (first["operation"], first["entity_type"]) == ("merge", "consolidated_memories")
    assert first["previous_state"] is None
    assert "migrations" in first["new_state"]["content"]
    assert first["changed_by"].startswith("cli")
    keys = "seq id job_id group_id operation entity_type entity_id reason confidence changed_by changed_at"
    assert set(keys.split()) | {"reverts_change_id", "previous_state", "new_state"} <= set(first)


def test_history_is_narrowed_down_and_still_tells_the_total(cli: Cli, consolidated: dict[str, Any]) -> None:
    group = cli("history", "notes", "--json").json["changes"][0]["group_id"]
    cli("rollback", group, "--reason", "wrong merge")
    assert cli("history", "notes", "--json").json["total"] == 8
    undone = cli("history", "notes", "--operation", "rollback", "--limit", "1", "--json").json
    assert (undone["total"], len(undone["changes"])) == (4, 1)
    assert undone["changes"][0]["reason"] == "wrong merge"
    of_job = cli("history", "notes", "--job", consolidated["job_id"], "--json").json
    assert (of_job["total"], {change["operation"] for change in of_job["changes"]}) == (4, {"merge"})
    assert cli("history", "notes", "--job", uuid4(), "--json").json == {"project": "notes", "total": 0, "changes": []}
    shown = cli("history", "notes").out
    assert "rolled back; near-duplicates" in shown
    assert group in shown
    assert consolidated["job_id"] in shown


def test_metrics_count_the_project(cli: Cli, consolidated: dict[str, Any]) -> None:
    found = cli("metrics", "notes", "--json").json
    assert (found["memories"], found["active"], found["consolidated"], found["merged"]) == (6, 3, 3, 1)
    assert found["reduction"] == pytest.approx(1 / 3, abs=1e-6)
    assert (found["by_type"], found["by_level"]) == ({"learning": 3}, {"1": 1})
    assert (found["cost_usd"], found["tokens"]) == (0, 0)
    assert (found["last_run"]["id"], found["last_run"]["status"]) == (consolidated["job_id"], "completed")
    assert (found["next_run"]["schedule"], found["next_run"]["due"]) == ("0 2 * * *", False)
    assert "33.3%" in cli("metrics", "notes").out


def test_metrics_of_a_project_that_never_ran(cli: Cli) -> None:
    cli("projects", "create", "empty")
    found = cli("metrics", "empty", "--json").json
    assert (found["memories"], found["reduction"], found["last_run"]) == (0, None, None)
    assert "never" in cli("metrics", "empty").out


@pytest.fixture
def merged_id(cli: Cli) -> str:
    changes = cli("history", "notes", "--json").json["changes"]
    return str(next(change["entity_id"] for change in changes if change["entity_type"] == "consolidated_memories"))


def test_lineage_leads_from_a_merged_memory_down_to_raw_ones(cli: Cli, merged_id: str) -> None:
    found = cli("lineage", merged_id, "--json").json
    assert (found["kind"], found["level"], found["status"], found["derived"]) == ("merged", 1, "active", [])
    assert sorted(source["content"] for source in found["sources"]) == sorted(LESSONS[:3])
    assert {source["kind"] for source in found["sources"]} == {"raw"}
    assert all(0.8 < source["similarity"] <= 1.000001 for source in found["sources"])
    shown = cli("lineage", merged_id).out
    assert all(source["id"] in shown for source in found["sources"])


def test_lineage_leads_from_a_raw_memory_up(cli: Cli, merged_id: str) -> None:
    source = cli("lineage", merged_id, "--json").json["sources"][0]
    found = cli("lineage", source["id"], "--json").json
    assert (found["kind"], found["level"], found["status"], found["sources"]) == ("raw", 0, "merged", [])
    assert [(row["id"], row["kind"]) for row in found["derived"]] == [(merged_id, "merged")]
    assert found["derived"][0]["similarity"] == pytest.approx(source["similarity"])
    assert f"went into merged {merged_id}" in cli("lineage", source["id"]).out


def test_the_beginning_of_an_id_is_enough(cli: Cli, merged_id: str) -> None:
    whole = cli("lineage", merged_id, "--json").json
    for part in (merged_id[:8], merged_id[:13], merged_id.replace("-", "")[:10], merged_id.upper()):
        assert cli("lineage", part, "--json").json == whole


@pytest.mark.breaks_rules
def test_an_ambiguous_beginning_is_refused(cli: Cli, engine: Engine) -> None:
    with engine.begin() as connection:
        copied = connection.scalars(text("SELECT id FROM consolidation.task_memories ORDER BY id LIMIT 2")).all()
        for last, copy in zip("ab", copied, strict=True):
            connection.execute(
                text("UPDATE consolidation.task_memories SET id = :new WHERE id = :old"),
                {"old": copy, "new": f"aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaa{last}"},
            )
    answer = cli("lineage", "aaaaaaaa")
    assert (answer.code, "several ids begin with" in answer.err) == (2, True)
    assert cli("lineage", "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaab", "--json").json["kind"] == "raw"
