"""Prometheus metrics: requests by route, and the work of all projects.

No label has values that callers can invent, and none is the project: there may be thousands. Numbers from the database
are the same in every process and survive restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Depends
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from consolidation_pipeline.api.problems import DECLARED_INVALID
from consolidation_pipeline.api.query_parameters import refuse_unknown_parameters
from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.service.admin.health import RUN_BOUNDS, WorkMonitor, WorkStatus
from consolidation_pipeline.store.database.engine import Engine

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

router = APIRouter(tags=["health"], dependencies=[Depends(refuse_unknown_parameters)], responses=DECLARED_INVALID)

MetricFamily = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


class PrometheusMetrics:
    """Request counters of one application, in a registry of its own, and numbers from its database."""

    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        by_route = ["method", "route"]
        self._requests = Counter(
            "consolidation_http_requests", "Requests answered.", [*by_route, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "consolidation_http_request_seconds", "Time to answer.", by_route, registry=self.registry, buckets=_BUCKETS
        )
        self.registry.register(_DatabaseCollector(WorkMonitor(engine)))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. ``route`` is the path template: paths hold ids."""
        known = method if method in _METHODS else "OTHER"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def read(self) -> bytes:
        """Return all metrics in Prometheus' text format. Without the database, its metrics are left out."""
        return generate_latest(self.registry)


class _DatabaseCollector(Collector):
    def __init__(self, monitor: WorkMonitor) -> None:
        self._monitor = monitor

    def describe(self) -> list[MetricFamily]:
        """Return nothing, so that the registry does not query the database on registration."""
        return []

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the numbers from the database."""
        try:
            work = self._monitor.read()
        except StoreError:
            work = None
        up = "1 = the database answers."
        yield GaugeMetricFamily("consolidation_database_up", up, value=float(work is not None))
        if work is not None:
            yield from _build_gauges(work)
            yield from _build_totals(work)


def _build_gauges(work: WorkStatus) -> Iterator[MetricFamily]:
    waiting, totals = work.waiting, work.totals
    yield _labelled_family(
        "status", GaugeMetricFamily, "consolidation_jobs", "Jobs by status.", {**waiting.jobs, **totals.ended}
    )
    dead = "Jobs that failed too often for sensors to retry."
    yield GaugeMetricFamily("consolidation_jobs_dead", dead, value=work.jobs_dead)
    age = "Age of the oldest pending job; 0 = there is none."
    yield GaugeMetricFamily("consolidation_pending_job_oldest_seconds", age, value=waiting.oldest_pending_seconds)
    yield GaugeMetricFamily("consolidation_events_waiting", "Events to deliver.", value=waiting.events)
    yield GaugeMetricFamily(
        "consolidation_suggestions_waiting", "Proposed merges that wait for a person.", value=totals.suggestions
    )
    raw = "Raw memories by state: counted in small tables, else estimated by Postgres."
    yield _labelled_family("state", GaugeMetricFamily, "consolidation_memories_estimate", raw, work.memories)
    reserved = "Budget reserved for live calls to models, or lost with their process."
    yield GaugeMetricFamily("consolidation_llm_reserved_dollars", reserved, value=totals.usd_reserved)


def _build_totals(work: WorkStatus) -> Iterator[MetricFamily]:
    totals = work.totals
    completed = totals.ended["completed"]
    buckets = [(str(bound), float(count)) for bound, count in zip(RUN_BOUNDS, totals.runs_within, strict=True)]
    yield HistogramMetricFamily(
        "consolidation_run_seconds",
        "Duration of completed runs.",
        buckets=[*buckets, ("+Inf", float(completed))],
        sum_value=totals.run_seconds,
    )
    yield _labelled_family(
        "status", CounterMetricFamily, "consolidation_llm_calls", "Ended calls to models.", totals.calls
    )
    tokens = {"sent": totals.tokens_sent, "received": totals.tokens_received}
    yield _labelled_family(
        "direction", CounterMetricFamily, "consolidation_llm_tokens", "Tokens of calls to models.", tokens
    )
    yield CounterMetricFamily("consolidation_llm_cost_dollars", "Cost of calls to models.", value=totals.usd)


def _labelled_family(
    label: str, kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, about: str, values: Mapping[str, float]
) -> MetricFamily:
    family = kind(name, about, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"}},
)
def read_metrics(request: Request) -> Response:
    """Return requests by route, status and latency; jobs, runs, cost, memories and events of all projects. No key."""
    metrics: PrometheusMetrics = request.app.state.metrics
    return Response(metrics.read(), media_type=CONTENT_TYPE_LATEST)
