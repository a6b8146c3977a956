"""Candidates for a supersession judge: by vectors and by rare words, earlier ones of one scope, each text once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consolidation_pipeline.core.knowledge.claim_table import ClaimTable, read_claims
from consolidation_pipeline.core.knowledge.supersession_candidates import CandidateMemories, list_candidates

TEXTS = (
    "The exporter is scraped on port 9105.",
    "The canteen closes at two.",
    "Backups are copied to the vault every night.",
    "The vault is offline on Sundays.",
    "Scrape target of the exporter is host:9440.",
)


def build(
    vectors: Sequence[Sequence[float]],
    *,
    scopes: Sequence[int] = (0,) * 5,
    days: Sequence[int] = range(5),
    texts: Sequence[int] = range(5),
    judged: Sequence[int] = (),
) -> CandidateMemories:
    """Return the memories of ``TEXTS``, learned in this order."""
    x = np.array(vectors, np.float32)
    is_judged = np.isin(np.arange(len(x)), judged)
    hashes = np.array([texts[at] + 1 for at in range(len(x))], np.uint64)
    return CandidateMemories(x, np.array(texts), hashes, np.array(scopes), np.array(days), is_judged)


def claims(*texts: str) -> ClaimTable:
    """Return the sentences of texts, with the hashes 1, 2, ..."""
    return read_claims([*enumerate(texts, 1)])[0]


ALIKE = ((1.0, 0.0), (0.6, 0.8), (-1.0, 0.0), (-1.0, 0.0), (1.0, 0.0))
NOTHING = claims()


def test_nearest_earlier_memories_are_listed_best_first() -> None:
    assert list_candidates(build(ALIKE), np.array([4]), NOTHING, most=5) == {4: [0, 1]}
    assert list_candidates(build(ALIKE), np.array([4]), NOTHING, most=1) == {4: [0]}


def test_later_memories_are_no_candidates() -> None:
    assert list_candidates(build(ALIKE), np.array([0]), NOTHING, most=5) == {}


def test_rare_words_find_what_vectors_miss() -> None:
    apart = ((1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (-1.0, 0.0))
    found = list_candidates(build(apart), np.array([4]), claims(*TEXTS), most=5)
    assert found == {4: [0]}


def test_both_lists_are_fused_by_rank() -> None:
    vectors = ((0.6, 0.8), (0.8, 0.6), (-1.0, 0.0), (-1.0, 0.0), (1.0, 0.0))
    assert list_candidates(build(vectors), np.array([4]), NOTHING, most=5) == {4: [1, 0]}
    assert list_candidates(build(vectors), np.array([4]), claims(*TEXTS), most=5) == {4: [0, 1]}


def test_scopes_are_kept_apart() -> None:
    found = list_candidates(build(ALIKE, scopes=(0, 1, 1, 1, 1)), np.array([4]), claims(*TEXTS), most=5)
    assert found == {4: [1]}


def test_exact_repeats_count_once_and_the_latest_stands() -> None:
    same = build(((1.0, 0.0),) * 5, texts=(0, 0, 0, 3, 4))
    assert list_candidates(same, np.array([4]), NOTHING, most=2) == {4: [3, 2]}


def test_own_text_is_no_candidate() -> None:
    assert list_candidates(build(((1.0, 0.0),) * 5, texts=(0,) * 5), np.array([4]), NOTHING, most=2) == {}


def test_late_memory_is_listed_with_newer_judged_ones() -> None:
    late = build(((1.0, 0.0),) * 5, judged=(1, 4))
    assert list_candidates(late, np.array([0]), NOTHING, most=1) == {4: [0]}
    assert list_candidates(late, np.array([0]), NOTHING, most=5) == {1: [0], 4: [0]}
    assert list_candidates(late, np.array([0, 2]), NOTHING, most=1) == {4: [0, 2], 2: [1]}


def test_words_of_repeats_come_from_any_of_them() -> None:
    vectors = ((-1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 0.0))
    memories = build(vectors, texts=(0, 0, 2, 3, 4))
    memories = memories._replace(hashes=np.array([9, 1, 3, 4, 5], np.uint64))
    assert list_candidates(memories, np.array([4]), claims(*TEXTS), most=5) == {4: [1]}
