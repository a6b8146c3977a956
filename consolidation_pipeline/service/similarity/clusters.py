"""Groups of the three tiers, formed on the similarity graph: merge, suggest (for a person) and pattern (one topic)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.topic_threshold import limit_topic_size
from consolidation_pipeline.core.grouping.average_linkage import LinkageLimits
from consolidation_pipeline.core.grouping.clustering import cluster_keys, cluster_rows
from consolidation_pipeline.core.grouping.cohesion import compute_cohesion, summarize_groups
from consolidation_pipeline.core.grouping.labels import Labels, list_members, renumber_labels
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.grouping.representatives import choose_representatives, compute_similarities
from consolidation_pipeline.service.runs.project_run import ProjectRun, RefusedByTest
from consolidation_pipeline.service.similarity.asked_pairs import list_asked_pairs
from consolidation_pipeline.service.similarity.changed_scopes import find_changed_scopes, hash_inputs, note_groups
from consolidation_pipeline.service.similarity.graph_nodes import (
    load_grouping_vectors,
    load_plain_vectors,
    scope_keys,
    type_keys,
)
from consolidation_pipeline.service.similarity.merge_groups import (
    Contents,
    UnitPairs,
    Units,
    build_units,
    load_contents,
    load_pair_rules,
    pair_units,
    split_units,
)
from consolidation_pipeline.service.similarity.merge_vetoes import apply_vetoes, find_units
from consolidation_pipeline.service.similarity.recall_answers import RefusedMerge, load_answers, store_answers
from consolidation_pipeline.service.similarity.recall_gate import GateDecision, LoadPlain, find_refused
from consolidation_pipeline.service.similarity.upcoming_archives import UpcomingArchives, find_upcoming_archives
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids
from consolidation_pipeline.store.similarity.clusters import (
    ClusterMember,
    TierGroups,
    count_group_sizes,
    find_changed_groups,
    replace_clusters,
    replace_details,
    summarize_cohesion,
)
from consolidation_pipeline.store.similarity.similarity_graph import ASK, Nodes, load_nodes


@dataclass(frozen=True)
class ClusterSummary:
    """Summary of the groups: numbers per tier, and cohesion of the merge groups.

    ``sizes``: by tier, number of groups by size. ``pairs_asked``: pairs that reach ``t_merge`` and that a person
    decides on. ``refused``: merge groups that the recall gate refuses. ``vetoed``: those that memory tests forbid.
    """

    contents: int
    groups: dict[str, int]
    members: dict[str, int]
    sizes: dict[str, dict[int, int]]
    cohesion_mean: float | None
    cohesion_min: float | None
    pairs_asked: int
    refused: Sequence[RefusedMerge]
    vetoed: Sequence[RefusedByTest]


@dataclass(frozen=True)
class FormedGroups:
    """The groups of the three ``tiers``, and the units that they are formed of.

    ``gate``: decision of the recall gate; the groups that it refuses are not among the groups. ``vetoed``: groups as
    they would be without the vetoes of memory tests.
    """

    tiers: Sequence[TierGroups]
    units: Units
    gate: GateDecision
    vetoed: Sequence[RefusedByTest]

    @property
    def refused(self) -> Sequence[RefusedMerge]:
        """Merge groups that the recall gate refuses."""
        return self.gate.refused

    @property
    def members(self) -> list[ClusterMember]:
        """Members of all groups."""
        return [member for tier in self.tiers for member in tier.members()]


def form_clusters(run: ProjectRun, *, apart: Sequence[Sequence[UUID]] = ()) -> ClusterSummary:
    """Form the groups of the scopes that changed since theirs were formed, and replace the stored groups that differ.

    ``apart``: merge groups, as raw memories, that memory tests refused: their memories stay as they are.
    """
    project = run.project.id
    with run.transaction() as connection:
        nodes = load_nodes(connection, project, run.embedder.name, scope=run.options.scope)
        rules = load_pair_rules(connection, project)
        states = find_changed_scopes(connection, run, nodes, rules)
        whole = load_contents(connection, run, nodes, rules)
        kept_apart = np.flatnonzero(np.isin(nodes.ids, to_ids([id_ for group in apart for id_ in group])))
        archives = find_upcoming_archives(connection, run, whole.nodes)
        states = states.open_scopes(np.flatnonzero(archives.nodes))
        is_chosen = states.select_changed(kept_apart)
        rows = np.flatnonzero(is_chosen)
        has_vector, x = load_grouping_vectors(connection, run, nodes.select(rows))
        rows = rows[has_vector]
        contents = whole.select(rows, x)
        load_plain = partial(load_plain_vectors, connection, run, contents.nodes)
        groups = group_contents(connection, run, contents, archives.select(rows), load_plain, apart=apart)
        is_settled = bool(states.settled) and not is_chosen.any()
        if is_settled and (answers := load_answers(connection, run)):
            groups = replace(groups, gate=GateDecision(answers.list_refused(), answers))
        run.compared = None
        others = whole.nodes.select(~is_chosen)
        changed = find_changed_groups(
            connection, project, groups.tiers, without=np.union1d(others.ids, others.merged_into)
        )
        if changed:
            members = [member for tier in groups.tiers for member in tier.members(changed)]
            replace_clusters(connection, project, run.job_id, members, changed=changed)
        replace_details(connection, project, run.job_id, groups.tiers, written=changed)
        run.refused_by_recall = [id_ for one in groups.refused for id_ in one.memories]
        # Whether these stay apart is asked again by the next run.
        refused = np.flatnonzero(np.isin(nodes.ids, to_ids(run.refused_by_recall)))
        planned = replace(nodes, merged_into=_plan_merges(whole.nodes, rows, groups.units))
        note_groups(connection, run, planned, rules, open_groups=np.union1d(kept_apart, refused))
        if not is_settled:
            # After merges, what is refused is compared with other memories.
            is_final = bool((planned.merged_into == nodes.merged_into).all()) and not apart and not groups.vetoed
            settled = hash_inputs(connection, run, states) if is_final else None
            store_answers(connection, run, groups.gate.answers, settled)
        summary = _summarize(connection, run, groups, whole)
    if not apart:
        run.refused_by_tests += groups.vetoed
    return summary


def _plan_merges(nodes: Nodes, rows: Labels, units: Units) -> Ids:
    """Return the merged memory of each node after the merges of ``units``, which are of the nodes at ``rows``."""
    into = nodes.merged_into.copy()
    of_row = units.unit_of_row
    into[rows] = np.where(units.merged[of_row], units.ids[of_row], into[rows])
    return into


def group_contents(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    archives: UpcomingArchives,
    load_plain: LoadPlain,
    *,
    apart: Sequence[Sequence[UUID]] = (),
) -> FormedGroups:
    """Form the groups of all tiers, without writing them.

    ``archives``: what the run archives of their nodes. ``load_plain``: returns plain vectors of nodes, which only the
    recall gate needs. ``apart``: as for ``form_clusters``.
    """
    contents, vetoed = apply_vetoes(run, contents)
    units = build_units(run, contents)
    if apart:
        contents, units = split_units(run, contents, units, find_units(contents, units, apart))
    is_archived = archives.of_units(units)
    gate = find_refused(connection, run, contents, units, load_plain, archives.nodes, is_archived)
    if gate.refused:
        contents, units = split_units(run, contents, units, [group.unit for group in gate.refused])
        is_archived = archives.of_units(units)
    unit_pairs = pair_units(contents, units)
    x, limits, pairs = contents.x[units.representatives], _limit_topics(run, contents, units), unit_pairs.pairs
    topics = cluster_rows(
        x,
        pairs.select(limits.walls[pairs.i] == limits.walls[pairs.j]),
        method=run.options.cluster_method,
        threshold=run.thresholds["t_pattern"],
        min_size=run.options.min_pattern_size,
        complete_from=run.graph_threshold,
        limits=limits,
    )
    tiers = [
        _build_merge_tier(contents, units, run.options.min_cluster_size),
        _build_suggest_tier(connection, run, contents, units, unit_pairs, x, is_archived),
        _build_unit_tier("pattern", x, units, topics),
    ]
    return FormedGroups(tiers, units, gate, vetoed)


def _limit_topics(run: ProjectRun, contents: Contents, units: Units) -> LinkageLimits:
    """Return the limits of pattern groups of units: walls between scopes and memory types, and sizes in contents.

    A unit counts as its contents: what was said in five wordings and in another one was said more than twice.
    """
    walls = scope_keys(contents.nodes)[units.representatives]
    if not run.options.cross_type:
        types = type_keys(contents.nodes)
        walls = walls * (types.max(initial=0) + 1) + types[units.representatives]
    sizes = np.bincount(units.unit_of_content, minlength=len(units))
    return LinkageLimits(walls, sizes, limit_topic_size(contents.total))


def _build_merge_tier(contents: Contents, units: Units, min_size: int) -> TierGroups:
    """Return the groups of raw memories behind each merged memory, existing or about to be made."""
    is_group = units.merged & (np.bincount(units.unit_of_row, minlength=len(units)) >= min_size)
    number = np.where(is_group, np.cumsum(is_group) - 1, -1)
    return _build_tier(
        "merge",
        contents.x,
        contents.nodes.ids,
        np.zeros(len(contents.nodes), np.bool_),
        number[units.unit_of_row],
        representatives=units.representatives[is_group],
        details=_describe_merge_groups(contents, units, np.flatnonzero(is_group)),
    )


def _describe_merge_groups(contents: Contents, units: Units, chosen: Labels) -> list[dict[str, Any]]:
    """Return for each of the ``chosen`` units the mean and lowest cosine between its contents.

    ``weakest_new_pair`` is the lowest cosine of a pair that is about to be merged. Contents that were merged under
    another calibration may be less similar now, so that the graph lacks their pair. Then all cosines of the unit are
    computed.
    """
    pairs, unit_of_content = contents.pairs, units.unit_of_content
    inside = np.flatnonzero(unit_of_content[pairs.i] == unit_of_content[pairs.j])
    unit, similarity = unit_of_content[pairs.i[inside]], pairs.similarity[inside].astype(np.float64)
    sizes, found = np.bincount(unit_of_content, minlength=len(units)), np.bincount(unit, minlength=len(units))
    total = np.bincount(unit, weights=similarity, minlength=len(units))
    lowest, lowest_new = np.full(len(units), np.inf), np.full(len(units), np.inf)
    np.minimum.at(lowest, unit, similarity)
    was_merged = np.zeros(contents.count, dtype=bool)
    was_merged[contents.content_of_row[contents.nodes.merged_into != b""]] = True
    is_new = ~(was_merged[pairs.i[inside]] & was_merged[pairs.j[inside]])
    np.minimum.at(lowest_new, unit[is_new], similarity[is_new])
    with np.errstate(invalid="ignore"):
        mean = total / found
    lacks_pairs = found < sizes * (sizes - 1) // 2
    first = np.unique(contents.content_of_row, return_index=True)[1]
    for members in list_members(renumber_labels(np.where(lacks_pairs[unit_of_content], unit_of_content, -1), 1)):
        number = unit_of_content[members[0]]
        mean[number], lowest[number] = compute_cohesion(contents.x, first[members])
    return [
        {"weakest_new_pair": _round(a), "cohesion_mean": _round(b), "cohesion_min": _round(c)}
        for a, b, c in zip(*(column[chosen].tolist() for column in (lowest_new, mean, lowest)), strict=True)
    ]


def _build_suggest_tier(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    unit_pairs: UnitPairs,
    x: Vectors,
    archived: npt.NDArray[np.bool_],
) -> TierGroups:
    """Return the groups that a person decides on.

    ``x``: grouping vectors of the units (u, d). ``archived`` (u,): True for units that the run archives, which nobody
    is asked about.
    """
    pairs = unit_pairs.pairs
    candidates = pairs.select((unit_pairs.verdict >= ASK) & ~archived[pairs.i] & ~archived[pairs.j])
    labels = complete_linkage(len(units), candidates, run.thresholds["t_suggest"])
    asked_pairs = list_asked_pairs(connection, run, contents, units, labels, unit_pairs)
    details = [{"asked_pairs": asked_pairs.get(number, [])} for number in range(int(labels.max(initial=-1)) + 1)]
    return _build_unit_tier("suggest", x, units, labels, details)


def _build_unit_tier(
    tier: str, x: Vectors, units: Units, labels: Labels, details: Sequence[dict[str, Any]] | None = None
) -> TierGroups:
    """Return a tier whose groups (``labels`` (u,)) consist of units with the grouping vectors ``x`` (u, d)."""
    found = summarize_groups(x, labels)
    representatives = choose_representatives(labels, np.zeros(len(units)), found.mean_similarity, units.ids)
    all_details = [
        {**(details[number] if details else {}), "cohesion_mean": _round(mean), "cohesion_min": _round(lowest)}
        for number, (mean, lowest) in enumerate(zip(found.mean.tolist(), found.minimum.tolist(), strict=True))
    ]
    return _build_tier(tier, x, units.ids, units.merged, labels, representatives=representatives, details=all_details)


def _build_tier(
    tier: str,
    x: Vectors,
    ids: Ids,
    merged: npt.NDArray[np.bool_],
    labels: Labels,
    *,
    representatives: Labels,
    details: Sequence[dict[str, Any]],
) -> TierGroups:
    """Return the groups of a tier, from the vectors (n, d), ids, kinds and groups (n,) of the rows that it groups.

    ``representatives`` (g,): row of each group's representative. ``details``: of each group.
    """
    similarity = compute_similarities(x, labels, representatives)
    rows = _sort_by_group(labels)
    return TierGroups(
        tier,
        keys=cluster_keys(ids[rows], labels[rows]),
        details=details,
        groups=labels[rows],
        ids=ids[rows],
        merged=merged[rows],
        similarity=similarity[rows],
        is_representative=representatives[labels[rows]] == rows,
    )


def _sort_by_group(labels: Labels) -> Labels:
    """Return the positions that are in a group, group by group."""
    return np.concatenate([np.empty(0, dtype=np.int64), *list_members(labels)])


def _round(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _summarize(connection: Connection, run: ProjectRun, groups: FormedGroups, whole: Contents) -> ClusterSummary:
    sizes = count_group_sizes(connection, run.project.id)
    mean, lowest = summarize_cohesion(connection, run.project.id, "merge")
    asked = whole.pairs.select(whole.verdict == ASK).at_least(run.thresholds["t_merge"])
    return ClusterSummary(
        contents=whole.total,
        groups={tier.tier: sum(sizes.get(tier.tier, {}).values()) for tier in groups.tiers},
        members={tier.tier: sum(size * n for size, n in sizes.get(tier.tier, {}).items()) for tier in groups.tiers},
        sizes={tier.tier: sizes.get(tier.tier, {}) for tier in groups.tiers},
        cohesion_mean=None if mean is None else round(mean, 4),
        cohesion_min=lowest,
        pairs_asked=len(asked),
        refused=groups.refused,
        vetoed=groups.vetoed,
    )
