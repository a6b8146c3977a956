"""Routes of suggestions: list, approve, reject and expire; access with keys of other projects."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext, add_suggestions
from consolidation_pipeline_tests.api.review_client import add_pair_suggestions
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

SUGGESTIONS = f"{API}/suggestions"


@pytest.fixture(scope="module")
def suggestion_ids(api: ApiContext) -> list[str]:
    """Ids of three suggestions of the project."""
    return add_suggestions(api, 3)


def test_suggestions_are_listed_and_filtered(api: ApiContext, admin: TestClient, suggestion_ids: list[str]) -> None:
    page = admin.get(SUGGESTIONS, params={"project": SLUG, "limit": 2}).json()
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 0)
    assert [one["id"] for one in page["suggestions"]] == suggestion_ids[:2]
    shown = admin.get(f"{SUGGESTIONS}/{suggestion_ids[0]}").json()
    assert shown == page["suggestions"][0]
    assert len(shown["originals"]) == 2
    (value,) = shown["differences"]
    ids = {original["id"]: original["content"] for original in shown["originals"]}
    assert (value["kind"], value["contradicts"]) == ("value", True)
    assert {value["a_id"], value["b_id"]} == ids.keys()
    for id_, (passage,) in ((value["a_id"], value["a"]), (value["b_id"], value["b"])):
        assert passage == {"text": passage["text"], "start": ids[id_].index(passage["text"])}
        assert passage["text"] in ("30 seconds", "31 seconds")
    assert admin.get(SUGGESTIONS, params={"min_similarity": 0.99}).json()["total"] == 0
    assert admin.get(SUGGESTIONS, params={"type": "nonsense"}).status_code == 400
    assert admin.get(SUGGESTIONS, params={"status": "nonsense"}).status_code == 422
    own = api.client("admin", SLUG)
    assert own.get(SUGGESTIONS).json()["total"] == 3


def test_misspelt_project_filter_of_suggestions_is_refused(admin: TestClient) -> None:
    refused = admin.get(SUGGESTIONS, params={"project_id": SLUG})
    assert refused.status_code == 422
    known = "differ_only_in, limit, min_similarity, offset, project, status, type"
    assert refused.json()["message"] == f"query.project_id: unknown query parameter; known are {known}"


def test_suggestions_are_hidden_from_foreign_key(api: ApiContext, suggestion_ids: list[str]) -> None:
    foreign = api.client("admin", FOREIGN)
    assert foreign.get(SUGGESTIONS).json()["total"] == 0
    assert foreign.get(SUGGESTIONS, params={"project": SLUG}).status_code == 403
    for method, path in (("GET", ""), ("POST", "/approve"), ("POST", "/reject"), ("POST", "/keep"), ("DELETE", "")):
        assert foreign.request(method, f"{SUGGESTIONS}/{suggestion_ids[0]}{path}").status_code == 404
    together = {"project": SLUG, "decision": "reject", "differ_only_in": "value"}
    assert foreign.post(f"{SUGGESTIONS}/decide", json=together).status_code == 403


def test_suggestion_is_decided_only_once(api: ApiContext, admin: TestClient, suggestion_ids: list[str]) -> None:
    body = {"content": "Approved with this text.", "lessons_learned": "", "note": "fine"}
    other = admin.post(f"{SUGGESTIONS}/{suggestion_ids[0]}/approve", json={**body, "expected": "0" * 12})
    assert (other.status_code, "written anew since you read it" in other.json()["message"]) == (409, True)
    body["expected"] = admin.get(f"{SUGGESTIONS}/{suggestion_ids[0]}").json()["text_hash"]
    done = admin.post(f"{SUGGESTIONS}/{suggestion_ids[0]}/approve", json=body)
    assert done.status_code == 200
    memory = admin.get(f"{API}/memories/{done.json()['memory_id']}").json()
    assert memory["content"] == "Approved with this text."
    for path in ("/approve", "/reject"):
        again = admin.post(f"{SUGGESTIONS}/{suggestion_ids[0]}{path}")
        assert (again.status_code, again.json()["conflicts"]) == (409, [suggestion_ids[0]])
        assert "approved by api:" in again.json()["message"]
    assert admin.post(f"{SUGGESTIONS}/{suggestion_ids[1]}/reject", json={"note": "no"}).json()["status"] == "rejected"
    assert admin.delete(f"{SUGGESTIONS}/{suggestion_ids[2]}").json()["status"] == "expired"
    assert admin.delete(f"{SUGGESTIONS}/{suggestion_ids[2]}").status_code == 409
    undone = admin.post(f"{API}/rollback", json={"target": done.json()["group_id"]})
    assert undone.status_code == 200
    assert [one["id"] for one in admin.get(SUGGESTIONS).json()["suggestions"]] == suggestion_ids[:1]
    query = "SELECT count(*) FROM {s}.consolidation_suggestions WHERE status = 'pending' AND id = :id"
    assert api.pipeline.value(query, id=UUID(suggestion_ids[0])) == 1


def test_leaving_out_of_a_pair_is_refused(admin: TestClient, suggestion_ids: list[str]) -> None:
    path = f"{SUGGESTIONS}/{suggestion_ids[0]}"
    original = admin.get(path).json()["originals"][0]["id"]
    for left_out, message in ((original, "a merge needs two"), (suggestion_ids[0], "is no original of suggestion")):
        refused = admin.post(f"{path}/approve", json={"leave_out": [left_out]})
        assert (refused.status_code, message in refused.json()["message"]) == (400, True)


def test_suggestions_of_a_kind_are_decided_together(api: ApiContext, admin: TestClient) -> None:
    foreign = {"project": FOREIGN, "decision": "keep"}
    add_pair_suggestions(api.pipeline, FOREIGN, count=3)
    page = admin.get(SUGGESTIONS, params={"project": FOREIGN, "differ_only_in": "value"}).json()
    assert (page["total"], page["kinds"]) == (3, {"value: after #": 3})
    kept = admin.post(f"{SUGGESTIONS}/{page['suggestions'][0]['id']}/keep", json={"note": "two times"}).json()
    assert (kept["status"], kept["project"]) == ("kept", FOREIGN)
    done = admin.post(f"{SUGGESTIONS}/decide", json={**foreign, "differ_only_in": "value: after #"}).json()
    assert ([one["status"] for one in done["decided"]], done["refused"], done["remaining"]) == (["kept"] * 2, [], 0)
    assert admin.post(f"{SUGGESTIONS}/decide", json=foreign).status_code == 400
    assert admin.post(f"{SUGGESTIONS}/decide", json={**foreign, "differ_only_in": "colour"}).status_code == 400


def test_suggestion_list_tells_groups_beyond_limit(admin: TestClient) -> None:
    page = admin.get(SUGGESTIONS, params={"project": SLUG}).json()
    assert page["groups_beyond_limit"] == 1


def test_suggestion_route_refuses_invalid_input(admin: TestClient, suggestion_ids: list[str]) -> None:
    assert admin.get(f"{SUGGESTIONS}/{uuid4()}").status_code == 404
    assert admin.post(f"{SUGGESTIONS}/{suggestion_ids[0]}/approve", json={"text": "x"}).status_code == 422
    assert admin.post(f"{SUGGESTIONS}/{suggestion_ids[0]}/approve", json={"content": "  "}).status_code == 400
