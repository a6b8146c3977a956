"""Patterns without a model: content, updates, superseding and rollback."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.knowledge.pattern_layout import read_statements
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.knowledge.derive import DeriveResult
from consolidation_pipeline.service.knowledge.patterns import derive_patterns
from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories
from consolidation_pipeline_tests.service.corpus import FIFTH, MIGRATIONS, REPEATED, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline, note_id, run_phases
from consolidation_pipeline_tests.service.table_dumps import dump_tables
from consolidation_pipeline_tests.store.sample_rows import record_statements

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.75, "t_pattern": 0.5, "archive": False, "promote": False}
# Tables without relevance, which changes with time.
TABLES = ("consolidation_changes", "memory_lineage", "memory_files", "memory_clusters")


def list_patterns(pipeline: Pipeline) -> list[Any]:
    """Return the active patterns, those with most sources first."""
    query = """
        SELECT * FROM {s}.consolidated_memories WHERE kind = 'pattern' AND retired_at IS NULL
        ORDER BY source_count DESC, id
    """
    return pipeline.rows(query)


def load_parents(pipeline: Pipeline, child: UUID) -> dict[UUID, str]:
    edges = pipeline.rows("SELECT parent_id, parent_kind FROM {s}.memory_lineage WHERE child_id = :id", id=child)
    return dict(tuple(edge) for edge in edges)


def count_changes(pipeline: Pipeline) -> int:
    return int(pipeline.value("SELECT count(*) FROM {s}.consolidation_changes"))


def memory_ids(name: str, count: int) -> list[UUID]:
    return sorted(note_id(f"{name}-{at}") for at in range(count))


@pytest.fixture
def topics(pipeline: Pipeline) -> Pipeline:
    """Project with two topics, of four and three memories."""
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])
    return pipeline


def run_topics(topics: Pipeline) -> Outcome:
    """Run the project of ``topics``, or copy the rows of an earlier run of it."""
    return topics.start_from(Pipeline.run, __name__)


def test_pattern_consists_of_source_sentences(topics: Pipeline) -> None:
    done = run_topics(topics)
    assert (done.patterns.groups, done.patterns.created, done.patterns.updated) == (2, 2, 0)
    hooks, moves = list_patterns(topics)
    assert set(read_statements(hooks.content, hooks.details.get("title", "")).split("\n")) <= set(WEBHOOKS)
    assert set(read_statements(moves.content, moves.details.get("title", "")).split("\n")) <= set(MIGRATIONS)
    assert hooks.content.startswith(hooks.details["summary"])
    assert hooks.details["seen"].startswith("4 memories in 4 sessions, ")
    assert "4 memories" not in hooks.content
    assert sorted(hooks.source_memory_ids) == memory_ids("hook", 4)
    assert load_parents(topics, hooks.id) == dict.fromkeys(memory_ids("hook", 4), "raw")
    assert (hooks.kind, hooks.abstraction_level, hooks.memory_type, hooks.user_id) == ("pattern", 2, "learning", None)
    assert (hooks.consolidation_method, hooks.llm_confidence, hooks.needs_review) == ("heuristic", None, False)
    assert 0 < hooks.confidence_score <= 0.75
    assert set(hooks.details) == {"seen", "summary", "best_practices", "gotchas", "key_terms", "evidence"}
    assert "webhook" in hooks.details["key_terms"]


def test_text_of_the_old_layout_is_written_again_once(topics: Pipeline) -> None:
    run_topics(topics)
    written = list_patterns(topics)
    topics.write("""
        UPDATE {s}.consolidated_memories SET content = content || E'\\nSeen 4 times.', details = details - 'seen'
        WHERE kind = 'pattern'
    """)
    (kept, other) = (row.id for row in written)
    pin_memories(topics.engine, [kept], pinned=True, changed_by="tester")
    assert topics.run().patterns.updated == 1
    texts = {row.id: row.content for row in list_patterns(topics)}
    assert texts == {kept: f"{written[0].content}\nSeen 4 times.", other: written[1].content}
    assert topics.run().patterns.updated == 0


def test_group_without_shared_lesson_has_no_pattern(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    names = [
        "feat(hooks): add a list of webhooks",
        "feat(hooks): wire the list of webhooks",
        "feat(hooks): sort webhooks",
    ]
    pipeline.add(topic_notes("hook", names))
    done = pipeline.run()
    assert (done.patterns.groups, done.patterns.created, done.patterns.discarded) == (1, 0, 1)
    assert (list_patterns(pipeline), done.patterns.failures) == ([], ())


def test_pattern_unites_fields_of_its_units(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    rows = topic_notes("hook", WEBHOOKS[:3], tags=[], success=None, importance=0.2)
    rows[0] |= {"tags": ["b", "a"], "success": False, "created_at": "2024-03-02T08:00:00Z", "files": ["x.py"]}
    rows[1] |= {"tags": ["b", "c"], "success": True, "importance": 0.9, "last_accessed_at": "2026-01-02T08:00:00Z"}
    pipeline.add(rows)
    pipeline.run()
    (row,) = list_patterns(pipeline)
    assert (row.tags, row.success, row.importance, row.pinned, row.reuse_count) == (
        ["a", "b", "c"],
        True,
        0.9,
        False,
        0,
    )
    assert row.learned_at.isoformat() == "2024-03-02T08:00:00+00:00"
    assert "x.py" in [
        path for (path,) in pipeline.rows("SELECT path FROM {s}.memory_files WHERE owner_id = :i", i=row.id)
    ]


def test_pattern_evidence_quotes_its_units(topics: Pipeline) -> None:
    run_topics(topics)
    texts = dict(tuple(row) for row in topics.rows("SELECT id, execution_summary FROM {s}.task_memories"))
    for row in list_patterns(topics):
        quoted = [(UUID(one["unit"]), one["quote"]) for one in row.details["evidence"]]
        assert {unit for unit, _ in quoted} == set(row.source_memory_ids)
        assert all(quote in texts[unit] for unit, quote in quoted)


def test_fewer_sessions_lower_pattern_confidence(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([{**row, "session_id": "one"} for row in topic_notes("hook", WEBHOOKS)])
    pipeline.add(topic_notes("hook", WEBHOOKS), "other")
    pipeline.configure("other", **OPTIONS)
    pipeline.run()
    pipeline.run("other")
    weak, strong = sorted(row.confidence_score for row in list_patterns(pipeline))
    assert weak == pytest.approx(strong * 0.75 / (1 - 0.25**3), rel=1e-5)


def test_second_run_writes_no_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    before, recorded = dump_tables(topics, tables=TABLES), count_changes(topics)
    again = topics.run()
    assert (again.patterns.groups, again.patterns.covered, again.patterns.created) == (2, 2, 0)
    assert count_changes(topics) == recorded
    assert dump_tables(topics, tables=TABLES) == before


def test_grown_group_updates_pattern_in_place(topics: Pipeline) -> None:
    run_topics(topics)
    before, other = list_patterns(topics)
    topics.write("UPDATE {s}.consolidated_memories SET reuse_count = 7")
    topics.add([note("fifth", FIFTH)])
    done = topics.run()
    after, still = list_patterns(topics)
    assert (done.patterns.created, done.patterns.updated, done.patterns.covered) == (0, 1, 1)
    assert (after.id, after.version, after.source_count) == (before.id, before.version + 1, 5)
    assert (after.cluster_key != before.cluster_key, after.created_at, after.reuse_count) == (
        True,
        before.created_at,
        7,
    )
    assert (still.id, still.version) == (other.id, other.version)
    assert len(load_parents(topics, after.id)) == 5


def test_newer_value_is_rule_also_in_grown_pattern(pipeline: Pipeline) -> None:
    texts = [f"Answer a webhook within {limit} seconds, or the provider sends it again." for limit in (10, 5)]
    rows = [
        note("old", texts[0], created_at="2026-01-07T08:00:00Z"),
        note(
            "other", "Answer a webhook at once, since the provider sends it again.", created_at="2026-02-01T08:00:00Z"
        ),
        note("more", "A provider sends a webhook again until we answer it.", created_at="2026-02-02T08:00:00Z"),
    ]
    newer = note("new", texts[1], created_at="2026-05-12T08:00:00Z")
    for slug in ("grown", "whole"):
        pipeline.configure_new(slug, **OPTIONS | {"t_merge": 0.999, "t_suggest": 0.999})
    pipeline.add(rows, "grown")
    pipeline.run("grown")
    (before,) = list_patterns(pipeline)
    assert "Answer a webhook" in before.content
    pipeline.add([newer], "grown")
    pipeline.add([*rows, newer], "whole")
    pipeline.run("grown")
    pipeline.run("whole")
    one, other = list_patterns(pipeline)
    assert one.content == other.content
    assert one.confidence_score == pytest.approx(other.confidence_score)
    assert "Answer a webhook within 5 seconds (noted 12 May 2026; was 10 seconds), or" in one.content
    assert texts[0] not in [one.content, *one.details["best_practices"], *one.details["gotchas"]]
    assert texts[0] in [quoted["quote"] for quoted in one.details["evidence"]]
    assert one.confidence_score < 0.75


def test_merged_unit_updates_its_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    before, _ = list_patterns(topics)
    topics.add([note("again", REPEATED)])
    done = topics.run()
    after, _ = list_patterns(topics)
    assert done.merging.created == 1
    assert (after.id, after.version) == (before.id, before.version + 1)
    assert sorted(load_parents(topics, after.id).values()) == ["merged", "raw", "raw", "raw"]
    assert after.source_count == 5


def test_pattern_stays_when_group_loses_unit(topics: Pipeline) -> None:
    run_topics(topics)
    before, _ = list_patterns(topics)
    topics.write(
        "UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'gone' WHERE id = :i", i=note_id("hook-3")
    )
    topics.write("DELETE FROM {s}.compared_memories WHERE memory_id = :i", i=note_id("hook-3"))
    done = topics.run()
    after, _ = list_patterns(topics)
    assert (done.patterns.covered, done.patterns.updated) == (2, 0)
    assert (after.version, after.source_count) == (before.version, 4)


def replace_pattern_groups(pipeline: Pipeline, *groups: list[UUID]) -> None:
    """Replace the stored pattern groups, as a new calibration may."""
    pipeline.write("DELETE FROM {s}.memory_clusters WHERE tier = 'pattern'")
    for members in groups:
        for at, member in enumerate(members):
            pipeline.write(
                "INSERT INTO {s}.memory_clusters (project_id, tier, cluster_key, member_id, member_kind, "
                "similarity_to_representative, is_representative, details) "
                "VALUES (:p, 'pattern', :key, :m, 'raw', 0.9, :first, :details)",
                p=pipeline.project().id,
                key=cluster_key(members),
                m=member,
                first=at == 0,
                details=json.dumps({"cohesion_mean": 0.6} if at == 0 else {}),
            )


def run_patterns_phase(pipeline: Pipeline) -> DeriveResult:
    """Derive patterns from the stored groups."""
    formed: DeriveResult = pipeline.run_phases(["patterns", "decay_scores"])["patterns"]
    return formed


def load_superseded(pipeline: Pipeline) -> dict[UUID, UUID]:
    query = "SELECT id, superseded_by_id FROM {s}.consolidated_memories WHERE superseded_by_id IS NOT NULL"
    return dict(tuple(row) for row in pipeline.rows(query))


def test_joined_topics_supersede_smaller_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    larger, smaller = list_patterns(topics)
    replace_pattern_groups(topics, [*larger.source_memory_ids, *smaller.source_memory_ids])
    done = run_patterns_phase(topics)
    (row,) = list_patterns(topics)
    assert (done.updated, done.superseded, row.id, row.source_count) == (1, 1, larger.id, 7)
    assert load_superseded(topics) == {smaller.id: larger.id}


@pytest.fixture
def split_topics(topics: Pipeline) -> Pipeline:
    """Project with a pattern of four memories whose group was split into two groups."""
    topics.add([note("fifth", FIFTH), note("sixth", "Refuse a webhook with a signature of yesterday.")])
    topics.configure(**OPTIONS, summarize=False)
    topics.run()
    topics.configure(**OPTIONS)
    replace_pattern_groups(topics, memory_ids("hook", 4), memory_ids("move", 3))
    assert run_patterns_phase(topics).created == 2
    one, two, three, four = memory_ids("hook", 4)
    fifth, sixth = (note_id(name) for name in ("fifth", "sixth"))
    replace_pattern_groups(topics, [one, two, fifth], [three, four, sixth], memory_ids("move", 3))
    return topics


def test_pattern_of_split_group_is_superseded_once(split_topics: Pipeline) -> None:
    old, moves = list_patterns(split_topics)
    done = run_patterns_phase(split_topics)
    assert (done.created, done.updated, done.superseded, done.covered) == (2, 0, 1, 1)
    new = sorted(row.id for row in list_patterns(split_topics) if row.id != moves.id)
    assert load_superseded(split_topics) == {old.id: new[0]}
    recorded = count_changes(split_topics)
    again = run_patterns_phase(split_topics)
    assert (again.created, again.superseded, again.covered, count_changes(split_topics)) == (0, 0, 3, recorded)


def test_rollback_restores_superseded_pattern(split_topics: Pipeline) -> None:
    old, moves = list_patterns(split_topics)
    run_patterns_phase(split_topics)
    group = split_topics.last_group(entity=old.id)
    split_topics.roll_back(group)
    assert (len(list_patterns(split_topics)), load_superseded(split_topics)) == (4, {})
    assert (run_patterns_phase(split_topics).superseded, load_superseded(split_topics)) == (0, {})
    job = split_topics.value("SELECT job_id FROM {s}.consolidation_changes WHERE group_id = :group", group=group)
    split_topics.roll_back(job)
    assert {row.id for row in list_patterns(split_topics)} == {old.id, moves.id}


def test_pinned_pattern_is_not_superseded(split_topics: Pipeline) -> None:
    old, _ = list_patterns(split_topics)
    pin_memories(split_topics.engine, [old.id], pinned=True, changed_by="tester")
    assert run_patterns_phase(split_topics).superseded == 0
    pin_memories(split_topics.engine, [old.id], pinned=False, changed_by="tester")
    assert run_patterns_phase(split_topics).superseded == 1
    assert old.id in load_superseded(split_topics)


def test_pattern_with_unique_memory_stays(split_topics: Pipeline) -> None:
    old, _ = list_patterns(split_topics)
    one, two, *_ = memory_ids("hook", 4)
    replace_pattern_groups(split_topics, [one, two, note_id("fifth")], memory_ids("move", 3))
    done = run_patterns_phase(split_topics)
    assert (done.created, done.superseded) == (1, 0)
    assert old.id in {row.id for row in list_patterns(split_topics)}


def test_unchanged_patterns_read_no_texts(topics: Pipeline) -> None:
    run_topics(topics)
    with topics.open() as run, run.phase("patterns"), record_statements(topics.engine) as statements:
        assert derive_patterns(run).covered == 2
    assert statements
    assert not [statement for statement in statements if "execution_summary" in statement]


def test_rollback_of_job_allows_same_patterns_again(topics: Pipeline) -> None:
    done = run_topics(topics)
    before = [(row.id, row.content) for row in list_patterns(topics)]
    undone = topics.roll_back(done.job_id)
    assert undone.memories_deleted == 2
    assert list_patterns(topics) == []
    assert topics.value("SELECT count(*) FROM {s}.memory_lineage") == 0
    topics.run()
    assert [(row.id, row.content) for row in list_patterns(topics)] == before


def test_rollback_of_growth_restores_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    (before, _), edges = (
        list_patterns(topics),
        topics.rows("SELECT * FROM {s}.memory_lineage ORDER BY child_id, parent_id"),
    )
    topics.add([note("fifth", FIFTH)])
    topics.roll_back(topics.run().job_id)
    assert (list_patterns(topics)[0].content, list_patterns(topics)[0].version) == (before.content, before.version)
    assert topics.rows("SELECT * FROM {s}.memory_lineage ORDER BY child_id, parent_id") == edges


def test_rollback_of_merge_needs_pattern_cascade(topics: Pipeline) -> None:
    topics.add([note("again", REPEATED)])
    topics.run()
    (merge,) = topics.rows("SELECT DISTINCT group_id FROM {s}.consolidation_changes WHERE operation = 'merge'")
    with pytest.raises(ConflictError, match="pattern"):
        topics.roll_back(merge.group_id)
    topics.roll_back(merge.group_id, cascade=True)
    assert [row.source_count for row in list_patterns(topics)] == [3]


def test_pattern_rolled_back_alone_is_not_recreated(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, moves = list_patterns(topics)
    group = topics.last_group(entity=hooks.id)
    undone = topics.roll_back(group)
    assert [row.id for row in list_patterns(topics)] == [moves.id]
    assert topics.run().patterns.created == 0
    topics.roll_back(undone.rollback_id)
    assert {row.id for row in list_patterns(topics)} == {hooks.id, moves.id}


def test_changed_group_recreates_rolled_back_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, _ = list_patterns(topics)
    topics.roll_back(topics.last_group(entity=hooks.id))
    topics.add([note("fifth", FIFTH)])
    assert topics.run().patterns.created == 1
    assert [row.source_count for row in list_patterns(topics)] == [5, 3]


def test_reason_of_a_pattern_counts_raw_memories(topics: Pipeline) -> None:
    topics.add([note("again", f"Note to self: {WEBHOOKS[0]}")])
    topics.run()
    reasons = {
        row.reason for row in topics.rows("SELECT reason FROM {s}.consolidation_changes WHERE operation = 'pattern'")
    }
    counts = sorted(row.source_count for row in list_patterns(topics))
    assert f"what {counts[-1]} memories have in common, {counts[-1] - 1} without near-duplicates" in reasons
    assert f"what {counts[0]} memories have in common" in reasons


def test_no_patterns_with_summarize_switched_off(topics: Pipeline) -> None:
    topics.configure(**OPTIONS, summarize=False)
    done = topics.run()
    assert (done.patterns.groups, list_patterns(topics)) == (0, [])


def test_patterns_skip_group_with_archived_unit(topics: Pipeline) -> None:
    with topics.open() as run:
        run_phases(run, run.planned[: run.planned.index("merged_memories")])
    topics.write(
        "UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'gone' WHERE id = :i",
        i=memory_ids("hook", 4)[0],
    )
    done = topics.run_phases(["patterns", "decay_scores"])["patterns"]
    assert (done.created, done.changed) == (1, 1)
