"""Scopes are walls: nothing is compared, merged or derived across them, and a change of the option is undoable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.manual_actions import restore_memories
from consolidation_pipeline_tests.service.corpus import STALE
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

LESSON = "Restart the payment worker after every change of its environment file, or it keeps the old credentials."
REWORDED = "Restart the payment worker after each change of its environment file, or it keeps the old credentials."
OPTIONS = {"t_merge": 0.9, "t_suggest": 0.8, "t_pattern": 0.5}


def note(name: str, text: str, user: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": name, "content": text, "memory_type": "learning", "user_id": user, **fields}


def list_merged(pipeline: Pipeline) -> list[tuple[str | None, int]]:
    """Return scope key and number of sources of each active merged memory."""
    query = """
        SELECT scope_key, source_count FROM {s}.consolidated_memories
        WHERE kind = 'merged' AND retired_at IS NULL ORDER BY 1, 2
    """
    return [tuple(row) for row in pipeline.rows(query)]


def snapshot(pipeline: Pipeline) -> list[Any]:
    """Return what a rollback restores: what hides each raw memory, and the active consolidated memories."""
    hidden = "SELECT id, consolidated_into_id FROM {s}.task_memories ORDER BY id"
    lineage = "SELECT child_id, parent_id FROM {s}.memory_lineage ORDER BY child_id, parent_id"
    derived = (
        "SELECT id, kind, scope_key, content, retired_at, archive_reason FROM {s}.consolidated_memories ORDER BY id"
    )
    entries = "SELECT id, status FROM {s}.playbook_entries ORDER BY id"
    return [row for query in (hidden, lineage, derived, entries) for row in pipeline.rows(query)]


def two_users() -> list[dict[str, Any]]:
    """Return notes of two users: each has an exact repeat and a rewording of one lesson."""
    return [
        note(f"{user}{number}", text, user)
        for user in ("ada", "bob")
        for number, text in enumerate((LESSON, LESSON, REWORDED))
    ]


def test_equal_memories_of_two_users_never_merge(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", LESSON, "ada"), note("b", LESSON, "bob"), note("c", REWORDED, "cleo")])
    outcome = pipeline.run()
    assert (outcome.graph.pairs_added, outcome.merging.absorbed, outcome.clusters.contents) == (0, 0, 3)
    assert pipeline.rows("SELECT 1 FROM {s}.memory_clusters") == []


def test_users_have_merged_memories_of_their_own(pipeline: Pipeline) -> None:
    pipeline.consolidate(two_users(), **OPTIONS)
    assert list_merged(pipeline) == [("ada", 3), ("bob", 3)]


def test_project_scope_merges_users(pipeline: Pipeline) -> None:
    pipeline.consolidate(two_users(), **OPTIONS, scope="project")
    assert list_merged(pipeline) == [(None, 6)]


def test_memories_without_user_share_a_scope(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", LESSON), note("b", LESSON, ""), note("c", LESSON, "ada")])
    pipeline.run()
    assert list_merged(pipeline) == [("", 2)]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("agent_id", [("x", 2), ("y", 2)]),
        ("metadata.tenant", [("t", 3)]),
        ("user_id,agent_id", [("ada/x", 2), ("ada~1b/y", 2)]),
    ],
)
def test_scope_key_is_made_of_any_field(pipeline: Pipeline, scope: str, expected: list[tuple[str, int]]) -> None:
    pipeline.configure_new(**OPTIONS, scope=scope)
    pipeline.add(
        [
            note("a", LESSON, "ada", agent_id="x", metadata={"tenant": "t"}),
            note("b", LESSON, "ada", agent_id="x", metadata={"tenant": "t"}),
            note("c", LESSON, "ada/b", agent_id="y", metadata={"tenant": "t"}),
            note("d", LESSON, "ada/b", agent_id="y", metadata={"tenant": "u"}),
        ]
    )
    pipeline.run()
    assert list_merged(pipeline) == expected


def test_widening_is_planned_and_undone(pipeline: Pipeline) -> None:
    pipeline.consolidate(two_users(), **OPTIONS)
    before = snapshot(pipeline)
    pipeline.configure(**OPTIONS, scope="project")
    plan = pipeline.plan()
    assert (plan.calibration, [len(merge.sources) for merge in plan.merges], plan.walls) == ("options", [6], None)
    outcome = pipeline.run()
    assert list_merged(pipeline) == [(None, 6)]
    assert outcome.graph.rebuilt
    pipeline.roll_back(outcome.job_id, cascade=True)
    assert snapshot(pipeline) == before


def test_narrowing_is_planned_and_undone(pipeline: Pipeline) -> None:
    pipeline.consolidate(two_users(), **OPTIONS, scope="project")
    before = snapshot(pipeline)
    pipeline.configure(**OPTIONS)
    plan = pipeline.plan()
    assert [(one.kind, one.scopes) for one in plan.dissolved] == [("merged", 2)]
    assert [len(merge.sources) for merge in plan.merges] == [3, 3]
    assert plan.walls is not None
    assert (plan.walls.scopes, plan.walls.repeats) == (2, 2)
    outcome = pipeline.run()
    assert outcome.graph.walls.dissolved == 1
    assert outcome.graph.walls.shown == 6
    assert list_merged(pipeline) == [("ada", 3), ("bob", 3)]
    assert sorted(merge.id for merge in plan.merges) == sorted(
        row.id for row in pipeline.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NULL")
    )
    pipeline.roll_back(outcome.job_id, cascade=True)
    assert snapshot(pipeline) == before


def test_plan_archives_what_narrowing_shows_again(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, scope="project", archive=False)
    pipeline.add([note("a", LESSON, "ada", **STALE), note("b", LESSON, "bob", **STALE)])
    pipeline.run()
    pipeline.configure(**OPTIONS, archive_max_share=1.0)
    planned = {archive.id for archive in pipeline.plan().archives}
    assert planned == {note_id("a"), note_id("b")}
    pipeline.run()
    assert {row.id for row in pipeline.rows("SELECT id FROM {s}.task_memories WHERE is_archived")} == planned


@pytest.mark.slow
def test_narrowing_and_widening_again_restores_the_merge(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, scope="project")
    pipeline.add([note("a", LESSON, "ada"), note("b", LESSON, "bob"), *topic_notes(("ada", "bob"))])
    query = "SELECT id, kind, content FROM {s}.consolidated_memories WHERE retired_at IS NULL ORDER BY id"
    pipeline.run()
    shared = pipeline.rows(query)
    pipeline.configure(**OPTIONS)
    pipeline.run()
    assert ("merged", 1) not in [(row.kind, 1) for row in pipeline.rows(query) if LESSON in row.content]
    pipeline.configure(**OPTIONS, scope="project")
    pipeline.run()
    assert {row for row in shared if row.kind == "merged"} <= set(pipeline.rows(query))


def test_dissolved_memory_is_not_restored(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, scope="project")
    pipeline.add([note("a", LESSON, "ada"), note("b", LESSON, "bob")])
    pipeline.run()
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories")
    pipeline.configure(**OPTIONS)
    pipeline.run()
    reason = pipeline.value("SELECT archive_reason FROM {s}.consolidated_memories WHERE id = :id", id=merged)
    assert reason == "scope: its memories are of 2 scopes"
    with pytest.raises(ConflictError, match="was dissolved: memories behind it are of several scopes"):
        restore_memories(pipeline.engine, [merged], changed_by="tester")


@pytest.mark.slow
def test_summaries_and_profiles_follow_scopes(pipeline: Pipeline) -> None:
    notes = [
        note(f"{agent}{n}", f"Agent {agent} saw that step {n} of the import of orders takes {n + 3} minutes.", "ada")
        | {"agent_id": agent}
        for agent in ("x", "y")
        for n in range(25)
    ]
    query = "SELECT kind, scope_key FROM {s}.consolidated_memories WHERE kind IN ('summary', 'procedural') AND "
    query += "retired_at IS NULL ORDER BY 1, 2"
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes)
    pipeline.run_phases(["embedding_matrix", "semantic_summaries", "procedural_profile"], job="summarize")
    assert pipeline.rows(query) == [("procedural", "ada"), ("summary", "ada")]
    for scope, keys in (("agent_id", ["x", "y"]), ("user_id", ["ada"])):
        pipeline.configure(**OPTIONS, scope=scope)
        pipeline.run()
        pipeline.run_phases(["embedding_matrix", "semantic_summaries", "procedural_profile"], job="summarize")
        found = [row.scope_key for row in pipeline.rows(query) if row.kind == "procedural"]
        assert found == keys


@pytest.mark.slow
def test_narrowing_equals_a_new_project(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, scope="project")
    rows = [*two_users(), *topic_notes(("ada", "bob"))]
    pipeline.add(rows)
    pipeline.run()
    pipeline.configure(**OPTIONS)
    pipeline.run()
    query = """
        SELECT kind, scope_key, content, source_memory_ids FROM {s}.consolidated_memories
        WHERE retired_at IS NULL AND kind <> 'summary' ORDER BY 1, 2, 3
    """
    narrowed = pipeline.rows(query)
    pipeline.clear()
    pipeline.configure_new(**OPTIONS)
    pipeline.add(rows)
    pipeline.run()
    assert narrowed == pipeline.rows(query)


def topic_notes(users: Iterable[str]) -> list[dict[str, Any]]:
    """Return notes of each user on one topic, which make a pattern."""
    lessons = (
        "Rotate the signing key of the billing gateway before the certificate of the billing gateway expires.",
        "The billing gateway refuses requests when its signing key is older than the certificate it was made for.",
        "Keep the former signing key of the billing gateway for a day, as requests in flight are signed with it.",
        "A wrong signing key of the billing gateway shows up as error 401 in the log of the billing gateway.",
    )
    return [note(f"{user}-{n}", text, user) for user in users for n, text in enumerate(lessons)]


def test_patterns_do_not_cross_users(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(topic_notes(("ada", "bob")))
    pipeline.run()
    query = "SELECT scope_key, source_memory_ids FROM {s}.consolidated_memories WHERE kind = 'pattern' ORDER BY 1"
    patterns = pipeline.rows(query)
    assert [row.scope_key for row in patterns] == ["ada", "bob"]
    assert {note_id(f"ada-{n}") for n in range(4)} >= set(patterns[0].source_memory_ids)


def test_hdbscan_groups_within_scopes(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, cluster_method="hdbscan", merge=False)
    pipeline.add(topic_notes(("ada", "bob")))
    pipeline.run()
    groups = (
        "SELECT count(DISTINCT m.user_id) FROM {s}.memory_clusters c JOIN {s}.task_memories m ON m.id = c.member_id"
    )
    assert all(row[0] == 1 for row in pipeline.rows(f"{groups} GROUP BY c.tier, c.cluster_key"))


def test_new_memory_joins_its_own_scope(pipeline: Pipeline) -> None:
    pipeline.consolidate(two_users(), **OPTIONS)
    pipeline.add([note("later", LESSON, "bob"), note("other", LESSON, "cleo")])
    pipeline.run()
    assert list_merged(pipeline) == [("ada", 3), ("bob", 4)]


@pytest.mark.slow
def test_many_scopes_merge_each_for_itself(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(note(f"{user}-{n}", LESSON, f"user {user}") for user in range(300) for n in range(2))
    outcome = pipeline.run()
    assert (outcome.merging.created, outcome.merging.absorbed) == (300, 600)
