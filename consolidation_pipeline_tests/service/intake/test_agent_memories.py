"""Memories added by agents: found at once, with feedback that can be undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.intake.agent_memories import AddResult, add_memories, get_memory, give_feedback
from consolidation_pipeline.service.intake.importer import BATCH_ROWS, ensure_project
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline_tests.service.corpus import LESSONS, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


@pytest.fixture
def empty_project(shared: Pipeline) -> Pipeline:
    """Pipeline with a project without memories, in a shared database."""
    shared.clear()
    ensure_project(shared.engine, SLUG)
    return shared


def add(pipeline: Pipeline, *rows: dict[str, Any], **how: Any) -> AddResult:
    return add_memories(
        pipeline.engine, SLUG, rows, source="agent", changed_by="bot", settings=pipeline.settings, **how
    )


def merge_one(pipeline: Pipeline) -> tuple[UUID, UUID]:
    """Merge three wordings of a lesson; return the ids of the merged memory and of one source."""
    added = add(pipeline, *reworded_notes(LESSONS[:1])[:3]).added
    pipeline.run_phases(PHASES[: PHASES.index("merged_memories") + 1])
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    return merged, added[0]


def test_added_memory_is_found_by_vector_and_keyword(empty_project: Pipeline) -> None:
    added = add(
        empty_project, {"content": "The car would not start because the battery was empty.", "tags": ["garage"]}
    )
    for asked, by_words in (("automobile engine ignition", None), ("battery", 1)):
        found = search(empty_project.engine, SLUG, SearchQuery(asked), settings=empty_project.settings, count_use=False)
        assert [(hit.id, hit.keyword_rank) for hit in found.results] == [(added.added[0], by_words)]
        assert found.note is None


def test_unembedded_memories_wait_for_next_run(empty_project: Pipeline) -> None:
    add_memories(empty_project.engine, SLUG, [{"content": "Use JWT."}], source="agent", changed_by="bot")
    empty_project.configure(embedding_model="openai/text-embedding-3-small")
    add(empty_project, {"content": "Use OAuth."})
    assert empty_project.value("SELECT count(*) FROM {s}.task_memories WHERE embedding IS NULL") == 2


def test_adding_same_row_again_returns_same_memory(empty_project: Pipeline) -> None:
    first = add(empty_project, {"content": "Use JWT."}, {"content": "Use JWT."}, {"content": "Use JWT.", "id": "a"})
    again = add(empty_project, {"content": "Use JWT."}, {"content": "Use JWT.", "id": "a"}, {"content": "New."})
    assert (len(first.added), first.existing, first.errors) == (2, [], [])
    assert (len(again.added), again.existing) == (1, first.added)
    assert first.ids == [first.added[0], first.added[0], first.added[1]]


def test_text_that_was_edited_away_can_be_added_again(empty_project: Pipeline) -> None:
    first = add(empty_project, {"content": "Use JWT."}, {"content": "Use JWT.", "id": "a"})
    for id_ in first.added:
        edit_memory(empty_project.engine, id_, {"content": "Use OAuth."}, changed_by="tester")
    for _ in range(2):  # the second one was edited, too
        again = add(empty_project, {"content": "Use JWT."}, {"content": "Use JWT.", "id": "a"})
        assert [index for index, _ in again.errors] == [1]
        assert add(empty_project, {"content": "Use JWT."}).existing == again.added
        edit_memory(empty_project.engine, again.added[0], {"content": "Use mTLS."}, changed_by="tester")
    assert empty_project.value("SELECT count(*) FROM {s}.task_memories") == 4


def test_bad_row_is_reported_by_index(empty_project: Pipeline) -> None:
    add(empty_project, {"content": "Known.", "id": "k"})
    done = add(
        empty_project,
        {"content": "Good."},
        {"content": " "},
        {"content": "Other.", "language": "klingon"},
        {"content": "Rewritten.", "id": "k"},
        {"content": "Short vector.", "embedding": [1.0], "embedding_model": "wordllama/l2_supercat_256"},
    )
    assert [at for at, _ in done.errors] == [1, 2, 3, 4]
    assert [at for at, id_ in enumerate(done.ids) if id_ is not None] == [0]
    messages = dict(done.errors)
    assert "content is ' '" in messages[1]
    assert "language is 'klingon': expected a code such as de or pt-BR, or one of arabic" in messages[2]
    assert "raw memories are never rewritten" in messages[3]
    assert "embedding has 1 numbers: expected 256" in messages[4]


def test_memory_from_the_future_is_refused(empty_project: Pipeline) -> None:
    ahead = [datetime.now(UTC) + timedelta(hours=hours) for hours in (23, 25)]
    rows = [{"content": "Use JWT.", name: time.isoformat()} for name in ("created_at", "learned_at") for time in ahead]
    done = add(empty_project, *rows, writer="bot")
    assert [at for at, _ in done.errors] == [1, 3]
    assert done.errors[0][1] == f"created_at is '{ahead[1].isoformat()}': expected a time at most one day ahead of now"
    assert empty_project.value("SELECT max(learned_at) FROM {s}.task_memories") == ahead[0]


def test_adding_to_unknown_project_is_refused(empty_project: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="there is no project 'nowhere'"):
        add_memories(empty_project.engine, "nowhere", [{"content": "x"}], source="agent", changed_by="bot")
    with pytest.raises(UsageError, match="5,001 memories at once; 5,000 are allowed"):
        add(empty_project, *[{"content": "x"}] * (BATCH_ROWS + 1))


def test_memory_language_defaults_to_project_language(empty_project: Pipeline) -> None:
    empty_project.configure(language="german")
    add(
        empty_project,
        {"content": "Die Häuser.", "id": "de"},
        {"content": "The houses.", "id": "en", "language": "english"},
    )
    languages = dict(empty_project.rows("SELECT external_id, language::text FROM {s}.task_memories"))
    assert languages == {"de": "german", "en": "english"}
    found = search(empty_project.engine, SLUG, SearchQuery("Haus", min_similarity=1), settings=empty_project.settings)
    assert [hit.content for hit in found.results] == ["Die Häuser."]


def test_get_memory_returns_given_fields(empty_project: Pipeline) -> None:
    row = {"content": "Did it.", "goal": "Ship", "tags": ["a"], "files": ["b.py", "a.py"], "importance": 0.7}
    memory = get_memory(empty_project.engine, add(empty_project, row).added[0])
    assert {name: memory[name] for name in row} == row | {"files": ["a.py", "b.py"]}
    assert (memory["kind"], memory["level"], memory["status"], memory["successor"]) == ("raw", 0, "active", None)
    assert (memory["project"], memory["agent_id"], memory["source"], memory["version"]) == (SLUG, "bot", "agent", 1)
    assert memory["feedback_given"] == []
    assert not {"embedding", "content_tsv"} & set(memory)


def test_feedback_on_merged_source_names_successor(empty_project: Pipeline) -> None:
    merged, source = merge_one(empty_project)
    assert [get_memory(empty_project.engine, source)[name] for name in ("status", "successor")] == ["merged", merged]
    memory = get_memory(empty_project.engine, merged)
    assert (memory["kind"], memory["level"], memory["status"], memory["source_count"]) == ("merged", 1, "active", 3)
    with pytest.raises(ConflictError, match=f"hidden in merged memory {merged}"):
        give_feedback(empty_project.engine, source, helpful=True, changed_by="bot")
    assert give_feedback(empty_project.engine, merged, helpful=True, changed_by="bot")["kind"] == "merged"


def test_feedback_on_merged_memory_survives_extension(empty_project: Pipeline) -> None:
    merged, _ = merge_one(empty_project)
    before = get_memory(empty_project.engine, merged)["importance"]
    said = give_feedback(empty_project.engine, merged, helpful=False, changed_by="bot")["importance"]
    assert said < before
    add(empty_project, {"content": f"Once more: {LESSONS[0]}", "importance": 0.0})
    empty_project.run()
    grown = get_memory(empty_project.engine, merged)
    assert (grown["source_count"], grown["importance"]) == (4, said)


def test_feedback_changes_only_importance(empty_project: Pipeline) -> None:
    id_ = add(empty_project, {"content": "Use JWT.", "importance": 0.5, "feedback": "as written"}).added[0]
    before = get_memory(empty_project.engine, id_)
    done = give_feedback(empty_project.engine, id_, helpful=True, note="it saved an hour", changed_by="bot")
    assert (done["importance_before"], done["importance"]) == (0.5, 0.6)
    after = get_memory(empty_project.engine, id_)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"importance", "version", "feedback_given"}
    said = after["feedback_given"][0]
    assert (said["words"], said["importance"], said["changed_by"]) == ("helpful: it saved an hour", 0.6, "bot")
    assert said["group_id"] == done["group_id"]
    undone = empty_project.roll_back(done["group_id"])
    assert get_memory(empty_project.engine, id_) == before
    empty_project.roll_back(undone.rollback_id)
    assert get_memory(empty_project.engine, id_)["feedback_given"] == after["feedback_given"]


def test_rollback_of_run_with_feedback_needs_cascade(empty_project: Pipeline) -> None:
    merged, _ = merge_one(empty_project)
    job = empty_project.value("SELECT id FROM {s}.consolidation_jobs")
    give_feedback(empty_project.engine, merged, helpful=True, changed_by="bot")
    with pytest.raises(ConflictError):
        empty_project.roll_back(job)
    assert empty_project.roll_back(job, cascade=True).memories_deleted == 1


def test_feedback_note_leaves_importance_unchanged(empty_project: Pipeline) -> None:
    id_ = add(empty_project, {"content": "Use JWT."}).added[0]
    done = give_feedback(empty_project.engine, id_, helpful=None, note="look at RFC 7519 too", changed_by="bot")
    assert done["importance"] == done["importance_before"]
    assert get_memory(empty_project.engine, id_)["feedback_given"][0]["words"] == "note: look at RFC 7519 too"


@pytest.mark.parametrize(
    ("helpful", "note", "wrong"),
    [(None, None, "is empty"), (None, " ", "is empty"), (True, "x" * 2001, "2,000"), (True, "\0", "NUL")],
)
def test_empty_or_oversized_feedback_is_refused(
    empty_project: Pipeline, helpful: bool | None, note: str | None, wrong: str
) -> None:
    with pytest.raises(UsageError, match=wrong):
        give_feedback(empty_project.engine, uuid4(), helpful=helpful, note=note, changed_by="bot")


def test_feedback_on_archived_memory_is_refused(empty_project: Pipeline) -> None:
    for ask in (
        lambda: get_memory(empty_project.engine, uuid4()),
        lambda: give_feedback(empty_project.engine, uuid4(), helpful=True, changed_by="bot"),
    ):
        with pytest.raises(NotFoundError, match="there is no memory"):
            ask()
    id_ = add(empty_project, {"content": "Use JWT."}).added[0]
    archive_manually(empty_project.engine, [id_], changed_by="bot")
    with pytest.raises(ConflictError, match="archived: restore it first"):
        give_feedback(empty_project.engine, id_, helpful=True, changed_by="bot")
