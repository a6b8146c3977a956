"""Pairs of suggest groups that a person decides on, and the reasons why they were not merged.

Groups that wait for a person are many, and few of them are ever read. So their differences are explained when they are
proposed or shown, not when the groups are formed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.knowledge.difference_words import describe_differences
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, reaches
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.service.similarity.graph_nodes import type_keys
from consolidation_pipeline.service.similarity.merge_groups import Contents, UnitPairs, Units, are_forbidden
from consolidation_pipeline.service.similarity.pair_answers import PairAnswers
from consolidation_pipeline.service.similarity.pair_judges import open_judge
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.similarity_graph import ASK

# Why a person is asked about texts that do not differ.
_OTHER_TYPE = "no difference: another memory type"
_BELOW_MERGE = "no difference: a similarity below t_merge"
_UNDONE = "no difference: a merge that was undone"
# The texts of the memories that were compared differ. Those of the merged memories that stand for them may not.
_MERGED_SINCE = "no difference: memories behind them differ"
# Pairs that are listed for a suggest group.
_LISTED_PAIRS = 3
# Pairs that a worker process explains at a time.
_EXPLAINED_PAIRS = 500


def list_asked_pairs(
    connection: Connection, run: ProjectRun, contents: Contents, units: Units, labels: Labels, unit_pairs: UnitPairs
) -> dict[int, list[dict[str, Any]]]:
    """Return by group up to ``_LISTED_PAIRS`` pairs that a person decides on, most similar first.

    Each has the ids ``a`` and ``b``, their ``similarity``, ``if_same``: why a person is asked if the texts do not
    differ, empty if they are known to, and ``judged``: the decision of the pair judge, if it decided on the pair.
    """
    asked_pairs = unit_pairs.pairs.select(unit_pairs.verdict == ASK)
    of_pair = labels[asked_pairs.i]
    inside = asked_pairs.select((of_pair >= 0) & (of_pair == labels[asked_pairs.j]))
    group = labels[inside.i]
    order = np.lexsort((inside.j, inside.i, -inside.similarity, group))
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    listed = inside.select(order[rank < _LISTED_PAIRS])
    i, j = listed.i, listed.j
    types = type_keys(contents.nodes)[units.representatives]
    is_other = (types[i] != types[j]) & (not run.options.cross_type)
    if_same = np.where(reaches(listed.similarity, run.thresholds["t_merge"]), "", _BELOW_MERGE)
    if_same = np.where(is_other, _OTHER_TYPE, if_same)
    if_same = np.where(_were_undone(connection, run, contents, units, listed), _UNDONE, if_same)
    judged = _list_judged(connection, run, contents, units, listed)
    columns = (
        labels[i].tolist(),
        map(str, to_uuids(units.ids[i])),
        map(str, to_uuids(units.ids[j])),
        np.round(listed.similarity.astype(np.float64), 4).tolist(),
        if_same.tolist(),
        judged,
    )
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for number, a, b, similarity, why, decision in zip(*columns, strict=True):
        pair = {"a": a, "b": b, "similarity": similarity, "if_same": why}
        found[number].append({**pair, "judged": decision} if decision else pair)
    return found


def _were_undone(
    connection: Connection, run: ProjectRun, contents: Contents, units: Units, pairs: SimilarPairs
) -> npt.NDArray[np.bool_]:
    """Return for each pair of units (m,) if a person undid a merge of what they say."""
    of_unit = contents.content_of_row[units.representatives].astype(np.int32)
    between = SimilarPairs(of_unit[pairs.i], of_unit[pairs.j], pairs.similarity)
    undone = load_cannot_links(connection, run.project.id)
    return are_forbidden(contents.nodes, contents.content_of_row, between, undone)


def _list_judged(
    connection: Connection, run: ProjectRun, contents: Contents, units: Units, pairs: SimilarPairs
) -> Sequence[str | None]:
    """Return the decision of the pair judge on each pair of units, None = none."""
    judge = open_judge(run)
    if judge is None:
        return [None] * len(pairs)
    answers = PairAnswers(run, judge)
    firsts, others = (to_uuids(contents.nodes.ids[units.representatives[side]]) for side in (pairs.i, pairs.j))
    texts = load_texts(connection, [*{*firsts, *others}])
    return [answers.decide((texts[a], texts[b])) for a, b in zip(firsts, others, strict=True)]


def explain_asked_pairs(
    asked_pairs: Sequence[Mapping[str, Any]], texts: Mapping[UUID, str]
) -> Iterator[dict[str, Any]]:
    """Yield the pairs with their ``differences``: what keeps the texts apart, else ``if_same``.

    Args:
        asked_pairs: As of ``list_asked_pairs``.
        texts: By the ids of the pairs.
    """
    pairs_of_texts = [(texts[UUID(pair["a"])], texts[UUID(pair["b"])]) for pair in asked_pairs]
    portions = split_chunks(pairs_of_texts, size=_EXPLAINED_PAIRS)
    differences = chain.from_iterable(compute_in_order(_list_differences, portions, memories=len(asked_pairs)))
    for pair, found in zip(asked_pairs, differences, strict=True):
        yield {**pair, "differences": found or [pair["if_same"] or _MERGED_SINCE]}


def _list_differences(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the differences that keep the texts of each pair apart, in words."""
    return [describe_differences(explain(*pair, word_similarity).list_obstacles()) for pair in pairs]
