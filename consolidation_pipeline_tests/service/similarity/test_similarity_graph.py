"""Similarity graph: exact, complete, and the same whether incremental or rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import content_hash, normalized_hash
from consolidation_pipeline.core.similarity.similarity_join import SLACK
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import TooManyPairsError
from consolidation_pipeline.service.knowledge.merged_memories import merge_clusters
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity import calibration_fit
from consolidation_pipeline.service.similarity.calibration import calibrate_thresholds
from consolidation_pipeline.service.similarity.clusters import form_clusters
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.graph_nodes import (
    center_vectors,
    load_graph_nodes,
    load_grouping_vectors,
    load_plain_vectors,
)
from consolidation_pipeline.service.similarity.similarity_graph import GraphUpdate, update_similarity_graph
from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Change, update_rows
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_tables

# Content of a node: its type, its text's hash and its vector. Repeats share it.
Content = tuple[str, bytes, bytes]


def update(pipeline: Pipeline, *, renew: bool = True) -> GraphUpdate:
    with pipeline.open() as run:
        embed_memories(run)
        calibrate_thresholds(run, renew=renew)
        return update_similarity_graph(run)


def load_compared(run: ProjectRun) -> tuple[list[UUID], list[Content], npt.NDArray[np.float64]]:
    """Return ids, contents and compared vectors of all nodes."""
    with run.engine.connect() as connection:
        nodes, vectors = load_graph_nodes(connection, run)
    assert run.calibration is not None
    x = center_vectors(vectors, run.calibration)
    ids = to_uuids(nodes.ids)
    parts = zip(nodes.memory_type.tolist(), nodes.repeats.tolist(), vectors, strict=True)
    contents = [(memory_type, repeats, vector.tobytes()) for memory_type, repeats, vector in parts]
    return ids, contents, x.astype(np.float64)


def load_verdicts(pipeline: Pipeline, run: ProjectRun) -> dict[frozenset[Content], tuple[float, int]]:
    """Return similarity and verdict of the stored pairs by contents; every end must be a node."""
    ids, contents, _ = load_compared(run)
    content_of = dict(zip(ids, contents, strict=True))
    rows = pipeline.rows(
        "SELECT a, b, similarity, verdict FROM {s}.memory_pairs WHERE embedding_model = :m", m=run.embedder.name
    )
    found = {frozenset((content_of[a], content_of[b])): (similarity, verdict) for a, b, similarity, verdict in rows}
    assert len(found) == len(rows)
    return found


def edges(pipeline: Pipeline, run: ProjectRun) -> dict[frozenset[Content], float]:
    """Return the similarity of the stored pairs by contents."""
    return {pair: similarity for pair, (similarity, _) in load_verdicts(pipeline, run).items()}


def brute_force(run: ProjectRun, threshold: float) -> dict[frozenset[Content], float]:
    """Return every pair of distinct contents whose float64 cosine reaches the threshold."""
    _, contents, x = load_compared(run)
    items = list(dict(zip(contents, x, strict=True)).items())
    found = {}
    for at, (one, a) in enumerate(items):
        for other, b in items[at + 1 :]:
            lengths = np.linalg.norm(a) * np.linalg.norm(b)
            similarity = float(a @ b / lengths) if lengths else 0.0
            if similarity >= threshold - SLACK:
                found[frozenset((one, other))] = similarity
    return found


def test_graph_holds_every_pair_with_exact_cosine(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        embed_memories(run)
        done = update_similarity_graph(run)
        expected = brute_force(run, run.thresholds["t_pattern"])
        found = edges(pipeline, run)
    assert len(expected) > 30
    assert found.keys() == expected.keys()
    assert done.pairs_added == len(expected)
    assert max(abs(found[pair] - expected[pair]) for pair in expected) < 1e-6


def test_large_project_is_compared_around_its_mean(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 20)
    pipeline.add(corpus())
    with pipeline.open() as run:
        embed_memories(run)
        update_similarity_graph(run)
        with run.engine.connect() as connection:
            nodes, vectors = load_graph_nodes(connection, run)
        snapshot = run.calibration
        expected = brute_force(run, run.thresholds["t_pattern"])
        found = edges(pipeline, run)
    assert snapshot is not None
    assert snapshot.center is not None
    once = np.unique(nodes.repeats, return_index=True)[1]
    assert len(once) < len(nodes)
    np.testing.assert_allclose(snapshot.center, vectors[once].mean(axis=0), atol=1e-6)
    assert found.keys() == expected.keys()
    pipeline.configure(center=False)
    assert update(pipeline).rebuilt
    assert pipeline.value("SELECT center FROM {s}.similarity_calibrations ORDER BY version DESC LIMIT 1") is None


def test_exact_repeats_are_compared_once(pipeline: Pipeline) -> None:
    texts = ["amber birch", "cedar delta", "ember flint"]
    pipeline.add([note(f"{at}-{text}", text) for text in texts for at in range(5)])
    assert update(pipeline).compared == 3
    pipeline.add([note(f"again-{text}", text) for text in texts])
    done = update(pipeline, renew=False)
    assert (done.nodes, done.compared, done.pairs_added) == (18, 0, 0)


def test_repeats_with_different_vectors_are_compared(pipeline: Pipeline) -> None:
    wording = "Run the database migrations before deploying the web service."
    pipeline.add([note("a", wording), note("b", wording.upper()), note("c", wording.replace(" ", "  "))])
    assert update(pipeline).compared == 3


def test_repeats_of_different_types_are_compared(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "amber birch"), note("b", "amber birch", memory_type="decision")])
    done = update(pipeline)
    assert (done.compared, done.pairs_added) == (2, 1)


def test_unchanged_project_compares_nothing(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    first = update(pipeline)
    second = update(pipeline)
    assert (second.compared, second.pairs_added, second.rebuilt) == (0, 0, False)
    assert second.calibration == first.calibration == 1


def test_changed_threshold_rebuilds_graph(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    low = update(pipeline).pairs_added
    pipeline.configure(t_pattern=0.97, t_suggest=0.98, t_merge=0.98)
    with pipeline.open() as run:
        calibrate_thresholds(run)
        done = update_similarity_graph(run)
        assert edges(pipeline, run).keys() == brute_force(run, 0.97).keys()
    assert done.rebuilt
    assert 0 < done.pairs_added < low


def test_models_keep_separate_graphs(pipeline: Pipeline) -> None:
    pipeline.add([note(str(at), f"{word} {word} amber") for at, word in enumerate(VOCABULARY)])
    pipeline.configure(t_pattern=0.5, t_suggest=0.9, t_merge=0.95)
    for name in ("test/one", "test/two", "test/one"):
        with pipeline.open(embedder=WordEmbedder(name)) as run:
            embed_memories(run)
            update_similarity_graph(run)
            assert edges(pipeline, run).keys() == brute_force(run, 0.5).keys()


def test_graph_nodes_are_sources_not_merged_memories(pipeline: Pipeline) -> None:
    first = pipeline.consolidate(corpus())
    assert first.merging.created
    again = update(pipeline)
    assert (again.nodes, again.compared) == (first.graph.nodes, 0) == (len(corpus()), 0)


def test_too_many_pairs_fail_without_writing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ["memory_neighbors", "compared_memories", "task_memories"]
    pipeline.add(corpus())
    update(pipeline)
    pipeline.add([note(f"again-{at}", f"Once again: {lesson}") for at, lesson in enumerate(LESSONS)])
    with pipeline.open() as run:
        embed_memories(run)
        calibrate_thresholds(run, renew=False)
        before = dump_tables(pipeline, tables=tables)
        monkeypatch.setattr(similarity_graph, "MAX_PAIRS", 10)
        with pytest.raises(TooManyPairsError, match=r"more than 10 pairs .* set a higher t_pattern"):
            update_similarity_graph(run)
        assert dump_tables(pipeline, tables=tables) == before
        monkeypatch.undo()
        assert update_similarity_graph(run).compared == len(LESSONS)


def test_cached_vectors_equal_stored_vectors(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 20)
    pipeline.add(corpus())
    with pipeline.open(embedder=WordEmbedder()) as run:
        embed_memories(run)
        update_similarity_graph(run)
        assert run.compared is not None
        # Meanwhile one memory is added, one archived and one edited.
        pipeline.add([note("late", f"Once again: {LESSONS[0]}")])
        archive(pipeline, run, 0, back=False)
        edit(pipeline, run, 1, "cedar delta amber")
        embed_memories(run)
        with run.engine.connect() as connection:
            nodes = similarity_graph.load_nodes(connection, run.project.id, run.embedder.name, scope=run.options.scope)
            has_vector, x = load_grouping_vectors(connection, run, nodes)
            plain = load_plain_vectors(connection, run, nodes, has_vector)
            assert run.compared is None
            again, loaded = load_grouping_vectors(connection, run, nodes)
            loaded_plain = load_plain_vectors(connection, run, nodes, has_vector)
    assert len(nodes) == len(corpus())
    assert has_vector.all()
    assert again.all()
    assert x.tobytes() == loaded.tobytes()
    assert plain.tobytes() == loaded_plain.tobytes()


def test_plain_vectors_leave_grouping_vectors_as_they_are(pipeline: Pipeline) -> None:
    """Without a centre, the vectors that are grouped are those of the run."""
    pipeline.add([*corpus(), note("again", LESSONS[0])])
    with pipeline.open(embedder=WordEmbedder()) as run:
        embed_memories(run)
        update_similarity_graph(run)
        assert run.calibration is not None
        assert run.calibration.center is None
        with run.engine.connect() as connection:
            nodes = similarity_graph.load_nodes(connection, run.project.id, run.embedder.name, scope=run.options.scope)
            _, x = load_grouping_vectors(connection, run, nodes)
            before = x.copy()
            load_plain_vectors(connection, run, nodes, np.zeros(len(nodes), dtype=np.bool_))
    assert np.array_equal(x, before)


def test_node_whose_vector_goes_meanwhile_is_left_out(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(corpus())
    with pipeline.open(embedder=WordEmbedder()) as run:
        embed_memories(run)
        update_similarity_graph(run)
        pipeline.add([note("late", "cedar delta amber")])
        embed_memories(run)
        load = similarity_graph.load_nodes_with_vectors

        def load_without_vectors(*arguments: Any, **how: Any) -> Any:
            pipeline.write(
                "UPDATE {s}.task_memories SET embedding = NULL, embedding_model = NULL, embedding_dim = NULL"
            )
            return load(*arguments, **how)

        monkeypatch.setattr(similarity_graph, "load_nodes_with_vectors", load_without_vectors)
        with run.engine.connect() as connection:
            nodes = similarity_graph.load_nodes(connection, run.project.id, run.embedder.name, scope=run.options.scope)
            has_vector, x = load_grouping_vectors(connection, run, nodes)
    assert len(nodes) == len(corpus()) + 1
    assert has_vector.sum() == len(x) == len(corpus())


# --- incremental and rebuilt graph -----------------------------------------------------------------------------------

# Automatic tiers need shared words and are stricter for short texts; given ones are used as they are.
AUTOMATIC: dict[str, Any] = {"t_pattern": 0.5}
OPTIONS: dict[str, Any] = {"t_merge": 0.9, "t_suggest": 0.8, "t_pattern": 0.6}
FIRST = [f"{word} {other}" for word, other in zip(VOCABULARY, VOCABULARY[3:], strict=False)]
# The profile of the local model needs shared words; that of unknown models does not.
MODELS = (LOCAL_MODEL, "test/words")
TEXTS = st.lists(st.sampled_from(VOCABULARY[:6]), min_size=1, max_size=4).map(" ".join)
# The model ignores numbers: such texts differ only in a literal.
NUMBERED = st.tuples(TEXTS, st.sampled_from(["", "", " 30", " 60"])).map("".join)
# Repeats by normalised text; upper case gives another vector.
SPELLED = st.tuples(NUMBERED, st.sampled_from([str.lower, str.upper, str.title])).map(lambda pair: pair[1](pair[0]))
ADD = st.lists(SPELLED, min_size=1, max_size=6).map(lambda texts: ("add", texts))
CHOOSE = st.tuples(st.sampled_from(["archive", "restore"]), st.integers(0, 30))
EDIT = st.tuples(st.just("edit"), st.tuples(st.integers(0, 30), SPELLED))
ALONE = st.sampled_from([("update", None), ("merge", None), ("model", None)])
STEPS = st.lists(st.one_of(ADD, CHOOSE, EDIT, ALONE), min_size=1, max_size=8)


def choose(pipeline: Pipeline, run: ProjectRun, which: int, condition: str) -> tuple[UUID, int] | None:
    """Return id and version of one raw memory; None without any."""
    query = f"SELECT id, version FROM {{s}}.task_memories WHERE project_id = :p AND {condition} ORDER BY external_id"
    rows = pipeline.rows(query, p=run.project.id)
    return tuple(rows[which % len(rows)]) if rows else None


def write(run: ProjectRun, chosen: tuple[UUID, int], values: dict[str, Any], operation: str) -> None:
    """Change a raw memory through the ledger."""
    with run.engine.begin() as connection:
        change = Change(chosen[0], uuid4(), values, chosen[1])
        update_rows(connection, run.author, task_memories, [change], operation=operation)


def archive(pipeline: Pipeline, run: ProjectRun, which: int, *, back: bool) -> None:
    """Archive an active raw memory, or restore an archived one."""
    condition = "archived_at IS NOT NULL" if back else "archived_at IS NULL AND consolidated_into_id IS NULL"
    values = {"archived_at": None if back else datetime.now(UTC), "archive_reason": None if back else "old"}
    if chosen := choose(pipeline, run, which, condition):
        write(run, chosen, values, "restore" if back else "archive")


def edit(pipeline: Pipeline, run: ProjectRun, which: int, body: str) -> None:
    """Replace the text of an active raw memory and drop its vector."""
    values = {
        "execution_summary": body,
        "content_hash": content_hash(body),
        "normalized_hash": normalized_hash(body),
        "embedding": None,
        "embedding_model": None,
        "embedding_dim": None,
    }
    if chosen := choose(pipeline, run, which, "archived_at IS NULL AND consolidated_into_id IS NULL"):
        write(run, chosen, values, "edit")


def change_model(run: ProjectRun) -> None:
    """Switch the run to the other model."""
    run.embedder = WordEmbedder(MODELS[1 - MODELS.index(run.embedder.name)])
    run.__dict__.pop("calibration", None)  # loaded again on demand


def apply_step(
    pipeline: Pipeline,
    run: ProjectRun,
    step: tuple[str, Any],
    names: Iterator[int],
    *,
    users: Sequence[str | None] = (None,),
) -> None:
    """Apply one step to a project; updating and merging bring the graph up to date. ``users``: add in turn."""
    kind, argument = step
    if kind == "add":
        numbered = [(next(names), text) for text in argument]
        pipeline.add([note(f"n{number}", text, user_id=users[number % len(users)]) for number, text in numbered])
    elif kind in ("archive", "restore"):
        archive(pipeline, run, argument, back=kind == "restore")
    elif kind == "edit":
        edit(pipeline, run, *argument)
    elif kind == "model":
        change_model(run)
    else:
        embed_memories(run)
        calibrate_thresholds(run, renew=False)
        update_similarity_graph(run)
        if kind == "merge":
            form_clusters(run)
            merge_clusters(run)


def forget_graph(pipeline: Pipeline, run: ProjectRun) -> None:
    pipeline.write("DELETE FROM {s}.memory_neighbors WHERE project_id = :p", p=run.project.id)
    pipeline.write("DELETE FROM {s}.compared_memories WHERE project_id = :p", p=run.project.id)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(12))
@given(options=st.sampled_from([OPTIONS, AUTOMATIC]), steps=STEPS)
def test_incremental_graph_matches_rebuild(
    shared: Pipeline, options: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    shared.clear()
    names = count()
    shared.configure_new(**options)
    shared.add([note(f"n{next(names)}", text) for text in FIRST])
    with pytest.MonkeyPatch.context() as patch, shared.open(embedder=WordEmbedder(LOCAL_MODEL)) as run:
        patch.setattr(calibration_fit, "MIN_CONTENTS", 5)
        for step in [("update", None), *steps, ("update", None)]:
            apply_step(shared, run, step, names)
        grown = load_verdicts(shared, run)
        forget_graph(shared, run)
        update_similarity_graph(run)
        rebuilt = load_verdicts(shared, run)
        expected = brute_force(run, run.thresholds["t_pattern"])
    assert grown == rebuilt
    assert rebuilt.keys() == expected.keys()
