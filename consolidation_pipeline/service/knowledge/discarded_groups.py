"""Discarded groups: what gave no pattern or principle is not read again until one of its units changes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from hashlib import sha256

from consolidation_pipeline.service.knowledge.text_writers import AbstractionKind, Group
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.discarded_groups import load_discarded, replace_discarded


def find_discarded(connection: Connection, run: ProjectRun, kind: AbstractionKind, groups: Iterable[Group]) -> set[str]:
    """Return the cluster keys of the groups that an earlier run discarded after reading the same."""
    stored = load_discarded(connection, run.project.id, kind.name)
    return {
        group.cluster_key
        for group in groups
        if group.cluster_key in stored and stored[group.cluster_key] == _hash_units(run, group)
    }


def note_discarded(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    groups: Iterable[Group],
    *,
    present_keys: Collection[str],
) -> None:
    """Store that ``groups`` were discarded, beside those known that are still present."""
    stored = load_discarded(connection, run.project.id, kind.name)
    kept = {key: units for key, units in stored.items() if key in present_keys}
    now = kept | {group.cluster_key: _hash_units(run, group) for group in groups}
    if now != stored:
        replace_discarded(connection, run.project.id, kind.name, now)


def _hash_units(run: ProjectRun, group: Group) -> str:
    """Return a hash of what a text of the group is written from, but for the other groups of the project."""
    units = sorted(
        (str(one.id), one.text, one.memory_type, one.pattern_type, one.success, str(one.learned_at), len(one.raw_ids))
        for one in group.units
    )
    version = None if run.calibration is None else run.calibration.version  # of the boilerplate that is left out
    read = [describe_code()["digest"], run.options.llm_model, version, units]
    return sha256(json.dumps(read).encode()).hexdigest()
