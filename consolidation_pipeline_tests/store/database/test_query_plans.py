"""Query plans of frequent statements: each uses an index in tables with many old rows.

The plans of search are tested in ``test_retrievers.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from hashlib import md5
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.store import projects
from consolidation_pipeline.store.admin import api_keys, monitoring
from consolidation_pipeline.store.checks.archives import EVERY_ARCHIVE_HAS_A_REASON
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.jobs import costs, event_outbox, jobs, llm_calls
from consolidation_pipeline.store.knowledge import abstractions, playbook, relations, summaries
from consolidation_pipeline.store.ledger import ledger_reader, lineage
from consolidation_pipeline.store.memories import embeddings, memories
from consolidation_pipeline.store.review import suggestions
from consolidation_pipeline.store.search import keyword_matches, search_hits
from consolidation_pipeline.store.similarity import clusters, similarity_graph
from consolidation_pipeline_tests.store.sample_rows import MODEL, new_memory

ID, NOW = UUID(int=7), datetime(2026, 1, 1, tzinfo=UTC)
PROJECT = UUID(md5(b"1").hexdigest())
# A memory in `OLD_ROWS`.
RANKED = search_hits.RankedMemory(PROJECT, 0.9, 0.5, None, None, None)
RunQuery = Callable[[Connection, UUID], Any]
HOT_QUERIES: Sequence[tuple[str, RunQuery, str]] = (
    (
        "memories by id",
        lambda c, _: search_hits.load_hits(c, [RANKED]),
        "task_memories_pkey consolidated_memories_pkey",
    ),
    ("sources by id", lambda c, _: search_hits.load_hit_sources(c, [ID]), "memory_lineage_pkey"),
    ("lineage down", lambda c, _: lineage.load_lineage(c, ID, depth=5), "memory_lineage_pkey"),
    (
        "lineage up",
        lambda c, _: lineage.load_derived(c, ID),
        "memory_lineage_parent_id_idx playbook_entries_source_id_idx playbook_entries_supporting_memory_ids_idx",
    ),
    (
        "imported before",
        lambda c, p: memories.append_memories(c, p, "p1", [(line, new_memory("a")) for line in (1, 2)]),
        "task_memories_pkey",
    ),
    (
        "to embed",
        lambda c, p: embeddings.reuse_embeddings(c, p, "task_memories", MODEL),
        "playbook_entries_embedded_content_idx",
    ),
    ("unsummarized", lambda c, p: summaries.count_unsummarized(c, p, NOW), "task_memories_language_idx"),
    ("neighbours", lambda c, p: similarity_graph.load_neighbors(c, p, MODEL, 0.5), "memory_neighbors_pkey"),
    ("groups", lambda c, p: clusters.load_clusters(c, p, "merge"), "memory_clusters_pkey"),
    ("languages", lambda c, p: keyword_matches.load_query_facts(c, p, "a", "english"), "task_memories_language_idx"),
    (
        "archived",
        EVERY_ARCHIVE_HAS_A_REASON.find,
        "task_memories_archived_idx consolidated_memories_archived_idx",
    ),
    (
        "restored rows",
        lambda c, p: abstractions.load_existing_rows(c, p, "pattern", scope="user_id"),
        "consolidation_changes_restored_idx",
    ),
    ("relations", lambda c, p: relations.count_relations(c, p), "memory_relations_project_id_idx"),
    ("playbook", lambda c, p: playbook.count_entries(c, p), "playbook_entries_project_id_idx"),
    ("live job", lambda c, p: jobs.find_live_job(c, p), "consolidation_jobs_live_idx"),
    ("live jobs", lambda c, _: jobs.list_live_jobs(c), "consolidation_jobs_live_idx"),
    ("unopened jobs", lambda c, _: jobs.list_cancelled_before_start(c, NOW), "consolidation_jobs_status_idx"),
    ("job of a run", lambda c, _: jobs.find_job_by_run(c, "r"), "consolidation_jobs_dagster_run_id_idx"),
    ("ended runs", lambda c, _: jobs.list_ended_runs(c, ["r"], died="d"), "consolidation_jobs_dagster_run_id_idx"),
    ("history", lambda c, p: jobs.list_jobs(c, p, limit=9), "consolidation_jobs_project_id_created_at_idx"),
    ("jobs that wait", lambda c, _: monitoring.load_waiting_work(c), "consolidation_jobs_live_idx"),
    ("changes", lambda c, p: ledger_reader.list_changes(c, p, limit=9), "consolidation_changes_project_id_seq_idx"),
    (
        "changes of a job",
        lambda c, _: ledger_reader.list_job_changes(c, ID, limit=9),
        "consolidation_changes_job_id_idx",
    ),
    ("suggestions", lambda c, p: suggestions.count_suggestions(c, p), "consolidation_suggestions_project_id_idx"),
    ("due event", lambda c, _: event_outbox.claim_event(c), "consolidation_events_undelivered_idx"),
    ("events waiting", lambda c, _: event_outbox.count_waiting_events(c), "consolidation_events_undelivered_idx"),
    ("events", lambda c, p: event_outbox.count_events(c, p), "consolidation_events_project_id_created_at_idx"),
    ("spent by a job", lambda c, _: llm_calls.sum_job_spending(c, ID), "llm_calls_job_id_idx"),
    ("spent today", lambda c, p: llm_calls.load_spent(c, p, ID), "llm_calls_project_id_created_at_idx"),
    ("spent", lambda c, p: costs.sum_costs(c, p, since=date(2026, 1, 1)), "llm_calls_project_id_created_at_idx"),
    ("replies", lambda c, p: llm_calls.load_replies(c, p, ID, ["h"]), "llm_calls_prompt_hash_idx"),
    ("key", lambda c, _: api_keys.find_key(c, "h"), "api_keys_key_hash_key"),
    ("project", lambda c, _: projects.get_project(c, "p1"), "projects_slug_key"),
)


ROWS = 2_000
# Old rows of 500 projects; few of their memories, jobs, events and suggestions are still open.
OLD_ROWS = (
    "projects (id, slug) SELECT md5(n::text)::uuid, 'p' || n FROM generate_series(1, 500) n",
    "task_memories (project_id, source, external_id, memory_type, execution_summary, content_hash, normalized_hash, "
    "archived_at) SELECT {project}, 'test', n::text, 'learning', 'a', n::text, n::text, "
    "CASE WHEN n % 5 > 0 THEN {then} END FROM {n}",
    "consolidated_memories (id, project_id, kind, abstraction_level, content, memory_type, content_hash, "
    "normalized_hash) SELECT md5(n::text)::uuid, {project}, 'merged', 1, 'a', 'learning', n::text, n::text FROM {n}",
    "memory_lineage (project_id, child_id, parent_id, parent_kind) "
    "SELECT {project}, md5(n::text)::uuid, gen_random_uuid(), 'raw' FROM {n}",
    "memory_neighbors (project_id, embedding_model, memory_id, neighbor_ids, similarities, verdicts) "
    "SELECT {project}, 'local:test', gen_random_uuid(), ARRAY[gen_random_uuid()], ARRAY[0.9], ARRAY[2] FROM {n}",
    "memory_clusters (project_id, tier, cluster_key, member_id, member_kind, is_representative) "
    "SELECT {project}, 'merge', n::text, gen_random_uuid(), 'raw', true FROM {n}",
    "memory_relations (project_id, a_id, b_id, relation_type, confidence, status) "
    "SELECT {project}, gen_random_uuid(), gen_random_uuid(), 'explains', 0.7, 'confirmed' FROM {n}",
    "playbook_entries (project_id, content, content_hash, source_id, supporting_memory_ids) "
    "SELECT {project}, 'a', n::text, gen_random_uuid(), ARRAY[gen_random_uuid()] FROM {n}",
    "consolidation_suggestions (project_id, group_id, status, suggested_content, original_memory_ids, "
    "original_versions, fingerprint) SELECT {project}, n::text, 'rejected', 'a', '{{}}', '{{}}', n::text FROM {n}",
    "consolidation_jobs (project_id, status, trigger_type, dagster_run_id, created_at) "
    "SELECT {project}, 'completed', 'scheduled', n::text, {then} FROM {n}",
    "consolidation_changes (project_id, job_id, group_id, operation, entity_type, entity_id, new_state, changed_at) "
    "SELECT {project}, gen_random_uuid(), gen_random_uuid(), 'merge', 'task_memories', gen_random_uuid(), '{{}}', "
    "{then} FROM {n}",
    "llm_calls (project_id, job_id, purpose, model, prompt_hash, status, created_at) "
    "SELECT {project}, gen_random_uuid(), 'a', 'm', n::text, 'settled', {then} FROM {n}",
    "consolidation_events (project_id, type, payload, created_at, delivered_at) "
    "SELECT {project}, 'a', '{{}}', {then}, {then} FROM {n}",
    "api_keys (name, key_hash, role) SELECT 'a', n::text, 'reader' FROM {n}",
)
SQL_TERMS = {
    "n": f"generate_series(1, {ROWS}) n",
    "project": "md5((1 + n % 500)::text)::uuid",
    "then": "now() - n * interval '1 hour'",
    "ZERO": "'00000000-0000-0000-0000-000000000000'",
}


@pytest.fixture(scope="module")
def old_rows(shared_engine: Engine) -> Iterator[Connection]:
    """Connection in an uncommitted transaction with old rows in the tables."""
    with shared_engine.connect() as connection:
        for rows in OLD_ROWS:
            connection.execute(text(f"INSERT INTO {SCHEMA}.{rows.format(**SQL_TERMS)}"))
            connection.execute(text(f"ANALYZE {SCHEMA}.{rows.partition(' ')[0]}"))
        # These rows fit a few pages, for which Postgres prefers a sequential scan.
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        yield connection


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Statements sent to the driver, with their parameters."""
    sent: list[tuple[str, Any]] = []
    execute = psycopg.Cursor.execute

    def record(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
        sent.append((str(query), params))
        return execute(cursor, query, params, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    return sent


@pytest.mark.parametrize(("run", "indexes"), [pytest.param(run, names, id=name) for name, run, names in HOT_QUERIES])
def test_hot_query_uses_index(old_rows: Connection, sent: list[tuple[str, Any]], run: RunQuery, indexes: str) -> None:
    run(old_rows, PROJECT)
    own = [(query, params) for query, params in sent if "consolidation." in query and "TABLE" not in query]
    driver: Any = old_rows.connection.driver_connection
    plans = [driver.execute(f"EXPLAIN {query}", params).fetchall() for query, params in own]
    plan_text = "\n".join(line for plan in plans for (line,) in plan)
    used = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?(?:using|on) (\w+)", plan_text))
    assert set(indexes.split()) <= used, plan_text
