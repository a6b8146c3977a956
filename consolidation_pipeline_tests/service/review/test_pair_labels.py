"""Pairs to label: which are asked about, what is stored, and the errors that calibration measures on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.review import pair_labels
from consolidation_pipeline.service.review.pair_labels import (
    LabelCounts,
    PairToLabel,
    count_labels,
    find_answer,
    label_pair,
    list_pairs_to_label,
    withdraw_label,
)
from consolidation_pipeline.service.similarity.calibration import calibrate_project
from consolidation_pipeline.store.projects import delete_project
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, unrelated_notes
from consolidation_pipeline_tests.service.pipeline_runner import GRAPH, MERGING, SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_tables


def list_pairs(pipeline: Pipeline, count: int = 200) -> list[PairToLabel]:
    return list_pairs_to_label(pipeline.engine, SLUG, count, settings=pipeline.settings)


def list_ids(pipeline: Pipeline, count: int = 200) -> list[frozenset[UUID]]:
    return [frozenset((pair.a, pair.b)) for pair in list_pairs(pipeline, count)]


def answer(pipeline: Pipeline, pair: PairToLabel, same: bool | None) -> None:
    label_pair(pipeline.engine, SLUG, pair.a, pair.b, same=same, labelled_by="tester")


def suggest(pipeline: Pipeline, status: str, ids: Sequence[UUID]) -> None:
    """Store a suggestion on memories."""
    pipeline.write(
        "INSERT INTO {s}.consolidation_suggestions (project_id, group_id, status, suggested_content, "
        "original_memory_ids, original_versions, fingerprint) VALUES (:p, 'g', :status, 'x', :ids, :versions, :f)",
        p=pipeline.project().id,
        status=status,
        ids=list(ids),
        versions=[1] * len(ids),
        f=str(uuid4()),
    )


@pytest.fixture
def compared(pipeline: Pipeline) -> Pipeline:
    """Project whose memories were compared, and none is merged."""
    pipeline.start_from(compare)
    return pipeline


def compare(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(GRAPH)


def test_pairs_to_merge_and_to_ask_take_turns(compared: Pipeline) -> None:
    pairs = list_pairs(compared, 6)
    assert [pair.would_merge for pair in pairs] == [True, False] * 3
    assert all(pair.a < pair.b and pair.text_a != pair.text_b for pair in pairs)
    assert {pair.explanation.verdict for pair in pairs if pair.would_merge} <= {"same", "contains"}
    assert {pair.explanation.verdict for pair in pairs if not pair.would_merge} <= {"contradicts", "unexplained"}


def test_informative_pairs_come_first(pipeline: Pipeline) -> None:
    longer = [note(f"longer-{at}", f"{LESSONS[at]} The team agreed on that in the retrospective.") for at in (1, 4)]
    pipeline.add([*corpus(), *longer])
    pipeline.run_phases(GRAPH)
    for would_merge, informative in ((True, "contains"), (False, "unexplained")):
        pairs = [pair for pair in list_pairs(pipeline) if pair.would_merge is would_merge]
        is_informative = [pair.explanation.verdict == informative for pair in pairs]
        assert is_informative == sorted(is_informative, reverse=True)
    first, second = [pair for pair in list_pairs(pipeline) if pair.explanation.verdict == "contains"][:2]
    assert first.similarity <= second.similarity


def test_pairs_are_the_same_each_time(compared: Pipeline) -> None:
    before = dump_tables(compared)
    assert list_pairs(compared, 20) == list_pairs(compared, 20)
    assert list_pairs(compared, 5) == list_pairs(compared, 20)[:5]
    assert dump_tables(compared) == before


def test_pairs_are_spread_over_topics(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(MERGING)
    merged = [pair.merged_into for pair in list_pairs(pipeline, 12) if pair.would_merge]
    assert None not in merged
    assert len(set(merged)) == len(merged) > 5


def test_labels_spread_over_sittings(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(MERGING)
    seen = []
    for _ in range(8):
        (pair,) = list_pairs(pipeline, 1)
        seen.append(pair)
        answer(pipeline, pair, same=True)
    assert [pair.would_merge for pair in seen[:4]] == [True, False, True, False]
    merged = [pair.merged_into for pair in seen if pair.would_merge]
    assert len(set(merged)) == len(merged)
    assert len({(pair.a, pair.b) for pair in seen}) == 8


@pytest.mark.parametrize("same", [True, False, None])
def test_labelled_pair_is_not_asked_again(compared: Pipeline, same: bool | None) -> None:
    pair, *others = list_pairs(compared)
    answer(compared, pair, same)
    assert set(list_ids(compared)) == {frozenset((other.a, other.b)) for other in others}


def test_repeat_of_labelled_text_is_not_asked(pipeline: Pipeline) -> None:
    rows = corpus()
    pipeline.add([row for row in rows if row["id"] in ("near-0-0", "near-0-1")])
    pipeline.run_phases(GRAPH)
    (pair,) = list_pairs(pipeline)
    answer(pipeline, pair, same=False)
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'x' WHERE id = :id", id=pair.a)
    pipeline.add([note("again", pair.text_a)])
    pipeline.run_phases(GRAPH)
    assert pipeline.value("SELECT count(*) FROM {s}.memory_pairs WHERE verdict > 0 AND a <> :a", a=pair.a) > 0
    assert list_pairs(pipeline) == []


@pytest.mark.breaks_rules  # the approval has no merged memory
@pytest.mark.parametrize("status", ["pending", "validated", "rejected"])
def test_suggested_pairs_are_not_asked(compared: Pipeline, status: str) -> None:
    pair = list_pairs(compared)[1]
    suggest(compared, status, [pair.b, pair.a])
    assert frozenset((pair.a, pair.b)) not in list_ids(compared)
    compared.write("UPDATE {s}.consolidation_suggestions SET status = 'superseded'")
    assert frozenset((pair.a, pair.b)) in list_ids(compared)


@pytest.mark.breaks_rules  # the rejected suggestion has one original
def test_sources_of_suggested_merges_are_not_asked(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(MERGING)
    pair = next(pair for pair in list_pairs(pipeline) if pair.merged_into is not None)
    near = note_id("near-0-0")
    assert pair.merged_into is not None
    compare = "SELECT count(*) FROM {s}.memory_pairs WHERE a = :a AND b = :b"
    low, high = sorted((pair.a, near))
    assert pipeline.value(compare, a=low, b=high) == 0
    pipeline.write(
        "INSERT INTO {s}.memory_neighbors AS n SELECT project_id, embedding_model, :a, ARRAY[CAST(:b AS uuid)], "
        "ARRAY[0.9], ARRAY[1] FROM {s}.memory_pairs LIMIT 1 "
        "ON CONFLICT (project_id, embedding_model, memory_id) DO UPDATE "
        "SET neighbor_ids = n.neighbor_ids || excluded.neighbor_ids, "
        "similarities = n.similarities || excluded.similarities, verdicts = n.verdicts || excluded.verdicts",
        a=low,
        b=high,
    )
    assert frozenset((low, high)) in list_ids(pipeline)
    suggest(pipeline, "rejected", [pair.merged_into, near])
    assert frozenset((low, high)) not in list_ids(pipeline)
    assert frozenset((pair.a, pair.b)) in list_ids(pipeline)


def test_pairs_of_undone_merges_are_not_asked(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(MERGING)
    pair = next(pair for pair in list_pairs(pipeline) if pair.merged_into is not None)
    pipeline.roll_back(pipeline.last_group(entity=pair.merged_into))
    sources = pair.a, pair.b
    assert not [pair for pair in list_ids(pipeline) if pair >= set(sources)]


def test_pairs_are_of_one_scope_and_type(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run_phases(GRAPH)
    pair, other = list_pairs(pipeline, 2)
    pipeline.write("UPDATE {s}.task_memories SET user_id = 'anna' WHERE id = :id", id=pair.a)
    pipeline.write("UPDATE {s}.task_memories SET memory_type = 'decision' WHERE id = :id", id=other.a)
    found = list_ids(pipeline)
    assert frozenset((pair.a, pair.b)) not in found
    assert frozenset((other.a, other.b)) not in found
    pipeline.configure(scope="project", cross_type=True)
    assert {frozenset((pair.a, pair.b)), frozenset((other.a, other.b))} <= set(list_ids(pipeline))


def test_project_without_graph_has_no_pairs(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    assert list_pairs(pipeline) == []
    with pytest.raises(NotFoundError, match="nowhere"):
        list_pairs_to_label(pipeline.engine, "nowhere", 5, settings=pipeline.settings)


@pytest.mark.parametrize("count", [0, -1, pair_labels.MAX_PAIRS + 1])
def test_wrong_number_of_pairs_is_refused(pipeline: Pipeline, count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} pairs .* from 1 to 200"):
        list_pairs(pipeline, count)


def test_labels_are_counted_and_withdrawn(compared: Pipeline) -> None:
    pairs = list_pairs(compared, 4)
    for pair, same in zip(pairs, (True, True, False, None), strict=True):
        answer(compared, pair, same)
    assert count_labels(compared.engine, SLUG) == LabelCounts(2, 1, 1)
    answers = [find_answer(compared.engine, SLUG, pair.b, pair.a) for pair in pairs]
    assert answers == ["same", "same", "different", "skip"]
    withdraw_label(compared.engine, SLUG, pairs[0].b, pairs[0].a)
    assert find_answer(compared.engine, SLUG, pairs[0].a, pairs[0].b) is None
    assert frozenset((pairs[0].a, pairs[0].b)) in list_ids(compared)
    with pytest.raises(ConflictError, match="no label to undo"):
        withdraw_label(compared.engine, SLUG, pairs[0].a, pairs[0].b)


def test_second_label_of_pair_is_refused(compared: Pipeline) -> None:
    (pair,) = list_pairs(compared, 1)
    answer(compared, pair, same=True)
    with pytest.raises(ConflictError, match="labelled by somebody else"):
        label_pair(compared.engine, SLUG, pair.b, pair.a, same=False, labelled_by="other")
    assert find_answer(compared.engine, SLUG, pair.a, pair.b) == "same"


def test_label_needs_two_memories_of_project(compared: Pipeline) -> None:
    compared.add([note("foreign", "A note of another project")], "shop")
    (pair,) = list_pairs(compared, 1)
    for other in (uuid4(), pair.a, note_id("foreign", "shop")):
        with pytest.raises(NotFoundError, match="not two raw memories of this project"):
            label_pair(compared.engine, SLUG, pair.a, other, same=True, labelled_by="tester")
    assert compared.value("SELECT count(*) FROM {s}.labelled_pairs") == 0


def test_labels_are_deleted_with_memory_and_project(compared: Pipeline) -> None:
    compared.add([note("near-0-0", "other"), note("near-0-1", "another")], "shop")
    foreign = note_id("near-0-0", "shop"), note_id("near-0-1", "shop")
    label_pair(compared.engine, "shop", *foreign, same=False, labelled_by="tester")
    for pair in list_pairs(compared, 3):
        answer(compared, pair, same=True)
    gone = compared.value("SELECT b FROM {s}.labelled_pairs WHERE project_id = :p", p=compared.project().id)
    compared.write("DELETE FROM {s}.memory_neighbors")
    compared.write("DELETE FROM {s}.task_memories WHERE id = :id", id=gone)
    assert count_labels(compared.engine, SLUG).same == 2
    with compared.engine.begin() as connection:
        delete_project(connection, compared.project())
    assert compared.value("SELECT count(*) FROM {s}.labelled_pairs") == 1


# --- calibration -----------------------------------------------------------------------------------------------------


def measure(pipeline: Pipeline) -> dict[str, Any]:
    proposal = calibrate_project(pipeline.engine, SLUG, settings=pipeline.settings, apply=False)
    decided: dict[str, Any] = proposal.proposed.report["decided"]
    return decided


def test_calibration_measures_labelled_pairs(compared: Pipeline) -> None:
    pairs = list_pairs(compared, 5)
    for pair, same in zip(pairs, (True, False, False, True, None), strict=True):
        answer(compared, pair, same)
    found = measure(compared)
    assert (found["pairs"], found["kinds"]["label"]["of"]) == (4, 4)
    # Of the two that would merge, the second differs; of the two that are asked about, one does.
    assert [found[name]["share"] for name in ("wrong", "found", "wrong_merges")] == [0.5, 0.5, 0.5]
    assert found["wrong_merges"]["of"] == 2
    assert found["wrong"]["low"] < 0.1 < 0.9 < found["wrong"]["high"]


def test_calibration_counts_labels_beside_suggestions(compared: Pipeline) -> None:
    first, second, third = list_pairs(compared, 3)
    for pair in (first, second, third):
        answer(compared, pair, same=False)
    suggest(compared, "rejected", [first.a, first.b])
    compared.write("UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'x' WHERE id = :id", id=third.a)
    found = measure(compared)
    assert found["pairs"] == 3
    assert {kind: share["of"] for kind, share in found["kinds"].items()} == {"suggestion": 1, "label": 2}


def test_labels_merge_and_separate_nothing(compared: Pipeline) -> None:
    for pair in list_pairs(compared, 10):
        answer(compared, pair, same=not pair.would_merge)
    before = compared.run_phases([*GRAPH, "clusters"])["clusters"]
    compared.write("DELETE FROM {s}.labelled_pairs")
    assert compared.run_phases([*GRAPH, "clusters"])["clusters"] == before
