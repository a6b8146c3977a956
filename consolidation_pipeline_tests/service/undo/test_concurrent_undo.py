"""Undo newest first is never refused, whatever people, agents and runs did at the same time.

``CONSOLIDATION_UNDO_SEEDS=1-50 pytest -m '' <this file>`` tries other seeds; threads interleave differently each time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories, restore_memories
from consolidation_pipeline.service.lifecycle.quarantine import WriterFilter, quarantine
from consolidation_pipeline.service.review.review_queue import decide_review
from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion, reject_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, REWORDINGS, WEBHOOKS, note
from consolidation_pipeline_tests.service.full_undo import roll_back_everything
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases
from consolidation_pipeline_tests.service.rules import find_all_violations

FIRST, _, LAST = os.environ.get("CONSOLIDATION_UNDO_SEEDS", "1-2").partition("-")
THREADS = 4
ACTIONS = 25
OPTIONS = {"t_pattern": 0.5, "t_suggest": 0.75, "t_merge": 0.82, "min_pattern_size": 2}
SCOPES = ("user_id", "project", "agent_id")
TEXTS = (*(how.format(text) for text in LESSONS[:2] for how in REWORDINGS), *NEAR_MISSES[0], *WEBHOOKS)


class Person:
    """Thread that acts on one project at random, and takes refusals as they come."""

    names = count()

    def __init__(self, pipeline: Pipeline, seed: str) -> None:
        self.pipeline, self.rng = pipeline, random.Random(seed)
        self.by = {"changed_by": seed}

    def act(self) -> None:
        actions: Sequence[Callable[[], object]] = (
            *(self.add, self.run, self.run, self.summarize, self.configure, self.quarantine),
            *(self.archive, self.archive, self.restore, self.restore, self.pin, self.review, self.decide),
            *(self.undo, self.undo, self.undo),
        )
        for _ in range(ACTIONS):
            with suppress(ConsolidationError):
                self.rng.choice(actions)()

    def add(self) -> None:
        users = {"user_id": self.rng.choice(["ada", "bob", ""]), "agent_id": self.rng.choice(["ada", "bob", ""])}
        rows = [note(f"n-{next(self.names)}", self.rng.choice(TEXTS), **users) for _ in range(self.rng.randint(1, 3))]
        self.pipeline.add(rows)

    def run(self) -> None:
        self.pipeline.run()

    def summarize(self) -> None:
        phases = JOB_PHASES["summarize"]
        with self.pipeline.open(job="summarize", planned=phases) as run:
            run_phases(run, phases)

    def configure(self) -> None:
        self.pipeline.configure(**OPTIONS, scope=self.rng.choice(SCOPES))

    def quarantine(self) -> None:
        if self.rng.random() < 0.3:
            quarantine(self.pipeline.engine, WriterFilter(ids=self.pick("{s}.task_memories")), **self.by)

    def archive(self) -> None:
        archive_manually(self.pipeline.engine, self.pick_memories(), **self.by)

    def restore(self) -> None:
        condition = "WHERE archive_reason IS NOT NULL"
        found = [*self.pick(f"{{s}}.consolidated_memories {condition}"), *self.pick(f"{{s}}.task_memories {condition}")]
        restore_memories(self.pipeline.engine, found[:2], **self.by)

    def pin(self) -> None:
        pin_memories(self.pipeline.engine, self.pick_memories()[:1], pinned=self.rng.random() < 0.5, **self.by)

    def review(self) -> None:
        waiting = self.pick("{s}.consolidated_memories WHERE kind = 'pattern' AND retired_at IS NULL")
        decide_review(self.pipeline.engine, waiting[:1], approved=self.rng.random() < 0.5, **self.by)

    def decide(self) -> None:
        waiting = list_suggestions(self.pipeline.engine, SLUG).suggestions
        if waiting:
            decision = self.rng.choice([approve_suggestion, approve_suggestion, reject_suggestion])
            decision(self.pipeline.engine, self.rng.choice(waiting).id, decided_by="ann")

    def undo(self) -> None:
        level = self.rng.choice(["group_id", "group_id", "job_id"])
        query = f"""
            SELECT {level} AS target FROM {{s}}.consolidation_changes WHERE {level} IS NOT NULL
            GROUP BY 1 ORDER BY max(seq) DESC LIMIT 15
        """
        found = self.pipeline.rows(query)
        if found:
            self.pipeline.roll_back(self.rng.choice(found).target, cascade=self.rng.random() < 0.4)

    def pick(self, table: str) -> list[UUID]:
        found = [row.id for row in self.pipeline.rows(f"SELECT id FROM {table} ORDER BY id")]
        return self.rng.sample(found, min(len(found), self.rng.randint(1, 2)))

    def pick_memories(self) -> list[UUID]:
        active = "{s}.consolidated_memories WHERE retired_at IS NULL"
        return [*self.pick(active), *self.pick("{s}.task_memories WHERE archived_at IS NULL")][:2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST) + 1))
def test_undo_newest_first_after_concurrent_actions(
    pipeline: Pipeline, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.2)
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note(f"first-{at}", text) for at, text in enumerate(TEXTS)])
    people = [Person(pipeline, f"{seed}-{at}") for at in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(person.act) for person in people]:
            done.result()
    assert find_all_violations(pipeline.engine) == []
    roll_back_everything(pipeline)
