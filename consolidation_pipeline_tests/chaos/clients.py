"""Those who use the system while the storm blows: each a process that may be killed, with a log of what it was told.

A line of the log is written only after the database said so, and stays when the process is killed.
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
from consolidation_pipeline.service.lifecycle.manual_actions import archive_by_hand, pin_memories, restore_memories
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
from consolidation_pipeline_tests.service.corpus import ALONE, LESSONS, NEAR_MISSES, REWORDINGS, TODAY, note
from consolidation_pipeline_tests.service.pipeline_runner import run_phases
from consolidation_pipeline_tests.service.rules import AT_ANY_TIME, list_broken
from consolidation_pipeline_tests.webhook_receiver import SECRET

# The last one asks a model. What readers look for is in the others: a model may say it in other words.
SLUGS = ("north", "south", "asking")
FACTS = LESSONS[:6]
SOURCE = "storm"
OPTIONS: dict[str, dict[str, Any]] = {
    "north": {"t_pattern": 0.5},
    "south": {"t_merge": 0.82, "t_suggest": 0.75, "t_pattern": 0.5},
    "asking": {
        "llm_model": "openai/gpt-4o-mini",
        "merge_style": "rewrite",
        "t_pattern": 0.5,
        "budget_tokens_per_run": 20_000,
    },
}
JOBS = ("consolidate", "consolidate", "consolidate", "summarize", "decay")


@dataclass(frozen=True)
class Scene:
    """What an actor knows: the database, where logs go, Unix time of the storm's end, the model, the webhook."""

    url: str
    folder: str
    until: float
    provider: str
    webhook: str

    @cached_property
    def settings(self) -> Settings:
        """As the environment would give them."""
        hook = {
            "webhook_url": SecretStr(self.webhook),
            "webhook_secret": SecretStr(SECRET),
            "webhook_allow_private": True,
        }
        return Settings(database_url=SecretStr(self.url), data_dir=Path(self.folder), **hook)


@dataclass
class Actor:
    """Somebody with a name, a dice and a log."""

    scene: Scene
    name: str
    dice: random.Random
    engine: Engine

    def log(self, what: str, **more: Any) -> None:
        """One line of the timeline, out of this process before the next thing is done."""
        line = json.dumps({"at": time.time(), "who": self.name, "what": what, **more}, default=str)
        with Path(self.scene.folder, f"{self.name}.log").open("a") as file:
            file.write(line + "\n")

    def select(self, query: str, **parameters: Any) -> list[Any]:
        """Rows; ``{s}`` stands for the schema."""
        with self.engine.connect() as connection:
            return list(connection.execute(text(query.replace("{s}", SCHEMA)), parameters).all())

    def pick(self, found: Sequence[Any]) -> Any:
        return self.dice.choice(found) if found else None

    def unless_refused(self, act: Callable[[], Any]) -> bool:
        """Do something that may be refused, or fail as the database is away; anything else is a bug. True: done."""
        try:
            act()
        except Exception as error:
            if isinstance(error, ConsolidationError) or is_unavailable(error):
                self.log("refused", why=f"{type(error).__name__}: {str(error)[:200]}")
                time.sleep(0.2)
            else:
                self.log("bug", why=traceback.format_exc())
            return False
        return True


def perform(told: dict[str, Any], role: str, name: str, seed: str) -> None:
    """The life of an actor until the storm ends; ``told``: the scene."""
    scene = Scene(**told)
    os.environ |= {"OPENAI_API_BASE": scene.provider, "OPENAI_BASE_URL": scene.provider, "OPENAI_API_KEY": "sk-test"}
    retries._wait = lambda *_: 0.0
    llm_gateway.BATCH, merged_memories.BATCH, embedding.BATCH = 2, 3, 20
    run_lifecycle.LOCK_WAIT_SECONDS = 1.0
    actor = Actor(scene, name, random.Random(seed), connect_engine(scene.url))
    act = {
        "agent": remember,
        "reader": read,
        "operator": operate,
        "worker": work,
        "launcher": launch,
        "post": post,
        "auditor": audit,
    }
    while time.time() < scene.until:
        act[role](actor)


def memory(dice: random.Random, name: str) -> dict[str, Any]:
    """A row as agents write it: mostly something that was noted before, now and then something old."""
    kind = dice.random()
    if kind < 0.7:
        content = dice.choice(REWORDINGS).format(dice.choice(LESSONS))
    else:
        content = dice.choice(dice.choice(NEAR_MISSES)) if kind < 0.85 else dice.choice(ALONE)
    old = {"created_at": (TODAY - timedelta(days=400)).isoformat(), "last_accessed_at": None, "reused_count": 0}
    return note(name, content, **(old if content in ALONE and dice.random() < 0.5 else {}))


def remember(actor: Actor) -> None:
    """Write memories, again and again until they are acknowledged; now and then once more after that."""
    slug = actor.pick(SLUGS)
    stem = f"{actor.name}-{actor.dice.randrange(10**9)}"
    rows = [memory(actor.dice, f"{stem}-{at}") for at in range(actor.dice.randint(1, 4))]
    actor.log("writes", slug=slug, rows=rows)
    wanted = actor.dice.choice([1, 1, 1, 2])
    while wanted:
        wanted -= actor.unless_refused(lambda: _add(actor, slug, rows))
    time.sleep(actor.dice.uniform(0.1, 0.6))


def _add(actor: Actor, slug: str, rows: list[dict[str, Any]]) -> None:
    added = add_memories(actor.engine, slug, rows, source=SOURCE, changed_by=actor.name, settings=actor.scene.settings)
    actor.log("acknowledged", slug=slug, ids=added.ids, errors=added.errors)


def read(actor: Actor) -> None:
    """Look for a fact that everybody was told before the storm."""
    slug, fact = actor.pick(SLUGS[:2]), actor.pick(FACTS)

    def look() -> None:
        query = SearchQuery(fact, levels=[0, 1], limit=20)
        found = search(actor.engine, slug, query, settings=actor.scene.settings, count_use=actor.dice.random() < 0.3)
        if not any(fact[:40] in hit.content for hit in found.results):
            actor.log("missed", slug=slug, fact=fact[:40], found=[(hit.id, hit.kind) for hit in found.results])

    actor.unless_refused(look)
    time.sleep(0.02)


def operate(actor: Actor) -> None:
    """Whatever a person does: ask for jobs and cancel them, decide, archive, restore, pin, undo."""
    acts = (_request, _request, _request, _cancel, _decide, _decide, _review, _archive, _restore, _pin, _undo, _undo)
    slug, act = actor.pick(SLUGS), actor.pick(acts)
    actor.unless_refused(lambda: act(actor, slug))
    time.sleep(actor.dice.uniform(0.0, 0.2))


def _request(actor: Actor, slug: str) -> None:
    job = request_job(actor.engine, slug, job=actor.pick(JOBS), triggered_by=actor.name)
    actor.log("requested", slug=slug, job=job.job_id, created=job.created)


def _cancel(actor: Actor, _: str) -> None:
    live = actor.pick(actor.select("SELECT id FROM {s}.consolidation_jobs WHERE status IN ('pending', 'running')"))
    if live is not None and actor.dice.random() < 0.3:
        cancel_job(actor.engine, live.id, cancelled_by=actor.name)
        actor.log("cancelled", job=live.id)


def _decide(actor: Actor, _: str) -> None:
    shown = actor.pick(list_suggestions(actor.engine, "asking").suggestions)
    if shown is None:
        return
    if actor.dice.random() < 0.6:
        approve_suggestion(actor.engine, shown.id, decided_by=actor.name, settings=actor.scene.settings)
    else:
        reject_suggestion(actor.engine, shown.id, decided_by=actor.name)
    actor.log("decided", suggestion=shown.id)


def _review(actor: Actor, _: str) -> None:
    waiting = actor.pick(
        actor.select("SELECT id FROM {s}.consolidated_memories WHERE needs_review AND retired_at IS NULL")
    )
    if waiting is not None:
        decide_review(actor.engine, [waiting.id], approved=actor.dice.random() < 0.7, changed_by=actor.name)
        actor.log("reviewed", id=waiting.id)


def _memories(actor: Actor, slug: str, condition: str) -> list[UUID]:
    """Some memories, raw or merged, that hold no fact that is looked for."""
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
    found = [row.id for row in actor.select(query, slug=slug, **facts)]
    return actor.dice.sample(found, min(len(found), actor.dice.randint(1, 3)))


def _archive(actor: Actor, slug: str) -> None:
    ids = _memories(actor, slug, "NOT pinned AND NOT is_archived AND NOT is_consolidated")
    actor.log("archived", groups=[one.group_id for one in archive_by_hand(actor.engine, ids, changed_by=actor.name)])


def _restore(actor: Actor, slug: str) -> None:
    ids = _memories(actor, slug, "is_archived")
    actor.log("restored", groups=[one.group_id for one in restore_memories(actor.engine, ids, changed_by=actor.name)])


def _pin(actor: Actor, slug: str) -> None:
    pinned = actor.dice.random() < 0.5
    ids = _memories(actor, slug, f"{'NOT' if pinned else ''} pinned AND NOT is_archived AND NOT is_consolidated")
    done = pin_memories(actor.engine, ids, pinned=pinned, changed_by=actor.name)
    actor.log("pinned", groups=[one.group_id for one in done])


def _undo(actor: Actor, slug: str) -> None:
    """A job or a group among the newest, a rollback for instance."""
    level = actor.pick(["group_id", "group_id", "job_id"])
    query = (
        f"SELECT {level} AS target FROM {{s}}.consolidation_changes c JOIN {{s}}.projects p ON p.id = c.project_id "
        f"WHERE p.slug = :slug AND {level} IS NOT NULL GROUP BY 1 ORDER BY max(seq) DESC LIMIT 8"
    )
    found = actor.pick(actor.select(query, slug=slug))
    if found is not None:
        how = {"settings": actor.scene.settings, "changed_by": actor.name, "cascade": actor.dice.random() < 0.5}
        done = rollback.roll_back(actor.engine, found.target, **how)
        actor.log("undone", target=found.target, level=level, rollback=done.rollback_id, changes=done.changes)


def work(actor: Actor) -> None:
    """Run one of the pending jobs."""

    def run() -> None:
        job = actor.pick(list_pending_jobs(actor.engine))
        if job is None:
            return
        actor.log("begins", slug=job.project, job=job.job_id, name=job.job)
        how = {"job": job.job, "planned": job.phases, "triggered_by": actor.name, "requested": job.job_id}
        with open_run(actor.engine, job.project, settings=actor.scene.settings, **how) as opened:
            run_phases(opened, job.phases)
        actor.log("ran", slug=job.project, job=opened.job_id)

    actor.unless_refused(run)
    time.sleep(0.05)


def launch(actor: Actor) -> None:
    """Run one of the pending jobs as Dagster does."""
    os.environ |= {"CONSOLIDATION_DATABASE_URL": actor.scene.url, "DAGSTER_HOME": actor.scene.folder}
    from consolidation_pipeline.launch import run_project

    def run() -> None:
        job = actor.pick(list_pending_jobs(actor.engine))
        if job is not None:
            done = run_project(job.project, job=job.job, phases=job.phases, requested=job, triggered_by=actor.name)
            actor.log("launched", slug=job.project, job=done.job_id, status=done.status, error=done.error)

    actor.unless_refused(run)
    time.sleep(0.1)


def post(actor: Actor) -> None:
    """Deliver what is due."""
    actor.unless_refused(lambda: deliver_events(actor.engine, actor.scene.settings, once=True))
    time.sleep(0.1)


def audit(actor: Actor) -> None:
    """Hold one moment of a project against the rules for any moment."""
    slug = actor.pick(SLUGS)

    def look() -> None:
        with actor.engine.connect().execution_options(isolation_level="REPEATABLE READ") as moment:
            broken = list_broken(moment, get_project(moment, slug).id, AT_ANY_TIME.values())
        if broken:
            actor.log("broken", slug=slug, times=len(broken), first=broken[0])

    actor.unless_refused(look)
    time.sleep(0.1)
