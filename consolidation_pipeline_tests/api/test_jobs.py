"""Routes of jobs, ledger, rollback, plan, configuration and metrics: replies and status codes."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.logs import TextFormatter
from consolidation_pipeline.service.jobs.job_requests import cancel_job, list_pending_jobs
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


@pytest.fixture(autouse=True)
def _cancel_pending_jobs(api: ApiContext) -> Iterator[None]:
    """Cancel pending jobs after each test."""
    yield
    for job in list_pending_jobs(api.pipeline.engine):
        cancel_job(api.pipeline.engine, job.job_id, cancelled_by="test")


def test_trigger_creates_one_job_and_cancel_ends_it(admin: TestClient, api: ApiContext) -> None:
    project_id = str(api.pipeline.project().id)
    made = admin.post(f"{API}/jobs", json={"project": SLUG, "trigger_type": "manual"})
    again = admin.post(f"{API}/jobs", json={"project": project_id})
    job = made.json()
    assert (made.status_code, job["status"], job["message"]) == (202, "pending", "Consolidation job queued")
    assert (job["created"], again.json()["created"]) == (True, False)
    assert again.json()["job_id"] == job["job_id"]
    assert job["project_id"] == project_id
    assert job["estimated_duration_seconds"] >= 1
    assert job["estimated_completion"].endswith("Z")
    assert admin.get(made.headers["location"]).json()["status"] == "pending"
    cancelled = admin.post(f"{API}/jobs/{job['job_id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    twice = admin.post(f"{API}/jobs/{job['job_id']}/cancel")
    assert (twice.status_code, twice.json()["error"]) == (409, "conflict")


def test_jobs_of_other_kinds_are_queued(admin: TestClient) -> None:
    replies = [
        admin.post(f"{API}/jobs", json={"project": SLUG, **what}).json()
        for what in ({}, {"job": "decay"}, {"options": {"archive": False}})
    ]
    assert [reply["created"] for reply in replies] == [True] * 3
    assert [reply["jobs_ahead"] for reply in replies] == [0, 1, 2]
    assert replies[1]["message"] == "Consolidation job queued behind 1 job of the project"
    again = admin.post(f"{API}/jobs", json={"project": SLUG, "job": "decay"}).json()
    assert (again["job_id"], again["jobs_ahead"]) == (replies[1]["job_id"], 1)
    assert again["message"] == "The same job is pending or running already and is returned; no job was created"
    listed = admin.get(f"{API}/projects/{SLUG}/jobs").json()["jobs"]
    assert [job["id"] for job in reversed(listed[:3])] == [reply["job_id"] for reply in replies]


def test_triggered_job_records_key_name(admin: TestClient) -> None:
    job = admin.post(f"{API}/jobs", json={"project": SLUG}).json()
    reply = admin.get(f"{API}/jobs/{job['job_id']}").json()
    assert reply["triggered_by"] == "api:admin of all projects"


def test_request_log_names_project_job_and_key(admin: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="consolidation_pipeline.api"):
        job = admin.post(f"{API}/jobs", json={"project": SLUG}).json()["job_id"]
        admin.get(f"{API}/jobs/{job}")
    triggered, followed = map(TextFormatter().format, caplog.records)
    assert re.search(rf" key=[0-9a-f-]{{36}} project={SLUG} job={job}$", triggered)
    assert followed.endswith(f" job={job}")


def test_job_options_are_validated_and_apply_once(admin: TestClient, api: ApiContext) -> None:
    options = {"archive": False, "similarity_threshold": 0.97, "min_cluster_size": 2}
    made = admin.post(f"{API}/jobs", json={"project": SLUG, "options": options})
    assert made.status_code == 202
    with api.pipeline.open(SLUG) as run:
        assert str(run.job_id) == made.json()["job_id"]
        assert (run.options.archive, run.options.t_merge, run.options.summarize) == (False, 0.97, True)
    with api.pipeline.open(SLUG) as run:
        assert run.options.archive is True
    wrong = admin.post(f"{API}/jobs", json={"project": SLUG, "options": {"min_cluster_size": 9}})
    assert (wrong.status_code, wrong.json()["error"]) == (422, "invalid_option")
    assert "min_cluster_size = 9 is not allowed: expected" in wrong.json()["message"]


def test_trigger_refuses_invalid_scope(admin: TestClient) -> None:
    def trigger(scope: dict[str, Any]) -> Any:
        return admin.post(f"{API}/jobs", json={"project": SLUG, "scope": scope})

    wrong = trigger({"memory_types": ["invalid_type"]})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "invalid_scope")
    assert wrong.json()["message"].startswith("Invalid scope: memory_type 'invalid_type' not recognized")
    for scope in ({"tags": []}, {"memory_types": "decision"}, {"date_range": ["x"]}, {"unconsolidated_only": "yes"}):
        assert trigger(scope).status_code == 400
    right = trigger({"unconsolidated_only": True, "memory_types": ["error_fix", "discovery"]})
    assert right.status_code == 202
    assert "the run looks at all memories of the project" in right.json()["message"]


def test_trigger_refuses_disabled_project(admin: TestClient) -> None:
    switch = f"{API}/projects/{SLUG}/options"
    assert admin.post(switch, json={"consolidation_enabled": False}).json()["consolidation_enabled"] is False
    refused = admin.post(f"{API}/jobs", json={"project": SLUG})
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert admin.post(switch, json={"enabled": True}).json()["consolidation_enabled"] is True


def test_unknown_references_have_distinct_error_codes(admin: TestClient) -> None:
    def trigger(**body: Any) -> tuple[int, str]:
        answer = admin.post(f"{API}/jobs", json={"project": SLUG, **body})
        return answer.status_code, answer.json()["error"]

    assert trigger(phases=["dreaming"]) == (400, "invalid_scope")
    assert trigger(project="nobody") == (404, "not_found")
    assert trigger(speed=11) == (422, "validation_error")
    assert trigger(options={"speed": 11}) == (422, "invalid_option")
    assert trigger(trigger_type="magic") == (422, "validation_error")
    missing = admin.get(f"{API}/jobs/{uuid4()}")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")


def test_job_status_shows_counters_and_changes(admin: TestClient, api: ApiContext) -> None:
    reply = admin.get(f"{API}/jobs/{api.job_id}").json()
    assert (reply["status"], reply["progress"], reply["project"]) == ("completed", 1.0, SLUG)
    assert reply["memories_merged"] == 3
    assert len(reply["consolidation_changes"]) == reply["consolidation_changes_total"] > 0
    jobs = admin.get(f"{API}/projects/{SLUG}/jobs", params={"limit": 100}).json()["jobs"]
    assert str(api.job_id) in [job["id"] for job in jobs]


def test_summary_and_profile_routes_queue_own_phases(admin: TestClient) -> None:
    first = admin.post(f"{API}/projects/{SLUG}/summaries")
    assert (first.status_code, first.json()["phases"]) == (202, ["embedding_matrix", "semantic_summaries"])
    admin.post(f"{API}/jobs/{first.json()['job_id']}/cancel")
    second = admin.post(f"{API}/projects/{SLUG}/profile")
    assert (second.status_code, second.json()["phases"]) == (202, ["procedural_profile"])


def test_history_route_pages_filters_and_counts(admin: TestClient, api: ApiContext) -> None:
    for pinned in (True, False):
        admin.post(f"{API}/memories/{api.memory}/pin", json={"pinned": pinned})

    def read(**query: Any) -> Any:
        return admin.get(f"{API}/projects/{SLUG}/history", params=query)

    whole = read().json()
    assert (whole["limit"], whole["offset"]) == (50, 0)
    assert whole["total"] == len(whole["history"]) > 1
    times = [one["changed_at"] for one in whole["history"]]
    assert times == sorted(times, reverse=True)
    second = read(limit=1, offset=1).json()
    assert (second["total"], second["history"]) == (whole["total"], whole["history"][1:2])
    merges = read(operation="merge").json()
    assert {one["operation"] for one in merges["history"]} == {"merge"}
    assert read(since="2999-01-01T00:00:00Z").json()["total"] == 0
    assert read(until="2999-01-01").json()["total"] == whole["total"]
    assert read(operation="dream").json()["error"] == "usage"
    for wrong in ({"limit": 0}, {"limit": 101}, {"offset": -1}, {"since": "x"}):
        assert read(**wrong).status_code == 422


def test_ledger_is_identical_as_json_and_jsonl(admin: TestClient, api: ApiContext) -> None:
    path = f"{API}/projects/{SLUG}/changes"
    page = admin.get(path, params={"limit": 1000}).json()
    lines = admin.get(path, params={"format": "jsonl"})
    accepted = admin.get(path, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == page["changes"]
    assert accepted.text == lines.text
    assert page["total"] == len(page["changes"])
    some = admin.get(path, params={"format": "jsonl", "limit": 2, "offset": 1}).text.splitlines()
    assert [json.loads(line) for line in some] == page["changes"][1:3]
    own = admin.get(path, params={"job_id": str(api.job_id), "operation": "merge"}).json()
    assert {one["job_id"] for one in own["changes"]} == {str(api.job_id)}
    assert admin.get(f"{API}/projects/nobody/changes", params={"format": "jsonl"}).status_code == 404


def test_rollback_route_undoes_and_redoes(admin: TestClient, api: ApiContext) -> None:
    body = {"target": str(api.job_id), "reason": "Incorrect merge"}
    undone = admin.post(f"{API}/rollback", json=body)
    assert (undone.status_code, undone.json()["success"]) == (200, True)
    assert undone.json()["memories_deleted"] >= 1
    assert undone.json()["warnings"]
    again = admin.post(f"{API}/rollback", json={"id": str(api.job_id)})
    assert (again.status_code, again.json()["error"]) == (409, "conflict")
    assert again.json()["conflicts"] == [undone.json()["rollback_id"]]
    redone = admin.post(f"{API}/rollback", json={"target": undone.json()["rollback_id"]})
    assert (redone.json()["redone"], redone.json()["warnings"]) == (True, [])
    assert admin.post(f"{API}/rollback", json={"target": str(uuid4())}).status_code == 404


def test_rollback_after_rollback_days_returns_400(admin: TestClient, api: ApiContext) -> None:
    (group, *_) = admin.get(f"{API}/projects/{SLUG}/history").json()["history"]
    # Triggers protect the ledger against updates, so they are disabled to backdate the change.
    with api.pipeline.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        age = "UPDATE consolidation.consolidation_changes SET changed_at = changed_at - interval '8 days'"
        connection.exec_driver_sql(f"{age} WHERE group_id = %s", (group["group_id"],))
    late = admin.post(f"{API}/rollback", json={"target": group["group_id"]})
    assert (late.status_code, late.json()["error"]) == (400, "expired")


def test_plan_route_lists_and_counts_merges(admin: TestClient) -> None:
    plan = admin.post(f"{API}/plan", json={"project": FOREIGN})
    assert plan.status_code == 200
    (merge,) = plan.json()["merges"]
    assert (plan.json()["project"], len(merge["sources"])) == (FOREIGN, 2)
    assert (plan.json()["totals"]["merge_groups"], plan.json()["totals"]["memories_merged"]) == (1, 2)


def test_third_concurrent_plan_returns_503(api: ApiContext, admin: TestClient) -> None:
    slots = api.app.state.plan_slots
    with slots, slots:
        refused = admin.post(f"{API}/plan", json={"project": FOREIGN})
    assert (refused.status_code, refused.json()["error"]) == (503, "unavailable")
    assert refused.headers["retry-after"] == "5"


def test_configure_route_sets_resets_and_validates(admin: TestClient) -> None:
    path = f"{API}/projects/{FOREIGN}/options"
    changed = admin.post(path, json={"archive_stale_days": 120, "similarity_threshold": 0.97}).json()
    assert changed["config"] == {"archive_stale_days": 120, "t_merge": 0.97}
    assert changed["effective"]["archive_stale_days"] == 120
    wrong = admin.post(path, json={"archive_stale_days": 5})
    assert (wrong.status_code, wrong.json()["error"]) == (422, "invalid_option")
    assert wrong.json()["message"] == "archive_stale_days = 5 is not allowed: expected a whole number from 30 to 365"
    assert admin.post(path, json={"speed": 11}).status_code == 422
    assert admin.post(path, json={"archive_stale_days": None, "t_merge": None}).json()["config"] == {}
    assert admin.get(path).json()["effective"]["archive_stale_days"] == 90


def test_metrics_route_counts_memories_of_project(admin: TestClient) -> None:
    reply = admin.get(f"{API}/projects/{SLUG}/metrics").json()
    assert reply["model_failures"] == []
    assert reply["total_memories"] == reply["raw_count"] + reply["consolidated_count"] + reply["archived_count"] == 6
    assert reply["reduction_percentage"] == pytest.approx(100 / 3, abs=0.001)
    assert set(reply["abstraction_distribution"]) == {"1", "2", "3"}
    assert reply["last_run_time"] < reply["next_run_time"]
    assert reply["memory_type_distribution"] == {"learning": reply["raw_count"]}


def test_report_of_a_job_is_json_or_a_page(admin: TestClient) -> None:
    job = admin.get(f"{API}/projects/{SLUG}/jobs").json()["jobs"][-1]["id"]
    report = admin.get(f"{API}/jobs/{job}/report")
    assert report.status_code == 200
    assert report.json()["run"]["job_id"] == job
    page = admin.get(f"{API}/jobs/{job}/report?format=html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert job in page.text
    assert admin.get(f"{API}/jobs/{uuid4()}/report").status_code == 404
    assert admin.get(f"{API}/jobs/{job}/report?format=pdf").status_code == 422
