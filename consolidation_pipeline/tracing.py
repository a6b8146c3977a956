"""OpenTelemetry spans, if the standard environment variables name an exporter.

    with span("search_memory", {"gen_ai.memory.store.id": "shop"}):
        set_attributes({"gen_ai.memory.record.count": 3})

Without an exporter OpenTelemetry is not imported, and a span costs the lookup of a variable. Spans of model calls and
of operations on memories are named by the GenAI conventions (status: Development), revision 002c8a6 of
https://github.com/open-telemetry/semantic-conventions-genai. No attribute contains the text of a memory, a query, a
prompt or a reply. Error messages are left out too, because they may quote such texts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

Attributes = Mapping[str, Any]

MEMORY_STORE_ID = "gen_ai.memory.store.id"  # the project's slug
MEMORY_RECORD_ID = "gen_ai.memory.record.id"
MEMORY_RECORD_COUNT = "gen_ai.memory.record.count"
JOB_ID = "consolidation.job.id"

_PACKAGES = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http (pip install 'consolidation-pipeline[otel]')"


def find_exporters() -> tuple[str, ...]:
    """Return the names of the exporters in the environment, such as ``otlp``; no spans are made if there are none."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not named and any(os.environ.get(name, "").strip() for name in endpoints):
        named = "otlp"
    return tuple(name.strip() for name in named.split(",") if name.strip() not in ("", "none"))


def find_tracing_problem() -> str | None:
    """Return why the spans that the environment asks for cannot be made, or None."""
    wanted = find_exporters()
    if wanted and find_spec("opentelemetry.sdk") is None:
        return f"spans are asked for ({', '.join(wanted)}), but packages are missing: {_PACKAGES}"
    from importlib.metadata import entry_points

    missing = [name for name in wanted if not entry_points(group=_GROUP, name=_entry_point_name(name))]
    return f"no package offers the exporter {', '.join(missing)}; otlp needs {_PACKAGES}" if missing else None


_GROUP = "opentelemetry_traces_exporter"


def _entry_point_name(name: str) -> str:
    """Return the entry point name under which packages offer an exporter."""
    if name != "otlp":
        return name
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    chosen = next((os.environ[protocol] for protocol in protocols if os.environ.get(protocol)), "http/protobuf")
    return "otlp_proto_grpc" if chosen == "grpc" else "otlp_proto_http"


@cache
def get_tracer() -> Any:
    """Return the tracer of this process, set up on first use; None = no spans are made.

    An existing tracer provider, such as that of ``opentelemetry-instrument``, is used as it is.
    """
    exporters = find_exporters()
    if not exporters or find_tracing_problem() is not None:
        return None
    from importlib.metadata import entry_points, version

    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        provider = TracerProvider(resource=Resource.create({} if named else {SERVICE_NAME: "consolidation"}))
        provider.add_span_processor(_make_query_redactor())
        for name in exporters:
            (found,) = entry_points(group=_GROUP, name=_entry_point_name(name))
            provider.add_span_processor(BatchSpanProcessor(found.load()()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("consolidation_pipeline", version("consolidation-pipeline"))


def _make_query_redactor() -> Any:
    """Return a processor that redacts the query part of URLs in FastAPI's own spans."""
    from opentelemetry.sdk.trace import SpanProcessor

    class QueryRedactor(SpanProcessor):  # type: ignore[misc]
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            del parent_context
            if "url.query" in (span.attributes or {}):
                span.set_attribute("url.query", "REDACTED")

    return QueryRedactor()


@contextmanager
def span(
    name: str, attributes: Attributes | None = None, *, parent: Any = None, is_call: bool = False
) -> Iterator[None]:
    """Open a span around the block. The class of an error that leaves the block is recorded as ``error.type``.

    ``parent``: a span of ``start_span``; None = the current span. ``is_call``: another process is called (kind CLIENT).
    """
    tracer = get_tracer()
    if tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind, set_span_in_context

    with tracer.start_as_current_span(
        name,
        context=None if parent is None else set_span_in_context(parent),
        kind=SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield
        except BaseException as error:
            _mark_failed(opened, type(error).__name__)
            raise


def memory_span(operation: str, project: str, attributes: Attributes | None = None) -> AbstractContextManager[None]:
    """Open a span of an operation on a project's memories, such as ``create_memory``."""
    return span(operation, {"gen_ai.operation.name": operation, MEMORY_STORE_ID: project, **(attributes or {})})


def start_span(name: str, attributes: Attributes) -> Any:
    """Start a span that ``end_span`` ends, and that is not the current one. Return None if no spans are made."""
    tracer = get_tracer()
    return None if tracer is None else tracer.start_span(name, attributes=attributes)


def end_span(started: Any, attributes: Attributes, *, is_failed: bool) -> None:
    """End a span of ``start_span`` with these attributes."""
    if started is not None:
        started.set_attributes(attributes)
        if is_failed:
            _mark_failed(started, "_OTHER")
        started.end()


def _mark_failed(failed: Any, error_type: str) -> None:
    from opentelemetry.trace import StatusCode

    failed.set_attribute("error.type", error_type)
    failed.set_status(StatusCode.ERROR)


def set_attributes(attributes: Attributes) -> None:
    """Add attributes to the current span, if there is one."""
    if get_tracer() is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(attributes)


def get_trace_ids() -> dict[str, str]:
    """Return hexadecimal ``trace_id`` and ``span_id`` of the current span, for log lines; empty without a span."""
    if get_tracer() is None:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}
