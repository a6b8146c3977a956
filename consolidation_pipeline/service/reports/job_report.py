"""Report of a job: a JSON document made from its row and the ledger, in an order that does not depend on the run.

Two reports are compared with ``diff``: one fact stands on one line, groups of changes are sorted by what they say, and
all that differs between any two runs, such as times and random ids, stands under ``run``. Texts are read from the
database when the report is made, so an erased text is in no later report.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.differences.pair_screen import RULES_VERSION
from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.jobs.change_set import build_change_set
from consolidation_pipeline.service.lineage.memory_lineage import trace_group
from consolidation_pipeline.service.runs.phases import read_scope
from consolidation_pipeline.store.checks import memories
from consolidation_pipeline.store.checks.catalogue import CHECKS
from consolidation_pipeline.store.checks.check import find_violations
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.jobs import require_job
from consolidation_pipeline.store.jobs.llm_calls import sum_job_spending
from consolidation_pipeline.store.ledger.job_changes import (
    JobChange,
    fingerprint_inputs,
    iter_job_groups,
    load_raw_texts,
)
from consolidation_pipeline.store.review.memory_tests import load_memory_tests

FORMAT = "consolidation-run-report/1"

# Columns with the text of a row.
_TEXTS = {
    "consolidated_memories": "content",
    "playbook_entries": "content",
    "consolidation_suggestions": "suggested_content",
}
# Columns of a new row that are shown. Of a changed row, all that changed are.
_FACTS = {
    "consolidated_memories": ("kind", "memory_type", "user_id"),
    "playbook_entries": ("category", "priority", "status"),
    "memory_relations": ("relation_type", "status", "a_id", "b_id"),
    "consolidation_suggestions": ("status",),
}
# What follows from other columns, is a copy, or is a time.
_LEFT_OUT = {"lineage", "details", "version", "content_hash", "embedding_model", "embedding_dim", "key_terms"}
# Fields of a job's metrics that are no phase.
_NOTICES = ("stopped", "failing", "refused_by_tests")
# These hold about memories that nobody has run over yet, or about the input.
_NOT_CHECKED = {
    memories.EVERY_MEMORY_IS_EMBEDDED,
    memories.RELEVANCE_IS_POSITIVE,
    memories.ONE_EMBEDDING_MODEL,
    memories.NO_MEMORY_IS_FROM_THE_FUTURE,
}


def build_report(engine: Engine, job_id: UUID) -> dict[str, Any]:
    """Return the report of a job, not signed.

    Raises:
        NotFoundError: There is no such job.
    """
    with engine.connect() as connection:
        job = require_job(connection, job_id)
        groups = list(iter_job_groups(connection, job_id))
        raw = {change.row_id for group in groups for change in group if change.table == "task_memories"}
        texts = load_raw_texts(connection, job.project_id, raw)
        described = sorted((_describe_group(group, texts) for group in groups), key=_sort_key)
        return {
            "format": FORMAT,
            "project": job.slug,
            "job": read_scope(job.scope)[0],
            "status": job.status,
            "code": _describe_code(job),
            "options": job.options,
            "inputs": _describe_inputs(connection, job),
            "changes": {
                "hash": build_change_set(change.as_written for group in groups for change in group).digest,
                "groups": len(groups),
                "rows": sum(map(len, groups)),
                "groups_by_operation": dict(Counter(group[0].operation for group in groups)),
                "groups_rolled_back_since": sum(all(change.undone for change in group) for group in groups),
            },
            "groups": [{key: value for key, value in group.items() if key != "id"} for group in described],
            "cost": _describe_cost(connection, job_id),
            "phases": {name: _describe_phase(job, name) for name in (*job.phases_completed, *job.phases_failed)},
            "notices": {name: job.metrics[name] for name in _NOTICES if name in job.metrics},
            "checks": _run_checks(connection, job),
            "memory_tests": _list_memory_tests(connection, job.project_id),
            "run": _describe_run(job) | {"group_ids": [group["id"] for group in described]},
        }


def format_json(report: Mapping[str, Any]) -> str:
    """Return a report as text with one fact a line; equal reports give equal texts."""
    return json.dumps(report, ensure_ascii=False, indent=1, sort_keys=True, default=_to_json) + "\n"


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return float(value) if isinstance(value, Decimal) else str(value)


# --- what changed --------------------------------------------------------------------------------------------------


def _describe_group(changes: Sequence[JobChange], texts: Mapping[UUID, str]) -> dict[str, Any]:
    traced = trace_group(changes)
    rows = [_describe_row(change, texts) for change in changes]
    return {
        "id": traced.group,
        "operation": traced.operation,
        "rule": traced.rule,
        "reason": next((change.reason for change in changes if change.reason), None),
        "confidence": traced.confidence,
        "made_of": list(traced.inputs),
        "rows": sorted(rows, key=lambda row: (row["table"], row["id"])),
    }


def _sort_key(group: Mapping[str, Any]) -> str:
    return json.dumps([group["operation"], group["rows"]], ensure_ascii=False, sort_keys=True, default=_to_json)


def _describe_row(change: JobChange, texts: Mapping[UUID, str]) -> dict[str, Any]:
    before, after = change.before or {}, change.after or {}
    row: dict[str, Any] = {"table": change.table, "id": str(change.row_id), "change": _name_change(change)}
    if row["change"] == "erased":
        return row
    column = _TEXTS.get(change.table)
    if change.table == "task_memories":
        row["text"] = texts.get(change.row_id)
    elif column is not None:
        row |= {name: image[column] for name, image in (("before", before), ("after", after)) if column in image}
    if change.before is None:
        facts = {name: after[name] for name in _FACTS.get(change.table, ()) if after.get(name) is not None}
    else:
        facts = {
            name: {"from": before.get(name), "to": after.get(name)}
            for name in sorted({*before, *after})
            if name != column and name not in _LEFT_OUT and not name.endswith("_at")
        }
    return row | ({"facts": facts} if facts else {})


def _name_change(change: JobChange) -> str:
    if any("erased" in image for image in (change.before, change.after) if image is not None):
        return "erased"
    if change.before is None:
        return "created"
    return "removed" if change.after is None else "changed"


# --- what it ran on ------------------------------------------------------------------------------------------------


def _describe_code(job: Row[Any]) -> dict[str, Any]:
    """Return the versions of the code: those that the job recorded, else those of this process."""
    recorded = job.metrics.get("code")
    if isinstance(recorded, Mapping):
        return {"recorded_by": "the run", **recorded}
    return {
        "recorded_by": "the report",
        "version": version("consolidation-pipeline"),
        "rules_version": RULES_VERSION,
        "algorithm_version": ALGORITHM_VERSION,
    }


def _describe_inputs(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """Return number and hash of the raw memories that were stored when the job began, as they are now."""
    found = fingerprint_inputs(connection, job.project_id, job.started_at or job.created_at)
    return {"memories": found.memories, "hash": f"sha256:{found.hash}"}


def _describe_cost(connection: Connection, job_id: UUID) -> dict[str, Any]:
    spent = sum_job_spending(connection, job_id)
    return {"usd": float(spent.usd), "tokens": spent.tokens, "calls": spent.calls, "from_cache": spent.cached}


def _describe_phase(job: Row[Any], name: str) -> dict[str, Any]:
    """Return status and numbers of a phase, but its seconds, which are of the run."""
    status = "failed" if name in job.phases_failed else "completed"
    numbers = {key: value for key, value in job.metrics.get(name, {}).items() if key != "seconds"}
    return {"status": status, **({"numbers": numbers} if numbers else {})}


def _describe_run(job: Row[Any]) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "dagster_run_id": job.dagster_run_id,
        "trigger": job.trigger_type,
        "triggered_by": job.triggered_by,
        "requested_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
        "seconds": job.duration_seconds,
        "seconds_by_phase": {
            name: job.metrics.get(name, {}).get("seconds") for name in job.phases_completed if name in job.metrics
        },
        "error": job.error_message,
    }


# --- which checks hold ---------------------------------------------------------------------------------------------


def _run_checks(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """Return check -> violations of each invariant, now. Those that read texts look at the rows of the job only."""
    found: dict[str, Any] = {}
    for check in CHECKS:
        if check not in _NOT_CHECKED:
            violations = find_violations(check, connection, job.project_id, [job.id])
            found[check.name] = {
                "holds": not violations,
                **({"violations": violations} if violations else {}),
            }
    return found


def _list_memory_tests(connection: Connection, project_id: UUID) -> dict[str, Any]:
    """Return name -> last result of each enabled memory test."""
    return {
        one.test.name: {
            "kind": one.test.kind,
            "passes": None if one.checked_at is None else one.failure is None,
            **({"failure": one.failure} if one.failure else {}),
        }
        for one in load_memory_tests(connection, project_id)
        if one.enabled
    }
