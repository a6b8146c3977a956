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
from consolidation_pipeline.store.similarity.clusters import load_clusters

# Examples of each kind, few enough for one screen.
MAX_EXAMPLES = 2
MIN_COMMITS = 2


@dataclass(frozen=True)
class VetoedPair:
    """Texts of two similar memories that were not merged because of ``conflicts``: differing literals or negations."""

    a: str
    b: str
    similarity: float
    conflicts: Sequence[str]


@dataclass(frozen=True)
class DemoReport:
    """Current state of a project. ``relevance``: minimum, median and maximum; None before the first run."""

    project: str
    counts: ProjectCounts
    merged: Sequence[MergedSample]
    vetoes: Sequence[VetoedPair]
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
            vetoes=_load_vetoed_pairs(connection, project.id),
            learned=load_knowledge_samples(connection, project.id),
            relevance=load_relevance_spread(connection, project.id),
        )


def explain_unusable_repository(repository: Path) -> str | None:
    """Return the reason why the history of ``repository`` cannot be imported, or None if it can."""
    try:
        commits = len(list(islice(read_git(repository), MIN_COMMITS)))
    except UsageError as error:
        return str(error)
    return None if commits >= MIN_COMMITS else f"{repository} has fewer than {MIN_COMMITS} commits"


def _load_vetoed_pairs(connection: Connection, project_id: UUID) -> list[VetoedPair]:
    """Return the most similar pairs that a veto kept from being merged."""
    groups = load_clusters(connection, project_id, "suggest").values()
    vetoes: list[dict[str, Any]] = [veto for members in groups for veto in members[0].details.get("vetoes", ())]
    vetoes.sort(key=lambda veto: (-veto["similarity"], veto["a"], veto["b"]))
    found = load_unit_texts(connection, [UUID(veto[side]) for veto in vetoes for side in ("a", "b")])
    texts = {str(id_): text for id_, text in found.items()}
    pairs = (
        VetoedPair(texts[veto["a"]], texts[veto["b"]], veto["similarity"], veto["conflicts"])
        for veto in vetoes
        if veto["a"] in texts and veto["b"] in texts
    )
    return list(islice(pairs, MAX_EXAMPLES))
