"""Batches of jobs that share a run."""

from __future__ import annotations

from uuid import UUID

import pytest

from consolidation_pipeline.core.jobs.run_batching import (
    LARGE_PROJECT,
    MAX_BATCH_JOBS,
    MAX_BATCH_SECONDS,
    Task,
    form_batches,
)


def tasks(*sizes: int, job: str = "consolidate") -> list[Task]:
    return [Task(UUID(int=at), f"p{at:04}", job, size, 600) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("job", "sizes", "batches"),
    [
        ("consolidate", [], 0),
        ("consolidate", [50], 1),
        ("consolidate", [50] * 5, 1),  # less than ten seconds of work: one process
        ("consolidate", [50] * 10, 2),  # more: as many as work at once
        ("consolidate", [50] * 60, 2),
        ("consolidate", [50] * 1000, 26),  # none longer than a minute
        ("consolidate", [LARGE_PROJECT + 1, LARGE_PROJECT, 50], 2),  # large ones alone
        ("decay", [50] * 1000, 6),
        ("decay", [0] * 900, 5),
        ("decay", [LARGE_PROJECT + 1] * 3, 3),
    ],
)
def test_batches_split_work_by_size_and_duration(job: str, sizes: list[int], batches: int) -> None:
    given = tasks(*sizes, job=job)
    made = form_batches(given)
    assert len(made) == batches
    assert sorted(task.job_id for batch in made for task in batch) == [task.job_id for task in given]
    assert all(len(batch) <= MAX_BATCH_JOBS for batch in made)
    assert all(len(batch) == 1 for batch in made if max(task.memories for task in batch) > LARGE_PROJECT)


def test_batches_balance_duration_in_any_order() -> None:
    given = tasks(*(10 * (at % 300) for at in range(400)))
    made = form_batches(given)
    lengths = [sum(task.seconds for task in batch) for batch in made]
    assert max(lengths) - min(lengths) < 0.05 * MAX_BATCH_SECONDS
    assert form_batches(given[::-1]) == made
