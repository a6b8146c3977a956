"""Suggestions over HTTP: listed, approved and rejected, each once, and only by whose they are."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline_tests.api.conftest import API, FOREIGN, Served, suggest
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

SUGGESTIONS = f"{API}/suggestions"


@pytest.fixture(scope="module")
def waiting(served: Served) -> list[str]:
    """Three suggestions of the project."""
    return suggest(served, 3)


def test_suggestions_are_listed_and_filtered(served: Served, admin: TestClient, waiting: list[str]) -> None:
    page = admin.get(SUGGESTIONS, params={"project": SLUG, "limit": 2}).json()
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 0)
    assert [one["id"] for one in page["suggestions"]] == waiting[:2]
    shown = admin.get(f"{SUGGESTIONS}/{waiting[0]}").json()
    assert shown == page["suggestions"][0]
    assert len(shown["originals"]) == 2
    assert admin.get(SUGGESTIONS, params={"min_similarity": 0.99}).json()["total"] == 0
    assert admin.get(SUGGESTIONS, params={"type": "nonsense"}).status_code == 400
    assert admin.get(SUGGESTIONS, params={"status": "nonsense"}).status_code == 422
    own = served.client("admin", SLUG)
    assert own.get(SUGGESTIONS).json()["total"] == 3


def test_suggestions_are_hidden_from_foreign_key(served: Served, waiting: list[str]) -> None:
    foreign = served.client("admin", FOREIGN)
    assert foreign.get(SUGGESTIONS).json()["total"] == 0
    assert foreign.get(SUGGESTIONS, params={"project": SLUG}).status_code == 403
    for method, path in (("GET", ""), ("POST", "/validate"), ("POST", "/reject"), ("DELETE", "")):
        assert foreign.request(method, f"{SUGGESTIONS}/{waiting[0]}{path}").status_code == 404


def test_suggestion_is_decided_only_once(served: Served, admin: TestClient, waiting: list[str]) -> None:
    body = {"content": "Approved in these words.", "lessons_learned": "", "note": "fine"}
    done = admin.post(f"{SUGGESTIONS}/{waiting[0]}/validate", json=body)
    assert done.status_code == 200
    memory = admin.get(f"{API}/memories/{done.json()['memory_id']}").json()
    assert memory["content"] == "Approved in these words."
    for path in ("/validate", "/reject"):
        again = admin.post(f"{SUGGESTIONS}/{waiting[0]}{path}")
        assert (again.status_code, again.json()["conflicts"]) == (409, [waiting[0]])
        assert "approved by api:" in again.json()["message"]
    assert admin.post(f"{SUGGESTIONS}/{waiting[1]}/reject", json={"note": "no"}).json()["status"] == "rejected"
    assert admin.delete(f"{SUGGESTIONS}/{waiting[2]}").json()["status"] == "expired"
    assert admin.delete(f"{SUGGESTIONS}/{waiting[2]}").status_code == 409
    undone = admin.post(f"{API}/consolidation/rollback", json={"consolidation_id": done.json()["group_id"]})
    assert undone.status_code == 200
    assert [one["id"] for one in admin.get(SUGGESTIONS).json()["suggestions"]] == waiting[:1]
    query = "SELECT count(*) FROM {s}.consolidation_suggestions WHERE status = 'pending' AND id = :id"
    assert served.pipeline.value(query, id=UUID(waiting[0])) == 1


def test_suggestion_route_refuses_invalid_input(admin: TestClient, waiting: list[str]) -> None:
    assert admin.get(f"{SUGGESTIONS}/{uuid4()}").status_code == 404
    assert admin.post(f"{SUGGESTIONS}/{waiting[0]}/validate", json={"text": "x"}).status_code == 422
    assert admin.post(f"{SUGGESTIONS}/{waiting[0]}/validate", json={"content": "  "}).status_code == 400
