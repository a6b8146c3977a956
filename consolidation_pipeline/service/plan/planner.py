"""Make a plan: the groups, merges and archives of a run that begins now, on the run's own functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.lifecycle.archive_policies import (
    concatenate_units,
    exceeds_share,
    explain_archives,
    merge_units,
    plan_archives,
)
from consolidation_pipeline.service.knowledge.merge_rewrites import DuplicateTexts, price_rewrites
from consolidation_pipeline.service.knowledge.merged_memories import (
    BATCH,
    CONFIDENCE,
    PlannedMerge,
    TextKey,
    plan_merges,
)
from consolidation_pipeline.service.lifecycle.archive import load_units, policies_in_force
from consolidation_pipeline.service.plan.grouping_preview import GroupingPreview, preview_grouping
from consolidation_pipeline.service.plan.knowledge_forecast import forecast_knowledge
from consolidation_pipeline.service.plan.plan_document import (
    Costs,
    MergeGroup,
    Plan,
    PlannedArchive,
    PlannedSource,
    Question,
)
from consolidation_pipeline.service.review.suggestion_proposals import (
    SuggestGroup,
    group_by_terms,
    price_suggestions,
    read_suggest_groups,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.service.similarity.clusters import group_contents
from consolidation_pipeline.service.similarity.merge_groups import Contents
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import Ids, to_ids, to_uuids
from consolidation_pipeline.store.knowledge.merged_memories import load_consolidated_texts
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.clusters import ClusterMember

# Of a larger group the lowest cosine is told alone: a matrix of thousands of cells is not read.
MAX_MATRIX_SOURCES = 25


def make_plan(engine: Engine, slug: str, *, settings: Settings) -> Plan:
    """What a run of the project would do now. Nothing is written, no paid call is made.

    Raises:
        NotFoundError; EmbeddingError: the model gave no usable vector.
    """
    run = preview_run(engine, slug, settings=settings)
    seen = preview_grouping(run)
    with run.engine.connect() as connection:
        groups = group_contents(connection, run, seen.contents)
        by_words = group_by_terms(connection, seen.unembedded, cross_type=run.options.cross_type)
        asked = [*read_suggest_groups(_of_tier(groups.members, "suggest")), *by_words]
        proposals = price_suggestions(connection, run, asked)
    merges = plan_all_merges(run, _open_groups(seen.contents, groups.members))
    foreseen = forecast_knowledge(run, _of_tier(groups.members, "pattern"), merges)
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
        questions=[*_questions(run, groups.members), *_questions_by_words(run, by_words)],
        knowledge=list(foreseen.items),
        archives=_archives(run, archiving, merges),
        held_back=archiving.held_back,
        pattern_groups=len({m.cluster_key for m in groups.members if m.tier == "pattern"}),
        costs=_costs(seen, [*price_rewrites(run, _to_word(merges)), *foreseen.bills, *proposals]),
    )


def plan_all_merges(run: ProjectRun, groups: Mapping[str, Sequence[UUID]]) -> list[PlannedMerge]:
    """The merges of all these groups: cluster key -> members, the representative first."""
    if not run.options.merge:
        return []
    keys = list(groups)
    batches = ({key: groups[key] for key in keys[at : at + BATCH]} for at in range(0, len(keys), BATCH))
    said: dict[TextKey, UUID] = {}
    return [merge for batch in batches for merge in plan_merges(run, batch, said)[0]]


def _open_groups(contents: Contents, members: Iterable[ClusterMember]) -> dict[str, list[UUID]]:
    """The merge groups that are not one merged memory yet, as ``load_unmerged_groups`` has them."""
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
        action="extend" if merge.existing else "create",
        cluster_key=merge.cluster_key,
        reason=merge.reason,
        confidence=CONFIDENCE,
        lowest_similarity=round(float(cosines.min()), 4),
        similarity=np.round(cosines, 4).tolist() if len(x) <= MAX_MATRIX_SOURCES else None,
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
        supersedes=[row.id for row in merge.existing[1:]],
        text=merge.merged.content,
        dropped=list(merge.merged.dropped),
    )


def _questions(run: ProjectRun, members: Iterable[ClusterMember]) -> list[Question]:
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


def _questions_by_words(run: ProjectRun, groups: Sequence[SuggestGroup]) -> list[Question]:
    texts = _load_texts(run, [id_ for group in groups for id_ in group.members])
    return [
        Question(
            cluster_key=group.cluster_key,
            members=list(group.members),
            vetoes=[
                {
                    **dict(zip("ab", map(str, group.members), strict=False)),
                    "similarity": group.similarity,
                    "conflicts": list(group.reasons),
                }
            ],
            texts={id_: texts[id_] for id_ in group.members},
        )
        for group in groups
    ]


def _of_tier(members: Iterable[ClusterMember], tier: str) -> dict[str, list[ClusterMember]]:
    """The groups of a tier by their keys, in the order of these."""
    groups: dict[str, list[ClusterMember]] = defaultdict(list)
    for member in members:
        if member.tier == tier:
            groups[member.cluster_key].append(member)
    return dict(sorted(groups.items()))


def _load_texts(run: ProjectRun, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Texts of raw and merged memories."""
    with run.engine.connect() as connection:
        return {**load_texts(connection, ids), **load_consolidated_texts(connection, ids)}


@dataclass(frozen=True, eq=False)
class PlannedArchiving:
    """What would be archived once the merges were made: ids ``S16`` (m,), whether raw, policies and words."""

    ids: Ids
    raw: npt.NDArray[np.bool_]
    policies: npt.NDArray[np.str_]
    words: list[str]
    held_back: bool


def plan_archiving(run: ProjectRun, merges: Sequence[PlannedMerge]) -> PlannedArchiving:
    """What the policies would take as of the run's instant, after ``merges``; a merge is judged as it would stand."""
    with run.engine.connect() as connection:
        ids, raw, units = load_units(connection, run)
    merge_of = np.full(len(ids), -1)
    order = np.argsort(ids)
    for number, merge in enumerate(merges):
        joined = to_ids([*merge.new_source_ids, *(row.id for row in merge.existing)])
        merge_of[order[np.searchsorted(ids[order], joined)]] = number
    alone = merge_of < 0
    after = concatenate_units([units.select(alone), merge_units(units.select(~alone), merge_of[~alone])])
    after_ids = np.concatenate([ids[alone], to_ids([merge.id for merge in merges])])
    plan = plan_archives(after, policies_in_force(run.options, run.job))
    still_raw = np.concatenate([raw[alone], np.zeros(len(merges), dtype=bool)])
    return PlannedArchiving(
        after_ids[plan.rows],
        still_raw[plan.rows],
        plan.reasons,
        explain_archives(after, plan),
        exceeds_share(len(plan), len(after), max_share=run.options.archive_max_share),
    )


def _archives(run: ProjectRun, archiving: PlannedArchiving, merges: Sequence[PlannedMerge]) -> list[PlannedArchive]:
    ids = to_uuids(archiving.ids)
    texts = _load_texts(run, ids) | {merge.id: merge.merged.content for merge in merges}
    columns = zip(ids, archiving.raw.tolist(), archiving.policies.tolist(), archiving.words, strict=True)
    return [
        PlannedArchive(id=id_, kind="raw" if raw else "merged", policy=policy, reason=words, text=texts[id_])
        for id_, raw, policy, words in columns
    ]


def _to_word(merges: Iterable[PlannedMerge]) -> list[DuplicateTexts]:
    return [merge.duplicate_texts for merge in merges if merge.verbatim_id is None]


def _costs(seen: GroupingPreview, bills: Sequence[Bill]) -> Costs:
    embedding = seen.usage.cost_usd
    return Costs(
        memories_to_embed=len(seen.unembedded),
        embedding_tokens=seen.usage.tokens,
        completion_calls=len(bills),
        completion_tokens=sum(bill.tokens for bill in bills),
        cost_usd=None if embedding is None else embedding + float(sum(bill.usd for bill in bills)),
    )
