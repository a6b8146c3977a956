"""Another embedding model for a project: staged beside the one in use, switched, switched back, dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from consolidation_pipeline.embed import LOCAL_MODEL
from consolidation_pipeline.errors import BudgetExhaustedError, ConflictError, UsageError
from consolidation_pipeline.service.admin.embedding_change import (
    EmbeddingStatus,
    Staging,
    Switch,
    drop_staged,
    read_status,
    stage_embeddings,
    switch_model,
)
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.store.search import index_upkeep
from consolidation_pipeline.store.search.vector_indexes import list_complete_indexes
from consolidation_pipeline_tests.openai_server import OpenAIServer, Reply, Request, json_response
from consolidation_pipeline_tests.service.corpus import FIFTH, LESSONS, UNRELATED, corpus, note
from consolidation_pipeline_tests.service.pipeline_runner import GRAPH, SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_tables

MODEL = "openai/text-embedding-3-small"
VECTORS = "SELECT embedding_model, count(*) FROM {s}.task_memories WHERE embedding IS NOT NULL GROUP BY 1 ORDER BY 1"
JOB = (*GRAPH, "clusters")


@pytest.fixture
def live(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Consolidated project; the model that it changes to is that of the provider."""
    del provider
    pipeline.consolidate(corpus())
    return pipeline


def stage(pipeline: Pipeline, model: str = MODEL) -> Staging:
    return stage_embeddings(pipeline.engine, SLUG, model, settings=pipeline.settings)


def switch(pipeline: Pipeline) -> Switch:
    return switch_model(pipeline.engine, SLUG, settings=pipeline.settings)


def drop(pipeline: Pipeline) -> int:
    return drop_staged(pipeline.engine, SLUG, settings=pipeline.settings)


def status(pipeline: Pipeline) -> EmbeddingStatus:
    return read_status(pipeline.engine, SLUG, settings=pipeline.settings)


def reembed(pipeline: Pipeline) -> None:
    with pipeline.open(planned=JOB, job="reembed") as run:
        from consolidation_pipeline.service.shadow.phase_runner import run_phases

        run_phases(run, JOB)


def find(pipeline: Pipeline, text: str, **query: Any) -> list[tuple[Any, float | None]]:
    """Search for a text; return id and similarity of each hit."""
    found = search(pipeline.engine, SLUG, SearchQuery(text, **query), settings=pipeline.settings, count_use=False)
    return [(hit.id, hit.similarity) for hit in found.results]


def test_staging_leaves_rows_and_searches_as_they_are(live: Pipeline) -> None:
    before = dump_tables(live, tables=["task_memories", "consolidated_memories", "playbook_entries"])
    found = find(live, LESSONS[0])
    done = stage(live)
    assert done.computed > 0
    assert [(one.model, one.missing) for one in done.status.models] == [(LOCAL_MODEL, 0), (MODEL, 0)]
    assert done.status.current == LOCAL_MODEL
    assert dump_tables(live, tables=["task_memories", "consolidated_memories", "playbook_entries"]) == before
    assert find(live, LESSONS[0]) == found
    assert stage(live).computed == 0


def test_planner_knows_the_staged_rows_after_staging(live: Pipeline) -> None:
    """Without statistics, a switch compares each row with all staged ones."""
    stage(live)
    known = live.rows("SELECT attname FROM pg_stats WHERE schemaname = '{s}' AND tablename = 'staged_embeddings'")
    assert {name for (name,) in known} >= {"embedding_model", "memory_id", "content_hash"}


def test_switch_and_switch_back_change_no_row(live: Pipeline) -> None:
    stage(live)
    before = dump_tables(live, tables=["task_memories", "consolidated_memories", "staged_embeddings"])
    found = find(live, LESSONS[0])
    done = switch(live)
    assert (done.before, done.after, done.computed) == (LOCAL_MODEL, MODEL, 0)
    other = find(live, LESSONS[0])
    assert {id_ for id_, similarity in other if similarity is not None}
    assert other != found
    back = switch(live)
    assert (back.before, back.after, back.computed) == (MODEL, LOCAL_MODEL, 0)
    assert find(live, LESSONS[0]) == found
    assert dump_tables(live, tables=["task_memories", "consolidated_memories", "staged_embeddings"]) == before


def test_next_run_moves_vectors_and_derives_thresholds(live: Pipeline, provider: OpenAIServer) -> None:
    stage(live)
    switch(live)
    found = find(live, UNRELATED[0])
    asked = len(provider.requests)
    with pytest.raises(ConflictError, match="as a staged one only"):
        drop(live)
    reembed(live)
    assert [row.embedding_model for row in live.rows(VECTORS)] == [MODEL]
    assert len(provider.requests) == asked
    calibrated = "SELECT DISTINCT embedding_model FROM {s}.similarity_calibrations ORDER BY 1"
    assert [row[0] for row in live.rows(calibrated)] == sorted([LOCAL_MODEL, MODEL])
    assert find(live, UNRELATED[0]) == found
    switch(live)
    back = find(live, UNRELATED[0])
    assert all(similarity is not None for _, similarity in back[:1])
    reembed(live)
    assert [row.embedding_model for row in live.rows(VECTORS)] == [LOCAL_MODEL]
    assert find(live, UNRELATED[0]) == back
    assert drop(live) > 0
    assert [one.model for one in status(live).models] == [LOCAL_MODEL]
    assert find(live, UNRELATED[0]) == back
    assert find_broken_rules(live) == []


def test_memories_since_are_embedded_before_the_switch(live: Pipeline) -> None:
    stage(live)
    live.add([note("late", FIFTH)])
    edit_memory(live.engine, note_id("alone-0"), {"content": "The wiki moved to another host."}, changed_by="agent")
    assert status(live).models[1].missing == 2
    assert switch(live).computed == 2
    for name, text in (("late", FIFTH), ("alone-0", "The wiki moved to another host.")):
        [(id_, similarity), *_] = find(live, text)
        assert (id_, round(similarity or 0.0, 4)) == (note_id(name), 1.0)


def test_budget_ends_staging_which_goes_on_where_it_ended(live: Pipeline, provider: OpenAIServer) -> None:
    live.configure(budget_usd_per_day=0.0)
    with pytest.raises(BudgetExhaustedError):
        stage(live)
    live.configure()
    texts = [len(request.body["input"]) for request in provider.requests]
    done = stage(live)
    assert sum(texts) + done.computed + done.reused >= done.status.models[1].staged
    assert done.status.models[1].missing == 0


def test_interrupted_staging_pays_for_no_text_twice(
    live: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consolidation_pipeline.service.admin.embedding_change.BATCH", 5)
    behaviour = provider.behaviour
    provider.behaviour = _fail_after(behaviour, 3)
    with pytest.raises(Exception, match="no longer"):
        stage(live)
    first = {text for request in provider.requests[:3] for text in request.body["input"]}
    seen = len(provider.requests)
    provider.behaviour = behaviour
    stage(live)
    assert first
    assert first.isdisjoint(text for request in provider.requests[seen:] for text in request.body["input"])


def _fail_after(behaviour: Any, requests: int) -> Any:
    answered = 0

    def answer(request: Request) -> Reply | None:
        nonlocal answered
        answered += 1
        if answered > requests:
            return Reply(json_response({"error": {"message": "the key is valid no longer"}}).body, 401)
        reply: Reply | None = behaviour(request)
        return reply

    return answer


def test_thresholds_of_the_old_model_refuse_the_switch(live: Pipeline) -> None:
    live.configure(t_merge=0.97)
    stage(live)
    with pytest.raises(UsageError, match=r"t_merge=0.97 was set for the model in use: .* t_merge="):
        switch(live)
    assert status(live).current == LOCAL_MODEL


def test_wrong_calls_name_what_would_be_right(live: Pipeline) -> None:
    with pytest.raises(UsageError, match=r"has the embedding model .* already"):
        stage(live, "local")
    with pytest.raises(UsageError, match="no other model of notes is staged"):
        switch(live)
    stage(live)
    with pytest.raises(ConflictError, match="has staged vectors of openai/text-embedding-3-small"):
        stage(live, "openai/text-embedding-3-large")


def test_erased_memory_leaves_no_staged_vector(live: Pipeline) -> None:
    stage(live)
    count = "SELECT count(*) FROM {s}.staged_embeddings WHERE memory_id = :id"
    assert live.value(count, id=note_id("alone-0")) == 2
    erase_memories(live.engine, [note_id("alone-0")], changed_by="tester")
    assert live.value(count, id=note_id("alone-0")) == 0


def test_search_by_staged_indexes_finds_the_same(live: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(live)
    switch(live)
    exact = find(live, UNRELATED[0], limit=3)
    assert exact[0] == (note_id("alone-0"), pytest.approx(1.0, abs=1e-5))
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 5)
    stage(live, LOCAL_MODEL)
    assert len(list_staged_indexes(live)) == 2
    assert find(live, UNRELATED[0], limit=3) == exact
    switch(live)
    drop(live)
    assert list_staged_indexes(live) == []


def list_staged_indexes(pipeline: Pipeline) -> list[str]:
    with pipeline.engine.connect() as connection:
        return sorted(name for name in list_complete_indexes(connection) if name.startswith("staged_task_memories_"))


@contextmanager
def searching(pipeline: Pipeline, text: str, wanted: Any) -> Iterator[list[str]]:
    """Search all the time in two threads; yield what went wrong so far."""
    wrong: list[str] = []
    stop = threading.Event()
    done = threading.Semaphore(0)

    def run() -> None:
        while not stop.is_set():
            try:
                hits = dict(find(pipeline, text))
                if hits.get(wanted) is None or hits[wanted] < 0.99:
                    wrong.append(f"{text!r} found {hits}")
            except Exception as error:
                wrong.append(repr(error))
            done.release()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        for _ in range(4):
            done.acquire()
        stop.set()
        for thread in threads:
            thread.join()


def test_no_search_fails_or_misses_the_memory_meanwhile(live: Pipeline) -> None:
    text = live.value("SELECT execution_summary FROM {s}.task_memories WHERE id = :id", id=note_id("alone-0"))
    with searching(live, text, note_id("alone-0")) as wrong:
        stage(live)
        switch(live)
        switch(live)
        switch(live)
        reembed(live)
        switch(live)
        reembed(live)
        drop(live)
    assert wrong == []
