"""One run of a project: its inputs, transactions and phases. See ``run_lifecycle`` for its begin and end."""

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
from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest
from consolidation_pipeline.core.text.text_merge import MergedText
from consolidation_pipeline.embed import is_local
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import (
    BudgetExhaustedError,
    JobCancelledError,
    JobEndedError,
    LLMError,
    TimeLimitError,
)
from consolidation_pipeline.llm.budget import CallLedger
from consolidation_pipeline.logs import log_context
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.model_access import open_embedder, open_spend_ledger
from consolidation_pipeline.service.runs.phases import EMBEDDING_PHASES, JUDGE_PHASES, LLM_PHASES
from consolidation_pipeline.service.runs.progress import mark_progress, watching_progress
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.llm_calls import JobSpending, sum_job_spending
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.review.memory_tests import load_memory_tests
from consolidation_pipeline.store.similarity.calibrations import Calibration, load_calibration
from consolidation_pipeline.store.similarity.similarity_graph import ComparedVectors

logger = logging.getLogger(__name__)

CANCELLED_BY = "cancelled_by"


@dataclass
class PhaseResult:
    """Result of a phase: its metrics, and the increments of the job's counter columns."""

    metrics: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanDecisions:
    """Decisions of a plan. ``as_of``: instant by which it computed ages.

    ``merges``: merged memory id -> digest. ``archives``: memory id -> policy. ``knowledge``: id -> digest of patterns,
    principles and playbook entries.
    """

    as_of: datetime
    merges: Mapping[str, str]
    archives: Mapping[str, str]
    knowledge: Mapping[str, str]


@dataclass(frozen=True)
class RefusedByTest:
    """A change that a run did not commit, as memory tests would have failed.

    ``phase``: the phase that made it. ``tests``: name of each test -> why it failed. ``memories``: what the change is
    about: the memories of a merge group, or the row itself.
    """

    phase: str
    tests: Mapping[str, str]
    memories: Sequence[UUID]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"phase": self.phase, "tests": dict(self.tests), "memories": [str(id_) for id_ in self.memories]}


def read_decisions(scope: Mapping[str, Any]) -> PlanDecisions | None:
    """Return the plan in the scope of a job; None if there is none."""
    plan = scope.get("plan")
    if plan is None:
        return None
    return PlanDecisions(datetime.fromisoformat(plan["as_of"]), plan["merges"], plan["archives"], plan["knowledge"])


@dataclass
class ProjectRun:
    """One run of a project.

    Attributes:
        job: Name of the job.
        planned: Its phases to run, in order.
        now: Start of the job. Ages are computed as of it, so results depend only on the inputs.
        raw_counts: Numbers of all and of archived raw memories at the start.
        completed: Phases that were completed.
        failed: Phases that failed.
        cancelled: True if the run was interrupted or its job was cancelled.
        archived: Number of raw memories that the run archived.
        unfinished: True if the run left work to the next one.
        stopped: Work that stopped early, see ``record_stop``.
        failing: Work that was done without the model as it failed, see ``record_failing``.
        plan: Decisions to apply, and no others; None = decide by the data.
        trigger_type: manual, scheduled or threshold.
        span: Span of the run in a trace; parent of the spans of its phases.
        longest: Most seconds without progress in a phase that was completed, and its name.
        model_slot: Returns for a phase the slot that it holds while it may call a paid model.
        unchanged: Job since which nothing has changed, so that its phases would do nothing again; None = there is none.
        compared: Vectors of the last graph update, kept for the phase that forms groups.
        merged_texts: Merged texts that are known, by the hash of what they are made of (``successors.hash_bodies``).
        query_embedder: Model for the queries of memory tests; None = opened with a short timeout.
        test_gate: Gate of the memory tests, opened at its first use (``memory_tests.gate.open_gate``).
        refused_by_recall: Raw memories of the merges that the recall gate refused.
        refused_by_tests: Changes that memory tests kept from being committed.
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
    failing: list[dict[str, Any]] = field(default_factory=list)
    plan: PlanDecisions | None = None
    trigger_type: str = "manual"
    span: Any = None
    longest: tuple[float, str] = (0.0, "")
    model_slot: Callable[[str], AbstractContextManager[object]] = nullcontext
    unchanged: Row[Any] | None = None
    compared: ComparedVectors | None = None
    merged_texts: dict[bytes, MergedText] = field(default_factory=dict)
    query_embedder: Embedder | None = None
    test_gate: Any = None
    refused_by_recall: Sequence[UUID] = ()
    refused_by_tests: list[RefusedByTest] = field(default_factory=list)

    @property
    def as_of(self) -> datetime:
        """Instant by which ages are computed: the plan's, else the run's own."""
        return self.now if self.plan is None else self.plan.as_of

    def may_write(self, id_: UUID) -> bool:
        """Return True if a pattern, principle or playbook entry may be written: it is in the plan, if there is one."""
        return self.plan is None or str(id_) in self.plan.knowledge

    @cached_property
    def embedder(self) -> Embedder:
        """Embedding model of the project, opened when a phase needs it; the budgets limit what a paid one costs."""
        return open_embedder(self.engine, self.project, self.options, self.job_id)

    @cached_property
    def spend_ledger(self) -> CallLedger:
        """Ledger of the calls to the language model: reply cache and budgets of the project."""
        return open_spend_ledger(self.engine, self.project, self.options, self.job_id)

    def may_call_model(self, phase: str) -> bool:
        """Return True if a phase may call a model that costs money."""
        asks = (
            phase in LLM_PHASES
            or (phase == "merged_memories" and self.options.merge_style == "rewrite")
            or (phase in JUDGE_PHASES and self.options.pair_judge == "llm")
            or (phase == "supersessions" and self.options.supersession_judge == "llm")
        )
        if asks and self.options.llm_model is not None:
            return True
        return phase in EMBEDDING_PHASES and not is_local(self.options.embedding_model)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Newest calibration of the project and model. The phase that makes a new one replaces it here."""
        with self.reading() as connection:
            return load_calibration(connection, self.project.id, self.embedder.name)

    @cached_property
    def memory_tests(self) -> list[MemoryTest]:
        """Enabled memory tests of the project, as they were when the run first asked for them."""
        with self.reading() as connection:
            return [one.test for one in load_memory_tests(connection, self.project.id) if one.enabled]

    @property
    def boilerplate(self) -> frozenset[str]:
        """Boilerplate sentences of the calibration, normalised; empty without a calibration."""
        return frozenset(self.calibration.boilerplate) if self.calibration is not None else frozenset()

    @property
    def thresholds(self) -> dict[str, float]:
        """t_merge, t_suggest, t_pattern and t_principle: of the calibration, else of the model's profile."""
        if self.calibration is not None:
            return dict(self.calibration.thresholds)
        return resolve_thresholds(self.embedder.name, self.options.model_dump(), centered=False)

    @property
    def graph_threshold(self) -> float:
        """Lowest similarity of the stored pairs: t_graph in a project with many similar memories, else t_pattern."""
        return self.thresholds.get("t_graph", self.thresholds["t_pattern"])

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction that is committed only while the job is running.

        Raises:
            JobCancelledError: The job was cancelled. Nothing is written.
            JobEndedError: This run lost its lock with its connection, and another run took over. Nothing is written.
        """
        with self.engine.begin() as connection:
            yield connection
            # A run that takes over must end this job first. The row lock makes it wait for this commit.
            raise_if_ended(jobs.lock_job_status(connection, self.job_id), "nothing was written")
        mark_progress()

    def reading(self) -> Connection:
        """Return a connection for reads, without a transaction around them: that would be two more round trips.

        No snapshot is lost: each statement of a transaction has its own too.
        """
        return autocommit_connection(self.engine)

    @property
    def author(self) -> Author:
        """Author of the run's changes in the ledger."""
        return Author(self.project.id, self.job_id, self.triggered_by)

    @contextmanager
    def phase(self, name: str) -> Iterator[PhaseResult]:
        """Run a phase in the block and record it on the job row: completed, with its costs, failed or interrupted.

        Raises:
            JobCancelledError: The job was cancelled; what it wrote stays.
            JobEndedError: This run lost its lock with its connection, and another run took over.
            TimeLimitError: A phase took longer than ``timeout_seconds`` without progress; no further phase begins.
        """
        slug, job = self.project.slug, str(self.job_id)
        attributes = {"consolidation.phase": name, tracing.MEMORY_STORE_ID: slug, tracing.JOB_ID: job}
        with (
            log_context({"project": slug, "job": job, "phase": name}),
            tracing.span(name, attributes, parent=self.span),
            self._record_phase(name) as result,
        ):
            yield result

    @contextmanager
    def _record_phase(self, name: str) -> Iterator[PhaseResult]:
        result, began, spent, failing = PhaseResult(), time.monotonic(), self._sum_spending(), len(self.failing)
        try:
            with self.model_slot(name) if self.may_call_model(name) else nullcontext():
                self._check_may_start(name)
                with watching_progress() as progress:
                    yield result
        except JobCancelledError:
            self.cancelled = True
            raise
        except Exception as error:
            self.failed.append(name)
            if isinstance(error, BudgetExhaustedError):
                self.record_stop(name, error)
            self._record_failure(name, describe_error(error))
            raise
        except BaseException:
            self.cancelled = True
            raise
        self.completed.append(name)
        seconds = time.monotonic() - began
        self.longest = max(self.longest, (progress.longest, name))
        result.metrics |= self._describe_spending(spent) | _describe_failing(self.failing[failing:])
        numbers = {key: value for key, value in result.metrics.items() if isinstance(value, int | float)}
        tracing.set_attributes({f"consolidation.{key.replace('/', '.')}": value for key, value in numbers.items()})
        # One statement, which is a transaction of its own.
        with autocommit_connection(self.engine) as connection:
            jobs.record_phase(
                connection,
                self.job_id,
                name,
                planned=len(self.planned),
                metrics={**result.metrics, "seconds": round(seconds, 3)},
                counters=result.counters,
            )

    def _check_may_start(self, name: str) -> None:
        with self.reading() as connection:
            raise_if_ended(jobs.get_job(connection, self.job_id), f"{name} was not begun")
        limit = self.options.timeout_seconds
        seconds, phase = self.longest
        if seconds > limit:
            raise TimeLimitError(
                f"not begun: {phase} took longer than timeout_seconds = {limit} without progress; "
                "the next run goes on from here, or set a higher limit"
            )

    def record_stop(self, purpose: str, error: Exception) -> str:
        """Record that calls for a ``purpose`` stopped early, and return the message of ``error``.

        The job lists it in its metrics, and the next run goes on with the rest. A BudgetExhaustedError also sends an
        event; every other error means that the model stopped answering.
        """
        by = "budget" if isinstance(error, BudgetExhaustedError) else "model"
        self.stopped.append({"purpose": purpose, "by": by, "reason": str(error)})
        self.unfinished = True
        if by == "budget":
            payload = {"job_id": str(self.job_id), "purpose": purpose, "reason": str(error)}
            with self.engine.begin() as connection:
                append_event(connection, self.project.id, "budget.exhausted", payload)
        return str(error)

    def record_failing(
        self, purpose: str, groups: int, errors: Sequence[str], stop: LLMError | BudgetExhaustedError | None
    ) -> None:
        """Record groups that the model gave no text for. They have a text without it; the next run asks again.

        Args:
            purpose: What the texts are for.
            groups: Number of these groups.
            errors: Failures of single groups.
            stop: Why the model is not asked for more groups, see ``record_stop``; None if it is.
        """
        self.unfinished = self.unfinished or groups > 0
        if stop is not None:
            self.record_stop(purpose, stop)
        if errors or isinstance(stop, LLMError):
            by_budget = isinstance(stop, BudgetExhaustedError)
            reason = str(stop) if stop is not None and not by_budget else errors[0]
            self.failing.append({"purpose": purpose, "groups": len(errors) if by_budget else groups, "reason": reason})

    def _sum_spending(self) -> JobSpending | None:
        """Return what the job has spent so far; None if the project has no paid model."""
        if self.options.llm_model is None and is_local(self.options.embedding_model):
            return None
        with self.reading() as connection:
            return sum_job_spending(connection, self.job_id)

    def _describe_spending(self, before: JobSpending | None) -> dict[str, Any]:
        """Return what was spent since ``before``, as metrics; empty for a project without a paid model."""
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

    def _record_failure(self, name: str, error: str) -> None:
        try:
            with self.engine.begin() as connection:
                jobs.record_failed_phase(connection, self.job_id, name, error)
        except Exception:
            # The database is gone, which is probably why the phase failed. Raise the phase's own error.
            logger.exception("the failure of %s could not be recorded on job %s", name, self.job_id)

    @property
    def missing(self) -> list[str]:
        """Planned phases that were not completed."""
        return [name for name in self.planned if name not in self.completed]

    def final_status(self) -> tuple[str, str | None]:
        """Return the final status of the job and, unless it is completed, the reason."""
        if self.cancelled and self.missing:
            return "cancelled", "the run was interrupted"
        if self.failed:
            return "failed", None
        if self.missing:
            return "failed", f"did not run: {', '.join(self.missing)} (an earlier step or check failed)"
        return "completed", None


def _describe_failing(failing: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the number of texts that the model failed to write, and why, as metrics; empty without any."""
    if not failing:
        return {}
    return {"llm/failed": sum(one["groups"] for one in failing), "llm/error": failing[0]["reason"]}


def describe_error(error: BaseException) -> str:
    """Return the message of an error without the SQL statement and parameters that SQLAlchemy appends."""
    return str(error).partition("\n[SQL:")[0].strip() or type(error).__name__


def raise_if_cancelled(job: Row[Any] | None, consequence: str) -> None:
    """Raise JobCancelledError if the job was cancelled; the message ends with ``consequence``."""
    if job is not None and CANCELLED_BY in job.metrics:
        raise JobCancelledError(f"job {job.id} was cancelled by {job.metrics[CANCELLED_BY]}: {consequence}")


def raise_if_ended(job: Row[Any] | None, consequence: str) -> None:
    """Raise JobCancelledError if the job was cancelled, JobEndedError if a run that took over ended it."""
    raise_if_cancelled(job, consequence)
    if job is not None and job.status != "running":
        raise JobEndedError(f"job {job.id} is {job.status}: another run took over, {consequence}")
