"""Authentication and authorization of every route of the application."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api import access
from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.logs import TextFormatter
from consolidation_pipeline.service.admin.api_keys import LOCAL, ROLES, Principal, create_key, revoke_key
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext
from consolidation_pipeline_tests.api.routes import PUBLIC_PATHS, Route, list_other_paths, list_routes, path_parameters
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

# Routes promised to readers and agents; all others need the role admin.
PROMISED_ROUTES = {
    "reader": {
        "GET /projects",
        "POST /search",
        "GET /consolidated-memories/{id}",
        "GET /memories/{id}/lineage",
        "GET /projects/{project}/playbook",
        "GET /projects/{project}/memories",
        "GET /projects/{project}/memory-tests",
        "GET /projects/{project}/sources",
        "GET /sources/{id}/diff",
        "POST /context",
    },
    "agent": {
        "POST /memories",
        "POST /memories/bulk",
        "POST /memories/used",
        "GET /memories/{id}",
        "POST /memories/{id}/feedback",
        "PATCH /memories/{id}",
        "DELETE /memories/{id}",
    },
}


@pytest.fixture(scope="module")
def routes(api: ApiContext) -> list[Route]:
    found = list_routes(api.app, api)
    assert len(found) > 25
    return found


@pytest.fixture(scope="module")
def protected_routes(routes: list[Route]) -> list[Route]:
    return [route for route in routes if route.path not in PUBLIC_PATHS]


def test_route_roles_match_promised_roles(routes: list[Route]) -> None:
    assert {route.path for route in routes if route.role is None} == PUBLIC_PATHS
    for role, promised in PROMISED_ROUTES.items():
        assert promised == {str(route).replace(API, "") for route in routes if route.role == role}


def test_app_serves_only_docs_and_mcp_beside_routes(api: ApiContext) -> None:
    documentation = {"/docs", "/docs/static", "/redoc", "/openapi.json"}
    assert list_other_paths(api.app) <= documentation | {"/mcp"}


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_api_docs_load_only_local_files(api: ApiContext, page: str) -> None:
    client = api.client(None)
    html = client.get(page).text
    loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', html)
    assert loaded
    assert all(client.get(path).status_code == 200 for path in loaded if path.startswith("/"))
    assert not [path for path in loaded if not path.startswith("/")]


def test_every_route_returns_401_without_valid_key(api: ApiContext, protected_routes: list[Route]) -> None:
    before, client = api.table_checksums(), api.client(None)
    key = api.key("admin")
    for route in protected_routes:
        for headers in (
            {},
            {"Authorization": "Bearer cnsl_" + "A" * 43},
            {"Authorization": f"Basic {key}"},
            {"X-API-Key": key[:-1]},
        ):
            answer = route.send(client, path_parameters(api), headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), (str(route), headers)
            assert answer.headers["www-authenticate"].startswith("Bearer")
        answer = route.send(client, path_parameters(api), params={"api_key": key, "key": key})
        assert answer.status_code == 401, str(route)
    assert api.table_checksums() == before


def test_every_route_returns_403_to_lower_roles(api: ApiContext, protected_routes: list[Route]) -> None:
    before = api.table_checksums()
    for route in protected_routes:
        for role in ROLES[: ROLES.index(route.role or "")]:
            answer = route.send(api.client(role), path_parameters(api))
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), (str(route), role)
            assert role in answer.json()["message"]
    assert api.table_checksums() == before
    for route in protected_routes:
        missing = path_parameters(api) | {"id": str(uuid4()), "job_id": str(uuid4()), "project": "nowhere"}
        assert route.send(api.client(route.role), missing, body={}).status_code not in (401, 403, 500), str(route)


def test_project_key_learns_nothing_of_other_projects(api: ApiContext, protected_routes: list[Route]) -> None:
    before = api.table_checksums()
    for route in protected_routes:
        client = api.client(route.role, FOREIGN)
        answer = route.send(client, path_parameters(api))
        assert "migrations" not in answer.text
        if "{" not in route.path and route.body is None:  # it returns rows of the key's project
            assert (answer.status_code, SLUG in answer.text) == (200, False), str(route)
            answer = route.send(client, path_parameters(api), params={"project": SLUG})
            assert answer.status_code in (403, 422), str(route)  # 422: it takes no project
            continue
        assert answer.status_code in (403, 404), (str(route), answer.text)
        elsewhere = replace(route, body=use_unknown_ids(route.body))
        unknown = elsewhere.send(client, {"project": "nowhere", "job_id": str(uuid4()), "id": str(uuid4())})
        assert (unknown.status_code, mask_ids(unknown.text)) == (answer.status_code, mask_ids(answer.text)), route
    assert api.table_checksums() == before


# Routes that a key of a scope may call.
SCOPED_ROUTES = {
    "POST /search",
    "POST /context",
    "POST /memories",
    "POST /memories/bulk",
    "GET /projects/{project}/memories",
    "PATCH /memories/{id}",
    "DELETE /memories/{id}",
}


def test_key_of_a_scope_reaches_its_memories_alone(api: ApiContext, protected_routes: list[Route]) -> None:
    _, secret = create_key(api.pipeline.engine, role="agent", project=FOREIGN, scope="ada")
    client = TestClient(api.app, headers={"X-API-Key": secret}, base_url="http://localhost")
    for route in protected_routes:
        answer = route.send(client, path_parameters(api) | {"project": FOREIGN})
        if str(route).replace(API, "") not in SCOPED_ROUTES:
            assert answer.status_code == 403, str(route)
    memory = {"project": FOREIGN, "content": "The scoped lamp is green.", "user_id": "ada"}
    assert client.post(f"{API}/memories", json=memory).status_code == 201
    refused = client.post(f"{API}/memories", json=memory | {"user_id": "bob"})
    assert (refused.status_code, "this key adds memories of scope 'ada' only" in refused.text) == (422, True)
    api.pipeline.add([memory | {"id": "bob", "content": "The scoped lamp of bob is red.", "user_id": "bob"}], FOREIGN)
    query = {"project": FOREIGN, "query": "scoped lamp"}
    found = client.post(f"{API}/search", json=query).json()["results"]
    assert [hit["content"] for hit in found if "lamp" in hit["content"]] == ["The scoped lamp is green."]
    asked = {"project": FOREIGN, "task": "paint the scoped lamp"}
    assert "bob" not in client.post(f"{API}/context", json=asked).text
    for path, body in (("search", query), ("context", asked)):
        answer = client.post(f"{API}/{path}", json=body | {"scope": "bob"})
        assert (answer.status_code, answer.json()["message"]) == (403, "this key is for scope ada only")


def use_unknown_ids(body: object) -> object:
    """Replace the ids in the body by ids of no row."""
    if not isinstance(body, dict):
        return body
    unknown = {"project": "nowhere", "target": str(uuid4()), "ids": [str(uuid4())]}
    return {name: unknown.get(name, value) for name, value in body.items()}


def mask_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", "ID", text)


def test_valid_key_is_cached_for_one_second(api: ApiContext) -> None:
    now = 100.0
    lookups: list[str] = []

    def authenticate(_: Engine, secret: str) -> Principal | None:
        lookups.append(secret)
        return LOCAL if secret == "valid" else None

    app = create_app(api.pipeline.engine, api.pipeline.settings, authenticate=authenticate)
    app.state.recent_keys = access.create_key_cache(lambda: now)

    def request(key: str) -> int:
        client = TestClient(app, base_url="http://localhost", headers={"X-API-Key": key})
        return client.get(f"{API}/projects/{SLUG}/playbook").status_code

    assert [request(key) for key in ("valid", "valid", "wrong", "wrong")] == [200, 200, 401, 401]
    assert lookups == ["valid", "wrong", "wrong"]
    now += 1.0
    assert request("valid") == 200
    assert lookups == ["valid", "wrong", "wrong", "valid"]


def test_project_lookup_is_cached_for_one_second(api: ApiContext, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[str] = []
    monkeypatch.setattr(access, "find_project", lambda _, reference: lookups.append(reference))
    now = 100.0
    find = access.create_project_finder(api.pipeline.engine, lambda: now)
    for _ in range(3):
        find(SLUG)
        now += 0.6
    assert lookups == [SLUG, SLUG]


def test_both_key_headers_work_until_revocation(api: ApiContext) -> None:
    client = api.client(None)
    key = api.key("reader", SLUG)
    for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer {key}"}, {"X-API-Key": key}):
        assert client.get(f"{API}/projects/{SLUG}/playbook", headers=headers).status_code == 200
    revoke_key(api.pipeline.engine, f"reader of {SLUG}")
    del api.keys["reader", SLUG]
    api.app.state.recent_keys.clear()
    assert client.get(f"{API}/projects/{SLUG}/playbook", headers={"X-API-Key": key}).status_code == 401


def test_keys_never_appear_in_replies_logs_or_metrics(
    api: ApiContext, protected_routes: list[Route], caplog: pytest.LogCaptureFixture
) -> None:
    replies = []
    with caplog.at_level(logging.DEBUG):
        for route in protected_routes:
            for client in (api.client("reader", FOREIGN), api.client("admin", FOREIGN)):
                answer = route.send(client, path_parameters(api), body={"project": {}, "nonsense": True})
                replies.append(answer.text + str(answer.headers))
        replies.append(api.client(None).get("/metrics").text)
        replies.append(api.client(None).get("/openapi.json").text)
    everything = "".join(replies) + caplog.text + "".join(map(TextFormatter().format, caplog.records))
    assert [key for key in api.keys.values() if key in everything or key[5:] in everything] == []
    assert "request_id" in everything
