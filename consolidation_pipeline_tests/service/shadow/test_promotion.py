"""A promotion makes the project what the shadow is, as one job that one rollback undoes."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.shadow.promotion import promote
from consolidation_pipeline.service.shadow.shadows import drop
from consolidation_pipeline_tests.openai_server import OpenAIServer
from consolidation_pipeline_tests.service.corpus import FIFTH, topic_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.shadow.shadow_helpers import (
    OPTIONS,
    add_tests,
    dump_ledgered,
    make_shadow,
    open_shadow_pipeline,
    promote_shadow,
)
from consolidation_pipeline_tests.service.table_dumps import compute_checksums


def test_promoted_project_equals_the_shadow(live: Pipeline) -> None:
    report = make_shadow(live)
    done = promote_shadow(live)
    assert dump_ledgered(live) == dump_ledgered(open_shadow_pipeline(live))
    assert (done.job_id, done.changes) == (report.job_id, sum(report.changes.values()))
    assert done.new_memories == 0
    assert live.project().config == OPTIONS
    assert find_broken_rules(live) == []


def test_one_rollback_undoes_a_promotion(live: Pipeline) -> None:
    live.configure(t_merge=0.9)
    before = dump_ledgered(live)
    make_shadow(live)
    done = promote_shadow(live)
    promoted = dump_ledgered(live)
    undone = live.roll_back(done.job_id)
    assert dump_ledgered(live) == before
    assert live.project().config == {"t_merge": 0.9}
    live.roll_back(undone.rollback_id)
    assert dump_ledgered(live) == promoted
    assert live.project().config == {**OPTIONS}


def test_rollback_keeps_options_that_were_set_since(live: Pipeline) -> None:
    make_shadow(live)
    done = promote_shadow(live)
    live.configure(**{**OPTIONS, "t_merge": 0.96})
    live.roll_back(done.job_id)
    assert live.project().config == {"t_merge": 0.96}


def test_next_run_after_promotion_changes_nothing(live: Pipeline) -> None:
    make_shadow(live)
    promote_shadow(live)
    promoted = dump_ledgered(live)
    live.run()
    assert dump_ledgered(live) == promoted


def test_promotion_lists_rows_that_changed_since(live: Pipeline) -> None:
    make_shadow(live)
    edited = note_id("alone-0")
    edit_memory(live.engine, edited, {"content": "The wiki moved."}, changed_by="agent")
    before = compute_checksums(live)
    with pytest.raises(ConflictError, match=r"1 rows of notes changed .* edit of .* by agent") as refused:
        promote_shadow(live)
    assert refused.value.conflicts == (str(edited),)
    assert compute_checksums(live) == before


def test_memories_added_since_wait_for_the_next_run(live: Pipeline) -> None:
    make_shadow(live)
    live.add(topic_notes("late", (FIFTH,)))
    assert promote_shadow(live).new_memories == 1
    live.run()
    assert find_broken_rules(live) == []


def test_shadow_is_promoted_once_only(live: Pipeline) -> None:
    make_shadow(live)
    done = promote_shadow(live)
    with pytest.raises(ConflictError, match=f"promoted before, as job {done.job_id}"):
        promote_shadow(live)


def test_run_since_the_snapshot_refuses_promotion(live: Pipeline) -> None:
    make_shadow(live)
    live.run()
    with pytest.raises(ConflictError, match="changed since the snapshot"):
        promote_shadow(live)


def test_other_embedding_model_is_not_promoted(live: Pipeline, provider: OpenAIServer) -> None:
    make_shadow(live, embedding_model="openai/text-embedding-3-small")
    assert provider.requests
    with pytest.raises(UsageError, match=r"another embedding_model .*embeddings notes --model openai/text-embedding"):
        promote_shadow(live)


def test_shadow_without_changes_is_not_promoted(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    try:
        report = make_shadow(pipeline)
        step, command = report.next_step
        assert step == "set its options"
        assert command.startswith(f"consolidation projects configure notes {next(iter(report.options))}=")
        with pytest.raises(UsageError, match="changes no row: set its options by `consolidation projects configure"):
            promote_shadow(pipeline)
    finally:
        drop(pipeline.engine, "notes")


def test_unconfirmed_promotion_changes_nothing(live: Pipeline) -> None:
    make_shadow(live)
    before = compute_checksums(live)
    tried = promote(live.engine, SLUG, settings=live.settings, promoted_by="tester", confirmed=False)
    assert compute_checksums(live) == before
    done = promote_shadow(live)
    assert (tried.promoted, done.promoted) == (False, True)
    assert (tried.changes, tried.options) == (done.changes, done.options)


def test_promotion_that_breaks_a_memory_test_is_refused(live: Pipeline) -> None:
    make_shadow(live)
    query = """
        SELECT source_memory_ids FROM {s}.consolidated_memories
        WHERE kind = 'merged' AND retired_at IS NULL ORDER BY created_at DESC LIMIT 1
    """
    members = open_shadow_pipeline(live).value(query)
    add_tests(live, build_test("must_not_merge", list(map(str, members[:2])), "apart"))
    before = dump_ledgered(live)
    with pytest.raises(ConflictError, match="memory tests of notes would fail with the shadow next: apart: both are"):
        promote_shadow(live)
    assert dump_ledgered(live) == before
    assert live.project().config == {}
