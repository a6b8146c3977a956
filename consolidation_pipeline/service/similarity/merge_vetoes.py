"""Vetoes of memory tests: what a test says must not be merged is never grouped for merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.id_prefixes import read_id
from consolidation_pipeline.core.memories.memories import normalized_hash
from consolidation_pipeline.service.runs.project_run import ProjectRun, RefusedByTest
from consolidation_pipeline.service.similarity.merge_groups import Contents, Units, build_units
from consolidation_pipeline.store.database.vector_copy import to_ids, to_uuids
from consolidation_pipeline.store.similarity.similarity_graph import MERGE, TOPIC, Nodes

VETO = "they would have been merged into one memory"


def apply_vetoes(run: ProjectRun, contents: Contents) -> tuple[Contents, list[RefusedByTest]]:
    """Return the contents without the merges that a test ``must_not_merge`` forbids, and the groups that this changes.

    The verdict on such a pair is TOPIC: nobody is asked about it. Memories that are in one merged memory already stay.
    """
    tests = [test for test in run.memory_tests if test.kind == "must_not_merge"]
    if not tests:
        return contents, []
    pairs, verdict = contents.pairs, contents.verdict.copy()
    units: Units | None = None
    refused = []
    for test in tests:
        a, b = (_find_rows(contents.nodes, test.body[side]) for side in "ab")
        one, other = (np.isin(np.arange(contents.count), contents.content_of_row[rows]) for rows in (a, b))
        forbidden = (one[pairs.i] & other[pairs.j]) | (other[pairs.i] & one[pairs.j])
        if (contents.verdict[forbidden] == MERGE).any():
            units = build_units(run, contents) if units is None else units
            if len(memories := _list_merged(contents, units, a, b)):
                refused.append(RefusedByTest("clusters", {test.name: VETO}, memories))
        verdict[forbidden] = np.minimum(verdict[forbidden], TOPIC)
    return replace(contents, verdict=verdict), refused


def find_units(contents: Contents, units: Units, groups: Sequence[Sequence[UUID]]) -> list[int]:
    """Return the units that hold the raw memories of ``groups`` and others or none; a group that was split has none."""
    found: list[int] = []
    for group in groups:
        rows = np.flatnonzero(np.isin(contents.nodes.ids, to_ids(list(group))))
        numbers = np.unique(units.unit_of_row[rows])
        found += numbers.tolist() if len(numbers) == 1 else []
    return sorted(set(found))


def _find_rows(nodes: Nodes, given: str) -> Labels:
    """Return the rows of the raw memories that a test names by text or id."""
    id_ = read_id(given)
    if id_ is not None:
        return np.flatnonzero(nodes.ids == to_ids([id_])[0])
    return np.flatnonzero(nodes.repeats == to_ids([UUID(normalized_hash(given)[:32])])[0])


def _list_merged(contents: Contents, units: Units, a: Labels, b: Labels) -> list[UUID]:
    """Return the memories of the units that would newly hold one of the rows ``a`` and one of ``b``."""
    into = contents.nodes.merged_into
    before = np.intersect1d(into[a], into[b])
    both = np.intersect1d(units.unit_of_row[a], units.unit_of_row[b])
    members = np.flatnonzero(np.isin(units.unit_of_row, both))
    is_old = (before != b"").any() and np.isin(into[np.r_[a, b]], before[before != b""]).all()
    return [] if is_old else to_uuids(contents.nodes.ids[members])
