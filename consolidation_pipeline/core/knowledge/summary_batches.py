"""Which memories are summarised together and when, and what summaries save: episodic to semantic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from consolidation_pipeline.core.jobs.triggers import Due

# One call per chunk (pipeline.md, semantic_summaries); 20 notes of some 80 words fit any model's attention.
CHUNK_SIZE = 20
# Episodes that wait for a summary before one is made without being asked.
SUMMARY_THRESHOLD = 50
# Target: at least this many episodes per summary (pipeline.md, semantic_summaries).
TARGET_RATIO = 8.0
# The same in whole episodes: a summary of fewer is made only when somebody asks for it.
MIN_MEMORIES = 8
# Part of the ids of summaries and profiles: the next run meets its own rows under it.
IDENTITY_VERSION = "1"
# A session in which nothing was written for so long has ended. Nobody tells when one does; half an hour is what web
# analytics take, and agents pause for less between two notes of one task.
SESSION_IDLE = timedelta(minutes=30)

_T = TypeVar("_T")


def split_chunks(memories: Sequence[_T], *, size: int = CHUNK_SIZE) -> list[Sequence[_T]]:
    """``memories``, oldest first, in chunks of ``size``; the last one holds the rest. ValueError: size below 1."""
    if size < 1:
        raise ValueError(f"size is {size}; a chunk needs at least 1 memory")
    return [memories[at : at + size] for at in range(0, len(memories), size)]


def compression_ratio(episodes: int, summaries: int) -> float | None:
    """Episodes per summary; None while there is no summary. ValueError: a negative count."""
    _require_counts(episodes=episodes, summaries=summaries)
    return episodes / summaries if summaries else None


def is_summary_due(unsummarised: int, *, session_ended: bool = False, threshold: int = SUMMARY_THRESHOLD) -> Due:
    """Whether a summary is due: ``threshold`` memories wait for one, or a session ended and ``MIN_MEMORIES`` do.

    A session ended when nothing was written in it for ``SESSION_IDLE``. ValueError: a negative count.
    """
    _require_counts(unsummarised=unsummarised)
    waiting = f"{unsummarised} memories are not summarised"
    if session_ended and unsummarised >= MIN_MEMORIES:
        return Due(True, f"a session ended and {waiting}, at least {MIN_MEMORIES}")
    if unsummarised >= threshold:
        return Due(True, f"{waiting}, at least {threshold}")
    needed = MIN_MEMORIES if session_ended else threshold
    return Due(False, f"{waiting}, fewer than {needed}")


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} is {count}; it must be 0 or more")
