"""A shadow runs another policy on a copy; no live row changes, and its report says what differs."""

from __future__ import annotations

from uuid import UUID

import pytest

from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.errors import ConflictError, InvalidOptionError, NotFoundError, UsageError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.admin.projects import delete_project
from consolidation_pipeline.service.shadow import comparison
from consolidation_pipeline.service.shadow.shadows import drop, list_reports, read_report
from consolidation_pipeline.store.shadow.databases import list_shadows
from consolidation_pipeline_tests.service.corpus import LESSONS
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.shadow.shadow_helpers import (
    add_tests,
    make_shadow,
    open_shadow_pipeline,
    promote_shadow,
)
from consolidation_pipeline_tests.service.table_dumps import compute_checksums


def test_shadow_leaves_live_tables_as_they_are(live: Pipeline) -> None:
    before = compute_checksums(live)
    report = make_shadow(live)
    assert compute_checksums(live) == before
    assert report.changes["merge"] > 0
    read_report(live.engine, SLUG)
    list_reports(live.engine, SLUG)
    assert compute_checksums(live) == before


def test_report_names_merges_of_one_side_only(live: Pipeline) -> None:
    plan = live.plan()
    merged = {row.id for row in live.rows("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")}
    report = make_shadow(live, name="strict", t_merge=0.999)
    difference = report.difference
    here = {merge.id for merge in plan.merges} | merged
    assert {merge.id for merge in difference.merges_only_here} <= here
    assert difference.merges_only_here
    assert all(len(merge.texts) > 1 and merge.text for merge in difference.merges_only_here)
    assert difference.merges_same + len(difference.merges_only_here) == len(here)
    assert report.options == {"t_merge": 0.999}
    assert report.cost.calls == 0
    assert report == read_report(live.engine, SLUG, "strict")


def test_shadow_with_the_same_effect_differs_nowhere(live: Pipeline) -> None:
    difference = make_shadow(live, timeout_seconds=3_000).difference
    assert not difference.merges_only_here
    assert not difference.merges_only_there
    assert not difference.knowledge_only_here
    assert not difference.knowledge_only_there
    assert not difference.archived_only_here
    assert not difference.archived_only_there
    assert difference.merges_same > 0


def test_labelled_pairs_are_counted_on_both_sides(live: Pipeline) -> None:
    low, high = sorted((note_id("lesson-0-0"), note_id("lesson-0-1")))
    live.write(
        "INSERT INTO {s}.labelled_pairs (project_id, a, b, same, labelled_by) VALUES (:p, :a, :b, true, 'tester')",
        p=live.project().id,
        a=low,
        b=high,
    )
    labelled = make_shadow(live, t_merge=0.999).labelled_pairs
    assert (labelled.pairs, labelled.missed_here, labelled.missed_there) == (1, 0, 0)
    assert labelled.wrong_merges_here == labelled.wrong_merges_there == 0


def test_retrieval_is_measured_before_and_after(live: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "QUERIES", 50)
    retrieval = make_shadow(live).retrieval
    assert retrieval.queries == 50
    assert retrieval.found_before > 40
    assert retrieval.archived == 0
    assert retrieval.found_after >= retrieval.found_before - len(retrieval.lost)


def test_bad_options_and_names_are_refused_at_once(live: Pipeline) -> None:
    for options in ({"t_merge": 7}, {"no_such_option": 1}):
        with pytest.raises(InvalidOptionError):
            make_shadow(live, **options)
    with pytest.raises(UsageError, match="not allowed"):
        make_shadow(live, name="Next One")
    live.configure(t_merge=0.95)
    with pytest.raises(UsageError, match="that differ"):
        make_shadow(live, t_merge=0.95)
    with pytest.raises(NotFoundError, match="no shadow 'next'"):
        read_report(live.engine, SLUG)
    assert not list_shadows(live.engine, live.project().id)


def test_complete_shadow_is_not_run_over(live: Pipeline) -> None:
    make_shadow(live)
    with pytest.raises(ConflictError, match="has a shadow next already"):
        make_shadow(live)
    drop(live.engine, SLUG)
    assert list_reports(live.engine, SLUG) == {}
    make_shadow(live)
    assert list(list_reports(live.engine, SLUG)) == ["next"]


def test_shadow_holds_no_other_project(live: Pipeline) -> None:
    live.add([{"id": "x", "content": LESSONS[0], "memory_type": "learning"}], slug="other")
    make_shadow(live)
    shadow = open_shadow_pipeline(live)
    assert shadow.rows("SELECT slug FROM {s}.projects") == [(SLUG,)]
    assert shadow.value("SELECT count(*) FROM {s}.api_keys") == 0
    assert shadow.value("SELECT count(DISTINCT project_id) FROM {s}.task_memories") == 1


def test_erase_drops_the_copies_in_shadows(live: Pipeline) -> None:
    make_shadow(live)
    erase_memories(live.engine, [note_id("alone-0")], changed_by="tester")
    assert not list_shadows(live.engine, live.project().id)


def test_deleted_project_leaves_no_shadow(live: Pipeline) -> None:
    make_shadow(live)
    project: UUID = live.project().id
    delete_project(live.engine, SLUG, confirmed=True)
    assert not list_shadows(live.engine, project)


def test_shadow_of_another_version_is_refused(live: Pipeline) -> None:
    make_shadow(live)
    open_shadow_pipeline(live).write("UPDATE {s}.alembic_version SET version_num = '0001'")
    for call in (lambda: read_report(live.engine, SLUG), lambda: make_shadow(live), lambda: promote_shadow(live)):
        with pytest.raises(ConflictError, match="another version"):
            call()
    drop(live.engine, SLUG)


def test_memory_tests_are_run_before_and_after(live: Pipeline) -> None:
    groups = [[source.id for source in merge.sources if source.merged_into is None] for merge in live.plan().merges]
    new = [group[:2] for group in groups if len(group) > 1]
    (a, b), (c, d) = new[0], new[1]
    add_tests(
        live,
        build_test("must_not_merge", [str(a), str(b)], "apart"),
        build_test("must_merge", [str(c), str(d)], "together"),
        build_test("must_remember", LESSONS[0], "kept"),
    )
    before = compute_checksums(live)
    tests = make_shadow(live, recall_gate=False).memory_tests
    assert (tests.tests, tests.passed_before, tests.passed_after) == (3, 2, 3)
    assert (tests.broken, tests.repaired) == ({}, ["together"])
    assert tests.refused_here == tests.refused_there == {"apart": 1}
    strict = make_shadow(live, name="strict", t_merge=0.999).memory_tests
    assert (strict.refused_here, strict.refused_there) == ({"apart": 1}, {})
    assert strict.repaired == []
    assert compute_checksums(live) == before


def test_both_texts_of_a_reworded_merge_are_told(live: Pipeline) -> None:
    difference = make_shadow(live, merge_max_chars=200).difference
    assert difference.merges_reworded
    for merge in difference.merges_reworded:
        assert len(merge.texts) > 1
        assert merge.text_here != merge.text_there
        assert len(merge.text_there) <= 200
