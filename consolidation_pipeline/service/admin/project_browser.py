"""Views of a project for the web pages: knowledge by kind, single memories, runs, change groups, map."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.knowledge.risky_text import find_risks
from consolidation_pipeline.core.project_map import MAX_POINTS, project_to_plane, render_svg
from consolidation_pipeline.service.intake.agent_memories import get_memory
from consolidation_pipeline.service.jobs.job_status import list_jobs
from consolidation_pipeline.service.undo.history import count_change_groups, list_change_groups
from consolidation_pipeline.service.undo.lineage import trace_memory
from consolidation_pipeline.store.admin import project_browser as store
from consolidation_pipeline.store.admin.project_browser import (
    KnowledgeFilter,
    load_change_subjects,
    load_map_points,
    load_reverted,
    load_review_outcomes,
    load_undo_states,
)
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.review_queue import REVIEWED_KINDS

# From the most general kind to raw memories.
KINDS = ("principle", "procedural", "pattern", "summary", "merged", "raw")
# Details of consolidated memories that are shown beside the text.
_DETAILS = ("seen", "summary", "best_practices", "gotchas", "evidence", "dropped")


@dataclass(frozen=True)
class Page:
    """Page of rows out of ``total`` rows."""

    total: int
    rows: Sequence[Mapping[str, Any]]


def list_knowledge(engine: Engine, slug: str, knowledge: KnowledgeFilter, *, limit: int, offset: int = 0) -> Page:
    """Return the active memories that pass a filter, in the order of ``store.list_knowledge``."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = store.list_knowledge(connection, project.id, knowledge, limit=limit, offset=offset)
        total = store.count_knowledge(connection, project.id, knowledge)
    return Page(total, [dict(row._mapping) for row in rows])


def describe_knowledge(engine: Engine, id_: UUID) -> dict[str, Any]:
    """Return a memory or playbook entry with its direct sources, its main columns, and what was derived from it.

    ``risks``: of the text of what a person reviews, in words.
    """
    traced = trace_memory(engine, str(id_), depth=1)
    known = {} if traced.kind == "playbook" else get_memory(engine, id_)
    details = known.get("details") or {}
    return {
        **asdict(traced),
        "project_id": known.get("project_id"),
        "confidence": known.get("confidence_score"),
        "details": {name: details[name] for name in _DETAILS if details.get(name)},
        "risks": [risk.reason for risk in find_risks(traced.content)] if traced.kind in REVIEWED_KINDS else [],
        **{name: known.get(name) for name in ("pattern_type", "tags", "files", "successor", "goal", "result")},
        **{name: known.get(name) for name in ("lessons_learned", "feedback", "needs_review", "pinned", "source_count")},
    }


def list_runs(engine: Engine, slug: str, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """Return a project's jobs, newest first. ``undone`` of a job is None if it changed nothing."""
    jobs = list_jobs(engine, slug, limit=limit, offset=offset)
    with engine.connect() as connection:
        undone = load_undo_states(connection, [job["id"] for job in jobs])
    return [{**job, "undone": undone.get(job["id"])} for job in jobs]


def list_groups_with_subjects(engine: Engine, slug: str, *, limit: int, offset: int = 0, **filters: Any) -> Page:
    """Return change groups, each with what people read of it beside the columns of the ledger.

    ``about``: the ``id`` and ``content`` of what it created or changed, None if that was deleted. ``outcome`` of a
    review and ``reverts`` of a rollback: as in ``store.admin.project_browser``, else None. ``reason``: None if it only
    repeats these. ``filters`` are those of ``history.list_change_groups``.
    """
    groups = list_change_groups(engine, slug, limit=limit, offset=offset, **filters)
    ids = [group["group_id"] for group in groups]
    with engine.connect() as connection:
        subjects, outcomes = load_change_subjects(connection, ids), load_review_outcomes(connection, ids)
        reverted = load_reverted(connection, ids)
    rows = [
        {
            **group,
            "about": subjects.get(group["group_id"]),
            "outcome": outcomes.get(group["group_id"]),
            "reverts": reverted.get(group["group_id"]),
            "reason": None if _is_plain(group["reason"] or "", group["changed_by"]) else group["reason"],
        }
        for group in groups
    ]
    return Page(count_change_groups(engine, slug, **filters), rows)


# Reasons that the program writes for decisions and rollbacks for which a person gave none.
_ROLLBACK_REASON = re.compile(r"(?:undoes|redoes what was undone by) (?:group|job) [0-9a-f-]{36}")


def _is_plain(reason: str, changed_by: str) -> bool:
    return reason.endswith(f" by {changed_by}") or _ROLLBACK_REASON.fullmatch(reason) is not None


def draw_map(engine: Engine, slug: str) -> str | None:
    """Return an SVG map of the project: similar memories are near each other, and topics have colours.

    The map of a large project shows a sample. None if fewer than two memories have a vector.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
        points = load_map_points(connection, project.id, limit=MAX_POINTS)
    if points is None or len(points.vectors) < 2:
        return None
    numbers = {key: number for number, key in enumerate(sorted({key for key in points.groups if key}))}
    labels = [numbers[key] if key else -1 for key in points.groups]
    return render_svg(project_to_plane(points.vectors), labels, total=points.total)
