"""Comparable dumps of the tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from consolidation_pipeline.store.database.schema import SCHEMA, metadata
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

TABLES = tuple(table.name for table in metadata.sorted_tables)

# Tables of runs, calls and keys.
BOOKKEEPING = {"projects", "consolidation_jobs", "consolidation_events", "llm_calls", "api_keys"}
# Tables that a run recomputes from the memories.
CACHES = {
    *("memory_neighbors", "compared_memories", "memory_clusters", "similarity_calibrations", "grouping_embeddings"),
    *("pair_judgements", "relevance_scores", "compared_scopes", "grouped_scopes", "recall_answers"),
    *("discarded_groups", "compared_sentences", "supersession_answers"),
}
CACHED_COLUMNS = {"embedding", "embedding_model", "embedding_dim"}
# Columns that differ between equal runs.
ACCIDENTAL = {
    "project_id",
    "job_id",
    "group_id",
    "seq",
    "created_at",
    "updated_at",
    "changed_at",
    "relevance_at",
    "relevance_score",
}


def dump_tables(
    pipeline: Pipeline, *, tables: Collection[str] = TABLES, without: Mapping[str, Collection[str]] | None = None
) -> dict[str, list[str]]:
    """Return every row of the tables as sorted JSON; ``without``: omitted columns by table."""
    hidden = without or {}
    found = {}
    for table in tables:
        rows = pipeline.rows(f"SELECT to_jsonb(t) FROM {SCHEMA}.{table} t")
        left_out = set(hidden.get(table, ()))
        found[table] = sorted(_canonical({k: v for k, v in row[0].items() if k not in left_out}) for row in rows)
    return found


def compute_checksums(pipeline: Pipeline) -> list[tuple[str, int, int]]:
    """Return number of rows and checksum of every table, by name. Postgres may read the tables in any order."""
    counted = "count(*), coalesce(sum(hashtextextended(t::text, 0)), 0)"
    query = " UNION ALL ".join(f"SELECT '{name}', {counted} FROM {SCHEMA}.{name} t" for name in TABLES)
    return sorted(tuple(row) for row in pipeline.rows(query))


def dump_knowledge(pipeline: Pipeline) -> dict[str, list[str]]:
    """Dump all that a rollback must restore exactly: no bookkeeping, ledger or caches."""
    tables = [name for name in TABLES if name not in BOOKKEEPING | CACHES | {"consolidation_changes"}]
    return dump_tables(pipeline, tables=tables, without={"task_memories": CACHED_COLUMNS})


def dump_comparable(pipeline: Pipeline, slug: str = SLUG) -> dict[str, list[str]]:
    """Dump a project's rows without columns that differ between equal runs."""
    project = pipeline.project(slug).id
    found = {}
    for table in TABLES:
        if table not in BOOKKEEPING:
            rows = pipeline.rows(f"SELECT to_jsonb(t) FROM {SCHEMA}.{table} t WHERE project_id = :p", p=project)
            accidental = {"id"} if table == "consolidation_changes" else set()
            found[table] = sorted(_canonical(_stripped(row[0], ACCIDENTAL | accidental)) for row in rows)
    return found


def count_rows(pipeline: Pipeline) -> dict[str, int]:
    """Count rows per table, without jobs and events."""
    names = [name for name in TABLES if name not in {"consolidation_jobs", "consolidation_events"}]
    return {name: pipeline.value(f"SELECT count(*) FROM {SCHEMA}.{name}") for name in names}


def _stripped(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(item, names) for key, item in value.items() if key not in names}
    return [_stripped(item, names) for item in value] if isinstance(value, list) else value


def _canonical(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)
