"""Calibration of a project: held until growth or new options renew it with the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from consolidation_pipeline.core.calibration.decision_errors import load_product_pairs, measure_errors
from consolidation_pipeline.core.calibration.model_thresholds import WORDLLAMA
from consolidation_pipeline.core.calibration.threshold_estimates import CosineSpread
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.errors import NotFoundError, ProjectBusyError
from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.similarity import calibration_fit
from consolidation_pipeline.service.similarity.calibration import (
    CalibrationResult,
    calibrate_project,
    calibrate_thresholds,
)
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.graph_nodes import load_graph_nodes
from consolidation_pipeline.service.similarity.similarity_graph import GraphUpdate, update_similarity_graph
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, unrelated_notes
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases
from consolidation_pipeline_tests.service.table_dumps import dump_tables

BOILERPLATE = (
    "Review the full content of this learning entry and extract the actionable insights that future agents need. "
    "Add the key points of this learning here, with the context in which they apply and the evidence behind them."
)


@pytest.fixture
def calibrate_from_twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate projects of twelve or more distinct memories."""
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 12)


def boilerplate_notes(count: int = 12, first: int = 0) -> list[dict[str, Any]]:
    """Return different lessons that end in the same two boilerplate sentences."""
    return [note(f"p{at}", f"{LESSONS[at].split(',')[0]}. {BOILERPLATE}") for at in range(first, count)]


def calibrate(pipeline: Pipeline, *, renew: bool = True) -> CalibrationResult:
    with pipeline.open() as run:
        embed_memories(run)
        return calibrate_thresholds(run, renew=renew)


def update(pipeline: Pipeline, *, renew: bool = True) -> tuple[CalibrationResult, GraphUpdate]:
    with pipeline.open() as run:
        embed_memories(run)
        return calibrate_thresholds(run, renew=renew), update_similarity_graph(run)


def list_versions(pipeline: Pipeline) -> list[int]:
    return [row[0] for row in pipeline.rows("SELECT version FROM {s}.similarity_calibrations ORDER BY version")]


def edges(pipeline: Pipeline) -> dict[tuple[str, str], float]:
    """Return the similarity of stored pairs by external ids."""
    rows = pipeline.rows(
        "SELECT a.external_id, b.external_id, n.similarity FROM {s}.memory_pairs n "
        "JOIN {s}.task_memories a ON a.id = n.a JOIN {s}.task_memories b ON b.id = n.b"
    )
    return {(min(a, b), max(a, b)): similarity for a, b, similarity in rows}


def test_small_project_uses_profile_thresholds(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    done = calibrate(pipeline)
    assert WORDLLAMA.plain is not None
    assert done.snapshot.thresholds == WORDLLAMA.plain.thresholds()
    assert (done.snapshot.center, done.snapshot.boilerplate, done.stripped) == (None, (), 0)
    report = done.snapshot.report
    assert (report["trigger"], report["decided"]) == ("first", None)
    assert report.keys().isdisjoint({"spread", "recommended"})


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_large_project_is_calibrated_on_own_memories(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        embed_memories(run)
        done = calibrate_thresholds(run)
        assert run.thresholds == done.snapshot.thresholds
    snapshot, report = done.snapshot, done.snapshot.report
    assert snapshot.center is not None
    assert snapshot.thresholds | {"t_graph": report["recommended"]["t_graph"]} == report["recommended"]
    assert snapshot.thresholds["t_merge"] == snapshot.thresholds["t_suggest"] >= WORDLLAMA.t_suggest
    assert snapshot.thresholds["t_pattern"] == report["topics"]["threshold"]
    assert (report["topics"]["linked"], report["topics"]["silhouette"] > 0) == (report["contents"], True)
    assert snapshot.thresholds["t_principle"] <= snapshot.thresholds["t_pattern"] < snapshot.thresholds["t_suggest"]
    assert report["spread"]["median"] < report["spread"]["nearest"]
    assert report["profile"]["measured"] is True
    # "Seen again today." is boilerplate of a memory for each lesson.
    repeats = sum("repeat" in row["id"] for row in corpus())
    assert (report["contents"], report["stripped"]) == (len(corpus()) - repeats, len(LESSONS))
    assert report["decided"] is None


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_dense_project_merges_above_graph_threshold(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = CosineSpread(median=0.5, nearest=0.95, bound=0.93, sampled=50)
    monkeypatch.setattr(calibration_fit, "measure_spread", lambda *_: dense)
    pipeline.add(corpus())
    thresholds = calibrate(pipeline).snapshot.thresholds
    assert thresholds["t_merge"] == thresholds["t_suggest"] == thresholds["t_graph"] == 0.93
    assert thresholds["t_pattern"] < thresholds["t_graph"]


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_calibration_is_deterministic(pipeline: Pipeline) -> None:
    rows = [*boilerplate_notes(), *corpus()]
    found = []
    for given in (rows, rows[::-1]):
        pipeline.clear()
        pipeline.add(given)
        found.append(calibrate(pipeline).snapshot)
    assert found[0].report == found[1].report
    assert (found[0].thresholds, found[0].boilerplate) == (found[1].thresholds, found[1].boilerplate)


def test_calibration_is_renewed_after_growth_by_half(pipeline: Pipeline) -> None:
    pipeline.add([note(str(at), f"{word} grows here") for at, word in enumerate(VOCABULARY)])
    assert update(pipeline)[0].renewed
    pipeline.add([note(f"more-{at}", f"{VOCABULARY[at]} grows there") for at in range(4)])
    done, graph = update(pipeline)
    assert (done.renewed, graph.rebuilt, graph.calibration, graph.compared) == (False, False, 1, 4)
    pipeline.add([note("last", "iris grows anywhere")])
    done, graph = update(pipeline, renew=False)
    assert (done.renewed, graph.calibration) == (False, 1)
    done, graph = update(pipeline)
    assert (done.renewed, done.snapshot.version, done.snapshot.report["trigger"]) == (True, 2, "growth")
    assert (graph.rebuilt, graph.calibration, graph.compared) == (True, 2, 15)
    assert not calibrate(pipeline).renewed


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_held_calibration_needs_no_embedding(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    model = WordEmbedder(dimension=64)
    with pipeline.open(embedder=model) as run:
        embed_memories(run)
        calibrate_thresholds(run)
        seen = len(model.seen)
        assert calibrate_thresholds(run).renewed is False
        assert len(model.seen) == seen
        del run.calibration
        assert calibrate_thresholds(run).renewed is False


@pytest.mark.parametrize("options", [{"center": False}, {"t_merge": 0.9}, {"t_pattern": 0.55}])
def test_changed_options_renew_calibration(pipeline: Pipeline, options: dict[str, Any]) -> None:
    pipeline.add(corpus())
    calibrate(pipeline)
    pipeline.configure(decay_rate=0.2)
    assert not calibrate(pipeline).renewed
    pipeline.configure(**options)
    done = calibrate(pipeline)
    assert (done.renewed, done.snapshot.report["trigger"]) == (True, "options")
    assert done.snapshot.thresholds.items() >= {k: v for k, v in options.items() if k != "center"}.items()


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_given_threshold_wins_over_calibration(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.configure(t_merge=0.9, t_pattern=0.5)
    snapshot = calibrate(pipeline).snapshot
    assert (snapshot.thresholds["t_merge"], snapshot.thresholds["t_pattern"]) == (0.9, 0.5)
    assert snapshot.thresholds["t_suggest"] >= 0.5
    assert snapshot.report["recommended"]["t_merge"] < 0.9


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_uncentered_calibration_keeps_plain_floor(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.configure(center=False)
    snapshot = calibrate(pipeline).snapshot
    assert snapshot.center is None
    assert WORDLLAMA.plain is not None
    assert snapshot.thresholds["t_merge"] >= WORDLLAMA.plain.t_suggest


def test_snapshot_without_options_is_renewed(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    update(pipeline)
    pipeline.write("UPDATE {s}.similarity_calibrations SET options = '{}', report = '{}'")
    done, graph = update(pipeline)
    assert (done.renewed, graph.rebuilt) == (True, True)


def test_single_phases_use_newest_snapshot(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(["embedding_matrix", "similarity_graph"])
    assert list_versions(pipeline) == [1]
    pipeline.configure(t_merge=0.9)
    with pipeline.open() as run:
        run_phases(run, ["similarity_graph"])
        assert WORDLLAMA.plain is not None
        assert run.thresholds["t_merge"] == WORDLLAMA.plain.t_suggest
    assert list_versions(pipeline) == [1]
    with pipeline.open() as run:
        run_phases(run, ["threshold_calibration"])
        assert run.thresholds["t_merge"] == 0.9


def test_empty_project_is_calibrated(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    done, graph = update(pipeline)
    assert (done.snapshot.memories, graph.nodes, graph.rebuilt) == (0, 0, False)


# --- boilerplate -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_boilerplate_does_not_make_neighbours(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(boilerplate_notes())
    pipeline.configure(center=False, t_merge=0.9, t_suggest=0.8, t_pattern=0.6)
    with monkeypatch.context() as patch:
        patch.setattr(calibration_fit, "MIN_CONTENTS", 1000)
        update(pipeline)
        assert len(edges(pipeline)) > 20
    pipeline.configure(center=False, t_merge=0.9, t_suggest=0.8, t_pattern=0.61)
    done, graph = update(pipeline)
    assert len(done.snapshot.boilerplate) == 2
    assert (done.stripped, done.embedded, graph.rebuilt) == (12, 12, True)
    assert len(edges(pipeline)) == 0


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_search_vector_keeps_boilerplate(pipeline: Pipeline) -> None:
    pipeline.add(boilerplate_notes())
    calibrate(pipeline)
    rows = pipeline.rows(
        "SELECT m.embedding::text AS whole, g.embedding::text AS rest FROM {s}.task_memories m "
        "JOIN {s}.grouping_embeddings g ON g.memory_id = m.id"
    )
    assert len(rows) == 12
    assert all(row.whole != row.rest for row in rows)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_center_is_mean_of_grouping_vectors(pipeline: Pipeline) -> None:
    pipeline.add([*boilerplate_notes(), *unrelated_notes()])
    snapshot = calibrate(pipeline).snapshot
    rows = pipeline.rows(
        "SELECT coalesce(g.embedding, m.embedding)::float4[] AS x FROM {s}.task_memories m "
        "LEFT JOIN {s}.grouping_embeddings g ON g.memory_id = m.id"
    )
    assert snapshot.center is not None
    np.testing.assert_allclose(snapshot.center, np.array([row.x for row in rows]).mean(axis=0), atol=1e-6)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_next_run_strips_new_boilerplate_memories(pipeline: Pipeline) -> None:
    pipeline.add([*boilerplate_notes(11), *unrelated_notes()])
    assert update(pipeline)[0].stripped == 11
    pipeline.add(boilerplate_notes(12, first=11))
    done, graph = update(pipeline)
    assert (done.renewed, done.stripped, done.embedded, graph.compared) == (False, 1, 1, 1)
    assert pipeline.value("SELECT count(*) FROM {s}.grouping_embeddings") == 12
    again, graph = update(pipeline)
    assert (again.stripped, again.embedded, graph.compared) == (0, 0, 0)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_equal_stripped_texts_are_embedded_once(pipeline: Pipeline) -> None:
    pipeline.add([*boilerplate_notes(11), *unrelated_notes()])
    update(pipeline)
    rest = LESSONS[0].split(",")[0]
    pipeline.add([note("twin", f"{BOILERPLATE} {rest}."), note("other", f"{rest}. {BOILERPLATE.split('.')[0]}.")])
    done, _ = update(pipeline)
    assert (done.stripped, done.embedded) == (2, 0)
    assert {("p0", "twin"), ("other", "p0")} <= edges(pipeline).keys()


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_boilerplate_graph_matches_rebuild(pipeline: Pipeline) -> None:
    pipeline.add([*boilerplate_notes(10), *corpus()])
    calibrate(pipeline)
    for first in (10, 11):
        update(pipeline, renew=False)
        pipeline.add(boilerplate_notes(first + 1, first=first))
    update(pipeline, renew=False)
    pairs = "SELECT * FROM {s}.memory_pairs ORDER BY a, b"
    grown = pipeline.rows(pairs), dump_tables(pipeline, tables=["grouping_embeddings"])
    pipeline.write("DELETE FROM {s}.memory_neighbors")
    pipeline.write("DELETE FROM {s}.grouping_embeddings")
    pipeline.write("DELETE FROM {s}.compared_memories")
    update(pipeline, renew=False)
    assert (pipeline.rows(pairs), dump_tables(pipeline, tables=["grouping_embeddings"])) == grown


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_sources_stay_compared_without_boilerplate(pipeline: Pipeline) -> None:
    again = [{**row, "id": f"{row['id']}-again", "content": f"Noted: {row['content']}"} for row in boilerplate_notes()]
    pipeline.add([*boilerplate_notes(), *again])
    pipeline.configure(t_merge=0.7)
    assert pipeline.run().merging.created == 12
    own = "SELECT count(*) FROM {s}.grouping_embeddings g JOIN {s}.task_memories m ON m.id = g.memory_id"
    assert pipeline.value("SELECT count(*) FROM {s}.grouping_embeddings") == pipeline.value(own) == 24
    second, graph = update(pipeline)
    assert (second.renewed, second.embedded, graph.nodes, graph.compared) == (False, 0, 24, 0)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_boilerplate_of_older_snapshot_is_removed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add([*boilerplate_notes(), *unrelated_notes()])
    update(pipeline)
    monkeypatch.setattr(calibration_fit, "find_boilerplate", lambda _: ())
    calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=True)
    assert pipeline.value("SELECT count(*) FROM {s}.grouping_embeddings") == 0
    with pipeline.open() as run, run.engine.connect() as connection:
        nodes, _ = load_graph_nodes(connection, run)
        assert len(to_uuids(nodes.ids)) == 18


# --- manual calibration ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_calibration_preview_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    update(pipeline)
    before = dump_tables(pipeline)
    proposal = calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=False)
    assert dump_tables(pipeline) == before
    assert proposal.current is not None
    assert (proposal.applied, proposal.proposed.version) == (False, 2)
    assert proposal.proposed.thresholds == proposal.current.thresholds


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_applied_calibration_rebuilds_graph(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    update(pipeline)
    before = edges(pipeline)
    proposal = calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=True)
    assert (proposal.applied, list_versions(pipeline), edges(pipeline)) == (True, [1, 2], {})
    done, graph = update(pipeline)
    assert (done.renewed, graph.rebuilt, graph.calibration) == (False, True, 2)
    assert edges(pipeline) == before


def test_applied_calibration_marks_project_changed(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    pipeline.run()
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None
    calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=True)
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is None


def test_calibration_of_busy_project_is_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.0)
    pipeline.add(unrelated_notes())
    with pipeline.open():
        calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=False)
        with pytest.raises(ProjectBusyError, match=SLUG):
            calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=True)
    assert list_versions(pipeline) == []
    with pytest.raises(NotFoundError, match="nowhere"):
        calibrate_project(pipeline.engine, "nowhere", settings=pipeline.settings, apply=True)


# --- decisions -------------------------------------------------------------------------------------------------------


def decide(pipeline: Pipeline, status: str, names: Sequence[str]) -> None:
    """Store a decided suggestion on memories."""
    ids = {row.external_id: row.id for row in pipeline.rows("SELECT external_id, id FROM {s}.task_memories")}
    pipeline.write(
        "INSERT INTO {s}.consolidation_suggestions (project_id, group_id, status, suggested_content, "
        "original_memory_ids, original_versions, fingerprint) VALUES (:p, 'g', :status, 'x', :ids, :versions, :f)",
        p=pipeline.project().id,
        status=status,
        ids=[ids[name] for name in names],
        versions=[1] * len(names),
        f=str(uuid4()),
    )


@pytest.mark.breaks_rules  # the approval has no merged memory
def test_report_measures_errors_on_decisions(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    decide(pipeline, "validated", ["lesson-0-0", "lesson-0-1", "lesson-0-2"])
    decide(pipeline, "rejected", ["near-0-0", "near-0-1"])
    decide(pipeline, "rejected", ["lesson-1-0", "lesson-1-1"])
    decide(pipeline, "pending", ["near-1-0", "near-1-1"])
    # Nobody knows which of these three differ.
    decide(pipeline, "rejected", ["alone-0", "alone-1", "alone-2"])
    decided = calibrate(pipeline).snapshot.report["decided"]
    assert decided["pairs"] == 5
    assert (decided["found"]["share"], decided["found"]["of"]) == (1.0, 3)
    assert (decided["wrong"]["share"], decided["wrong"]["of"]) == (0.5, 2)
    assert decided["kinds"].keys() == {"suggestion"}


@pytest.mark.breaks_rules  # the approval has no merged memory
def test_report_measures_few_pairs_of_large_group(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add([note(f"n{at}", f"{LESSONS[0]} Detail {word}.") for at, word in enumerate(VOCABULARY)])
    decide(pipeline, "validated", [f"n{at}" for at in range(len(VOCABULARY))])
    decided = calibrate(pipeline).snapshot.report["decided"]
    assert (decided["pairs"], decided["found"]["of"], decided["wrong"]["of"]) == (15, 15, 0)
    monkeypatch.setattr(calibration_fit, "_MAX_DECIDED_PAIRS", 4)
    proposal = calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=False)
    assert proposal.proposed.report["decided"]["pairs"] == 4


def test_calibration_measures_errors_on_product_pairs(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    proposal = calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=False)
    assert proposal.product_errors == measure_errors(load_product_pairs(), word_similarity)
    assert proposal.product_errors["wrong"]["share"] < 0.1
    assert proposal.product_errors["found"]["share"] > 0.4


def test_changed_rules_renew_calibration_and_graph(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(corpus())
    update(pipeline)
    monkeypatch.setattr(calibration_fit, "RULES_VERSION", calibration_fit.RULES_VERSION + 1)
    done, graph = update(pipeline)
    assert (done.renewed, done.snapshot.report["trigger"], graph.rebuilt) == (True, "options", True)
