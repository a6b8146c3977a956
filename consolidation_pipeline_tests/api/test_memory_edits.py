"""List, edit, delete and erase memories over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.service.admin.api_keys import create_key
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext
from consolidation_pipeline_tests.service.pipeline_runner import SLUG


def add(client: TestClient, content: str, **fields: Any) -> str:
    answer = client.post(f"{API}/memories", json={"project": SLUG, "content": content, **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_pages_list_every_memory_once(api: ApiContext) -> None:
    client = api.client("reader", SLUG)
    whole = client.get(f"{API}/projects/{SLUG}/memories?limit=1000").json()
    found, cursor = [], ""
    while cursor is not None:
        page = client.get(f"{API}/projects/{SLUG}/memories?limit=5{cursor and f'&cursor={cursor}'}").json()
        found += [row["id"] for row in page["memories"]]
        cursor = page["next"]
    assert found == [row["id"] for row in whole["memories"]]
    assert len(found) == len(set(found)) > 5
    wrong = client.get(f"{API}/projects/{SLUG}/memories?cursor=abc")
    assert (wrong.status_code, "give `next` of the page before" in wrong.text) == (400, True)


def test_filters_narrow_the_list(api: ApiContext) -> None:
    client = api.client()
    id_ = add(client, "The Narwhal lighthouse is repainted.", user_id="nell", session_id="s-7", memory_type="decision")
    url = f"{API}/projects/{SLUG}/memories"
    for query in ("user_id=nell", "session_id=s-7", "text=narwhal", "text=NARWHAL&status=active&memory_type=decision"):
        assert [row["id"] for row in client.get(f"{url}?{query}").json()["memories"]] == [id_], query
    assert client.get(f"{url}?text=narwhal&status=archived").json()["memories"] == []
    kinds = {row["kind"] for row in client.get(f"{url}?kind=merged").json()["memories"]}
    assert kinds == {"merged"}
    assert client.get(f"{url}?colour=red").status_code == 422


def test_edit_and_undo_over_http(api: ApiContext) -> None:
    client = api.client()
    id_ = add(client, "The drawbridge opens at noon.", goal="Ships")
    version = client.get(f"{API}/memories/{id_}").json()["version"]
    body = {"content": "The drawbridge opens at one.", "goal": None, "version": version}
    done = client.patch(f"{API}/memories/{id_}", json=body)
    assert (done.status_code, done.json()["changed"]) == (200, ["content", "goal"]), done.text
    found = client.get(f"{API}/memories/{id_}").json()
    assert (found["content"], found["goal"], found["version"]) == (body["content"], None, done.json()["version"])
    assert found["embedding_model"] is not None
    assert client.patch(f"{API}/memories/{id_}", json=body).status_code == 409
    assert client.post(f"{API}/rollback", json={"target": done.json()["group_id"]}).status_code == 200
    assert client.get(f"{API}/memories/{id_}").json()["content"] == "The drawbridge opens at noon."


def test_edit_refuses_wrong_bodies(api: ApiContext) -> None:
    client = api.client()
    id_ = add(client, "The canal lock is number nine.")
    for body, status in (
        ({}, 400),
        ({"user_id": "eve"}, 422),
        ({"content": ""}, 422),
        ({"content": "  "}, 422),
        ({"memory_type": "poem"}, 422),
        ({"importance": -1}, 422),
    ):
        assert client.patch(f"{API}/memories/{id_}", json=body).status_code == status, body
    merged = api.pipeline.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged' LIMIT 1")
    answer = client.patch(f"{API}/memories/{merged}", json={"content": "x"})
    assert (answer.status_code, "made from other memories" in answer.text) == (400, True)


def test_deleted_memory_is_not_found_by_search(api: ApiContext) -> None:
    client = api.client()
    id_ = add(client, "The semaphore on Gull Rock is broken.")
    done = client.delete(f"{API}/memories/{id_}?reason=wrong")
    assert (done.status_code, done.json()["memories"]) == (200, [id_])
    body = {"project": SLUG, "query": "semaphore Gull Rock", "include_archived": True}
    assert "Gull Rock" not in client.post(f"{API}/search", json=body).text
    assert client.get(f"{API}/memories/{id_}").json()["status"] == "deleted"
    listed = client.get(f"{API}/projects/{SLUG}/memories?status=deleted").json()["memories"]
    assert [row["archive_reason"] for row in listed if row["id"] == id_] == ["deleted: wrong"]
    assert client.delete(f"{API}/memories/{id_}").status_code == 409
    client.post(f"{API}/rollback", json={"target": done.json()["group_id"]})
    assert "Gull Rock" in client.post(f"{API}/search", json=body).text


def test_agents_change_what_they_wrote(api: ApiContext) -> None:
    agent, admin = api.client("agent", SLUG), api.client()
    own, other = add(agent, "The mill race freezes."), add(admin, "The mill race is dredged.")
    assert agent.patch(f"{API}/memories/{own}", json={"tags": ["mill"]}).status_code == 200
    for answer in (
        agent.patch(f"{API}/memories/{other}", json={"tags": ["mill"]}),
        agent.delete(f"{API}/memories/{other}"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
    assert agent.delete(f"{API}/memories/{own}").status_code == 200
    assert api.client("reader", SLUG).patch(f"{API}/memories/{own}", json={"tags": []}).status_code == 403
    assert api.client("agent", FOREIGN).delete(f"{API}/memories/{other}").status_code == 404


def test_scoped_key_sees_and_changes_its_scope(api: ApiContext) -> None:
    _, secret = create_key(api.pipeline.engine, role="agent", project=FOREIGN, scope="una")
    client = TestClient(api.app, headers={"X-API-Key": secret}, base_url="http://localhost")
    row = {"project": FOREIGN, "content": "The buoy of una is red.", "user_id": "una"}
    own = client.post(f"{API}/memories", json=row).json()["id"]
    admin = api.client()
    other = admin.post(f"{API}/memories", json=row | {"content": "The buoy of vic.", "user_id": "vic"}).json()["id"]
    listed = client.get(f"{API}/projects/{FOREIGN}/memories?limit=1000").json()["memories"]
    assert {row["user_id"] for row in listed} <= {"una", None}
    assert client.patch(f"{API}/memories/{own}", json={"content": "The buoy of una is green."}).status_code == 200
    assert client.patch(f"{API}/memories/{other}", json={"content": "Stolen."}).status_code == 404
    assert client.delete(f"{API}/memories/{other}").status_code == 404


@pytest.mark.parametrize("by", ["ids", "user_id"])
def test_erase_needs_confirmation(api: ApiContext, by: str) -> None:
    client = api.client()
    user = f"kelpie-{by}"
    id_ = add(client, f"The kelpie of {by} lives below the second weir.", user_id=user)
    body = {"ids": [id_]} if by == "ids" else {"project": SLUG, "user_id": user}
    shown = client.post(f"{API}/memories/erase", json=body).json()
    assert (shown["erased"], shown["memories"], shown["certificate"]) == (False, 1, None)
    assert client.get(f"{API}/memories/{id_}").status_code == 200
    done = client.post(f"{API}/memories/erase", json={**body, "confirm": True}).json()
    assert (done["erased"], done["certificate"]["is_clean"]) == (True, True)
    assert client.get(f"{API}/memories/{id_}").status_code == 404
    assert client.post(f"{API}/memories/erase", json={**body, "confirm": True}).status_code == 404
    assert api.client("agent", SLUG).post(f"{API}/memories/erase", json=body).status_code == 403
