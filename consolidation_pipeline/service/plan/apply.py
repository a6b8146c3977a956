"""Apply a plan: a job that makes the changes of the plan and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from uuid import UUID

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.jobs.job_requests import build_new_job, ensure_live_job
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
from consolidation_pipeline.store.memories.archive import find_archived
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.clusters import ClusterMember, load_clusters

# Differences that an error message lists.
_MAX_LISTED = 5


def request_plan_job(engine: Engine, project: Project, plan: Plan, *, settings: Settings, triggered_by: str) -> UUID:
    """Create a pending job that applies the plan and does nothing else; return its id.

    Raises:
        UsageError: The plan is another project's.
        ConflictError: A job that applies this plan is pending or running, or too many jobs are pending.
    """
    if plan.project != project.slug:
        raise UsageError(f"the plan is for project {plan.project}, not for {project.slug}")
    decisions = {
        "as_of": plan.as_of.isoformat(),
        "merges": {
            str(merge.id): _hash_decision(merge.id, (source.id for source in merge.sources), merge.text)
            for merge in plan.merges
        },
        "archives": {str(archive.id): archive.policy for archive in plan.archives},
        "knowledge": {str(item.id): _hash_item(item) for item in _select_supported(plan)},
    }
    scope, options = {"job": "consolidate", "plan": decisions}, effective_options(project, settings)
    wanted = build_new_job(project.id, scope, options, trigger_type="manual", triggered_by=triggered_by)
    with engine.begin() as connection:
        job, created = ensure_live_job(connection, wanted)
    if not created:
        raise ConflictError(f"job {job.id} applies this plan already: it is {job.status}", (str(job.id),))
    return UUID(str(job.id))


def _select_supported(plan: Plan) -> list[PlannedKnowledge]:
    """Return the knowledge that rests on nothing missing: a person may have removed merges from the plan's file."""
    present = {merge.id for merge in plan.merges}
    supported = []
    for item in plan.knowledge:
        if present.issuperset(item.rests_on):
            present.add(item.id)
            supported.append(item)
    return supported


def check_plan(run: ProjectRun) -> None:
    """Raise ConflictError if a decision of the run's plan can no longer be made as planned.

    A decision that an interrupted run has made already is no conflict.
    """
    if run.plan is None:
        return
    with run.engine.connect() as connection:
        groups = load_unmerged_groups(connection, run.project.id)
        clusters = load_clusters(connection, run.project.id, "pattern")
        rows = load_consolidated(connection, map(UUID, run.plan.merges))
        archived = find_archived(connection, list(map(UUID, run.plan.archives)))
    merges = [merge for merge in plan_all_merges(run, groups) if str(merge.id) in run.plan.merges]
    merge_hashes = {
        str(row.id): _hash_decision(row.id, row.source_memory_ids, row.content)
        for row in rows.values()
        if row.retired_at is None or row.archive_reason is not None
    }
    merge_hashes |= {
        str(merge.id): _hash_decision(merge.id, (source.id for source in merge.sources), merge.merged.content)
        for merge in merges
    }
    knowledge_hashes = _hash_knowledge(run, clusters, merges)
    archivable = {*map(str, archived), *map(str, to_uuids(plan_archiving(run, merges).ids))}
    differences = [
        *(
            _describe_difference("merge", id_, merge_hashes)
            for id_, planned in run.plan.merges.items()
            if merge_hashes.get(id_) != planned
        ),
        *(
            _describe_difference("knowledge", id_, knowledge_hashes)
            for id_, planned in run.plan.knowledge.items()
            if planned not in knowledge_hashes.get(id_, ())
        ),
        *(f"memory {id_} would not be archived any more" for id_ in run.plan.archives if id_ not in archivable),
    ]
    if differences:
        more = [f"and {len(differences) - _MAX_LISTED} more"] if len(differences) > _MAX_LISTED else []
        raise ConflictError(
            f"project {run.project.slug} has changed since the plan was made, and nothing was changed: "
            f"{'; '.join([*differences[:_MAX_LISTED], *more])}. Make a new plan",
            tuple(differences),
        )


def _describe_difference(noun: str, id_: str, possible: Container[str]) -> str:
    return f"{noun} {id_} would {'turn out differently' if id_ in possible else 'not be made'} now"


def _hash_knowledge(
    run: ProjectRun, clusters: Mapping[str, Sequence[ClusterMember]], merges: Sequence[PlannedMerge]
) -> dict[str, set[str]]:
    """Return by id the hashes of the planned patterns, principles and entries: as forecast now, and as stored.

    The text of a pattern that a language model writes is not in its plan. So stored rows also get the hash without it.
    """
    assert run.plan is not None
    ids = list(map(UUID, run.plan.knowledge))
    with run.engine.connect() as connection:
        rows = load_consolidated(connection, ids)
        entries = load_entries(connection, run.project.id, scope=run.options.scope) if ids else []
    hashes: dict[str, set[str]] = defaultdict(set)
    for item in forecast_knowledge(run, clusters, merges).items if ids else ():
        hashes[str(item.id)].add(_hash_item(item))
    for row in rows.values():
        hashes[str(row.id)] |= {_hash_decision(row.id, row.source_memory_ids, text) for text in (row.content, "")}
    for entry in entries:
        hashes[str(entry.id)].add(_hash_decision(entry.id, entry.supporting_ids, entry.content))
    return hashes


def _hash_item(item: PlannedKnowledge) -> str:
    return _hash_decision(item.id, item.sources, item.text or "")


def _hash_decision(id_: UUID, sources: Iterable[UUID], content: str) -> str:
    """Return a hash of a decision: the id of the row, the memories it is made from, and its text."""
    return content_hash("\n".join([str(id_), *sorted(map(str, sources)), content]))[:16]
