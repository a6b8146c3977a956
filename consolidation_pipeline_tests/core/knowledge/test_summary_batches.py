"""Summary batches: compression ratio and due summaries."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.summary_batches import compression_ratio, is_summary_due


def test_compression_ratio_is_none_without_summaries() -> None:
    assert compression_ratio(40, 5) == 8.0
    assert compression_ratio(0, 5) == 0.0
    assert compression_ratio(40, 0) is None
    with pytest.raises(ValueError, match="summaries is -1"):
        compression_ratio(40, -1)


@pytest.mark.parametrize(
    ("waiting", "ended", "due"),
    [(0, False, False), (49, False, False), (50, False, True), (0, True, False), (7, True, False), (8, True, True)],
)
def test_summary_is_due_at_fifty_or_at_session_end(waiting: int, ended: bool, due: bool) -> None:
    answer = is_summary_due(waiting, session_ended=ended)
    assert bool(answer) is due
    assert str(waiting) in answer.reason


def test_negative_unsummarized_count_is_refused() -> None:
    with pytest.raises(ValueError, match="unsummarized is -1"):
        is_summary_due(-1)
