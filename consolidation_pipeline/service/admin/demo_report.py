"""Report of the demo: counts of a project, sample merges, vetoed pairs and knowledge, spread of relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.git_log import read_git
from consolidation_pipeline.service.playbook.entries import read_playbook
from consolidation_pipeline.service.review.review_queue import decide_review, list_review
from consolidation_pipeline.service.similarity.asked_pairs import explain_asked_pairs
from consolidation_pipeline.store.admin.project_counts import ProjectCounts, count_project
from consolidation_pipeline.store.admin.samples import (
    KnowledgeSample,
    MergedSample,
    load_knowledge_samples,
    load_merged_samples,
    load_relevance_spread,
    load_unit_texts,
)
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.review_queue import PLAYBOOK_ENTRY
from consolidation_pipeline.store.similarity.clusters import load_clusters

# Entries that the demo approves.
MAX_APPROVED = 3
MAX_REVIEWED = 20
# Examples of each kind, few enough for one screen.
MAX_EXAMPLES = 2
MIN_COMMITS = 2


@dataclass(frozen=True)
class AskedPair:
    """Texts of two similar memories that were not merged because of ``differences``."""

    a: str
    b: str
    similarity: float
    differences: Sequence[str]


@dataclass(frozen=True)
class DemoReport:
    """Current state of a project. ``relevance``: minimum, median and maximum; None before the first run."""

    project: str
    counts: ProjectCounts
    merged: Sequence[MergedSample]
    asked_pairs: Sequence[AskedPair]
    learned: Sequence[KnowledgeSample]
    relevance: tuple[float, float, float] | None


def build_demo_report(engine: Engine, slug: str) -> DemoReport:
    """Collect the report from the store. Raise NotFoundError if there is no such project."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        return DemoReport(
            project=slug,
            counts=count_project(connection, project.id),
            merged=load_merged_samples(connection, project.id, limit=MAX_EXAMPLES),
            asked_pairs=_load_asked_pairs(connection, project.id),
            learned=load_knowledge_samples(connection, project.id),
            relevance=load_relevance_spread(connection, project.id),
        )


def approve_first_entries(engine: Engine, slug: str, *, changed_by: str) -> list[UUID]:
    """Approve the surest waiting entries without a risk, as a person would, and return their ids.

    Nothing is approved if an entry is active already.
    """
    if read_playbook(engine, slug, limit=1)["totals"]["active"]:
        return []
    waiting = list_review(engine, slug, limit=MAX_REVIEWED, kind=PLAYBOOK_ENTRY)["waiting"]
    ids = [row["id"] for row in waiting if not row["risks"]][:MAX_APPROVED]
    if ids:
        decide_review(engine, ids, approved=True, changed_by=changed_by, reason="approved by the demo")
    return ids


def explain_unusable_repository(repository: Path) -> str | None:
    """Return the reason why the history of ``repository`` cannot be imported, or None if it can."""
    try:
        commits = len(list(islice(read_git(repository), MIN_COMMITS)))
    except UsageError as error:
        return str(error)
    return None if commits >= MIN_COMMITS else f"{repository} has fewer than {MIN_COMMITS} commits"


def _load_asked_pairs(connection: Connection, project_id: UUID) -> list[AskedPair]:
    """Return the most similar pairs that a person decides on."""
    groups = load_clusters(connection, project_id, "suggest").values()
    asked_pairs: list[dict[str, Any]] = [
        asked for members in groups for asked in members[0].details.get("asked_pairs", ())
    ]
    asked_pairs.sort(key=lambda asked: (-asked["similarity"], asked["a"], asked["b"]))
    texts = load_unit_texts(connection, [UUID(asked[side]) for asked in asked_pairs for side in ("a", "b")])
    current = (asked for asked in asked_pairs if UUID(asked["a"]) in texts and UUID(asked["b"]) in texts)
    return [
        AskedPair(texts[UUID(asked["a"])], texts[UUID(asked["b"])], asked["similarity"], asked["differences"])
        for asked in explain_asked_pairs([*islice(current, MAX_EXAMPLES)], texts)
    ]
