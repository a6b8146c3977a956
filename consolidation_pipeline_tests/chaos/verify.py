"""After the storm: what was left is done, and then everything must be as if there had been no storm."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from consolidation_pipeline.service.intake.agent_memories import add_memories
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline_tests.chaos.clients import OPTIONS, SLUGS, SOURCE
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases
from consolidation_pipeline_tests.service.rules import AFTER_A_RUN, AT_ANY_TIME, list_broken

# Runs in which a project comes to rest: one for what is left, one for what that changed, one for what a model refused.
MOST_RUNS = 6


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """The timeline of all actors; a line that a kill cut off tells nothing."""
    lines = [line for path in folder.glob("*.log") for line in path.read_text().split("\n") if line.endswith("}")]
    return sorted(map(json.loads, lines), key=lambda line: line["at"])


def come_to_rest(pipeline: Pipeline) -> None:
    """Run every project until a run would change nothing, and deliver until nothing waits."""
    for slug in SLUGS:
        for _ in range(MOST_RUNS):
            with pipeline.open(slug) as run:
                run_phases(run)
            if find_unchanged_job(pipeline.engine, pipeline.project(slug), pipeline.settings) is not None:
                break
        else:
            metrics = pipeline.rows("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")
            raise AssertionError(f"{slug} does not come to rest in {MOST_RUNS} runs: {metrics}")
    while deliver_events(pipeline.engine, pipeline.settings, once=True).waiting:
        pipeline.write("UPDATE {s}.consolidation_events SET created_at = created_at - interval '6 hours'")


def find_faults(pipeline: Pipeline, timeline: list[dict[str, Any]], taken: set[str]) -> Iterator[str]:
    """Whatever is not as it must be, in words."""
    yield from (f"{line['who']}: {line['why']}" for line in timeline if line["what"] == "bug")
    yield from (f"{line['slug']} hid a fact: {line}" for line in timeline if line["what"] == "missed")
    yield from (f"{line['slug']}, at a moment of the storm: {line}" for line in timeline if line["what"] == "broken")
    for slug in SLUGS:
        with pipeline.engine.connect() as connection:
            rules = [*AT_ANY_TIME.values(), *AFTER_A_RUN.values()]
            yield from (f"{slug}: {found}" for found in list_broken(connection, pipeline.project(slug).id, rules))
        yield from _lost_or_doubled(pipeline, slug, timeline)
    yield from _left_behind(pipeline)
    yield from _overspent(pipeline)
    ids = {str(row.id) for row in pipeline.rows("SELECT id FROM {s}.consolidation_events")}
    yield from (f"event {id_} was never delivered" for id_ in sorted(ids - taken))


def _lost_or_doubled(pipeline: Pipeline, slug: str, timeline: list[dict[str, Any]]) -> Iterator[str]:
    """Every memory that was written is there once, in its words; writing all again adds nothing."""
    written = {
        row["id"]: row for line in timeline if line["what"] == "writes" and line["slug"] == slug for row in line["rows"]
    }
    told = {id_ for line in timeline if line["what"] == "acknowledged" and line["slug"] == slug for id_ in line["ids"]}
    query = """
        SELECT m.id::text, external_id, concat(goal, execution_summary) AS content FROM {s}.task_memories m
        JOIN {s}.projects p ON p.id = m.project_id WHERE slug = :slug AND source = :source
    """
    rows = pipeline.rows(query, slug=slug, source=SOURCE)
    yield from (f"{slug} lost {id_}, which it had acknowledged" for id_ in sorted(told - {row.id for row in rows}))
    names = Counter(row.external_id for row in rows)
    yield from (f"{slug} has {name} {names[name]} times" for name in written if names[name] != 1)
    for row in rows:
        if row.content != written[row.external_id]["content"]:
            yield f"{slug}: {row.external_id} says {row.content!r}"
    every = list(written.values())
    for at in range(0, len(every), 100):
        again = add_memories(pipeline.engine, slug, every[at : at + 100], source=SOURCE, changed_by="calm")
        if again.added or again.errors:
            yield f"{slug}: writing again added {again.added}, {again.errors}"


def _left_behind(pipeline: Pipeline) -> Iterator[str]:
    """Jobs, locks and connections of those who are gone."""
    live = "SELECT id, status FROM {s}.consolidation_jobs WHERE status IN ('pending', 'running')"
    yield from (f"job {row.id} is still {row.status}" for row in pipeline.rows(live))
    locks = "SELECT l.pid, l.locktype FROM pg_locks l WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    yield from (f"lock held by {row.pid}" for row in pipeline.rows(locks))
    others = """
        SELECT a.pid, a.state, left(a.query, 100) AS query FROM pg_stat_activity a
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    pipeline.engine.dispose()  # its own rest in the pool
    yield from (f"connection {row.pid} is left, {row.state}: {row.query}" for row in pipeline.rows(others))


def _overspent(pipeline: Pipeline) -> Iterator[str]:
    spent = """
        SELECT job_id, sum(prompt_tokens + completion_tokens) AS tokens FROM {s}.llm_calls WHERE status <> 'cached'
        GROUP BY 1 HAVING sum(prompt_tokens + completion_tokens) > :most
    """
    rows = pipeline.rows(spent, most=OPTIONS["asking"]["budget_tokens_per_run"])
    yield from (f"job {row.job_id} spent {row.tokens} tokens" for row in rows)
    yield from (
        f"job {row.job_id} paid {row.times} times for the same answer"
        for row in pipeline.rows(
            "SELECT job_id, count(*) AS times FROM {s}.llm_calls WHERE status = 'settled' AND job_id IS NOT NULL "
            "GROUP BY job_id, prompt_hash HAVING count(*) > 1"
        )
    )


def undo_everything(pipeline: Pipeline, slug: str) -> None:
    """Undo all that ever happened in a project, newest first; what agents wrote must stand as they wrote it."""
    groups = pipeline.rows(
        "SELECT group_id FROM {s}.consolidation_changes c JOIN {s}.projects p ON p.id = c.project_id "
        "WHERE p.slug = :slug GROUP BY 1 ORDER BY max(seq) DESC",
        slug=slug,
    )
    for row in groups:
        pipeline.roll_back(row.group_id)
    left: Mapping[str, str] = {
        "hidden, archived or pinned": "SELECT id FROM {s}.task_memories WHERE project_id = :id AND (is_consolidated "
        "OR is_archived OR pinned OR summarized_into_id IS NOT NULL OR archive_reason IS NOT NULL)",
        "knowledge": "SELECT id FROM {s}.consolidated_memories WHERE project_id = :id",
        "an instruction": "SELECT id FROM {s}.playbook_entries WHERE project_id = :id",
        "lineage": "SELECT child_id FROM {s}.memory_lineage l JOIN {s}.task_memories m ON m.id = l.parent_id "
        "WHERE m.project_id = :id",
    }
    found = {what: pipeline.rows(query, id=pipeline.project(slug).id) for what, query in left.items()}
    assert not any(found.values()), found


def count_done(timeline: list[dict[str, Any]]) -> dict[str, int]:
    """How often what was done."""
    return dict(Counter(line["what"] for line in timeline))
