"""OpenLineage events of jobs: valid, complete, and without texts of memories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from jsonschema import ValidationError

from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.jobs.job_requests import request_job
from consolidation_pipeline.service.lineage import run_events
from consolidation_pipeline.service.lineage.collector import list_event_lines
from consolidation_pipeline.service.lineage.memory_lineage import GroupLineage, trace_groups
from consolidation_pipeline.store.jobs.jobs import finish_job
from consolidation_pipeline.store.ledger.job_changes import iter_job_groups
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.lineage.openlineage_rules import (
    PUBLISHED,
    check_event,
    list_facets,
    load_own_schemas,
    validate,
    validate_as_published,
)
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id


def load_events(pipeline: Pipeline, job: UUID) -> list[dict[str, Any]]:
    return [json.loads(line) for line in list_event_lines(pipeline.engine, job)]


def test_events_fit_the_specification(pipeline: Pipeline, job: UUID) -> None:
    events = load_events(pipeline, job)
    for event in events:
        check_event(event)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    start, end = events
    assert start["run"]["runId"] == end["run"]["runId"] == str(job)
    assert start["job"] == end["job"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("consolidation", "notes.consolidate")
    assert start["eventTime"] < end["eventTime"]
    assert start["outputs"] == []


@pytest.mark.skipif(PUBLISHED is None, reason="OPENLINEAGE_SPEC names no folder with the published schemas")
def test_events_fit_the_published_schemas(pipeline: Pipeline, job: UUID) -> None:
    for event in load_events(pipeline, job):
        assert validate_as_published(event, Path(PUBLISHED or ""))


def test_events_are_validated_by_schemas_of_a_folder(pipeline: Pipeline, job: UUID, tmp_path: Path) -> None:
    start, end = load_events(pipeline, job)
    url, _, _ = start["schemaURL"].partition("#")
    time = {"properties": {"eventTime": {"type": "string", "format": "date-time"}}}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$schema": dialect, "$id": url, "$defs": {"RunEvent": time}}
    (tmp_path / "OpenLineage.json").write_text(json.dumps(schema))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "1.json").write_text('{"schema": {"fields": []}}')
    assert validate_as_published(end, tmp_path) == [start["schemaURL"]]
    with pytest.raises(ValidationError, match="is not a 'date-time'"):
        validate_as_published({**start, "eventTime": "2026-11-23 20:00"}, tmp_path)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date-time", "2026-11-23T20:00:00.5Z", "2026-11-23"),
        ("uri", run_events.PRODUCER, "no uri"),
        ("uuid", str(UUID(int=0)), "1"),
    ],
)
def test_formats_are_validated(kind: str, good: str, bad: str) -> None:
    validate(good, {"format": kind})
    with pytest.raises(ValidationError, match=f"is not a '{kind}'"):
        validate(bad, {"format": kind})


def test_outputs_are_the_tables_of_the_ledger(pipeline: Pipeline, job: UUID) -> None:
    _, end = load_events(pipeline, job)
    rows = {
        one["name"].rpartition(".")[2]: one["outputFacets"]["outputStatistics"]["rowCount"] for one in end["outputs"]
    }
    assert rows["task_memories"] == 3  # two merged, one archived
    assert rows["consolidated_memories"] >= 1
    assert rows["memory_lineage"] >= 2
    table = next(one for one in end["outputs"] if one["name"].endswith(".consolidation.task_memories"))
    assert table["namespace"].startswith("postgres://")
    fields = {field["name"]: field["type"] for field in table["facets"]["schema"]["fields"]}
    assert fields["execution_summary"] == "TEXT"
    condition = table["outputFacets"]["subset"]["outputCondition"]
    assert condition["right"]["value"] == str(pipeline.project().id)
    memories = next(one for one in end["inputs"] if one["name"].endswith(".task_memories"))
    assert memories["inputFacets"]["inputStatistics"]["rowCount"] == 6


def test_memory_lineage_names_sources_and_rule(pipeline: Pipeline, job: UUID) -> None:
    _, end = load_events(pipeline, job)
    facet = end["run"]["facets"]["consolidation_memoryLineage"]
    groups = {group["operation"]: group for group in facet["groups"]}
    assert facet["groupCount"] == len(facet["groups"])
    merge = groups["merge"]
    assert merge["inputs"] == sorted(str(note_id(name)) for name in ("n0", "n1"))
    assert (merge["rule"], merge["inputCount"], merge["outputCount"]) == ("merged", 2, 1)
    assert merge["reason"] == "near-duplicates: 2 memories say the same"
    assert merge["outputs"][0]["table"] == "consolidated_memories"
    archive = groups["archive"]
    assert (archive["rule"], archive["inputs"]) == ("staleness", [str(note_id("old"))])
    phases = end["run"]["facets"]["consolidation_run"]["phases"]
    assert {"merged_memories", "archived_memories"} <= {phase["name"] for phase in phases}


def test_events_hold_no_text_of_a_memory(pipeline: Pipeline, job: UUID) -> None:
    told = "".join(list_event_lines(pipeline.engine, job))
    assert not [text for text in LESSONS if text[:30] in told]
    assert 'embedding":' not in told


def test_reasons_that_quote_memories_are_left_out(pipeline: Pipeline) -> None:
    text = "The billing service runs on Python 3.{} now, so pin the image of its workers."
    pipeline.add(
        [
            note("a", text.format(11), user_id="anna"),
            note("b", f"{text.format(12)} It no longer runs on 3.11.", user_id="anna"),
        ]
    )
    told = "".join(list_event_lines(pipeline.engine, pipeline.run().job_id))
    assert '"rule": "supersedes"' in told
    assert "billing" not in told


def test_long_lineage_is_counted(pipeline: Pipeline, job: UUID) -> None:
    with pipeline.engine.connect() as connection:
        every = trace_groups(iter_job_groups(connection, job))
    with pipeline.engine.connect() as connection:
        some = trace_groups(iter_job_groups(connection, job), most=1)
    assert (len(some.groups), some.total) == (1, len(every.groups))
    ids = [str(uuid4()) for _ in range(9)]
    long = GroupLineage("g", "merge", "merged", None, None, ids, [("task_memories", id_) for id_ in ids]).to_json(4)
    assert (long["inputs"], long["inputCount"], len(long["outputs"]), long["outputCount"]) == (ids[:4], 9, 4, 9)


@pytest.mark.parametrize(("status", "kind"), [("failed", "FAIL"), ("cancelled", "ABORT")])
def test_failed_and_cancelled_jobs_end_so(pipeline: Pipeline, status: str, kind: str) -> None:
    pipeline.add([note("a", LESSONS[0])])
    with pipeline.open(planned=("embedding_matrix",)) as run:
        [start] = load_events(pipeline, run.job_id)
        assert start["eventType"] == "START"
        with pipeline.engine.begin() as connection:
            finish_job(connection, run.job_id, status, error="the disk is full")
    _, end = load_events(pipeline, run.job_id)
    check_event(end)
    if PUBLISHED is not None:
        validate_as_published(end, Path(PUBLISHED))
    assert end["eventType"] == kind
    message = end["run"]["facets"].get("errorMessage", {}).get("message")
    assert message == ("the disk is full" if status == "failed" else None)


def test_jobs_without_a_run_have_no_events(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="there is no job"):
        list_event_lines(pipeline.engine, uuid4())
    pipeline.add([note("a", LESSONS[0])])
    job = UUID(str(request_job(pipeline.engine, SLUG, triggered_by="tester").job_id))
    with pytest.raises(NotFoundError, match=f"job {job} is pending and never began to run: it has no events"):
        list_event_lines(pipeline.engine, job)


def test_own_facets_have_valid_schemas(pipeline: Pipeline, job: UUID) -> None:
    schemas = {schema["$id"]: schema for schema in load_own_schemas()}
    _, end = load_events(pipeline, job)
    own = [facet for key, facet in list_facets(end) if key.startswith("consolidation_")]
    assert {facet["_schemaURL"] for facet in own} == set(schemas)
    for facet in own:
        assert facet["_producer"] == run_events.PRODUCER
        with pytest.raises(Exception, match=r"groupCount|costUsd"):
            validate({"_producer": "urn:x", "_schemaURL": "urn:y"}, schemas[facet["_schemaURL"]])
