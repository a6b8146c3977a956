"""Clients of the chaos test: each runs in a process that may be killed, and logs what the database acknowledged.

A line of the log is written after the database acknowledged an action, and survives a kill of the process.
"""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr
from sqlalchemy import text

from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.llm import retries
from consolidation_pipeline.service.intake.agent_memories import add_memories
from consolidation_pipeline.service.jobs.job_requests import cancel_job, list_pending_jobs, request_job
from consolidation_pipeline.service.knowledge import llm_gateway, merged_memories
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories, restore_memories
from consolidation_pipeline.service.review.review_queue import decide_review
from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion, reject_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.service.similarity import embedding
from consolidation_pipeline.service.undo import rollback
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, is_unavailable
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.openai_server import client_environment
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, REWORDINGS, TODAY, UNRELATED, note
from consolidation_pipeline_tests.service.pipeline_runner import run_phases
from consolidation_pipeline_tests.service.rules import AT_ANY_TIME, find_violations
from consolidation_pipeline_tests.webhook_receiver import SECRET

# The last project uses a model. Readers search in the other two, since a model may reword the facts.
SLUGS = ("north", "south", "llm")
FACTS = LESSONS[:6]
SOURCE = "chaos"
OPTIONS: dict[str, dict[str, Any]] = {
    "north": {"t_pattern": 0.5},
    "south": {"t_merge": 0.82, "t_suggest": 0.75, "t_pattern": 0.5},
    "llm": {
        "llm_model": "openai/gpt-4o-mini",
        "merge_style": "rewrite",
        "t_pattern": 0.5,
        "budget_tokens_per_run": 20_000,
    },
}
JOBS = ("consolidate", "consolidate", "consolidate", "summarize", "decay")


@dataclass(frozen=True)
class ChaosConfig:
    """Settings of a chaos run.

    Attributes:
        url: database.
        folder: folder of the logs.
        until: Unix time of the end.
        provider: base URL of the model.
        webhook: URL of the receiver of events.
    """

    url: str
    folder: str
    until: float
    provider: str
    webhook: str

    @cached_property
    def settings(self) -> Settings:
        """Settings of the package for this run."""
        hook = {
            "webhook_url": SecretStr(self.webhook),
            "webhook_secret": SecretStr(SECRET),
            "webhook_allow_private": True,
        }
        return Settings(database_url=SecretStr(self.url), data_dir=Path(self.folder), **hook)


@dataclass
class Client:
    """A client with a name, a random number generator and a log."""

    config: ChaosConfig
    name: str
    rng: random.Random
    engine: Engine

    def log(self, what: str, **more: Any) -> None:
        """Append a line to the timeline at once."""
        line = json.dumps({"at": time.time(), "client": self.name, "what": what, **more}, default=str)
        with Path(self.config.folder, f"{self.name}.log").open("a") as file:
            file.write(line + "\n")

    def select(self, query: str, **parameters: Any) -> list[Any]:
        """Return rows; ``{s}`` stands for the schema."""
        with self.engine.connect() as connection:
            return list(connection.execute(text(query.replace("{s}", SCHEMA)), parameters).all())

    def pick(self, found: Sequence[Any]) -> Any:
        return self.rng.choice(found) if found else None

    def try_action(self, action: Callable[[], Any]) -> bool:
        """Return True if the action succeeded. Log refusals and an unreachable database; any other error is a bug."""
        try:
            action()
        except Exception as error:
            if isinstance(error, ConsolidationError) or is_unavailable(error):
                self.log("refused", why=f"{type(error).__name__}: {str(error)[:200]}")
                time.sleep(0.2)
            else:
                self.log("bug", why=traceback.format_exc())
            return False
        return True


def run_client(values: dict[str, Any], role: str, name: str, seed: str) -> None:
    """Act in a role until the run ends.

    Args:
        values: fields of ``ChaosConfig``.
        role: key of an action below.
        name: name in the log.
        seed: seed of the client's random numbers.
    """
    config = ChaosConfig(**values)
    os.environ |= client_environment(config.provider)
    retries._compute_wait = lambda *_: 0.0
    llm_gateway.BATCH, merged_memories.BATCH, embedding.BATCH = 2, 3, 20
    run_lifecycle.LOCK_WAIT_SECONDS = 1.0
    client = Client(config, name, random.Random(seed), connect_engine(config.url))
    actions = {
        "agent": write_memories,
        "reader": search_facts,
        "operator": act_as_operator,
        "worker": run_pending_job,
        "launcher": launch_pending_job,
        "deliverer": deliver_due_events,
        "auditor": check_rules,
    }
    while time.time() < config.until:
        actions[role](client)


def make_row(rng: random.Random, name: str) -> dict[str, Any]:
    """Return a memory as agents write it: mostly a rewording of a known one, sometimes an old one."""
    kind = rng.random()
    if kind < 0.7:
        content = rng.choice(REWORDINGS).format(rng.choice(LESSONS))
    else:
        content = rng.choice(rng.choice(NEAR_MISSES)) if kind < 0.85 else rng.choice(UNRELATED)
    old = {"created_at": (TODAY - timedelta(days=400)).isoformat(), "last_accessed_at": None, "reused_count": 0}
    return note(name, content, **(old if content in UNRELATED and rng.random() < 0.5 else {}))


def write_memories(client: Client) -> None:
    """Write memories until they are acknowledged, and sometimes once more."""
    slug = client.pick(SLUGS)
    stem = f"{client.name}-{client.rng.randrange(10**9)}"
    rows = [make_row(client.rng, f"{stem}-{at}") for at in range(client.rng.randint(1, 4))]
    client.log("writes", slug=slug, rows=rows)
    wanted = client.rng.choice([1, 1, 1, 2])
    while wanted:
        wanted -= client.try_action(lambda: _add(client, slug, rows))
    time.sleep(client.rng.uniform(0.1, 0.6))


def _add(client: Client, slug: str, rows: list[dict[str, Any]]) -> None:
    added = add_memories(
        client.engine, slug, rows, source=SOURCE, changed_by=client.name, settings=client.config.settings
    )
    client.log("acknowledged", slug=slug, ids=added.ids, errors=added.errors)


def search_facts(client: Client) -> None:
    """Search for a fact that was added before the run."""
    slug, fact = client.pick(SLUGS[:2]), client.pick(FACTS)

    def poll() -> None:
        query = SearchQuery(fact, levels=[0, 1], limit=20)
        found = search(client.engine, slug, query, settings=client.config.settings, count_use=client.rng.random() < 0.3)
        # The wording in capitals may stand for the others.
        if not any(fact[:40].lower() in hit.content.lower() for hit in found.results):
            client.log("missed", slug=slug, fact=fact[:40], found=[(hit.id, hit.kind) for hit in found.results])

    client.try_action(poll)
    time.sleep(0.02)


def act_as_operator(client: Client) -> None:
    """Do one action of an operator: request or cancel a job, decide, archive, restore, pin or roll back."""
    actions = (_request, _request, _request, _cancel, _decide, _decide, _review, _archive, _restore, _pin, _undo, _undo)
    slug, action = client.pick(SLUGS), client.pick(actions)
    client.try_action(lambda: action(client, slug))
    time.sleep(client.rng.uniform(0.0, 0.2))


def _request(client: Client, slug: str) -> None:
    job = request_job(client.engine, slug, job=client.pick(JOBS), triggered_by=client.name)
    client.log("requested", slug=slug, job=job.job_id, created=job.created)


def _cancel(client: Client, _: str) -> None:
    live = client.pick(client.select("SELECT id FROM {s}.consolidation_jobs WHERE status IN ('pending', 'running')"))
    if live is not None and client.rng.random() < 0.3:
        cancel_job(client.engine, live.id, cancelled_by=client.name)
        client.log("cancelled", job=live.id)


def _decide(client: Client, _: str) -> None:
    chosen = client.pick(list_suggestions(client.engine, "llm").suggestions)
    if chosen is None:
        return
    if client.rng.random() < 0.6:
        approve_suggestion(client.engine, chosen.id, decided_by=client.name, settings=client.config.settings)
    else:
        reject_suggestion(client.engine, chosen.id, decided_by=client.name)
    client.log("decided", suggestion=chosen.id)


def _review(client: Client, _: str) -> None:
    query = "SELECT id FROM {s}.consolidated_memories WHERE needs_review AND retired_at IS NULL"
    waiting = client.pick(client.select(query))
    if waiting is not None:
        decide_review(client.engine, [waiting.id], approved=client.rng.random() < 0.7, changed_by=client.name)
        client.log("reviewed", id=waiting.id)


def _memories(client: Client, slug: str, condition: str) -> list[UUID]:
    """Return ids of 1 to 3 raw or merged memories that hold none of ``FACTS``."""
    holds = " OR ".join(f"content ILIKE :fact{at}" for at in range(len(FACTS)))
    query = f"""
        SELECT t.id FROM (
            SELECT id, project_id, concat(goal, execution_summary) AS content, pinned, is_archived, is_consolidated
            FROM {{s}}.task_memories UNION ALL
            SELECT id, project_id, content, pinned, archive_reason IS NOT NULL, superseded_by_id IS NOT NULL
            FROM {{s}}.consolidated_memories WHERE kind = 'merged') t JOIN {{s}}.projects p ON p.id = t.project_id
        WHERE p.slug = :slug AND {condition} AND NOT ({holds})
    """
    facts = {f"fact{at}": f"%{fact[:40]}%" for at, fact in enumerate(FACTS)}
    found = [row.id for row in client.select(query, slug=slug, **facts)]
    return client.rng.sample(found, min(len(found), client.rng.randint(1, 3)))


def _archive(client: Client, slug: str) -> None:
    ids = _memories(client, slug, "NOT pinned AND NOT is_archived AND NOT is_consolidated")
    done = archive_manually(client.engine, ids, changed_by=client.name)
    client.log("archived", groups=[one.group_id for one in done])


def _restore(client: Client, slug: str) -> None:
    ids = _memories(client, slug, "is_archived")
    done = restore_memories(client.engine, ids, changed_by=client.name)
    client.log("restored", groups=[one.group_id for one in done])


def _pin(client: Client, slug: str) -> None:
    pinned = client.rng.random() < 0.5
    ids = _memories(client, slug, f"{'NOT' if pinned else ''} pinned AND NOT is_archived AND NOT is_consolidated")
    done = pin_memories(client.engine, ids, pinned=pinned, changed_by=client.name)
    client.log("pinned", groups=[one.group_id for one in done])


def _undo(client: Client, slug: str) -> None:
    """Roll back one of the newest jobs or groups, possibly a rollback."""
    level = client.pick(["group_id", "group_id", "job_id"])
    query = (
        f"SELECT {level} AS target FROM {{s}}.consolidation_changes c JOIN {{s}}.projects p ON p.id = c.project_id "
        f"WHERE p.slug = :slug AND {level} IS NOT NULL GROUP BY 1 ORDER BY max(seq) DESC LIMIT 8"
    )
    found = client.pick(client.select(query, slug=slug))
    if found is not None:
        how = {"settings": client.config.settings, "changed_by": client.name, "cascade": client.rng.random() < 0.5}
        done = rollback.roll_back(client.engine, found.target, **how)
        client.log("undone", target=found.target, level=level, rollback=done.rollback_id, changes=done.changes)


def run_pending_job(client: Client) -> None:
    """Run a pending job in this process."""

    def run() -> None:
        job = client.pick(list_pending_jobs(client.engine))
        if job is None:
            return
        client.log("begins", slug=job.project, job=job.job_id, name=job.job)
        how = {"job": job.job, "planned": job.phases, "triggered_by": client.name, "requested": job.job_id}
        with open_run(client.engine, job.project, settings=client.config.settings, **how) as opened:
            run_phases(opened, job.phases)
        client.log("ran", slug=job.project, job=opened.job_id)

    client.try_action(run)
    time.sleep(0.05)


def launch_pending_job(client: Client) -> None:
    """Run a pending job through Dagster."""
    os.environ |= {"CONSOLIDATION_DATABASE_URL": client.config.url, "DAGSTER_HOME": client.config.folder}
    from consolidation_pipeline.launch import run_project

    def run() -> None:
        job = client.pick(list_pending_jobs(client.engine))
        if job is not None:
            done = run_project(job.project, job=job.job, phases=job.phases, requested=job, triggered_by=client.name)
            client.log("launched", slug=job.project, job=done.job_id, status=done.status, error=done.error)

    client.try_action(run)
    time.sleep(0.1)


def deliver_due_events(client: Client) -> None:
    """Deliver the events that are due."""
    client.try_action(lambda: deliver_events(client.engine, client.config.settings, once=True))
    time.sleep(0.1)


def check_rules(client: Client) -> None:
    """Check a snapshot of a project against the rules that hold at any time."""
    slug = client.pick(SLUGS)

    def poll() -> None:
        with client.engine.connect().execution_options(isolation_level="REPEATABLE READ") as moment:
            broken = find_violations(moment, get_project(moment, slug).id, AT_ANY_TIME)
        if broken:
            client.log("broken", slug=slug, times=len(broken), first=broken[0])

    client.try_action(poll)
    time.sleep(0.1)
