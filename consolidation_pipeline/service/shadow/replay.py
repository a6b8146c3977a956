"""Replay of a job: its decisions made again on a copy, from the inputs, options and replies that it had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.change_set import (
    ChangeSet,
    Decision,
    DifferingDecision,
    canonical_change,
    find_differing,
)
from consolidation_pipeline.embed import is_local
from consolidation_pipeline.errors import ConflictError, ConsolidationError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.phases import PHASES, read_scope
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.shadow.offline_models import StoredReplies, StoredVectors
from consolidation_pipeline.service.shadow.phase_runner import run_phases
from consolidation_pipeline.service.shadow.replay_causes import Evidence, find_causes
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_inputs import hash_inputs
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs.jobs import require_job
from consolidation_pipeline.store.ledger.change_sets import load_change_set, load_decision
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.shadow.databases import create_shadow, drop_shadow
from consolidation_pipeline.store.shadow.rewind import count_later, keep_vectors, list_ledger_gaps, rewind_project
from consolidation_pipeline.store.shadow.snapshot import copy_project

# Phases that fill the caches which the later ones read: groups are not kept beyond the next run.
_GROUPING = PHASES[: PHASES.index("clusters") + 1]
_READ_GROUPS = {"merged_memories", "patterns", "principles", "consolidation_suggestions"}


@dataclass(frozen=True)
class DifferenceInDecision:
    """The first decision that came out otherwise.

    Attributes:
        operation: What was decided, such as merge.
        rows: Ids of the rows that it changes.
        recorded, replayed: Its changes in canonical form on each side; None = not made there.
        columns: Columns that differ, as ``row id.column``; empty if one side did not make it.
        causes: Why, the surest first.
    """

    operation: str
    rows: list[str]
    recorded: list[dict[str, Any]] | None
    replayed: list[dict[str, Any]] | None
    columns: list[str]
    causes: list[str]


@dataclass(frozen=True)
class Replay:
    """Result of a replay.

    Attributes:
        as_of: Start of the job, by which ages were computed.
        decisions, changes: Numbers of the recorded change set.
        recorded, replayed: Hashes of the change sets.
        differing: Number of decisions that differ.
        first: The first of them, in the order of the phases; None if there is none.
        notes: What is not as it was for the job, also if it made no difference.
    """

    project: str
    job_id: UUID
    as_of: datetime
    decisions: int
    changes: int
    recorded: str
    replayed: str
    differing: int
    first: DifferenceInDecision | None
    notes: list[str]

    @property
    def is_same(self) -> bool:
        """True if the job would decide the same again."""
        return self.recorded == self.replayed


def replay_job(engine: Engine, job_id: UUID, *, settings: Settings) -> Replay:
    """Make the decisions of a job again on a copy of its project, and compare them. Nothing live is changed.

    No prompt and no text is sent: replies and vectors of paid models are those that are stored.

    Raises:
        NotFoundError: There is no such job.
        ConflictError: The job cannot be replayed, and why: it did not complete, or the ledger does not lead back to it.
        StoreError: The user may not create a database.
    """
    job, project, recorded = _load_job(engine, job_id)
    start = _read_start(job)
    with _open_copy(engine, project, job) as copy:
        evidence = _rewind(copy, project, job, start)
        stopped = _run_again(copy, project, job, start, evidence, settings)
        with copy.connect() as connection:
            replayed = load_change_set(connection, job_id)
        differing = find_differing(recorded, replayed)
        first = None
        if differing:
            causes = find_causes(copy, project, evidence, differing[0].rows, stopped=stopped)
            first = _describe(engine, copy, differing[0], causes)
        return Replay(
            project=project.slug,
            job_id=job_id,
            as_of=start,
            decisions=len(recorded.decisions),
            changes=recorded.changes,
            recorded=recorded.digest,
            replayed=replayed.digest,
            differing=len(differing),
            first=first,
            notes=[*([stopped] if stopped else []), *evidence.notes],
        )


def _load_job(engine: Engine, job_id: UUID) -> tuple[Row[Any], Project, ChangeSet]:
    """Return a job that can be replayed, its project and what it decided."""
    with engine.connect() as connection:
        job = require_job(connection, job_id)
        if job.status != "completed":
            raise ConflictError(f"job {job_id} is {job.status}: only completed jobs can be replayed")
        project = get_project(connection, job.slug)
        gaps = list_ledger_gaps(connection, project.id, job_id, start=_read_start(job), end=job.completed_at)
        recorded = load_change_set(connection, job_id)
    for gap in gaps:
        what = {
            "erase": f"{gap.rows} rows were erased on {gap.at:%Y-%m-%d}, and the job may have read them",
            "retention": f"audit retention removed {gap.rows} changes on {gap.at:%Y-%m-%d} that lead back to it",
        }[gap.kind]
        raise ConflictError(f"job {job_id} cannot be replayed: {what}")
    told = job.metrics.get("consolidation_report", {}).get("change_set")
    if told is not None and told != recorded.digest:
        raise ConflictError(
            f"job {job_id} cannot be replayed: its report has the hash {told}, and its changes in the ledger have "
            f"{recorded.digest}: the ledger is not as the job left it"
        )
    return job, project, recorded


def _read_start(job: Row[Any]) -> datetime:
    """Return the instant of the run; a promoted shadow ran before its job began."""
    as_of = job.metrics.get("as_of")
    start: datetime = job.started_at if as_of is None else datetime.fromisoformat(as_of)
    return start


@contextmanager
def _open_copy(engine: Engine, project: Project, job: Row[Any]) -> Iterator[Engine]:
    """Yield a copy of the project, which is dropped at the end. Its name is no legal one of a shadow."""
    copy = create_shadow(engine, project.id, f"replay {job.id}")
    try:
        copy_project(engine, copy, project.id)
        yield copy
    finally:
        drop_shadow(engine, str(copy.url.database))


def _rewind(copy: Engine, project: Project, job: Row[Any], start: datetime) -> Evidence:
    """Bring the copy back to the start of the job; return what is known of the differences so far."""
    known = ConsolidationOptions.model_fields
    options = {name: value for name, value in job.options.items() if name in known}
    model = options.get("embedding_model", "local")
    with copy.begin() as connection:
        later = count_later(connection, project.id, start=start, end=job.completed_at)
        if not is_local(model):
            keep_vectors(connection, model)
        rewind_project(connection, project.id, job, start=start, options=options)
        inputs = hash_inputs(connection, project.id)
    return Evidence(
        job=job,
        replies=StoredReplies(copy, project.id, job.id),
        inputs_then=job.metrics.get("inputs"),
        inputs_now=inputs,
        code_then=job.metrics.get("code"),
        code_now=describe_code(),
        used=later.used,
        arrived=later.arrived,
    )


def _run_again(
    copy: Engine, project: Project, job: Row[Any], start: datetime, evidence: Evidence, settings: Settings
) -> str | None:
    """Run the job on the copy; return why it stopped early, None if it did not."""
    name, planned = read_scope(job.scope)
    phases = planned
    if _READ_GROUPS & set(planned) and "clusters" not in planned:
        phases = tuple(phase for phase in PHASES if phase in {*_GROUPING, *planned})
    try:
        with open_run(
            copy,
            project.slug,
            settings=_without_limits(settings),
            job=name,
            planned=planned,
            trigger_type=job.trigger_type,
            triggered_by=job.triggered_by,
            requested=job.id,
        ) as run:
            run.now = start
            run.spend_ledger = evidence.replies
            if not is_local(run.options.embedding_model):
                run.embedder = run.query_embedder = StoredVectors(copy, run.options.embedding_model)
            evidence.options_now = run.options.model_dump(mode="json")
            run_phases(run, phases)
    except ConsolidationError as error:
        return str(error)
    return None


def _without_limits(settings: Settings) -> Settings:
    """Return settings that leave the options of the job as they are; nothing is sent to a model."""
    free = {"llm_model": None, "embedding_model": None, "allowed_models": "", "max_usd_per_day": None}
    return settings.model_copy(update={**free, "max_tokens_per_run": None})


def _describe(engine: Engine, copy: Engine, differing: DifferingDecision, causes: list[str]) -> DifferenceInDecision:
    recorded, replayed = _load(engine, differing.recorded), _load(copy, differing.replayed)
    return DifferenceInDecision(
        operation=differing.operation,
        rows=differing.rows,
        recorded=recorded,
        replayed=replayed,
        columns=_list_differing_columns(recorded or [], replayed or []) if recorded and replayed else [],
        causes=causes,
    )


def _load(engine: Engine, decision: Decision | None) -> list[dict[str, Any]] | None:
    if decision is None:
        return None
    with engine.connect() as connection:
        return [canonical_change(change) for change in load_decision(connection, decision.group_id)]


def _list_differing_columns(recorded: list[dict[str, Any]], replayed: list[dict[str, Any]]) -> list[str]:
    """Return the columns of rows that differ after the change; the name of a row alone if one side lacks it."""
    here: dict[str, Mapping[str, Any]] = {change["id"]: change["after"] or {} for change in recorded}
    there: dict[str, Mapping[str, Any]] = {change["id"]: change["after"] or {} for change in replayed}
    found = sorted(here.keys() ^ there.keys())
    for id_ in sorted(here.keys() & there.keys()):
        names = sorted(here[id_].keys() | there[id_].keys())
        found += [f"{id_}.{name}" for name in names if here[id_].get(name) != there[id_].get(name)]
    return found
