"""Form the groups of the three tiers from the similarity graph: to merge, to ask about, on one topic."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.conflicts.literals import conflicts
from consolidation_pipeline.core.grouping.clustering import cluster_keys, cluster_rows
from consolidation_pipeline.core.grouping.cohesion import compute_cohesion, summarize_groups
from consolidation_pipeline.core.grouping.labels import Labels, list_members, renumber_labels
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.grouping.representatives import choose_representatives, compute_similarities
from consolidation_pipeline.core.project_map import map_svg, plane
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.merge_groups import (
    Contents,
    Units,
    Verdicts,
    build_units,
    load_contents,
    pair_units,
)
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.clusters import (
    ClusterMember,
    TierGroups,
    find_changed_groups,
    load_group_details,
    replace_clusters,
    replace_details,
)
from consolidation_pipeline.store.similarity.similarity_graph import ASK

# Why a pair without a veto waits for a person.
_SHORT = "length: too few words to be sure at this similarity"

# Pairs listed per group that a person decides on: enough to show why, whatever the size of the group.
_SHOWN_PAIRS = 3


@dataclass(frozen=True)
class ClusterSummary:
    """What was found: groups and units per tier, pairs at ``t_merge`` that a veto or their shortness kept apart, and a
    map of the project (SVG).
    """

    contents: int
    groups: dict[str, int]
    members: dict[str, int]
    sizes: dict[str, dict[int, int]]
    cohesion_mean: float | None
    cohesion_min: float | None
    pairs_vetoed: int
    map_svg: str | None


@dataclass(frozen=True)
class _Things:
    """What a tier groups, (n,) each: the rows of their vectors, their ids, and which are merged memories."""

    rows: Labels
    ids: Ids
    merged: npt.NDArray[np.bool_]


def form_clusters(run: ProjectRun) -> ClusterSummary:
    """Form all groups of the project and put them in place of the last ones."""
    with run.transaction() as connection:
        contents = load_contents(connection, run)
        groups = group_contents(connection, run, contents)
        changed = find_changed_groups(connection, run.project.id, groups.tiers)
        if changed:
            members = [member for tier in groups.tiers for member in tier.members(changed)]
            replace_clusters(connection, run.project.id, run.job_id, members, changed=changed)
        replace_details(connection, run.project.id, run.job_id, groups.tiers)
    vetoed = len(contents.pairs.select(contents.verdict == ASK).at_least(run.thresholds["t_merge"]))
    return _summary(groups.tiers, contents.count, vetoed, _map(contents.x, groups.units, groups.pattern_of))


@dataclass(frozen=True)
class FormedGroups:
    """The groups of the three ``tiers``, the units they are formed of, and the pattern group (u,) of each unit, -1 =
    none.
    """

    tiers: Sequence[TierGroups]
    units: Units
    pattern_of: Labels

    @property
    def members(self) -> list[ClusterMember]:
        """The members of all groups."""
        return [member for tier in self.tiers for member in tier.members()]


def group_contents(connection: Connection, run: ProjectRun, contents: Contents) -> FormedGroups:
    """The groups of all tiers; nothing is written."""
    units = build_units(run, contents)
    pairs, verdict = pair_units(contents, units)
    pattern_of = _label_patterns(run, contents.x[units.representatives], pairs)
    tiers = [
        _merge_tier(contents, units, run.options.min_cluster_size),
        _suggest_tier(connection, run, contents, units, _Judged(pairs, verdict)),
        _unit_tier("pattern", contents.x, units, pattern_of),
    ]
    return FormedGroups(tiers, units, pattern_of)


def _label_patterns(run: ProjectRun, x: Vectors, pairs: SimilarPairs) -> Labels:
    return cluster_rows(
        x,
        pairs,
        method=run.options.cluster_method,
        threshold=run.thresholds["t_pattern"],
        min_size=run.options.min_pattern_size,
    )


def _merge_tier(contents: Contents, units: Units, min_size: int) -> TierGroups:
    """The raw memories of each merged memory, be it made before or about to be."""
    kept = units.merged & (np.bincount(units.of_row, minlength=len(units)) >= min_size)
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    things = _Things(np.arange(len(contents.nodes)), contents.nodes.ids, np.zeros(len(contents.nodes), np.bool_))
    details = _merge_details(contents, units, np.flatnonzero(kept))
    return _tier(
        "merge",
        contents.x,
        things,
        number[units.of_row],
        representatives=units.representatives[kept],
        details=details,
    )


def _merge_details(contents: Contents, units: Units, chosen: Labels) -> list[dict[str, Any]]:
    """Of each of the ``chosen`` units: mean and lowest cosine between its contents, and the lowest of one that is about
    to be merged.

    Contents that were merged when another centre was taken off may be no neighbours now; their cosines are computed.
    """
    pairs, of_content = contents.pairs, units.of_content
    inside = np.flatnonzero(of_content[pairs.i] == of_content[pairs.j])
    unit, similarity = of_content[pairs.i[inside]], pairs.similarity[inside].astype(np.float64)
    sizes, found = np.bincount(of_content, minlength=len(units)), np.bincount(unit, minlength=len(units))
    total = np.bincount(unit, weights=similarity, minlength=len(units))
    lowest, newest = np.full(len(units), np.inf), np.full(len(units), np.inf)
    np.minimum.at(lowest, unit, similarity)
    was_merged = np.zeros(contents.count, dtype=bool)
    was_merged[contents.of_row[contents.nodes.merged_into != b""]] = True
    new = ~(was_merged[pairs.i[inside]] & was_merged[pairs.j[inside]])
    np.minimum.at(newest, unit[new], similarity[new])
    with np.errstate(invalid="ignore"):
        mean = total / found
    unlinked = found < sizes * (sizes - 1) // 2
    first = np.unique(contents.of_row, return_index=True)[1]
    for rows in list_members(renumber_labels(np.where(unlinked[of_content], of_content, -1), 1)):
        closeness = compute_cohesion(contents.x, first[rows])
        mean[of_content[rows[0]]], lowest[of_content[rows[0]]] = closeness
    return [
        {"weakest_new_pair": _known(a), "cohesion_mean": _known(b), "cohesion_min": _known(c)}
        for a, b, c in zip(*(column[chosen].tolist() for column in (newest, mean, lowest)), strict=True)
    ]


@dataclass(frozen=True)
class _Judged:
    """Pairs of units, and the verdict on each."""

    pairs: SimilarPairs
    verdict: Verdicts


def _suggest_tier(
    connection: Connection, run: ProjectRun, contents: Contents, units: Units, judged: _Judged
) -> TierGroups:
    close = judged.pairs.select(judged.verdict >= ASK)
    labels = complete_linkage(len(units), close, run.thresholds["t_suggest"])
    at = _group_by_group(labels)
    keys = cluster_keys(units.ids[at], labels[at])
    # Texts do not change: what was told of a group of the same members holds while the calibration does.
    version = run.calibration.version if run.calibration else 0
    held = load_group_details(connection, run.project.id, "suggest")
    told = {key: details["vetoes"] for key, details in held.items() if details.get("calibration") == version}
    known = np.array([number for number, key in enumerate(keys) if key in told], dtype=np.int64)
    fresh = _veto_reasons(connection, contents, units, np.where(np.isin(labels, known), -1, labels), judged)
    reasons = [told[key] if key in told else fresh.get(number, []) for number, key in enumerate(keys)]
    details = [{"vetoes": listed, "calibration": version} for listed in reasons]
    return _unit_tier("suggest", contents.x, units, labels, details)


def _veto_reasons(
    connection: Connection, contents: Contents, units: Units, labels: Labels, judged: _Judged
) -> dict[int, list[dict[str, Any]]]:
    """Per group the pairs that a person decides on, most similar first, at most ``_SHOWN_PAIRS``, and why."""
    pairs = judged.pairs.select(judged.verdict == ASK)
    inside = pairs.select((labels[pairs.i] >= 0) & (labels[pairs.i] == labels[pairs.j]))
    group = labels[inside.i]
    order = np.lexsort((inside.j, inside.i, -inside.similarity, group))
    place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    shown = inside.select(order[place < _SHOWN_PAIRS])
    named = np.unique([shown.i, shown.j]).tolist()
    names = dict(zip(named, to_uuids(units.ids[named]), strict=True))
    sources = dict(zip(named, to_uuids(contents.nodes.ids[units.representatives[named]]), strict=True))
    texts = load_texts(connection, list(sources.values()))
    reasons: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for i, j, similarity in zip(shown.i.tolist(), shown.j.tolist(), shown.similarity.tolist(), strict=True):
        found = [str(conflict) for conflict in conflicts(texts[sources[i]], texts[sources[j]])] or [_SHORT]
        told = {"a": str(names[i]), "b": str(names[j]), "similarity": round(similarity, 4)}
        reasons[int(labels[i])].append({**told, "conflicts": found})
    return reasons


def _unit_tier(
    tier: str, x: Vectors, units: Units, labels: Labels, details: Sequence[dict[str, Any]] | None = None
) -> TierGroups:
    things = _Things(units.representatives, units.ids, units.merged)
    found = summarize_groups(x[units.representatives], labels)
    chosen = choose_representatives(labels, np.zeros(len(units)), found.mean_similarity, units.ids)
    told = [
        {**(details[number] if details else {}), "cohesion_mean": _known(mean), "cohesion_min": _known(lowest)}
        for number, (mean, lowest) in enumerate(zip(found.mean.tolist(), found.minimum.tolist(), strict=True))
    ]
    return _tier(tier, x, things, labels, representatives=chosen, details=told)


def _tier(
    tier: str,
    x: Vectors,
    things: _Things,
    labels: Labels,
    *,
    representatives: Labels,
    details: Sequence[dict[str, Any]],
) -> TierGroups:
    """The groups of a tier; ``representatives`` (positions among the things) and ``details`` by group."""
    similarity = compute_similarities(x[things.rows], labels, representatives)
    at = _group_by_group(labels)
    return TierGroups(
        tier,
        keys=cluster_keys(things.ids[at], labels[at]),
        details=details,
        groups=labels[at],
        ids=things.ids[at],
        merged=things.merged[at],
        similarity=similarity[at],
        is_representative=representatives[labels[at]] == at,
    )


def _group_by_group(labels: Labels) -> Labels:
    """Positions of the things that are in a group, group by group."""
    return np.concatenate([np.empty(0, dtype=np.int64), *list_members(labels)])


def _known(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _map(x: Vectors, units: Units, labels: Labels) -> str | None:
    """A picture of the units: near each other when similar, coloured by pattern group."""
    return map_svg(plane(x[units.representatives]), labels) if len(units) > 1 else None


def _summary(tiers: Sequence[TierGroups], contents: int, vetoed: int, picture: str | None) -> ClusterSummary:
    sizes = {tier.tier: np.bincount(tier.groups, minlength=len(tier.keys)) for tier in tiers}
    shown = [details for tier in tiers if tier.tier == "merge" for details in tier.details]
    means = [d["cohesion_mean"] for d in shown if d["cohesion_mean"] is not None]
    return ClusterSummary(
        contents=contents,
        groups={tier.tier: len(tier.keys) for tier in tiers},
        members={tier.tier: len(tier.ids) for tier in tiers},
        sizes={tier: dict(sorted(Counter(found.tolist()).items())) for tier, found in sizes.items()},
        cohesion_mean=round(float(np.mean(means)), 4) if means else None,
        cohesion_min=min((d["cohesion_min"] for d in shown if d["cohesion_min"] is not None), default=None),
        pairs_vetoed=vetoed,
        map_svg=picture,
    )
