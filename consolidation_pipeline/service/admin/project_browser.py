"""Looking around in a project: its knowledge level by level, what a memory is made of, and a map of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.project_map import MAX_POINTS, project_to_plane, render_svg
from consolidation_pipeline.service.intake.agent_memories import get_memory
from consolidation_pipeline.service.jobs.job_status import list_jobs
from consolidation_pipeline.service.undo.history import count_change_groups, list_change_groups
from consolidation_pipeline.service.undo.lineage import trace_memory
from consolidation_pipeline.store.admin.project_browser import (
    Shelf,
    count_shelf,
    list_shelf,
    load_fates,
    load_places,
    load_subjects,
)
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project

# From the most general to what agents wrote.
KINDS = ("principle", "procedural", "pattern", "summary", "merged", "raw")
# What knowledge says beside its text.
_DETAILS = ("summary", "best_practices", "gotchas", "evidence", "dropped")


@dataclass(frozen=True)
class Page:
    """Some of ``total`` rows."""

    total: int
    rows: Sequence[Mapping[str, Any]]


def list_knowledge(engine: Engine, slug: str, shelf: Shelf, *, limit: int, offset: int = 0) -> Page:
    """The project's active memories of one kind (``KINDS``), the surest or newest first. Raises NotFoundError."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = list_shelf(connection, project.id, shelf, limit=limit, offset=offset)
        total = count_shelf(connection, project.id, shelf)
    return Page(total, [dict(row._mapping) for row in rows])


def describe_knowledge(engine: Engine, id_: UUID) -> dict[str, Any]:
    """A memory or playbook entry, what it was made from (one level), and what was made from it.

    Beside what ``trace_memory`` tells: ``confidence``, ``pattern_type``, ``tags``, ``files``, ``successor`` and what
    the details of derived knowledge hold.

    Raises:
        NotFoundError: there is nothing with this id.
    """
    traced = trace_memory(engine, str(id_), depth=1)
    known = {} if traced.kind == "playbook" else get_memory(engine, id_)
    details = known.get("details") or {}
    return {
        **asdict(traced),
        "project_id": known.get("project_id"),
        "confidence": known.get("confidence_score"),
        "details": {name: details[name] for name in _DETAILS if details.get(name)},
        **{name: known.get(name) for name in ("pattern_type", "tags", "files", "successor", "goal", "result")},
        **{name: known.get(name) for name in ("lessons_learned", "feedback", "needs_review", "pinned", "source_count")},
    }


def list_runs(engine: Engine, slug: str, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """The project's jobs, newest first, with ``undone``: None = it changed nothing. Raises NotFoundError."""
    jobs = list_jobs(engine, slug, limit=limit, offset=offset)
    with engine.connect() as connection:
        fates = load_fates(connection, [job["id"] for job in jobs])
    return [{**job, "undone": fates.get(job["id"])} for job in jobs]


def list_steps(engine: Engine, slug: str, *, limit: int, offset: int = 0, **chosen: Any) -> Page:
    """Groups of changes as ``history.list_change_groups`` has them, each with ``about``: a memory that it made or changed.

    ``about`` has ``id`` and ``content``; None where that is gone. Raises NotFoundError: no such project.
    """
    groups = list_change_groups(engine, slug, limit=limit, offset=offset, **chosen)
    with engine.connect() as connection:
        subjects = load_subjects(connection, [group["group_id"] for group in groups])
    rows = [{**group, "about": subjects.get(group["group_id"])} for group in groups]
    return Page(count_change_groups(engine, slug, **chosen), rows)


def draw_map(engine: Engine, slug: str) -> str | None:
    """A picture (SVG) of the project as in the Dagster UI: similar memories lie near each other, topics have colours.

    Of a large project, a sample. None: fewer than two memories have a vector. Raises NotFoundError.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
        places = load_places(connection, project.id, limit=MAX_POINTS)
    if places is None or len(places.vectors) < 2:
        return None
    numbers = {key: number for number, key in enumerate(sorted({key for key in places.groups if key}))}
    labels = [-1 if key is None else numbers[key] for key in places.groups]
    return render_svg(project_to_plane(places.vectors), labels, total=places.total)
