"""How a server runs a consolidation: in its own process, or by asking whoever runs the pending jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from consolidation_pipeline.errors import NotFoundError

if TYPE_CHECKING:
    from uuid import UUID

    from consolidation_pipeline.store.database.engine import Engine

FINAL_STATUSES = ("completed", "failed", "cancelled", "unchanged")

# Looks how a run goes; None while its job is not known yet.
PollRun = Callable[[], Mapping[str, Any] | None]


class RunOutcome(Protocol):
    """How a run ended, as ``launch.run_project`` tells it."""

    @property
    def project(self) -> str: ...
    @property
    def job_id(self) -> UUID | None: ...
    @property
    def status(self) -> str: ...
    @property
    def error(self) -> str | None: ...


class RunProject(Protocol):
    """Runs a project to the end, such as ``launch.run_project``."""

    def __call__(self, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> RunOutcome: ...


class RunBackend(Protocol):
    """Starts runs. ``here``: they need nobody else to be done."""

    here: bool

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Start a run, or join the one that is under way; returns how to look after it."""
        ...


class QueuedRunBackend:
    """Leaves a pending job to the daemon, or to ``consolidation run --pending``."""

    here = False

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Write a pending job, or find the live one."""
        from consolidation_pipeline.service.jobs.job_requests import request_job
        from consolidation_pipeline.service.jobs.job_status import describe_job

        job = request_job(engine, slug, phases=phases, triggered_by=triggered_by)
        return lambda: describe_job(engine, str(job.job_id))


class InProcessRunBackend:
    """Runs projects in this process, one after the other; to ask for one that is under way is to join it."""

    here = True

    def __init__(self, run: RunProject) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="consolidation")
        self._lock = Lock()
        self._live: dict[str, Future[RunOutcome]] = {}

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Start the project's run unless it is under way."""
        with self._lock:
            future = self._live.get(slug)
            if future is None or future.done():
                future = self._pool.submit(self._run, slug, phases=phases, triggered_by=triggered_by)
                self._live[slug] = future
        return lambda: _poll_run(engine, slug, future)


def _poll_run(engine: Engine, slug: str, future: Future[RunOutcome]) -> Mapping[str, Any] | None:
    """The run so far; its outcome when it is over. Raises what kept it from being run."""
    from consolidation_pipeline.service.jobs.job_status import describe_job

    if not future.done():
        return _find_live_job(engine, slug)
    outcome = future.result()
    if outcome.job_id is None:
        return {"project": slug, "status": outcome.status, "error_message": outcome.error}
    if outcome.status == "unchanged":
        return {"project": slug, "status": "unchanged", "job_id": outcome.job_id}
    return describe_job(engine, str(outcome.job_id))


def _find_live_job(engine: Engine, slug: str) -> Mapping[str, Any] | None:
    from consolidation_pipeline.service.jobs.job_status import describe_job

    try:
        newest = describe_job(engine, slug)
    except NotFoundError:
        return None
    return None if newest["status"] in FINAL_STATUSES else newest
