"""Routes of manual actions, review and playbook; access with keys of one project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext, add_entry
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


def test_archive_and_restore_routes_change_memory(admin: TestClient, api: ApiContext) -> None:
    memory = api.memory
    done = admin.post(f"{API}/memories/{memory}/archive", json={"reason": "obsolete"})
    assert (done.status_code, done.json()["id"], done.json()["kind"]) == (200, memory, "raw")
    twice = admin.post(f"{API}/memories/{memory}/archive")
    assert (twice.status_code, twice.json()["error"], twice.json()["conflicts"]) == (409, "conflict", [memory])
    assert admin.post(f"{API}/memories/{memory}/restore").status_code == 200
    assert admin.post(f"{API}/memories/{uuid4()}/restore").status_code == 404


def test_quarantine_route_takes_memory_out_and_releases_it(admin: TestClient, api: ApiContext) -> None:
    body = {"ids": [api.memory]}
    preview = admin.post(f"{API}/quarantine/preview", json=body)
    assert (preview.status_code, preview.json()["memories"]) == (200, [api.memory])
    done = admin.post(f"{API}/quarantine", json={**body, "project": SLUG, "reason": "planted"}).json()
    assert (done["project"], done["memories"]) == (SLUG, [api.memory])
    assert admin.get(f"{API}/memories/{api.memory}").json()["archive_reason"] == "quarantine: planted"
    assert admin.post(f"{API}/quarantine", json=body).status_code == 409
    undone = admin.post(f"{API}/rollback", json={"target": done["group_id"]})
    assert undone.status_code == 200
    assert admin.get(f"{API}/memories/{api.memory}").json()["status"] == "active"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"agent_id": "x"}, 400),
        ({"agent_id": "x", "project": SLUG}, 409),
        ({"ids": [str(uuid4())]}, 404),
        ({"agent_id": ""}, 422),
    ],
)
def test_quarantine_routes_refuse_unusable_filters(admin: TestClient, body: dict[str, Any], status: int) -> None:
    for route in ("quarantine", "quarantine/preview"):
        assert admin.post(f"{API}/{route}", json=body).status_code == status


def test_pin_route_pins_and_unpins_memory(admin: TestClient, api: ApiContext) -> None:
    memory = api.memory
    assert admin.post(f"{API}/memories/{memory}/pin").status_code == 200
    assert admin.post(f"{API}/memories/{memory}/archive").status_code == 409
    assert admin.post(f"{API}/memories/{memory}/pin", json={"pinned": False}).status_code == 200


def test_manual_change_is_rolled_back_by_group(admin: TestClient, api: ApiContext) -> None:
    group = admin.post(f"{API}/memories/{api.memory}/pin").json()["group_id"]
    undone = admin.post(f"{API}/rollback", json={"target": group})
    assert (undone.json()["scope"], undone.json()["memories_restored"]) == ("group", 1)


def test_review_queue_lists_and_decides_entries(admin: TestClient, api: ApiContext) -> None:
    add_entry(api)
    review = admin.get(f"{API}/projects/{SLUG}/review", params={"kind": "playbook"}).json()
    (waiting,) = review["waiting"]
    assert (review["totals"]["playbook"], waiting["content"]) == (1, "Batch the requests.")
    other = {"ids": [waiting["id"]], "expected": {waiting["id"]: "0" * 12}}
    refused = admin.post(f"{API}/review/approve", json=other)
    assert (refused.status_code, refused.json()["conflicts"]) == (409, [waiting["id"]])
    assert admin.post(f"{API}/review/approve", json={**other, "ids": [api.memory]}).status_code == 400
    read = {"ids": [waiting["id"]], "expected": {waiting["id"]: waiting["text_hash"]}}
    approved = admin.post(f"{API}/review/approve", json=read)
    assert (approved.status_code, approved.json()["decision"]) == (200, "approved")
    assert admin.post(f"{API}/review/approve", json={"ids": [waiting["id"]]}).status_code == 409

    (entry,) = admin.get(f"{API}/projects/{SLUG}/playbook", params={"category": "performance"}).json()["entries"]
    assert (entry["id"], entry["status"]) == (waiting["id"], "active")
    document = admin.get(f"{API}/projects/{SLUG}/playbook", params={"format": "md"})
    assert document.headers["content-type"].startswith("text/markdown")
    assert "Batch the requests." in document.text
    assert admin.get(f"{API}/projects/{SLUG}/playbook", params={"format": "md", "status": "review"}).status_code == 400

    dismissed = admin.post(f"{API}/review/dismiss", json={"ids": [waiting["id"]], "reason": "no"})
    assert dismissed.json()["decided"][0]["kind"] == "playbook"
    assert admin.post(f"{API}/review/approve", json={"ids": []}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "jobs"),
        ("POST", "plan"),
        ("GET", f"projects/{SLUG}/history"),
        ("GET", "projects/nobody/history"),
        ("GET", f"playbook/{SLUG}"),
    ],
)
def test_project_key_gets_403_for_any_other_project(api: ApiContext, method: str, path: str) -> None:
    body = {"project": SLUG} if method == "POST" else None
    answer = api.client("admin", FOREIGN).request(method, f"{API}/{path}", json=body)
    assert (answer.status_code, answer.json()["message"]) == (403, f"this key is for project {FOREIGN} only")


@pytest.mark.parametrize(
    "send_request",
    [
        lambda client, api: client.get(f"{API}/jobs/{api.job_id}"),
        lambda client, api: client.post(f"{API}/jobs/{api.job_id}/cancel"),
        lambda client, api: client.post(f"{API}/rollback", json={"target": str(api.job_id)}),
        lambda client, api: client.post(f"{API}/memories/{api.memory}/archive"),
        lambda client, api: client.post(f"{API}/review/dismiss", json={"ids": [api.memory]}),
    ],
)
def test_project_key_gets_404_for_foreign_rows(
    api: ApiContext, send_request: Callable[[TestClient, ApiContext], Any]
) -> None:
    answer = send_request(api.client("admin", FOREIGN), api)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_rate_limited_key_returns_429(api: ApiContext) -> None:
    slow = api.pipeline.settings.model_copy(update={"api_rate": 0.01, "api_burst": 1})
    client = api.client("reader", app=create_app(api.pipeline.engine, slow))
    assert client.get(f"{API}/projects/{SLUG}/playbook").status_code == 200
    refused = client.get(f"{API}/projects/{SLUG}/playbook")
    assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
    assert 0 < int(refused.headers["retry-after"]) <= 100


def test_api_auth_off_refuses_foreign_host_header(api: ApiContext) -> None:
    off = api.pipeline.settings.model_copy(update={"api_auth": "off"})
    client = api.client(None, app=create_app(api.pipeline.engine, off))
    assert client.get(f"{API}/projects/{SLUG}/playbook").status_code == 200
    rebound = client.get(f"{API}/projects/{SLUG}/playbook", headers={"Host": "evil.example"})
    assert rebound.status_code == 403
