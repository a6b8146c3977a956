"""Routes for agents: add and read memories, search, lineage, context, feedback."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS
from consolidation_pipeline_tests.api.conftest import API, ApiContext
from consolidation_pipeline_tests.cli.conftest import LESSONS
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


@pytest.fixture
def agent(api: ApiContext) -> TestClient:
    return api.client("agent", SLUG)


@pytest.fixture
def reader(api: ApiContext) -> TestClient:
    return api.client("reader", SLUG)


def search(reader: TestClient, query: str, **more: Any) -> dict[str, Any]:
    answer = reader.post(f"{API}/search", json={"project": SLUG, "query": query, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def count_uses(api: ApiContext) -> int:
    api.pipeline.fold_uses(SLUG)
    raw, merged = (
        "SELECT sum(reused_count) FROM {s}.task_memories",
        "SELECT sum(reuse_count) FROM {s}.consolidated_memories",
    )
    return int(api.pipeline.value(raw) + api.pipeline.value(merged))


def test_search_hits_count_as_uses_after_shutdown(api: ApiContext) -> None:
    before, app = count_uses(api), create_app(api.pipeline.engine, api.pipeline.settings)
    with api.client("reader", app=app) as client:
        found = [len(search(client, LESSONS[0], min_similarity=0)["results"]) for _ in range(3)]
    assert min(found) > 0
    assert count_uses(api) - before == sum(found)


def test_added_memory_is_idempotent_and_searchable(agent: TestClient, reader: TestClient) -> None:
    row = {"content": "Rotate the signing keys monthly.", "tags": ["keys"], "feedback": "Worked.", "importance": 0.7}
    made = agent.post(f"{API}/memories", json={"project": SLUG, "id": "k1", **row})
    again = agent.post(f"{API}/memories", json={"project": SLUG, "external_id": "k1", **row})
    assert (made.status_code, made.json()["status"]) == (201, "added")
    assert (again.status_code, again.json()["status"]) == (200, "existing")
    id_ = made.json()["id"]
    assert again.json()["id"] == id_
    other = agent.post(f"{API}/memories", json={"project": SLUG, "id": "k1", "execution_summary": "Else."})
    assert (other.status_code, other.json()["error"]) == (422, "invalid_memory")
    memory = agent.get(f"{API}/memories/{id_}").json()
    assert {name: memory[name] for name in row} == row
    assert (memory["kind"], memory["level"], memory["status"]) == ("raw", 0, "active")
    assert memory["agent_id"] == f"api:agent of {SLUG}"
    assert search(reader, "how often do signing keys rotate")["results"][0]["id"] == id_


def test_bulk_add_stores_valid_rows_despite_errors(agent: TestClient) -> None:
    rows = [{"content": "A good one."}, {"content": " "}, {"contents": "x"}, {"content": "x", "memory_type": "magic"}]
    answer = agent.post(f"{API}/memories/bulk", json={"project": SLUG, "memories": rows})
    memory = answer.json()
    assert (answer.status_code, len(memory["added"]), memory["existing"]) == (201, 1, [])
    assert [error["index"] for error in memory["errors"]] == [1, 2, 3]
    assert "contents: unknown field; known are agent_id, content, " in memory["errors"][1]["message"]
    assert "expected one of error_fix" in memory["errors"][2]["message"]
    assert memory["ids"] == [memory["added"][0], None, None, None]
    again = agent.post(f"{API}/memories/bulk", json={"project": SLUG, "memories": rows[:1]})
    assert (again.status_code, again.json()["existing"]) == (200, memory["added"])


def test_feedback_changes_importance_and_is_listed(agent: TestClient) -> None:
    id_ = agent.post(f"{API}/memories", json={"project": SLUG, "content": "Feedback is welcome."}).json()["id"]
    given = agent.post(f"{API}/memories/{id_}/feedback", json={"helpful": True, "comment": "yes"}).json()
    assert given["importance"] > given["importance_before"]
    memory = agent.get(f"{API}/memories/{id_}").json()
    assert (memory["importance"], memory["feedback"]) == (given["importance"], None)
    assert [one["group_id"] for one in memory["feedback_given"]] == [given["group_id"]]
    empty = agent.post(f"{API}/memories/{id_}/feedback", json={})
    assert (empty.status_code, empty.json()["error"]) == (400, "usage")


def test_reported_uses_count_once_a_day_per_key(api: ApiContext, agent: TestClient) -> None:
    id_ = agent.post(f"{API}/memories", json={"project": SLUG, "content": "Uses are votes."}).json()["id"]
    for session, counted in (("one", (1, 0)), ("two", (0, 1))):
        used = agent.post(f"{API}/memories/used", json={"ids": [id_], "session_id": session}).json()
        assert (used["recorded"], used["repeated"]) == counted
    with api.client("admin") as admin:
        for session in ("one", "two"):
            used = admin.post(f"{API}/memories/used", json={"ids": [id_], "session_id": session}).json()
            assert used["recorded"] == 1
    assert agent.post(f"{API}/memories/used", json={"ids": []}).status_code == 422
    missing = agent.post(f"{API}/memories/used", json={"ids": [str(uuid4())]})
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")


def test_bulk_add_takes_long_source(agent: TestClient) -> None:
    rows = [{"content": "From a source with a long name."}]
    for length, status in ((MAX_ID_CHARS, 201), (MAX_ID_CHARS + 1, 422)):
        body = {"project": SLUG, "source": "s" * length, "memories": rows}
        assert agent.post(f"{API}/memories/bulk", json=body).status_code == status


@pytest.mark.parametrize("levels", [["1"], [1], ["1", 2, "3"]])
def test_search_returns_merged_memory_with_sources(reader: TestClient, levels: list[Any]) -> None:
    found = search(reader, "database migrations", abstraction_levels=levels, include_sources=True, explain=True)
    assert (found["project"], found["total_found"], found["search_time_ms"] > 0) == (SLUG, 1, True)
    (hit,) = found["results"]
    assert (hit["abstraction_level"], hit["level"], hit["kind"], hit["source_memory_count"]) == ("1", 1, "merged", 3)
    assert {source["summary"] for source in hit["source_memories"]} == set(LESSONS[:3])
    assert all(0.9 < source["similarity"] <= 1 for source in hit["source_memories"])
    assert hit["why"]
    memory = reader.get(f"{API}/consolidated-memories/{hit['id']}").json()
    assert (memory["content"], memory["abstraction_level"], memory["has_embedding"]) == (hit["content"], "1", True)
    tree = reader.get(f"{API}/memories/{hit['id']}/lineage", params={"depth": 1}).json()
    assert {source["id"] for source in tree["sources"]} == set(memory["source_memory_ids"])
    up = reader.get(f"{API}/memories/{memory['source_memory_ids'][0]}/lineage").json()
    assert (up["status"], [derived["id"] for derived in up["derived"]]) == ("merged", [hit["id"]])


def test_search_filters_narrow_hits(reader: TestClient) -> None:
    assert search(reader, "database migrations", pattern_types=["gotcha"])["results"] == []
    assert search(reader, "database migrations", types=["decision"])["results"] == []
    assert search(reader, "database migrations", since="2999-01-01")["results"] == []
    assert {hit["kind"] for hit in search(reader, "search client times out", kinds=["raw"])["results"]} == {"raw"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": ""}, 422),
        ({"query": "abc", "limit": 101}, 422),
        ({"query": "abc", "abstraction_levels": ["4"]}, 422),
        ({"query": "abc", "pattern_types": ["magic"]}, 422),
        ({"query": "abc", "memory_types": ["magic"]}, 400),
        ({"query": "abc", "speed": 11}, 422),
        ({"query": "abc", "project": "nobody"}, 404),
    ],
)
def test_search_refuses_invalid_body(api: ApiContext, body: dict[str, Any], status: int) -> None:
    answer = api.client("reader").post(f"{API}/search", json={"project": SLUG, **body})
    assert answer.status_code == status, answer.text


def test_memory_routes_return_404_for_missing_ids(api: ApiContext, agent: TestClient, reader: TestClient) -> None:
    for path in ("memories/{}", "consolidated-memories/{}", "memories/{}/lineage"):
        assert agent.get(f"{API}/{path.format(uuid4())}").status_code == 404
    assert reader.get(f"{API}/consolidated-memories/{api.memory}").status_code == 404
    assert agent.get(f"{API}/memories/not-an-id").status_code == 422
    assert reader.get(f"{API}/memories/{api.memory}/lineage", params={"depth": 0}).status_code == 422


def test_context_holds_each_fact_once_within_budget(reader: TestClient) -> None:
    body = {"project": SLUG, "task": "Deploy the workers with a database migration"}
    reply = reader.post(f"{API}/context", json=body).json()
    assert (reply["project"], reply["token_budget"], 0 < reply["tokens"] <= 2000) == (SLUG, 2000, True)
    texts = [memory["content"] for memory in reply["consolidated_memories"]]
    assert sum("migrations" in text for text in texts) == 1
    assert reply["abstraction_distribution"]["1"] == 1
    assert (reply["playbook_entries"], reply["contradictions"]) == ([], [])
    small = reader.post(f"{API}/context", json={"project": SLUG, "task": "Deploy", "tokens": 20}).json()
    assert small["tokens"] <= 20
    for wrong in ({**body, "token_budget": 0}, {**body, "task": ""}, {**body, "task_description": "x"}):
        assert reader.post(f"{API}/context", json=wrong).status_code == 422
    assert reader.post(f"{API}/context", json={**body, "task": " "}).status_code == 400


def test_context_reply_has_sides_of_contradiction(reader: TestClient) -> None:
    body = {"project": SLUG, "task": "Why does the search client time out?"}
    reply = reader.post(f"{API}/context", json=body).json()
    (contradiction,) = reply["contradictions"]
    assert {side["words"] for side in contradiction["sides"]} == {"30 s", "60 s"}
    dates = [side["learned_at"] for side in contradiction["sides"]]
    assert dates == sorted(dates, reverse=True)
