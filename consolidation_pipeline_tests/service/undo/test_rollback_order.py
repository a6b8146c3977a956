"""Rollbacks of groups without a common row, in any order."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline_tests.service.corpus import LESSONS, REWORDINGS, STALE, UNRELATED, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import compute_checksums, dump_knowledge

# Noted lessons per night: (lesson, wording, True if stale).
NOTED = st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans())
NIGHTS = st.lists(st.lists(NOTED, min_size=2, max_size=5), min_size=1, max_size=2)


def create_groups(pipeline: Pipeline, nights: list[list[tuple[int, int, bool]]]) -> None:
    """Create merges, archives and relations, each a group of its own."""
    pipeline.configure_new()
    pipeline.add(
        [note("old-0", UNRELATED[0], **STALE), note("a", LESSONS[3]), note("b", f"Note to self: {LESSONS[3]}")]
    )
    for night, lessons in enumerate(nights):
        texts = [(REWORDINGS[how].format(LESSONS[which]), STALE if old else {}) for which, how, old in lessons]
        pipeline.add([note(f"n{night}-{at}", text, **age) for at, (text, age) in enumerate(texts)])
        pipeline.run()
    with pipeline.open(job="associate", planned=("associations",)) as run, run.phase("associations"):
        associate_memories(run)


def rows_of(pipeline: Pipeline, group: UUID) -> set[UUID]:
    query = "SELECT entity_id FROM {s}.consolidation_changes WHERE group_id = :group"
    return {row.entity_id for row in pipeline.rows(query, group=group)}


def undo(pipeline: Pipeline, groups: list[UUID]) -> list[UUID] | None:
    """Roll the groups back in order; return the rollback ids, or None with no effect if one is refused."""
    done = []
    for group in groups:
        try:
            done.append(pipeline.roll_back(group).rollback_id)
        except ConflictError:
            redo(pipeline, done)
            return None
    return done


def redo(pipeline: Pipeline, done: list[UUID]) -> None:
    for rollback_id in reversed(done):
        pipeline.roll_back(rollback_id)


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(nights=NIGHTS, data=st.data())
def test_disjoint_groups_are_undone_in_either_order(
    shared: Pipeline, nights: list[list[tuple[int, int, bool]]], data: st.DataObject
) -> None:
    shared.clear()
    create_groups(shared, nights)
    query = "SELECT group_id FROM {s}.consolidation_changes GROUP BY 1 ORDER BY min(seq)"
    groups = [row.group_id for row in shared.rows(query)]
    first, second = (groups[data.draw(st.integers(0, 30)) % len(groups)] for _ in range(2))
    if rows_of(shared, first) & rows_of(shared, second):
        return
    start = dump_knowledge(shared)
    found = []
    for order in ([first, second], [second, first]):
        done = undo(shared, order)
        found.append(None if done is None else dump_knowledge(shared))
        redo(shared, done or [])
        assert dump_knowledge(shared) == start
    # One group may depend on the other without a shared row, as a relation on a memory: only one order works.
    assert None in found or found[0] == found[1]


def test_refused_rollback_leaves_tables_unchanged(pipeline: Pipeline) -> None:
    create_groups(pipeline, [[(0, 0, False), (0, 1, False)]])
    group = pipeline.value("SELECT group_id FROM {s}.consolidation_changes ORDER BY seq LIMIT 1")
    pipeline.roll_back(group, cascade=True)
    before = compute_checksums(pipeline)
    assert undo(pipeline, [group]) is None
    assert compute_checksums(pipeline) == before
