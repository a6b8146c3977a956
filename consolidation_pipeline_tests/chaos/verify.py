"""Checks after a chaos run: finish what is left, then compare the database with the logs of the clients."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from consolidation_pipeline.service.intake.agent_memories import add_memories
from consolidation_pipeline.service.jobs.job_requests import list_pending_jobs
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline_tests.chaos.clients import OPTIONS, SLUGS, SOURCE
from consolidation_pipeline_tests.database_pool import LIST_OTHER_CLIENTS
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases
from consolidation_pipeline_tests.service.rules import AFTER_A_RUN, AT_ANY_TIME, find_violations

# Runs until nothing changes: for pending work, for changes of those runs, and for groups that a model refused.
MAX_RUNS = 6


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """Return the log lines of all clients by time, without lines cut off by a kill."""
    lines = [line for path in folder.glob("*.log") for line in path.read_text().split("\n") if line.endswith("}")]
    return sorted(map(json.loads, lines), key=lambda line: line["at"])


def run_until_unchanged(pipeline: Pipeline) -> None:
    """Run the jobs that wait, then each project until a run would change nothing, and deliver all events."""
    while waiting := list_pending_jobs(pipeline.engine):
        job = waiting[0]
        with pipeline.open(job.project, job=job.job, planned=job.phases, requested=job.job_id) as run:
            run_phases(run, job.phases)
    for slug in SLUGS:
        for _ in range(MAX_RUNS):
            with pipeline.open(slug) as run:
                run_phases(run)
            if find_unchanged_job(pipeline.engine, pipeline.project(slug), pipeline.settings) is not None:
                break
        else:
            metrics = pipeline.rows("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")
            raise AssertionError(f"{slug} still changes after {MAX_RUNS} runs: {metrics}")
    while deliver_events(pipeline.engine, pipeline.settings, once=True).waiting:
        pipeline.write("UPDATE {s}.consolidation_events SET created_at = created_at - interval '6 hours'")


def find_faults(pipeline: Pipeline, timeline: list[dict[str, Any]], delivered_ids: set[str]) -> Iterator[str]:
    """Yield a message for each fault."""
    yield from (f"{line['client']}: {line['why']}" for line in timeline if line["what"] == "bug")
    yield from (f"{line['slug']} did not find a fact: {line}" for line in timeline if line["what"] == "missed")
    yield from (f"{line['slug']}, during the run: {line}" for line in timeline if line["what"] == "broken")
    for slug in SLUGS:
        with pipeline.engine.connect() as connection:
            rules = [*AT_ANY_TIME, *AFTER_A_RUN]
            yield from (f"{slug}: {found}" for found in find_violations(connection, pipeline.project(slug).id, rules))
        yield from _find_lost_or_duplicated(pipeline, slug, timeline)
    yield from _find_leftovers(pipeline)
    yield from _find_overspending(pipeline)
    ids = {str(row.id) for row in pipeline.rows("SELECT id FROM {s}.consolidation_events")}
    yield from (f"event {id_} was never delivered" for id_ in sorted(ids - delivered_ids))


def _find_lost_or_duplicated(pipeline: Pipeline, slug: str, timeline: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a message for each written memory that is not stored exactly once, or is stored again."""
    own_lines = [line for line in timeline if line.get("slug") == slug]
    written = {row["id"]: row for line in own_lines if line["what"] == "writes" for row in line["rows"]}
    acknowledged_ids = {id_ for line in own_lines if line["what"] == "acknowledged" for id_ in line["ids"]}
    query = """
        SELECT m.id::text, external_id, concat(goal, execution_summary) AS content FROM {s}.task_memories m
        JOIN {s}.projects p ON p.id = m.project_id WHERE slug = :slug AND source = :source
    """
    rows = pipeline.rows(query, slug=slug, source=SOURCE)
    lost_ids = acknowledged_ids - {row.id for row in rows}
    yield from (f"{slug} lost the acknowledged memory {id_}" for id_ in sorted(lost_ids))
    names = Counter(row.external_id for row in rows)
    yield from (f"{slug} has {name} {names[name]} times" for name in written if names[name] != 1)
    for row in rows:
        if row.content != written[row.external_id]["content"]:
            yield f"{slug}: {row.external_id} says {row.content!r}"
    every = list(written.values())
    for at in range(0, len(every), 100):
        again = add_memories(pipeline.engine, slug, every[at : at + 100], source=SOURCE, changed_by="test")
        if again.added or again.errors:
            yield f"{slug}: writing again added {again.added}, {again.errors}"


def _find_leftovers(pipeline: Pipeline) -> Iterator[str]:
    """Yield a message for each job, lock and connection left by ended processes."""
    live = "SELECT id, status FROM {s}.consolidation_jobs WHERE status IN ('pending', 'running')"
    yield from (f"job {row.id} is still {row.status}" for row in pipeline.rows(live))
    locks = "SELECT l.pid, l.locktype FROM pg_locks l WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    yield from (f"lock held by {row.pid}" for row in pipeline.rows(locks))
    pipeline.engine.dispose()  # closes the pool's own connections
    yield from (f"connection {row.pid} is left, {row.state}: {row.query}" for row in pipeline.rows(LIST_OTHER_CLIENTS))


def _find_overspending(pipeline: Pipeline) -> Iterator[str]:
    spent = """
        SELECT job_id, sum(prompt_tokens + completion_tokens) AS tokens FROM {s}.llm_calls WHERE status <> 'cached'
        GROUP BY 1 HAVING sum(prompt_tokens + completion_tokens) > :most
    """
    rows = pipeline.rows(spent, most=OPTIONS["llm"]["budget_tokens_per_run"])
    yield from (f"job {row.job_id} spent {row.tokens} tokens" for row in rows)
    repeated = """
        SELECT job_id, count(*) AS times FROM {s}.llm_calls WHERE status = 'settled' AND job_id IS NOT NULL
        GROUP BY job_id, prompt_hash HAVING count(*) > 1
    """
    yield from (f"job {row.job_id} paid {row.times} times for the same answer" for row in pipeline.rows(repeated))


def count_by_action(timeline: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of log lines of each kind."""
    return dict(Counter(line["what"] for line in timeline))
