"""Routes of relations: what supersedes what, and the decisions of people."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from starlette.testclient import TestClient

from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.api.review_client import PageVisitor
from consolidation_pipeline_tests.service.knowledge.test_supersessions import dated
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

API = "/api/v1"


def add_candidate(api: ApiContext) -> dict[str, Any]:
    """Add two versions of a fact by different people; return their relation."""
    rows = [dated("v1", "The mailer retries 3 times.", 1), dated("v2", "The mailer retries 5 times.", 2)]
    api.pipeline.add(rows, SLUG)
    api.pipeline.run_phases(["embedding_matrix", "supersessions"])
    (relation,) = api.client("admin").get(f"{API}/projects/{SLUG}/relations").json()["relations"]
    found: dict[str, Any] = relation
    return found


def test_relations_are_listed_and_decided(api: ApiContext, admin: TestClient) -> None:
    relation = add_candidate(api)
    assert (relation["relation_type"], relation["status"]) == ("supersedes", "candidate")
    assert (relation["a_text"], relation["b_text"]) == ("The mailer retries 5 times.", "The mailer retries 3 times.")
    assert admin.get(f"{API}/projects/{SLUG}/relations", params={"relation_type": "explains"}).json()["relations"] == []
    body = {"ids": [relation["id"]], "reason": "seen in the code"}
    confirmed = admin.post(f"{API}/relations/confirm", json=body)
    assert (confirmed.status_code, confirmed.json()["status"]) == (200, "confirmed")
    (group,) = (one["group_id"] for one in confirmed.json()["relations"])
    assert admin.post(f"{API}/relations/confirm", json=body).status_code == 409
    search = {"project": SLUG, "query": "The mailer retries 3 times."}
    first, second = admin.post(f"{API}/search", json=search).json()["results"][:2]
    assert (first["content"], second["content"]) == (relation["a_text"], relation["b_text"])
    assert second["superseded_by"][0] | {"reason": ""} == {
        "id": relation["a_id"],
        "content": relation["a_text"],
        "created_at": "2026-03-02T12:00:00Z",
        "status": "confirmed",
        "reason": "",
    }
    assert [one["id"] for one in first["supersedes"]] == [relation["b_id"]]
    api.pipeline.roll_back(UUID(group))
    rejected = admin.post(f"{API}/relations/reject", json=body)
    assert rejected.json()["status"] == "rejected"
    assert (
        admin.get(f"{API}/projects/{SLUG}/relations", params={"status": "rejected"}).json()["totals"]["rejected"] == 1
    )


def test_history_page_tells_which_memories_are_linked(api: ApiContext) -> None:
    relation = add_candidate(api)
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("admin", None))
    page = visitor.get(f"/projects/{SLUG}/changes?operation=associate").text
    texts = "\u2068The mailer retries 5 times.\u2069 ↔ \u2068The mailer retries 3 times.\u2069"
    assert f'memories/{relation["a_id"]}">{texts}</a>' in page


def test_relations_of_other_projects_are_hidden(api: ApiContext) -> None:
    relation = add_candidate(api)
    other = api.client("admin", "foreign")
    for path in ("confirm", "reject"):
        answer = other.post(f"{API}/relations/{path}", json={"ids": [relation["id"]]})
        assert (answer.status_code, answer.json()["message"]) == (404, f"there is no relation {relation['id']}")
    missing = api.client("admin").post(f"{API}/relations/confirm", json={"ids": [str(uuid4())]})
    assert missing.status_code == 404


def test_search_context_and_playbook_take_a_date(api: ApiContext, admin: TestClient) -> None:
    add_candidate(api)
    search, context = f"{API}/search", f"{API}/context"
    bodies = {
        search: {"project": SLUG, "query": "The mailer retries 3 times."},
        context: {"project": SLUG, "task": "How often does the mailer retry?"},
    }
    for path, body in bodies.items():
        then = admin.post(path, json=body | {"as_of": "2026-03-01"}).json()
        texts = [one["content"] for one in then.get("results") or then["consolidated_memories"]]
        assert texts == ["The mailer retries 3 times."]
        for wrong in ("2999-01-01", "soon"):
            answer = admin.post(path, json=body | {"as_of": wrong})
            assert (answer.status_code, f"as_of is '{wrong}'" in answer.json()["message"]) == (400, True)
    assert admin.get(f"{API}/projects/{SLUG}/playbook", params={"as_of": "2026-03-01"}).json()["entries"] == []
    assert admin.get(f"{API}/projects/{SLUG}/playbook", params={"as_of": "2999-01-01"}).status_code == 400


def test_project_page_tells_candidates_and_whose_memories_are(api: ApiContext) -> None:
    rows = [dated("p1", "The pager rings 3 times.", 1), dated("p2", "The pager rings 5 times.", 2)]
    api.pipeline.add([*rows, {**dated("mine", "I start at nine.", 3), "user_id": "ada"}], SLUG)
    api.pipeline.run_phases(["embedding_matrix", "supersessions"])
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key("reader"))
    assert "1 memory may take the place of older ones" in visitor.get(f"/projects/{SLUG}").text
    assert " · of ada" in visitor.get(f"/projects/{SLUG}/knowledge?kind=raw").text
