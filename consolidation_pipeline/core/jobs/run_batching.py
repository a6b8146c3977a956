"""Batches of jobs that share one process.

Starting a process takes several seconds, a job of a small project often less than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import UUID

# A project with more memories gets a process of its own, which frees its memory when it ends.
LARGE_PROJECT = 5000
# Seconds of work in a batch. Of the longest batch, starting the process is less than a tenth.
MAX_BATCH_SECONDS, MIN_BATCH_SECONDS = 60.0, 10.0
MAX_BATCH_JOBS = 200  # jobs in a batch
PARALLEL_BATCHES = 2  # batches at a time; in Dagster, each is two runs: its own, and that of its current project

# Measured by benchmarks/nightly.py: time that Dagster takes for all assets with their checks, and for one asset.
_SECONDS = {"consolidate": 1.5, "forget": 0.4}
_SECONDS_OF_ONE_ASSET = 0.3
_SECONDS_PER_MEMORY = 0.0005


@dataclass(frozen=True)
class Task:
    """Pending job of a project with a number of active ``memories``. ``timeout_seconds``: longest phase."""

    job_id: UUID
    project: str
    job: str
    memories: int
    timeout_seconds: int

    @property
    def seconds(self) -> float:
        """Estimated duration in seconds."""
        return _SECONDS.get(self.job, _SECONDS_OF_ONE_ASSET) + _SECONDS_PER_MEMORY * self.memories


def form_batches(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return batches that hold each task once; a large project is a batch of its own.

    The others are split into as few batches of about the same duration as the limits allow. Little work is split into
    ``PARALLEL_BATCHES``, unless they would be shorter than ``MIN_BATCH_SECONDS``.
    """
    batches = [[task] for task in tasks if task.memories > LARGE_PROJECT]
    small = sorted(
        (task for task in tasks if task.memories <= LARGE_PROJECT), key=lambda task: (-task.seconds, task.project)
    )
    if not small:
        return batches
    total = sum(task.seconds for task in small)
    longest = min(MAX_BATCH_SECONDS, max(MIN_BATCH_SECONDS, total / PARALLEL_BATCHES))
    shared: list[list[Task]] = [
        [] for _ in range(min(len(small), max(ceil(total / longest), ceil(len(small) / MAX_BATCH_JOBS))))
    ]
    # Longest first, each into the batch that is shortest so far, so that lengths hardly differ.
    lengths = [0.0] * len(shared)
    for task in small:
        at = min(range(len(shared)), key=lambda batch: (len(shared[batch]) >= MAX_BATCH_JOBS, lengths[batch]))
        shared[at].append(task)
        lengths[at] += task.seconds
    return batches + shared
