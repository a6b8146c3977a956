"""Stored calibrations, decisions on suggestions, and grouping vectors."""

from __future__ import annotations

from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.database.vector_copy import Vectors, to_uuids
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.calibrations import (
    Calibration,
    append_calibration,
    describe_versions,
    find_disordered_thresholds,
    load_calibration,
    load_decisions,
)
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes, replace_grouping_vectors
from consolidation_pipeline.store.similarity.similarity_graph import load_nodes_with_vectors
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    add_memories,
    add_project,
    new_memory,
    save_unit_vectors,
    unit_vector,
)

TIERS = {"t_merge": 0.9, "t_suggest": 0.8, "t_pattern": 0.6, "t_principle": 0.5}


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Ids of four embedded memories, ascending."""
    ids = sorted(add_memories(connection, project, [new_memory(key) for key in "abcd"]))
    save_unit_vectors(connection, ids)
    return ids


def test_newest_calibration_is_loaded_unchanged(connection: Connection, project: Project) -> None:
    assert load_calibration(connection, project.id, MODEL) is None
    center = unit_vector(3, 50)
    given = Calibration(
        3, center, {"t_merge": 0.1 + 0.2}, 7, ("nothing to add", '{a} \\ "b"'), {"center": True}, {"spread": None}
    )
    for snapshot in (Calibration(1, None, TIERS, 5), given, Calibration(2, None, TIERS, 6)):
        append_calibration(connection, project.id, MODEL, snapshot)
    loaded = load_calibration(connection, project.id, MODEL)
    assert loaded is not None
    assert (loaded.version, loaded.memories, loaded.thresholds) == (3, 7, given.thresholds)
    assert (loaded.boilerplate, loaded.options, loaded.report) == (given.boilerplate, given.options, given.report)
    assert loaded.center is not None
    assert loaded.center.tobytes() == center.tobytes()
    assert load_calibration(connection, project.id, "other") is None


def test_calibration_versions_list_every_model(connection: Connection, project: Project) -> None:
    assert describe_versions(connection, project.id) == ""
    for model, version in (("b", 1), ("a", 1), ("a", 12), ("a", 3)):
        append_calibration(connection, project.id, model, Calibration(version, None, TIERS, 1))
    append_calibration(connection, add_project(connection, "other").id, "a", Calibration(40, None, TIERS, 1))
    assert describe_versions(connection, project.id) == "a 12, b 1"


@pytest.mark.parametrize(
    "wrong", [{"t_suggest": 0.95}, {"t_pattern": 0.85}, {"t_merge": 1.2}, {"t_pattern": 0.0}, {"t_merge": None}]
)
def test_disordered_thresholds_of_newest_are_found(
    connection: Connection, project: Project, wrong: dict[str, float]
) -> None:
    append_calibration(connection, project.id, MODEL, Calibration(1, None, TIERS, 5))
    assert find_disordered_thresholds(connection, project.id) == []
    append_calibration(connection, project.id, MODEL, Calibration(2, None, TIERS | wrong, 5))
    (found,) = find_disordered_thresholds(connection, project.id)
    assert found.startswith(f"{MODEL} version 2")
    append_calibration(connection, project.id, MODEL, Calibration(3, None, TIERS, 5))
    assert find_disordered_thresholds(connection, project.id) == []


def test_decisions_come_from_reviewed_suggestions(connection: Connection, project: Project) -> None:
    assert load_decisions(connection, project.id) == []
    pairs = {status: [uuid4(), uuid4()] for status in ("pending", "validated", "rejected", "superseded")}
    insert = (
        f"INSERT INTO {SCHEMA}.consolidation_suggestions (project_id, group_id, status, suggested_content, "
        "original_memory_ids, original_versions, fingerprint) "
        "VALUES (:project, 'g', :status, 'x', :ids, '{1,1}', :status)"
    )
    for status, ids in pairs.items():
        connection.execute(text(insert), {"project": project.id, "status": status, "ids": ids})
    found = load_decisions(connection, project.id)
    assert sorted(found, key=lambda decision: decision[1]) == [(pairs["rejected"], False), (pairs["validated"], True)]


def replace_vectors(
    connection: Connection,
    project: Project,
    hashes: dict[UUID, str],
    new: dict[str, Vectors],
    checked: list[UUID] | None,
) -> None:
    vectors = np.stack(list(new.values())) if new else np.empty((0, 0), np.float32)
    rows = {name: row for row, name in enumerate(new)}
    replace_grouping_vectors(
        connection, project.id, MODEL, text_hashes=hashes, computed=rows, vectors=vectors, checked=checked
    )


def test_grouping_vectors_replace_plain_vectors(connection: Connection, project: Project, raw: list[UUID]) -> None:
    replace_vectors(connection, project, {raw[1]: "h1", raw[3]: "h1"}, {"h1": unit_vector(9)}, None)
    nodes, vectors = load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)
    found = dict(zip(to_uuids(nodes.ids), vectors.tolist(), strict=True))
    assert found[raw[0]] == unit_vector(0).tolist()
    assert found[raw[1]] == found[raw[3]] == unit_vector(9).tolist()
    _, plain = load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS, plain=True)
    assert plain[to_uuids(nodes.ids).index(raw[1])].tolist() == unit_vector(1).tolist()


def test_grouping_vectors_replace_checked_only(connection: Connection, project: Project, raw: list[UUID]) -> None:
    replace_vectors(
        connection, project, {raw[0]: "h1", raw[1]: "h2"}, {"h1": unit_vector(8), "h2": unit_vector(9)}, None
    )
    replace_vectors(connection, project, {raw[2]: "h1"}, {}, [raw[1], raw[2]])
    assert load_text_hashes(connection, project.id, MODEL) == {raw[0]: "h1", raw[2]: "h1"}
    nodes, vectors = load_nodes_with_vectors(connection, project.id, MODEL, scope=NO_WALLS)
    assert vectors[to_uuids(nodes.ids).index(raw[2])].tolist() == unit_vector(8).tolist()
    replace_vectors(connection, project, {raw[0]: "h3"}, {"h3": unit_vector(7)}, None)
    assert load_text_hashes(connection, project.id, MODEL) == {raw[0]: "h3"}
    replace_vectors(connection, project, {}, {}, None)
    assert load_text_hashes(connection, project.id, MODEL) == {}
