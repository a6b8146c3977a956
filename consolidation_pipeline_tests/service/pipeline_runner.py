"""Runs without Dagster: the phases in order in one process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import text

from consolidation_pipeline.core.memories.memories import memory_id
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.intake.importer import ImportResult, ensure_project, import_memories
from consolidation_pipeline.service.jobs.run_report import RunReport
from consolidation_pipeline.service.knowledge.derive import DeriveResult
from consolidation_pipeline.service.knowledge.merged_memories import MergeResult
from consolidation_pipeline.service.knowledge.profiles import ProfileResult
from consolidation_pipeline.service.knowledge.summaries import SummaryResult
from consolidation_pipeline.service.knowledge.supersessions import SupersessionResult
from consolidation_pipeline.service.lifecycle.archive import ArchiveResult
from consolidation_pipeline.service.lifecycle.decay import DecayResult
from consolidation_pipeline.service.plan.plan_document import Plan
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.service.playbook.entries import PromotionResult
from consolidation_pipeline.service.review.suggestion_proposals import ProposalResult
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.shadow.phase_runner import STEPS as STEPS
from consolidation_pipeline.service.shadow.phase_runner import run_phases as run_phases
from consolidation_pipeline.service.similarity.calibration import CalibrationResult
from consolidation_pipeline.service.similarity.clusters import ClusterSummary
from consolidation_pipeline.service.similarity.embedding import EmbeddingResult
from consolidation_pipeline.service.similarity.similarity_graph import GraphUpdate
from consolidation_pipeline.service.undo.rollback import Rollback, roll_back
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.memories.pending_uses import fold_uses
from consolidation_pipeline.store.projects import Project, configure_project, delete_project, get_project, list_projects
from consolidation_pipeline_tests.database_pool import fill
from consolidation_pipeline_tests.service.corpus import write_jsonl

SLUG = "notes"
# Phases of jobs: until pairs are known, and until near-duplicates are merged.
GRAPH = ("embedding_matrix", "threshold_calibration", "similarity_graph")
MERGING = (*GRAPH, "clusters", "merged_memories")
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Job of a run and the results of its phases."""

    job_id: UUID
    embedded: EmbeddingResult
    calibrated: CalibrationResult
    graph: GraphUpdate
    clusters: ClusterSummary
    merging: MergeResult
    supersessions: SupersessionResult
    patterns: DeriveResult
    principles: DeriveResult
    playbook: PromotionResult
    suggestions: ProposalResult
    summaries: SummaryResult
    profiles: ProfileResult
    decay: DecayResult
    archived: ArchiveResult
    report: RunReport


def call_concurrently(*calls: Callable[[], Any]) -> list[Any]:
    """Start all calls in threads at one moment; returns the result of each, or its ConflictError."""
    start = threading.Barrier(len(calls))

    def attempt(call: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return call()
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(attempt, calls))


def note_id(name: str, slug: str = SLUG) -> UUID:
    """Return the id of the memory that ``Pipeline.add`` imports from the note with this name."""
    return memory_id(slug, "test", name)


@dataclass(frozen=True)
class Pipeline:
    """Operations on projects of one database, with a folder for input files."""

    engine: Engine
    settings: Settings
    folder: Path

    def add(self, rows: Iterable[Mapping[str, Any]], slug: str = SLUG) -> ImportResult:
        """Import rows into a project."""
        path = write_jsonl(self.folder / f"{slug}.jsonl", rows)
        return import_memories(self.engine, slug, str(path), format="jsonl", source="test")

    def run(self, slug: str = SLUG, *, embedder: Embedder | None = None) -> Outcome:
        """Run all phases of a project."""
        with self.open(slug, embedder=embedder) as run:
            results = run_phases(run)
        return Outcome(run.job_id, *results.values())

    def consolidate(self, rows: Sequence[Mapping[str, Any]], **options: Any) -> Outcome:
        """Create a project with options, import rows and run all phases, in an empty database.

        A process does so once for the same rows and options, and then copies the rows of all tables.
        """

        def build() -> Outcome:
            self.configure_new(**options)
            self.add(rows)
            return self.run()

        return fill(self.engine, build, json.dumps([rows, options], default=str))

    def start_from(self, build: Callable[[Pipeline], T], key: Hashable = ()) -> T:
        """Return ``build(self)`` on an empty database; a process calls it once and then copies the rows of all tables.

        Args:
            build: A function of a module.
            key: What the rows depend on besides the function.
        """
        return fill(self.engine, lambda: build(self), (build, key))

    @contextmanager
    def open(self, slug: str = SLUG, *, embedder: Embedder | None = None, **how: Any) -> Iterator[ProjectRun]:
        """Open a run of a project, with another embedding model if one is given."""
        with open_run(self.engine, slug, settings=self.settings, **how) as run:
            if embedder is not None:
                run.embedder = embedder
            yield run

    def fold_uses(self, slug: str = SLUG) -> None:
        """Add pending uses to the memories of a project, as the begin of a run does."""
        with self.engine.begin() as connection:
            fold_uses(connection, self.project(slug).id)

    def run_phases(self, phases: Sequence[str] = PHASES, slug: str = SLUG, **how: Any) -> dict[str, Any]:
        """Run phases of a project; return the result of each."""
        with self.open(slug, **how) as run:
            return run_phases(run, phases)

    def plan(self, slug: str = SLUG) -> Plan:
        """Return a plan of the next run of a project."""
        return make_plan(self.engine, slug, settings=self.settings)

    def roll_back(self, target: UUID, *, cascade: bool = False) -> Rollback:
        """Undo a change, a group or a job."""
        return roll_back(self.engine, target, settings=self.settings, changed_by="tester", cascade=cascade)

    def last_group(self, *, entity: UUID | None = None, job: UUID | None = None) -> UUID:
        """Return the group of the newest change of a row, of a job, or of all; of suggestions only by their id."""
        query = """
            SELECT group_id FROM {s}.consolidation_changes
            WHERE CASE WHEN CAST(:entity AS uuid) IS NULL THEN entity_type <> 'consolidation_suggestions'
                ELSE entity_id = :entity END AND (CAST(:job AS uuid) IS NULL OR job_id = :job)
            ORDER BY seq DESC LIMIT 1
        """
        group: UUID = self.value(query, entity=entity, job=job)
        return group

    def project(self, slug: str = SLUG) -> Project:
        """Return the project."""
        with self.engine.connect() as connection:
            return get_project(connection, slug)

    def configure_new(self, slug: str = SLUG, **options: Any) -> None:
        """Create the project with options."""
        ensure_project(self.engine, slug)
        self.configure(slug, **options)

    def configure(self, slug: str = SLUG, *, enabled: bool = True, **options: Any) -> None:
        """Set the project's options."""
        with self.engine.begin() as connection:
            configure_project(connection, slug, config=options, consolidation_enabled=enabled)

    def clear(self) -> None:
        """Remove all projects and the ledger, for the next test or example."""
        with self.engine.begin() as connection:
            for project in list_projects(connection):
                delete_project(connection, project)
            # The ledger is append-only: a trigger refuses deletes.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(f"DELETE FROM {SCHEMA}.consolidation_changes"))

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        """Return the rows of a query; ``{s}`` stands for the schema."""
        with self.engine.connect() as connection:
            return list(connection.execute(text(query.replace("{s}", SCHEMA)), parameters).all())

    def value(self, query: str, **parameters: Any) -> Any:
        """Return the first value of a query; ``{s}`` stands for the schema."""
        return self.rows(query, **parameters)[0][0]

    def write(self, query: str, **parameters: Any) -> None:
        """Execute a statement; ``{s}`` stands for the schema."""
        with self.engine.begin() as connection:
            connection.execute(text(query.replace("{s}", SCHEMA)), parameters)
