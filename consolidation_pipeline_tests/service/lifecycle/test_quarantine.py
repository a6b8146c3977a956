"""Quarantine: memories out of use with all that was derived from them, in one change that can be undone."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import restore_memories
from consolidation_pipeline.service.lifecycle.quarantine import (
    QuarantineResult,
    WriterFilter,
    find_blast_radius,
    quarantine,
)
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.store.knowledge.summaries import COVERS
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.corpus import LESSONS, MIGRATIONS, WEBHOOKS, reworded_notes, topic_notes
from consolidation_pipeline_tests.service.model_replies import pattern_reply
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS
from consolidation_pipeline_tests.service.table_dumps import dump_tables

TABLES = ("task_memories", "consolidated_memories", "playbook_entries", "memory_lineage", "memory_relations")
MALLORY = WriterFilter(agent_id="mallory")


@pytest.fixture
def consolidated(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Consolidated project: a merged memory, patterns and entries; one of their sources is of the agent mallory."""
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    pipeline.start_from(consolidate_with_mallory)
    return pipeline


def consolidate_with_mallory(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini", playbook_approval="automatic")
    merging = reworded_notes(LESSONS[:1])[:3]
    hooks = topic_notes("hook", WEBHOOKS)
    for row in (merging[0], hooks[0]):
        row["agent_id"] = "mallory"
    pipeline.add([*merging, *hooks, *topic_notes("move", MIGRATIONS)])
    pipeline.run()


def take_out(pipeline: Pipeline, where: WriterFilter = MALLORY, **how: Any) -> QuarantineResult:
    return quarantine(pipeline.engine, where, **{"project": "notes", "changed_by": "tester", **how})


def count_active(pipeline: Pipeline, kind: str) -> int:
    query = "SELECT count(*) FROM {s}.consolidated_memories WHERE kind = :kind AND retired_at IS NULL"
    return int(pipeline.value(query, kind=kind))


def list_evidence(pipeline: Pipeline) -> set[UUID]:
    """Return the raw memories behind everything that is in use."""
    query = """
        SELECT unnest(source_memory_ids) FROM {s}.consolidated_memories WHERE retired_at IS NULL
        UNION SELECT unnest(supporting_memory_ids) FROM {s}.playbook_entries WHERE status <> 'retired'"""
    return {row[0] for row in pipeline.rows(query)}


def test_blast_radius_lists_all_levels_and_writes_nothing(consolidated: Pipeline) -> None:
    before = dump_tables(consolidated, tables=TABLES)
    found = find_blast_radius(consolidated.engine, MALLORY, project="notes")
    assert (len(found.memories), found.shown_again) == (2, 2)
    assert {"merged", "pattern", "playbook"} <= found.totals.keys()
    assert found.totals["merged"] == 1
    assert found.affected[0].kind == "merged"
    assert "active again" in found.affected[0].effect
    assert dump_tables(consolidated, tables=TABLES) == before


def test_quarantine_leaves_nothing_made_of_suspects(consolidated: Pipeline) -> None:
    expected = find_blast_radius(consolidated.engine, MALLORY, project="notes")
    done = take_out(consolidated, reason="planted")
    assert (done.totals, done.memories) == (expected.totals, expected.memories)
    assert not list_evidence(consolidated) & set(done.memories)
    rows = consolidated.rows("SELECT id, archive_reason, is_consolidated FROM {s}.task_memories WHERE is_archived")
    assert {(row.id, row.archive_reason, row.is_consolidated) for row in rows} == {
        (id_, "quarantine: planted", False) for id_ in done.memories
    }
    assert consolidated.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 0
    groups = consolidated.rows("SELECT DISTINCT group_id FROM {s}.consolidation_changes WHERE changed_by = 'tester'")
    assert [row.group_id for row in groups] == [done.group_id]


def dump_without_caches(pipeline: Pipeline) -> Any:
    """Return the tables after the next run was told to compare all memories again, as a rollback tells it."""
    pipeline.write("DELETE FROM {s}.compared_memories")
    return dump_tables(pipeline, tables=TABLES)


def test_rollback_releases_quarantine_exactly(consolidated: Pipeline) -> None:
    before = dump_without_caches(consolidated)
    done = take_out(consolidated)
    undone = consolidated.roll_back(done.group_id)
    assert dump_without_caches(consolidated) == before
    assert undone.kept_apart == 0
    consolidated.roll_back(undone.rollback_id)
    assert not list_evidence(consolidated) & set(done.memories)


def test_next_run_derives_knowledge_without_suspects(consolidated: Pipeline) -> None:
    done = take_out(consolidated)
    patterns, merged = count_active(consolidated, "pattern"), count_active(consolidated, "merged")
    consolidated.run()
    assert count_active(consolidated, "merged") == merged + 1
    assert count_active(consolidated, "pattern") > patterns
    assert not list_evidence(consolidated) & set(done.memories)
    again = consolidated.run()
    assert (again.merging.created, again.patterns.created, again.playbook.entries_updated) == (0, 0, 0)


def test_search_never_shows_quarantined_memories(consolidated: Pipeline) -> None:
    done = take_out(consolidated)
    found = search(
        consolidated.engine,
        "notes",
        SearchQuery(WEBHOOKS[0], limit=50, include_archived=True),
        settings=consolidated.settings,
        count_use=False,
    )
    shown = {hit.id for hit in found.results}
    retired = {
        row.id for row in consolidated.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NOT NULL")
    }
    assert shown
    assert not shown & {*done.memories, *retired}


def test_supported_entry_loses_only_the_evidence(consolidated: Pipeline) -> None:
    consolidated.write(
        "UPDATE {s}.playbook_entries SET source_id = NULL, supporting_memory_ids = ARRAY("
        "SELECT id FROM {s}.task_memories WHERE agent_id = 'mallory' UNION "
        "SELECT unnest(supporting_memory_ids) FROM {s}.playbook_entries)"
    )
    done = take_out(consolidated)
    effects = [row.effect for row in done.affected if row.kind == "playbook"]
    assert effects
    assert all(effect.startswith("keeps the evidence of") for effect in effects)
    assert {row.status for row in consolidated.rows("SELECT status FROM {s}.playbook_entries")} == {"active"}
    rest = consolidated.rows("SELECT id FROM {s}.task_memories WHERE coalesce(agent_id, '') <> 'mallory' LIMIT 2")
    consolidated.write("UPDATE {s}.playbook_entries SET supporting_memory_ids = :ids", ids=[row.id for row in rest])
    take_out(consolidated, WriterFilter(ids=[rest[0].id]), project=None)
    assert {row.status for row in consolidated.rows("SELECT status FROM {s}.playbook_entries")} == {"review"}


def test_summary_and_profile_are_made_again(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    rows = topic_notes("hook", WEBHOOKS, user_id="ada") + topic_notes("move", MIGRATIONS, user_id="ada")
    pipeline.add(rows)
    phases = ["embedding_matrix", "semantic_summaries", "procedural_profile"]
    with pipeline.open(job="summarize", planned=phases) as run:
        run_phases(run, phases)
    assert (count_active(pipeline, "summary"), count_active(pipeline, "procedural")) == (1, 1)
    done = take_out(pipeline, WriterFilter(session_id="hook-0"))
    assert {"summary", "procedural"} <= done.totals.keys()
    assert pipeline.value(f"SELECT count(*) FROM {{s}}.consolidated_memories s WHERE {COVERS}") == 0


@pytest.mark.parametrize(
    ("where", "project", "error", "message"),
    [
        (WriterFilter(), "notes", UsageError, "name what to take out of use"),
        (WriterFilter(agent_id=" "), "notes", UsageError, "must not be blank"),
        (WriterFilter(agent_id="x"), None, UsageError, "name the project"),
        (WriterFilter(agent_id="x"), "nowhere", NotFoundError, "nowhere"),
        (WriterFilter(agent_id="x"), "notes", ConflictError, "no memory of notes meets this"),
        (WriterFilter(ids=[uuid4()]), None, NotFoundError, "there is no memory"),
    ],
)
def test_unusable_filters_are_refused(
    shared: Pipeline, where: WriterFilter, project: str | None, error: type[Exception], message: str
) -> None:
    shared.clear()
    shared.add(topic_notes("hook", WEBHOOKS))
    for act in (find_blast_radius, lambda *a, **k: quarantine(*a, **k, changed_by="tester")):
        with pytest.raises(error, match=message):
            act(shared.engine, where, project=project)


def test_consolidated_memory_is_refused_by_id(consolidated: Pipeline) -> None:
    merged = consolidated.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    with pytest.raises(UsageError, match="is of kind merged: give raw memories"):
        take_out(consolidated, WriterFilter(ids=[merged]))


def test_only_raw_memories_can_be_restored_by_hand(consolidated: Pipeline) -> None:
    done = take_out(consolidated)
    derived = next(row.id for row in done.affected if row.kind == "merged")
    with pytest.raises(ConflictError, match="in quarantine"):
        restore_memories(consolidated.engine, [derived], changed_by="tester")
    restore_memories(consolidated.engine, [done.memories[0]], changed_by="tester")
    with pytest.raises(ConflictError):
        consolidated.roll_back(done.group_id)
    again = take_out(consolidated)
    assert list(again.memories) == [done.memories[0]]
    with pytest.raises(ConflictError, match="in quarantine already"):
        take_out(consolidated)
