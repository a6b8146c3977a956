"""Hostile and invalid input to every route: a correct reply or a clear 4xx, never a server error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from starlette.testclient import TestClient

from consolidation_pipeline.core.memories.row_fields import MAX_TEXT_CHARS
from consolidation_pipeline_tests.api.conftest import API, ApiContext
from consolidation_pipeline_tests.api.routes import Route, find_text_positions, list_routes, path_parameters, replace_at
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

SQL_TEXT = "' OR '1'='1'; DROP TABLE consolidation.task_memories; -- $$; SELECT pg_sleep(9) $$ %s %(a)s :project \\"
ODD_TEXT = "\x7f\x1b[31m \u202eevil\u2066 e\u0301\u200d\ufeff \U0001f469\u200d\U0001f4bb \U0010ffff"
UNSTORABLE = ("nul \0 byte", "half \ud800 pair")
INVALID_BODIES = (
    b"",
    b"{",
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"project_id": ' + b"9" * 10_000 + b"}",
    b'{"project_id": 1e999, "query": NaN, "limit": -Infinity}',
)
JSON_TYPE = {"Content-Type": "application/json"}
WRONG_VALUES = (None, -1.5, 10**400, "", [[]], {"a": {"b": [None]}})

FEW_EXAMPLES = settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
SCHEMA_CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def routes_with_body(api: ApiContext) -> list[Route]:
    """Routes with a body."""
    return [route for route in list_routes(api.app, api) if route.body is not None]


@pytest.fixture(scope="module")
def client(api: ApiContext) -> TestClient:
    return api.client("admin")


def assert_valid_reply(answer: Any, request: object) -> None:
    """Assert that the reply is no server error, reveals no database error, and is a problem document if refused."""
    assert answer.status_code < 500, (request, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", request
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["error"], request
        assert problem["message"], request
        assert len(answer.text) < 20_000, request
    for leak in ("psycopg", "sqlalchemy", "syntax error", "Traceback", "SELECT "):
        assert leak not in answer.text or "pg_sleep" in answer.text, (request, answer.text)


def test_invalid_or_too_deep_json_is_refused(
    routes_with_body: list[Route], api: ApiContext, client: TestClient
) -> None:
    for route in routes_with_body:
        for sent in INVALID_BODIES:
            answer = route.send(client, path_parameters(api), content=sent, headers=JSON_TYPE)
            assert_valid_reply(answer, (str(route), sent[:40]))
        form = route.send(
            client, path_parameters(api), content=b"project_id=notes", headers={"Content-Type": "text/plain"}
        )
        assert_valid_reply(form, str(route))


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b'{"project": "notes", "content": "\xff"}', "in UTF-8"),
        (b"[" * 100_000, "nested"),
        (b'{"project": "notes", "content": "a", "learned_at": "yesterday"}', "learned_at is 'yesterday'"),
    ],
)
def test_refusal_names_what_is_wrong_with_a_body(client: TestClient, sent: bytes, told: str) -> None:
    answer = client.post(f"{API}/memories", content=sent, headers=JSON_TYPE)
    assert 400 <= answer.status_code < 500
    assert told in answer.json()["message"]


def test_error_replies_do_not_echo_long_input(client: TestClient) -> None:
    wrong = {f"unknown {at}": "x" for at in range(5000)}
    for body in ({"phases": ["x" * 500_000]}, wrong, {"query": "x" * 500_000}):
        for path in ("/jobs", "/search", "/memories"):
            answer = client.post(API + path, json={"project": SLUG, **body})
            assert 400 <= answer.status_code < 500
            assert len(answer.text) < 20_000


def test_ten_megabyte_bodies_return_413(routes_with_body: list[Route], api: ApiContext, client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"project_id": "'
        for _ in range(160):
            yield b"x" * 65_536

    whole = b"".join(chunks())
    for route in routes_with_body:
        for sent in (whole, chunks()):
            answer = route.send(client, path_parameters(api), content=sent, headers=JSON_TYPE)
            assert (answer.status_code, answer.json()["error"]) == (413, "too_large"), str(route)


def test_body_fields_of_wrong_type_never_return_500(
    routes_with_body: list[Route], api: ApiContext, client: TestClient
) -> None:
    for route in routes_with_body:
        for field in route.body:
            for value in WRONG_VALUES:
                sent = json.dumps(replace_at(route.body, (field,), value)).encode()
                answer = route.send(client, path_parameters(api), content=sent, headers=JSON_TYPE)
                assert_valid_reply(answer, (str(route), field, value))


@pytest.mark.slow
def test_body_texts_survive_sql_and_odd_unicode(
    routes_with_body: list[Route], api: ApiContext, client: TestClient
) -> None:
    for route in routes_with_body:
        for at in find_text_positions(route.body):
            for text in (SQL_TEXT, ODD_TEXT, *UNSTORABLE):
                sent = json.dumps(replace_at(route.body, at, text)).encode()
                answer = route.send(client, path_parameters(api), content=sent, headers=JSON_TYPE)
                assert_valid_reply(answer, (str(route), at, text))
                if text in UNSTORABLE:
                    assert answer.status_code == 422 or answer.json().get("errors"), (str(route), at, text)
    assert api.pipeline.value("SELECT count(*) FROM {s}.task_memories") > 6


@pytest.mark.slow
def test_url_parameters_survive_sql_and_odd_unicode(api: ApiContext, client: TestClient) -> None:
    schema = api.app.openapi()
    for route in list_routes(api.app, api):
        declared = schema["paths"][route.path][route.method.lower()].get("parameters", ())
        for text in (SQL_TEXT, ODD_TEXT, UNSTORABLE[0], "9" * 400, "x" * 20_000):
            for name in (one["name"] for one in declared if one["in"] == "query"):
                answer = route.send(client, path_parameters(api), params={name: text})
                assert_valid_reply(answer, (str(route), name, text[:40]))
            for name in (one["name"] for one in declared if one["in"] == "path"):
                path = path_parameters(api) | {name: quote(text, safe="")}
                assert_valid_reply(route.send(client, path), (str(route), name, text[:40]))


def test_every_route_refuses_unknown_query_parameters(api: ApiContext, client: TestClient) -> None:
    before, schema = api.table_checksums(), api.app.openapi()
    for route in list_routes(api.app, api):
        declared = schema["paths"][route.path][route.method.lower()].get("parameters", ())
        known = sorted(one["name"] for one in declared if one["in"] == "query")
        answer = route.send(client, path_parameters(api), params={"Project": SLUG})
        assert answer.status_code == 422, str(route)
        assert [one["where"] for one in answer.json()["errors"]] == ["query.Project"], str(route)
        hint = f"known are {', '.join(known)}" if known else "this route has none"
        assert answer.json()["errors"][0]["message"] == f"unknown query parameter; {hint}", str(route)
    assert api.table_checksums() == before


def test_every_route_refuses_unknown_body_fields(
    routes_with_body: list[Route], api: ApiContext, client: TestClient
) -> None:
    before = api.table_checksums()
    for route in routes_with_body:
        sent = {**route.body, "surplus": "x"}
        answer = route.send(client, path_parameters(api), body=sent)
        assert answer.status_code == 422, str(route)
        if answer.json()["error"] == "invalid_option":  # the body has the options themselves
            assert answer.json()["message"].startswith("surplus is not an option; the options are merge, "), str(route)
            continue
        problem, _, known = answer.json()["message"].partition("; known are ")
        assert problem == "body.surplus: unknown field", str(route)
        assert set(route.body) <= set(known.split(", ")), str(route)
    assert api.table_checksums() == before


def test_memory_of_100_000_characters_is_stored_whole(client: TestClient) -> None:
    long = "Grüße aus dem Maschinenraum 🚀. " * 4000
    text = long[:MAX_TEXT_CHARS]
    made = client.post(f"{API}/memories", json={"project": SLUG, "content": text})
    assert made.status_code == 201
    assert client.get(f"{API}/memories/{made.json()['id']}").json()["content"] == text
    assert client.post(f"{API}/memories", json={"project": SLUG, "content": text + "x"}).status_code == 422


def test_odd_texts_are_stored_unchanged(client: TestClient) -> None:
    texts = [SQL_TEXT, ODD_TEXT]
    rows = [{"content": text, "goal": text, "tags": [text], "metadata": {text: [text]}} for text in texts]
    made = client.post(f"{API}/memories/bulk", json={"project": SLUG, "memories": rows}).json()
    assert made["errors"] == []
    for text, id_ in zip(texts, made["ids"], strict=True):
        memory = client.get(f"{API}/memories/{id_}").json()
        assert (memory["content"], memory["goal"], memory["metadata"]) == (text, text, {text: [text]})
        search_body = {"project": SLUG, "query": f"   {text}", "tags": [text.strip()], "limit": 100}
        found = client.post(f"{API}/search", json=search_body)
        assert found.status_code == 200, text


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_replies_conform_to_openapi_schema(api: ApiContext, mode: GenerationMode) -> None:
    document = schemathesis.openapi.from_asgi("/openapi.json", api.app)
    headers = {"Authorization": f"Bearer {api.key('admin')}"}
    for found in document.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or any(operation.iter_parameters())):
            continue  # no parameter and no body to make invalid

        @FEW_EXAMPLES
        @given(case=operation.as_strategy(generation_mode=mode))
        def check_schema(case: schemathesis.Case) -> None:
            case.call_and_validate(headers=headers, checks=SCHEMA_CHECKS)

        check_schema()
