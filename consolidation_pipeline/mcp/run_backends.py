"""Backends of ``run_consolidation``: run in this process, or queue a job for the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

if TYPE_CHECKING:
    from uuid import UUID

    from consolidation_pipeline.store.database.engine import Engine

FINAL_STATUSES = ("completed", "failed", "cancelled", "unchanged")

# Returns the current state of a run, None while its job does not exist yet.
PollRun = Callable[[], Mapping[str, Any] | None]


class RunOutcome(Protocol):
    """Result of a run, as ``launch.run_project`` returns it."""

    @property
    def project(self) -> str: ...
    @property
    def job_id(self) -> UUID | None: ...
    @property
    def status(self) -> str: ...
    @property
    def error(self) -> str | None: ...


class RunProject(Protocol):
    """Function that runs a project to the end, such as ``launch.run_project``."""

    def __call__(self, slug: str, *, phases: Sequence[str] | None, triggered_by: str, run_id: str) -> RunOutcome: ...


class RunBackend(Protocol):
    """Starts runs. ``in_process``: this process executes them, no daemon is needed."""

    in_process: bool

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Start a run, or join the same live one; return a function that reads its state."""
        ...


class QueuedRunBackend:
    """Queues a pending job for the daemon, or for ``consolidation run --pending``."""

    in_process = False

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Create a pending job behind the project's live ones, or find the same one among them."""
        from consolidation_pipeline.service.jobs.job_requests import request_job
        from consolidation_pipeline.service.jobs.job_status import describe_job

        job = request_job(engine, slug, phases=phases, triggered_by=triggered_by)
        return lambda: describe_job(engine, str(job.job_id))


class InProcessRunBackend:
    """Runs projects in this process, one after the other. A second request for the same live run joins it."""

    in_process = True

    def __init__(self, run: RunProject) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="consolidation")
        self._lock = Lock()
        self._live: dict[tuple[str, frozenset[str]], tuple[str, Future[RunOutcome]]] = {}

    def start(self, engine: Engine, slug: str, *, phases: Sequence[str] | None, triggered_by: str) -> PollRun:
        """Start the project's run of these phases behind the live runs, unless it is one of them."""
        wanted = slug, frozenset(phases or ())
        with self._lock:
            live = self._live.get(wanted)
            if live is None or live[1].done():
                run_id = str(uuid4())
                run = self._pool.submit(self._run, slug, phases=phases, triggered_by=triggered_by, run_id=run_id)
                live = self._live[wanted] = run_id, run
        return lambda: _poll_run(engine, slug, *live)


def _poll_run(engine: Engine, slug: str, run_id: str, future: Future[RunOutcome]) -> Mapping[str, Any] | None:
    """Return the state of the run, or its result once it ended. Reraise the error that kept it from running."""
    from consolidation_pipeline.service.jobs.job_status import describe_job, describe_run

    if not future.done():
        return describe_run(engine, run_id)
    outcome = future.result()
    if outcome.job_id is None:
        return {"project": slug, "status": outcome.status, "error_message": outcome.error}
    if outcome.status == "unchanged":
        return {"project": slug, "status": "unchanged", "job_id": outcome.job_id}
    return describe_job(engine, str(outcome.job_id))
