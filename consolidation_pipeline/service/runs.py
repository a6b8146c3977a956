"""A run over one project: its lock, its job row and its phases.

The run holds the project's lock from start to end. A job row that says ``running`` while nobody holds the lock belongs
to a process that died; whoever comes next marks it failed and goes on from what it left.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.memories import content_hash
from consolidation_pipeline.core.profiles import resolve_thresholds
from consolidation_pipeline.embed import Embedder, is_local
from consolidation_pipeline.errors import (
    BudgetExhaustedError,
    ConflictError,
    InvalidScopeError,
    JobCancelledError,
    ProjectDisabledError,
    TimeLimitError,
)
from consolidation_pipeline.logs import about
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.recovery import DIED
from consolidation_pipeline.service.spending import open_embedder
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store import jobs
from consolidation_pipeline.store.calibrations import Calibration, describe_versions, load_calibration
from consolidation_pipeline.store.engine import Connection, Engine, Row
from consolidation_pipeline.store.ledger import Author
from consolidation_pipeline.store.llm_calls import JobSpending, sum_job
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.statistics import count_raw, fingerprint

logger = logging.getLogger(__name__)

PHASES = (
    "embedding_matrix",
    "threshold_calibration",
    "similarity_graph",
    "clusters",
    "merged_memories",
    "patterns",
    "principles",
    "playbook_entries",
    "consolidation_suggestions",
    "semantic_summaries",
    "procedural_profile",
    "decay_scores",
    "archived_memories",
    "consolidation_report",
)

# What a job of each name runs, as the ``job`` of a pending job's scope asks for it.
JOB_PHASES: Mapping[str, tuple[str, ...]] = {
    "consolidate": PHASES,
    "decay": ("decay_scores",),
    "associate": ("associations",),
    "forget": ("decay_scores", "archived_memories"),
    "summarize": ("embedding_matrix", "semantic_summaries", "procedural_profile"),
}
# Phases that word something by a language model, and those that embed, where the project has a model for it.
_WORDING = {"patterns", "principles", "consolidation_suggestions", "semantic_summaries", "procedural_profile"}
_EMBEDDING = {"embedding_matrix", "threshold_calibration", "merged_memories", "playbook_entries"} | (
    _WORDING - {"consolidation_suggestions"}
)
# In an order that agrees with every job's.
ALL_PHASES = ("associations", *PHASES)

CANCELLED_BY = "cancelled_by"
OVERTAKEN = "another run of the project began first; the run that was asked for has a job of its own when it begins"
LOCK_WAIT_SECONDS = 10.0


@dataclass
class Phase:
    """What a phase hands over when it is done: its numbers, and what they add to the job's counters."""

    metrics: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Decisions:
    """What a plan decided, as of an instant, by id: the digest of each merge, the policy of each archiving, and the
    digest of each pattern, principle and playbook entry.
    """

    as_of: datetime
    merges: Mapping[str, str]
    archives: Mapping[str, str]
    knowledge: Mapping[str, str]


@dataclass
class ProjectRun:
    """One run under way. ``now`` is its instant: ages are taken as of it, so a run is one pure function of it.

    ``job``: name of the job that runs, of which ``planned`` are the phases. ``raw_counts``: memories in all and
    archived ones, at the start; ``archived``: how many more are archived by the run itself; ``unfinished``: it left
    something to the next one; ``stopped``: what ended before its time, see ``note_stop``. ``began``: when, by the clock
    of ``time.monotonic``, in seconds. ``plan``: the decisions it carries out, and no others; None = all that it finds.
    ``trigger_type``: a person (manual), a schedule or a threshold asked for it. ``span``: the run's in a trace, of
    which those of the phases are part. ``place``: what a phase that may call a paid model waits for and holds, by name.
    """

    engine: Engine
    project: Project
    options: ConsolidationOptions
    job_id: UUID
    job: str
    planned: Sequence[str]
    now: datetime
    triggered_by: str
    raw_counts: tuple[int, int]
    completed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    cancelled: bool = False
    archived: int = 0
    unfinished: bool = False
    stopped: list[dict[str, str]] = field(default_factory=list)
    plan: Decisions | None = None
    trigger_type: str = "manual"
    span: Any = None
    began: float = field(default_factory=time.monotonic)
    place: Callable[[str], AbstractContextManager[object]] = nullcontext

    @property
    def as_of(self) -> datetime:
        """The instant by which it is decided what is old: the plan's, else the run's own."""
        return self.now if self.plan is None else self.plan.as_of

    def may_write(self, id_: UUID) -> bool:
        """Whether a pattern, principle or playbook entry may be written: with a plan, those of the plan."""
        return self.plan is None or str(id_) in self.plan.knowledge

    @cached_property
    def embedder(self) -> Embedder:
        """The project's embedding model, loaded when the first phase needs it; a paid one pays within the budgets."""
        return open_embedder(self.engine, self.project, self.options, self.job_id)

    @property
    def pays(self) -> bool:
        """Whether the project has a model that may have to be paid for."""
        return self.options.llm_model is not None or not is_local(self.options.embedding_model)

    def may_ask(self, phase: str) -> bool:
        """Whether a phase may call a model that has to be paid for."""
        words = phase in _WORDING or (phase == "merged_memories" and self.options.merge_style == "rewrite")
        if words and self.options.llm_model is not None:
            return True
        return phase in _EMBEDDING and not is_local(self.options.embedding_model)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The newest snapshot of the project and model; the phase that takes a new one puts it here."""
        with self.engine.connect() as connection:
            return load_calibration(connection, self.project.id, self.embedder.name)

    @property
    def boilerplate(self) -> frozenset[str]:
        """Sentences that repeat across the project and say nothing about a group."""
        return frozenset(self.calibration.boilerplate) if self.calibration is not None else frozenset()

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
        """Record a phase on the job row: done, with what it spent, failed, or cut off by an interrupt.

        Raises:
            JobCancelledError: somebody cancelled the job; what the phases before did stands. TimeLimitError: the run's
            time is over, and no further phase of it begins. ConflictError: another run has taken over, for this one
            lost its lock with its connection.
        """
        told = {"project": self.project.slug, "job": str(self.job_id), "phase": name}
        attributes = {"consolidation.phase": name, tracing.STORE: self.project.slug, tracing.JOB: str(self.job_id)}
        with about(told), tracing.span(name, attributes, parent=self.span), self._recorded(name) as outcome:
            yield outcome

    @contextmanager
    def _recorded(self, name: str) -> Iterator[Phase]:
        outcome, began, spent = Phase(), time.monotonic(), self._sum_spending()
        try:
            with self.place(name) if self.may_ask(name) else nullcontext():
                self._go_on(name)
                yield outcome
        except JobCancelledError:
            self.cancelled = True
            raise
        except Exception as error:
            self.failed.append(name)
            if isinstance(error, BudgetExhaustedError):
                self.note_stop(name, error)
            self._note_failure(name, _in_words(error))
            raise
        except BaseException:
            self.cancelled = True
            raise
        self.completed.append(name)
        outcome.metrics |= self._describe_spending(spent)
        tracing.note(_as_attributes(outcome.metrics))
        with self.engine.begin() as connection:
            jobs.record_phase(
                connection,
                self.job_id,
                name,
                planned=len(self.planned),
                metrics={**outcome.metrics, "seconds": round(time.monotonic() - began, 3)},
                counters=outcome.counters,
            )

    def _go_on(self, name: str) -> None:
        with self.engine.connect() as connection:
            job = refuse_cancelled(connection, self.job_id, f"{name} was not begun")
        if job is not None and job.status != "running":
            # The connection that held the lock was lost, and who came next took this run for dead.
            raise ConflictError(f"job {self.job_id} is {job.status}: another run took over, {name} was not begun")
        limit = self.options.timeout_seconds
        if time.monotonic() - self.began > limit:
            raise TimeLimitError(
                f"not begun: the run has taken longer than timeout_seconds = {limit}; "
                "the next one goes on from here, or set a higher limit"
            )

    def note_stop(self, purpose: str, error: Exception) -> str:
        """Note what ended before its time, because the budget is used up or the model stopped answering.

        The job and the next run go by it, and listeners are told where it is the budget; returns why, in words.
        """
        by = "budget" if isinstance(error, BudgetExhaustedError) else "model"
        self.stopped.append({"purpose": purpose, "by": by, "reason": str(error)})
        self.unfinished = True
        if by == "budget":
            payload = {"job_id": str(self.job_id), "purpose": purpose, "reason": str(error)}
            with self.engine.begin() as connection:
                jobs.append_event(connection, self.project.id, "budget.exhausted", payload)
        return str(error)

    def _sum_spending(self) -> JobSpending | None:
        if not self.pays:
            return None
        with self.engine.connect() as connection:
            return sum_job(connection, self.job_id)

    def _describe_spending(self, before: JobSpending | None) -> dict[str, Any]:
        """What a phase spent, under stable names; nothing in a project without a model to pay for."""
        after = self._sum_spending()
        if before is None or after is None:
            return {}
        spent = after - before
        return {
            "llm/cost_usd": float(spent.usd),
            "llm/tokens": spent.tokens,
            "llm/calls": spent.calls,
            "llm/cached": spent.cached,
        }

    def _note_failure(self, name: str, error: str) -> None:
        try:
            with self.engine.begin() as connection:
                jobs.record_failed_phase(connection, self.job_id, name, error)
        except Exception:
            # The database went away, most likely why the phase failed: that error is the one to show.
            logger.exception("the failure of %s could not be recorded on job %s", name, self.job_id)

    def outcome(self) -> tuple[str, str | None]:
        """Final status of the job and, where it is not completed, why."""
        missing = [name for name in self.planned if name not in self.completed]
        if self.cancelled and missing:
            return "cancelled", "the run was interrupted"
        if self.failed:
            return "failed", None
        if missing:
            return "failed", f"did not run: {', '.join(missing)} (an earlier step or check failed)"
        return "completed", None


def _as_attributes(metrics: Mapping[str, Any]) -> dict[str, int | float]:
    """The numbers of a phase, as a span tells them."""
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {f"consolidation.{name.replace('/', '.')}": value for name, value in numbers.items()}


def _in_words(error: BaseException) -> str:
    """The error as people read it: the database library appends the statement and its parameters."""
    return str(error).partition("\n[SQL:")[0].strip() or type(error).__name__


@contextmanager
def open_run(
    engine: Engine,
    slug: str,
    *,
    settings: Settings,
    job: str = "consolidate",
    planned: Sequence[str] = PHASES,
    trigger_type: str = "manual",
    triggered_by: str = "system",
    run_id: str | None = None,
    requested: UUID | None = None,
) -> Iterator[ProjectRun]:
    """Begin a run and, whatever happens, end its job row truthfully.

    ``requested``: the pending job that it was launched for.

    Raises:
        NotFoundError, ProjectDisabledError; ProjectBusyError: another run holds the project; JobCancelledError: what
        was ``requested`` was cancelled; ConflictError: another job came in between.
    """
    project = check_runnable(engine, slug)
    options = effective_options(project, settings)
    with jobs.project_lock(engine, project.id, slug, wait_seconds=LOCK_WAIT_SECONDS):
        with engine.begin() as connection:
            if requested is not None:
                _refuse_done(refuse_cancelled(connection, requested, "nothing was run"))
            _settle_live_job(connection, project, planned)
            job_id, options, plan = _begin_job(
                connection,
                project,
                options,
                scope=scope_of(job if job in JOB_PHASES else "consolidate", planned),
                trigger_type=trigger_type,
                triggered_by=triggered_by,
                run_id=run_id,
            )
            counts = _count_raw(connection, project)
        now = datetime.now(UTC)
        run = ProjectRun(engine, project, options, job_id, job, planned, now, triggered_by, counts, plan=plan)
        run.trigger_type = trigger_type
        run.span = _begin_span(run)
        try:
            yield run
        except Exception as error:
            _end(run, "failed", _in_words(error))
            raise
        except BaseException:
            _end(run, "cancelled", "the run was interrupted")
            raise
        _end(run, *run.outcome())


def _begin_span(run: ProjectRun) -> Any:
    """The run in a trace: what may create, update or consolidate memories, which of it the caller does not choose."""
    attributes = {tracing.STORE: run.project.slug, tracing.JOB: str(run.job_id)}
    told = {"consolidation.job.name": run.job, "consolidation.job.trigger": run.trigger_type}
    return tracing.begin("upsert_memory", {"gen_ai.operation.name": "upsert_memory", **attributes, **told})


def preview_run(engine: Engine, slug: str, *, settings: Settings) -> ProjectRun:
    """A run that is only thought through: without lock and job row, on transactions that the database lets read only.

    Raises:
        NotFoundError: no such project.
    """
    reading = engine.execution_options(postgresql_readonly=True)
    with reading.connect() as connection:
        project = get_project(connection, slug)
        counts = _count_raw(connection, project)
    options, now = effective_options(project, settings), datetime.now(UTC)
    return ProjectRun(reading, project, options, UUID(int=0), "consolidate", PHASES, now, "plan", counts)


def check_runnable(engine: Engine, slug: str) -> Project:
    """The project, if it may be run. Raises NotFoundError, ProjectDisabledError."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    if not project.consolidation_enabled:
        raise ProjectDisabledError(f"consolidation of project {slug} is disabled: enable it with `projects configure`")
    return project


def check_phases(job: str, phases: Iterable[str] | None) -> tuple[str, ...]:
    """The phases of a job that are to run, in their order; None = all. Raises InvalidScopeError."""
    if job not in JOB_PHASES:
        raise InvalidScopeError(f"job {job} does not exist; the jobs are {', '.join(JOB_PHASES)}")
    if phases is None:
        return JOB_PHASES[job]
    chosen = tuple(phases)
    known = JOB_PHASES[job]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        wrong = ", ".join(unknown) or "none"
        raise InvalidScopeError(f"phase {wrong} does not exist in job {job}; its phases are {', '.join(known)}")
    return tuple(name for name in known if name in chosen)


def scope_of(job: str, phases: Sequence[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a pending job of these phases, with ``options`` of its own, has as its scope."""
    some = {} if tuple(phases) == JOB_PHASES[job] else {"phases": list(phases)}
    return {"job": job, **some, **({"options": dict(options)} if options else {})}


def read_scope(scope: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The job and the phases that a scope asks for."""
    job = scope.get("job", "consolidate")
    return job, tuple(scope.get("phases", JOB_PHASES.get(job, ())))


def refuse_cancelled(connection: Connection, job_id: UUID, consequence: str) -> Row[Any] | None:
    """The job, None where there is none any more.

    Raises:
        JobCancelledError: somebody cancelled it; the message ends with the ``consequence``.
    """
    job = jobs.get_job(connection, job_id)
    if job is not None and CANCELLED_BY in job.metrics:
        raise JobCancelledError(f"job {job_id} was cancelled by {job.metrics[CANCELLED_BY]}: {consequence}")
    return job


def _refuse_done(job: Row[Any] | None) -> None:
    """A job that was launched twice, as its first launch was thought lost, is done once."""
    if job is not None and job.status in ("completed", "failed"):
        raise ConflictError(f"job {job.id} is {job.status} already: nothing was run", (str(job.id),))


def effective_options(project: Project, settings: Settings) -> ConsolidationOptions:
    """The project's options; models set in the environment are the default for all projects."""
    return _read_options(json.dumps(project.config), settings.llm_model, settings.embedding_model)


@lru_cache(maxsize=1_000)
def _read_options(config: str, llm_model: str | None, embedding_model: str | None) -> ConsolidationOptions:
    """Options of a project's config (JSON): every search asks, and few projects differ."""
    named = {"llm_model": llm_model, "embedding_model": embedding_model}
    base = parse_options({key: value for key, value in named.items() if value})
    return parse_options(json.loads(config), base=base)


def _settle_live_job(connection: Connection, project: Project, planned: Sequence[str]) -> None:
    """End the live job unless it waits for just this run; a running one died, for we hold the lock."""
    live = jobs.find_live_job(connection, project.id)
    if live is None:
        return
    if live.status == "running":
        jobs.finish_job(connection, live.id, "failed", error=DIED)
    elif tuple(planned) != read_scope(live.scope)[1]:
        # To claim it would tell whoever waits for it that more or less was done than they asked for.
        jobs.finish_job(connection, live.id, "cancelled", error=OVERTAKEN)


def _begin_job(
    connection: Connection,
    project: Project,
    options: ConsolidationOptions,
    *,
    scope: Mapping[str, Any],
    trigger_type: str,
    triggered_by: str,
    run_id: str | None,
) -> tuple[UUID, ConsolidationOptions, Decisions | None]:
    """Claim the pending job, or make one of ``scope``: its options and the plan it is to carry out, if any."""
    pending = jobs.find_live_job(connection, project.id)
    scope = scope if pending is None else pending.scope
    options = parse_options(scope.get("options", {}), base=options)
    snapshot = options.model_dump(mode="json")
    job_id: UUID
    if pending is not None:
        job_id = pending.id
    else:
        job_id = jobs.append_job(
            connection,
            project.id,
            trigger_type=trigger_type,
            triggered_by=triggered_by,
            options=snapshot,
            scope=scope,
            phases=JOB_PHASES[read_scope(scope)[0]],
        )
    if not jobs.start_job(connection, job_id, run_id=run_id, options=snapshot):
        raise ConflictError(f"job {job_id} was ended while the run began", (str(job_id),))
    jobs.append_event(connection, project.id, "consolidation.started", {"job_id": str(job_id)})
    return job_id, options, read_decisions(scope)


def read_decisions(scope: Mapping[str, Any]) -> Decisions | None:
    """The plan that a job's scope holds."""
    plan = scope.get("plan")
    if plan is None:
        return None
    return Decisions(datetime.fromisoformat(plan["as_of"]), plan["merges"], plan["archives"], plan["knowledge"])


def _count_raw(connection: Connection, project: Project) -> tuple[int, int]:
    counts = count_raw(connection, project.id)
    return counts.memories, counts.archived


def _end(run: ProjectRun, status: str, error: str | None) -> None:
    tracing.end(run.span, {"consolidation.job.status": status}, is_failed=status == "failed")
    whole = status == "completed" and tuple(run.planned) == PHASES and run.plan is None
    try:
        with run.engine.begin() as connection:
            # What came while the run went on may have missed its phases: then the next run has something to do.
            memories, archived = run.raw_counts
            seen_all = (
                whole
                and not run.unfinished
                and _count_raw(connection, run.project) == (memories, archived + run.archived)
            )
            metrics: dict[str, Any] = {"stopped": run.stopped} if run.stopped else {}
            metrics |= {"state": _state(connection, run.project, run.options, run.now)} if seen_all else {}
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


def find_done(connection: Connection, project: Project, settings: Settings) -> Row[Any] | None:
    """The newest job that left nothing undone, when nothing but time has passed since, be it days."""
    done = jobs.find_job_with_state(connection, project.id)
    if done is None:
        return None
    state = _state(connection, project, effective_options(project, settings), done.started_at)
    return done if done.metrics["state"] == state else None


def find_unchanged(engine: Engine, project: Project, settings: Settings) -> Row[Any] | None:
    """The newest job, when it was a whole run and nothing changed since, so that another run would do nothing."""
    with engine.connect() as connection:
        newest = jobs.list_jobs(connection, project.id, limit=1)
        if not newest or "state" not in newest[0].metrics:
            return None
        state = _state(connection, project, effective_options(project, settings), datetime.now(UTC))
    return newest[0] if newest[0].metrics["state"] == state else None
