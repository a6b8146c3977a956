"""Stored groups: replacement, and unchanged groups that are not written again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.clusters import (
    ClusterMember,
    TierGroups,
    find_changed_groups,
    load_clusters,
    replace_clusters,
    replace_details,
)
from consolidation_pipeline_tests.store.sample_rows import add_memories, add_project, new_memory


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Ids of four memories, ascending."""
    return sorted(add_memories(connection, project, [new_memory(key) for key in "abcd"]))


DETAILS = {"cohesion_mean": 0.9, "asked_pairs": [{"a": "it's"}]}


def _members(
    raw: list[UUID], *, similarity: float = 0.1 + 0.2, details: dict[str, Any] = DETAILS
) -> list[ClusterMember]:
    return [
        ClusterMember("merge", "one", raw[0], "raw", 1.0, True, details),
        ClusterMember("merge", "one", raw[1], "raw", similarity, False, {}),
        ClusterMember("pattern", "two", raw[2], "merged", None, True, {}),
    ]


def test_replace_clusters_replaces_all_groups(connection: Connection, project: Project, raw: list[UUID]) -> None:
    other = add_project(connection, "other")
    replace_clusters(connection, other.id, None, _members(raw))
    for changed in (_members(raw), _members(raw, similarity=0.5), _members(raw, details={}), _members(raw)[:2], []):
        job = uuid4()
        replace_clusters(connection, project.id, job, changed)
        stored, expected = (
            [(m.tier, m.cluster_key, m.member_id, m.details) for m in members]
            for members in (_load_members(connection, project), changed)
        )
        assert stored == expected
        jobs = f"SELECT count(*) FROM {SCHEMA}.memory_clusters WHERE project_id = :project AND job_id = :job"
        written = connection.execute(text(jobs), {"project": project.id, "job": job}).scalar_one()
        assert bool(written) == bool(changed)
    assert len(load_clusters(connection, other.id, "merge")["one"]) == 2


def _load_members(connection: Connection, project: Project) -> list[ClusterMember]:
    tiers = [load_clusters(connection, project.id, tier) for tier in ("merge", "pattern")]
    return [member for groups in tiers for group in groups.values() for member in group]


def _two_groups(raw: list[UUID], tier: str = "merge", **fields: Any) -> TierGroups:
    """Return two groups of two: the first two memories and the last two."""
    given: dict[str, Any] = {
        "keys": ["one", "two"],
        "details": [{"cohesion_mean": 0.912345}, {"asked_pairs": [{"a": "it's"}]}],
        "groups": np.array([0, 0, 1, 1]),
        "ids": to_ids(raw),
        "merged": np.array([False, True, False, False]),
        "similarity": np.array([1.0, 0.1 + 0.2, 0.7, 1.0], np.float32),
        "is_representative": np.array([True, False, False, True]),
    }
    return TierGroups(tier, **given | fields)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, set()),
        ({"similarity": np.array([1.0, 0.4, 0.7, 1.0], np.float32)}, {"one"}),
        ({"merged": np.array([False, True, True, False])}, {"two"}),
        ({"is_representative": np.array([True, False, True, False])}, {"two"}),
        ({"details": [{"cohesion_mean": 0.912346}, {"asked_pairs": [{"a": "it's"}]}]}, {"one"}),
        ({"keys": ["one", "three"]}, {"two", "three"}),
        ({"ids": to_ids([UUID(int=9), UUID(int=8), UUID(int=7), UUID(int=6)])}, {"one", "two"}),
        ({"tier": "pattern"}, {"one", "two"}),
    ],
)
def test_only_changed_groups_are_written(
    connection: Connection, project: Project, raw: list[UUID], fields: dict[str, Any], changed: set[str]
) -> None:
    job = uuid4()
    replace_clusters(connection, project.id, None, _two_groups(raw).members())
    later = _two_groups(raw, **fields)
    regrouped = set() if "details" in fields else changed
    assert find_changed_groups(connection, project.id, [later], without=to_ids([])) == regrouped
    replace_clusters(connection, project.id, job, later.members(regrouped), changed=regrouped)
    assert replace_details(connection, project.id, job, [later]) == len(changed - regrouped)
    written = f"SELECT DISTINCT cluster_key FROM {SCHEMA}.memory_clusters WHERE job_id = '{job}'"
    assert set(connection.scalars(text(written))) == changed & set(later.keys)
    # The driver returns a real as its shortest decimal.
    stored, expected = (
        [replace(m, similarity=None) for m in sorted(rows, key=lambda m: m.member_id)]
        for rows in (_load_members(connection, project), later.members())
    )
    assert stored == expected
    assert find_changed_groups(connection, project.id, [later], without=to_ids([])) == set()
    assert replace_details(connection, project.id, job, [later]) == 0


def test_groups_of_other_members_are_left_alone(connection: Connection, project: Project, raw: list[UUID]) -> None:
    groups = _two_groups(raw)
    replace_clusters(connection, project.id, None, groups.members())
    of_two = groups.ids[groups.groups == 1]
    one = list(groups.members({"one"}))
    only = replace(
        groups,
        keys=groups.keys[:1],
        details=groups.details[:1],
        **{name: getattr(groups, name)[: len(one)] for name in ("groups", "ids", "merged", "similarity")},
        is_representative=groups.is_representative[: len(one)],
    )
    assert find_changed_groups(connection, project.id, [only], without=to_ids([])) == {"two"}
    assert find_changed_groups(connection, project.id, [only], without=np.sort(of_two)) == set()


def test_cluster_lists_representative_first(connection: Connection, project: Project, raw: list[UUID]) -> None:
    members = [ClusterMember("merge", "key", id_, "raw", 0.9, id_ == raw[2], {}) for id_ in raw]
    replace_clusters(connection, project.id, None, members)
    (group,) = load_clusters(connection, project.id, "merge").values()
    assert [member.member_id for member in group] == [raw[2], raw[0], raw[1], raw[3]]
    assert load_clusters(connection, project.id, "suggest") == {}
