"""Scopes that have not changed are neither loaded nor grouped again, and their groups equal those of a rebuild."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.service.review.suggestion_decisions import reject_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity import calibration_fit, recall_gate
from consolidation_pipeline.service.similarity.changed_scopes import find_changed_scopes
from consolidation_pipeline.service.similarity.clusters import ClusterSummary, form_clusters
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.merge_groups import load_pair_rules
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.shadow.shadow_helpers import add_tests
from consolidation_pipeline_tests.service.similarity.test_similarity_graph import (
    ADD,
    AUTOMATIC,
    FIRST,
    MODELS,
    OPTIONS,
    STEPS,
    apply_step,
)
from consolidation_pipeline_tests.service.table_dumps import dump_tables

USERS = ("ada", "bob", "cleo", None)
NAMED = USERS[:3]


def notes_of(user: str | None, *, more: int = 0) -> list[dict[str, Any]]:
    """Return three lessons of a user, each in two wordings, and ``more`` other notes."""
    return [
        *(note(f"{user}-{at}-0", lesson, user_id=user) for at, lesson in enumerate(LESSONS[:3])),
        *(note(f"{user}-{at}-1", f"Once again: {lesson}", user_id=user) for at, lesson in enumerate(LESSONS[:3])),
        *(note(f"{user}-more-{at}", f"Note {at} of the day.", user_id=user) for at in range(more)),
    ]


def list_changed(pipeline: Pipeline) -> int:
    """Embed new memories, and return how many scopes the next run groups."""
    with pipeline.open() as run, run.engine.connect() as connection:
        embed_memories(run)
        nodes = similarity_graph.load_nodes(connection, run.project.id, run.embedder.name, scope=run.options.scope)
        return len(find_changed_scopes(connection, run, nodes, load_pair_rules(connection, run.project.id)).changed)


def settle(pipeline: Pipeline) -> None:
    """Consolidate three users' notes: after the merges that the groups ask for, no scope has changed."""
    pipeline.add([row for user in NAMED for row in notes_of(user)])
    pipeline.run()
    assert list_changed(pipeline) == 0


def dump_groups(pipeline: Pipeline) -> list[str]:
    (rows,) = dump_tables(pipeline, tables=["memory_clusters"], without={"memory_clusters": {"job_id"}}).values()
    return rows


def form_again(pipeline: Pipeline, run: ProjectRun) -> ClusterSummary:
    """Form all groups as if none had been."""
    pipeline.write("DELETE FROM {s}.memory_clusters")
    pipeline.write("DELETE FROM {s}.grouped_scopes")
    pipeline.write("DELETE FROM {s}.recall_answers")
    return form_clusters(run)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(15))
@given(options=st.sampled_from([OPTIONS, AUTOMATIC]), steps=STEPS, last=ADD)
def test_incremental_groups_match_rebuild(
    shared: Pipeline, options: dict[str, Any], steps: list[tuple[str, Any]], last: tuple[str, Any]
) -> None:
    shared.clear()
    names = count()
    shared.configure_new(**options)
    first = [("add", FIRST), ("add", FIRST), ("merge", None)]
    with pytest.MonkeyPatch.context() as patch, shared.open(embedder=WordEmbedder(MODELS[0])) as run:
        patch.setattr(calibration_fit, "MIN_CONTENTS", 5)
        # So few that answers of the recall gate are kept beside new memories.
        patch.setattr(recall_gate, "MIN_CANDIDATES", 3)
        for step in [*first, *steps, ("merge", None), last, ("update", None)]:
            apply_step(shared, run, step, names, users=USERS)
        grown, groups = form_clusters(run), dump_groups(shared)
        rebuilt = form_again(shared, run)
        assert dump_groups(shared) == groups
    # Groups of scopes that changed are numbered among these alone.
    assert [replace(one, unit=0) for one in grown.refused] == [replace(one, unit=0) for one in rebuilt.refused]
    assert (grown.contents, grown.groups, grown.sizes) == (rebuilt.contents, rebuilt.groups, rebuilt.sizes)
    assert (grown.pairs_asked, grown.cohesion_min) == (rebuilt.pairs_asked, rebuilt.cohesion_min)


def test_unchanged_scopes_are_not_loaded(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(pipeline)
    before = dump_groups(pipeline)
    pipeline.add([note("new", "The office closes at six on Fridays.", user_id="bob")])
    loaded: list[int] = []
    load = similarity_graph.load_nodes_with_vectors

    def watch(*arguments: Any, **how: Any) -> Any:
        found = load(*arguments, **how)
        loaded.append(len(found[0]))
        return found

    monkeypatch.setattr(similarity_graph, "load_nodes_with_vectors", watch)
    done = pipeline.run()
    assert (done.graph.nodes, done.graph.compared, done.graph.rebuilt) == (19, 1, False)
    assert sum(loaded) == 7  # Bob's, to compare them
    assert done.clusters.contents == 19
    assert done.clusters.groups["merge"] == 9
    assert dump_groups(pipeline) == before


def test_rejection_changes_its_scope_alone(pipeline: Pipeline) -> None:
    pipeline.add([note(f"bob-{text}", text, user_id="bob") for text in NEAR_MISSES[0]])
    settle(pipeline)
    (suggestion,) = list_suggestions(pipeline.engine, SLUG).suggestions
    decision = reject_suggestion(pipeline.engine, suggestion.id, decided_by="anna")
    assert list_changed(pipeline) == 1
    pipeline.run()
    assert list_changed(pipeline) == 0
    pipeline.roll_back(decision.group_id)
    assert list_changed(pipeline) == 1


def test_every_change_of_a_scope_is_seen(pipeline: Pipeline) -> None:
    settle(pipeline)
    assert pipeline.value("SELECT count(*) FROM {s}.grouped_scopes") == 3
    pipeline.add([note("new", "The office closes at six on Fridays.", user_id="bob")])
    assert list_changed(pipeline) == 1
    pipeline.run()
    assert list_changed(pipeline) == 0
    pipeline.write("UPDATE {s}.task_memories SET reused_count = reused_count + 1 WHERE id = :id", id=note_id("ada-0-0"))
    assert list_changed(pipeline) == 1
    pipeline.configure(t_pattern=0.7)
    assert list_changed(pipeline) == 3


def test_what_is_compared_counts_as_changed_until_it_is_grouped(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.write("DELETE FROM {s}.compared_memories WHERE memory_id = :id", id=note_id("cleo-1-0"))
    with pipeline.open() as run:
        assert update_similarity_graph(run).compared == 1
    # The nodes are as they were, but a pair may be new.
    assert list_changed(pipeline) == 1
    with pipeline.open() as run:
        form_clusters(run)
    assert list_changed(pipeline) == 0


def test_memories_of_nobody_are_searched_from_every_scope(pipeline: Pipeline) -> None:
    pipeline.add([note("of-nobody", "The canteen opens at noon.")])
    settle(pipeline)
    pipeline.add([note("new", "The office closes at six on Fridays.", user_id="bob")])
    # The recall gate searches the memories without a user too.
    assert list_changed(pipeline) == 2


def test_forbidden_merges_are_told_by_each_run(pipeline: Pipeline) -> None:
    settle(pipeline)
    add_tests(pipeline, build_test("must_not_merge", [LESSONS[0], LESSONS[1]]))
    assert list_changed(pipeline) == 3
    pipeline.run()
    assert list_changed(pipeline) == 3
    assert pipeline.value("SELECT count(*) FROM {s}.grouped_scopes") == 0


def test_undone_merges_are_formed_as_in_a_rebuild(pipeline: Pipeline) -> None:
    settle(pipeline)
    group = pipeline.value(
        "SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'merge' ORDER BY seq LIMIT 1"
    )
    pipeline.roll_back(group, cascade=True)
    pipeline.run()
    groups = dump_groups(pipeline)
    with pipeline.open() as run:
        form_again(pipeline, run)
    assert dump_groups(pipeline) == groups
