"""Cannot-link pairs: an undone merge is not repeated until it is redone."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.rules import find_broken_rules

LESSON = LESSONS[0]
NOTES = [note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("c", f"{LESSON} Seen again today.")]


def test_undone_merge_becomes_suggestion(pipeline: Pipeline) -> None:
    pipeline.add(NOTES)
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    planned = pipeline.plan()
    assert planned.merges == []
    assert [len(question.members) for question in planned.questions] == [3]
    again = pipeline.run()
    assert again.merging.absorbed == 0
    assert again.clusters.groups["suggest"] == 1
    assert find_broken_rules(pipeline) == []


def test_redone_merge_can_be_extended(pipeline: Pipeline) -> None:
    pipeline.add(NOTES)
    undone = pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    pipeline.roll_back(undone.rollback_id)
    pipeline.add([note("d", f"Learned once more: {LESSON}")])
    assert pipeline.run().merging.extended == 1
    assert find_broken_rules(pipeline) == []


def test_undone_job_is_repeated_by_next_run(pipeline: Pipeline) -> None:
    pipeline.add(NOTES)
    pipeline.roll_back(pipeline.run().job_id)
    assert pipeline.run().merging.absorbed == 3


@pytest.mark.slow
def test_undone_extension_stays_undone(pipeline: Pipeline) -> None:
    pipeline.add(NOTES[:2])
    pipeline.run()
    pipeline.add(NOTES[2:])
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    assert pipeline.run().merging.absorbed == 0
    assert pipeline.value("SELECT source_count FROM {s}.consolidated_memories WHERE kind = 'merged'") == 2
    assert find_broken_rules(pipeline) == []


def test_newcomer_does_not_join_cannot_link_pair(pipeline: Pipeline) -> None:
    pipeline.add(NOTES[:2])
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    pipeline.add(NOTES[2:])
    pipeline.run()
    sources = [
        set(row[0])
        for row in pipeline.rows("SELECT source_memory_ids FROM {s}.consolidated_memories WHERE kind = 'merged'")
    ]
    a, b = (pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = :n", n=n) for n in "ab")
    assert not any({a, b} <= group for group in sources)
    assert find_broken_rules(pipeline) == []


def test_cannot_link_applies_to_exact_repeats(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON), note("b", LESSON), note("other", LESSONS[1])])
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    assert pipeline.run().merging.absorbed == 0
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE NOT is_consolidated") == 3
    pipeline.add([note("c", LESSON)])
    pipeline.run()
    sources = [
        set(row[0])
        for row in pipeline.rows("SELECT source_memory_ids FROM {s}.consolidated_memories WHERE kind = 'merged'")
    ]
    a, b = (pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = :n", n=n) for n in "ab")
    assert not any({a, b} <= group for group in sources)


@pytest.mark.slow
def test_released_repeats_make_no_duplicate_merge(pipeline: Pipeline) -> None:
    pipeline.consolidate([note("a", LESSON), note("b", LESSON)])
    pipeline.add([note("c", LESSON), note("d", LESSON)])
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    planned = pipeline.plan()
    done = pipeline.run().merging
    assert find_broken_rules(pipeline) == []
    assert (planned.merges, done.absorbed) == ([], 0)
    pipeline.add([note("e", LESSON)])
    assert pipeline.run().merging.extended == 1
