"""Decisions on relations: confirmed, rejected or undone, all or nothing."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.lifecycle.relations import decide_relations, list_relations
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.lifecycle.test_associations import MODEL, typed_note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_tables


def add_candidates(pipeline: Pipeline, slug: str = SLUG) -> list[UUID]:
    """Add three contradicting decisions; return the ids of their relations."""
    pipeline.add(
        [typed_note(name, "decision", cosine) for name, cosine in (("a", 1.0), ("b", 0.1), ("c", -0.95))], slug
    )
    with pipeline.open(slug, embedder=WordEmbedder(MODEL, dimension=2)) as run:
        assert associate_memories(run).found["contradicts"] == 3
    rows = list_relations(pipeline.engine, slug, limit=10)["relations"]
    return [row["id"] for row in rows]


def statuses(pipeline: Pipeline) -> dict[UUID, str]:
    return {row.id: row.status for row in pipeline.rows("SELECT id, status FROM {s}.memory_relations")}


def decide(pipeline: Pipeline, status: str, *ids: UUID, reason: str | None = None) -> dict[UUID, UUID]:
    return decide_relations(pipeline.engine, ids, status, changed_by="tester", reason=reason)


def test_relation_decision_can_be_changed(pipeline: Pipeline) -> None:
    one, two, three = add_candidates(pipeline)
    decide(pipeline, "confirmed", one, two, reason="seen in the minutes")
    decide(pipeline, "rejected", two)
    assert statuses(pipeline) == {one: "confirmed", two: "rejected", three: "candidate"}
    decide(pipeline, "confirmed", two)
    assert statuses(pipeline)[two] == "confirmed"
    rows = pipeline.rows("SELECT * FROM {s}.consolidation_changes WHERE operation = 'review' ORDER BY seq")
    assert [(row.reason, row.changed_by, row.job_id) for row in rows] == [
        ("seen in the minutes", "tester", None),
        ("seen in the minutes", "tester", None),
        ("by hand", "tester", None),
        ("by hand", "tester", None),
    ]


def test_relation_decisions_are_undone_independently(pipeline: Pipeline) -> None:
    one, two, _ = add_candidates(pipeline)
    groups = decide(pipeline, "confirmed", one, two)
    undone = pipeline.roll_back(groups[one])
    assert (statuses(pipeline)[one], statuses(pipeline)[two]) == ("candidate", "confirmed")
    pipeline.roll_back(undone.rollback_id)
    assert statuses(pipeline)[one] == "confirmed"


def test_relation_given_twice_is_decided_once(pipeline: Pipeline) -> None:
    one, *_ = add_candidates(pipeline)
    assert list(decide(pipeline, "rejected", one, one)) == [one]


def test_relation_decisions_are_all_or_nothing(pipeline: Pipeline) -> None:
    one, two, _ = add_candidates(pipeline)
    decide(pipeline, "confirmed", two)
    before = dump_tables(pipeline, tables=["memory_relations", "consolidation_changes"])
    nobody = uuid4()
    with pytest.raises(NotFoundError, match=f"there is no relation {nobody}"):
        decide(pipeline, "confirmed", one, nobody)
    with pytest.raises(ConflictError, match=f"relation {two} is confirmed already") as refused:
        decide(pipeline, "confirmed", one, two)
    assert refused.value.conflicts == (str(two),)
    with pytest.raises(UsageError, match="'candidate' cannot be given to a relation: it must be confirmed or rejected"):
        decide(pipeline, "candidate", one)
    assert dump_tables(pipeline, tables=["memory_relations", "consolidation_changes"]) == before


def test_relations_of_several_projects_are_decided(pipeline: Pipeline) -> None:
    ids = [add_candidates(pipeline, slug)[0] for slug in ("alpha", "beta")]
    decide(pipeline, "rejected", *ids)
    projects = pipeline.rows("SELECT DISTINCT project_id FROM {s}.consolidation_changes WHERE operation = 'review'")
    assert {row[0] for row in projects} == {pipeline.project(slug).id for slug in ("alpha", "beta")}


def test_relations_are_listed_with_texts_and_totals(pipeline: Pipeline) -> None:
    one, *_ = add_candidates(pipeline)
    decide(pipeline, "rejected", one)
    found = list_relations(pipeline.engine, SLUG, limit=2)
    assert found["totals"] == {"candidate": 2, "confirmed": 0, "rejected": 1}
    assert len(found["relations"]) == 2
    assert {row["a_text"] for row in found["relations"]} <= {"Memory a.", "Memory b.", "Memory c."}
    rejected = list_relations(pipeline.engine, SLUG, limit=5, status="rejected")["relations"]
    assert [row["id"] for row in rejected] == [one]
    with pytest.raises(UsageError, match="'maybe' does not exist; a relation is candidate, confirmed, rejected"):
        list_relations(pipeline.engine, SLUG, limit=5, status="maybe")
    with pytest.raises(NotFoundError, match="no project 'nobody'"):
        list_relations(pipeline.engine, "nobody", limit=5)
