"""Dagster resources of assets and checks: the engine, and the project runs of a Dagster run."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.llm_pool import hold_pool_slot
from consolidation_pipeline.service.runs.phases import ALL_PHASES, JOB_PHASES, PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, open_engine

TRIGGER_TAG = "consolidation/trigger"
TRIGGERED_BY_TAG = "consolidation/triggered_by"
JOB_TAG = "consolidation/job_id"
BATCH_TAG = "consolidation/batch"  # id of the run that executes several jobs


@dg.resource
def store(_: dg.InitResourceContext) -> Engine:
    """Return the engine of the memories' database."""
    return open_engine(Settings())


class ProjectRuns:
    """Project runs of one Dagster run, each opened by its first asset and closed when the Dagster run ends."""

    def __init__(self, engine: Engine, run: dg.DagsterRun, instance: dg.DagsterInstance) -> None:
        self._engine = engine
        self._hold_slot = partial(hold_pool_slot, instance, run)
        self._run = run
        self._instance = instance
        self._open: dict[str, ProjectRun] = {}
        self._stack = ExitStack()

    def open(self, slug: str) -> ProjectRun:
        """Return the run of a project. Its lock is held and the status of its job is running."""
        if slug not in self._open:
            self._open[slug] = self._stack.enter_context(
                open_run(
                    self._engine,
                    slug,
                    settings=Settings(),
                    job=self._run.job_name,
                    planned=self._list_planned(),
                    trigger_type=self._run.tags.get(TRIGGER_TAG, "manual"),
                    triggered_by=self._run.tags.get(TRIGGERED_BY_TAG, "dagster"),
                    run_id=self._run.run_id,
                    requested=self._find_requested(),
                )
            )
            self._open[slug].model_slot = self._hold_slot
        return self._open[slug]

    def _find_requested(self) -> UUID | None:
        # A run that is re-executed in the UI gets a new job, though it has the tags of the old one.
        job_id = self._run.tags.get(JOB_TAG) if self._run.parent_run_id is None else None
        return None if job_id is None else UUID(job_id)

    def close(self) -> None:
        """End the runs: set the status of their jobs and release their locks."""
        try:
            unfinished = [run for run in self._open.values() if run.missing]
            if unfinished and self._was_interrupted():
                for run in unfinished:
                    run.cancelled = True
        finally:
            self._stack.close()

    def _was_interrupted(self) -> bool:
        """Return True if any step was interrupted. A phase notices an interrupt itself; a step of checks does not."""
        failures = self._instance.all_logs(self._run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        errors = [failure.dagster_event.step_failure_data for failure in failures if failure.dagster_event]
        return any(error.error_source and error.error_source.name == "INTERRUPT" for error in errors)

    def _list_planned(self) -> tuple[str, ...]:
        chosen = {key.to_user_string() for key in self._run.asset_selection or ()}
        return tuple(name for name in ALL_PHASES if name in chosen) or JOB_PHASES.get(self._run.job_name, PHASES)


@dg.resource(required_resource_keys={"store"})
def project_runs(context: dg.InitResourceContext) -> Iterator[ProjectRuns]:
    """Provide the project runs of a Dagster run. They are opened on demand and always ended with it."""
    if context.run is None or context.instance is None:
        raise dg.DagsterInvariantViolationError("project runs can only be opened inside a Dagster run")
    _freeze_loaded_objects()
    runs = ProjectRuns(context.resources.store, context.run, context.instance)
    try:
        yield runs
    finally:
        runs.close()


@cache
def _freeze_loaded_objects() -> None:
    """Exclude imported objects from garbage collection, once in a process.

    They live as long as the process. Each full collection would scan them again, and a run causes many.
    """
    gc.freeze()
