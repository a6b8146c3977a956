"""Tracing: spans that a process exports, their hierarchy and attributes, without texts of memories."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline import tracing
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.openai_server import client_environment, openai_server, reply_with_json
from consolidation_pipeline_tests.service.model_replies import pattern_reply
from consolidation_pipeline_tests.service.pipeline_runner import SLUG
from consolidation_pipeline_tests.traced_process import PHASES, TRACE_ID

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True)
class Span:
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    is_failed: bool
    attributes: dict[str, Any]


def parse_spans(body: bytes) -> Iterator[Span]:
    """Yield the spans of an OTLP message."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                ids = (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex())
                attributes = {item.key: attribute_value(item.value) for item in one.attributes}
                yield Span(one.name, one.kind, *ids, one.status.code == 2, attributes)


def attribute_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [attribute_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def run_collector() -> Iterator[tuple[str, list[bytes]]]:
    """Serve an OTLP collector; yield its URL and the list of messages it receives."""
    sent: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()


@pytest.mark.slow
def test_spans_cover_process_without_memory_text(database_url: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    with run_collector() as (address, sent), openai_server(reply_with_json(pattern_reply(0.9))) as provider:
        variables = {
            "CONSOLIDATION_DATABASE_URL": database_url,
            "CONSOLIDATION_DATA_DIR": str(tmp_path),
            ENDPOINT: address,
        }
        command = [sys.executable, "-m", "consolidation_pipeline_tests.traced_process", str(tmp_path)]
        environment = {**os.environ, **variables, **client_environment(provider.api_base)}
        done = subprocess.run(command, env=environment, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert b"hunter2" not in b"".join(sent)
    assert b"sk-test" not in b"".join(sent)
    job_id = done.stdout.strip()
    spans = [span for body in sent for span in parse_spans(body)]
    by_id = {span.id: span for span in spans}
    named = {span.name: span for span in spans if span.attributes.get("consolidation.job.id", job_id) == job_id}

    added, found = named["create_memory"], named["search_memory"]
    assert (added.attributes["gen_ai.memory.record.count"], added.attributes["gen_ai.memory.store.id"]) == (1, SLUG)
    assert len(added.attributes["gen_ai.memory.record.id"]) == 36
    assert found.attributes["gen_ai.operation.name"] == "search_memory"
    assert named["context"].attributes["consolidation.context.tokens"] >= 0
    for span in (added, found, named["context"]):
        assert span.trace == TRACE_ID
    around = by_id[added.parent]
    assert (around.name, around.kind) == ("POST /api/v1/memories", 2)
    assert around.attributes["http.response.status_code"] == 201
    assert around.attributes["consolidation.request.id"] == "r1"
    assert named["GET /api/v1/suggestions"].attributes["url.query"] == "REDACTED"
    assert not any("/metrics" in span.name for span in spans)

    run = named["upsert_memory"]
    assert (run.attributes["consolidation.job.id"], run.attributes["consolidation.job.status"]) == (job_id, "failed")
    assert all(named[name].parent == run.id for name in PHASES)
    assert named["patterns"].attributes["consolidation.llm.calls"] == 1
    chat = named["chat gpt-4o-mini"]
    assert (chat.kind, by_id[chat.parent].name) == (3, "patterns")
    attributes = chat.attributes
    assert (attributes["gen_ai.provider.name"], attributes["gen_ai.request.model"]) == ("openai", "gpt-4o-mini")
    assert attributes["gen_ai.usage.input_tokens"] > 0 < attributes["gen_ai.usage.output_tokens"]
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert named["update_memory"].attributes["consolidation.rollback.target"] == job_id
    (broken,) = [span for span in spans if span.is_failed and span.name == "clusters"]
    assert broken.attributes["error.type"] == "RuntimeError"


@pytest.mark.parametrize(
    ("environment", "exporters"),
    [
        ({}, ()),
        ({ENDPOINT: "http://c:4318"}, ("otlp",)),
        ({ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ()),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, ()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp")),
    ],
)
def test_otel_variables_choose_exporters(
    environment: dict[str, str], exporters: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tracing.find_exporters() == exporters


def test_tracing_off_imports_no_opentelemetry() -> None:
    code = "from consolidation_pipeline import tracing\nwith tracing.span('x'): tracing.set_attributes({})\n"
    code += "import sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, timeout=60).returncode == 0


def test_unknown_exporter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    assert "pigeon" in (tracing.find_tracing_problem() or "")
    assert "consolidation-pipeline[otel]" in (tracing.find_tracing_problem() or "")
