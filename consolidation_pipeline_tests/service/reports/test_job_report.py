"""Reports of jobs: complete, in a stable order, and without erased texts."""

from __future__ import annotations

import difflib
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.reports.documents import make_document
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.ledger.change_sets import load_change_set
from consolidation_pipeline_tests.service.conftest import provider as provider
from consolidation_pipeline_tests.service.corpus import LESSONS, REWORDINGS, STALE, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

TEXTS = (LESSONS[0], REWORDINGS[1].format(LESSONS[0]), *LESSONS[1:4])


def add_notes(pipeline: Pipeline, slug: str = "notes") -> None:
    pipeline.add([*(note(f"n{at}", text) for at, text in enumerate(TEXTS)), note("old", LESSONS[5], **STALE)], slug)


@pytest.fixture
def job(pipeline: Pipeline) -> UUID:
    """Job of a run that merged two notes and archived one."""
    add_notes(pipeline)
    return pipeline.run().job_id


def load_report(engine: Engine, job: UUID) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(make_document(engine, job, "json"))
    return report


def test_report_says_what_changed_and_why(pipeline: Pipeline, job: UUID) -> None:
    report = load_report(pipeline.engine, job)
    merge = next(group for group in report["groups"] if group["operation"] == "merge")
    assert merge["reason"] == "near-duplicates: 2 memories say the same"
    assert merge["made_of"] == sorted(str(note_id(name)) for name in ("n0", "n1"))
    merged, *sources = merge["rows"]
    assert (merged["change"], merged["facts"]["kind"]) == ("created", "merged")
    assert LESSONS[0] in merged["after"]
    assert {row["text"] for row in sources} == set(TEXTS[:2])
    assert {row["facts"]["consolidated_into_id"]["to"] for row in sources} == {merged["id"]}
    archive = next(group for group in report["groups"] if group["operation"] == "archive")
    assert (archive["rule"], archive["rows"][0]["text"]) == ("staleness", LESSONS[5])
    with pipeline.engine.connect() as connection:
        assert report["changes"]["hash"] == load_change_set(connection, job).digest
    assert report["changes"]["groups"] == len(report["groups"]) == len(report["run"]["group_ids"])
    assert report["inputs"]["memories"] == 6
    assert (report["status"], report["cost"]["usd"]) == ("completed", 0)
    assert set(report["run"]["seconds_by_phase"]) == set(report["phases"])


def test_reports_of_equal_runs_differ_under_run_only(pipeline: Pipeline, job: UUID) -> None:
    again = make_document(pipeline.engine, job, "json")
    assert again == make_document(pipeline.engine, job, "json")
    pipeline.clear()
    add_notes(pipeline)
    other = json.loads(make_document(pipeline.engine, pipeline.run().job_id, "json"))
    first = json.loads(again)
    assert {name for name in first if first[name] != other[name]} == {"run"}


def test_one_changed_fact_is_one_changed_line(pipeline: Pipeline, job: UUID) -> None:
    one = make_document(pipeline.engine, job, "json").splitlines()
    pipeline.write("UPDATE {s}.consolidation_jobs SET options = options || '{\"t_promote\": 0.9}'")
    other = make_document(pipeline.engine, job, "json").splitlines()
    changed = [line for line in difflib.ndiff(one, other) if line[0] in "+-"]
    assert changed == ['-   "t_promote": 0.85,', '+   "t_promote": 0.9,']


def test_page_has_the_words_of_a_run(pipeline: Pipeline, job: UUID) -> None:
    page = make_document(pipeline.engine, job, "html")
    operations = load_report(pipeline.engine, job)["changes"]["groups_by_operation"]
    for operation, word in {"merge": "merged", "archive": "archived"}.items():
        assert f"<tr><th>{word}</th><td>{operations[operation]}</td></tr>" in page
        assert f"<summary><b>{word}</b>" in page
    assert "report verify" not in page  # it is not signed


def test_checks_and_rollbacks_are_told(pipeline: Pipeline, job: UUID) -> None:
    report = load_report(pipeline.engine, job)
    assert report["checks"]["no_memory_is_abandoned"] == {"holds": True}
    assert len(report["checks"]) > 25
    assert report["changes"]["groups_rolled_back_since"] == 0
    pipeline.roll_back(job)
    assert load_report(pipeline.engine, job)["changes"]["groups_rolled_back_since"] == len(report["groups"])


@pytest.mark.breaks_rules
def test_broken_rule_is_a_failed_check(pipeline: Pipeline, job: UUID) -> None:
    pipeline.write("DELETE FROM {s}.memory_lineage")
    pipeline.write("UPDATE {s}.consolidated_memories SET source_count = source_count + 1 WHERE kind = 'merged'")
    failed = [name for name, check in load_report(pipeline.engine, job)["checks"].items() if not check["holds"]]
    assert failed
    assert "fail" in make_document(pipeline.engine, job, "html")


def test_erased_texts_are_in_no_later_report(pipeline: Pipeline, job: UUID) -> None:
    before = make_document(pipeline.engine, job, "html")
    assert "rolls the whole release back" in before
    erase_memories(
        pipeline.engine, [note_id("n0"), note_id("n1")], project="notes", user_id=None, reason=None, changed_by="t"
    )
    for format_ in ("json", "html"):
        after = make_document(pipeline.engine, job, format_)
        assert "rolls the whole release back" not in after
        assert "erased" in after


def test_missing_job_is_told(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="there is no job"):
        make_document(pipeline.engine, uuid4(), "json")


def test_job_that_never_ran_has_an_empty_report(pipeline: Pipeline) -> None:
    from consolidation_pipeline.service.jobs.job_requests import request_job

    pipeline.add([note("a", LESSONS[0])])
    job = request_job(pipeline.engine, "notes", triggered_by="tester").job_id
    report = load_report(pipeline.engine, UUID(str(job)))
    assert (report["status"], report["groups"], report["run"]["started_at"]) == ("pending", [], None)
    assert "Nothing." in make_document(pipeline.engine, UUID(str(job)), "html")
