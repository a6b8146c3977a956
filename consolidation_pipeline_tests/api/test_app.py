"""Behaviour common to all routes: request ids, limits, problems, health and metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from consolidation_pipeline.api.access import check_exposure
from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.api.rate_limit import RateLimiter
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.logs import TextFormatter
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline_tests.api.conftest import ApiContext


def test_health_checks_need_no_key(api: ApiContext) -> None:
    with api.client(None) as client:
        assert client.get("/health/live").json() == {"status": "alive"}
        assert client.get("/health/ready").json() == {"status": "ready"}


def test_api_is_live_but_not_ready_without_database(api: ApiContext) -> None:
    gone = connect_engine("postgresql+psycopg://nobody:hunter2@127.0.0.1:1/nothing")
    client = api.client(None, app=create_app(gone, api.pipeline.settings))
    assert client.get("/health/live").status_code == 200
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert "hunter2" not in answer.text
    assert "127.0.0.1" not in answer.text
    assert "consolidation_database_up 0.0" in client.get("/metrics").text


def test_unknown_path_and_method_return_problems(admin: TestClient) -> None:
    missing, wrong = admin.get("/nowhere"), admin.delete("/health/live")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"
    for answer in (missing, wrong):
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["message"]
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_unknown_path_returns_page_to_browser(api: ApiContext) -> None:
    page = api.client(None).get("/nowhere", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no page /nowhere." in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_request_id_is_kept_unless_it_is_unsafe(admin: TestClient) -> None:
    assert admin.get("/health/live", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    forged = admin.get("/health/live", headers={"X-Request-ID": "a b=c"}).headers["x-request-id"]
    assert len(forged) == 32


def test_request_log_has_id_but_no_query_string(admin: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="consolidation_pipeline.api"):
        admin.get("/nowhere%0Aelse?token=hunter2", headers={"X-Request-ID": "abc-2"})
    (record,) = caplog.records
    line = TextFormatter().format(record)
    assert "hunter2" not in line
    assert line.startswith("INFO consolidation_pipeline.api: answered method=GET path=/nowhere%0Aelse status=404 ms=")
    assert line.endswith("request_id=abc-2")


def test_body_over_limit_returns_413(admin: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(11):
            yield b"x" * 100_000

    for body in (b"x" * 1_000_001, chunks()):
        answer = admin.post("/api/v1/plan", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


def test_unexpected_error_hides_its_message(api: ApiContext, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(api.pipeline.engine, api.pipeline.settings)

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("hunter2")

    answer = api.client(None, app=app).get("/broken", headers={"X-Request-ID": "abc-3"})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal")
    assert "hunter2" not in answer.text
    assert any(record.exc_info and record.message == "the request failed" for record in caplog.records)


def test_metrics_label_requests_by_route_template(api: ApiContext) -> None:
    client = api.client(None)
    client.get("/nowhere/hunter2")
    client.request("BREW", "/health/live")
    samples = client.get("/metrics").text
    assert 'consolidation_http_requests_total{method="GET",route="unmatched",status="404"}' in samples
    assert 'consolidation_http_requests_total{method="OTHER",route="/health/live",status="405"}' in samples
    assert 'consolidation_jobs{status="completed"} 1.0' in samples
    assert 'consolidation_memories_estimate{state="active"}' in samples
    assert 'consolidation_run_seconds_bucket{le="+Inf"} 1.0' in samples
    assert "consolidation_events_waiting" in samples
    assert "hunter2" not in samples


def test_rate_limiter_allows_burst_then_refills() -> None:
    now = [0.0]
    limiter = RateLimiter(2, 3, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 1]
    assert limiter.take("b") == 0
    now[0] = 0.5
    assert [limiter.take("a"), limiter.take("a")] == [0, 1]


def test_api_auth_off_requires_loopback_host(api: ApiContext) -> None:
    off = api.pipeline.settings.model_copy(update={"api_auth": "off"})
    check_exposure(off)
    with pytest.raises(UsageError, match="CONSOLIDATION_API_AUTH=off needs a loopback host"):
        create_app(api.pipeline.engine, off.model_copy(update={"api_host": "0.0.0.0"}))
