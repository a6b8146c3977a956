"""What Prometheus reads: requests by route, jobs by status, events that wait. No labels that callers can make up."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.service.health import count_work
from consolidation_pipeline.store.engine import Engine

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

router = APIRouter(tags=["health"])


class Metrics:
    """The counters of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        by_route = ["method", "route"]
        self._requests = Counter(
            "consolidation_http_requests", "Requests answered.", [*by_route, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "consolidation_http_request_seconds", "Time to answer.", by_route, registry=self.registry, buckets=_BUCKETS
        )
        self._up = Gauge("consolidation_database_up", "1 = the database answers.", registry=self.registry)
        self._jobs = Gauge("consolidation_jobs", "Jobs by status.", ["status"], registry=self.registry)
        self._dead = Gauge(
            "consolidation_jobs_dead", "Jobs that failed too often to be tried by sensors.", registry=self.registry
        )
        self._events = Gauge("consolidation_events_waiting", "Events not delivered yet.", registry=self.registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` is the template, for paths hold ids."""
        known = method if method in _METHODS else "OTHER"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def read(self, engine: Engine) -> bytes:
        """All metrics in Prometheus' text format; those of the database are as of now, and left out without it."""
        self._jobs.clear()
        try:
            work = count_work(engine)
        except StoreError:
            self._up.set(0)
        else:
            self._up.set(1)
            self._dead.set(work.jobs_dead)
            self._events.set(work.events_waiting)
            for status, count in work.jobs.items():
                self._jobs.labels(status).set(count)
        return generate_latest(self.registry)


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"}},
)
def read_metrics(request: Request) -> Response:
    """Requests by route and status, their latency, jobs by status, events not delivered yet. No key is needed."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.read(request.app.state.engine), media_type=CONTENT_TYPE_LATEST)
