"""Spans for OpenTelemetry: made when, and only when, the standard environment variables name an exporter.

    with span("search_memory", {"gen_ai.memory.store.id": "shop"}):
        note({"gen_ai.memory.record.count": 3})

Without them nothing of OpenTelemetry is imported here, and a span costs a look at a variable. Names and attributes of
calls to models and of operations on memories are those of the GenAI conventions (status: Development), revision
002c8a6 of https://github.com/open-telemetry/semantic-conventions-genai. No attribute ever holds the text of a memory, a
query, a prompt or a reply, nor the message of an error, for that may quote them.
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
    """The exporters that the environment asks for, by their names there, such as ``otlp``; none = no spans are made."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not named and any(os.environ.get(name, "").strip() for name in endpoints):
        named = "otlp"
    return tuple(name.strip() for name in named.split(",") if name.strip() not in ("", "none"))


def find_tracing_problem() -> str | None:
    """Why no spans are made although the environment asks for them; None = they are, or nobody asks."""
    wanted = find_exporters()
    if wanted and find_spec("opentelemetry.sdk") is None:
        return f"spans are asked for ({', '.join(wanted)}), but packages are missing: {_PACKAGES}"
    from importlib.metadata import entry_points

    missing = [name for name in wanted if not entry_points(group=_GROUP, name=_entry(name))]
    return f"no package offers the exporter {', '.join(missing)}; otlp needs {_PACKAGES}" if missing else None


_GROUP = "opentelemetry_traces_exporter"


def _entry(name: str) -> str:
    """Under which name packages offer an exporter."""
    if name != "otlp":
        return name
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    chosen = next((os.environ[protocol] for protocol in protocols if os.environ.get(protocol)), "http/protobuf")
    return "otlp_proto_grpc" if chosen == "grpc" else "otlp_proto_http"


@cache
def get_tracer() -> Any:
    """The tracer of this process, set up when it is first asked for; None = no spans are made.

    A provider that the process has already, such as that of ``opentelemetry-instrument``, is used as it is.
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
        provider.add_span_processor(_hiding_queries())
        for name in exporters:
            (found,) = entry_points(group=_GROUP, name=_entry(name))
            provider.add_span_processor(BatchSpanProcessor(found.load()()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("consolidation_pipeline", version("consolidation-pipeline"))


def _hiding_queries() -> Any:
    """A processor that hides what stands behind the ``?`` of an address, which FastAPI's own spans tell."""
    from opentelemetry.sdk.trace import SpanProcessor

    class HidingQueries(SpanProcessor):  # type: ignore[misc]
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            del parent_context
            if "url.query" in (span.attributes or {}):
                span.set_attribute("url.query", "REDACTED")

    return HidingQueries()


@contextmanager
def span(
    name: str, attributes: Attributes | None = None, *, parent: Any = None, is_call: bool = False
) -> Iterator[None]:
    """A span around the block; an error that leaves it marks it with its class, ``error.type``.

    ``parent``: a span of ``start_span``; None = the one around. ``is_call``: of another process (kind CLIENT).
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
    ) as made:
        try:
            yield
        except BaseException as error:
            _fail(made, type(error).__name__)
            raise


def memory_span(operation: str, project: str, attributes: Attributes | None = None) -> AbstractContextManager[None]:
    """A span of an operation on the memories of a project: create_memory, search_memory, update_memory, .."""
    return span(operation, {"gen_ai.operation.name": operation, MEMORY_STORE_ID: project, **(attributes or {})})


def start_span(name: str, attributes: Attributes) -> Any:
    """A span that is around nothing by itself and ends with ``end_span``; None = no spans are made."""
    tracer = get_tracer()
    return None if tracer is None else tracer.start_span(name, attributes=attributes)


def end_span(begun: Any, attributes: Attributes, *, is_failed: bool) -> None:
    """End a span of ``start_span``."""
    if begun is not None:
        begun.set_attributes(attributes)
        if is_failed:
            _fail(begun, "_OTHER")
        begun.end()


def _fail(made: Any, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    made.set_attribute("error.type", kind)
    made.set_status(StatusCode.ERROR)


def set_attributes(attributes: Attributes) -> None:
    """Add attributes to the span around; nothing happens where there is none."""
    if get_tracer() is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(attributes)


def get_trace_ids() -> dict[str, str]:
    """``trace_id`` and ``span_id`` of the span around, in hexadecimal, for a line of the log; empty without one."""
    if get_tracer() is None:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    around = get_current_span().get_span_context()
    if not around.is_valid:
        return {}
    return {"trace_id": format_trace_id(around.trace_id), "span_id": format_span_id(around.span_id)}
