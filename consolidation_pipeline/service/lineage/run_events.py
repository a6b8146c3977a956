"""OpenLineage events of a job, made from its row and the ledger, so also long after it ended.

A job is a run: START when it began, then COMPLETE, FAIL or ABORT. The run's id is the job's id, so that an event that
is sent twice changes nothing. Texts of memories and vectors are in no event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from uuid import UUID

from openlineage.client import event_v2, facet_v2
from openlineage.client.facet_v2 import base_subset_dataset as subset
from openlineage.client.serde import Serde

from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.lineage.facets import PRODUCER, ConsolidationRunFacet, MemoryLineageRunFacet
from consolidation_pipeline.service.lineage.memory_lineage import MemoryLineage, trace_groups
from consolidation_pipeline.service.runs.phases import read_scope
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.database.inspection import describe_columns
from consolidation_pipeline.store.database.schema import MEMORY_TABLES, SCHEMA
from consolidation_pipeline.store.jobs.jobs import require_job
from consolidation_pipeline.store.ledger.job_changes import (
    count_job_edges,
    count_job_rows,
    fingerprint_inputs,
    iter_job_groups,
)

_END_TYPES = {
    "completed": event_v2.RunState.COMPLETE,
    "failed": event_v2.RunState.FAIL,
    "cancelled": event_v2.RunState.ABORT,
}
_MOST_ERROR_CHARS = 2000


@dataclass(frozen=True)
class JobRecord:
    """Facts that the events of a job tell.

    ``rows``: table -> number of its rows that the job changed. ``memories``: raw memories stored when it began.
    """

    job: Row[Any]
    namespace: str
    server: str
    database: str
    rows: Mapping[str, int]
    memories: int
    lineage: MemoryLineage


def load_job_record(engine: Engine, job_id: UUID, *, namespace: str) -> JobRecord:
    """Return what the events of a job tell. ``namespace``: of the job.

    Raises:
        NotFoundError: There is no such job, or it never began to run.
    """
    with engine.connect() as connection:
        job = require_job(connection, job_id)
        if job.started_at is None:
            raise NotFoundError(f"job {job_id} is {job.status} and never began to run: it has no events")
        rows = count_job_rows(connection, job_id)
        if edges := count_job_edges(connection, job_id):
            rows["memory_lineage"] = edges
        memories = fingerprint_inputs(connection, job.project_id, job.started_at).memories
        lineage = trace_groups(iter_job_groups(connection, job_id))
    # The embedded server listens on a socket of this machine only.
    server = f"postgres://{engine.url.host or 'localhost'}:{engine.url.port or 5432}"
    return JobRecord(job, namespace, server, engine.url.database or "postgres", rows, memories, lineage)


def build_events(record: JobRecord) -> list[event_v2.RunEvent]:
    """Return the events of a job: START and, if it has ended, COMPLETE, FAIL or ABORT."""
    events = [_build_event(record, event_v2.RunState.START, record.job.started_at)]
    if record.job.status in _END_TYPES:
        events.append(_build_event(record, _END_TYPES[record.job.status], record.job.completed_at))
    return events


def to_json(event: event_v2.RunEvent) -> str:
    """Return an event as one line of JSON, as the library sends it."""
    return Serde.to_json(event)


def _build_event(record: JobRecord, state: event_v2.RunState, at: datetime) -> event_v2.RunEvent:
    is_start = state == event_v2.RunState.START
    rows = {} if is_start else record.rows
    return event_v2.RunEvent(
        eventType=state,
        eventTime=at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        run=event_v2.Run(str(record.job.id), _build_run_facets(record, is_start=is_start)),
        job=_build_job(record),
        inputs=[_build_input(record, table) for table in MEMORY_TABLES],
        outputs=[_build_output(record, table, count) for table, count in sorted(rows.items())],
        producer=PRODUCER,
    )


def _build_job(record: JobRecord) -> event_v2.Job:
    name = read_scope(record.job.scope)[0]
    documentation = f"Consolidation of the memories of project {record.job.slug}: job {name}"
    return event_v2.Job(
        record.namespace,
        f"{record.job.slug}.{name}",
        {
            "jobType": facet_v2.job_type_job.JobTypeJobFacet(
                processingType="BATCH", integration="CONSOLIDATION", jobType="JOB", producer=PRODUCER
            ),
            "documentation": facet_v2.documentation_job.DocumentationJobFacet(documentation, producer=PRODUCER),
        },
    )


def _build_run_facets(record: JobRecord, *, is_start: bool) -> dict[str, facet_v2.RunFacet]:
    job = record.job
    facets: dict[str, facet_v2.RunFacet] = {
        "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet(
            version("consolidation-pipeline"),
            "consolidation-pipeline",
            version("openlineage-python"),
            producer=PRODUCER,
        ),
        "executionParameters": facet_v2.execution_parameters_run.ExecutionParametersRunFacet(
            [
                facet_v2.execution_parameters_run.ExecutionParameter(key=key, value=json.dumps(value))
                for key, value in sorted(job.options.items())
            ],
            producer=PRODUCER,
        ),
    }
    if is_start:
        return facets
    facets["consolidation_run"] = ConsolidationRunFacet(
        job.slug,
        job.trigger_type,
        float(job.metrics.get("cost_usd", 0)),
        int(job.metrics.get("calls", 0)),
        int(job.metrics.get("tokens", 0)),
        _list_phases(job),
        producer=PRODUCER,
    )
    facets["consolidation_memoryLineage"] = MemoryLineageRunFacet(
        [group.to_json() for group in record.lineage.groups], record.lineage.total, producer=PRODUCER
    )
    if job.status == "failed":
        message = (job.error_message or "unknown error")[:_MOST_ERROR_CHARS]
        facets["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(message, "PYTHON", producer=PRODUCER)
    return facets


def _list_phases(job: Row[Any]) -> list[dict[str, Any]]:
    done = [
        {"name": name, "status": "completed", "seconds": job.metrics.get(name, {}).get("seconds")}
        for name in job.phases_completed
    ]
    failed = [{"name": name, "status": "failed", "seconds": None} for name in job.phases_failed]
    return [{key: value for key, value in phase.items() if value is not None} for phase in [*done, *failed]]


def _build_input(record: JobRecord, table: str) -> event_v2.InputDataset:
    facets: dict[str, facet_v2.InputDatasetFacet] = {
        "subset": subset.InputSubsetInputDatasetFacet(_only_project(record), producer=PRODUCER)
    }
    if table == "task_memories":
        facets["inputStatistics"] = facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=record.memories, producer=PRODUCER
        )
    return event_v2.InputDataset(
        record.server, _name_table(record, table), facets, facets=_build_dataset_facets(record, table)
    )


def _build_output(record: JobRecord, table: str, rows: int) -> event_v2.OutputDataset:
    facets: dict[str, facet_v2.OutputDatasetFacet] = {
        "subset": subset.OutputSubsetOutputDatasetFacet(_only_project(record), producer=PRODUCER),
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, producer=PRODUCER
        ),
    }
    return event_v2.OutputDataset(
        record.server, _name_table(record, table), facets, facets=_build_dataset_facets(record, table)
    )


def _name_table(record: JobRecord, table: str) -> str:
    return f"{record.database}.{SCHEMA}.{table}"


def _only_project(record: JobRecord) -> subset.CompareSubsetCondition:
    """Return the condition of the project's rows: all projects share the tables."""
    return subset.CompareSubsetCondition(
        subset.FieldBaseCompareExpression("project_id"),
        subset.LiteralCompareExpression(str(record.job.project_id)),
        "EQUAL",
    )


def _build_dataset_facets(record: JobRecord, table: str) -> dict[str, facet_v2.DatasetFacet]:
    fields = [
        facet_v2.schema_dataset.SchemaDatasetFacetFields(name, kind, comment or None)
        for name, kind, comment in describe_columns(table)
    ]
    return {
        "schema": facet_v2.schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER),
        "dataSource": facet_v2.datasource_dataset.DatasourceDatasetFacet(
            name=record.server, uri=f"{record.server}/{record.database}", producer=PRODUCER
        ),
    }
