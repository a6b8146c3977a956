"""Memories that the run archives once it has merged: no rivals of a merge, and nothing to ask a person about."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle.archive_policies import ArchiveUnits, merge_units
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.runs.archive_units import archives_memories, load_archive_units, select_upcoming
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.merge_groups import Units
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class UpcomingArchives:
    """Nodes and units that the archive phase of the run takes.

    ``nodes`` (n,): True for those that it takes if nothing is merged. ``stored``: active memories; None if the run
    archives nothing. ``place`` (n,): position of each node, or of the memory that it is merged into, among these; -1 =
    the run dissolves that memory.
    """

    run: ProjectRun
    nodes: Mask
    stored: ArchiveUnits | None
    place: npt.NDArray[np.int64]

    def select(self, rows: npt.NDArray[np.int64]) -> UpcomingArchives:
        """Return it for the nodes at ``rows``."""
        return replace(self, nodes=self.nodes[rows], place=self.place[rows])

    def of_units(self, units: Units) -> Mask:
        """Return True (u,) for the units that the archive phase takes when they are merged."""
        if self.stored is None:
            return np.zeros(len(units), np.bool_)
        is_taken = np.bincount(units.unit_of_row, weights=~self.nodes, minlength=len(units)) == 0
        rows = np.flatnonzero((self.place >= 0) & units.merged[units.unit_of_row])
        labels = np.full(len(self.stored), -1)
        labels[self.place[rows]] = units.unit_of_row[rows]
        is_merged = labels >= 0
        merged, numbers = np.unique(labels[is_merged], return_inverse=True)
        parts = [merge_units(self.stored.select(is_merged), numbers), self.stored.select(~is_merged)]
        is_taken[merged] = np.isin(np.arange(len(merged)), select_upcoming(self.run, ArchiveUnits.concatenate(parts)))
        return np.asarray(is_taken, np.bool_)


def find_upcoming_archives(connection: Connection, run: ProjectRun, nodes: Nodes) -> UpcomingArchives:
    """Return what the archive phase of this run takes of the nodes."""
    if not archives_memories(run):
        return UpcomingArchives(run, np.zeros(len(nodes), np.bool_), None, np.full(len(nodes), -1))
    ids, _, stored = load_archive_units(connection, run)
    order = np.argsort(ids)
    found = find_positions(ids[order], np.where(nodes.merged_into != b"", nodes.merged_into, nodes.ids))
    place = np.where(found >= 0, order[found], -1) if len(order) else found
    is_taken = np.isin(np.arange(len(stored)), select_upcoming(run, stored))
    return UpcomingArchives(run, np.append(is_taken, False)[place], stored, place)
