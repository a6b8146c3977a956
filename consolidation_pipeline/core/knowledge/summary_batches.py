"""Batches of memories to summarize: their size, the rule when a summary is due, and the compression ratio."""

from __future__ import annotations

from datetime import timedelta

from consolidation_pipeline.core.checks import check_count
from consolidation_pipeline.core.jobs.triggers import Due

# Memories of one call: 20 notes of about 80 words are easy for any model.
CHUNK_SIZE = 20
# Memories without a summary from which one is due.
SUMMARY_THRESHOLD = 50
# Target: at least this many characters of memories per character of summary.
TARGET_RATIO = 8.0
# Fewest memories of a summary; with fewer, one is written only on request.
MIN_MEMORIES = 8
# Part of the ids of summaries and profiles: changing it gives every row a new id.
IDENTITY_VERSION = "1"
# A session without a new memory for this long has ended: nothing else marks its end. Half an hour is the usual limit in
# web analytics. Agents pause for less between two notes of one task.
SESSION_IDLE = timedelta(minutes=30)


def compression_ratio(sources: int, summaries: int) -> float | None:
    """Return the size of the sources per size of their summaries, in memories or characters; None without a summary."""
    check_count("sources", sources)
    check_count("summaries", summaries)
    return sources / summaries if summaries else None


def is_summary_due(unsummarized: int, *, session_ended: bool = False) -> Due:
    """Decide if a summary is due: ``SUMMARY_THRESHOLD`` memories wait, or a session ended and ``MIN_MEMORIES`` wait.

    Args:
        unsummarized: Number of memories without a summary.
        session_ended: No memory was added for ``SESSION_IDLE`` in a session of these memories.
    """
    check_count("unsummarized", unsummarized)
    waiting = f"{unsummarized} memories are not summarized"
    if session_ended and unsummarized >= MIN_MEMORIES:
        return Due(True, f"a session ended and {waiting}, at least {MIN_MEMORIES}")
    if unsummarized >= SUMMARY_THRESHOLD:
        return Due(True, f"{waiting}, at least {SUMMARY_THRESHOLD}")
    needed = MIN_MEMORIES if session_ended else SUMMARY_THRESHOLD
    return Due(False, f"{waiting}, fewer than {needed}")
