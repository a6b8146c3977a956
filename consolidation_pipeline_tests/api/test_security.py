"""No route lets anyone in who may not: the tests walk the application's own routes, so that none is forgotten."""

from __future__ import annotations

import logging
import re
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api import access
from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.logs import TextFormatter
from consolidation_pipeline.service.admin.api_keys import LOCAL, ROLES, Principal, revoke_key
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, Served
from consolidation_pipeline_tests.api.routes import OPEN, Route, names, others, walk
from consolidation_pipeline_tests.service.pipeline_runner import SLUG
from consolidation_pipeline_tests.service.table_dumps import checksums

# What interfaces promise; a route that is not here needs a role all the same.
PROMISED = {
    "reader": {
        "POST /consolidated-memories/search",
        "GET /consolidated-memories/{id}",
        "GET /consolidated-memories/{id}/lineage",
        "GET /playbook/{project}",
        "POST /consolidated-context",
    },
    "agent": {"POST /memories", "POST /memories/bulk", "GET /memories/{id}", "POST /memories/{id}/feedback"},
}


@pytest.fixture(scope="module")
def routes(served: Served) -> list[Route]:
    found = walk(served.app, served)
    assert len(found) > 25
    return found


@pytest.fixture(scope="module")
def guarded(routes: list[Route]) -> list[Route]:
    return [route for route in routes if route.path not in OPEN]


def state(served: Served) -> list[tuple[str, int, int]]:
    """All tables but that of the keys, whose use is noted."""
    return [counted for counted in checksums(served.pipeline) if counted[0] != "api_keys"]


def test_route_roles_match_the_promised_roles(routes: list[Route]) -> None:
    assert {route.path for route in routes if route.role is None} == OPEN
    for role, promised in PROMISED.items():
        needing = {str(route).replace(API, "") for route in routes if route.role == role}
        assert promised <= needing
    lesser = {str(route).replace(API, "") for route in routes if route.role in PROMISED}
    assert lesser == set().union(*PROMISED.values())


def test_app_serves_only_docs_and_mcp_beside_routes(served: Served) -> None:
    documentation = {"/docs", "/docs/oauth2-redirect", "/docs/static", "/redoc", "/openapi.json"}
    assert others(served.app) <= documentation | {"/mcp"}


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_api_docs_load_only_local_files(served: Served, page: str) -> None:
    client = served.client(None)
    told = client.get(page).text
    loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', told)
    assert loaded
    assert all(client.get(path).status_code == 200 for path in loaded if path.startswith("/"))
    assert not [path for path in loaded if not path.startswith("/")]


def test_every_route_returns_401_without_valid_key(served: Served, guarded: list[Route]) -> None:
    before, client = state(served), served.client(None)
    key = served.key("admin")
    for route in guarded:
        for headers in (
            {},
            {"Authorization": "Bearer cnsl_" + "A" * 43},
            {"Authorization": f"Basic {key}"},
            {"X-API-Key": key[:-1]},
        ):
            answer = route.send(client, names(served), headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), (str(route), headers)
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert route.send(client, names(served), params={"api_key": key, "key": key}).status_code == 401, str(route)
    assert state(served) == before


def test_every_route_returns_403_to_lower_roles(served: Served, guarded: list[Route]) -> None:
    before = state(served)
    for route in guarded:
        for role in ROLES[: ROLES.index(route.role or "")]:
            answer = route.send(served.client(role), names(served))
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), (str(route), role)
            assert role in answer.json()["message"]
    assert state(served) == before
    for route in guarded:
        missing = names(served) | {"id": str(uuid4()), "job_id": str(uuid4()), "project": "nowhere"}
        assert route.send(served.client(route.role), missing, body={}).status_code not in (401, 403, 500), str(route)


def test_project_key_learns_nothing_of_other_projects(served: Served, guarded: list[Route]) -> None:
    before = state(served)
    for route in guarded:
        client = served.client(route.role, FOREIGN)
        answer = route.send(client, names(served))
        assert "migrations" not in answer.text
        if "{" not in route.path and route.body is None:  # it names nothing, and answers with what is the key's own
            assert (answer.status_code, SLUG in answer.text) == (200, False), str(route)
            answer = route.send(client, names(served), params={"project": SLUG})
            assert answer.status_code == 403, str(route)
            continue
        assert answer.status_code in (403, 404), (str(route), answer.text)
        elsewhere = Route(route.method, route.path, route.role, _unknown(route.body))
        unknown = elsewhere.send(client, {"project": "nowhere", "job_id": str(uuid4()), "id": str(uuid4())})
        assert (unknown.status_code, _without_ids(unknown.text)) == (answer.status_code, _without_ids(answer.text)), (
            route
        )
    assert state(served) == before


def _unknown(body: object) -> object:
    """The body with things in it that there are not."""
    if not isinstance(body, dict):
        return body
    nothing = {"project_id": "nowhere", "consolidation_id": str(uuid4()), "ids": [str(uuid4())]}
    return {name: nothing.get(name, value) for name, value in body.items()}


def _without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", "ID", text)


def test_valid_key_is_cached_for_one_second(served: Served) -> None:
    now = 100.0
    asked: list[str] = []

    def authenticate(_: Engine, secret: str) -> Principal | None:
        asked.append(secret)
        return LOCAL if secret == "valid" else None

    app = create_app(served.pipeline.engine, served.pipeline.settings, authenticate=authenticate)
    app.state.recent_keys = access.create_key_cache(lambda: now)

    def ask(key: str) -> int:
        client = TestClient(app, base_url="http://localhost", headers={"X-API-Key": key})
        return client.get(f"{API}/playbook/{SLUG}").status_code

    assert [ask(key) for key in ("valid", "valid", "wrong", "wrong")] == [200, 200, 401, 401]
    assert asked == ["valid", "wrong", "wrong"]
    now += 1.0
    assert ask("valid") == 200
    assert asked == ["valid", "wrong", "wrong", "valid"]


def test_project_lookup_is_cached_for_one_second(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(access, "find_project", lambda _, reference: asked.append(reference))
    now = 100.0
    find = access.create_project_finder(served.pipeline.engine, lambda: now)
    for _ in range(3):
        find(SLUG)
        now += 0.6
    assert asked == [SLUG, SLUG]


def test_both_key_headers_work_until_revocation(served: Served) -> None:
    client = served.client(None)
    key = served.key("reader", SLUG)
    for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer {key}"}, {"X-API-Key": key}):
        assert client.get(f"{API}/playbook/{SLUG}", headers=headers).status_code == 200
    revoke_key(served.pipeline.engine, f"reader of {SLUG}")
    del served.keys["reader", SLUG]
    served.app.state.recent_keys.clear()
    assert client.get(f"{API}/playbook/{SLUG}", headers={"X-API-Key": key}).status_code == 401


def test_keys_never_appear_in_replies_logs_or_metrics(
    served: Served, guarded: list[Route], caplog: pytest.LogCaptureFixture
) -> None:
    said = []
    with caplog.at_level(logging.DEBUG):
        for route in guarded:
            for client in (served.client("reader", FOREIGN), served.client("admin", FOREIGN)):
                answer = route.send(client, names(served), body={"project_id": {}, "nonsense": True})
                said.append(answer.text + str(answer.headers))
        said.append(served.client(None).get("/metrics").text)
        said.append(served.client(None).get("/openapi.json").text)
    everything = "".join(said) + caplog.text + "".join(map(TextFormatter().format, caplog.records))
    assert [key for key in served.keys.values() if key in everything or key[5:] in everything] == []
    assert "request_id" in everything
