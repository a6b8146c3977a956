"""Batches of jobs that share one process.

Starting a process takes several seconds, a job of a small project often less than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import UUID

# A project with more memories gets a process of its own, which frees its memory when it ends.
LARGE = 5000
# Seconds of work in a batch. In the longest, starting the process costs less than a tenth.
LONGEST, SHORTEST = 60.0, 10.0
MOST = 200  # jobs in a batch
PARALLEL = 2  # batches at a time; each counts as two runs in Dagster, its own and its project's

# Measured by benchmarks/nightly.py: time that Dagster takes for all assets with their checks, and for one asset.
_SECONDS = {"consolidate": 1.5, "forget": 0.4}
_SECONDS_OF_ONE_ASSET = 0.3
_SECONDS_PER_MEMORY = 0.0005


@dataclass(frozen=True)
class Task:
    """Pending job of a project.

    ``memories`` counts the active memories of ``project``. ``timeout_seconds`` is the longest that the job may take.
    """

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
    """Return batches that hold each task once.

    A large project is a batch of its own. The others are split into as few batches as the limits allow, of about the
    same length. Little work is split into ``PARALLEL`` batches, unless they would be shorter than ``SHORTEST``.
    """
    batches = [[task] for task in tasks if task.memories > LARGE]
    small = sorted((task for task in tasks if task.memories <= LARGE), key=lambda task: (-task.seconds, task.project))
    if not small:
        return batches
    total = sum(task.seconds for task in small)
    longest = min(LONGEST, max(SHORTEST, total / PARALLEL))
    shared: list[list[Task]] = [[] for _ in range(min(len(small), max(ceil(total / longest), ceil(len(small) / MOST))))]
    # Longest first, each into the batch that is shortest so far, so that lengths hardly differ.
    lengths = [0.0] * len(shared)
    for task in small:
        at = min(range(len(shared)), key=lambda batch: (len(shared[batch]) >= MOST, lengths[batch]))
        shared[at].append(task)
        lengths[at] += task.seconds
    return batches + shared
