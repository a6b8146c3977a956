"""What assets and checks are handed: the store, and the runs of the projects they work on."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.llm_pool import place_in_pool
from consolidation_pipeline.service.runs.phases import ALL_PHASES, JOB_PHASES, PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, open_engine

TRIGGER_TAG = "consolidation/trigger"
TRIGGERED_BY_TAG = "consolidation/triggered_by"
JOB_TAG = "consolidation/job_id"
BATCH_TAG = "consolidation/batch"  # id of the run that works off several jobs


@dg.resource
def store(_: dg.InitResourceContext) -> Engine:
    """Engine on the memories' database, ready to use."""
    return open_engine(Settings())


class ProjectRuns:
    """The project runs of one Dagster run, each opened when its first asset asks and closed when the run ends."""

    def __init__(self, engine: Engine, run: dg.DagsterRun, instance: dg.DagsterInstance) -> None:
        self._engine = engine
        self._place = partial(place_in_pool, instance, run)
        self._run = run
        self._instance = instance
        self._open: dict[str, ProjectRun] = {}
        self._stack = ExitStack()

    def open(self, slug: str) -> ProjectRun:
        """The run of project ``slug``: its lock is held and its job row says running."""
        if slug not in self._open:
            self._open[slug] = self._stack.enter_context(
                open_run(
                    self._engine,
                    slug,
                    settings=Settings(),
                    job=self._run.job_name,
                    planned=self._planned(),
                    trigger_type=self._run.tags.get(TRIGGER_TAG, "manual"),
                    triggered_by=self._run.tags.get(TRIGGERED_BY_TAG, "dagster"),
                    run_id=self._run.run_id,
                    requested=self._requested(),
                )
            )
            self._open[slug].model_slot = self._place
        return self._open[slug]

    def _requested(self) -> UUID | None:
        # Who executes a run anew in the UI asks for a job of its own; the tags come with it.
        job_id = self._run.tags.get(JOB_TAG) if self._run.parent_run_id is None else None
        return None if job_id is None else UUID(job_id)

    def close(self) -> None:
        """End the runs: their job rows say how they went, their locks are free."""
        try:
            unfinished = [run for run in self._open.values() if run.missing]
            if unfinished and self._was_interrupted():
                for run in unfinished:
                    run.cancelled = True
        finally:
            self._stack.close()

    def _was_interrupted(self) -> bool:
        """Whether a step was cut off, be it one of checks: a phase notices that by itself, what is between them not."""
        failures = self._instance.all_logs(self._run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        told = [failure.dagster_event.step_failure_data for failure in failures if failure.dagster_event]
        return any(failure.error_source and failure.error_source.name == "INTERRUPT" for failure in told)

    def _planned(self) -> tuple[str, ...]:
        chosen = {key.to_user_string() for key in self._run.asset_selection or ()}
        return tuple(name for name in ALL_PHASES if name in chosen) or JOB_PHASES.get(self._run.job_name, PHASES)


@dg.resource(required_resource_keys={"store"})
def project_runs(context: dg.InitResourceContext) -> Iterator[ProjectRuns]:
    """Opens project runs on demand and ends them, whatever happens, when the Dagster run ends."""
    if context.run is None or context.instance is None:
        raise dg.DagsterInvariantViolationError("project runs can be opened inside a Dagster run only")
    _keep_what_is_loaded()
    runs = ProjectRuns(context.resources.store, context.run, context.instance)
    try:
        yield runs
    finally:
        runs.close()


@cache
def _keep_what_is_loaded() -> None:
    """Take what was imported out of the garbage collector's sight, once in a process.

    It lasts as long as the process, and each full collection that a run's many objects bring about looks through it.
    """
    gc.freeze()
