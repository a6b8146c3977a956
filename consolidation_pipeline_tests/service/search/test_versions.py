"""Search over time: newer versions first, older ones told as what was, and what was known at a date."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from consolidation_pipeline.core.search.results import SearchHit, SearchResults
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.search import context
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search, search_project
from consolidation_pipeline_tests.service.knowledge.test_supersessions import dated, record
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id

OLD, NEW = "The gateway listens on port 8080.", "The gateway moved from port 8080 to port 9090."
OTHER = "The gateway logs every refused connection on port 8080 and port 9090."
MARCH_3, MARCH_6 = datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 6, tzinfo=UTC)


def find(pipeline: Pipeline, query: str = OLD, **how: Any) -> list[SearchHit]:
    return search(pipeline.engine, SLUG, SearchQuery(query, **how), settings=pipeline.settings).results


@pytest.fixture
def gateway(pipeline: Pipeline) -> Pipeline:
    """A project with two versions of a fact, and a third memory."""
    pipeline.configure_new(archive=False, summarize=False)
    pipeline.add([dated("old", OLD, 2), dated("new", NEW, 5), dated("other", OTHER, 1)])
    pipeline.run_phases(["embedding_matrix"])
    record(pipeline)
    return pipeline


def test_newer_version_is_found_first(gateway: Pipeline) -> None:
    found = find(gateway)
    assert [hit.content for hit in found[:2]] == [NEW, OLD]
    assert [one.content for one in found[0].supersedes] == [OLD]
    (newer,) = found[1].superseded_by
    assert (newer.id, newer.content, newer.learned_at.day, newer.status) == (note_id("new"), NEW, 5, "confirmed")
    assert newer.reason.startswith("change words: ")
    assert not found[2].supersedes
    assert not found[2].superseded_by


def test_newer_version_is_found_before_the_limit(gateway: Pipeline) -> None:
    assert [hit.content for hit in find(gateway, limit=1)] == [NEW]


def test_candidate_is_told_and_keeps_the_order(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False, summarize=False)
    one, two = "The retry limit of the mailer is 3.", "The retry limit of the mailer is 5."
    pipeline.add([dated("old", one, 2), dated("new", two, 5)])
    pipeline.run_phases(["embedding_matrix"])
    record(pipeline)
    first, second = find(pipeline, one)
    assert (first.content, first.superseded_by[0].status) == (one, "candidate")
    assert second.supersedes[0].content == one
    relation = pipeline.value("SELECT id FROM {s}.memory_relations")
    decide_relations(pipeline.engine, [relation], "confirmed", changed_by="tester")
    assert [hit.content for hit in find(pipeline, one)] == [two, one]
    decide_relations(pipeline.engine, [relation], "rejected", changed_by="tester")
    assert [(hit.content, hit.superseded_by) for hit in find(pipeline, one)] == [(one, []), (two, [])]


def test_version_of_merged_memory_is_told(gateway: Pipeline) -> None:
    gateway.add([dated("again", f"Note: {OLD}", 1)])
    gateway.run()
    assert gateway.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == 1
    found = {hit.kind: hit for hit in find(gateway) if hit.content != OTHER}
    assert [hit.kind for hit in find(gateway)[:2]] == ["raw", "merged"]
    assert found["raw"].supersedes[0].id == found["merged"].id
    assert found["merged"].superseded_by[0].id == note_id("new")


def test_older_memory_supersedes_none_that_was_told_again(gateway: Pipeline) -> None:
    gateway.add([dated("again", f"Note: {OLD}", 9)])
    gateway.run()
    assert gateway.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == 1
    merged, raw = ({hit.kind: hit for hit in find(gateway) if hit.content != OTHER}[kind] for kind in ("merged", "raw"))
    assert not [one for one in merged.superseded_by if one.id == raw.id]
    assert not [one for one in raw.supersedes if one.id == merged.id]


def test_version_that_a_person_archived_is_not_told(gateway: Pipeline) -> None:
    archive_manually(gateway.engine, [note_id("new")], changed_by="tester", reason="wrong")
    assert [hit.superseded_by for hit in find(gateway)] == [[], []]


def test_search_tells_what_was_known_then(gateway: Pipeline) -> None:
    assert [hit.content for hit in find(gateway, as_of=MARCH_3)] == [OLD, OTHER]
    assert all(not hit.superseded_by for hit in find(gateway, as_of=MARCH_3))
    assert [hit.content for hit in find(gateway, as_of=MARCH_6)[:2]] == [NEW, OLD]


def test_as_of_counts_no_use(gateway: Pipeline) -> None:
    uses = "SELECT sum(reused_count) FROM {s}.task_memories"
    before = gateway.value(uses)
    find(gateway, as_of=MARCH_6)
    gateway.fold_uses()
    assert gateway.value(uses) == before
    find(gateway)
    gateway.fold_uses()
    assert gateway.value(uses) == before + 3


def test_as_of_shows_sources_before_their_merge(gateway: Pipeline) -> None:
    gateway.add([dated("again", f"Note: {OLD}", 1)])
    gateway.run()
    merged = gateway.value("SELECT content FROM {s}.consolidated_memories WHERE kind = 'merged'")
    now = {hit.content for hit in find(gateway)}
    assert merged in now
    assert len(now) == 3
    assert {hit.content for hit in find(gateway, as_of=MARCH_6)} == {OLD, NEW, OTHER, f"Note: {OLD}"}
    assert {hit.content for hit in find(gateway, as_of=datetime.now(UTC))} == now


def test_as_of_shows_what_was_archived_later(gateway: Pipeline) -> None:
    before = datetime.now(UTC)
    archive_manually(gateway.engine, [note_id("other")], changed_by="tester", reason="old")
    assert OTHER not in {hit.content for hit in find(gateway)}
    assert OTHER in {hit.content for hit in find(gateway, as_of=before)}
    assert OTHER not in {hit.content for hit in find(gateway, as_of=datetime.now(UTC))}
    assert OTHER in {hit.content for hit in find(gateway, as_of=datetime.now(UTC), include_archived=True)}


def test_as_of_tells_text_before_an_edit(gateway: Pipeline) -> None:
    gateway.add([dated("again", f"Note: {OLD}", 1)])
    gateway.run()
    row = gateway.rows("SELECT * FROM {s}.consolidated_memories WHERE kind = 'merged'")[0]
    before = datetime.now(UTC)
    gateway.write(
        "INSERT INTO {s}.consolidation_changes (project_id, group_id, operation, entity_type, entity_id, "
        "previous_state, new_state) VALUES (:project, gen_random_uuid(), 'edit', 'consolidated_memories', :id, "
        "jsonb_build_object('content', CAST(:old AS text)), '{}')",
        project=row.project_id,
        id=row.id,
        old="The gateway listened elsewhere.",
    )
    assert "The gateway listened elsewhere." in {hit.content for hit in find(gateway, as_of=before)}
    assert "The gateway listened elsewhere." not in {hit.content for hit in find(gateway, as_of=datetime.now(UTC))}


def test_context_tells_the_newer_version_that_was_not_found(gateway: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def search_old(*args: Any, **how: Any) -> SearchResults:
        found = search_project(*args, **how)
        return replace(found, results=[hit for hit in found.results if hit.content == OLD])

    monkeypatch.setattr(context, "search_project", search_old)
    told = context.build_context(
        gateway.engine, SLUG, "on which port does the gateway listen", settings=gateway.settings
    )
    assert [one.content for one in told.memories] == [NEW, OLD]
    assert f"superseded by {note_id('new').hex[:12]}" in context.to_document(told)
