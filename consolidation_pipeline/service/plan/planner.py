"""Planner: the groups, merges, knowledge and archives of a run that would begin now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.lifecycle.archive_policies import (
    ArchiveUnits,
    exceeds_share,
    explain_archives,
    forecast_staleness,
    merge_units,
    plan_archives,
)
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.knowledge.merge_rewrites import price_rewrites
from consolidation_pipeline.service.knowledge.merged_memories import (
    BATCH,
    CONFIDENCE,
    PlannedMerge,
    TextKey,
    plan_merges,
)
from consolidation_pipeline.service.knowledge.supersession_judge import price_supersessions
from consolidation_pipeline.service.plan.grouping_preview import GroupingPreview, preview_grouping
from consolidation_pipeline.service.plan.knowledge_forecast import forecast_knowledge
from consolidation_pipeline.service.plan.plan_document import (
    Costs,
    MergeGroup,
    Plan,
    PlannedArchive,
    PlannedDissolution,
    PlannedJudge,
    PlannedReview,
    PlannedSource,
    Question,
    RefusedByTest,
    RefusedMerge,
    UpcomingArchives,
    Walls,
)
from consolidation_pipeline.service.plan.rehearsal import leave_out_knowledge, rehearse
from consolidation_pipeline.service.review.suggest_groups import SuggestGroup, group_by_terms, read_suggest_groups
from consolidation_pipeline.service.review.suggestion_proposals import price_suggestions
from consolidation_pipeline.service.review.suggestion_queue import choose_waiting, rank_groups
from consolidation_pipeline.service.runs import project_run
from consolidation_pipeline.service.runs.archive_units import get_policies, load_archive_units
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.service.similarity import recall_answers
from consolidation_pipeline.service.similarity.asked_pairs import explain_asked_pairs
from consolidation_pipeline.service.similarity.calibration import list_pairs_to_measure
from consolidation_pipeline.service.similarity.clusters import group_contents
from consolidation_pipeline.service.similarity.graph_nodes import (
    content_keys,
    first_rows_of_contents,
    scope_keys,
    text_keys,
    type_keys,
)
from consolidation_pipeline.service.similarity.judge_calibration import explain_permission
from consolidation_pipeline.service.similarity.merge_groups import Contents
from consolidation_pipeline.service.similarity.pair_judgement import JudgedPairs, price_judgement
from consolidation_pipeline.service.similarity.scope_walls import find_misplaced
from consolidation_pipeline.service.similarity.upcoming_archives import find_upcoming_archives
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.scope_keys import has_walls
from consolidation_pipeline.store.database.vector_copy import Ids, to_ids, to_uuids
from consolidation_pipeline.store.knowledge.merged_memories import load_consolidated_texts
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.review.suggestions import list_pending
from consolidation_pipeline.store.similarity.clusters import ClusterMember

# Contents that are compared to count what is alike across scopes: a quarter of a second.
MAX_WALL_CONTENTS = 5_000
# Largest number of sources with a similarity matrix in the plan. Larger groups have only their lowest cosine.
MAX_MATRIX_SOURCES = 25
# Pairs that a person decides on, of the groups worth most, whose differences are explained: a few seconds.
MAX_EXPLAINED_PAIRS = 2_000


def make_plan(engine: Engine, slug: str, *, settings: Settings) -> Plan:
    """Return the changes that a run of the project would make now. Nothing is written, and no paid call is made.

    Raises:
        NotFoundError: There is no such project.
        EmbeddingError: The model gave no usable vector.
    """
    run = preview_run(engine, slug, settings=settings)
    preview = preview_grouping(run)
    with run.engine.connect() as connection:
        archives = find_upcoming_archives(connection, run, preview.contents.nodes)
        groups = group_contents(connection, run, preview.contents, archives, lambda _: preview.plain)
        vetoed = groups.vetoed
        term_groups = group_by_terms(connection, preview.unembedded, options=run.options)
        crossing, _ = find_misplaced(connection, run)
    merges = plan_all_merges(run, _find_unmerged_groups(preview.contents, groups.members))
    with rehearse(engine, run, preview.contents, preview.plain) as rehearsal:
        refused = rehearsal.refuse_merges(merges)
        if refused:
            with run.engine.connect() as connection:
                apart = [one.memories for one in refused]
                groups = group_contents(
                    connection, run, preview.contents, archives, lambda _: preview.plain, apart=apart
                )
            merges = plan_all_merges(run, _find_unmerged_groups(preview.contents, groups.members))
        archiving = plan_archiving(run, merges, dissolved=[row.id for row in crossing])
        not_archived = rehearsal.refuse_archives(archiving.ids, archiving.raw)
        knowledge = forecast_knowledge(run, _select_tier(groups.members, "pattern"), merges)
        not_learned = rehearsal.refuse_knowledge(knowledge.items)
    archiving = archiving.leave_out([id_ for one in not_archived for id_ in one.memories])
    items = leave_out_knowledge(knowledge.items, [id_ for one in not_learned for id_ in one.memories])
    archived = set() if archiving.held_back else set(to_uuids(archiving.ids))
    asked = _select_tier(groups.members, "suggest")
    term_groups = [group for group in term_groups if archived.isdisjoint(group.members)]
    review, order, suggestion_bills = _plan_review(run, [*read_suggest_groups(asked), *term_groups], merges)
    rewrite_bills = price_rewrites(run, [merge.duplicate_texts for merge in merges if merge.verbatim_id is None])
    measured = list_pairs_to_measure(run, preview.contents.nodes)
    judge_bills = price_judgement(run, preview.judged, measured)
    judge_bills += price_supersessions(run, preview.contents.nodes, preview.contents.x)
    return Plan(
        project=slug,
        as_of=run.now,
        embedding_model=run.embedder.name,
        options=run.options.model_dump(mode="json"),
        thresholds=run.thresholds,
        calibration=preview.calibration,
        memories=len(preview.contents.nodes),
        merges=[_to_merge_group(merge, preview.contents) for merge in merges],
        merges_refused_by_recall=_list_refused(run, groups.refused, merges),
        refused_by_tests=_list_refused_by_tests(
            run, [*vetoed, *refused, *not_learned, *not_archived], {item.id: item.text for item in knowledge.items}
        ),
        questions=_list_questions(run, asked, term_groups, order, merges),
        review=review,
        knowledge=items,
        archives=_list_archives(run, archiving, merges),
        held_back=archiving.held_back,
        upcoming_archives=[UpcomingArchives(date=day, memories=n) for day, n in archiving.upcoming.items()],
        pattern_groups=len({m.cluster_key for m in groups.members if m.tier == "pattern"}),
        pair_judge=_describe_judge(run, preview.judged),
        costs=_sum_costs(preview, [*judge_bills, *rewrite_bills, *knowledge.bills, *suggestion_bills]),
        dissolved=[PlannedDissolution(id=r.id, kind=r.kind, scopes=r.scopes, text=r.content) for r in crossing],
        walls=measure_walls(run, preview.contents) if has_walls(run.options.scope) else None,
    )


def _plan_review(
    run: ProjectRun, groups: Sequence[SuggestGroup], merges: Sequence[PlannedMerge]
) -> tuple[PlannedReview, list[str], list[Bill]]:
    """Return what happens to the groups that a person decides on, and the bills of a model's texts for them.

    In between are the cluster keys of the groups that can be proposed, those worth most first.
    """
    scope, t_suggest, limit = run.options.scope, run.thresholds["t_suggest"], run.options.review_limit
    upcoming = frozenset(merge.id for merge in merges)
    with run.engine.connect() as connection:
        ranking = rank_groups(
            connection, run.project.id, groups, first=limit, scope=scope, t_suggest=t_suggest, upcoming=upcoming
        )
        pending = list_pending(connection, run.project.id)
        outranked, chosen = choose_waiting(pending, ranking.groups, limit)
        bills = price_suggestions(connection, run, chosen)
    asked_before = ranking.proposed_before + ranking.inactive - len(outranked)
    beyond = len(ranking.groups) - len(chosen) + len(outranked)
    review = PlannedReview(asked_before=asked_before, proposed=len(chosen), beyond_limit=beyond)
    return review, [one.group.cluster_key for one in ranking.groups], bills


def measure_walls(run: ProjectRun, contents: Contents) -> Walls:
    """Return how many scopes the contents are of, and what is alike across them."""
    nodes = contents.nodes
    scopes, types, texts = scope_keys(nodes), type_keys(nodes), text_keys(nodes)
    # Sorted by the hashes of the texts: the first ones are a random sample that does not change from plan to plan.
    rows = first_rows_of_contents(nodes)[:MAX_WALL_CONTENTS]
    pairs = similarity_join(contents.x[rows], run.thresholds["t_merge"])
    i, j = rows[pairs.i], rows[pairs.j]
    is_apart = (scopes[i] != scopes[j]) & (run.options.cross_type | (types[i] == types[j]))
    return Walls(
        scope=run.options.scope,
        scopes=int(scopes.max(initial=-1)) + 1,
        repeats=int(content_keys(nodes).max(initial=-1) - texts.max(initial=-1)),
        similar_pairs=int(is_apart.sum()),
        compared=len(rows),
    )


def _select_tier(members: Iterable[ClusterMember], tier: str) -> dict[str, list[ClusterMember]]:
    """Return the members of each group of a tier by cluster key, ascending."""
    groups: dict[str, list[ClusterMember]] = defaultdict(list)
    for member in members:
        if member.tier == tier:
            groups[member.cluster_key].append(member)
    return dict(sorted(groups.items()))


def _find_unmerged_groups(contents: Contents, members: Iterable[ClusterMember]) -> dict[str, list[UUID]]:
    """Return the merge groups that are not one merged memory yet, like ``load_unmerged_groups``."""
    nodes, found = contents.nodes, {}
    for key, group in _select_tier(members, "merge").items():
        ordered = [m.member_id for m in sorted(group, key=lambda m: (not m.is_representative, m.member_id))]
        into = nodes.merged_into[np.searchsorted(nodes.ids, to_ids(ordered))]
        if (into == b"").any() or len(np.unique(into)) > 1:
            found[key] = ordered
    return found


def plan_all_merges(run: ProjectRun, groups: Mapping[str, Sequence[UUID]]) -> list[PlannedMerge]:
    """Return the merges of these groups: cluster key -> members, the representative first."""
    if not run.options.merge:
        return []
    keys = list(groups)
    batches = ({key: groups[key] for key in keys[at : at + BATCH]} for at in range(0, len(keys), BATCH))
    planned: dict[TextKey, UUID] = {}
    return [merge for batch in batches for merge in plan_merges(run, batch, planned)[0]]


def _to_merge_group(merge: PlannedMerge, contents: Contents) -> MergeGroup:
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


def _list_refused(
    run: ProjectRun, refused: Sequence[recall_answers.RefusedMerge], merges: Sequence[PlannedMerge]
) -> list[RefusedMerge]:
    texts = _load_texts(run, [id_ for one in refused for id_ in (*one.memories, one.above)])
    texts |= {merge.id: merge.merged.content for merge in merges}
    return [
        RefusedMerge(
            query=one.query,
            place_before=one.before,
            place_after=one.after,
            above=one.above,
            above_text=texts.get(one.above),
            texts={id_: texts[id_] for id_ in one.memories},
        )
        for one in refused
    ]


def _list_refused_by_tests(
    run: ProjectRun, refused: Sequence[project_run.RefusedByTest], learned: Mapping[UUID, str | None]
) -> list[RefusedByTest]:
    """Return what memory tests refuse, with its texts. ``learned``: texts of knowledge that is not stored yet."""
    texts = _load_texts(run, [id_ for one in refused for id_ in one.memories]) if refused else {}
    texts |= {id_: text for id_, text in learned.items() if text is not None}
    return [
        RefusedByTest(
            phase=one.phase,
            tests=dict(one.tests),
            texts={id_: texts[id_] for id_ in one.memories if id_ in texts},
        )
        for one in refused
    ]


def _list_questions(
    run: ProjectRun,
    groups: Mapping[str, Sequence[ClusterMember]],
    term_groups: Sequence[SuggestGroup],
    order: Sequence[str],
    merges: Sequence[PlannedMerge],
) -> list[Question]:
    """Return the groups of the suggest tier, members by cluster key, and those formed by terms.

    Those whose cluster keys are in ``order`` come first, in that order; then the others by key.
    """
    found = [
        (key, [m.member_id for m in group], next(m.details["asked_pairs"] for m in group if m.is_representative))
        for key, group in groups.items()
    ]
    for group in term_groups:
        pair = dict(zip("ab", map(str, group.members), strict=False))
        asked = {**pair, "similarity": group.similarity, "differences": list(group.if_same)}
        found.append((group.cluster_key, list(group.members), [asked]))
    places = {key: place for place, key in enumerate(order)}
    found.sort(key=lambda question: (places.get(question[0], len(places)), question[0]))
    texts = _load_texts(run, [id_ for _, ids, _ in found for id_ in ids])
    texts |= {merge.id: merge.merged.content for merge in merges}
    # Memories may have gone since the groups were formed.
    found = [
        (key, ids, [pair for pair in pairs if texts.keys() >= {UUID(pair["a"]), UUID(pair["b"])}])
        for key, ids, pairs in found
    ]
    listed = [pair for _, _, pairs in found for pair in pairs if "differences" not in pair]
    explained = explain_asked_pairs(listed[:MAX_EXPLAINED_PAIRS], texts)
    not_explained = {"differences": [f"not explained, as {MAX_EXPLAINED_PAIRS:,} pairs are worth more"]}
    return [
        Question(
            cluster_key=key,
            members=ids,
            asked_pairs=[
                pair if "differences" in pair else next(explained, pair | not_explained) for pair in asked_pairs
            ],
            texts={id_: texts[id_] for id_ in ids if id_ in texts},
        )
        for key, ids, asked_pairs in found
    ]


def _describe_judge(run: ProjectRun, judged: JudgedPairs | None) -> PlannedJudge | None:
    if judged is None:
        return None
    return PlannedJudge(
        name=judged.name,
        allowed=judged.allowed,
        reason=explain_permission(run.calibration, judged.name),
        confirmed=judged.decisions["same"],
        waiting=len(judged.waiting),
    )


def _load_texts(run: ProjectRun, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return texts of raw and merged memories by id."""
    with run.engine.connect() as connection:
        return {**load_texts(connection, ids), **load_consolidated_texts(connection, ids)}


@dataclass(frozen=True, eq=False)
class PlannedArchiving:
    """The units that would be archived, arrays of shape (m,): ids S16, True for raw memories, policies and reasons.

    ``memories``: number of raw memories of each. ``held_back``: they are too large a share of the project for a run
    without a plan. ``upcoming``: number of raw memories that become stale on a later date if they are not used, dates
    ascending.
    """

    ids: Ids
    raw: npt.NDArray[np.bool_]
    memories: npt.NDArray[np.int64]
    policies: npt.NDArray[np.str_]
    reasons: list[str]
    held_back: bool
    upcoming: dict[date, int]

    def leave_out(self, ids: Sequence[UUID]) -> PlannedArchiving:
        """Return it without the units ``ids``."""
        kept = ~np.isin(self.ids, to_ids(list(ids)))
        return replace(
            self,
            ids=self.ids[kept],
            raw=self.raw[kept],
            memories=self.memories[kept],
            policies=self.policies[kept],
            reasons=[reason for reason, is_kept in zip(self.reasons, kept.tolist(), strict=True) if is_kept],
        )


def plan_archiving(
    run: ProjectRun, merges: Sequence[PlannedMerge], *, dissolved: Sequence[UUID] = ()
) -> PlannedArchiving:
    """Return the units that the policies would archive at the run's instant, if ``merges`` were made before.

    Args:
        dissolved: Merged memories that the run dissolves before it merges.
    """
    with run.engine.connect() as connection:
        ids, raw, units = load_archive_units(connection, run, dissolved=dissolved)
    order = np.argsort(ids)
    parts = [[*merge.new_source_ids, *(row.id for row in merge.existing)] for merge in merges]
    number = np.repeat(np.arange(len(merges)), [len(part) for part in parts])
    place = np.append(order, -1)[find_positions(ids[order], to_ids([id_ for part in parts for id_ in part]))]
    # A memory that was archived or deleted since the merges were planned: its merge will not be made as planned.
    is_stale = np.zeros(len(merges), dtype=bool)
    is_stale[number[place < 0]] = True
    number, place = number[place >= 0], place[place >= 0]
    merge_of = np.full(len(ids), -1)
    merge_of[place] = (np.cumsum(~is_stale) - 1)[number]
    kept = np.ones(len(ids), dtype=bool)
    kept[place[is_stale[number]]] = False
    merges = [merge for merge, stale in zip(merges, is_stale.tolist(), strict=True) if not stale]
    ids, raw, units, merge_of = ids[kept], raw[kept], units.select(kept), merge_of[kept]
    alone = merge_of < 0
    after = ArchiveUnits.concatenate([units.select(alone), merge_units(units.select(~alone), merge_of[~alone])])
    after_ids = np.concatenate([ids[alone], to_ids([merge.id for merge in merges])])
    after_raw = np.concatenate([raw[alone], np.zeros(len(merges), dtype=bool)])
    policies = get_policies(run.options, run.job)
    plan = plan_archives(after, policies)
    return PlannedArchiving(
        after_ids[plan.rows],
        after_raw[plan.rows],
        after.memories[plan.rows],
        plan.reasons,
        explain_archives(after, plan),
        exceeds_share(len(plan), len(after), max_share=run.options.archive_max_share),
        forecast_staleness(after, policies, run.as_of),
    )


def _list_archives(
    run: ProjectRun, archiving: PlannedArchiving, merges: Sequence[PlannedMerge]
) -> list[PlannedArchive]:
    ids = to_uuids(archiving.ids)
    texts = _load_texts(run, ids) | {merge.id: merge.merged.content for merge in merges}
    kinds = np.where(archiving.raw, "raw", "merged").tolist()
    columns = zip(ids, kinds, archiving.memories.tolist(), archiving.policies.tolist(), archiving.reasons, strict=True)
    return [
        PlannedArchive(id=id_, kind=kind, memories=memories, policy=policy, reason=reason, text=texts[id_])
        for id_, kind, memories, policy, reason in columns
    ]


def _sum_costs(preview: GroupingPreview, bills: Sequence[Bill]) -> Costs:
    embedding = preview.usage.cost_usd
    return Costs(
        memories_to_embed=len(preview.unembedded),
        embedding_tokens=preview.usage.tokens,
        completion_calls=len(bills),
        completion_tokens=sum(bill.tokens for bill in bills),
        cost_usd=None if embedding is None else embedding + float(sum(bill.usd for bill in bills)),
    )
