"""Carry a plan out: just what it decided, or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from uuid import UUID

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.jobs.job_requests import ensure_live_job
from consolidation_pipeline.service.knowledge.merged_memories import PlannedMerge
from consolidation_pipeline.service.plan.knowledge_forecast import forecast_knowledge
from consolidation_pipeline.service.plan.plan_document import Plan, PlannedKnowledge
from consolidation_pipeline.service.plan.planner import plan_all_merges, plan_archiving
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.knowledge.merged_memories import load_consolidated, load_unmerged_groups
from consolidation_pipeline.store.knowledge.playbook import load_entries
from consolidation_pipeline.store.memories.archive import load_archived
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.clusters import ClusterMember, load_clusters

_SHOWN = 5


def request_plan_job(engine: Engine, project: Project, plan: Plan, *, settings: Settings, triggered_by: str) -> UUID:
    """A pending job that carries the plan out, and nothing else; returns its id.

    Raises:
        UsageError: the plan is another project's. ConflictError: the project has a pending or running job.
    """
    if plan.project != project.slug:
        raise UsageError(f"the plan is for project {plan.project}, not for {project.slug}")
    decisions = {
        "as_of": plan.as_of.isoformat(),
        "merges": {str(m.id): hash_decision(m.id, (source.id for source in m.sources), m.text) for m in plan.merges},
        "archives": {str(archive.id): archive.policy for archive in plan.archives},
        "knowledge": {str(item.id): _digest_item(item) for item in _founded(plan)},
    }
    with engine.begin() as connection:
        job, created = ensure_live_job(
            connection,
            project.id,
            scope={"job": "consolidate", "plan": decisions},
            options=effective_options(project, settings),
            trigger_type="manual",
            triggered_by=triggered_by,
        )
    if not created:
        raise ConflictError(f"the project has a live job already: {job.id}", (str(job.id),))
    return UUID(str(job.id))


def check_plan(run: ProjectRun) -> None:
    """Refuse to go on where a decision of the plan that ``run`` was given cannot be carried out as it was planned.

    What was carried out before, by a run that was cut off, is no difference.

    Raises:
        ConflictError: ``conflicts`` lists every such decision, in words.
    """
    if run.plan is None:
        return
    with run.engine.connect() as connection:
        groups = load_unmerged_groups(connection, run.project.id)
        clusters = load_clusters(connection, run.project.id, "pattern")
        made = load_consolidated(connection, map(UUID, run.plan.merges))
        archived = load_archived(connection, list(map(UUID, run.plan.archives)))
    merges = [merge for merge in plan_all_merges(run, groups) if str(merge.id) in run.plan.merges]
    found = {
        str(row.id): hash_decision(row.id, row.source_memory_ids, row.content)
        for row in made.values()
        if row.retired_at is None or row.archive_reason is not None
    }
    found |= {str(merge.id): _digest(merge) for merge in merges}
    differing = [_why_not("merge", id_, found) for id_, wanted in run.plan.merges.items() if found.get(id_) != wanted]
    known = _known_knowledge(run, clusters, merges)
    missing = (id_ for id_, wanted in run.plan.knowledge.items() if wanted not in known.get(id_, ()))
    differing += [_why_not("knowledge", id_, known) for id_ in missing]
    kept = {*map(str, archived), *map(str, to_uuids(plan_archiving(run, merges).ids))}
    differing += [f"memory {id_} would not be archived any more" for id_ in run.plan.archives if id_ not in kept]
    if differing:
        more = [f"and {len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
        raise ConflictError(
            f"project {run.project.slug} has changed since the plan was made, so that nothing of it was done: "
            f"{'; '.join([*differing[:_SHOWN], *more])}. Make a new plan",
            tuple(differing),
        )


def _why_not(what: str, id_: str, found: Container[str]) -> str:
    return f"{what} {id_} would {'turn out differently' if id_ in found else 'not be made'} now"


def _known_knowledge(
    run: ProjectRun, clusters: Mapping[str, Sequence[ClusterMember]], merges: Sequence[PlannedMerge]
) -> dict[str, set[str]]:
    """The digests by id of the plan's patterns, principles and entries: as they would be made now, and as they are."""
    assert run.plan is not None
    ids = list(map(UUID, run.plan.knowledge))
    with run.engine.connect() as connection:
        rows = load_consolidated(connection, ids)
        entries = load_entries(connection, run.project.id) if ids else []
    known: dict[str, set[str]] = defaultdict(set)
    for item in forecast_knowledge(run, clusters, merges).items if ids else ():
        known[str(item.id)].add(_digest_item(item))
    for row in rows.values():
        known[str(row.id)] |= {hash_decision(row.id, row.source_memory_ids, text) for text in (row.content, "")}
    for entry in entries:
        known[str(entry.id)].add(hash_decision(entry.id, entry.supporting_ids, entry.content))
    return known


def _founded(plan: Plan) -> list[PlannedKnowledge]:
    """The patterns, principles and entries of which everything that they rest on is still in the plan."""
    kept = {merge.id for merge in plan.merges}
    founded = []
    for item in plan.knowledge:
        if kept.issuperset(item.rests_on):
            kept.add(item.id)
            founded.append(item)
    return founded


def _digest_item(item: PlannedKnowledge) -> str:
    return hash_decision(item.id, item.sources, item.text or "")


def hash_decision(id_: UUID, sources: Iterable[UUID], content: str) -> str:
    """A hash of what a plan decides: what is made of which memories, and the text that results."""
    return content_hash("\n".join([str(id_), *sorted(map(str, sources)), content]))[:16]


def _digest(merge: PlannedMerge) -> str:
    return hash_decision(merge.id, (source.id for source in merge.sources), merge.merged.content)
