"""Which jobs share a run: to start a process takes several seconds, a job of a small project often less than one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import UUID

# More memories than this are worth a process of their own, whose memory is free again when it ends.
LARGE = 5000
# Seconds of work after which starting a process costs less than a tenth, and for which others wait.
LONGEST, SHORTEST = 60.0, 10.0
MOST = 200  # jobs of a batch
PARALLEL = 2  # batches that work at once: each counts as two runs, itself and that of its project

# Measured by benchmarks/nightly.py: what Dagster takes for all assets and their checks, and for one of them.
_SECONDS = {"consolidate": 1.5, "forget": 0.4}
_SECONDS_OF_ONE_ASSET = 0.3
_SECONDS_PER_MEMORY = 0.0005


@dataclass(frozen=True)
class Task:
    """A job that waits: ``memories``: the active ones of its ``project``; ``timeout_seconds``: what it may take."""

    job_id: UUID
    project: str
    job: str
    memories: int
    timeout_seconds: int

    @property
    def seconds(self) -> float:
        """About how long it will take."""
        return _SECONDS.get(self.job, _SECONDS_OF_ONE_ASSET) + _SECONDS_PER_MEMORY * self.memories


def form_batches(tasks: Sequence[Task]) -> list[list[Task]]:
    """Every task in one batch: large ones alone, the others in as few as keep to the limits, all about as long.

    Little work is shared by ``PARALLEL`` batches, but none is shorter than ``SHORTEST`` for that.
    """
    batches = [[task] for task in tasks if task.memories > LARGE]
    small = sorted((task for task in tasks if task.memories <= LARGE), key=lambda task: (-task.seconds, task.project))
    if not small:
        return batches
    total = sum(task.seconds for task in small)
    longest = min(LONGEST, max(SHORTEST, total / PARALLEL))
    shared: list[list[Task]] = [[] for _ in range(min(len(small), max(ceil(total / longest), ceil(len(small) / MOST))))]
    # The longest first, each to the batch that is shortest so far: sizes hardly differ then.
    lengths = [0.0] * len(shared)
    for task in small:
        at = min(range(len(shared)), key=lambda batch: (len(shared[batch]) >= MOST, lengths[batch]))
        shared[at].append(task)
        lengths[at] += task.seconds
    return batches + shared
