"""Dagster resource of assets, checks and sensors: the database of memories, and the project runs of a Dagster run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field, PrivateAttr

from consolidation_pipeline.defs.llm_pool import hold_pool_slot
from consolidation_pipeline.defs.names import PREFIX, asset_key, own_name
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.jobs.job_requests import explain_taken
from consolidation_pipeline.service.runs.garbage_collection import collect_rarely
from consolidation_pipeline.service.runs.phases import ALL_PHASES, JOB_PHASES, PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, open_engine

TRIGGER_TAG = "consolidation/trigger"
TRIGGERED_BY_TAG = "consolidation/triggered_by"
# Tags that Dagster gives to the runs that a sensor or schedule started.
SENSOR_TAG = "dagster/sensor_name"
AUTOMATION_TAGS = (SENSOR_TAG, "dagster/schedule_name")
JOB_TAG = "consolidation/job_id"
BATCH_TAG = "consolidation/batch"  # id of the run that executes several jobs

_CANCELLED = (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)

# Fields of the resource that are settings of the process if they are not set.
_SETTINGS = ("database_url", "llm_model", "embedding_model")


class ConsolidationResource(dg.ConfigurableResource[Any]):
    """Database of memories, and the runs of its projects. What is not set comes from the environment."""

    database_url: str | None = Field(
        default=None,
        description="Postgres with pgvector; unset = CONSOLIDATION_DATABASE_URL, else the embedded server.",
    )
    llm_model: str | None = Field(
        default=None, description="litellm model of projects that set none; unset = CONSOLIDATION_LLM_MODEL."
    )
    embedding_model: str | None = Field(
        default=None,
        description="litellm embedding model of projects that set none; unset = CONSOLIDATION_EMBEDDING_MODEL.",
    )
    projects: list[str] = Field(
        default=[], description="Slugs of the projects that may run, with * as a wildcard; empty = all."
    )
    options: dict[str, Any] = Field(
        default={}, description="Options of these runs, over those of their projects, such as t_merge or merge_style."
    )
    asset_key_prefix: list[str] = Field(default=[PREFIX], description="Prefix of the keys of the assets.")
    stores: list[dict[str, Any]] = Field(
        default=[], description="Stores that are connected by the next update, as components declare them."
    )

    _engine: Engine | None = PrivateAttr(default=None)
    _runs: _ProjectRuns | None = PrivateAttr(default=None)

    @property
    def settings(self) -> Settings:
        """Settings of the process, with what is configured here."""
        given = {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}
        return Settings(**given)

    @property
    def engine(self) -> Engine:
        """Engine of the memories' database, which is reachable and has the newest schema."""
        if self._engine is None:
            self._engine = open_engine(self.settings)
        return self._engine

    def asset_key(self, phase: str) -> dg.AssetKey:
        """Return the key of the asset of a phase."""
        return dg.AssetKey([*self.asset_key_prefix, phase])

    def selects(self, slug: str) -> bool:
        """Return True if the project may run."""
        return not self.projects or any(fnmatchcase(slug, pattern) for pattern in self.projects)

    def open_run(self, slug: str) -> ProjectRun:
        """Return the run of a project. Its lock is held and the status of its job is running.

        The first asset of a Dagster run opens it; it is closed when the Dagster run ends.
        """
        if self._runs is None:
            raise dg.DagsterInvariantViolationError("project runs can only be opened inside a Dagster run")
        return self._runs.open(slug)

    def find_passed_job(self, slug: str) -> UUID | None:
        """Return the job since which nothing has changed in a project, if its blocking checks passed; else None."""
        return None if self._runs is None else self._runs.find_passed_job(slug)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        if context.run is not None and context.instance is not None:
            collect_rarely()
            self._runs = _ProjectRuns(self, context.run, context.instance)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        del context
        if self._runs is not None:
            self._runs.close()


class _ProjectRuns:
    """Project runs of one Dagster run, each opened by its first asset and closed when the Dagster run ends."""

    def __init__(self, resource: ConsolidationResource, run: dg.DagsterRun, instance: dg.DagsterInstance) -> None:
        self._resource = resource
        self._hold_slot = partial(hold_pool_slot, instance, run)
        self._run = run
        self._instance = instance
        self._open: dict[str, ProjectRun] = {}
        self._stack = ExitStack()

    def open(self, slug: str) -> ProjectRun:
        """Return the run of a project, which is begun by the first call."""
        self._stop_if_cancelled()
        if slug not in self._open:
            if not self._resource.selects(slug):
                raise dg.Failure(
                    f"project {slug} is not one of those that this code location may run: "
                    f"{', '.join(self._resource.projects)}; see `projects` of its resource or component",
                    allow_retries=False,
                )
            try:
                self._open[slug] = self._stack.enter_context(
                    open_run(
                        self._resource.engine,
                        slug,
                        settings=self._resource.settings,
                        job=own_name(self._run.job_name),
                        planned=self._list_planned(),
                        trigger_type=self._run.tags.get(TRIGGER_TAG, "manual"),
                        triggered_by=self._run.tags.get(TRIGGERED_BY_TAG, "dagster"),
                        run_id=self._run.run_id,
                        requested=self._find_requested(),
                        overrides=self._resource.options,
                        may_skip=True,
                    )
                )
            except UsageError as error:
                raise dg.Failure(f"project {slug} cannot be run: {error}", allow_retries=False) from None
            except ConflictError:
                self._stop_if_taken()
                raise
            self._open[slug].model_slot = self._hold_slot
        return self._open[slug]

    def find_passed_job(self, slug: str) -> UUID | None:
        """Return the job since which nothing has changed in a project, None if the Dagster run of it did not succeed.

        A blocking check that fails makes its Dagster run fail.
        """
        last = self._open[slug].unchanged if slug in self._open else None
        if last is None or last.dagster_run_id is None:
            return None
        run = self._instance.get_run_by_id(last.dagster_run_id)
        return last.id if run is not None and run.is_success else None

    def _stop_if_cancelled(self) -> None:
        """End the run if it or its batch was cancelled. Python drops an interrupt while it finalizes an object."""
        for run_id in filter(None, (self._run.run_id, self._run.tags.get(BATCH_TAG))):
            run = self._instance.get_run_by_id(run_id)
            if run is not None and run.status in _CANCELLED:
                raise dg.DagsterExecutionInterruptedError

    def _stop_if_taken(self) -> None:
        """End the Dagster run as cancelled, not as failed, if another run took its job or the job was cancelled."""
        job_id = self._find_requested()
        if job_id is not None and (reason := explain_taken(self._resource.engine, job_id)):
            self._instance.report_run_canceling(self._run, f"{reason}: nothing was run")
            raise dg.DagsterExecutionInterruptedError from None

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

    def _list_planned(self) -> Sequence[str]:
        """Return the phases of the run. One that was put together in the UI may hold assets of other projects.

        A run that is executed again from its failure has all assets of the failed one, but only some of its steps.
        """
        chosen = self._run.asset_selection or frozenset()
        planned = tuple(name for name in ALL_PHASES if self._resource.asset_key(name) in chosen)
        planned = planned or JOB_PHASES.get(own_name(self._run.job_name), PHASES)
        steps = self._run.step_keys_to_execute
        if steps is None:
            return planned
        # Steps keep the name of the asset without the prefix that a component gives its key.
        return [name for name in planned if asset_key(name).to_python_identifier() in steps]
