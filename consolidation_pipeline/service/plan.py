"""What a run would do, group by group, before it does it: a plan can be read, kept in a file and applied.

A plan is made in read-only transactions on the functions that a run is made of, so the database itself sees to it that
nothing is written. Applied, it is made once more from what is there then, and refused where the two differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from consolidation_pipeline.core.memories import content_hash
from consolidation_pipeline.core.retention import (
    concatenate_units,
    exceeds_share,
    explain_archives,
    merge_units,
    plan_archives,
)
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.archiving import load_units, policies_in_force
from consolidation_pipeline.service.clusters import group_contents
from consolidation_pipeline.service.merging import BATCH, CONFIDENCE, PlannedMerge, plan_merges
from consolidation_pipeline.service.preview import Preview, preview_contents
from consolidation_pipeline.service.runs import ProjectRun, effective_options, preview_run
from consolidation_pipeline.service.units import Contents
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.archiving import load_archived
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.graph import Member
from consolidation_pipeline.store.jobs import append_job
from consolidation_pipeline.store.knowledge import load_consolidated, load_merged_texts, load_open_groups
from consolidation_pipeline.store.memories import load_texts
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.vectors_io import Ids, to_ids, to_uuids

# Of a larger group the lowest cosine is told alone: a matrix of thousands of cells is not read.
MATRIX_MOST = 25
_SHOWN = 5


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedSource(_Part):
    """A raw memory that would be merged; ``merged_into``: the merged memory that it is in already."""

    id: UUID
    version: int
    memory_type: str
    learned_at: datetime
    merged_into: UUID | None
    text: str


class MergeGroup(_Part):
    """One merge: the texts before (``sources``) and after (``text``).

    ``similarity``: cosines between the sources in their order, of up to 25; ``supersedes``: merged memories that would
    be taken in; ``dropped``: sentences that would not fit, kept in the details.
    """

    id: UUID
    action: Literal["create", "extend"]
    cluster_key: str
    reason: str
    confidence: float
    lowest_similarity: float | None
    similarity: list[list[float]] | None
    sources: list[PlannedSource]
    supersedes: list[UUID]
    text: str
    dropped: list[str]


class Question(_Part):
    """A group that is left to a person: why, pair by pair."""

    cluster_key: str
    members: list[UUID]
    vetoes: list[dict[str, Any]]
    texts: dict[UUID, str]


class PlannedArchive(_Part):
    """A memory that would be archived: by which policy, and why in words."""

    id: UUID
    kind: Literal["raw", "merged"]
    policy: str
    reason: str
    text: str


class Costs(_Part):
    """What a run would be billed for: embedding and completions."""

    memories_to_embed: int
    embedding_tokens: int
    completion_calls: int
    completion_tokens: int
    cost_usd: float | None


class Plan(_Part):
    """All that a run of a project would change as of an instant.

    ``held_back``: a run would not do the ``archives`` unasked, as they are too large a share of the project; applying
    the plan does them. ``calibration``: why the thresholds would be taken anew, None = they are held.
    """

    format: Literal[1] = 1
    project: str
    as_of: datetime
    embedding_model: str
    options: dict[str, Any]
    thresholds: dict[str, float]
    calibration: str | None
    memories: int
    merges: list[MergeGroup]
    questions: list[Question]
    archives: list[PlannedArchive]
    held_back: bool
    pattern_groups: int
    costs: Costs


def make_plan(engine: Engine, slug: str, *, settings: Settings) -> Plan:
    """What a run of the project would do now. Nothing is written, no paid call is made.

    Raises:
        NotFoundError; EmbeddingError: the model gave no usable vector.
    """
    run = preview_run(engine, slug, settings=settings)
    seen = preview_contents(run)
    with run.engine.connect() as connection:
        groups = group_contents(connection, run, seen.contents)
    merges = _plan_all(run, _open_groups(seen.contents, groups.members))
    archiving = plan_archiving(run, merges)
    return Plan(
        project=slug,
        as_of=run.now,
        embedding_model=run.embedder.name,
        options=run.options.model_dump(mode="json"),
        thresholds=run.thresholds,
        calibration=seen.calibration,
        memories=len(seen.contents.nodes),
        merges=[_merge_group(merge, seen.contents) for merge in merges],
        questions=_questions(run, groups.members),
        archives=_archives(run, archiving, merges),
        held_back=archiving.held_back,
        pattern_groups=len({m.cluster_key for m in groups.members if m.tier == "pattern"}),
        costs=_costs(seen),
    )


def request_plan(engine: Engine, project: Project, plan: Plan, *, settings: Settings, triggered_by: str) -> UUID:
    """A pending job that carries the plan out, and nothing else; returns its id.

    Raises:
        UsageError: the plan is another project's. ConflictError: the project has a pending or running job.
    """
    if plan.project != project.slug:
        raise UsageError(f"the plan is for project {plan.project}, not for {project.slug}")
    decisions = {
        "as_of": plan.as_of.isoformat(),
        "merges": {str(m.id): digest(m.id, (source.id for source in m.sources), m.text) for m in plan.merges},
        "archives": {str(archive.id): archive.policy for archive in plan.archives},
    }
    options = effective_options(project, settings).model_dump(mode="json")
    with engine.begin() as connection:
        return append_job(
            connection,
            project.id,
            trigger_type="manual",
            triggered_by=triggered_by,
            options=options,
            scope={"job": "consolidate", "plan": decisions},
        )


def check_plan(run: ProjectRun) -> None:
    """Refuse to go on where a decision of the plan that ``run`` was given cannot be carried out as it was planned.

    What was carried out before, by a run that was cut off, is no difference.

    Raises:
        ConflictError: ``conflicts`` lists every such decision, in words.
    """
    if run.plan is None:
        return
    with run.engine.connect() as connection:
        groups = load_open_groups(connection, run.project.id)
        made = load_consolidated(connection, map(UUID, run.plan.merges))
        archived = load_archived(connection, list(map(UUID, run.plan.archives)))
    merges = [merge for merge in _plan_all(run, groups) if str(merge.id) in run.plan.merges]
    found = {
        str(row.id): digest(row.id, row.source_memory_ids, row.content)
        for row in made.values()
        if row.retired_at is None or row.archive_reason is not None
    }
    found |= {str(merge.id): _digest(merge) for merge in merges}
    differing = [_why_not(id_, found) for id_, wanted in run.plan.merges.items() if found.get(id_) != wanted]
    kept = {*map(str, archived), *map(str, to_uuids(plan_archiving(run, merges).ids))}
    differing += [f"memory {id_} would not be archived any more" for id_ in run.plan.archives if id_ not in kept]
    if differing:
        more = [f"and {len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
        raise ConflictError(
            f"project {run.project.slug} has changed since the plan was made, so that nothing of it was done: "
            f"{'; '.join([*differing[:_SHOWN], *more])}. Make a new plan",
            tuple(differing),
        )


def _why_not(id_: str, found: Mapping[str, str]) -> str:
    return f"merge {id_} would {'turn out differently' if id_ in found else 'not be made'} now"


def _plan_all(run: ProjectRun, groups: Mapping[str, Sequence[UUID]]) -> list[PlannedMerge]:
    if not run.options.merge:
        return []
    keys = list(groups)
    batches = ({key: groups[key] for key in keys[at : at + BATCH]} for at in range(0, len(keys), BATCH))
    return [merge for batch in batches for merge in plan_merges(run, batch)[0]]


def _open_groups(contents: Contents, members: Iterable[Member]) -> dict[str, list[UUID]]:
    """The merge groups that are not one merged memory yet, as ``load_open_groups`` has them."""
    nodes, found = contents.nodes, {}
    for key, group in _of_tier(members, "merge").items():
        ordered = [m.member_id for m in sorted(group, key=lambda m: (not m.is_representative, m.member_id))]
        into = nodes.merged_into[np.searchsorted(nodes.ids, to_ids(ordered))]
        if (into == b"").any() or len(np.unique(into)) > 1:
            found[key] = ordered
    return found


def _merge_group(merge: PlannedMerge, contents: Contents) -> MergeGroup:
    x = contents.x[np.searchsorted(contents.nodes.ids, to_ids([source.id for source in merge.sources]))]
    cosines = (x @ x.T).astype(np.float64)
    return MergeGroup(
        id=merge.id,
        action="extend" if merge.held else "create",
        cluster_key=merge.cluster_key,
        reason=merge.reason,
        confidence=CONFIDENCE,
        lowest_similarity=round(float(cosines.min()), 4),
        similarity=np.round(cosines, 4).tolist() if len(x) <= MATRIX_MOST else None,
        sources=[
            PlannedSource(
                id=source.id,
                version=source.version,
                memory_type=source.memory_type,
                learned_at=source.learned_at,
                merged_into=source.consolidated_into_id,
                text=source.body,
            )
            for source in merge.sources
        ],
        supersedes=[row.id for row in merge.held[1:]],
        text=merge.merged.content,
        dropped=list(merge.merged.dropped),
    )


def _questions(run: ProjectRun, members: Iterable[Member]) -> list[Question]:
    groups = _of_tier(members, "suggest")
    texts = _load_texts(run, [m.member_id for group in groups.values() for m in group])
    return [
        Question(
            cluster_key=key,
            members=[m.member_id for m in group],
            vetoes=next(m.details["vetoes"] for m in group if m.is_representative),
            texts={m.member_id: texts[m.member_id] for m in group if m.member_id in texts},
        )
        for key, group in groups.items()
    ]


def _of_tier(members: Iterable[Member], tier: str) -> dict[str, list[Member]]:
    """The groups of a tier by their keys, in the order of these."""
    groups: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        if member.tier == tier:
            groups[member.cluster_key].append(member)
    return dict(sorted(groups.items()))


def _load_texts(run: ProjectRun, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Texts of raw and merged memories."""
    with run.engine.connect() as connection:
        return {**load_texts(connection, ids), **load_merged_texts(connection, ids)}


@dataclass(frozen=True, eq=False)
class Archiving:
    """What would be archived once the merges were made: ids ``S16`` (m,), whether raw, policies and words."""

    ids: Ids
    raw: npt.NDArray[np.bool_]
    policies: npt.NDArray[np.str_]
    words: list[str]
    held_back: bool


def plan_archiving(run: ProjectRun, merges: Sequence[PlannedMerge]) -> Archiving:
    """What the policies would take as of the run's instant, after ``merges``; a merge is judged as it would stand."""
    with run.engine.connect() as connection:
        ids, raw, units = load_units(connection, run)
    merge_of = np.full(len(ids), -1)
    order = np.argsort(ids)
    for number, merge in enumerate(merges):
        joined = to_ids([*merge.fresh, *(row.id for row in merge.held)])
        merge_of[order[np.searchsorted(ids[order], joined)]] = number
    alone = merge_of < 0
    after = concatenate_units([units.select(alone), merge_units(units.select(~alone), merge_of[~alone])])
    after_ids = np.concatenate([ids[alone], to_ids([merge.id for merge in merges])])
    plan = plan_archives(after, policies_in_force(run.options, run.job))
    still_raw = np.concatenate([raw[alone], np.zeros(len(merges), dtype=bool)])
    return Archiving(
        after_ids[plan.rows],
        still_raw[plan.rows],
        plan.reasons,
        explain_archives(after, plan),
        exceeds_share(len(plan), len(after), max_share=run.options.archive_max_share),
    )


def _archives(run: ProjectRun, archiving: Archiving, merges: Sequence[PlannedMerge]) -> list[PlannedArchive]:
    ids = to_uuids(archiving.ids)
    texts = _load_texts(run, ids) | {merge.id: merge.merged.content for merge in merges}
    columns = zip(ids, archiving.raw.tolist(), archiving.policies.tolist(), archiving.words, strict=True)
    return [
        PlannedArchive(id=id_, kind="raw" if raw else "merged", policy=policy, reason=words, text=texts[id_])
        for id_, raw, policy, words in columns
    ]


def _costs(seen: Preview) -> Costs:
    return Costs(
        memories_to_embed=seen.unembedded,
        embedding_tokens=seen.usage.tokens,
        completion_calls=0,
        completion_tokens=0,
        cost_usd=seen.usage.cost_usd,
    )


def digest(merged: UUID, sources: Iterable[UUID], content: str) -> str:
    """A hash of what a merge decides: who is merged into what, and the text that results."""
    return content_hash("\n".join([str(merged), *sorted(map(str, sources)), content]))[:16]


def _digest(merge: PlannedMerge) -> str:
    return digest(merge.id, (source.id for source in merge.sources), merge.merged.content)


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan as JSON. Raises UsageError: the file cannot be written."""
    try:
        path.write_text(plan.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def load_plan(path: Path) -> Plan:
    """A plan from its file. Raises UsageError: there is none, or it is not one of ours."""
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path} is no plan that `consolidation plan --out` wrote: {where}: {first['msg']}") from None
