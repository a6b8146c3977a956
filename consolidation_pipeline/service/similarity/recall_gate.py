"""Recall gate: a group is not merged if search would find its merged memory at a lower place than its memories.

The state that is searched is the one after the run: all other groups are merged, except those that the gate refuses.
What it finds for a source's text is compared twice, with the sources of the group and with their successor. So the
result does not depend on the order of the groups, and the next run, which finds the others merged, decides alike.
A memory that might itself be merged with the source, or has its text in another scope, says the same: it is no rival.
As many memories compete as a search lists by each retriever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.search.ranking import MIN_CANDIDATES
from consolidation_pipeline.core.search.recall import Places, compare_by_meaning, compare_by_text
from consolidation_pipeline.core.vectors import select_highest
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.merge_groups import Contents, Units
from consolidation_pipeline.service.similarity.recall_answers import (
    ROUNDING,
    HeldAnswers,
    RecallAnswers,
    RefusedMerge,
    collect_answers,
    compute_fingerprints,
    find_held,
    load_answers,
)
from consolidation_pipeline.service.similarity.recall_rows import (
    RecallQueries,
    SearchedRows,
    WordTable,
    build_rows,
    list_queries,
    number_scopes,
)
from consolidation_pipeline.service.similarity.upcoming_archives import Mask
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors, to_uuids

# Queries whose similarities are computed at a time, and numbers of the vectors of memories that are compared at a time.
_BLOCK, _COMPARED_NUMBERS = 256, 1 << 22

Integers = npt.NDArray[np.int64]

# Returns the plain vectors (n, d) of the nodes of the contents, of those at least that a mask (n,) is True for.
LoadPlain = Callable[[npt.NDArray[np.bool_]], Vectors]


class _Fall(NamedTuple):
    """Place of the best source, place of the successor, and the row that is found first then."""

    before: int
    after: int
    above: int


def count_falls(refused: Iterable[RefusedMerge]) -> dict[str, int]:
    """Return how many groups would fall from one place to another, as ``1 to 2``, the most frequent first."""
    falls = Counter((one.before, one.after) for one in refused)
    return {f"{before} to {after}": n for (before, after), n in sorted(falls.items(), key=lambda it: (-it[1], it[0]))}


@dataclass(frozen=True)
class GateDecision:
    """The groups that the gate refuses, by unit, and its ``answers`` for the next run; None = there are none."""

    refused: Sequence[RefusedMerge]
    answers: RecallAnswers | None


def find_refused(
    connection: Connection,
    run: ProjectRun,
    contents: Contents,
    units: Units,
    load_plain: LoadPlain,
    archived_nodes: Mask,
    is_archived: Mask,
) -> GateDecision:
    """Return the groups that the gate refuses. Only memories of their scopes are searched.

    What the run archives afterwards is not searched, so that the next run decides alike. Groups that the last run
    refused are asked again where their searches may have changed.

    Args:
        archived_nodes: True for the nodes (n,) that the run archives if nothing is merged.
        is_archived: True for the units (u,) that the run archives when they are merged.
    """
    chosen = _list_changing(run, contents, units)
    chosen = chosen[~is_archived[chosen]]
    if not len(chosen):
        return GateDecision([], None)
    scopes = number_scopes(run, contents)
    is_searched = np.isin(scopes, np.append(scopes[units.representatives[chosen]], 0))
    is_searched &= ~is_archived[units.unit_of_row]
    plain = load_plain(is_searched)
    if answers := load_answers(connection, run):
        run.merged_texts |= answers.unpack_texts()
    rows = build_rows(
        connection,
        run,
        contents,
        units,
        plain,
        chosen,
        scopes=scopes,
        is_searched=is_searched,
        is_archived=archived_nodes,
    )
    queries = list_queries(connection, run, contents, units, rows, plain)
    active = rows.is_successor | (rows.groups < 0)
    found = compute_fingerprints(connection, run, contents, units, rows, queries, scopes)
    held = find_held(answers, found, rows, queries, active)
    words = WordTable(connection, contents, rows, queries, ~held.are_held)
    judged = _judge(rows, queries, words, held.are_held)
    refused = _describe_refused(contents, units, chosen, rows, queries, judged.falls, held)
    if not refused:
        return GateDecision([], None)
    answers = collect_answers(
        found,
        held,
        queries,
        active,
        refused,
        texts={key: run.merged_texts[key] for key in (rows.texts[group].key for group in refused)},
        first=judged.first,
        candidates=judged.candidates,
        lowest=judged.lowest,
    )
    return GateDecision([*refused.values()], answers)


def _describe_refused(
    contents: Contents,
    units: Units,
    chosen: Integers,
    rows: SearchedRows,
    queries: RecallQueries,
    falls: Mapping[int, _Fall],
    held: HeldAnswers,
) -> dict[int, RefusedMerge]:
    """Return the refused groups by number, ascending: those of ``falls``, by query, and those that are ``held``."""
    ids = contents.nodes.ids
    worst: dict[int, tuple[int, int, bytes, bytes]] = {}
    for query, fall in falls.items():
        group = int(queries.groups[query])
        if group not in worst or fall.after - fall.before > worst[group][1] - worst[group][0]:
            node = queries.nodes[query]
            worst[group] = (fall.before, fall.after, b"" if node < 0 else ids[node], rows.ids[fall.above])
    if held.answers is not None:
        for group in np.flatnonzero(held.are_held).tolist():
            at = held.answers.first[held.at[group]]
            before, after = held.answers.places[at].tolist()
            worst[group] = (before, after, held.answers.query[at], held.answers.above[at])
    order = np.argsort(units.unit_of_row, kind="stable")
    ends = np.searchsorted(units.unit_of_row[order], np.arange(len(units) + 1))
    refused = {}
    for group, (before, after, query_id, above) in sorted(worst.items()):
        unit = int(chosen[group])
        refused[group] = RefusedMerge(
            unit=unit,
            memories=to_uuids(ids[order[ends[unit] : ends[unit + 1]]]),
            query=to_uuids(np.array([query_id], "S16"))[0] if query_id else None,
            before=before,
            after=after,
            above=to_uuids(np.array([above], "S16"))[0],
        )
    return refused


def _list_changing(run: ProjectRun, contents: Contents, units: Units) -> Integers:
    """Return the numbers of the merge groups that are not one merged memory yet."""
    if not run.options.recall_gate or not run.options.merge:
        return np.empty(0, np.int64)
    into = np.unique(contents.nodes.merged_into, return_inverse=True)[1].reshape(-1)
    pairs = np.unique(np.stack([units.unit_of_row, into]), axis=1)[0]
    kinds = np.bincount(pairs, minlength=len(units))
    is_open = np.zeros(len(units), np.bool_)
    is_open[units.unit_of_row[contents.nodes.merged_into == b""]] = True
    sizes = np.bincount(units.unit_of_row, minlength=len(units))
    return np.flatnonzero(units.merged & (sizes >= run.options.min_cluster_size) & (is_open | (kinds > 1)))


class _Judged(NamedTuple):
    """Result of the gate.

    ``falls``: by number of the query for which a group is refused, from which place to which it would fall. ``first``:
    groups that the first round refused. ``candidates`` (q, c) and ``lowest`` (q,) of their queries: those of the round.
    """

    falls: dict[int, _Fall]
    first: Integers
    candidates: Integers
    lowest: npt.NDArray[np.float64]


def _judge(rows: SearchedRows, queries: RecallQueries, words: WordTable, held: npt.NDArray[np.bool_]) -> _Judged:
    """Ask about the groups that are not ``held`` (g,). The first round refuses those that are.

    Groups are refused until no more fail: the memories of a refused group are searched again.
    """
    active = rows.is_successor | (rows.groups < 0)
    candidates = np.full((len(queries.groups), MIN_CANDIDATES), -1)
    lowest = np.full(len(queries.groups), -np.inf)
    is_refused = np.zeros(len(rows.successors), np.bool_)
    failing: dict[int, _Fall] = {}
    first: Integers | None = None
    pending = np.flatnonzero(~held[queries.groups])
    while True:
        _find_candidates(rows, queries, pending, active, candidates, lowest)
        words.load(candidates[pending])
        failed = dict(_list_failed(rows, queries, words, pending, candidates))
        failing |= failed
        groups = np.unique(queries.groups[np.fromiter(failed, np.int64)])
        if first is None:
            groups = first = np.union1d(groups, np.flatnonzero(held))
        if not len(groups):
            return _Judged(failing, first, candidates, lowest)
        is_refused[groups] = True
        changed = np.flatnonzero(np.isin(rows.groups, groups))
        active[changed] = ~rows.is_successor[changed] & ~rows.archived[changed]
        left = np.flatnonzero(~is_refused[queries.groups])
        pending = left[_find_touched(rows, queries, left, changed, candidates, lowest)]


def _list_failed(
    rows: SearchedRows, queries: RecallQueries, words: WordTable, pending: Integers, candidates: Integers
) -> Iterator[tuple[int, _Fall]]:
    """Yield the queries for which their group fails, and from which place to which it would fall."""
    size = max(1, _COMPARED_NUMBERS // (candidates.shape[1] * rows.vectors.shape[1]))
    for start in range(0, len(pending), size):
        chosen = pending[start : start + size]
        places, failed = _compare(rows, queries, words, chosen, candidates[chosen])
        falls = zip(*(column[failed].tolist() for column in places), strict=True)
        yield from zip(chosen[failed].tolist(), map(_Fall._make, falls), strict=True)


def _find_candidates(
    rows: SearchedRows,
    queries: RecallQueries,
    chosen: Integers,
    active: npt.NDArray[np.bool_],
    candidates: npt.NDArray[np.int64],
    lowest: npt.NDArray[np.float64],
) -> None:
    """Fill in the active rows that are nearest to the ``chosen`` queries, and the lowest similarity among them.

    Rows of a query's own group and of other scopes are left out.
    """
    for scope in np.unique(queries.scopes[chosen]).tolist():
        found = np.flatnonzero(active & ((rows.scopes == scope) | (rows.scopes == 0)))
        vectors, own = rows.vectors[found], _list_own(rows, found)
        asked = chosen[queries.scopes[chosen] == scope]
        for start in range(0, len(asked), _BLOCK):
            block = asked[start : start + _BLOCK]
            similarity = queries.vectors[block] @ vectors.T
            for at, group in enumerate(queries.groups[block].tolist()):
                similarity[at, own[group]] = -np.inf
            size = min(MIN_CANDIDATES, len(found))
            nearest = select_highest(similarity, size)
            values = np.take_along_axis(similarity, nearest, axis=1)
            candidates[block] = -1
            candidates[block, :size] = np.where(np.isfinite(values), found[nearest], -1)
            lowest[block] = values.min(axis=1) if size == MIN_CANDIDATES else -np.inf


def _list_own(rows: SearchedRows, found: Integers) -> list[Integers]:
    """Return the positions among the rows ``found`` of those of each group."""
    order = np.argsort(rows.groups[found], kind="stable")
    ends = np.searchsorted(rows.groups[found][order], np.arange(len(rows.successors) + 1))
    return [order[start:end] for start, end in pairwise(ends.tolist())]


def _find_touched(
    rows: SearchedRows,
    queries: RecallQueries,
    chosen: Integers,
    changed: Integers,
    candidates: npt.NDArray[np.int64],
    lowest: npt.NDArray[np.float64],
) -> npt.NDArray[np.bool_]:
    """Return which of the ``chosen`` queries (b,) have one of the ``changed`` rows as a candidate, or would have."""
    touched = np.zeros(len(chosen), np.bool_)
    for start in range(0, len(chosen), _BLOCK):
        block = chosen[start : start + _BLOCK]
        is_near = queries.vectors[block] @ rows.vectors[changed].T >= lowest[block, None] - ROUNDING
        is_candidate = np.isin(candidates[block], changed).any(axis=1)
        touched[start : start + _BLOCK] = is_candidate | is_near.any(axis=1)
    return touched


def _compare(
    rows: SearchedRows, queries: RecallQueries, words: WordTable, chosen: Integers, candidates: Integers
) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Return the places of the queries ``chosen`` (b,), and for which of them their groups fail (b,).

    ``candidates`` (b, c): the rows that compete with each group, -1 = none. The places name rows.
    """
    groups = queries.groups[chosen]
    pairs = zip(chosen.tolist(), groups.tolist(), strict=True)
    sources = _pad([queries.used.get(query, rows.members[group]) for query, group in pairs])
    searched = np.concatenate([np.sort(candidates, axis=1), sources, rows.successors[groups][:, None]], axis=1)
    is_there = searched >= 0
    vectors = rows.vectors[searched].astype(np.float64)
    similarity = (vectors @ queries.vectors[chosen].astype(np.float64)[:, :, None])[..., 0]
    others = searched[:, : candidates.shape[1]]
    is_rival = ~queries.are_alike(chosen[:, None], rows.units[others])
    places = compare_by_meaning(similarity, is_there, is_rival)
    failed, by_text = places.are_lost, queries.nodes[chosen] >= 0
    sizes, counts = words.count(searched[by_text], chosen[by_text])
    found = compare_by_text(similarity[by_text], sizes, counts, is_there[by_text], is_rival[by_text])
    for column, values in zip(places, found, strict=True):
        column[by_text] = values
    failed[by_text] = found.are_lower
    above = np.take_along_axis(searched, places.above[:, None], axis=1)[:, 0]
    return places._replace(above=above), failed


def _pad(lists: Sequence[Integers]) -> Integers:
    """Return arrays of different lengths as the rows of a matrix, filled up with -1."""
    sizes = np.array([len(one) for one in lists])
    padded = np.full((len(lists), sizes.max(initial=0)), -1)
    padded[np.arange(padded.shape[1]) < sizes[:, None]] = np.concatenate(lists)
    return padded
