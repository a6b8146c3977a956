"""This project: import, a run with default options and without a language model, search, rollback."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.consolidation_bench.dataset import Dataset, Memory
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System
from benchmarks.temporary_server import use_temporary_server

PROJECT = "benchmark"
ROOT = Path(__file__).resolve().parents[3]

# Raw memories in none and merged memories; patterns and what else is derived repeats them.
_ACTIVE = """
    SELECT coalesce(c.id, m.id) AS id, coalesce(c.content, m.execution_summary) AS content, m.user_id, m.external_id
    FROM consolidation.task_memories m
    JOIN consolidation.projects p ON p.id = m.project_id
    LEFT JOIN consolidation.consolidated_memories c ON c.id = m.consolidated_into_id
    WHERE p.slug = :project AND c.retired_at IS NULL AND m.archived_at IS NULL
    ORDER BY m.external_id
"""
# What a merged memory supersedes counts as marked by its newest source.
_SUPERSEDED = """
    SELECT DISTINCT ON (older.external_id) older.external_id, newer.external_id
    FROM consolidation.memory_relations r
    JOIN consolidation.projects p ON p.id = r.project_id
    JOIN consolidation.task_memories older ON r.b_id IN (older.id, older.consolidated_into_id)
    JOIN consolidation.task_memories newer ON r.a_id IN (newer.id, newer.consolidated_into_id)
    WHERE p.slug = :project AND r.relation_type = 'supersedes' AND r.status = 'confirmed'
    ORDER BY older.external_id, newer.learned_at DESC, newer.external_id
"""


class Consolidation(System):
    """A project in a temporary database. Each user is a scope."""

    def __init__(self, folder: Path, truth: Dataset) -> None:
        super().__init__(folder, truth)
        use_temporary_server(folder / "server")
        os.environ.update(DAGSTER_HOME=str(ROOT))
        from consolidation_pipeline.settings import Settings
        from consolidation_pipeline.store.database.engine import open_engine

        self._settings = Settings()
        self._engine = open_engine(self._settings)
        self._jobs: list[UUID] = []

    def load(self, memories: Sequence[Memory]) -> None:
        """Import the memories and embed them."""
        from consolidation_pipeline.service.intake.importer import import_memories
        from consolidation_pipeline.service.runs.run_lifecycle import open_run
        from consolidation_pipeline.service.similarity.embedding import embed_memories

        rows = [
            {
                "id": memory.id,
                "content": memory.text,
                "user_id": memory.user,
                "created_at": memory.created_at,
                "memory_type": "learning",
            }
            for memory in memories
        ]
        file = self.folder / "memories.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        imported = import_memories(self._engine, PROJECT, str(file), format="jsonl")
        if imported.bad:
            raise SystemExit(f"{len(imported.bad)} memories rejected, such as {imported.bad[0]}")
        with open_run(self._engine, PROJECT, settings=self._settings, planned=()) as run:
            embed_memories(run)

    def consolidate(self) -> None:
        """Run the job ``consolidate``."""
        from consolidation_pipeline.launch import run_project

        outcome = run_project(PROJECT, triggered_by="benchmark")
        if outcome.status not in ("completed", "unchanged"):
            raise SystemExit(f"run {outcome.status}: {outcome.error}")
        if outcome.status == "completed" and outcome.job_id:
            self._jobs.append(outcome.job_id)

    def _rows(self, query: str) -> Sequence[Any]:
        from sqlalchemy import text

        with self._engine.connect() as connection:
            return connection.execute(text(query), {"project": PROJECT}).all()

    def active(self) -> list[ActiveMemory]:
        """Return raw memories that are in no merged one, and merged memories."""
        sources = defaultdict(list)
        for id_, content, user, source in self._rows(_ACTIVE):
            sources[id_, content, user].append(source)
        return [ActiveMemory(user, content, tuple(ids)) for (_, content, user), ids in sources.items()]

    def superseded(self) -> dict[str, str]:
        """Return the memories with a confirmed relation ``supersedes``, each with the newest of those that mark it."""
        return dict(self._rows(_SUPERSEDED))

    def search(self, user: str, query: str, k: int) -> list[str]:
        """Return what the search of agents finds, patterns included."""
        from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

        asked = SearchQuery(query, limit=k, scope=user)
        results = search(self._engine, PROJECT, asked, settings=self._settings, count_use=False).results
        return [hit.content for hit in results]

    def undo(self) -> bool:
        """Roll back the runs, newest first."""
        from consolidation_pipeline.service.undo.rollback import roll_back

        for job in reversed(self._jobs):
            roll_back(self._engine, job, settings=self._settings, changed_by="benchmark")
        return True
