"""A run over one project: what it is given, and its phases. How it begins and ends: ``opening``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.calibration.model_thresholds import resolve_thresholds
from consolidation_pipeline.embed import is_local
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import BudgetExhaustedError, JobCancelledError, JobEndedError, TimeLimitError
from consolidation_pipeline.logs import log_context
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.service.runs.phases import EMBEDDING_PHASES, LLM_PHASES
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.llm_calls import JobSpending, sum_job_spending
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.calibrations import Calibration, load_calibration
from consolidation_pipeline.store.similarity.similarity_graph import ComparedVectors

logger = logging.getLogger(__name__)

CANCELLED_BY = "cancelled_by"


@dataclass
class PhaseResult:
    """What a phase hands over when it is done: its numbers, and what they add to the job's counters."""

    metrics: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanDecisions:
    """What a plan decided, as of an instant, by id: the digest of each merge, the policy of each archiving, and the
    digest of each pattern, principle and playbook entry.
    """

    as_of: datetime
    merges: Mapping[str, str]
    archives: Mapping[str, str]
    knowledge: Mapping[str, str]


def read_decisions(scope: Mapping[str, Any]) -> PlanDecisions | None:
    """The plan that a job's scope holds."""
    plan = scope.get("plan")
    if plan is None:
        return None
    return PlanDecisions(datetime.fromisoformat(plan["as_of"]), plan["merges"], plan["archives"], plan["knowledge"])


@dataclass
class ProjectRun:
    """One run under way. ``now`` is its instant: ages are taken as of it, so a run is one pure function of it.

    ``job``: name of the job that runs, of which ``planned`` are the phases. ``raw_counts``: memories in all and
    archived ones, at the start; ``archived``: how many more are archived by the run itself; ``unfinished``: it left
    something to the next one; ``stopped``: what ended before its time, see ``note_stop``. ``began``: when, by the clock
    of ``time.monotonic``, in seconds. ``plan``: the decisions it carries out, and no others; None = all that it finds.
    ``trigger_type``: a person (manual), a schedule or a threshold asked for it. ``span``: the run's in a trace, of
    which those of the phases are part. ``place``: what a phase that may call a paid model waits for and holds, by name.
    ``compared``: what the similarity graph was brought up to date with, for the phase that forms groups.
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
    plan: PlanDecisions | None = None
    trigger_type: str = "manual"
    span: Any = None
    began: float = field(default_factory=time.monotonic)
    place: Callable[[str], AbstractContextManager[object]] = nullcontext
    compared: ComparedVectors | None = None

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
        words = phase in LLM_PHASES or (phase == "merged_memories" and self.options.merge_style == "rewrite")
        if words and self.options.llm_model is not None:
            return True
        return phase in EMBEDDING_PHASES and not is_local(self.options.embedding_model)

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

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed only while the job is running.

        Raises:
            JobCancelledError: somebody cancelled the job. JobEndedError: another run has taken over, for this one lost
            its lock with its connection. Nothing of the transaction is written then.
        """
        with self.engine.begin() as connection:
            yield connection
            # Whoever takes over ends this job first, and has to wait for the commit to do so.
            raise_if_ended(jobs.lock_job_status(connection, self.job_id), "nothing was written")

    @property
    def author(self) -> Author:
        """Who stands in the ledger."""
        return Author(self.project.id, self.job_id, self.triggered_by)

    @contextmanager
    def phase(self, name: str) -> Iterator[PhaseResult]:
        """Record a phase on the job row: done, with what it spent, failed, or cut off by an interrupt.

        Raises:
            JobCancelledError: somebody cancelled the job, and what it did stands. JobEndedError: another run took over,
            for this one lost its lock with its connection. TimeLimitError: the run's time is over, and no further phase
            of it begins.
        """
        told = {"project": self.project.slug, "job": str(self.job_id), "phase": name}
        attributes = {
            "consolidation.phase": name,
            tracing.MEMORY_STORE_ID: self.project.slug,
            tracing.JOB_ID: str(self.job_id),
        }
        with log_context(told), tracing.span(name, attributes, parent=self.span), self._recorded(name) as outcome:
            yield outcome

    @contextmanager
    def _recorded(self, name: str) -> Iterator[PhaseResult]:
        outcome, began, spent = PhaseResult(), time.monotonic(), self._sum_spending()
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
            self._note_failure(name, describe_error(error))
            raise
        except BaseException:
            self.cancelled = True
            raise
        self.completed.append(name)
        outcome.metrics |= self._describe_spending(spent)
        tracing.set_attributes(_as_attributes(outcome.metrics))
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
            raise_if_ended(jobs.get_job(connection, self.job_id), f"{name} was not begun")
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
                append_event(connection, self.project.id, "budget.exhausted", payload)
        return str(error)

    def _sum_spending(self) -> JobSpending | None:
        if not self.pays:
            return None
        with self.engine.connect() as connection:
            return sum_job_spending(connection, self.job_id)

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

    @property
    def missing(self) -> list[str]:
        """Planned phases that were not completed."""
        return [name for name in self.planned if name not in self.completed]

    def outcome(self) -> tuple[str, str | None]:
        """Final status of the job and, where it is not completed, why."""
        if self.cancelled and self.missing:
            return "cancelled", "the run was interrupted"
        if self.failed:
            return "failed", None
        if self.missing:
            return "failed", f"did not run: {', '.join(self.missing)} (an earlier step or check failed)"
        return "completed", None


def _as_attributes(metrics: Mapping[str, Any]) -> dict[str, int | float]:
    """The numbers of a phase, as a span tells them."""
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {f"consolidation.{name.replace('/', '.')}": value for name, value in numbers.items()}


def describe_error(error: BaseException) -> str:
    """The error as people read it: the database library appends the statement and its parameters."""
    return str(error).partition("\n[SQL:")[0].strip() or type(error).__name__


def raise_if_cancelled(job: Row[Any] | None, consequence: str) -> None:
    """Raises JobCancelledError: somebody cancelled the job; the message ends with the ``consequence``."""
    if job is not None and CANCELLED_BY in job.metrics:
        raise JobCancelledError(f"job {job.id} was cancelled by {job.metrics[CANCELLED_BY]}: {consequence}")


def raise_if_ended(job: Row[Any] | None, consequence: str) -> None:
    """As ``raise_if_cancelled``; raises JobEndedError too: whoever took over ended the job of the run that asks."""
    raise_if_cancelled(job, consequence)
    if job is not None and job.status != "running":
        raise JobEndedError(f"job {job.id} is {job.status}: another run took over, {consequence}")
