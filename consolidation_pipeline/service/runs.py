"""A run over one project: its lock, its job row and its phases.

The run holds the project's lock from start to end. A job row that says ``running`` while nobody holds the lock belongs
to a process that died; whoever comes next marks it failed and goes on from what it left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.memories import content_hash
from consolidation_pipeline.core.profiles import resolve_thresholds
from consolidation_pipeline.embed import Embedder, load_embedder
from consolidation_pipeline.errors import ConflictError, ProjectDisabledError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.recovery import DIED
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store import jobs
from consolidation_pipeline.store.calibrations import Calibration, describe_versions, load_calibration
from consolidation_pipeline.store.engine import Connection, Engine, Row
from consolidation_pipeline.store.ledger import Author
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.statistics import count_raw, fingerprint

logger = logging.getLogger(__name__)

PHASES = (
    "embedding_matrix",
    "threshold_calibration",
    "similarity_graph",
    "clusters",
    "merged_memories",
    "decay_scores",
    "consolidation_report",
)

# What a pending job asks for, by the ``job`` of its scope.
JOB_PHASES: Mapping[str, tuple[str, ...]] = {"consolidate": PHASES, "decay": ("decay_scores",)}

OVERTAKEN = "another run of the project began first; the run that was asked for has a job of its own when it begins"
LOCK_WAIT_SECONDS = 10.0


@dataclass
class Phase:
    """What a phase hands over when it is done: its numbers, and what they add to the job's counters."""

    metrics: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass
class ProjectRun:
    """One run under way. ``now`` is its instant: ages are taken as of it, so a run is one pure function of it.

    ``raw_counts``: memories in all and archived ones, at the start.
    """

    engine: Engine
    project: Project
    options: ConsolidationOptions
    job_id: UUID
    planned: Sequence[str]
    now: datetime
    triggered_by: str
    raw_counts: tuple[int, int]
    completed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    cancelled: bool = False

    @cached_property
    def embedder(self) -> Embedder:
        """The project's embedding model, loaded when the first phase needs it."""
        return load_embedder(self.options.embedding_model)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The newest snapshot of the project and model; the phase that takes a new one puts it here."""
        with self.engine.connect() as connection:
            return load_calibration(connection, self.project.id, self.embedder.name)

    @property
    def thresholds(self) -> dict[str, float]:
        """t_merge, t_suggest, t_pattern and t_principle in force: the snapshot's, else the model's profile."""
        if self.calibration is not None:
            return dict(self.calibration.thresholds)
        return resolve_thresholds(self.embedder.name, self.options.model_dump(), centered=False)

    @property
    def author(self) -> Author:
        """Who stands in the ledger."""
        return Author(self.project.id, self.job_id, self.triggered_by)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Record a phase on the job row: done, failed, or cut off by an interrupt."""
        outcome, began = Phase(), time.monotonic()
        try:
            yield outcome
        except Exception as error:
            self.failed.append(name)
            self._note_failure(name, _in_words(error))
            raise
        except BaseException:
            self.cancelled = True
            raise
        self.completed.append(name)
        with self.engine.begin() as connection:
            jobs.record_phase(
                connection,
                self.job_id,
                name,
                planned=len(self.planned),
                metrics={**outcome.metrics, "seconds": round(time.monotonic() - began, 3)},
                counters=outcome.counters,
            )

    def _note_failure(self, name: str, error: str) -> None:
        try:
            with self.engine.begin() as connection:
                jobs.record_failed_phase(connection, self.job_id, name, error)
        except Exception:
            # The database went away, most likely why the phase failed: that error is the one to show.
            logger.exception("the failure of %s could not be recorded on job %s", name, self.job_id)

    def outcome(self) -> tuple[str, str | None]:
        """Final status of the job and, where it is not completed, why."""
        if self.cancelled:
            return "cancelled", "the run was interrupted"
        if self.failed:
            return "failed", None
        missing = [name for name in self.planned if name not in self.completed]
        if missing:
            return "failed", f"did not run: {', '.join(missing)} (an earlier step or check failed)"
        return "completed", None


def _in_words(error: BaseException) -> str:
    """The error as people read it: the database library appends the statement and its parameters."""
    return str(error).partition("\n[SQL:")[0].strip() or type(error).__name__


@contextmanager
def open_run(
    engine: Engine,
    slug: str,
    *,
    settings: Settings,
    planned: Sequence[str] = PHASES,
    trigger_type: str = "manual",
    triggered_by: str = "system",
    run_id: str | None = None,
) -> Iterator[ProjectRun]:
    """Begin a run and, whatever happens, end its job row truthfully.

    Raises:
        NotFoundError, ProjectDisabledError; ProjectBusyError: another run holds the project; ConflictError: another
        job came in between.
    """
    project = check_runnable(engine, slug)
    options = effective_options(project, settings)
    with jobs.project_lock(engine, project.id, slug, wait_seconds=LOCK_WAIT_SECONDS):
        with engine.begin() as connection:
            _settle_live_job(connection, project, planned)
            job_id = _begin_job(
                connection, project, options, trigger_type=trigger_type, triggered_by=triggered_by, run_id=run_id
            )
            counts = _count_raw(connection, project)
        run = ProjectRun(engine, project, options, job_id, planned, datetime.now(UTC), triggered_by, counts)
        try:
            yield run
        except Exception as error:
            _end(run, "failed", _in_words(error))
            raise
        except BaseException:
            _end(run, "cancelled", "the run was interrupted")
            raise
        _end(run, *run.outcome())


def check_runnable(engine: Engine, slug: str) -> Project:
    """The project, if it may be run. Raises NotFoundError, ProjectDisabledError."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    if not project.consolidation_enabled:
        raise ProjectDisabledError(f"consolidation of project {slug} is disabled: enable it with `projects configure`")
    return project


def effective_options(project: Project, settings: Settings) -> ConsolidationOptions:
    """The project's options; models set in the environment are the default for all projects."""
    named = {"llm_model": settings.llm_model, "embedding_model": settings.embedding_model}
    base = parse_options({key: value for key, value in named.items() if value})
    return parse_options(project.config, base=base)


def _settle_live_job(connection: Connection, project: Project, planned: Sequence[str]) -> None:
    """End the live job unless it waits for just this run; a running one died, for we hold the lock."""
    live = jobs.find_live_job(connection, project.id)
    if live is None:
        return
    if live.status == "running":
        jobs.finish_job(connection, live.id, "failed", error=DIED)
    elif tuple(planned) != JOB_PHASES.get(live.scope.get("job", "consolidate")):
        # To claim it would tell whoever waits for it that more or less was done than they asked for.
        jobs.finish_job(connection, live.id, "cancelled", error=OVERTAKEN)


def _begin_job(
    connection: Connection,
    project: Project,
    options: ConsolidationOptions,
    *,
    trigger_type: str,
    triggered_by: str,
    run_id: str | None,
) -> UUID:
    """Claim the pending job, or make one."""
    snapshot = options.model_dump(mode="json")
    pending = jobs.find_live_job(connection, project.id)
    job_id: UUID
    if pending is not None:
        job_id = pending.id
    else:
        job_id = jobs.append_job(
            connection, project.id, trigger_type=trigger_type, triggered_by=triggered_by, options=snapshot
        )
    if not jobs.start_job(connection, job_id, run_id=run_id, options=snapshot):
        raise ConflictError(f"job {job_id} was ended while the run began", (str(job_id),))
    jobs.append_event(connection, project.id, "consolidation.started", {"job_id": str(job_id)})
    return job_id


def _count_raw(connection: Connection, project: Project) -> tuple[int, int]:
    counts = count_raw(connection, project.id)
    return counts.memories, counts.archived


def _end(run: ProjectRun, status: str, error: str | None) -> None:
    whole = status == "completed" and tuple(run.planned) == PHASES
    try:
        with run.engine.begin() as connection:
            # What came while the run went on may have missed its phases: then the next run has something to do.
            seen_all = whole and _count_raw(connection, run.project) == run.raw_counts
            metrics = {"state": _state(connection, run.project, run.options, run.now)} if seen_all else {}
            jobs.finish_job(connection, run.job_id, status, error=error, metrics=metrics)
    except Exception:
        # The database went away: the row stays `running` without a lock, and the next run marks it failed.
        logger.exception("job %s could not be marked %s", run.job_id, status)


def _state(connection: Connection, project: Project, options: ConsolidationOptions, now: datetime) -> str:
    """What a run would start from: memories, options, calibration, algorithm; the day, for relevance fades daily."""
    parts = (
        fingerprint(connection, project.id),
        options.model_dump_json(),
        describe_versions(connection, project.id),
        ALGORITHM_VERSION,
        f"{now:%Y-%m-%d}",
    )
    return content_hash("\n".join(parts))


def find_unchanged(engine: Engine, project: Project, settings: Settings) -> Row[Any] | None:
    """The newest job, when it was a whole run and nothing changed since, so that another run would do nothing."""
    with engine.connect() as connection:
        newest = jobs.list_jobs(connection, project.id, limit=1)
        if not newest or "state" not in newest[0].metrics:
            return None
        state = _state(connection, project, effective_options(project, settings), datetime.now(UTC))
    return newest[0] if newest[0].metrics["state"] == state else None
