"""Pairs of suggest groups that a person decides on, with the reasons why they were not merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.similarity.similarity_join import reaches
from consolidation_pipeline.embed.word_similarity import word_similarity
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.service.similarity.merge_groups import Contents, UnitPairs, Units
from consolidation_pipeline.service.similarity.pair_answers import PairAnswers
from consolidation_pipeline.service.similarity.pair_judges import open_judge
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.similarity_graph import ASK

# Reasons that are listed for a pair whose differences are harmless.
_OTHER_TYPE = "no difference: another memory type"
_BELOW_MERGE = "no difference: a similarity below t_merge"
_UNDONE = "no difference: a merge that was undone"
# Pairs per suggest group that are listed with their reasons.
_LISTED_PAIRS = 3
# Pairs that a worker process explains at a time.
_EXPLAINED_PAIRS = 500


def select_lasting(pairs: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the stored ``pairs`` by their ids, but for those without a difference that matters.

    Why a person is asked about these depends on thresholds, types and earlier decisions.
    """
    changing = (_OTHER_TYPE, _BELOW_MERGE, _UNDONE)
    return {(pair["a"], pair["b"]): pair for pair in pairs if pair["differences"][0] not in changing}


def find_reasons(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    labels: Labels,
    unit_pairs: UnitPairs,
    *,
    known: Mapping[tuple[str, str], dict[str, Any]],
) -> dict[int, list[dict[str, Any]]]:
    """Return by group up to ``_LISTED_PAIRS`` pairs that a person decides on, most similar first, with the reasons.

    ``judged``: the decision of the pair judge, for pairs that it decided on. ``known``: pairs of other groups, as they
    are stored; those of raw memories need no new reasons.
    """
    asked_pairs = unit_pairs.pairs.select(unit_pairs.verdict == ASK)
    of_pair = labels[asked_pairs.i]
    inside = asked_pairs.select((of_pair >= 0) & (of_pair == labels[asked_pairs.j]))
    group = labels[inside.i]
    order = np.lexsort((inside.j, inside.i, -inside.similarity, group))
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    listed = inside.select(order[rank < _LISTED_PAIRS])
    positions = np.unique([listed.i, listed.j]).tolist()
    names = dict(zip(positions, map(str, to_uuids(units.ids[positions])), strict=True))
    raw_ids = dict(zip(positions, to_uuids(contents.nodes.ids[units.representatives[positions]]), strict=True))
    pairs = list(zip(listed.i.tolist(), listed.j.tolist(), listed.similarity.tolist(), strict=True))
    # Another memory may represent a merged one by now.
    is_raw = (~(units.merged[listed.i] | units.merged[listed.j])).tolist()
    stored = [known.get((names[i], names[j])) if raw else None for (i, j, _), raw in zip(pairs, is_raw, strict=True)]
    asked = [pair for pair, found in zip(pairs, stored, strict=True) if found is None]
    texts = load_texts(connection, [raw_ids[at] for at in {at for i, j, _ in asked for at in (i, j)}])
    judge = open_judge(run)
    answers = None if judge is None else PairAnswers(run, judge)
    pairs_of_texts = [(texts[raw_ids[i]], texts[raw_ids[j]]) for i, j, _ in asked]
    portions = split_chunks(pairs_of_texts, size=_EXPLAINED_PAIRS)
    differences = chain.from_iterable(compute_in_order(_list_differences, portions, memories=len(asked)))
    explained = iter(zip(pairs_of_texts, differences, strict=True))
    reasons: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for (i, j, similarity), found in zip(pairs, stored, strict=True):
        pair: dict[str, Any] = {"a": names[i], "b": names[j], "similarity": round(similarity, 4)}
        if found is not None:
            reasons[int(labels[i])].append({**pair, "differences": found["differences"]})
            continue
        both, why = next(explained)
        judged = None if answers is None else answers.decide(both)
        types = contents.nodes.memory_type[units.representatives[[i, j]]]
        is_one_type = run.options.cross_type or types[0] == types[1]
        why = why or [_explain_no_difference(is_one_type, similarity, run.thresholds["t_merge"])]
        reasons[int(labels[i])].append({**pair, "differences": why, **({"judged": judged} if judged else {})})
    return reasons


def _explain_no_difference(is_one_type: bool, similarity: float, t_merge: float) -> str:
    """Return why a person is asked about texts without a difference that matters."""
    if not is_one_type:
        return _OTHER_TYPE
    return _UNDONE if reaches(similarity, t_merge) else _BELOW_MERGE


def _list_differences(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the differences that keep the texts of each pair apart."""
    return [list(map(str, explain(*pair, word_similarity).list_obstacles())) for pair in pairs]
