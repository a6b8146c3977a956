"""kill -9 at any point of any phase: the next run ends in the state of an undisturbed run."""

from __future__ import annotations

import pytest

from consolidation_pipeline.service.runs.stale_jobs import DIED
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS, corpus, topic_notes
from consolidation_pipeline_tests.service.crash_helpers import kill, run_and_die
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_comparable

# Similar enough to be proposed as a playbook entry.
KEYS = (
    "Pass the idempotency key on with each payment request, retries included.",
    "Pass the idempotency key on with each refund request, retries included.",
    "Pass the idempotency key on with each payout request, retries included.",
)

# (phase, number of the commit in the phase, side of the commit); the last commit records the phase.
POINTS = (
    ("embedding_matrix", 2, "after"),
    ("embedding_matrix", 6, "before"),
    ("similarity_graph", 1, "after"),
    ("clusters", 1, "before"),
    ("clusters", 1, "after"),
    ("merged_memories", 1, "before"),
    ("merged_memories", 1, "after"),
    ("merged_memories", 2, "after"),
    ("merged_memories", 4, "before"),
    ("merged_memories", 4, "after"),
    ("patterns", 2, "before"),
    ("patterns", 2, "after"),
    ("principles", 1, "after"),
    ("consolidation_suggestions", 1, "before"),
    ("playbook_entries", 1, "after"),
    ("semantic_summaries", 1, "after"),
    ("procedural_profile", 1, "after"),
    ("decay_scores", 1, "after"),
    ("consolidation_report", 1, "before"),
    ("consolidation_report", 1, "after"),
)


def reset_project(pipeline: Pipeline) -> None:
    """Reset the project: memories to merge, for patterns, to promote and to summarise."""
    pipeline.clear()
    pipeline.configure_new(t_pattern=0.5, center=False)
    pipeline.add(
        [*corpus(), *topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS), *topic_notes("key", KEYS)]
    )


def run_until_settled(pipeline: Pipeline) -> dict[str, list[str]]:
    """Run twice and dump the tables: descriptions of groups are stable only after the second run."""
    pipeline.run()
    pipeline.run()
    return dump_comparable(pipeline)


@pytest.fixture(scope="module")
def undisturbed(shared: Pipeline) -> dict[str, list[str]]:
    """Dump of the tables after an undisturbed run."""
    reset_project(shared)
    return run_until_settled(shared)


# One point in ten in `make test`, all of them in `make test-all`.
SAMPLED = [p if at % 10 == 0 else pytest.param(*p, marks=pytest.mark.slow) for at, p in enumerate(POINTS)]


@pytest.mark.parametrize(("phase", "commit", "when"), SAMPLED)
def test_run_after_kill_matches_undisturbed_run(
    shared: Pipeline, undisturbed: dict[str, list[str]], phase: str, commit: int, when: str
) -> None:
    reset_project(shared)
    kill(shared, run_and_die, phase, commit, when)
    (dead,) = shared.rows("SELECT id, status, phases_completed FROM {s}.consolidation_jobs")
    assert dead.status == "running"
    assert (phase in dead.phases_completed) == (phase == "consolidation_report" and when == "after")
    found = run_until_settled(shared)
    assert found == undisturbed
    ended = shared.rows("SELECT status, error_message FROM {s}.consolidation_jobs WHERE id = :id", id=dead.id)
    assert [tuple(row) for row in ended] == [("failed", DIED)]
