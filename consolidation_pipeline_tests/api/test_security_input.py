"""Whatever is sent, the answer is the right one or a clear 4xx: never an error of the server, never a changed table."""

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
from consolidation_pipeline_tests.api.conftest import API, Served
from consolidation_pipeline_tests.api.routes import Route, names, replace, strings, walk
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

SQL = "' OR '1'='1'; DROP TABLE consolidation.task_memories; -- $$; SELECT pg_sleep(9) $$ %s %(a)s :project \\"
ODD = "\x7f\x1b[31m \u202eevil\u2066 e\u0301\u200d\ufeff \U0001f469\u200d\U0001f4bb \U0010ffff"
UNSTORABLE = ("nul \0 byte", "half \ud800 pair")
BROKEN = (
    b"",
    b"{",
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"project_id": ' + b"9" * 10_000 + b"}",
    b'{"project_id": 1e999, "query": NaN, "limit": -Infinity}',
)
WRONG = (None, -1.5, 10**400, "", [[]], {"a": {"b": [None]}})

FEW = settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
PROMISES = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def bodied(served: Served) -> list[Route]:
    """Routes that take a body."""
    return [route for route in walk(served.app, served) if route.body is not None]


@pytest.fixture(scope="module")
def client(served: Served) -> TestClient:
    return served.client("admin")


def fine(answer: Any, told: object) -> None:
    """No error of the server, none of the database told, and every refusal a problem."""
    assert answer.status_code < 500, (told, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", told
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["error"], told
        assert problem["message"], told
        assert len(answer.text) < 20_000, told
    for leak in ("psycopg", "sqlalchemy", "syntax error", "Traceback", "SELECT "):
        assert leak not in answer.text or "pg_sleep" in answer.text, (told, answer.text)


def test_invalid_or_too_deep_json_is_refused(bodied: list[Route], served: Served, client: TestClient) -> None:
    for route in bodied:
        for sent in BROKEN:
            answer = route.send(client, names(served), content=sent, headers={"Content-Type": "application/json"})
            fine(answer, (str(route), sent[:40]))
        form = route.send(client, names(served), content=b"project_id=notes", headers={"Content-Type": "text/plain"})
        fine(form, str(route))


def test_error_replies_do_not_echo_long_input(client: TestClient) -> None:
    wrong = {f"unknown {at}": "x" for at in range(5000)}
    for body in ({"phases": ["x" * 500_000]}, wrong, {"query": "x" * 500_000}):
        for path in ("/consolidation/trigger", "/consolidated-memories/search", "/memories"):
            answer = client.post(API + path, json={"project_id": SLUG, **body})
            assert 400 <= answer.status_code < 500
            assert len(answer.text) < 20_000


def test_ten_megabyte_bodies_return_413(bodied: list[Route], served: Served, client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"project_id": "'
        for _ in range(160):
            yield b"x" * 65_536

    whole = b"".join(chunks())
    for route in bodied:
        for sent in (whole, chunks()):
            answer = route.send(client, names(served), content=sent, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["error"]) == (413, "too_large"), str(route)


def test_body_fields_of_wrong_type_never_return_500(bodied: list[Route], served: Served, client: TestClient) -> None:
    for route in bodied:
        for field in route.body:
            for value in WRONG:
                sent = json.dumps(replace(route.body, (field,), value)).encode()
                answer = route.send(client, names(served), content=sent, headers={"Content-Type": "application/json"})
                fine(answer, (str(route), field, value))


def test_body_texts_survive_sql_and_odd_unicode(bodied: list[Route], served: Served, client: TestClient) -> None:
    for route in bodied:
        for at in strings(route.body):
            for text in (SQL, ODD, *UNSTORABLE):
                sent = json.dumps(replace(route.body, at, text)).encode()
                answer = route.send(client, names(served), content=sent, headers={"Content-Type": "application/json"})
                fine(answer, (str(route), at, text))
                if text in UNSTORABLE:
                    assert answer.status_code == 422 or answer.json().get("errors"), (str(route), at, text)
    assert served.pipeline.value("SELECT count(*) FROM {s}.task_memories") > 6


def test_url_parameters_survive_sql_and_odd_unicode(served: Served, client: TestClient) -> None:
    schema = served.app.openapi()
    for route in walk(served.app, served):
        asked = schema["paths"][route.path][route.method.lower()].get("parameters", ())
        for text in (SQL, ODD, UNSTORABLE[0], "9" * 400, "x" * 20_000):
            for name in (one["name"] for one in asked if one["in"] == "query"):
                fine(route.send(client, names(served), params={name: text}), (str(route), name, text[:40]))
            for name in (one["name"] for one in asked if one["in"] == "path"):
                path = names(served) | {name: quote(text, safe="")}
                fine(route.send(client, path), (str(route), name, text[:40]))


def test_memory_of_100_000_characters_is_stored_whole(client: TestClient) -> None:
    long = "Grüße aus dem Maschinenraum 🚀. " * 4000
    text = long[:MAX_TEXT_CHARS]
    made = client.post(f"{API}/memories", json={"project_id": SLUG, "content": text})
    assert made.status_code == 201
    assert client.get(f"{API}/memories/{made.json()['id']}").json()["content"] == text
    assert client.post(f"{API}/memories", json={"project_id": SLUG, "content": text + "x"}).status_code == 422


def test_odd_texts_are_stored_unchanged(client: TestClient) -> None:
    texts = [SQL, ODD]
    rows = [{"content": text, "goal": text, "tags": [text], "metadata": {text: [text]}} for text in texts]
    made = client.post(f"{API}/memories/bulk", json={"project_id": SLUG, "memories": rows}).json()
    assert made["errors"] == []
    for text, id_ in zip(texts, made["ids"], strict=True):
        told = client.get(f"{API}/memories/{id_}").json()
        assert (told["content"], told["goal"], told["metadata"]) == (text, text, {text: [text]})
        sought = {"project_id": SLUG, "query": f"   {text}", "tags": [text.strip()], "limit": 100}
        found = client.post(f"{API}/consolidated-memories/search", json=sought)
        assert found.status_code == 200, text


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_replies_conform_to_openapi_schema(served: Served, mode: GenerationMode) -> None:
    document = schemathesis.openapi.from_asgi("/openapi.json", served.app)
    headers = {"Authorization": f"Bearer {served.key('admin')}"}
    for found in document.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or any(operation.iter_parameters())):
            continue  # there is nothing in it to get wrong

        @FEW
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers_as_promised(case: schemathesis.Case) -> None:
            case.call_and_validate(headers=headers, checks=PROMISES)

        answers_as_promised()
