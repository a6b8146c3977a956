"""Each check finds its violation, and nothing in a healthy project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.store.checks.catalogue import CHECKS
from consolidation_pipeline.store.checks.check import FindViolations, list_jobs_to_check
from consolidation_pipeline.store.database.schema import SCHEMA, consolidated_memories, task_memories
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.jobs.jobs import append_job
from consolidation_pipeline.store.ledger.ledger_writer import Change, update_rows
from consolidation_pipeline.store.memories.relevance import save_relevance
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.calibrations import Calibration, append_calibration
from consolidation_pipeline.store.similarity.clusters import ClusterMember, replace_clusters
from consolidation_pipeline.store.similarity.similarity_graph import MERGE, Neighbors, append_neighbors
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_merged,
    add_project,
    author,
    hide_sources,
    new_memory,
    save_unit_vectors,
    update_row,
)

# Checks that may be limited to what some jobs changed. The ledger does not hold vectors.
LIMITED = {check.name for check in CHECKS if check.by_ledger} - {"vectors_are_normalized"}
FINDERS = {check.name: check.find for check in CHECKS}

# (check, statement that violates the invariant, expected text in the finding)
RAW, MERGED = f"{SCHEMA}.task_memories", f"{SCHEMA}.consolidated_memories"
SCORES = f"{SCHEMA}.relevance_scores"
NEIGHBORS, CLUSTERS, LINEAGE = (f"{SCHEMA}.memory_{name}" for name in ("neighbors", "clusters", "lineage"))
SUMMARY = "kind = 'summary', abstraction_level = 2"
ENTRIES = f"{SCHEMA}.playbook_entries"
ENTRY = (
    f"INSERT INTO {ENTRIES} (project_id, content, content_hash, status, confidence, priority, source_id, "
    f"supporting_memory_ids) SELECT project_id, 'Do.', 'h', {{}} FROM {RAW} WHERE id = :a"
)
RELATIONS, RELATION = f"{SCHEMA}.memory_relations", "project_id, a_id, b_id, relation_type, confidence, status"
FORGOTTEN = "archive_reason = 'forgotten' WHERE id = :o"
SUGGESTION = (
    f"INSERT INTO {SCHEMA}.consolidation_suggestions (project_id, group_id, suggested_content, original_memory_ids, "
    f"original_versions, fingerprint, status, result_memory_id) SELECT project_id, 'g', 'Do.', ARRAY[id], '{{{{1}}}}', "
    f"gen_random_uuid()::text, {{}} FROM {RAW}"
)
# A run that kept users apart wrote the merged memory, and its sources are of two users.
CROSSING = (
    f"WITH j AS (UPDATE {SCHEMA}.consolidation_jobs SET options = jsonb_build_object('scope', 'user_id') RETURNING id)"
    f", l AS (UPDATE {LINEAGE} SET job_id = (SELECT id FROM j) WHERE child_id = :m) "
    f"UPDATE {RAW} SET user_id = 'ann' WHERE id = :a"
)
SOURCE_ROW = (
    f"WITH s AS (INSERT INTO {SCHEMA}.sources (project_id, name, config, mode) "
    f"SELECT project_id, 'shop', 'null', 'mirror' FROM {RAW} WHERE id = :a RETURNING id, project_id) "
    f"INSERT INTO {SCHEMA}.source_rows (project_id, source_id, key, memory_id, stamp, state) "
    f"SELECT project_id, id, 'key', {{}}, '', {{}} FROM s"
)
VIOLATIONS: list[tuple[str, str, str]] = [
    ("every_row_has_a_memory", SOURCE_ROW.format("gen_random_uuid()", "'mirrored'"), "shop key"),
    ("every_hidden_row_was_written", SOURCE_ROW.format(":b", "'hidden'"), "shop key"),
    ("no_memory_crosses_scopes", CROSSING, "{m}"),
    (
        "one_pending_suggestion_per_memory",
        SUGGESTION.format("'pending', NULL") + ", generate_series(1, 2) WHERE id = :a",
        "{a} 2",
    ),
    ("every_approval_made_a_memory", SUGGESTION.format("'validated', NULL") + " WHERE id = :a", "None"),
    ("every_approval_made_a_memory", SUGGESTION.format("'validated', gen_random_uuid()") + " WHERE id = :a", "-"),
    ("every_approval_made_a_memory", SUGGESTION.format("'rejected', CAST(:m AS uuid)") + " WHERE id = :a", "{m}"),
    ("no_memory_is_from_the_future", f"UPDATE {RAW} SET learned_at = now() + interval '2 days' WHERE id = :c", "{c}"),
    (
        "every_memory_is_embedded",
        f"UPDATE {RAW} SET embedding = NULL, embedding_model = NULL, embedding_dim = NULL WHERE id = :a",
        "{a}",
    ),
    ("one_embedding_model", f"UPDATE {RAW} SET embedding_model = 'other' WHERE id = :c", "other 1"),
    ("vectors_are_normalized", f"UPDATE {RAW} SET embedding = '[1,1,0]' WHERE id = :c", "{c}"),
    ("pairs_are_cosines", f"UPDATE {NEIGHBORS} SET similarities = ARRAY[1.5]", "1.5"),
    ("pairs_are_cosines", f"UPDATE {NEIGHBORS} SET similarities = ARRAY['NaN'::real]", "nan"),
    (
        "pairs_are_cosines",
        f"UPDATE {NEIGHBORS} SET neighbor_ids = ARRAY['ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid]",
        "ffffffff",
    ),
    (
        "evidence_points_to_units",
        f"UPDATE {MERGED} SET kind = 'pattern', abstraction_level = 2, "
        "details = jsonb_build_object('evidence', jsonb_build_array(jsonb_build_object('unit', CAST(:c AS text)))) "
        "WHERE id = :m",
        "{m} {c}",
    ),
    (
        "one_pattern_per_group",
        f"UPDATE {MERGED} SET kind = 'pattern', abstraction_level = 2, cluster_key = 'one', retired_at = NULL, "
        "archive_reason = NULL",
        "pattern one",
    ),
    (
        "merge_groups_do_not_chain",
        f"UPDATE {CLUSTERS} SET details = '{{\"weakest_new_pair\": 0.5}}' WHERE tier = 'merge'",
        "one 0.5",
    ),
    (
        "one_merge_group_per_memory",
        f"INSERT INTO {CLUSTERS} (project_id, tier, cluster_key, member_id, member_kind, is_representative) "
        f"SELECT project_id, 'merge', 'two', id, 'raw', true FROM {RAW} WHERE id = :a",
        "{a} 2",
    ),
    ("no_memory_is_abandoned", f"UPDATE {MERGED} SET retired_at = now() WHERE id = :m", "{a}"),
    ("no_memory_is_abandoned", f"UPDATE {MERGED} SET retired_at = now(), superseded_by_id = id WHERE id = :m", "{a}"),
    (
        "no_memory_is_abandoned",
        f"UPDATE {MERGED} SET retired_at = now(), superseded_by_id = CASE id WHEN :m THEN CAST(:n AS uuid) END",
        "{a}",
    ),
    ("no_memory_is_abandoned", f"UPDATE {MERGED} SET archive_reason = NULL WHERE id = :o", "{e}"),
    ("lineage_is_whole", f"UPDATE {LINEAGE} SET parent_id = gen_random_uuid() WHERE parent_id = :a", "{m}"),
    ("lineage_is_whole", f"UPDATE {LINEAGE} SET child_id = gen_random_uuid() WHERE parent_id = :a", "{a}"),
    ("no_fact_twice", f"UPDATE {MERGED} SET normalized_hash = 'same'", "2"),
    ("no_literal_is_lost", f"UPDATE {MERGED} SET content = 'Retry after some seconds.' WHERE id = :m", "{m}"),
    ("no_literal_is_lost", f"UPDATE {RAW} SET execution_summary = 'Retry after 3' WHERE id = :a", "{m} number 3"),
    ("relevance_is_positive", f"DELETE FROM {SCORES} WHERE memory_id = :c", "{c}"),
    ("relevance_is_positive", f"UPDATE {SCORES} SET relevance_score = 'NaN' WHERE memory_id = :c", "{c}"),
    ("relevance_is_positive", f"UPDATE {SCORES} SET relevance_score = 0 WHERE memory_id = :m", "{m}"),
    ("relevance_is_positive", f"UPDATE {SCORES} SET relevance_score = 'Infinity' WHERE memory_id = :m", "{m}"),
    ("every_merge_is_in_the_ledger", f"UPDATE {MERGED} SET version = 9 WHERE id = :m", "{m}"),
    ("sources_add_up", f"UPDATE {MERGED} SET source_count = 3 WHERE id = :m", "{m}"),
    ("no_decision_is_forgotten", f"UPDATE {RAW} SET memory_type = 'decision' WHERE id = :d", "{d} decision"),
    ("no_decision_is_forgotten", f"UPDATE {RAW} SET memory_type = 'discovery' WHERE id = :d", "{d} discovery"),
    ("no_decision_is_forgotten", f"UPDATE {MERGED} SET memory_type = 'decision', {FORGOTTEN}", "{o}"),
    (
        "nothing_young_is_forgotten",
        f"UPDATE {RAW} SET learned_at = learned_at + interval '1 second' WHERE id = :d",
        "{d}",
    ),
    (
        "nothing_young_is_forgotten",
        f"UPDATE {MERGED} SET learned_at = retired_at - interval '89 days', {FORGOTTEN}",
        "{o}",
    ),
    ("nothing_important_is_forgotten", f"UPDATE {RAW} SET importance = 0.7 WHERE id = :d", "{d} 0.7"),
    ("nothing_relevant_is_forgotten", f"UPDATE {SCORES} SET relevance_score = 0.01 WHERE memory_id = :d", "{d} 0.01"),
    ("nothing_pinned_is_archived", f"UPDATE {RAW} SET pinned = true WHERE id = :d", "{d} forgotten"),
    ("nothing_pinned_is_archived", f"UPDATE {MERGED} SET pinned = true WHERE id = :o", "{o} staleness"),
    ("every_archive_has_a_reason", f"UPDATE {RAW} SET archive_reason = NULL WHERE id = :d", "{d}"),
    ("every_archive_has_a_reason", f"UPDATE {RAW} SET archive_reason = 'staleness' WHERE id = :c", "{c}"),
    ("every_archive_has_a_reason", f"UPDATE {MERGED} SET retired_at = now() WHERE id = :n", "{n}"),
    (
        "every_archive_has_a_reason",
        f"UPDATE {MERGED} SET kind = 'pattern', abstraction_level = 2, retired_at = now() WHERE id = :n",
        "{n}",
    ),
    (
        "relations_have_two_ends",
        f"INSERT INTO {RELATIONS} ({RELATION}) SELECT project_id, id, 'ffffffff-ffff-ffff-ffff-ffffffffffff', "
        f"'explains', 0.7, 'confirmed' FROM {RAW} WHERE id = :a",
        "ffffffff",
    ),
    (
        "relations_have_two_ends",
        f"DO $$ BEGIN ALTER TABLE {RELATIONS} DROP CONSTRAINT memory_relations_distinct_check; INSERT INTO {RELATIONS} "
        f"({RELATION}) SELECT project_id, id, id, 'explains', 0.7, 'confirmed' FROM {RAW}; END $$",
        "{a}",
    ),
    (
        "candidates_do_not_count",
        f"INSERT INTO {RELATIONS} ({RELATION}) "
        f"SELECT project_id, id, :c, 'contradicts', 0.6, 'confirmed' FROM {RAW} WHERE id = :a",
        "contradicts",
    ),
    (
        "newer_supersedes_older",
        f"INSERT INTO {RELATIONS} ({RELATION}) "
        f"SELECT project_id, id, :c, 'supersedes', 0.9, 'confirmed' FROM {RAW} WHERE id = :a",
        "2",
    ),
    (
        "every_episode_is_in_its_summary",
        f"UPDATE {MERGED} SET {SUMMARY}, source_memory_ids = ARRAY[CAST(:c AS uuid)] WHERE id = :n",
        "{c} {n}",
    ),
    (
        "every_episode_is_in_its_summary",
        f"UPDATE {MERGED} SET {SUMMARY}, source_memory_ids = '{{}}' WHERE id = :m",
        "{a} {m}",
    ),
    (
        "every_episode_is_in_its_summary",
        f"WITH l AS (INSERT INTO {LINEAGE} (project_id, child_id, parent_id, parent_kind) "
        f"SELECT project_id, :n, id, 'raw' FROM {RAW} WHERE id = :a) "
        f"UPDATE {MERGED} SET {SUMMARY}, source_memory_ids = CASE WHEN id = :n THEN ARRAY[CAST(:a AS uuid)] "
        "ELSE source_memory_ids END WHERE id IN (:m, :n)",
        "{a}",
    ),
    (
        "profiles_rest_on_summaries",
        f"UPDATE {MERGED} SET kind = 'procedural', abstraction_level = 3 WHERE id = :m",
        "{m}",
    ),
    ("every_entry_has_evidence", ENTRY.format("'active', 0.9, 95, NULL, ARRAY[:a, :b, :a]::uuid[]"), "-"),
    (
        "evidence_is_of_the_project",
        ENTRY.format("'review', NULL, 50, NULL, ARRAY[:a, 'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]"),
        "ffffffff",
    ),
    ("priority_follows_evidence", ENTRY.format("'review', 0.9, 94, NULL, ARRAY[:a, :b, :c, :m]::uuid[]"), "94"),
    ("priority_follows_evidence", ENTRY.format("'retired', NULL, 49, NULL, '{}'"), "49"),
    (
        "one_entry_per_source",
        ENTRY.format("'active', 0.9, 95, :m, ARRAY[:a, :b, :c]::uuid[]") + " OR id = :b",
        "{m} 2",
    ),
]


@pytest.fixture
def ids(connection: Connection, project: Project) -> dict[str, UUID]:
    """Ids of a healthy project: ``a`` and ``b`` are merged into ``m``, ``c`` is active, ``n`` has no sources.

    ``d`` is forgotten, just old enough; ``e`` is merged into ``o``, which is stale.
    """
    bodies = {
        "a": "Retry after 30 seconds.",
        "b": "Retry after 30 seconds!",
        "c": "Use v2.",
        "d": "Old.",
        "e": "Unused.",
    }
    times = {"d": {"learned_at": NOW - timedelta(days=90)}}
    rows = [new_memory(key, execution_summary=body, **times.get(key, {})) for key, body in bodies.items()]
    raw = add_memories(connection, project, rows)
    save_unit_vectors(connection, raw)
    m = add_merged(connection, project, "Retry after 30 seconds.", raw[:2], seed=4)
    n = add_merged(connection, project, "Alone.", [], seed=5)
    o = add_merged(connection, project, "Unused.", [raw[4]], seed=6)
    hide_sources(connection, project, raw[:2], m)
    hide_sources(connection, project, raw[4:], o)
    job = append_job(
        connection, project.id, trigger_type="manual", triggered_by="test", options={"forget_threshold": 0.01}
    )
    phases = (
        "UPDATE consolidation.consolidation_jobs SET started_at = now(), phases_completed = :phases WHERE id = :job"
    )
    connection.execute(text(phases), {"job": job, "phases": ["embedding_matrix", "decay_scores"]})
    by = author(project, job)
    forgotten = {"archived_at": NOW, "archive_reason": "forgotten"}
    update_rows(connection, by, task_memories, [Change(raw[3], uuid4(), forgotten, 1)], operation="archive")
    stale = {"retired_at": NOW, "archive_reason": "staleness"}
    update_rows(connection, by, consolidated_memories, [Change(o, uuid4(), stale, 1)], operation="archive")
    save_relevance(connection, "task_memories", to_ids(raw[2:4]), np.array([0.5, 0.005]), NOW)
    save_relevance(connection, "consolidated_memories", to_ids([m, n]), np.array([0.5, 2.0]), NOW)
    low, high = sorted(raw[:2])
    pair = Neighbors(to_ids([low]), to_ids([high]), np.array([0.97], np.float32), np.array([MERGE], np.int16))
    append_neighbors(connection, project.id, MODEL, [pair])
    append_calibration(connection, project.id, MODEL, Calibration(1, None, {"t_merge": 0.95}, 3))
    details = {"weakest_new_pair": 0.95}
    members = [ClusterMember("merge", "one", id_, "raw", 0.97, id_ == raw[0], details) for id_ in raw[:2]]
    replace_clusters(connection, project.id, None, members)
    return dict(zip("abcde", raw, strict=True)) | {"m": m, "n": n, "o": o}


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize("finder", FINDERS.values(), ids=FINDERS)
def test_healthy_project_passes_every_check(connection: Connection, project: Project, finder: FindViolations) -> None:
    assert finder(connection, project.id) == []


def test_every_check_has_test_violation() -> None:
    assert {name for name, _, _ in VIOLATIONS} == FINDERS.keys()


@pytest.mark.parametrize(("name", "statement", "expected"), VIOLATIONS)
def test_violation_is_found_in_its_project_only(
    connection: Connection, project: Project, ids: dict[str, UUID], name: str, statement: str, expected: str
) -> None:
    other = add_project(connection, "other")
    parameters = {key: value for key, value in ids.items() if f":{key}" in statement}
    connection.execute(text(statement), parameters)
    found = FINDERS[name](connection, project.id)
    assert found
    assert expected.format(**ids) in "\n".join(found)
    assert FINDERS[name](connection, other.id) == []


@pytest.mark.parametrize(
    ("name", "statement"), [(name, done) for name, done, _ in VIOLATIONS if name in LIMITED and ":m" in done]
)
def test_limited_check_looks_at_changes_of_its_jobs(
    connection: Connection, project: Project, ids: dict[str, UUID], name: str, statement: str
) -> None:
    connection.execute(text(statement), {key: value for key, value in ids.items() if f":{key}" in statement})
    job, other = uuid4(), uuid4()
    version = connection.scalar(text(f"SELECT version FROM {MERGED} WHERE id = :m"), {"m": ids["m"]})
    changes = [Change(ids["m"], uuid4(), {"pinned": True}, version)]
    update_rows(connection, author(project, job), consolidated_memories, changes, operation="edit")
    assert FINDERS[name](connection, project.id)
    assert FINDERS[name](connection, project.id, jobs=[other, job])
    assert FINDERS[name](connection, project.id, jobs=[other]) == []


def test_first_whole_run_of_a_week_checks_all_rows(connection: Connection, project: Project) -> None:
    monday = datetime(2026, 3, 2, tzinfo=UTC)

    def add(name: str, at: datetime, status: str, phases: list[str]) -> UUID:
        job = append_job(connection, project.id, trigger_type="manual", triggered_by="test", options={})
        values = {"job": job, "run": name, "at": at, "status": status, "phases": phases}
        connection.execute(
            text(
                f"UPDATE {SCHEMA}.consolidation_jobs SET dagster_run_id = :run, started_at = :at, status = :status, "
                "phases_completed = :phases WHERE id = :job"
            ),
            values,
        )
        return job

    add("before", monday - timedelta(hours=1), "completed", ["clusters", "report"])
    add("first", monday + timedelta(hours=1), "completed", ["clusters", "report"])
    add("part", monday + timedelta(hours=2), "completed", ["clusters"])
    failed = add("failed", monday + timedelta(days=1), "failed", ["clusters"])
    third = add("third", monday + timedelta(days=2), "running", [])
    part = connection.scalar(text(f"SELECT id FROM {SCHEMA}.consolidation_jobs WHERE dagster_run_id = 'part'"))
    listed = {
        run: list_jobs_to_check(connection, project.id, run, ["clusters", "report"])
        for run in ("first", "third", "none")
    }
    assert listed["first"] is None
    assert listed["none"] is None
    assert {*(listed["third"] or ())} == {part, failed, third}


def test_empty_project_passes_every_check(connection: Connection) -> None:
    empty = add_project(connection, "empty")
    assert [finder(connection, empty.id) for finder in FINDERS.values()] == [[]] * len(FINDERS)


def test_dropped_literal_is_not_lost(connection: Connection, project: Project) -> None:
    (raw,) = add_memories(connection, project, [new_memory("a", execution_summary="Retry. Wait 30 seconds.")])
    merged = add_merged(connection, project, "Retry.", [raw], details={"dropped": ["Wait 30 seconds."]})
    hide_sources(connection, project, [raw], merged)
    assert FINDERS["no_literal_is_lost"](connection, project.id) == []


def test_superseded_memory_with_successor_is_not_lost(
    connection: Connection, project: Project, ids: dict[str, UUID]
) -> None:
    statement = f"UPDATE {MERGED} SET retired_at = now(), superseded_by_id = :by WHERE id = :id"
    third = add_merged(connection, project, "third", [])
    connection.execute(text(statement), {"id": ids["m"], "by": ids["n"]})
    assert FINDERS["no_memory_is_abandoned"](connection, project.id) == []
    connection.execute(text(statement), {"id": ids["n"], "by": third})
    assert FINDERS["no_memory_is_abandoned"](connection, project.id) == []


@pytest.mark.parametrize(
    ("name", "values", "statement"),
    [
        ("nothing_important_is_forgotten", {"importance": 0.9}, f"UPDATE {RAW} SET importance = 0.9 WHERE id = :d"),
        ("nothing_pinned_is_archived", {"pinned": True}, f"UPDATE {RAW} SET pinned = true WHERE id = :d"),
    ],
)
def test_manual_edit_of_archived_memory_is_no_violation(
    connection: Connection, project: Project, ids: dict[str, UUID], name: str, values: dict[str, object], statement: str
) -> None:
    """The same holds if retention removed the ledger rows of that time."""
    find = FINDERS[name]
    with connection.begin_nested() as savepoint:
        connection.execute(text(statement), {"d": ids["d"]})
        assert find(connection, project.id) != []
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"DELETE FROM {SCHEMA}.consolidation_changes"))
        assert find(connection, project.id) == []
        savepoint.rollback()
    update_row(connection, project, task_memories, ids["d"], 2, **values)
    assert find(connection, project.id) == []


def test_relevance_after_archiving_is_ignored(connection: Connection, project: Project, ids: dict[str, UUID]) -> None:
    for later, found in ((timedelta(0), 1), (timedelta(seconds=1), 0)):
        save_relevance(connection, "task_memories", to_ids([ids["d"]]), np.array([0.5]), NOW + later)
        assert len(FINDERS["nothing_relevant_is_forgotten"](connection, project.id)) == found


def test_relevance_check_uses_threshold_of_its_job(
    connection: Connection, project: Project, ids: dict[str, UUID]
) -> None:
    save_relevance(connection, "task_memories", to_ids([ids["d"]]), np.array([0.3]), NOW)
    assert len(FINDERS["nothing_relevant_is_forgotten"](connection, project.id)) == 1
    connection.execute(text(f"UPDATE {SCHEMA}.consolidation_jobs SET options = '{{\"forget_threshold\": 0.31}}'"))
    assert FINDERS["nothing_relevant_is_forgotten"](connection, project.id) == []
