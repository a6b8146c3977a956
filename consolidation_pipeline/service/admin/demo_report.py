"""What the demo shows of a project: numbers, two merges, two vetoes, what was learned, the spread of relevance."""

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
    Learned,
    MergedSample,
    load_unit_texts,
    relevance_spread,
    sample_learned,
    sample_merged,
)
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.similarity.clusters import load_clusters

# Examples of each kind: enough to see what happens, few enough for one screen.
SHOWN = 2
FEWEST_COMMITS = 2


@dataclass(frozen=True)
class Veto:
    """Two memories that were kept apart, and the literals that conflict."""

    a: str
    b: str
    similarity: float
    conflicts: Sequence[str]


@dataclass(frozen=True)
class Showcase:
    """A project as it is now. ``relevance`` is minimum, median and maximum; None before the first run."""

    project: str
    counts: ProjectCounts
    merged: Sequence[MergedSample]
    vetoes: Sequence[Veto]
    learned: Sequence[Learned]
    relevance: tuple[float, float, float] | None


def show_project(engine: Engine, slug: str) -> Showcase:
    """Collect what the demo's table shows, from the stored state. Raises NotFoundError."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        return Showcase(
            project=slug,
            counts=count_project(connection, project.id),
            merged=sample_merged(connection, project.id, limit=SHOWN),
            vetoes=_closest_vetoes(connection, project.id),
            learned=sample_learned(connection, project.id),
            relevance=relevance_spread(connection, project.id),
        )


def find_obstacle(repository: Path) -> str | None:
    """Why the history of ``repository`` cannot be shown; None where it can."""
    try:
        commits = len(list(islice(read_git(repository), FEWEST_COMMITS)))
    except UsageError as error:
        return str(error)
    return None if commits >= FEWEST_COMMITS else f"{repository} has fewer than {FEWEST_COMMITS} commits"


def _closest_vetoes(connection: Connection, project_id: UUID) -> list[Veto]:
    """The most similar pairs that were not merged because their literals conflict."""
    groups = load_clusters(connection, project_id, "suggest").values()
    found: list[dict[str, Any]] = [veto for members in groups for veto in members[0].details.get("vetoes", ())]
    found.sort(key=lambda veto: (-veto["similarity"], veto["a"], veto["b"]))
    ids = [UUID(veto[side]) for veto in found for side in ("a", "b")]
    texts = load_unit_texts(connection, ids)
    shown = (v for v in found if UUID(v["a"]) in texts and UUID(v["b"]) in texts)
    return [
        Veto(texts[UUID(v["a"])], texts[UUID(v["b"])], v["similarity"], v["conflicts"]) for v in islice(shown, SHOWN)
    ]
